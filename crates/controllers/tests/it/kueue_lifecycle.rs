//! Workloads of Kueue: priority classes, admission checks that change, the longest run, retention, reasons, metrics.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use crate::common;
use crate::common::Cluster;
use crate::common::kueue::*;
use api::kueue::config::{CustomLabel, SourceKind};
use api::selector::LabelSelector;
use controllers::{
    Config, Controller, FairSharing, Kueue, KueueMetrics, KueueOptions, KueueRules, MetricsConfig, PodsReady,
};
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::json;

fn with(options: KueueOptions) -> Config {
    Config { kueue: Kueue::Scheduler, kueue_options: options, ..Config::default() }
}

async fn merge(cluster: &Cluster, name: &str, patch: serde_json::Value) {
    let api = cluster.api(&workloads(), "default");
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_value_of_a_priority_class_becomes_the_priority_of_its_workloads() {
    let cluster = kueue_cluster().await;
    queue(&cluster, "team", 1, json!({})).await;
    let classes = kind("WorkloadPriorityClass", "workloadpriorityclasses");
    let class = json!({"apiVersion": VERSION, "kind": "WorkloadPriorityClass", "metadata": {"name": "high"}, "value": 200});
    cluster.create_as(&classes, "", class).await;
    let _controller = kueue_controller(&cluster);
    submit(&cluster, "w", "team", 200, 2, 1).await;
    let reference = json!({"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"});
    merge(&cluster, "w", json!({"spec": {"priorityClassRef": reference}})).await;
    let api = cluster.api(&classes, "");
    api.patch("high", &PatchParams::default(), &Patch::Merge(json!({"value": 150}))).await.unwrap();
    let lower = |object: &DynamicObject| object.data["spec"]["priority"] == 150;
    cluster.wait(&workloads(), "default", "w", lower).await;
}

#[tokio::test(start_paused = true)]
async fn checks_follow_the_queue_also_if_another_controller_has_answered_them() {
    let cluster = kueue_cluster().await;
    let check = |name: &str| json!([{"name": name}]);
    queue(&cluster, "team", 4, json!({"admissionChecksStrategy": {"admissionChecks": check("first")}})).await;
    let options = KueueOptions::default();
    let _controller = cluster.start(cluster.client.clone(), Config { kueue: Kueue::Core, ..with(options) });
    submit(&cluster, "w", "team", 0, 1, 1).await;
    let has = |name: &'static str| {
        move |object: &DynamicObject| {
            let checks = object.data["status"]["admissionChecks"].as_array();
            checks.is_some_and(|checks| checks.len() == 1 && checks[0]["name"] == name)
        }
    };
    let object = cluster.wait(&workloads(), "default", "w", has("first")).await;
    let mut checks = object.data["status"]["admissionChecks"].clone();
    checks[0]["state"] = "Ready".into();
    let answer = Patch::Merge(json!({"status": {"admissionChecks": checks}}));
    cluster.api(&workloads(), "default").patch_status("w", &PatchParams::default(), &answer).await.unwrap();
    let patch =
        Patch::Merge(json!({"spec": {"admissionChecksStrategy": {"admissionChecks": check("second")}}}));
    cluster.api(&cluster_queues(), "").patch("team", &PatchParams::default(), &patch).await.unwrap();
    cluster.wait(&workloads(), "default", "w", has("second")).await;
}

#[tokio::test(start_paused = true)]
async fn a_check_that_asks_for_a_retry_says_when() {
    let cluster = kueue_cluster().await;
    let strategy = json!({"admissionChecks": [{"name": "budget"}]});
    queue(&cluster, "team", 4, json!({"admissionChecksStrategy": strategy})).await;
    active_check(&cluster, "budget").await;
    let _controller = kueue_controller(&cluster);
    submit(&cluster, "w", "team", 0, 1, 1).await;
    let reserved = |object: &DynamicObject| is(object, "QuotaReserved", "True", "QuotaReserved");
    cluster.wait(&workloads(), "default", "w", reserved).await;
    let now = (cluster.clock)().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let retry = json!([{"name": "budget", "state": "Retry", "message": "", "lastTransitionTime": now,
        "requeueAfterSeconds": 120}]);
    let patch = Patch::Merge(json!({"status": {"admissionChecks": retry}}));
    cluster.api(&workloads(), "default").patch_status("w", &PatchParams::default(), &patch).await.unwrap();
    let evicted = |object: &DynamicObject| is(object, "Evicted", "True", "AdmissionCheck");
    let object = cluster.wait(&workloads(), "default", "w", evicted).await;
    assert!(object.data["status"]["requeueState"]["requeueAt"].is_string());
    assert_eq!(object.data["status"]["admissionChecks"][0]["retryCount"], 1);
    give_back(&cluster, &object).await;
    let again = cluster.wait(&workloads(), "default", "w", reserved).await;
    assert!(again.data["status"]["requeueState"].is_null());
    let waited = (cluster.clock)().duration_since(now.parse().unwrap());
    assert!(waited.as_secs() >= 119, "{waited}");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_lasts_too_long_is_ended() {
    let cluster = kueue_cluster().await;
    queue(&cluster, "team", 4, json!({})).await;
    submit(&cluster, "w", "team", 0, 1, 1).await;
    merge(&cluster, "w", json!({"spec": {"maximumExecutionTimeSeconds": 30}})).await;
    let _controller = kueue_controller(&cluster);
    let ended = |object: &DynamicObject| {
        is(object, "Evicted", "True", "DeactivatedDueToMaximumExecutionTimeExceeded")
            && object.data["spec"]["active"] == false
    };
    let object = cluster.wait(&workloads(), "default", "w", ended).await;
    let message = &condition(&object, "Evicted").unwrap()["message"];
    assert_eq!(message, "The workload is deactivated due to exceeding the maximum execution time");
}

#[tokio::test(start_paused = true)]
async fn a_finished_workload_is_deleted_after_its_retention() {
    let cluster = kueue_cluster().await;
    queue(&cluster, "team", 4, json!({})).await;
    let options = KueueOptions { retention_us: Some(60_000_000), ..KueueOptions::default() };
    let _controller = cluster.start(cluster.client.clone(), with(options));
    submit(&cluster, "w", "team", 0, 1, 1).await;
    admitted(&cluster, "w").await;
    merge(&cluster, "w", json!({"metadata": {"finalizers": ["kueue.x-k8s.io/resource-in-use"]}})).await;
    finish(&cluster, "w").await;
    cluster.wait_gone(&workloads(), "default", "w").await;
}

#[tokio::test(start_paused = true)]
async fn a_requeue_time_of_another_author_is_removed_when_the_workload_is_deactivated() {
    let cluster = kueue_cluster().await;
    queue(&cluster, "team", 4, json!({})).await;
    let config = Config { kueue: Kueue::Core, ..Config::default() };
    let _controller = cluster.start(cluster.client.clone(), config);
    submit(&cluster, "w", "team", 0, 1, 1).await;
    let state = json!({"count": 2, "requeueAt": "2099-01-01T00:00:00Z"});
    let patch = Patch::Merge(json!({"status": {"requeueState": state}}));
    cluster.api(&workloads(), "default").patch_status("w", &PatchParams::default(), &patch).await.unwrap();
    merge(&cluster, "w", json!({"spec": {"active": false}})).await;
    let cleared = |object: &DynamicObject| {
        is(object, "Evicted", "True", "Deactivated") && object.data["status"]["requeueState"].is_null()
    };
    cluster.wait(&workloads(), "default", "w", cleared).await;
}

#[tokio::test(start_paused = true)]
async fn reasons_name_causes_with_the_feature_gate() {
    let cluster = kueue_cluster().await;
    queue(&cluster, "team", 1, json!({})).await;
    let options = KueueOptions { names_causes: true, ..KueueOptions::default() };
    let _controller = cluster.start(cluster.client.clone(), with(options));
    submit(&cluster, "first", "team", 0, 1, 1).await;
    admitted(&cluster, "first").await;
    for (name, pods, reason) in [("second", 1, "WaitingForQuota"), ("never", 2, "ExceedsMaxQuota")] {
        submit(&cluster, name, "team", 0, pods, 1).await;
        waits(&cluster, name, reason).await;
    }
    submit(&cluster, "lost", "other", 0, 1, 1).await;
    let lost = |object: &DynamicObject| {
        is(object, "QuotaReserved", "False", "Misconfigured")
            && is(object, "Admitted", "False", "NoReservation")
    };
    cluster.wait(&workloads(), "default", "lost", lost).await;
}

#[tokio::test(start_paused = true)]
async fn a_workload_waits_for_the_controllers_that_its_annotation_names() {
    let cluster = kueue_cluster().await;
    queue(&cluster, "team", 4, json!({})).await;
    submit(&cluster, "w", "team", 0, 1, 1).await;
    let gate = |gates: serde_json::Value| json!({"metadata": {"annotations": {"kueue.x-k8s.io/admission-gated-by": gates}}});
    merge(&cluster, "w", gate("example.com/budget".into())).await;
    let _controller = kueue_controller(&cluster);
    assert_eq!(waits(&cluster, "w", "AdmissionGated").await, "Admission is gated by: example.com/budget");
    merge(&cluster, "w", gate(serde_json::Value::Null)).await;
    admitted(&cluster, "w").await;
}

#[tokio::test(start_paused = true)]
async fn a_boosted_workload_preempts_with_the_feature_gate() {
    let cluster = kueue_cluster().await;
    queue(&cluster, "team", 1, json!({"preemption": {"withinClusterQueue": "LowerPriority"}})).await;
    let rules = KueueRules { boosts_priority: true, ..KueueRules::default() };
    let _controller =
        cluster.start(cluster.client.clone(), with(KueueOptions { rules, ..KueueOptions::default() }));
    submit(&cluster, "first", "team", 5, 1, 1).await;
    admitted(&cluster, "first").await;
    submit(&cluster, "second", "team", 0, 1, 1).await;
    waits(&cluster, "second", "Pending").await;
    merge(&cluster, "second", json!({"metadata": {"annotations": {"kueue.x-k8s.io/priority-boost": "10"}}}))
        .await;
    let preempted = |object: &DynamicObject| is(object, "Preempted", "True", "InClusterQueue");
    cluster.wait(&workloads(), "default", "first", preempted).await;
    release(&cluster, "first").await;
    admitted(&cluster, "second").await;
    let told = "second PreemptedWorkload: Preempted workload default/first";
    let events = cluster.events().await;
    assert!(events.iter().any(|event| event.contains(told)), "{events:#?}");
}

#[tokio::test(start_paused = true)]
async fn limits_of_the_namespace_and_rules_of_the_configuration_decide_what_is_counted() {
    let cluster = kueue_cluster().await;
    queue(&cluster, "team", 4, json!({})).await;
    let range = json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "range"},
        "spec": {"limits": [{"type": "Pod", "max": {"cpu": "2"}}]}});
    cluster.create_as(&common::resource("v1", "LimitRange", "limitranges"), "default", range).await;
    let rules = KueueRules { excluded_prefixes: vec!["example.com/".into()], ..KueueRules::default() };
    let _controller =
        cluster.start(cluster.client.clone(), with(KueueOptions { rules, ..KueueOptions::default() }));
    submit(&cluster, "large", "team", 0, 1, 3).await;
    let message = waits(&cluster, "large", "Pending").await;
    assert!(message.starts_with("resources didn't satisfy LimitRange constraints: "), "{message}");
    let requests = json!({"cpu": 1, "example.com/licence": 5});
    let container = json!({"name": "c", "image": "i", "resources": {"requests": requests}});
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
    let spec = json!({"queueName": "team", "active": true, "podSets": [{"name": "main", "count": 1, "template": template}]});
    create(&cluster, "Workload", "workloads", "small", spec).await;
    let small = admitted(&cluster, "small").await;
    let usage = &small.data["status"]["admission"]["podSetAssignments"][0]["resourceUsage"];
    assert_eq!(*usage, json!({"cpu": "1"}));
}

#[tokio::test(start_paused = true)]
async fn pods_that_are_not_ready_in_time_cost_the_admission_and_in_the_end_the_activity() {
    let cluster = kueue_cluster().await;
    queue(&cluster, "team", 1, json!({})).await;
    let pods_ready = PodsReady {
        timeout_us: 30_000_000,
        recovery_us: None,
        retries_max: Some(1),
        pause_s: 10,
        pause_max_s: 60,
    };
    let options = KueueOptions { pods_ready: Some(pods_ready), ..KueueOptions::default() };
    let _controller = cluster.start(cluster.client.clone(), with(options));
    submit(&cluster, "w", "team", 0, 1, 1).await;
    let evicted = |object: &DynamicObject| is(object, "Evicted", "True", "PodsReadyTimeout");
    let object = cluster.wait(&workloads(), "default", "w", evicted).await;
    assert_eq!(condition(&object, "Evicted").unwrap()["message"], "Exceeded the PodsReady timeout default/w");
    let state = &object.data["status"]["requeueState"];
    assert!(state["count"] == 1 && state["requeueAt"].is_string(), "{state}");
    give_back(&cluster, &object).await;
    let ended = |object: &DynamicObject| {
        is(object, "Evicted", "True", "DeactivatedDueToRequeuingLimitExceeded")
            && object.data["spec"]["active"] == false
    };
    cluster.wait(&workloads(), "default", "w", ended).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_set_without_pods_gets_no_flavor_whose_taint_it_does_not_tolerate() {
    let cluster = kueue_cluster().await;
    let taint = json!({"nodeTaints": [{"key": "spot", "value": "true", "effect": "NoSchedule"}]});
    create(&cluster, "ResourceFlavor", "resourceflavors", "spot", taint).await;
    let flavor = |name: &str| json!({"name": name, "resources": [{"name": "cpu", "nominalQuota": 1}]});
    let groups = json!([{"coveredResources": ["cpu"], "flavors": [flavor("spot"), flavor("default")]}]);
    queue(&cluster, "team", 1, json!({"resourceGroups": groups})).await;
    let _controller = kueue_controller(&cluster);
    submit(&cluster, "empty", "team", 0, 0, 1).await;
    let empty = admitted(&cluster, "empty").await;
    let assigned = &empty.data["status"]["admission"]["podSetAssignments"][0];
    assert_eq!(assigned["flavors"], json!({"cpu": "default"}));
}

#[tokio::test(start_paused = true)]
async fn with_fair_sharing_queues_and_cohorts_state_their_shares() {
    let cluster = kueue_cluster().await;
    create(&cluster, "Cohort", "cohorts", "all", json!({})).await;
    for name in ["one", "two"] {
        queue(&cluster, name, 2, json!({"cohortName": "all"})).await;
    }
    let options = KueueOptions { fair_sharing: Some(FairSharing::default()), ..KueueOptions::default() };
    let _controller = cluster.start(cluster.client.clone(), with(options));
    submit(&cluster, "w", "one", 0, 3, 1).await;
    admitted(&cluster, "w").await;
    queue_status(&cluster, "one", |status| status["fairSharing"]["weightedShare"] == 250).await;
    let free = |object: &DynamicObject| object.data["status"]["fairSharing"]["weightedShare"] == 0;
    cluster.wait(&kind("Cohort", "cohorts"), "", "all", free).await;
}

#[tokio::test(start_paused = true)]
async fn a_deactivated_workload_counts_no_longer_and_a_waiting_one_says_what_it_asks_for() {
    let cluster = kueue_cluster().await;
    queue(&cluster, "team", 3, json!({})).await;
    let _controller = kueue_controller(&cluster);
    submit(&cluster, "first", "team", 0, 1, 2).await;
    admitted(&cluster, "first").await;
    submit(&cluster, "second", "team", 0, 2, 1).await;
    waits(&cluster, "second", "Pending").await;
    let second = cluster.api(&workloads(), "default").get("second").await.unwrap();
    let requests = &second.data["status"]["resourceRequests"];
    assert_eq!(*requests, json!([{"name": "main", "resources": {"cpu": "2"}}]));
    submit(&cluster, "empty", "team", 0, 0, 1).await;
    let empty = admitted(&cluster, "empty").await;
    let assigned = &empty.data["status"]["admission"]["podSetAssignments"][0];
    assert_eq!(
        (&assigned["flavors"], &assigned["resourceUsage"]),
        (&json!({"cpu": "default"}), &json!({"cpu": "0"}))
    );
    merge(&cluster, "first", json!({"spec": {"active": false}})).await;
    let second = admitted(&cluster, "second").await;
    assert!(second.data["status"]["resourceRequests"].is_null());
}

/// A controller that serves all metrics, with a label from the queue.
fn measured(cluster: &Cluster) -> (KueueMetrics, tokio::task::JoinHandle<()>) {
    let label = CustomLabel {
        name: "team".into(),
        source_kind: Some(SourceKind::ClusterQueue),
        ..CustomLabel::default()
    };
    let metrics = MetricsConfig {
        cluster_queue_resources: true,
        local_queues: Some(LabelSelector::default()),
        cohorts: true,
        shares: true,
        causes: true,
        custom_labels: vec![label],
    };
    let config = Config { metrics, clock: cluster.clock.clone(), ..with(KueueOptions::default()) };
    let controller = Controller::new(cluster.client.clone(), config);
    let metrics = controller.kueue_metrics();
    (metrics, tokio::spawn(async move { controller.run(std::future::pending::<()>()).await.unwrap() }))
}

#[tokio::test(start_paused = true)]
async fn queues_and_their_workloads_are_measured_as_by_kueue() {
    let cluster = kueue_cluster().await;
    queue(&cluster, "team", 2, json!({"cohortName": "all"})).await;
    let labels = Patch::Merge(json!({"metadata": {"labels": {"team": "a"}}}));
    cluster.api(&cluster_queues(), "").patch("team", &PatchParams::default(), &labels).await.unwrap();
    let (metrics, controller) = measured(&cluster);
    submit(&cluster, "first", "team", 0, 2, 1).await;
    admitted(&cluster, "first").await;
    submit(&cluster, "second", "team", 0, 1, 1).await;
    waits(&cluster, "second", "Pending").await;
    let text = metrics.text("standalone");
    for line in [
        "kueue_pending_workloads{cluster_queue=\"team\",status=\"active\",custom_team=\"a\",replica_role=\"standalone\"} 0",
        "kueue_pending_workloads{cluster_queue=\"team\",status=\"inadmissible\",custom_team=\"a\",replica_role=\"standalone\"} 1",
        "kueue_cluster_queue_status{cluster_queue=\"team\",status=\"active\",custom_team=\"a\",replica_role=\"standalone\"} 1",
        "kueue_cluster_queue_resource_usage{cohort=\"all\",cluster_queue=\"team\",flavor=\"default\",resource=\"cpu\",custom_team=\"a\",replica_role=\"standalone\"} 2",
        "kueue_cluster_queue_borrowing_limit{cohort=\"all\",cluster_queue=\"team\",flavor=\"default\",resource=\"cpu\",custom_team=\"a\",replica_role=\"standalone\"} +Inf",
        "kueue_cluster_queue_weighted_share{cluster_queue=\"team\",cohort=\"all\",custom_team=\"a\",replica_role=\"standalone\"} 0",
        "kueue_local_queue_resource_usage{name=\"team\",namespace=\"default\",flavor=\"default\",resource=\"cpu\",replica_role=\"standalone\"} 2",
        "kueue_cohort_subtree_quota{cohort=\"all\",flavor=\"default\",resource=\"cpu\",replica_role=\"standalone\"} 2",
        "kueue_cohort_info{cohort=\"all\",parent_cohort=\"\",root_cohort=\"all\",replica_role=\"standalone\"} 1",
        "kueue_admitted_workloads_total{custom_team=\"a\",cluster_queue=\"team\",priority_class=\"\",replica_role=\"standalone\"} 1",
        "kueue_local_queue_quota_reserved_workloads_total{name=\"team\",namespace=\"default\",priority_class=\"\",replica_role=\"standalone\"} 1",
        "kueue_cohort_subtree_admitted_workloads_total{cohort=\"all\",priority_class=\"\",replica_role=\"standalone\"} 1",
        "kueue_local_queue_unadmitted_workloads{name=\"team\",namespace=\"default\",cluster_queue=\"team\",reason=\"NoReservation\",underlying_cause=\"Pending\",replica_role=\"standalone\"} 1",
        "kueue_admission_wait_time_seconds_count{custom_team=\"a\",cluster_queue=\"team\",priority_class=\"\",replica_role=\"standalone\"} 1",
    ] {
        assert!(text.lines().any(|known| known == line), "{line} is not in:\n{text}");
    }
    merge(&cluster, "first", json!({"spec": {"active": false}})).await;
    let evicted = |object: &DynamicObject| is(object, "Evicted", "True", "Deactivated");
    cluster.wait(&workloads(), "default", "first", evicted).await;
    finish(&cluster, "first").await;
    admitted(&cluster, "second").await;
    let text = metrics.text("standalone");
    for line in [
        "kueue_evicted_workloads_total{custom_team=\"a\",cluster_queue=\"team\",priority_class=\"\",reason=\"Deactivated\",underlying_cause=\"\",replica_role=\"standalone\"} 1",
        "kueue_finished_workloads{cluster_queue=\"team\",custom_team=\"a\",replica_role=\"standalone\"} 1",
    ] {
        assert!(text.lines().any(|known| known == line), "{line} is not in:\n{text}");
    }
    controller.abort();
}
