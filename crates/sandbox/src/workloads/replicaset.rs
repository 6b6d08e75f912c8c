//! The `ReplicaSet` controller: keeps the desired number of pods.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::template;
use crate::cluster::{Cluster, Delete, Error, Precondition, Queue, Recorder, Store};
use crate::wire::{Key, Pod, ReplicaSet, ReplicaSetStatus, Stamp};

/// The controller of `ReplicaSet`s.
pub(crate) struct ReplicaSets {
    cluster: Cluster,
    sets: Arc<Store<ReplicaSet>>,
    pods: Arc<Store<Pod>>,
    recorder: Recorder,
    pub(crate) queue: Queue<Key>,
}

impl ReplicaSets {
    pub(crate) fn new(
        cluster: Cluster,
        sets: Arc<Store<ReplicaSet>>,
        pods: Arc<Store<Pod>>,
        recorder: &Recorder,
    ) -> Self {
        Self {
            cluster,
            sets,
            pods,
            recorder: recorder.for_component("replicaset-controller"),
            queue: Queue::new(),
        }
    }

    pub(crate) fn pod_changed(&self, pod: &Pod) {
        if let Some(key) = pod.metadata.controller_of_kind("ReplicaSet") {
            self.queue.add(key);
        }
    }

    pub(crate) async fn reconcile(&self, key: Key) -> Result<Option<Instant>, Error> {
        let Some(set) = self.sets.get(&key).filter(|set| !set.metadata.is_deleting()) else {
            return Ok(None);
        };
        let set = self.cluster.limit(set, &self.recorder);
        let mut pods = self.active(&set);
        let wanted = usize::try_from(set.spec.replicas.unwrap_or(1)).unwrap_or(0);
        let existing = pods.len();
        if existing > wanted {
            template::sort_by_deletion_priority(&mut pods);
            for pod in pods.drain(..existing - wanted) {
                self.cluster.delete(&self.pods, &pod.metadata, Delete::default()).await?;
                self.recorder.normal(
                    &*set,
                    "SuccessfulDelete",
                    format!("Deleted pod: {}", pod.metadata.name),
                );
            }
        }
        for _ in existing..wanted {
            let pod = template::pod(&set.spec.template, &*set);
            match self.cluster.create(&self.pods, &key.namespace, &pod).await {
                Ok(pod) => {
                    self.recorder.normal(
                        &*set,
                        "SuccessfulCreate",
                        format!("Created pod: {}", pod.metadata.name),
                    );
                }
                Err(error) => {
                    self.recorder.warning(
                        &*set,
                        "FailedCreate",
                        format!("Error creating: {}", error.reason()),
                    );
                    return Err(error);
                }
            }
        }
        let status = status(&set, &self.active(&set), self.cluster.stamp());
        let awaiting_min_ready = status.available_replicas < status.ready_replicas;
        if status != set.status {
            self.cluster
                .patch_status(&self.sets, &set.metadata, json!(status), Precondition::ResourceVersion)
                .await?;
        }
        Ok(awaiting_min_ready.then(|| Instant::now() + Duration::from_secs(1)))
    }

    fn active(&self, set: &ReplicaSet) -> Vec<Arc<Pod>> {
        self.pods.indexed(&set.metadata.uid).into_iter().filter(|pod| pod.is_active()).collect()
    }
}

fn status(set: &ReplicaSet, pods: &[Arc<Pod>], now: Stamp) -> ReplicaSetStatus {
    let labels = set.spec.template["metadata"]["labels"].as_object();
    let labelled = |pod: &Pod| {
        labels.into_iter().flatten().all(|(name, value)| pod.metadata.label(name) == value.as_str())
    };
    ReplicaSetStatus {
        replicas: template::count(pods, |_| true),
        fully_labeled_replicas: template::count(pods, labelled),
        ready_replicas: template::count(pods, Pod::is_ready),
        available_replicas: template::count(pods, |pod| {
            template::is_available(pod, set.spec.min_ready_seconds, now)
        }),
        observed_generation: set.metadata.generation,
    }
}
