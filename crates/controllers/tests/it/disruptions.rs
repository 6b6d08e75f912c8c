//! Wrapped Pods that end by a disruption, such as the loss of their node: nothing creates them again, so the gang is
//! requeued.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::time::Duration;

use crate::common::{Cluster, Group, resource, wrappers};
use kube::api::{Patch, PatchParams};
use kube::core::ApiResource;
use serde_json::{Value, json};
use tokio::time::sleep;

fn pods() -> ApiResource {
    resource("v1", "Pod", "pods")
}

fn nodes() -> ApiResource {
    resource("v1", "Node", "nodes")
}

/// Two nodes of 2 CPUs.
async fn cluster() -> Cluster {
    let cluster = Cluster::new().await;
    for name in ["n-0", "n-1"] {
        cluster.node(name, &json!({"cpu": "2", "memory": "16Gi", "pods": "110"})).await;
    }
    cluster
}

/// A gang of two Pods of 1 CPU each.
fn gang(spec: &Value) -> Value {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}});
    let pod = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"restartPolicy": "Never", "containers": [container]}})
    };
    let items = ["a", "b"].map(|name| json!({"generictemplate": pod(name)}));
    let mut gang = json!({
        "apiVersion": "mcad.ibm.com/v1beta1", "kind": "AppWrapper",
        "metadata": {"name": "g", "namespace": "default"},
        "spec": {"resources": {"GenericItems": items}},
    });
    if !spec.is_null() {
        gang["spec"]["schedulingSpec"] = spec.clone();
    }
    gang
}

async fn set_status(cluster: &Cluster, name: &str, status: Value) {
    let patch = Patch::Merge(json!({"status": status}));
    cluster.api(&pods(), "default").patch_status(name, &PatchParams::default(), &patch).await.unwrap();
}

/// The gang is dispatched, and both Pods run.
async fn run(cluster: &Cluster, spec: &Value) {
    cluster.submit(gang(spec)).await;
    for name in ["a", "b"] {
        cluster.wait(&pods(), "default", name, |_| true).await;
        set_status(cluster, name, json!({"phase": "Running"})).await;
    }
    cluster.wait_state(Group::Mcad, "g", "Running", "Dispatched").await;
    sleep(Duration::from_secs(5)).await;
}

fn disrupted(phase: &str) -> Value {
    json!({"phase": phase, "conditions": [{"type": "DisruptionTarget", "status": "True",
        "reason": "DeletionByTaintManager", "message": "Taint manager: deleting due to NoExecute taint"}]})
}

async fn uid(cluster: &Cluster, name: &str) -> Option<String> {
    cluster.api(&pods(), "default").get_opt(name).await.unwrap().and_then(|pod| pod.metadata.uid)
}

async fn status(cluster: &Cluster) -> Value {
    cluster.api(&wrappers(Group::Mcad), "default").get("g").await.unwrap().data["status"].clone()
}

/// The gang was requeued and has started again: all its Pods are new.
async fn assert_restarted(cluster: &Cluster, before: &[Option<String>; 2]) {
    for (name, before) in ["a", "b"].into_iter().zip(before) {
        let is_new = |pod: &kube::api::DynamicObject| pod.metadata.uid != *before;
        cluster.wait(&pods(), "default", name, is_new).await;
    }
    let status = cluster.wait_state(Group::Mcad, "g", "Running", "Dispatched").await;
    let conditions = status["conditions"].as_array().unwrap();
    let requeued = conditions.iter().find(|condition| condition["type"] == "PreemptCandidate");
    assert_eq!(requeued.map(|condition| &condition["reason"]), Some(&json!("PodsDisrupted")), "{status}");
}

#[tokio::test(start_paused = true)]
async fn a_gang_whose_pod_is_evicted_is_requeued_whole() {
    for is_deleted in [true, false] {
        let cluster = cluster().await;
        let _controller = cluster.controller();
        run(&cluster, &Value::Null).await;
        let before = [uid(&cluster, "a").await, uid(&cluster, "b").await];
        if is_deleted {
            set_status(&cluster, "a", disrupted("Running")).await;
            cluster.delete_now(&pods(), "default", "a").await;
        } else {
            set_status(&cluster, "a", disrupted("Failed")).await;
        }
        assert_restarted(&cluster, &before).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_gang_that_loses_a_pod_with_its_node_while_no_controller_runs_is_requeued() {
    for is_deleted in [true, false] {
        let cluster = cluster().await;
        let first = cluster.controller();
        run(&cluster, &Value::Null).await;
        drop(first);
        let before = [uid(&cluster, "a").await, uid(&cluster, "b").await];
        let pod = cluster.api(&pods(), "default").get("a").await.unwrap();
        let assignment = pod.metadata.annotations.unwrap().remove("muster.dev/assignment").unwrap();
        let lost = if assignment.contains("n-0") { "n-0" } else { "n-1" };
        if is_deleted {
            cluster.delete(&nodes(), "", lost).await;
        } else {
            let taint = json!({"spec": {"taints": [{"key": "out-of-service", "effect": "NoExecute"}]}});
            let api = cluster.api(&nodes(), "");
            api.patch(lost, &PatchParams::default(), &Patch::Merge(taint)).await.unwrap();
        }
        cluster.delete_now(&pods(), "default", "a").await;
        let _second = cluster.controller();
        assert_restarted(&cluster, &before).await;
    }
}

#[tokio::test(start_paused = true)]
async fn pods_that_succeeded_or_are_not_needed_do_not_requeue_the_gang() {
    let succeeded = json!({"phase": "Succeeded", "conditions": [
        {"type": "Ready", "status": "False", "reason": "PodCompleted"},
        {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"},
    ]});
    let enough = json!({"minAvailable": 1, "requeuing": {"timeInSeconds": 20}});
    for (spec, last) in [(Value::Null, succeeded), (enough, disrupted("Running"))] {
        let cluster = cluster().await;
        let _controller = cluster.controller();
        run(&cluster, &spec).await;
        let other = uid(&cluster, "b").await;
        set_status(&cluster, "a", last).await;
        cluster.delete_now(&pods(), "default", "a").await;
        sleep(Duration::from_hours(1)).await;
        assert_eq!(status(&cluster).await["state"], "Running");
        assert_eq!(uid(&cluster, "b").await, other);
    }
}

#[tokio::test(start_paused = true)]
async fn pods_that_have_succeeded_and_go_with_their_node_are_not_run_again_after_a_restart() {
    let cluster = cluster().await;
    let controller = cluster.controller();
    run(&cluster, &Value::Null).await;
    let completed = json!([{"type": "Ready", "status": "False", "reason": "PodCompleted"}]);
    for name in ["a", "b"] {
        set_status(&cluster, name, json!({"phase": "Succeeded", "conditions": completed})).await;
    }
    cluster.settled().await;
    for name in ["n-0", "n-1"] {
        cluster.delete(&nodes(), "", name).await;
    }
    for name in ["a", "b"] {
        cluster.delete_now(&pods(), "default", name).await;
    }
    sleep(Duration::from_mins(1)).await;
    assert_eq!(status(&cluster).await["Succeeded"], 2, "{}", status(&cluster).await);
    drop(controller);
    let _controller = cluster.controller();
    cluster.node("n-2", &json!({"cpu": "2", "memory": "16Gi", "pods": "110"})).await;
    sleep(Duration::from_mins(10)).await;
    assert!(cluster.names(&pods(), "default").await.is_empty());
    assert_eq!(status(&cluster).await["state"], "Running");
}
