//! Planned pods that the scheduler finds unschedulable: a scheduler plugin rejects the node, or other pods took the
//! place.
//!
//! Such a gang is requeued as a whole. The nodes that failed are excluded for this gang for a while, so that the next
//! plan uses other nodes.

use std::collections::BTreeSet;

use api::MicroTime;
use api::appwrapper::transition;
use model::{Assignment, NodeName};

use super::Index;
use crate::phase::{Phase, StopReason};
use crate::pods::{PodPhase, PodPlacement, PodRow};
use crate::wrapper::Wrapper;

/// The unschedulable pods of a gang.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnschedulablePods {
    /// The uids of the planned pods that the scheduler found no node for, and of those whose lost place is not replaced
    /// yet.
    pub pods: BTreeSet<String>,
    /// The nodes that these pods were assigned to, as far as known.
    pub nodes: BTreeSet<NodeName>,
}

impl Index {
    /// The unschedulable pods of a gang with an assignment. Pods beyond the assignment do not count: an operator may
    /// create more pods than the gang declared.
    pub fn unschedulable_pods(&self, wrapper: &Wrapper) -> UnschedulablePods {
        let (Phase::Running(Some(assignment)) | Phase::Stopping(_, Some(assignment))) = &wrapper.phase else {
            return UnschedulablePods::default();
        };
        let pods = self.pods_of(wrapper);
        let mut open = self.open_places(&pods, assignment);
        let mut unschedulable = UnschedulablePods::default();
        let lost = self.pods_without_replacement(wrapper, assignment);
        unschedulable.pods.extend(lost.into_iter().map(|row| row.uid.clone()));
        for row in pods.into_iter().filter(|row| row.unschedulable.is_some() && !row.is_deleting) {
            let set = self.ownership(row).and_then(|ownership| ownership.pod_set);
            let Some(open) = set.and_then(|set| open.get_mut(set)).filter(|open| **open > 0) else {
                continue;
            };
            *open -= 1;
            unschedulable.pods.insert(row.uid.clone());
            unschedulable.nodes.extend(self.placement_of(row, assignment.nodes()));
        }
        unschedulable
    }

    /// The number of places of each pod set without a bound or succeeded pod.
    fn open_places(&self, pods: &[&PodRow], assignment: &Assignment) -> Vec<u64> {
        let mut open: Vec<_> = (0..assignment.pod_sets.len()).map(|set| assignment.placed(set)).collect();
        self.subtract_placed(pods, &mut open);
        open
    }

    /// Subtracts the bound and succeeded pods from a number of pods for each pod set.
    pub(super) fn subtract_placed(&self, pods: &[&PodRow], counts: &mut [u64]) {
        for row in pods {
            let is_placed = row.node.is_some() && row.phase != PodPhase::Failed;
            let set = self.ownership(row).filter(|_| is_placed).and_then(|ownership| ownership.pod_set);
            if let Some(left) = set.and_then(|set| counts.get_mut(set)) {
                *left = left.saturating_sub(1);
            }
        }
    }

    /// The node that a pod is bound or assigned to.
    pub(super) fn placement_of<'a>(
        &self,
        row: &PodRow,
        mut nodes: impl Iterator<Item = &'a str>,
    ) -> Option<NodeName> {
        match (&row.node, &row.placement, &row.host) {
            (Some(node), ..) | (None, Some(PodPlacement::On(node)), _) => Some(node.clone()),
            (None, None, Some(host)) => nodes.find(|node| self.host(node) == Some(host)).map(str::to_owned),
            (None, Some(PodPlacement::Anywhere), _) | (None, None, None) => None,
        }
    }

    /// Excludes the nodes of unschedulable pods for a gang that is being requeued. The exclusion lasts twice the next
    /// requeue time, so that it is still in force if the gang fails on other nodes. A restart of the controller forgets
    /// it.
    pub(super) fn exclude_failed_nodes(&mut self, uid: &str) {
        let Some(wrapper) = self.wrappers.get(uid) else { return };
        let Phase::Stopping(StopReason::Requeue, Some(_)) = &wrapper.phase else { return };
        let nodes = self.unschedulable_pods(wrapper).nodes;
        let requeued =
            wrapper.status.conditions.iter().rev().find(|c| c.kind == transition::PREEMPT_CANDIDATE);
        let Some(since) = requeued.map(|condition| condition.last_transition_micro_time) else { return };
        let until = since.plus_s(wrapper.status.requeueing_s.saturating_mul(2));
        if let Some(wrapper) = self.wrappers.get_mut(uid) {
            for node in nodes {
                self.exclusion_expiry.insert((until, uid.to_owned()));
                wrapper.excluded_nodes.insert(node, until);
            }
        }
    }

    /// Removes expired node exclusions. Returns the time when the next one expires.
    pub fn expire_node_exclusions(&mut self, now: MicroTime) -> Option<MicroTime> {
        while let Some((due, _)) = self.exclusion_expiry.first()
            && *due <= now
        {
            let Some((_, uid)) = self.exclusion_expiry.pop_first() else { break };
            self.remove_node_exclusions(&uid, |_, until| until <= now);
        }
        self.exclusion_expiry.first().map(|(due, _)| *due)
    }

    /// Removes all exclusions of a node that changed.
    pub(super) fn clear_node_exclusions(&mut self, name: &str) {
        let avoiding: BTreeSet<_> = self.exclusion_expiry.iter().map(|(_, uid)| uid.clone()).collect();
        for uid in avoiding {
            self.remove_node_exclusions(&uid, |node, _| node == name);
        }
    }

    fn remove_node_exclusions(&mut self, uid: &str, is_over: impl Fn(&str, MicroTime) -> bool) {
        let Some(wrapper) = self.wrappers.get_mut(uid) else { return };
        let before = wrapper.excluded_nodes.len();
        wrapper.excluded_nodes.retain(|node, until| !is_over(node, *until));
        if wrapper.excluded_nodes.len() < before {
            self.publish(uid);
        }
    }
}
