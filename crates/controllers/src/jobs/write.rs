//! The writes about jobs.

use api::MicroTime;
use api::kueue::FINALIZER;
use api::kueue::jobs::pods::MANAGED;
use api::kueue::jobs::{JobKind, REFERENCED};
use api::kueue::status::{Condition, Status, WAITING_FOR_REPLACEMENT};
use api::kueue::workload::{API_VERSION, Workload};
use futures::{StreamExt as _, stream};
use index::{Kind, KueueKind};
use kube::Client;
use serde_json::{Value, json};

use super::orphan::Orphan;
use crate::api_calls::ResourcePath;
use crate::error::Error;
use crate::kueue::write::{self, WorkloadWrite, path, without_finalizer};
use crate::watched::Whole;

/// The field manager of the pods that have ended.
const RECLAIMABLE_MANAGER: &str = "kueue-reclaimable-pods";
/// The beginning of the field managers of single conditions.
const CONDITION_MANAGER: &str = "kueue-job-controller";
/// The field manager of the condition of groups of pods.
const POD_MANAGER: &str = "kueue-pod-controller";
/// The field manager of why a pod is stopped.
const STOP_MANAGER: &str = "kueue";
/// So many pods of a group, or Workloads of a set, are written at the same time.
const WRITES_MAX: usize = 8;

/// One write.
pub(super) enum Write {
    /// Creates Workloads.
    Create(Vec<Value>),
    /// Merges a patch into a Workload.
    Workload(Box<Whole>, Value),
    /// Deletes a Workload.
    DeleteWorkload(Box<Whole>),
    /// Deletes Workloads of groups of pods. They stay until those are stopped.
    DeleteGroups(Vec<Whole>),
    /// Writes the admission status of a Workload.
    Admission(Box<Workload>, Box<Status>),
    /// Writes a condition of a Workload.
    Condition(Box<Whole>, Box<Condition>),
    /// Writes the pods of a Workload that have ended.
    Reclaimable(Box<Whole>, Value),
    /// Replaces the job.
    Job(&'static JobKind, Box<Value>),
    /// Replaces the job by one that runs, which was admitted then.
    Start(&'static JobKind, Box<Value>, MicroTime),
    /// Merges a patch into the status of the job.
    JobStatus(&'static JobKind, Box<Whole>, Value),
    /// Writes the conditions of a job that gets no Workload, if the controller may.
    Blocked(&'static JobKind, Box<Whole>, Value),
    /// Deletes the job.
    DeleteJob(&'static JobKind, Box<Whole>),
    /// About a Workload whose job is not shown.
    Orphan(Box<Orphan>),
    /// Removes the finalizer of a Workload whose pods are gone.
    OrphanGroup(Box<Whole>),
    /// Writes several pods.
    Pods(Vec<PodWrite>),
}

/// A write about a pod.
pub(super) enum PodWrite {
    /// Replaces it.
    Replace(Box<Value>),
    /// Records why it is stopped, and deletes it.
    Stop(Box<Whole>, Box<Value>),
    /// Removes the finalizer.
    Release(Box<Whole>),
    /// Removes the finalizer, and deletes it.
    Remove(Box<Whole>),
}

impl PodWrite {
    fn target(&self) -> Before {
        match self {
            Self::Replace(pod) => target(pod),
            Self::Stop(pod, _) | Self::Release(pod) | Self::Remove(pod) => target(&pod.value),
        }
    }
}

/// What the watches show before a write.
pub(super) enum Before {
    /// An object with this uid and this resource version.
    Version(String, String),
    /// No Workload with this namespace and this name.
    NoWorkload(String, String),
}

pub(super) fn target(object: &Value) -> Before {
    let [uid, version] = ["uid", "resourceVersion"].map(|field| field_of(object, field));
    Before::Version(uid, version)
}

/// The namespace and the name of an object.
pub(super) fn name_of(object: &Value) -> (String, String) {
    (field_of(object, "namespace"), field_of(object, "name"))
}

fn field_of(object: &Value, field: &str) -> String {
    object["metadata"][field].as_str().unwrap_or_default().to_owned()
}

impl Write {
    /// What the watches show before this write, of each object that is written.
    pub(super) fn targets(&self) -> Vec<Before> {
        let absent = |workload: &Value| {
            let (namespace, name) = name_of(workload);
            Before::NoWorkload(namespace, name)
        };
        match self {
            Self::Create(workloads) => workloads.iter().map(absent).collect(),
            Self::Workload(object, _)
            | Self::DeleteWorkload(object)
            | Self::Condition(object, _)
            | Self::Reclaimable(object, _)
            | Self::JobStatus(_, object, _)
            | Self::Blocked(_, object, _)
            | Self::DeleteJob(_, object)
            | Self::OrphanGroup(object) => vec![target(&object.value)],
            Self::Orphan(orphan) => vec![orphan.target()],
            Self::Admission(workload, _) => {
                let meta = &workload.metadata;
                vec![Before::Version(meta.uid.clone(), meta.resource_version.clone())]
            }
            Self::Job(_, job) | Self::Start(_, job, _) => vec![target(job)],
            Self::DeleteGroups(workloads) => workloads.iter().map(|whole| target(&whole.value)).collect(),
            Self::Pods(writes) => writes.iter().map(PodWrite::target).collect(),
        }
    }

    /// When the job was admitted that this write starts.
    pub(super) fn started(&self) -> Option<MicroTime> {
        if let Self::Start(_, _, admitted) = self { Some(*admitted) } else { None }
    }
}

/// Writes how many pods of each pod set need no quota any more.
pub(super) async fn reclaimable(client: &Client, workload: &Whole, pods: Value) -> Result<(), Error> {
    apply(client, workload, RECLAIMABLE_MANAGER, &json!({"reclaimablePods": pods})).await
}

/// Performs a write. Returns whether anything was written.
pub(super) async fn perform(client: &Client, write: Write) -> Result<bool, Error> {
    let written = match write {
        Write::Create(workloads) => create(client, workloads).await,
        Write::Workload(workload, patch) => merge(client, &workload, &patch).await,
        Write::DeleteWorkload(workload) => delete(client, &workload).await,
        Write::DeleteGroups(workloads) => delete_groups(client, workloads).await,
        Write::Admission(workload, status) => admission(client, *workload, *status).await,
        Write::Condition(workload, condition) => {
            let manager = match &*condition.kind {
                WAITING_FOR_REPLACEMENT => POD_MANAGER.to_owned(),
                kind => format!("{CONDITION_MANAGER}-{kind}"),
            };
            let condition: &Condition = &condition;
            apply(client, &workload, &manager, &json!({"conditions": [condition]})).await
        }
        Write::Reclaimable(workload, pods) => reclaimable(client, &workload, pods).await,
        Write::Job(kind, mut job) | Write::Start(kind, mut job, _) => {
            job.as_object_mut().map(|job| job.remove(REFERENCED));
            let (namespace, name) = name_of(&job);
            jobs(kind, &namespace).replace(client, &name, &job).await
        }
        Write::JobStatus(kind, job, status) => job_status(client, kind, &job, &status).await,
        Write::Blocked(kind, job, conditions) => {
            match job_status(client, kind, &job, &json!({"conditions": conditions})).await {
                // The role of an installation of Kueue allows it for some kinds only. The Event is recorded all the same.
                Err(Error::NotAllowed(_)) => return Ok(false),
                written => written,
            }
        }
        Write::DeleteJob(kind, job) => {
            let meta = &job.metadata;
            jobs(kind, &meta.namespace).delete(client, &meta.name, &meta.uid).await
        }
        Write::Pods(writes) => all(writes, |write| pod(client, write)).await,
        Write::OrphanGroup(workload) => return orphan_group(client, *workload).await,
        Write::Orphan(orphan) => return orphan.perform(client).await,
    };
    written.map(|()| true)
}

/// Merges a patch into the status of a job.
async fn job_status(client: &Client, kind: &JobKind, job: &Whole, status: &Value) -> Result<(), Error> {
    let meta = &job.metadata;
    let (jobs, version) = (jobs(kind, &meta.namespace), &meta.resource_version);
    jobs.merge_status::<Value>(client, &meta.name, version, status, true).await.map(drop)
}

/// The path of the jobs of a kind in a namespace.
pub(super) fn jobs(kind: &JobKind, namespace: &str) -> ResourcePath {
    ResourcePath::of(&Kind::new(kind.api_version, kind.kind), kind.plural, namespace)
}

/// The path of the pods in a namespace.
fn pods_in(namespace: &str) -> ResourcePath {
    ResourcePath::of(&Kind::new("v1", "Pod"), "pods", namespace)
}

/// Creates Workloads.
async fn create(client: &Client, workloads: Vec<Value>) -> Result<(), Error> {
    let create = async |workload: Value| {
        let namespace = field_of(&workload, "namespace");
        let created = path(KueueKind::Workload, &namespace).create::<Value>(client, &workload).await;
        // The watch has not shown it yet.
        if matches!(created, Err(Error::Exists(_))) { Ok(()) } else { created.map(drop) }
    };
    all(workloads, create).await
}

/// Writes several objects, some at the same time. All are tried; the first error counts.
async fn all<T, W: Future<Output = Result<(), Error>>>(
    objects: Vec<T>,
    write: impl FnMut(T) -> W,
) -> Result<(), Error> {
    let written = stream::iter(objects).map(write).buffer_unordered(WRITES_MAX);
    written.fold(Ok(()), |sum, written| async { sum.and(written) }).await
}

/// Deletes Workloads, and leaves their finalizers.
async fn delete_groups(client: &Client, workloads: Vec<Whole>) -> Result<(), Error> {
    let delete = async |workload: Whole| {
        let meta = &workload.metadata;
        path(KueueKind::Workload, &meta.namespace).delete(client, &meta.name, &meta.uid).await
    };
    all(workloads, delete).await
}

async fn pod(client: &Client, write: PodWrite) -> Result<(), Error> {
    let path = |pod: &Whole| pods_in(&pod.metadata.namespace);
    let delete = async |pod: &Whole| path(pod).delete(client, &pod.metadata.name, &pod.metadata.uid).await;
    let release = async |pod: &Whole| {
        let meta = &pod.metadata;
        if !meta.has_finalizer(MANAGED) {
            return Ok(());
        }
        match path(pod).merge::<Value>(client, &meta.name, &without_finalizer(meta, MANAGED)).await {
            Err(Error::NotFound(_)) => Ok(()),
            merged => merged.map(drop),
        }
    };
    match write {
        PodWrite::Replace(pod) => {
            let (namespace, name) = name_of(&pod);
            pods_in(&namespace).replace(client, &name, &pod).await
        }
        PodWrite::Stop(pod, condition) => {
            let meta = &pod.metadata;
            let body = json!({"apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid},
                "status": {"conditions": [condition]}});
            match path(&pod).apply_status::<Value>(client, STOP_MANAGER, &meta.name, &body).await {
                Err(Error::NotFound(_)) => Ok(()),
                Err(error) => Err(error),
                Ok(_) => delete(&pod).await,
            }
        }
        PodWrite::Release(pod) => release(&pod).await,
        PodWrite::Remove(pod) => {
            release(&pod).await?;
            delete(&pod).await
        }
    }
}

pub(super) async fn merge(client: &Client, workload: &Whole, patch: &Value) -> Result<(), Error> {
    let meta = &workload.metadata;
    path(KueueKind::Workload, &meta.namespace).merge::<Value>(client, &meta.name, patch).await.map(drop)
}

pub(super) async fn admission(client: &Client, workload: Workload, status: Status) -> Result<(), Error> {
    write::workload(client, &workload, &WorkloadWrite::Status(Box::new(status))).await.map(drop)
}

async fn apply(client: &Client, workload: &Whole, manager: &str, status: &Value) -> Result<(), Error> {
    let meta = &workload.metadata;
    let body = json!({"apiVersion": API_VERSION, "kind": "Workload",
        "metadata": {"name": meta.name, "namespace": meta.namespace, "resourceVersion": meta.resource_version},
        "status": status});
    let workloads = path(KueueKind::Workload, &meta.namespace);
    workloads.apply_status::<Value>(client, manager, &meta.name, &body).await.map(drop)
}

/// Removes the finalizer first: nothing is left to be done for this Workload.
pub(super) async fn delete(client: &Client, workload: &Whole) -> Result<(), Error> {
    let meta = &workload.metadata;
    if !meta.finalizers.is_empty() {
        merge(client, workload, &without_finalizer(meta, FINALIZER)).await?;
    }
    if meta.is_deleting() {
        return Ok(());
    }
    path(KueueKind::Workload, &meta.namespace).delete(client, &meta.name, &meta.uid).await
}

/// Removes the finalizer of the Workload of a group, if its pods are really gone. Without an owner, nobody else deletes it.
async fn orphan_group(client: &Client, workload: Whole) -> Result<bool, Error> {
    let pods = pods_in(&workload.metadata.namespace);
    for owner in workload.metadata.owner_references.iter().filter(|owner| owner.kind == "Pod") {
        match pods.get::<Whole>(client, &owner.name).await {
            Ok(pod) if pod.metadata.uid == owner.uid => return Ok(false),
            Ok(_) | Err(Error::NotFound(_)) => {}
            Err(error) => return Err(error),
        }
    }
    if workload.metadata.owner_references.is_empty() {
        delete(client, &workload).await?;
    } else {
        merge(client, &workload, &without_finalizer(&workload.metadata, FINALIZER)).await?;
    }
    Ok(true)
}

/// A Workload as decisions read it.
pub(super) fn decoded(workload: &Whole) -> Result<Workload, String> {
    serde::Deserialize::deserialize(&workload.value).map_err(|error: serde_json::Error| error.to_string())
}
