//! The writes, at the hub and in workers.

use std::time::Duration;

use api::kueue::FINALIZER;
use api::kueue::jobs::{JobKind, remote};
use controllers::{Error, ResourcePath, Whole, without_finalizer};
use index::Kind;
use kube::Client;
use serde_json::{Map, Value, json};

use crate::dispatch::HubWrite;
use crate::hub::{HubKind, JobOf};
use crate::remote::RemoteWrite;
use crate::watch::Key;

/// How long a write in a worker may take. One that does not answer is found by its watches.
const REMOTE_MAX: Duration = Duration::from_secs(15);

/// What has become of a write.
#[derive(Debug)]
pub(crate) enum Outcome {
    Written,
    /// The job, or an earlier one of its name, is not as far: again, soon.
    Deferred,
    /// The job is run by its own controller, and why.
    Unmanaged(String),
    /// Another object has the name.
    Taken(String),
    /// The job is gone.
    Gone,
}

fn path(kind: HubKind, namespace: &str) -> ResourcePath {
    let resource = kind.resource();
    ResourcePath::of(&Kind::new(&*resource.api_version, &*resource.kind), &resource.plural, namespace)
}

fn jobs(kind: &JobKind, namespace: &str) -> ResourcePath {
    ResourcePath::of(&Kind::new(kind.api_version, kind.kind), kind.plural, namespace)
}

/// Reads the job of a Workload; `None`: it is gone, or another one has its name.
async fn read(hub: &Client, job: &JobOf) -> Result<Option<Value>, Error> {
    match jobs(job.kind.0, &job.key.namespace).get::<Value>(hub, &job.key.name).await {
        Ok(found) if found["metadata"]["uid"] == *job.uid => Ok(Some(found)),
        Ok(_) | Err(Error::NotFound(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

async fn merge_status(hub: &Client, whole: &Whole, patch: &Value) -> Result<(), Error> {
    let meta = &whole.metadata;
    let path = path(HubKind::Workload, &meta.namespace);
    path.merge_status::<Value>(hub, &meta.name, &meta.resource_version, patch, true).await.map(drop)
}

/// Performs a write at the hub.
pub(crate) async fn at_hub(hub: &Client, write: &HubWrite) -> Result<Outcome, Error> {
    match write {
        HubWrite::Status { whole, patch, .. } => {
            merge_status(hub, whole, patch).await.map(|()| Outcome::Written)
        }
        HubWrite::Nominate { whole, job, names } => {
            let Some(found) = read(hub, job).await? else { return Ok(Outcome::Gone) };
            if let Some(why) = remote::not_handed_over(job.kind.0, &found) {
                return Ok(Outcome::Unmanaged(why));
            }
            let patch = json!({ "nominatedClusterNames": names });
            merge_status(hub, whole, &patch).await.map(|()| Outcome::Written)
        }
        HubWrite::SyncJob { job, status, is_end, .. } => {
            let Some(found) = read(hub, job).await? else { return Ok(Outcome::Gone) };
            // A suspended job has no running pods: the API server would refuse them.
            if job.kind.0.is_suspended(&found) && !is_end {
                return Ok(Outcome::Deferred);
            }
            write_job_status(hub, job, &found, status).await
        }
        HubWrite::StopJob { job, chosen, .. } => {
            let Some(found) = read(hub, job).await? else { return Ok(Outcome::Gone) };
            if !job.kind.0.integration.is_suspended(&found) {
                return Ok(Outcome::Deferred);
            }
            let stopped = remote::without_pods(job.kind.0, &found["status"]);
            write_job_status(hub, job, &found, &stopped).await?;
            if let Some(chosen) = chosen {
                merge_status(hub, chosen, &json!({"clusterName": null})).await?;
            }
            Ok(Outcome::Written)
        }
    }
}

async fn write_job_status(
    hub: &Client,
    job: &JobOf,
    found: &Value,
    status: &Value,
) -> Result<Outcome, Error> {
    let patch = difference(&found["status"], status);
    if patch.is_empty() {
        return Ok(Outcome::Written);
    }
    let version = found["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    let path = jobs(job.kind.0, &job.key.namespace);
    path.merge_status::<Value>(hub, &job.key.name, version, &patch.into(), true)
        .await
        .map(|_| Outcome::Written)
}

/// The merge patch that makes one object another one.
fn difference(from: &Value, to: &Value) -> Map<String, Value> {
    let empty = Map::new();
    let (from, to) = (from.as_object().unwrap_or(&empty), to.as_object().unwrap_or(&empty));
    let removed =
        from.keys().filter(|field| !to.contains_key(*field)).map(|field| (field.clone(), Value::Null));
    let changed = to.iter().filter(|(field, value)| from.get(*field) != Some(value)).map(|(field, value)| {
        let is_merged = value.is_object() && from.get(field).is_some_and(Value::is_object);
        let value = if is_merged { difference(&from[field], value).into() } else { value.clone() };
        (field.clone(), value)
    });
    removed.chain(changed).collect()
}

/// Writes the conditions of a cluster or a check.
pub(crate) async fn conditions(
    hub: &Client,
    kind: HubKind,
    whole: &Whole,
    conditions: &Value,
) -> Result<Outcome, Error> {
    let meta = &whole.metadata;
    let status = json!({ "conditions": conditions });
    let written =
        path(kind, "").merge_status::<Value>(hub, &meta.name, &meta.resource_version, &status, true).await;
    written.map(|_| Outcome::Written)
}

/// Performs a write in a worker.
pub(crate) async fn in_worker(
    hub: &Client,
    worker: &Client,
    origin: &str,
    write: &RemoteWrite,
) -> Result<Outcome, Error> {
    let writing = async {
        match write {
            RemoteWrite::CreateWorkload(body) => {
                create(worker, &path(HubKind::Workload, namespace(body)), body, origin).await
            }
            RemoteWrite::PatchWorkload(whole, spec) => {
                let meta = &whole.metadata;
                let patch = json!({"metadata": {"resourceVersion": meta.resource_version}, "spec": spec});
                let path = path(HubKind::Workload, &meta.namespace);
                path.merge::<Value>(worker, &meta.name, &patch).await.map(|_| Outcome::Written)
            }
            RemoteWrite::DeleteWorkload(whole) => delete_workload(worker, whole).await,
            RemoteWrite::CreateJob(job, workload) => create_job(hub, worker, job, workload, origin).await,
            RemoteWrite::DeleteJob(kind, whole) => {
                let Some(kind) = remote::kinds().nth(*kind) else { return Ok(Outcome::Gone) };
                let meta = &whole.metadata;
                let path = jobs(kind, &meta.namespace);
                // While the job is there, its pods may run: it goes after them.
                path.delete_after_dependents(worker, &meta.name, &meta.uid).await.map(|()| Outcome::Written)
            }
        }
    };
    match tokio::time::timeout(REMOTE_MAX, writing).await {
        Ok(written) => written,
        Err(_) => Err(Error::Unreachable(format!("no answer within {} s", REMOTE_MAX.as_secs()))),
    }
}

fn namespace(body: &Value) -> &str {
    body["metadata"]["namespace"].as_str().unwrap_or_default()
}

/// Creates an object. One of this hub with the same uid is the same object: an earlier process has created it.
async fn create(worker: &Client, path: &ResourcePath, body: &Value, origin: &str) -> Result<Outcome, Error> {
    match path.create::<Value>(worker, body).await {
        Ok(_) => Ok(Outcome::Written),
        Err(Error::Exists(_)) => {
            let name = body["metadata"]["name"].as_str().unwrap_or_default();
            let found = path.get::<Value>(worker, name).await?;
            if found["metadata"]["labels"][remote::ORIGIN] == origin {
                let from = |object: &Value| object["metadata"]["annotations"][remote::ORIGIN_UID].clone();
                let is_same = from(&found).is_null() || from(&found) == from(body);
                // That of an earlier object of this name goes first.
                return Ok(if is_same { Outcome::Written } else { Outcome::Deferred });
            }
            let kind = body["kind"].as_str().unwrap_or_default();
            Ok(Outcome::Taken(format!(
                "a {kind} {name:?} that this hub has not created is there: rename one of them, or delete that one"
            )))
        }
        Err(error) => Err(error),
    }
}

async fn create_job(
    hub: &Client,
    worker: &Client,
    job: &JobOf,
    workload: &Key,
    origin: &str,
) -> Result<Outcome, Error> {
    let Some(found) = read(hub, job).await? else { return Ok(Outcome::Gone) };
    if let Some(why) = remote::not_handed_over(job.kind.0, &found) {
        return Ok(Outcome::Unmanaged(why));
    }
    let copy = remote::copy(job.kind.0, &found, &workload.name, origin);
    create(worker, &jobs(job.kind.0, &job.key.namespace), &copy, origin).await
}

/// The controllers of the worker keep a Workload with quota by a finalizer; its job is gone.
async fn delete_workload(worker: &Client, whole: &Whole) -> Result<Outcome, Error> {
    let meta = &whole.metadata;
    let path = path(HubKind::Workload, &meta.namespace);
    if meta.has_finalizer(FINALIZER) {
        match path.merge::<Value>(worker, &meta.name, &without_finalizer(meta, FINALIZER)).await {
            Ok(_) | Err(Error::NotFound(_)) => {}
            Err(error) => return Err(error),
        }
    }
    path.delete(worker, &meta.name, &meta.uid).await.map(|()| Outcome::Written)
}

/// The subject of Events about an object.
pub(crate) fn subject(kind: HubKind, whole: &Whole) -> controllers::Subject {
    let resource = kind.resource();
    controllers::Subject {
        api_version: resource.api_version,
        kind: resource.kind,
        namespace: whole.metadata.namespace.clone(),
        name: whole.metadata.name.clone(),
        uid: whole.metadata.uid.clone(),
        resource_version: whole.metadata.resource_version.clone(),
    }
}
