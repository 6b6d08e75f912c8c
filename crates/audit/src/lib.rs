//! A second opinion on plans: [`violations`] derives every rule again from the facts, and calls nothing of the planner.
//!
//! It shares the nouns of `model` and none of its indexes: what is free is counted here from nodes, pods and gangs, one
//! by one and slowly. It is meant for tests, replays and debugging, not for the way of every decision.
//!
//! - `books`: what is free on every node and promised as aggregates, from the facts;
//! - `quota`: what quota nodes, queues and flavors allow;
//! - `elastic`: gangs that start, or go on, with fewer pods;
//! - `fairness`: that nobody goes before one who has a better claim to their quota;
//! - `scale_up`: gangs that run and are given more places, or others for those that failed;
//! - `preemption`: who may be stopped for whom, and whether it was needed;
//! - `slip`: that a promise that moved is said to have moved, with a cause that is so;
//! - `reservation`: that the first gang that has to wait is not delayed;
//! - `node_resources`: what is free on one node, device by device;
//! - `strict_fifo`: that nobody passes the first gang of a strict queue;
//! - `usage_order`: that local queues that take turns do;
//! - `rules`: which node may take which pod, and a plain first fit as a witness that a gang would have fitted;
//! - `topology`: that pods are as near to each other as is asked, and a witness that they could be.

#![deny(clippy::float_arithmetic, clippy::float_cmp)]

mod books;
mod elastic;
mod fairness;
mod node_resources;
mod preemption;
mod quota;
mod reservation;
mod rules;
mod scale_up;
mod slip;
mod strict_fifo;
mod topology;
mod usage_order;
mod violation;

use std::collections::{BTreeMap, BTreeSet};

use model::{Assignment, Gang, GangState, Plan, PodSet, QueueIx, Snapshot, Time, Verdict};

use crate::books::Books;
use crate::fairness::Claims;
use crate::strict_fifo::Firsts;
pub use crate::violation::Violation;

/// Everything that is wrong with a plan for a snapshot. None is the only good answer.
///
/// The rules: only gangs that wait or are nominated are decided, each once; every pod of an admitted gang has exactly one
/// place, on a node that exists, is eligible and has room beside all that is bound or promised; promises without a place
/// keep their supply; gangs are admitted in order, and none waits although it plainly fits when its turn comes; what is
/// said to fit never does not fit on the empty nodes; nothing exceeds a quota node, and pods are where their flavors are; every waiting gang has been told something. Who is stopped for
/// another may be, on the ground that is told, and is needed for it: see `preemption`.
pub fn violations(snapshot: &Snapshot<'_>, plan: &Plan) -> Vec<Violation> {
    let world = snapshot.world;
    let mut found = Vec::new();
    let mut decided: BTreeMap<&str, &Verdict> = BTreeMap::new();
    for (uid, verdict) in &plan.verdicts {
        let Some(gang) = world.gang(uid) else {
            found.push(Violation::UnknownGang { uid: uid.clone() });
            continue;
        };
        let settles = matches!(verdict, Verdict::Admit(_) | Verdict::Wait(_));
        let nominated = matches!(gang.state, GangState::Nominated(_));
        let scale_up = scale_up::scale_up_request(gang).is_some() && !matches!(verdict, Verdict::Preempt(_));
        if gang.state != GangState::Waiting && !(nominated && settles) && !scale_up {
            found.push(Violation::NotWaiting { gang: gang.key.clone() });
        } else if decided.insert(uid, verdict).is_some() {
            found.push(Violation::DecidedTwice { gang: gang.key.clone() });
        }
    }
    let mut turns: Vec<&Gang> = world.gangs().filter(|gang| gang.state == GangState::Waiting).collect();
    turns.sort_by(|one, other| rank(one, snapshot.now).cmp(&rank(other, snapshot.now)));
    let firsts = Firsts::of(snapshot, plan, &turns);
    firsts.check(plan, &turns, &mut found);

    slip::check(snapshot, plan, &mut found);
    let mut books = Books::of(world);
    check_sequence(&books, plan, &turns, &mut found);
    usage_order::check(snapshot, plan, &turns, &mut found);
    preemption::check_nominated(&mut books, snapshot, &decided, &mut found);
    let mut leaving = preemption::leaving(world);
    if reservation::may_hold_back(world) {
        reservation::check(&mut books, snapshot, plan, &turns, &firsts, &decided, &mut found);
    }
    let mut held_up = false;
    let mut hopeless: BTreeSet<rules::Need<'_>> = BTreeSet::new();
    let mut claims = Claims::of(world, plan, &turns);
    let scale_up_request: Vec<Gang> = world.gangs().filter_map(scale_up::scale_up_request).collect();
    let sequence = fairness::sequence(world, &books.quotas, plan, &turns);
    for (at, gang) in scale_up::among(&books, snapshot, plan, sequence, &scale_up_request) {
        let Some(at) = at else {
            if !leaving.contains(&gang.uid) {
                scale_up::check(
                    &mut books,
                    gang,
                    decided.get(gang.uid.as_str()).copied(),
                    held_up,
                    &mut found,
                );
            }
            continue;
        };
        let need = rules::Need::of(gang);
        let is_stopping = world.pods_of(&gang.uid).any(|pod| pod.node.is_some());
        if is_stopping {
            if decided.get(gang.uid.as_str()).is_some_and(|verdict| verdict.shortage().is_none()) {
                found.push(Violation::StillStopping { gang: gang.key.clone() });
            }
            continue;
        }
        match decided.get(gang.uid.as_str()) {
            Some(Verdict::Admit(assignment)) => {
                claims.check(&books, gang, &mut found);
                if check_places(&books, gang, assignment, &mut found) {
                    books.check(gang, assignment, &mut found);
                    books.charge(gang, assignment);
                }
                continue;
            }
            Some(Verdict::Preempt(preemption)) => {
                claims.check(&books, gang, &mut found);
                preemption::check(&mut books, world, gang, preemption, &mut leaving, &mut found);
                continue;
            }
            Some(Verdict::Never(_)) if rules::would_fit_when_empty(&books, &elastic::least(gang)) => {
                found.push(Violation::FalseNever { gang: gang.key.clone() });
            }
            None if world.verdict(&gang.uid).is_none() => {
                found.push(Violation::NotTold { gang: gang.key.clone() });
            }
            Some(Verdict::Wait(_) | Verdict::Never(_)) | None => {}
        }
        if firsts.ahead_of(gang, at).is_some() || firsts.is_unsure(gang) {
            continue;
        }
        let may_delay = reservation::may_delay(plan, &turns[..at]);
        if !held_up && !may_delay && !hopeless.contains(&need) && !reservation::is_bound(world, gang) {
            let witness = rules::first_fit(&books, &elastic::least(gang))
                .or_else(|| preemption::first_fit_among_weaker(&mut books, world, gang, &leaving));
            match witness {
                Some(assignment) => found.push(Violation::Overlooked { gang: gang.key.clone(), assignment }),
                None => {
                    hopeless.insert(need); // What is free, or could be, only shrinks while turns are taken.
                }
            }
        }
        held_up |= reservation::may_hold_back(world); // Who comes later may be held back for this one.
    }
    found
}

/// The smaller goes first: the priority, risen by the slope for every second of waiting; then time, then name.
fn rank(gang: &Gang, now: Time) -> (i128, Time, &model::GangKey, &str) {
    let waited_us = i128::from(now.0) - i128::from(gang.queued_at.0);
    // In 10⁻¹² of a priority: a thousandth is 10⁹ of them, a millionth a second one a microsecond.
    let risen = i128::from(gang.priority) * 1_000_000_000 + i128::from(gang.slope) * waited_us;
    (-risen, gang.queued_at, &gang.key, &gang.uid)
}

/// Admissions follow the order of the gangs: within a queue, and among those that share no tree of quota.
fn check_sequence(books: &Books<'_>, plan: &Plan, turns: &[&Gang], found: &mut Vec<Violation>) {
    let admitted = plan
        .verdicts
        .iter()
        .filter(|(_, verdict)| matches!(verdict, Verdict::Admit(_) | Verdict::Preempt(_)));
    let mut last: BTreeMap<Option<QueueIx>, usize> = BTreeMap::new();
    for (uid, _) in admitted {
        let Some(at) = turns.iter().position(|gang| gang.uid == *uid) else { continue };
        if usage_order::sharing(books.world(), turns[at]).is_some() {
            continue; // Others decide whose turn it is there; see `usage_order`.
        }
        let shares = fairness::node_of(books.world(), &books.quotas, turns[at]).is_some();
        if let Some(before) = last.insert(shares.then_some(turns[at].queue), at).filter(|before| *before > at)
        {
            let (first, then) = (turns[before].key.clone(), turns[at].key.clone());
            found.push(Violation::OutOfTurn { first, then });
        }
    }
}

/// Whether all pods have a place on a node that may take them.
fn check_places(books: &Books<'_>, gang: &Gang, assignment: &Assignment, found: &mut Vec<Violation>) -> bool {
    let before = found.len();
    if check_nodes(books, gang, assignment, found) {
        topology::check(books, &elastic::as_placed(gang, assignment), assignment, found);
        elastic::check(books, gang, assignment, found);
    }
    found.len() == before
}

/// Whether all places are on nodes that may take these pods.
fn check_nodes(books: &Books<'_>, gang: &Gang, assignment: &Assignment, found: &mut Vec<Violation>) -> bool {
    let before = found.len();
    if assignment.pod_sets.len() != gang.pod_sets.len() {
        found.push(Violation::WrongShape { gang: gang.key.clone() });
        return false;
    }
    let narrowed = quota::narrowed(books.world(), gang, &assignment.flavors);
    for (at, (pod_set, places)) in narrowed.pod_sets.iter().zip(&assignment.pod_sets).enumerate() {
        if pod_set.share.is_some() {
            check_devices(gang, pod_set, places, assignment.devices.get(at), found);
        }
        for (name, _) in places {
            let excluded = gang.excluded.contains(name);
            let (gang, pod_set_name, node) = (gang.key.clone(), pod_set.name.clone(), name.clone());
            match books.node(name) {
                None => found.push(Violation::UnknownNode { gang, node }),
                Some(there) if !rules::may_take(there, &pod_set.constraints) || excluded => {
                    found.push(Violation::NotEligible { gang, pod_set: pod_set_name, node });
                }
                Some(_) => {}
            }
        }
    }
    found.len() == before
}

/// Whether every pod that shares a device is told which one.
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
            found.push(Violation::NoDevice { gang, pod_set, node });
        }
    }
}
