//! Nodes grouped by class, and within a class by free resources; and the nodes that changed since the last plan.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::ledger::NodeIx;
use crate::constraints::Constraints;
use crate::device::FreeResources;
use crate::node::{Effect, Node, NodeClass};
use crate::pod_set::PodSet;
use crate::resources::{ResourceMask, Sum};

/// A class of nodes, as a dense index. Indices of classes without nodes are reused.
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
    /// The common properties.
    pub class: NodeClass,
    /// The nodes by free resources, then by name. No group is empty.
    pub groups: BTreeMap<FreeResources, BTreeSet<(Arc<str>, NodeIx)>>,
    /// The number of nodes per allocatable.
    pub allocatable: BTreeMap<FreeResources, u32>,
    /// The free resources of all nodes together. An overcommitted resource of a node counts as zero. Shared devices
    /// do not count.
    pub free: Sum,
    /// The allocatable of all nodes together.
    pub capacity: Sum,
    /// The number of nodes.
    pub nodes: u32,
}

/// The changes of a node since the last plan was accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirtyNode {
    /// Resources of which more became free at some time.
    pub freed: ResourceMask,
    /// The node object was added or changed.
    pub changed: bool,
    /// The generation of the last change.
    generation: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Classes {
    label_keys: BTreeSet<String>,
    by_name: bool,
    rows: Vec<Option<ClassRow>>,
    vacant: Vec<ClassIx>,
    index: BTreeMap<NodeClass, ClassIx>,
    class_by_node: BTreeMap<NodeIx, (ClassIx, FreeResources)>, // With the allocatable that is counted in the class.
    dirty_nodes: BTreeMap<NodeIx, DirtyNode>,
    aggregate_shrunk_at: Option<u64>,
}

impl Classes {
    pub(super) fn iter(&self) -> impl Iterator<Item = (ClassIx, &ClassRow)> {
        (0..u32::MAX).map(ClassIx).zip(&self.rows).filter_map(|(ix, row)| row.as_ref().map(|row| (ix, row)))
    }

    pub(super) fn row(&self, ix: ClassIx) -> &ClassRow {
        self.rows[ix.at()].as_ref().expect("a class index is only lent while the class has nodes")
    }

    pub(super) fn of(&self, node: NodeIx) -> Option<ClassIx> {
        self.class_by_node.get(&node).map(|(class, _)| *class)
    }

    pub(super) fn dirty_nodes(&self) -> impl Iterator<Item = (NodeIx, &DirtyNode)> {
        self.dirty_nodes.iter().map(|(ix, dirty_node)| (*ix, dirty_node))
    }

    pub(super) fn has_aggregate_shrunk(&self) -> bool {
        self.aggregate_shrunk_at.is_some()
    }

    pub(super) fn record_aggregate_shrink(&mut self, generation: u64) {
        self.aggregate_shrunk_at = Some(generation);
    }

    /// Clears the changes up to a generation, which an accepted plan has seen.
    pub(super) fn clear_changes_up_to(&mut self, generation: u64) {
        self.dirty_nodes.retain(|_, dirty_node| dirty_node.generation > generation);
        self.aggregate_shrunk_at = self.aggregate_shrunk_at.filter(|at| *at > generation);
    }

    /// Tracks the labels that the constraints of these pod sets refer to. Returns whether nodes must be reclassified.
    pub(super) fn track_labels_of(&mut self, pod_sets: &[PodSet]) -> bool {
        let constraints = || pod_sets.iter().map(|pod_set| &pod_set.constraints);
        let keys = constraints().flat_map(Constraints::label_keys);
        let mut added = self.track_labels(keys);
        if !self.by_name && constraints().any(Constraints::uses_node_name) {
            self.by_name = true;
            added = true;
        }
        added
    }

    /// Tracks these labels. Returns whether nodes must be reclassified.
    pub(super) fn track_labels(&mut self, keys: impl IntoIterator<Item = impl AsRef<str>>) -> bool {
        let is_new = |key: &str| !self.label_keys.contains(key);
        let new: Vec<String> =
            keys.into_iter().filter(|key| is_new(key.as_ref())).map(|key| key.as_ref().to_owned()).collect();
        let added = !new.is_empty();
        self.label_keys.extend(new);
        added
    }

    /// The free resources of a node changed from `before` to `after`.
    pub(super) fn free_changed(
        &mut self,
        ix: NodeIx,
        name: &Arc<str>,
        before: &FreeResources,
        after: &FreeResources,
        generation: u64,
    ) {
        let Some((class, _)) = self.class_by_node.get(&ix) else { return };
        let row = self.rows[class.at()].as_mut().expect("nodes belong to classes that exist");
        row.remove_node(name, ix, before);
        row.add_node(name.clone(), ix, after);
        self.mark_dirty(ix, after.increased_since(before), false, generation);
    }

    /// A node was added or changed; with `None`, it was deleted.
    pub(super) fn node_changed(
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
        self.mark_dirty(ix, ResourceMask::ALL, true, generation);
    }

    /// Reclassifies an unchanged node after [`Self::track_labels_of`].
    pub(super) fn reclassify(&mut self, ix: NodeIx, name: &Arc<str>, node: &Node, free: &FreeResources) {
        self.remove(ix, name, free);
        self.insert(ix, name, node, free);
    }

    /// Marks a node on which more may be free than a plan counted.
    pub(super) fn invalidate(&mut self, ix: NodeIx, generation: u64) {
        self.mark_dirty(ix, ResourceMask::ALL, false, generation);
    }

    fn mark_dirty(&mut self, ix: NodeIx, freed: ResourceMask, changed: bool, generation: u64) {
        let dirty_node = self.dirty_nodes.entry(ix).or_default();
        dirty_node.freed = dirty_node.freed.or(freed);
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
        row.add_node(name.clone(), ix, free);
        self.class_by_node.insert(ix, (class_ix, empty));
    }

    fn remove(&mut self, ix: NodeIx, name: &Arc<str>, free: &FreeResources) {
        let Some((class_ix, allocatable)) = self.class_by_node.remove(&ix) else { return };
        let row = self.rows[class_ix.at()].as_mut().expect("nodes belong to classes that exist");
        row.remove_node(name, ix, free);
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
        let is_tracked = |key: &str| self.label_keys.contains(key);
        let labels = node.labels.iter().filter(|(key, _)| is_tracked(key));
        let mut taints: Vec<_> =
            node.taints.iter().filter(|taint| taint.effect != Effect::PreferNoSchedule).cloned().collect();
        taints.sort();
        taints.dedup();
        NodeClass {
            labels: labels.map(|(key, value)| (key.clone(), value.clone())).collect(),
            name: self.by_name.then(|| name.clone()),
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
    fn add_node(&mut self, name: Arc<str>, ix: NodeIx, free: &FreeResources) {
        self.free.add(&free.amounts.positive());
        self.groups.entry(free.clone()).or_default().insert((name, ix));
    }

    fn remove_node(&mut self, name: &Arc<str>, ix: NodeIx, free: &FreeResources) {
        self.free.sub(&free.amounts.positive());
        if let Some(group) = self.groups.get_mut(free) {
            group.remove(&(name.clone(), ix));
            if group.is_empty() {
                self.groups.remove(free);
            }
        }
    }
}
