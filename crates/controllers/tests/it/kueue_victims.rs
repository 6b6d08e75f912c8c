//! Queues of Kueue's API that wait for the victims of their first Workload.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use crate::common::kueue::*;
use crate::common::{Cluster, Running};
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use serde_json::json;

/// A queue of four CPUs in which `high` (four CPUs) waits for `low` (three), whose pods do not end. `small` (one CPU) is behind
/// it. The queue `other` (one CPU) is in the same cohort.
async fn waiting() -> (Cluster, Running) {
    let cluster = kueue_cluster().await;
    let preemption = json!({"withinClusterQueue": "LowerPriority"});
    queue(&cluster, "team", 4, json!({"cohortName": "all", "preemption": preemption})).await;
    queue(&cluster, "other", 1, json!({"cohortName": "all"})).await;
    let controller = kueue_controller(&cluster);
    submit(&cluster, "low", "team", 0, 3, 1).await;
    admitted(&cluster, "low").await;
    submit(&cluster, "high", "team", 9, 4, 1).await;
    let evicted = |object: &DynamicObject| is(object, "Evicted", "True", "Preempted");
    cluster.wait(&workloads(), "default", "low", evicted).await;
    submit(&cluster, "small", "team", 1, 1, 1).await;
    cluster.settled().await;
    assert!(!is_admitted(&cluster, "small").await && !is_admitted(&cluster, "high").await);
    (cluster, controller)
}

async fn is_admitted(cluster: &Cluster, name: &str) -> bool {
    let object = cluster.api(&workloads(), "default").get(name).await.unwrap();
    is(&object, "Admitted", "True", "Admitted")
}

async fn delete(cluster: &Cluster, name: &str) {
    cluster.api(&workloads(), "default").delete(name, &DeleteParams::default()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn victims_that_never_end_hold_up_no_other_queue() {
    let (cluster, _controller) = waiting().await;
    submit(&cluster, "elsewhere", "other", 0, 1, 1).await;
    admitted(&cluster, "elsewhere").await;
    delete(&cluster, "low").await;
    admitted(&cluster, "high").await;
    assert!(!is_admitted(&cluster, "small").await);
}

#[tokio::test(start_paused = true)]
async fn a_queue_goes_on_when_the_workload_that_waits_for_victims_is_deleted_or_deactivated() {
    let (cluster, _controller) = waiting().await;
    delete(&cluster, "high").await;
    admitted(&cluster, "small").await;

    let (cluster, _controller) = waiting().await;
    let inactive = Patch::Merge(json!({"spec": {"active": false}}));
    let api = cluster.api(&workloads(), "default");
    api.patch("high", &PatchParams::default(), &inactive).await.unwrap();
    admitted(&cluster, "small").await;
    release(&cluster, "low").await;
    admitted(&cluster, "low").await;
}

#[tokio::test(start_paused = true)]
async fn a_quota_that_is_cut_while_a_workload_waits_for_victims_goes_to_the_ones_behind_it() {
    let (cluster, _controller) = waiting().await;
    let quota = json!({"name": "default", "resources": [{"name": "cpu", "nominalQuota": 2}]});
    let groups = json!([{"coveredResources": ["cpu"], "flavors": [quota]}]);
    let cut = Patch::Merge(json!({"spec": {"resourceGroups": groups}}));
    cluster.api(&cluster_queues(), "").patch("team", &PatchParams::default(), &cut).await.unwrap();
    release(&cluster, "low").await;
    admitted(&cluster, "small").await;
    let text = waits(&cluster, "high", "Pending").await;
    assert!(text.contains("insufficient quota for cpu in flavor default"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn the_next_controller_waits_for_the_same_victims() {
    let (cluster, controller) = waiting().await;
    drop(controller);
    let _controller = kueue_controller(&cluster);
    cluster.settled().await;
    assert!(!is_admitted(&cluster, "small").await);
    release(&cluster, "low").await;
    admitted(&cluster, "high").await;
}
