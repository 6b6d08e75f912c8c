//! The candidate nodes of a gang, in groups of nodes that are equivalent for it.

use std::collections::{BTreeMap, BTreeSet};

use model::{ClassIx, Constraints, FreeResources, NodeClass, NodeIx, NodeName, Packing, PodSet, Shape, Sum};

use crate::aggregate_reservations::AggregateReservations;
use crate::fragmentation::{Demand, View};
use crate::ledger::Ledger;
use crate::place::Placement;

/// See the module.
pub(crate) struct CandidateNodes<'l> {
    pub(crate) pod_sets: &'l [PodSet],
    /// The groups whose nodes have room for at least one pod. Their order depends on the nodes and their free
    /// resources only, not on history.
    pub(crate) groups: Vec<Group<'l>>,
    kinds: Vec<Kind>,
    /// The kind of each class that is eligible for at least one pod set.
    kind_of: BTreeMap<ClassIx, usize>,
    node_sets: &'l AggregateReservations,
    /// The packing policy.
    pub(crate) packing: Packing,
    /// The requested pods, for the packing policy that considers them.
    demand: Option<&'l Demand<'l>>,
}

/// Nodes of one kind with equal free resources.
pub(crate) struct Group<'l> {
    pub(crate) free: &'l FreeResources,
    pub(crate) nodes: u32,
    /// The classes of the nodes.
    pub(crate) classes: Vec<ClassIx>,
    /// The nodes, in order of name, when the candidates are restricted to specific nodes.
    pub(crate) specific: Vec<NodeIx>,
    kind: usize,
}

/// What distinguishes nodes for the gang.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    /// Which pod sets are eligible.
    open: Vec<bool>,
    /// Which node sets with aggregate reservations contain the nodes.
    node_sets: Vec<bool>,
    /// Which pod kinds may use the nodes, for the packing policy that considers them.
    view: View,
}

impl<'l> CandidateNodes<'l> {
    /// The candidate nodes of a shape.
    pub(crate) fn of(ledger: &'l Ledger<'l>, shape: &'l Shape, node_sets: &'l AggregateReservations) -> Self {
        let pod_sets = &*shape.pod_sets;
        let (packing, demand) = (ledger.world.policy().packing, ledger.demand());
        let mut classes: BTreeMap<Kind, Vec<ClassIx>> = BTreeMap::new();
        for (ix, row) in ledger.world.classes() {
            let may_use =
                |pod_set: &PodSet| pod_set.count > 0 && pod_set.constraints.obstacle(&row.class).is_none();
            let open: Vec<bool> = pod_sets.iter().map(may_use).collect();
            if open.contains(&true) {
                let view = demand.map_or(0, |demand| demand.view(ix));
                classes.entry(Kind { open, node_sets: node_sets.containing(ix), view }).or_default().push(ix);
            }
        }
        let mut groups = Vec::new();
        for (kind, (Kind { open, .. }, classes)) in classes.iter().enumerate() {
            let mut alike: BTreeMap<&FreeResources, (u32, Vec<ClassIx>)> = BTreeMap::new();
            for class in classes {
                for (free, nodes) in ledger.groups(*class) {
                    let mut open = pod_sets.iter().zip(open).filter(|(_, open)| **open);
                    if open.any(|(pod_set, _)| pod_set.fits_in(free)) {
                        let (count, classes) = alike.entry(free).or_default();
                        *count += nodes;
                        if classes.last() != Some(class) {
                            classes.push(*class);
                        }
                    }
                }
            }
            groups.extend(alike.into_iter().map(|(free, (nodes, classes))| Group {
                free,
                nodes,
                classes,
                specific: Vec::new(),
                kind,
            }));
        }
        let kind_of =
            classes.values().enumerate().flat_map(|(kind, all)| all.iter().map(move |ix| (*ix, kind)));
        let kind_of = kind_of.collect();
        let kinds = classes.into_keys().collect();
        let mut candidates = Self { pod_sets, groups, kinds, kind_of, node_sets, packing, demand };
        candidates.exclude_failed_nodes(ledger, &shape.excluded);
        candidates
    }

    fn exclude_failed_nodes(&mut self, ledger: &Ledger<'_>, excluded: &BTreeSet<NodeName>) {
        for node in excluded.iter().filter_map(|name| ledger.world.node_ix(name)) {
            let Some(kind) = ledger.world.class_of(node).and_then(|class| self.kind_of.get(&class)) else {
                continue;
            };
            let mut groups = self.groups.iter_mut();
            if let Some(group) =
                groups.find(|group| group.kind == *kind && group.free == ledger.free_on(node))
            {
                group.nodes = group.nodes.saturating_sub(1);
            }
        }
        self.groups.retain(|group| group.nodes > 0);
    }

    /// Restricts the candidates to specific nodes, given in order of name, for pod sets with other counts.
    pub(crate) fn restricted_to<'n>(
        &self,
        pod_sets: &'n [PodSet],
        nodes: impl Iterator<Item = (NodeIx, ClassIx, &'n FreeResources)>,
    ) -> CandidateNodes<'n>
    where
        'l: 'n,
    {
        let mut groups: BTreeMap<(usize, &FreeResources), Vec<(NodeIx, ClassIx)>> = BTreeMap::new();
        for (node, class, free) in nodes {
            if let Some(kind) = self.kind_of.get(&class) {
                groups.entry((*kind, free)).or_default().push((node, class));
            }
        }
        let groups = groups.into_iter().map(|((kind, free), nodes)| {
            let (specific, classes): (Vec<_>, _) = nodes.into_iter().unzip();
            Group { free, nodes: u32::try_from(specific.len()).unwrap_or(u32::MAX), classes, specific, kind }
        });
        let groups = groups.collect();
        CandidateNodes {
            pod_sets,
            groups,
            kinds: self.kinds.clone(),
            kind_of: self.kind_of.clone(),
            node_sets: self.node_sets,
            packing: self.packing,
            demand: self.demand,
        }
    }

    /// The same nodes where the free resources of some differ from the ledger.
    pub(crate) fn with_remaining(
        mut self,
        ledger: &'l Ledger<'l>,
        left: &'l BTreeMap<NodeIx, FreeResources>,
    ) -> Self {
        for (node, left) in left {
            let Some(class) = ledger.world.class_of(*node) else { continue };
            let Some(&kind) = self.kind_of.get(&class) else { continue };
            let before = ledger.free_on(*node);
            if let Some(group) =
                self.groups.iter_mut().find(|group| group.kind == kind && group.free == before)
            {
                group.nodes = group.nodes.saturating_sub(1);
            }
            match self.groups.iter_mut().find(|group| group.kind == kind && group.free == left) {
                Some(group) => {
                    group.nodes += 1;
                    if !group.classes.contains(&class) {
                        group.classes.push(class);
                    }
                }
                None => self.groups.push(Group {
                    free: left,
                    nodes: 1,
                    classes: vec![class],
                    specific: Vec::new(),
                    kind,
                }),
            }
        }
        self.groups.retain(|group| group.nodes > 0);
        self.groups.sort_by(|one, other| (one.kind, one.free).cmp(&(other.kind, other.free)));
        self
    }

    /// Whether a pod set may use the nodes of a group.
    pub(crate) fn is_open(&self, group: usize, pod_set: usize) -> bool {
        self.kinds[self.groups[group].kind].open[pod_set]
    }

    /// The number of node sets with aggregate reservations that contain the nodes of a group.
    pub(crate) fn node_sets(&self, group: usize) -> usize {
        self.kinds[self.groups[group].kind].node_sets.iter().filter(|inside| **inside).count()
    }

    /// The increase of fragmentation when pods of a set are put onto a node of a group with these free
    /// resources, in the steps of [`Demand::increase`].
    pub(crate) fn fragmentation_increase(
        &self,
        group: usize,
        free: &FreeResources,
        pod_set: &PodSet,
        copies: u32,
    ) -> i128 {
        let Some(demand) = self.demand else { return 0 };
        let view = self.kinds[self.groups[group].kind].view;
        let mut left = free.clone();
        left.take(pod_set, copies);
        demand.increase(view, free, &left)
    }

    /// The number of pods of a set that fit if no other pod set is placed, at most `most`.
    pub(crate) fn room(&self, at: usize, most: u64) -> u64 {
        let pod_set = &self.pod_sets[at];
        let mut room = 0_u64;
        for (_, group) in self.groups.iter().enumerate().filter(|(ix, _)| self.is_open(*ix, at)) {
            let copies = u64::from(pod_set.copies_in(group.free, u32::MAX));
            room = room.saturating_add(copies * u64::from(group.nodes));
            if room >= most {
                return most;
            }
        }
        room
    }

    /// Whether keeping aggregate reservations depends on the placement.
    pub(crate) fn may_break_reservations(&self) -> bool {
        self.kinds.iter().any(|kind| kind.node_sets.contains(&true))
    }

    /// Whether a placement keeps the aggregate reservations.
    pub(crate) fn keeps_reservations(&self, placement: &Placement) -> bool {
        let mut taken: BTreeMap<usize, Sum> = BTreeMap::new();
        for node_load in &placement.node_loads {
            let node_sets = &self.kinds[self.groups[node_load.group].kind].node_sets;
            for at in node_sets.iter().enumerate().filter(|(_, inside)| **inside).map(|(at, _)| at) {
                taken.entry(at).or_default().add_times(&node_load.taken(self.pod_sets), node_load.nodes);
            }
        }
        self.node_sets.stay_satisfied(&taken)
    }
}

/// Whether nodes of a class are eligible for an aggregate reservation; without constraints, all nodes without
/// obstacle.
pub(crate) fn is_eligible(alternatives: &[Constraints], class: &NodeClass) -> bool {
    if alternatives.is_empty() {
        return class.is_open();
    }
    alternatives.iter().any(|constraints| constraints.obstacle(class).is_none())
}
