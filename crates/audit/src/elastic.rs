//! Gangs that run with fewer pods than they request: how many pods may start, and what a running gang still holds.

use model::{Assignment, Gang, PodSet};

use crate::cluster_state::ClusterState;
use crate::fit;
use crate::violation::Violation;

/// A copy of the gang with other pod counts.
pub(crate) fn resized(gang: &Gang, size: impl Fn(usize, &PodSet) -> u32) -> Gang {
    let sets = gang.pod_sets.iter().enumerate();
    let pod_sets = sets.map(|(at, set)| PodSet { count: size(at, set), ..set.clone() }).collect();
    Gang { pod_sets, ..gang.clone() }
}

/// The gang with as many pods as the assignment gives a node.
pub(crate) fn on_nodes(gang: &Gang, assignment: &Assignment) -> Gang {
    resized(gang, |at, _| u32::try_from(assignment.placed(at)).unwrap_or(u32::MAX))
}

/// The gang with as many pods as the assignment has, with or without nodes.
pub(crate) fn as_placed(gang: &Gang, assignment: &Assignment) -> Gang {
    resized(gang, |at, _| u32::try_from(places(assignment, at)).unwrap_or(u32::MAX))
}

/// The gang with the minimum count of every pod set.
pub(crate) fn at_min_count(gang: &Gang) -> Gang {
    resized(gang, |_, set| min_count(set))
}

/// The gang without the pods that succeeded.
pub(crate) fn remaining(gang: &Gang) -> Gang {
    resized(gang, |at, set| set.count - set.count.min(gang.reclaimable.get(at).copied().unwrap_or(0)))
}

fn places(assignment: &Assignment, at: usize) -> u64 {
    let on_nodes = assignment.pod_sets.get(at).into_iter().flatten().map(|(_, count)| u64::from(*count));
    on_nodes.chain(assignment.unplaced.get(at).map(|count| u64::from(*count))).sum()
}

/// The minimum count of a pod set, rounded up to complete slices.
fn min_count(set: &PodSet) -> u32 {
    let slices = set.topology.iter().flat_map(|request| &request.slices);
    let size = slices.map(|slice| slice.size).next().unwrap_or(1).max(1);
    let least = set.min_count.unwrap_or(set.count).max(1).min(set.count);
    (least..=set.count).find(|count| count.is_multiple_of(size)).unwrap_or(set.count)
}

/// What a placed gang still holds: its remaining pods in rank order.
pub(crate) fn held(gang: &Gang, assignment: &Assignment) -> (Gang, Assignment) {
    let mut held = assignment.clone();
    for (at, places) in held.pod_sets.iter_mut().enumerate() {
        let done = gang.reclaimable.get(at).copied().unwrap_or(0);
        let wanted = gang.pod_sets.get(at).map_or(0, |set| set.count.saturating_sub(done));
        let pods = places.iter().flat_map(|(node, count)| (0..*count).map(move |_| node.clone()));
        *places = pods.take(usize::try_from(wanted).unwrap_or(usize::MAX)).map(|node| (node, 1)).collect();
        let rest = wanted - wanted.min(places.len().try_into().unwrap_or(u32::MAX));
        if let Some(unplaced) = held.unplaced.get_mut(at) {
            *unplaced = rest.min(*unplaced);
        }
    }
    (as_placed(gang, &held), held)
}

/// Reports a gang that starts with fewer pods than its minimum count, or with more than it requests.
pub(crate) fn check_counts(gang: &Gang, assignment: &Assignment, found: &mut Vec<Violation>) {
    for (at, set) in gang.pod_sets.iter().enumerate() {
        let placed = places(assignment, at);
        if placed > u64::from(set.count) || placed < u64::from(min_count(set)) {
            let (gang, pod_set) = (gang.key.clone(), set.name.clone());
            found.push(Violation::WrongCount { gang, pod_set, wanted: set.count, placed });
        }
    }
}

/// For a gang that starts with fewer pods than it requests: a part that has more pods, and its placement.
pub(crate) fn larger_part(
    cluster: &ClusterState<'_>,
    gang: &Gang,
    assignment: &Assignment,
) -> Option<(Gang, Assignment)> {
    let reduced: Vec<usize> = (0..gang.pod_sets.len())
        .filter(|at| places(assignment, *at) < u64::from(gang.pod_sets[*at].count))
        .collect();
    let [at] = *reduced.as_slice() else { return None };
    let more = resized(gang, |other, set| {
        let size = if min_count(&PodSet { min_count: Some(1), ..set.clone() }) > 1 { set.count } else { 1 };
        if other == at {
            u32::try_from(places(assignment, at)).unwrap_or(u32::MAX).saturating_add(size).min(set.count)
        } else {
            set.count
        }
    });
    if cluster.quotas.may_be_held(gang) {
        return None;
    }
    let placement = fit::first_fit(cluster, &more)?;
    Some((more, placement))
}
