//! The metrics of filling a cluster several times, as JSON and as a table.

use std::fmt;

use model::Packing;
use serde::Serialize;

use crate::openb::{Filled, Workload};
use crate::report::{count, mean};

/// The metrics of filling a cluster once for each seed. Metrics that need time are `None`.
#[derive(Clone, Debug, Serialize)]
pub struct FillReport {
    /// The name of the node scoring policy.
    pub policy: &'static str,
    /// The number of tasks in the workload.
    pub tasks: usize,
    /// The number of GPUs in the cluster.
    pub gpus: u64,
    /// The GPUs that are not allocated when the total request reaches the capacity; the mean over the seeds.
    pub unallocated_gpus: f64,
    /// The fraction of the GPUs that is allocated at that point.
    pub utilization: f64,
    /// The fraction of the GPUs that is idle and unusable for a task at that point, averaged over the tasks of the workload.
    pub fragmentation: f64,
    /// Always `None`: a task is placed or rejected at once.
    pub mean_wait_s: Option<f64>,
    /// Always `None`: a task is placed or rejected at once.
    pub widest_mean_wait_s: Option<f64>,
    /// Always `None`: no start is reserved.
    pub promised_slips: Option<usize>,
    /// The result for each seed.
    pub seeds: Vec<Seed>,
}

/// The result for one seed.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Seed {
    /// The seed of the random task order.
    pub seed: u64,
    /// The number of tasks that arrived.
    pub came: usize,
    /// The number of tasks that did not fit.
    pub refused: usize,
    /// The GPUs that are not allocated.
    pub unallocated_gpus: f64,
    /// The GPUs that are idle and unusable for a task, averaged over the tasks of the workload.
    pub fragmented_gpus: f64,
}

impl FillReport {
    /// Computes the metrics from the results by seed.
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
        writeln!(
            f,
            "tasks           {}, until the total request reaches all GPUs; {seeds} seeds",
            self.tasks
        )?;
        writeln!(f, "unallocated     {:.1} GPUs", self.unallocated_gpus)?;
        writeln!(f, "utilisation     {:.1} %", self.utilization * 100.0)?;
        writeln!(
            f,
            "fragmentation   {:.1} % idle and unusable, averaged over the tasks",
            self.fragmentation * 100.0
        )?;
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
