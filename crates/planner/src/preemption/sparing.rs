//! Gangs to spare because the preemptor needs their pods. The search for victims assumes that fewer pods leave more room.
//! Affinity and spread constraints may need pods of gangs that may be preempted, so where the search finds no victims, it is
//! repeated without some of these gangs.

use std::collections::BTreeSet;

use model::{Gang, SelectorIx, Shape, World};

use crate::preemption::cost::Candidate;

/// Up to this number of gangs with needed pods, all sets of them are spared in turn.
const ALL_SETS_MAX: usize = 4;

/// The sets of candidates to spare in turn, by index; none if no candidate has a pod that the rules of the shape count.
pub(super) fn spared_sets(
    world: &World,
    shape: &Shape,
    candidates: &[Candidate<'_>],
) -> Vec<BTreeSet<usize>> {
    let selectors = needed(shape);
    if selectors.is_empty() {
        return Vec::new();
    }
    let counts = |at: &usize| is_counted(world, candidates[*at].gang, &selectors);
    let counted: Vec<usize> = (0..candidates.len()).filter(counts).collect();
    if counted.len() <= ALL_SETS_MAX {
        let sets = 1..1_usize << counted.len();
        let chosen = |bits: usize| (0..counted.len()).filter(move |at| bits >> at & 1 == 1);
        return sets.map(|bits| chosen(bits).map(|at| counted[at]).collect()).collect();
    }
    // Of many: all, each of the dearest, and all but each of the cheapest.
    let all: BTreeSet<usize> = counted.iter().copied().collect();
    let dearest = counted.iter().rev().take(ALL_SETS_MAX).map(|at| BTreeSet::from([*at]));
    let cheapest = counted.iter().take(ALL_SETS_MAX).map(|at| {
        let mut others = all.clone();
        others.remove(at);
        others
    });
    let sets: Vec<_> = dearest.chain(cheapest).collect();
    std::iter::once(all).chain(sets).collect()
}

/// The selectors of the pods that a shape may need.
fn needed(shape: &Shape) -> BTreeSet<SelectorIx> {
    let rules = || shape.pod_sets.iter().filter(|set| set.count > 0).filter_map(|set| set.rules.as_deref());
    let near = rules().filter_map(|rules| rules.affinity.as_ref()).map(|affinity| affinity.selector);
    let spread = rules().flat_map(|rules| &rules.spread).map(|constraint| constraint.selector);
    near.chain(spread).collect()
}

/// Whether one of the selectors selects a pod of a gang.
fn is_counted(world: &World, gang: &Gang, selectors: &BTreeSet<SelectorIx>) -> bool {
    let planned = gang.pod_sets.iter().filter_map(|set| set.rules.as_deref());
    let bound = world.pods_of(&gang.uid).filter_map(|pod| pod.rules.as_deref());
    planned.chain(bound).any(|rules| !rules.selected_by.is_disjoint(selectors))
}
