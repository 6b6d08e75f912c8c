//! Flavors, quota trees and queues, and what is charged to the trees.
//!
//! Names become dense indices that never change: an index means the same name whether or not the object exists.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use super::World;
use super::charged::Charged;
use super::flavor_capacity::FlavorCapacity;
use crate::amount::Amount;
use crate::gang::Gang;
use crate::queue::Queue;
use crate::queue::QueueIx;
use crate::quota::{DominantShare, Flavor, FlavorIx, FlavorResource, Forest, QuotaIx, QuotaNode, QuotaUsage};
use crate::resources::ResourceIx;
use crate::shape::Shape;

/// The charges of a gang by quota node and flavor resource, in base units.
pub type Charges = BTreeMap<(QuotaIx, FlavorResource), i128>;

/// Objects and usage; see the module.
#[derive(Clone, Debug)]
pub(super) struct Quotas {
    flavor_names: Names,
    quota_names: Names,
    queue_names: Names,
    flavors: BTreeMap<FlavorIx, Flavor>,
    nodes: BTreeMap<QuotaIx, QuotaNode>,
    queues: BTreeMap<QueueIx, Queue>,
    pub(super) charged: Charged,
    pub(super) flavor_capacity: FlavorCapacity,
    trees: OnceLock<Trees>,
    /// Roots of the trees in which usage decreased since the last plan, with the generation.
    usage_decreased: BTreeMap<QuotaIx, u64>,
    /// Roots of the trees in which borrowing increased since the last plan, with the generation.
    borrowing_increased: BTreeMap<QuotaIx, u64>,
    /// The generation of the last change of flavors, quota nodes or queues since the last plan.
    config_changed_at: Option<u64>,
}

/// The trees and their usage. They are built when they are first read after a change of a quota node, so many changes
/// in a row cost one build.
#[derive(Clone, Debug)]
struct Trees {
    forest: Forest,
    usage: Charges,
}

/// Interned names.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    names: Vec<String>,
    index: BTreeMap<String, u32>,
}

impl Names {
    /// A table in which index 0 is the empty name.
    pub(super) fn with_empty_name() -> Self {
        let mut names = Self::default();
        names.intern("");
        names
    }

    pub(super) fn intern(&mut self, name: &str) -> u32 {
        if let Some(&ix) = self.index.get(name) {
            return ix;
        }
        let ix = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        self.names.push(name.to_owned());
        self.index.insert(name.to_owned(), ix);
        ix
    }

    pub(super) fn get(&self, name: &str) -> Option<u32> {
        self.index.get(name).copied()
    }

    pub(super) fn name(&self, ix: u32) -> &str {
        self.names.get(ix as usize).map_or("?", String::as_str)
    }
}

impl Default for Quotas {
    fn default() -> Self {
        Self {
            flavor_names: Names::with_empty_name(),
            quota_names: Names::default(),
            queue_names: Names::with_empty_name(),
            flavors: BTreeMap::from([(FlavorIx::ANY, Flavor::default())]),
            nodes: BTreeMap::new(),
            queues: BTreeMap::from([(QueueIx::default(), Queue::default())]),
            charged: Charged::default(),
            flavor_capacity: FlavorCapacity::default(),
            trees: OnceLock::new(),
            usage_decreased: BTreeMap::new(),
            borrowing_increased: BTreeMap::new(),
            config_changed_at: None,
        }
    }
}

/// Usage with some changes, without a copy of all of it.
struct ChangedUsage<'a> {
    before: &'a Charges,
    changed: Charges,
}

impl QuotaUsage for ChangedUsage<'_> {
    fn used(&self, node: QuotaIx, of: FlavorResource) -> i128 {
        self.changed.get(&(node, of)).copied().unwrap_or_else(|| self.before.used(node, of))
    }

    fn set_used(&mut self, node: QuotaIx, of: FlavorResource, used: i128) {
        self.changed.insert((node, of), used);
    }
}

impl Trees {
    fn charge(&mut self, node: QuotaIx, of: FlavorResource, amount: i128) {
        self.forest.charge(&mut self.usage, node, of, amount);
    }
}

impl Quotas {
    /// The index of a flavor name. The table holds 65,535 names; further names share the last index.
    pub(super) fn flavor_ix(&mut self, name: &str) -> FlavorIx {
        FlavorIx(u16::try_from(self.flavor_names.intern(name)).unwrap_or(u16::MAX))
    }

    pub(super) fn quota_ix(&mut self, name: &str) -> QuotaIx {
        QuotaIx(self.quota_names.intern(name))
    }

    pub(super) fn queue_ix(&mut self, name: &str) -> QueueIx {
        QueueIx(self.queue_names.intern(name))
    }

    pub(super) fn flavor_name(&self, ix: FlavorIx) -> &str {
        self.flavor_names.name(u32::from(ix.0))
    }

    pub(super) fn quota_name(&self, ix: QuotaIx) -> &str {
        self.quota_names.name(ix.0)
    }

    pub(super) fn queue_name(&self, ix: QueueIx) -> &str {
        self.queue_names.name(ix.0)
    }

    pub(super) fn flavors(&self) -> &BTreeMap<FlavorIx, Flavor> {
        &self.flavors
    }

    pub(super) fn nodes(&self) -> &BTreeMap<QuotaIx, QuotaNode> {
        &self.nodes
    }

    pub(super) fn queues(&self) -> &BTreeMap<QueueIx, Queue> {
        &self.queues
    }

    pub(super) fn forest(&self) -> &Forest {
        &self.trees().forest
    }

    pub(super) fn used(&self, node: QuotaIx, of: FlavorResource) -> i128 {
        self.trees().usage.used(node, of)
    }

    fn trees(&self) -> &Trees {
        self.trees.get_or_init(|| {
            let parent = |node: &QuotaNode| self.quota_names.index.get(node.parent.as_ref()?).copied();
            let nodes = self.nodes.iter().map(|(ix, node)| (*ix, parent(node).map(QuotaIx), node));
            let mut trees =
                Trees { forest: Forest::of(nodes, |of| self.flavor_capacity.get(of)), usage: Charges::new() };
            for ((node, of), amount) in self.charged.all().flatten() {
                trees.charge(*node, *of, *amount);
            }
            trees
        })
    }

    pub(super) fn charged(&self, gang: &str) -> Option<&Charges> {
        self.charged.get(gang)
    }

    /// The quota node that the gangs of a queue are charged to.
    pub(super) fn quota_of(&self, queue: QueueIx) -> Option<QuotaIx> {
        let name = self.queues.get(&queue)?.quota.as_ref()?;
        self.quota_names.index.get(name).map(|ix| QuotaIx(*ix))
    }

    /// Sets or removes a flavor. Returns whether anything changed.
    pub(super) fn set_flavor(&mut self, name: &str, flavor: Option<Flavor>) -> bool {
        let ix = self.flavor_ix(name);
        replace(&mut self.flavors, ix, flavor)
    }

    /// Sets or removes a queue. Returns whether anything changed; then the caller updates the charges of its gangs.
    pub(super) fn set_queue(&mut self, name: &str, queue: Option<Queue>) -> bool {
        let ix = self.queue_ix(name);
        if let Some(quota) = queue.as_ref().and_then(|queue| queue.quota.as_deref()) {
            self.quota_ix(quota);
        }
        replace(&mut self.queues, ix, queue)
    }

    /// Sets or removes a quota node. Returns whether anything changed.
    pub(super) fn set_node(&mut self, name: &str, node: Option<QuotaNode>) -> bool {
        let ix = self.quota_ix(name);
        if let Some(parent) = node.as_ref().and_then(|node| node.parent.as_deref()) {
            self.quota_ix(parent);
        }
        if !replace(&mut self.nodes, ix, node) {
            return false;
        }
        self.invalidate_trees();
        true
    }

    /// Drops the trees; they are rebuilt when they are read.
    pub(super) fn invalidate_trees(&mut self) {
        self.trees = OnceLock::new();
    }

    /// Adds to the capacity of the nodes of a flavor, or subtracts when negative.
    pub(super) fn change_node_capacity(&mut self, of: FlavorResource, more: i128) {
        let Some(trees) = self.trees.get_mut().filter(|_| more != 0) else { return };
        for ix in trees.forest.nodes_adding_capacity(of).collect::<Vec<_>>() {
            trees.forest.add_quota(&mut trees.usage, ix, of, more);
        }
    }

    /// Replaces the charges of a gang.
    pub(super) fn charge(&mut self, uid: &str, charges: &Charges, generation: u64) {
        let old = self.charged.replace(uid, charges);
        if old == *charges {
            return;
        }
        if let Some(trees) = self.trees.get_mut() {
            let given_back = old.iter().map(|((node, of), amount)| (*node, *of, -amount));
            let taken = charges.iter().map(|((node, of), amount)| (*node, *of, *amount));
            given_back.chain(taken).for_each(|(node, of, amount)| trees.charge(node, of, amount));
        }
        let shrank = old.iter().filter(|(at, amount)| charges.get(at).is_none_or(|now| now < amount));
        let decreased = self.roots(shrank);
        let grew = charges.iter().filter(|(at, amount)| old.get(at).is_none_or(|was| was < amount));
        let is_spread =
            charges.keys().any(|(node, _)| charges.keys().next().is_some_and(|(first, _)| first != node));
        let borrows =
            |node: QuotaIx, of: FlavorResource| self.used(node, of) > self.forest().subtree_quota(node, of);
        let increased = self.roots(grew.filter(|((node, of), _)| is_spread || borrows(*node, *of)));
        self.usage_decreased.extend(decreased.into_iter().map(|root| (root, generation)));
        self.borrowing_increased.extend(increased.into_iter().map(|root| (root, generation)));
    }

    /// The roots of the trees with these charges.
    fn roots<'c>(
        &self,
        charges: impl IntoIterator<Item = (&'c (QuotaIx, FlavorResource), &'c i128)>,
    ) -> Vec<QuotaIx> {
        charges.into_iter().map(|((node, _), _)| self.forest().root(*node)).collect()
    }

    /// Marks the trees that a gang is charged to, as more may be available than a plan counted.
    pub(super) fn invalidate(&mut self, uid: &str, generation: u64) {
        let roots = self.roots(self.charged.get(uid).into_iter().flatten());
        self.usage_decreased.extend(roots.into_iter().map(|root| (root, generation)));
    }

    /// Marks all trees, as more may be available than a plan counted.
    pub(super) fn invalidate_all(&mut self, generation: u64) {
        let roots = self.roots(&self.trees().usage);
        self.usage_decreased.extend(roots.into_iter().map(|root| (root, generation)));
    }

    /// Clears the changes up to a generation, which an accepted plan has seen.
    pub(super) fn clear_changes_up_to(&mut self, generation: u64) {
        self.usage_decreased.retain(|_, at| *at > generation);
        self.borrowing_increased.retain(|_, at| *at > generation);
        self.config_changed_at = self.config_changed_at.filter(|at| *at > generation);
    }

    /// The charges of a gang that holds capacity; empty for a pending gang.
    pub(super) fn charges_of(&self, gang: &Gang) -> Charges {
        let quota = self.quota_of(gang.queue);
        if !gang.state.holds() || (quota.is_none() && gang.charges.is_empty()) {
            return Charges::new();
        }
        let shape = gang.held().map_or_else(|| gang.remaining(), |(shape, _)| shape);
        charges(&shape, &self.flavors_of(gang), quota, &gang.charges)
    }

    /// The flavors of a gang. A requested or declared resource without a known flavor gets the first flavor of its
    /// group in the queue.
    fn flavors_of(&self, gang: &Gang) -> Vec<BTreeMap<ResourceIx, FlavorIx>> {
        let mut flavors = gang.state.assignment().map_or_else(Vec::new, |given| given.flavors.clone());
        flavors.resize(gang.pod_sets.len().max(1), BTreeMap::new());
        let groups = self.queues.get(&gang.queue).map_or(&[][..], |queue| &queue.groups);
        for (group, first) in groups.iter().filter_map(|group| Some((group, group.flavors.first()?))) {
            for resource in &group.resources {
                for (pod_set, flavors) in gang.pod_sets.iter().zip(&mut flavors) {
                    if pod_set.requested(*resource) > 0 {
                        flavors.entry(*resource).or_insert(*first);
                    }
                }
                if !flavors.iter().any(|flavors| flavors.contains_key(resource)) {
                    flavors[0].insert(*resource, *first);
                }
            }
        }
        flavors
    }
}

impl World {
    /// The index of a flavor name, which is added if it is new. Names beyond 65,535 share the last index.
    pub fn flavor_ix(&mut self, name: &str) -> FlavorIx {
        self.quotas.flavor_ix(name)
    }

    /// The index of the name of a quota node, which is added if it is new.
    pub fn quota_ix(&mut self, name: &str) -> QuotaIx {
        self.quotas.quota_ix(name)
    }

    /// The index of a queue name, which is added if it is new.
    pub fn queue_ix(&mut self, name: &str) -> QueueIx {
        self.quotas.queue_ix(name)
    }

    /// The flavor name of an index; `?` for an unknown index.
    pub fn flavor_name(&self, ix: FlavorIx) -> &str {
        self.quotas.flavor_name(ix)
    }

    /// The name of the quota node of an index; `?` for an unknown index.
    pub fn quota_name(&self, ix: QuotaIx) -> &str {
        self.quotas.quota_name(ix)
    }

    /// The queue name of an index; `?` for an unknown index.
    pub fn queue_name(&self, ix: QueueIx) -> &str {
        self.quotas.queue_name(ix)
    }

    /// All flavors, including [`FlavorIx::ANY`].
    pub fn flavors(&self) -> &BTreeMap<FlavorIx, Flavor> {
        self.quotas.flavors()
    }

    /// All quota nodes.
    pub fn quota_nodes(&self) -> &BTreeMap<QuotaIx, QuotaNode> {
        self.quotas.nodes()
    }

    /// All queues, including the implicit queue.
    pub fn queues(&self) -> &BTreeMap<QueueIx, Queue> {
        self.quotas.queues()
    }

    /// The quota node that the gangs of a queue are charged to; it may not exist.
    pub fn quota_of(&self, queue: QueueIx) -> Option<QuotaIx> {
        self.quotas.quota_of(queue)
    }

    /// The quota trees.
    pub fn forest(&self) -> &Forest {
        self.quotas.forest()
    }

    /// The charges of a gang that holds capacity.
    pub fn charged(&self, gang: &str) -> Option<&Charges> {
        self.quotas.charged(gang)
    }

    /// The roots of the quota trees in which usage decreased since the last plan was accepted.
    pub fn trees_with_less_usage(&self) -> impl Iterator<Item = QuotaIx> {
        self.quotas.usage_decreased.keys().copied()
    }

    /// The roots of the quota trees in which borrowing increased since the last plan was accepted, or in which a gang
    /// was admitted that is charged to several nodes. Parked gangs may have the right to preempt there now.
    pub fn trees_with_more_borrowed(&self) -> impl Iterator<Item = QuotaIx> {
        self.quotas.borrowing_increased.keys().copied()
    }

    /// Whether flavors, quota nodes or queues changed since the last plan was accepted.
    pub fn have_quotas_changed(&self) -> bool {
        self.quotas.config_changed_at.is_some()
    }

    /// The usage of a quota node; see [`QuotaUsage`].
    pub fn quota_used(&self, node: QuotaIx, of: FlavorResource) -> i128 {
        self.quotas.used(node, of)
    }

    /// The share of a quota node by what holds quota now; see [`Forest::share`]. A gang that waits for its victims counts when they are
    /// gone, as in `status.fairSharing` of Kueue.
    pub fn quota_share(&self, node: QuotaIx) -> DominantShare {
        let Trees { forest, usage } = self.quotas.trees();
        let root = forest.root(node);
        let nominated = self.nominated().filter_map(|gang| self.charged(&gang.uid)).flatten();
        let mut held = ChangedUsage { before: usage, changed: Charges::new() };
        for ((at, of), amount) in nominated.filter(|((at, _), _)| forest.root(*at) == root) {
            forest.charge(&mut held, *at, *of, -amount);
        }
        forest.share(&held, node)
    }

    /// The quota that is left for a quota node; see [`Forest::available`].
    pub fn quota_available(&self, node: QuotaIx, of: FlavorResource) -> i128 {
        let trees = self.quotas.trees();
        trees.forest.available(&trees.usage, node, of)
    }

    pub(super) fn set_flavor(&mut self, name: &str, flavor: Option<Flavor>) {
        let ix = self.flavor_ix(name);
        let keys: Vec<String> = flavor.iter().flat_map(|flavor| flavor.node_labels.keys().cloned()).collect();
        if self.quotas.set_flavor(name, flavor) {
            self.recompute_flavor_capacity(ix);
            if self.classes.track_labels(keys) {
                self.reclassify_nodes();
            }
            self.track_all_topologies();
            self.quotas.config_changed_at = Some(self.generation);
        }
    }

    pub(super) fn set_quota(&mut self, name: &str, node: Option<QuotaNode>) {
        if let Some(node) = &node {
            self.track_flavor_capacity(node);
        }
        if self.quotas.set_node(name, node) {
            self.preemptions.clear();
            self.quotas.config_changed_at = Some(self.generation);
        }
    }

    pub(super) fn set_queue(&mut self, name: &str, queue: Option<Queue>) {
        let ix = self.queue_ix(name);
        let sharing = queue.as_ref().and_then(|queue| queue.admission_fair_sharing.as_ref());
        self.usages.set_sharing(
            ix,
            self.quotas.queues().get(&ix).and_then(|queue| queue.admission_fair_sharing.as_ref()),
            sharing,
        );
        if !self.quotas.set_queue(name, queue) {
            return;
        }
        self.preemptions.clear();
        let gangs = self.gangs.iter().filter(|(_, gang)| self.shapes.row(**gang).gang.queue == ix);
        let uids: Vec<Arc<str>> = gangs.map(|(uid, _)| uid.clone()).collect();
        for uid in uids {
            self.update_charges(&uid);
        }
        self.quotas.config_changed_at = Some(self.generation);
    }

    /// Recomputes the charges of a gang in quota trees, and what its local queue holds.
    pub(super) fn update_charges(&mut self, uid: &str) {
        let charges = self.gang(uid).map(|gang| self.quotas.charges_of(gang)).unwrap_or_default();
        self.quotas.charge(uid, &charges, self.generation);
        self.update_local_queue_usage(uid);
    }

    /// Marks the order of gangs as changed.
    pub(super) fn invalidate_order(&mut self) {
        self.quotas.config_changed_at = Some(self.generation);
    }
}

/// The charges of a gang of a shape: at the node of its queue with these flavors per pod set, and at the nodes that
/// the gang names itself without flavors. The declared excess is charged in the first flavor given for the resource,
/// even when the gang has no pods.
pub fn charges(
    shape: &Shape,
    flavors: &[BTreeMap<ResourceIx, FlavorIx>],
    queue: Option<QuotaIx>,
    named: &[QuotaIx],
) -> Charges {
    let mut charges = Charges::new();
    let mut charge = |node, flavor, resource, amount: i128| {
        *charges.entry((node, FlavorResource { flavor, resource })).or_default() += amount;
    };
    if let Some(node) = queue {
        for (pod_set, flavors) in shape.pod_sets.iter().zip(flavors) {
            for (resource, flavor) in flavors {
                charge(node, *flavor, *resource, pod_set.requested(*resource));
            }
        }
        for (resource, amount) in shape.declared_excess().iter() {
            if let Some(flavor) = flavors.iter().find_map(|flavors| flavors.get(&resource)) {
                charge(node, *flavor, resource, i128::from(amount.0));
            }
        }
    }
    for node in named {
        for (resource, amount) in shape.quota_request().iter().filter(|(_, amount)| *amount > Amount::ZERO) {
            charge(*node, FlavorIx::ANY, resource, i128::from(amount.0));
        }
    }
    charges.retain(|_, amount| *amount != 0);
    charges
}

/// Replaces a value. Returns whether anything changed.
fn replace<K: Ord, V: PartialEq>(map: &mut BTreeMap<K, V>, key: K, value: Option<V>) -> bool {
    let old = map.remove(&key);
    let changed = old != value;
    if let Some(value) = value {
        map.insert(key, value);
    }
    changed
}
