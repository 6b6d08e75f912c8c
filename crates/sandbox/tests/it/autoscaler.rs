//! The node autoscaler: requests for capacity, pending pods, and nodes without pods.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use crate::support::{Cluster, PODS, cluster_with_pools, holds, pod};
use api::provisioning::{PLURAL, definition};
use serde_json::{Value, json};

const GPU: &str =
    "name=gpu,max=3,cpu=4,memory=16Gi,nvidia.com/gpu=1,boot=40s,taint.nvidia.com/gpu=present:NoSchedule";
const CPU: &str = "name=small,cpu=1,memory=4Gi";
const REQUESTS: &str = "/apis/autoscaling.x-k8s.io/v1/namespaces/default/provisioningrequests";
const NODES: &str = "/api/v1/nodes";

async fn start(pools: &[&str]) -> Cluster {
    let cluster = cluster_with_pools(&[CPU], pools).await;
    cluster.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition()).await;
    let path = format!("/apis/autoscaling.x-k8s.io/v1/{PLURAL}");
    cluster.until(&path, |list| list["items"].is_array()).await;
    cluster
}

/// A request for so many pods of a template with one device each, or of two CPUs.
async fn request(cluster: &Cluster, name: &str, class: &str, pods: u32, resource: &str, parameters: Value) {
    let amounts = json!({resource: if resource == "cpu" { 2 } else { 1 }});
    let spec = pod("p", &amounts)["spec"].clone();
    let template = json!({"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": name}, "template": {"spec": spec}});
    cluster.create("/api/v1/namespaces/default/podtemplates", &template).await;
    let spec = json!({"provisioningClassName": class, "parameters": parameters,
        "podSets": [{"podTemplateRef": {"name": name}, "count": pods}]});
    let body = json!({"apiVersion": "autoscaling.x-k8s.io/v1", "kind": "ProvisioningRequest",
        "metadata": {"name": name}, "spec": spec});
    cluster.create(REQUESTS, &body).await;
}

async fn until(cluster: &Cluster, name: &str, condition: &str, status: &str) -> Value {
    cluster.until(&format!("{REQUESTS}/{name}"), |found| holds(found, condition, status)).await
}

/// Reason and message of a condition.
fn told(request: &Value, kind: &str) -> String {
    let conditions = request["status"]["conditions"].as_array().unwrap();
    let condition = conditions.iter().find(|condition| condition["type"] == kind).unwrap();
    format!("{}: {}", condition["reason"].as_str().unwrap(), condition["message"].as_str().unwrap())
}

async fn minutes(count: u64) {
    tokio::time::sleep(std::time::Duration::from_mins(count)).await;
}

async fn pool_nodes(cluster: &Cluster, pool: &str) -> usize {
    let nodes = cluster.list(NODES).await;
    nodes.iter().filter(|node| node["metadata"]["labels"]["sandbox.muster.dev/pool"] == pool).count()
}

#[tokio::test(start_paused = true)]
async fn queued_provisioning_brings_all_nodes_and_then_says_so() {
    let cluster = start(&[&format!("{GPU},queued=true")]).await;
    request(&cluster, "train", "queued-provisioning.gke.io", 2, "nvidia.com/gpu", json!({})).await;
    let accepted = until(&cluster, "train", "Accepted", "True").await;
    assert!(holds(&accepted, "Provisioned", "False") && holds(&accepted, "Failed", "False"));
    let before = cluster.elapsed();
    let there = until(&cluster, "train", "Provisioned", "True").await;
    assert!((38.0..60.0).contains(&(cluster.elapsed() - before)), "{before} {}", cluster.elapsed());
    assert_eq!(pool_nodes(&cluster, "gpu").await, 2);
    assert_eq!(there["status"]["provisioningClassDetails"]["NodePoolName"], "gpu");
    // One more node than the pool has room for: the request stays queued.
    request(&cluster, "second", "queued-provisioning.gke.io", 2, "nvidia.com/gpu", json!({})).await;
    let waiting = cluster
        .until(&format!("{REQUESTS}/second"), |found| {
            holds(found, "Accepted", "True") && told(found, "Provisioned").contains("stays queued")
        })
        .await;
    assert!(holds(&waiting, "Provisioned", "False"));
    // Without pods the booking ends, and then the nodes go; the second request gets its own.
    minutes(5).await;
    until(&cluster, "train", "BookingExpired", "True").await;
    minutes(15).await;
    until(&cluster, "second", "Provisioned", "True").await;
}

#[tokio::test(start_paused = true)]
async fn nodes_that_are_taken_away_revoke_the_capacity() {
    let cluster = start(&[GPU]).await;
    request(&cluster, "train", "queued-provisioning.gke.io", 1, "nvidia.com/gpu", json!({})).await;
    until(&cluster, "train", "Provisioned", "True").await;
    let nodes = cluster.list(NODES).await;
    let name = nodes
        .iter()
        .find_map(|node| node["metadata"]["name"].as_str().filter(|name| name.starts_with("gpu-")));
    cluster.delete(&format!("{NODES}/{}", name.unwrap())).await;
    until(&cluster, "train", "CapacityRevoked", "True").await;
}

#[tokio::test(start_paused = true)]
async fn a_pool_without_stock_fails_requests() {
    let cluster = start(&[&format!("{GPU},fail=1")]).await;
    request(&cluster, "train", "queued-provisioning.gke.io", 1, "nvidia.com/gpu", json!({})).await;
    let failed = until(&cluster, "train", "Failed", "True").await;
    assert!(told(&failed, "Failed").starts_with("OutOfResources"), "{}", told(&failed, "Failed"));
    request(
        &cluster,
        "other",
        "best-effort-atomic-scale-up.autoscaling.x-k8s.io",
        1,
        "nvidia.com/gpu",
        json!({}),
    )
    .await;
    let missing = until(&cluster, "other", "Provisioned", "False").await;
    assert!(told(&missing, "Provisioned").starts_with("CapacityIsNotFound"));
    assert_eq!(pool_nodes(&cluster, "gpu").await, 0);
}

#[tokio::test(start_paused = true)]
async fn capacity_is_checked_without_new_nodes_and_booked() {
    let cluster = start(&[]).await;
    let class = "check-capacity.autoscaling.x-k8s.io";
    let class_of = |no_retry: bool| if no_retry { json!({"noRetry": "true"}) } else { json!({}) };
    request(&cluster, "large", class, 1, "cpu", class_of(true)).await;
    until(&cluster, "large", "Failed", "True").await;
    request(&cluster, "later", class, 1, "cpu", class_of(false)).await;
    until(&cluster, "later", "Provisioned", "False").await;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "new"},
        "status": {"capacity": {"cpu": "3", "memory": "8Gi", "pods": "110"}}});
    cluster.create(NODES, &node).await;
    let found = until(&cluster, "later", "Provisioned", "True").await;
    assert_eq!(told(&found, "Provisioned"), "CapacityIsFound: Capacity is found in the cluster");
    // Two of three CPUs are booked.
    request(&cluster, "next", class, 1, "cpu", class_of(true)).await;
    until(&cluster, "next", "Failed", "True").await;
}

#[tokio::test(start_paused = true)]
async fn pods_that_fit_nowhere_get_a_node_which_goes_when_it_is_idle() {
    let cluster = start(&[
        GPU,
        "name=queued,cpu=64,memory=64Gi,queued=true",
        "name=large,max=1,cpu=4,memory=8Gi,boot=10s",
    ])
    .await;
    for name in ["first", "second"] {
        cluster.create(PODS, &pod(name, &json!({"cpu": "2"}))).await;
    }
    let bound =
        |found: &Value| found["spec"]["nodeName"].as_str().is_some_and(|node| node.starts_with("large-"));
    cluster.until(&format!("{PODS}/first"), bound).await;
    cluster.until(&format!("{PODS}/second"), bound).await;
    assert_eq!(pool_nodes(&cluster, "large").await, 1);
    assert_eq!(pool_nodes(&cluster, "queued").await, 0);
    let events = cluster.events("first").await;
    assert!(
        events.iter().any(|event| event.contains("pod triggered scale-up: [{large 0->1 (max: 1)}]")),
        "{events:#?}"
    );
    cluster.create(PODS, &pod("third", &json!({"cpu": "2"}))).await;
    for name in ["first", "second", "third"] {
        cluster.delete(&format!("{PODS}/{name}")).await;
    }
    minutes(5).await;
    assert_eq!(pool_nodes(&cluster, "large").await, 1);
    minutes(6).await;
    assert_eq!(pool_nodes(&cluster, "large").await, 0);
}

#[tokio::test(start_paused = true)]
async fn an_atomic_scale_up_adds_what_is_missing_and_the_smallest_size_is_kept() {
    let cluster = start(&["name=base,min=1,max=3,cpu=4,memory=8Gi,boot=20s"]).await;
    let class = "best-effort-atomic-scale-up.autoscaling.x-k8s.io";
    cluster.until(NODES, |list| list["items"].as_array().is_some_and(|nodes| nodes.len() == 2)).await;
    request(&cluster, "train", class, 4, "cpu", json!({})).await;
    until(&cluster, "train", "Provisioned", "True").await;
    cluster.until(NODES, |list| list["items"].as_array().is_some_and(|nodes| nodes.len() == 3)).await;
    request(&cluster, "huge", class, 9, "cpu", json!({})).await;
    until(&cluster, "huge", "Provisioned", "False").await;
    assert_eq!(pool_nodes(&cluster, "base").await, 2);
}
