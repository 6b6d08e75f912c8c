//! The `DaemonSet` controller: one pod on every matching node.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::template;
use crate::cluster::{Cluster, Delete, Error, Precondition, Queue, Recorder, Store};
use crate::wire::{DaemonSet, Key, Node, Pod};

const REVISION: &str = "controller-revision-hash";
/// Tolerations that the controller adds to every pod: taint key and effect.
const DAEMON_TOLERATIONS: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];

/// The controller of `DaemonSet`s.
pub(crate) struct DaemonSets {
    cluster: Cluster,
    sets: Arc<Store<DaemonSet>>,
    pods: Arc<Store<Pod>>,
    nodes: Arc<Store<Node>>,
    recorder: Recorder,
    pub(crate) queue: Queue<Key>,
}

impl DaemonSets {
    pub(crate) fn new(
        cluster: Cluster,
        sets: Arc<Store<DaemonSet>>,
        pods: Arc<Store<Pod>>,
        nodes: Arc<Store<Node>>,
        recorder: &Recorder,
    ) -> Self {
        Self {
            cluster,
            sets,
            pods,
            nodes,
            recorder: recorder.for_component("daemonset-controller"),
            queue: Queue::new(),
        }
    }

    pub(crate) fn pod_changed(&self, pod: &Pod) {
        if let Some(key) = pod.metadata.controller_of_kind("DaemonSet") {
            self.queue.add(key);
        }
    }

    /// Queues all `DaemonSet`s after a change of a node.
    pub(crate) fn node_changed(&self) {
        for set in self.sets.all() {
            self.queue.add(set.metadata.key());
        }
    }

    pub(crate) async fn reconcile(&self, key: Key) -> Result<Option<Instant>, Error> {
        let Some(set) = self.sets.get(&key).filter(|set| !set.metadata.is_deleting()) else {
            return Ok(None);
        };
        let revision = template::hash(&set.spec.template);
        let wanted: Pod = serde_json::from_value(daemon_pod(&set, "", &revision)).unwrap_or_default();
        let nodes: Vec<Arc<Node>> =
            self.nodes.all().into_iter().filter(|node| should_run(node, &wanted)).collect();
        let pods = self.pods.indexed(&set.metadata.uid);
        let mut by_node: BTreeMap<&str, &Arc<Pod>> =
            pods.iter().filter_map(|pod| Some((target_node(pod)?, pod))).collect();
        let mut counts = Counts { desired: nodes.len(), ..Counts::default() };
        // An outdated pod is replaced only while all pods are ready, one at a time.
        let mut may_replace = pods.iter().all(|pod| pod.is_ready() && !pod.metadata.is_deleting());
        for node in &nodes {
            let name = &node.metadata.name;
            let Some(pod) = by_node.remove(&**name) else {
                let pod = daemon_pod(&set, name, &revision);
                let created = self.cluster.create(&self.pods, &key.namespace, &pod).await;
                let pod = created.inspect_err(|error| {
                    let message = format!("Error creating: {}", error.reason());
                    self.recorder.warning(&*set, "FailedCreate", message);
                })?;
                self.recorder.normal(
                    &*set,
                    "SuccessfulCreate",
                    format!("Created pod: {}", pod.metadata.name),
                );
                continue;
            };
            let updated = pod.metadata.label(REVISION) == Some(&*revision);
            counts.current += 1;
            counts.ready += usize::from(pod.is_ready());
            counts.updated += usize::from(updated);
            let outdated = !updated && may_replace;
            if (pod.is_finished() || outdated) && !pod.metadata.is_deleting() {
                may_replace = false;
                self.remove(&set, pod).await?;
            }
        }
        for pod in by_node.into_values().filter(|pod| !pod.metadata.is_deleting()) {
            counts.misscheduled += 1;
            self.remove(&set, pod).await?;
        }
        let status = counts.status(&set);
        if status != set.status {
            self.cluster
                .patch_status(&self.sets, &set.metadata, status, Precondition::ResourceVersion)
                .await?;
        }
        Ok(None)
    }

    async fn remove(&self, set: &DaemonSet, pod: &Arc<Pod>) -> Result<(), Error> {
        self.cluster.delete(&self.pods, &pod.metadata, Delete::default()).await?;
        self.recorder.normal(set, "SuccessfulDelete", format!("Deleted pod: {}", pod.metadata.name));
        Ok(())
    }
}

#[derive(Default)]
struct Counts {
    desired: usize,
    current: usize,
    ready: usize,
    updated: usize,
    misscheduled: usize,
}

impl Counts {
    fn status(&self, set: &DaemonSet) -> Value {
        json!({
            "desiredNumberScheduled": self.desired,
            "currentNumberScheduled": self.current,
            "numberReady": self.ready,
            "numberAvailable": self.ready,
            "numberUnavailable": self.desired.saturating_sub(self.ready),
            "updatedNumberScheduled": self.updated,
            "numberMisscheduled": self.misscheduled,
            "observedGeneration": set.metadata.generation,
        })
    }
}

/// The node of the pod: bound, or required by its node affinity.
fn target_node(pod: &Pod) -> Option<&str> {
    if !pod.spec.node_name.is_empty() {
        return Some(&pod.spec.node_name);
    }
    let required = pod.spec.affinity.as_ref()?.node_affinity.as_ref()?.required.as_ref()?;
    let field = required.node_selector_terms.first()?.match_fields.first()?;
    field.values.first().map(String::as_str)
}

/// Whether the pod matches the node selector and tolerates the taints of the node.
fn should_run(node: &Node, pod: &Pod) -> bool {
    let labels = &node.metadata.labels;
    let selected = pod.spec.node_selector.iter().all(|(key, value)| labels.get(key) == Some(value));
    let mut taints = node.spec.taints.iter().filter(|taint| taint.effect != "PreferNoSchedule");
    selected && taints.all(|taint| pod.spec.tolerations.iter().any(|toleration| toleration.tolerates(taint)))
}

/// The pod for one node. Its node affinity requires this node, and the scheduler binds it.
fn daemon_pod(set: &DaemonSet, node: &str, revision: &str) -> Value {
    let mut pod = template::pod(&set.spec.template, set);
    template::set_metadata(&mut pod, "labels", [(REVISION, revision.to_owned())]);
    let only = json!([{ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": [node] }] }]);
    pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
        json!({ "nodeSelectorTerms": only });
    let mut tolerations = pod["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
    tolerations.extend(
        DAEMON_TOLERATIONS
            .iter()
            .map(|(key, effect)| json!({ "key": key, "operator": "Exists", "effect": effect })),
    );
    pod["spec"]["tolerations"] = json!(tolerations);
    pod
}
