//! The operator of `MPIJobs`: carries out the decisions of `mpi_job_rules`.

use std::sync::Arc;

use serde_json::json;
use tokio::time::Instant;

use super::MpiJob;
use super::mpi_job_rules::{self, JOB_NAME, Observed, Step};
use crate::cluster::{Cluster, Delete, Error, Precondition, Queue, Recorder, Store};
use crate::wire::{Job, Key, Pod};

/// The value of `managedBy` for this operator.
const OPERATOR: &str = "kubeflow.org/mpi-operator";

/// The operator.
pub(crate) struct MpiJobs {
    cluster: Cluster,
    store: Arc<Store<MpiJob>>,
    jobs: Arc<Store<Job>>,
    pods: Arc<Store<Pod>>,
    recorder: Recorder,
    pub(crate) queue: Queue<Key>,
}

impl MpiJobs {
    pub(crate) fn new(
        cluster: Cluster,
        store: Arc<Store<MpiJob>>,
        jobs: Arc<Store<Job>>,
        pods: Arc<Store<Pod>>,
        recorder: &Recorder,
    ) -> Self {
        let recorder = recorder.for_component("mpi-job-controller");
        Self { cluster, store, jobs, pods, recorder, queue: Queue::new() }
    }

    pub(crate) fn job_changed(&self, job: &Job) {
        if let Some(key) = job.metadata.controller_of_kind("MPIJob") {
            self.queue.add(key);
        }
    }

    /// Queues the job of a worker or of a pod of the launcher.
    pub(crate) fn pod_changed(&self, pod: &Pod) {
        if let Some(job) = pod.metadata.label(JOB_NAME) {
            self.queue.add(Key::new(&*pod.metadata.namespace, job));
        }
    }

    pub(crate) async fn reconcile(&self, key: Key) -> Result<Option<Instant>, Error> {
        let Some(job) = self.store.get(&key).filter(|job| !job.metadata.is_deleting()) else {
            return Ok(None);
        };
        let manager = job.spec["runPolicy"]["managedBy"].as_str();
        if manager.is_some_and(|manager| manager != OPERATOR) {
            return Ok(None);
        }
        let job = self.cluster.limit(job, &self.recorder);
        let launcher = self.jobs.indexed(&job.metadata.uid).into_iter().next();
        let launcher_pods =
            launcher.as_ref().map_or_else(Vec::new, |launcher| self.pods.indexed(&launcher.metadata.uid));
        let workers = self.pods.indexed(&job.metadata.uid);
        let now = self.cluster.stamp();
        let decision = mpi_job_rules::decide(&Observed { job: &job, launcher, launcher_pods, workers, now });
        for step in decision.steps {
            self.act(&job, step).await?;
        }
        for (is_warning, reason, message) in decision.events {
            self.recorder.tell(&*job, is_warning, &reason, message);
        }
        let write = self.cluster.change_status(&self.store, &job.metadata, &job.status, &decision.status);
        write.await?;
        Ok(None)
    }

    async fn act(&self, job: &MpiJob, step: Step) -> Result<(), Error> {
        let namespace = &job.metadata.namespace;
        let done = match step {
            Step::Create(pod) => self.cluster.create(&self.pods, namespace, &pod).await.map(drop),
            Step::Launch(launcher) => self.cluster.create(&self.jobs, namespace, &launcher).await.map(drop),
            Step::Delete(pod) => {
                return self.cluster.delete(&self.pods, &pod.metadata, Delete::default()).await;
            }
            Step::Rewind(launcher) => {
                let patch = json!({"startTime": null});
                let how = Precondition::Uid;
                return self.cluster.patch_status(&self.jobs, &launcher.metadata, patch, how).await.map(drop);
            }
            Step::Patch(launcher, patch) => {
                let how = Precondition::ResourceVersion;
                return self.cluster.patch(&self.jobs, &launcher.metadata, patch, how).await.map(drop);
            }
        };
        match done {
            // An object of this name is still being deleted. Its end is an event.
            Err(error) if !error.is_conflict() => {
                let message = format!("pod created failed: {}", error.reason());
                self.recorder.warning(job, "MPIJobFailed", message);
                Err(error)
            }
            _ => Ok(()),
        }
    }
}
