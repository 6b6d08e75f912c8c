//! Sets of pods of Kueue's API that are scaled by the subresource, as `kubectl scale` and autoscalers do, past the webhook.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use crate::common::Cluster;
use crate::common::jobs::*;
use crate::common::kueue::*;
use crate::common::queued_pods::*;
use crate::kueue_pods::{controller, stateful_sets, submit_pods_of, submit_set, workload};
use api::kueue::jobs::JobKind;
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

async fn scale(cluster: &Cluster, name: &str, replicas: u32) {
    let scale = Patch::Merge(json!({"spec": {"replicas": replicas}}));
    let api = cluster.api(&stateful_sets(), "default");
    api.patch_subresource("scale", name, &PatchParams::default(), &scale).await.map(drop).unwrap();
}

/// A pod of the set `serve`, as its controller makes it again or anew.
async fn submit_pod_again(cluster: &Cluster, like: &DynamicObject, name: &str, index: u32) {
    let mut value = serde_json::to_value(like).unwrap();
    value["metadata"] = json!({"name": name, "ownerReferences": value["metadata"]["ownerReferences"],
        "labels": {"kueue.x-k8s.io/managed": "true", "apps.kubernetes.io/pod-index": index.to_string()},
        "annotations": {"kueue.x-k8s.io/pod-suspending-parent": "statefulset"}});
    value["spec"]["nodeSelector"] = Value::Null;
    value["spec"]["tolerations"] = Value::Null;
    value["spec"]["schedulingGates"] = json!([{"name": "kueue.x-k8s.io/admission"}]);
    value["status"] = Value::Null;
    cluster.create_as(&pods(), "default", value).await;
}

fn is_gated(pod: &DynamicObject) -> bool {
    pod.data["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty())
}

#[tokio::test(start_paused = true)]
async fn the_new_pods_of_a_set_that_grows_wait_and_the_others_keep_their_quota() {
    let cluster = cluster_with_queue(2, json!({})).await;
    let _controller = controller(&cluster);
    let set = submit_set(&cluster, "serve", 2).await;
    let names = submit_pods_of(&cluster, &set, 2).await;
    for name in &names {
        runs(&cluster, name).await;
    }
    scale(&cluster, "serve", 3).await;
    let first = cluster.api(&pods(), "default").get(&names[0]).await.unwrap();
    submit_pod_again(&cluster, &first, "serve-2", 2).await;
    submit_pod(&cluster, "next", json!({})).await;
    cluster.settled().await;
    let uid = set.metadata.uid.clone().unwrap();
    let of_set = JobKind::of_framework("statefulset").unwrap().workload_name("serve", &uid);
    let holds = |found: &DynamicObject| {
        is(found, "Admitted", "True", "Admitted") && condition(found, "Finished").is_none()
    };
    workload(&cluster, &of_set, holds).await;
    for name in ["serve-2", "next"] {
        assert!(is_gated(&cluster.api(&pods(), "default").get(name).await.unwrap()), "{name} runs");
    }
    // One that is made again has the quota of the one before it.
    cluster.delete_now(&pods(), "default", "serve-0").await;
    cluster.wait_gone(&pods(), "default", "serve-0").await;
    scale(&cluster, "serve", 2).await;
    cluster.delete_now(&pods(), "default", "serve-2").await;
    cluster.wait_gone(&pods(), "default", "serve-2").await;
    submit_pod_again(&cluster, &first, "serve-0", 0).await;
    runs(&cluster, "serve-0").await;
    workload(&cluster, &of_set, holds).await;
}

#[tokio::test(start_paused = true)]
async fn a_set_that_is_scaled_while_it_waits_asks_for_its_new_size() {
    let cluster = cluster_with_queue(2, json!({})).await;
    let _controller = controller(&cluster);
    let set = submit_set(&cluster, "serve", 3).await;
    let uid = set.metadata.uid.clone().unwrap();
    let of_set = JobKind::of_framework("statefulset").unwrap().workload_name("serve", &uid);
    workload(&cluster, &of_set, |found| is(found, "QuotaReserved", "False", "Pending")).await;
    scale(&cluster, "serve", 2).await;
    let found = workload(&cluster, &of_set, |found| is(found, "Admitted", "True", "Admitted")).await;
    assert_eq!(found.data["spec"]["podSets"][0]["count"], 2);
    for name in submit_pods_of(&cluster, &set, 2).await {
        runs(&cluster, &name).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_set_that_was_empty_asks_for_its_new_size() {
    let cluster = cluster_with_queue(3, json!({})).await;
    let _controller = controller(&cluster);
    let set = submit_set(&cluster, "serve", 2).await;
    let uid = set.metadata.uid.clone().unwrap();
    let of_set = JobKind::of_framework("statefulset").unwrap().workload_name("serve", &uid);
    for name in submit_pods_of(&cluster, &set, 2).await {
        runs(&cluster, &name).await;
    }
    scale(&cluster, "serve", 0).await;
    for name in ["serve-0", "serve-1"] {
        cluster.delete_now(&pods(), "default", name).await;
        cluster.wait_gone(&pods(), "default", name).await;
    }
    workload(&cluster, &of_set, |found| is(found, "QuotaReserved", "False", "OnHold")).await;
    scale(&cluster, "serve", 3).await;
    let found = workload(&cluster, &of_set, |found| is(found, "Admitted", "True", "Admitted")).await;
    assert_eq!(found.data["spec"]["podSets"][0]["count"], 3);
    assert_eq!(found.data["status"]["admission"]["podSetAssignments"][0]["count"], 3);
}

#[tokio::test(start_paused = true)]
async fn a_pod_beyond_the_quota_of_its_set_is_stopped_when_somebody_removes_its_gate() {
    let cluster = cluster_with_queue(1, json!({})).await;
    let _controller = controller(&cluster);
    let set = submit_set(&cluster, "serve", 1).await;
    submit_pods_of(&cluster, &set, 1).await;
    let first = runs(&cluster, "serve-0").await;
    scale(&cluster, "serve", 2).await;
    submit_pod_again(&cluster, &first, "serve-1", 1).await;
    cluster.settled().await;
    merge(&cluster, &pods(), "serve-1", json!({"spec": {"schedulingGates": null}})).await;
    cluster.wait_gone(&pods(), "default", "serve-1").await;
    runs(&cluster, "serve-0").await;
}

#[tokio::test(start_paused = true)]
async fn a_set_whose_workload_is_deleted_gets_another_one_and_its_waiting_pods_stay() {
    let cluster = cluster_with_queue(0, json!({})).await;
    let _controller = controller(&cluster);
    let set = submit_set(&cluster, "serve", 2).await;
    let names = submit_pods_of(&cluster, &set, 2).await;
    let uid = set.metadata.uid.clone().unwrap();
    let of_set = JobKind::of_framework("statefulset").unwrap().workload_name("serve", &uid);
    let waits = |found: &DynamicObject| is(found, "QuotaReserved", "False", "Pending");
    let deleted = workload(&cluster, &of_set, waits).await.metadata.uid;
    cluster.settled().await;
    let mut uids = Vec::new();
    for name in &names {
        uids.push(cluster.api(&pods(), "default").get(name).await.unwrap().metadata.uid);
    }
    cluster.delete(&workloads(), "default", &of_set).await;
    workload(&cluster, &of_set, |found| found.metadata.uid != deleted && waits(found)).await;
    cluster.settled().await;
    for (name, uid) in names.iter().zip(uids) {
        assert_eq!(cluster.api(&pods(), "default").get(name).await.unwrap().metadata.uid, uid, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_set_that_gets_an_owner_while_it_runs_goes_on_as_a_set_of_its_own() {
    let cluster = cluster_with_queue(1, json!({})).await;
    let _controller = controller(&cluster);
    let set = submit_set(&cluster, "serve", 1).await;
    submit_pods_of(&cluster, &set, 1).await;
    let first = runs(&cluster, "serve-0").await;
    let owner = Jobs::of(&cluster, "ray.io/raycluster").submit("owner", ray_cluster(0)).await;
    let references = json!([{"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "owner",
        "uid": owner.metadata.uid, "controller": true}]);
    merge(&cluster, &stateful_sets(), "serve", json!({"metadata": {"ownerReferences": references}})).await;
    cluster.delete_now(&pods(), "default", "serve-0").await;
    cluster.wait_gone(&pods(), "default", "serve-0").await;
    submit_pod_again(&cluster, &first, "serve-0", 0).await;
    runs(&cluster, "serve-0").await;
}
