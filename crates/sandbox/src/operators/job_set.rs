//! The `JobSet` operator: carries out the decisions of `job_set_rules`.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::JobSet;
use super::job_set_rules::{self, Step};
use crate::cluster::{Cluster, Delete, Error, Precondition, Queue, Recorder, Store};
use crate::wire::{Job, Key};

/// The value of `managedBy` for this operator.
const OPERATOR: &str = "jobset.sigs.k8s.io/jobset-controller";

/// The operator.
pub(crate) struct JobSets {
    cluster: Cluster,
    store: Arc<Store<JobSet>>,
    jobs: Arc<Store<Job>>,
    recorder: Recorder,
    pub(crate) queue: Queue<Key>,
}

impl JobSets {
    pub(crate) fn new(
        cluster: Cluster,
        store: Arc<Store<JobSet>>,
        jobs: Arc<Store<Job>>,
        recorder: &Recorder,
    ) -> Self {
        let recorder = recorder.for_component("jobset");
        Self { cluster, store, jobs, recorder, queue: Queue::new() }
    }

    pub(crate) fn job_changed(&self, job: &Job) {
        if let Some(key) = job.metadata.controller_of_kind("JobSet") {
            self.queue.add(key);
        }
    }

    pub(crate) async fn reconcile(&self, key: Key) -> Result<Option<Instant>, Error> {
        let Some(set) = self.store.get(&key).filter(|set| !set.metadata.is_deleting()) else {
            return Ok(None);
        };
        if set.spec["managedBy"].as_str().is_some_and(|manager| manager != OPERATOR) {
            return Ok(None);
        }
        let set = self.cluster.limit(set, &self.recorder);
        let jobs = self.jobs.indexed(&set.metadata.uid);
        let decision = job_set_rules::decide(&set, &jobs, self.cluster.stamp());
        for step in decision.steps {
            self.act(&set, step).await?;
        }
        for (is_warning, reason, message) in decision.events {
            self.recorder.tell(&*set, is_warning, reason, message);
        }
        let write = self.cluster.change_status(&self.store, &set.metadata, &set.status, &decision.status);
        write.await?;
        let pause = decision.wake_s.and_then(|seconds| u64::try_from(seconds).ok());
        Ok(pause.map(|seconds| Instant::now() + Duration::from_secs(seconds)))
    }

    async fn act(&self, set: &JobSet, step: Step) -> Result<(), Error> {
        let patched = match step {
            Step::Create(job) => match self.cluster.create(&self.jobs, &set.metadata.namespace, &job).await {
                Err(error) if !error.is_conflict() => {
                    self.recorder.warning(set, "JobCreationFailed", error.reason());
                    return Err(error);
                }
                _ => return Ok(()),
            },
            Step::Suspend(job) => {
                let patch = json!({"spec": {"suspend": true}});
                self.cluster.patch(&self.jobs, &job.metadata, patch, Precondition::Uid).await
            }
            Step::Rewind(job) => {
                let patch = json!({"startTime": null});
                self.cluster.patch_status(&self.jobs, &job.metadata, patch, Precondition::Uid).await
            }
            Step::Resume(job, patch) => {
                self.cluster.patch(&self.jobs, &job.metadata, patch, Precondition::ResourceVersion).await
            }
            Step::Delete(job) => {
                let how = Delete { grace: None, propagation: Some("Foreground") };
                return self.cluster.delete(&self.jobs, &job.metadata, how).await;
            }
            Step::Expire => {
                let how = Delete { grace: None, propagation: Some("Foreground") };
                return self.cluster.delete(&self.store, &set.metadata, how).await;
            }
        };
        match patched {
            Err(error) if error.is_not_found() => Ok(()),
            patched => patched.map(drop),
        }
    }
}
