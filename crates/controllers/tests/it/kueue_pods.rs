//! Pods of Kueue's API, alone and in groups: each waits behind a gate for its Workload, and is deleted when it is evicted. The tests
//! play the author of the pods, the webhook and the kubelet.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::time::Duration;

use crate::common::jobs::*;
use crate::common::kueue::*;
use crate::common::queued_pods::*;
use crate::common::{Cluster, Running, resource};
use api::kueue::jobs::JobKind;
use controllers::{Config, JobsConfig, Kueue};
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::ApiResource;
use serde_json::json;

/// How long Events are waited for, in seconds of virtual time.
const TRIES: u32 = 60;

pub(crate) fn controller(cluster: &Cluster) -> Running {
    let jobs = JobsConfig { waits_for_pods: true, ..all_kinds() };
    cluster.start(cluster.client.clone(), Config { kueue: Kueue::Scheduler, jobs, ..Config::default() })
}

pub(crate) async fn workload(
    cluster: &Cluster,
    name: &str,
    is_met: impl Fn(&DynamicObject) -> bool,
) -> DynamicObject {
    cluster.wait(&workloads(), "default", name, is_met).await
}

async fn is_told(cluster: &Cluster, told: &str) {
    for _ in 0..TRIES {
        let events = cluster.events().await;
        if events.iter().any(|event| event.starts_with(told)) {
            return;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    panic!("{told}: {:#?}", cluster.events().await);
}

#[tokio::test(start_paused = true)]
async fn a_pod_runs_when_it_is_admitted_and_ends_its_workload() {
    let cluster = cluster_with_queue(1, json!({})).await;
    let _controller = controller(&cluster);
    submit_pod(&cluster, "train", json!({})).await;
    let pod = runs(&cluster, "train").await;
    assert_eq!(pod.data["spec"]["nodeSelector"], json!({"pool": "gpu"}));
    let uid = pod.metadata.uid.clone().unwrap();
    let name = JobKind::of_framework("pod").unwrap().workload_name("train", &uid);
    workload(&cluster, &name, |workload| is(workload, "PodsReady", "True", "Started")).await;
    submit_pod(&cluster, "next", json!({})).await;
    status_of(&cluster, "train", json!({"phase": "Succeeded"})).await;
    workload(&cluster, &name, |workload| is(workload, "Finished", "True", "Succeeded")).await;
    cluster.wait(&pods(), "default", "train", |pod| !is_managed(pod)).await;
    runs(&cluster, "next").await;
    is_told(&cluster, "train Started: Admitted by clusterQueue team").await;
}

#[tokio::test(start_paused = true)]
async fn a_preempted_pod_gives_up_its_place_in_the_queue() {
    let preemption = json!({"preemption": {"withinClusterQueue": "LowerPriority"}});
    let cluster = cluster_with_queue(1, preemption).await;
    priority_class(&cluster, "high", 100).await;
    let _controller = controller(&cluster);
    submit_pod(&cluster, "low", json!({})).await;
    let low = runs(&cluster, "low").await;
    let name = JobKind::of_framework("pod").unwrap().workload_name("low", &low.metadata.uid.unwrap());
    // The Workload goes with its pod.
    let ended = workload(&cluster, &name, |found| is(found, "Finished", "True", "OwnerNotFound"));
    let preempted = async {
        submit_pod(&cluster, "high", json!({"labels": {"kueue.x-k8s.io/priority-class": "high"}})).await;
        runs(&cluster, "high").await;
    };
    let (ended, ()) = tokio::join!(ended, preempted);
    assert!(is(&ended, "Requeued", "False", "Preempted"), "{:?}", ended.data["status"]);
    cluster.wait_gone(&pods(), "default", "low").await;
}

#[tokio::test(start_paused = true)]
async fn the_quota_of_a_deleted_pod_is_free() {
    let cluster = cluster_with_queue(1, json!({})).await;
    let _controller = controller(&cluster);
    submit_pod(&cluster, "first", json!({})).await;
    runs(&cluster, "first").await;
    submit_pod(&cluster, "second", json!({})).await;
    cluster.delete_now(&pods(), "default", "first").await;
    cluster.wait_gone(&pods(), "default", "first").await;
    runs(&cluster, "second").await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_leaves_its_queue_goes_when_it_is_deleted() {
    let cluster = cluster_with_queue(1, json!({})).await;
    let _controller = controller(&cluster);
    for (name, more) in [("alone", json!({})), ("of-a-group", member("train", 2))] {
        submit_pod(&cluster, name, more).await;
        let unnamed = json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": null}}});
        merge(&cluster, &pods(), name, unnamed).await;
        cluster.delete_now(&pods(), "default", name).await;
        cluster.wait_gone(&pods(), "default", name).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_group_starts_whole_and_ends_when_all_its_pods_have_succeeded() {
    let cluster = cluster_with_queue(3, json!({})).await;
    let _controller = controller(&cluster);
    for name in ["a", "b"] {
        submit_pod(&cluster, name, member("train", 3)).await;
    }
    is_told(&cluster, "a ErrWorkloadCompose: 'train' group has fewer runnable pods than expected").await;
    assert!(cluster.names(&workloads(), "default").await.is_empty());
    submit_pod(&cluster, "c", member("train", 3)).await;
    for name in ["a", "b", "c"] {
        let pod = runs(&cluster, name).await;
        assert_eq!(pod.metadata.labels.as_ref().unwrap()["kueue.x-k8s.io/podset"], "worker");
    }
    let found = workload(&cluster, "train", |workload| is(workload, "PodsReady", "True", "Started")).await;
    assert_eq!(found.metadata.owner_references.unwrap().len(), 3);
    submit_pod(&cluster, "one-more", member("train", 3)).await;
    cluster.wait_gone(&pods(), "default", "one-more").await;
    is_told(&cluster, "one-more ExcessPodDeleted: Excess pod deleted").await;
    status_of(&cluster, "a", json!({"phase": "Succeeded"})).await;
    let reclaimable = json!([{"name": "worker", "count": 1}]);
    workload(&cluster, "train", |workload| workload.data["status"]["reclaimablePods"] == reclaimable).await;
    for name in ["b", "c"] {
        status_of(&cluster, name, json!({"phase": "Succeeded"})).await;
    }
    let ended = workload(&cluster, "train", |workload| is(workload, "Finished", "True", "Succeeded")).await;
    assert_eq!(condition(&ended, "Finished").unwrap()["message"], "Pods succeeded: 3/3.");
    for name in ["a", "b", "c"] {
        cluster.wait(&pods(), "default", name, |pod| !is_managed(pod)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_preempted_group_waits_for_its_replacements_and_runs_again() {
    let preemption = json!({"preemption": {"withinClusterQueue": "LowerPriority"}});
    let cluster = cluster_with_queue(2, preemption).await;
    priority_class(&cluster, "high", 100).await;
    let _controller = controller(&cluster);
    for name in ["a", "b"] {
        submit_pod(&cluster, name, member("low", 2)).await;
        cluster.settled().await;
    }
    for name in ["a", "b"] {
        runs(&cluster, name).await;
    }
    submit_pod(&cluster, "high", json!({"labels": {"kueue.x-k8s.io/priority-class": "high"}})).await;
    for name in ["a", "b"] {
        is_stopped(&cluster, name, "WorkloadEvictedDueToPreempted").await;
    }
    runs(&cluster, "high").await;
    workload(&cluster, "low", |workload| is(workload, "WaitingForReplacementPods", "True", "Preempted"))
        .await;
    for name in ["c", "d"] {
        submit_pod(&cluster, name, member("low", 2)).await;
    }
    workload(&cluster, "low", |workload| is(workload, "WaitingForReplacementPods", "False", "PodsReady"))
        .await;
    for name in ["a", "b"] {
        cluster.wait_gone(&pods(), "default", name).await;
    }
    status_of(&cluster, "high", json!({"phase": "Succeeded"})).await;
    for name in ["c", "d"] {
        runs(&cluster, name).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_pod_of_a_group_is_replaced_without_quota_of_its_own() {
    let cluster = cluster_with_queue(2, json!({})).await;
    let _controller = controller(&cluster);
    for name in ["a", "b"] {
        submit_pod(&cluster, name, member("train", 2)).await;
    }
    for name in ["a", "b"] {
        runs(&cluster, name).await;
    }
    status_of(&cluster, "a", json!({"phase": "Failed"})).await;
    workload(&cluster, "train", |workload| is(workload, "WaitingForReplacementPods", "True", "PodsFailed"))
        .await;
    submit_pod(&cluster, "a-again", member("train", 2)).await;
    runs(&cluster, "a-again").await;
    cluster.wait(&pods(), "default", "a", |pod| !is_managed(pod)).await;
    let owners = workload(&cluster, "train", |_| true).await.metadata.owner_references.unwrap();
    assert_eq!(owners.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_group_that_contradicts_itself_is_told_and_harms_no_other() {
    let cluster = cluster_with_queue(2, json!({})).await;
    let _controller = controller(&cluster);
    submit_pod(&cluster, "odd", member("odd", 0)).await;
    for (name, total) in [("one", 2), ("other", 3)] {
        submit_pod(&cluster, name, member("torn", total)).await;
    }
    submit_pod(&cluster, "good", json!({})).await;
    runs(&cluster, "good").await;
    is_told(&cluster, "odd ErrWorkloadCompose: incorrect annotation value").await;
    is_told(&cluster, "one ErrWorkloadCompose: pods 'one' and 'other' has different").await;
}

#[tokio::test(start_paused = true)]
async fn a_group_with_the_name_of_another_workload_waits() {
    let cluster = cluster_with_queue(1, json!({})).await;
    let _controller = controller(&cluster);
    submit_job(&cluster, job("train", 1)).await;
    running(&cluster, "train").await;
    let of_job =
        workload_of(&cluster, "train", |workload| is(workload, "Admitted", "True", "Admitted")).await;
    let name = of_job.metadata.name.unwrap();
    let mut forged = member(&name, 1);
    forged["annotations"]["kueue.x-k8s.io/role-hash"] = "main".into();
    submit_pod(&cluster, "forged", forged).await;
    is_told(
        &cluster,
        &format!("forged ErrWorkloadCompose: the Workload '{name}' belongs to the Job 'train'"),
    )
    .await;
    let pod = cluster.api(&pods(), "default").get("forged").await.unwrap();
    assert_eq!(pod.data["spec"]["schedulingGates"][0]["name"], "kueue.x-k8s.io/admission");
    // A Workload that nothing owns, and which is that of no group.
    submit(&cluster, "made", "team", 0, 2, 1).await;
    let made = workload(&cluster, "made", |made| is(made, "QuotaReserved", "False", "Pending")).await;
    submit_pod(&cluster, "other", member("made", 1)).await;
    is_told(&cluster, "other WorkloadNameConflict: the Workload 'made' is that of no group").await;
    let now = workload(&cluster, "made", |_| true).await;
    assert_eq!(
        (now.metadata.uid, now.metadata.owner_references),
        (made.metadata.uid, made.metadata.owner_references)
    );
}

#[tokio::test(start_paused = true)]
async fn pods_that_go_while_no_controller_runs_leave_nothing_behind() {
    let cluster = cluster_with_queue(2, json!({})).await;
    let first = controller(&cluster);
    for name in ["a", "b"] {
        submit_pod(&cluster, name, member("train", 2)).await;
    }
    for name in ["a", "b"] {
        runs(&cluster, name).await;
    }
    drop(first);
    for name in ["a", "b"] {
        let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        cluster.api(&pods(), "default").patch(name, &PatchParams::default(), &patch).await.unwrap();
        cluster.delete_now(&pods(), "default", name).await;
    }
    let _second = controller(&cluster);
    cluster.wait_gone(&workloads(), "default", "train").await;
    submit_pod(&cluster, "next", json!({})).await;
    runs(&cluster, "next").await;
}

pub(crate) fn stateful_sets() -> ApiResource {
    resource("apps/v1", "StatefulSet", "statefulsets")
}

/// A set of pods in the queue `team`, as the webhook leaves it.
pub(crate) async fn submit_set(cluster: &Cluster, name: &str, replicas: u32) -> DynamicObject {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}});
    let labels = json!({"app": name});
    let set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": "team"}},
        "spec": {"replicas": replicas, "serviceName": name, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}}}});
    cluster.create_as(&stateful_sets(), "default", set).await
}

/// Pods of a set, as its controller and the webhook make them.
pub(crate) async fn submit_pods_of(cluster: &Cluster, set: &DynamicObject, replicas: u32) -> Vec<String> {
    let (name, uid) = (set.metadata.name.clone().unwrap(), set.metadata.uid.clone().unwrap());
    let names: Vec<String> = (0..replicas).map(|index| format!("{name}-{index}")).collect();
    for (index, pod) in names.iter().enumerate() {
        let owner = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": name, "uid": uid, "controller": true});
        let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod, "ownerReferences": [owner],
                "labels": {"kueue.x-k8s.io/managed": "true", "apps.kubernetes.io/pod-index": index.to_string()},
                "annotations": {"kueue.x-k8s.io/pod-suspending-parent": "statefulset"}},
            "spec": {"containers": [container], "schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}});
        cluster.create_as(&pods(), "default", pod).await;
    }
    names
}

async fn scale(cluster: &Cluster, name: &str, replicas: u32) {
    merge(cluster, &stateful_sets(), name, json!({"spec": {"replicas": replicas}})).await;
}

#[tokio::test(start_paused = true)]
async fn a_stateful_set_starts_whole_and_gives_its_quota_back_while_it_has_no_pods() {
    let cluster = cluster_with_queue(2, json!({})).await;
    let _controller = controller(&cluster);
    submit_pod(&cluster, "first", json!({})).await;
    runs(&cluster, "first").await;
    let set = submit_set(&cluster, "serve", 2).await;
    let names = submit_pods_of(&cluster, &set, 2).await;
    let uid = set.metadata.uid.clone().unwrap();
    let name = JobKind::of_framework("statefulset").unwrap().workload_name("serve", &uid);
    workload(&cluster, &name, |workload| is(workload, "QuotaReserved", "False", "Pending")).await;
    let is_member = |pod: &DynamicObject| {
        pod.metadata.annotations.as_ref().unwrap().contains_key("kueue.x-k8s.io/pod-group-name")
    };
    let pod = cluster.wait(&pods(), "default", &names[0], is_member).await;
    assert_eq!(pod.data["spec"]["schedulingGates"][0]["name"], "kueue.x-k8s.io/admission");
    status_of(&cluster, "first", json!({"phase": "Succeeded"})).await;
    for name in &names {
        runs(&cluster, name).await;
    }
    let found = workload(&cluster, &name, |workload| is(workload, "PodsReady", "True", "Started")).await;
    let owners: Vec<String> =
        found.metadata.owner_references.unwrap().into_iter().map(|owner| owner.kind).collect();
    assert_eq!(owners, ["StatefulSet", "Pod", "Pod"]);

    scale(&cluster, "serve", 0).await;
    for name in &names {
        cluster.delete_now(&pods(), "default", name).await;
    }
    workload(&cluster, &name, |workload| is(workload, "QuotaReserved", "False", "OnHold")).await;
    submit_pod(&cluster, "second", json!({})).await;
    runs(&cluster, "second").await;
    status_of(&cluster, "second", json!({"phase": "Succeeded"})).await;

    scale(&cluster, "serve", 2).await;
    for name in submit_pods_of(&cluster, &set, 2).await {
        runs(&cluster, &name).await;
    }
    cluster.delete(&stateful_sets(), "default", "serve").await;
    cluster.wait_gone(&workloads(), "default", &name).await;
}

/// Pods run until the pod `high` of the class `high` preempts them.
async fn run_until_preempted(cluster: &Cluster, names: &[String]) {
    for name in names {
        runs(cluster, name).await;
    }
    submit_pod(cluster, "high", json!({"labels": {"kueue.x-k8s.io/priority-class": "high"}})).await;
    for name in names {
        cluster.wait_gone(&pods(), "default", name).await;
    }
    runs(cluster, "high").await;
}

#[tokio::test(start_paused = true)]
async fn a_preempted_stateful_set_runs_again_with_new_pods() {
    let preemption = json!({"preemption": {"withinClusterQueue": "LowerPriority"}});
    let cluster = cluster_with_queue(2, preemption).await;
    priority_class(&cluster, "high", 100).await;
    let _controller = controller(&cluster);
    let set = submit_set(&cluster, "serve", 2).await;
    let names = submit_pods_of(&cluster, &set, 2).await;
    run_until_preempted(&cluster, &names).await;
    submit_pods_of(&cluster, &set, 2).await;
    status_of(&cluster, "high", json!({"phase": "Succeeded"})).await;
    for name in &names {
        runs(&cluster, name).await;
    }
}

/// A set of groups of a leader and one worker in the queue `team`, as the webhook leaves it.
async fn submit_groups(cluster: &Cluster, name: &str, groups: u32) -> DynamicObject {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}},
        "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]});
    let template = json!({"spec": {"containers": [container]}});
    let labels = json!({"kueue.x-k8s.io/queue-name": "team"});
    let set = json!({"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet",
        "metadata": {"name": name, "labels": labels},
        "spec": {"replicas": groups, "leaderWorkerTemplate":
            {"size": 2, "leaderTemplate": template, "workerTemplate": template}}});
    cluster.create_as(&sets_of_groups(), "default", set).await
}

fn sets_of_groups() -> ApiResource {
    resource("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "leaderworkersets")
}

/// The pods of a group, as the controllers of its set and the webhook make them.
async fn submit_group(cluster: &Cluster, set: &str, group: u32) -> [String; 2] {
    let leader = format!("{set}-{group}");
    let names = [leader.clone(), format!("{leader}-1")];
    for (index, name) in names.iter().enumerate() {
        let own = |key: &str| format!("leaderworkerset.sigs.k8s.io/{key}");
        let labels = json!({"kueue.x-k8s.io/managed": "true", "kueue.x-k8s.io/queue-name": "team",
            own("name"): set, own("group-index"): group.to_string(), own("worker-index"): index.to_string()});
        let mut annotations = json!({"kueue.x-k8s.io/pod-group-serving": "true",
            "kueue.x-k8s.io/pod-suspending-parent": "leaderworkerset.x-k8s.io/leaderworkerset"});
        if index > 0 {
            annotations[own("leader-name")] = json!(leader);
        }
        let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}});
        let pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "labels": labels, "annotations": annotations},
            "spec": {"containers": [container], "schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}});
        cluster.create_as(&pods(), "default", pod).await;
    }
    names
}

async fn cluster_with_groups(preemption: serde_json::Value) -> Cluster {
    let cluster = cluster_with_queue(2, preemption).await;
    cluster.define("leaderworkerset.x-k8s.io", "LeaderWorkerSet", "leaderworkersets", &["v1"]).await;
    cluster
}

/// The name of the Workload of a group.
fn of_group(set: &DynamicObject, group: u32) -> String {
    let kind = JobKind::of_framework("leaderworkerset.x-k8s.io/leaderworkerset").unwrap();
    let (name, uid) = (set.metadata.name.as_ref().unwrap(), set.metadata.uid.as_ref().unwrap());
    kind.workload_name(&format!("{name}-{group}"), uid)
}

#[tokio::test(start_paused = true)]
async fn each_group_of_a_leader_worker_set_starts_whole() {
    let cluster = cluster_with_groups(json!({})).await;
    let _controller = controller(&cluster);
    let set = submit_groups(&cluster, "serve", 2).await;
    let [first, second] =
        [submit_group(&cluster, "serve", 0).await, submit_group(&cluster, "serve", 1).await];
    for name in &first {
        runs(&cluster, name).await;
    }
    let found =
        workload(&cluster, &of_group(&set, 0), |workload| is(workload, "PodsReady", "True", "Started")).await;
    let sets: Vec<_> =
        found.data["spec"]["podSets"].as_array().unwrap().iter().map(|set| set["name"].clone()).collect();
    assert_eq!(sets, ["leader", "worker"]);
    let pending = |workload: &DynamicObject| is(workload, "QuotaReserved", "False", "Pending");
    workload(&cluster, &of_group(&set, 1), pending).await;
    let pod = cluster.api(&pods(), "default").get(&second[1]).await.unwrap();
    assert_eq!(pod.data["spec"]["schedulingGates"][0]["name"], "kueue.x-k8s.io/admission");

    // The pods of the first group fail, and their controller makes others: they have the quota of those before them.
    for name in &first {
        cluster.delete_now(&pods(), "default", name).await;
    }
    for name in submit_group(&cluster, "serve", 0).await {
        runs(&cluster, &name).await;
    }

    // A set without groups has no Workloads.
    merge(&cluster, &sets_of_groups(), "serve", json!({"spec": {"replicas": 0}})).await;
    for group in 0..2 {
        cluster.wait_gone(&workloads(), "default", &of_group(&set, group)).await;
    }
    for name in first.iter().chain(&second) {
        cluster.wait_gone(&pods(), "default", name).await;
    }
    submit_pod(&cluster, "next", json!({})).await;
    runs(&cluster, "next").await;
}

#[tokio::test(start_paused = true)]
async fn a_preempted_group_of_a_leader_worker_set_runs_again() {
    let preemption = json!({"preemption": {"withinClusterQueue": "LowerPriority"}});
    let cluster = cluster_with_groups(preemption).await;
    priority_class(&cluster, "high", 100).await;
    priority_class(&cluster, "top", 200).await;
    let _controller = controller(&cluster);
    let set = submit_groups(&cluster, "serve", 1).await;
    let names = submit_group(&cluster, "serve", 0).await;
    run_until_preempted(&cluster, &names).await;
    // A class that the set gets later counts for its groups.
    let class = json!({"metadata": {"labels": {"kueue.x-k8s.io/priority-class": "top"}}});
    merge(&cluster, &sets_of_groups(), "serve", class).await;
    let is_top = |workload: &DynamicObject| workload.data["spec"]["priority"] == 200;
    workload(&cluster, &of_group(&set, 0), is_top).await;
    submit_group(&cluster, "serve", 0).await;
    cluster.wait_gone(&pods(), "default", "high").await;
    for name in &names {
        runs(&cluster, name).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_set_of_many_groups_has_a_workload_for_each() {
    let cluster = cluster_with_groups(json!({})).await;
    let _controller = controller(&cluster);
    let set = submit_groups(&cluster, "serve", 150).await;
    workload(&cluster, &of_group(&set, 149), |_| true).await;
    cluster.settled().await;
    let count = async || {
        cluster
            .api(&workloads(), "default")
            .list(&kube::api::ListParams::default())
            .await
            .unwrap()
            .items
            .len()
    };
    assert_eq!(count().await, 150);
    merge(&cluster, &sets_of_groups(), "serve", json!({"spec": {"replicas": 3}})).await;
    cluster.wait_gone(&workloads(), "default", &of_group(&set, 3)).await;
    cluster.settled().await;
    assert_eq!(count().await, 3);
}
