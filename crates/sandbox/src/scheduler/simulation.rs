//! Scheduling without binding: whether pods would fit on nodes that may not exist yet.

use std::sync::Arc;

use super::cache::{Cache, PodInfo};
use super::select_node::select_node;
use crate::storage::Referenced;
use crate::wire::{Node, Pod};

/// Nodes with their pods, on which further pods are placed.
#[derive(Debug)]
pub(crate) struct Simulation {
    cache: Cache,
}

impl Simulation {
    /// No nodes, and the objects that pods refer to.
    pub(crate) fn new(objects: &Referenced) -> Self {
        Self { cache: Cache::new(objects.clone()) }
    }

    /// Adds a node.
    pub(crate) fn add_node(&mut self, node: Arc<Node>) {
        self.cache.set_node(node);
    }

    /// Adds a pod that is bound to its node.
    pub(crate) fn add_bound(&mut self, pod: Arc<Pod>) {
        let node = pod.spec.node_name.clone();
        self.cache.add_pod(Arc::new(PodInfo::new(pod)), &node);
    }

    /// Places a pod as the scheduler would; the name of its node. `None`: it fits on none.
    pub(crate) fn place(&mut self, pod: Arc<Pod>) -> Option<String> {
        let pod = Arc::new(PodInfo::new(pod));
        let (node, plans) = select_node(&mut self.cache, &pod).ok()?;
        self.cache.claim_plans.insert(pod.key(), plans);
        self.cache.add_pod(pod, &node);
        Some(node)
    }

    /// Removes a pod again.
    pub(crate) fn remove(&mut self, pod: &Pod) {
        self.cache.claim_plans.remove(&pod.metadata.key());
        self.cache.remove_pod(&pod.metadata.key());
    }
}
