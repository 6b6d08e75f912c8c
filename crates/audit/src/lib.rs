//! An independent check of plans: [`violations`] derives every rule again from the snapshot, without code of the
//! planner.
//!
//! It uses the types of `model` and none of its indexes. Free resources are counted from nodes, pods and gangs, one
//! by one and slowly. It is meant for tests, replays and debugging, not for every scheduling cycle.
//!
//! - `cluster_state`: usage of nodes and quota while a plan is replayed;
//! - `elastic`: gangs that start or continue with fewer pods;
//! - `fairness`: admission order between queues that share a quota tree;
//! - `fungibility`: in which flavors a gang may preempt although it fits in others;
//! - `fit`: node eligibility, and a first fit that proves that a gang fits;
//! - `guessed_hold`: how long reserved starts that rely on guessed ends hold others back, and whom;
//! - `held_quota`: quota that the first gang of a strict queue holds while it waits;
//! - `node_resources`: free resources of one node, device by device;
//! - `nomination`: that gangs behind one that waits for its victims wait, too, where quota alone decides;
//! - `pod_rules`: rules between pods;
//! - `preemption`: that victims are allowed and needed;
//! - `quota`: limits of quota nodes, queues and flavors;
//! - `quota_only`: pods that are charged to quota and get no node;
//! - `reservation`: that backfill delays no reserved gang;
//! - `scale_up`: running gangs that get more pods, or replace pods on unhealthy nodes;
//! - `slip`: that reservations that moved are reported with a true cause;
//! - `strict_fifo`: that no gang is admitted ahead of the head of a strict queue;
//! - `topology`: topology requests, and a first fit for them;
//! - `usage_order`: that local queues are served in the order of their usage;
//! - `violation`: the rules, as one enum.

#![deny(clippy::float_arithmetic, clippy::float_cmp)]

mod cluster_state;
mod elastic;
mod fairness;
mod fit;
mod fungibility;
mod guessed_hold;
mod held_quota;
mod node_resources;
mod nomination;
mod pod_rules;
mod preemption;
mod quota;
mod quota_only;
mod reservation;
mod scale_up;
mod slip;
mod strict_fifo;
mod topology;
mod usage_order;
mod violation;

use std::collections::{BTreeMap, BTreeSet};

use model::{Assignment, Gang, GangState, Plan, PodSet, QueueIx, Snapshot, Time, Verdict};

use crate::cluster_state::ClusterState;
use crate::fairness::Contenders;
use crate::held_quota::HoldingHeads;
use crate::nomination::Awaiting;
use crate::strict_fifo::StrictQueueHeads;
pub use crate::violation::Violation;

/// All violations of a plan for a snapshot. A valid plan has none.
///
/// The rules:
///
/// - only pending and nominated gangs, and gangs that scale up, have verdicts, at most one each;
/// - every pod of an admitted gang has exactly one node, which exists, is eligible, and has the resources free beside
///   bound pods and reservations; or none, exactly where its flavors are quota-only or its places are open, and the
///   plan tells whether nodes have room for it;
/// - the rules between pods hold for all pods and places together, and each pod can be bound in any order;
/// - aggregate reservations stay satisfiable;
/// - admissions follow queue order, and no gang stays pending although first fit places it at its position;
/// - a gang with the verdict `Never` does not fit on empty nodes;
/// - no quota node is exceeded, and pods are on nodes of their flavors;
/// - every pending gang has a verdict;
/// - every victim is allowed by the reported reason, and needed: see `preemption`.
pub fn violations(snapshot: &Snapshot<'_>, plan: &Plan) -> Vec<Violation> {
    let world = snapshot.world;
    let mut found = Vec::new();
    let mut decided: BTreeMap<&str, &Verdict> = BTreeMap::new();
    for (uid, verdict) in &plan.verdicts {
        let Some(gang) = world.gang(uid) else {
            found.push(Violation::UnknownGang { uid: uid.clone() });
            continue;
        };
        let confirms_nomination = matches!(verdict, Verdict::Admit(_) | Verdict::Wait(_));
        let nominated = matches!(gang.state, GangState::Nominated(_));
        let is_scale_up =
            scale_up::scale_up_request(gang).is_some() && !matches!(verdict, Verdict::Preempt(_));
        if gang.state != GangState::Waiting && !(nominated && confirms_nomination) && !is_scale_up {
            found.push(Violation::NotPending { gang: gang.key.clone() });
        } else if decided.insert(uid, verdict).is_some() {
            found.push(Violation::DecidedTwice { gang: gang.key.clone() });
        }
    }
    let mut pending: Vec<&Gang> = world.gangs().filter(|gang| gang.state == GangState::Waiting).collect();
    pending.sort_by(|one, other| queue_order(one, snapshot.now).cmp(&queue_order(other, snapshot.now)));
    let strict_heads = StrictQueueHeads::of(snapshot, plan, &pending);
    strict_heads.check(plan, &pending, &mut found);

    slip::check(snapshot, plan, &mut found);
    let mut cluster = ClusterState::of(world);
    let awaiting = Awaiting::of(snapshot, &cluster.quotas, &decided);
    awaiting.check(plan, &mut found);
    let awaiting_uids = awaiting.uids();
    let holding = HoldingHeads::of(&cluster, &strict_heads);
    cluster.quotas.set_holding(&holding.roots());
    check_admission_order(&cluster, plan, &pending, &mut found);
    usage_order::check(snapshot, plan, &pending, &mut found);
    preemption::check_nominated(&mut cluster, snapshot, &decided, &mut found);
    let mut terminating = preemption::terminating(world);
    let terminating_before = terminating.clone();
    let stopped = preemption::stopped(world);
    if reservation::backfill_reserves(world) {
        reservation::check(&mut cluster, snapshot, plan, &pending, &strict_heads, &decided, &mut found);
        if !plan.verdicts.is_empty() {
            guessed_hold::check(&cluster, snapshot, plan, &decided, &mut found);
        }
    }
    let mut may_be_held_back = false;
    let mut infeasible: BTreeSet<fit::EquivalenceClass<'_>> = BTreeSet::new();
    let mut contenders = Contenders::of(world, plan, &pending);
    let scale_up_requests: Vec<Gang> = world.gangs().filter_map(scale_up::scale_up_request).collect();
    let sequence = fairness::sequence(world, &cluster.quotas, plan, &pending);
    for (at, gang) in scale_up::merge_into_sequence(&cluster, snapshot, plan, sequence, &scale_up_requests) {
        let Some(at) = at else {
            if !terminating.contains(&gang.uid) {
                scale_up::check(
                    &mut cluster,
                    gang,
                    decided.get(gang.uid.as_str()).copied(),
                    may_be_held_back,
                    &mut found,
                );
            }
            continue;
        };
        let class = fit::EquivalenceClass::of(gang);
        let is_terminating = world.pods_of(&gang.uid).any(|pod| pod.node.is_some());
        if is_terminating {
            if decided.get(gang.uid.as_str()).is_some_and(|verdict| verdict.shortage().is_none()) {
                found.push(Violation::StillTerminating { gang: gang.key.clone() });
            }
            continue;
        }
        match decided.get(gang.uid.as_str()) {
            Some(Verdict::Admit(assignment)) => {
                contenders.check(&cluster, gang, &mut found);
                let goes_before =
                    |head: &Gang| queue_order(head, snapshot.now) < queue_order(gang, snapshot.now);
                let may_wait = |head: &Gang| {
                    let verdict =
                        decided.get(head.uid.as_str()).copied().or_else(|| world.verdict(&head.uid));
                    matches!(verdict, Some(Verdict::Wait(_)))
                };
                holding.check(&cluster, gang, may_wait, goes_before, &mut found);
                if check_placement(&cluster, gang, assignment, &mut found) {
                    let flavors = &assignment.flavors;
                    let more = elastic::larger_part(&cluster, gang, assignment);
                    let more = more.filter(|(more, placement)| {
                        cluster.quotas.must_start(more, &placement.flavors, false)
                    });
                    found.extend(more.map(|(_, assignment)| Violation::FitsButPending {
                        gang: gang.key.clone(),
                        assignment,
                    }));
                    fungibility::check_admitted(&mut cluster, world, gang, flavors, &terminating, &mut found);
                    preemption::check_beside(
                        &mut cluster,
                        gang,
                        assignment,
                        &awaiting_uids,
                        &terminating,
                        &mut found,
                    );
                    cluster.charge(gang, assignment);
                }
                continue;
            }
            Some(Verdict::Preempt(preemption)) => {
                if gang.gated {
                    found.push(Violation::Gated { gang: gang.key.clone() });
                }
                contenders.check(&cluster, gang, &mut found);
                preemption::check(&mut cluster, world, gang, preemption, &mut terminating, &mut found);
                continue;
            }
            Some(Verdict::Never(_)) if fit::would_fit_when_empty(&cluster, &elastic::at_min_count(gang)) => {
                found.push(Violation::WronglyInfeasible { gang: gang.key.clone() });
            }
            None if world.verdict(&gang.uid).is_none() => {
                found.push(Violation::VerdictMissing { gang: gang.key.clone() });
            }
            Some(Verdict::Wait(_) | Verdict::Never(_)) | None => {}
        }
        let awaits_turn = awaiting.first_before(gang).is_some();
        if awaits_turn || strict_heads.head_before(gang, at).is_some() || strict_heads.is_ambiguous(gang) {
            continue;
        }
        let has_reservation_among = reservation::has_reservation_among(plan, &pending[..at]);
        if !may_be_held_back
            && !has_reservation_among
            && !cluster.quotas.may_be_held(gang)
            && !infeasible.contains(&class)
            && !reservation::has_reservation(world, gang)
        {
            let least = elastic::at_min_count(gang);
            // What others preempt does not wake a gang that is parked: it is tried again when the victims are gone.
            let is_parked = !decided.contains_key(gang.uid.as_str());
            let fit = fit::first_fit(&cluster, &least);
            let fit = fit.filter(|found| cluster.quotas.must_start(&least, &found.flavors, false));
            let placement = fit.or_else(|| {
                if gang.gated || cluster.quotas.has_new_borrowers(gang, &decided) {
                    return None;
                }
                // Nor does it wake a gang that this plan has found to wait before.
                let decided_before = || preemption::victims_before(plan, &gang.uid);
                let leaving = if is_parked {
                    stopped.clone()
                } else {
                    terminating_before.iter().cloned().chain(decided_before()).collect()
                };
                preemption::first_fit_with_preemption(&mut cluster, world, &least, &leaving)
                    .filter(|found| cluster.quotas.must_start(&least, &found.flavors, true))
            });
            match placement {
                Some(assignment) => {
                    found.push(Violation::FitsButPending { gang: gang.key.clone(), assignment });
                }
                None => {
                    infeasible.insert(class); // Free resources only shrink while the plan is replayed.
                }
            }
        }
        may_be_held_back |= reservation::backfill_reserves(world); // Later gangs may be held back for this one.
    }
    quota_only::check_told(&cluster, plan, &mut found);
    found
}

/// Queue order: the smaller value is first. Compares the priority plus slope times waiting time; then queueing time;
/// then name.
fn queue_order(gang: &Gang, now: Time) -> (i128, Time, &model::GangKey, &str) {
    let waited_us = i128::from(now.0) - i128::from(gang.queued_at.0);
    // In units of 10⁻¹² priority: a thousandth is 10⁹ units, and a millionth per second is 1 unit per microsecond.
    let effective_priority = i128::from(gang.priority) * 1_000_000_000 + i128::from(gang.slope) * waited_us;
    (-effective_priority, gang.queued_at, &gang.key, &gang.uid)
}

/// Admissions follow queue order within a queue, and between queues that share no quota tree.
fn check_admission_order(
    cluster: &ClusterState<'_>,
    plan: &Plan,
    pending: &[&Gang],
    found: &mut Vec<Violation>,
) {
    let admitted = plan
        .verdicts
        .iter()
        .filter(|(_, verdict)| matches!(verdict, Verdict::Admit(_) | Verdict::Preempt(_)));
    let mut last: BTreeMap<Option<QueueIx>, usize> = BTreeMap::new();
    for (uid, _) in admitted {
        let Some(at) = pending.iter().position(|gang| gang.uid == *uid) else { continue };
        if usage_order::admission_fair_sharing(cluster.world(), pending[at]).is_some() {
            continue; // The order by usage is checked in `usage_order`.
        }
        let shares_quota = fairness::node_of(cluster.world(), &cluster.quotas, pending[at]).is_some();
        if let Some(before) =
            last.insert(shares_quota.then_some(pending[at].queue), at).filter(|before| *before > at)
        {
            let (first, then) = (pending[before].key.clone(), pending[at].key.clone());
            found.push(Violation::OutOfOrder { first, then });
        }
    }
}

/// Whether all pods have an eligible node, and topology and pod counts are satisfied.
fn check_placement(
    cluster: &ClusterState<'_>,
    gang: &Gang,
    assignment: &Assignment,
    found: &mut Vec<Violation>,
) -> bool {
    let before = found.len();
    if check_nodes(cluster, gang, assignment, found) {
        quota_only::check(cluster.world(), gang, assignment, found);
        topology::check(cluster, &elastic::on_nodes(gang, assignment), assignment, found);
        elastic::check_counts(gang, assignment, found);
    }
    found.len() == before
}

/// Whether all pods are on eligible nodes and have devices.
fn check_nodes(
    cluster: &ClusterState<'_>,
    gang: &Gang,
    assignment: &Assignment,
    found: &mut Vec<Violation>,
) -> bool {
    let before = found.len();
    if assignment.pod_sets.len() != gang.pod_sets.len() {
        found.push(Violation::WrongPodSets { gang: gang.key.clone() });
        return false;
    }
    let with_flavors = quota::with_flavors(cluster.world(), gang, &assignment.flavors);
    for (at, (pod_set, places)) in with_flavors.pod_sets.iter().zip(&assignment.pod_sets).enumerate() {
        if pod_set.share.is_some() {
            check_devices(gang, pod_set, places, assignment.devices.get(at), found);
        }
        for (name, _) in places {
            let excluded = gang.excluded.contains(name);
            let (gang, pod_set_name, node) = (gang.key.clone(), pod_set.name.clone(), name.clone());
            match cluster.node(name) {
                None => found.push(Violation::UnknownNode { gang, node }),
                Some(candidate) if !fit::is_eligible(candidate, &pod_set.constraints) || excluded => {
                    found.push(Violation::NotEligible { gang, pod_set: pod_set_name, node });
                }
                Some(_) => {}
            }
        }
    }
    found.len() == before
}

/// Reports pods that share a device but have no assigned device.
fn check_devices(
    gang: &Gang,
    pod_set: &PodSet,
    places: &[(String, u32)],
    devices: Option<&Vec<(String, u32, u32)>>,
    found: &mut Vec<Violation>,
) {
    for (node, count) in places {
        let here = devices.into_iter().flatten().filter(|(on, ..)| on == node);
        let named: u64 = here.map(|(_, _, count)| u64::from(*count)).sum();
        if named != u64::from(*count) {
            let (gang, pod_set, node) = (gang.key.clone(), pod_set.name.clone(), node.clone());
            found.push(Violation::DeviceNotAssigned { gang, pod_set, node });
        }
    }
}
