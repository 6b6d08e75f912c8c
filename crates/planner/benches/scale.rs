//! The cost of one event, and the memory of a pending gang, by the number of gangs, queues and nodes.
//!
//! `cargo bench -p planner --bench scale` prints a table. Each world runs in its own process, so that its
//! memory can be measured. `-- rules` measures gangs with rules between pods only. Numbers after `--` (nodes, queues, pending gangs, shapes) measure one world.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a bench looks at the clock and prints"
)]

mod common;

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use common::FullCluster;
use model::{Event, HostPort, Node, PodAffinity, PodRules, PodSet, PodTerm, SelectorIx, SpreadConstraint};

const EVENTS: usize = 1000;

/// The label key of host names.
const HOST: &str = "kubernetes.io/hostname";

/// Nodes, queues, pending gangs, shapes.
type Size = [u32; 4];

/// Each dimension up to the largest; without queues, with queues, and with many shapes.
const SIZES: [Size; 12] = [
    [100, 0, 1_000, 10],
    [1_000, 0, 10_000, 10],
    [10_000, 0, 100_000, 10],
    [10_000, 0, 1_000_000, 10],
    [100_000, 0, 1_000_000, 10],
    [10_000, 0, 100_000, 1_000],
    [100, 100, 1_000, 10],
    [1_000, 1_000, 10_000, 10],
    [10_000, 1_000, 100_000, 10],
    [10_000, 10_000, 1_000_000, 10],
    [100_000, 1_000, 1_000_000, 10],
    [100_000, 10_000, 1_000_000, 10],
];

fn main() -> ExitCode {
    if env::args().any(|arg| arg == "rules") {
        measure_rules();
        return ExitCode::SUCCESS;
    }
    let asked: Vec<u32> = env::args().skip(1).filter_map(|arg| arg.parse().ok()).collect();
    if let Ok(size) = Size::try_from(asked) {
        measure(size);
        return ExitCode::SUCCESS;
    }
    println!(
        "{:>8} {:>8} {:>10} {:>8} {:>10} {:>10} {:>10} {:>12} {:>10}",
        "nodes", "queues", "waiting", "shapes", "p50 us", "p99 us", "max us", "bytes/gang", "peak MiB"
    );
    measure_rules();
    let measured = SIZES.iter().all(|size| {
        let myself = env::current_exe().expect("the system knows what runs");
        let args = size.map(|number| number.to_string());
        Command::new(myself).args(args).status().is_ok_and(|status| status.success())
    });
    if measured { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn measure([nodes, queues, waiting, shapes]: Size) {
    let mut cluster = FullCluster::full(nodes, queues);
    let before = memory("VmRSS");
    cluster.add_pending(waiting, shapes);
    let each = memory("VmRSS").saturating_sub(before) * 1024 / u64::from(waiting);
    let mut random = 1_u64;
    let mut took: Vec<Duration> = (0..EVENTS)
        .map(|_| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = usize::try_from(random >> 33).unwrap_or(0) % cluster.running.len();
            let begun = Instant::now();
            let started = cluster.end_and_plan(at);
            let took = begun.elapsed();
            cluster.refill(started);
            took
        })
        .collect();
    took.sort_unstable();
    let micros = |at: usize| took[at].as_micros();
    println!(
        "{nodes:>8} {queues:>8} {waiting:>10} {shapes:>8} {:>10} {:>10} {:>10} {each:>12} {:>10}",
        micros(EVENTS / 2),
        micros(EVENTS * 99 / 100),
        micros(EVENTS - 1),
        memory("VmHWM") / 1024
    );
}

/// Prints how long one plan takes for a gang of 1,000 pods with rules between pods on 10,000 nodes in 50 zones.
fn measure_rules() {
    let selected = || BTreeSet::from([SelectorIx(1)]);
    let term = |key: &str| PodTerm { selector: SelectorIx(1), topology_key: key.into() };
    let spread = |key: &str| SpreadConstraint {
        selector: SelectorIx(1),
        topology_key: key.into(),
        max_skew: 1,
        min_domains: 1,
        honors_affinity: true,
        honors_taints: false,
    };
    let port = HostPort { port: 80, protocol: "TCP".into(), address: None };
    let near = PodAffinity { selector: SelectorIx(1), topology_keys: ["zone".to_owned()].into() };
    let none = || PodRules { selected_by: selected(), ..PodRules::default() };
    let cases = [
        ("no rule", 1_000, PodRules::default()),
        ("anti-affinity by host", 1_000, PodRules { anti_affinity: [term(HOST)].into(), ..none() }),
        ("host port", 1_000, PodRules { host_ports: [port].into(), ..none() }),
        ("spread by zone", 1_000, PodRules { spread: vec![spread("zone")], ..none() }),
        ("spread by host", 1_000, PodRules { spread: vec![spread(HOST)], ..none() }),
        ("spread by zone and host", 1_000, PodRules { spread: vec![spread("zone"), spread(HOST)], ..none() }),
        ("affinity by zone", 1_000, PodRules { affinity: Some(near), ..none() }),
        ("too many for anti-affinity", 10_001, PodRules { anti_affinity: [term(HOST)].into(), ..none() }),
    ];
    for (name, count, rules) in cases {
        let mut world = common::nodes(10_000);
        let nodes: Vec<Node> = world.nodes().cloned().collect();
        for (at, mut node) in nodes.into_iter().enumerate() {
            node.labels.insert("zone".into(), (at % 50).to_string());
            world.apply(Event::NodeUpserted(node));
        }
        let mut gang = common::gang(0, count);
        let rules = (!rules.is_empty()).then(|| rules.into());
        gang.pod_sets = [PodSet { rules, ..gang.pod_sets[1].clone() }].into();
        world.apply(Event::GangUpserted(gang));
        let begun = Instant::now();
        let plan = planner::plan(&world.snapshot(common::NOW));
        let (took, admits) = (begun.elapsed(), plan.verdicts[0].1.shortage().is_none());
        println!("{name:<28} {count:>6} pods, admitted: {admits:<5} {:>8} us", took.as_micros());
    }
}

/// A memory figure of this process in KiB, from Linux; 0 elsewhere.
fn memory(figure: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(figure));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
}
