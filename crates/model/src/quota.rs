//! Quota: flavors, trees of quota nodes, and what is charged to them.
//!
//! One recursive node type serves MCAD and Kueue. A Kueue `ClusterQueue` or `Cohort` is a node with nominal quota, a
//! borrowing limit and a lending limit. A group of MCAD's quota trees is a node whose nominal quota is its own minus
//! that of its children; a hard group has a borrowing limit of zero. The arithmetic is Kueue's
//! (`pkg/cache/scheduler/resource_node.go`, v0.19).

mod share;

use std::collections::{BTreeMap, BTreeSet};

use crate::amount::Amount;
use crate::node::{Taint, Toleration};
use crate::resources::ResourceIx;
pub use share::DominantShare;

/// A flavor, as a dense index; see `World::flavor_ix`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlavorIx(pub u16);

impl FlavorIx {
    /// The flavor of quota that does not distinguish nodes: every node qualifies.
    pub const ANY: Self = Self(0);
}

/// A kind of node capacity. Kueue's `ResourceFlavor`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flavor {
    /// Its name, unique in the cluster.
    pub name: String,
    /// Labels of its nodes; pods in this flavor select them.
    pub node_labels: BTreeMap<String, String>,
    /// Taints of its nodes; pods in this flavor must tolerate them.
    pub node_taints: Vec<Taint>,
    /// Tolerations that pods in this flavor get.
    pub tolerations: Vec<Toleration>,
    /// The label keys of its topology levels, the broadest first; empty when it has no topology.
    pub topology: Vec<String>,
    /// Pods in this flavor are charged to quota and get no node, unless their queue places them
    /// ([`Queue::places_pods`](crate::Queue::places_pods)). Kueue's flavors without `topologyName`.
    pub quota_only: bool,
}

/// A resource in a flavor: the unit in which quota is counted. Kueue's `FlavorResource`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlavorResource {
    /// The flavor.
    pub flavor: FlavorIx,
    /// The resource.
    pub resource: ResourceIx,
}

/// A node of a quota tree, as a dense index; see `World::quota_ix`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QuotaIx(pub u32);

/// The quota of one resource in one flavor at a node of a quota tree. `None` means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// The nominal quota, in addition to that of its children. Negative when the children own more than their parent.
    pub nominal: Amount,
    /// The capacity of the open nodes of the flavor is added to `nominal`, and follows nodes that come and go. For
    /// [`FlavorIx::ANY`] all open nodes count.
    pub adds_node_capacity: bool,
    /// The borrowing limit: how much more than the quota of its subtree the node may use.
    pub borrowing: Option<Amount>,
    /// The lending limit: how much of the quota of its subtree other nodes may use.
    pub lending: Option<Amount>,
}

/// A node of a quota tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuotaNode {
    /// The name, unique in the world.
    pub name: String,
    /// The name of its parent. A parent that does not exist counts as a node without quota.
    pub parent: Option<String>,
    /// Its quota. Resources that are not listed have none.
    pub limits: BTreeMap<FlavorResource, Limits>,
    /// Its weight for fair sharing among its siblings, in thousandths; 1000 when `None`.
    pub weight_milli: Option<u32>,
    /// Which gangs its gangs may preempt.
    pub preemption: QuotaPreemption,
}

/// Which gangs the gangs of a quota node may preempt. After Kueue's `ClusterQueuePreemption`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaPreemption {
    /// Among gangs that are charged to the same node.
    pub within_cluster_queue: WithinClusterQueue,
    /// Among gangs of other nodes of the tree that use more than their quota.
    pub reclaim_within_cohort: ReclaimWithinCohort,
    /// Among gangs of other nodes of the tree while the preemptor's node borrows; `None`: never.
    pub borrow_within_cohort: Option<BorrowWithinCohort>,
}

/// Which gangs of the same node may be preempted. Kueue's `withinClusterQueue`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WithinClusterQueue {
    /// None.
    #[default]
    Never,
    /// Gangs of strictly lower priority.
    LowerPriority,
    /// Gangs of strictly lower priority, and newer gangs of equal priority.
    LowerOrNewerEqualPriority,
}

/// Which gangs of borrowing nodes may be preempted to reclaim lent quota. Kueue's `reclaimWithinCohort`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReclaimWithinCohort {
    /// None.
    #[default]
    Never,
    /// Gangs of strictly lower priority.
    LowerPriority,
    /// All gangs.
    Any,
}

/// Gangs of strictly lower priority may be preempted for a gang that borrows. Kueue's `borrowWithinCohort`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BorrowWithinCohort {
    /// The highest priority of a victim, in thousandths.
    pub max_priority_threshold: Option<i64>,
}

/// The usage per quota node and flavor resource; exact sums in base units.
///
/// The usage of a node is what is charged to it plus what its children use beyond their local quota.
pub trait QuotaUsage {
    /// The usage of a node.
    fn used(&self, node: QuotaIx, of: FlavorResource) -> i128;
    /// Sets the usage of a node.
    fn set_used(&mut self, node: QuotaIx, of: FlavorResource, used: i128);
}

/// The quota trees of a cluster.
#[derive(Clone, Debug, Default)]
pub struct Forest {
    rows: BTreeMap<QuotaIx, Row>,
}

#[derive(Clone, Debug, Default)]
struct Row {
    parent: Option<QuotaIx>,
    children: BTreeSet<QuotaIx>,
    limits: BTreeMap<FlavorResource, Limits>,
    owned: BTreeMap<FlavorResource, i128>,
    weight_milli: u32,
    height: u32,
    in_cycle: bool,
}

impl Forest {
    /// Builds the trees from these nodes. `capacity` returns the capacity of the nodes of a flavor. Quota nodes on a
    /// cycle, and those below a cycle, become roots without quota.
    pub fn of<'n>(
        nodes: impl IntoIterator<Item = (QuotaIx, Option<QuotaIx>, &'n QuotaNode)>,
        capacity: impl Fn(FlavorResource) -> i128,
    ) -> Self {
        let mut rows: BTreeMap<QuotaIx, Row> = BTreeMap::new();
        for (ix, parent, node) in nodes {
            rows.insert(
                ix,
                Row {
                    parent,
                    limits: node.limits.clone(),
                    weight_milli: node.weight_milli.unwrap_or(1000),
                    ..Row::default()
                },
            );
        }
        let named: Vec<QuotaIx> = rows.values().filter_map(|row| row.parent).collect();
        for parent in named {
            rows.entry(parent).or_insert_with(|| Row { weight_milli: 1000, ..Row::default() });
        }
        let mut forest = Self { rows };
        forest.cut_cycles();
        forest.sum_up(capacity);
        forest
    }

    fn cut_cycles(&mut self) {
        let steps_max = self.rows.len();
        let without_root: Vec<QuotaIx> =
            self.rows.keys().copied().filter(|ix| self.path(*ix).nth(steps_max).is_some()).collect();
        for ix in without_root {
            if let Some(row) = self.rows.get_mut(&ix) {
                *row = Row { in_cycle: true, weight_milli: row.weight_milli, ..Row::default() };
            }
        }
    }

    /// Sums up the quota of each subtree, children before parents.
    fn sum_up(&mut self, capacity: impl Fn(FlavorResource) -> i128) {
        let mut by_depth: Vec<(usize, QuotaIx)> =
            self.rows.keys().map(|ix| (self.path(*ix).count(), *ix)).collect();
        by_depth.sort_by(|one, other| other.cmp(one));
        for (_, ix) in by_depth {
            let row = self.rows.entry(ix).or_default();
            for (of, limits) in &row.limits {
                let capacity = if limits.adds_node_capacity { capacity(*of) } else { 0 };
                *row.owned.entry(*of).or_default() += i128::from(limits.nominal.0) + capacity;
            }
            let (height, parent) = (row.height, row.parent);
            let Some(parent) = parent else { continue };
            let row = &self.rows[&ix];
            let keys: Vec<FlavorResource> = row.owned.keys().copied().collect();
            for of in keys {
                let lent = self.subtree_quota(ix, of) - self.local_quota(ix, of);
                *self.rows.entry(parent).or_default().owned.entry(of).or_default() += lent;
            }
            let above = self.rows.entry(parent).or_default();
            above.children.insert(ix);
            above.height = above.height.max(height + 1);
        }
    }

    /// The quota nodes that add the node capacity of this flavor.
    pub(crate) fn nodes_adding_capacity(&self, of: FlavorResource) -> impl Iterator<Item = QuotaIx> + '_ {
        let adds = move |row: &Row| row.limits.get(&of).is_some_and(|limits| limits.adds_node_capacity);
        self.rows.iter().filter(move |(_, row)| adds(row)).map(|(ix, _)| *ix)
    }

    /// Adds to the quota of a node, or subtracts when negative, and updates lending and usage of its ancestors.
    pub(crate) fn add_quota(
        &mut self,
        usage: &mut impl QuotaUsage,
        ix: QuotaIx,
        of: FlavorResource,
        more: i128,
    ) {
        let path: Vec<QuotaIx> = self.path(ix).collect();
        let (mut more, mut passed_on) = (more, 0);
        for node in path {
            let (owned, kept, used) =
                (self.subtree_quota(node, of), self.local_quota(node, of), usage.used(node, of));
            if let Some(row) = self.rows.get_mut(&node) {
                *row.owned.entry(of).or_default() += more;
            }
            let (used_now, kept_now) = (used + passed_on, self.local_quota(node, of));
            usage.set_used(node, of, used_now);
            more = (owned + more - kept_now) - (owned - kept);
            passed_on = (used_now - kept_now).max(0) - (used - kept).max(0);
        }
    }

    /// A node and its ancestors, up to the root.
    pub fn path(&self, from: QuotaIx) -> impl Iterator<Item = QuotaIx> + '_ {
        std::iter::successors(Some(from), |ix| self.parent(*ix))
    }

    /// The parent.
    pub fn parent(&self, ix: QuotaIx) -> Option<QuotaIx> {
        self.rows.get(&ix).and_then(|row| row.parent)
    }

    /// The children, by index.
    pub fn children(&self, ix: QuotaIx) -> impl Iterator<Item = QuotaIx> + '_ {
        self.rows.get(&ix).into_iter().flat_map(|row| row.children.iter().copied())
    }

    /// The root of its tree.
    pub fn root(&self, ix: QuotaIx) -> QuotaIx {
        self.path(ix).last().unwrap_or(ix)
    }

    /// Whether the node exists and is neither on a cycle nor below one.
    pub fn has_root(&self, ix: QuotaIx) -> bool {
        self.rows.get(&ix).is_some_and(|row| !row.in_cycle)
    }

    /// The weight of a node among its siblings, in thousandths.
    pub fn weight_milli(&self, ix: QuotaIx) -> u32 {
        self.rows.get(&ix).map_or(1000, |row| row.weight_milli)
    }

    /// The flavor resources for which the node, or a node below it, has quota or a limit.
    pub fn flavor_resources(&self, ix: QuotaIx) -> impl Iterator<Item = FlavorResource> + '_ {
        self.rows.get(&ix).into_iter().flat_map(|row| row.owned.keys().copied())
    }

    /// Whether the node, or a node below it, has quota or a limit for this flavor resource.
    pub fn covers(&self, ix: QuotaIx, of: FlavorResource) -> bool {
        self.rows.get(&ix).is_some_and(|row| row.owned.contains_key(&of))
    }

    /// The limits of a node, if it lists this flavor resource.
    pub fn limits(&self, ix: QuotaIx, of: FlavorResource) -> Option<&Limits> {
        self.rows.get(&ix).and_then(|row| row.limits.get(&of))
    }

    /// The quota of a node plus the quota that its children lend to it. Kueue's `SubtreeQuota`.
    pub fn subtree_quota(&self, ix: QuotaIx, of: FlavorResource) -> i128 {
        self.rows.get(&ix).and_then(|row| row.owned.get(&of)).copied().unwrap_or_default()
    }

    /// The part of its subtree quota that a node does not lend. Kueue's `localQuota`.
    pub fn local_quota(&self, ix: QuotaIx, of: FlavorResource) -> i128 {
        let lending = self.limits(ix, of).and_then(|limits| limits.lending);
        lending.map_or(0, |lending| (self.subtree_quota(ix, of) - i128::from(lending.0)).max(0))
    }

    /// The quota that is left for a node: its own and what it may borrow. Negative when the usage exceeds the quota.
    /// Kueue's `available`.
    pub fn available(&self, usage: &impl QuotaUsage, ix: QuotaIx, of: FlavorResource) -> i128 {
        let (owned, kept, used) = (self.subtree_quota(ix, of), self.local_quota(ix, of), usage.used(ix, of));
        let Some(parent) = self.parent(ix) else { return owned - used };
        let from_above = self.available(usage, parent, of);
        let borrowing = self.limits(ix, of).and_then(|limits| limits.borrowing);
        let allowed =
            borrowing.map(|borrowing| (owned - kept) - (used - kept).max(0) + i128::from(borrowing.0));
        (kept - used).max(0) + allowed.map_or(from_above, |allowed| allowed.min(from_above))
    }

    /// The most that a node could use if no other node used anything. Kueue's `potentialAvailable`.
    pub fn potential_available(&self, ix: QuotaIx, of: FlavorResource) -> i128 {
        let owned = self.subtree_quota(ix, of);
        let Some(parent) = self.parent(ix) else { return owned };
        let most = self.local_quota(ix, of) + self.potential_available(parent, of);
        let borrowing = self.limits(ix, of).and_then(|limits| limits.borrowing);
        borrowing.map_or(most, |borrowing| most.min(owned + i128::from(borrowing.0)))
    }

    /// The borrowing level of `more` usage at a node: 0 when its own quota suffices, else the height of the lowest
    /// subtree around it whose quota suffices, or the height of its root.
    pub fn borrowing_level(
        &self,
        usage: &impl QuotaUsage,
        ix: QuotaIx,
        of: FlavorResource,
        more: i128,
    ) -> u32 {
        let mut more = more;
        for node in self.path(ix) {
            let (used, kept) = (usage.used(node, of), self.local_quota(node, of));
            if used + more <= self.subtree_quota(node, of) || self.parent(node).is_none() {
                return if node == ix { 0 } else { self.height(node) };
            }
            more = (used + more - kept).max(0) - (used - kept).max(0); // The part that reaches the parent.
        }
        0
    }

    /// The distance from a node to the farthest leaf below it.
    pub fn height(&self, ix: QuotaIx) -> u32 {
        self.rows.get(&ix).map_or(0, |row| row.height)
    }

    /// Charges `amount` to a node, or releases it when negative. What exceeds the local quota of a node goes on to
    /// its parent.
    pub fn charge(&self, usage: &mut impl QuotaUsage, ix: QuotaIx, of: FlavorResource, amount: i128) {
        let mut amount = amount;
        for node in self.path(ix) {
            if amount == 0 {
                return;
            }
            let (before, kept) = (usage.used(node, of), self.local_quota(node, of));
            let after = before + amount;
            usage.set_used(node, of, after);
            amount = (after - kept).max(0) - (before - kept).max(0);
        }
    }
}

impl QuotaUsage for BTreeMap<(QuotaIx, FlavorResource), i128> {
    fn used(&self, node: QuotaIx, of: FlavorResource) -> i128 {
        self.get(&(node, of)).copied().unwrap_or_default()
    }

    fn set_used(&mut self, node: QuotaIx, of: FlavorResource, used: i128) {
        if used == 0 {
            self.remove(&(node, of));
        } else {
            self.insert((node, of), used);
        }
    }
}
