//! What the nodes of flavors hold, for quota that follows it; see [`Limits::adds_node_capacity`](crate::Limits::adds_node_capacity).
//!
//! Kept for the flavors that some quota follows, node by node as they change.

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
    /// What the nodes of a flavor hold of a resource, in base units.
    pub(super) fn held(&self, of: FlavorResource) -> i128 {
        self.0.get(&of.flavor).map_or(0, |sum| sum.get(of.resource))
    }
}

impl Flavor {
    /// Whether a node is of this flavor and takes pods: it has the labels and taints that the flavor says, and no others that keep
    /// pods away which have what the flavor gives them.
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
    /// What a node holds of each flavor that quota follows.
    pub(super) fn held_at(&self, node: NodeIx) -> BTreeMap<FlavorIx, Sum> {
        let followed = self.quotas.supply.0.keys();
        followed.map(|flavor| (*flavor, self.held_in(*flavor, self.ledger.node(node)))).collect()
    }

    /// A node that held something is another one now, or gone.
    pub(super) fn supply_changed(&mut self, node: NodeIx, before: BTreeMap<FlavorIx, Sum>) {
        for (flavor, old) in before {
            let new = self.held_in(flavor, self.ledger.node(node));
            let resources: BTreeSet<ResourceIx> = old.iter().chain(new.iter()).map(|(ix, _)| ix).collect();
            for resource in resources {
                let more = new.get(resource) - old.get(resource);
                self.quotas.supply_grew(FlavorResource { flavor, resource }, more);
            }
            if let Some(sum) = self.quotas.supply.0.get_mut(&flavor) {
                sum.sub_sum(&old);
                sum.add_sum(&new);
            }
        }
    }

    /// Counts anew what the nodes of a flavor hold that has changed, if quota follows it.
    pub(super) fn recount_supply(&mut self, flavor: FlavorIx) {
        if self.quotas.supply.0.contains_key(&flavor) {
            self.quotas.supply.0.insert(flavor, self.held_by_all(flavor));
            self.quotas.forget_trees();
        }
    }

    /// Follows what a node of a quota tree says of flavors.
    pub(super) fn follow_supply(&mut self, quota: &QuotaNode) {
        let followed = quota.limits.iter().filter(|(_, limits)| limits.adds_node_capacity).map(|(of, _)| of.flavor);
        for flavor in followed.collect::<BTreeSet<_>>() {
            if !self.quotas.supply.0.contains_key(&flavor) {
                self.quotas.supply.0.insert(flavor, self.held_by_all(flavor));
            }
        }
    }

    fn held_by_all(&self, flavor: FlavorIx) -> Sum {
        let mut sum = Sum::default();
        self.nodes().for_each(|node| sum.add_sum(&self.held_in(flavor, Some(node))));
        sum
    }

    /// What a node holds, if it is of a flavor. Without a flavor, all open nodes count, whomever their taints keep away.
    fn held_in(&self, flavor: FlavorIx, node: Option<&Node>) -> Sum {
        let is_of = |node: &&Node| match flavor {
            FlavorIx::ANY => node.is_open(),
            flavor => self.flavors().get(&flavor).is_some_and(|flavor| flavor.describes(node)),
        };
        let mut sum = Sum::default();
        node.filter(is_of).into_iter().for_each(|node| sum.add(&node.allocatable));
        sum
    }
}
