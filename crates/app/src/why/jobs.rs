//! Jobs, sets of pods and pods: the Workload or AppWrapper that queues them. It is found through owners, in both directions, with
//! the rights of the user.

use anyhow::{Context, Result, bail};
use api::kueue::jobs::{JOB_KINDS, QUEUE_NAME, QUEUEING_BLOCKED, WORKLOAD};
use controllers::GangKind;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::{Api, Client};
use serde_json::Value;

use crate::connection::{read_one, resource};

/// Further kinds between a job and its pods.
const BETWEEN: [Resource; 2] = [
    Resource { api_version: "apps/v1", kind: "Deployment", plural: "deployments" },
    Resource { api_version: "apps/v1", kind: "ReplicaSet", plural: "replicasets" },
];
/// Short names, as kubectl has them.
const SHORT_NAMES: [(&str, &str); 6] = [
    ("po", "Pod"),
    ("sts", "StatefulSet"),
    ("deploy", "Deployment"),
    ("rs", "ReplicaSet"),
    ("lws", "LeaderWorkerSet"),
    ("sparkapp", "SparkApplication"),
];
/// So many owners are followed.
const OWNERS_MAX: usize = 8;
/// Of a job with many Workloads, so many are reported.
const WORKLOADS_MAX: usize = 16;

/// A kind of objects that have a Workload, or are owned by one that has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Resource {
    api_version: &'static str,
    kind: &'static str,
    plural: &'static str,
}

/// What queues an object: its kinds, and its name.
pub(super) type Target = (Vec<GangKind>, String);

/// The kinds of jobs, then those between a job and its pods.
fn kinds() -> impl Iterator<Item = Resource> {
    let of_jobs = JOB_KINDS.iter().map(|known| Resource {
        api_version: known.api_version,
        kind: known.kind,
        plural: known.plural,
    });
    of_jobs.chain(BETWEEN)
}

/// The names of all kinds, for a message.
pub(super) fn known() -> String {
    let names: Vec<String> = kinds().map(Resource::word).collect();
    format!("workload, {}", names.join(", "))
}

impl Resource {
    /// The kind with this name: kind, plural or short name, with or without the API group.
    pub(super) fn named(name: &str) -> Option<Self> {
        let name = name.to_lowercase();
        let (word, group) = name.split_once('.').map_or((&*name, None), |(word, group)| (word, Some(group)));
        let short = SHORT_NAMES.iter().find(|(short, _)| *short == word).map(|(_, kind)| *kind);
        kinds().find(|known| {
            let is_named =
                known.plural == word || known.kind.to_lowercase() == word || short == Some(known.kind);
            is_named && group.is_none_or(|group| group == known.group())
        })
    }

    /// The kind, in lower case.
    pub(super) fn word(self) -> String {
        self.kind.to_lowercase()
    }

    /// Its resource.
    pub(super) fn api(self) -> ApiResource {
        resource(self.api_version, self.kind, self.plural)
    }

    fn owner(reference: &OwnerReference) -> Option<Self> {
        let group = reference.api_version.split_once('/').map_or("", |(group, _)| group);
        kinds().find(|known| known.kind == reference.kind && known.group() == group)
    }

    fn group(self) -> &'static str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    async fn get(self, client: &Client, namespace: &str, name: &str) -> kube::Result<Option<DynamicObject>> {
        read_one(&Api::namespaced_with(client.clone(), namespace, &self.api()), name).await
    }
}

/// What queues the object of this kind and name, or an object of any kind with this name. Nothing if no object has the name.
///
/// # Errors
///
/// There is no object of the kind, or nothing queues it, and why.
pub(super) async fn find(
    client: &Client,
    kind: Option<Resource>,
    namespace: &str,
    name: &str,
) -> Result<Vec<Target>> {
    let workloads = resource(api::kueue::workload::API_VERSION, "Workload", "workloads");
    let workloads = Api::namespaced_with(client.clone(), namespace, &workloads);
    let all: Vec<DynamicObject> = match workloads.list(&ListParams::default()).await {
        Ok(list) => list.items,
        Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
        // A name without a kind is most likely that of a gang.
        Err(kube::Error::Api(status)) if status.code == 403 && kind.is_none() => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| format!("cannot list the Workloads of {namespace}")),
    };
    let found = owned(&all, kind, name);
    if !found.is_empty() {
        return Ok(found);
    }
    let candidates = kind.map_or_else(|| kinds().collect(), |kind| vec![kind]);
    for candidate in candidates {
        let object = match (candidate.get(client, namespace, name).await, kind) {
            (Ok(Some(object)), _) => object,
            (Ok(None) | Err(_), None) => continue,
            (Ok(None), Some(kind)) => bail!("there is no {} {namespace}/{name}", kind.kind),
            (Err(error), Some(kind)) => {
                return Err(error).with_context(|| format!("cannot read {} {namespace}/{name}", kind.kind));
            }
        };
        return match climb(client, &all, namespace, &object).await? {
            found if !found.is_empty() => Ok(found),
            _ => bail!("{} {namespace}/{name} {}", candidate.kind, unqueued(&object)),
        };
    }
    Ok(Vec::new())
}

/// Follows the owners of an object to what queues it.
async fn climb(
    client: &Client,
    all: &[DynamicObject],
    namespace: &str,
    object: &DynamicObject,
) -> Result<Vec<Target>> {
    let mut object = object.clone();
    for _ in 0..OWNERS_MAX {
        let named = object.metadata.annotations.as_ref().and_then(|all| all.get(WORKLOAD));
        if let Some(known) = all.iter().find(|known| named.is_some() && known.metadata.name.as_ref() == named)
        {
            return Ok(targets([known].into_iter()));
        }
        let mut owners = object.metadata.owner_references.iter().flatten();
        let controller = owners.clone().find(|owner| owner.controller == Some(true));
        let Some(owner) = controller.or_else(|| owners.next()) else { break };
        let kind = Resource::owner(owner);
        let found = owned(all, kind, &owner.name);
        if kind.is_some() && !found.is_empty() {
            return Ok(found);
        }
        if owner.kind == "AppWrapper" {
            let wrappers = GangKind::ALL.into_iter().filter(|kind| *kind != GangKind::Workload);
            return Ok(vec![(wrappers.collect(), owner.name.clone())]);
        }
        let Some(kind) = kind else { break };
        let read = kind.get(client, namespace, &owner.name).await;
        let read =
            read.with_context(|| format!("cannot read {} {namespace}/{}, the owner", kind.kind, owner.name))?;
        let Some(next) = read else { break };
        object = next;
    }
    Ok(Vec::new())
}

/// The Workloads that an object of this kind and name owns: those that have not ended, or else all.
fn owned(all: &[DynamicObject], kind: Option<Resource>, name: &str) -> Vec<Target> {
    let is_owner = |owner: &OwnerReference| {
        owner.name == name && kind.is_none_or(|kind| Resource::owner(owner) == Some(kind))
    };
    let own = || all.iter().filter(|known| known.metadata.owner_references.iter().flatten().any(is_owner));
    match targets(own().filter(|known| !has_ended(known))) {
        current if current.is_empty() => targets(own()),
        current => current,
    }
}

fn targets<'a>(workloads: impl Iterator<Item = &'a DynamicObject>) -> Vec<Target> {
    let names = workloads.filter_map(|known| known.metadata.name.clone()).take(WORKLOADS_MAX);
    names.map(|name| (vec![GangKind::Workload], name)).collect()
}

fn condition<'a>(object: &'a DynamicObject, kind: &str) -> Option<&'a Value> {
    let mut all = object.data["status"]["conditions"].as_array().into_iter().flatten();
    all.find(|condition| condition["type"] == kind && condition["status"] == "True")
}

fn has_ended(workload: &DynamicObject) -> bool {
    condition(workload, "Finished").is_some()
}

/// Why nothing queues an object.
fn unqueued(object: &DynamicObject) -> String {
    if let Some(blocked) = condition(object, QUEUEING_BLOCKED) {
        return format!("gets no Workload: {}", blocked["message"].as_str().unwrap_or_default());
    }
    let is_queued = object.metadata.labels.iter().flatten().any(|(key, _)| key == QUEUE_NAME);
    if is_queued {
        return "has no Workload: its Events say why (kubectl describe)".into();
    }
    format!("is in no queue: neither has it the label {QUEUE_NAME}, nor does an AppWrapper hold it")
}
