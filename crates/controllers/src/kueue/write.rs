//! The requests that write Workloads and queues.

use api::Meta;
use api::kueue::FINALIZER;
use api::kueue::status::{ADMISSION_MANAGER, CheckState, Status, admission_patch};
use api::kueue::workload::{API_VERSION, Workload};
use index::{Kind, KueueKind, QueueKey};
use kube::Client;
use serde_json::{Value, json};

use crate::api_calls::ResourcePath;
use crate::error::Error;

/// Path of the objects of a kind of Kueue.
pub(crate) fn path(kind: KueueKind, namespace: &str) -> ResourcePath {
    let (name, plural) = kind.resource();
    ResourcePath::of(&Kind::new(API_VERSION, name), plural, namespace)
}

/// What is written about a Workload.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum WorkloadWrite {
    /// Its admission status.
    Status(Box<Status>),
    /// Fields of its spec.
    Spec(Value),
    /// It is deleted.
    Delete,
}

impl WorkloadWrite {
    /// The status, if it is written.
    pub(crate) fn status(&self) -> Option<&Status> {
        match self {
            Self::Status(status) => Some(status),
            Self::Spec(_) | Self::Delete => None,
        }
    }
}

/// Writes a Workload, unless it has changed.
pub(crate) async fn workload(
    client: &Client,
    workload: &Workload,
    write: &WorkloadWrite,
) -> Result<Workload, Error> {
    let meta = &workload.metadata;
    let path = path(KueueKind::Workload, &meta.namespace);
    match write {
        WorkloadWrite::Status(status) => admission(client, &path, workload, status).await,
        WorkloadWrite::Spec(spec) => {
            let patch = json!({"metadata": {"resourceVersion": meta.resource_version}, "spec": spec});
            path.merge(client, &meta.name, &patch).await
        }
        WorkloadWrite::Delete => {
            // Nobody else may remove it: the job of a Workload that has ended may be gone.
            if meta.has_finalizer(FINALIZER) {
                path.merge::<Workload>(client, &meta.name, &without_finalizer(meta, FINALIZER)).await?;
            }
            path.delete(client, &meta.name, &meta.uid).await?;
            Ok(workload.clone())
        }
    }
}

/// The patch that removes a finalizer.
pub fn without_finalizer(meta: &Meta, name: &str) -> Value {
    let others = meta.finalizers_without(name);
    json!({"metadata": {"resourceVersion": meta.resource_version, "finalizers": others}})
}

/// Writes the admission status. Fields that others have written, too, are not removed by leaving them out of the
/// server-side apply: a merge patch removes them. That of admission checks comes first, because without the fields of this
/// manager the rest of a check is not valid.
async fn admission(
    client: &Client,
    path: &ResourcePath,
    workload: &Workload,
    status: &Status,
) -> Result<Workload, Error> {
    let meta = &workload.metadata;
    let is_required =
        |check: &CheckState| status.admission_checks.iter().any(|known| known.name == check.name);
    let left: Vec<&CheckState> =
        workload.status.admission_checks.iter().filter(|check| is_required(check)).collect();
    let mut version = meta.resource_version.clone();
    if left.len() < workload.status.admission_checks.len() {
        let checks = json!({ "admissionChecks": left });
        let merged: Workload = path.merge_status(client, &meta.name, &version, &checks, true).await?;
        version = merged.metadata.resource_version;
    }
    let body = admission_patch(workload, status, Some(&version));
    let written: Workload = path.apply_status(client, ADMISSION_MANAGER, &meta.name, &body).await?;
    let mut left = serde_json::Map::new();
    match (&status.requeue_state, &written.status.requeue_state) {
        (None, Some(_)) => {
            left.insert("requeueState".into(), Value::Null);
        }
        (Some(_), Some(_)) if status.requeue_at().is_none() && written.status.requeue_at().is_some() => {
            left.insert("requeueState".into(), json!({"requeueAt": null}));
        }
        _ => {}
    }
    // Other field managers name clusters: the loop of the check, and external dispatchers.
    if status.cluster_name.is_none() && written.status.cluster_name.is_some() {
        left.insert("clusterName".into(), Value::Null);
    }
    if status.nominated_cluster_names.is_empty() && !written.status.nominated_cluster_names.is_empty() {
        left.insert("nominatedClusterNames".into(), Value::Null);
    }
    if left.is_empty() {
        return Ok(written);
    }
    let version = &written.metadata.resource_version;
    path.merge_status(client, &meta.name, version, &left.into(), true).await
}

/// What is written about a queue.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum QueueWrite {
    /// Its status.
    Status(Value),
    /// Its finalizers.
    Finalizers(Vec<String>),
}

/// Writes the status or the finalizers of a queue. A queue that is gone needs none.
pub(crate) async fn queue(client: &Client, key: &QueueKey, write: &QueueWrite) -> Result<(), Error> {
    let (path, name) = match key {
        QueueKey::Flavor(name) => (path(KueueKind::Flavor, ""), name),
        QueueKey::Topology(name) => (path(KueueKind::Topology, ""), name),
        QueueKey::Check(name) => (path(KueueKind::Check, ""), name),
        QueueKey::Cohort(name) => (path(KueueKind::Cohort, ""), name),
        QueueKey::Cluster(name) => (path(KueueKind::ClusterQueue, ""), name),
        QueueKey::Local(namespace, name) => (path(KueueKind::LocalQueue, namespace), name),
    };
    let written = match write {
        QueueWrite::Status(status) => {
            path.merge_into_status::<Value>(client, name, &json!({ "status": status })).await
        }
        QueueWrite::Finalizers(finalizers) => {
            path.merge::<Value>(client, name, &json!({"metadata": {"finalizers": finalizers}})).await
        }
    };
    match written {
        Ok(_) | Err(Error::NotFound(_)) => Ok(()),
        Err(error) => Err(error),
    }
}
