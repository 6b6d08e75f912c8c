//! Measures a round of the control loop while many AppWrappers wait: `cargo bench -p controllers --bench waiting -- COUNT`,
//! by default 100,000. A round without requests: an event is applied to the index, and the planner decides. It prints a
//! table, and asserts nothing.

use std::time::Instant;

use api::MicroTime;
use api::appwrapper::{AppWrapper, Group};
use index::{Index, Kind, KindState, wire};
use model::Time;
use serde_json::{Value, json};

/// The number of measured events of each kind.
const EVENTS: usize = 21;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--test") {
        return; // `cargo test --benches` only checks that it builds.
    }
    let count = arguments.iter().find_map(|argument| argument.parse().ok()).unwrap_or(100_000);
    let mut index = Index::new();
    index.upsert_namespace(
        &serde_json::from_value(json!({"metadata": {"name": "default"}})).expect("a Namespace"),
    );
    for at in 0..10 {
        index.upsert_node(node(at, false));
    }
    index.upsert_wrapper(Group::Mcad, wrapper(0), MicroTime(0));
    let served = KindState::Served { plural: "jobs".into(), listed: true };
    index.set_kind_state(&Kind::new("batch/v1", "Job"), &served);
    let began = Instant::now();
    for at in 1..count {
        index.upsert_wrapper(Group::Mcad, wrapper(at), MicroTime(0));
    }
    round(&mut index, 1);
    println!(
        "{count} wait: applied and planned in {:.1} s; {} MiB",
        began.elapsed().as_secs_f64(),
        memory_mib()
    );
    measure("a new AppWrapper that waits", |at| {
        let began = Instant::now();
        index.upsert_wrapper(Group::Mcad, wrapper(count + at), MicroTime(0));
        round(&mut index, at);
        began.elapsed().as_secs_f64()
    });
    measure("a node is cordoned or uncordoned", |at| {
        let began = Instant::now();
        index.upsert_node(node(0, at % 2 == 0));
        round(&mut index, at);
        began.elapsed().as_secs_f64()
    });
}

/// Settles the index, plans, and applies the plan, as a round of the loop does.
fn round(index: &mut Index, at: usize) {
    index.settle();
    let now = Time(i64::try_from(at).unwrap_or(0));
    let plan = planner::plan(&index.world().snapshot(now));
    index.apply_plan(plan);
    index.settle();
    index.take_dirty();
}

fn measure(what: &str, mut event: impl FnMut(usize) -> f64) {
    let mut took: Vec<f64> = (0..EVENTS).map(&mut event).collect();
    took.sort_by(f64::total_cmp);
    println!("{what}: median {:.2} ms, most {:.2} ms", took[EVENTS / 2] * 1e3, took[EVENTS - 1] * 1e3);
}

fn node(at: usize, is_cordoned: bool) -> wire::Node {
    parse(&json!({
        "metadata": {"name": format!("node-{at}"), "uid": format!("node-{at}"), "labels": {}},
        "spec": {"unschedulable": is_cordoned},
        "status": {"allocatable": {"cpu": "8", "memory": "64Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}]},
    }))
}

/// An AppWrapper whose pod is larger than a node.
fn wrapper(at: usize) -> AppWrapper {
    let name = format!("gang-{at}");
    let container = json!({"name": "main", "image": "none", "resources": {"requests": {"cpu": "9"}}});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}});
    parse(&json!({
        "apiVersion": "mcad.ibm.com/v1beta1", "kind": "AppWrapper",
        "metadata": {"name": name, "namespace": "default", "uid": name, "resourceVersion": "1",
            "creationTimestamp": "2026-11-22T00:00:00Z"},
        "spec": {"resources": {"GenericItems": [{"replicas": 1, "generictemplate": job}]}},
    }))
}

fn parse<T: serde::de::DeserializeOwned>(value: &Value) -> T {
    serde_json::from_str(&value.to_string()).expect("the object is well-formed")
}

/// Resident memory of this process.
fn memory_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) / 1024
}
