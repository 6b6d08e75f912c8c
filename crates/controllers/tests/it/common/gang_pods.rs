//! Gangs whose pods fill nodes, and what the Job controller, the scheduler and the kubelets do with these pods.

use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use serde_json::{Value, json};

use super::{Cluster, resource};

pub(crate) fn jobs() -> ApiResource {
    resource("batch/v1", "Job", "jobs")
}

pub(crate) fn pods() -> ApiResource {
    resource("v1", "Pod", "pods")
}

pub(crate) fn nodes() -> ApiResource {
    resource("v1", "Node", "nodes")
}

/// Nodes of 4 CPUs with host name labels.
pub(crate) async fn cluster(names: &[&str]) -> Cluster {
    let cluster = Cluster::new().await;
    for name in names {
        cluster.node(name, &json!({"cpu": "4", "memory": "16Gi", "pods": "110"})).await;
        patch_node(&cluster, name, &json!({"metadata": {"labels": {"kubernetes.io/hostname": name}}})).await;
    }
    cluster
}

pub(crate) async fn patch_node(cluster: &Cluster, name: &str, patch: &Value) {
    let patch = Patch::Merge(patch);
    cluster.api(&nodes(), "").patch(name, &PatchParams::default(), &patch).await.unwrap();
}

pub(crate) async fn cordon(cluster: &Cluster, name: &str) {
    patch_node(cluster, name, &json!({"spec": {"unschedulable": true}})).await;
}

/// A Job of two pods, each of which fills a node. Its patience is 60 s.
pub(crate) fn pair(name: &str) -> Value {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "4"}}});
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {"parallelism": 2, "completions": 2, "template": template}});
    json!({
        "apiVersion": "mcad.ibm.com/v1beta1", "kind": "AppWrapper",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"schedulingSpec": {"requeuing": {"timeInSeconds": 60}},
            "resources": {"GenericItems": [{"generictemplate": job}]}},
    })
}

/// The same with one pod.
pub(crate) fn single(name: &str) -> Value {
    let mut single = pair(name);
    let spec = &mut single["spec"]["resources"]["GenericItems"][0]["generictemplate"]["spec"];
    (spec["parallelism"], spec["completions"]) = (json!(1), json!(1));
    single
}

/// The controller of a Job or another object with one template creates a pod.
pub(crate) async fn create_pod(cluster: &Cluster, job: &DynamicObject, name: &str) {
    let types = job.types.clone().unwrap();
    let owner = json!([{"apiVersion": types.api_version, "kind": types.kind, "name": job.metadata.name,
        "uid": job.metadata.uid, "controller": true, "blockOwnerDeletion": true}]);
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "ownerReferences": owner},
        "spec": job.data["spec"]["template"]["spec"]});
    cluster.create_as(&pods(), "default", pod).await;
}

/// Waits until a pod is ungated. Returns the host name that it is pinned to.
pub(crate) async fn host(cluster: &Cluster, name: &str) -> String {
    let is_ungated = |pod: &DynamicObject| pod.data["spec"]["schedulingGates"].is_null();
    let pod = cluster.wait(&pods(), "default", name, is_ungated).await;
    pod.data["spec"]["nodeSelector"]["kubernetes.io/hostname"].as_str().unwrap_or("any").to_owned()
}

pub(crate) async fn is_gated(cluster: &Cluster, name: &str) -> bool {
    let pod = cluster.api(&pods(), "default").get(name).await.unwrap();
    !pod.data["spec"]["schedulingGates"].is_null()
}

/// The scheduler binds a pod, and it runs.
pub(crate) async fn run(cluster: &Cluster, name: &str, node: &str) {
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
        "target": {"kind": "Node", "name": node}});
    let api = cluster.api(&pods(), "default");
    let _: Value = api.create_subresource("binding", name, &PostParams::default(), &binding).await.unwrap();
    let status = Patch::Merge(json!({"status": {"phase": "Running"}}));
    api.patch_status(name, &PatchParams::default(), &status).await.unwrap();
}

pub(crate) async fn refuse(cluster: &Cluster, name: &str) {
    let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable"});
    let status = Patch::Merge(json!({"status": {"conditions": [condition]}}));
    cluster.api(&pods(), "default").patch_status(name, &PatchParams::default(), &status).await.unwrap();
}

/// Deletes a pod without a grace period, as its node or the eviction API would.
pub(crate) async fn evict(cluster: &Cluster, name: &str) {
    cluster.delete_now(&pods(), "default", name).await;
}
