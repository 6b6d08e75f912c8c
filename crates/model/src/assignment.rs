//! Assignments: the nodes, flavors and devices of the pods of a gang.

use std::collections::BTreeMap;

use crate::quota::FlavorIx;
use crate::resources::ResourceIx;

/// The name of a node. Assignments use names, so that they stay valid when a node is deleted and returns.
pub type NodeName = String;

/// The nodes, flavors and devices of all pods of a gang.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Assignment {
    /// For each pod set of the gang: the number of pods per node, in rank order. Ranks follow topology domains when
    /// the pod set has a topology request, then node names. Pods of a scale-up come last; replacements take the rank
    /// of the pod they replace.
    pub pod_sets: Vec<Vec<(NodeName, u32)>>,
    /// For each pod set of the gang: the flavor of each requested resource that the queue declares. The first pod set
    /// also holds the flavors of resources that are declared without any pod. Empty when the queue declares none.
    pub flavors: Vec<BTreeMap<ResourceIx, FlavorIx>>,
    /// For each pod set of the gang whose pods share devices: node, device number and number of pods, sorted. Empty
    /// when no pod shares a device. The device of pods that are not counted here is unknown.
    pub devices: Vec<Vec<(NodeName, u32, u32)>>,
    /// For each pod set of the gang: the number of its pods that are charged to quota and have no node, because their
    /// flavors are quota-only or their places are still open. They take the last ranks. Empty when every pod has a
    /// node.
    pub unplaced: Vec<u32>,
}

impl Assignment {
    /// The number of pods of a pod set, with or without a node.
    pub fn count(&self, pod_set: usize) -> u64 {
        self.placed(pod_set) + u64::from(self.unplaced_in(pod_set))
    }

    /// The number of pods of a pod set that have no node.
    pub fn unplaced_in(&self, pod_set: usize) -> u32 {
        self.unplaced.get(pod_set).copied().unwrap_or(0)
    }

    /// The number of pods of a pod set that have a node.
    pub fn placed(&self, pod_set: usize) -> u64 {
        self.pod_sets.get(pod_set).into_iter().flatten().map(|(_, count)| u64::from(*count)).sum()
    }

    /// The names of all assigned nodes; a name may occur more than once.
    pub fn nodes(&self) -> impl Iterator<Item = &str> {
        self.pod_sets.iter().flatten().map(|(node, _)| node.as_str())
    }
}
