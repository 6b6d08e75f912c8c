//! Quota: flavors of capacity, trees of limits on them, and what is used of them.
//!
//! One recursive node serves both systems that Muster replaces. Kueue's cluster queues and cohorts are nodes with nominal
//! quota, a borrowing and a lending limit. A group of MCAD's quota trees is a node whose nominal quota is its own less
//! that of its children, and a hard one has a borrowing limit of zero. The arithmetic is Kueue's
//! (`pkg/cache/scheduler/resource_node.go`, v0.19).

mod share;

use std::collections::{BTreeMap, BTreeSet};

use crate::amount::Amount;
use crate::node::{Taint, Toleration};
use crate::resources::ResourceIx;
pub use share::DominantShare;

/// A kind of node capacity, as a dense index; see `World::flavor_ix`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlavorIx(pub u16);

impl FlavorIx {
    /// The flavor of quota that says nothing of nodes: any node will do.
    pub const ANY: Self = Self(0);
}

/// A kind of node capacity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flavor {
    /// Its name, unique in the cluster.
    pub name: String,
    /// Labels of its nodes, which pods that are assigned to it select.
    pub node_labels: BTreeMap<String, String>,
    /// Taints of its nodes, which pods have to tolerate.
    pub node_taints: Vec<Taint>,
    /// Tolerations that pods are given with it.
    pub tolerations: Vec<Toleration>,
    /// The label keys of the levels of its topology, the broadest first; empty when it has none.
    pub topology: Vec<String>,
}

/// One resource in one flavor: what quota is counted in.
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

/// What a node of a quota tree may use of one resource in one flavor. No limit: unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// What it owns beside what its children own. Negative where children own more than their parent has.
    pub nominal: Amount,
    /// It owns what the open nodes of the flavor hold as well, as they come and go: `nominal` is then what it owns more, or less
    /// when negative. In [`FlavorIx::ANY`] all open nodes count.
    pub adds_node_capacity: bool,
    /// How much more than its subtree owns it may use of what others leave.
    pub borrowing: Option<Amount>,
    /// How much of what its subtree owns others may use.
    pub lending: Option<Amount>,
}

/// A node of a quota tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuotaNode {
    /// Its name, unique in the world.
    pub name: String,
    /// The name of the node above it. Named but absent: as if it were there, owning nothing.
    pub parent: Option<String>,
    /// What it may use. What is not listed it does not own.
    pub limits: BTreeMap<FlavorResource, Limits>,
    /// Its weight among its siblings when fairness decides, in thousandths; none counts as a thousand.
    pub weight_milli: Option<u32>,
    /// Whose place its gangs may take.
    pub preemption: QuotaPreemption,
}

/// Whose place the gangs charged to a node of a quota tree may take. After Kueue's `ClusterQueuePreemption`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaPreemption {
    /// Among gangs that are charged to the same node.
    pub within_cluster_queue: WithinClusterQueue,
    /// Among gangs of others in the tree that use more than they own.
    pub reclaim_within_cohort: ReclaimWithinCohort,
    /// Among gangs of others in the tree even when the preemptor will borrow itself; none: never.
    pub borrow_within_cohort: Option<BorrowWithinCohort>,
}

/// Which gangs of the same node may be stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WithinClusterQueue {
    /// None.
    #[default]
    Never,
    /// Those of strictly lower priority.
    LowerPriority,
    /// Those, and newer ones of equal priority.
    LowerOrNewerEqualPriority,
}

/// Which gangs of others that borrow may be stopped to get lent quota back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReclaimWithinCohort {
    /// None.
    #[default]
    Never,
    /// Those of strictly lower priority.
    LowerPriority,
    /// All.
    Any,
}

/// Which gangs of others may be stopped for one that will borrow: those of strictly lower priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BorrowWithinCohort {
    /// And of at most this priority, in thousandths.
    pub max_priority_threshold: Option<i64>,
}

/// What is used, by node and flavored resource; exact sums in base units.
///
/// The usage of a node is what is charged to it and what its children use beyond what they keep to themselves.
pub trait QuotaUsage {
    /// What is used at a node.
    fn used(&self, node: QuotaIx, of: FlavorResource) -> i128;
    /// Sets what is used at a node.
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
    /// The trees that these nodes make, where the nodes of flavors hold this much. Nodes on a cycle, and those below one, are
    /// roots that own nothing.
    pub fn of<'n>(
        nodes: impl IntoIterator<Item = (QuotaIx, Option<QuotaIx>, &'n QuotaNode)>,
        held: impl Fn(FlavorResource) -> i128,
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
        forest.sum_up(held);
        forest
    }

    fn cut_cycles(&mut self) {
        let steps_max = self.rows.len();
        let endless: Vec<QuotaIx> =
            self.rows.keys().copied().filter(|ix| self.path(*ix).nth(steps_max).is_some()).collect();
        for ix in endless {
            if let Some(row) = self.rows.get_mut(&ix) {
                *row = Row { in_cycle: true, weight_milli: row.weight_milli, ..Row::default() };
            }
        }
    }

    /// Counts what the subtree of each node owns, children before parents.
    fn sum_up(&mut self, held: impl Fn(FlavorResource) -> i128) {
        let mut by_depth: Vec<(usize, QuotaIx)> =
            self.rows.keys().map(|ix| (self.path(*ix).count(), *ix)).collect();
        by_depth.sort_by(|one, other| other.cmp(one));
        for (_, ix) in by_depth {
            let row = self.rows.entry(ix).or_default();
            for (of, limits) in &row.limits {
                let held = if limits.adds_node_capacity { held(*of) } else { 0 };
                *row.owned.entry(*of).or_default() += i128::from(limits.nominal.0) + held;
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

    /// The nodes that own what the nodes of the flavor hold.
    pub(crate) fn nodes_adding_capacity(&self, of: FlavorResource) -> impl Iterator<Item = QuotaIx> + '_ {
        let follows = move |row: &Row| row.limits.get(&of).is_some_and(|limits| limits.adds_node_capacity);
        self.rows.iter().filter(move |(_, row)| follows(row)).map(|(ix, _)| *ix)
    }

    /// A node owns so much more, or less when negative: more of it is lent, and of what is used more stays with it.
    pub(crate) fn add_quota(&mut self, usage: &mut impl QuotaUsage, ix: QuotaIx, of: FlavorResource, more: i128) {
        let path: Vec<QuotaIx> = self.path(ix).collect();
        let (mut more, mut passed_on) = (more, 0);
        for node in path {
            let (owned, kept, used) = (self.subtree_quota(node, of), self.local_quota(node, of), usage.used(node, of));
            if let Some(row) = self.rows.get_mut(&node) {
                *row.owned.entry(of).or_default() += more;
            }
            let (used_now, kept_now) = (used + passed_on, self.local_quota(node, of));
            usage.set_used(node, of, used_now);
            more = (owned + more - kept_now) - (owned - kept);
            passed_on = (used_now - kept_now).max(0) - (used - kept).max(0);
        }
    }

    /// A node and all above it, up to the root.
    pub fn path(&self, from: QuotaIx) -> impl Iterator<Item = QuotaIx> + '_ {
        std::iter::successors(Some(from), |ix| self.parent(*ix))
    }

    /// The node above.
    pub fn parent(&self, ix: QuotaIx) -> Option<QuotaIx> {
        self.rows.get(&ix).and_then(|row| row.parent)
    }

    /// The nodes below, by index.
    pub fn children(&self, ix: QuotaIx) -> impl Iterator<Item = QuotaIx> + '_ {
        self.rows.get(&ix).into_iter().flat_map(|row| row.children.iter().copied())
    }

    /// The uppermost node of its tree.
    pub fn root(&self, ix: QuotaIx) -> QuotaIx {
        self.path(ix).last().unwrap_or(ix)
    }

    /// Whether the node exists, and is neither on a cycle nor below one.
    pub fn has_root(&self, ix: QuotaIx) -> bool {
        self.rows.get(&ix).is_some_and(|row| !row.in_cycle)
    }

    /// The weight of a node among its siblings, in thousandths.
    pub fn weight_milli(&self, ix: QuotaIx) -> u32 {
        self.rows.get(&ix).map_or(1000, |row| row.weight_milli)
    }

    /// Every flavored resource of which the node or something below it owns anything, or has a limit.
    pub fn flavor_resources(&self, ix: QuotaIx) -> impl Iterator<Item = FlavorResource> + '_ {
        self.rows.get(&ix).into_iter().flat_map(|row| row.owned.keys().copied())
    }

    /// Whether the node or something below it owns or limits this.
    pub fn covers(&self, ix: QuotaIx, of: FlavorResource) -> bool {
        self.rows.get(&ix).is_some_and(|row| row.owned.contains_key(&of))
    }

    /// The limits of a node, if it lists this flavored resource.
    pub fn limits(&self, ix: QuotaIx, of: FlavorResource) -> Option<&Limits> {
        self.rows.get(&ix).and_then(|row| row.limits.get(&of))
    }

    /// What a node and those below it own.
    pub fn subtree_quota(&self, ix: QuotaIx, of: FlavorResource) -> i128 {
        self.rows.get(&ix).and_then(|row| row.owned.get(&of)).copied().unwrap_or_default()
    }

    /// The part of what a node owns that nobody outside may use.
    pub fn local_quota(&self, ix: QuotaIx, of: FlavorResource) -> i128 {
        let lending = self.limits(ix, of).and_then(|limits| limits.lending);
        lending.map_or(0, |lending| (self.subtree_quota(ix, of) - i128::from(lending.0)).max(0))
    }

    /// What is left for a node: of its own and of what it may borrow. Negative where more is used than there is.
    pub fn available(&self, usage: &impl QuotaUsage, ix: QuotaIx, of: FlavorResource) -> i128 {
        let (owned, kept, used) = (self.subtree_quota(ix, of), self.local_quota(ix, of), usage.used(ix, of));
        let Some(parent) = self.parent(ix) else { return owned - used };
        let from_above = self.available(usage, parent, of);
        let borrowing = self.limits(ix, of).and_then(|limits| limits.borrowing);
        let allowed =
            borrowing.map(|borrowing| (owned - kept) - (used - kept).max(0) + i128::from(borrowing.0));
        (kept - used).max(0) + allowed.map_or(from_above, |allowed| allowed.min(from_above))
    }

    /// The most that a node could ever use, when nobody else used anything.
    pub fn potential_available(&self, ix: QuotaIx, of: FlavorResource) -> i128 {
        let owned = self.subtree_quota(ix, of);
        let Some(parent) = self.parent(ix) else { return owned };
        let most = self.local_quota(ix, of) + self.potential_available(parent, of);
        let borrowing = self.limits(ix, of).and_then(|limits| limits.borrowing);
        borrowing.map_or(most, |borrowing| most.min(owned + i128::from(borrowing.0)))
    }

    /// How high up a node has to borrow to use `more`: the height above its farthest leaf of the lowest subtree around it
    /// that owns enough for all that is used in it, or of its root; 0 when its own is enough.
    pub fn borrowing_level(&self, usage: &impl QuotaUsage, ix: QuotaIx, of: FlavorResource, more: i128) -> u32 {
        let mut more = more;
        for node in self.path(ix) {
            let (used, kept) = (usage.used(node, of), self.local_quota(node, of));
            if used + more <= self.subtree_quota(node, of) || self.parent(node).is_none() {
                return if node == ix { 0 } else { self.height(node) };
            }
            more = (used + more - kept).max(0) - (used - kept).max(0); // What of it reaches the parent.
        }
        0
    }

    /// The number of steps down from a node to the farthest leaf below it.
    pub fn height(&self, ix: QuotaIx) -> u32 {
        self.rows.get(&ix).map_or(0, |row| row.height)
    }

    /// Charges `amount` to a node, or gives it back when negative: what a node cannot keep to itself goes on to its parent.
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
