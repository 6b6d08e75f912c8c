//! Running gangs whose pods are replaced: on a drained or deleted node, after a deletion, and when no place is left.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod common;

use std::time::Duration;

use common::{Cluster, Group, resource, story};
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use serde_json::{Value, json};

fn jobs() -> ApiResource {
    resource("batch/v1", "Job", "jobs")
}

fn pods() -> ApiResource {
    resource("v1", "Pod", "pods")
}

fn nodes() -> ApiResource {
    resource("v1", "Node", "nodes")
}

/// Nodes of 4 CPUs with host name labels.
async fn cluster(names: &[&str]) -> Cluster {
    let cluster = Cluster::new().await;
    for name in names {
        cluster.node(name, &json!({"cpu": "4", "memory": "16Gi", "pods": "110"})).await;
        patch_node(&cluster, name, &json!({"metadata": {"labels": {"kubernetes.io/hostname": name}}})).await;
    }
    cluster
}

async fn patch_node(cluster: &Cluster, name: &str, patch: &Value) {
    let patch = Patch::Merge(patch);
    cluster.api(&nodes(), "").patch(name, &PatchParams::default(), &patch).await.unwrap();
}

async fn cordon(cluster: &Cluster, name: &str) {
    patch_node(cluster, name, &json!({"spec": {"unschedulable": true}})).await;
}

/// A Job of two pods, each of which fills a node. Its patience is 60 s.
fn pair(name: &str) -> Value {
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

/// The Job controller creates a pod from the template.
async fn create_pod(cluster: &Cluster, job: &DynamicObject, name: &str) {
    let owner = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": job.metadata.name,
        "uid": job.metadata.uid, "controller": true, "blockOwnerDeletion": true}]);
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "ownerReferences": owner},
        "spec": job.data["spec"]["template"]["spec"]});
    cluster.create_as(&pods(), "default", pod).await;
}

/// Waits until a pod is ungated. Returns the host name that it is pinned to.
async fn host(cluster: &Cluster, name: &str) -> String {
    let is_ungated = |pod: &DynamicObject| pod.data["spec"]["schedulingGates"].is_null();
    let pod = cluster.wait(&pods(), "default", name, is_ungated).await;
    pod.data["spec"]["nodeSelector"]["kubernetes.io/hostname"].as_str().unwrap_or("any").to_owned()
}

async fn is_gated(cluster: &Cluster, name: &str) -> bool {
    let pod = cluster.api(&pods(), "default").get(name).await.unwrap();
    !pod.data["spec"]["schedulingGates"].is_null()
}

/// The scheduler binds a pod, and it runs.
async fn run(cluster: &Cluster, name: &str, node: &str) {
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
        "target": {"kind": "Node", "name": node}});
    let api = cluster.api(&pods(), "default");
    let _: Value = api.create_subresource("binding", name, &PostParams::default(), &binding).await.unwrap();
    let status = Patch::Merge(json!({"status": {"phase": "Running"}}));
    api.patch_status(name, &PatchParams::default(), &status).await.unwrap();
}

async fn refuse(cluster: &Cluster, name: &str) {
    let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable"});
    let status = Patch::Merge(json!({"status": {"conditions": [condition]}}));
    cluster.api(&pods(), "default").patch_status(name, &PatchParams::default(), &status).await.unwrap();
}

/// Starts the pair on n-0 and n-1 and lets it run for an hour.
async fn running_pair(cluster: &Cluster) -> DynamicObject {
    cluster.submit(pair("pair")).await;
    let job = cluster.wait(&jobs(), "default", "pair", |_| true).await;
    for (name, node) in [("pair-1", "n-0"), ("pair-2", "n-1")] {
        create_pod(cluster, &job, name).await;
        assert_eq!(host(cluster, name).await, node);
        run(cluster, name, node).await;
    }
    tokio::time::sleep(Duration::from_hours(1)).await;
    job
}

/// Deletes a pod without a grace period, as its node or the eviction API would.
async fn evict(cluster: &Cluster, name: &str) {
    cluster.delete_now(&pods(), "default", name).await;
}

async fn assert_still_runs(cluster: &Cluster, job: &DynamicObject) {
    tokio::time::sleep(Duration::from_hours(1)).await;
    let now = cluster.api(&jobs(), "default").get("pair").await.unwrap();
    assert_eq!(now.metadata.uid, job.metadata.uid, "the gang was requeued");
}

#[tokio::test(start_paused = true)]
async fn a_pod_from_a_drained_node_is_placed_on_another_node_and_the_gang_keeps_running() {
    let cluster = cluster(&["n-0", "n-1", "n-2"]).await;
    let _controller = cluster.controller();
    let job = running_pair(&cluster).await;
    cordon(&cluster, "n-1").await;
    evict(&cluster, "pair-2").await;
    create_pod(&cluster, &job, "pair-3").await;
    assert_eq!(host(&cluster, "pair-3").await, "n-2");
    run(&cluster, "pair-3", "n-2").await;
    assert_still_runs(&cluster, &job).await;
}

#[tokio::test(start_paused = true)]
async fn the_place_of_a_replaced_pod_is_charged_and_nobody_else_gets_it() {
    let cluster = cluster(&["n-0", "n-1", "n-2"]).await;
    let _controller = cluster.controller();
    let job = running_pair(&cluster).await;
    cordon(&cluster, "n-1").await;
    evict(&cluster, "pair-2").await;
    cluster.settled().await;
    let mut single = pair("single");
    let spec = &mut single["spec"]["resources"]["GenericItems"][0]["generictemplate"]["spec"];
    (spec["parallelism"], spec["completions"]) = (json!(1), json!(1));
    cluster.submit(single).await;
    cluster.wait_state(Group::Mcad, "single", "Pending", "HeadOfLine").await;
    create_pod(&cluster, &job, "pair-3").await;
    assert_eq!(host(&cluster, "pair-3").await, "n-2");
}

#[tokio::test(start_paused = true)]
async fn a_pod_from_a_deleted_or_tainted_or_failed_node_is_placed_on_another_node() {
    for event in ["deleted", "tainted", "not ready"] {
        let cluster = cluster(&["n-0", "n-1", "n-2"]).await;
        let _controller = cluster.controller();
        let job = running_pair(&cluster).await;
        match event {
            "deleted" => cluster.delete(&nodes(), "", "n-1").await,
            "tainted" => {
                let taint = json!([{"key": "broken", "effect": "NoExecute"}]);
                patch_node(&cluster, "n-1", &json!({"spec": {"taints": taint}})).await;
            }
            _ => {
                let status =
                    Patch::Merge(json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}));
                cluster
                    .api(&nodes(), "")
                    .patch_status("n-1", &PatchParams::default(), &status)
                    .await
                    .unwrap();
            }
        }
        evict(&cluster, "pair-2").await;
        create_pod(&cluster, &job, "pair-3").await;
        assert_eq!(host(&cluster, "pair-3").await, "n-2", "{event}");
        run(&cluster, "pair-3", "n-2").await;
        assert_still_runs(&cluster, &job).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_gang_without_a_replacement_is_requeued_after_its_whole_patience() {
    let cluster = cluster(&["n-0", "n-1"]).await;
    let _controller = cluster.controller();
    let job = running_pair(&cluster).await;
    cordon(&cluster, "n-1").await;
    evict(&cluster, "pair-2").await;
    create_pod(&cluster, &job, "pair-3").await;
    tokio::time::sleep(Duration::from_secs(50)).await;
    assert!(is_gated(&cluster, "pair-3").await, "no node takes it");
    let wrapper = cluster.api(&common::wrappers(Group::Mcad), "default").get("pair").await.unwrap();
    let why = "1 pod is without a node: job: needs 4 cpu on one node; the only eligible node has none free; 1 node is unschedulable. \
        The gang is requeued at 2023-11-14T23:14:20Z unless it gets one";
    assert_eq!(wrapper.data["status"]["message"], why);
    assert_eq!(cluster.api(&jobs(), "default").get("pair").await.unwrap().metadata.uid, job.metadata.uid);
    cluster.wait_gone(&jobs(), "default", "pair").await;
    let wrapper = cluster.api(&common::wrappers(Group::Mcad), "default").get("pair").await.unwrap();
    let story = story(&wrapper.data["status"]);
    let refused = "PreemptCandidate PodsFailedScheduling Pods failed scheduling failed=1, running=1.";
    assert!(story.iter().any(|line| line == refused), "{story:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_gang_gets_its_place_back_when_the_node_is_uncordoned_in_time() {
    let cluster = cluster(&["n-0", "n-1"]).await;
    let _controller = cluster.controller();
    let job = running_pair(&cluster).await;
    cordon(&cluster, "n-1").await;
    evict(&cluster, "pair-2").await;
    create_pod(&cluster, &job, "pair-3").await;
    tokio::time::sleep(Duration::from_secs(50)).await;
    assert!(is_gated(&cluster, "pair-3").await);
    patch_node(&cluster, "n-1", &json!({"spec": {"unschedulable": null}})).await;
    assert_eq!(host(&cluster, "pair-3").await, "n-1");
    run(&cluster, "pair-3", "n-1").await;
    assert_still_runs(&cluster, &job).await;
    let wrapper = cluster.api(&common::wrappers(Group::Mcad), "default").get("pair").await.unwrap();
    assert_eq!(wrapper.data["status"]["message"].as_str().unwrap_or_default(), "");
}

#[tokio::test(start_paused = true)]
async fn patience_counts_from_the_refusal_and_not_from_the_start_of_the_gang() {
    let cluster = cluster(&["n-0", "n-1"]).await;
    let _controller = cluster.controller();
    let job = running_pair(&cluster).await;
    evict(&cluster, "pair-2").await;
    create_pod(&cluster, &job, "pair-3").await;
    assert_eq!(host(&cluster, "pair-3").await, "n-1");
    refuse(&cluster, "pair-3").await;
    tokio::time::sleep(Duration::from_secs(50)).await;
    assert_eq!(cluster.api(&jobs(), "default").get("pair").await.unwrap().metadata.uid, job.metadata.uid);
    run(&cluster, "pair-3", "n-1").await;
    assert_still_runs(&cluster, &job).await;
}

#[tokio::test(start_paused = true)]
async fn a_terminating_pod_passes_its_place_on() {
    let cluster = cluster(&["n-0", "n-1", "n-2"]).await;
    let _controller = cluster.controller();
    let job = running_pair(&cluster).await;
    cluster.api(&pods(), "default").delete("pair-2", &DeleteParams::default()).await.unwrap();
    create_pod(&cluster, &job, "pair-3").await;
    assert_eq!(host(&cluster, "pair-3").await, "n-1");
}

#[tokio::test(start_paused = true)]
async fn an_unbound_pod_that_was_pinned_to_a_lost_node_is_deleted_for_another_one() {
    let cluster = cluster(&["n-0", "n-1", "n-2"]).await;
    let _controller = cluster.controller();
    let job = running_pair(&cluster).await;
    evict(&cluster, "pair-2").await;
    create_pod(&cluster, &job, "pair-3").await;
    assert_eq!(host(&cluster, "pair-3").await, "n-1");
    cordon(&cluster, "n-1").await;
    refuse(&cluster, "pair-3").await;
    cluster.wait_gone(&pods(), "default", "pair-3").await;
    create_pod(&cluster, &job, "pair-4").await;
    assert_eq!(host(&cluster, "pair-4").await, "n-2");
}

#[tokio::test(start_paused = true)]
async fn a_cordoned_node_keeps_the_pods_that_run_there() {
    let cluster = cluster(&["n-0", "n-1", "n-2"]).await;
    let _controller = cluster.controller();
    let job = running_pair(&cluster).await;
    cordon(&cluster, "n-1").await;
    cordon(&cluster, "n-0").await;
    tokio::time::sleep(Duration::from_hours(1)).await;
    let mut single = pair("single");
    let spec = &mut single["spec"]["resources"]["GenericItems"][0]["generictemplate"]["spec"];
    (spec["parallelism"], spec["completions"]) = (json!(1), json!(1));
    cluster.submit(single).await;
    cluster.wait_state(Group::Mcad, "single", "Running", "Dispatched").await;
    assert_still_runs(&cluster, &job).await;
}
