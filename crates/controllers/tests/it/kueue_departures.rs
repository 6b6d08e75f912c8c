//! Jobs of Kueue's API that are deleted, or leave their queue, while their pods run: the pods keep the quota, and nothing else does. The
//! tests play the controllers of the jobs, the garbage collector and the kubelet.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::time::Duration;

use crate::common::jobs::*;
use crate::common::kueue::*;
use crate::common::queued_pods::{pods, status_of};
use crate::common::{Cluster, Running};
use controllers::{Config, Kueue};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

fn controller(cluster: &Cluster) -> Running {
    let config = Config { kueue: Kueue::Scheduler, jobs: all_kinds(), ..Config::default() };
    cluster.start(cluster.client.clone(), config)
}

/// A running pod of a Workload. Its job has made it.
async fn started_pod(cluster: &Cluster, name: &str, workload: &DynamicObject) {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}});
    let metadata = json!({"name": name, "labels": {"kueue.x-k8s.io/podset": "main"},
        "annotations": {"kueue.x-k8s.io/workload": workload.metadata.name}});
    let spec = json!({"nodeName": "n", "containers": [container]});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec});
    cluster.create_as(&pods(), "default", pod).await;
    status_of(cluster, name, json!({"phase": "Running"})).await;
}

/// A job of one CPU with the whole quota, and one that waits for it.
async fn running_and_waiting() -> (Cluster, Running, DynamicObject) {
    let cluster = cluster_with_queue(1, json!({})).await;
    let controller = controller(&cluster);
    submit_job(&cluster, job("first", 1)).await;
    running(&cluster, "first").await;
    let workload =
        workload_of(&cluster, "first", |workload| is(workload, "Admitted", "True", "Admitted")).await;
    started_pod(&cluster, "first-0", &workload).await;
    submit_job(&cluster, job("second", 1)).await;
    workload_of(&cluster, "second", |workload| is(workload, "QuotaReserved", "False", "Pending")).await;
    (cluster, controller, workload)
}

async fn is_waiting(cluster: &Cluster, name: &str) {
    cluster.settled().await;
    let job = cluster.api(&jobs(), "default").get(name).await.unwrap();
    assert_eq!(job.data["spec"]["suspend"], true, "{name} runs");
}

async fn remove_label(cluster: &Cluster, name: &str, spec: Value) {
    let labels = json!({"labels": {"kueue.x-k8s.io/queue-name": null}});
    merge(cluster, &jobs(), name, json!({"metadata": labels, "spec": spec})).await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_job_with_a_finalizer_keeps_its_quota_until_its_pods_have_ended() {
    let (cluster, _controller, workload) = running_and_waiting().await;
    merge(&cluster, &jobs(), "first", json!({"metadata": {"finalizers": ["example.com/archive"]}})).await;
    cluster.api(&jobs(), "default").delete("first", &DeleteParams::background()).await.unwrap();
    is_waiting(&cluster, "second").await;
    status_of(&cluster, "first-0", json!({"phase": "Succeeded"})).await;
    running(&cluster, "second").await;
    let name = workload.metadata.name.unwrap();
    let is_ended = |workload: &DynamicObject| is(workload, "Finished", "True", "OwnerNotFound");
    cluster.wait(&workloads(), "default", &name, is_ended).await;
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_deleted_without_its_pods_keeps_its_quota_until_they_have_ended() {
    let (cluster, controller, workload) = running_and_waiting().await;
    let orphan = DeleteParams {
        propagation_policy: Some(kube::api::PropagationPolicy::Orphan),
        ..DeleteParams::default()
    };
    cluster.api(&jobs(), "default").delete("first", &orphan).await.unwrap();
    cluster.wait_gone(&jobs(), "default", "first").await;
    is_waiting(&cluster, "second").await;
    // What is known of them is in the API server.
    drop(controller);
    let _controller = self::controller(&cluster);
    is_waiting(&cluster, "second").await;
    status_of(&cluster, "first-0", json!({"phase": "Succeeded"})).await;
    running(&cluster, "second").await;
    cluster.wait_gone(&workloads(), "default", &workload.metadata.name.unwrap()).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_of_a_job_that_is_gone_gives_its_quota_back_when_it_ends() {
    let cluster = cluster_with_queue(2, json!({})).await;
    let _controller = controller(&cluster);
    submit_job(&cluster, job("first", 2)).await;
    running(&cluster, "first").await;
    let workload =
        workload_of(&cluster, "first", |workload| is(workload, "Admitted", "True", "Admitted")).await;
    started_pod(&cluster, "first-0", &workload).await;
    started_pod(&cluster, "first-1", &workload).await;
    submit_job(&cluster, job("second", 1)).await;
    let orphan = DeleteParams {
        propagation_policy: Some(kube::api::PropagationPolicy::Orphan),
        ..DeleteParams::default()
    };
    cluster.api(&jobs(), "default").delete("first", &orphan).await.unwrap();
    is_waiting(&cluster, "second").await;
    // Nothing replaces it.
    status_of(&cluster, "first-0", json!({"phase": "Failed"})).await;
    running(&cluster, "second").await;
    submit_job(&cluster, job("third", 1)).await;
    workload_of(&cluster, "third", |workload| is(workload, "QuotaReserved", "False", "Pending")).await;
}

#[tokio::test(start_paused = true)]
async fn the_pods_of_a_deleted_job_are_stopped_for_a_gang_that_preempts_them() {
    let preemption = json!({"preemption": {"withinClusterQueue": "LowerPriority"}});
    let cluster = cluster_with_queue(1, preemption).await;
    priority_class(&cluster, "high", 100).await;
    let _controller = controller(&cluster);
    submit_job(&cluster, job("low", 1)).await;
    running(&cluster, "low").await;
    let workload =
        workload_of(&cluster, "low", |workload| is(workload, "Admitted", "True", "Admitted")).await;
    started_pod(&cluster, "low-0", &workload).await;
    merge(&cluster, &jobs(), "low", json!({"metadata": {"finalizers": ["example.com/archive"]}})).await;
    cluster.api(&jobs(), "default").delete("low", &DeleteParams::background()).await.unwrap();
    let mut high = job("high", 1);
    high["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = "high".into();
    submit_job(&cluster, high).await;
    cluster.wait(&pods(), "default", "low-0", |pod| pod.metadata.deletion_timestamp.is_some()).await;
    is_waiting(&cluster, "high").await;
    cluster.delete_now(&pods(), "default", "low-0").await;
    running(&cluster, "high").await;
}

#[tokio::test(start_paused = true)]
async fn the_pods_of_a_deleted_job_are_stopped_also_if_they_look_like_jobs() {
    let (cluster, _controller, workload) = running_and_waiting().await;
    let owner = running(&cluster, "first").await;
    // Its author has copied the label of pods that wait for themselves.
    let metadata = json!({"labels": {"kueue.x-k8s.io/managed": "true"}, "ownerReferences": [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "first", "uid": owner.metadata.uid, "controller": true}]});
    merge(&cluster, &pods(), "first-0", json!({ "metadata": metadata })).await;
    merge(&cluster, &jobs(), "first", json!({"metadata": {"finalizers": ["example.com/archive"]}})).await;
    cluster.api(&jobs(), "default").delete("first", &DeleteParams::background()).await.unwrap();
    merge(&cluster, &workloads(), &workload.name_any(), json!({"spec": {"active": false}})).await;
    cluster.wait(&pods(), "default", "first-0", |pod| pod.metadata.deletion_timestamp.is_some()).await;
    is_waiting(&cluster, "second").await;
    cluster.delete_now(&pods(), "default", "first-0").await;
    running(&cluster, "second").await;
}

/// One of the jobs of a set that has lost its owner. It has no pods at the moment.
async fn submit_left(cluster: &Cluster, name: &str, workload: &DynamicObject) {
    let mut left = job(name, 1);
    left["metadata"]["labels"] = json!({});
    left["spec"]["suspend"] = false.into();
    left["spec"]["template"]["metadata"] = json!({"labels": {"kueue.x-k8s.io/podset": "main"},
        "annotations": {"kueue.x-k8s.io/workload": workload.metadata.name}});
    submit_job(cluster, left).await;
}

#[tokio::test(start_paused = true)]
async fn a_job_that_has_lost_its_owner_is_suspended_when_the_owner_is_stopped() {
    for is_deleted in [false, true] {
        let (cluster, _controller, workload) = running_and_waiting().await;
        cluster.delete_now(&pods(), "default", "first-0").await;
        submit_left(&cluster, "left", &workload).await;
        let name = workload.metadata.name.unwrap();
        if is_deleted {
            cluster.delete(&workloads(), "default", &name).await;
        } else {
            merge(&cluster, &workloads(), &name, json!({"spec": {"active": false}})).await;
        }
        stopped(&cluster, "left").await;
        running(&cluster, "second").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_goes_on_without_its_owner_keeps_the_quota_until_a_preemption_suspends_it() {
    let preemption = json!({"preemption": {"withinClusterQueue": "LowerPriority"}});
    let cluster = cluster_with_queue(1, preemption).await;
    priority_class(&cluster, "high", 100).await;
    let _controller = controller(&cluster);
    submit_job(&cluster, job("set", 1)).await;
    running(&cluster, "set").await;
    let workload =
        workload_of(&cluster, "set", |workload| is(workload, "Admitted", "True", "Admitted")).await;
    submit_left(&cluster, "left", &workload).await;
    let orphan = DeleteParams {
        propagation_policy: Some(kube::api::PropagationPolicy::Orphan),
        ..DeleteParams::default()
    };
    cluster.api(&jobs(), "default").delete("set", &orphan).await.unwrap();
    submit_job(&cluster, job("second", 1)).await;
    is_waiting(&cluster, "second").await;
    let mut high = job("high", 1);
    high["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = "high".into();
    submit_job(&cluster, high).await;
    stopped(&cluster, "left").await;
    running(&cluster, "high").await;
}

#[tokio::test(start_paused = true)]
async fn a_waiting_job_that_leaves_its_queue_waits_no_more() {
    let (cluster, _controller, _) = running_and_waiting().await;
    let waiting = workload_of(&cluster, "second", |_| true).await;
    remove_label(&cluster, "second", json!({})).await;
    cluster.wait_gone(&workloads(), "default", &waiting.metadata.name.unwrap()).await;
}

#[tokio::test(start_paused = true)]
async fn a_running_job_stays_in_its_queue_until_it_has_stopped() {
    let (cluster, _controller, _) = running_and_waiting().await;
    remove_label(&cluster, "first", json!({})).await;
    let is_labelled = |job: &DynamicObject| {
        job.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key("kueue.x-k8s.io/queue-name"))
    };
    cluster.wait(&jobs(), "default", "first", is_labelled).await;
    is_waiting(&cluster, "second").await;
    let complete = json!({"type": "Complete", "status": "True", "message": "done"});
    status_of(&cluster, "first-0", json!({"phase": "Succeeded"})).await;
    status(&cluster, "first", json!({"conditions": [complete]})).await;
    running(&cluster, "second").await;
    workload_of(&cluster, "first", |workload| is(workload, "Finished", "True", "Succeeded")).await;
}

#[tokio::test(start_paused = true)]
async fn a_running_job_of_another_kind_that_loses_its_label_keeps_its_quota() {
    let cluster = cluster_with_queue(1, json!({})).await;
    let _controller = controller(&cluster);
    let clusters = Jobs::of(&cluster, "ray.io/raycluster");
    let own = clusters.submit("first", ray_cluster(0)).await;
    let is_running = |job: &DynamicObject| job.data["spec"]["suspend"] == false;
    cluster.wait(&clusters.resource(), "default", "first", is_running).await;
    submit_job(&cluster, job("second", 1)).await;
    let unnamed = json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": null}}});
    merge(&cluster, &clusters.resource(), "first", unnamed).await;
    is_waiting(&cluster, "second").await;
    // Stopped by its author, it is not started again, and its quota is free.
    merge(&cluster, &clusters.resource(), "first", json!({"spec": {"suspend": true}})).await;
    running(&cluster, "second").await;
    drop(own);
}

#[tokio::test(start_paused = true)]
async fn a_deactivated_workload_keeps_its_quota_until_its_pods_have_ended() {
    let (cluster, _controller, workload) = running_and_waiting().await;
    let name = workload.metadata.name.unwrap();
    let inactive = Patch::Merge(json!({"spec": {"active": false}}));
    cluster.api(&workloads(), "default").patch(&name, &PatchParams::default(), &inactive).await.unwrap();
    stopped(&cluster, "first").await;
    is_waiting(&cluster, "second").await;
    cluster.delete_now(&pods(), "default", "first-0").await;
    running(&cluster, "second").await;
}

#[tokio::test(start_paused = true)]
async fn a_workload_that_somebody_takes_from_its_job_keeps_its_quota_until_the_pods_have_ended() {
    let (cluster, _controller, workload) = running_and_waiting().await;
    let name = workload.metadata.name.clone().unwrap();
    merge(&cluster, &workloads(), &name, json!({"metadata": {"ownerReferences": null}})).await;
    stopped(&cluster, "first").await;
    is_waiting(&cluster, "second").await;
    status_of(&cluster, "first-0", json!({"phase": "Failed"})).await;
    running(&cluster, "second").await;
    let is_new = |other: &DynamicObject| other.metadata.uid != workload.metadata.uid;
    cluster.wait(&workloads(), "default", &name, is_new).await;
}

/// A `RayJob` with a running worker, in a queue of so many CPUs, and its Workload.
async fn running_ray_job(cpus: u32) -> (Cluster, Running, DynamicObject) {
    let cluster = cluster_with_queue(cpus, json!({})).await;
    let ray_jobs = Jobs::of(&cluster, "ray.io/rayjob");
    ray_jobs.install().await;
    let controller = controller(&cluster);
    ray_jobs.submit("first", ray_job(1)).await;
    ray_jobs.running("first").await;
    let is_admitted = |workload: &DynamicObject| is(workload, "Admitted", "True", "Admitted");
    let workload = ray_jobs.workload("first", is_admitted).await;
    started_pod(&cluster, "first-worker", &workload).await;
    (cluster, controller, workload)
}

#[tokio::test(start_paused = true)]
async fn what_a_job_that_is_gone_has_given_back_is_not_taken_back_when_another_pod_ends() {
    let (cluster, controller, workload) = running_ray_job(2).await;
    let name = workload.name_any();
    drop(controller);
    for (pod, set) in [("first-head", "head"), ("first-worker", "small")] {
        cluster.delete_now(&pods(), "default", pod).await;
        started_pod(&cluster, pod, &workload).await;
        merge(&cluster, &pods(), pod, json!({"metadata": {"labels": {"kueue.x-k8s.io/podset": set}}})).await;
    }
    // The pod has ended for the controller of the job, and is still listed as one that runs.
    let known = json!({"apiVersion": VERSION, "kind": "Workload", "metadata": {"name": name},
        "status": {"reclaimablePods": [{"name": "head", "count": 1}]}});
    let params = PatchParams::apply("kueue-reclaimable-pods");
    cluster.api(&workloads(), "default").patch_status(&name, &params, &Patch::Apply(known)).await.unwrap();
    let orphan = DeleteParams {
        propagation_policy: Some(kube::api::PropagationPolicy::Orphan),
        ..DeleteParams::default()
    };
    cluster
        .api(&Jobs::of(&cluster, "ray.io/rayjob").resource(), "default")
        .delete("first", &orphan)
        .await
        .unwrap();
    let _controller = self::controller(&cluster);
    status_of(&cluster, "first-worker", json!({"phase": "Succeeded"})).await;
    let both = json!([{"name": "head", "count": 1}, {"name": "small", "count": 1}]);
    cluster
        .wait(&workloads(), "default", &name, |found| found.data["status"]["reclaimablePods"] == both)
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_over_keeps_its_quota_until_its_pods_have_ended() {
    let (cluster, _controller, workload) = running_ray_job(4).await;
    let ray_jobs = Jobs::of(&cluster, "ray.io/rayjob");
    submit_job(&cluster, job("second", 4)).await;
    // Its cluster stays for a while (`ttlSecondsAfterFinished`).
    ray_jobs.status("first", &json!({"jobStatus": "SUCCEEDED", "jobDeploymentStatus": "Complete"})).await;
    is_waiting(&cluster, "second").await;
    let name = workload.metadata.name.unwrap();
    let found = cluster.api(&workloads(), "default").get(&name).await.unwrap();
    assert!(!is(&found, "Finished", "True", "Succeeded"));
    cluster.delete_now(&pods(), "default", "first-worker").await;
    cluster.wait(&workloads(), "default", &name, |found| is(found, "Finished", "True", "Succeeded")).await;
    running(&cluster, "second").await;
}

/// A pod of a Workload that does not run yet.
async fn pending_pod(cluster: &Cluster, name: &str, workload: &DynamicObject, more: Value) {
    let metadata = json!({"name": name, "labels": {"kueue.x-k8s.io/podset": "main"},
        "annotations": {"kueue.x-k8s.io/workload": workload.metadata.name}});
    let mut spec = json!({"containers": [{"name": "c", "image": "i"}]});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec});
    cluster.create_as(&pods(), "default", pod).await;
}

/// A time in which everything that is going to happen happens.
async fn rests() {
    tokio::time::sleep(Duration::from_mins(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_may_start_keeps_the_quota_of_its_job_and_one_that_is_held_back_does_not() {
    let held = json!({"schedulingGates": [{"name": "kueue.x-k8s.io/topology"}]});
    for (more, keeps) in [(json!({"nodeName": "n"}), true), (held, false)] {
        let preemption = json!({"preemption": {"withinClusterQueue": "LowerPriority"}});
        let cluster = cluster_with_queue(1, preemption).await;
        priority_class(&cluster, "high", 100).await;
        let _controller = controller(&cluster);
        submit_job(&cluster, job("low", 1)).await;
        running(&cluster, "low").await;
        let is_admitted = |workload: &DynamicObject| is(workload, "Admitted", "True", "Admitted");
        let workload = workload_of(&cluster, "low", is_admitted).await;
        pending_pod(&cluster, "low-0", &workload, more).await;
        let mut high = job("high", 1);
        high["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = "high".into();
        submit_job(&cluster, high).await;
        stopped(&cluster, "low").await;
        rests().await;
        let high = cluster.api(&jobs(), "default").get("high").await.unwrap();
        assert_eq!(high.data["spec"]["suspend"], keeps);
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_changes_while_it_runs_keeps_its_quota_until_its_pods_have_ended() {
    let cluster = cluster_with_queue(1, json!({})).await;
    let _controller = controller(&cluster);
    let clusters = Jobs::of(&cluster, "ray.io/raycluster");
    clusters.submit("first", ray_cluster(0)).await;
    clusters.running("first").await;
    let is_admitted = |workload: &DynamicObject| is(workload, "Admitted", "True", "Admitted");
    let workload = clusters.workload("first", is_admitted).await;
    started_pod(&cluster, "first-0", &workload).await;
    submit_job(&cluster, job("second", 1)).await;
    clusters.merge("first", json!({"spec": ray_cluster(2)})).await;
    clusters.stopped("first").await;
    rests().await;
    is_waiting(&cluster, "second").await;
    cluster.delete_now(&pods(), "default", "first-0").await;
    running(&cluster, "second").await;
}

#[tokio::test(start_paused = true)]
async fn a_job_that_its_operator_refuses_keeps_its_quota_until_its_pods_have_ended() {
    let (cluster, _controller, _) = running_ray_job(2).await;
    let ray_jobs = Jobs::of(&cluster, "ray.io/rayjob");
    submit_job(&cluster, job("second", 1)).await;
    ray_jobs.status("first", &json!({"jobDeploymentStatus": "ValidationFailed"})).await;
    rests().await;
    is_waiting(&cluster, "second").await;
    cluster.delete_now(&pods(), "default", "first-worker").await;
    running(&cluster, "second").await;
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_pods_run_gets_its_queue_back_also_if_its_templates_do_not_name_its_workload() {
    let (cluster, controller, workload) = running_and_waiting().await;
    drop(controller);
    let templates = json!({"metadata": {"annotations": {"kueue.x-k8s.io/workload": null}}});
    merge(&cluster, &jobs(), "first", json!({"spec": {"suspend": true}})).await;
    remove_label(&cluster, "first", json!({"template": templates})).await;
    let _controller = self::controller(&cluster);
    let is_labelled = |job: &DynamicObject| job.labels().contains_key("kueue.x-k8s.io/queue-name");
    cluster.wait(&jobs(), "default", "first", is_labelled).await;
    is_waiting(&cluster, "second").await;
    let found = workload_of(&cluster, "first", |_| true).await;
    assert_eq!(found.metadata.uid, workload.metadata.uid);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_has_lost_its_owner_gives_the_quota_back_when_it_is_suspended_or_gone() {
    for is_deleted in [false, true] {
        let (cluster, _controller, workload) = running_and_waiting().await;
        cluster.delete_now(&pods(), "default", "first-0").await;
        submit_left(&cluster, "left", &workload).await;
        let orphan = DeleteParams {
            propagation_policy: Some(kube::api::PropagationPolicy::Orphan),
            ..DeleteParams::default()
        };
        cluster.api(&jobs(), "default").delete("first", &orphan).await.unwrap();
        rests().await;
        is_waiting(&cluster, "second").await;
        if is_deleted {
            cluster.delete_now(&jobs(), "default", "left").await;
        } else {
            merge(&cluster, &jobs(), "left", json!({"spec": {"suspend": true}})).await;
        }
        running(&cluster, "second").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_running_job_of_another_kind_that_has_lost_its_label_is_preempted_like_any_other() {
    let preemption = json!({"preemption": {"withinClusterQueue": "LowerPriority"}});
    let cluster = cluster_with_queue(1, preemption).await;
    priority_class(&cluster, "high", 100).await;
    let _controller = controller(&cluster);
    let clusters = Jobs::of(&cluster, "ray.io/raycluster");
    clusters.submit("low", ray_cluster(0)).await;
    clusters.running("low").await;
    clusters.merge("low", json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": null}}})).await;
    rests().await;
    let mut high = job("high", 1);
    high["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = "high".into();
    submit_job(&cluster, high).await;
    clusters.stopped("low").await;
    running(&cluster, "high").await;
}

/// References to a RayCluster as the controller of an object.
fn owned_by(cluster: &DynamicObject) -> Value {
    json!([{"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": cluster.name_any(), "uid": cluster.metadata.uid,
        "controller": true}])
}

#[tokio::test(start_paused = true)]
async fn a_job_with_a_queue_follows_its_owner_that_has_lost_its_label() {
    let cluster = cluster_with_queue(2, json!({})).await;
    let _controller = controller(&cluster);
    let clusters = Jobs::of(&cluster, "ray.io/raycluster");
    let owner = clusters.submit("owner", ray_cluster(0)).await;
    clusters.running("owner").await;
    clusters.merge("owner", json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": null}}})).await;
    rests().await;
    let mut owned = job("owned", 1);
    owned["spec"]["suspend"] = false.into();
    owned["metadata"]["ownerReferences"] = owned_by(&owner);
    submit_job(&cluster, owned).await;
    rests().await;
    running(&cluster, "owned").await;
    assert_eq!(cluster.names(&workloads(), "default").await.len(), 1, "that of the owner");
}

#[tokio::test(start_paused = true)]
async fn a_running_job_that_its_new_owner_stops_gives_its_quota_back_and_follows_the_owner() {
    let (cluster, _controller, workload) = running_and_waiting().await;
    status(&cluster, "first", json!({"startTime": "2026-01-01T00:00:00Z"})).await;
    let owner = Jobs::of(&cluster, "ray.io/raycluster").submit("owner", ray_cluster(0)).await;
    merge(&cluster, &jobs(), "first", json!({"metadata": {"ownerReferences": owned_by(&owner)}})).await;
    rests().await;
    running(&cluster, "first").await;
    merge(&cluster, &jobs(), "first", json!({"spec": {"suspend": true}})).await;
    rests().await;
    is_waiting(&cluster, "first").await;
    is_waiting(&cluster, "second").await;
    status_of(&cluster, "first-0", json!({"phase": "Succeeded"})).await;
    running(&cluster, "second").await;
    cluster.wait_gone(&workloads(), "default", &workload.name_any()).await;
    let first = stopped(&cluster, "first").await;
    assert_eq!(first.data["spec"]["template"]["metadata"]["annotations"], Value::Null);
    assert!(first.data["status"]["startTime"].is_null());
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_workload_somebody_took_is_queued_again_when_it_is_gone() {
    let (cluster, _controller, workload) = running_and_waiting().await;
    merge(&cluster, &workloads(), &workload.name_any(), json!({"metadata": {"ownerReferences": null}})).await;
    stopped(&cluster, "first").await;
    rests().await;
    status_of(&cluster, "first-0", json!({"phase": "Failed"})).await;
    running(&cluster, "second").await;
    let is_new = |other: &DynamicObject| other.metadata.uid != workload.metadata.uid;
    cluster.wait(&workloads(), "default", &workload.name_any(), is_new).await;
}

#[tokio::test(start_paused = true)]
async fn a_workload_that_names_its_job_by_another_version_goes_with_it() {
    let cluster = cluster_with_queue(0, json!({})).await;
    let _controller = controller(&cluster);
    let clusters = Jobs::of(&cluster, "ray.io/raycluster");
    let owner = clusters.submit("serve", ray_cluster(0)).await;
    let waits = |workload: &DynamicObject| is(workload, "QuotaReserved", "False", "Pending");
    let name = clusters.workload("serve", waits).await.name_any();
    let references = json!([{"apiVersion": "ray.io/v1alpha1", "kind": "RayCluster", "name": "serve",
        "uid": owner.metadata.uid, "controller": true}]);
    merge(&cluster, &workloads(), &name, json!({"metadata": {"ownerReferences": references}})).await;
    rests().await;
    cluster.delete_now(&clusters.resource(), "default", "serve").await;
    cluster.wait_gone(&workloads(), "default", &name).await;
}

/// A RayCluster that runs, and the Job that it owns. Its Workload.
async fn cluster_with_own_job(cluster: &Cluster, has_pod: bool) -> DynamicObject {
    let clusters = Jobs::of(cluster, "ray.io/raycluster");
    let owner = clusters.submit("owner", ray_cluster(0)).await;
    clusters.running("owner").await;
    let is_admitted = |workload: &DynamicObject| is(workload, "Admitted", "True", "Admitted");
    let workload = clusters.workload("owner", is_admitted).await;
    let mut owned = job("owned", 1);
    owned["spec"]["suspend"] = false.into();
    owned["metadata"] = json!({"name": "owned", "ownerReferences": owned_by(&owner)});
    submit_job(cluster, owned).await;
    if has_pod {
        started_pod(cluster, "owned-0", &workload).await;
    }
    workload
}

#[tokio::test(start_paused = true)]
async fn the_jobs_of_a_job_are_stopped_with_it_also_if_it_has_lost_its_label() {
    for (has_label, has_pod) in [(true, true), (true, false), (false, true), (false, false)] {
        let cluster = cluster_with_queue(1, json!({})).await;
        let _controller = controller(&cluster);
        let workload = cluster_with_own_job(&cluster, has_pod).await;
        let clusters = Jobs::of(&cluster, "ray.io/raycluster");
        if !has_label {
            clusters
                .merge("owner", json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": null}}}))
                .await;
        }
        rests().await;
        running(&cluster, "owned").await;
        merge(&cluster, &workloads(), &workload.name_any(), json!({"spec": {"active": false}})).await;
        clusters.stopped("owner").await;
        stopped(&cluster, "owned").await;
    }
}
