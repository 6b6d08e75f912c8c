//! Pods that have ended are no load: their resources go to their replacements, and at last to other gangs.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use crate::common::{Cluster, Group, resource};
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use serde_json::{Value, json};

fn jobs() -> ApiResource {
    resource("batch/v1", "Job", "jobs")
}

fn pods() -> ApiResource {
    resource("v1", "Pod", "pods")
}

async fn cluster() -> Cluster {
    let cluster = Cluster::new().await;
    cluster.node("n", &json!({"cpu": "8", "memory": "64Gi", "pods": "110"})).await;
    cluster
}

fn pod_spec(cpu: &str) -> Value {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}});
    json!({"restartPolicy": "Never", "containers": [container]})
}

fn wrapper(name: &str, object: &Value) -> Value {
    json!({
        "apiVersion": "workload.codeflare.dev/v1beta1", "kind": "AppWrapper",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"resources": {"GenericItems": [{"generictemplate": object}]}},
    })
}

/// A Job of 40 pods of 1 CPU, 4 at a time.
fn job(name: &str) -> Value {
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {"parallelism": 4, "completions": 40, "template": {"spec": pod_spec("1")}}});
    wrapper(name, &job)
}

/// A single pod.
fn single(name: &str, cpu: &str) -> Value {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": pod_spec(cpu)});
    wrapper(name, &pod)
}

async fn set_status(cluster: &Cluster, resource: &ApiResource, name: &str, status: Value) {
    let patch = Patch::Merge(json!({"status": status}));
    cluster.api(resource, "default").patch_status(name, &PatchParams::default(), &patch).await.unwrap();
}

/// The scheduler binds a pod, and it runs.
async fn run(cluster: &Cluster, name: &str) {
    let is_ungated = |pod: &DynamicObject| pod.data["spec"]["schedulingGates"].is_null();
    cluster.wait(&pods(), "default", name, is_ungated).await;
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
        "target": {"kind": "Node", "name": "n"}});
    let api = cluster.api(&pods(), "default");
    let _: Value = api.create_subresource("binding", name, &PostParams::default(), &binding).await.unwrap();
    set_status(cluster, &pods(), name, json!({"phase": "Running"})).await;
}

/// The Job controller creates a pod, and it runs.
async fn run_pod_of(cluster: &Cluster, job: &DynamicObject, name: &str) {
    let owner = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": job.metadata.name,
        "uid": job.metadata.uid, "controller": true, "blockOwnerDeletion": true}]);
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "ownerReferences": owner},
        "spec": job.data["spec"]["template"]["spec"]});
    cluster.create_as(&pods(), "default", pod).await;
    run(cluster, name).await;
}

/// Ends the first `completions` pods of the Job, four at a time, and starts those that replace them.
async fn run_until(cluster: &Cluster, completions: u32) {
    cluster.submit(job("long")).await;
    let job = cluster.wait(&jobs(), "default", "long", |_| true).await;
    for pod in 0..(completions + 4).min(40) {
        if let Some(ended) = pod.checked_sub(4) {
            end_pod(cluster, ended).await;
        }
        run_pod_of(cluster, &job, &format!("long-{pod}")).await;
    }
    for ended in 36..completions {
        end_pod(cluster, ended).await;
    }
}

/// A pod succeeds, and the Job controller counts it.
async fn end_pod(cluster: &Cluster, pod: u32) {
    set_status(cluster, &pods(), &format!("long-{pod}"), json!({"phase": "Succeeded"})).await;
    set_status(cluster, &jobs(), "long", json!({"succeeded": pod + 1})).await;
}

#[tokio::test(start_paused = true)]
async fn the_resources_of_succeeded_pods_are_used_by_their_successors_only_once() {
    let cluster = cluster().await;
    let _controller = cluster.controller();
    run_until(&cluster, 20).await;
    cluster.submit(single("other", "4")).await;
    cluster.wait_state(Group::Codeflare, "other", "Running", "Dispatched").await;
    cluster.submit(single("too-much", "1")).await;
    cluster.wait_state(Group::Codeflare, "too-much", "Pending", "Backoff").await;
}

#[tokio::test(start_paused = true)]
async fn a_job_that_needs_fewer_pods_than_planned_releases_the_rest() {
    let cluster = cluster().await;
    let _controller = cluster.controller();
    run_until(&cluster, 38).await;
    cluster.submit(single("other", "6")).await;
    cluster.wait_state(Group::Codeflare, "other", "Running", "Dispatched").await;
    cluster.submit(single("too-much", "1")).await;
    cluster.wait_state(Group::Codeflare, "too-much", "Pending", "Backoff").await;
}

#[tokio::test(start_paused = true)]
async fn a_complete_job_without_completion_status_releases_its_resources_and_its_wrapper_keeps_running() {
    let cluster = cluster().await;
    let first = cluster.controller();
    run_until(&cluster, 40).await;
    set_status(&cluster, &jobs(), "long", json!({"conditions": [{"type": "Complete", "status": "True"}]}))
        .await;
    cluster.submit(single("whole-node", "8")).await;
    cluster.wait_state(Group::Codeflare, "whole-node", "Running", "Dispatched").await;
    cluster.wait_state(Group::Codeflare, "long", "Running", "Dispatched").await;
    drop(first);
    let _second = cluster.controller();
    cluster.submit(single("too-much", "1")).await;
    cluster.wait_state(Group::Codeflare, "too-much", "Pending", "Backoff").await;
    cluster
        .delete(
            &resource("workload.codeflare.dev/v1beta1", "AppWrapper", "appwrappers"),
            "default",
            "whole-node",
        )
        .await;
    cluster.wait_state(Group::Codeflare, "too-much", "Running", "Dispatched").await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_job_releases_its_resources() {
    let cluster = cluster().await;
    let _controller = cluster.controller();
    run_until(&cluster, 0).await;
    set_status(&cluster, &jobs(), "long", json!({"conditions": [{"type": "Failed", "status": "True"}]}))
        .await;
    cluster.submit(single("other", "5")).await;
    cluster.wait_state(Group::Codeflare, "other", "Pending", "Backoff").await;
    for pod in 0..4 {
        set_status(&cluster, &pods(), &format!("long-{pod}"), json!({"phase": "Failed"})).await;
    }
    cluster.wait_state(Group::Codeflare, "other", "Running", "Dispatched").await;
}

#[tokio::test(start_paused = true)]
async fn a_wrapped_pod_that_has_ended_releases_its_resources() {
    for phase in ["Succeeded", "Failed"] {
        let cluster = cluster().await;
        let _controller = cluster.controller();
        cluster.submit(single("first", "8")).await;
        run(&cluster, "first").await;
        cluster.submit(single("second", "8")).await;
        cluster.wait_state(Group::Codeflare, "second", "Pending", "Backoff").await;
        set_status(&cluster, &pods(), "first", json!({"phase": phase})).await;
        cluster.wait_state(Group::Codeflare, "second", "Running", "Dispatched").await;
    }
}
