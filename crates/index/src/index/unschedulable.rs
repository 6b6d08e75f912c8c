//! Places that were planned and that the scheduler refuses: by rules which the plan does not know, or because somebody
//! else took them meanwhile.
//!
//! A gang whose pods are refused is taken back whole, and keeps off those nodes for a while, so that the next plan is another.

use std::collections::BTreeSet;

use api::MicroTime;
use api::appwrapper::transition;
use model::{Assignment, NodeName};

use super::Index;
use crate::phase::{Phase, Stop};
use crate::pods::{PodPhase, PodPlacement, PodRow};
use crate::wrapper::Wrapper;

/// What the scheduler refuses of a gang.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnschedulablePods {
    /// How many planned pods it found no node for.
    pub pods: usize,
    /// The nodes that they were to go to, as far as they were told.
    pub nodes: BTreeSet<NodeName>,
}

impl Index {
    /// What the scheduler refuses of a gang that holds places. Pods beyond the planned ones do not count: an operator may
    /// try to have more than it was promised.
    pub fn unschedulable_pods(&self, wrapper: &Wrapper) -> UnschedulablePods {
        let (Phase::Running(Some(assignment)) | Phase::Stopping(_, Some(assignment))) = &wrapper.phase else {
            return UnschedulablePods::default();
        };
        let pods = self.pods_of(wrapper);
        let mut open = self.open_places(&pods, assignment);
        let mut unschedulable = UnschedulablePods::default();
        for row in pods.into_iter().filter(|row| row.unschedulable.is_some()) {
            let set = self.ownership(row).and_then(|ownership| ownership.pod_set);
            let Some(open) = set.and_then(|set| open.get_mut(set)).filter(|open| **open > 0) else {
                continue;
            };
            *open -= 1;
            unschedulable.pods += 1;
            unschedulable.nodes.extend(self.placement_of(row, assignment.nodes()));
        }
        unschedulable
    }

    /// How many places of each pod set neither hold a pod nor held one that succeeded.
    fn open_places(&self, pods: &[&PodRow], assignment: &Assignment) -> Vec<u64> {
        let mut open: Vec<_> = (0..assignment.pod_sets.len()).map(|set| assignment.placed(set)).collect();
        for row in pods {
            let is_placed = row.node.is_some() && row.phase != PodPhase::Failed;
            let set = self.ownership(row).filter(|_| is_placed).and_then(|ownership| ownership.pod_set);
            if let Some(open) = set.and_then(|set| open.get_mut(set)) {
                *open = open.saturating_sub(1);
            }
        }
        open
    }

    /// Which of these nodes a pod is on or was told to go to.
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

    /// Keeps a gang that is being taken back off the nodes where the scheduler refuses its pods: twice as long as it may lack
    /// pods next, so that a second failure elsewhere still knows of the first. Nobody remembers it after a restart.
    pub(super) fn keep_off(&mut self, uid: &str) {
        let Some(wrapper) = self.wrappers.get(uid) else { return };
        let Phase::Stopping(Stop::Requeue, Some(_)) = &wrapper.phase else { return };
        let nodes = self.unschedulable_pods(wrapper).nodes;
        let taken_back =
            wrapper.status.conditions.iter().rev().find(|c| c.kind == transition::PREEMPT_CANDIDATE);
        let Some(since) = taken_back.map(|condition| condition.last_transition_micro_time) else { return };
        let until = since.plus_s(wrapper.status.requeueing_s.saturating_mul(2));
        if let Some(wrapper) = self.wrappers.get_mut(uid) {
            for node in nodes {
                self.forgiven.insert((until, uid.to_owned()));
                wrapper.avoids.insert(node, until);
            }
        }
    }

    /// Lets gangs go again to nodes that they have kept off for long enough; and says when that is due next.
    pub fn forgive(&mut self, now: MicroTime) -> Option<MicroTime> {
        while let Some((due, _)) = self.forgiven.first()
            && *due <= now
        {
            let Some((_, uid)) = self.forgiven.pop_first() else { break };
            self.forgive_if(&uid, |_, until| until <= now);
        }
        self.forgiven.first().map(|(due, _)| *due)
    }

    /// A node is not what it was: whoever kept off it may try again.
    pub(super) fn forgive_node(&mut self, name: &str) {
        let avoiding: BTreeSet<_> = self.forgiven.iter().map(|(_, uid)| uid.clone()).collect();
        for uid in avoiding {
            self.forgive_if(&uid, |node, _| node == name);
        }
    }

    fn forgive_if(&mut self, uid: &str, is_over: impl Fn(&str, MicroTime) -> bool) {
        let Some(wrapper) = self.wrappers.get_mut(uid) else { return };
        let before = wrapper.avoids.len();
        wrapper.avoids.retain(|node, until| !is_over(node, *until));
        if wrapper.avoids.len() < before {
            self.publish(uid);
        }
    }
}
