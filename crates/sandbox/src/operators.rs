//! Simulations of operators: `JobSet` 0.12, the training operator 1.9 for its kinds of `kubeflow.org/v1`,
//! `LeaderWorkerSet` 0.9, and the MPI operator 0.8; and one operator for all other kinds of the table of jobs
//! ([`any_job`]).
//!
//! Of the four, names, labels, status, conditions and Events of jobs and pods equal those of the operators. Not implemented: their
//! Services, the variables and init containers for the network between pods, exclusive placement, rules of failure
//! policies, elastic policies, and success policies of a `TFJob`. A `LeaderWorkerSet` owns its leaders, and each leader its
//! workers, without `StatefulSets` between them; it has no subgroups, and its updates neither surge nor partition.

mod any_job;
mod crds;
mod job_set;
mod job_set_rules;
mod leader_worker_set;
mod leader_worker_set_rules;
mod mpi_job;
mod mpi_job_rules;
mod training;
mod training_rules;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use self::training_rules::KINDS;
use crate::cluster::{Cached, Counted, Kind, Resource};
use crate::wire::Meta;

pub(crate) use any_job::{AnyJobs, operated};
pub(crate) use crds::{definitions, definitions_of_jobs};
pub(crate) use job_set::JobSets;
pub(crate) use leader_worker_set::LeaderWorkerSets;
pub(crate) use mpi_job::MpiJobs;
pub(crate) use training::TrainingJobs;
pub(crate) use training_rules::{JAX, PADDLE, PYTORCH, TENSORFLOW, XGBOOST};

/// An object of an operator's kind, whose rules read its spec and write its status; `K` is the kind: a position in [`KINDS`], or
/// one of the constants after them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Custom<const K: usize> {
    pub(crate) metadata: Meta,
    pub(crate) spec: Value,
    pub(crate) status: Value,
}

impl<'de, const K: usize> Deserialize<'de> for Custom<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // `serde` derives nothing for constants as parameters.
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Fields {
            metadata: Meta,
            spec: Value,
            status: Value,
        }
        let Fields { metadata, spec, status } = Fields::deserialize(deserializer)?;
        Ok(Self { metadata, spec, status })
    }
}

const JOB_SET: usize = KINDS.len();
const LEADER_WORKER_SET: usize = JOB_SET + 1;
const MPI_JOB: usize = JOB_SET + 2;

pub(crate) type JobSet = Custom<JOB_SET>;
pub(crate) type LeaderWorkerSet = Custom<LEADER_WORKER_SET>;
pub(crate) type MpiJob = Custom<MPI_JOB>;

impl<const K: usize> Resource for Custom<K> {
    const KIND: Kind = match K {
        JOB_SET => Kind::JOB_SET,
        LEADER_WORKER_SET => Kind::LEADER_WORKER_SET,
        MPI_JOB => Kind::MPI_JOB,
        training => KINDS[training].kind,
    };
}

impl<const K: usize> Cached for Custom<K> {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl<const K: usize> Custom<K> {
    /// The fields that say how many pods, or objects with pods, are made, and how many pods each of them has.
    fn counts(&self) -> Vec<(String, i64)> {
        let spec = &self.spec;
        let count = |value: &Value| value.as_i64().unwrap_or(1).max(1);
        match K {
            LEADER_WORKER_SET => {
                let size = "/leaderWorkerTemplate/size".to_owned();
                vec![(size, 1), ("/replicas".into(), count(&spec["leaderWorkerTemplate"]["size"]))]
            }
            JOB_SET => {
                let jobs = items(&spec["replicatedJobs"]).iter().enumerate();
                let pods = jobs.map(|(at, job)| (at, count(&job["template"]["spec"]["parallelism"])));
                pods.map(|(at, pods)| (format!("/replicatedJobs/{at}/replicas"), pods)).collect()
            }
            _ => {
                let fields = spec.as_object().into_iter().flatten();
                let roles = fields.filter(|(field, _)| field.ends_with("ReplicaSpecs"));
                let paths = roles.flat_map(|(field, roles)| {
                    roles
                        .as_object()
                        .into_iter()
                        .flatten()
                        .map(move |(role, _)| format!("/{field}/{role}/replicas"))
                });
                paths.map(|path| (path, 1)).collect()
            }
        }
    }

    fn count(&self, path: &str) -> i64 {
        self.spec.pointer(path).and_then(Value::as_i64).unwrap_or(0)
    }
}

impl<const K: usize> Counted for Custom<K> {
    fn largest(&self) -> i64 {
        let counts = self.counts().into_iter();
        counts.map(|(path, pods)| self.count(&path).saturating_mul(pods)).max().unwrap_or(0)
    }

    fn lower(&mut self, most: i64) {
        for (path, pods) in self.counts() {
            let lowered = self.count(&path).min((most / pods).max(1));
            if let Some(count) = self.spec.pointer_mut(&path).filter(|count| count.is_number()) {
                *count = lowered.into();
            }
        }
    }
}

/// The items of a list; none if it is missing.
fn items(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

/// The text of a field; empty if it is missing.
fn text(field: &Value) -> &str {
    field.as_str().unwrap_or_default()
}
