//! Gangs with planned pods that the scheduler reports as unschedulable: the whole gang is requeued and placed
//! elsewhere.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use crate::common::{Cluster, Group, reason, resource, story};
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::ApiResource;
use serde_json::{Value, json};

fn jobs() -> ApiResource {
    resource("batch/v1", "Job", "jobs")
}

fn pods() -> ApiResource {
    resource("v1", "Pod", "pods")
}

/// A Job of two pods, each of which fills a node.
fn pair(scheduling: &Value) -> Value {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "4"}}});
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "pair"},
        "spec": {"parallelism": 2, "completions": 2, "template": template}});
    json!({
        "apiVersion": "mcad.ibm.com/v1beta1", "kind": "AppWrapper",
        "metadata": {"name": "pair", "namespace": "default"},
        "spec": {"schedulingSpec": scheduling, "resources": {"GenericItems": [{"generictemplate": job}]}},
    })
}

async fn nodes(names: &[&str]) -> Cluster {
    let cluster = Cluster::new().await;
    for name in names {
        cluster.node(name, &json!({"cpu": "4", "memory": "16Gi", "pods": "110"})).await;
    }
    cluster
}

/// The planned nodes of the pods of the Job.
fn planned(job: &DynamicObject) -> String {
    job.metadata.annotations.as_ref().unwrap()["muster.dev/assignment"].clone()
}

/// Creates a pod as the Job controller does, with the scheduling gate of its template.
async fn pod(cluster: &Cluster, job: &DynamicObject, name: &str) {
    let owner = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": job.metadata.name,
        "uid": job.metadata.uid, "controller": true, "blockOwnerDeletion": true}]);
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "ownerReferences": owner},
        "spec": job.data["spec"]["template"]["spec"]});
    cluster.create_as(&pods(), "default", pod).await;
    let is_let_go = |pod: &DynamicObject| pod.data["spec"]["schedulingGates"].is_null();
    cluster.wait(&pods(), "default", name, is_let_go).await;
}

async fn runs(cluster: &Cluster, name: &str) {
    let status = Patch::Merge(json!({"status": {"phase": "Running"}}));
    cluster.api(&pods(), "default").patch_status(name, &PatchParams::default(), &status).await.unwrap();
}

async fn mark_unschedulable(cluster: &Cluster, name: &str) {
    let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable"});
    let status = Patch::Merge(json!({"status": {"conditions": [condition]}}));
    cluster.api(&pods(), "default").patch_status(name, &PatchParams::default(), &status).await.unwrap();
}

/// One pod of the pair runs; the other one is unschedulable.
async fn half_start(cluster: &Cluster, job: &DynamicObject) {
    for name in ["pair-1", "pair-2"] {
        pod(cluster, job, name).await;
    }
    bind(cluster, "pair-1", "n-0").await;
    runs(cluster, "pair-1").await;
    mark_unschedulable(cluster, "pair-2").await;
}

/// The gang is requeued, and its running pod terminates.
async fn wait_until_requeued(cluster: &Cluster) {
    cluster.wait_gone(&jobs(), "default", "pair").await;
    cluster.delete_now(&pods(), "default", "pair-1").await;
}

#[tokio::test(start_paused = true)]
async fn a_half_started_gang_is_requeued_as_a_whole_and_placed_on_other_nodes() {
    let cluster = nodes(&["n-0", "n-1", "n-2"]).await;
    let _controller = cluster.controller();
    cluster.submit(pair(&json!({}))).await;
    let job = cluster.wait(&jobs(), "default", "pair", |_| true).await;
    assert_eq!(planned(&job), r#"[{"n-0":1,"n-1":1}]"#);
    half_start(&cluster, &job).await;
    wait_until_requeued(&cluster).await;
    let job = cluster.wait(&jobs(), "default", "pair", |_| true).await;
    assert_eq!(planned(&job), r#"[{"n-0":1,"n-2":1}]"#, "the refused place is not tried again");
    let status = cluster.wait_state(Group::Mcad, "pair", "Running", "Dispatched").await;
    assert_eq!(status["numberOfRequeueings"], 1);
    let story = story(&status);
    let refused = "PreemptCandidate PodsFailedScheduling Pods failed scheduling failed=1, running=1.";
    assert!(story.iter().any(|line| line == refused), "{story:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_gang_without_other_nodes_is_retried_when_the_node_has_changed_or_after_a_delay() {
    for changes in [true, false] {
        let cluster = nodes(&["n-0", "n-1"]).await;
        let _controller = cluster.controller();
        cluster.submit(pair(&json!({"requeuing": {"timeInSeconds": 60}}))).await;
        let job = cluster.wait(&jobs(), "default", "pair", |_| true).await;
        half_start(&cluster, &job).await;
        wait_until_requeued(&cluster).await;
        let status = cluster.wait_state(Group::Mcad, "pair", "Pending", "HeadOfLine").await;
        let why = "job: room for 1 of 2 pods, each needs 4 cpu; 1 node is where it failed before";
        assert_eq!(reason(&status), why);
        if changes {
            let label = Patch::Merge(json!({"metadata": {"labels": {"repaired": "yes"}}}));
            let api = cluster.api(&resource("v1", "Node", "nodes"), "");
            api.patch("n-1", &PatchParams::default(), &label).await.unwrap();
            cluster.settled().await;
            assert_eq!(cluster.names(&jobs(), "default").await, ["pair"]);
        }
        cluster.wait(&jobs(), "default", "pair", |_| true).await;
    }
}

#[tokio::test(start_paused = true)]
async fn gangs_that_accept_fewer_pods_or_have_more_pods_than_planned_keep_running() {
    let cluster = nodes(&["n-0", "n-1", "n-2"]).await;
    let _controller = cluster.controller();
    cluster.submit(pair(&json!({"minAvailable": 1}))).await;
    let job = cluster.wait(&jobs(), "default", "pair", |_| true).await;
    half_start(&cluster, &job).await;
    tokio::time::sleep(std::time::Duration::from_hours(1)).await;
    assert_eq!(cluster.wait(&jobs(), "default", "pair", |_| true).await.metadata.uid, job.metadata.uid);

    let cluster = nodes(&["n-0", "n-1", "n-2"]).await;
    let _controller = cluster.controller();
    cluster.submit(pair(&json!({}))).await;
    let job = cluster.wait(&jobs(), "default", "pair", |_| true).await;
    for (name, node) in [("pair-1", "n-0"), ("pair-2", "n-1")] {
        pod(&cluster, &job, name).await;
        bind(&cluster, name, node).await;
        runs(&cluster, name).await;
    }
    pod(&cluster, &job, "pair-3").await;
    mark_unschedulable(&cluster, "pair-3").await;
    tokio::time::sleep(std::time::Duration::from_hours(1)).await;
    assert_eq!(cluster.wait(&jobs(), "default", "pair", |_| true).await.metadata.uid, job.metadata.uid);
}

/// Binds a pod as the scheduler does.
async fn bind(cluster: &Cluster, name: &str, node: &str) {
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
        "target": {"kind": "Node", "name": node}});
    let params = kube::api::PostParams::default();
    let api = cluster.api(&pods(), "default");
    let _: Value = api.create_subresource("binding", name, &params, &binding).await.unwrap();
}
