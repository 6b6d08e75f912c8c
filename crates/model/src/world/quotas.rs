//! Flavors, quota trees and queues as facts, and what is charged to the trees.
//!
//! Names become dense indices here, for good: an index means the same name whether or not there is such an object now.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use super::flavor_capacity::FlavorCapacity;
use super::{QueueIx, World};
use crate::amount::Amount;
use crate::gang::{Gang, Shape};
use crate::queue::Queue;
use crate::quota::{Flavor, FlavorIx, FlavorResource, Forest, QuotaIx, QuotaNode, QuotaUsage};
use crate::resources::ResourceIx;

/// What a gang is charged: how much of what at which node, in base units.
pub type Charges = BTreeMap<(QuotaIx, FlavorResource), i128>;

/// Facts and usage; see the module.
#[derive(Clone, Debug)]
pub(super) struct Quotas {
    flavor_names: Names,
    quota_names: Names,
    queue_names: Names,
    flavors: BTreeMap<FlavorIx, Flavor>,
    nodes: BTreeMap<QuotaIx, QuotaNode>,
    queues: BTreeMap<QueueIx, Queue>,
    charged: BTreeMap<Arc<str>, Charges>,
    pub(super) supply: FlavorCapacity,
    trees: OnceLock<Trees>,
    fell: BTreeMap<QuotaIx, u64>, // Roots of trees where usage fell since the last plan, with the generation.
    lent: BTreeMap<QuotaIx, u64>, // The same of trees where someone borrows more.
    changed: Option<u64>,         // The generation of the last change of flavors, nodes or queues, likewise.
}

/// The trees that the nodes make, and what is used in them: computed when somebody asks after a node has changed, so that
/// setting up many nodes costs no more than the last of them.
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
    /// A table whose index 0 has no name.
    pub(super) fn with_nameless() -> Self {
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

    pub(super) fn name(&self, ix: u32) -> &str {
        self.names.get(ix as usize).map_or("?", String::as_str)
    }
}

impl Default for Quotas {
    fn default() -> Self {
        Self {
            flavor_names: Names::with_nameless(),
            quota_names: Names::default(),
            queue_names: Names::with_nameless(),
            flavors: BTreeMap::from([(FlavorIx::ANY, Flavor::default())]),
            nodes: BTreeMap::new(),
            queues: BTreeMap::from([(QueueIx::default(), Queue::default())]),
            charged: BTreeMap::new(),
            supply: FlavorCapacity::default(),
            trees: OnceLock::new(),
            fell: BTreeMap::new(),
            lent: BTreeMap::new(),
            changed: None,
        }
    }
}

impl Trees {
    fn charge(&mut self, node: QuotaIx, of: FlavorResource, amount: i128) {
        self.forest.charge(&mut self.usage, node, of, amount);
    }
}

impl Quotas {
    /// The index of a flavor's name. The table holds 65,535; every further one shares the last index.
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
                Trees { forest: Forest::of(nodes, |of| self.supply.held(of)), usage: Charges::new() };
            for ((node, of), amount) in self.charged.values().flatten() {
                trees.charge(*node, *of, *amount);
            }
            trees
        })
    }

    pub(super) fn charged(&self, gang: &str) -> Option<&Charges> {
        self.charged.get(gang)
    }

    /// The node that a queue's gangs are charged to.
    pub(super) fn quota_of(&self, queue: QueueIx) -> Option<QuotaIx> {
        let name = self.queues.get(&queue)?.quota.as_ref()?;
        self.quota_names.index.get(name).map(|ix| QuotaIx(*ix))
    }

    /// Sets or removes a flavor. False when nothing changed.
    pub(super) fn set_flavor(&mut self, name: &str, flavor: Option<Flavor>) -> bool {
        let ix = self.flavor_ix(name);
        replace(&mut self.flavors, ix, flavor)
    }

    /// Sets or removes a queue. False when nothing changed. Its gangs are to be charged anew.
    pub(super) fn set_queue(&mut self, name: &str, queue: Option<Queue>) -> bool {
        let ix = self.queue_ix(name);
        if let Some(quota) = queue.as_ref().and_then(|queue| queue.quota.as_deref()) {
            self.quota_ix(quota);
        }
        replace(&mut self.queues, ix, queue)
    }

    /// Sets or removes a node of a quota tree. False when nothing changed.
    pub(super) fn set_node(&mut self, name: &str, node: Option<QuotaNode>) -> bool {
        let ix = self.quota_ix(name);
        if let Some(parent) = node.as_ref().and_then(|node| node.parent.as_deref()) {
            self.quota_ix(parent);
        }
        if !replace(&mut self.nodes, ix, node) {
            return false;
        }
        self.forget_trees();
        true
    }

    /// The trees are made anew when somebody asks.
    pub(super) fn forget_trees(&mut self) {
        self.trees = OnceLock::new();
    }

    /// The nodes of a flavor hold so much more, or less when negative.
    pub(super) fn supply_grew(&mut self, of: FlavorResource, more: i128) {
        let Some(trees) = self.trees.get_mut().filter(|_| more != 0) else { return };
        for ix in trees.forest.nodes_adding_capacity(of).collect::<Vec<_>>() {
            trees.forest.add_quota(&mut trees.usage, ix, of, more);
        }
    }

    /// Replaces what a gang is charged.
    pub(super) fn charge(&mut self, uid: &str, charges: Charges, generation: u64) {
        let old = self.charged.remove(uid).unwrap_or_default();
        if old == charges {
            if !charges.is_empty() {
                self.charged.insert(uid.into(), charges);
            }
            return;
        }
        if let Some(trees) = self.trees.get_mut() {
            let given_back = old.iter().map(|((node, of), amount)| (*node, *of, -amount));
            let taken = charges.iter().map(|((node, of), amount)| (*node, *of, *amount));
            given_back.chain(taken).for_each(|(node, of, amount)| trees.charge(node, of, amount));
        }
        if !charges.is_empty() {
            self.charged.insert(uid.into(), charges.clone());
        }
        let shrank = old.iter().filter(|(at, amount)| charges.get(at).is_none_or(|now| now < amount));
        let fallen = self.roots(shrank);
        let grew = charges.iter().filter(|(at, amount)| old.get(at).is_none_or(|was| was < amount));
        let is_spread =
            charges.keys().any(|(node, _)| charges.keys().next().is_some_and(|(first, _)| first != node));
        let borrows = |node: QuotaIx, of: FlavorResource| self.used(node, of) > self.forest().subtree_quota(node, of);
        let lent = self.roots(grew.filter(|((node, of), _)| is_spread || borrows(*node, *of)));
        self.fell.extend(fallen.into_iter().map(|root| (root, generation)));
        self.lent.extend(lent.into_iter().map(|root| (root, generation)));
    }

    /// The roots of the trees where something is charged.
    fn roots<'c>(
        &self,
        charges: impl IntoIterator<Item = (&'c (QuotaIx, FlavorResource), &'c i128)>,
    ) -> Vec<QuotaIx> {
        charges.into_iter().map(|((node, _), _)| self.forest().root(*node)).collect()
    }

    /// More may be left where a gang is charged than a plan counted with.
    pub(super) fn invalidate(&mut self, uid: &str, generation: u64) {
        let roots = self.roots(self.charged.get(uid).into_iter().flatten());
        self.fell.extend(roots.into_iter().map(|root| (root, generation)));
    }

    /// More may be left everywhere than a plan counted with.
    pub(super) fn invalidate_all(&mut self, generation: u64) {
        let roots = self.roots(&self.trees().usage);
        self.fell.extend(roots.into_iter().map(|root| (root, generation)));
    }

    /// Forgets what changed up to a generation: a plan has taken it into account.
    pub(super) fn settle(&mut self, generation: u64) {
        self.fell.retain(|_, at| *at > generation);
        self.lent.retain(|_, at| *at > generation);
        self.changed = self.changed.filter(|at| *at > generation);
    }

    /// What a gang that holds capacity is charged; nothing for one that waits.
    pub(super) fn charges_of(&self, gang: &Gang) -> Charges {
        let quota = self.quota_of(gang.queue);
        if !gang.state.holds() || (quota.is_none() && gang.charges.is_empty()) {
            return Charges::new();
        }
        let shape = gang.held().map_or_else(|| gang.remaining(), |(shape, _)| shape);
        charges(&shape, &self.flavors_of(gang), quota, &gang.charges)
    }

    /// The flavors that a gang was given, and where none is known for what pods ask, or for what is declared, the first ones
    /// of its queue.
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
    /// The index of a flavor's name, which is added when it is new. Every name beyond 65,535 shares the last index.
    pub fn flavor_ix(&mut self, name: &str) -> FlavorIx {
        self.quotas.flavor_ix(name)
    }

    /// The index of a quota node's name, which is added when it is new.
    pub fn quota_ix(&mut self, name: &str) -> QuotaIx {
        self.quotas.quota_ix(name)
    }

    /// The index of a queue's name, which is added when it is new.
    pub fn queue_ix(&mut self, name: &str) -> QueueIx {
        self.quotas.queue_ix(name)
    }

    /// The name behind an index; `?` for one that was never given out.
    pub fn flavor_name(&self, ix: FlavorIx) -> &str {
        self.quotas.flavor_name(ix)
    }

    /// The name behind an index; `?` for one that was never given out.
    pub fn quota_name(&self, ix: QuotaIx) -> &str {
        self.quotas.quota_name(ix)
    }

    /// The name behind an index; `?` for one that was never given out.
    pub fn queue_name(&self, ix: QueueIx) -> &str {
        self.quotas.queue_name(ix)
    }

    /// All flavors, [`FlavorIx::ANY`] among them.
    pub fn flavors(&self) -> &BTreeMap<FlavorIx, Flavor> {
        self.quotas.flavors()
    }

    /// All nodes of quota trees.
    pub fn quota_nodes(&self) -> &BTreeMap<QuotaIx, QuotaNode> {
        self.quotas.nodes()
    }

    /// All queues, the implicit one among them.
    pub fn queues(&self) -> &BTreeMap<QueueIx, Queue> {
        self.quotas.queues()
    }

    /// The quota node that a queue's gangs are charged to; it need not exist.
    pub fn quota_of(&self, queue: QueueIx) -> Option<QuotaIx> {
        self.quotas.quota_of(queue)
    }

    /// The trees of quota.
    pub fn forest(&self) -> &Forest {
        self.quotas.forest()
    }

    /// What a gang that holds capacity is charged.
    pub fn charged(&self, gang: &str) -> Option<&Charges> {
        self.quotas.charged(gang)
    }

    /// The trees of quota in which usage fell since the last plan was accepted, by their roots.
    pub fn trees_with_less_usage(&self) -> impl Iterator<Item = QuotaIx> {
        self.quotas.fell.keys().copied()
    }

    /// The trees of quota in which someone borrows more since the last plan was accepted, or someone was admitted who is charged
    /// to several nodes, by their roots: that may give others a right to their places.
    pub fn trees_with_more_borrowed(&self) -> impl Iterator<Item = QuotaIx> {
        self.quotas.lent.keys().copied()
    }

    /// Whether flavors, nodes of quota trees or queues changed since the last plan was accepted.
    pub fn have_quotas_changed(&self) -> bool {
        self.quotas.changed.is_some()
    }

    /// What is used at a quota node; see [`QuotaUsage`].
    pub fn quota_used(&self, node: QuotaIx, of: FlavorResource) -> i128 {
        self.quotas.used(node, of)
    }

    pub(super) fn set_flavor(&mut self, name: &str, flavor: Option<Flavor>) {
        let ix = self.flavor_ix(name);
        let keys: Vec<String> = flavor.iter().flat_map(|flavor| flavor.node_labels.keys().cloned()).collect();
        if self.quotas.set_flavor(name, flavor) {
            self.recount_supply(ix);
            if self.classes.learn_keys(keys) {
                self.reclass_all();
            }
            self.relearn_domains();
            self.quotas.changed = Some(self.generation);
        }
    }

    pub(super) fn set_quota(&mut self, name: &str, node: Option<QuotaNode>) {
        if let Some(node) = &node {
            self.follow_supply(node);
        }
        if self.quotas.set_node(name, node) {
            self.preemptions.clear();
            self.quotas.changed = Some(self.generation);
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
            self.recharge(&uid);
        }
        self.quotas.changed = Some(self.generation);
    }

    /// Replaces what a gang is charged in the trees of quota, and what counts for its local queue.
    pub(super) fn recharge(&mut self, uid: &str) {
        let charges = self.gang(uid).map(|gang| self.quotas.charges_of(gang)).unwrap_or_default();
        self.quotas.charge(uid, charges, self.generation);
        self.serve(uid);
    }

    /// Others may go first now.
    pub(super) fn invalidate_order(&mut self) {
        self.quotas.changed = Some(self.generation);
    }
}

/// What a gang of a shape is charged: with these flavors of its pod sets' resources at the node of its queue, and in no
/// flavor at the nodes that it names itself. What is declared beyond the pods is charged in the first flavor that is given
/// for the resource, whether or not there are pods.
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
        for (resource, amount) in shape.effective_request().iter().filter(|(_, amount)| *amount > Amount::ZERO) {
            charge(*node, FlavorIx::ANY, resource, i128::from(amount.0));
        }
    }
    charges.retain(|_, amount| *amount != 0);
    charges
}

/// True when that changed anything.
fn replace<K: Ord, V: PartialEq>(map: &mut BTreeMap<K, V>, key: K, value: Option<V>) -> bool {
    let old = map.remove(&key);
    let changed = old != value;
    if let Some(value) = value {
        map.insert(key, value);
    }
    changed
}
