//! What authors claim about jobs, pods and Workloads: owners, control state, names and roles. A claim about an object of another
//! namespace has no effect, and one about their own objects gains nothing.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::elastic::create_pod;
use crate::common::jobs::*;
use crate::common::kueue::*;
use crate::common::queued_pods::*;
use crate::common::{Cluster, Running, recording, resource};
use controllers::{Config, JobsConfig, Kueue};
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

fn controller(cluster: &Cluster) -> Running {
    controller_over(cluster, cluster.client.clone())
}

fn controller_over(cluster: &Cluster, client: Client) -> Running {
    let jobs = JobsConfig { pods_of_sets_only: false, ..all_kinds() };
    cluster.start(client, Config { kueue: Kueue::Scheduler, jobs, ..Config::default() })
}

async fn namespace(cluster: &Cluster, name: &str) {
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    cluster.create_as(&resource("v1", "Namespace", "namespaces"), "", object).await;
}

fn controlled_by(version: &str, kind: &str, name: &str, uid: &str) -> Value {
    json!([{"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": true}])
}

/// A Workload of one pod with these owners.
fn workload(name: &str, owners: &Value) -> Value {
    json!({"apiVersion": VERSION, "kind": "Workload", "metadata": {"name": name, "ownerReferences": owners},
        "spec": {"podSets": [{"name": "main", "count": 1, "template": template()}]}})
}

/// A time in which everything that is going to happen happens.
async fn rests(cluster: &Cluster) {
    tokio::time::sleep(Duration::from_mins(20)).await;
    cluster.settled().await;
}

fn count(writes: &Arc<Mutex<Vec<String>>>) -> usize {
    writes.lock().unwrap().split_off(0).len()
}

#[tokio::test(start_paused = true)]
async fn a_workload_that_names_a_job_of_another_namespace_as_its_controller_leaves_the_job_alone() {
    let cluster = cluster_with_queue(2, json!({})).await;
    namespace(&cluster, "intruder").await;
    let (client, writes) = recording(&cluster);
    let _controller = controller_over(&cluster, client);
    submit_job(&cluster, job("train", 2)).await;
    let uid = running(&cluster, "train").await.uid().unwrap();
    let own = workload_of(&cluster, "train", |found| is(found, "Admitted", "True", "Admitted")).await;
    rests(&cluster).await;
    count(&writes);
    let forged = workload("forged", &controlled_by("batch/v1", "Job", "train", &uid));
    cluster.create_as(&workloads(), "intruder", forged).await;
    let deceased = workload("deceased", &controlled_by("batch/v1", "Job", "gone", &uid));
    cluster.create_as(&workloads(), "intruder", deceased).await;
    rests(&cluster).await;
    let job = running(&cluster, "train").await;
    assert_eq!(job.data["spec"]["parallelism"], 2);
    let found = workload_of(&cluster, "train", |found| is(found, "Admitted", "True", "Admitted")).await;
    assert_eq!(found.metadata.uid, own.metadata.uid);
    assert_eq!(found.metadata.resource_version, own.metadata.resource_version);
    assert!(count(&writes) < 12);
}

#[tokio::test(start_paused = true)]
async fn a_running_job_that_says_it_is_being_stopped_is_preempted_like_any_other() {
    let more = json!({"preemption": {"withinClusterQueue": "LowerPriority"}});
    let cluster = cluster_with_queue(2, more).await;
    priority_class(&cluster, "high", 100).await;
    let (client, writes) = recording(&cluster);
    let _controller = controller_over(&cluster, client);
    submit_job(&cluster, job("low", 2)).await;
    running(&cluster, "low").await;
    status(&cluster, "low", json!({"active": 2, "startTime": "2026-01-01T00:00:00Z"})).await;
    let stopping = json!({"metadata": {"annotations": {"kueue.x-k8s.io/stopping": "true"}}});
    rests(&cluster).await;
    count(&writes);
    merge(&cluster, &jobs(), "low", stopping).await;
    rests(&cluster).await;
    assert_eq!(count(&writes), 0, "nothing is to be done about a job that runs");
    let mut high = job("high", 2);
    high["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = "high".into();
    submit_job(&cluster, high).await;
    stopped(&cluster, "low").await;
    status(&cluster, "low", json!({"active": 0})).await;
    running(&cluster, "high").await;
    rests(&cluster).await;
    assert!(count(&writes) < 40);
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_is_not_there_takes_no_job_past_its_queue() {
    let cluster = cluster_with_queue(1, json!({})).await;
    let _controller = controller(&cluster);
    let made_up = [
        ("example.com/v1", "AppWrapper"),
        ("workload.codeflare.dev/v1beta1", "AppWrapper"),
        ("mcad.ibm.com/v1beta1", "AppWrapper"),
        ("jobset.x-k8s.io/v1alpha2", "JobSet"),
        ("ray.io/v1", "RayCluster"),
        ("batch/v1", "Job"),
    ];
    for (at, (version, kind)) in made_up.into_iter().enumerate() {
        let name = format!("job-{at}");
        let mut big = job(&name, 3);
        big["spec"]["suspend"] = false.into();
        big["metadata"]["ownerReferences"] = controlled_by(version, kind, "owner", "u");
        submit_job(&cluster, big).await;
    }
    rests(&cluster).await;
    // Garbage collection deletes a job whose owner is of a kind that is known, and not there.
    for (at, made_up) in made_up.iter().enumerate() {
        let job = cluster.api(&jobs(), "default").get_opt(&format!("job-{at}")).await.unwrap();
        assert!(job.is_none_or(|job| job.data["spec"]["suspend"] == true), "{made_up:?}");
    }
    stopped(&cluster, "job-0").await;
}

#[tokio::test(start_paused = true)]
async fn an_app_wrapper_takes_no_job_past_its_queue_that_it_does_not_wrap() {
    let cluster = cluster_with_queue(1, json!({})).await;
    let _controller = controller(&cluster);
    cluster.submit_config_map("w").await;
    let wrappers = resource("mcad.ibm.com/v1beta1", "AppWrapper", "appwrappers");
    let uid = cluster.api(&wrappers, "default").get("w").await.unwrap().uid().unwrap();
    let mut big = job("big", 3);
    big["spec"]["suspend"] = false.into();
    big["metadata"]["ownerReferences"] = controlled_by("mcad.ibm.com/v1beta1", "AppWrapper", "w", &uid);
    submit_job(&cluster, big).await;
    stopped(&cluster, "big").await;
}

#[tokio::test(start_paused = true)]
async fn jobs_that_own_each_other_queue_for_themselves() {
    let cluster = cluster_with_queue(1, json!({})).await;
    let _controller = controller(&cluster);
    for name in ["one", "other"] {
        submit_job(&cluster, job(name, 3)).await;
        workload_of(&cluster, name, |_| true).await;
    }
    for (name, owner) in [("one", "other"), ("other", "one")] {
        let uid = cluster.api(&jobs(), "default").get(owner).await.unwrap().uid().unwrap();
        let owners = controlled_by("batch/v1", "Job", owner, &uid);
        let patch = json!({"metadata": {"ownerReferences": owners}, "spec": {"suspend": false}});
        merge(&cluster, &jobs(), name, patch).await;
        stopped(&cluster, name).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_takes_no_workload_that_pods_have() {
    let cluster = cluster_with_queue(4, json!({})).await;
    let _controller = controller(&cluster);
    submit_pod(&cluster, "a", member("group", 1)).await;
    runs(&cluster, "a").await;
    let own = cluster
        .wait(&workloads(), "default", "group", |found| is(found, "Admitted", "True", "Admitted"))
        .await;
    let mut thief = job("thief", 1);
    thief["metadata"]["annotations"] = json!({"kueue.x-k8s.io/prebuilt-workload-name": "group"});
    submit_job(&cluster, thief).await;
    rests(&cluster).await;
    let found = cluster.api(&workloads(), "default").get("group").await.unwrap();
    assert_eq!(found.metadata.owner_references, own.metadata.owner_references);
    assert!(!is(&found, "Finished", "True", "OutOfSync"));
    stopped(&cluster, "thief").await;
    let told = "thief ErrWorkloadCompose: the Workload 'group' is that of another job";
    let events = cluster.events().await;
    assert!(events.iter().any(|event| event.starts_with(told)), "{events:#?}");
}

/// A Workload of so many pods in the queue that somebody has made for a job.
async fn prebuilt(cluster: &Cluster, name: &str, set: &str, pods: u32, template: Value) {
    let spec = json!({"queueName": "team", "podSets": [{"name": set, "count": pods, "template": template}]});
    let workload =
        json!({"apiVersion": VERSION, "kind": "Workload", "metadata": {"name": name}, "spec": spec});
    cluster.create_as(&workloads(), "default", workload).await;
}

fn is_out_of_sync(workload: &DynamicObject) -> bool {
    is(workload, "Finished", "True", "OutOfSync")
}

#[tokio::test(start_paused = true)]
async fn a_job_that_outgrows_its_prebuilt_workload_is_stopped_before_its_quota_is_free() {
    let cluster = cluster_with_queue(1, json!({})).await;
    let _controller = controller(&cluster);
    let mut own = job("grows", 1);
    own["metadata"]["annotations"] = json!({"kueue.x-k8s.io/prebuilt-workload-name": "made"});
    own["spec"].as_object_mut().unwrap().remove("completions");
    submit_job(&cluster, own).await;
    let stored = cluster.api(&jobs(), "default").get("grows").await.unwrap();
    prebuilt(&cluster, "made", "main", 1, stored.data["spec"]["template"].clone()).await;
    let job = running(&cluster, "grows").await;
    create_pod(&cluster, &job, "grows-0").await;
    submit_job(&cluster, crate::common::jobs::job("next", 1)).await;
    merge(&cluster, &jobs(), "grows", json!({"spec": {"parallelism": 9}})).await;
    stopped(&cluster, "grows").await;
    rests(&cluster).await;
    let found = cluster.api(&workloads(), "default").get("made").await.unwrap();
    assert!(!is_out_of_sync(&found), "its pod runs");
    stopped(&cluster, "next").await;
    cluster.delete_now(&pods(), "default", "grows-0").await;
    cluster.wait(&workloads(), "default", "made", is_out_of_sync).await;
    running(&cluster, "next").await;
    // Nobody starts it without quota.
    merge(&cluster, &jobs(), "grows", json!({"spec": {"suspend": false}})).await;
    stopped(&cluster, "grows").await;
}

#[tokio::test(start_paused = true)]
async fn a_group_that_outgrows_its_prebuilt_workload_uses_no_more_than_its_quota() {
    let cluster = cluster_with_queue(1, json!({})).await;
    let _controller = controller(&cluster);
    let of_group = |total: u32| {
        let mut more = member("group", total);
        more["annotations"]["kueue.x-k8s.io/prebuilt-workload-name"] = "made".into();
        more
    };
    submit_pod(&cluster, "a", of_group(1)).await;
    prebuilt(&cluster, "made", "worker", 1, template()).await;
    runs(&cluster, "a").await;
    submit_job(&cluster, job("next", 1)).await;
    submit_pod(&cluster, "b", of_group(1)).await;
    stops(&cluster, "a").await;
    let found = cluster.api(&workloads(), "default").get("made").await.unwrap();
    assert!(!is_out_of_sync(&found), "its pod runs");
    stopped(&cluster, "next").await;
    status_of(&cluster, "a", json!({"phase": "Failed"})).await;
    // The other one takes its place.
    runs(&cluster, "b").await;
    stopped(&cluster, "next").await;
}

#[tokio::test(start_paused = true)]
async fn a_job_that_gets_an_owner_while_it_runs_keeps_its_quota_and_gives_it_back() {
    let cluster = cluster_with_queue(2, json!({})).await;
    let _controller = controller(&cluster);
    for name in ["owner", "owned"] {
        submit_job(&cluster, job(name, 1)).await;
        running(&cluster, name).await;
    }
    let owner = running(&cluster, "owner").await.uid().unwrap();
    submit_job(&cluster, job("next", 1)).await;
    let own = workload_of(&cluster, "owned", |found| is(found, "Admitted", "True", "Admitted")).await;
    let references = controlled_by("batch/v1", "Job", "owner", &owner);
    merge(&cluster, &jobs(), "owned", json!({"metadata": {"ownerReferences": references}})).await;
    rests(&cluster).await;
    running(&cluster, "owned").await;
    stopped(&cluster, "next").await;
    merge(&cluster, &workloads(), &own.name_any(), json!({"spec": {"active": false}})).await;
    running(&cluster, "next").await;
    cluster.wait_gone(&workloads(), "default", &own.name_any()).await;
}

#[tokio::test(start_paused = true)]
async fn a_job_takes_no_workload_whose_owner_somebody_has_removed() {
    let cluster = cluster_with_queue(1, json!({"stopPolicy": "Hold"})).await;
    let controller = controller(&cluster);
    submit_job(&cluster, job("train", 1)).await;
    let own = workload_of(&cluster, "train", |_| true).await;
    // The claim is there before anybody can see that the owner is not.
    drop(controller);
    merge(&cluster, &workloads(), &own.name_any(), json!({"metadata": {"ownerReferences": null}})).await;
    let mut thief = job("thief", 1);
    thief["metadata"]["annotations"] = json!({"kueue.x-k8s.io/prebuilt-workload-name": own.name_any()});
    submit_job(&cluster, thief).await;
    let _controller = self::controller(&cluster);
    rests(&cluster).await;
    let open = Patch::Merge(json!({"spec": {"stopPolicy": "None"}}));
    cluster.api(&cluster_queues(), "").patch("team", &PatchParams::default(), &open).await.unwrap();
    running(&cluster, "train").await;
    stopped(&cluster, "thief").await;
}

async fn open(cluster: &Cluster, pod: &str) {
    merge(cluster, &pods(), pod, json!({"spec": {"schedulingGates": null}})).await;
}

/// Waits until a pod is being deleted, or gone.
async fn stops(cluster: &Cluster, pod: &str) {
    for _ in 0..60 {
        if cluster.api(&pods(), "default").get_opt(pod).await.unwrap().is_none_or(|pod| is_deleted(&pod)) {
            return;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    panic!("the pod {pod} runs on");
}

fn is_deleted(pod: &DynamicObject) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_gate_its_author_removes_is_stopped_while_its_group_waits() {
    let cluster = cluster_with_queue(1, json!({})).await;
    let _controller = controller(&cluster);
    // The group is incomplete, and would have too little quota.
    for (group, total) in [("incomplete", 3), ("large", 2)] {
        for pod in ["a", "b"] {
            submit_pod(&cluster, &format!("{group}-{pod}"), member(group, total)).await;
        }
    }
    cluster
        .wait(&workloads(), "default", "large", |found| is(found, "QuotaReserved", "False", "Pending"))
        .await;
    for pod in ["incomplete-a", "large-a"] {
        open(&cluster, pod).await;
        stops(&cluster, pod).await;
    }
    rests(&cluster).await;
    for pod in ["incomplete-b", "large-b"] {
        assert!(!is_deleted(&cluster.api(&pods(), "default").get(pod).await.unwrap()), "{pod}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_of_another_role_whose_gate_its_author_removes_is_stopped() {
    let cluster = cluster_with_queue(1, json!({})).await;
    let _controller = controller(&cluster);
    submit_pod(&cluster, "a", member("group", 1)).await;
    runs(&cluster, "a").await;
    let mut other = member("group", 1);
    other["annotations"]["kueue.x-k8s.io/role-hash"] = "other".into();
    submit_pod(&cluster, "b", other).await;
    open(&cluster, "b").await;
    stops(&cluster, "b").await;
    assert!(!is_deleted(&cluster.api(&pods(), "default").get("a").await.unwrap()));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_asks_for_more_than_others_of_the_role_that_it_names_does_not_run_with_their_quota() {
    let cluster = cluster_with_queue(2, json!({})).await;
    let _controller = controller(&cluster);
    submit_pod(&cluster, "a", member("group", 2)).await;
    submit_large(&cluster, "b", member("group", 2)).await;
    rests(&cluster).await;
    assert_eq!(cluster.names(&workloads(), "default").await, Vec::<String>::new());
    let events = cluster.events().await;
    let told = "a ErrWorkloadCompose: pod 'b' asks for more than other pods";
    assert!(events.iter().any(|event| event.starts_with(told)), "{events:#?}");

    // A replacement, after the Workload was made.
    let fast = |mut more: Value| {
        more["annotations"]["kueue.x-k8s.io/pod-group-fast-admission"] = "true".into();
        more
    };
    submit_pod(&cluster, "c", fast(member("late", 2))).await;
    runs(&cluster, "c").await;
    submit_large(&cluster, "d", fast(member("late", 2))).await;
    stops(&cluster, "d").await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_gate_its_author_removes_is_stopped_also_if_it_says_that_it_is_of_a_set() {
    let cluster = cluster_with_queue(1, json!({})).await;
    let _controller = controller(&cluster);
    for pod in ["a", "b"] {
        let mut serving = member("large", 2);
        serving["annotations"]["kueue.x-k8s.io/pod-group-serving"] = "true".into();
        submit_pod(&cluster, pod, serving).await;
    }
    let waits = |found: &DynamicObject| is(found, "QuotaReserved", "False", "Pending");
    cluster.wait(&workloads(), "default", "large", waits).await;
    open(&cluster, "a").await;
    stops(&cluster, "a").await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_joins_a_group_later_does_not_speak_for_it() {
    let cluster = cluster_with_queue(1, json!({})).await;
    let _controller = controller(&cluster);
    submit_pod(&cluster, "b", member("group", 1)).await;
    runs(&cluster, "b").await;
    rests(&cluster).await;
    let mut joins = member("group", 1);
    joins["labels"]["kueue.x-k8s.io/max-exec-time-seconds"] = "60".into();
    submit_pod(&cluster, "a", joins).await;
    stops(&cluster, "a").await;
    rests(&cluster).await;
    assert!(!is_deleted(&cluster.api(&pods(), "default").get("b").await.unwrap()));
}

#[tokio::test(start_paused = true)]
async fn a_job_starts_again_that_says_it_is_being_stopped() {
    let cluster = cluster_with_queue(1, json!({})).await;
    let _controller = controller(&cluster);
    submit_job(&cluster, job("train", 1)).await;
    running(&cluster, "train").await;
    let stopping = json!({"annotations": {"kueue.x-k8s.io/stopping": "true"}});
    let patch = json!({"metadata": stopping, "spec": {"suspend": true}});
    merge(&cluster, &jobs(), "train", patch).await;
    running(&cluster, "train").await;
    // Jobs of this kind are stopped in one step.
    let clusters = Jobs::of(&cluster, "ray.io/raycluster");
    cluster.delete_now(&jobs(), "default", "train").await;
    clusters.submit_with("serve", with_queue(&stopping), ray_cluster(0)).await;
    clusters.running("serve").await;
}

fn with_queue(metadata: &Value) -> Value {
    json!({"labels": {"kueue.x-k8s.io/queue-name": "team"}, "annotations": metadata["annotations"]})
}

/// A pod of four CPUs.
async fn submit_large(cluster: &Cluster, name: &str, more: Value) {
    let mut metadata = json!({"name": name, "finalizers": ["kueue.x-k8s.io/managed"], "labels": {
        "kueue.x-k8s.io/queue-name": "team", "kueue.x-k8s.io/managed": "true"}});
    metadata["annotations"] = more["annotations"].clone();
    metadata["labels"]["kueue.x-k8s.io/pod-group-name"] =
        more["labels"]["kueue.x-k8s.io/pod-group-name"].clone();
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "4"}}});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"restartPolicy": "Never",
        "containers": [container], "schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}});
    cluster.create_as(&pods(), "default", pod).await;
}
