//! Jobs whose Workload the API server refuses, or which would need too many: they are told what to change.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::time::Duration;

use crate::common::jobs::*;
use crate::common::kueue::*;
use crate::common::{Cluster, Running, resource};
use controllers::{Config, Kueue};
use serde_json::{Value, json};

fn controller(cluster: &Cluster) -> Running {
    let config = Config { kueue: Kueue::Scheduler, jobs: all_kinds(), ..Config::default() };
    cluster.start(cluster.client.clone(), config)
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
    }
    let groups = json!([group("Small", 1), group("other", 1)]);
    clusters.merge("twice", json!({"spec": {"workerGroupSpecs": groups}})).await;
    clusters.running("twice").await;
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
