//! Backfill reservations: the right gangs have them, and no admission delays them.

use std::collections::{BTreeMap, BTreeSet};

use model::{Assignment, Gang, Hold, Plan, Reservation, Snapshot, Time, Verdict, World};

use crate::cluster_state::ClusterState;
use crate::fit;
use crate::guessed_hold;
use crate::preemption;
use crate::queue_order;
use crate::strict_fifo::StrictQueueHeads;
use crate::violation::Violation;

/// Whether the policy reserves starts, so that gangs that fit may be held back.
pub(crate) fn backfill_reserves(world: &World) -> bool {
    world.policy().backfill.reservation_depth() > 0
}

/// Whether a gang has one of several reservations. Then it may be held back for the other ones, even at the head.
pub(crate) fn has_reservation(world: &World, gang: &Gang) -> bool {
    let reservations = world.reserved();
    reservations.len() > 1 && reservations.iter().any(|reserved| reserved.gang == gang.uid)
}

/// Whether the plan has a reservation for one of these gangs, so that later gangs may be held back.
pub(crate) fn has_reservation_among(plan: &Plan, before: &[&Gang]) -> bool {
    plan.reserved.iter().any(|reserved| before.iter().any(|gang| gang.uid == reserved.gang))
}

/// Checks the reservations of a plan, before its admissions are charged. `pending` is in queue order.
pub(crate) fn check(
    cluster: &mut ClusterState<'_>,
    snapshot: &Snapshot<'_>,
    plan: &Plan,
    pending: &[&Gang],
    strict_heads: &StrictQueueHeads<'_>,
    decided: &BTreeMap<&str, &Verdict>,
    found: &mut Vec<Violation>,
) {
    let world = snapshot.world;
    let mut terminating = preemption::terminating(world);
    for verdict in decided.values() {
        if let Verdict::Preempt(preemption) = verdict {
            terminating.extend(preemption.victim_uids().map(str::to_owned));
        }
    }
    let terminating = &terminating;
    let is_pending =
        |gang: &Gang| match decided.get(gang.uid.as_str()).copied().or_else(|| world.verdict(&gang.uid)) {
            Some(Verdict::Wait(_)) => !world.pods_of(&gang.uid).any(|pod| pod.node.is_some()),
            Some(Verdict::Never(_) | Verdict::Admit(_) | Verdict::Preempt(_)) | None => false,
        };
    // Only in queues that reserve starts, and only the head of a strict queue.
    let reserves = |gang: &Gang| world.queues().get(&gang.queue).is_none_or(|queue| queue.reserves_starts);
    let heads = pending.iter().enumerate().filter(|(_, gang)| reserves(gang));
    let heads = heads.filter(|(at, gang)| strict_heads.head_before(gang, *at).is_none());
    let candidates: Vec<&&Gang> = heads.map(|(_, gang)| gang).filter(|gang| is_pending(gang)).collect();
    let reserved = plan.reserved.first().and_then(|reserved| {
        let at = candidates.iter().position(|gang| gang.uid == reserved.gang);
        if at.is_none() && !plan.verdicts.is_empty() {
            found.push(Violation::UnknownGang { uid: reserved.gang.clone() });
        }
        at
    });
    if plan.verdicts.is_empty() {
        return; // Without verdicts, the former reservations stay.
    }
    // No gang before the first reservation, or none at all without one, has a start that can be computed.
    let before = reserved.unwrap_or(candidates.len());
    for (at, gang) in candidates[..before].iter().enumerate() {
        if strict_heads.is_ambiguous(gang) || candidates[..at].iter().any(|first| is_equivalent(first, gang))
        {
            continue; // An equivalent gang before this one takes the same resources.
        }
        let ended_gangs = ended_by(world, gang, Time(i64::MAX), snapshot.now, Ends::All, terminating);
        if with_suspended(cluster, &ended_gangs, |cluster| fit::first_fit(cluster, gang).is_some()) {
            // Gangs that are admitted now may hold the resources.
            let admits = decided.values().any(|verdict| verdict.shortage().is_none());
            if !admits {
                found.push(Violation::ReservationMissing { gang: gang.key.clone() });
            }
        }
    }
    if plan.reserved.len() > world.policy().backfill.reservation_depth() as usize {
        found.push(Violation::TooManyReservations { reservations: plan.reserved.len() });
    }
    for reserved in &plan.reserved {
        let Some(head) = candidates.iter().find(|gang| gang.uid == reserved.gang) else { continue };
        let after = pending.iter().skip_while(|gang| gang.uid != head.uid);
        let admitted = after.filter_map(|gang| match decided.get(gang.uid.as_str()) {
            Some(Verdict::Admit(assignment)) => {
                let passes = guessed_hold::may_pass(cluster, plan, reserved, head, gang);
                (!passes).then_some((*gang, assignment))
            }
            Some(Verdict::Wait(_) | Verdict::Never(_) | Verdict::Preempt(_)) | None => None,
        });
        let admitted: Vec<_> = admitted.collect();
        check_one(cluster, snapshot, reserved, head, &admitted, terminating, found);
    }
}

/// Checks that a gang can start at its reserved time, beside all later gangs that are admitted.
fn check_one(
    cluster: &mut ClusterState<'_>,
    snapshot: &Snapshot<'_>,
    reserved: &Reservation,
    head: &Gang,
    admitted: &[(&Gang, &Assignment)],
    terminating: &BTreeSet<String>,
    found: &mut Vec<Violation>,
) {
    let Reservation { start, declared, hold, .. } = *reserved;
    let (world, now) = (snapshot.world, snapshot.now);
    if hold == Hold::Over {
        return; // It holds nobody back: the start is where it would be without the admissions of this plan.
    }
    let outlasts_start = |gang: &Gang| gang.runs_us.is_none_or(|run| now.after(run) > start);
    let outlasting: Vec<_> = admitted.iter().filter(|(gang, _)| outlasts_start(gang)).copied().collect();
    if outlasting.is_empty() && world.reserved().iter().any(|former| former.is_same(reserved)) {
        return; // Nothing changed since the reservation was made. An estimated end may have passed.
    }
    if hold == Hold::UntilStart {
        let ended_gangs = ended_by(world, head, start, now, Ends::Declared, terminating);
        if !with_suspended(cluster, &ended_gangs, |cluster| fit::could_fit(cluster, head, &[])) {
            found.push(Violation::WrongHold { gang: head.key.clone() });
        }
    }
    let ends = if declared { Ends::Declared } else { Ends::NotOfBackfilled };
    let ended_gangs = ended_by(world, head, start, now, ends, terminating);
    let (mut fits, is_proven) = with_suspended(cluster, &ended_gangs, |cluster| {
        let could_fit = fit::could_fit(cluster, head, &[]);
        let fits = could_fit.then(|| fit::could_fit(cluster, head, &outlasting));
        (fits, could_fit && fit::first_fit(cluster, head).is_some())
    });
    // Its pod sets may fit one by one, and not together.
    if fits != Some(true) && !is_proven && !declared {
        // The gang starts only after gangs that were started ahead of it: then no gang passes because it ends before.
        let ended_gangs = ended_by(world, head, start, now, Ends::All, terminating);
        fits = with_suspended(cluster, &ended_gangs, |cluster| {
            fit::could_fit(cluster, head, &[]).then(|| fit::could_fit(cluster, head, admitted))
        });
    }
    if fits != Some(true) {
        found.push(Violation::ReservationDelayed { gang: head.key.clone() });
    }
}

/// Whether two gangs have equal requests, queue, quota, priority and run time.
fn is_equivalent(one: &Gang, other: &Gang) -> bool {
    let attributes =
        |gang: &Gang| (gang.queue, gang.charges.clone(), gang.priority, gang.slope, gang.runs_us);
    one.pod_sets == other.pod_sets && one.declared == other.declared && attributes(one) == attributes(other)
}

/// The ends that a pending gang may rely on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// All ends, declared or expected.
    All,
    /// Without the expected ends of gangs that were started ahead of the pending gang.
    NotOfBackfilled,
    /// Only declared ends.
    Declared,
}

/// The uids of the gangs that end by a time.
fn ended_by(
    world: &World,
    pending: &Gang,
    by: Time,
    now: Time,
    ends: Ends,
    terminating: &BTreeSet<String>,
) -> BTreeSet<String> {
    let holding = world.gangs().filter(|gang| gang.state.assignment().is_some());
    let ending = holding.filter(|gang| {
        let (end, declared) = gang.expected_end(now);
        let later = queue_order(gang, now) > queue_order(pending, now)
            && gang.started_at.is_none_or(|at| at >= pending.queued_at);
        let counts = match ends {
            Ends::All => true,
            Ends::NotOfBackfilled => declared || !later,
            Ends::Declared => declared,
        };
        end <= by && counts
    });
    terminating.iter().cloned().chain(ending.map(|gang| gang.uid.clone())).collect()
}

fn with_suspended<'w, T>(
    cluster: &mut ClusterState<'w>,
    ended_gangs: &BTreeSet<String>,
    evaluate: impl Fn(&ClusterState<'w>) -> T,
) -> T {
    for uid in ended_gangs {
        cluster.suspend(uid);
    }
    let result = evaluate(cluster);
    for uid in ended_gangs {
        cluster.resume(uid);
    }
    result
}
