//! Random tests: operators and authors act on a simulated cluster in virtual time, and then every invariant holds.
//!
//! A seed decides what happens. `CHAOS_SEED=n cargo test -p controllers --test chaos -- --nocapture` runs one seed and
//! removes the actions that the failure does not need; `CHAOS_SEEDS=1-10000` runs a range on all cores.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod chaos {
    pub(crate) mod actions;
    pub(crate) mod authors;
    pub(crate) mod invariants;
    pub(crate) mod link;
    pub(crate) mod rng;
    pub(crate) mod run;
    pub(crate) mod world;
}
mod common;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use chaos::actions::Script;
use chaos::run;

/// Seeds of a run without `CHAOS_SEED` and `CHAOS_SEEDS`.
const SEEDS: (u64, u64) = (1, 199);

#[test]
fn after_any_actions_and_a_repair_all_invariants_hold() {
    if let Ok(seed) = std::env::var("CHAOS_SEED") {
        return run_one(seed.parse().unwrap());
    }
    let (first, last) = match std::env::var("CHAOS_SEEDS") {
        Ok(range) => {
            let (first, last) = range.split_once('-').unwrap();
            (first.parse().unwrap(), last.parse().unwrap())
        }
        Err(_) => SEEDS,
    };
    let failed = run_range(first, last);
    let told: Vec<_> = failed.iter().map(|(seed, told)| format!("CHAOS_SEED={seed}: {told}")).collect();
    assert!(failed.is_empty(), "{} of {} seeds failed:\n{}", failed.len(), last - first + 1, told.join("\n"));
}

/// Runs one seed. If it fails, removes actions that the failure does not need.
fn run_one(seed: u64) {
    let mut script = Script::new(seed);
    let Err(mut failure) = run::run(&script) else { return };
    eprintln!("{failure}\n{script}");
    let mut at = script.actions.len();
    while at > 0 {
        at -= 1;
        let mut shorter = script.clone();
        shorter.actions.remove(at);
        match run::run(&shorter) {
            Err(same) if same.invariant == failure.invariant => (script, failure) = (shorter, same),
            _ => {}
        }
    }
    eprintln!("\nReduced to {} actions, {failure}\n{script}", script.actions.len());
    panic!("CHAOS_SEED={seed}: {failure}");
}

/// Runs a range of seeds on all cores. Returns the seeds that failed, and why.
fn run_range(first: u64, last: u64) -> Vec<(u64, String)> {
    let (next, failed, begun) = (AtomicU64::new(first), Mutex::new(Vec::new()), Instant::now());
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed > last {
                break;
            }
            if let Err(failure) = run::run(&Script::new(seed)) {
                eprintln!("CHAOS_SEED={seed}: {failure}");
                failed.lock().unwrap().push((seed, failure.to_string()));
            }
            if seed % 500 == 0 {
                eprintln!(
                    "seed {seed} of {first}-{last} after {:.0?}, {} failed",
                    begun.elapsed(),
                    failed.lock().unwrap().len()
                );
            }
        }
    };
    std::thread::scope(|scope| {
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        (0..workers).for_each(|_| drop(scope.spawn(work)));
    });
    let mut failed = failed.into_inner().unwrap();
    failed.sort();
    failed
}
