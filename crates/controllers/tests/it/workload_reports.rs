//! What `muster why` and `muster plan` say about Workloads of Kueue.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use crate::common;
use crate::common::Cluster;
use crate::common::kueue::*;
use controllers::{
    Config, Controller, GangKind, Kueue, Observer, WorkloadQueue, WorkloadReportPhase, publish_kueue_options,
    published_config,
};
use kube::api::{Patch, PatchParams};
use model::GangStatus;
use serde_json::{Value, json};

async fn observer(cluster: &Cluster) -> Observer {
    let config = Config { kueue: Kueue::Scheduler, clock: cluster.clock.clone(), ..Config::default() };
    Observer::of(cluster.client.clone(), config).await.unwrap()
}

/// What is said about a Workload.
async fn why(cluster: &Cluster, name: &str) -> WorkloadReportPhase {
    let observer = observer(cluster).await;
    let phase = observer.why("default", name)[0].workload().unwrap().phase.clone();
    observer.close().await;
    phase
}

/// The causes why a Workload is not queued.
async fn not_queued(cluster: &Cluster, name: &str) -> Vec<String> {
    let phase = why(cluster, name).await;
    let WorkloadReportPhase::NotQueued(causes) = phase else { panic!("{name}: {phase:?}") };
    causes
}

async fn patch(cluster: &Cluster, kind: &str, plural: &str, name: &str, change: Value) {
    let namespace = if ["Workload", "LocalQueue"].contains(&kind) { "default" } else { "" };
    let api = cluster.api(&common::kueue::kind(kind, plural), namespace);
    api.patch(name, &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_pending_workload_is_told_its_position_its_shortage_and_its_expected_start() {
    let cluster = kueue_cluster().await;
    queue(&cluster, "team", 4, json!({})).await;
    let _controller = kueue_controller(&cluster);
    submit(&cluster, "first", "team", 0, 3, 1).await;
    admitted(&cluster, "first").await;
    patch(&cluster, "Workload", "workloads", "first", json!({"metadata": {"labels": {"seen": "yes"}}})).await;
    submit(&cluster, "second", "team", 0, 2, 1).await;
    waits(&cluster, "second", "Pending").await;
    let WorkloadReportPhase::Holds(held) = why(&cluster, "first").await else { panic!("not admitted") };
    assert!(held.is_admitted && held.since.is_some() && held.open_checks.is_empty());
    assert_eq!(held.pod_sets[0].flavors["cpu"], "default");
    let WorkloadReportPhase::Pending(Some(GangStatus::Pending(wait))) = why(&cluster, "second").await else {
        panic!("not pending")
    };
    assert_eq!((wait.position.place, wait.position.of), (1, 1));
    assert_eq!(
        wait.shortage.to_string(),
        "needs 2 cpu in flavor default; quota clusterqueue:team has 1 of at most 4 left"
    );
}

#[tokio::test(start_paused = true)]
async fn a_workload_that_cannot_be_queued_is_told_why_its_queue_is_inactive() {
    let cluster = kueue_cluster().await;
    queue(&cluster, "team", 4, json!({})).await;
    let controller = kueue_controller(&cluster);
    submit(&cluster, "lost", "nowhere", 0, 1, 1).await;
    let told = ["LocalQueue nowhere doesn't exist", "create it, or name another one"];
    assert_eq!(not_queued(&cluster, "lost").await, told);
    patch(&cluster, "ClusterQueue", "clusterqueues", "team", json!({"spec": {"stopPolicy": "Hold"}})).await;
    submit(&cluster, "held", "team", 0, 1, 1).await;
    assert_eq!(
        not_queued(&cluster, "held").await,
        ["ClusterQueue team is inactive", "Can't admit new workloads: is stopped."]
    );
    patch(&cluster, "LocalQueue", "localqueues", "team", json!({"spec": {"stopPolicy": "HoldAndDrain"}}))
        .await;
    assert_eq!(
        not_queued(&cluster, "held").await,
        ["LocalQueue team is inactive", "its stopPolicy is HoldAndDrain"]
    );
    let gated =
        json!({"metadata": {"annotations": {"kueue.x-k8s.io/admission-gated-by": "example.com/gate"}}});
    patch(&cluster, "Workload", "workloads", "held", gated).await;
    assert_eq!(not_queued(&cluster, "held").await, ["Admission is gated by: example.com/gate"]);
    patch(&cluster, "Workload", "workloads", "held", json!({"spec": {"active": false}})).await;
    drop(controller);
    assert_eq!(not_queued(&cluster, "held").await[0], "it is deactivated: spec.active is false");
}

#[tokio::test(start_paused = true)]
async fn a_workload_that_waits_for_checks_names_them_and_a_plan_foresees_them() {
    let cluster = kueue_cluster().await;
    active_check(&cluster, "budget").await;
    let checks = json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "budget"}]}});
    queue(&cluster, "team", 4, checks).await;
    let _controller = kueue_controller(&cluster);
    submit(&cluster, "first", "team", 0, 3, 1).await;
    let reserved = |object: &kube::api::DynamicObject| is(object, "QuotaReserved", "True", "QuotaReserved");
    cluster.wait(&workloads(), "default", "first", reserved).await;
    let WorkloadReportPhase::Holds(held) = why(&cluster, "first").await else { panic!("no quota") };
    assert!(!held.is_admitted && held.since.is_some());
    assert_eq!(held.open_checks, [("budget".into(), "Pending".into(), String::new())]);

    let mut observer = observer(&cluster).await;
    let manifest = json!({"apiVersion": VERSION, "kind": "Workload", "metadata": {"name": "next"},
        "spec": {"queueName": "team", "podSets": [{"name": "main", "count": 1, "template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}}}]}});
    let planned = observer.what_if(GangKind::Workload, "default", manifest.clone()).await.unwrap();
    let WorkloadReportPhase::Holds(held) = &planned.workload().unwrap().phase else { panic!("{planned:?}") };
    assert!(!held.is_admitted && held.since.is_none());
    assert_eq!(held.open_checks[0].0, "budget");
    let again = observer.what_if(GangKind::Workload, "default", manifest).await.unwrap_err();
    assert!(again.to_string().contains("given twice"), "{again}");
    assert!(cluster.api(&workloads(), "default").get_opt("next").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn an_evicted_workload_holds_its_quota_until_it_is_released_and_then_waits() {
    let cluster = kueue_cluster().await;
    queue(&cluster, "team", 4, json!({"preemption": {"withinClusterQueue": "LowerPriority"}})).await;
    let _controller = kueue_controller(&cluster);
    submit(&cluster, "low", "team", 1, 4, 1).await;
    admitted(&cluster, "low").await;
    submit(&cluster, "high", "team", 2, 2, 1).await;
    let evicted = |object: &kube::api::DynamicObject| is(object, "Evicted", "True", "Preempted");
    cluster.wait(&workloads(), "default", "low", evicted).await;
    let WorkloadReportPhase::Stopping(cause) = why(&cluster, "low").await else { panic!("not evicted") };
    assert!(cause.starts_with("Preempted to accommodate Workload default/"), "{cause}");
    release(&cluster, "low").await;
    admitted(&cluster, "high").await;
    let observer = observer(&cluster).await;
    let low = observer.why("default", "low").remove(0);
    let low = low.workload().unwrap();
    assert!(matches!(low.phase, WorkloadReportPhase::Pending(Some(_))), "{low:?}");
    assert!(low.stopped.as_ref().unwrap().starts_with("Preempted to accommodate Workload default/"));
    finish(&cluster, "high").await;
    assert!(matches!(why(&cluster, "high").await, WorkloadReportPhase::Ended(_)));
}

#[tokio::test(start_paused = true)]
async fn how_workloads_are_planned_is_published() {
    let cluster = kueue_cluster().await;
    assert!(published_config(&cluster.client).await.unwrap().is_none());
    let mut options = controllers::KueueOptions {
        fair_sharing: Some(controllers::FairSharing::InitialShare),
        ..controllers::KueueOptions::default()
    };
    options.rules.excluded_prefixes = vec!["example.com/".into()];
    options.rules.transformations = serde_json::from_value(json!([
        {"input": "example.com/slice", "strategy": "Replace", "outputs": {"example.com/units": 5}}
    ]))
    .unwrap();
    publish_kueue_options(&cluster.client, &options).await.unwrap();
    let published = published_config(&cluster.client).await.unwrap().unwrap();
    assert_eq!((published.kueue, published.kueue_options), (Kueue::Scheduler, options));
}

#[tokio::test(start_paused = true)]
async fn a_workload_that_waits_for_its_victims_is_listed_before_those_that_wait_for_their_turn() {
    let cluster = kueue_cluster().await;
    queue(&cluster, "team", 4, json!({"preemption": {"withinClusterQueue": "LowerPriority"}})).await;
    let config = Config { kueue: Kueue::Scheduler, clock: cluster.clock.clone(), ..Config::default() };
    let controller = Controller::new(cluster.client.clone(), config);
    let reports = controller.reports();
    let running = tokio::spawn(controller.run(std::future::pending()));
    submit(&cluster, "victim", "team", 0, 4, 1).await;
    admitted(&cluster, "victim").await;
    submit(&cluster, "urgent", "team", 9, 4, 1).await;
    let evicted = |object: &kube::api::DynamicObject| is(object, "Evicted", "True", "Preempted");
    cluster.wait(&workloads(), "default", "victim", evicted).await;
    for (name, priority) in [("later", 1), ("next", 2)] {
        submit(&cluster, name, "team", priority, 1, 1).await;
    }
    submit(&cluster, "lost", "nowhere", 5, 1, 1).await;
    let listed = |queue: WorkloadQueue| {
        let found = reports.pending_workloads(&queue)?;
        let row = |of: controllers::PendingWorkload| (of.metadata.name, of.position, of.local_position);
        Some(found.into_iter().map(row).collect::<Vec<_>>())
    };
    let expected = [("urgent", 0, 0), ("next", 0, 1), ("later", 1, 2)];
    let expected = expected.map(|(name, place, local)| (name.to_owned(), place, local));
    let began = tokio::time::Instant::now();
    while listed(WorkloadQueue::Cluster("team".into())).as_deref() != Some(&expected) {
        let found = listed(WorkloadQueue::Cluster("team".into()));
        assert!(began.elapsed() < std::time::Duration::from_mins(1), "{found:?}");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await; // Virtual time.
    }
    assert_eq!(listed(WorkloadQueue::Local("default".into(), "nowhere".into())), None);
    assert_eq!(listed(WorkloadQueue::Local("other".into(), "team".into())), None);
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn a_misspelled_resource_or_flavor_is_told_with_the_name_that_it_resembles() {
    let cluster = kueue_cluster().await;
    queue(&cluster, "team", 4, json!({})).await;
    let _controller = kueue_controller(&cluster);
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpus": 1}}});
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
    let spec = json!({"queueName": "team", "active": true,
        "podSets": [{"name": "main", "count": 1, "template": template}]});
    create(&cluster, "Workload", "workloads", "typo", spec).await;
    waits(&cluster, "typo", "Pending").await;
    let observed = observer(&cluster).await;
    let meant = observed.why("default", "typo")[0].workload().unwrap().meant.clone();
    observed.close().await;
    assert_eq!(meant.as_deref(), Some("did you mean cpu, for which it has quota?"));

    let groups = json!([{"coveredResources": ["cpu"], "flavors": [{"name": "defualt",
        "resources": [{"name": "cpu", "nominalQuota": 4}]}]}]);
    patch(&cluster, "ClusterQueue", "clusterqueues", "team", json!({"spec": {"resourceGroups": groups}}))
        .await;
    let expected =
        "Can't admit new workloads: references missing ResourceFlavor(s): defualt. Did you mean default?";
    assert_eq!(not_queued(&cluster, "typo").await, ["ClusterQueue team is inactive", expected]);
}
