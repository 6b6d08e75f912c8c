//! Which of a gang's pods goes to which of its places.
//!
//! Pods exist before they know their node; a gate keeps them from the scheduler (`api::scheduling_gate`). Each is given one of the
//! places that its pod set was planned on and that no other pod took. Pods beyond the planned ones go wherever they fit.

use std::collections::BTreeMap;

use api::scheduling_gate::HOSTNAME;
use model::{Assignment, NodeName};

use super::Index;
use crate::phase::Phase;
use crate::pods::PodPlacement;

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

impl Index {
    /// Gives places to the gated pods of a wrapper that have none yet, in the order of their ranks, then names. They keep
    /// them as long as they exist.
    pub fn place_pods(&mut self, wrapper: &str) -> Vec<Ungating> {
        let Some(wrapper) = self.wrappers.get(wrapper) else { return Vec::new() };
        if !self.pods_of(wrapper).iter().any(|row| row.awaits_placement()) {
            return Vec::new();
        }
        let (Phase::Starting(assignment) | Phase::Running(assignment)) = &wrapper.phase else {
            return Vec::new(); // Its pods are on their way out, or not planned yet.
        };
        let assignment = assignment.clone();
        let mut free = self.free_places(&assignment.unwrap_or_default(), wrapper);
        let rows = self.pods_of(wrapper).into_iter().filter(|row| row.awaits_placement());
        let mut waiting: Vec<_> =
            rows.filter_map(|row| self.ownership(row).map(|ownership| (row, ownership.pod_set))).collect();
        waiting.sort_by_key(|(row, _)| (row.rank, &row.name));
        let mut ungatings = Vec::new();
        for (row, set) in waiting {
            let node = set.and_then(|set| free.get_mut(set)).and_then(take_first);
            let host = node.as_ref().and_then(|node| self.host(node)).map(str::to_owned);
            let placement = node.map_or(PodPlacement::Anywhere, PodPlacement::On);
            let (uid, namespace, name) = (row.uid.clone(), row.namespace.clone(), row.name.clone());
            ungatings.push((placement, Ungating { uid, namespace, name, host }));
        }
        for (placement, ungating) in &ungatings {
            self.pods.place_pods(&ungating.uid, placement.clone());
        }
        ungatings.into_iter().map(|(_, ungating)| ungating).collect()
    }

    /// The places of each pod set that no pod took: by node, how many.
    fn free_places(&self, assignment: &Assignment, wrapper: &crate::Wrapper) -> Vec<BTreeMap<NodeName, u32>> {
        let mut free: Vec<BTreeMap<NodeName, u32>> =
            assignment.pod_sets.iter().map(|places| places.iter().cloned().collect()).collect();
        for row in self.pods_of(wrapper).into_iter().filter(|row| row.is_live()) {
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

/// Takes the first place that is left, by the name of the node.
fn take_first(free: &mut BTreeMap<NodeName, u32>) -> Option<NodeName> {
    let (node, left) = free.iter_mut().find(|(_, left)| **left > 0)?;
    *left -= 1;
    Some(node.clone())
}
