//! An author changes the assignment on wrapped objects, and the controller is restarted before the pods are bound.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::time::Duration;

use crate::common::gang_pods::{cluster, create_pod, host, jobs, pair, run};
use crate::common::{Cluster, Group, Running, wrappers};
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

/// Starts the pairs `a` on n-0 and n-1 and `b` on n-2 and n-3. No pod of them exists yet.
async fn two_pairs() -> (Cluster, Running) {
    let cluster = cluster(&["n-0", "n-1", "n-2", "n-3"]).await;
    let controller = cluster.controller();
    for (name, places) in [("a", r#"[{"n-0":1,"n-1":1}]"#), ("b", r#"[{"n-2":1,"n-3":1}]"#)] {
        cluster.submit(pair(name)).await;
        cluster.wait_state(Group::Mcad, name, "Running", "Dispatched").await;
        assert_eq!(places_of(&job(&cluster, name).await), places);
    }
    (cluster, controller)
}

async fn job(cluster: &Cluster, name: &str) -> DynamicObject {
    cluster.wait(&jobs(), "default", name, |_| true).await
}

fn places_of(job: &DynamicObject) -> String {
    job.metadata.annotations.as_ref().unwrap()["muster.dev/assignment"].clone()
}

/// The author of a gang writes an annotation of its Job.
async fn write_annotation(cluster: &Cluster, name: &str, value: &Value) {
    let patch = Patch::Merge(json!({"metadata": {"annotations": {"muster.dev/assignment": value}}}));
    cluster.api(&jobs(), "default").patch(name, &PatchParams::default(), &patch).await.unwrap();
    cluster.settled().await;
}

async fn restart(cluster: &Cluster, controller: Running) -> Running {
    drop(controller);
    let controller = cluster.controller();
    cluster.settled().await;
    controller
}

/// Creates the pods of the pairs, those of `a` first, and returns the nodes that they go to.
async fn hosts(cluster: &Cluster) -> Vec<String> {
    let mut hosts = Vec::new();
    for name in ["a", "b"] {
        let job = job(cluster, name).await;
        for pod in [format!("{name}-1"), format!("{name}-2")] {
            create_pod(cluster, &job, &pod).await;
            hosts.push(host(cluster, &pod).await);
        }
    }
    hosts
}

#[tokio::test(start_paused = true)]
async fn places_that_an_author_wrote_are_planned_again_and_take_none_of_others_after_a_restart() {
    for forged in [json!(r#"[{"n-2":1,"n-3":1}]"#), json!(r#"[{"n-2":9}]"#), json!("]["), json!(null)] {
        let (cluster, controller) = two_pairs().await;
        write_annotation(&cluster, "a", &forged).await;
        let _controller = restart(&cluster, controller).await;
        assert_eq!(hosts(&cluster).await, ["n-0", "n-1", "n-2", "n-3"], "{forged}");
        assert_eq!(cluster.violations(), [""; 0], "{forged}");
    }
}

#[tokio::test(start_paused = true)]
async fn places_that_the_author_left_alone_are_kept_over_a_restart() {
    let (cluster, controller) = two_pairs().await;
    let _controller = restart(&cluster, controller).await;
    assert_eq!(hosts(&cluster).await, ["n-0", "n-1", "n-2", "n-3"]);
}

#[tokio::test(start_paused = true)]
async fn gangs_that_an_older_version_started_keep_running_and_open_places_are_planned_again() {
    let (cluster, controller) = two_pairs().await;
    for (name, nodes) in [("a", ["n-0", "n-1"]), ("b", ["n-2", "n-3"])] {
        let job = job(&cluster, name).await;
        for (at, node) in nodes.into_iter().enumerate().filter(|(at, _)| name == "a" || *at == 0) {
            create_pod(&cluster, &job, &format!("{name}-{at}")).await;
            assert_eq!(host(&cluster, &format!("{name}-{at}")).await, node);
            run(&cluster, &format!("{name}-{at}"), node).await;
        }
    }
    drop(controller);
    for name in ["a", "b"] {
        forget_places(&cluster, name).await;
    }
    let _controller = cluster.controller();
    cluster.settled().await;
    create_pod(&cluster, &job(&cluster, "b").await, "b-1").await;
    assert_eq!(host(&cluster, "b-1").await, "n-3", "the open place was planned again");
    run(&cluster, "b-1", "n-3").await;
    tokio::time::sleep(Duration::from_hours(1)).await;
    for name in ["a", "b"] {
        cluster.wait_state(Group::Mcad, name, "Running", "Dispatched").await;
    }
    assert_eq!(cluster.violations(), [""; 0]);
}

/// Removes the record of the places from a status: older versions wrote none.
async fn forget_places(cluster: &Cluster, name: &str) {
    let api = cluster.api(&wrappers(Group::Mcad), "default");
    let mut conditions =
        api.get(name).await.unwrap().data["status"]["conditions"].as_array().unwrap().clone();
    conditions.retain(|condition| condition["type"] != "PlacesReserved");
    let status = Patch::Merge(json!({"status": {"conditions": conditions}}));
    api.patch_status(name, &PatchParams::default(), &status).await.unwrap();
}
