//! Reads what decides about a migration, page by page, with the rights to list and get. What may not be read is noted, and the rest is
//! read.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use api::appwrapper::{self, Spec};
use api::kueue::jobs::{JOB_KINDS, QUEUE_NAME};
use api::kueue::kinds::KINDS;
use kube::api::{ApiResource, ListParams};
use kube::{Client, Error};
use serde_json::{Value, json};

use super::cluster::{
    API_SERVICES, Cluster, DEFINITIONS, DEPLOYMENTS, Resource, Unread, WEBHOOKS, items, text,
};
use super::systems::{self, Software};
use crate::connection::{objects, resource};

/// Objects of a page.
const PAGE: u32 = 500;
/// Before the name of a resource: its objects with a queue.
const QUEUED: &str = "queued ";
/// The Service of Kueue's webhooks.
pub(crate) const WEBHOOK_SERVICE: &str = "kueue-webhook-service";

/// Reads a cluster.
pub(crate) async fn cluster(client: &Client) -> Result<Cluster> {
    let mut reader = Reader { client, cluster: Cluster::default() };
    reader.all(DEPLOYMENTS, "apps/v1", "Deployment").await?;
    if reader.cluster.of(DEPLOYMENTS).is_empty() {
        reader.known_deployments().await?;
    }
    reader.definitions().await?;
    let kinds = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];
    for (name, kind) in WEBHOOKS.into_iter().zip(kinds) {
        reader.all(name, "admissionregistration.k8s.io/v1", kind).await?;
    }
    reader.all(API_SERVICES, "apiregistration.k8s.io/v1", "APIService").await?;
    reader.settings().await?;
    reader.queues().await?;
    reader.jobs().await?;
    reader.wrappers().await?;
    reader.wrapped_kinds().await?;
    Ok(reader.cluster)
}

/// The `ConfigMap`s that the container and the volumes of a pod name.
pub(crate) fn config_maps(pods: &Value) -> BTreeSet<&str> {
    let volumes = items(&pods["volumes"]).map(|volume| text(&volume["configMap"]["name"]));
    let containers = || items(&pods["containers"]);
    let of_env = containers().flat_map(|container| items(&container["envFrom"]));
    let whole = of_env.map(|source| text(&source["configMapRef"]["name"]));
    let variables = containers().flat_map(|container| items(&container["env"]));
    let single = variables.map(|variable| text(&variable["valueFrom"]["configMapKeyRef"]["name"]));
    volumes.chain(whole).chain(single).filter(|name| !name.is_empty()).collect()
}

struct Reader<'a> {
    client: &'a Client,
    cluster: Cluster,
}

impl Reader<'_> {
    /// All objects of a resource, given by its name with its group.
    async fn all(&mut self, name: &str, version: &str, kind: &str) -> Result<()> {
        let plural = name.split('.').next().unwrap_or_default();
        self.selected(name, &resource(version, kind, plural), None, |object| object).await
    }

    /// The objects that a label selects, as `keep` leaves them.
    async fn selected(
        &mut self,
        name: &str,
        resource: &ApiResource,
        selector: Option<&str>,
        keep: impl Fn(Value) -> Value,
    ) -> Result<()> {
        let typed = |mut object: Value| {
            object["apiVersion"] = json!(resource.api_version);
            object["kind"] = json!(resource.kind);
            keep(object)
        };
        match list(self.client, resource, selector, typed).await {
            Ok(found) => {
                self.cluster.add(name, found);
                Ok(())
            }
            Err(error) => self.note(name.trim_start_matches(QUEUED), "list", error),
        }
    }

    /// The definitions, without their schemas.
    async fn definitions(&mut self) -> Result<()> {
        let of = resource("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions");
        self.selected(DEFINITIONS, &of, None, |definition| versions(&definition)).await
    }

    /// One object.
    async fn one(
        &mut self,
        name: &str,
        version: &str,
        kind: &str,
        (namespace, object): (&str, &str),
    ) -> Result<()> {
        let plural = name.split('.').next().unwrap_or_default();
        let api = objects(self.client, &resource(version, kind, plural), Some(namespace));
        match api.get_opt(object).await {
            Ok(found) => {
                self.cluster.add(name, found.iter().map(|found| json!(found)).collect());
                Ok(())
            }
            Err(error) => self.note(&format!("{name} {namespace}/{object}"), "get", error),
        }
    }

    /// Notes what the API server does not give. A resource that it does not serve is none.
    fn note(&mut self, resource: &str, verb: &'static str, error: Error) -> Result<()> {
        let Error::Api(status) = error else {
            return Err(error).with_context(|| format!("cannot read {resource}"));
        };
        if status.code != 404 {
            let (resource, lacks) = (resource.to_owned(), (status.code == 403).then_some(verb));
            self.cluster.unread.push(Unread { resource, why: status.message, lacks });
        }
        Ok(())
    }

    /// The Deployments where the manifests of the systems put them, for a user who may not list those of all namespaces.
    async fn known_deployments(&mut self) -> Result<()> {
        for software in [Software::Kueue, Software::Mcad, Software::AppWrapper, Software::Muster] {
            self.one(DEPLOYMENTS, "apps/v1", "Deployment", software.default_deployment()).await?;
        }
        Ok(())
    }

    /// The `ConfigMap`s of the systems, and the Service of Kueue's webhooks.
    async fn settings(&mut self) -> Result<()> {
        for system in systems::systems(&self.cluster) {
            let Some(deployment) = &system.deployment else { continue };
            for name in config_maps(&deployment.pods) {
                self.one("configmaps", "v1", "ConfigMap", (&deployment.namespace, name)).await?;
            }
            if system.software == Software::Kueue {
                let service = (&*deployment.namespace, WEBHOOK_SERVICE);
                self.one("services", "v1", "Service", service).await?;
            }
        }
        Ok(())
    }

    /// The objects of Kueue's API, in the newer version if it is served.
    async fn queues(&mut self) -> Result<()> {
        for kind in &KINDS {
            let name = kind.resource();
            if self.cluster.definition(&name).is_none() && systems::reads_definitions(&self.cluster) {
                continue;
            }
            let version = [api::kueue::V1BETA2, api::kueue::V1BETA1]
                .into_iter()
                .find(|v| self.cluster.serves(&name, v));
            let version = format!("{}/{}", api::kueue::GROUP, version.unwrap_or(api::kueue::V1BETA2));
            let resource = resource(&version, kind.kind, kind.plural);
            self.selected(&name, &resource, None, newer).await?;
        }
        Ok(())
    }

    /// The jobs with the label of a queue: their metadata and sizes.
    async fn jobs(&mut self) -> Result<()> {
        if self.cluster.of("localqueues.kueue.x-k8s.io").is_empty() {
            return Ok(());
        }
        for kind in JOB_KINDS {
            let name = job_resource(kind.plural, kind.group());
            let resource = resource(kind.api_version, kind.kind, kind.plural);
            self.selected(&name, &resource, Some(QUEUE_NAME), |job| sizes(&job)).await?;
        }
        // The other Deployments were read to find the systems.
        let deployments = resource("apps/v1", "Deployment", "deployments");
        self.selected(&job_resource("deployments", "apps"), &deployments, Some(QUEUE_NAME), |job| sizes(&job))
            .await
    }

    /// The AppWrappers of both groups, and the quota trees of MCAD.
    async fn wrappers(&mut self) -> Result<()> {
        for group in appwrapper::Group::ALL {
            for version in ["v1beta1", "v1beta2"] {
                let name = group.resource();
                let is_known = self.cluster.definition(&name).is_some();
                if !self.cluster.serves(&name, version) || (!is_known && version == "v1beta2") {
                    continue;
                }
                // A definition with both versions has each object in both.
                if self.cluster.of(&name).is_empty() {
                    let version = format!("{}/{version}", group.name());
                    self.all(&name, &version, appwrapper::KIND).await?;
                }
            }
        }
        for group in api::quota::Group::ALL {
            if self.cluster.definition(&group.resource()).is_some() {
                self.all(&group.resource(), group.api_version(), api::quota::KIND).await?;
            }
        }
        Ok(())
    }

    /// What the kinds in AppWrappers are in this cluster.
    async fn wrapped_kinds(&mut self) -> Result<()> {
        let mut kinds = BTreeSet::new();
        for group in appwrapper::Group::ALL {
            for wrapper in self.cluster.of(&group.resource()) {
                let Ok(spec) = Spec::read(&wrapper["spec"], text(&wrapper["metadata"]["name"])) else {
                    continue;
                };
                kinds.extend(spec.objects().map(|object| {
                    (text(&object["apiVersion"]).to_owned(), text(&object["kind"]).to_owned())
                }));
            }
        }
        let versions: BTreeSet<String> = kinds.iter().map(|(version, _)| version.clone()).collect();
        for version in versions.into_iter().filter(|version| is_path(version)) {
            let found = if version.contains('/') {
                self.client.list_api_group_resources(&version).await
            } else {
                self.client.list_core_api_resources(&version).await
            };
            let known = match found {
                Ok(found) => found.resources,
                Err(Error::Api(status)) if status.code == 404 => Vec::new(),
                Err(error) => {
                    self.note(&format!("the kinds of {version}"), "get", error)?;
                    continue;
                }
            };
            for (version, kind) in kinds.iter().filter(|(of, _)| *of == version) {
                let resource = known.iter().find(|known| known.kind == *kind && !known.name.contains('/'));
                let resource = match resource {
                    None => Resource::Missing,
                    Some(known) if known.namespaced => Resource::Namespaced(known.name.clone()),
                    Some(known) => Resource::ClusterScoped(known.name.clone()),
                };
                self.cluster.wrapped.insert((version.clone(), kind.clone()), resource);
            }
        }
        Ok(())
    }
}

/// The name under which the jobs of a kind are kept: those that have a queue.
pub(crate) fn job_resource(plural: &str, group: &str) -> String {
    if group.is_empty() { format!("{QUEUED}{plural}") } else { format!("{QUEUED}{plural}.{group}") }
}

/// Whether a group and version can be a part of a path.
fn is_path(version: &str) -> bool {
    let is_part = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte))
    };
    let parts: Vec<&str> = version.split('/').collect();
    parts.len() <= 2 && parts.into_iter().all(is_part)
}

/// An object of Kueue's API in the newer version. One that cannot be converted stays as it is.
fn newer(mut object: Value) -> Value {
    let mut converted = object.clone();
    if api::kueue::convert(&mut converted, api::kueue::workload::API_VERSION).is_ok() {
        object = converted;
    }
    // The templates of its pods are most of a Workload.
    if let Some(spec) = object["spec"].as_object_mut() {
        spec.remove("podSets");
    }
    object
}

/// What is kept of a definition: no schemas.
fn versions(definition: &Value) -> Value {
    let meta = &definition["metadata"];
    let versions: Vec<Value> = items(&definition["spec"]["versions"])
        .map(|version| json!({"name": version["name"], "served": version["served"]}))
        .collect();
    json!({"apiVersion": definition["apiVersion"], "kind": definition["kind"],
        "metadata": {"name": meta["name"], "labels": meta["labels"]}, "spec": {"versions": versions},
        "status": {"storedVersions": definition["status"]["storedVersions"]}})
}

/// What is kept of a job.
fn sizes(job: &Value) -> Value {
    let meta = &job["metadata"];
    let of = ["namespace", "name", "labels", "annotations", "ownerReferences"];
    let meta: Value = of.into_iter().map(|field| (field.to_owned(), meta[field].clone())).collect();
    json!({"apiVersion": job["apiVersion"], "kind": job["kind"], "metadata": meta,
        "spec": {"replicas": job["spec"]["replicas"], "dynamicAllocation": job["spec"]["dynamicAllocation"]}})
}

/// The objects of a resource, page by page. A list whose pages have expired is read once more, at once.
async fn list(
    client: &Client,
    resource: &ApiResource,
    selector: Option<&str>,
    keep: impl Fn(Value) -> Value,
) -> Result<Vec<Value>, Error> {
    let api = objects(client, resource, None);
    let first = selector.map_or_else(ListParams::default, |label| ListParams::default().labels(label));
    let (mut found, mut page) = (Vec::new(), first.clone().limit(PAGE));
    loop {
        let listed = match api.list(&page).await {
            Err(Error::Api(status)) if status.code == 410 && page.continue_token.is_some() => {
                found.clear();
                api.list(&first).await?
            }
            listed => listed?,
        };
        found.extend(listed.items.into_iter().map(|mut object| {
            object.metadata.managed_fields = None;
            keep(json!(object))
        }));
        match listed.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(found),
        }
    }
}
