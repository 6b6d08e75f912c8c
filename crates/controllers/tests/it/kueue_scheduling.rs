//! Workloads of Kueue: admission one by one, and in the order of usage.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::Cluster;
use crate::common::kueue::*;
use api::selector::LabelSelector;
use controllers::{
    Config, Controller, Kueue, KueueMetrics, KueueOptions, KueueRules, MetricsConfig, UsageRules,
};
use http_body_util::Either;
use kube::Client;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::ServiceExt as _;

/// A controller, and its metrics.
fn measured(cluster: &Cluster, kueue_options: KueueOptions) -> (KueueMetrics, tokio::task::JoinHandle<()>) {
    let metrics = MetricsConfig { local_queues: Some(LabelSelector::default()), ..MetricsConfig::default() };
    let clock = cluster.clock.clone();
    let config = Config { kueue: Kueue::Scheduler, kueue_options, clock, metrics, ..Config::default() };
    let controller = Controller::new(cluster.client.clone(), config);
    let metrics = controller.kueue_metrics();
    (metrics, tokio::spawn(async move { controller.run(std::future::pending::<()>()).await.unwrap() }))
}

/// Writes the condition `PodsReady`, as the controller of a job does.
async fn make_ready(cluster: &Cluster, name: &str) {
    pods_ready(cluster, name, "True", "Started").await;
}

async fn pods_ready(cluster: &Cluster, name: &str, status: &str, reason: &str) {
    let api = cluster.api(&workloads(), "default");
    let mut conditions =
        api.get(name).await.unwrap().data["status"]["conditions"].as_array().unwrap().clone();
    conditions.retain(|condition| condition["type"] != "PodsReady");
    conditions.push(json!({"type": "PodsReady", "status": status, "reason": reason, "message": "",
        "lastTransitionTime": "2023-11-14T22:13:25Z"}));
    let patch = Patch::Merge(json!({"status": {"conditions": conditions}}));
    api.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn while_pods_are_not_ready_no_other_workload_is_admitted() {
    let cluster = kueue_cluster().await;
    queue(&cluster, "team", 4, json!({})).await;
    queue(&cluster, "other", 4, json!({})).await;
    let rules = KueueRules { blocks_admission: true, ..KueueRules::default() };
    let (metrics, controller) = measured(&cluster, KueueOptions { rules, ..KueueOptions::default() });
    submit(&cluster, "first", "team", 0, 1, 2).await;
    admitted(&cluster, "first").await;
    submit(&cluster, "second", "other", 0, 1, 2).await;
    submit(&cluster, "third", "team", -1, 1, 2).await;
    submit(&cluster, "large", "team", -2, 1, 3).await;
    let text = waits(&cluster, "second", "Waiting").await;
    assert_eq!(text, "waiting for all admitted workloads to be in PodsReady condition");
    waits(&cluster, "third", "Waiting").await;
    waits(&cluster, "large", "Pending").await;
    queue_status(&cluster, "team", |status| {
        status["pendingWorkloads"] == 2 && status["admittedWorkloads"] == 1
    })
    .await;
    make_ready(&cluster, "first").await;
    admitted(&cluster, "second").await;
    waits(&cluster, "third", "Waiting").await;
    cluster.delete_now(&workloads(), "default", "second").await;
    admitted(&cluster, "third").await;
    for (status, reason) in [("False", "WaitForRecovery"), ("True", "Recovered")] {
        pods_ready(&cluster, "first", status, reason).await;
        cluster.settled().await;
    }
    let api = cluster.api(&workloads(), "default");
    let stop = Patch::Merge(json!({"spec": {"active": false}}));
    api.patch("first", &PatchParams::default(), &stop).await.unwrap();
    let is_evicted = |object: &_| is(object, "Evicted", "True", "Deactivated");
    cluster.wait(&workloads(), "default", "first", is_evicted).await;
    let text = metrics.text("standalone");
    for family in [
        "ready_wait_time_seconds_count{cluster_queue=\"team\"",
        "admitted_until_ready_wait_time_seconds_count{cluster_queue=\"team\"",
        "local_queue_ready_wait_time_seconds_count{name=\"team\"",
        "pods_ready_to_evicted_time_seconds_count{cluster_queue=\"team\"",
    ] {
        let line = text.lines().find(|line| line.starts_with(&format!("kueue_{family}")));
        assert!(line.is_some_and(|line| line.ends_with(" 1")), "{family}: {line:?} in:\n{text}");
    }
    controller.abort();
}

/// Milli-CPUs that a local queue has consumed, by its status, once they pass the test.
async fn consumed(cluster: &Cluster, name: &str, passes: impl Fn(f64) -> bool) -> f64 {
    let of = |object: &DynamicObject| {
        let recorded = &object.data["status"]["fairSharing"]["admissionFairSharingStatus"];
        let text = recorded["consumedResources"]["cpu"].as_str()?;
        let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
        let factor = match &text[digits.len()..] {
            "n" => 1e-6,
            "u" => 1e-3,
            "m" => 1.0,
            _ => 1e3,
        };
        Some(digits.parse::<f64>().unwrap() * factor)
    };
    let passes = |object: &DynamicObject| of(object).is_some_and(&passes);
    of(&cluster.wait(&kind("LocalQueue", "localqueues"), "default", name, passes).await).unwrap()
}

/// A cluster queue of four CPUs, ordered by usage, with the local queues `busy` and `idle`.
async fn shared(cluster: &Cluster) {
    let by_usage = json!({"admissionMode": "UsageBasedAdmissionFairSharing"});
    queue(cluster, "team", 4, json!({"admissionScope": by_usage})).await;
    for name in ["busy", "idle"] {
        let spec = json!({"clusterQueue": "team", "fairSharing": {"weight": "1"}});
        create(cluster, "LocalQueue", "localqueues", name, spec).await;
    }
}

fn by_usage(half_life_s: i64) -> KueueOptions {
    let usage = UsageRules {
        half_life_us: half_life_s * 1_000_000,
        sampling_us: 60_000_000,
        ..UsageRules::default()
    };
    let rules = KueueRules { usage: Some(usage), ..KueueRules::default() };
    KueueOptions { rules, ..KueueOptions::default() }
}

#[tokio::test(start_paused = true)]
async fn the_local_queue_that_has_used_less_goes_first() {
    let cluster = kueue_cluster().await;
    shared(&cluster).await;
    let (metrics, controller) = measured(&cluster, by_usage(600));
    submit(&cluster, "first", "busy", 0, 1, 4).await;
    admitted(&cluster, "first").await;
    // The request counts as if it had run for one sampling interval: 4000 x (1 - 2^-0.1).
    consumed(&cluster, "busy", |milli| (267.0..280.0).contains(&milli)).await;
    consumed(&cluster, "idle", |milli| milli == 0.0).await;
    consumed(&cluster, "busy", |milli| milli > 1000.0).await; // After some samples.
    submit(&cluster, "urgent", "busy", 100, 1, 4).await;
    submit(&cluster, "later", "idle", 0, 1, 4).await;
    waits(&cluster, "later", "Pending").await;
    let text = metrics.text("standalone");
    let line = "kueue_local_queue_admission_fair_sharing_usage{name=\"idle\",namespace=\"default\",replica_role=\"standalone\"} 0\n";
    assert!(text.contains(line), "{text}");
    finish(&cluster, "first").await;
    admitted(&cluster, "later").await;
    waits(&cluster, "urgent", "Pending").await;
    controller.abort();
}

#[tokio::test(start_paused = true)]
async fn recorded_usage_outlives_the_controller() {
    let cluster = kueue_cluster().await;
    shared(&cluster).await;
    let (_, controller) = measured(&cluster, by_usage(600));
    submit(&cluster, "first", "busy", 0, 1, 4).await;
    admitted(&cluster, "first").await;
    let before = consumed(&cluster, "busy", |milli| milli > 1000.0).await;
    controller.abort();
    finish(&cluster, "first").await;

    let (_, controller) = measured(&cluster, by_usage(36_000));
    submit(&cluster, "running", "idle", 0, 1, 1).await;
    admitted(&cluster, "running").await;
    submit(&cluster, "second", "busy", 100, 1, 3).await;
    admitted(&cluster, "second").await;
    let after = consumed(&cluster, "busy", |milli| milli.to_bits() != before.to_bits()).await;
    assert!(after > before * 0.9, "{before} {after}");
    submit(&cluster, "third", "busy", 100, 1, 4).await;
    submit(&cluster, "fourth", "idle", 0, 1, 4).await;
    waits(&cluster, "fourth", "Pending").await;
    finish(&cluster, "second").await;
    finish(&cluster, "running").await;
    admitted(&cluster, "fourth").await;
    controller.abort();
}

#[tokio::test(start_paused = true)]
async fn a_workload_that_fits_in_part_starts_with_as_many_pods_as_fit() {
    let cluster = kueue_cluster().await;
    queue(&cluster, "team", 4, json!({})).await;
    let _controller = kueue_controller(&cluster);
    submit(&cluster, "first", "team", 0, 1, 1).await;
    admitted(&cluster, "first").await;
    let sets = |pods: u32, least: u32| {
        let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": 1}}});
        let template = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
        json!({"queueName": "team", "active": true,
            "podSets": [{"name": "main", "count": pods, "minCount": least, "template": template}]})
    };
    create(&cluster, "Workload", "workloads", "large", sets(8, 4)).await;
    let message = waits(&cluster, "large", "Pending").await;
    assert!(message.contains("insufficient"), "{message}");
    create(&cluster, "Workload", "workloads", "small", sets(8, 2)).await;
    let small = admitted(&cluster, "small").await;
    let assigned = &small.data["status"]["admission"]["podSetAssignments"][0];
    assert_eq!((&assigned["count"], &assigned["resourceUsage"]), (&json!(3), &json!({"cpu": "3"})));
    queue_status(&cluster, "team", |status| {
        status["flavorsUsage"][0]["resources"][0]["total"] == "4" && status["pendingWorkloads"] == 1
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_local_queue_states_the_figures_of_its_own_workloads() {
    let cluster = kueue_cluster().await;
    queue(&cluster, "team", 4, json!({})).await;
    create(&cluster, "LocalQueue", "localqueues", "other", json!({"clusterQueue": "team"})).await;
    let check = json!([{"name": "check"}]);
    active_check(&cluster, "check").await;
    queue(&cluster, "checked", 4, json!({"admissionChecksStrategy": {"admissionChecks": check}})).await;
    let _controller = kueue_controller(&cluster);
    submit(&cluster, "one", "team", 0, 1, 3).await;
    admitted(&cluster, "one").await;
    submit(&cluster, "two", "team", 0, 1, 2).await;
    submit(&cluster, "three", "other", 0, 1, 1).await;
    submit(&cluster, "four", "checked", 0, 1, 2).await;
    let held = |total: &str| json!([{"name": "default", "resources": [{"name": "cpu", "total": total}]}]);
    for (name, pending, reserving, admitted, reserved, used) in [
        ("team", 1, 1, 1, held("3"), held("3")),
        ("other", 0, 1, 1, held("1"), held("1")),
        ("checked", 0, 1, 0, held("2"), held("0")),
    ] {
        let is_met = |object: &DynamicObject| {
            let status = &object.data["status"];
            status["pendingWorkloads"] == pending
                && status["reservingWorkloads"] == reserving
                && status["admittedWorkloads"] == admitted
                && status["flavorsReservation"] == reserved
                && status["flavorsUsage"] == used
                && status["fairSharing"].is_null()
        };
        cluster.wait(&kind("LocalQueue", "localqueues"), "default", name, is_met).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_workload_with_a_closed_gate_preempts_no_other_until_the_gate_is_open() {
    let cluster = kueue_cluster().await;
    let preemption = json!({"preemption": {"withinClusterQueue": "LowerPriority"}});
    queue(&cluster, "team", 4, preemption).await;
    let rules = KueueRules { gates_preemption: true, ..KueueRules::default() };
    let (_, controller) = measured(&cluster, KueueOptions { rules, ..KueueOptions::default() });
    submit(&cluster, "low", "team", 0, 1, 3).await;
    admitted(&cluster, "low").await;
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": 2}}});
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
    let spec = json!({"queueName": "team", "priority": 9, "active": true, "preemptionGates": [{"name": "gate"}],
        "podSets": [{"name": "main", "count": 1, "template": template}]});
    create(&cluster, "Workload", "workloads", "high", spec).await;
    let message = waits(&cluster, "high", "Pending").await;
    assert_eq!(message, "Workload requires preemption, but it's gated");
    let is_blocked =
        |object: &DynamicObject| is(object, "BlockedOnPreemptionGates", "True", "PreemptionGated");
    cluster.wait(&workloads(), "default", "high", is_blocked).await;
    submit(&cluster, "small", "team", 0, 1, 1).await;
    admitted(&cluster, "small").await;
    let gates = json!([{"name": "gate", "position": "Open", "lastTransitionTime": "2023-11-14T22:13:20Z"}]);
    let api = cluster.api(&workloads(), "default");
    let open = Patch::Merge(json!({"status": {"preemptionGates": gates}}));
    api.patch_status("high", &PatchParams::default(), &open).await.unwrap();
    let is_preempted = |object: &DynamicObject| is(object, "Preempted", "True", "InClusterQueue");
    cluster.wait(&workloads(), "default", "low", is_preempted).await;
    release(&cluster, "low").await;
    let high = admitted(&cluster, "high").await;
    assert!(is(&high, "BlockedOnPreemptionGates", "False", "QuotaReserved"));
    controller.abort();
}

#[tokio::test(start_paused = true)]
async fn workloads_that_say_why_they_wait_hold_up_no_admission() {
    let cluster = kueue_cluster().await;
    queue(&cluster, "full", 1, json!({})).await;
    queue(&cluster, "free", 1, json!({})).await;
    for number in 0..200 {
        submit(&cluster, &format!("large-{number}"), "full", 0, 1, 2).await;
    }
    let client = cluster.slow_client(Duration::from_secs(1));
    let config = Config { kueue: Kueue::Scheduler, writers: 8, ..Config::default() };
    let _controller = cluster.start(client, config);
    // The first Workloads say why they wait.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let start = Instant::now();
    submit(&cluster, "small", "free", 0, 1, 1).await;
    admitted(&cluster, "small").await;
    assert!(start.elapsed() < Duration::from_secs(4), "admitted after {:?}", start.elapsed());
    waits(&cluster, "large-199", "Pending").await;
}

/// A client whose writes take a second, and the paths that it has written.
fn slow_and_recorded(cluster: &Cluster) -> (Client, Arc<Mutex<Vec<String>>>) {
    let written: Arc<Mutex<Vec<String>>> = Arc::default();
    let (service, notes) = (cluster.service.clone(), written.clone());
    let connection = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (service, notes) = (service.clone(), notes.clone());
        async move {
            if request.method() != http::Method::GET {
                tokio::time::sleep(Duration::from_secs(1)).await;
                notes.lock().unwrap().push(request.uri().path().to_owned());
            }
            service.oneshot(request).await
        }
    });
    (Client::new(connection, "default"), written)
}

#[tokio::test(start_paused = true)]
async fn while_workloads_are_admitted_few_others_say_why_they_wait_and_queues_tell_figures_once_a_second() {
    let cluster = kueue_cluster().await;
    queue(&cluster, "full", 1, json!({})).await;
    queue(&cluster, "free", 100, json!({})).await;
    for number in 0..64 {
        submit(&cluster, &format!("large-{number}"), "full", 0, 1, 2).await;
    }
    let (client, written) = slow_and_recorded(&cluster);
    let count = |of: &str| written.lock().unwrap().iter().filter(|path| path.contains(of)).count();
    let _controller = cluster.start(client, Config { kueue: Kueue::Scheduler, ..Config::default() });
    for number in 0..96 {
        submit(&cluster, &format!("small-{number}"), "free", 0, 1, 1).await;
        tokio::time::sleep(Duration::from_millis(125)).await;
    }
    let (reports, figures) = (count("workloads/large"), count("clusterqueues/free/status"));
    assert!((1..=16).contains(&reports), "{reports} Workloads have said why they wait");
    assert!((6..=13).contains(&figures), "the figures were written {figures} times");
    for number in 0..64 {
        waits(&cluster, &format!("large-{number}"), "Pending").await;
    }
    queue_status(&cluster, "free", |status| status["admittedWorkloads"] == 96).await;
    cluster.settled().await;
    assert_eq!(count("workloads/large"), 64);
}

#[tokio::test(start_paused = true)]
async fn an_admission_that_no_writer_has_begun_goes_to_a_more_important_workload_without_an_eviction() {
    let cluster = kueue_cluster().await;
    let preemption = json!({"preemption": {"withinClusterQueue": "LowerPriority"}});
    queue(&cluster, "team", 10, preemption).await;
    let (client, written) = slow_and_recorded(&cluster);
    let config = Config { kueue: Kueue::Scheduler, writers: 1, ..Config::default() };
    let _controller = cluster.start(client, config);
    for number in 0..10 {
        submit(&cluster, &format!("low-{number}"), "team", 0, 1, 1).await;
    }
    admitted(&cluster, "low-0").await;
    submit(&cluster, "high", "team", 9, 1, 5).await;
    let evicted = || async {
        let all = cluster.api(&workloads(), "default").list(&ListParams::default()).await.unwrap().items;
        let is_evicted =
            |object: &DynamicObject| condition(object, "Evicted").is_some_and(|it| it["status"] == "True");
        let evicted = all.into_iter().filter(is_evicted).map(|object| object.metadata.name.unwrap());
        evicted.collect::<Vec<_>>()
    };
    // The one that was being written may be among the five: it has to give its quota back.
    let told = |high: &DynamicObject| condition(high, "QuotaReserved").is_some();
    cluster.wait(&workloads(), "default", "high", told).await;
    let high = cluster.api(&workloads(), "default").get("high").await.unwrap();
    if !is(&high, "QuotaReserved", "True", "QuotaReserved") {
        let begun = Instant::now();
        while evicted().await.is_empty() {
            assert!(begun.elapsed() < Duration::from_mins(1), "nothing is evicted");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        release(&cluster, &evicted().await[0]).await;
    }
    admitted(&cluster, "high").await;
    let begun: BTreeSet<String> =
        written.lock().unwrap().iter().filter(|path| path.contains("workloads/low")).cloned().collect();
    assert!(begun.len() <= 6, "four of the five lose an admission that nobody has written: {begun:?}");
    assert!(evicted().await.len() <= 1, "{:?}", evicted().await);
    queue_status(&cluster, "team", |status| status["admittedWorkloads"] == 6).await;
}

/// The number of Workloads that each of these queues says it has.
async fn counted(cluster: &Cluster, queues: usize) -> Vec<u64> {
    let mut counts = Vec::new();
    for at in 0..queues {
        let status = queue_status(cluster, &format!("queue-{at}"), |_| true).await;
        let count = |field: &str| status[field].as_u64().unwrap_or(0);
        counts.push(count("pendingWorkloads") + count("reservingWorkloads"));
    }
    counts
}

#[tokio::test(start_paused = true)]
async fn while_workloads_come_and_end_the_figures_of_their_queues_are_never_more_than_a_second_late() {
    const QUEUES: usize = 12; // More than are written at the same time.
    const WRITE: Duration = Duration::from_millis(20);
    let cluster = kueue_cluster().await;
    for at in 0..QUEUES {
        queue(&cluster, &format!("queue-{at}"), 4, json!({})).await;
    }
    let config = Config { kueue: Kueue::Scheduler, ..Config::default() };
    let _controller = cluster.start(cluster.slow_client(WRITE), config);
    let mut history = vec![(Instant::now(), vec![0; QUEUES])];
    for round in 0..180 {
        let of_queue = if round < 90 { round * 7 % QUEUES } else { (round - 90) * 7 % QUEUES };
        let mut counts = history.last().unwrap().1.clone();
        if round < 90 {
            submit(&cluster, &format!("train-{round}"), &format!("queue-{of_queue}"), 0, 1, 1).await;
            counts[of_queue] += 1;
        } else {
            finish(&cluster, &format!("train-{}", round - 90)).await;
            counts[of_queue] -= 1;
        }
        history.push((Instant::now(), counts));
        tokio::time::sleep(Duration::from_millis(100)).await;
        let since = Instant::now() - Duration::from_secs(1) - 2 * WRITE;
        // What was true at some time of the last second.
        let recent = history.iter().rposition(|(when, _)| *when <= since).unwrap_or(0);
        for (at, count) in counted(&cluster, QUEUES).await.into_iter().enumerate() {
            let mut known = history[recent..].iter().map(|(_, counts)| counts[at]);
            assert!(known.any(|known| known == count), "queue-{at} says {count} in round {round}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_workload_whose_write_is_refused_is_tried_again_after_ever_longer_pauses() {
    let cluster = kueue_cluster().await;
    queue(&cluster, "team", 4, json!({})).await;
    submit(&cluster, "train", "team", 0, 1, 1).await;
    let attempts: Arc<Mutex<usize>> = Arc::default();
    let (service, count) = (cluster.service.clone(), attempts.clone());
    let refusing = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (service, count) = (service.clone(), count.clone());
        async move {
            if !request.uri().path().contains("workloads/train/status") {
                return Ok(service.oneshot(request).await.unwrap().map(Either::Left));
            }
            *count.lock().unwrap() += 1;
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Invalid",
                "message": "invalid", "code": 422});
            let body = kube::client::Body::from(status.to_string().into_bytes());
            let answer = http::Response::builder().status(422).header("Content-Type", "application/json");
            Ok::<_, std::io::Error>(answer.body(Either::Right(body)).unwrap())
        }
    });
    let client = Client::new(refusing, "default");
    let _controller = cluster.start(client, Config { kueue: Kueue::Scheduler, ..Config::default() });
    tokio::time::sleep(Duration::from_mins(1)).await;
    let attempts = *attempts.lock().unwrap();
    assert!((3..=12).contains(&attempts), "{attempts} attempts");
}

/// A Workload with pod sets of pods of one CPU: name, count, least count.
async fn submit_sets(cluster: &Cluster, name: &str, priority: i32, sets: &[(&str, u32, Option<u32>)]) {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": 1}}});
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
    let sets: Vec<Value> = sets
        .iter()
        .map(|(name, count, least)| json!({"name": name, "count": count, "minCount": least, "template": template}))
        .collect();
    let spec = json!({"queueName": "team", "priority": priority, "active": true, "podSets": sets});
    create(cluster, "Workload", "workloads", name, spec).await;
}

#[tokio::test(start_paused = true)]
async fn a_part_of_a_workload_preempts_if_the_whole_cannot() {
    let cluster = kueue_cluster().await;
    queue(&cluster, "team", 8, json!({"preemption": {"withinClusterQueue": "LowerPriority"}})).await;
    let _controller = kueue_controller(&cluster);
    submit(&cluster, "high", "team", 9, 3, 1).await;
    admitted(&cluster, "high").await;
    submit(&cluster, "low", "team", 0, 4, 1).await;
    admitted(&cluster, "low").await;
    submit_sets(&cluster, "middle", 5, &[("main", 7, Some(3))]).await;
    let is_preempted = |object: &DynamicObject| is(object, "Preempted", "True", "InClusterQueue");
    let low = cluster.wait(&workloads(), "default", "low", is_preempted).await;
    let text = "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, 4 more needed. \
        Pending the preemption of 1 workload(s)";
    assert_eq!(waits(&cluster, "middle", "Pending").await, text);
    give_back(&cluster, &low).await;
    let middle = admitted(&cluster, "middle").await;
    let assigned = &middle.data["status"]["admission"]["podSetAssignments"][0];
    assert_eq!((&assigned["count"], &assigned["resourceUsage"]), (&json!(5), &json!({"cpu": "5"})));
}

#[tokio::test(start_paused = true)]
async fn each_pod_set_that_lacks_quota_beside_those_before_it_is_named() {
    let cluster = kueue_cluster().await;
    queue(&cluster, "team", 6, json!({})).await;
    let _controller = kueue_controller(&cluster);
    submit(&cluster, "first", "team", 0, 4, 1).await;
    admitted(&cluster, "first").await;
    submit_sets(&cluster, "both", 0, &[("a", 3, None), ("b", 2, None)]).await;
    let lacks = |set: &str, text: &str| format!("couldn't assign flavors to pod set {set}: {text}");
    let more = |more: u32| format!("insufficient unused quota for cpu in flavor default, {more} more needed");
    let both = format!("{}; {}", lacks("a", &more(1)), lacks("b", &more(3)));
    assert_eq!(waits(&cluster, "both", "Pending").await, both);
    submit_sets(&cluster, "second", 0, &[("a", 1, None), ("b", 2, None)]).await;
    assert_eq!(waits(&cluster, "second", "Pending").await, lacks("b", &more(1)));
    submit_sets(&cluster, "never", 0, &[("a", 3, None), ("b", 4, None), ("c", 9, None)]).await;
    let full = "insufficient quota for cpu in flavor default, previously considered podsets requests (3) + current podset \
        request (4) > maximum capacity (6)";
    assert_eq!(
        waits(&cluster, "never", "Pending").await,
        format!("{}; {}", lacks("a", &more(1)), lacks("b", full))
    );
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_comes_in_the_place_of_a_deleted_one_has_a_status_at_once() {
    let cluster = kueue_cluster().await;
    let _controller = kueue_controller(&cluster);
    let began = Instant::now();
    queue(&cluster, "team", 4, json!({})).await;
    let queues = kind("LocalQueue", "localqueues");
    let has_status = |queue: &DynamicObject| !queue.data["status"]["conditions"].is_null();
    let first = cluster.wait(&queues, "default", "team", has_status).await;
    assert!(began.elapsed() < Duration::from_millis(500), "{:?}", began.elapsed());

    let began = Instant::now();
    cluster.delete_now(&queues, "default", "team").await;
    create(&cluster, "LocalQueue", "localqueues", "team", json!({"clusterQueue": "team"})).await;
    let second = cluster.wait(&queues, "default", "team", has_status).await;
    assert_ne!(first.metadata.uid, second.metadata.uid);
    assert!(began.elapsed() < Duration::from_millis(500), "{:?}", began.elapsed());
}
