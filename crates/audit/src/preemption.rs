//! Preemption: that every victim is allowed and needed.

use std::collections::{BTreeMap, BTreeSet};

use model::{Assignment, Gang, GangState, Places, Plan, Preemption, Snapshot, Verdict, World};

use crate::cluster_state::ClusterState;
use crate::quota::{Assumptions, Flavors};
use crate::violation::Violation;
use crate::{check_placement, elastic, fit, fungibility, queue_order};

/// The uids of gangs that are pending again, or gone, with pods still bound.
pub(crate) fn stopped(world: &World) -> BTreeSet<String> {
    let owners = world.pods().filter_map(|pod| pod.gang.as_ref().map(|(uid, _)| uid));
    let is_stopped = |uid: &&String| world.gang(uid).is_none_or(|gang| gang.state == GangState::Waiting);
    owners.filter(is_stopped).cloned().collect()
}

/// The uids of terminating gangs: stopped ones, and victims of a nominated gang.
pub(crate) fn terminating(world: &World) -> BTreeSet<String> {
    let mut terminating = stopped(world);
    for gang in world.gangs() {
        if let GangState::Nominated(preemption) = &gang.state {
            let holding = |uid: &&str| world.gang(uid).is_some_and(holds_reservation);
            terminating.extend(preemption.victim_uids().filter(holding).map(str::to_owned));
        }
    }
    terminating
}

/// The uids of the victims of what a plan decided before it decided about a gang.
pub(crate) fn victims_before<'p>(plan: &'p Plan, gang: &str) -> impl Iterator<Item = String> + use<'p> {
    let at = plan.verdicts.iter().rposition(|(uid, _)| uid == gang).unwrap_or_default();
    let victims = plan.verdicts[..at].iter().filter_map(|(_, verdict)| match verdict {
        Verdict::Preempt(preemption) => Some(preemption.victim_uids().map(str::to_owned)),
        Verdict::Admit(_) | Verdict::Wait(_) | Verdict::Never(_) => None,
    });
    victims.flatten()
}

fn holds_reservation(gang: &Gang) -> bool {
    matches!(gang.state, GangState::Reserved(_) | GangState::Nominated(_))
}

/// Whether a gang takes the place of another one.
fn is_replaced(gang: &Gang, other: &str) -> bool {
    gang.replaces.as_ref().is_some_and(|replaced| replaced.uid == other)
}

/// The assumptions about preemption for a gang with these flavors.
fn assumptions(
    cluster: &ClusterState<'_>,
    gang: &Gang,
    flavors: &Flavors,
    is_permissive: bool,
) -> Assumptions {
    Assumptions {
        fits_on_nodes: fit::first_fit_with_flavors(cluster, gang, flavors.clone()).is_some(),
        is_permissive,
    }
}

/// Whether `gang` was preempted for `other`, directly or transitively.
fn was_preempted_for(world: &World, other: &str, gang: &str) -> bool {
    let mut before: BTreeSet<&str> = BTreeSet::from([gang]);
    loop {
        let more =
            world.preemption_history().filter(|(victim, by)| before.contains(victim) && !before.contains(by));
        let more: Vec<&str> = more.map(|(_, by)| by).collect();
        if more.is_empty() {
            return other != gang && before.contains(other);
        }
        before.extend(more);
    }
}

/// Checks admissions of nominated gangs: they use the nominated nodes, and these are free.
pub(crate) fn check_nominated(
    cluster: &mut ClusterState<'_>,
    snapshot: &Snapshot<'_>,
    decided: &BTreeMap<&str, &Verdict>,
    found: &mut Vec<Violation>,
) {
    let mut gangs: Vec<&Gang> = snapshot.world.gangs().collect();
    gangs.sort_by(|one, other| queue_order(one, snapshot.now).cmp(&queue_order(other, snapshot.now)));
    // Where quota alone decides, what those behind a gang wait for is not kept from it.
    let is_behind =
        |gang: &&&Gang| matches!(gang.state, GangState::Nominated(_)) && cluster.quotas.is_stepwise(gang);
    let behind: BTreeSet<&str> = gangs.iter().filter(is_behind).map(|gang| gang.uid.as_str()).collect();
    for uid in &behind {
        cluster.suspend(uid);
    }
    let terminating = terminating(snapshot.world);
    let mut awaiting: Vec<&str> = Vec::new();
    for gang in gangs {
        let GangState::Nominated(preemption) = &gang.state else { continue };
        if behind.contains(gang.uid.as_str()) {
            cluster.resume(&gang.uid);
        }
        let Some(Verdict::Admit(assignment)) = decided.get(gang.uid.as_str()) else {
            let waits = behind.contains(gang.uid.as_str()) && !decided.contains_key(gang.uid.as_str());
            awaiting.extend(waits.then_some(gang.uid.as_str()));
            continue;
        };
        let placement = |assignment| elastic::held(gang, assignment).1.pod_sets;
        if placement(assignment) != placement(&preemption.assignment) {
            found.push(Violation::NominationChanged { gang: gang.key.clone() });
        }
        cluster.suspend(&gang.uid);
        let gang = &as_nominated(gang, &preemption.assignment);
        if check_placement(cluster, gang, assignment, found) {
            check_beside(cluster, gang, assignment, &awaiting, &terminating, found);
        }
        cluster.resume(&gang.uid);
    }
}

/// Checks an admission. Where quota alone decides, quota has to be enough now, while the gangs of `awaiting` wait for their victims,
/// and later, when all of `terminating` are gone; not for both at once.
pub(crate) fn check_beside(
    cluster: &mut ClusterState<'_>,
    gang: &Gang,
    assignment: &Assignment,
    awaiting: &[&str],
    terminating: &BTreeSet<String>,
    found: &mut Vec<Violation>,
) {
    let mut together = Vec::new();
    cluster.check(gang, assignment, &mut together);
    if together.is_empty() || !cluster.quotas.is_stepwise(gang) {
        return found.append(&mut together);
    }
    let terminating: Vec<&str> = terminating.iter().map(String::as_str).collect();
    for gone in [awaiting, &*terminating] {
        let gone = gone.iter().filter(|uid| **uid != gang.uid);
        gone.clone().for_each(|uid| cluster.suspend(uid));
        cluster.check(gang, assignment, found);
        gone.for_each(|uid| cluster.resume(uid));
    }
}

/// A nominated gang as it was nominated: with open places, if it asks for them only since.
fn as_nominated(gang: &Gang, assignment: &Assignment) -> Gang {
    let was_open = !assignment.unplaced.is_empty() && assignment.nodes().next().is_none();
    let places = if was_open && gang.places == Places::Requested { Places::Open } else { gang.places };
    Gang { places, ..gang.clone() }
}

/// Checks one preemption: its victims are allowed and needed, and the gang fits without them. Adds the victims to
/// `terminating`.
pub(crate) fn check(
    cluster: &mut ClusterState<'_>,
    world: &World,
    gang: &Gang,
    preemption: &Preemption,
    terminating: &mut BTreeSet<String>,
    found: &mut Vec<Violation>,
) {
    let assignment = &preemption.assignment;
    // A part of the gang may be what preempts.
    let (whole, gang) = (gang, &elastic::as_placed(gang, assignment));
    let fitting = fungibility::fitting(cluster, gang);
    let before: Vec<String> = terminating.iter().cloned().collect();
    let mut victims: Vec<&Gang> = Vec::new();
    for uid in preemption.victim_uids() {
        if was_preempted_for(world, uid, &gang.uid) {
            found.push(Violation::PreemptionCycle { gang: gang.key.clone(), victim: uid.to_owned() });
        }
        let may_be_victim = |victim: &&Gang| !victim.protected && !is_replaced(gang, uid);
        let victim = world.gang(uid).filter(may_be_victim).filter(|victim| holds_reservation(victim));
        let Some(victim) = victim.filter(|_| terminating.insert(uid.to_owned())) else {
            found.push(Violation::NotPreemptible { gang: gang.key.clone(), victim: uid.to_owned() });
            return;
        };
        victims.push(victim);
    }
    for uid in &before {
        cluster.suspend(uid);
    }
    let assumptions = assumptions(cluster, gang, &assignment.flavors, true);
    let reasons = cluster.quotas.reasons(gang, &assignment.flavors, &victims, assumptions);
    for (victim, reasons) in preemption.victims.iter().zip(&reasons) {
        if !reasons.contains(&victim.reason) {
            found.push(Violation::NotPreemptible { gang: gang.key.clone(), victim: victim.uid.clone() });
        }
    }
    check_needed(cluster, gang, assignment, &victims, found);
    for victim in &victims {
        cluster.suspend(&victim.uid);
    }
    let level = fungibility::level_with(cluster, gang, &assignment.flavors);
    if fungibility::is_needless(cluster, gang, (&assignment.flavors, level), &fitting) {
        found.push(Violation::NeedlessPreemption { gang: gang.key.clone() });
    }
    let is_placed = check_placement(cluster, whole, assignment, found);
    let larger_part = is_placed.then(|| elastic::larger_part(cluster, whole, assignment)).flatten();
    if is_placed {
        cluster.check(whole, assignment, found);
    }
    for victim in &victims {
        cluster.resume(&victim.uid);
    }
    if let Some((more, placement)) = larger_part {
        check_larger_part(cluster, &more, placement, &victims, found);
    }
    if is_placed {
        cluster.charge_preemptor(whole, assignment);
    }
    for uid in &before {
        cluster.resume(uid);
    }
}

/// Reports a preemptor that could start with more pods after the same preemption. A larger part may borrow, and then may
/// not preempt the same victims.
fn check_larger_part(
    cluster: &mut ClusterState<'_>,
    more: &Gang,
    placement: Assignment,
    victims: &[&Gang],
    found: &mut Vec<Violation>,
) {
    let assumptions = assumptions(cluster, more, &placement.flavors, false);
    let reasons = cluster.quotas.reasons(more, &placement.flavors, victims, assumptions);
    if reasons.iter().all(|reasons| !reasons.is_empty())
        && cluster.quotas.must_start(more, &placement.flavors, true)
    {
        found.push(Violation::FitsButPending { gang: more.key.clone(), assignment: placement });
    }
}

/// Reports a victim without which the gang fits with the same flavors, if the other victims are allowed without it
/// too.
fn check_needed(
    cluster: &mut ClusterState<'_>,
    gang: &Gang,
    assignment: &Assignment,
    victims: &[&Gang],
    found: &mut Vec<Violation>,
) {
    let assumptions = assumptions(cluster, gang, &assignment.flavors, false);
    for kept_victim in victims {
        let others: Vec<&Gang> =
            victims.iter().copied().filter(|other| other.uid != kept_victim.uid).collect();
        for other in &others {
            cluster.suspend(&other.uid);
        }
        let suffices = cluster.quotas.combinations(gang).contains(&assignment.flavors)
            && fit::first_fit_with_flavors(cluster, gang, assignment.flavors.clone()).is_some();
        for other in &others {
            cluster.resume(&other.uid);
        }
        let reasons = cluster.quotas.reasons(gang, &assignment.flavors, &others, assumptions);
        if suffices && reasons.iter().all(|reasons| !reasons.is_empty()) {
            let (gang, victim) = (gang.key.clone(), kept_victim.uid.clone());
            found.push(Violation::NeedlessVictim { gang, victim });
        }
    }
}

/// A placement of the gang once all terminating gangs are gone, and all gangs that may be preempted for it together.
pub(crate) fn first_fit_with_preemption(
    cluster: &mut ClusterState<'_>,
    world: &World,
    gang: &Gang,
    terminating: &BTreeSet<String>,
) -> Option<Assignment> {
    let combinations = cluster.quotas.combinations_when_empty(gang);
    first_fit_with_preemption_in(cluster, world, gang, terminating, combinations)
}

/// The same with one of these combinations of flavors.
pub(crate) fn first_fit_with_preemption_in(
    cluster: &mut ClusterState<'_>,
    world: &World,
    gang: &Gang,
    terminating: &BTreeSet<String>,
    mut combinations: Vec<Flavors>,
) -> Option<Assignment> {
    if !cluster.quotas.may_preempt(gang) || cluster.quotas.is_order_dependent(gang) {
        return None;
    }
    for uid in terminating {
        cluster.suspend(uid);
    }
    let may_be_victim = |other: &&Gang| {
        !other.protected
            && !is_replaced(gang, &other.uid)
            && holds_reservation(other)
            && !terminating.contains(&other.uid)
            && !was_preempted_for(world, &other.uid, &gang.uid)
    };
    let others: Vec<&Gang> = world.gangs().filter(may_be_victim).collect();
    let placement = loop {
        let Some(flavors) = combinations.pop() else { break None };
        let assumptions = assumptions(cluster, gang, &flavors, false);
        let mut preemptible = |other: &&Gang| {
            cluster
                .quotas
                .reasons(gang, &flavors, &[*other], assumptions)
                .iter()
                .all(|reasons| !reasons.is_empty())
        };
        let victims: Vec<&Gang> = others.iter().copied().filter(|other| preemptible(other)).collect();
        let reasons = cluster.quotas.reasons(gang, &flavors, &victims, assumptions);
        if reasons.iter().any(Vec::is_empty) {
            continue;
        }
        for uid in &victims {
            cluster.suspend(&uid.uid);
        }
        let allowed = cluster.quotas.combinations(gang).contains(&flavors);
        let placement = fit::first_fit_with_flavors(cluster, gang, flavors).filter(|_| allowed);
        for uid in &victims {
            cluster.resume(&uid.uid);
        }
        if placement.is_some() {
            break placement;
        }
    };
    for uid in terminating {
        cluster.resume(uid);
    }
    placement
}
