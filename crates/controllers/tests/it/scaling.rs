//! Running gangs that are scaled up and down by users and autoscalers.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use crate::common;
use std::time::Duration;

use crate::common::gang_pods::{
    cluster, cordon, create_pod, evict, host, is_gated, jobs, patch_node, pods, refuse, run, single,
};
use crate::common::{Cluster, Group, ray_clusters, resource};
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::ApiResource;
use serde_json::{Value, json};

fn stateful_sets() -> ApiResource {
    resource("apps/v1", "StatefulSet", "statefulsets")
}

fn wrap(object: &Value) -> Value {
    json!({
        "apiVersion": "mcad.ibm.com/v1beta1", "kind": "AppWrapper",
        "metadata": {"name": object["metadata"]["name"], "namespace": "default"},
        "spec": {"resources": {"GenericItems": [{"generictemplate": object}]}},
    })
}

fn template(name: &str) -> Value {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "4"}}});
    json!({"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}})
}

/// A `StatefulSet` of one pod that fills a node.
async fn running_store(cluster: &Cluster) -> DynamicObject {
    let store = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "store"},
        "spec": {"replicas": 1, "serviceName": "store", "selector": {"matchLabels": {"app": "store"}},
            "template": template("store")}});
    cluster.submit(wrap(&store)).await;
    let store = cluster.wait(&stateful_sets(), "default", "store", |_| true).await;
    create_pod(cluster, &store, "store-0").await;
    assert_eq!(host(cluster, "store-0").await, "n-0");
    run(cluster, "store-0", "n-0").await;
    cluster.settled().await;
    store
}

async fn scale(cluster: &Cluster, replicas: u32) {
    let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
    cluster.api(&stateful_sets(), "default").patch("store", &PatchParams::default(), &patch).await.unwrap();
    cluster.settled().await;
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_scale_up_are_placed_one_by_one_and_charged() {
    let cluster = cluster(&["n-0", "n-1", "n-2"]).await;
    let _controller = cluster.controller();
    let store = running_store(&cluster).await;
    scale(&cluster, 4).await;
    for (name, node) in [("store-1", "n-1"), ("store-2", "n-2")] {
        create_pod(&cluster, &store, name).await;
        assert_eq!(host(&cluster, name).await, node);
        run(&cluster, name, node).await;
    }
    // The last pod waits for a node, without harm to the others.
    create_pod(&cluster, &store, "store-3").await;
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert!(is_gated(&cluster, "store-3").await);
    let wrapper = cluster.api(&common::wrappers(Group::Mcad), "default").get("store").await.unwrap();
    let message = "a pod of a scale-up waits for a place: statefulset: needs 4 cpu on one node; none of 3 eligible nodes has any free";
    assert_eq!(wrapper.data["status"]["message"], message);
    cluster.submit(single("single")).await;
    cluster.wait_state(Group::Mcad, "single", "Pending", "HeadOfLine").await;
    cluster.delete(&common::wrappers(Group::Mcad), "default", "single").await;
    cluster.node("n-3", &json!({"cpu": "4", "memory": "16Gi", "pods": "110"})).await;
    let pod = cluster
        .wait(&pods(), "default", "store-3", |pod| pod.data["spec"]["schedulingGates"].is_null())
        .await;
    assert!(pod.data["spec"]["schedulingGates"].is_null());
    let is_quiet = |wrapper: &DynamicObject| wrapper.data["status"]["message"].is_null();
    cluster.wait(&common::wrappers(Group::Mcad), "default", "store", is_quiet).await;
}

#[tokio::test(start_paused = true)]
async fn a_scale_down_releases_the_place_of_the_pod_that_is_removed() {
    let cluster = cluster(&["n-0", "n-1"]).await;
    let first = cluster.controller();
    let store = running_store(&cluster).await;
    scale(&cluster, 2).await;
    create_pod(&cluster, &store, "store-1").await;
    assert_eq!(host(&cluster, "store-1").await, "n-1");
    run(&cluster, "store-1", "n-1").await;
    // A restart knows both places from the pods.
    cluster.settled().await;
    drop(first);
    let _second = cluster.controller();
    scale(&cluster, 1).await;
    cluster.submit(single("single")).await;
    cluster.wait_state(Group::Mcad, "single", "Pending", "HeadOfLine").await;
    evict(&cluster, "store-0").await;
    cluster.wait_state(Group::Mcad, "single", "Running", "Dispatched").await;
    let job = cluster.wait(&jobs(), "default", "single", |_| true).await;
    create_pod(&cluster, &job, "single-1").await;
    assert_eq!(host(&cluster, "single-1").await, "n-0");
    run(&cluster, "single-1", "n-0").await;
    // The place was given up, so a second scale-up waits.
    scale(&cluster, 2).await;
    create_pod(&cluster, &store, "store-2").await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(is_gated(&cluster, "store-2").await);
}

#[tokio::test(start_paused = true)]
async fn workers_that_an_autoscaler_adds_use_the_declared_total() {
    let cluster = cluster(&["n-0", "n-1"]).await;
    let _controller = cluster.controller();
    let group = json!({"groupName": "small", "replicas": 0, "minReplicas": 0, "maxReplicas": 3,
        "rayStartParams": {}, "template": template("ray")});
    let ray = json!({"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "ray"},
        "spec": {"headGroupSpec": {"rayStartParams": {}, "template": template("ray")}, "workerGroupSpecs": [group]}});
    let mut wrapper = wrap(&ray);
    // The author reserves room for one worker more than the cluster starts with.
    wrapper["spec"]["resources"]["GenericItems"][0]["custompodresources"] =
        json!([{"replicas": 2, "requests": {"cpu": 4}}]);
    cluster.submit(wrapper).await;
    let mut clusters = ray_clusters();
    (clusters.api_version, clusters.version) = ("ray.io/v1".into(), "v1".into());
    let ray = cluster.wait(&clusters, "default", "ray", |_| true).await;
    create_ray_pod(&cluster, &ray, "head", "headgroup").await;
    assert_eq!(host(&cluster, "head").await, "n-0");
    run(&cluster, "head", "n-0").await;
    cluster.submit(single("single")).await;
    cluster.wait_state(Group::Mcad, "single", "Pending", "HeadOfLine").await;
    scale_workers(&cluster, &clusters, 2).await;
    create_ray_pod(&cluster, &ray, "worker-1", "small").await;
    assert_eq!(host(&cluster, "worker-1").await, "n-1");
    run(&cluster, "worker-1", "n-1").await;
    create_ray_pod(&cluster, &ray, "worker-2", "small").await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(is_gated(&cluster, "worker-2").await);
    // The autoscaler gives up, and later removes the first worker, too. The declared total stays reserved.
    scale_workers(&cluster, &clusters, 0).await;
    evict(&cluster, "worker-2").await;
    evict(&cluster, "worker-1").await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    cluster.wait_state(Group::Mcad, "single", "Pending", "HeadOfLine").await;
}

/// A store of two pods, one of them of a scale-up, on two nodes.
async fn grown_store(cluster: &Cluster) -> DynamicObject {
    let store = running_store(cluster).await;
    scale(cluster, 2).await;
    create_pod(cluster, &store, "store-1").await;
    assert_eq!(host(cluster, "store-1").await, "n-1");
    store
}

/// Nothing that a scale-up lacks harms the gang: it runs on, and its status says what it waits for.
async fn runs_on_and_waits_for(cluster: &Cluster, store: &DynamicObject, what: &str) {
    tokio::time::sleep(Duration::from_hours(1)).await;
    cluster.wait_state(Group::Mcad, "store", "Running", "Dispatched").await;
    let wrapper = cluster.api(&common::wrappers(Group::Mcad), "default").get("store").await.unwrap();
    let now = cluster.api(&stateful_sets(), "default").get("store").await.unwrap();
    assert_eq!(now.metadata.uid, store.metadata.uid, "the gang was requeued");
    let message = wrapper.data["status"]["message"].as_str().unwrap_or_default();
    assert_eq!(message, format!("a pod of a scale-up waits for a place: {what}"));
}

#[tokio::test(start_paused = true)]
async fn a_pod_of_a_scale_up_that_loses_its_node_waits_without_harm_to_the_gang() {
    let cluster = cluster(&["n-0", "n-1"]).await;
    let _controller = cluster.controller();
    let store = grown_store(&cluster).await;
    run(&cluster, "store-1", "n-1").await;
    cordon(&cluster, "n-1").await;
    evict(&cluster, "store-1").await;
    create_pod(&cluster, &store, "store-1").await;
    runs_on_and_waits_for(
        &cluster,
        &store,
        "statefulset: needs 4 cpu on one node; the only eligible node has none free; 1 node is unschedulable",
    )
    .await;
    assert!(is_gated(&cluster, "store-1").await);
    patch_node(&cluster, "n-1", &json!({"spec": {"unschedulable": false}})).await;
    assert_eq!(host(&cluster, "store-1").await, "n-1");
}

#[tokio::test(start_paused = true)]
async fn a_pod_of_a_scale_up_that_the_scheduler_refuses_does_not_requeue_the_gang() {
    let cluster = cluster(&["n-0", "n-1"]).await;
    let _controller = cluster.controller();
    let store = grown_store(&cluster).await;
    refuse(&cluster, "store-1").await;
    runs_on_and_waits_for(&cluster, &store, "the scheduler finds no node for 1 pod").await;
    run(&cluster, "store-1", "n-1").await;
    let is_quiet = |wrapper: &DynamicObject| wrapper.data["status"]["message"].is_null();
    cluster.wait(&common::wrappers(Group::Mcad), "default", "store", is_quiet).await;
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_scale_up_that_are_never_created_do_not_requeue_the_gang() {
    let cluster = cluster(&["n-0", "n-1"]).await;
    let _controller = cluster.controller();
    let set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "set"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "set"}}, "template": template("set")}});
    cluster.submit(wrap(&set)).await;
    let sets = resource("apps/v1", "ReplicaSet", "replicasets");
    let set = cluster.wait(&sets, "default", "set", |_| true).await;
    create_pod(&cluster, &set, "set-0").await;
    let node = host(&cluster, "set-0").await;
    run(&cluster, "set-0", &node).await;
    let patch = Patch::Merge(json!({"spec": {"replicas": 2}}));
    cluster.api(&sets, "default").patch("set", &PatchParams::default(), &patch).await.unwrap();
    tokio::time::sleep(Duration::from_hours(1)).await;
    cluster.wait_state(Group::Mcad, "set", "Running", "Dispatched").await;
    let now = cluster.api(&sets, "default").get("set").await.unwrap();
    assert_eq!(now.metadata.uid, set.metadata.uid, "the gang was requeued");
}

async fn scale_workers(cluster: &Cluster, clusters: &ApiResource, replicas: u32) {
    let patch =
        Patch::Merge(json!({"spec": {"workerGroupSpecs": [{"groupName": "small", "replicas": replicas,
        "minReplicas": 0, "maxReplicas": 3, "rayStartParams": {}, "template": template("ray")}]}}));
    cluster.api(clusters, "default").patch("ray", &PatchParams::default(), &patch).await.unwrap();
    cluster.settled().await;
}

/// The operator creates a pod of a group.
async fn create_ray_pod(cluster: &Cluster, ray: &DynamicObject, name: &str, group: &str) {
    let owner = json!([{"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "ray",
        "uid": ray.metadata.uid, "controller": true, "blockOwnerDeletion": true}]);
    let spec = &ray.data["spec"]["headGroupSpec"]["template"]["spec"];
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": spec,
        "metadata": {"name": name, "ownerReferences": owner, "labels": {"ray.io/group": group}}});
    cluster.create_as(&pods(), "default", pod).await;
}
