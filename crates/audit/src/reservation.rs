//! The gangs that others must not delay: the right ones, and not delayed.

use std::collections::{BTreeMap, BTreeSet};

use model::{Assignment, Gang, Plan, Reservation, Snapshot, Time, Verdict, World};

use crate::books::Books;
use crate::preemption;
use crate::rank;
use crate::rules;
use crate::strict_fifo::Firsts;
use crate::violation::Violation;

/// Whether gangs that fit may be held back behind one that does not.
pub(crate) fn may_hold_back(world: &World) -> bool {
    world.policy().backfill.heads() > 0
}

/// Whether a gang may be held back for the promises of others although it goes first: it has one itself.
pub(crate) fn is_bound(world: &World, gang: &Gang) -> bool {
    let promised = world.reserved();
    promised.len() > 1 && promised.iter().any(|reserved| reserved.gang == gang.uid)
}

/// Whether a plan promises a start to one of those who come before a gang, so that it may be held back although it fits.
pub(crate) fn may_delay(plan: &Plan, before: &[&Gang]) -> bool {
    plan.reserved.iter().any(|reserved| before.iter().any(|gang| gang.uid == reserved.gang))
}

/// Checks what the plan reserves, before anything of it is charged. `usage_order` are the waiting gangs in order.
pub(crate) fn check(
    books: &mut Books<'_>,
    snapshot: &Snapshot<'_>,
    plan: &Plan,
    turns: &[&Gang],
    firsts: &Firsts<'_>,
    decided: &BTreeMap<&str, &Verdict>,
    found: &mut Vec<Violation>,
) {
    let world = snapshot.world;
    let mut leaving = preemption::leaving(world);
    for verdict in decided.values() {
        if let Verdict::Preempt(preemption) = verdict {
            leaving.extend(preemption.stopped().map(str::to_owned));
        }
    }
    let leaving = &leaving;
    let waits =
        |gang: &Gang| match decided.get(gang.uid.as_str()).copied().or_else(|| world.verdict(&gang.uid)) {
            Some(Verdict::Wait(_)) => !world.pods_of(&gang.uid).any(|pod| pod.node.is_some()),
            Some(Verdict::Never(_) | Verdict::Admit(_) | Verdict::Preempt(_)) | None => false,
        };
    // Whoever is not the first of a strict queue is not promised anything.
    let heads = turns.iter().enumerate().filter(|(at, gang)| firsts.ahead_of(gang, *at).is_none());
    let waiting: Vec<&&Gang> = heads.map(|(_, gang)| gang).filter(|gang| waits(gang)).collect();
    let reserved = plan.reserved.first().and_then(|reserved| {
        let at = waiting.iter().position(|gang| gang.uid == reserved.gang);
        if at.is_none() && !plan.verdicts.is_empty() {
            found.push(Violation::UnknownGang { uid: reserved.gang.clone() });
        }
        at
    });
    if plan.verdicts.is_empty() {
        return; // Nothing was taken up, so what was reserved before stands.
    }
    // Who comes before it, or everybody if there is none, has no start that can be foreseen.
    let before = reserved.unwrap_or(waiting.len());
    for (at, gang) in waiting[..before].iter().enumerate() {
        if firsts.is_unsure(gang) || waiting[..at].iter().any(|first| is_alike(first, gang)) {
            continue; // The other one would take whatever this one could have.
        }
        let gone = ended(world, gang, Time(i64::MAX), snapshot.now, false, leaving);
        if with_suspended(books, &gone, |books| rules::first_fit(books, gang).is_some()) {
            // Unless gangs that go before it and are admitted now stay in its way.
            let admits = decided.values().any(|verdict| verdict.shortage().is_none());
            if !admits {
                found.push(Violation::NotReserved { gang: gang.key.clone() });
            }
        }
    }
    if plan.reserved.len() > world.policy().backfill.heads() as usize {
        found.push(Violation::TooManyPromises { promises: plan.reserved.len() });
    }
    for reserved in &plan.reserved {
        let Some(head) = waiting.iter().find(|gang| gang.uid == reserved.gang) else { continue };
        let after = turns.iter().skip_while(|gang| gang.uid != head.uid);
        let admitted = after.filter_map(|gang| match decided.get(gang.uid.as_str()) {
            Some(Verdict::Admit(assignment)) => Some((*gang, assignment)),
            Some(Verdict::Wait(_) | Verdict::Never(_) | Verdict::Preempt(_)) | None => None,
        });
        let admitted: Vec<_> = admitted.collect();
        check_one(books, snapshot, reserved, head, &admitted, leaving, found);
    }
}

/// Checks that a gang can start as promised, with all that is admitted of those who come after it.
fn check_one(
    books: &mut Books<'_>,
    snapshot: &Snapshot<'_>,
    reserved: &Reservation,
    head: &Gang,
    admitted: &[(&Gang, &Assignment)],
    leaving: &BTreeSet<String>,
    found: &mut Vec<Violation>,
) {
    let Reservation { start, declared, .. } = *reserved;
    let (world, now) = (snapshot.world, snapshot.now);
    let lasts = |gang: &Gang| gang.runs_us.is_none_or(|run| now.after(run) > start);
    let lasting: Vec<_> = admitted.iter().filter(|(gang, _)| lasts(gang)).copied().collect();
    if lasting.is_empty() && world.reserved().iter().any(|former| former.is_same(reserved)) {
        return; // Nothing came between since it was reserved; but a guess may have aged.
    }
    let gone = ended(world, head, start, now, declared, leaving);
    let delayed = with_suspended(books, &gone, |books| {
        !rules::could_fit(books, head, &[]) || !rules::could_fit(books, head, &lasting)
    });
    if delayed {
        found.push(Violation::Delayed { gang: head.key.clone() });
    }
}

/// Whether two gangs ask for the same with the same right.
fn is_alike(one: &Gang, other: &Gang) -> bool {
    let right = |gang: &Gang| (gang.queue, gang.charges.clone(), gang.priority, gang.slope, gang.runs_us);
    one.pod_sets == other.pod_sets && one.declared == other.declared && right(one) == right(other)
}

/// The uids of those who will have left by a time, as far as a waiting gang may count on it: who passed it since it was
/// queued and declares no end counts as endless, and for a promise everybody does who declares none.
fn ended(
    world: &World,
    waiting: &Gang,
    by: Time,
    now: Time,
    promised: bool,
    leaving: &BTreeSet<String>,
) -> BTreeSet<String> {
    let holding = world.gangs().filter(|gang| gang.state.assignment().is_some());
    let ending = holding.filter(|gang| {
        let (end, declared) = gang.expected_end(now);
        let later =
            rank(gang, now) > rank(waiting, now) && gang.started_at.is_none_or(|at| at >= waiting.queued_at);
        end <= by && (declared || !(promised || later))
    });
    leaving.iter().cloned().chain(ending.map(|gang| gang.uid.clone())).collect()
}

fn with_suspended<'w, T>(
    books: &mut Books<'w>,
    gone: &BTreeSet<String>,
    look: impl Fn(&Books<'w>) -> T,
) -> T {
    for uid in gone {
        books.suspend(uid);
    }
    let seen = look(books);
    for uid in gone {
        books.resume(uid);
    }
    seen
}
