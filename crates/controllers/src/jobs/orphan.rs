//! The Workloads of jobs that no watch shows: a job that is gone releases its quota, and one that has lost the label of its queue does
//! so when it has stopped.

use api::kueue::FINALIZER;
use api::kueue::jobs::{JobKind, QUEUE_NAME, queue_name};
use api::kueue::status::Status;
use kube::Client;
use serde_json::{Value, json};

use super::objects::has_quota;
use super::write::{self, Before, decoded, jobs};
use crate::error::Error;
use crate::kueue::write::without_finalizer;
use crate::watched::Whole;

/// A Workload whose job is not shown.
pub(super) struct Orphan {
    /// The kind of the job.
    pub(super) kind: &'static JobKind,
    pub(super) workload: Whole,
    /// Whether jobs without the label of a queue are watched and managed.
    pub(super) manages_unnamed: bool,
    /// Whether pods run with the quota of the Workload.
    pub(super) has_pods: bool,
    /// What is done if the job is really gone.
    pub(super) next: OrphanStep,
}

/// What is done about a Workload whose job is gone.
pub(super) enum OrphanStep {
    /// Nothing: its pods run.
    Keep,
    /// Gives back the quota of pods that have ended: nothing makes others. The whole `status.reclaimablePods`.
    Reclaim(Value),
    /// Writes this status.
    Finish(Box<Status>),
    /// Removes the finalizer.
    Release,
}

impl Orphan {
    /// What the watches show before the write.
    pub(super) fn target(&self) -> Before {
        write::target(&self.workload.value)
    }

    /// Performs the write, if the job is really gone. Returns whether anything was written.
    pub(super) async fn perform(self, client: &Client) -> Result<bool, Error> {
        let Some(owner) = self.workload.metadata.controller() else { return Ok(false) };
        let path = jobs(self.kind, &self.workload.metadata.namespace);
        match path.get::<Whole>(client, &owner.name).await {
            Ok(job) if job.metadata.uid == owner.uid && !job.metadata.is_deleting() => {
                return self.leave_queue(client, &job).await;
            }
            Ok(_) | Err(Error::NotFound(_)) => {}
            Err(error) => return Err(error),
        }
        match self.next {
            OrphanStep::Keep => return Ok(false),
            OrphanStep::Reclaim(pods) => write::reclaimable(client, &self.workload, pods).await?,
            OrphanStep::Finish(status) => {
                let decoded = decoded(&self.workload).map_err(Error::Refused)?;
                write::admission(client, decoded, *status).await?;
            }
            OrphanStep::Release => {
                let patch = without_finalizer(&self.workload.metadata, FINALIZER);
                write::merge(client, &self.workload, &patch).await?;
            }
        }
        Ok(true)
    }

    /// A job that has lost its queue and waits, waits no more: its Workload goes. One that runs gets the label back, because its quota
    /// is in use.
    async fn leave_queue(self, client: &Client, job: &Whole) -> Result<bool, Error> {
        if self.manages_unnamed || !queue_name(&job.value).is_empty() {
            return Ok(false);
        }
        let is_used = is_used(self.kind, job, self.has_pods);
        let queue = self.workload.value["spec"]["queueName"].as_str().filter(|name| !name.is_empty());
        if let Some(queue) = queue.filter(|_| is_used && has_quota(&self.workload)) {
            let meta = &job.metadata;
            let patch = json!({"metadata": {"resourceVersion": meta.resource_version, "labels": {QUEUE_NAME: queue}}});
            jobs(self.kind, &meta.namespace).merge::<Whole>(client, &meta.name, &patch).await?;
        } else {
            write::delete(client, &self.workload).await?;
        }
        Ok(true)
    }
}

/// Whether a job uses the quota that it has: it runs, may start pods, or its pods are not gone.
pub(super) fn is_used(kind: &JobKind, job: &Whole, has_pods: bool) -> bool {
    has_pods || !kind.is_suspended(&job.value) || kind.integration.is_active(&job.value)
}
