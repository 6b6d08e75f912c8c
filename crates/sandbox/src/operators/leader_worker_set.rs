//! The operator of `LeaderWorkerSets`: carries out the decisions of `leader_worker_set_rules`.

use std::sync::Arc;

use tokio::time::Instant;

use super::LeaderWorkerSet;
use super::leader_worker_set_rules::{self, Group, SET_NAME, Step};
use crate::cluster::{Cluster, Delete, Error, Queue, Recorder, Store};
use crate::wire::{Key, Pod};

/// The operator.
pub(crate) struct LeaderWorkerSets {
    cluster: Cluster,
    store: Arc<Store<LeaderWorkerSet>>,
    pods: Arc<Store<Pod>>,
    recorder: Recorder,
    pub(crate) queue: Queue<Key>,
}

impl LeaderWorkerSets {
    pub(crate) fn new(
        cluster: Cluster,
        store: Arc<Store<LeaderWorkerSet>>,
        pods: Arc<Store<Pod>>,
        recorder: &Recorder,
    ) -> Self {
        let recorder = recorder.for_component("leaderworkerset");
        Self { cluster, store, pods, recorder, queue: Queue::new() }
    }

    pub(crate) fn pod_changed(&self, pod: &Pod) {
        if let Some(set) = pod.metadata.label(SET_NAME) {
            self.queue.add(Key::new(&*pod.metadata.namespace, set));
        }
    }

    pub(crate) async fn reconcile(&self, key: Key) -> Result<Option<Instant>, Error> {
        let Some(set) = self.store.get(&key).filter(|set| !set.metadata.is_deleting()) else {
            return Ok(None);
        };
        let set = self.cluster.limit(set, &self.recorder);
        let leaders = self.pods.indexed(&set.metadata.uid).into_iter();
        let groups: Vec<Group> = leaders
            .map(|leader| Group { workers: self.pods.indexed(&leader.metadata.uid), leader })
            .collect();
        let decision = leader_worker_set_rules::decide(&set, &groups, self.cluster.stamp());
        for step in decision.steps {
            self.act(&set, step).await?;
        }
        if let Some((reason, message)) = decision.event {
            self.recorder.normal(&*set, reason, message);
        }
        let write = self.cluster.change_status(&self.store, &set.metadata, &set.status, &decision.status);
        write.await?;
        Ok(None)
    }

    async fn act(&self, set: &LeaderWorkerSet, step: Step) -> Result<(), Error> {
        match step {
            Step::Create(pod) => match self.cluster.create(&self.pods, &set.metadata.namespace, &pod).await {
                // A pod of this name is still being deleted. Its end is an event.
                Err(error) if error.is_conflict() => Ok(()),
                Err(error) => {
                    self.recorder.warning(set, "FailedCreate", error.reason());
                    Err(error)
                }
                Ok(_) => Ok(()),
            },
            Step::Delete(pod) => self.cluster.delete(&self.pods, &pod.metadata, Delete::default()).await,
            Step::Recreate(leader, message) => {
                let how = Delete { grace: None, propagation: Some("Foreground") };
                self.cluster.delete(&self.pods, &leader.metadata, how).await?;
                self.recorder.normal(set, "RecreateGroup", message);
                Ok(())
            }
        }
    }
}
