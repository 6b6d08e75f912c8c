//! The cost of one event, and the memory of a pending gang, by the number of gangs, queues and nodes.
//!
//! `cargo bench -p planner --bench scale` prints a table. Each world runs in its own process, so that its
//! memory can be measured. Numbers after `--` (nodes, queues, pending gangs, shapes) measure one world.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a bench looks at the clock and prints"
)]

mod common;

use std::env;
use std::fs;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use common::FullCluster;

const EVENTS: usize = 1000;

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
    let asked: Vec<u32> = env::args().skip(1).filter_map(|arg| arg.parse().ok()).collect();
    if let Ok(size) = Size::try_from(asked) {
        measure(size);
        return ExitCode::SUCCESS;
    }
    println!(
        "{:>8} {:>8} {:>10} {:>8} {:>10} {:>10} {:>10} {:>12} {:>10}",
        "nodes", "queues", "waiting", "shapes", "p50 us", "p99 us", "max us", "bytes/gang", "peak MiB"
    );
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

/// A memory figure of this process in KiB, from Linux; 0 elsewhere.
fn memory(figure: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(figure));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
}
