//! When a gang is complete, and what happens to pods of a gang that has ended.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use crate::common;
use std::time::Duration;

use crate::common::{Cluster, Group, resource, story, wrappers};
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use serde_json::{Value, json};

fn pods() -> ApiResource {
    resource("v1", "Pod", "pods")
}

fn deployments() -> ApiResource {
    resource("apps/v1", "Deployment", "deployments")
}

fn replica_sets() -> ApiResource {
    resource("apps/v1", "ReplicaSet", "replicasets")
}

async fn cluster() -> Cluster {
    let cluster = Cluster::new().await;
    cluster.node("n", &json!({"cpu": "16", "memory": "64Gi", "pods": "110"})).await;
    let labels = json!({"metadata": {"labels": {"kubernetes.io/hostname": "n"}}});
    let patch = Patch::Merge(&labels);
    cluster
        .api(&resource("v1", "Node", "nodes"), "")
        .patch("n", &PatchParams::default(), &patch)
        .await
        .unwrap();
    cluster
}

/// A Deployment of two pods, complete when a condition type contains `Progressing`.
fn deployment(name: &str) -> Value {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}});
    let template = json!({"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}});
    let object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": name}}, "template": template}});
    wrapper(name, &object, "Progressing")
}

fn wrapper(name: &str, object: &Value, completion: &str) -> Value {
    json!({
        "apiVersion": "workload.codeflare.dev/v1beta1", "kind": "AppWrapper",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"resources": {"GenericItems": [{"generictemplate": object, "completionstatus": completion}]}},
    })
}

fn owner_reference(owner: &DynamicObject) -> Value {
    let types = owner.types.clone().unwrap();
    json!([{"apiVersion": types.api_version, "kind": types.kind, "name": owner.metadata.name,
        "uid": owner.metadata.uid, "controller": true, "blockOwnerDeletion": true}])
}

async fn set_status(cluster: &Cluster, resource: &ApiResource, name: &str, status: Value) {
    let patch = Patch::Merge(json!({"status": status}));
    cluster.api(resource, "default").patch_status(name, &PatchParams::default(), &patch).await.unwrap();
}

async fn set_progressing(cluster: &Cluster, name: &str) {
    let condition = json!({"type": "Progressing", "status": "True"});
    set_status(cluster, &deployments(), name, json!({"conditions": [condition]})).await;
}

/// The Deployment controller creates the `ReplicaSet`.
async fn create_replica_set(cluster: &Cluster, deployment: &DynamicObject) -> DynamicObject {
    let name = format!("{}-1", deployment.metadata.name.as_deref().unwrap());
    let object = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {"name": name, "ownerReferences": owner_reference(deployment)},
        "spec": deployment.data["spec"]});
    cluster.create_as(&replica_sets(), "default", object).await;
    cluster.wait(&replica_sets(), "default", &name, |_| true).await
}

/// The controller of `owner` creates a pod from its template.
async fn create_pod(cluster: &Cluster, owner: &DynamicObject, name: &str) {
    let template = &owner.data["spec"]["template"];
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": template["spec"],
        "metadata": {"name": name, "labels": template["metadata"]["labels"],
            "ownerReferences": owner_reference(owner)}});
    cluster.create_as(&pods(), "default", pod).await;
}

/// Waits until a pod is ungated. Returns the host name that it is pinned to.
async fn host(cluster: &Cluster, name: &str) -> Value {
    let is_ungated = |pod: &DynamicObject| pod.data["spec"]["schedulingGates"].is_null();
    let pod = cluster.wait(&pods(), "default", name, is_ungated).await;
    pod.data["spec"]["nodeSelector"]["kubernetes.io/hostname"].clone()
}

async fn state(cluster: &Cluster, name: &str) -> Value {
    let wrapper = cluster.api(&wrappers(Group::Codeflare), "default").get(name).await.unwrap();
    wrapper.data["status"]["state"].clone()
}

/// A Deployment whose condition holds before its pods exist.
async fn progressing(cluster: &Cluster) -> DynamicObject {
    cluster.submit(deployment("web")).await;
    cluster.wait_state(Group::Codeflare, "web", "Running", "Dispatched").await;
    let deployment = cluster.wait(&deployments(), "default", "web", |_| true).await;
    set_progressing(cluster, "web").await;
    cluster.wait_state(Group::Codeflare, "web", "RunningHoldCompletion", "RunningHoldCompletion").await;
    deployment
}

#[tokio::test(start_paused = true)]
async fn a_gang_is_not_complete_before_its_planned_pods_exist() {
    let cluster = cluster().await;
    let _controller = cluster.controller();
    let deployment = progressing(&cluster).await;
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(state(&cluster, "web").await, "RunningHoldCompletion");
    let set = create_replica_set(&cluster, &deployment).await;
    create_pod(&cluster, &set, "web-a").await;
    assert_eq!(host(&cluster, "web-a").await, "n");
    set_status(&cluster, &pods(), "web-a", json!({"phase": "Succeeded"})).await;
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(state(&cluster, "web").await, "RunningHoldCompletion", "one pod has yet to come");
    create_pod(&cluster, &set, "web-b").await;
    assert_eq!(host(&cluster, "web-b").await, "n");
}

#[tokio::test(start_paused = true)]
async fn a_gang_is_not_complete_after_a_restart_before_its_planned_pods_exist() {
    let cluster = cluster().await;
    let first = cluster.controller();
    let deployment = progressing(&cluster).await;
    drop(first);
    let _second = cluster.controller();
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(state(&cluster, "web").await, "RunningHoldCompletion");
    let set = create_replica_set(&cluster, &deployment).await;
    create_pod(&cluster, &set, "web-a").await;
    assert_eq!(host(&cluster, "web-a").await, "n");
}

#[tokio::test(start_paused = true)]
async fn a_deployment_that_is_scaled_to_zero_is_complete() {
    let cluster = cluster().await;
    let _controller = cluster.controller();
    progressing(&cluster).await;
    let patch = Patch::Merge(json!({"spec": {"replicas": 0}}));
    cluster.api(&deployments(), "default").patch("web", &PatchParams::default(), &patch).await.unwrap();
    cluster.wait_state(Group::Codeflare, "web", "Completed", "Completed").await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_appears_after_the_end_of_its_gang_is_ungated() {
    let cluster = cluster().await;
    let _controller = cluster.controller();
    let deployment = progressing(&cluster).await;
    let set = create_replica_set(&cluster, &deployment).await;
    for name in ["web-a", "web-b"] {
        create_pod(&cluster, &set, name).await;
        host(&cluster, name).await;
        set_status(&cluster, &pods(), name, json!({"phase": "Succeeded"})).await;
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
            "target": {"kind": "Node", "name": "n"}});
        let api = cluster.api(&pods(), "default");
        let _: Value =
            api.create_subresource("binding", name, &PostParams::default(), &binding).await.unwrap();
    }
    cluster.wait_state(Group::Codeflare, "web", "Completed", "Completed").await;
    create_pod(&cluster, &set, "web-c").await;
    assert_eq!(host(&cluster, "web-c").await, Value::Null, "no place is reserved for it");
}

#[tokio::test(start_paused = true)]
async fn an_item_without_a_name_fails_and_creates_nothing() {
    let cluster = cluster().await;
    let _controller = cluster.controller();
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"labels": {"a": "b"}}});
    cluster.submit(wrapper("unnamed", &object, "")).await;
    let status = cluster.wait_state(Group::Codeflare, "unnamed", "Failed", "Failed").await;
    assert_eq!(
        story(&status).last().unwrap(),
        "Failed ItemCreationFailure. default/unnamed creation failure: resources.GenericItems[0].generictemplate: \
         metadata.name is missing; every object needs apiVersion, kind and metadata.name"
    );
    let names = cluster.names(&common::config_maps(), "default").await;
    assert!(!names.contains(&"unnamed".to_owned()), "{names:?}");
}
