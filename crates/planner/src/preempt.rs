//! Making room: which gangs are to be stopped so that another one fits.
//!
//! Victims are whole gangs of strictly lower priority. Whoever is leaving already counts as gone, at no price. Among the
//! sets that make enough room the cheapest is taken: priority by priority, the highest first, the one that loses the least
//! accelerator time, then CPU time, then the fewest gangs, accelerators and pods. No member could be spared. Why this cannot go
//! on for ever is told in `docs/planner/preemption.md`.

mod choice;
mod price;

use std::collections::BTreeSet;

use model::{Gang, GangState, Ground, Preemption, Snapshot, Victim, Wake, World};

use crate::asks::{Asks, Fit};
use crate::fit::{leave_in_turn, look};
use crate::ledger::Ledger;
use crate::preempt::choice::Choice;
use crate::preempt::price::Candidate;

/// How many gangs beyond the cheapest that suffice are considered as well, if their priority is no higher.
const ALTERNATIVES: usize = 16;

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

/// Chooses victims for a gang that asks for this and has this priority from those who are not `spared`, while everybody who is leaving
/// is let go; nor may those be stopped that are `superior`. When stopping all of them does not help: what could. On success the victims are let go in the ledger.
pub(crate) fn make_room<'s>(
    ledger: &mut Ledger<'s>,
    snapshot: &Snapshot<'s>,
    asks: &Asks<'_>,
    priority: i64,
    superior: &BTreeSet<&str>,
    spared: &dyn Fn(&str) -> bool,
) -> Result<Room, Wake> {
    if let Ok(fit) = look(ledger, asks) {
        return Ok(Room { victims: Vec::new(), fit }); // Those who are leaving make room enough.
    }
    let doomed: Vec<&str> = doomed(ledger.world).map(|gang| gang.uid.as_str()).collect();
    let weaker = ledger.world.holding().filter(|gang| gang.priority < priority && !gang.protected);
    let eligible = weaker.filter(|gang| !doomed.contains(&gang.uid.as_str()) && !spared(&gang.uid));
    let (eligible, superior): (Vec<&Gang>, Vec<&Gang>) =
        eligible.partition(|gang| !superior.contains(gang.uid.as_str()));
    let mut candidates: Vec<Candidate<'s>> =
        eligible.into_iter().map(|gang| Candidate::of(gang, snapshot.now)).collect();
    candidates.sort_by_cached_key(Candidate::rank);

    let enough = leave_in_turn(ledger, asks, candidates.len(), |ledger, at, leaves| {
        let uid = &candidates[at].gang.uid;
        if leaves { ledger.release(uid) } else { ledger.hold(uid) }
    });
    // What this gang may not take another one of its shape might.
    let mut enough = enough.map_err(|wake| if superior.is_empty() { wake } else { Wake::Change })?;
    let last = candidates.get(enough.saturating_sub(1)).map(|last| last.price.priority);
    let alike = candidates[enough..].iter().take(ALTERNATIVES);
    for candidate in alike.take_while(|other| Some(other.price.priority) == last) {
        ledger.release(&candidate.gang.uid);
        enough += 1;
    }
    candidates.truncate(enough);
    candidates.reverse(); // The dearest first: it is the first to be spared.
    let best = Choice::cheapest(ledger, asks, &candidates);
    let (victims, unharmed): (Vec<_>, Vec<_>) = (0..candidates.len()).partition(|at| best.contains(at));
    for at in unharmed {
        ledger.hold(&candidates[at].gang.uid);
    }
    let mut victims: Vec<&Gang> = victims.into_iter().map(|at| candidates[at].gang).collect();
    victims.sort_by(|one, other| (&one.key, &one.uid).cmp(&(&other.key, &other.uid)));
    let victims =
        victims.into_iter().map(|gang| Victim { uid: gang.uid.clone(), ground: Ground::Priority }).collect();
    let fit = look(ledger, asks).map_err(|(_, wake)| wake)?;
    Ok(Room { victims, fit })
}
