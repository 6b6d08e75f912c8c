//! A Workload of the hub runs in one worker, whatever the others do.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::time::Duration;

use clusters::{ClustersConfig, Dispatcher};
use serde_json::json;

use crate::common::*;

#[tokio::test(start_paused = true)]
async fn a_job_runs_in_one_cluster_and_its_status_and_end_come_back() {
    let world = World::new(&[("east", 4), ("west", 4)]).await;
    let _loop = world.start();
    let workload = world.submit("train", 2).await;
    let cluster = world.runs("train", &workload).await;
    assert_eq!(world.copies("train").await, [&*cluster]);
    let other = if cluster == "east" { "west" } else { "east" };
    world.workers[other].gone(&workloads(), &workload).await;
    let worker = &world.workers[&*cluster];
    let copy = worker.get(&jobs(), "train").await.unwrap();
    let labels = copy.metadata.labels.unwrap();
    assert_eq!(labels["kueue.x-k8s.io/multikueue-origin"], "multikueue");
    assert_eq!(labels["kueue.x-k8s.io/prebuilt-workload-name"], workload);
    assert_eq!(copy.data["spec"]["managedBy"], json!(null));
    let local = world.hub.wait(&workloads(), &workload, |w| check(w).0 == "Ready").await;
    assert_eq!(check(&local).1, format!("The workload got reservation on {cluster:?}"));
    assert_eq!(local.data["status"]["nominatedClusterNames"], json!(null));
    let status = json!({"active": 2, "ready": 2, "startTime": "2023-11-14T22:13:20Z"});
    worker.merge_status(&jobs(), "train", status).await;
    world.hub.wait(&jobs(), "train", |job| job.data["status"]["ready"] == 2).await;
    worker.complete("train").await;
    let ended = |job: &kube::api::DynamicObject| job.data["status"]["conditions"][0]["type"] == "Complete";
    world.hub.wait(&jobs(), "train", ended).await;
    let local = world.hub.wait(&workloads(), &workload, |w| is(w, "Finished", "True", "Succeeded")).await;
    assert_eq!(condition(&local, "Finished").unwrap()["message"], "all done");
    worker.gone(&workloads(), &workload).await;
    worker.gone(&jobs(), "train").await;
    let told = format!("MultiKueue: The workload got reservation on {cluster:?}");
    assert!(world.hub.events().await.contains(&told));
}

#[tokio::test(start_paused = true)]
async fn a_cluster_without_room_does_not_get_the_job() {
    let world = World::new(&[("east", 1), ("west", 4)]).await;
    let _loop = world.start();
    let first = world.submit("first", 3).await;
    assert_eq!(world.runs("first", &first).await, "west");
    let second = world.submit("second", 1).await;
    world.runs("second", &second).await;
    let third = world.submit("third", 3).await;
    for worker in world.workers.values() {
        worker.wait(&workloads(), &third, |w| is(w, "QuotaReserved", "False", "Pending")).await;
    }
    world.workers["west"].complete("first").await;
    assert_eq!(world.runs("third", &third).await, "west");
}

#[tokio::test(start_paused = true)]
async fn what_the_hub_stops_or_deletes_goes_in_the_worker() {
    let world = World::new(&[("east", 4)]).await;
    let _loop = world.start();
    let workload = world.submit("train", 2).await;
    world.runs("train", &workload).await;
    let east = &world.workers["east"];
    let running = json!({"active": 2, "ready": 2, "startTime": "2023-11-14T22:13:20Z"});
    east.merge_status(&jobs(), "train", running).await;
    world.hub.wait(&jobs(), "train", |job| job.data["status"]["active"] == 2).await;
    let active = |is_active: bool| json!({"spec": {"active": is_active}});
    world.hub.merge(&workloads(), "default", &workload, active(false)).await;
    east.gone(&jobs(), "train").await;
    east.gone(&workloads(), &workload).await;
    let released = |w: &kube::api::DynamicObject| condition(w, "QuotaReserved").unwrap()["status"] == "False";
    world.hub.wait(&workloads(), &workload, released).await;
    world.hub.merge(&workloads(), "default", &workload, active(true)).await;
    world.runs("train", &workload).await;
    world.hub.delete(&jobs(), "default", "train").await;
    east.gone(&jobs(), "train").await;
    east.gone(&workloads(), &workload).await;
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_workload_is_deleted_at_the_hub_gets_another_one_and_runs_again() {
    let world = World::new(&[("east", 4)]).await;
    let _loop = world.start();
    let workload = world.submit("train", 2).await;
    world.runs("train", &workload).await;
    let east = &world.workers["east"];
    let running = json!({"active": 2, "ready": 2, "startTime": "2023-11-14T22:13:20Z"});
    east.merge_status(&jobs(), "train", running).await;
    world.hub.wait(&jobs(), "train", |job| job.data["status"]["active"] == 2).await;
    // By its finalizer it is there until the job is gone in the worker; somebody may have taken the finalizer away.
    for is_forced in [false, true] {
        let first = world.hub.get(&workloads(), &workload).await.unwrap().metadata.uid;
        let copy = east.get(&jobs(), "train").await.unwrap().metadata.uid;
        if is_forced {
            let none = json!({"metadata": {"finalizers": null}});
            world.hub.merge(&workloads(), "default", &workload, none).await;
        }
        world.hub.delete(&workloads(), "default", &workload).await;
        world.hub.wait(&workloads(), &workload, |w| w.metadata.uid != first && check(w).0 == "Ready").await;
        assert_ne!(east.get(&jobs(), "train").await.unwrap().metadata.uid, copy);
        world.hub.wait(&jobs(), "train", |job| job.data["spec"]["suspend"] == false).await;
        let running = json!({"active": 2, "ready": 2, "startTime": "2023-11-14T22:13:20Z"});
        east.merge_status(&jobs(), "train", running).await;
        world.hub.wait(&jobs(), "train", |job| job.data["status"]["active"] == 2).await;
    }
}

/// Runs a Job in `east`, with a pod that is there until somebody removes its finalizer. Returns its Workload.
async fn run_with_a_pod_that_stays(world: &World) -> String {
    let workload = world.submit("train", 1).await;
    world.runs("train", &workload).await;
    let east = &world.workers["east"];
    let job = east.get(&jobs(), "train").await.unwrap().metadata;
    let owner = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": job.name, "uid": job.uid,
        "controller": true, "blockOwnerDeletion": true}]);
    let slow = json!({"metadata": {"ownerReferences": owner, "finalizers": ["example.com/slow"]},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    east.create(&resource("v1", "Pod", "pods"), "default", "train-0", slow).await;
    workload
}

/// Deactivates the Workload of this Job: it keeps its quota until its pod is gone.
async fn check_it_keeps_its_quota_until_its_pod_is_gone(
    world: &World,
    workload: &str,
) -> kube::api::DynamicObject {
    let east = &world.workers["east"];
    world.hub.merge(&workloads(), "default", workload, json!({"spec": {"active": false}})).await;
    tokio::time::sleep(Duration::from_mins(2)).await;
    let kept = world.hub.get(&workloads(), workload).await.unwrap();
    assert!(is(&kept, "QuotaReserved", "True", "QuotaReserved"), "{}", kept.data["status"]);
    let without = json!({"metadata": {"finalizers": null}});
    east.merge(&resource("v1", "Pod", "pods"), "default", "train-0", without).await;
    east.gone(&jobs(), "train").await;
    let released = |w: &kube::api::DynamicObject| condition(w, "QuotaReserved").unwrap()["status"] == "False";
    world.hub.wait(&workloads(), workload, released).await
}

#[tokio::test(start_paused = true)]
async fn a_job_is_there_in_the_worker_until_its_pods_are_gone() {
    let world = World::new(&[("east", 4)]).await;
    let _loop = world.start();
    let workload = run_with_a_pod_that_stays(&world).await;
    let running = json!({"active": 1, "ready": 1, "startTime": "2023-11-14T22:13:20Z"});
    world.workers["east"].merge_status(&jobs(), "train", running).await;
    world.hub.wait(&jobs(), "train", |job| job.data["status"]["active"] == 1).await;
    check_it_keeps_its_quota_until_its_pod_is_gone(&world, &workload).await;
}

/// The status of its job has not come back yet: the hub knows of no pod.
#[tokio::test(start_paused = true)]
async fn an_evicted_job_keeps_its_quota_until_its_pods_in_the_worker_are_gone_also_if_it_has_told_none() {
    let world = World::new(&[("east", 4)]).await;
    let _loop = world.start();
    let workload = run_with_a_pod_that_stays(&world).await;
    let released = check_it_keeps_its_quota_until_its_pod_is_gone(&world, &workload).await;
    assert_eq!(released.data["status"]["clusterName"], json!(null));
    world.hub.merge(&workloads(), "default", &workload, json!({"spec": {"active": true}})).await;
    world.runs("train", &workload).await;
}

#[tokio::test(start_paused = true)]
async fn a_job_that_its_own_controller_would_run_here_is_rejected() {
    let world = World::new(&[("east", 4)]).await;
    let _loop = world.start();
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i",
        "resources": {"requests": {"cpu": "1"}}}]}});
    let job = json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "team"}},
        "spec": {"suspend": true, "template": template}});
    world.hub.create(&jobs(), "default", "local", job).await;
    let uid = world.hub.get(&jobs(), "local").await.unwrap().metadata.uid.unwrap();
    let workload = api::kueue::jobs::JOB_KINDS[0].workload_name("local", &uid);
    world.hub.wait(&workloads(), &workload, |w| condition(w, "Evicted").is_some()).await;
    assert!(world.copies("local").await.is_empty());
    let why = "The owner is not managed by Kueue: Expecting spec.managedBy to be \"kueue.x-k8s.io/multikueue\" not \"\"";
    assert!(world.hub.events().await.iter().any(|event| event.ends_with(why)));
}

#[tokio::test(start_paused = true)]
async fn the_incremental_dispatcher_asks_more_clusters_after_five_minutes() {
    let world = World::new(&[("a", 1), ("b", 1), ("c", 4)]).await;
    let death = Death::default();
    let config = ClustersConfig { dispatcher: Dispatcher::Incremental { step: 2 }, ..world.config(&death) };
    let _loop = world.start_with(config, &death);
    // All clusters are connected before the first Workload.
    world
        .hub
        .wait(&kueue("AdmissionCheck", "admissionchecks"), CHECK, |check| {
            is(check, "Active", "True", "Active")
        })
        .await;
    let begun = tokio::time::Instant::now();
    let workload = world.submit("train", 3).await;
    let nominated = |names: serde_json::Value| {
        move |w: &kube::api::DynamicObject| w.data["status"]["nominatedClusterNames"] == names
    };
    world.hub.wait(&workloads(), &workload, nominated(json!(["a", "b"]))).await;
    assert_eq!(world.runs("train", &workload).await, "c");
    assert!(begun.elapsed() >= Duration::from_mins(5), "{:?}", begun.elapsed());
    world.workers["a"].gone(&workloads(), &workload).await;
}

#[tokio::test(start_paused = true)]
async fn an_external_dispatcher_decides_which_clusters_are_asked() {
    let world = World::new(&[("east", 4), ("west", 4)]).await;
    let death = Death::default();
    let config = ClustersConfig { dispatcher: Dispatcher::External, ..world.config(&death) };
    let _loop = world.start_with(config, &death);
    let workload = world.submit("train", 1).await;
    world.hub.wait(&workloads(), &workload, |w| is(w, "QuotaReserved", "True", "QuotaReserved")).await;
    tokio::time::sleep(Duration::from_mins(10)).await;
    for worker in world.workers.values() {
        assert!(worker.names(&workloads()).await.is_empty());
    }
    world.hub.merge_status(&workloads(), &workload, json!({"nominatedClusterNames": ["west"]})).await;
    assert_eq!(world.runs("train", &workload).await, "west");
}

#[tokio::test(start_paused = true)]
async fn more_jobs_than_may_be_written_at_once_all_run() {
    let world = World::new(&[("east", 60)]).await;
    let _loop = world.start();
    let hold = async |policy: &str| {
        let patch = json!({"spec": {"stopPolicy": policy}});
        world.hub.merge(&kueue("ClusterQueue", "clusterqueues"), "", "team", patch).await;
    };
    hold("Hold").await;
    let mut names = Vec::new();
    for number in 0..40 {
        names.push(world.submit(&format!("train-{number}"), 1).await);
    }
    // All get quota in one plan.
    hold("None").await;
    for (number, workload) in names.iter().enumerate() {
        assert_eq!(world.runs(&format!("train-{number}"), workload).await, "east");
    }
}
