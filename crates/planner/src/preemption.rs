//! Preemption: selects the gangs to preempt so that another gang fits.
//!
//! Victims are whole gangs. Gangs that are terminating already count as released, at no cost. `holders` finds the
//! gangs that hold capacity, `rules` decides which of them may be preempted, `sequence` which of them together, and `fair_sharing` both where fair
//! sharing is enabled. Among the sets of victims that suffice (`goal`), the cheapest is taken (`search`,
//! `cost`): priority by priority, the highest first, the set that loses the least accelerator time, then CPU
//! time, then the fewest gangs, accelerators and pods. No victim is unnecessary. `docs/planner/preemption.md`
//! proves that preemption terminates.

mod cost;
mod fair_sharing;
mod goal;
mod holders;
mod rules;
mod search;
mod sequence;
mod sparing;
mod stepwise;

use std::collections::BTreeSet;

use model::{Gang, PreemptionReason, QueueingHint, Shape, Snapshot, Victim};

use crate::fit::{place_with, try_fit, try_fit_with};
use crate::flavors::Alternatives;
use crate::fungibility::{FittingFlavors, Mode, borrowing_level, may_prefer_preemption, rank, stops_search};
use crate::ledger::Ledger;
use crate::preemption::cost::Candidate;
use crate::preemption::goal::{Goal, VictimSet};
pub(crate) use crate::preemption::holders::{Holder, Holders, terminating_victims};
pub(crate) use crate::preemption::rules::may_preempt;
use crate::preemption::rules::{Rules, Variant};
use crate::preemption::sparing::spared_sets;
pub(crate) use crate::preemption::stepwise::{Choice, Chooser};
use crate::request::{Fit, Flavors, GangRequest};

/// The victims, and the fit of the gang once they are gone.
pub(crate) struct VictimSelection {
    pub(crate) victims: Vec<Victim>,
    pub(crate) fit: Fit,
}

/// Terminating gangs that are released in the ledger for a trial: victims of this cycle and of earlier ones, and gangs that
/// ended or were requeued but still have bound pods.
pub(crate) struct ReleasedHolders<'a> {
    terminating: &'a [&'a str],
    /// The victims of this cycle.
    victims: &'a BTreeSet<String>,
}

impl<'a> ReleasedHolders<'a> {
    /// Releases them all.
    pub(crate) fn of(
        ledger: &mut Ledger<'_>,
        holders: &'a Holders<'_>,
        victims: &'a BTreeSet<String>,
    ) -> Self {
        let released = Self { terminating: holders.terminating(), victims };
        released.uids().for_each(|uid| ledger.release(uid));
        released
    }

    /// Restores the released gangs, and the selected victims.
    pub(crate) fn undo(self, ledger: &mut Ledger<'_>, victims: &[Victim]) {
        let selected = victims.iter().map(|victim| &*victim.uid);
        self.uids().chain(selected).for_each(|uid| ledger.restore(uid));
    }

    fn uids(&self) -> impl Iterator<Item = &str> {
        let victims = self.victims.iter().map(String::as_str);
        let terminating = self.terminating.iter().copied();
        terminating.chain(victims.filter(|uid| self.terminating.binary_search(uid).is_err()))
    }
}

/// Selects victims for a gang with this shape, the whole or a part of it, while the terminating gangs are released. `candidates` finds the gangs
/// that may be among them; these exclude `preemptors`, for which this gang was preempted itself. If no set of victims suffices, the
/// error is the queueing hint. On success the victims are released in the ledger.
///
/// Of several flavor assignments, the one that the queue prefers is used. No victims are selected when that is one of
/// `fitting`, with which the gang fits outright.
pub(crate) fn select_victims<'s>(
    ledger: &mut Ledger<'s>,
    snapshot: &Snapshot<'s>,
    gang: &'s Gang,
    shape: &Shape,
    preemptors: &BTreeSet<&str>,
    candidates: &dyn Fn() -> Vec<Holder<'s>>,
    fitting: &[FittingFlavors],
) -> Result<VictimSelection, QueueingHint> {
    let request = GangRequest::of_gang(gang, shape);
    let world = ledger.world;
    let prefers = may_prefer_preemption(world, &request);
    if !prefers && let Ok(fit) = try_fit(ledger, &request) {
        return Ok(VictimSelection { victims: Vec::new(), fit }); // The terminating gangs make enough room.
    }
    let holders = candidates();
    let alternatives = Alternatives::of(world, &request);
    // Another gang of the same shape may preempt gangs that this one may not.
    let mut hint = if preemptors.is_empty() && alternatives.is_complete {
        QueueingHint::ClusterChange
    } else {
        QueueingHint::AnyChange
    };
    let queue = world.queues().get(&gang.queue);
    let mut best: Option<(_, FoundVictims)> = None;
    for flavors in &alternatives.all {
        let fits =
            fitting.iter().find(|(fitting, _)| fitting == flavors).map(|(_, level)| (Mode::Fit, *level));
        let fits = fits.or_else(|| {
            let terminating_suffice = prefers && try_fit_with(ledger, &request, flavors).is_ok();
            terminating_suffice.then(|| (Mode::Reclaim, borrowing_level(ledger, &request, flavors)))
        });
        let found = match fits {
            Some((mode, level)) => {
                Ok(FoundVictims { victims: Vec::new(), flavors: flavors.clone(), mode, level })
            }
            None => find_victims(ledger, snapshot, gang, &request, flavors, &holders),
        };
        match found {
            Ok(found) => {
                let rank = queue.map(|queue| rank(queue, found.mode, found.level));
                let ends = queue.is_some_and(|queue| stops_search(queue, found.mode, found.level));
                if best.as_ref().is_none_or(|(least, _)| rank < *least) {
                    best = Some((rank, found));
                }
                if ends {
                    break;
                }
            }
            Err(other) => hint = hint.max(other),
        }
    }
    let (_, FoundVictims { victims, flavors, mode, .. }) = best.ok_or(hint)?;
    if mode == Mode::Fit {
        return Err(QueueingHint::AnyChange);
    }
    for victim in &victims {
        ledger.release(&victim.uid);
    }
    let fit = match try_fit_with(ledger, &request, &flavors) {
        Ok(fit) => fit,
        Err((_, hint)) => {
            for victim in &victims {
                ledger.restore(&victim.uid);
            }
            return Err(hint);
        }
    };
    Ok(VictimSelection { victims, fit })
}

/// The victims of a gang with one flavor assignment.
struct FoundVictims {
    victims: Vec<Victim>,
    flavors: Flavors,
    mode: Mode,
    /// The level at which the gang will borrow.
    level: u32,
}

/// The cheapest victims among these candidates, the cheapest first. Leaves the ledger as it was.
fn cheapest<'s>(
    ledger: &mut Ledger<'s>,
    request: &GangRequest<'_>,
    flavors: &Flavors,
    rules: &Rules<'s>,
    candidates: &[Candidate<'s>],
) -> Result<VictimSet<'s>, QueueingHint> {
    let goal = |within| Goal { request, flavors, rules, candidates, within };
    let best = goal(false).cheapest(ledger);
    let mut rights = candidates.iter().flat_map(|candidate| &candidate.rights);
    if rights.any(|right| right.variant == Variant::ReclaimWithoutBorrowing) {
        return cheaper(best, goal(true).cheapest(ledger));
    }
    best
}

/// The cheaper set of victims, the first one of equals; else the hint that covers both.
fn cheaper<'s>(
    one: Result<VictimSet<'s>, QueueingHint>,
    other: Result<VictimSet<'s>, QueueingHint>,
) -> Result<VictimSet<'s>, QueueingHint> {
    match (one, other) {
        (Ok(one), Ok(other)) => Ok(if other.cost < one.cost { other } else { one }),
        (Err(one), Err(other)) => Err(one.max(other)),
        (Ok(set), Err(_)) | (Err(_), Ok(set)) => Ok(set),
    }
}

/// The cheapest victims of a gang with these flavors. Leaves the ledger as it was.
fn find_victims<'s>(
    ledger: &mut Ledger<'s>,
    snapshot: &Snapshot<'s>,
    gang: &'s Gang,
    request: &GangRequest<'_>,
    flavors: &Flavors,
    holders: &[Holder<'s>],
) -> Result<FoundVictims, QueueingHint> {
    let world = ledger.world;
    let is_charged = world.quota_of(request.queue).is_some() || !request.charges.is_empty();
    let has_room = is_charged && place_with(ledger, request, flavors).is_ok();
    let rules = Rules::of(ledger, gang, request, flavors, has_room);
    let eligible = holders.iter().filter_map(|other| {
        let rights = rules.rights(&ledger.quotas, other);
        (!rights.is_empty()).then(|| Candidate::of(*other, snapshot, rights))
    });
    let mut candidates: Vec<Candidate<'s>> = eligible.collect();
    candidates.sort_by_cached_key(Candidate::rank);
    let mut best = cheapest(ledger, request, flavors, &rules, &candidates);
    if best.is_err() {
        for spared in spared_sets(world, request.shape, &candidates) {
            let others = candidates.iter().enumerate().filter(|(at, _)| !spared.contains(at));
            let others: Vec<Candidate<'s>> = others.map(|(_, candidate)| candidate.clone()).collect();
            best = cheaper(best, cheapest(ledger, request, flavors, &rules, &others));
        }
    }
    let set = best?;
    for (victim, _) in &set.victims {
        ledger.release(&victim.uid);
    }
    let level = rules.borrowing_level(&ledger.quotas, world.quota_of(request.queue));
    for (victim, _) in &set.victims {
        ledger.restore(&victim.uid);
    }
    let mut victims = set.victims;
    victims.sort_by(|(one, _), (other, _)| (&one.key, &one.uid).cmp(&(&other.key, &other.uid)));
    let is_own = |(_, reason): &(_, PreemptionReason)| *reason == PreemptionReason::InClusterQueue;
    let mode = if victims.iter().any(is_own) { Mode::Preempt } else { Mode::Reclaim };
    let victims =
        victims.into_iter().map(|(gang, reason)| Victim { uid: gang.uid.clone(), reason }).collect();
    Ok(FoundVictims { victims, flavors: flavors.clone(), mode, level })
}
