//! Making room: which gangs are to be stopped so that another one fits.
//!
//! Victims are whole gangs. Whoever is leaving already counts as gone, at no price. Who else may be stopped, and who of them
//! together, `rules` and `turn` say, and `fair` where shares decide. Among the sets that make enough room (`aim`) the cheapest is taken
//! (`choice`, `price`): priority by priority, the highest first, the one that loses the least accelerator time, then CPU time,
//! then the fewest gangs, accelerators and pods. No member could be spared. Why this cannot go on for ever is told in
//! `docs/planner/preemption.md`.

mod cost;
mod fair_sharing;
mod rules;
mod search;
mod sequence;
mod target;

use std::collections::BTreeSet;

use model::{
    Fungibility, Gang, GangState, NextFlavor, Preemption, PreemptionReason, Preference, Queue, QueueingHint,
    Snapshot, Victim, World,
};

use crate::fit::{look, look_with, seat};
use crate::flavors::{Alternatives, narrowed};
use crate::ledger::Ledger;
use crate::preemption::cost::Candidate;
pub(crate) use crate::preemption::rules::may_stop_others;
use crate::preemption::rules::{Kind, Rules};
use crate::preemption::target::Target;
use crate::request::{Fit, Flavors, GangRequest};

/// The gangs to stop, by name, and where the gang fits once they are gone.
pub(crate) struct Room {
    pub(crate) victims: Vec<Victim>,
    pub(crate) fit: Fit,
}

/// Everybody who is leaving, let go for the time of a trial.
pub(crate) struct Leave {
    gone: Vec<String>,
}

impl Leave {
    /// Lets go all who are leaving: victims of this pass and of earlier ones, and gangs that ended or wait again while their pods
    /// are still bound.
    pub(crate) fn of(ledger: &mut Ledger<'_>, stopped: &BTreeSet<String>) -> Self {
        let world = ledger.world;
        let mut gone: Vec<String> = world.leaving().map(str::to_owned).collect();
        gone.extend(doomed(world).map(|gang| gang.uid.clone()).chain(stopped.iter().cloned()));
        gone.sort();
        gone.dedup();
        for uid in &gone {
            ledger.release(uid);
        }
        Self { gone }
    }

    /// Has everybody back, and the victims that were chosen on top.
    pub(crate) fn undo(self, ledger: &mut Ledger<'_>, victims: &[Victim]) {
        for uid in self.gone.iter().chain(victims.iter().map(|victim| &victim.uid)) {
            ledger.hold(uid);
        }
    }
}

/// The gangs that are being stopped for another one but still hold their places.
pub(crate) fn doomed(world: &World) -> impl Iterator<Item = &Gang> {
    let preemptions = world.nominated().filter_map(|gang| match &gang.state {
        GangState::Nominated(preemption) => Some(preemption),
        GangState::Waiting | GangState::Reserved(_) | GangState::Unplaced => None,
    });
    let victims = preemptions.flat_map(Preemption::stopped);
    victims.filter_map(|uid| world.gang(uid)).filter(|gang| gang.state.assignment().is_some())
}

/// Chooses victims for a gang from those who are not `spared`, while everybody who is leaving is let go; nor may those be
/// stopped that are `superior`. When stopping all of them does not help: what could. On success the victims are let go in the
/// ledger.
///
/// Of several ways to be given flavors, the one is taken that the gang's queue prefers.
pub(crate) fn make_room<'s>(
    ledger: &mut Ledger<'s>,
    snapshot: &Snapshot<'s>,
    gang: &'s Gang,
    superior: &BTreeSet<&str>,
    spared: &dyn Fn(&str) -> bool,
) -> Result<Room, QueueingHint> {
    let shape = gang.shape();
    let request = GangRequest::of_gang(gang, &shape);
    if let Ok(fit) = look(ledger, &request) {
        return Ok(Room { victims: Vec::new(), fit }); // Those who are leaving make room enough.
    }
    let world = ledger.world;
    let doomed: BTreeSet<&str> = doomed(world).map(|gang| gang.uid.as_str()).collect();
    let may = |other: &&Gang| {
        let uid = other.uid.as_str();
        !other.protected && !doomed.contains(uid) && !superior.contains(uid) && !spared(uid)
    };
    let holders: Vec<&Gang> = world.holding().filter(may).collect();
    let ways = Alternatives::of(world, &request);
    // What this gang may not take another one of its shape might.
    let mut wake =
        if superior.is_empty() && ways.are_all { QueueingHint::Nodes } else { QueueingHint::Change };
    let queue = world.queues().get(&gang.queue);
    let mut best: Option<((u32, u32), Found)> = None;
    for flavors in &ways.all {
        match find(ledger, snapshot, gang, &request, flavors, &holders) {
            Ok(found) => {
                let rank = queue.map_or((0, 0), |queue| preference(queue, &found));
                let ends = queue.is_some_and(|queue| ends_search(queue, &found));
                if best.as_ref().is_none_or(|(least, _)| rank < *least) {
                    best = Some((rank, found));
                }
                if ends {
                    break;
                }
            }
            Err(other) => wake = wake.max(other),
        }
    }
    let (_, Found { victims, flavors, .. }) = best.ok_or(wake)?;
    for victim in &victims {
        ledger.release(&victim.uid);
    }
    let fit = look_with(ledger, &request, &flavors).map_err(|(_, wake)| wake)?;
    Ok(Room { victims, fit })
}

/// Victims who make room for a gang with certain flavors.
struct Found {
    victims: Vec<Victim>,
    flavors: Flavors,
    /// Some of them are charged to the gang's own node.
    stops_own: bool,
    /// How high up the gang will borrow.
    level: u32,
}

/// What a queue likes better is smaller. After Kueue's flavor fungibility: who reclaims is better than who stops its own.
fn preference(queue: &Queue, found: &Found) -> (u32, u32) {
    let (mode, level) = (u32::from(found.stops_own), found.level);
    match queue.fungibility.preference {
        Preference::BorrowingOverPreemption => (mode, level),
        Preference::PreemptionOverBorrowing => (level, mode),
    }
}

/// Whether later flavors are not tried.
fn ends_search(queue: &Queue, found: &Found) -> bool {
    let Fungibility { when_can_borrow, when_can_preempt, .. } = queue.fungibility;
    when_can_preempt == NextFlavor::Ignore && (found.level == 0 || when_can_borrow == NextFlavor::Ignore)
}

/// The cheapest victims that make room for a gang with these flavors. Leaves the ledger as it found it.
fn find<'s>(
    ledger: &mut Ledger<'s>,
    snapshot: &Snapshot<'s>,
    gang: &'s Gang,
    request: &GangRequest<'_>,
    flavors: &Flavors,
    holders: &[&'s Gang],
) -> Result<Found, QueueingHint> {
    let world = ledger.world;
    let is_charged = world.quota_of(request.queue).is_some() || !request.charges.is_empty();
    let has_room =
        is_charged && seat(ledger, &narrowed(world, request.shape, flavors), request.shape).is_ok();
    let rules = Rules::of(ledger, gang, request, flavors, has_room);
    let titled = holders.iter().filter_map(|other| {
        let titles = rules.titles(&ledger.quotas, other);
        (!titles.is_empty()).then(|| Candidate::of(other, snapshot.now, titles))
    });
    let mut candidates: Vec<Candidate<'s>> = titled.collect();
    candidates.sort_by_cached_key(Candidate::rank);
    let aim = |within| Target { request, flavors, rules: &rules, candidates: &candidates, within };
    let mut best = aim(false).cheapest(ledger);
    if candidates
        .iter()
        .any(|candidate| candidate.titles.iter().any(|title| title.kind == Kind::ReclaimWithin))
    {
        best = match (best, aim(true).cheapest(ledger)) {
            (Ok(one), Ok(other)) => Ok(if other.price < one.price { other } else { one }),
            (Err(one), Err(other)) => Err(one.max(other)),
            (Ok(set), Err(_)) | (Err(_), Ok(set)) => Ok(set),
        };
    }
    let set = best?;
    for (victim, _) in &set.victims {
        ledger.release(&victim.uid);
    }
    let level = rules.borrowing_level(&ledger.quotas, world.quota_of(request.queue));
    for (victim, _) in &set.victims {
        ledger.hold(&victim.uid);
    }
    let mut victims = set.victims;
    victims.sort_by(|(one, _), (other, _)| (&one.key, &one.uid).cmp(&(&other.key, &other.uid)));
    let stops_own = victims.iter().any(|(_, reason)| *reason == PreemptionReason::InClusterQueue);
    let victims =
        victims.into_iter().map(|(gang, reason)| Victim { uid: gang.uid.clone(), reason }).collect();
    Ok(Found { victims, flavors: flavors.clone(), stops_own, level })
}
