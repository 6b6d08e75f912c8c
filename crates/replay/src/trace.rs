//! A trace: a cluster and the jobs that are submitted to it.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{PodSet, Time, World};

/// A cluster and its jobs.
#[derive(Clone, Debug)]
pub struct Trace {
    /// The empty nodes.
    pub cluster: World,
    /// The unit of job widths.
    pub unit: Unit,
    /// The capacity of all nodes, in this unit.
    pub capacity: u64,
    /// The jobs by submit time; jobs with equal submit times keep the order of the file.
    pub jobs: Vec<Job>,
    /// The number of jobs of the file that cannot be replayed, by reason.
    pub left_out: BTreeMap<LeftOut, usize>,
}

/// One job of a trace. It is replayed as one gang.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The name of the job in the file.
    pub name: String,
    /// The submit time.
    pub submitted: Time,
    /// The actual run time, in microseconds.
    pub runs_us: i64,
    /// The run time that the user declares (the estimate), in microseconds.
    pub declared_us: i64,
    /// The number of processors or GPUs that the job needs.
    pub width: u32,
    /// The pods of the job.
    pub pod_sets: Arc<[PodSet]>,
}

/// The unit of job widths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Processors.
    Processors,
    /// GPUs.
    Gpus,
}

impl Unit {
    /// The plural name for reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Processors => "processors",
            Self::Gpus => "GPUs",
        }
    }
}

/// The reason why a job is not replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LeftOut {
    /// The file has no run time for the job.
    UnknownRunTime,
    /// The file has no width for the job, or the width is 0.
    UnknownWidth,
    /// The job is wider than the capacity of the cluster.
    TooWide,
}

impl LeftOut {
    /// The text for reports.
    pub fn text(self) -> &'static str {
        match self {
            Self::UnknownRunTime => "run time unknown",
            Self::UnknownWidth => "width unknown",
            Self::TooWide => "wider than the cluster",
        }
    }
}

impl Trace {
    pub(crate) fn new(cluster: World, unit: Unit, capacity: u64) -> Self {
        Self { cluster, unit, capacity, jobs: Vec::new(), left_out: BTreeMap::new() }
    }

    pub(crate) fn leave_out(&mut self, reason: LeftOut) {
        *self.left_out.entry(reason).or_default() += 1;
    }

    /// Sorts the jobs by submit time.
    pub(crate) fn sorted(mut self) -> Self {
        self.jobs.sort_by_key(|job| job.submitted);
        self
    }
}
