//! Gangs that run with fewer pods than they ask for: how many may start, and what those who run still hold.

use model::{Assignment, Gang, PodSet};

use crate::books::Books;
use crate::rules;
use crate::violation::Violation;

/// A gang with pod sets of other sizes.
pub(crate) fn resized(gang: &Gang, size: impl Fn(usize, &PodSet) -> u32) -> Gang {
    let sets = gang.pod_sets.iter().enumerate();
    let pod_sets = sets.map(|(at, set)| PodSet { count: size(at, set), ..set.clone() }).collect();
    Gang { pod_sets, ..gang.clone() }
}

/// The gang as large as its places make it.
pub(crate) fn as_placed(gang: &Gang, assignment: &Assignment) -> Gang {
    resized(gang, |at, _| u32::try_from(places(assignment, at)).unwrap_or(u32::MAX))
}

/// The gang as small as it may start.
pub(crate) fn least(gang: &Gang) -> Gang {
    resized(gang, |_, set| least_of(set))
}

/// The gang without the pods that succeeded.
pub(crate) fn remaining(gang: &Gang) -> Gang {
    resized(gang, |at, set| set.count - set.count.min(gang.reclaimable.get(at).copied().unwrap_or(0)))
}

fn places(assignment: &Assignment, at: usize) -> u64 {
    assignment.pod_sets.get(at).into_iter().flatten().map(|(_, count)| u64::from(*count)).sum()
}

/// The fewest pods of a set, which have to make whole slices.
fn least_of(set: &PodSet) -> u32 {
    let slices = set.topology.iter().flat_map(|request| &request.slices);
    let size = slices.map(|slice| slice.size).next().unwrap_or(1).max(1);
    let least = set.count_min.unwrap_or(set.count).max(1).min(set.count);
    (least..=set.count).find(|count| count.is_multiple_of(size)).unwrap_or(set.count)
}

/// What a gang that was given places still holds: pod by pod in the order of ranks, as many as it has left.
pub(crate) fn held(gang: &Gang, assignment: &Assignment) -> (Gang, Assignment) {
    let mut held = assignment.clone();
    for (at, places) in held.pod_sets.iter_mut().enumerate() {
        let done = gang.reclaimable.get(at).copied().unwrap_or(0);
        let wanted = gang.pod_sets.get(at).map_or(0, |set| set.count.saturating_sub(done));
        let pods = places.iter().flat_map(|(node, count)| (0..*count).map(move |_| node.clone()));
        *places = pods.take(usize::try_from(wanted).unwrap_or(usize::MAX)).map(|node| (node, 1)).collect();
    }
    (as_placed(gang, &held), held)
}

/// Notes a gang that starts with fewer pods than it may, or than plainly fit.
pub(crate) fn check(books: &Books<'_>, gang: &Gang, assignment: &Assignment, found: &mut Vec<Violation>) {
    for (at, set) in gang.pod_sets.iter().enumerate() {
        let placed = places(assignment, at);
        if placed > u64::from(set.count) || placed < u64::from(least_of(set)) {
            let (gang, pod_set) = (gang.key.clone(), set.name.clone());
            found.push(Violation::WrongCount { gang, pod_set, wanted: set.count, placed });
        }
    }
    let cut: Vec<usize> = (0..gang.pod_sets.len())
        .filter(|at| places(assignment, *at) < u64::from(gang.pod_sets[*at].count))
        .collect();
    let [at] = *cut.as_slice() else { return };
    let more = resized(gang, |other, set| {
        let size = if least_of(&PodSet { count_min: Some(1), ..set.clone() }) > 1 { set.count } else { 1 };
        if other == at {
            u32::try_from(places(assignment, at)).unwrap_or(u32::MAX).saturating_add(size).min(set.count)
        } else {
            set.count
        }
    });
    if let Some(assignment) = rules::first_fit(books, &more) {
        found.push(Violation::Overlooked { gang: gang.key.clone(), assignment });
    }
}
