//! Reports about nodes and about the groups of MCAD's quota trees: what they have, and what is used of it.

use std::collections::BTreeMap;

use index::Index;
use model::{Amount, FlavorIx, GangState, Node, ResourceIx, World};

/// One node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeReport {
    /// Name.
    pub name: String,
    /// Why it takes no new pods, if so.
    pub trouble: Option<&'static str>,
    /// The flavors whose labels and taints it has.
    pub flavors: Vec<String>,
    /// Its resources by name.
    pub resources: BTreeMap<String, NodeAmounts>,
}

/// Amounts of a resource of a node, in base units: thousandths of `cpu`, else units.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeAmounts {
    /// What pods may use.
    pub allocatable: i64,
    /// What bound pods request.
    pub used: i64,
    /// What is promised beyond that to gangs that start or run.
    pub promised: i64,
    /// What is left; negative on a node that is overcommitted.
    pub free: i64,
}

impl NodeAmounts {
    /// Adds the amounts of another node.
    pub fn add(&mut self, other: &Self) {
        self.allocatable = self.allocatable.saturating_add(other.allocatable);
        self.used = self.used.saturating_add(other.used);
        self.promised = self.promised.saturating_add(other.promised);
        self.free = self.free.saturating_add(other.free);
    }
}

/// One resource of a group of a quota tree. Amounts are in base units.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaGroup {
    /// The tree and the group: `TREE/GROUP`.
    pub name: String,
    /// The same of its parent.
    pub parent: Option<String>,
    /// The resource.
    pub resource: String,
    /// The quota of the group and its descendants.
    pub quota: i64,
    /// What gangs of the group and its descendants hold.
    pub used: i64,
    /// What they hold beyond the quota.
    pub borrowed: i64,
    /// The number of gangs of the group that wait; `None` for a group to which no gang is charged.
    pub waiting: Option<i64>,
    /// The number of gangs of the group that hold capacity.
    pub admitted: Option<i64>,
}

/// All nodes by name.
pub(in crate::controller) fn nodes(index: &Index) -> Vec<NodeReport> {
    index.world().nodes().map(|node| of_node(index.world(), node)).collect()
}

fn of_node(world: &World, node: &Node) -> NodeReport {
    let trouble = match (node.ready, node.unschedulable) {
        (false, _) => Some("NotReady"),
        (true, true) => Some("Cordoned"),
        (true, false) => None,
    };
    let usage = world.usage(&node.name).unwrap_or_default();
    let amounts = |(ix, Amount(allocatable)): (ResourceIx, Amount)| {
        let [used, promised, free] =
            [&usage.bound, &usage.reserved, &usage.free].map(|vector| vector.get(ix).0);
        (world.resources().name(ix).to_owned(), NodeAmounts { allocatable, used, promised, free })
    };
    let flavors =
        world.flavors().iter().filter(|(ix, flavor)| **ix != FlavorIx::ANY && flavor.describes(node));
    NodeReport {
        name: node.name.clone(),
        trouble,
        flavors: flavors.map(|(ix, _)| world.flavor_name(*ix).to_owned()).collect(),
        resources: node.allocatable.iter().map(amounts).collect(),
    }
}

/// The groups of all quota trees: the quota nodes that no queue of Kueue's API has, by name.
pub(in crate::controller) fn quota_groups(index: &Index) -> Vec<QuotaGroup> {
    let world = index.world();
    let mut groups = Vec::new();
    for (ix, node) in world.quota_nodes().iter().filter(|(_, node)| index.is_tree_group(&node.name)) {
        let charged = || world.gangs().filter(|gang| gang.charges.contains(ix));
        let count = |is_waiting: bool| {
            let count = charged().filter(|gang| (gang.state == GangState::Waiting) == is_waiting).count();
            i64::try_from(count).ok()
        };
        let (waiting, admitted) = (count(true), count(false));
        for of in node.limits.keys() {
            let whole = |amount: i128| i64::try_from(amount).unwrap_or(i64::MAX);
            let quota = whole(world.forest().subtree_quota(*ix, *of));
            let used = whole(world.quota_used(*ix, *of));
            groups.push(QuotaGroup {
                name: node.name.clone(),
                parent: node.parent.clone(),
                resource: world.resources().name(of.resource).to_owned(),
                quota,
                used,
                borrowed: used.saturating_sub(quota).max(0),
                waiting,
                admitted,
            });
        }
    }
    groups.sort_by(|one, other| (&one.name, &one.resource).cmp(&(&other.name, &other.resource)));
    groups
}
