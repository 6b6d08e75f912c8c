//! The requests that write Workloads and queues.

use api::kueue::status::{ADMISSION_MANAGER, Status, admission_patch};
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

/// Writes the admission status of a Workload, unless the Workload has changed.
pub(crate) async fn admission(
    client: &Client,
    workload: &Workload,
    status: &Status,
) -> Result<Workload, Error> {
    let meta = &workload.metadata;
    let body = admission_patch(workload, status, Some(&meta.resource_version));
    path(KueueKind::Workload, &meta.namespace)
        .apply_status(client, ADMISSION_MANAGER, &meta.name, &body)
        .await
}

/// Sets `spec.active` of a Workload to false.
pub(crate) async fn deactivate(client: &Client, workload: &Workload) -> Result<Workload, Error> {
    let meta = &workload.metadata;
    let patch = json!({"metadata": {"resourceVersion": meta.resource_version}, "spec": {"active": false}});
    path(KueueKind::Workload, &meta.namespace).merge(client, &meta.name, &patch).await
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
        QueueKey::Check(name) => (path(KueueKind::Check, ""), name),
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
