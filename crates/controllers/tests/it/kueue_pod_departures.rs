//! Pods of Kueue's API, alone and in groups, that are stopped, deleted or taken out of their group while they run: they keep the quota
//! until they have ended. The tests play the author of the pods, the webhook, the garbage collector and the kubelet.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::time::Duration;

use crate::common::Cluster;
use crate::common::gang_pods::run;
use crate::common::jobs::*;
use crate::common::kueue::*;
use crate::common::queued_pods::*;
use crate::kueue_pods::{controller, workload};
use api::kueue::jobs::JobKind;
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use serde_json::{Value, json};

/// Longer than an object is waited for, and shorter than the grace period of a pod.
async fn a_moment() {
    tokio::time::sleep(Duration::from_secs(10)).await;
}

async fn is_held_back(cluster: &Cluster, name: &str) {
    let pod = cluster.api(&pods(), "default").get(name).await.unwrap();
    let gates = pod.data["spec"]["schedulingGates"].as_array();
    assert!(gates.is_some_and(|gates| !gates.is_empty()), "{name} runs");
}

async fn is_deleted(cluster: &Cluster, name: &str) {
    cluster.wait(&pods(), "default", name, |pod| pod.metadata.deletion_timestamp.is_some()).await;
}

/// Waits until a pod may run, and plays the scheduler and the kubelet.
async fn runs_on_a_node(cluster: &Cluster, name: &str) -> DynamicObject {
    let pod = runs(cluster, name).await;
    run(cluster, name, "n").await;
    pod
}

fn with_priority(mut more: Value) -> Value {
    more["labels"]["kueue.x-k8s.io/priority-class"] = "high".into();
    more
}

async fn cluster_with_preemption(cpus: u32) -> Cluster {
    let preemption = json!({"preemption": {"withinClusterQueue": "LowerPriority"}});
    let cluster = cluster_with_queue(cpus, preemption).await;
    priority_class(&cluster, "high", 100).await;
    cluster
}

#[tokio::test(start_paused = true)]
async fn a_preempted_pod_keeps_its_quota_until_it_has_ended() {
    let cluster = cluster_with_preemption(1).await;
    let _controller = controller(&cluster);
    submit_pod(&cluster, "low", json!({})).await;
    runs_on_a_node(&cluster, "low").await;
    submit_pod(&cluster, "high", with_priority(json!({}))).await;
    is_deleted(&cluster, "low").await;
    a_moment().await;
    is_held_back(&cluster, "high").await;
    status_of(&cluster, "low", json!({"phase": "Failed"})).await;
    runs(&cluster, "high").await;
}

#[tokio::test(start_paused = true)]
async fn pods_whose_workload_is_deleted_keep_its_quota_until_they_have_ended() {
    for is_alone in [true, false] {
        let cluster = cluster_with_queue(1, json!({})).await;
        let _controller = controller(&cluster);
        submit_pod(&cluster, "first", if is_alone { json!({}) } else { member("group", 1) }).await;
        let uid = runs_on_a_node(&cluster, "first").await.uid().unwrap();
        let of_pod = JobKind::of_framework("pod").unwrap().workload_name("first", &uid);
        let name = if is_alone { &of_pod } else { "group" };
        submit_pod(&cluster, "second", json!({})).await;
        cluster.delete(&workloads(), "default", name).await;
        is_deleted(&cluster, "first").await;
        a_moment().await;
        workload(&cluster, name, |_| true).await;
        is_held_back(&cluster, "second").await;
        status_of(&cluster, "first", json!({"phase": "Failed"})).await;
        runs(&cluster, "second").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_leaves_its_group_while_it_runs_keeps_the_quota_of_the_group() {
    let cluster = cluster_with_preemption(2).await;
    let _controller = controller(&cluster);
    for name in ["a", "b"] {
        submit_pod(&cluster, name, member("group", 2)).await;
    }
    for name in ["a", "b"] {
        runs_on_a_node(&cluster, name).await;
    }
    merge(&cluster, &pods(), "b", json!({"metadata": {"labels": {"kueue.x-k8s.io/managed": null}}})).await;
    submit_pod(&cluster, "high", with_priority(json!({}))).await;
    is_deleted(&cluster, "a").await;
    status_of(&cluster, "a", json!({"phase": "Failed"})).await;
    a_moment().await;
    is_held_back(&cluster, "high").await;
    status_of(&cluster, "b", json!({"phase": "Succeeded"})).await;
    runs(&cluster, "high").await;
}

#[tokio::test(start_paused = true)]
async fn a_workload_of_a_group_that_nothing_owns_goes_with_the_last_of_its_pods() {
    let cluster = cluster_with_queue(1, json!({})).await;
    let first = controller(&cluster);
    submit_pod(&cluster, "a", member("group", 1)).await;
    runs(&cluster, "a").await;
    drop(first);
    merge(&cluster, &workloads(), "group", json!({"metadata": {"ownerReferences": null}})).await;
    merge(&cluster, &pods(), "a", json!({"metadata": {"finalizers": null}})).await;
    cluster.delete_now(&pods(), "default", "a").await;
    let _second = controller(&cluster);
    cluster.wait_gone(&workloads(), "default", "group").await;
}

#[tokio::test(start_paused = true)]
async fn the_pods_of_a_group_whose_workload_has_ended_are_stopped() {
    let cluster = cluster_with_queue(1, json!({})).await;
    let _controller = controller(&cluster);
    submit_pod(&cluster, "a", member("group", 1)).await;
    runs_on_a_node(&cluster, "a").await;
    finish(&cluster, "group").await;
    is_stopped(&cluster, "a", "WorkloadFinished").await;
}

#[tokio::test(start_paused = true)]
async fn a_workload_that_is_deleted_gets_no_more_owners() {
    let cluster = cluster_with_queue(2, json!({})).await;
    let _controller = controller(&cluster);
    for name in ["a", "b"] {
        submit_pod(&cluster, name, member("group", 2)).await;
    }
    for name in ["a", "b"] {
        runs_on_a_node(&cluster, name).await;
    }
    let own = workload(&cluster, "group", |_| true).await;
    cluster.delete(&workloads(), "default", "group").await;
    for name in ["a", "b"] {
        is_deleted(&cluster, name).await;
    }
    status_of(&cluster, "b", json!({"phase": "Failed"})).await;
    // It would take the place of the one that has failed.
    submit_pod(&cluster, "c", member("group", 2)).await;
    a_moment().await;
    let found = workload(&cluster, "group", |_| true).await;
    assert_eq!(found.metadata.uid, own.metadata.uid, "a pod runs with its quota");
    assert_eq!(found.metadata.owner_references, own.metadata.owner_references);
    status_of(&cluster, "a", json!({"phase": "Failed"})).await;
    cluster.wait_gone(&workloads(), "default", "group").await;
}

async fn is_told(cluster: &Cluster, told: &str) {
    a_moment().await;
    let events = cluster.events().await;
    assert!(events.iter().any(|event| event.starts_with(told)), "{events:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_group_takes_no_workload_that_other_pods_have() {
    let cluster = cluster_with_queue(2, json!({})).await;
    let _controller = controller(&cluster);
    submit_pod(&cluster, "a", member("group", 1)).await;
    runs(&cluster, "a").await;
    let is_admitted = |found: &DynamicObject| is(found, "Admitted", "True", "Admitted");
    let own = workload(&cluster, "group", is_admitted).await;
    let mut thief = member("thieves", 1);
    thief["annotations"]["kueue.x-k8s.io/prebuilt-workload-name"] = "group".into();
    submit_pod(&cluster, "thief", thief).await;
    is_told(&cluster, "thief ErrWorkloadCompose: the Workload 'group' is that of another job").await;
    is_held_back(&cluster, "thief").await;
    let found = workload(&cluster, "group", is_admitted).await;
    assert_eq!(found.metadata.owner_references, own.metadata.owner_references);
}

#[tokio::test(start_paused = true)]
async fn a_group_uses_a_workload_of_another_author_only_if_all_its_pods_name_it() {
    let cluster = cluster_with_queue(2, json!({})).await;
    let _controller = controller(&cluster);
    submit(&cluster, "made", "team", 0, 2, 1).await;
    let mut names_it = member("group", 2);
    names_it["annotations"]["kueue.x-k8s.io/prebuilt-workload-name"] = "made".into();
    submit_pod(&cluster, "a", names_it).await;
    submit_pod(&cluster, "b", member("group", 2)).await;
    a_moment().await;
    let made = workload(&cluster, "made", |_| true).await;
    assert_eq!(made.metadata.owner_references, None);
    assert!(!is(&made, "Finished", "True", "OutOfSync"));
    workload(&cluster, "group", |_| true).await;
}
