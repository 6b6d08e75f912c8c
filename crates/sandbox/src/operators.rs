//! Simulations of operators: `JobSet` 0.12, the training operator 1.9 for its kinds of `kubeflow.org/v1`,
//! `LeaderWorkerSet` 0.9, and the MPI operator 0.8.
//!
//! Names, labels, status, conditions and Events of jobs and pods equal those of the operators. Not implemented: their
//! Services, the variables and init containers for the network between pods, exclusive placement, rules of failure
//! policies, elastic policies, and success policies of a `TFJob`. A `LeaderWorkerSet` owns its leaders, and each leader its
//! workers, without `StatefulSets` between them; it has no subgroups, and its updates neither surge nor partition.

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
use crate::cluster::{Kind, Resource};
use crate::wire::Meta;

pub(crate) use crds::definitions;
pub(crate) use job_set::JobSets;
pub(crate) use leader_worker_set::LeaderWorkerSets;
pub(crate) use mpi_job::MpiJobs;
pub(crate) use training::TrainingJobs;
pub(crate) use training_rules::{JAX, PADDLE, PYTORCH, TENSORFLOW, XGBOOST};

/// A `JobSet`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct JobSet {
    pub(crate) metadata: Meta,
    pub(crate) spec: Value,
    pub(crate) status: Value,
}

/// A `LeaderWorkerSet`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct LeaderWorkerSet {
    pub(crate) metadata: Meta,
    pub(crate) spec: Value,
    pub(crate) status: Value,
}

/// An `MPIJob`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct MpiJob {
    pub(crate) metadata: Meta,
    pub(crate) spec: Value,
    pub(crate) status: Value,
}

/// A job of the training operator; `K` is its kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TrainingJob<const K: usize> {
    pub(crate) metadata: Meta,
    pub(crate) spec: Value,
    pub(crate) status: Value,
}

impl<'de, const K: usize> Deserialize<'de> for TrainingJob<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let JobSet { metadata, spec, status } = JobSet::deserialize(deserializer)?;
        Ok(Self { metadata, spec, status })
    }
}

impl Resource for JobSet {
    const KIND: Kind = Kind::JOB_SET;

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl Resource for LeaderWorkerSet {
    const KIND: Kind = Kind::LEADER_WORKER_SET;

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl Resource for MpiJob {
    const KIND: Kind = Kind::MPI_JOB;

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl<const K: usize> Resource for TrainingJob<K> {
    const KIND: Kind = KINDS[K].kind;

    fn meta(&self) -> &Meta {
        &self.metadata
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
