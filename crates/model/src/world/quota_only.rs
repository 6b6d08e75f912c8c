//! Pods that are charged to quota and get no node, and what the nodes lack for them.

use std::collections::BTreeMap;

use super::World;
use crate::assignment::Assignment;
use crate::gang::{Gang, GangState, Places};
use crate::queue::{Queue, QueueIx};
use crate::quota::FlavorIx;
use crate::resources::ResourceIx;
use crate::shape::Shape;
use crate::shortage::Shortage;

impl World {
    /// For each pod set of a shape: the number of its pods that get no node in a queue with these flavors. Empty when
    /// every pod gets a node.
    ///
    /// A pod set gets nodes when one of its flavors has nodes. Without any flavor, it does when one flavor of the queue
    /// has nodes. A queue without resource groups places all pods.
    pub fn unplaced(
        &self,
        queue: QueueIx,
        shape: &Shape,
        flavors: &[BTreeMap<ResourceIx, FlavorIx>],
    ) -> Vec<u32> {
        let counts = || shape.pod_sets.iter().map(|pod_set| pod_set.count);
        if shape.places_open {
            return if shape.pod_sets.is_empty() { vec![0] } else { counts().collect() };
        }
        let queue = self.queues().get(&queue).filter(|queue| !queue.places_pods);
        let Some(queue) = queue.filter(|queue| self.has_quota_only_flavor(queue)) else { return Vec::new() };
        let has_nodes = |at: usize| {
            let mut own = flavors.get(at).into_iter().flat_map(BTreeMap::values).peekable();
            let is_placed = |ix: &FlavorIx| !self.is_quota_only(*ix);
            if own.peek().is_some() { own.any(is_placed) } else { listed_flavors(queue).any(is_placed) }
        };
        if shape.pod_sets.is_empty() {
            return if has_nodes(0) { Vec::new() } else { vec![0] };
        }
        let unplaced: Vec<u32> =
            counts().enumerate().map(|(at, count)| if has_nodes(at) { 0 } else { count }).collect();
        if unplaced.iter().all(|count| *count == 0) { Vec::new() } else { unplaced }
    }

    /// Whether pods in a flavor get no node, unless their queue places them.
    pub fn is_quota_only(&self, flavor: FlavorIx) -> bool {
        self.flavors().get(&flavor).is_some_and(|flavor| flavor.quota_only)
    }

    /// Whether a queue lists a flavor whose pods get no node.
    pub fn has_quota_only_flavor(&self, queue: &Queue) -> bool {
        listed_flavors(queue).any(|ix| self.is_quota_only(*ix))
    }

    /// What the nodes lacked for a gang when it was admitted by quota alone; see
    /// [`Plan::without_room`](crate::Plan::without_room). `None` when there was room, or the gang changed since.
    pub fn without_room(&self, gang: &str) -> Option<&Shortage> {
        self.without_room.get(gang)
    }

    /// The pod sets whose pods have no node in an assignment of a gang, and get one when they ask for it: their positions.
    pub fn open_pod_sets(&self, gang: &Gang, assignment: &Assignment) -> Vec<usize> {
        let shape = Shape { places_open: false, ..gang.shape() };
        let never = self.unplaced(gang.queue, &shape, &assignment.flavors);
        let is_open =
            |at: &usize| assignment.unplaced_in(*at) > 0 && never.get(*at).is_none_or(|count| *count == 0);
        (0..shape.pod_sets.len()).filter(is_open).collect()
    }

    /// Ends the request for places of a gang if none of its pods without a node may get one.
    pub(super) fn settle_places(&self, gang: &mut Gang) {
        let GangState::Reserved(assignment) = &gang.state else { return };
        if gang.places == Places::Requested && self.open_pod_sets(gang, assignment).is_empty() {
            gang.places = Places::AtAdmission;
        }
    }
}

fn listed_flavors(queue: &Queue) -> impl Iterator<Item = &FlavorIx> {
    queue.groups.iter().flat_map(|group| &group.flavors)
}
