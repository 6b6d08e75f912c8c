//! Registration, heartbeats, loss and recovery of nodes. The module `eviction` deletes their pods.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::manifest::{self, Network, RUNTIME_PREFIX};
use crate::cluster::{Cluster, Error, Kind, Precondition, Queue, Recorder, Store};
use crate::pace::Pace;
use crate::wire::{Key, Meta, Node, Pod, Taint, condition, micro_time};

/// The node annotation that disconnects a node while its value is `true`.
const LOST_ANNOTATION: &str = "sandbox.muster.dev/lost";

/// Time without a heartbeat before a node is unreachable; divided by the speed.
const MONITOR_GRACE_PERIOD: Duration = Duration::from_secs(40);
/// Real time between two heartbeats of a node; longer in large clusters.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(10);
/// Heartbeats per second of all nodes together.
const HEARTBEATS_PER_SECOND: u64 = 50;

const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
/// The taint of a node that is cordoned.
const CORDONED: &str = "node.kubernetes.io/unschedulable";

/// Whether the node is simulated: its container runtime says so, or no kubelet has registered it.
pub(crate) fn is_simulated(node: &Node) -> bool {
    let info = &node.status.node_info;
    info.container_runtime_version.starts_with(RUNTIME_PREFIX)
        || (info.kubelet_version.is_empty() && info.container_runtime_version.is_empty())
}

/// Whether the node is disconnected.
pub(crate) fn is_lost(node: &Node) -> bool {
    node.metadata.annotation(LOST_ANNOTATION) == Some("true")
}

fn marks_cordoned(taint: &Taint) -> bool {
    taint.key == CORDONED && taint.effect == "NoSchedule"
}

fn is_cordoned(node: &Node) -> bool {
    node.spec.taints.iter().any(marks_cordoned)
}

/// Registers nodes and updates their status.
pub(crate) struct NodeController {
    cluster: Cluster,
    nodes: Arc<Store<Node>>,
    pods: Arc<Store<Pod>>,
    recorder: Recorder,
    pace: Pace,
    network: Mutex<Network>,
    lost_since: Mutex<BTreeMap<String, Instant>>,
    pub(crate) queue: Queue<String>,
}

impl NodeController {
    pub(crate) fn new(
        cluster: Cluster,
        nodes: Arc<Store<Node>>,
        pods: Arc<Store<Pod>>,
        recorder: &Recorder,
        pace: Pace,
    ) -> Self {
        Self {
            cluster,
            nodes,
            pods,
            recorder: recorder.for_component("node-controller"),
            pace,
            network: Mutex::default(),
            lost_since: Mutex::default(),
            queue: Queue::new(),
        }
    }

    /// Creates a Node object that is registered and ready. If the node exists, [`Self::reconcile`] registers it.
    pub(crate) async fn create(&self, manifest: Value) -> Result<(), Error> {
        let registered = {
            let mut network = self.network.lock().unwrap_or_else(PoisonError::into_inner);
            manifest::registered_node(manifest, &mut network, self.cluster.stamp())
        };
        match self.cluster.create(&self.nodes, "", &registered).await {
            Err(error) if !error.is_conflict() => Err(error),
            _ => Ok(()),
        }
    }

    pub(crate) async fn reconcile(&self, name: String) -> Result<Option<Instant>, Error> {
        let Some(node) = self.nodes.get(&Key::new("", &*name)).filter(|node| is_simulated(node)) else {
            self.with_lost_since(|lost_since| lost_since.remove(&name));
            return Ok(None);
        };
        if is_cordoned(&node) != node.spec.unschedulable {
            // The change leads here again.
            return self.mark_cordoned(&node).await.map(|()| None);
        }
        if is_lost(&node) {
            let since =
                self.with_lost_since(|lost_since| *lost_since.entry(name).or_insert_with(Instant::now));
            let unreachable_at = since + self.pace.scaled(MONITOR_GRACE_PERIOD);
            if Instant::now() < unreachable_at {
                return Ok(Some(unreachable_at));
            }
            return self.mark_unreachable(&node).await.map(|()| None);
        }
        self.with_lost_since(|lost_since| lost_since.remove(&name));
        self.register(&node).await.map(|()| None)
    }

    /// Adds the taint of cordoned nodes, or removes it.
    async fn mark_cordoned(&self, node: &Node) -> Result<(), Error> {
        let mut taints = node.spec.taints.clone();
        taints.retain(|taint| !marks_cordoned(taint));
        if node.spec.unschedulable {
            taints.push(Taint {
                key: CORDONED.to_owned(),
                effect: "NoSchedule".to_owned(),
                time_added: Some(self.cluster.stamp()),
                ..Taint::default()
            });
        }
        self.set_taints(&node.metadata, &taints).await
    }

    /// Marks a node that has missed its heartbeats as unreachable, and its pods as not ready.
    async fn mark_unreachable(&self, node: &Node) -> Result<(), Error> {
        let now = self.cluster.stamp();
        if condition(&node.status.conditions, "Ready").is_none_or(|ready| ready.status != "Unknown") {
            let status = json!({ "conditions": manifest::conditions(node, false, now) });
            self.cluster.patch_status(&self.nodes, &node.metadata, status, Precondition::Uid).await?;
            let message = format!("Node {} status is now: NodeNotReady", node.metadata.name);
            self.recorder.normal(node, "NodeNotReady", message);
        }
        if !node.spec.taints.iter().any(|taint| taint.key == UNREACHABLE) {
            let mut taints = node.spec.taints.clone();
            for (effect, time_added) in [("NoSchedule", None), ("NoExecute", Some(now))] {
                let taint = Taint {
                    key: UNREACHABLE.to_owned(),
                    effect: effect.to_owned(),
                    time_added,
                    ..Taint::default()
                };
                taints.push(taint);
            }
            self.set_taints(&node.metadata, &taints).await?;
        }
        for pod in self.pods.indexed(&format!("node/{}", node.metadata.name)) {
            if pod.is_ready() {
                let mut conditions = pod.status.conditions.clone();
                for ready in conditions.iter_mut().filter(|condition| condition.kind == "Ready") {
                    "False".clone_into(&mut ready.status);
                    ready.last_transition_time = Some(now);
                }
                let status = json!({ "conditions": conditions });
                self.cluster
                    .patch_status(&self.pods, &pod.metadata, status, Precondition::ResourceVersion)
                    .await?;
            }
        }
        Ok(())
    }

    /// Registers a node that is new or connected again.
    async fn register(&self, node: &Node) -> Result<(), Error> {
        let name = &node.metadata.name;
        let ready = condition(&node.status.conditions, "Ready").is_some_and(|ready| ready.status == "True");
        if !ready || node.status.node_info.kubelet_version.is_empty() {
            let status = {
                let mut network = self.network.lock().unwrap_or_else(PoisonError::into_inner);
                manifest::status(node, &mut network, self.cluster.stamp())
            };
            self.cluster.patch_status(&self.nodes, &node.metadata, status, Precondition::Uid).await?;
            let recorder = self.recorder.for_component("kubelet").on_node(name);
            recorder.normal(node, "NodeReady", format!("Node {name} status is now: NodeReady"));
        }
        let labels =
            manifest::labels(name).into_iter().filter(|(label, _)| node.metadata.label(label).is_none());
        let labels: BTreeMap<&str, String> = labels.collect();
        let mut patch = json!({});
        if !labels.is_empty() {
            patch["metadata"]["labels"] = json!(labels);
        }
        if node.spec.pod_cidr.is_empty() {
            let pods = node.status.allocatable.get("pods").map_or(110, |pods| pods.ceil());
            let mut network = self.network.lock().unwrap_or_else(PoisonError::into_inner);
            let range = network.pod_cidr(name, u32::try_from(pods).unwrap_or(110));
            patch["spec"] = json!({ "podCIDR": range, "podCIDRs": [range] });
        }
        if patch != json!({}) {
            self.cluster.patch(&self.nodes, &node.metadata, patch, Precondition::Uid).await?;
        }
        let stale = |taint: &Taint| taint.key == UNREACHABLE || taint.key == "node.kubernetes.io/not-ready";
        if node.spec.taints.iter().any(stale) {
            let taints: Vec<Taint> = node.spec.taints.iter().filter(|taint| !stale(taint)).cloned().collect();
            self.set_taints(&node.metadata, &taints).await?;
        }
        Ok(())
    }

    async fn set_taints(&self, meta: &Meta, taints: &[Taint]) -> Result<(), Error> {
        let taints = if taints.is_empty() { Value::Null } else { json!(taints) };
        let patch = json!({ "spec": { "taints": taints } });
        // The status was just written, so the observed resource version is outdated. The uid is enough.
        self.cluster.patch(&self.nodes, meta, patch, Precondition::Uid).await.map(drop)
    }

    /// Renews the Leases of all connected nodes without end.
    pub(crate) async fn heartbeats(&self) {
        loop {
            let nodes = self.nodes.all();
            let count = u64::try_from(nodes.len()).unwrap_or(u64::MAX);
            let round = HEARTBEAT_INTERVAL.max(Duration::from_secs(count / HEARTBEATS_PER_SECOND));
            let started = Instant::now();
            for node in nodes.iter().filter(|node| is_simulated(node) && !is_lost(node)) {
                if let Err(error) = self.beat(node, round).await {
                    tracing::debug!(node = node.metadata.name, %error, "cannot renew the lease of a node");
                }
            }
            tokio::time::sleep_until(started + round).await;
        }
    }

    async fn beat(&self, node: &Node, round: Duration) -> Result<(), Error> {
        let key = Key::new("kube-node-lease", &*node.metadata.name);
        let renewed = json!({
            "spec": { "renewTime": micro_time(self.cluster.now()), "leaseDurationSeconds": round.as_secs() * 4 }
        });
        match self.cluster.patch_uncached(Kind::LEASE, &key, &renewed).await {
            Err(error) if error.is_not_found() => {
                let mut lease = renewed;
                lease["apiVersion"] = json!(Kind::LEASE.api_version);
                lease["kind"] = json!(Kind::LEASE.name);
                lease["metadata"] = json!({
                    "name": key.name,
                    "namespace": key.namespace,
                    "ownerReferences": [
                        { "apiVersion": "v1", "kind": "Node", "name": node.metadata.name, "uid": node.metadata.uid },
                    ],
                });
                lease["spec"]["holderIdentity"] = json!(node.metadata.name);
                self.cluster.create_uncached(Kind::LEASE, &key.namespace, &lease).await
            }
            other => other,
        }
    }

    fn with_lost_since<T>(&self, change: impl FnOnce(&mut BTreeMap<String, Instant>) -> T) -> T {
        change(&mut self.lost_since.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
