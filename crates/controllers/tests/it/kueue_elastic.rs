//! Jobs that change their size while they run: another Workload, with more pods, takes the place of the one that they have.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use crate::common::elastic::*;
use crate::common::gang_pods::{self, host, pods};
use crate::common::jobs::*;
use crate::common::kueue::*;
use crate::common::{Cluster, Running};
use controllers::{Config, JobsConfig, Kueue, KueueOptions, KueueRules};
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

fn controller_with(cluster: &Cluster, rules: KueueRules, jobs: JobsConfig) -> Running {
    let kueue_options = KueueOptions { rules, ..KueueOptions::default() };
    let config = Config { kueue: Kueue::Scheduler, kueue_options, jobs, ..Config::default() };
    cluster.start(cluster.client.clone(), config)
}

fn controller(cluster: &Cluster) -> Running {
    controller_with(cluster, KueueRules::default(), all_kinds())
}

/// Whether so many CPUs of the queue `team` are in use.
async fn uses(cluster: &Cluster, cpus: u32) {
    let is_used =
        |status: &Value| status["flavorsUsage"][0]["resources"][0]["total"] == cpus.to_string().as_str();
    queue_status(cluster, "team", is_used).await;
}

#[tokio::test(start_paused = true)]
async fn a_workload_with_more_pods_takes_the_place_of_another_one_and_only_the_increase_is_new() {
    let cluster = kueue_cluster().await;
    queue(&cluster, "team", 4, json!({})).await;
    let _controller = kueue_controller(&cluster);
    submit(&cluster, "first", "team", 0, 3, 1).await;
    admitted(&cluster, "first").await;
    replace(&cluster, "larger", "first", 4).await;
    let larger = admitted(&cluster, "larger").await;
    let given = &larger.data["status"]["admission"]["podSetAssignments"][0];
    assert_eq!((&given["count"], &given["resourceUsage"]["cpu"]), (&json!(4), &json!("4")));
    let first = cluster.wait(&workloads(), "default", "first", is_replaced).await;
    let uid = larger.metadata.uid.unwrap();
    let text = format!(
        "Replaced to accommodate a workload (UID: {uid}, JobUID: ) due to workload slice aggregation"
    );
    assert_eq!(condition(&first, "Finished").unwrap()["message"], text);
    uses(&cluster, 4).await;
    replace(&cluster, "huge", "larger", 6).await;
    let message = waits(&cluster, "huge", "Pending").await;
    let expected = "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, 2 more needed";
    assert_eq!(message, expected);
    let told = cluster.events().await;
    assert!(
        told.iter().any(|event| event.starts_with("first WorkloadSliceReplaced: Replaced to")),
        "{told:#?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_workload_that_takes_the_place_of_one_in_another_queue_leaves_it_its_quota_until_it_ends() {
    let cluster = kueue_cluster().await;
    let strategy = json!({"admissionChecks": [{"name": "budget"}]});
    queue(&cluster, "team", 4, json!({})).await;
    queue(&cluster, "other", 4, json!({"admissionChecksStrategy": strategy})).await;
    let check = json!({"controllerName": "example.com/budget"});
    create(&cluster, "AdmissionCheck", "admissionchecks", "budget", check).await;
    let active = json!([{"type": "Active", "status": "True", "reason": "Active", "message": "",
        "lastTransitionTime": "2023-11-14T22:13:20Z"}]);
    let active = Patch::Merge(json!({"status": {"conditions": active}}));
    let checks = cluster.api(&kind("AdmissionCheck", "admissionchecks"), "");
    checks.patch_status("budget", &PatchParams::default(), &active).await.unwrap();
    let _controller = kueue_controller(&cluster);
    submit(&cluster, "first", "team", 0, 3, 1).await;
    admitted(&cluster, "first").await;
    let mut larger =
        serde_json::to_value(cluster.api(&workloads(), "default").get("first").await.unwrap()).unwrap();
    larger["metadata"] = json!({"name": "larger", "annotations": {
        "kueue.x-k8s.io/workload-slice-replacement-for": "default/first"}});
    larger["spec"]["queueName"] = "other".into();
    larger["status"] = Value::Null;
    cluster.create_as(&workloads(), "default", larger).await;
    let has_quota = |found: &DynamicObject| is(found, "QuotaReserved", "True", "QuotaReserved");
    cluster.wait(&workloads(), "default", "larger", has_quota).await;
    submit(&cluster, "next", "team", 0, 3, 1).await;
    waits(&cluster, "next", "Pending").await;
    uses(&cluster, 3).await;
}

#[tokio::test(start_paused = true)]
async fn a_workload_grows_in_its_own_flavor_alone() {
    let cluster = kueue_cluster().await;
    create(&cluster, "ResourceFlavor", "resourceflavors", "spot", json!({})).await;
    let flavor =
        |name: &str, cpus: u32| json!({"name": name, "resources": [{"name": "cpu", "nominalQuota": cpus}]});
    let groups = json!([{"coveredResources": ["cpu"], "flavors": [flavor("default", 2), flavor("spot", 9)]}]);
    queue(&cluster, "team", 2, json!({"resourceGroups": groups})).await;
    let _controller = kueue_controller(&cluster);
    submit(&cluster, "first", "team", 0, 1, 1).await;
    admitted(&cluster, "first").await;
    replace(&cluster, "larger", "first", 3).await;
    let message = waits(&cluster, "larger", "Pending").await;
    let expected = "couldn't assign flavors to pod set main: could not assign spot flavor since the original workload is \
                    assigned: default, insufficient unused quota for cpu in flavor default, 1 more needed";
    assert_eq!(message, expected);
    assert!(is(&admitted(&cluster, "first").await, "Admitted", "True", "Admitted"));
}

#[tokio::test(start_paused = true)]
async fn with_the_feature_gate_off_a_workload_replaces_no_other() {
    let cluster = kueue_cluster().await;
    queue(&cluster, "team", 4, json!({})).await;
    let rules = KueueRules { slices: false, ..KueueRules::default() };
    let _controller = controller_with(&cluster, rules, all_kinds());
    submit(&cluster, "first", "team", 0, 2, 1).await;
    admitted(&cluster, "first").await;
    replace(&cluster, "larger", "first", 3).await;
    let message = waits(&cluster, "larger", "Pending").await;
    assert!(message.ends_with("1 more needed"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn a_job_grows_while_it_runs() {
    let cluster = cluster_with_queue(4, json!({})).await;
    let _controller = controller(&cluster);
    submit_job(&cluster, elastic("train", 2)).await;
    let train = running(&cluster, "train").await;
    let template = &train.data["spec"]["template"];
    let first = slice(&cluster, "train", 1, is_admitted).await;
    let name = first.metadata.name.clone().unwrap();
    assert_eq!(template["metadata"]["annotations"]["kueue.x-k8s.io/workload-slice-name"], name);
    assert_eq!(template["spec"]["schedulingGates"], json!([{"name": "kueue.x-k8s.io/elastic-job"}]));
    let generation = resize(&cluster, "train", 4).await;
    let second = slice(&cluster, "train", generation, is_admitted).await;
    let annotations = second.metadata.annotations.clone().unwrap();
    assert_eq!(annotations["kueue.x-k8s.io/workload-slice-name"], name);
    assert_eq!(annotations["kueue.x-k8s.io/workload-slice-replacement-for"], format!("default/{name}"));
    assert_eq!(annotations["kueue.x-k8s.io/elastic-job"], "true");
    // As its author wrote it, without what the admission of the first one has added.
    let template = &second.data["spec"]["podSets"][0]["template"];
    assert_eq!(template["spec"]["nodeSelector"], Value::Null);
    slice(&cluster, "train", 1, is_replaced).await;
    uses(&cluster, 4).await;
    assert_eq!(
        running(&cluster, "train").await.metadata.generation,
        Some(generation),
        "it was never stopped"
    );
    status(
        &cluster,
        "train",
        json!({"conditions": [{"type": "Complete", "status": "True", "message": "done"}]}),
    )
    .await;
    slice(&cluster, "train", generation, |workload| is(workload, "Finished", "True", "Succeeded")).await;
    uses(&cluster, 0).await;
}

#[tokio::test(start_paused = true)]
async fn growth_waits_for_quota_while_the_job_runs_on() {
    let cluster = cluster_with_queue(4, json!({})).await;
    let _controller = controller(&cluster);
    submit_job(&cluster, job("other", 2)).await;
    running(&cluster, "other").await;
    submit_job(&cluster, elastic("train", 2)).await;
    running(&cluster, "train").await;
    let generation = resize(&cluster, "train", 4).await;
    let waits = |workload: &DynamicObject| is(workload, "QuotaReserved", "False", "Pending");
    let second = slice(&cluster, "train", generation, waits).await;
    let message = condition(&second, "QuotaReserved").unwrap()["message"].as_str().unwrap().to_owned();
    assert!(message.ends_with("insufficient unused quota for cpu in flavor gpu, 2 more needed"), "{message}");
    // The same Workload asks for what the job wants by now.
    resize(&cluster, "train", 3).await;
    slice(&cluster, "train", generation, |workload| count(workload) == 3).await;
    uses(&cluster, 4).await;
    running(&cluster, "train").await;
    let complete = json!({"type": "Complete", "status": "True", "message": "done"});
    status(&cluster, "other", json!({"conditions": [complete]})).await;
    slice(&cluster, "train", generation, is_admitted).await;
    slice(&cluster, "train", 1, is_replaced).await;
    uses(&cluster, 3).await;
}

#[tokio::test(start_paused = true)]
async fn a_job_that_shrinks_gives_quota_back_and_keeps_its_workload() {
    let cluster = cluster_with_queue(4, json!({})).await;
    let _controller = controller(&cluster);
    submit_job(&cluster, elastic("train", 4)).await;
    running(&cluster, "train").await;
    submit_job(&cluster, job("next", 2)).await;
    workload_of(&cluster, "next", |workload| is(workload, "QuotaReserved", "False", "Pending")).await;
    resize(&cluster, "train", 1).await;
    running(&cluster, "next").await;
    let first = slice(&cluster, "train", 1, |workload| count(workload) == 1 && is_admitted(workload)).await;
    uses(&cluster, 3).await;
    // What is left is enough to grow again.
    let generation = resize(&cluster, "train", 2).await;
    slice(&cluster, "train", generation, is_admitted).await;
    slice(&cluster, "train", 1, is_replaced).await;
    uses(&cluster, 4).await;
    assert_eq!(cluster.names(&workloads(), "default").await.len(), 3, "{first:?}");
}

#[tokio::test(start_paused = true)]
async fn a_job_that_grows_preempts_others_and_never_itself() {
    let preemption = json!({"preemption": {"withinClusterQueue": "LowerPriority"}});
    let cluster = cluster_with_queue(4, preemption).await;
    priority_class(&cluster, "high", 100).await;
    let _controller = controller(&cluster);
    submit_job(&cluster, job("low", 2)).await;
    running(&cluster, "low").await;
    status(&cluster, "low", json!({"active": 2, "startTime": "2026-01-01T00:00:00Z"})).await;
    let mut train = elastic("train", 2);
    train["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = "high".into();
    submit_job(&cluster, train).await;
    running(&cluster, "train").await;
    let generation = resize(&cluster, "train", 4).await;
    stopped(&cluster, "low").await;
    status(&cluster, "low", json!({"active": 0})).await;
    slice(&cluster, "train", generation, is_admitted).await;
    slice(&cluster, "train", 1, is_replaced).await;
    uses(&cluster, 4).await;
    running(&cluster, "train").await;
}

#[tokio::test(start_paused = true)]
async fn a_growing_job_that_is_preempted_stops_and_comes_back_with_its_new_size() {
    let preemption = json!({"preemption": {"withinClusterQueue": "LowerPriority"}});
    let cluster = cluster_with_queue(4, preemption).await;
    priority_class(&cluster, "high", 100).await;
    let _controller = controller(&cluster);
    submit_job(&cluster, elastic("train", 3)).await;
    running(&cluster, "train").await;
    status(&cluster, "train", json!({"active": 3, "startTime": "2026-01-01T00:00:00Z"})).await;
    let generation = resize(&cluster, "train", 4).await;
    slice(&cluster, "train", generation, is_admitted).await;
    let wanted = resize(&cluster, "train", 5).await;
    slice(&cluster, "train", wanted, |workload| is(workload, "QuotaReserved", "False", "Pending")).await;
    let mut high = job("high", 2);
    high["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = "high".into();
    submit_job(&cluster, high).await;
    let train = stopped(&cluster, "train").await;
    let template = &train.data["spec"]["template"];
    assert_eq!(template["spec"]["nodeSelector"], Value::Null);
    assert_eq!(template["metadata"]["annotations"], Value::Null);
    let waits = |workload: &DynamicObject| is(workload, "QuotaReserved", "True", "QuotaReserved");
    slice(&cluster, "train", generation, waits).await;
    // Its quota is free when its pods are gone.
    status(&cluster, "train", json!({"active": 0})).await;
    running(&cluster, "high").await;
    slice(&cluster, "train", generation, is_replaced).await;
    merge(&cluster, &jobs(), "train", json!({"spec": {"parallelism": 4}})).await;
    slice(&cluster, "train", wanted, |workload| count(workload) == 4).await;
    let complete = json!({"type": "Complete", "status": "True", "message": "done"});
    status(&cluster, "high", json!({"conditions": [complete]})).await;
    let train = running(&cluster, "train").await;
    assert_eq!(train.data["spec"]["template"]["spec"]["nodeSelector"], json!({"pool": "gpu"}));
    slice(&cluster, "train", wanted, is_admitted).await;
    uses(&cluster, 4).await;
}

#[tokio::test(start_paused = true)]
async fn as_many_pods_run_as_there_is_quota_for() {
    let cluster = cluster_with_queue(3, json!({})).await;
    let _controller = controller(&cluster);
    submit_job(&cluster, elastic("train", 2)).await;
    let train = running(&cluster, "train").await;
    for name in ["a", "b", "c"] {
        create_pod(&cluster, &train, name).await;
    }
    for name in ["a", "b"] {
        cluster.wait(&pods(), "default", name, is_free).await;
    }
    cluster.settled().await;
    assert!(!is_free(&cluster.api(&pods(), "default").get("c").await.unwrap()));
    let done = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
    let api = cluster.api(&pods(), "default");
    api.patch_status("a", &PatchParams::default(), &done).await.unwrap();
    cluster.wait(&pods(), "default", "c", is_free).await;
    create_pod(&cluster, &train, "d").await;
    cluster.settled().await;
    assert!(!is_free(&cluster.api(&pods(), "default").get("d").await.unwrap()));
    let generation = resize(&cluster, "train", 3).await;
    slice(&cluster, "train", generation, is_admitted).await;
    // It names the first Workload, which has ended and may be gone.
    cluster.wait(&pods(), "default", "d", is_free).await;
}

#[tokio::test(start_paused = true)]
async fn a_job_that_grows_keeps_its_nodes_and_gets_more() {
    let cluster = gang_pods::cluster(&["a", "b"]).await;
    for name in ["a", "b"] {
        gang_pods::patch_node(&cluster, name, &json!({"metadata": {"labels": {"pool": "gpu"}}})).await;
    }
    install(&cluster).await;
    gpu_queue(&cluster, 100, json!({})).await;
    let rules = KueueRules { places_pods: true, ..KueueRules::default() };
    let _controller = controller_with(&cluster, rules, all_kinds());
    let mut train = elastic("train", 4);
    train["spec"]["completions"] = json!(9);
    submit_job(&cluster, train).await;
    let train = running(&cluster, "train").await;
    for name in ["p0", "p1", "p2", "p3"] {
        create_pod(&cluster, &train, name).await;
        cluster.wait(&pods(), "default", name, is_free).await;
        assert_eq!(host(&cluster, name).await, "a");
        gang_pods::run(&cluster, name, "a").await;
    }
    let generation = resize(&cluster, "train", 6).await;
    let second = slice(&cluster, "train", generation, is_admitted).await;
    let places = &second.data["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"];
    assert_eq!(places["slices"][0]["podCounts"]["individual"], json!([4, 2]), "{places}");
    for name in ["p4", "p5"] {
        create_pod(&cluster, &train, name).await;
        cluster.wait(&pods(), "default", name, is_free).await;
        assert_eq!(host(&cluster, name).await, "b");
        gang_pods::run(&cluster, name, "b").await;
    }
    // Two nodes have room for eight.
    let generation = resize(&cluster, "train", 9).await;
    slice(&cluster, "train", generation, |workload| is(workload, "QuotaReserved", "False", "Pending")).await;
}

#[tokio::test(start_paused = true)]
async fn the_job_runs_on_while_the_checks_of_its_growth_are_open_or_fail() {
    let cluster = kueue_cluster().await;
    active_check(&cluster, "budget").await;
    let rule = json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "budget"}]}});
    gpu_queue(&cluster, 4, rule).await;
    let _controller = controller(&cluster);
    submit_job(&cluster, elastic("train", 2)).await;
    let name = slice(&cluster, "train", 1, has_quota).await.metadata.name.unwrap();
    answer(&cluster, &name, "Ready").await;
    running(&cluster, "train").await;
    let generation = resize(&cluster, "train", 3).await;
    let second = slice(&cluster, "train", generation, has_quota).await.metadata.name.unwrap();
    queue_status(&cluster, "team", |status| {
        status["flavorsReservation"][0]["resources"][0]["total"] == "3" && status["reservingWorkloads"] == 1
    })
    .await;
    answer(&cluster, &second, "Retry").await;
    let has_returned = |workload: &DynamicObject| {
        workload.data["status"]["schedulingStats"]["evictions"][0]["count"] == 1 && has_quota(workload)
    };
    slice(&cluster, "train", generation, has_returned).await;
    assert!(is_admitted(&slice(&cluster, "train", 1, is_admitted).await));
    running(&cluster, "train").await;
    answer(&cluster, &second, "Ready").await;
    slice(&cluster, "train", generation, is_admitted).await;
    slice(&cluster, "train", 1, is_replaced).await;
    assert_eq!(
        running(&cluster, "train").await.metadata.generation,
        Some(generation),
        "it was never stopped"
    );
}

#[tokio::test(start_paused = true)]
async fn with_the_feature_gate_off_a_job_that_changes_its_size_is_queued_again() {
    let cluster = cluster_with_queue(4, json!({})).await;
    let rules = KueueRules { slices: false, ..KueueRules::default() };
    let _controller = controller_with(&cluster, rules, JobsConfig { slices: false, ..all_kinds() });
    submit_job(&cluster, elastic("train", 2)).await;
    running(&cluster, "train").await;
    workload_of(&cluster, "train", is_admitted).await;
    merge(&cluster, &jobs(), "train", json!({"spec": {"parallelism": 1}})).await;
    let smaller =
        workload_of(&cluster, "train", |workload| count(workload) == 1 && is_admitted(workload)).await;
    assert!(!smaller.metadata.annotations.unwrap_or_default().contains_key("kueue.x-k8s.io/elastic-job"));
    running(&cluster, "train").await;
}

#[tokio::test(start_paused = true)]
async fn a_ray_cluster_grows_and_its_groups_change_places() {
    let cluster = cluster_with_queue(5, json!({})).await;
    let _controller = controller(&cluster);
    let clusters = Jobs::of(&cluster, "ray.io/raycluster");
    clusters.install().await;
    let group = |name: &str, workers: u32| json!({"groupName": name, "replicas": workers, "numOfHosts": 1, "template": template()});
    let spec = |one: u32, other: u32| json!({"headGroupSpec": {"template": template()}, "workerGroupSpecs": [group("one", one), group("other", other)]});
    let annotations = json!({"annotations": {"kueue.x-k8s.io/elastic-job": "true"}});
    clusters.submit_with("ray", annotations, spec(1, 1)).await;
    let ray = clusters.running("ray").await;
    let gates = |pointer: &str| ray.data.pointer(pointer).unwrap()["spec"]["schedulingGates"].clone();
    for pointer in ["/spec/headGroupSpec/template", "/spec/workerGroupSpecs/1/template"] {
        assert_eq!(gates(pointer), json!([{"name": "kueue.x-k8s.io/elastic-job"}]), "{pointer}");
    }
    let resize = async |one: u32, other: u32| {
        let mut ray = clusters.get("ray").await;
        ray.data["spec"]["workerGroupSpecs"][0]["replicas"] = one.into();
        ray.data["spec"]["workerGroupSpecs"][1]["replicas"] = other.into();
        clusters
            .merge("ray", json!({"spec": {"workerGroupSpecs": ray.data["spec"]["workerGroupSpecs"]}}))
            .await;
        clusters.get("ray").await
    };
    let grown = resize(3, 1).await;
    let second = slice_of("ray.io/raycluster", &grown, None);
    cluster.wait(&workloads(), "default", &second, is_admitted).await;
    uses(&cluster, 5).await;
    // One group takes what the other one gives back.
    let moved = resize(1, 3).await;
    let third = slice_of("ray.io/raycluster", &moved, None);
    cluster.wait(&workloads(), "default", &third, is_admitted).await;
    cluster.wait(&workloads(), "default", &second, is_replaced).await;
    uses(&cluster, 5).await;
}

#[tokio::test(start_paused = true)]
async fn a_ray_job_follows_the_size_of_its_cluster() {
    let cluster = cluster_with_queue(5, json!({})).await;
    let _controller = controller(&cluster);
    let [jobs, clusters] = ["ray.io/rayjob", "ray.io/raycluster"].map(|name| Jobs::of(&cluster, name));
    jobs.install().await;
    let annotations = json!({"annotations": {"kueue.x-k8s.io/elastic-job": "true"}});
    let mut spec = ray_job(1);
    spec["rayClusterSpec"]["enableInTreeAutoscaling"] = true.into();
    spec["rayClusterSpec"]["autoscalerOptions"] = json!({"resources": {"requests": {"cpu": "1"}}});
    let ray = jobs.submit_with("ray", annotations.clone(), spec.clone()).await;
    jobs.running("ray").await;
    let owner = json!([{"apiVersion": "ray.io/v1", "kind": "RayJob", "controller": true, "name": "ray", "uid": ray.metadata.uid}]);
    let mut metadata = annotations;
    metadata["ownerReferences"] = owner;
    clusters.submit_with("ray-abcde", metadata, spec["rayClusterSpec"].clone()).await;
    clusters.merge("ray-abcde", json!({"spec": {"suspend": false}})).await;
    jobs.status("ray", &json!({"jobDeploymentStatus": "Running", "rayClusterName": "ray-abcde"})).await;
    // The autoscaler of Ray asks for more workers.
    let group = json!([{"groupName": "Small", "replicas": 3, "numOfHosts": 1, "template": template()}]);
    clusters.merge("ray-abcde", json!({"spec": {"workerGroupSpecs": group}})).await;
    let [job, child] = [jobs.get("ray").await, clusters.get("ray-abcde").await];
    let second = slice_of("ray.io/rayjob", &job, Some(&child));
    let second = cluster.wait(&workloads(), "default", &second, is_admitted).await;
    assert_eq!(second.data["spec"]["podSets"][1]["count"], 3);
    uses(&cluster, 5).await;
    assert_eq!(clusters.get("ray-abcde").await.data["spec"]["suspend"], false);
}
