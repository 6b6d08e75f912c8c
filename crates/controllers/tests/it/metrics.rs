//! Muster's metrics: what a controller serves, what it counts, and how it treats an API server that is overloaded.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use crate::common;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::jobs::{all_kinds, cluster_with_queue};
use crate::common::kueue::{admitted, kueue_cluster, queue, waits};
use crate::common::queued_pods::{member, runs, submit_pod};
use crate::common::{Cluster, Group, resource};
use controllers::{Config, Controller, Kueue, METRICS, Meter, MetricType, Metrics, Role};
use http_body_util::Either;
use kube::Client;
use kube::client::Body;
use sandbox::{NodeGroup, Sandbox};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tower::ServiceExt as _;

/// A Job with so many pods of so many CPUs.
fn job(name: &str, priority: i32, pods: u32, cpu: &str) -> Value {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}});
    let template = json!({"metadata": {"labels": {"app": name}}, "spec": {"restartPolicy": "Never", "containers": [container]}});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {"parallelism": pods, "completions": pods, "template": template}});
    json!({
        "apiVersion": "mcad.ibm.com/v1beta1", "kind": "AppWrapper", "metadata": {"name": name, "namespace": "default"},
        "spec": {"priority": priority, "resources": {"GenericItems": [
            {"completionstatus": "Complete", "generictemplate": job}]}},
    })
}

/// Starts a controller that preempts, with its metrics.
fn start(cluster: &Cluster, client: &Client, config: Config) -> (Metrics, JoinHandle<()>) {
    let meter = Meter::default();
    let client = meter.client(client);
    let (clock, inspect) = (cluster.clock.clone(), Some(cluster.inspect()));
    let controller = Controller::new(client, Config { meter, clock, inspect, preemption: true, ..config });
    let metrics = controller.metrics();
    (metrics, tokio::spawn(async move { controller.run(std::future::pending()).await.unwrap() }))
}

/// The value of a series.
fn value(text: &str, series: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.rsplit_once(' ').is_some_and(|(name, _)| name == series))?;
    line.rsplit_once(' ')?.1.parse().ok()
}

async fn until(metrics: &Metrics, is_met: impl Fn(&str) -> bool) -> String {
    let began = Instant::now();
    loop {
        let text = metrics.text(Role::Standalone);
        if is_met(&text) {
            return text;
        }
        assert!(began.elapsed() < Duration::from_mins(10), "{text}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_decided_and_written_is_counted() {
    let cluster = Cluster::bare();
    let nodes: NodeGroup = "count=2,name=n,cpu=4,memory=16Gi".parse().unwrap();
    let config = sandbox::Config { clock: cluster.clock.clone(), nodes: nodes.manifests(), ..<_>::default() };
    let _sandbox = Sandbox::start(cluster.client.clone(), config).await.unwrap();
    controllers::install_crds(cluster.client.clone(), &Group::ALL, api::appwrapper::Columns::default())
        .await
        .unwrap();
    let (metrics, controller) = start(&cluster, &cluster.client, Config::default());
    cluster.submit(job("large", 0, 1, "5")).await;
    let mut refused = job("refused", 0, 1, "1");
    refused["spec"]["resources"]["GenericItems"][0]["generictemplate"]["kind"] = json!("Unknown");
    cluster.submit(refused).await;
    let pending =
        |state: &str| format!("muster_pending_gangs{{namespace=\"default\",queue=\"\",state=\"{state}\"}}");
    let is_told =
        |text: &str| ["refused", "never_fits"].iter().all(|state| value(text, &pending(state)) == Some(1.0));
    until(&metrics, is_told).await;
    cluster.submit(job("weak", 1, 2, "3")).await;
    cluster.wait_state(Group::Mcad, "weak", "Running", "Running").await;
    cluster.submit(job("strong", 9, 2, "4")).await;
    cluster.wait_state(Group::Mcad, "strong", "Running", "Running").await;
    cluster.wait_state(Group::Mcad, "weak", "Pending", "HeadOfLine").await;
    let text = until(&metrics, |text| value(text, &pending("waiting")) == Some(1.0)).await;
    let expected = [
        (pending("waiting"), 1.0),
        ("muster_running_gangs{namespace=\"default\",queue=\"\"}".into(), 1.0),
        ("muster_started_gangs_total{kind=\"AppWrapper\"}".into(), 2.0),
        ("muster_gang_wait_seconds_count{kind=\"AppWrapper\"}".into(), 2.0),
        ("muster_preemptions_total{reason=\"Priority\"}".into(), 1.0),
        ("muster_evictions_total{kind=\"AppWrapper\",reason=\"Preempted\"}".into(), 1.0),
        ("muster_verdicts_total{verdict=\"preempt\"}".into(), 1.0),
        ("muster_leader".into(), 1.0),
        ("muster_api_requests_total{code=\"201\",resource=\"jobs.batch\",verb=\"create\"}".into(), 2.0),
        ("muster_watch_lists_total{resource=\"pods\"}".into(), 1.0),
        ("muster_steps_in_flight".into(), 0.0),
    ];
    for (series, number) in expected {
        assert_eq!(value(&text, &series), Some(number), "{series} in\n{text}");
    }
    assert!(value(&text, "muster_plan_duration_seconds_count").unwrap() > 3.0, "{text}");
    assert!(value(&text, "muster_watch_lag_seconds_count").unwrap() > 3.0, "{text}");
    assert!(metrics.text(Role::Follower).contains("\nmuster_leader 0\n"));
    documented(&text);
    // The series of a namespace end with its gangs.
    for name in ["weak", "strong", "large", "refused"] {
        cluster.delete(&common::wrappers(Group::Mcad), "default", name).await;
    }
    let text = until(&metrics, |text| !text.contains("namespace=\"default\"")).await;
    assert!(value(&text, "muster_started_gangs_total{kind=\"AppWrapper\"}").unwrap() >= 2.0);
    controller.abort();
}

/// Checks that the page of metrics has each family that is served, with its type, labels and meaning.
fn documented(text: &str) {
    let families = text.lines().filter_map(|line| line.strip_prefix("# TYPE muster_"));
    for (name, kind) in families.filter_map(|family| family.split_once(' ')) {
        let metric = METRICS.iter().find(|metric| metric.name == name);
        let metric = metric.unwrap_or_else(|| panic!("{name} is not in the catalogue"));
        assert_eq!(format!("{:?}", metric.of).to_lowercase(), kind, "{name}");
        assert!(text.contains(&format!("# HELP muster_{name} {}\n", metric.meaning)), "{name}");
        let is_of = |line: &&str| {
            let rest = line.strip_prefix("muster_").and_then(|line| line.strip_prefix(name));
            rest.is_some_and(|rest| rest.starts_with(['{', ' ']) || rest.starts_with("_count"))
        };
        for line in text.lines().filter(is_of) {
            let labels = line.split_once('{').map_or("", |(_, rest)| rest.rsplit_once('}').unwrap().0);
            let labels: BTreeSet<&str> =
                labels.split("\",").filter_map(|label| Some(label.split_once("=\"")?.0)).collect();
            assert_eq!(labels, metric.labels.iter().copied().collect(), "{line}");
        }
    }
}

#[test]
fn the_page_of_metrics_has_each_metric_with_type_labels_and_meaning() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    let page = std::fs::read_to_string(page).unwrap();
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `muster_")).collect();
    let expected = METRICS.iter().map(|metric| {
        let kind = match metric.of {
            MetricType::Counter => "counter",
            MetricType::Gauge => "gauge",
            MetricType::Histogram => "histogram",
        };
        let labels = metric.labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ");
        format!("| `muster_{}` | {kind} | {labels} | {} |", metric.name, metric.meaning)
    });
    assert_eq!(rows, expected.collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn workloads_are_counted_with_appwrappers_and_as_kueue_counts_them() {
    let cluster = kueue_cluster().await;
    queue(&cluster, "team", 2, json!({})).await;
    let (metrics, controller) =
        start(&cluster, &cluster.client, Config { kueue: Kueue::Scheduler, ..Config::default() });
    common::kueue::submit(&cluster, "first", "team", 0, 2, 1).await;
    admitted(&cluster, "first").await;
    common::kueue::submit(&cluster, "second", "team", 0, 1, 1).await;
    waits(&cluster, "second", "Pending").await;
    let text = until(&metrics, |text| text.contains("state=\"waiting\"} 1\n")).await;
    for (series, number) in [
        ("muster_pending_gangs{namespace=\"default\",queue=\"team\",state=\"waiting\"}", 1.0),
        ("muster_running_gangs{namespace=\"default\",queue=\"team\"}", 1.0),
        ("muster_started_gangs_total{kind=\"Workload\"}", 1.0),
        ("kueue_admitted_active_workloads{cluster_queue=\"team\",replica_role=\"standalone\"}", 1.0),
    ] {
        assert_eq!(value(&text, series), Some(number), "{series} in\n{text}");
    }
    documented(&text);
    controller.abort();
}

#[tokio::test(start_paused = true)]
async fn how_long_pods_wait_behind_their_gate_after_the_admission_is_measured() {
    let cluster = cluster_with_queue(3, json!({})).await;
    let config = Config { kueue: Kueue::Scheduler, jobs: all_kinds(), ..Config::default() };
    let (metrics, controller) = start(&cluster, &cluster.client, config);
    submit_pod(&cluster, "alone", json!({})).await;
    for name in ["one", "two"] {
        submit_pod(&cluster, name, member("group", 2)).await;
    }
    for name in ["alone", "one", "two"] {
        runs(&cluster, name).await;
    }
    for (is_group, pods) in [(false, 1.0), (true, 2.0)] {
        let series = format!(
            "kueue_pod_scheduling_gate_removal_seconds_count{{name=\"kueue.x-k8s.io/admission\",cluster_queue=\"team\",\
             is_group=\"{is_group}\",replica_role=\"standalone\"}}"
        );
        until(&metrics, |text| value(text, &series) == Some(pods)).await;
    }
    controller.abort();
}

#[tokio::test(start_paused = true)]
async fn names_of_objects_and_groups_make_no_series() {
    let cluster = Cluster::new().await;
    cluster.default_nodes().await;
    let (metrics, controller) = start(&cluster, &cluster.client, Config::default());
    for number in 0..50 {
        let mut wrapper = job(&format!("hostile-{number}"), 0, 1, "1");
        if number % 2 == 0 {
            let item = &mut wrapper["spec"]["resources"]["GenericItems"][0]["generictemplate"];
            item["apiVersion"] = json!(format!("hostile-{number}.example.com/v1"));
        }
        cluster.submit(wrapper).await;
    }
    let text = until(&metrics, |text| text.contains("state=\"refused\"} 25\n")).await;
    assert!(!text.contains("hostile"), "{text}");
    controller.abort();
}

/// A client of an API server that refuses so many writes of Jobs as it does when it is overloaded, with a pause of 3 s. The
/// times of these requests.
fn overloaded(cluster: &Cluster, refusals: usize) -> (Client, Arc<Mutex<Vec<Instant>>>) {
    let (service, times) = (cluster.service.clone(), Arc::<Mutex<Vec<Instant>>>::default());
    let (seen, count) = (times.clone(), Arc::new(AtomicUsize::new(0)));
    let client = tower::service_fn(move |request: http::Request<Body>| {
        let (service, seen, count) = (service.clone(), seen.clone(), count.clone());
        async move {
            if request.method() == http::Method::POST && request.uri().path().ends_with("/jobs") {
                seen.lock().unwrap().push(Instant::now());
                if count.fetch_add(1, Ordering::Relaxed) < refusals {
                    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 429,
                        "reason": "TooManyRequests", "message": "too many requests, please try again later"});
                    let body = http_body_util::Full::new(bytes::Bytes::from(status.to_string()));
                    let answer = http::Response::builder().status(429).header("Retry-After", "3").body(body);
                    return Ok::<_, std::convert::Infallible>(answer.unwrap().map(Either::Left));
                }
            }
            Ok(service.oneshot(request).await.unwrap().map(Either::Right))
        }
    });
    (Client::new(client, "default"), times)
}

#[tokio::test(start_paused = true)]
async fn a_write_that_the_api_server_refuses_for_its_load_is_repeated_after_the_pause_that_it_asks_for() {
    let cluster = Cluster::new().await;
    cluster.default_nodes().await;
    let (client, times) = overloaded(&cluster, 2);
    let (metrics, controller) = start(&cluster, &client, Config::default());
    cluster.submit(job("a", 0, 1, "1")).await;
    cluster.wait_state(Group::Mcad, "a", "Running", "Dispatched").await;
    let times = times.lock().unwrap().clone();
    assert_eq!(times.len(), 3, "{times:?}");
    let pauses: Vec<u128> = times.windows(2).map(|pair| (pair[1] - pair[0]).as_millis()).collect();
    assert!(pauses.iter().all(|pause| (3_000..3_100).contains(pause)), "{pauses:?}");
    let text = metrics.text(Role::Standalone);
    let of = |code: u16| {
        value(
            &text,
            &format!("muster_api_requests_total{{code=\"{code}\",resource=\"jobs.batch\",verb=\"create\"}}"),
        )
    };
    assert_eq!((of(429), of(201)), (Some(2.0), Some(1.0)), "{text}");
    controller.abort();
}

#[tokio::test(start_paused = true)]
async fn no_more_than_a_fixed_number_of_requests_is_under_way() {
    let cluster = Cluster::new().await;
    let (now, most) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let (service, counts) = (cluster.service.clone(), (now, most.clone()));
    let slow = tower::service_fn(move |request: http::Request<Body>| {
        let (service, (now, most)) = (service.clone(), counts.clone());
        async move {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_secs(1)).await;
            now.fetch_sub(1, Ordering::SeqCst);
            service.oneshot(request).await
        }
    });
    let client = Meter::default().client(&Client::new(slow, "default"));
    let api = kube::Api::<kube::api::DynamicObject>::all_with(client, &resource("v1", "Node", "nodes"));
    let requests = (0..1_000).map(|_| api.get_opt("n"));
    let began = Instant::now();
    futures::future::try_join_all(requests).await.unwrap();
    assert_eq!(most.load(Ordering::SeqCst), 128);
    assert_eq!(began.elapsed().as_secs(), 8);
}
