//! Replacement of lost places: a running gang keeps running while a pod of it moves to another node.
//!
//! A place is lost when its node takes no new pod of the gang any more (cordoned, not ready, newly tainted, deleted) and no
//! pod of the gang holds the place. The planner finds places on other nodes for all places on such a node
//! ([`model::Gang::unhealthy`]), with the quota that the gang is charged for already. Pods that still run there stay.

use std::collections::{BTreeMap, BTreeSet};

use model::{Assignment, Constraints, NodeName};

use super::{GangPod, Index};
use crate::phase::Phase;
use crate::pods::{PodPhase, PodPlacement, PodRow};
use crate::wrapper::Wrapper;

impl Index {
    /// Recomputes the places of all gangs whose pods, objects or nodes changed since the last call, and which of them are
    /// lost.
    pub(super) fn update_places_and_losses(&mut self) {
        self.check_gangs_on_changed_nodes();
        for uid in std::mem::take(&mut self.unchecked) {
            self.update_places(&uid);
            let Some(wrapper) = self.wrappers.get(&uid) else { continue };
            let lost = match &wrapper.phase {
                Phase::Starting(Some(assignment)) | Phase::Running(Some(assignment)) => {
                    self.lost_nodes(wrapper, assignment)
                }
                Phase::Unknown
                | Phase::Inadmissible(_)
                | Phase::Waiting
                | Phase::Nominated(_)
                | Phase::Starting(None)
                | Phase::Running(None)
                | Phase::Stopping(..)
                | Phase::Stopped(..)
                | Phase::Finished => BTreeSet::new(),
            };
            if lost == wrapper.lost {
                continue;
            }
            if let Some(wrapper) = self.wrappers.get_mut(&uid) {
                wrapper.lost = lost;
            }
            self.publish(&uid);
            self.dirty.insert(uid);
        }
    }

    /// Adds the gangs with a place on a node that changed since the last call. One scan serves all changed nodes.
    fn check_gangs_on_changed_nodes(&mut self) {
        let changed = std::mem::take(&mut self.changed_nodes);
        if changed.is_empty() {
            return;
        }
        let has_place = |wrapper: &&Wrapper| {
            wrapper.lost.iter().any(|node| changed.contains(node))
                || matches!(&wrapper.phase, Phase::Starting(Some(places)) | Phase::Running(Some(places))
                    if places.nodes().any(|node| changed.contains(node)))
        };
        let placed = self.world.placed_gangs().filter_map(|gang| self.wrappers.get(&gang.uid));
        let affected: Vec<_> = placed.filter(has_place).map(|wrapper| wrapper.uid.clone()).collect();
        self.unchecked.extend(affected);
    }

    /// The nodes on which places of the gang are lost: those with a lost place, and those from which all places were moved
    /// away while pods of the gang are left there.
    fn lost_nodes(&self, wrapper: &Wrapper, assignment: &Assignment) -> BTreeSet<NodeName> {
        let mut closed: BTreeMap<(usize, NodeName), u32> = BTreeMap::new();
        for (at, (places, set)) in assignment.pod_sets.iter().zip(&*wrapper.summary.pod_sets).enumerate() {
            for (node, count) in places {
                if self.is_closed(node, &set.constraints) {
                    *closed.entry((at, node.clone())).or_default() += count;
                }
            }
        }
        if closed.is_empty() && wrapper.lost.is_empty() {
            return BTreeSet::new();
        }
        let planned: BTreeSet<&str> = assignment.nodes().collect();
        let mut occupied: BTreeSet<NodeName> = BTreeSet::new();
        for pod in self.pods_of(wrapper) {
            let Some(node) = self.placement_of(&pod, |node| planned.contains(node)) else { continue };
            if pod.is_live() && pod.node.is_some() {
                occupied.insert(node.clone());
            }
            if let Some(open) = pod.pod_set.and_then(|set| closed.get_mut(&(set, node)))
                && pod.keeps_closed_place()
            {
                *open = open.saturating_sub(1);
            }
        }
        let open = closed.iter().filter(|(_, open)| **open > 0);
        let mut lost: BTreeSet<NodeName> = open.map(|((_, node), _)| node.clone()).collect();
        let left =
            wrapper.lost.iter().filter(|node| !planned.contains(node.as_str()) && occupied.contains(*node));
        lost.extend(left.cloned());
        lost
    }

    /// Whether a node takes no new pod with these constraints.
    fn is_closed(&self, node: &str, constraints: &Constraints) -> bool {
        let class = self.world.node_ix(node).and_then(|ix| self.world.class_of(ix));
        class.is_none_or(|class| constraints.obstacle(&self.world.class(class).class).is_some())
    }

    /// Pods of a running gang that were ungated for a node that takes them no more, before the scheduler bound them. Their
    /// node selector cannot be changed, so only another pod can take another place. A pod without a controller is not
    /// among them: nothing would create another one.
    pub fn stranded_pods<'a>(&self, wrapper: &Wrapper, pods: &[GangPod<'a>]) -> Vec<GangPod<'a>> {
        if !matches!(wrapper.phase, Phase::Starting(Some(_)) | Phase::Running(Some(_))) {
            return Vec::new();
        }
        let is_stranded = |row: &GangPod<'_>| {
            row.node.is_none()
                && row.unschedulable.is_some()
                && !row.is_gated
                && !row.is_deleting
                && row.owner.as_ref().is_some_and(|owner| *owner != wrapper.uid)
                && self.is_pinned_to_closed_node(wrapper, row)
        };
        pods.iter().copied().filter(is_stranded).collect()
    }

    fn is_pinned_to_closed_node(&self, wrapper: &Wrapper, pod: &GangPod<'_>) -> bool {
        let Some(set) = pod.pod_set.and_then(|set| wrapper.summary.pod_sets.get(set)) else { return false };
        match (&pod.placement, &pod.host) {
            (Some(PodPlacement::On(node)), Some(_)) => self.is_closed(node, &set.constraints),
            (None, Some(host)) => {
                let mut named = self.hosts.get(host).into_iter().flatten();
                named.all(|node| self.is_closed(node, &set.constraints))
            }
            (Some(PodPlacement::On(_) | PodPlacement::Anywhere) | None, _) => false,
        }
    }
}

impl PodRow {
    /// Whether the pod holds its place on a node that takes no new pods: it is bound there and not about to go, or it
    /// has succeeded.
    fn keeps_closed_place(&self) -> bool {
        match self.phase {
            PodPhase::Succeeded => true,
            PodPhase::Failed => false,
            PodPhase::Pending | PodPhase::Running => self.node.is_some() && !self.is_deleting,
        }
    }
}
