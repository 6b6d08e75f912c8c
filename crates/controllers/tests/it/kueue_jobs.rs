//! Jobs of Kueue's API: each has a Workload, runs while it is admitted, and is stopped when it is evicted.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::time::Duration;

use crate::common;
use crate::common::jobs::*;
use crate::common::kueue::*;
use crate::common::{Cluster, Running};
use controllers::{Config, JobsConfig, Kueue};
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

fn controller(cluster: &Cluster, jobs: JobsConfig) -> Running {
    cluster.start(cluster.client.clone(), Config { kueue: Kueue::Scheduler, jobs, ..Config::default() })
}

#[tokio::test(start_paused = true)]
async fn a_job_runs_when_it_is_admitted_and_ends_its_workload() {
    let cluster = cluster_with_queue(2, json!({})).await;
    let _controller = controller(&cluster, all_kinds());
    submit_job(&cluster, job("train", 2)).await;
    let job = running(&cluster, "train").await;
    let template = &job.data["spec"]["template"];
    assert_eq!(template["spec"]["nodeSelector"], json!({"pool": "gpu"}));
    assert_eq!(template["spec"]["tolerations"][0]["key"], "gpu");
    assert_eq!(template["metadata"]["labels"]["kueue.x-k8s.io/podset"], "main");
    assert_eq!(template["metadata"]["labels"]["kueue.x-k8s.io/local-queue-name"], "team");
    let workload =
        workload_of(&cluster, "train", |workload| is(workload, "Admitted", "True", "Admitted")).await;
    assert_eq!(
        workload.metadata.labels.as_ref().unwrap()["kueue.x-k8s.io/job-uid"],
        job.metadata.uid.unwrap()
    );
    status(&cluster, "train", json!({"active": 2, "startTime": "2026-01-01T00:00:00Z"})).await;
    submit_job(&cluster, common::jobs::job("next", 1)).await;
    let message =
        workload_of(&cluster, "next", |workload| is(workload, "QuotaReserved", "False", "Pending")).await;
    assert!(
        condition(&message, "QuotaReserved").unwrap()["message"]
            .as_str()
            .unwrap()
            .contains("insufficient unused quota")
    );
    let complete =
        json!({"type": "Complete", "status": "True", "message": "all done", "reason": "CompletionsReached"});
    status(&cluster, "train", json!({"active": 0, "succeeded": 2, "conditions": [complete]})).await;
    let workload =
        workload_of(&cluster, "train", |workload| is(workload, "Finished", "True", "Succeeded")).await;
    assert_eq!(condition(&workload, "Finished").unwrap()["message"], "all done");
    running(&cluster, "next").await;
    let events = cluster.events().await;
    for told in [
        "train CreatedWorkload: Created Workload: default/job-train-",
        "train Started: Admitted by clusterQueue team",
    ] {
        assert!(events.iter().any(|event| event.starts_with(told)), "{told}: {events:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_preempted_job_is_restored_and_runs_again() {
    let more = json!({"preemption": {"withinClusterQueue": "LowerPriority"}});
    let cluster = cluster_with_queue(2, more).await;
    priority_class(&cluster, "high", 100).await;
    let _controller = controller(&cluster, all_kinds());
    submit_job(&cluster, job("low", 2)).await;
    running(&cluster, "low").await;
    status(&cluster, "low", json!({"active": 2, "startTime": "2026-01-01T00:00:00Z"})).await;
    let mut high = job("high", 2);
    high["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = "high".into();
    submit_job(&cluster, high).await;
    let low = stopped(&cluster, "low").await;
    assert_eq!(low.data["spec"]["template"]["spec"]["nodeSelector"], Value::Null);
    assert_eq!(low.data["spec"]["template"]["spec"]["tolerations"], Value::Null);
    assert!(low.data["status"]["startTime"].is_null());
    workload_of(&cluster, "low", |workload| is(workload, "QuotaReserved", "True", "QuotaReserved")).await;
    status(&cluster, "low", json!({"active": 0})).await;
    running(&cluster, "high").await;
    workload_of(&cluster, "low", |workload| is(workload, "Requeued", "True", "Preempted")).await;
    let complete = json!({"type": "Failed", "status": "True", "message": "broken"});
    status(&cluster, "high", json!({"conditions": [complete]})).await;
    workload_of(&cluster, "high", |workload| is(workload, "Finished", "True", "Failed")).await;
    running(&cluster, "low").await;
}

#[tokio::test(start_paused = true)]
async fn an_admitted_job_that_something_else_suspends_again_and_again_is_started_less_and_less_often() {
    let cluster = cluster_with_queue(1, json!({})).await;
    let _controller = controller(&cluster, all_kinds());
    submit_job(&cluster, job("fought", 1)).await;
    let mut starts = 0;
    for _ in 0..12_000 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let job = cluster.api(&jobs(), "default").get("fought").await.unwrap();
        if job.data["spec"]["suspend"] == false {
            starts += 1;
            merge(&cluster, &jobs(), "fought", json!({"spec": {"suspend": true}})).await;
        }
    }
    assert!((8..=12).contains(&starts), "{starts} starts in 20 minutes");
    running(&cluster, "fought").await;
}

#[tokio::test(start_paused = true)]
async fn a_job_that_runs_without_admission_is_stopped_and_queued() {
    let cluster = cluster_with_queue(1, json!({"stopPolicy": "Hold"})).await;
    let _controller = controller(&cluster, all_kinds());
    let mut eager = job("eager", 1);
    eager["spec"]["suspend"] = false.into();
    submit_job(&cluster, eager).await;
    stopped(&cluster, "eager").await;
    workload_of(&cluster, "eager", |workload| is(workload, "QuotaReserved", "False", "Inadmissible")).await;
    let unnamed = json!({"metadata": {"name": "free", "labels": {}}, "spec": {"suspend": false}});
    let mut free = job("free", 1);
    free["metadata"] = unnamed["metadata"].clone();
    free["spec"]["suspend"] = false.into();
    submit_job(&cluster, free).await;
    cluster.settled().await;
    assert_eq!(running(&cluster, "free").await.data["spec"]["suspend"], false);
    assert_eq!(cluster.names(&workloads(), "default").await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_changes_before_its_admission_keeps_its_workload_and_one_that_is_deleted_ends_it() {
    let cluster = cluster_with_queue(4, json!({})).await;
    let _controller = controller(&cluster, all_kinds());
    submit_job(&cluster, job("first", 4)).await;
    running(&cluster, "first").await;
    submit_job(&cluster, job("second", 8)).await;
    let before =
        workload_of(&cluster, "second", |workload| is(workload, "QuotaReserved", "False", "Pending")).await;
    merge(&cluster, &jobs(), "second", json!({"spec": {"parallelism": 2}})).await;
    let smaller = |workload: &DynamicObject| workload.data["spec"]["podSets"][0]["count"] == 2;
    let after = workload_of(&cluster, "second", smaller).await;
    assert_eq!(before.metadata.uid, after.metadata.uid);
    cluster.delete_now(&jobs(), "default", "first").await;
    running(&cluster, "second").await;
    let gone = before.metadata.name.unwrap();
    let list = cluster.api(&workloads(), "default").list(&ListParams::default()).await.unwrap();
    for workload in list.items.iter().filter(|workload| workload.metadata.name.as_deref() != Some(&*gone)) {
        assert!(is(workload, "Finished", "True", "OwnerNotFound"), "{workload:?}");
    }
}

/// A Job of five pods that runs with three, in a queue with room for no more.
async fn running_in_part() -> (Cluster, Running) {
    let cluster = cluster_with_queue(3, json!({})).await;
    let controller = controller(&cluster, all_kinds());
    let mut part = job("part", 5);
    part["metadata"]["annotations"] = json!({"kueue.x-k8s.io/job-min-parallelism": "2"});
    submit_job(&cluster, part).await;
    assert_eq!(running(&cluster, "part").await.data["spec"]["parallelism"], 3);
    (cluster, controller)
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_admitted_in_part_runs_on_when_its_flavor_is_gone() {
    let (cluster, _controller) = running_in_part().await;
    let flavors = kind("ResourceFlavor", "resourceflavors");
    let protected = |flavor: &DynamicObject| flavor.metadata.finalizers.is_some();
    cluster.wait(&flavors, "", "gpu", protected).await;
    cluster.delete_now(&flavors, "", "gpu").await;
    let bare = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    cluster.api(&flavors, "").patch("gpu", &PatchParams::default(), &bare).await.unwrap();
    cluster.wait_gone(&flavors, "", "gpu").await;
    for at in 0..3 {
        let change = json!({"metadata": {"annotations": {"example.com/change": at.to_string()}}});
        merge(&cluster, &jobs(), "part", change).await;
        tokio::time::sleep(Duration::from_mins(1)).await;
    }
    let part = cluster.api(&jobs(), "default").get("part").await.unwrap();
    assert_eq!(
        (&part.data["spec"]["suspend"], &part.data["spec"]["parallelism"]),
        (&false.into(), &3.into())
    );
    let told = cluster.events().await;
    assert!(!told.iter().any(|event| event.starts_with("part Stopped")), "{told:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_admitted_in_part_gives_back_the_quota_of_pods_that_have_succeeded() {
    let (cluster, _controller) = running_in_part().await;
    submit_job(&cluster, job("second", 1)).await;
    submit_job(&cluster, job("third", 1)).await;
    for (succeeded, next) in [(3, "second"), (4, "third")] {
        let waits = |workload: &DynamicObject| is(workload, "QuotaReserved", "False", "Pending");
        workload_of(&cluster, next, waits).await;
        status(&cluster, "part", json!({"active": 5 - succeeded, "succeeded": succeeded})).await;
        running(&cluster, next).await;
        let given_back = |workload: &DynamicObject| {
            workload.data["status"]["reclaimablePods"] == json!([{"name": "main", "count": succeeded}])
        };
        workload_of(&cluster, "part", given_back).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_starts_again_with_the_pods_that_it_needs_still_charges_no_other() {
    let (cluster, _controller) = running_in_part().await;
    status(&cluster, "part", json!({"active": 2, "succeeded": 3})).await;
    let given_back = |workload: &DynamicObject| workload.data["status"]["reclaimablePods"][0]["count"] == 3;
    let workload = workload_of(&cluster, "part", given_back).await;
    let name = workload.metadata.name.unwrap();
    merge(&cluster, &workloads(), &name, json!({"spec": {"active": false}})).await;
    cluster.wait(&jobs(), "default", "part", |job| job.data["spec"]["suspend"] == true).await;
    status(&cluster, "part", json!({"active": 0})).await;
    workload_of(&cluster, "part", |workload| workload.data["status"]["admission"].is_null()).await;
    merge(&cluster, &workloads(), &name, json!({"spec": {"active": true}})).await;
    assert_eq!(running(&cluster, "part").await.data["spec"]["parallelism"], 2);
    status(&cluster, "part", json!({"active": 2})).await;
    submit_job(&cluster, job("second", 1)).await;
    running(&cluster, "second").await;
    let found = workload_of(&cluster, "part", |_| true).await;
    assert!(given_back(&found), "{:?}", found.data["status"]);
    status(&cluster, "part", json!({"active": 1, "succeeded": 4})).await;
    submit_job(&cluster, job("third", 1)).await;
    running(&cluster, "third").await;
}

#[tokio::test(start_paused = true)]
async fn a_job_without_a_queue_is_suspended_and_gets_its_queue_later() {
    let cluster = cluster_with_queue(1, json!({})).await;
    let _controller = controller(&cluster, JobsConfig { manages_unnamed: true, ..all_kinds() });
    let mut unnamed = job("unnamed", 1);
    unnamed["metadata"]["labels"] = json!({});
    unnamed["spec"]["suspend"] = false.into();
    submit_job(&cluster, unnamed).await;
    stopped(&cluster, "unnamed").await;
    let workload = workload_of(&cluster, "unnamed", |_| true).await;
    assert_eq!(workload.data["spec"]["queueName"], Value::Null);
    let labels = json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "team"}}});
    merge(&cluster, &jobs(), "unnamed", labels).await;
    running(&cluster, "unnamed").await;
}

#[tokio::test(start_paused = true)]
async fn a_job_that_ran_too_long_runs_as_long_again_when_its_workload_is_set_active() {
    let cluster = cluster_with_queue(1, json!({})).await;
    let _controller = controller(&cluster, all_kinds());
    let mut long = job("long", 1);
    long["metadata"]["labels"]["kueue.x-k8s.io/max-exec-time-seconds"] = "60".into();
    submit_job(&cluster, long).await;
    running(&cluster, "long").await;
    stopped(&cluster, "long").await;
    let reason = "DeactivatedDueToMaximumExecutionTimeExceeded";
    let workload = workload_of(&cluster, "long", |workload| is(workload, "Requeued", "False", reason)).await;
    let active = json!({"spec": {"active": true}});
    merge(&cluster, &workloads(), &workload.metadata.name.unwrap(), active).await;
    running(&cluster, "long").await;
    tokio::time::sleep(std::time::Duration::from_secs(50)).await;
    running(&cluster, "long").await;
    workload_of(&cluster, "long", |workload| is(workload, "Requeued", "True", "Reactivated")).await;
}
