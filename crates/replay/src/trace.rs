//! What is replayed: a cluster and the jobs that come to it.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{PodSet, Time, World};

/// Jobs for a cluster.
#[derive(Clone, Debug)]
pub struct Trace {
    /// The nodes, with nothing on them.
    pub cluster: World,
    /// What the width of jobs is counted in.
    pub unit: Unit,
    /// How many of them the nodes hold.
    pub capacity: u64,
    /// The jobs, by the time at which they come; those of one time in the order of the file.
    pub jobs: Vec<Job>,
    /// How many jobs of the file cannot be replayed, by why.
    pub left_out: BTreeMap<LeftOut, usize>,
}

/// One job of a trace: a gang that comes, waits, runs and ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// What the file calls it.
    pub name: String,
    /// When it comes.
    pub submitted: Time,
    /// How long it really runs, in microseconds.
    pub runs_us: i64,
    /// How long it says that it runs, in microseconds.
    pub declared_us: i64,
    /// How many units it takes.
    pub width: u32,
    /// Its pods.
    pub pod_sets: Arc<[PodSet]>,
}

/// What the width of a job is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Processors.
    Processors,
    /// GPUs.
    Gpus,
}

impl Unit {
    /// As people write it, in the plural.
    pub fn name(self) -> &'static str {
        match self {
            Self::Processors => "processors",
            Self::Gpus => "GPUs",
        }
    }
}

/// Why a job is not replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LeftOut {
    /// The file does not say how long it ran.
    UnknownRunTime,
    /// The file does not say how much it took, or it took nothing.
    UnknownWidth,
    /// It takes more than the cluster holds.
    TooWide,
}

impl LeftOut {
    /// As people say it.
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

    pub(crate) fn leave_out(&mut self, why: LeftOut) {
        *self.left_out.entry(why).or_default() += 1;
    }

    /// The jobs in the order in which they come.
    pub(crate) fn sorted(mut self) -> Self {
        self.jobs.sort_by_key(|job| job.submitted);
        self
    }
}
