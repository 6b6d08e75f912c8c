//! Replacement of lost places: a running gang keeps running while a pod of it moves to another node.
//!
//! A place is lost when its node takes no new pod of the gang any more (cordoned, not ready, newly tainted, deleted, or
//! overcommitted because pods were bound there beside the plan) and no pod of the gang holds the place. The planner finds places on other nodes for all places on such a node
//! ([`model::Gang::unhealthy`]), with the quota that the gang is charged for already. Pods that still run there stay.

use std::collections::{BTreeMap, BTreeSet};

use model::{Amount, Assignment, NodeName, PodSet};

use super::{GangPod, Index};
use crate::objects::ObjectRow;
use crate::phase::Phase;
use crate::pods::{PodPhase, PodPlacement, PodRow};
use crate::wrapper::Wrapper;

impl Index {
    /// Recomputes the places of all gangs whose pods, objects or nodes changed since the last call, and which of them are
    /// lost.
    pub(super) fn update_places_and_losses(&mut self) {
        self.check_gangs_on_changed_nodes();
        self.update_seats();
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
        self.nodes_changed(&changed);
    }

    /// The nodes on which places of the gang are lost: those with a lost place, and those from which all places were moved
    /// away while pods of the gang are left there.
    fn lost_nodes(&self, wrapper: &Wrapper, assignment: &Assignment) -> BTreeSet<NodeName> {
        let mut closed: BTreeMap<(usize, NodeName), u32> = BTreeMap::new();
        for (at, (places, set)) in assignment.pod_sets.iter().zip(&*wrapper.summary.pod_sets).enumerate() {
            for (node, count) in places {
                if self.is_closed(node, set) {
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

    /// Whether a node takes no new pod of a pod set.
    fn is_closed(&self, node: &str, set: &PodSet) -> bool {
        let Some((ix, class)) = self.world.node_ix(node).and_then(|ix| Some((ix, self.world.class_of(ix)?)))
        else {
            return true;
        };
        let free = &self.world.free(ix).amounts;
        let is_overcommitted = || set.request.iter().any(|(resource, _)| free.get(resource) < Amount(0));
        set.constraints.obstacle(&self.world.class(class).class).is_some() || is_overcommitted()
    }

    /// Pods of a running gang that were ungated for a node that takes them no more, before the scheduler bound them: the node
    /// is closed, or their place was replaced. Their node selector cannot be changed, so only another pod can take another
    /// place. Pods without a controller are not among them, because nothing would create others, nor pods of a Job that
    /// would fail without them: their gang is requeued as a whole.
    pub fn stranded_pods<'a>(&self, wrapper: &Wrapper, pods: &[GangPod<'a>]) -> Vec<GangPod<'a>> {
        let (Phase::Starting(Some(assignment)) | Phase::Running(Some(assignment))) = &wrapper.phase else {
            return Vec::new();
        };
        let is_refused = |row: &GangPod<'_>| {
            row.node.is_none()
                && row.unschedulable.is_some()
                && !row.is_gated
                && !row.is_deleting
                && row.owner.as_ref().is_some_and(|owner| *owner != wrapper.uid)
        };
        let takes = |set: usize, node: &str| {
            let is_there = |row: &&GangPod<'_>| {
                row.pod_set == Some(set)
                    && row.is_live()
                    && !row.is_deleting
                    && row.node.as_deref() == Some(node)
            };
            let bound = pods.iter().filter(is_there).count();
            let of_set = assignment.pod_sets.get(set).into_iter().flatten();
            let places: u64 = of_set.filter(|(on, _)| on == node).map(|(_, count)| u64::from(*count)).sum();
            let pod_set = wrapper.summary.pod_sets.get(set);
            u64::try_from(bound).is_ok_and(|bound| bound < places)
                && pod_set.is_some_and(|pod_set| !self.is_closed(node, pod_set))
        };
        let is_stranded = |row: &GangPod<'_>| {
            let Some(set) = row.pod_set else { return false };
            match (&row.placement, &row.host) {
                (Some(PodPlacement::On(node)), Some(_)) => !takes(set, node),
                (None, Some(host)) => {
                    let mut named = self.hosts.get(host).into_iter().flatten();
                    !named.any(|node| takes(set, node))
                }
                (Some(PodPlacement::On(_) | PodPlacement::Anywhere) | None, _) => false,
            }
        };
        let stranded: Vec<_> =
            pods.iter().copied().filter(|row| is_refused(row) && is_stranded(row)).collect();
        let failing = self.failing_without(&stranded, pods);
        let fails = |row: &GangPod<'_>| row.owner.as_deref().is_some_and(|owner| failing.contains(owner));
        stranded.iter().copied().filter(|row| !fails(row)).collect()
    }

    /// The uids of the Jobs that fail if these pods are deleted: a Job counts deleted pods as failed ones when they are
    /// gone (measured with the controllers of Kubernetes 1.36).
    fn failing_without<'p>(&self, deleted: &'p [GangPod<'_>], pods: &'p [GangPod<'_>]) -> BTreeSet<&'p str> {
        let going = pods.iter().filter(|row| row.is_deleting && row.is_live() && !deleted.is_empty());
        let mut lost: BTreeMap<&str, u32> = BTreeMap::new();
        for owner in deleted.iter().chain(going).filter_map(|row| row.owner.as_deref()) {
            *lost.entry(owner).or_default() += 1;
        }
        let left = |owner: &str| self.objects.get(owner).and_then(ObjectRow::failures_left);
        lost.retain(|owner, lost| left(owner).is_some_and(|left| *lost > left));
        lost.into_keys().collect()
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
