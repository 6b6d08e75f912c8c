//! Nodes grouped by class, and within a class by what they have free; and which nodes changed since the last plan.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::ledger::NodeIx;
use crate::constraints::Constraints;
use crate::device::FreeResources;
use crate::gang::PodSet;
use crate::node::{Effect, Node, NodeClass};
use crate::resources::{ResourceMask, Sum};

/// A class of nodes, as a dense index. Indices of classes without nodes are used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassIx(pub u32);

impl ClassIx {
    fn at(self) -> usize {
        self.0 as usize
    }
}

/// The nodes of one class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassRow {
    /// What they have in common.
    pub class: NodeClass,
    /// The nodes by what they have free, then by name. No group is empty.
    pub groups: BTreeMap<FreeResources, BTreeSet<(Arc<str>, NodeIx)>>,
    /// How many nodes have the same allocatable.
    pub allocatable: BTreeMap<FreeResources, u32>,
    /// What all nodes have free together; a node where less than nothing is free counts as having nothing, and a device
    /// that is shared does not count.
    pub free: Sum,
    /// What all nodes hold together when they are empty.
    pub capacity: Sum,
    /// How many nodes.
    pub nodes: u32,
}

/// What became of a node since the last plan was accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirtyNode {
    /// Resources of which more became free at some moment.
    pub freed: ResourceMask,
    /// The node itself appeared or changed.
    pub changed: bool,
    /// The generation of the last change.
    generation: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Classes {
    keys: BTreeSet<String>,
    names: bool,
    rows: Vec<Option<ClassRow>>,
    vacant: Vec<ClassIx>,
    index: BTreeMap<NodeClass, ClassIx>,
    of: BTreeMap<NodeIx, (ClassIx, FreeResources)>, // With the allocatable that the class counts.
    dirty_nodes: BTreeMap<NodeIx, DirtyNode>,
    supply: Option<u64>,
}

impl Classes {
    pub(super) fn iter(&self) -> impl Iterator<Item = (ClassIx, &ClassRow)> {
        (0..u32::MAX).map(ClassIx).zip(&self.rows).filter_map(|(ix, row)| row.as_ref().map(|row| (ix, row)))
    }

    pub(super) fn row(&self, ix: ClassIx) -> &ClassRow {
        self.rows[ix.at()].as_ref().expect("a class index is only lent while the class has nodes")
    }

    pub(super) fn of(&self, node: NodeIx) -> Option<ClassIx> {
        self.of.get(&node).map(|(class, _)| *class)
    }

    pub(super) fn dirty_nodes(&self) -> impl Iterator<Item = (NodeIx, &DirtyNode)> {
        self.dirty_nodes.iter().map(|(ix, dirty_nodes)| (*ix, dirty_nodes))
    }

    pub(super) fn has_supply_risen(&self) -> bool {
        self.supply.is_some()
    }

    pub(super) fn supply_rose(&mut self, generation: u64) {
        self.supply = Some(generation);
    }

    /// Forgets what changed up to a generation: a plan has taken it into account.
    pub(super) fn settle(&mut self, generation: u64) {
        self.dirty_nodes.retain(|_, dirty_nodes| dirty_nodes.generation > generation);
        self.supply = self.supply.filter(|at| *at > generation);
    }

    /// Notes which labels the constraints of these pod sets look at. True when that splits classes anew.
    pub(super) fn learn(&mut self, pod_sets: &[PodSet]) -> bool {
        let constraints = || pod_sets.iter().map(|pod_set| &pod_set.constraints);
        let keys = constraints().flat_map(Constraints::label_keys);
        let mut grew = self.learn_keys(keys);
        if !self.names && constraints().any(Constraints::uses_node_name) {
            self.names = true;
            grew = true;
        }
        grew
    }

    /// Notes that these labels are looked at. True when that splits classes anew.
    pub(super) fn learn_keys(&mut self, keys: impl IntoIterator<Item = impl AsRef<str>>) -> bool {
        let is_new = |key: &str| !self.keys.contains(key);
        let new: Vec<String> =
            keys.into_iter().filter(|key| is_new(key.as_ref())).map(|key| key.as_ref().to_owned()).collect();
        let grew = !new.is_empty();
        self.keys.extend(new);
        grew
    }

    /// What a node has free changed from `before` to `after`.
    pub(super) fn moved(
        &mut self,
        ix: NodeIx,
        name: &Arc<str>,
        before: &FreeResources,
        after: &FreeResources,
        generation: u64,
    ) {
        let Some((class, _)) = self.of.get(&ix) else { return };
        let row = self.rows[class.at()].as_mut().expect("nodes belong to classes that exist");
        row.leave(name, ix, before);
        row.join(name.clone(), ix, after);
        self.stain(ix, after.increased_since(before), false, generation);
    }

    /// A node appeared, changed or, with none, vanished.
    pub(super) fn changed(
        &mut self,
        ix: NodeIx,
        name: &Arc<str>,
        before: &FreeResources,
        after: Option<(&Node, &FreeResources)>,
        generation: u64,
    ) {
        self.remove(ix, name, before);
        if let Some((node, free)) = after {
            self.insert(ix, name, node, free);
        }
        self.stain(ix, ResourceMask::ALL, true, generation);
    }

    /// Finds the class of an unchanged node anew, after [`Self::learn`].
    pub(super) fn reclass(&mut self, ix: NodeIx, name: &Arc<str>, node: &Node, free: &FreeResources) {
        self.remove(ix, name, free);
        self.insert(ix, name, node, free);
    }

    /// More may be free on a node than a plan counted with.
    pub(super) fn invalidate(&mut self, ix: NodeIx, generation: u64) {
        self.stain(ix, ResourceMask::ALL, false, generation);
    }

    fn stain(&mut self, ix: NodeIx, risen: ResourceMask, changed: bool, generation: u64) {
        let dirty_node = self.dirty_nodes.entry(ix).or_default();
        dirty_node.freed = dirty_node.freed.or(risen);
        dirty_node.changed |= changed;
        dirty_node.generation = generation;
    }

    fn insert(&mut self, ix: NodeIx, name: &Arc<str>, node: &Node, free: &FreeResources) {
        let class = self.class_of(name, node);
        let class_ix = self.index.get(&class).copied().unwrap_or_else(|| self.add(class));
        let row = self.rows[class_ix.at()].as_mut().expect("indexed classes exist");
        row.nodes += 1;
        row.capacity.add(&node.allocatable);
        let empty = FreeResources::from(node.allocatable.clone());
        *row.allocatable.entry(empty.clone()).or_default() += 1;
        row.join(name.clone(), ix, free);
        self.of.insert(ix, (class_ix, empty));
    }

    fn remove(&mut self, ix: NodeIx, name: &Arc<str>, free: &FreeResources) {
        let Some((class_ix, allocatable)) = self.of.remove(&ix) else { return };
        let row = self.rows[class_ix.at()].as_mut().expect("nodes belong to classes that exist");
        row.leave(name, ix, free);
        row.capacity.sub(&allocatable.amounts);
        if let Some(count) = row.allocatable.get_mut(&allocatable) {
            *count -= 1;
            if *count == 0 {
                row.allocatable.remove(&allocatable);
            }
        }
        row.nodes -= 1;
        if row.nodes == 0 {
            self.index.remove(&row.class);
            self.rows[class_ix.at()] = None;
            self.vacant.push(class_ix);
        }
    }

    fn class_of(&self, name: &Arc<str>, node: &Node) -> NodeClass {
        let asked = |key: &str| self.keys.contains(key);
        let labels = node.labels.iter().filter(|(key, _)| asked(key));
        let mut taints: Vec<_> =
            node.taints.iter().filter(|taint| taint.effect != Effect::PreferNoSchedule).cloned().collect();
        taints.sort();
        taints.dedup();
        NodeClass {
            labels: labels.map(|(key, value)| (key.clone(), value.clone())).collect(),
            name: self.names.then(|| name.clone()),
            taints,
            unschedulable: node.unschedulable,
            ready: node.ready,
        }
    }

    fn add(&mut self, class: NodeClass) -> ClassIx {
        let row = ClassRow {
            class: class.clone(),
            groups: BTreeMap::new(),
            allocatable: BTreeMap::new(),
            free: Sum::default(),
            capacity: Sum::default(),
            nodes: 0,
        };
        let ix = if let Some(ix) = self.vacant.pop() {
            self.rows[ix.at()] = Some(row);
            ix
        } else {
            self.rows.push(Some(row));
            ClassIx(u32::try_from(self.rows.len() - 1).expect("fewer than 2^32 classes"))
        };
        self.index.insert(class, ix);
        ix
    }
}

impl ClassRow {
    fn join(&mut self, name: Arc<str>, ix: NodeIx, free: &FreeResources) {
        self.free.add(&free.amounts.positive());
        self.groups.entry(free.clone()).or_default().insert((name, ix));
    }

    fn leave(&mut self, name: &Arc<str>, ix: NodeIx, free: &FreeResources) {
        self.free.sub(&free.amounts.positive());
        if let Some(group) = self.groups.get_mut(free) {
            group.remove(&(name.clone(), ix));
            if group.is_empty() {
                self.groups.remove(free);
            }
        }
    }
}
