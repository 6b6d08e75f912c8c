//! One gang's view of the nodes: groups of nodes that are alike to it.

use std::collections::{BTreeMap, BTreeSet};

use model::{ClassIx, Constraints, NodeClass, NodeIx, NodeName, Packing, PodSet, Room, Shape, Sum};

use crate::aggregate_reservations::AggregateReservations;
use crate::fragmentation::{Demand, View};
use crate::ledger::Ledger;
use crate::place::Placement;

/// See the module.
pub(crate) struct CandidateNodes<'l> {
    pub(crate) pod_sets: &'l [PodSet],
    /// The groups on whose nodes at least one pod finds room. Their order is a function of what the nodes are and have
    /// free, so that nothing depends on the history of the world.
    pub(crate) groups: Vec<Group<'l>>,
    kinds: Vec<Kind>,
    /// The kinds of the classes with nodes for at least one pod set.
    kind_of: BTreeMap<ClassIx, usize>,
    node_sets: &'l AggregateReservations,
    /// Which nodes to prefer.
    pub(crate) packing: Packing,
    /// What is asked for, where the policy looks at it.
    demand: Option<&'l Demand<'l>>,
}

/// Nodes that have the same room and are of one kind.
pub(crate) struct Group<'l> {
    pub(crate) free: &'l Room,
    pub(crate) nodes: u32,
    /// The classes that they are in.
    pub(crate) classes: Vec<ClassIx>,
    /// The nodes themselves, by name, where just some of the groups of the world are looked at.
    pub(crate) named: Vec<NodeIx>,
    kind: usize,
}

/// What the gang can tell nodes apart by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    /// Which pod sets may use them.
    open: Vec<bool>,
    /// Which node_sets they are in.
    node_sets: Vec<bool>,
    /// How others see them, where the policy looks at that.
    view: View,
}

impl<'l> CandidateNodes<'l> {
    /// How a gang of this shape sees the ledger.
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
                classes.entry(Kind { open, node_sets: node_sets.around(ix), view }).or_default().push(ix);
            }
        }
        let mut groups = Vec::new();
        for (kind, (Kind { open, .. }, classes)) in classes.iter().enumerate() {
            let mut alike: BTreeMap<&Room, (u32, Vec<ClassIx>)> = BTreeMap::new();
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
                named: Vec::new(),
                kind,
            }));
        }
        let kind_of =
            classes.values().enumerate().flat_map(|(kind, all)| all.iter().map(move |ix| (*ix, kind)));
        let kind_of = kind_of.collect();
        let kinds = classes.into_keys().collect();
        let mut candidates = Self { pod_sets, groups, kinds, kind_of, node_sets, packing, demand };
        candidates.leave_out(ledger, &shape.excluded);
        candidates
    }

    fn leave_out(&mut self, ledger: &Ledger<'_>, excluded: &BTreeSet<NodeName>) {
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

    /// Just some of the nodes, in the order of their names, as pod sets of other counts see them.
    pub(crate) fn narrowed<'n>(
        &self,
        pod_sets: &'n [PodSet],
        nodes: impl Iterator<Item = (NodeIx, ClassIx, &'n Room)>,
    ) -> CandidateNodes<'n>
    where
        'l: 'n,
    {
        let mut groups: BTreeMap<(usize, &Room), Vec<(NodeIx, ClassIx)>> = BTreeMap::new();
        for (node, class, free) in nodes {
            if let Some(kind) = self.kind_of.get(&class) {
                groups.entry((*kind, free)).or_default().push((node, class));
            }
        }
        let groups = groups.into_iter().map(|((kind, free), nodes)| {
            let (named, classes): (Vec<_>, _) = nodes.into_iter().unzip();
            Group { free, nodes: u32::try_from(named.len()).unwrap_or(u32::MAX), classes, named, kind }
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

    /// The same nodes after some of them were given less, or more, than the ledger says.
    pub(crate) fn with_left(mut self, ledger: &'l Ledger<'l>, left: &'l BTreeMap<NodeIx, Room>) -> Self {
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
                    named: Vec::new(),
                    kind,
                }),
            }
        }
        self.groups.retain(|group| group.nodes > 0);
        self.groups.sort_by(|one, other| (one.kind, one.free).cmp(&(other.kind, other.free)));
        self
    }

    /// Whether the pods of a set may use the nodes of a class.
    pub(crate) fn opens(&self, class: ClassIx, pod_set: usize) -> bool {
        self.kind_of.get(&class).is_some_and(|kind| self.kinds[*kind].open[pod_set])
    }

    /// Whether the pods of a set may use the nodes of a group.
    pub(crate) fn is_open(&self, group: usize, pod_set: usize) -> bool {
        self.kinds[self.groups[group].kind].open[pod_set]
    }

    /// In how many sets of nodes with promises the nodes of a group are.
    pub(crate) fn node_sets(&self, group: usize) -> usize {
        self.kinds[self.groups[group].kind].node_sets.iter().filter(|inside| **inside).count()
    }

    /// How much more is lost to others when pods of a set are put onto a node of a group that has this much free by now; in
    /// the steps of [`Demand::loses`].
    pub(crate) fn loses(&self, group: usize, free: &Room, pod_set: &PodSet, copies: u32) -> i128 {
        let Some(demand) = self.demand else { return 0 };
        let view = self.kinds[self.groups[group].kind].view;
        let mut left = free.clone();
        left.take(pod_set, copies);
        demand.loses(view, free, &left)
    }

    /// For how many pods of a set there is room, if they had it all to themselves; `most` at most.
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

    /// Whether it depends on the placement if promises without a place are kept.
    pub(crate) fn may_break_promises(&self) -> bool {
        self.kinds.iter().any(|kind| kind.node_sets.contains(&true))
    }

    /// Whether a placement leaves intact what is promised without a place.
    pub(crate) fn keeps_promises(&self, placement: &Placement) -> bool {
        let mut taken: BTreeMap<usize, Sum> = BTreeMap::new();
        for stack in &placement.stacks {
            let node_sets = &self.kinds[self.groups[stack.group].kind].node_sets;
            for at in node_sets.iter().enumerate().filter(|(_, inside)| **inside).map(|(at, _)| at) {
                taken.entry(at).or_default().add_times(&stack.taken(self.pod_sets), stack.nodes);
            }
        }
        self.node_sets.hold_out(&taken)
    }
}

/// Whether nodes of a class may take pods of an aggregate: all open ones when nobody says which.
pub(crate) fn is_eligible(alternatives: &[Constraints], class: &NodeClass) -> bool {
    if alternatives.is_empty() {
        return class.is_open();
    }
    alternatives.iter().any(|constraints| constraints.obstacle(class).is_none())
}
