//! The node capacity of flavors, for quota nodes that add it to their quota; see
//! [`Limits::adds_node_capacity`](crate::Limits::adds_node_capacity).
//!
//! It is tracked for the flavors that some quota node refers to, and updated with every change of a node.

use std::collections::{BTreeMap, BTreeSet};

use super::World;
use super::ledger::NodeIx;
use crate::node::{Effect, Node, Taint};
use crate::quota::{Flavor, FlavorIx, FlavorResource, QuotaNode};
use crate::resources::{ResourceIx, Sum};

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct FlavorCapacity(BTreeMap<FlavorIx, Sum>);

impl FlavorCapacity {
    /// The capacity of the nodes of a flavor, in base units.
    pub(super) fn get(&self, of: FlavorResource) -> i128 {
        self.0.get(&of.flavor).map_or(0, |sum| sum.get(of.resource))
    }
}

impl Flavor {
    /// Whether a node belongs to this flavor and takes pods: it is open, has the labels and taints of the flavor, and
    /// every other taint is tolerated by the tolerations of the flavor.
    pub fn describes(&self, node: &Node) -> bool {
        let has_labels = self.node_labels.iter().all(|(key, value)| node.labels.get(key) == Some(value));
        let has_taints = self.node_taints.iter().all(|taint| node.taints.contains(taint));
        let keeps_away = |taint: &&Taint| {
            taint.effect != Effect::PreferNoSchedule
                && !self.node_taints.contains(taint)
                && !self.tolerations.iter().any(|toleration| toleration.covers(taint))
        };
        node.is_open() && has_labels && has_taints && !node.taints.iter().any(|taint| keeps_away(&taint))
    }
}

impl World {
    /// The capacity that a node contributes to each tracked flavor.
    pub(super) fn capacity_at(&self, node: NodeIx) -> BTreeMap<FlavorIx, Sum> {
        let tracked = self.quotas.flavor_capacity.0.keys();
        tracked.map(|flavor| (*flavor, self.capacity_in(*flavor, self.ledger.node(node)))).collect()
    }

    /// Updates the capacity of flavors after a node changed or was deleted.
    pub(super) fn update_flavor_capacity(&mut self, node: NodeIx, before: BTreeMap<FlavorIx, Sum>) {
        for (flavor, old) in before {
            let new = self.capacity_in(flavor, self.ledger.node(node));
            let resources: BTreeSet<ResourceIx> = old.iter().chain(new.iter()).map(|(ix, _)| ix).collect();
            for resource in resources {
                let more = new.get(resource) - old.get(resource);
                self.quotas.change_node_capacity(FlavorResource { flavor, resource }, more);
            }
            if let Some(sum) = self.quotas.flavor_capacity.0.get_mut(&flavor) {
                sum.sub_sum(&old);
                sum.add_sum(&new);
            }
        }
    }

    /// Recomputes the capacity of a flavor that changed, if it is tracked.
    pub(super) fn recompute_flavor_capacity(&mut self, flavor: FlavorIx) {
        if self.quotas.flavor_capacity.0.contains_key(&flavor) {
            self.quotas.flavor_capacity.0.insert(flavor, self.total_capacity(flavor));
            self.quotas.invalidate_trees();
        }
    }

    /// Tracks the flavors whose capacity a quota node adds.
    pub(super) fn track_flavor_capacity(&mut self, quota: &QuotaNode) {
        let tracked =
            quota.limits.iter().filter(|(_, limits)| limits.adds_node_capacity).map(|(of, _)| of.flavor);
        for flavor in tracked.collect::<BTreeSet<_>>() {
            if !self.quotas.flavor_capacity.0.contains_key(&flavor) {
                self.quotas.flavor_capacity.0.insert(flavor, self.total_capacity(flavor));
            }
        }
    }

    fn total_capacity(&self, flavor: FlavorIx) -> Sum {
        let mut sum = Sum::default();
        self.nodes().for_each(|node| sum.add_sum(&self.capacity_in(flavor, Some(node))));
        sum
    }

    /// The allocatable of a node, if it belongs to the flavor. For [`FlavorIx::ANY`] all open nodes count, whatever
    /// their taints.
    fn capacity_in(&self, flavor: FlavorIx, node: Option<&Node>) -> Sum {
        let is_of = |node: &&Node| match flavor {
            FlavorIx::ANY => node.is_open(),
            flavor => self.flavors().get(&flavor).is_some_and(|flavor| flavor.describes(node)),
        };
        let mut sum = Sum::default();
        node.filter(is_of).into_iter().for_each(|node| sum.add(&node.allocatable));
        sum
    }
}
