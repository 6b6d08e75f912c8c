//! Flavor fungibility: a gang preempts although it fits in other flavors exactly where its queue prefers that.

use std::collections::BTreeSet;

use model::{FlavorFungibility, FlavorFungibilityPolicy, FlavorFungibilityPreference, Gang, Queue, World};

use crate::cluster_state::ClusterState;
use crate::quota::Flavors;
use crate::violation::Violation;
use crate::{fairness, fit, preemption};

/// The number of flavor combinations that are compared.
const COMBINATIONS: usize = 16;

/// The combinations of flavors with which a gang fits now: their index in the order of its queue, and the level at
/// which the gang would borrow.
pub(crate) fn fitting(cluster: &ClusterState<'_>, gang: &Gang) -> Vec<(usize, usize)> {
    let allowed = cluster.quotas.combinations(gang);
    let fits = |flavors: &Flavors| {
        allowed.contains(flavors) && fit::first_fit_with_flavors(cluster, gang, flavors.clone()).is_some()
    };
    let all = cluster.quotas.all_combinations(gang);
    let fitting = all.iter().enumerate().filter(|(_, flavors)| fits(flavors));
    fitting.map(|(at, flavors)| (at, level_with(cluster, gang, flavors))).collect()
}

/// Whether a gang that preempts with flavors of this borrowing level may not do so, since its queue prefers flavors
/// with which it fits.
pub(crate) fn is_needless(
    cluster: &ClusterState<'_>,
    gang: &Gang,
    (chosen, level): (&Flavors, usize),
    fitting: &[(usize, usize)],
) -> bool {
    let Some(queue) = cluster.world().queues().get(&gang.queue) else { return false };
    let all = cluster.quotas.all_combinations(gang);
    let Some(at) = all.iter().position(|flavors| flavors == chosen) else { return false };
    let FlavorFungibility { when_can_preempt, .. } = queue.fungibility;
    let may_preempt_first = when_can_preempt == FlavorFungibilityPolicy::MayStopSearch;
    // The flavor at which the search stops is taken, also behind a better one.
    let stops = may_preempt_first && (level == 0 || !tries_next_when_borrowing(queue));
    fitting.iter().any(|(other, other_level)| {
        let (other, other_level) = (*other, *other_level);
        let is_better = rank(queue, 0, other_level) < rank(queue, 1, level);
        let ends_search = other_level == 0 || !tries_next_when_borrowing(queue);
        // A gang whose flavors are chosen one after another takes no choice back for other flavors.
        let must_start = || cluster.quotas.must_start(gang, &all[other], false);
        match other.cmp(&at) {
            std::cmp::Ordering::Equal => true,
            _ if !must_start() => false,
            std::cmp::Ordering::Less => ends_search || !stops && is_better,
            std::cmp::Ordering::Greater => !may_preempt_first && is_better,
        }
    })
}

/// Reports an admission with flavors behind others in which the queue would have preempted first.
pub(crate) fn check_admitted(
    cluster: &mut ClusterState<'_>,
    world: &World,
    gang: &Gang,
    chosen: &Flavors,
    terminating: &BTreeSet<String>,
    found: &mut Vec<Violation>,
) {
    let Some(queue) = world.queues().get(&gang.queue) else { return };
    let FlavorFungibility { when_can_preempt, .. } = queue.fungibility;
    if when_can_preempt != FlavorFungibilityPolicy::MayStopSearch || tries_next_when_borrowing(queue) {
        return;
    }
    let mut before = cluster.quotas.all_combinations(gang);
    let at = before.iter().position(|flavors| flavors == chosen).filter(|_| before.len() <= COMBINATIONS);
    before.truncate(at.unwrap_or(0));
    let preempted = preemption::first_fit_with_preemption_in(cluster, world, gang, terminating, before);
    if preempted.is_some_and(|before| cluster.quotas.must_start(gang, &before.flavors, true)) {
        found.push(Violation::FlavorPassedOver { gang: gang.key.clone() });
    }
}

/// The level at which a gang borrows with these flavors.
pub(crate) fn level_with(cluster: &ClusterState<'_>, gang: &Gang, flavors: &Flavors) -> usize {
    let queue = cluster.world().queues().get(&gang.queue);
    let Some(node) = queue.and_then(|queue| queue.quota.as_deref()) else { return 0 };
    let charges = cluster.quotas.charges_at(gang, flavors, node);
    let levels =
        charges.iter().map(|(of, more)| fairness::borrowing_height(&cluster.quotas, node, *of, *more));
    levels.max().unwrap_or(0)
}

fn tries_next_when_borrowing(queue: &Queue) -> bool {
    queue.fungibility.when_can_borrow == FlavorFungibilityPolicy::TryNextFlavor
}

fn rank(queue: &Queue, mode: usize, level: usize) -> (usize, usize) {
    match queue.fungibility.preference {
        FlavorFungibilityPreference::BorrowingOverPreemption => (mode, level),
        FlavorFungibilityPreference::PreemptionOverBorrowing => (level, mode),
    }
}
