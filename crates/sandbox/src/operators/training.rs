//! The training operator, for one of its kinds: carries out the decisions of `training_rules`.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Custom;
use super::training_rules::{self, KINDS, Observed};
use crate::cluster::{Cluster, Controller, Delete, Error, Queue, Recorder, Store};
use crate::wire::{Key, Pod};
use crate::workloads::template;

/// The value of `managedBy` for this operator.
const OPERATOR: &str = "kubeflow.org/training-operator";

/// The operator of the kind at position `K` of [`KINDS`].
pub(crate) struct TrainingJobs<const K: usize> {
    cluster: Cluster,
    store: Arc<Store<Custom<K>>>,
    pods: Arc<Store<Pod>>,
    recorder: Recorder,
    pub(crate) queue: Queue<Key>,
}

impl<const K: usize> TrainingJobs<K> {
    pub(crate) fn new(
        cluster: Cluster,
        store: Arc<Store<Custom<K>>>,
        pods: Arc<Store<Pod>>,
        recorder: &Recorder,
    ) -> Self {
        let component = match K {
            training_rules::PYTORCH => "pytorchjob-controller",
            training_rules::TENSORFLOW => "tfjob-controller",
            training_rules::XGBOOST => "xgboostjob-controller",
            training_rules::PADDLE => "paddlejob-controller",
            _ => "jaxjob-controller",
        };
        Self { cluster, store, pods, recorder: recorder.for_component(component), queue: Queue::new() }
    }

    pub(crate) fn pod_changed(&self, pod: &Pod) {
        if let Some(key) = pod.metadata.controller_of_kind(KINDS[K].kind.name) {
            self.queue.add(key);
        }
    }
}

impl<const K: usize> Controller for TrainingJobs<K> {
    const NAME: &'static str = KINDS[K].kind.plural;
    type Key = Key;

    fn queue(&self) -> &Queue<Key> {
        &self.queue
    }

    async fn reconcile(&self, key: Key) -> Result<Option<Instant>, Error> {
        let Some(job) = self.store.get(&key).filter(|job| !job.metadata.is_deleting()) else {
            return Ok(None);
        };
        let manager = job.spec["runPolicy"]["managedBy"].as_str();
        if manager.is_some_and(|manager| manager != OPERATOR) {
            return Ok(None);
        }
        let job = self.cluster.limit(job, &self.recorder);
        let pods = self.pods.indexed(&job.metadata.uid);
        let decision = training_rules::decide(&Observed {
            kind: &KINDS[K],
            metadata: &job.metadata,
            spec: &job.spec,
            status: &job.status,
            pods: &pods,
            now: self.cluster.stamp(),
        });
        for pod in &decision.delete {
            self.cluster.delete(&self.pods, &pod.metadata, Delete::default()).await?;
            let message = format!("Deleted pod: {}", pod.metadata.name);
            self.recorder.normal(&*job, "SuccessfulDeletePod", message);
        }
        for new in decision.create {
            let mut pod = template::named_pod(&new.template, &*job, &new.name);
            template::set_metadata(&mut pod, "labels", new.labels);
            match self.cluster.create(&self.pods, &key.namespace, &pod).await {
                Err(error) if error.is_conflict() => {}
                Err(error) => {
                    let message = format!("Error creating: {}", error.reason());
                    self.recorder.warning(&*job, "FailedCreatePod", message);
                    return Err(error);
                }
                Ok(_) => {
                    let message = format!("Created pod: {}", new.name);
                    self.recorder.normal(&*job, "SuccessfulCreatePod", message);
                }
            }
        }
        for (is_warning, reason, message) in decision.events {
            self.recorder.tell(&*job, is_warning, &reason, message);
        }
        if decision.is_expired {
            self.cluster.delete(&self.store, &job.metadata, Delete::default()).await?;
            return Ok(None);
        }
        let write = self.cluster.change_status(&self.store, &job.metadata, &job.status, &decision.status);
        write.await?;
        let pause = decision.wake_s.and_then(|seconds| u64::try_from(seconds).ok());
        Ok(pause.map(|seconds| Instant::now() + Duration::from_secs(seconds)))
    }
}
