//! Running gangs whose pods are replaced: on a drained or deleted node, after a deletion, and when no place is left.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use crate::common;
use std::time::Duration;

use crate::common::gang_pods::{
    cluster, cordon, create_pod, evict, host, is_gated, jobs, nodes, pair, patch_node, pods, refuse, run,
    single,
};
use crate::common::{Cluster, Group, story};
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use serde_json::json;

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

async fn assert_still_runs(cluster: &Cluster, job: &DynamicObject) {
    tokio::time::sleep(Duration::from_hours(1)).await;
    let now = cluster.api(&jobs(), "default").get("pair").await.unwrap();
    assert_eq!(now.metadata.uid, job.metadata.uid, "the gang was requeued");
}

/// Drains the second node: the pod there is replaced by one on the third node.
async fn drain_and_replace(cluster: &Cluster, job: &DynamicObject) {
    cordon(cluster, "n-1").await;
    evict(cluster, "pair-2").await;
    create_pod(cluster, job, "pair-3").await;
    assert_eq!(host(cluster, "pair-3").await, "n-2");
    run(cluster, "pair-3", "n-2").await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_from_a_drained_node_is_placed_on_another_node_and_the_gang_keeps_running() {
    let cluster = cluster(&["n-0", "n-1", "n-2"]).await;
    let _controller = cluster.controller();
    let job = running_pair(&cluster).await;
    drain_and_replace(&cluster, &job).await;
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
    cluster.submit(single("single")).await;
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
async fn the_place_that_replaces_a_lost_one_is_kept_while_the_lost_pod_is_still_listed() {
    let cluster = cluster(&["n-0", "n-1", "n-2"]).await;
    let _controller = cluster.controller();
    let job = running_pair(&cluster).await;
    // Nobody confirms the deletion of the pod, as on a node that is lost.
    let finalizers = Patch::Merge(json!({"metadata": {"finalizers": ["example.com/kubelet"]}}));
    cluster.api(&pods(), "default").patch("pair-2", &PatchParams::default(), &finalizers).await.unwrap();
    cordon(&cluster, "n-1").await;
    cluster.delete(&pods(), "default", "pair-2").await;
    create_pod(&cluster, &job, "pair-3").await;
    assert_eq!(host(&cluster, "pair-3").await, "n-2");
    cluster.submit(single("single")).await;
    cluster.wait_state(Group::Mcad, "single", "Pending", "HeadOfLine").await;
    run(&cluster, "pair-3", "n-2").await;
    assert_still_runs(&cluster, &job).await;
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
    pin_to_second_node(&cluster, &job).await;
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

/// The pod on the second node is replaced by one that is pinned there and not bound yet.
async fn pin_to_second_node(cluster: &Cluster, job: &DynamicObject) {
    evict(cluster, "pair-2").await;
    create_pod(cluster, job, "pair-3").await;
    assert_eq!(host(cluster, "pair-3").await, "n-1");
}

/// The scheduler refuses the pinned pod: it is deleted, and the next one goes to the third node.
async fn refuse_and_replace(cluster: &Cluster, job: &DynamicObject) {
    refuse(cluster, "pair-3").await;
    cluster.wait_gone(&pods(), "default", "pair-3").await;
    create_pod(cluster, job, "pair-4").await;
    assert_eq!(host(cluster, "pair-4").await, "n-2");
}

/// A pod of another owner takes the place of the pod on the second node.
async fn occupy_second_node(cluster: &Cluster, job: &DynamicObject) {
    let container = &job.data["spec"]["template"]["spec"]["containers"][0];
    let other = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "other"},
        "spec": {"nodeName": "n-1", "containers": [container]}});
    cluster.create_as(&pods(), "default", other).await;
}

#[tokio::test(start_paused = true)]
async fn an_unbound_pod_that_was_pinned_to_a_lost_node_is_deleted_for_another_one() {
    let cluster = cluster(&["n-0", "n-1", "n-2"]).await;
    let _controller = cluster.controller();
    let job = running_pair(&cluster).await;
    pin_to_second_node(&cluster, &job).await;
    cordon(&cluster, "n-1").await;
    refuse_and_replace(&cluster, &job).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_place_another_owner_has_taken_is_placed_on_another_node() {
    let cluster = cluster(&["n-0", "n-1", "n-2"]).await;
    let _controller = cluster.controller();
    let job = running_pair(&cluster).await;
    pin_to_second_node(&cluster, &job).await;
    occupy_second_node(&cluster, &job).await;
    refuse_and_replace(&cluster, &job).await;
    run(&cluster, "pair-4", "n-2").await;
    assert_still_runs(&cluster, &job).await;
}

#[tokio::test(start_paused = true)]
async fn a_gang_whose_job_would_fail_without_the_refused_pod_is_requeued_whole() {
    let per_index = json!({"backoffLimitPerIndex": 0, "completionMode": "Indexed"});
    for limits in [json!({"backoffLimit": 0}), per_index] {
        let cluster = cluster(&["n-0", "n-1", "n-2"]).await;
        let _controller = cluster.controller();
        let mut wrapper = pair("pair");
        let spec = &mut wrapper["spec"]["resources"]["GenericItems"][0]["generictemplate"]["spec"];
        spec.as_object_mut().unwrap().extend(limits.as_object().unwrap().clone());
        cluster.submit(wrapper).await;
        let job = cluster.wait(&jobs(), "default", "pair", |_| true).await;
        create_pod(&cluster, &job, "pair-1").await;
        run(&cluster, "pair-1", "n-0").await;
        create_pod(&cluster, &job, "pair-2").await;
        assert_eq!(host(&cluster, "pair-2").await, "n-1");
        occupy_second_node(&cluster, &job).await;
        refuse(&cluster, "pair-2").await;
        tokio::time::sleep(Duration::from_secs(50)).await;
        let pod = cluster.api(&pods(), "default").get("pair-2").await.unwrap();
        assert!(pod.metadata.deletion_timestamp.is_none(), "the Job would count it as failed");
        cluster.wait_gone(&jobs(), "default", "pair").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_cordoned_node_keeps_the_pods_that_run_there() {
    let cluster = cluster(&["n-0", "n-1", "n-2"]).await;
    let _controller = cluster.controller();
    let job = running_pair(&cluster).await;
    cordon(&cluster, "n-1").await;
    cordon(&cluster, "n-0").await;
    tokio::time::sleep(Duration::from_hours(1)).await;
    cluster.submit(single("single")).await;
    cluster.wait_state(Group::Mcad, "single", "Running", "Dispatched").await;
    assert_still_runs(&cluster, &job).await;
}

#[tokio::test(start_paused = true)]
async fn a_restarted_controller_finds_replaced_pods_where_they_are() {
    let cluster = cluster(&["n-0", "n-1", "n-2"]).await;
    let first = cluster.controller();
    let job = running_pair(&cluster).await;
    drain_and_replace(&cluster, &job).await;
    cluster.settled().await;
    drop(first);
    patch_node(&cluster, "n-1", &json!({"spec": {"unschedulable": null}})).await;
    let second = cluster.controller();
    // The place on the first node was given up: another gang gets it, and no more.
    cluster.submit(single("single")).await;
    let other = cluster.wait(&jobs(), "default", "single", |_| true).await;
    create_pod(&cluster, &other, "single-1").await;
    assert_eq!(host(&cluster, "single-1").await, "n-1");
    run(&cluster, "single-1", "n-1").await;
    cluster.submit(single("waits")).await;
    cluster.wait_state(Group::Mcad, "waits", "Pending", "HeadOfLine").await;
    // A killed pod gets the new place again.
    evict(&cluster, "pair-3").await;
    create_pod(&cluster, &job, "pair-4").await;
    assert_eq!(host(&cluster, "pair-4").await, "n-2");
    run(&cluster, "pair-4", "n-2").await;
    // And it is replaced again, without a restart and after one.
    cluster.node("n-3", &json!({"cpu": "1", "memory": "1Gi", "pods": "9"})).await;
    cordon(&cluster, "n-0").await;
    cluster.delete(&common::wrappers(Group::Mcad), "default", "single").await;
    cluster.delete_now(&pods(), "default", "single-1").await;
    cluster.delete(&common::wrappers(Group::Mcad), "default", "waits").await;
    evict(&cluster, "pair-1").await;
    create_pod(&cluster, &job, "pair-5").await;
    assert_eq!(host(&cluster, "pair-5").await, "n-1");
    run(&cluster, "pair-5", "n-1").await;
    cluster.settled().await;
    drop(second);
    let _third = cluster.controller();
    assert_still_runs(&cluster, &job).await;
    evict(&cluster, "pair-4").await;
    create_pod(&cluster, &job, "pair-6").await;
    assert_eq!(host(&cluster, "pair-6").await, "n-2");
}

#[tokio::test(start_paused = true)]
async fn only_the_place_of_the_lost_pod_is_given_up_on_a_node_where_another_pod_lives() {
    let cluster = cluster(&["n-0", "n-1"]).await;
    let _controller = cluster.controller();
    let mut halves = pair("pair");
    let template = &mut halves["spec"]["resources"]["GenericItems"][0]["generictemplate"]["spec"]["template"];
    template["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("2");
    cluster.submit(halves).await;
    let job = cluster.wait(&jobs(), "default", "pair", |_| true).await;
    for name in ["pair-1", "pair-2"] {
        create_pod(&cluster, &job, name).await;
        assert_eq!(host(&cluster, name).await, "n-0");
        run(&cluster, name, "n-0").await;
    }
    cordon(&cluster, "n-0").await;
    pin_to_second_node(&cluster, &job).await;
    run(&cluster, "pair-3", "n-1").await;
    patch_node(&cluster, "n-0", &json!({"spec": {"unschedulable": null}})).await;
    // Half of each node is free again, and the pod that stayed has its place where it is.
    for name in ["first", "second"] {
        let mut half = single(name);
        let template =
            &mut half["spec"]["resources"]["GenericItems"][0]["generictemplate"]["spec"]["template"];
        template["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("2");
        cluster.submit(half).await;
        cluster.wait_state(Group::Mcad, name, "Running", "Dispatched").await;
    }
    evict(&cluster, "pair-1").await;
    create_pod(&cluster, &job, "pair-4").await;
    assert_eq!(host(&cluster, "pair-4").await, "n-0");
}
