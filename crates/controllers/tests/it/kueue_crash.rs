//! A controller is killed between any two of its writes about Workloads and queues; the next one continues.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use crate::common::Cluster;
use crate::common::elastic::{count, elastic, is_admitted, is_replaced, resize, slice};
use crate::common::jobs::*;
use crate::common::kueue::*;
use crate::common::mortal::Mortal;
use crate::common::queued_pods::*;
use controllers::{Config, Kueue};
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

/// Plays the story once for each write of the controller: it is killed after this write, and another one continues.
/// Returns the number of writes.
async fn walk(story: impl AsyncFn(&Cluster)) -> usize {
    let config = || Config { kueue: Kueue::Scheduler, jobs: all_kinds(), ..Config::default() };
    for lifetime in 1.. {
        let cluster = kueue_cluster().await;
        let mortal = Mortal::after_writes(&cluster, lifetime);
        let first = cluster.start(mortal.client.clone(), config());
        let mut story = Box::pin(story(&cluster));
        let died = tokio::select! {
            biased;
            () = mortal.death.notified() => true,
            () = &mut story => false,
        };
        drop(first);
        if !died {
            return lifetime - 1;
        }
        let _second = cluster.start(cluster.client.clone(), config());
        story.await;
    }
    unreachable!("the story ends")
}

/// Waits until a Workload has this condition.
async fn reaches(cluster: &Cluster, name: &str, kind: &str, status: &str, reason: &str) -> DynamicObject {
    cluster.wait(&workloads(), "default", name, |object| is(object, kind, status, reason)).await
}

async fn evicted(cluster: &Cluster, name: &str, reason: &str) -> DynamicObject {
    reaches(cluster, name, "Evicted", "True", reason).await
}

async fn set_active(cluster: &Cluster, name: &str, is_active: bool) {
    let patch = Patch::Merge(json!({"spec": {"active": is_active}}));
    cluster.api(&workloads(), "default").patch(name, &PatchParams::default(), &patch).await.unwrap();
}

/// The names of the Workloads that hold quota.
async fn holders(cluster: &Cluster) -> Vec<String> {
    let list = cluster.api(&workloads(), "default").list(&ListParams::default()).await.unwrap();
    let holds = |object: &DynamicObject| {
        condition(object, "QuotaReserved").is_some_and(|reserved| reserved["status"] == "True")
            && condition(object, "Finished").is_none()
    };
    list.items.into_iter().filter(holds).map(|object| object.metadata.name.unwrap()).collect()
}

/// How often a Workload was evicted, by reason.
fn evictions(object: &DynamicObject) -> Vec<(String, i64)> {
    let counted =
        object.data["status"]["schedulingStats"]["evictions"].as_array().cloned().unwrap_or_default();
    let of = |eviction: &Value| {
        let [reason, cause] =
            ["reason", "underlyingCause"].map(|field| eviction[field].as_str().unwrap_or_default());
        (format!("{reason} {cause}").trim().to_owned(), eviction["count"].as_i64().unwrap())
    };
    counted.iter().map(of).collect()
}

#[tokio::test(start_paused = true)]
async fn after_a_crash_at_any_write_a_preemption_happens_once_and_no_quota_is_exceeded() {
    let writes = walk(async |cluster| {
        queue(cluster, "team", 2, json!({"preemption": {"withinClusterQueue": "LowerPriority"}})).await;
        submit(cluster, "low", "team", 0, 2, 1).await;
        admitted(cluster, "low").await;
        submit(cluster, "high", "team", 9, 2, 1).await;
        let low = evicted(cluster, "low", "Preempted").await;
        assert_eq!(holders(cluster).await, ["low"], "the victim holds its quota until its job has stopped");
        give_back(cluster, &low).await;
        admitted(cluster, "high").await;
        assert_eq!(holders(cluster).await, ["high"]);
        reaches(cluster, "low", "QuotaReserved", "False", "Pending").await;
        finish(cluster, "high").await;
        let low = admitted(cluster, "low").await;
        assert_eq!(evictions(&low), [("Preempted".to_owned(), 1)]);
        set_active(cluster, "low", false).await;
        let low = evicted(cluster, "low", "Deactivated").await;
        give_back(cluster, &low).await;
        set_active(cluster, "low", true).await;
        let low = admitted(cluster, "low").await;
        assert_eq!(evictions(&low), [("Preempted".to_owned(), 1), ("Deactivated".to_owned(), 1)]);
        queue_status(cluster, "team", |status| {
            status["reservingWorkloads"] == 1
                && status["admittedWorkloads"] == 1
                && status["pendingWorkloads"] == 0
        })
        .await;
    })
    .await;
    assert!(writes > 15, "only {writes} writes were covered");
}

/// Writes the state of the check `budget` of a Workload, as the controller of the check does.
async fn answer(cluster: &Cluster, name: &str, state: &str, more: Value) {
    let now = (cluster.clock)().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let mut check = json!({"name": "budget", "state": state, "message": "", "lastTransitionTime": now});
    check.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let patch = Patch::Merge(json!({"status": {"admissionChecks": [check]}}));
    cluster.api(&workloads(), "default").patch_status(name, &PatchParams::default(), &patch).await.unwrap();
}

async fn stop_policy(cluster: &Cluster, policy: &str) {
    let patch = Patch::Merge(json!({"spec": {"stopPolicy": policy}}));
    let queues = cluster.api(&kind("LocalQueue", "localqueues"), "default");
    queues.patch("team", &PatchParams::default(), &patch).await.unwrap();
}

/// Waits until a Workload holds quota and its check is to be answered.
async fn asks(cluster: &Cluster, name: &str) {
    let asks = |object: &DynamicObject| {
        is(object, "QuotaReserved", "True", "QuotaReserved")
            && object.data["status"]["admissionChecks"][0]["state"] == "Pending"
    };
    cluster.wait(&workloads(), "default", name, asks).await;
}

#[tokio::test(start_paused = true)]
async fn after_a_crash_at_any_write_checks_and_stopped_queues_evict_once_and_a_workload_returns() {
    let writes = walk(async |cluster| {
        active_check(cluster, "budget").await;
        queue(
            cluster,
            "team",
            2,
            json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "budget"}]}}),
        )
        .await;
        submit(cluster, "w", "team", 0, 2, 1).await;
        asks(cluster, "w").await;
        answer(cluster, "w", "Retry", json!({"requeueAfterSeconds": 5})).await;
        let object = evicted(cluster, "w", "AdmissionCheck").await;
        give_back(cluster, &object).await;
        asks(cluster, "w").await;
        answer(cluster, "w", "Ready", json!({})).await;
        admitted(cluster, "w").await;
        stop_policy(cluster, "HoldAndDrain").await;
        let object = evicted(cluster, "w", "LocalQueueStopped").await;
        give_back(cluster, &object).await;
        stop_policy(cluster, "None").await;
        asks(cluster, "w").await;
        answer(cluster, "w", "Rejected", json!({})).await;
        let object = evicted(cluster, "w", "DeactivatedDueToAdmissionCheck").await;
        assert_eq!(object.data["spec"]["active"], false);
        let expected = [("AdmissionCheck", 1), ("LocalQueueStopped", 1), ("Deactivated AdmissionCheck", 1)];
        assert_eq!(evictions(&object), expected.map(|(reason, count)| (reason.to_owned(), count)));
        give_back(cluster, &object).await;
        queue_status(cluster, "team", |status| status["reservingWorkloads"] == 0).await;
        assert_eq!(holders(cluster).await, Vec::<String>::new());
    })
    .await;
    assert!(writes > 15, "only {writes} writes were covered");
}

#[tokio::test(start_paused = true)]
async fn after_a_crash_at_any_write_a_preempted_job_is_restored_and_runs_again() {
    let writes = walk(async |cluster| {
        gpu_queue(cluster, 2, json!({"preemption": {"withinClusterQueue": "LowerPriority"}})).await;
        priority_class(cluster, "high", 100).await;
        submit_job(cluster, job("low", 2)).await;
        running(cluster, "low").await;
        status(cluster, "low", json!({"active": 2, "startTime": "2026-01-01T00:00:00Z"})).await;
        let mut high = job("high", 2);
        high["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = "high".into();
        submit_job(cluster, high).await;
        let low = stopped(cluster, "low").await;
        assert_eq!(low.data["spec"]["template"]["spec"]["nodeSelector"], Value::Null);
        status(cluster, "low", json!({"active": 0})).await;
        running(cluster, "high").await;
        assert_eq!(stopped(cluster, "low").await.data["spec"]["suspend"], true);
        let complete = json!({"type": "Complete", "status": "True", "message": "done"});
        status(cluster, "high", json!({"conditions": [complete]})).await;
        workload_of(cluster, "high", |workload| is(workload, "Finished", "True", "Succeeded")).await;
        running(cluster, "low").await;
        let low = workload_of(cluster, "low", |workload| is(workload, "Admitted", "True", "Admitted")).await;
        assert_eq!(evictions(&low), [("Preempted".to_owned(), 1)]);
        cluster.delete_now(&jobs(), "default", "low").await;
        let name = low.metadata.name.unwrap();
        cluster.wait_gone(&workloads(), "default", &name).await;
        assert_eq!(cluster.names(&workloads(), "default").await.len(), 1, "the Workload of the other Job");
    })
    .await;
    assert!(writes > 20, "only {writes} writes were covered");
}

#[tokio::test(start_paused = true)]
async fn after_a_crash_at_any_write_a_preempted_ray_job_is_restored_and_runs_again() {
    let writes = walk(async |cluster| {
        gpu_queue(cluster, 2, json!({"preemption": {"withinClusterQueue": "LowerPriority"}})).await;
        priority_class(cluster, "high", 100).await;
        let [jobs, clusters] = ["ray.io/rayjob", "ray.io/raycluster"].map(|name| Jobs::of(cluster, name));
        jobs.install().await;
        let low = jobs.submit("low", ray_job(1)).await;
        jobs.running("low").await;
        let status = |state: &str| json!({"jobDeploymentStatus": state, "jobStatus": "SUCCEEDED"});
        jobs.status("low", &status("Running")).await;
        // As the operator creates it: with the labels of the job.
        let owner = json!({"apiVersion": "ray.io/v1", "kind": "RayJob", "controller": true, "name": "low",
            "uid": low.metadata.uid});
        let metadata = json!({"ownerReferences": [owner]});
        let child = clusters.submit_with("low-abcde", metadata, ray_cluster(1)).await;
        clusters.merge("low-abcde", json!({"spec": {"suspend": false}})).await;
        let labels =
            json!({"labels": {"kueue.x-k8s.io/queue-name": "team", "kueue.x-k8s.io/priority-class": "high"}});
        jobs.submit_with("high", labels, ray_job(1)).await;
        let low = jobs.stopped("low").await;
        let head = &low.data["spec"]["rayClusterSpec"]["headGroupSpec"]["template"];
        assert_eq!(head["spec"]["nodeSelector"], Value::Null);
        cluster.delete_now(&clusters.resource(), "default", child.metadata.name.as_deref().unwrap()).await;
        jobs.status("low", &status("Suspended")).await;
        jobs.running("high").await;
        assert_eq!(jobs.stopped("low").await.data["spec"]["suspend"], true);
        jobs.status("high", &status("Complete")).await;
        jobs.workload("high", |workload| is(workload, "Finished", "True", "Succeeded")).await;
        jobs.running("low").await;
        let low = jobs.workload("low", |workload| is(workload, "Admitted", "True", "Admitted")).await;
        assert_eq!(evictions(&low), [("Preempted".to_owned(), 1)]);
        assert_eq!(cluster.names(&workloads(), "default").await.len(), 2, "those of the RayJobs");
        jobs.status("low", &status("Running")).await;
        jobs.status("low", &status("Complete")).await;
        jobs.workload("low", |workload| is(workload, "Finished", "True", "Succeeded")).await;
        assert_eq!(holders(cluster).await, Vec::<String>::new());
    })
    .await;
    assert!(writes > 20, "only {writes} writes were covered");
}

#[tokio::test(start_paused = true)]
async fn after_a_crash_at_any_write_a_preempted_group_of_pods_runs_again_and_ends() {
    let writes = walk(async |cluster| {
        gpu_queue(cluster, 2, json!({"preemption": {"withinClusterQueue": "LowerPriority"}})).await;
        priority_class(cluster, "high", 100).await;
        let low = async |names: [&str; 2]| {
            for name in names {
                submit_pod(cluster, name, member("low", 2)).await;
            }
        };
        low(["a", "b"]).await;
        runs(cluster, "a").await;
        runs(cluster, "b").await;
        submit_pod(cluster, "high", json!({"labels": {"kueue.x-k8s.io/priority-class": "high"}})).await;
        is_stopped(cluster, "a", "WorkloadEvictedDueToPreempted").await;
        is_stopped(cluster, "b", "WorkloadEvictedDueToPreempted").await;
        runs(cluster, "high").await;
        low(["c", "d"]).await;
        cluster.wait_gone(&pods(), "default", "a").await;
        cluster.wait_gone(&pods(), "default", "b").await;
        status_of(cluster, "high", json!({"phase": "Succeeded"})).await;
        runs(cluster, "c").await;
        runs(cluster, "d").await;
        cluster.wait(&pods(), "default", "high", |pod| !is_managed(pod)).await;
        let low = reaches(cluster, "low", "Admitted", "True", "Admitted").await;
        assert_eq!(evictions(&low), [("Preempted".to_owned(), 1)]);
        for name in ["c", "d"] {
            status_of(cluster, name, json!({"phase": "Succeeded"})).await;
        }
        reaches(cluster, "low", "Finished", "True", "Succeeded").await;
        for name in ["c", "d"] {
            cluster.wait(&pods(), "default", name, |pod| !is_managed(pod)).await;
        }
        assert_eq!(holders(cluster).await, Vec::<String>::new());
    })
    .await;
    assert!(writes > 20, "only {writes} writes were covered");
}

#[tokio::test(start_paused = true)]
async fn after_a_crash_at_any_write_places_come_after_the_checks_and_once() {
    let writes = walk(async |cluster| {
        let controller = json!({"controllerName": "kueue.x-k8s.io/provisioning-request"});
        create(cluster, "AdmissionCheck", "admissionchecks", "budget", controller).await;
        let active = json!([{"type": "Active", "status": "True", "reason": "Active", "message": "",
            "lastTransitionTime": "2023-11-14T22:13:20Z"}]);
        let patch = Patch::Merge(json!({"status": {"conditions": active}}));
        let checks = cluster.api(&kind("AdmissionCheck", "admissionchecks"), "");
        checks.patch_status("budget", &PatchParams::default(), &patch).await.unwrap();
        delayed_queue(cluster, "budget").await;
        gpu_node(cluster, "early", ("lot", "1")).await;
        submit(cluster, "w", "team", 0, 2, 2).await;
        asks(cluster, "w").await;
        let updates = json!([{"name": "main", "nodeSelector": {"lot": "2"}}]);
        answer(cluster, "w", "Ready", json!({ "podSetUpdates": updates })).await;
        gpu_node(cluster, "late", ("lot", "2")).await;
        let w = admitted(cluster, "w").await;
        assert_eq!(assigned(&w)["delayedTopologyRequest"], "Ready");
        let places = assigned(&w)["topologyAssignment"].to_string();
        assert!(places.contains("late") && !places.contains("early"), "{places}");
        queue_status(cluster, "team", |status| status["admittedWorkloads"] == 1).await;
        set_active(cluster, "w", false).await;
        let w = evicted(cluster, "w", "Deactivated").await;
        give_back(cluster, &w).await;
        set_active(cluster, "w", true).await;
        asks(cluster, "w").await;
        answer(cluster, "w", "Ready", json!({})).await;
        admitted(cluster, "w").await;
    })
    .await;
    assert!(writes > 8, "only {writes} writes were covered");
}

#[tokio::test(start_paused = true)]
async fn after_a_crash_at_any_write_a_job_grows_shrinks_and_is_preempted_and_no_quota_is_exceeded() {
    let writes = walk(async |cluster| {
        gpu_queue(cluster, 4, json!({"preemption": {"withinClusterQueue": "LowerPriority"}})).await;
        priority_class(cluster, "high", 100).await;
        submit_job(cluster, job("other", 2)).await;
        running(cluster, "other").await;
        submit_job(cluster, elastic("train", 2)).await;
        running(cluster, "train").await;
        status(cluster, "train", json!({"active": 2, "startTime": "2026-01-01T00:00:00Z"})).await;
        let grown = resize(cluster, "train", 4).await;
        slice(cluster, "train", grown, |workload| count(workload) == 4).await;
        assert_eq!(holders(cluster).await.len(), 2, "of the two Jobs");
        let complete = json!({"type": "Complete", "status": "True", "message": "done"});
        status(cluster, "other", json!({"conditions": [complete]})).await;
        slice(cluster, "train", grown, is_admitted).await;
        slice(cluster, "train", 1, is_replaced).await;
        assert_eq!(running(cluster, "train").await.metadata.generation, Some(grown), "it was never stopped");
        resize(cluster, "train", 3).await;
        slice(cluster, "train", grown, |workload| count(workload) == 3).await;
        let mut high = job("high", 3);
        high["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = "high".into();
        submit_job(cluster, high).await;
        stopped(cluster, "train").await;
        status(cluster, "train", json!({"active": 0})).await;
        running(cluster, "high").await;
        status(
            cluster,
            "high",
            json!({"conditions": [{"type": "Complete", "status": "True", "message": "done"}]}),
        )
        .await;
        running(cluster, "train").await;
        let train = slice(cluster, "train", grown, is_admitted).await;
        assert_eq!(evictions(&train), [("Preempted".to_owned(), 1)]);
        let used = |status: &Value| status["flavorsUsage"][0]["resources"][0]["total"] == "3";
        queue_status(cluster, "team", used).await;
        assert_eq!(holders(cluster).await.len(), 1);
    })
    .await;
    assert!(writes > 25, "only {writes} writes were covered");
}
