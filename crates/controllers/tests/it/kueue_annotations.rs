//! What an author says of a job in a queue (how long it runs, its checkpoint, its protection), and what its namespace allows.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::time::Duration;

use crate::common::jobs::*;
use crate::common::kueue::*;
use crate::common::{Cluster, Running};
use api::kueue::jobs::new_gang_annotations;
use controllers::{Config, Kueue};
use kube::api::DynamicObject;
use model::Gang;
use serde_json::{Value, json};

fn controller(cluster: &Cluster) -> Running {
    let config = Config { kueue: Kueue::Scheduler, jobs: all_kinds(), ..Config::default() };
    cluster.start(cluster.client.clone(), config)
}

fn gang(controller: &Running, name: &str) -> Gang {
    let index = controller.index.read().unwrap();
    index.world().gangs().find(|gang| gang.key.name == name).unwrap().clone()
}

async fn workload(cluster: &Cluster, name: &str, priority: i32, annotations: Value) {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": 1}}});
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
    let body = json!({"apiVersion": VERSION, "kind": "Workload", "metadata": {"name": name, "annotations": annotations},
        "spec": {"queueName": "team", "priority": priority, "active": true,
            "podSets": [{"name": "main", "count": 1, "template": template}]}});
    cluster.create_as(&workloads(), "default", body).await;
}

async fn told(cluster: &Cluster, text: &str) -> bool {
    cluster.events().await.iter().any(|event| event == text)
}

#[tokio::test(start_paused = true)]
async fn a_workload_follows_the_annotations_of_its_job() {
    let cluster = cluster_with_queue(2, json!({})).await;
    let controller = controller(&cluster);
    let mut train = job("train", 1);
    train["metadata"]["annotations"] =
        json!({"muster.dev/expected-duration": "10m", "muster.dev/protected": "true"});
    submit_job(&cluster, train).await;
    let admitted = |workload: &DynamicObject| is(workload, "Admitted", "True", "Admitted");
    let name = workload_of(&cluster, "train", admitted).await.metadata.name.unwrap();
    let known = gang(&controller, &name);
    assert_eq!((known.runs_us, known.protected), (Some(600_000_000), false));
    let refusal = format!(
        "{name} ProtectionNotAllowed: annotation muster.dev/protected has no effect: namespace default has no annotation \
         muster.dev/allow-protected: \"true\""
    );
    assert!(told(&cluster, &refusal).await, "{:#?}", cluster.events().await);

    cluster
        .annotate_namespace("default", &json!({"annotations": {"muster.dev/allow-protected": "true"}}))
        .await;
    assert!(gang(&controller, &name).protected);
    let changed = json!({"muster.dev/protected": null, "muster.dev/checkpointed-at": "2026-11-21T09:30:00Z"});
    merge(&cluster, &jobs(), "train", json!({"metadata": {"annotations": changed}})).await;
    let follows = |workload: &DynamicObject| {
        let known = workload.metadata.annotations.clone().unwrap_or_default();
        known.contains_key("muster.dev/checkpointed-at") && !known.contains_key("muster.dev/protected")
    };
    workload_of(&cluster, "train", follows).await;
    cluster.settled().await;
    let known = gang(&controller, &name);
    assert_eq!(known.checkpointed_at.unwrap().to_string(), "2026-11-21T09:30:00Z");
    assert!(!known.protected);
}

/// A Workload that was there before its job is not the job's: what its author wrote stays.
#[test]
fn a_prebuilt_workload_keeps_its_own_annotations() {
    let workload = json!({"metadata": {"annotations": {"muster.dev/protected": "true"}}});
    let mut job = json!({"metadata": {"annotations": {"muster.dev/expected-duration": "1h"}}});
    let all = json!({"muster.dev/expected-duration": "1h", "muster.dev/protected": null});
    assert_eq!(Value::from(new_gang_annotations(&job, &workload)), all);
    job["metadata"]["labels"] = json!({"kueue.x-k8s.io/prebuilt-workload-name": "w"});
    let own = json!({"muster.dev/expected-duration": "1h"});
    assert_eq!(Value::from(new_gang_annotations(&job, &workload)), own);
}

#[tokio::test(start_paused = true)]
async fn a_priority_counts_as_the_greatest_one_of_the_namespace() {
    let cluster = kueue_cluster().await;
    cluster.annotate_namespace("default", &json!({"annotations": {"muster.dev/priority-max": "10"}})).await;
    queue(&cluster, "team", 1, json!({"preemption": {"withinClusterQueue": "LowerPriority"}})).await;
    let controller = kueue_controller(&cluster);
    workload(&cluster, "low", 10, json!({})).await;
    admitted(&cluster, "low").await;
    workload(&cluster, "high", 1_000, json!({})).await;
    waits(&cluster, "high", "Pending").await;
    assert_eq!(gang(&controller, "high").priority, 10_000);
    let text = "high PriorityLimited: priority 1000 counts as 10, the maximum of namespace default";
    assert!(told(&cluster, text).await, "{:#?}", cluster.events().await);

    cluster.annotate_namespace("default", &json!({"annotations": {"muster.dev/priority-max": "20"}})).await;
    let evicted = |object: &DynamicObject| is(object, "Evicted", "True", "Preempted");
    cluster.wait(&workloads(), "default", "low", evicted).await;
}

#[tokio::test(start_paused = true)]
async fn a_protected_workload_is_no_victim() {
    let cluster = kueue_cluster().await;
    cluster
        .annotate_namespace("default", &json!({"annotations": {"muster.dev/allow-protected": "true"}}))
        .await;
    queue(&cluster, "team", 1, json!({"preemption": {"withinClusterQueue": "LowerPriority"}})).await;
    let _controller = kueue_controller(&cluster);
    workload(&cluster, "low", 0, json!({"muster.dev/protected": "true"})).await;
    admitted(&cluster, "low").await;
    workload(&cluster, "high", 9, json!({"muster.dev/expected-duration": "soon"})).await;
    waits(&cluster, "high", "Pending").await;
    let text = "high AnnotationIgnored: annotation muster.dev/expected-duration is ignored: \"soon\" is no duration such as 90s or 2h30m";
    assert!(told(&cluster, text).await, "{:#?}", cluster.events().await);

    merge(
        &cluster,
        &workloads(),
        "low",
        json!({"metadata": {"annotations": {"muster.dev/protected": null}}}),
    )
    .await;
    let evicted = |object: &DynamicObject| is(object, "Evicted", "True", "Preempted");
    cluster.wait(&workloads(), "default", "low", evicted).await;
}

/// Whoever declares too little passes others no longer: for a day, the declared run times of the namespace count as many times over.
#[tokio::test(start_paused = true)]
async fn a_run_that_lasts_longer_than_declared_counts_for_the_next_one() {
    let cluster = kueue_cluster().await;
    queue(&cluster, "team", 1, json!({})).await;
    let controller = kueue_controller(&cluster);
    let minute = || json!({"muster.dev/expected-duration": "1m"});
    workload(&cluster, "liar", 0, minute()).await;
    admitted(&cluster, "liar").await;
    tokio::time::sleep(Duration::from_mins(10)).await;
    workload(&cluster, "probe", 0, json!({})).await; // The controller looks at the time when something happens.
    waits(&cluster, "probe", "Pending").await;
    workload(&cluster, "next", 0, minute()).await;
    waits(&cluster, "next", "Pending").await;
    assert_eq!(gang(&controller, "next").runs_us, Some(16 * 60_000_000));
    assert_eq!(gang(&controller, "liar").runs_us, Some(60_000_000));
    let text = "next RunTimeStretched: the declared run time counts 16 times: gangs of namespace default have run longer than they declared";
    assert!(told(&cluster, text).await, "{:#?}", cluster.events().await);
}
