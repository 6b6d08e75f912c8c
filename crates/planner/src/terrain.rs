//! One gang's view of the nodes: groups of nodes that are alike to it.

use std::collections::BTreeMap;

use model::{ClassIx, Constraints, NodeClass, PodSet, ResourceVec, Shape, Sum};

use crate::ledger::Ledger;
use crate::place::Placement;
use crate::pools::Pools;

/// See the module.
pub(crate) struct Terrain<'l> {
    pub(crate) pod_sets: &'l [PodSet],
    /// The groups on whose nodes at least one pod finds room. Their order is a function of what the nodes are and have
    /// free, so that nothing depends on the history of the world.
    pub(crate) groups: Vec<Group<'l>>,
    kinds: Vec<Kind>,
    pools: &'l Pools,
}

/// Nodes that have the same free vector and are of one kind.
pub(crate) struct Group<'l> {
    pub(crate) free: &'l ResourceVec,
    pub(crate) nodes: u32,
    /// The classes that they are in.
    pub(crate) classes: Vec<ClassIx>,
    kind: usize,
}

/// What the gang can tell nodes apart by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    /// Which pod sets may use them.
    open: Vec<bool>,
    /// Which pools they are in.
    pools: Vec<bool>,
}

impl<'l> Terrain<'l> {
    /// How a gang of this shape sees the ledger.
    pub(crate) fn of(ledger: &'l Ledger<'l>, shape: &'l Shape, pools: &'l Pools) -> Self {
        let pod_sets = &*shape.pod_sets;
        let mut classes: BTreeMap<Kind, Vec<ClassIx>> = BTreeMap::new();
        for (ix, row) in ledger.world.classes() {
            let may_use =
                |pod_set: &PodSet| pod_set.count > 0 && pod_set.constraints.obstacle(&row.class).is_none();
            let open: Vec<bool> = pod_sets.iter().map(may_use).collect();
            if open.contains(&true) {
                classes.entry(Kind { open, pools: pools.around(ix) }).or_default().push(ix);
            }
        }
        let mut groups = Vec::new();
        for (kind, (Kind { open, .. }, classes)) in classes.iter().enumerate() {
            let mut alike: BTreeMap<&ResourceVec, (u32, Vec<ClassIx>)> = BTreeMap::new();
            for class in classes {
                for (free, nodes) in ledger.groups(*class) {
                    let mut open = pod_sets.iter().zip(open).filter(|(_, open)| **open);
                    if open.any(|(pod_set, _)| pod_set.request.fits_in(free)) {
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
                kind,
            }));
        }
        Self { pod_sets, groups, kinds: classes.into_keys().collect(), pools }
    }

    /// Whether the pods of a set may use the nodes of a group.
    pub(crate) fn is_open(&self, group: usize, pod_set: usize) -> bool {
        self.kinds[self.groups[group].kind].open[pod_set]
    }

    /// In how many sets of nodes with promises the nodes of a group are.
    pub(crate) fn pools(&self, group: usize) -> usize {
        self.kinds[self.groups[group].kind].pools.iter().filter(|inside| **inside).count()
    }

    /// For how many pods of a set there is room, if they had it all to themselves; `most` at most.
    pub(crate) fn room(&self, at: usize, most: u64) -> u64 {
        let request = &self.pod_sets[at].request;
        let mut room = 0_u64;
        for (_, group) in self.groups.iter().enumerate().filter(|(ix, _)| self.is_open(*ix, at)) {
            let copies = u64::from(request.copies_in(group.free, u32::MAX));
            room = room.saturating_add(copies * u64::from(group.nodes));
            if room >= most {
                return most;
            }
        }
        room
    }

    /// Whether a placement leaves intact what is promised without a place.
    pub(crate) fn keeps_promises(&self, placement: &Placement) -> bool {
        let mut taken: BTreeMap<usize, Sum> = BTreeMap::new();
        for stack in &placement.stacks {
            let pools = &self.kinds[self.groups[stack.group].kind].pools;
            for at in pools.iter().enumerate().filter(|(_, inside)| **inside).map(|(at, _)| at) {
                let taken = taken.entry(at).or_default();
                for (pod_set, count) in self.pod_sets.iter().zip(&stack.load) {
                    taken.add_times(&pod_set.request.times(*count), stack.nodes);
                }
            }
        }
        self.pools.hold_out(&taken)
    }
}

/// Whether nodes of a class may take pods of an aggregate: all open ones when nobody says which.
pub(crate) fn is_eligible(alternatives: &[Constraints], class: &NodeClass) -> bool {
    if alternatives.is_empty() {
        return class.is_open();
    }
    alternatives.iter().any(|constraints| constraints.obstacle(class).is_none())
}
