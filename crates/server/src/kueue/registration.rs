//! The objects through which the API server finds Kueue's webhooks: webhook configurations, and the conversion in the
//! definitions of the kinds.
//!
//! On an installation of Kueue, its objects stay as they are and get the authority of the certificate, as Kueue's own
//! rotation gives it. Without one, Muster's own are created, for Kueue's kinds and for managed jobs alone, so that nothing
//! else waits for a webhook.

use api::kueue::jobs::{JobKind, QUEUE_NAME};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::Client;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, PostParams};
use serde_json::{Value, json};

use super::paths::{self, Hook};
use crate::registration::{put, resource};

/// Name of the configurations without an installation of Kueue.
const NAME: &str = "muster-kueue";
/// The end of the name of Kueue's Service, in the place of which its configurations have their own.
const SERVICE_SUFFIX: &str = "-webhook-service";
/// The port of the Service.
const PORT: u16 = 443;
/// So long the API server waits for an answer.
const TIMEOUT_S: u32 = 10;
/// So long it waits for the defaults of a job without a queue, which it creates without them.
const UNNAMED_TIMEOUT_S: u32 = 2;
/// What a webhook of Kueue's kinds reviews.
const OWN_CONTENT: [&str; 3] = ["spec", "status", "metadata.annotations"];
/// What a webhook of jobs reviews.
const JOB_CONTENT: [&str; 3] = ["spec", "metadata.labels", "metadata.annotations"];

/// Whether a request creates an object or changes one of the fields, in CEL. Other requests, such as those that remove
/// finalizers, go on without a webhook.
fn is_new(fields: &[&str]) -> String {
    let changed = |field: &&str| {
        format!(
            "has(object.{field}) != has(oldObject.{field}) || has(object.{field}) && object.{field} != oldObject.{field}"
        )
    };
    let changed: Vec<String> = fields.iter().map(changed).collect();
    format!("request.operation == 'CREATE' || {}", changed.join(" || "))
}

/// Whether an object has the label of a queue, in CEL.
fn is_named(object: &str) -> String {
    format!("has({object}.metadata.labels) && '{QUEUE_NAME}' in {object}.metadata.labels")
}

/// The jobs for which webhooks are registered.
#[derive(Debug, Clone, Default)]
pub struct RegisteredJobs {
    /// Their kinds.
    pub kinds: Vec<&'static JobKind>,
    /// Whether jobs without the label of a queue are managed, too.
    pub manages_unnamed: bool,
    /// The selector of their namespaces, as it is written in an object.
    pub namespaces: Value,
}

/// Where the API server finds Kueue's webhooks.
#[derive(Debug, Clone)]
pub(crate) struct KueueRegistration {
    /// Namespace of the Service.
    pub(crate) namespace: String,
    /// Name of the Service.
    pub(crate) service: String,
    /// Whether missing definitions are created.
    pub(crate) installs: bool,
    /// Jobs.
    pub(crate) jobs: RegisteredJobs,
}

/// Why the webhooks are not registered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KueueRegistrationError {
    #[error(
        "Service {0} does not exist, through which the API server calls Kueue's webhooks: deploy/kueue-webhook.yaml creates it"
    )]
    NoService(String),
    #[error("{0}; deploy/kueue-rbac.yaml permits it")]
    Api(#[from] kube::Error),
}

/// The two kinds of configurations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Mutating,
    Validating,
}

impl Verb {
    const ALL: [Self; 2] = [Self::Mutating, Self::Validating];

    /// The word in names.
    fn word(self) -> &'static str {
        match self {
            Self::Mutating => "mutating",
            Self::Validating => "validating",
        }
    }

    /// The name of the webhook for a resource.
    fn webhook(self, resource: &str) -> String {
        format!("{}{}.kb.io", &self.word()[..1], resource.trim_end_matches('s'))
    }

    fn resource(self) -> ApiResource {
        let (kind, plural) = match self {
            Self::Mutating => ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
            Self::Validating => ("ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
        };
        resource("admissionregistration.k8s.io", "v1", kind, plural)
    }
}

impl KueueRegistration {
    /// The names for which the API server requests a certificate.
    pub(crate) fn server_names(&self) -> Vec<String> {
        vec![format!("{}.{}.svc", self.service, self.namespace)]
    }

    /// Creates or updates the objects. `authorities` has the certificates, in PEM, under which the webhooks may be served.
    pub(crate) async fn apply(
        &self,
        client: &Client,
        authorities: &str,
    ) -> Result<(), KueueRegistrationError> {
        let bundle = STANDARD.encode(authorities);
        let mut foreign = Vec::new();
        for verb in Verb::ALL {
            foreign.push(find(client, &verb.resource(), &self.installed_name(verb)).await?);
        }
        if foreign.iter().any(Option::is_none) {
            self.check_service(client).await?;
        }
        self.define(client, &bundle).await?;
        for (verb, found) in Verb::ALL.into_iter().zip(foreign) {
            let resource = verb.resource();
            match found {
                Some(mut object) => {
                    if trust(object.data["webhooks"].as_array_mut().into_iter().flatten(), &bundle) {
                        replace(client, &resource, &object).await?;
                    }
                    remove(client, verb).await?;
                }
                None => {
                    put(client, &resource, None, NAME, self.configuration(verb, &bundle)).await?;
                }
            }
        }
        Ok(())
    }

    /// The name of the configuration in an installation of Kueue.
    fn installed_name(&self, verb: Verb) -> String {
        let base = self.service.strip_suffix(SERVICE_SUFFIX).unwrap_or(&self.service);
        format!("{base}-{}-webhook-configuration", verb.word())
    }

    /// Without the Service, the API server would refuse all writes of Kueue's kinds.
    async fn check_service(&self, client: &Client) -> Result<(), KueueRegistrationError> {
        let services = resource("", "v1", "Service", "services");
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &self.namespace, &services);
        let name = || format!("{}/{}", self.namespace, self.service);
        api.get_opt(&self.service).await?.map(drop).ok_or_else(|| KueueRegistrationError::NoService(name()))
    }

    /// The definitions: those of an installation get the authority; missing ones are created.
    async fn define(&self, client: &Client, bundle: &str) -> Result<(), kube::Error> {
        let group = "apiextensions.k8s.io";
        let definitions = resource(group, "v1", "CustomResourceDefinition", "customresourcedefinitions");
        for definition in api::kueue::crds(&self.client_config("/convert", bundle)) {
            let name = definition["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let Some(mut found) = find(client, &definitions, &name).await? else {
                if self.installs {
                    put(client, &definitions, None, &name, definition).await?;
                }
                continue;
            };
            let conversion = &mut found.data["spec"]["conversion"];
            if conversion["strategy"] == "Webhook" && trust([&mut conversion["webhook"]], bundle) {
                replace(client, &definitions, &found).await?;
            }
        }
        Ok(())
    }

    fn client_config(&self, path: &str, bundle: &str) -> Value {
        let service = json!({"namespace": self.namespace, "name": self.service, "path": path, "port": PORT});
        json!({"caBundle": bundle, "service": service})
    }

    /// The configuration without an installation of Kueue: webhooks for Kueue's kinds, and for managed jobs.
    fn configuration(&self, verb: Verb, bundle: &str) -> Value {
        let mut webhooks = Vec::new();
        for (path, hook) in paths::all() {
            let (resource, of, operations) = match hook {
                Hook::Default(resource) => (resource, Verb::Mutating, &["CREATE"][..]),
                Hook::Validate(resource) => (resource, Verb::Validating, &["CREATE", "UPDATE"][..]),
                Hook::DefaultJob(resource) => {
                    webhooks.extend(self.job_webhooks(verb, Verb::Mutating, resource, &path, bundle));
                    continue;
                }
                Hook::ValidateJob(resource) => {
                    webhooks.extend(self.job_webhooks(verb, Verb::Validating, resource, &path, bundle));
                    continue;
                }
                Hook::Convert | Hook::Allow => continue,
            };
            if of != verb {
                continue;
            }
            let mut resources = vec![resource.to_owned()];
            if (resource, verb) == ("workloads", Verb::Validating) {
                resources.push("workloads/status".into());
            }
            let rule = json!({"apiGroups": [api::kueue::GROUP], "apiVersions": [api::kueue::V1BETA2],
                "resources": resources, "operations": operations});
            let condition =
                json!({"name": "spec-status-or-annotations-are-new", "expression": is_new(&OWN_CONTENT)});
            webhooks.push(json!({
                "name": verb.webhook(resource), "admissionReviewVersions": ["v1"], "sideEffects": "None",
                "failurePolicy": "Fail", "matchPolicy": "Equivalent", "timeoutSeconds": TIMEOUT_S,
                "rules": [rule], "matchConditions": [condition], "clientConfig": self.client_config(&path, bundle),
            }));
        }
        json!({"webhooks": webhooks})
    }

    /// The webhooks of a kind of jobs, if it is managed. An outage blocks managed jobs alone: those with the label of a queue,
    /// unless others are managed, too. A job without the label may get a queue by default, so its creation asks, and goes on
    /// without an answer.
    fn job_webhooks(&self, verb: Verb, of: Verb, resource: &str, path: &str, bundle: &str) -> Vec<Value> {
        let kind = self.jobs.kinds.iter().find(|kind| kind.plural == resource).filter(|_| of == verb);
        let Some(kind) = kind else { return Vec::new() };
        let version = kind.api_version.rsplit('/').next().unwrap_or_default();
        let operations = if verb == Verb::Mutating { &["CREATE"][..] } else { &["CREATE", "UPDATE"] };
        let rule = json!({"apiGroups": [kind.group()], "apiVersions": [version], "resources": [resource],
            "operations": operations});
        let webhook = |name: String, policy: &str, timeout_s: u32, named: Option<String>| {
            let named = named.map(|named| json!({"name": "the-queue-decides", "expression": named}));
            let new =
                json!({"name": "spec-labels-or-annotations-are-new", "expression": is_new(&JOB_CONTENT)});
            let conditions: Vec<Value> = named.into_iter().chain([new]).collect();
            json!({
                "name": name, "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": policy,
                "matchPolicy": "Equivalent", "timeoutSeconds": timeout_s, "rules": [rule],
                "namespaceSelector": self.jobs.namespaces, "matchConditions": conditions,
                "clientConfig": self.client_config(path, bundle),
            })
        };
        let name = verb.webhook(resource);
        if self.jobs.manages_unnamed {
            return vec![webhook(name, "Fail", TIMEOUT_S, None)];
        }
        let (is_named, was_named) = (is_named("object"), is_named("oldObject"));
        let either = format!("{is_named} || request.operation == 'UPDATE' && {was_named}");
        let unnamed = (verb == Verb::Mutating).then(|| {
            let name = format!("unnamed-{name}");
            webhook(name, "Ignore", UNNAMED_TIMEOUT_S, Some(format!("!({is_named})")))
        });
        [webhook(name, "Fail", TIMEOUT_S, Some(either))].into_iter().chain(unnamed).collect()
    }
}

/// Removes the webhook configurations that Muster has created. Nothing may serve them any longer: the API server would
/// refuse all writes of Kueue's kinds. Returns the removed ones, as kind and name.
///
/// # Errors
/// One cannot be removed.
pub async fn remove_registration(client: &Client) -> Result<Vec<String>, kube::Error> {
    let mut removed = Vec::new();
    for verb in Verb::ALL {
        if remove(client, verb).await? {
            removed.push(format!("{} {NAME}", verb.resource().kind));
        }
    }
    Ok(removed)
}

async fn remove(client: &Client, verb: Verb) -> Result<bool, kube::Error> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &verb.resource());
    match api.delete(NAME, &DeleteParams::default()).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
        Err(error) => Err(error),
    }
}

/// Sets the authority of webhooks. Returns whether anything changed.
fn trust<'a>(webhooks: impl IntoIterator<Item = &'a mut Value>, bundle: &str) -> bool {
    let mut changed = false;
    for webhook in webhooks {
        let known = &mut webhook["clientConfig"]["caBundle"];
        if known.as_str() != Some(bundle) {
            *known = bundle.into();
            changed = true;
        }
    }
    changed
}

async fn find(
    client: &Client,
    resource: &ApiResource,
    name: &str,
) -> Result<Option<DynamicObject>, kube::Error> {
    Api::all_with(client.clone(), resource).get_opt(name).await
}

/// Replaces an object, unless it has changed since it was read.
async fn replace(client: &Client, resource: &ApiResource, object: &DynamicObject) -> Result<(), kube::Error> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), resource);
    let name = object.metadata.name.clone().unwrap_or_default();
    api.replace(&name, &PostParams::default(), object).await.map(drop)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use api::kueue::webhooks::JobRules;
    use apiserver::{ApiServer, Converter, Service, User};
    use jiff::{SignedDuration, Timestamp};
    use kube::api::{Patch, PatchParams};
    use tokio::net::TcpListener;
    use tokio::sync::oneshot;
    use tokio::task::JoinHandle;

    use super::*;
    use crate::certificate_files::TlsOptions;
    use crate::kueue::{Namespaces, Webhooks};
    use crate::registrar::Registrar;
    use crate::webhook_server::{Managed, WebhookNames, WebhookServer};

    const NAMESPACE: &str = "kueue-system";
    const SERVICE: &str = "kueue-webhook-service";

    /// The API server in memory, a replica that serves the webhooks, and the registrar of the leader.
    struct Cluster {
        client: Client,
        registrar: Registrar,
        stop: oneshot::Sender<()>,
        serving: JoinHandle<()>,
    }

    impl Cluster {
        async fn new() -> Self {
            let service =
                Service::new(ApiServer::new(apiserver::Config::default()), Arc::new(Timestamp::now));
            service.with(|server, _| {
                let convert = |object: &mut Value, to: &str| {
                    api::kueue::convert(object, to).map_err(|error| error.to_string())
                };
                server.convert_with(api::kueue::GROUP, Converter::new(convert));
            });
            let client = Client::new(service.as_user(User::admin()), "default");
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let port = listener.local_addr().unwrap().port();
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
            post(&client, "/api/v1/namespaces", namespace).await.unwrap();
            let ports = json!([{"name": "https", "port": 443, "targetPort": port}]);
            let object = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": SERVICE}, "spec": {"ports": ports}});
            post(&client, &format!("/api/v1/namespaces/{NAMESPACE}/services"), object).await.unwrap();
            let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
                "metadata": {"name": SERVICE, "labels": {"kubernetes.io/service-name": SERVICE}},
                "endpoints": [{"addresses": ["127.0.0.1"]}], "ports": [{"name": "https", "port": port, "protocol": "TCP"}]});
            let path = format!("/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices");
            post(&client, &path, slice).await.unwrap();
            let names = WebhookNames {
                namespace: NAMESPACE.into(),
                service: SERVICE.into(),
                secret: "kueue-webhook-server-cert".into(),
            };
            let namespaces = json!({"matchExpressions": [
                {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system"]}]});
            let kinds: Vec<&'static JobKind> = JobKind::of_framework("batch/job").into_iter().collect();
            let rules = JobRules {
                frameworks: kinds.iter().map(|kind| kind.framework.to_owned()).collect(),
                manages_unnamed: false,
                namespaces: api::selector::LabelSelector::read(&namespaces),
            };
            let managed = Managed {
                life: Duration::from_secs(90),
                installs: true,
                jobs: RegisteredJobs { kinds, manages_unnamed: false, namespaces },
            };
            let (server, registrar) =
                WebhookServer::managed(listener, client.clone(), names, managed, TlsOptions::default())
                    .unwrap();
            let (stop, stopped) = oneshot::channel();
            let (namespaces, watches) = Namespaces::watch(&client);
            let webhooks = Webhooks::new(&api::kueue::feature_gates::FeatureGates::default(), rules);
            let router = webhooks.knowing(namespaces).router();
            let serving = tokio::spawn(async move {
                tokio::select! {
                    () = server.run(router, async { drop(stopped.await) }) => {}
                    () = watches => {}
                }
            });
            Self { client, registrar, stop, serving }
        }

        async fn register(&mut self, now: Timestamp) {
            self.registrar.register(&self.client, now).await.unwrap();
        }
    }

    async fn post(client: &Client, path: &str, object: Value) -> Result<Value, kube::Error> {
        let request = http::Request::post(path).header("content-type", "application/json");
        client.request(request.body(object.to_string().into_bytes()).unwrap()).await
    }

    async fn get(client: &Client, path: &str) -> Option<Value> {
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        client.request(request).await.ok()
    }

    fn configurations(name: &str, verb: Verb) -> String {
        format!("/apis/admissionregistration.k8s.io/v1/{}/{name}", verb.resource().plural)
    }

    /// A ClusterQueue in the older version; it gets a finalizer by webhook.
    async fn create_queue(client: &Client, name: &str) -> Result<Value, kube::Error> {
        let queue = json!({"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ClusterQueue", "metadata": {"name": name},
            "spec": {"cohort": "all"}});
        post(client, "/apis/kueue.x-k8s.io/v1beta1/clusterqueues", queue).await
    }

    #[tokio::test]
    async fn webhooks_answer_while_their_certificate_is_renewed_and_the_secret_is_lost() {
        let mut cluster = Cluster::new().await;
        let start = Timestamp::now();
        cluster.register(start).await;
        let ended = Arc::new(AtomicBool::new(false));
        let (client, stop) = (cluster.client.clone(), ended.clone());
        let load = tokio::spawn(async move {
            let mut count = 0;
            while !stop.load(Ordering::Acquire) {
                let queue = create_queue(&client, &format!("queue-{count}")).await.unwrap();
                assert_eq!(queue["metadata"]["finalizers"][0], "kueue.x-k8s.io/resource-in-use");
                count += 1;
            }
            count
        });
        let secret = format!("/api/v1/namespaces/{NAMESPACE}/secrets/kueue-webhook-server-cert");
        let mut chains = std::collections::BTreeSet::new();
        for second in (5..=300_i64).step_by(5) {
            if second % 70 == 0 {
                let delete = http::Request::delete(&secret).body(Vec::new()).unwrap();
                cluster.client.request::<Value>(delete).await.unwrap();
            }
            cluster.register(start + SignedDuration::from_secs(second)).await;
            let found = get(&cluster.client, &secret).await.unwrap();
            chains.insert(found["data"]["tls.crt"].as_str().unwrap().to_owned());
            tokio::task::yield_now().await;
        }
        ended.store(true, Ordering::Release);
        assert!(load.await.unwrap() > 20);
        assert!(chains.len() >= 4, "{} certificates", chains.len());
        let definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/workloads.kueue.x-k8s.io";
        let definition = get(&cluster.client, definition).await.unwrap();
        let webhook = get(&cluster.client, &configurations(NAME, Verb::Validating)).await.unwrap();
        let conversion = &definition["spec"]["conversion"]["webhook"]["clientConfig"];
        assert_eq!(conversion["caBundle"], webhook["webhooks"][0]["clientConfig"]["caBundle"]);
        assert_eq!(conversion["service"]["path"], "/convert");
    }

    #[tokio::test]
    async fn an_outage_of_the_webhooks_blocks_nothing_but_new_content_of_kueues_kinds() {
        let mut cluster = Cluster::new().await;
        cluster.register(Timestamp::now()).await;
        let refused = post(
            &cluster.client,
            "/apis/kueue.x-k8s.io/v1beta2/clusterqueues",
            json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "wrong"},
            "spec": {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
                {"name": "a", "resources": [{"name": "memory", "nominalQuota": 1}]}]}]}}),
        );
        let refused = refused.await.unwrap_err().to_string();
        assert!(refused.contains("must match the name in coveredResources"), "{refused}");
        create_queue(&cluster.client, "queue").await.unwrap();
        cluster.stop.send(()).unwrap();
        cluster.serving.await.unwrap();
        let client = cluster.client;
        for (path, object) in [
            (
                "/api/v1/namespaces/default/configmaps",
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}),
            ),
            (
                "/api/v1/namespaces/default/pods",
                json!({"apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": "a", "labels": {"kueue.x-k8s.io/queue-name": "q"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]}}),
            ),
            (
                "/apis/kueue.x-k8s.io/v1beta2/workloadpriorityclasses",
                json!({"apiVersion": "kueue.x-k8s.io/v1beta2",
                "kind": "WorkloadPriorityClass", "metadata": {"name": "a"}, "value": 1}),
            ),
        ] {
            post(&client, path, object).await.unwrap();
        }
        let queues = resource(api::kueue::GROUP, "v1beta2", "ClusterQueue", "clusterqueues");
        let queues: Api<DynamicObject> = Api::all_with(client.clone(), &queues);
        let patch =
            async |change: Value| queues.patch("queue", &PatchParams::default(), &Patch::Merge(change)).await;
        let failed = patch(json!({"spec": {"stopPolicy": "Hold"}})).await.unwrap_err().to_string();
        assert!(failed.contains("failed calling webhook"), "{failed}");
        assert!(create_queue(&client, "new").await.is_err());
        patch(json!({"metadata": {"labels": {"a": "b"}}})).await.unwrap();
        queues.delete("queue", &DeleteParams::default()).await.unwrap();
        patch(json!({"metadata": {"finalizers": null}})).await.unwrap();
        assert!(queues.get_opt("queue").await.unwrap().is_none());
        assert_eq!(remove_registration(&client).await.unwrap().len(), 2);
        create_queue(&client, "new").await.unwrap();
        assert!(remove_registration(&client).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn an_installation_of_kueue_keeps_its_rules_and_gets_the_authority() {
        let mut cluster = Cluster::new().await;
        cluster.register(Timestamp::now()).await;
        let rules = json!([{"apiGroups": ["kueue.x-k8s.io"], "apiVersions": ["v1beta2"], "operations": ["CREATE"],
            "resources": ["clusterqueues"], "scope": "*"}]);
        for (verb, path) in [
            (Verb::Mutating, "/mutate-kueue-x-k8s-io-v1beta2-clusterqueue"),
            (Verb::Validating, "/validate-kueue-x-k8s-io-v1beta2-clusterqueue"),
        ] {
            let name = format!("kueue-{}-webhook-configuration", verb.word());
            let resource = verb.resource();
            let service = json!({"name": SERVICE, "namespace": NAMESPACE, "path": path});
            let object = json!({"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name},
                "webhooks": [{"name": "clusterqueue.kb.io", "admissionReviewVersions": ["v1"], "sideEffects": "None",
                    "clientConfig": {"service": service}, "rules": rules}]});
            post(&cluster.client, configurations("", verb).trim_end_matches('/'), object).await.unwrap();
        }
        cluster.register(Timestamp::now()).await;
        for verb in Verb::ALL {
            let name = format!("kueue-{}-webhook-configuration", verb.word());
            let found = get(&cluster.client, &configurations(&name, verb)).await.unwrap();
            assert_eq!(found["webhooks"][0]["rules"], rules);
            assert!(found["webhooks"][0]["clientConfig"]["caBundle"].is_string());
            assert!(
                get(&cluster.client, &configurations(NAME, verb)).await.is_none(),
                "Muster's own is removed"
            );
        }
        let queue = create_queue(&cluster.client, "queue").await.unwrap();
        assert_eq!(queue["metadata"]["finalizers"][0], "kueue.x-k8s.io/resource-in-use");
    }

    fn job(name: &str, labels: &Value) -> Value {
        let pod = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
        json!({"apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": name, "labels": labels, "finalizers": ["example.com/held"]},
            "spec": {"template": pod}})
    }

    #[tokio::test]
    async fn a_job_with_a_queue_is_suspended_before_it_exists_and_an_outage_blocks_no_other() {
        let jobs = "/apis/batch/v1/namespaces/default/jobs";
        let mut cluster = Cluster::new().await;
        cluster.register(Timestamp::now()).await;
        let client = cluster.client.clone();
        let queue = json!({"kueue.x-k8s.io/queue-name": "q"});
        let created = post(&client, jobs, job("queued", &queue)).await.unwrap();
        assert_eq!(created["spec"]["suspend"], true);
        let system = jobs.replace("default", "kube-system");
        let unselected = post(&client, &system, job("queued", &queue)).await.unwrap();
        assert_ne!(unselected["spec"]["suspend"], true);
        let wrong = post(&client, jobs, job("wrong", &json!({"kueue.x-k8s.io/queue-name": "A_b"}))).await;
        let text = wrong.unwrap_err().to_string();
        assert!(text.contains("metadata.labels[kueue.x-k8s.io/queue-name]"), "{text}");
        // The watch of the webhooks shows the queue soon after its creation.
        let local = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"name": "default"},
            "spec": {"clusterQueue": "all"}});
        post(&client, "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/localqueues", local).await.unwrap();
        let mut defaulted = Value::Null;
        for attempt in 0..1000 {
            defaulted = post(&client, jobs, job(&format!("plain-{attempt}"), &json!({}))).await.unwrap();
            if defaulted["spec"]["suspend"] == true {
                break;
            }
            tokio::task::yield_now().await;
        }
        assert_eq!(defaulted["metadata"]["labels"], json!({"kueue.x-k8s.io/queue-name": "default"}));

        cluster.stop.send(()).unwrap();
        cluster.serving.await.unwrap();
        post(&client, jobs, job("other", &json!({}))).await.unwrap();
        assert!(post(&client, jobs, job("late", &queue)).await.is_err());
        let kind = resource("batch", "v1", "Job", "jobs");
        let jobs: Api<DynamicObject> = Api::namespaced_with(client, "default", &kind);
        let patch =
            async |change: Value| jobs.patch("queued", &PatchParams::default(), &Patch::Merge(change)).await;
        for refused in [json!({"spec": {"suspend": false}}), json!({"metadata": {"labels": null}})] {
            let text = patch(refused).await.unwrap_err().to_string();
            assert!(text.contains("failed calling webhook"), "{text}");
        }
        patch(json!({"metadata": {"finalizers": null}})).await.unwrap();
    }

    #[tokio::test]
    async fn nothing_is_registered_before_the_service_exists() {
        let mut cluster = Cluster::new().await;
        let path = format!("/api/v1/namespaces/{NAMESPACE}/services/{SERVICE}");
        cluster.client.request::<Value>(http::Request::delete(path).body(Vec::new()).unwrap()).await.unwrap();
        let error =
            cluster.registrar.register(&cluster.client, Timestamp::now()).await.unwrap_err().to_string();
        assert!(error.contains("Service kueue-system/kueue-webhook-service does not exist"), "{error}");
        assert!(get(&cluster.client, &configurations(NAME, Verb::Mutating)).await.is_none());
    }
}
