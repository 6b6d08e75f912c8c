//! The scheduler cache: nodes with their pods and the sum of the requests, updated with every event.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::request::{self, Amounts};
use super::volumes::ClaimPlan;
use crate::storage::Referenced;
use crate::wire::{Key, Node, Pod};

/// A pod with its requests.
#[derive(Debug)]
pub(crate) struct PodInfo {
    pub(super) pod: Arc<Pod>,
    pub(super) request: Amounts,
    pub(super) nonzero_request: Amounts,
}

impl PodInfo {
    pub(crate) fn new(pod: Arc<Pod>) -> Self {
        Self { request: request::effective(&pod), nonzero_request: request::nonzero(&pod), pod }
    }

    pub(super) fn key(&self) -> Key {
        self.pod.metadata.key()
    }

    /// Whether the pod has required anti-affinity.
    fn has_required_anti_affinity(&self) -> bool {
        let anti = self.pod.spec.affinity.as_ref().and_then(|affinity| affinity.pod_anti_affinity.as_ref());
        anti.is_some_and(|anti| !anti.required.is_empty())
    }

    /// Host ports of the pod, with protocol and address.
    pub(super) fn host_ports(&self) -> impl Iterator<Item = (&str, &str, u16)> {
        let spec = &self.pod.spec;
        let sidecars = spec.init_containers.iter().filter(|container| container.is_sidecar());
        let ports = spec.containers.iter().chain(sidecars).flat_map(|container| &container.ports);
        let host_network = spec.host_network;
        ports.filter_map(move |port| {
            let number =
                if host_network && port.host_port == 0 { port.container_port } else { port.host_port };
            let protocol = if port.protocol.is_empty() { "TCP" } else { &port.protocol };
            let address = if port.host_ip.is_empty() { "0.0.0.0" } else { &port.host_ip };
            (number > 0).then_some((protocol, address, number))
        })
    }
}

/// A node with its pods.
#[derive(Debug)]
pub(crate) struct NodeInfo {
    pub(super) node: Arc<Node>,
    pub(super) allocatable: Amounts,
    pub(super) requested: Amounts,
    pub(super) nonzero_requested: Amounts,
    pub(super) pods: BTreeMap<Key, Arc<PodInfo>>,
}

/// All nodes and their bound or assumed pods.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    pub(super) nodes: BTreeMap<String, NodeInfo>,
    /// Names of `nodes` in order, so that the search can start at any index.
    pub(super) names: Vec<String>,
    /// The node of every pod. The node may not exist (yet).
    node_of: BTreeMap<Key, String>,
    /// Pods of nodes that do not exist (yet).
    pods_on_missing_nodes: BTreeMap<String, BTreeMap<Key, Arc<PodInfo>>>,
    /// Pods with required anti-affinity, with their node.
    pub(super) with_anti_affinity: BTreeSet<(String, Key)>,
    /// Index of the node at which the next search starts.
    pub(super) next_start: usize,
    /// The objects that pods refer to.
    pub(super) objects: Referenced,
    /// What the waiting claims of pods get whose binding is in flight.
    pub(super) claim_plans: BTreeMap<Key, Vec<ClaimPlan>>,
}

impl Cache {
    pub(crate) fn new(objects: Referenced) -> Self {
        Self { objects, ..Self::default() }
    }

    /// Whether a pod other than `except` uses the claim.
    pub(super) fn uses_claim(&self, claim: &Key, except: &Key) -> bool {
        let pods = self.nodes.values().flat_map(|info| &info.pods);
        pods.chain(self.pods_on_missing_nodes.values().flatten()).any(|(key, other)| {
            key != except && key.namespace == claim.namespace && other.pod.uses_claim(&claim.name)
        })
    }

    /// Adds or updates a node. Returns whether that may help a pending pod.
    pub(crate) fn set_node(&mut self, node: Arc<Node>) -> bool {
        let name = node.metadata.name.clone();
        let allocatable = Amounts::of(&node.status.allocatable);
        if let Some(info) = self.nodes.get_mut(&name) {
            let helps = info.node.spec != node.spec
                || info.node.metadata.labels != node.metadata.labels
                || info.allocatable != allocatable;
            info.allocatable = allocatable;
            info.node = node;
            return helps;
        }
        let mut info = NodeInfo {
            node,
            allocatable,
            requested: Amounts::default(),
            nonzero_requested: Amounts::default(),
            pods: BTreeMap::new(),
        };
        for (key, pod) in self.pods_on_missing_nodes.remove(&name).unwrap_or_default() {
            info.add(key, pod);
        }
        self.nodes.insert(name, info);
        self.names = self.nodes.keys().cloned().collect();
        true
    }

    pub(crate) fn remove_node(&mut self, name: &str) {
        if let Some(info) = self.nodes.remove(name) {
            self.pods_on_missing_nodes.insert(name.to_owned(), info.pods);
            self.names = self.nodes.keys().cloned().collect();
        }
    }

    /// Adds a bound or assumed pod to its node.
    pub(crate) fn add_pod(&mut self, pod: Arc<PodInfo>, node: &str) {
        let key = pod.key();
        self.remove_pod(&key);
        if pod.has_required_anti_affinity() {
            self.with_anti_affinity.insert((node.to_owned(), key.clone()));
        }
        match self.nodes.get_mut(node) {
            Some(info) => info.add(key.clone(), pod),
            None => {
                drop(self.pods_on_missing_nodes.entry(node.to_owned()).or_default().insert(key.clone(), pod));
            }
        }
        self.node_of.insert(key, node.to_owned());
    }

    /// Removes a pod and releases its requests. Returns whether the pod was cached.
    pub(crate) fn remove_pod(&mut self, key: &Key) -> bool {
        let Some(node) = self.node_of.remove(key) else { return false };
        if let Some(info) = self.nodes.get_mut(&node) {
            info.remove(key);
        } else if let Some(pods) = self.pods_on_missing_nodes.get_mut(&node) {
            pods.remove(key);
        }
        self.with_anti_affinity.remove(&(node, key.clone()));
        true
    }

    /// The pod with this name, and its node.
    pub(crate) fn pod(&self, key: &Key) -> Option<(&str, &Arc<PodInfo>)> {
        let node = self.node_of.get(key)?;
        let pods =
            self.nodes.get(node).map(|info| &info.pods).or_else(|| self.pods_on_missing_nodes.get(node))?;
        Some((node, pods.get(key)?))
    }
}

impl NodeInfo {
    fn add(&mut self, key: Key, pod: Arc<PodInfo>) {
        self.requested.add(&pod.request);
        self.nonzero_requested.add(&pod.nonzero_request);
        self.pods.insert(key, pod);
    }

    fn remove(&mut self, key: &Key) {
        if let Some(pod) = self.pods.remove(key) {
            self.requested.subtract(&pod.request);
            self.nonzero_requested.subtract(&pod.nonzero_request);
        }
    }

    pub(super) fn label(&self, key: &str) -> Option<&str> {
        self.node.metadata.label(key)
    }
}
