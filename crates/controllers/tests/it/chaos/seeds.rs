//! Runs many seeds on all cores.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// How many seeds pass between two lines about the progress.
const TOLD: usize = 500;

/// The seeds of the variable `CHAOS_SEEDS`, such as `1-10000`, or these.
pub(crate) fn chosen(default: impl IntoIterator<Item = u64>) -> Vec<u64> {
    let Ok(range) = std::env::var("CHAOS_SEEDS") else { return default.into_iter().collect() };
    let (first, last) = range.split_once('-').unwrap();
    (first.parse().unwrap()..=last.parse().unwrap()).collect()
}

/// Runs seeds. Returns those that failed, and why.
pub(crate) fn run(seeds: &[u64], run: impl Fn(u64) -> Result<(), String> + Sync) -> Vec<(u64, String)> {
    let (next, failed, begun) = (AtomicUsize::new(0), Mutex::new(Vec::new()), Instant::now());
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(&seed) = seeds.get(at) else { break };
            if let Err(failure) = run(seed) {
                failed.lock().unwrap().push((seed, failure));
            }
            if (at + 1).is_multiple_of(TOLD) {
                let failed = failed.lock().unwrap().len();
                eprintln!(
                    "{} of {} seeds after {:.0?}, {failed} failed",
                    at + 1,
                    seeds.len(),
                    begun.elapsed()
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
