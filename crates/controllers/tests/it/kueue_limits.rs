//! Jobs whose Workload the API server refuses, or which would need too many: they are told what to change.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::elastic::{elastic, slice_of};
use crate::common::jobs::*;
use crate::common::kueue::*;
use crate::common::queued_pods::{member, pods, submit_pod};
use crate::common::{Cluster, Running, resource};
use crate::permissions::{denied, failing};
use api::kueue::jobs::JOB_KINDS;
use controllers::{Config, Kueue};
use kube::Client;
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

fn controller(cluster: &Cluster) -> Running {
    controller_over(cluster, cluster.client.clone())
}

fn controller_over(cluster: &Cluster, client: Client) -> Running {
    cluster.start(client, Config { kueue: Kueue::Scheduler, jobs: all_kinds(), ..Config::default() })
}

/// The Events that tell a job why it gets no Workload.
async fn refusals(cluster: &Cluster, name: &str) -> Vec<String> {
    let about = format!("{name} WorkloadRefused: ");
    let events = cluster.events().await;
    events.iter().filter_map(|event| event.strip_prefix(&about)).map(str::to_owned).collect()
}

fn group(name: &str, replicas: i64) -> Value {
    json!({"groupName": name, "replicas": replicas, "numOfHosts": 1, "template": template()})
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_workload_would_be_refused_is_told_once_what_to_change_and_starts_then() {
    let cluster = cluster_with_queue(4, json!({})).await;
    let _controller = controller(&cluster);
    let clusters = Jobs::of(&cluster, "ray.io/raycluster");
    clusters.install().await;
    let spec = |groups: Value| json!({"headGroupSpec": {"template": template()}, "workerGroupSpecs": groups});
    let many: Vec<Value> = (0..25).map(|at| group(&format!("g{at}"), 1)).collect();
    let mut hosts = group("hosts", 2_000_000_000);
    hosts["numOfHosts"] = 2.into();
    for (name, groups, told) in [
        (
            "twice",
            json!([group("Small", 1), group("small", 1)]),
            "two groups of pods of the job are called small",
        ),
        (
            "long",
            json!([group(&"x".repeat(64), 1)]),
            "has 64 characters, and a Workload takes 63: shorten it",
        ),
        ("many", json!(many), "26 groups of pods, and a Workload holds 18: merge some of them"),
        ("huge", json!([hosts]), "a Workload counts up to 2147483647: ask for fewer"),
    ] {
        clusters.submit(name, spec(groups)).await;
        tokio::time::sleep(Duration::from_mins(10)).await;
        let refused = refusals(&cluster, name).await;
        assert!(matches!(&refused[..], [one] if one.contains(told)), "{refused:?}");
        let blocked = blocked(&clusters.get(name).await).cloned().unwrap();
        assert_eq!(blocked["message"], *refused[0]);
    }
    let groups = json!([group("Small", 1), group("other", 1)]);
    clusters.merge("twice", json!({"spec": {"workerGroupSpecs": groups}})).await;
    assert_eq!(blocked(&clusters.running("twice").await), None);
    let own = |condition: &Value| condition["type"] == "HeadPodReady";
    clusters.status("long", &json!({"conditions": [{"type": "HeadPodReady", "status": "False", "reason": "Gone", "lastTransitionTime": "2026-01-01T00:00:00Z"}]})).await;
    let has_both = |object: &DynamicObject| {
        blocked(object).is_some() && object.data["status"]["conditions"].as_array().unwrap().iter().any(own)
    };
    // Its operator may overwrite the list, and keeps its own conditions.
    cluster.wait(&clusters.resource(), "default", "long", has_both).await;
}

#[tokio::test(start_paused = true)]
async fn a_waiting_job_that_changes_to_what_no_workload_can_hold_is_told_so() {
    let cluster = cluster_with_queue(4, json!({})).await;
    let _controller = controller(&cluster);
    let clusters = Jobs::of(&cluster, "ray.io/raycluster");
    clusters.install().await;
    let spec = |groups: Value| json!({"headGroupSpec": {"template": template()}, "workerGroupSpecs": groups});
    clusters.submit("twice", spec(json!([group("small", 9)]))).await;
    clusters.workload("twice", |found| is(found, "QuotaReserved", "False", "Pending")).await;
    clusters.merge("twice", json!({"spec": spec(json!([group("Small", 1), group("small", 1)]))})).await;
    let told = "two groups of pods of the job are called small";
    let is_told = |job: &DynamicObject| {
        blocked(job).is_some_and(|known| known["message"].as_str().unwrap().starts_with(told))
    };
    cluster.wait(&clusters.resource(), "default", "twice", is_told).await;
}

#[tokio::test(start_paused = true)]
async fn a_group_that_cannot_go_on_is_told_once_why() {
    let cluster = cluster_with_queue(4, json!({})).await;
    let _controller = controller(&cluster);
    submit_pod(&cluster, "odd", member("torn", 0)).await;
    for at in 0..5 {
        tokio::time::sleep(Duration::from_mins(1)).await;
        let change = json!({"metadata": {"annotations": {"example.com/change": at.to_string()}}});
        merge(&cluster, &pods(), "odd", change).await;
    }
    let told = cluster.events().await;
    let told: Vec<_> = told.iter().filter(|event| event.starts_with("odd ErrWorkloadCompose")).collect();
    assert_eq!(told.len(), 1, "{told:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_workload_the_api_server_refuses_has_a_condition_that_says_so() {
    let cluster = cluster_with_queue(4, json!({})).await;
    let _controller = controller(&cluster);
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"},
        "spec": {"hard": {"count/workloads.kueue.x-k8s.io": "0"}}});
    cluster.create_as(&resource("v1", "ResourceQuota", "resourcequotas"), "default", quota).await;
    cluster.settled().await;
    submit_job(&cluster, job("many", 1)).await;
    let is_told = |job: &DynamicObject| {
        blocked(job).is_some_and(|known| {
            known["reason"] == "WriteRefused"
                && known["message"].as_str().unwrap().contains("exceeded quota: none")
        })
    };
    let refused = cluster.wait(&jobs(), "default", "many", is_told).await;
    tokio::time::sleep(Duration::from_hours(1)).await;
    let later = cluster.api(&jobs(), "default").get("many").await.unwrap();
    assert_eq!(later.metadata.resource_version, refused.metadata.resource_version, "written once");
}

#[tokio::test(start_paused = true)]
async fn a_job_that_waits_for_an_object_that_does_not_exist_is_told_which_and_starts_when_it_does() {
    let cluster = cluster_with_queue(9, json!({})).await;
    let trains = Jobs::of(&cluster, "trainer.kubeflow.org/trainjob");
    trains.install().await;
    let _controller = controller(&cluster);
    let mut of_class = job("of-class", 1);
    of_class["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = "urgent".into();
    let mut of_pod_class = job("of-pod-class", 1);
    of_pod_class["spec"]["template"]["spec"]["priorityClassName"] = "gold".into();
    let mut prebuilt = job("prebuilt", 1);
    prebuilt["metadata"]["labels"]["kueue.x-k8s.io/prebuilt-workload-name"] = "mine".into();
    for job in [of_class, of_pod_class, prebuilt] {
        submit_job(&cluster, job).await;
    }
    trains.submit("train", json!({"runtimeRef": {"name": "torch"}})).await;
    cluster.settled().await;
    for (kind, name, reason, told) in [
        (
            jobs(),
            "of-class",
            "PriorityClassNotFound",
            "its label names the WorkloadPriorityClass urgent, which does not exist",
        ),
        (
            jobs(),
            "of-pod-class",
            "PriorityClassNotFound",
            "its pods name the PriorityClass gold, which does not exist",
        ),
        (
            jobs(),
            "prebuilt",
            "WorkloadNotFound",
            "the Workload mine, which the job names as its own, does not exist",
        ),
        (
            trains.resource(),
            "train",
            "PodsNotDescribed",
            "the ClusterTrainingRuntime torch, which describes the pods of the job, does not exist",
        ),
    ] {
        let job = cluster.wait(&kind, "default", name, |job| blocked(job).is_some()).await;
        let condition = blocked(&job).unwrap();
        assert_eq!((&condition["status"], &condition["reason"]), (&json!("True"), &json!(reason)), "{name}");
        assert!(condition["message"].as_str().unwrap().starts_with(told), "{condition}");
        let about = format!("{name} {reason}: {told}");
        assert_eq!(
            cluster.events().await.iter().filter(|event| event.starts_with(&about)).count(),
            1,
            "{name}"
        );
    }
    priority_class(&cluster, "urgent", 1).await;
    let started = running(&cluster, "of-class").await;
    assert_eq!(blocked(&started), None);
}

#[tokio::test(start_paused = true)]
async fn a_job_is_told_once_what_it_waits_for_by_a_controller_that_may_not_write_its_conditions() {
    let cluster = cluster_with_queue(1, json!({})).await;
    let tries = Arc::<AtomicUsize>::default();
    let counted = tries.clone();
    let client = failing(&cluster, move |request| {
        let is_condition = request.uri().path().ends_with("/jobs/train/status");
        is_condition.then(|| {
            counted.fetch_add(1, Ordering::Relaxed);
            (403, denied("patch", "jobs/status", "batch"))
        })
    });
    let _controller = controller_over(&cluster, client);
    let mut train = job("train", 1);
    train["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = "urgent".into();
    submit_job(&cluster, train).await;
    for at in 0..5 {
        tokio::time::sleep(Duration::from_mins(10)).await;
        let change = json!({"metadata": {"annotations": {"example.com/change": at.to_string()}}});
        merge(&cluster, &jobs(), "train", change).await;
    }
    let told = cluster.events().await;
    let told: Vec<_> = told.iter().filter(|event| event.starts_with("train PriorityClassNotFound")).collect();
    assert_eq!(told.len(), 1, "{told:#?}");
    let tries = tries.load(Ordering::Relaxed);
    assert!(tries <= 6, "{tries} tries, and the job has changed 5 times");
    priority_class(&cluster, "urgent", 1).await;
    running(&cluster, "train").await;
}

#[tokio::test(start_paused = true)]
async fn an_admitted_job_whose_flavor_is_gone_is_told_so_and_starts_when_it_is_there_again() {
    let cluster = cluster_with_queue(1, json!({"stopPolicy": "Hold"})).await;
    let first = controller(&cluster);
    submit_job(&cluster, job("train", 1)).await;
    let name = workload_of(&cluster, "train", |_| true).await.metadata.name.unwrap();
    drop(first);
    let admission = json!({"clusterQueue": "team", "podSetAssignments": [
        {"name": "main", "count": 1, "flavors": {"cpu": "gone"}, "resourceUsage": {"cpu": "1"}}]});
    let conditions = ["QuotaReserved", "Admitted"].map(|kind| {
        json!({"type": kind, "status": "True", "reason": kind, "message": "",
            "lastTransitionTime": "2023-11-14T22:13:20Z"})
    });
    let status = json!({"status": {"admission": admission, "conditions": conditions}});
    let api = cluster.api(&workloads(), "default");
    api.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    let _second = controller(&cluster);
    let told = "the admitted job cannot start yet: the ResourceFlavor \"gone\" does not exist";
    let is_told = |job: &DynamicObject| {
        blocked(job)
            .is_some_and(|known| known["reason"] == "ResourceFlavorNotFound" && known["message"] == told)
    };
    cluster.wait(&jobs(), "default", "train", is_told).await;
    create(&cluster, "ResourceFlavor", "resourceflavors", "gone", json!({"nodeLabels": {"pool": "new"}}))
        .await;
    let started = running(&cluster, "train").await;
    assert_eq!(started.data["spec"]["template"]["spec"]["nodeSelector"], json!({"pool": "new"}));
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_queue_does_not_take_it_is_told_so() {
    let cluster = cluster_with_queue(9, json!({"namespaceSelector": {"matchLabels": {"team": "ml"}}})).await;
    create(&cluster, "LocalQueue", "localqueues", "lost", json!({"clusterQueue": "nowhere"})).await;
    let _controller = controller(&cluster);
    let closed = json!({"clusterQueue": "team", "stopPolicy": "Hold"});
    create(&cluster, "LocalQueue", "localqueues", "closed", closed).await;
    for (name, queue) in [("unknown", "none"), ("lost", "lost"), ("stopped", "closed"), ("foreign", "team")] {
        let mut job = job(name, 1);
        job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = queue.into();
        submit_job(&cluster, job).await;
    }
    tokio::time::sleep(Duration::from_mins(1)).await;
    for told in [
        "unknown Inadmissible: LocalQueue none doesn't exist: create it, or name another one",
        "lost Inadmissible: ClusterQueue nowhere doesn't exist: create it, or change LocalQueue lost, which names it",
        "stopped Inadmissible: LocalQueue closed is inactive: its stopPolicy is Hold",
        "foreign Pending: workload namespace doesn't match ClusterQueue selector: ClusterQueue team is for namespaces with team=ml",
    ] {
        let events = cluster.events().await;
        assert_eq!(events.iter().filter(|event| *event == told).count(), 1, "{told}: {events:#?}");
    }
    cluster.annotate_namespace("default", &json!({"labels": {"team": "ml"}})).await;
    running(&cluster, "foreign").await;
}

/// The Job `train` has been told that its Workload cannot have its name.
async fn is_told_that_a_name_is_taken(cluster: &Cluster, name: &str) {
    let train = cluster.wait(&jobs(), "default", "train", |job| blocked(job).is_some()).await;
    let told = format!("the name of the job's Workload, '{name}', is taken: delete that Workload");
    assert_eq!(blocked(&train).unwrap()["message"], *told);
}

/// The Job `train`, and a Workload with the name of its Workload.
async fn with_a_taken_name() -> (Cluster, String) {
    let cluster = cluster_with_queue(9, json!({})).await;
    submit_job(&cluster, job("train", 1)).await;
    let uid = cluster.api(&jobs(), "default").get("train").await.unwrap().metadata.uid.unwrap();
    let name = JOB_KINDS[0].workload_name("train", &uid);
    submit(&cluster, &name, "team", 0, 1, 1).await;
    (cluster, name)
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_workload_has_a_name_that_is_taken_is_told_so() {
    let (cluster, name) = with_a_taken_name().await;
    let _controller = controller(&cluster);
    is_told_that_a_name_is_taken(&cluster, &name).await;
}

#[tokio::test(start_paused = true)]
async fn a_job_that_may_grow_is_told_that_the_name_of_its_workload_is_taken() {
    let cluster = cluster_with_queue(9, json!({})).await;
    submit_job(&cluster, elastic("train", 1)).await;
    let train = cluster.api(&jobs(), "default").get("train").await.unwrap();
    let name = slice_of("batch/job", &train, None);
    submit(&cluster, &name, "team", 0, 1, 1).await;
    let _controller = controller(&cluster);
    is_told_that_a_name_is_taken(&cluster, &name).await;
}

#[tokio::test(start_paused = true)]
async fn a_job_is_told_once_that_its_queue_does_not_take_it() {
    let cluster = cluster_with_queue(9, json!({})).await;
    let _controller = controller(&cluster);
    let mut lost = job("lost", 1);
    lost["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "none".into();
    submit_job(&cluster, lost).await;
    let name = workload_of(&cluster, "lost", |_| true).await.metadata.name.unwrap();
    for at in 0..5 {
        tokio::time::sleep(Duration::from_mins(1)).await;
        let change = json!({"metadata": {"annotations": {"example.com/change": at.to_string()}}});
        merge(&cluster, &workloads(), &name, change).await;
    }
    let told = cluster.events().await;
    let told: Vec<_> = told.iter().filter(|event| event.starts_with("lost Inadmissible")).collect();
    assert_eq!(told.len(), 1, "{told:#?}");
}

/// The condition of a job that gets no Workload.
fn blocked(job: &DynamicObject) -> Option<&Value> {
    condition(job, "QueueingBlocked")
}

#[tokio::test(start_paused = true)]
async fn a_set_with_a_million_groups_gets_a_thousand_workloads_and_is_told_so() {
    let cluster = cluster_with_queue(1, json!({"stopPolicy": "Hold"})).await;
    cluster.define("leaderworkerset.x-k8s.io", "LeaderWorkerSet", "leaderworkersets", &["v1"]).await;
    let _controller = controller(&cluster);
    let set = json!({"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet",
        "metadata": {"name": "serve", "labels": {"kueue.x-k8s.io/queue-name": "team"}},
        "spec": {"replicas": 1_000_000, "leaderWorkerTemplate": {"size": 1, "workerTemplate": template()}}});
    let kind = resource("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "leaderworkersets");
    cluster.create_as(&kind, "default", set).await;
    for _ in 0..120 {
        tokio::time::sleep(Duration::from_secs(10)).await;
        if !refusals(&cluster, "serve").await.is_empty() {
            break;
        }
    }
    assert_eq!(
        refusals(&cluster, "serve").await,
        [
            "the set has 1000000 groups, and only the first 1000 get Workloads: reduce its replicas, or make several sets"
        ]
    );
    assert_eq!(cluster.names(&workloads(), "default").await.len(), 1000);
}

#[tokio::test(start_paused = true)]
async fn a_job_starts_when_the_name_of_its_workload_is_free() {
    let (cluster, name) = with_a_taken_name().await;
    let _controller = controller(&cluster);
    is_told_that_a_name_is_taken(&cluster, &name).await;
    cluster.settled().await;
    cluster.delete(&workloads(), "default", &name).await;
    assert_eq!(blocked(&running(&cluster, "train").await), None);
}
