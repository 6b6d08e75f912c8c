//! Pods of Kueue's API in tests, which play their author, the webhook and the kubelet.

use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::ApiResource;
use serde_json::{Value, json};

use super::kueue::condition;
use super::{Cluster, resource};

const TOTAL: &str = "kueue.x-k8s.io/pod-group-total-count";

pub(crate) fn pods() -> ApiResource {
    resource("v1", "Pod", "pods")
}

/// A pod of one CPU in the queue `team`, as the webhook leaves it.
pub(crate) async fn submit_pod(cluster: &Cluster, name: &str, more: Value) {
    cluster.create_as(&pods(), "default", queued_pod(name, &more)).await;
}

pub(crate) fn queued_pod(name: &str, more: &Value) -> Value {
    let mut metadata = json!({"name": name, "finalizers": ["kueue.x-k8s.io/managed"], "labels": {
        "kueue.x-k8s.io/queue-name": "team", "kueue.x-k8s.io/managed": "true"}});
    for field in ["labels", "annotations"] {
        for (key, value) in more[field].as_object().into_iter().flatten() {
            metadata[field][key] = value.clone();
        }
    }
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}});
    let gates = json!([{"name": "kueue.x-k8s.io/admission"}, {"name": "kueue.x-k8s.io/topology"}]);
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata,
        "spec": {"restartPolicy": "Never", "containers": [container], "schedulingGates": gates}})
}

pub(crate) fn member(group: &str, total: u32) -> Value {
    json!({"labels": {"kueue.x-k8s.io/pod-group-name": group},
        "annotations": {TOTAL: total.to_string(), "kueue.x-k8s.io/role-hash": "worker"}})
}

pub(crate) async fn status_of(cluster: &Cluster, name: &str, status: Value) {
    let patch = Patch::Merge(json!({ "status": status }));
    cluster.api(&pods(), "default").patch_status(name, &PatchParams::default(), &patch).await.unwrap();
}

pub(crate) async fn runs(cluster: &Cluster, name: &str) -> DynamicObject {
    let is_free =
        |pod: &DynamicObject| pod.data["spec"]["schedulingGates"].as_array().is_none_or(Vec::is_empty);
    let pod = cluster.wait(&pods(), "default", name, is_free).await;
    let ready = json!([{"type": "Ready", "status": "True"}]);
    status_of(cluster, name, json!({"phase": "Running", "conditions": ready})).await;
    pod
}

pub(crate) fn is_managed(pod: &DynamicObject) -> bool {
    pod.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == "kueue.x-k8s.io/managed")
}

/// Waits until a pod that is stopped is deleted, and plays its kubelet.
pub(crate) async fn is_stopped(cluster: &Cluster, name: &str, reason: &str) {
    let is_deleted = |pod: &DynamicObject| pod.metadata.deletion_timestamp.is_some();
    let pod = cluster.wait(&pods(), "default", name, is_deleted).await;
    let target = condition(&pod, "TerminationTarget").unwrap();
    assert_eq!((&target["status"], &target["reason"]), (&json!("True"), &json!(reason)));
    status_of(cluster, name, json!({"phase": "Failed"})).await;
}
