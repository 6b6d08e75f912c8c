//! Pod placement: assigns the places of a gang's assignment to its gated pods.
//!
//! A pod exists before its node is known; a scheduling gate keeps it from the scheduler (`api::scheduling_gate`). Each
//! gated pod gets a place of its pod set that no other pod holds. A terminating pod passes its place on. Pods beyond
//! the planned ones run on any node.

use std::collections::BTreeMap;

use api::appwrapper::State;
use api::scheduling_gate::{GATE, HOSTNAME};
use model::{Assignment, Gang, NodeName, Verdict};

use super::{GangPod, Index};
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
    /// The gates to be removed.
    pub gates: &'static [&'static str],
    /// The labels of the node that it goes to; any node without one.
    pub node_selector: BTreeMap<String, String>,
    /// Its place.
    pub(crate) placement: PodPlacement,
}

impl Ungating {
    fn of(row: &PodRow, host: Option<String>, placement: PodPlacement) -> Self {
        let (uid, namespace, name) = (row.uid.clone(), row.namespace.clone(), row.name.clone());
        let node_selector = host.map(|host| (HOSTNAME.to_owned(), host)).into_iter().collect();
        Self { uid, namespace, name, gates: &[GATE], node_selector, placement }
    }

    /// Ungates a pod that runs on any node.
    pub(super) fn anywhere(row: &PodRow) -> Self {
        Self::of(row, None, PodPlacement::Anywhere)
    }
}

impl Index {
    /// The gated pods of a wrapper that may go to the scheduler now, in the order of their ranks, then names. A pod whose
    /// place was lost with a node stays gated until it is replaced, and a pod of a scale-up until the planner has a place
    /// for it. [`Index::place_pods`] records the places.
    pub fn ungatings(&self, wrapper: &Wrapper, pods: &[GangPod<'_>]) -> Vec<Ungating> {
        if !pods.iter().any(|pod| pod.awaits_placement()) {
            return Vec::new();
        }
        if wrapper.phase == Phase::Finished {
            return self.ungatings_of_ended(wrapper, pods);
        }
        let (Phase::Starting(assignment) | Phase::Running(assignment)) = &wrapper.phase else {
            return Vec::new(); // Its objects are being removed, or it has no assignment yet.
        };
        if assignment.is_none() && wrapper.reserved_places().is_some() {
            return Vec::new(); // The objects with its assignment are not observed yet.
        }
        if is_lost_before_start(wrapper, pods) {
            return Vec::new(); // It starts whole: its lost places are replaced first.
        }
        let unknown = Assignment::default();
        let choices = self.place_choices(wrapper, pods, assignment.as_ref().unwrap_or(&unknown)).into_iter();
        let taken = choices.filter_map(|(pod, choice)| match choice {
            Choice::Take(placement) => Some(self.ungating(&pod, placement)),
            Choice::AwaitReplacement | Choice::AwaitGrowth => None,
        });
        taken.collect()
    }

    /// Records the places of pods. A pod keeps its place as long as it exists.
    pub fn place_pods(&mut self, ungatings: &[Ungating]) {
        for ungating in ungatings {
            self.pods.set_placement(&ungating.uid, ungating.placement.clone());
        }
    }

    /// The gated pods of a gang that has ended, and whose objects remain: they run on any node.
    fn ungatings_of_ended(&self, wrapper: &Wrapper, pods: &[GangPod<'_>]) -> Vec<Ungating> {
        let has_objects = || self.objects_of(&wrapper.uid).any(|row| !row.is_deleting);
        if wrapper.is_deleting || wrapper.status.state != State::Completed && !has_objects() {
            return Vec::new();
        }
        let gated = pods.iter().filter(|pod| pod.awaits_placement() && !pod.is_deleting);
        gated.map(|pod| Ungating::anywhere(pod)).collect()
    }

    fn ungating(&self, pod: &PodRow, placement: PodPlacement) -> Ungating {
        let host = match &placement {
            PodPlacement::On(node) => self.host(node).map(str::to_owned),
            PodPlacement::Anywhere => None,
        };
        Ungating::of(pod, host, placement)
    }

    /// The gated pods of a wrapper without a place, each with the place that it may take now.
    fn place_choices<'a>(
        &self,
        wrapper: &Wrapper,
        pods: &[GangPod<'a>],
        assignment: &Assignment,
    ) -> Vec<(GangPod<'a>, Choice)> {
        let held = self.world.gang(&wrapper.uid).and_then(Gang::held);
        let assignment = held.as_ref().map_or(assignment, |(_, held)| held);
        let mut free = self.free_places(assignment, pods);
        let lost: Vec<BTreeMap<NodeName, u32>> = free
            .iter_mut()
            .map(|set| wrapper.lost.iter().filter_map(|node| set.remove_entry(node)).collect())
            .collect();
        let mut lost: Vec<u32> = lost.iter().map(|set| set.values().sum()).collect();
        let mut growth = self.pods_awaiting_growth(wrapper, assignment);
        let is_waiting = |pod: &GangPod<'_>| pod.awaits_placement() && pod.is_owned;
        let mut waiting: Vec<GangPod<'a>> = pods.iter().copied().filter(is_waiting).collect();
        waiting.sort_by(|a, b| (a.rank, &a.name).cmp(&(b.rank, &b.name)));
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
        waiting.into_iter().map(|pod| (pod, choose(pod.pod_set))).collect()
    }

    /// The gated pods whose place was lost with a node and not replaced yet.
    pub(super) fn pods_without_replacement<'a>(
        &self,
        wrapper: &Wrapper,
        pods: &[GangPod<'a>],
        assignment: &Assignment,
    ) -> Vec<GangPod<'a>> {
        if wrapper.lost.is_empty() {
            return Vec::new();
        }
        let choices = self.place_choices(wrapper, pods, assignment).into_iter();
        choices.filter(|(_, choice)| *choice == Choice::AwaitReplacement).map(|(pod, _)| pod).collect()
    }

    /// The gated pods of a running gang of which no pod has left its gate, if places of it are lost that the planner cannot
    /// replace: such a gang cannot start whole where it is.
    pub fn pods_lost_before_start(&self, wrapper: &Wrapper, pods: &[GangPod<'_>]) -> usize {
        let Phase::Running(Some(assignment)) = &wrapper.phase else { return 0 };
        let is_refused = || self.verdict(&wrapper.uid).and_then(Verdict::shortage).is_some();
        if !is_lost_before_start(wrapper, pods) || !is_refused() {
            return 0;
        }
        self.pods_without_replacement(wrapper, pods, assignment).len()
    }

    /// The places of each pod set that no pod holds: by node, how many; without zeros.
    pub(super) fn free_places(
        &self,
        assignment: &Assignment,
        pods: &[GangPod<'_>],
    ) -> Vec<BTreeMap<NodeName, u32>> {
        let mut free: Vec<BTreeMap<NodeName, u32>> =
            assignment.pod_sets.iter().map(|places| places_by_node(places)).collect();
        for pod in pods.iter().filter(|pod| pod.is_live() && !pod.is_deleting) {
            let Some(free) = pod.pod_set.and_then(|set| free.get_mut(set)) else { continue };
            let node = self.placement_of(pod, |node| free.contains_key(node));
            if let Some(left) = node.and_then(|node| free.get_mut(&node)) {
                *left = left.saturating_sub(1);
            }
        }
        for set in &mut free {
            set.retain(|_, left| *left > 0);
        }
        free
    }

    /// The host name label of a node that takes pods.
    pub(crate) fn host(&self, node: &str) -> Option<&str> {
        let node = self.world.node(node)?;
        node.labels.get(HOSTNAME).map(String::as_str)
    }
}

/// Whether places of a gang are lost of which no pod has left its gate. Its pods came larger than planned, for example.
fn is_lost_before_start(wrapper: &Wrapper, pods: &[GangPod<'_>]) -> bool {
    let is_gated = |pod: &GangPod<'_>| pod.awaits_placement() || pod.is_deleting;
    !wrapper.lost.is_empty() && wrapper.summary.spec.min_available <= 0 && pods.iter().all(is_gated)
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
    let mut first = free.first_entry()?;
    let node = first.key().clone();
    *first.get_mut() -= 1;
    if *first.get() == 0 {
        first.remove();
    }
    Some(node)
}
