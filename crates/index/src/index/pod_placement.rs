//! Pod placement: assigns the places of a gang's assignment to its gated pods.
//!
//! A pod exists before its node is known; a scheduling gate keeps it from the scheduler (`api::scheduling_gate`). Each
//! gated pod gets a place of its pod set that no other pod holds. A terminating pod passes its place on. Pods beyond
//! the planned ones run on any node.

use std::collections::BTreeMap;

use api::appwrapper::State;
use api::scheduling_gate::HOSTNAME;
use model::{Assignment, Gang, NodeName};

use super::Index;
use crate::phase::Phase;
use crate::pods::{PodPlacement, PodRow};
use crate::translate::places_by_node;
use crate::wrapper::Wrapper;

/// A gated pod that may go to the scheduler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ungating {
    /// Identity of the pod.
    pub uid: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The host name label of the node that it goes to; any node without one.
    pub host: Option<String>,
}

impl Ungating {
    fn of(row: &PodRow, host: Option<String>) -> Self {
        Self { uid: row.uid.clone(), namespace: row.namespace.clone(), name: row.name.clone(), host }
    }

    /// Ungates a pod that runs on any node.
    pub(super) fn anywhere(row: &PodRow) -> Self {
        Self::of(row, None)
    }
}

impl Index {
    /// Assigns places to the gated pods of a wrapper that have none yet, in the order of their ranks, then names. A pod
    /// keeps its place as long as it exists. A pod whose place was lost with a node stays gated until it is replaced, and a
    /// pod of a scale-up until the planner has a place for it.
    pub fn place_pods(&mut self, wrapper: &str) -> Vec<Ungating> {
        let Some(wrapper) = self.wrappers.get(wrapper) else { return Vec::new() };
        if !self.pods_of(wrapper).iter().any(|row| row.awaits_placement()) {
            return Vec::new();
        }
        if wrapper.phase == Phase::Finished {
            return self.ungate_ended(&wrapper.uid.clone());
        }
        let (Phase::Starting(assignment) | Phase::Running(assignment)) = &wrapper.phase else {
            return Vec::new(); // Its objects are being removed, or it has no assignment yet.
        };
        let assignment = assignment.clone().unwrap_or_default();
        let mut ungatings = Vec::new();
        for (row, choice) in self.place_choices(wrapper, &assignment) {
            let Choice::Take(placement) = choice else { continue };
            let host = match &placement {
                PodPlacement::On(node) => self.host(node).map(str::to_owned),
                PodPlacement::Anywhere => None,
            };
            ungatings.push((placement, Ungating::of(row, host)));
        }
        for (placement, ungating) in &ungatings {
            self.pods.set_placement(&ungating.uid, placement.clone());
        }
        ungatings.into_iter().map(|(_, ungating)| ungating).collect()
    }

    /// Ungates the pods of a gang that has ended, and whose objects remain: they run on any node.
    fn ungate_ended(&mut self, uid: &str) -> Vec<Ungating> {
        let Some(wrapper) = self.wrappers.get(uid).filter(|wrapper| !wrapper.is_deleting) else {
            return Vec::new();
        };
        let has_objects = || self.objects.of_owner(uid).any(|row| !row.is_deleting);
        if wrapper.status.state != State::Completed && !has_objects() {
            return Vec::new();
        }
        let rows = self.pods_of(wrapper).into_iter();
        let gated = rows.filter(|row| row.awaits_placement() && !row.is_deleting);
        let ungatings: Vec<_> = gated.map(Ungating::anywhere).collect();
        for ungating in &ungatings {
            self.pods.set_placement(&ungating.uid, PodPlacement::Anywhere);
        }
        ungatings
    }

    /// The gated pods of a wrapper without a place, each with the place that it may take now.
    fn place_choices<'a>(
        &'a self,
        wrapper: &'a Wrapper,
        assignment: &Assignment,
    ) -> Vec<(&'a PodRow, Choice)> {
        let held = self.world.gang(&wrapper.uid).and_then(Gang::held);
        let assignment = held.as_ref().map_or(assignment, |(_, held)| held);
        let mut free = self.free_places(assignment, wrapper);
        let lost: Vec<BTreeMap<NodeName, u32>> = free
            .iter_mut()
            .map(|set| wrapper.lost.iter().filter_map(|node| set.remove_entry(node)).collect())
            .collect();
        let mut lost: Vec<u32> = lost.iter().map(|set| set.values().sum()).collect();
        let mut growth = self.pods_awaiting_growth(wrapper, assignment);
        let rows = self.pods_of(wrapper).into_iter().filter(|row| row.awaits_placement());
        let mut waiting: Vec<_> =
            rows.filter_map(|row| self.ownership(row).map(|ownership| (row, ownership.pod_set))).collect();
        waiting.sort_by_key(|(row, _)| (row.rank, &row.name));
        let mut choose = |set: Option<usize>| {
            let Some(set) = set else { return Choice::Take(PodPlacement::Anywhere) };
            if let Some(node) = free.get_mut(set).and_then(take_first) {
                return Choice::Take(PodPlacement::On(node));
            }
            if let Some(left) = lost.get_mut(set).filter(|left| **left > 0) {
                *left -= 1;
                return Choice::AwaitReplacement;
            }
            if let Some(left) = growth.get_mut(set).filter(|left| **left > 0) {
                *left -= 1;
                return Choice::AwaitGrowth;
            }
            Choice::Take(PodPlacement::Anywhere)
        };
        waiting.into_iter().map(|(row, set)| (row, choose(set))).collect()
    }

    /// The gated pods whose place was lost with a node and not replaced yet.
    pub(super) fn pods_without_replacement<'a>(
        &'a self,
        wrapper: &'a Wrapper,
        assignment: &Assignment,
    ) -> Vec<&'a PodRow> {
        if wrapper.lost.is_empty() {
            return Vec::new();
        }
        let choices = self.place_choices(wrapper, assignment).into_iter();
        choices.filter(|(_, choice)| *choice == Choice::AwaitReplacement).map(|(row, _)| row).collect()
    }

    /// The places of each pod set that no pod holds: by node, how many.
    pub(super) fn free_places(
        &self,
        assignment: &Assignment,
        wrapper: &Wrapper,
    ) -> Vec<BTreeMap<NodeName, u32>> {
        let mut free: Vec<BTreeMap<NodeName, u32>> =
            assignment.pod_sets.iter().map(|places| places_by_node(places)).collect();
        for row in self.pods_of(wrapper).into_iter().filter(|row| row.is_live() && !row.is_deleting) {
            let Some(free) =
                self.ownership(row).and_then(|ownership| ownership.pod_set).and_then(|set| free.get_mut(set))
            else {
                continue;
            };
            let node = self.placement_of(row, free.keys().map(String::as_str));
            if let Some(left) = node.and_then(|node| free.get_mut(&node)) {
                *left = left.saturating_sub(1);
            }
        }
        free
    }

    /// The host name label of a node that takes pods.
    pub(super) fn host(&self, node: &str) -> Option<&str> {
        let node = self.world.node(node)?;
        node.labels.get(HOSTNAME).map(String::as_str)
    }
}

/// What a gated pod without a place does.
#[derive(Debug, PartialEq, Eq)]
enum Choice {
    /// It takes this place.
    Take(PodPlacement),
    /// It waits until the planner has replaced its lost place.
    AwaitReplacement,
    /// It waits until the planner has added a place for it.
    AwaitGrowth,
}

/// Takes the first place that is left, by the name of the node.
fn take_first(free: &mut BTreeMap<NodeName, u32>) -> Option<NodeName> {
    let (node, left) = free.iter_mut().find(|(_, left)| **left > 0)?;
    *left -= 1;
    Some(node.clone())
}
