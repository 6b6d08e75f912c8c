//! Kueue's objects in tests.

use controllers::{Config, Kueue, install_kueue_crds};
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::ApiResource;
use serde_json::{Value, json};

use super::{Cluster, Running, resource};

pub(crate) const VERSION: &str = "kueue.x-k8s.io/v1beta2";

pub(crate) fn kind(kind: &str, plural: &str) -> ApiResource {
    resource(VERSION, kind, plural)
}

pub(crate) fn workloads() -> ApiResource {
    kind("Workload", "workloads")
}

pub(crate) fn cluster_queues() -> ApiResource {
    kind("ClusterQueue", "clusterqueues")
}

/// A cluster that serves Kueue's kinds, with one flavor.
pub(crate) async fn kueue_cluster() -> Cluster {
    let cluster = Cluster::new().await;
    install(&cluster).await;
    cluster
}

/// Serves Kueue's kinds, with one flavor.
pub(crate) async fn install(cluster: &Cluster) {
    let conversion = json!({"url": "https://127.0.0.1:1/convert", "caBundle": ""});
    install_kueue_crds(cluster.client.clone(), &conversion).await.unwrap();
    create(cluster, "ResourceFlavor", "resourceflavors", "default", json!({})).await;
}

pub(crate) async fn create(cluster: &Cluster, name: &str, plural: &str, object: &str, spec: Value) {
    let body = json!({"apiVersion": VERSION, "kind": name, "metadata": {"name": object}, "spec": spec});
    let namespace = if ["LocalQueue", "Workload"].contains(&name) { "default" } else { "" };
    cluster.create_as(&kind(name, plural), namespace, body).await;
}

/// A queue of so many CPUs, with further fields of its spec, and a local queue of the same name.
pub(crate) async fn queue(cluster: &Cluster, name: &str, cpus: u32, more: Value) {
    let mut spec = json!({
        "namespaceSelector": {},
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
            {"name": "default", "resources": [{"name": "cpu", "nominalQuota": cpus}]}
        ]}],
    });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    create(cluster, "ClusterQueue", "clusterqueues", name, spec).await;
    create(cluster, "LocalQueue", "localqueues", name, json!({"clusterQueue": name})).await;
}

pub(crate) async fn submit(cluster: &Cluster, name: &str, queue: &str, priority: i32, pods: u32, cpus: u32) {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": cpus}}});
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
    let spec = json!({"queueName": queue, "priority": priority, "active": true,
        "podSets": [{"name": "main", "count": pods, "template": template}]});
    create(cluster, "Workload", "workloads", name, spec).await;
}

pub(crate) fn kueue_controller(cluster: &Cluster) -> Running {
    cluster.start(cluster.client.clone(), Config { kueue: Kueue::Scheduler, ..Config::default() })
}

pub(crate) fn condition<'a>(object: &'a DynamicObject, kind: &str) -> Option<&'a Value> {
    object.data["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

pub(crate) fn is(object: &DynamicObject, kind: &str, status: &str, reason: &str) -> bool {
    condition(object, kind).is_some_and(|known| known["status"] == status && known["reason"] == reason)
}

pub(crate) async fn admitted(cluster: &Cluster, name: &str) -> DynamicObject {
    cluster.wait(&workloads(), "default", name, |object| is(object, "Admitted", "True", "Admitted")).await
}

/// The message of a Workload that waits with this reason.
pub(crate) async fn waits(cluster: &Cluster, name: &str, reason: &str) -> String {
    let waits = |object: &DynamicObject| is(object, "QuotaReserved", "False", reason);
    let object = cluster.wait(&workloads(), "default", name, waits).await;
    condition(&object, "QuotaReserved").unwrap()["message"].as_str().unwrap().to_owned()
}

/// Writes the status of a Workload as the controller of its job does when its pods have stopped.
pub(crate) async fn release(cluster: &Cluster, name: &str) {
    let api = cluster.api(&workloads(), "default");
    let object = api.get(name).await.unwrap();
    let mut conditions = object.data["status"]["conditions"].as_array().unwrap().clone();
    for condition in &mut conditions {
        if ["QuotaReserved", "Admitted"].contains(&condition["type"].as_str().unwrap()) {
            condition["status"] = "False".into();
            condition["reason"] = "Pending".into();
        }
    }
    let body = json!({"apiVersion": VERSION, "kind": "Workload", "metadata": {"name": name},
        "status": {"conditions": conditions}});
    let params = PatchParams::apply("kueue-admission").force();
    api.patch_status(name, &params, &Patch::Apply(body)).await.unwrap();
}

/// An admission check that its controller has declared active.
pub(crate) async fn active_check(cluster: &Cluster, name: &str) {
    let controller = json!({"controllerName": "example.com/budget"});
    create(cluster, "AdmissionCheck", "admissionchecks", name, controller).await;
    let active = json!([{"type": "Active", "status": "True", "reason": "Active", "message": "",
        "lastTransitionTime": "2023-11-14T22:13:20Z"}]);
    let patch = Patch::Merge(json!({"status": {"conditions": active}}));
    let checks = cluster.api(&kind("AdmissionCheck", "admissionchecks"), "");
    checks.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
}

/// Releases the quota of a Workload, as the controller of its job does, and leaves the rest of its status.
pub(crate) async fn give_back(cluster: &Cluster, object: &DynamicObject) {
    let mut conditions = object.data["status"]["conditions"].clone();
    let of_quota = |of: &&mut Value| ["QuotaReserved", "Admitted"].contains(&of["type"].as_str().unwrap());
    for condition in conditions.as_array_mut().unwrap().iter_mut().filter(of_quota) {
        condition["status"] = "False".into();
    }
    let released = Patch::Merge(json!({"status": {"conditions": conditions, "admission": null}}));
    cluster
        .api(&workloads(), "default")
        .patch_status(object.metadata.name.as_deref().unwrap(), &PatchParams::default(), &released)
        .await
        .unwrap();
}

pub(crate) async fn finish(cluster: &Cluster, name: &str) {
    let api = cluster.api(&workloads(), "default");
    let finished = json!({"type": "Finished", "status": "True", "reason": "Succeeded", "message": "",
        "lastTransitionTime": "2023-11-14T22:13:20Z"});
    let object = api.get(name).await.unwrap();
    let mut conditions = object.data["status"]["conditions"].as_array().unwrap().clone();
    conditions.push(finished);
    let patch = Patch::Merge(json!({"status": {"conditions": conditions}}));
    api.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
}

pub(crate) async fn queue_status(cluster: &Cluster, name: &str, is_met: impl Fn(&Value) -> bool) -> Value {
    let reached = |object: &DynamicObject| is_met(&object.data["status"]);
    cluster.wait(&cluster_queues(), "", name, reached).await.data["status"].clone()
}

/// Writes a reservation of one CPU, as a foreign scheduler does.
pub(crate) async fn reserve(cluster: &Cluster, workload: &str, queue: &str) {
    let admission = json!({"clusterQueue": queue, "podSetAssignments": [
        {"name": "main", "count": 1, "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": "1"}}
    ]});
    let condition = json!({"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": "",
        "lastTransitionTime": "2023-11-14T22:13:20Z"});
    let body = json!({"apiVersion": VERSION, "kind": "Workload", "metadata": {"name": workload},
        "status": {"admission": admission, "conditions": [condition]}});
    let params = PatchParams::apply("kueue-admission").force();
    cluster.api(&workloads(), "default").patch_status(workload, &params, &Patch::Apply(body)).await.unwrap();
}

/// The queue `team` of 8 CPUs, in a flavor with the topology of hosts, which needs a check before its pods get places.
pub(crate) async fn delayed_queue(cluster: &Cluster, check: &str) {
    let levels = json!({"levels": [{"nodeLabel": "kubernetes.io/hostname"}]});
    create(cluster, "Topology", "topologies", "hosts", levels).await;
    let flavor = json!({"nodeLabels": {"pool": "gpu"}, "topologyName": "hosts"});
    create(cluster, "ResourceFlavor", "resourceflavors", "hosts", flavor).await;
    let quota = json!({"name": "hosts", "resources": [{"name": "cpu", "nominalQuota": 8}]});
    let more = json!({"resourceGroups": [{"coveredResources": ["cpu"], "flavors": [quota]}],
        "admissionChecksStrategy": {"admissionChecks": [{"name": check}]}});
    queue(cluster, "team", 8, more).await;
}

/// A node of 4 CPUs of the pool `gpu`, with one more label.
pub(crate) async fn gpu_node(cluster: &Cluster, name: &str, label: (&str, &str)) {
    cluster.node(name, &json!({"cpu": "4", "memory": "16Gi", "pods": "110"})).await;
    let labels = json!({"kubernetes.io/hostname": name, "pool": "gpu", label.0: label.1});
    super::gang_pods::patch_node(cluster, name, &json!({"metadata": {"labels": labels}})).await;
}

/// The assignment of the first pod set of a Workload.
pub(crate) fn assigned(workload: &DynamicObject) -> &Value {
    &workload.data["status"]["admission"]["podSetAssignments"][0]
}
