//! Planned pods that the scheduler finds unschedulable: a scheduler plugin rejects the node, or other pods took the
//! place.
//!
//! Such a gang is requeued as a whole. The nodes that failed are excluded for this gang for a while, so that the next
//! plan uses other nodes. The status of the gang records them, so that a restart of the controller forgets none.

use std::collections::{BTreeMap, BTreeSet};

use api::MicroTime;
use api::appwrapper::{Status, transition};
use model::{Assignment, GangState, NodeName};

use super::{GangPod, Index};
use crate::phase::Phase;
use crate::pods::{PodPhase, PodPlacement, PodRow};
use crate::wrapper::Wrapper;

/// Maximum number of nodes in a record: statuses have a maximum size.
const RECORDED_MAX: usize = 200;

/// The unschedulable pods of a gang.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnschedulablePods {
    /// The uids of the planned pods that the scheduler found no node for, and of those whose lost place is not replaced
    /// yet.
    pub pods: BTreeSet<String>,
    /// The nodes that these pods were assigned to. Of pods that are not pinned to one: the planned nodes of their set
    /// without a pod of it.
    pub nodes: BTreeSet<NodeName>,
}

/// Pods of gangs that are not where they should be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TroubledPods {
    /// The scheduler found no node for them.
    pub unschedulable: u64,
    /// They are bound to a node beside the places of their gang.
    pub misplaced: u64,
}

impl Index {
    /// The pods of gangs that are not where they should be, by namespace.
    pub fn troubled_pods(&self) -> BTreeMap<&str, TroubledPods> {
        let mut troubled: BTreeMap<&str, TroubledPods> = BTreeMap::new();
        let refused = self.pods.iter().filter(|row| row.unschedulable.is_some() && !row.is_deleting);
        for row in refused.filter(|row| row.tracked.is_some() || row.workload.is_some()) {
            troubled.entry(&row.namespace).or_default().unschedulable += 1;
        }
        for pod in self.world.pods() {
            let (Some((gang, set)), Some(node)) = (&pod.gang, &pod.node) else { continue };
            let gang = self.world.gang(gang).map(|gang| &gang.state);
            let Some(GangState::Reserved(assignment)) = gang else { continue };
            let Some(places) = assignment.pod_sets.get(*set).filter(|places| !places.is_empty()) else {
                continue; // Its pods get no nodes from a plan.
            };
            if places.iter().all(|(planned, _)| planned != node) {
                troubled.entry(&pod.namespace).or_default().misplaced += 1;
            }
        }
        troubled
    }

    /// The unschedulable pods of a gang with an assignment. Pods beyond the assignment do not count: an operator may
    /// create more pods than the gang declared.
    pub fn unschedulable_pods(&self, wrapper: &Wrapper, pods: &[GangPod<'_>]) -> UnschedulablePods {
        let (Phase::Running(Some(assignment)) | Phase::Stopping(_, Some(assignment))) = &wrapper.phase else {
            return UnschedulablePods::default();
        };
        let mut unschedulable = UnschedulablePods::default();
        let lost = self.pods_without_replacement(wrapper, pods, assignment);
        unschedulable.pods.extend(lost.into_iter().map(|pod| pod.uid.clone()));
        if !pods.iter().any(|pod| pod.unschedulable.is_some()) {
            return unschedulable;
        }
        let mut open = open_places(wrapper, pods, assignment);
        let planned: BTreeSet<&str> = assignment.nodes().collect();
        for pod in pods.iter().filter(|pod| pod.unschedulable.is_some() && !pod.is_deleting) {
            let open = pod.pod_set.and_then(|set| open.get_mut(set));
            let Some(open) = open.filter(|open| **open > 0) else { continue };
            *open -= 1;
            unschedulable.pods.insert(pod.uid.clone());
            match self.placement_of(pod, |node| planned.contains(node)) {
                Some(node) => unschedulable.nodes.extend([node]),
                // It was not pinned: the scheduler refused all nodes, and so the planned ones.
                None => unschedulable.nodes.extend(nodes_without_pods(pod.pod_set, pods, assignment)),
            }
        }
        unschedulable
    }

    /// The number of pods of scale-ups that the scheduler found no node for. The gang runs on without them.
    pub fn unschedulable_pods_of_scale_ups(&self, wrapper: &Wrapper, pods: &[GangPod<'_>]) -> u64 {
        let Phase::Running(Some(assignment)) = &wrapper.phase else { return 0 };
        let mut left = wrapper.places_of_scale_ups(assignment);
        if left.iter().all(|count| *count == 0) {
            return 0;
        }
        let required = self.unschedulable_pods(wrapper, pods).pods;
        let is_refused = |pod: &&GangPod<'_>| {
            pod.unschedulable.is_some() && !pod.is_deleting && !required.contains(&pod.uid)
        };
        let mut count = 0;
        for pod in pods.iter().filter(is_refused) {
            if let Some(left) = pod.pod_set.and_then(|set| left.get_mut(set)).filter(|left| **left > 0) {
                *left -= 1;
                count += 1;
            }
        }
        count
    }

    /// The node that a pod is bound or assigned to. If only its host name is known, a planned node.
    pub(super) fn placement_of(&self, row: &PodRow, is_planned: impl Fn(&str) -> bool) -> Option<NodeName> {
        match (&row.node, &row.placement, &row.host) {
            (Some(node), ..) | (None, Some(PodPlacement::On(node)), _) => Some(node.clone()),
            (None, None, Some(host)) => {
                self.hosts.get(host).into_iter().flatten().find(|node| is_planned(node)).cloned()
            }
            (None, Some(PodPlacement::Anywhere), _) | (None, None, None) => None,
        }
    }

    /// The record of the nodes that a gang avoids once it is requeued for its unschedulable pods: the nodes of these pods, and
    /// those that it avoids already. An exclusion lasts twice the next requeue time, so that it is still in force if the gang
    /// fails on other nodes. `None` without a new node.
    pub fn record_of_failed_nodes(
        &self,
        wrapper: &Wrapper,
        status: &Status,
        now: MicroTime,
    ) -> Option<String> {
        let nodes = self.unschedulable_pods(wrapper, &self.pods_of(wrapper)).nodes;
        if nodes.is_empty() {
            return None;
        }
        let until = now.plus_s(status.requeueing_s.saturating_mul(2));
        let known = wrapper.excluded_nodes.iter().filter(|(node, _)| !nodes.contains(*node));
        let mut all: Vec<_> = nodes.iter().map(|node| (until, node)).collect();
        all.extend(known.map(|(node, until)| (*until, node)));
        all.sort_by(|a, b| b.cmp(a)); // What lasts longest first.
        let texts = all.iter().take(RECORDED_MAX).map(|(until, node)| format!("{node} until {until}"));
        Some(texts.collect::<Vec<_>>().join(", "))
    }

    /// Excludes the nodes that the status of a gang records: it is being requeued, or this process sees it first.
    pub(super) fn exclude_recorded_nodes(&mut self, uid: &str) {
        let now = MicroTime(self.world.clock().0);
        let Some(wrapper) = self.wrappers.get_mut(uid) else { return };
        let record = wrapper.status.condition(transition::NODES_AVOIDED, transition::UNSCHEDULABLE);
        for (node, until) in record.into_iter().flat_map(|record| recorded_nodes(&record.message)) {
            if until > now {
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

    /// Notes that an exclusion of this gang ends then.
    pub(crate) fn note_exclusion(&mut self, uid: &str, until: MicroTime) {
        self.exclusion_expiry.insert((until, uid.to_owned()));
    }

    fn remove_node_exclusions(&mut self, uid: &str, is_over: impl Fn(&str, MicroTime) -> bool) {
        let Some(wrapper) = self.wrappers.get_mut(uid) else { return self.readmit_nodes(uid, is_over) };
        let before = wrapper.excluded_nodes.len();
        wrapper.excluded_nodes.retain(|node, until| !is_over(node, *until));
        if wrapper.excluded_nodes.len() < before {
            self.publish(uid);
        }
    }
}

/// The nodes of a record, and until when they are avoided. Other text has none.
fn recorded_nodes(record: &str) -> Vec<(NodeName, MicroTime)> {
    let parsed = record.split(", ").filter_map(|text| {
        let (node, until) = text.split_once(" until ")?;
        Some((node.into(), MicroTime::parse(until)?))
    });
    parsed.take(RECORDED_MAX).collect()
}

/// The planned nodes of a pod set to which none of its pods is bound.
fn nodes_without_pods<'a>(
    pod_set: Option<usize>,
    pods: &[GangPod<'_>],
    assignment: &'a Assignment,
) -> impl Iterator<Item = NodeName> + use<'a> {
    let bound = pods.iter().filter(|pod| pod.pod_set == pod_set).filter_map(|pod| pod.node.clone());
    let bound: BTreeSet<NodeName> = bound.collect();
    let places = pod_set.and_then(|set| assignment.pod_sets.get(set)).into_iter().flatten();
    places.map(|(node, _)| node.clone()).filter(move |node| !bound.contains(node))
}

/// The number of bound or succeeded pods of each pod set that are missing to the size in the AppWrapper, as far as they
/// have places.
fn open_places(wrapper: &Wrapper, pods: &[GangPod<'_>], assignment: &Assignment) -> Vec<u64> {
    let of_scale_ups = wrapper.places_of_scale_ups(assignment).into_iter().enumerate();
    let mut open: Vec<_> =
        of_scale_ups.map(|(set, count)| assignment.placed(set).saturating_sub(count)).collect();
    subtract_placed(pods, &mut open);
    open
}

/// Subtracts the bound and succeeded pods from a number of pods for each pod set.
pub(super) fn subtract_placed(pods: &[GangPod<'_>], counts: &mut [u64]) {
    for pod in pods.iter().filter(|pod| pod.node.is_some() && pod.phase != PodPhase::Failed) {
        if let Some(left) = pod.pod_set.and_then(|set| counts.get_mut(set)) {
            *left = left.saturating_sub(1);
        }
    }
}
