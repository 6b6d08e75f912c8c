//! What came of filling a cluster several times: figures for programs, and a table for people.

use std::fmt;

use model::Packing;
use serde::Serialize;

use crate::openb::{Filled, Workload};
use crate::report::{count, mean};

/// The figures of filling a cluster once for each seed. Those that need time are absent.
#[derive(Clone, Debug, Serialize)]
pub struct FillReport {
    /// Which nodes were preferred.
    pub policy: &'static str,
    /// How many tasks the workload has.
    pub tasks: usize,
    /// How many GPUs the cluster has.
    pub gpus: u64,
    /// GPUs that are not allocated when as many have been asked for as there are; the mean over the seeds.
    pub unallocated_gpus: f64,
    /// The part of the GPUs that is allocated then.
    pub utilization: f64,
    /// The part of the GPUs that is then idle and of no use to a task of the workload, in the mean over its tasks.
    pub fragmentation: f64,
    /// Tasks do not wait here.
    pub mean_wait_s: Option<f64>,
    /// Tasks do not wait here.
    pub widest_mean_wait_s: Option<f64>,
    /// Nothing is promised here.
    pub promised_slips: Option<usize>,
    /// Each time.
    pub seeds: Vec<Seed>,
}

/// One time.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Seed {
    /// What the order of the tasks was drawn from.
    pub seed: u64,
    /// How many tasks came.
    pub came: usize,
    /// How many of them found no place.
    pub refused: usize,
    /// GPUs that are not allocated.
    pub unallocated_gpus: f64,
    /// GPUs that are idle and of no use to a task, in the mean over the tasks.
    pub fragmented_gpus: f64,
}

impl FillReport {
    /// What came of filling, by seed.
    pub fn of(workload: &Workload, packing: Packing, filled: &[(u64, Filled)]) -> Self {
        let gpus = count(workload.gpus);
        let seed = |(seed, filled): &(u64, Filled)| Seed {
            seed: *seed,
            came: filled.came,
            refused: filled.refused,
            unallocated_gpus: gpus - count(filled.allocated_milli) / 1e3,
            fragmented_gpus: count(filled.fragmented_milli) / 1e3,
        };
        let seeds: Vec<Seed> = filled.iter().map(seed).collect();
        let unallocated_gpus = mean(seeds.iter().map(|seed| seed.unallocated_gpus));
        Self {
            policy: packing.name(),
            tasks: workload.tasks(),
            gpus: workload.gpus,
            unallocated_gpus,
            utilization: 1.0 - unallocated_gpus / gpus,
            fragmentation: mean(seeds.iter().map(|seed| seed.fragmented_gpus)) / gpus,
            mean_wait_s: None,
            widest_mean_wait_s: None,
            promised_slips: None,
            seeds,
        }
    }
}

impl fmt::Display for FillReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seeds = self.seeds.len();
        writeln!(f, "policy          {}", self.policy)?;
        writeln!(f, "cluster         {} GPUs", self.gpus)?;
        writeln!(f, "tasks           {}, until all GPUs have been asked for; {seeds} seeds", self.tasks)?;
        writeln!(f, "unallocated     {:.1} GPUs", self.unallocated_gpus)?;
        writeln!(f, "utilisation     {:.1} %", self.utilization * 100.0)?;
        writeln!(f, "fragmentation   {:.1} % idle and of no use to a mean task", self.fragmentation * 100.0)?;
        writeln!(f)?;
        writeln!(
            f,
            "{:>8} {:>8} {:>8} {:>12} {:>12}",
            "seed", "tasks", "refused", "unallocated", "fragmented"
        )?;
        for Seed { seed, came, refused, unallocated_gpus, fragmented_gpus } in &self.seeds {
            writeln!(f, "{seed:>8} {came:>8} {refused:>8} {unallocated_gpus:>12.1} {fragmented_gpus:>12.1}")?;
        }
        Ok(())
    }
}
