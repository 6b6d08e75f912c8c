//! What is free in the course of one pass: the world, less what this pass has given away. An overlay, never a copy.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use model::{Assignment, ClassIx, Constraints, NodeIx, ResourceVec, Shape, Sum, World};

use crate::place::Placement;

type Name = (Arc<str>, NodeIx);

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Ledger<'a> {
    pub(crate) world: &'a World,
    classes: BTreeMap<ClassIx, Overlay>,
    aggregates: BTreeMap<Arc<[Constraints]>, Sum>,
}

#[derive(Clone, Debug, Default)]
struct Overlay {
    /// Of which groups of the world nodes were taken: always the first by name, so the last one says it all.
    taken: BTreeMap<ResourceVec, (u32, Name)>,
    /// Nodes that this pass has moved, by what they have free now.
    moved: BTreeMap<ResourceVec, BTreeSet<Name>>,
    /// What this pass has given away.
    given: Sum,
}

impl<'a> Ledger<'a> {
    /// The world as it is.
    pub(crate) fn of(world: &'a World) -> Self {
        Self { world, classes: BTreeMap::new(), aggregates: BTreeMap::new() }
    }

    /// The groups of one class: what their nodes have free, and how many they are. A free vector may come twice.
    pub(crate) fn groups(&self, class: ClassIx) -> impl Iterator<Item = (&ResourceVec, u32)> {
        let overlay = self.classes.get(&class);
        let settled = self.world.class(class).groups.iter().map(move |(free, nodes)| {
            let taken = overlay.and_then(|overlay| overlay.taken.get(free)).map_or(0, |(count, _)| *count);
            (free, counted(nodes.len()).saturating_sub(taken))
        });
        let moved = overlay.into_iter().flat_map(|overlay| &overlay.moved);
        let moved = moved.map(|(free, nodes)| (free, counted(nodes.len())));
        settled.chain(moved).filter(|(_, nodes)| *nodes > 0)
    }

    /// What the nodes of a class have free together.
    pub(crate) fn free(&self, class: ClassIx) -> Sum {
        let mut free = self.world.class(class).free.clone();
        if let Some(overlay) = self.classes.get(&class) {
            free.sub_sum(&overlay.given);
        }
        free
    }

    /// All promises that name no node, by the nodes that are eligible for them.
    pub(crate) fn aggregates(&self) -> BTreeMap<&[Constraints], Sum> {
        let mut all: BTreeMap<&[Constraints], Sum> = BTreeMap::new();
        for aggregate in self.world.aggregates() {
            all.entry(&aggregate.eligible).or_default().add_sum(&aggregate.promised);
        }
        for (eligible, promised) in &self.aggregates {
            all.entry(eligible).or_default().add_sum(promised);
        }
        all
    }

    /// Gives a gang what it was placed on, and names the nodes: the first ones by name of each group.
    pub(crate) fn reserve(&mut self, shape: &Shape, placement: &Placement) -> Assignment {
        let mut assignment = Assignment { pod_sets: vec![Vec::new(); shape.pod_sets.len()] };
        for stack in &placement.stacks {
            let mut taken = ResourceVec::new();
            for (pod_set, count) in shape.pod_sets.iter().zip(&stack.load) {
                taken.add(&pod_set.request.times(*count));
            }
            for _ in 0..stack.nodes {
                let (class, (name, node)) = self.take(&stack.classes, &stack.free);
                for (places, count) in assignment.pod_sets.iter_mut().zip(&stack.load) {
                    if *count > 0 {
                        places.push((name.to_string(), *count));
                    }
                }
                let mut left = stack.free.clone();
                left.sub(&taken);
                let overlay = self.classes.entry(class).or_default();
                overlay.moved.entry(left).or_default().insert((name, node));
                overlay.given.add(&taken);
            }
        }
        assignment.pod_sets.iter_mut().for_each(|places| places.sort());
        let excess = shape.excess();
        if !excess.is_zero() {
            self.aggregates.entry(shape.alternatives().into()).or_default().add(&excess);
        }
        assignment
    }

    /// Takes the first node by name out of the groups of some classes that have the same free vector.
    fn take(&mut self, classes: &[ClassIx], free: &ResourceVec) -> (ClassIx, Name) {
        let firsts = classes
            .iter()
            .filter_map(|&class| self.first(class, free).map(|(name, moved)| (name, class, moved)));
        let (name, class, moved) =
            firsts.min().expect("a placement takes no more nodes than its groups have");
        let name = name.clone();
        let overlay = self.classes.entry(class).or_default();
        if !moved {
            let taken = overlay.taken.entry(free.clone()).or_insert_with(|| (0, name.clone()));
            *taken = (taken.0 + 1, name.clone());
        } else if let Some(nodes) = overlay.moved.get_mut(free) {
            nodes.remove(&name);
            if nodes.is_empty() {
                overlay.moved.remove(free);
            }
        }
        (class, name)
    }

    /// The first node by name of one group, and whether this pass has put it there.
    fn first(&self, class: ClassIx, free: &ResourceVec) -> Option<(&Name, bool)> {
        let overlay = self.classes.get(&class);
        let last = overlay.and_then(|overlay| overlay.taken.get(free)).map(|(_, last)| last);
        let after = last.map_or(Bound::Unbounded, Bound::Excluded);
        let settled = self.world.class(class).groups.get(free);
        let settled = settled.and_then(|nodes| nodes.range((after, Bound::Unbounded)).next());
        let moved = overlay.and_then(|overlay| overlay.moved.get(free)).and_then(BTreeSet::first);
        settled.map(|name| (name, false)).into_iter().chain(moved.map(|name| (name, true))).min()
    }
}

fn counted(nodes: usize) -> u32 {
    u32::try_from(nodes).unwrap_or(u32::MAX)
}
