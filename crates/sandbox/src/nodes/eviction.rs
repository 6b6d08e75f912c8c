//! Deletes pods from nodes with `NoExecute` taints, from nodes that are out of service and from nodes that no longer exist.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::lifecycle::is_lost;
use crate::cluster::{Cluster, Delete, Error, Precondition, Queue, Recorder, Store};
use crate::pace::Pace;
use crate::wire::{Condition, Key, Node, Pod, Taint, Toleration};

/// How long a pod without a matching toleration stays on an unreachable or not-ready node: the default of the
/// admission plugin `DefaultTolerationSeconds`.
const DEFAULT_TOLERATION_SECONDS: u64 = 300;
/// The taint of a node that is known to be down.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
/// How long the pods of a deleted node are kept.
const MISSING_NODE_GRACE: Duration = Duration::from_secs(40);

/// The taint eviction controller and the pod garbage collector.
pub(crate) struct EvictionController {
    cluster: Cluster,
    nodes: Arc<Store<Node>>,
    pods: Arc<Store<Pod>>,
    recorder: Recorder,
    pace: Pace,
    pending_since: Mutex<BTreeMap<(String, Cause), Instant>>,
    pub(crate) queue: Queue<Key>,
}

/// Why a pod is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Cause {
    MissingNode,
    OutOfService,
    NoExecute,
}

impl EvictionController {
    pub(crate) fn new(
        cluster: Cluster,
        nodes: Arc<Store<Node>>,
        pods: Arc<Store<Pod>>,
        recorder: &Recorder,
        pace: Pace,
    ) -> Self {
        let recorder = recorder.for_component("taint-eviction-controller");
        Self { cluster, nodes, pods, recorder, pace, pending_since: Mutex::default(), queue: Queue::new() }
    }

    /// Queues the pods of a node that has changed.
    pub(crate) fn node_changed(&self, node: &str) {
        for pod in self.pods.indexed(&format!("node/{node}")) {
            self.queue.add(pod.metadata.key());
        }
    }

    /// Queues a pod whose node is gone, lost or has `NoExecute` taints.
    pub(crate) fn pod_changed(&self, pod: &Pod) {
        if pod.spec.node_name.is_empty() {
            return;
        }
        let node = self.nodes.get(&Key::new("", &*pod.spec.node_name));
        if node.is_none_or(|node| is_lost(&node) || no_execute(&node).next().is_some()) {
            self.queue.add(pod.metadata.key());
        }
    }

    pub(crate) async fn reconcile(&self, key: Key) -> Result<Option<Instant>, Error> {
        let Some(pod) = self.pods.get(&key).filter(|pod| !pod.spec.node_name.is_empty()) else {
            return Ok(None);
        };
        let node = self.nodes.get(&Key::new("", &*pod.spec.node_name));
        let (cause, wait) = match &node {
            None => (Cause::MissingNode, Some(self.pace.scaled(MISSING_NODE_GRACE))),
            // An operator confirms that the node is down, so no kubelet has to confirm the deletion.
            Some(node) if is_lost(node) && is_out_of_service(node) && pod.metadata.is_deleting() => {
                (Cause::OutOfService, Some(Duration::ZERO))
            }
            Some(_) if pod.metadata.is_deleting() || pod.is_finished() => (Cause::NoExecute, None),
            Some(node) => (
                Cause::NoExecute,
                min_toleration_seconds(node, &pod)
                    .map(|seconds| self.pace.scaled(Duration::from_secs(seconds))),
            ),
        };
        let Some(wait) = wait else {
            self.pending_since
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .remove(&(pod.metadata.uid.clone(), cause));
            return Ok(None);
        };
        let due_at = {
            let mut pending_since = self.pending_since.lock().unwrap_or_else(PoisonError::into_inner);
            *pending_since.entry((pod.metadata.uid.clone(), cause)).or_insert_with(Instant::now) + wait
        };
        if Instant::now() < due_at {
            return Ok(Some(due_at));
        }
        self.mark_disrupted(&pod, cause).await?;
        let grace = match cause {
            Cause::MissingNode | Cause::OutOfService => Some(0),
            Cause::NoExecute => {
                self.recorder.normal(
                    &*pod,
                    "TaintManagerEviction",
                    format!("Marking for deletion Pod {key}"),
                );
                None
            }
        };
        self.cluster.delete(&self.pods, &pod.metadata, Delete { grace, propagation: None }).await?;
        self.pending_since
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&(pod.metadata.uid.clone(), cause));
        Ok(None)
    }

    /// Says in the status of a pod why it is deleted, with the conditions and phases of kube-controller-manager.
    async fn mark_disrupted(&self, pod: &Pod, cause: Cause) -> Result<(), Error> {
        let mut status = json!({});
        let reason = match cause {
            Cause::MissingNode => Some(("DeletionByPodGC", "PodGC: node no longer exists")),
            Cause::NoExecute => {
                Some(("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint"))
            }
            Cause::OutOfService => None,
        };
        if let Some((reason, message)) = reason {
            let mut conditions = pod.status.conditions.clone();
            let disrupted = Condition::new("DisruptionTarget", true, reason, message, self.cluster.stamp());
            if disrupted.set_in(&mut conditions) {
                status["conditions"] = json!(conditions);
            }
        }
        if cause != Cause::NoExecute && !pod.is_finished() {
            status["phase"] = json!("Failed");
        }
        if status == json!({}) {
            return Ok(());
        }
        self.cluster
            .patch_status(&self.pods, &pod.metadata, status, Precondition::ResourceVersion)
            .await
            .map(drop)
    }
}

fn is_out_of_service(node: &Node) -> bool {
    node.spec.taints.iter().any(|taint| taint.key == OUT_OF_SERVICE)
}

fn no_execute(node: &Node) -> impl Iterator<Item = &Taint> {
    node.spec.taints.iter().filter(|taint| taint.effect == "NoExecute")
}

/// The simulated seconds for which the pod tolerates the taints of the node; `None` for no limit.
fn min_toleration_seconds(node: &Node, pod: &Pod) -> Option<u64> {
    no_execute(node).filter_map(|taint| toleration_seconds(taint, &pod.spec.tolerations)).min()
}

/// The seconds for which a taint is tolerated; `None` for no limit.
fn toleration_seconds(taint: &Taint, tolerations: &[Toleration]) -> Option<u64> {
    let matching: Vec<&Toleration> =
        tolerations.iter().filter(|toleration| toleration.tolerates(taint)).collect();
    if matching.is_empty() {
        let has_default =
            matches!(&*taint.key, "node.kubernetes.io/unreachable" | "node.kubernetes.io/not-ready");
        return Some(if has_default { DEFAULT_TOLERATION_SECONDS } else { 0 });
    }
    let bounded = matching.iter().filter_map(|toleration| toleration.toleration_seconds);
    bounded.min().map(|seconds| u64::try_from(seconds).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taint_is_tolerated_for_the_shortest_toleration_seconds() {
        let taint =
            |key: &str| Taint { key: key.to_owned(), effect: "NoExecute".to_owned(), ..Taint::default() };
        let tolerate = |key: &str, seconds| Toleration {
            key: key.to_owned(),
            operator: "Exists".to_owned(),
            toleration_seconds: seconds,
            ..Toleration::default()
        };
        let unreachable = taint("node.kubernetes.io/unreachable");
        assert_eq!(toleration_seconds(&unreachable, &[]), Some(300));
        assert_eq!(toleration_seconds(&taint("mine"), &[]), Some(0));
        assert_eq!(
            toleration_seconds(&unreachable, &[tolerate("node.kubernetes.io/unreachable", Some(5))]),
            Some(5)
        );
        assert_eq!(toleration_seconds(&taint("mine"), &[tolerate("", None)]), None);
        assert_eq!(
            toleration_seconds(&taint("mine"), &[tolerate("", Some(9)), tolerate("mine", Some(7))]),
            Some(7)
        );
    }
}
