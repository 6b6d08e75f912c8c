//! Making room: which gangs are to be stopped so that another one fits.
//!
//! Victims are whole gangs of strictly lower priority. Whoever is leaving already counts as gone, at no price. Among the
//! sets that make enough room the cheapest is taken: priority by priority, the highest first, the one that loses the least
//! accelerator time, then CPU time, then the fewest gangs, accelerators and pods. No member could be spared. Why this cannot go
//! on for ever is told in `docs/planner/preemption.md`.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use model::{Gang, GangState, PodSet, ResourceIx, Snapshot, Time, Wake, World};

use crate::asks::{Asks, Fit};
use crate::fit::{leave_in_turn, look};
use crate::ledger::Ledger;

/// How many times the gang is tried to be placed in search of a cheaper set, after the first one was found.
const BUDGET: u32 = 256;

/// How many gangs beyond the cheapest that suffice are considered as well, if their priority is no higher.
const ALTERNATIVES: usize = 16;

/// The gangs to stop, by name, and where the gang fits once they are gone.
pub(crate) struct Room<'s> {
    pub(crate) victims: Vec<&'s Gang>,
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
    pub(crate) fn undo(self, ledger: &mut Ledger<'_>, victims: &[&Gang]) {
        for uid in self.gone.iter().map(String::as_str).chain(victims.iter().map(|gang| gang.uid.as_str())) {
            ledger.hold(uid);
        }
    }
}

/// The gangs that are being stopped for another one but still hold their places.
pub(crate) fn doomed(world: &World) -> impl Iterator<Item = &Gang> {
    let victims = world.nominated().filter_map(|gang| match &gang.state {
        GangState::Nominated(preemption) => Some(&preemption.victims),
        GangState::Waiting | GangState::Reserved(_) | GangState::Unplaced => None,
    });
    victims.flatten().filter_map(|uid| world.gang(uid)).filter(|gang| gang.state.assignment().is_some())
}

/// Chooses victims for a gang that asks for this and has this priority from those who are not `spared`, while everybody who is leaving
/// is let go. When stopping all of them does not help: what could. On success the victims are let go in the ledger.
pub(crate) fn make_room<'s>(
    ledger: &mut Ledger<'s>,
    snapshot: &Snapshot<'s>,
    asks: &Asks<'_>,
    priority: i64,
    spared: &dyn Fn(&str) -> bool,
) -> Result<Room<'s>, Wake> {
    if let Ok(fit) = look(ledger, asks) {
        return Ok(Room { victims: Vec::new(), fit }); // Those who are leaving make room enough.
    }
    let doomed: Vec<&str> = doomed(ledger.world).map(|gang| gang.uid.as_str()).collect();
    let weaker = ledger.world.holding().filter(|gang| gang.priority < priority && !gang.protected);
    let eligible = weaker.filter(|gang| !doomed.contains(&gang.uid.as_str()) && !spared(&gang.uid));
    let mut candidates: Vec<Candidate<'s>> = eligible.map(|gang| Candidate::of(gang, snapshot.now)).collect();
    candidates.sort_by_cached_key(Candidate::rank);

    let mut enough = leave_in_turn(ledger, asks, candidates.len(), |ledger, at, leaves| {
        let uid = &candidates[at].gang.uid;
        if leaves { ledger.release(uid) } else { ledger.hold(uid) }
    })?;
    let last = candidates.get(enough.saturating_sub(1)).map(|last| last.price.priority);
    let alike = candidates[enough..].iter().take(ALTERNATIVES);
    for candidate in alike.take_while(|other| Some(other.price.priority) == last) {
        ledger.release(&candidate.gang.uid);
        enough += 1;
    }
    candidates.truncate(enough);
    candidates.reverse(); // The dearest first: it is the first to be spared.
    let mut choice =
        Choice { ledger, asks, candidates: &candidates, stopped: Vec::new(), best: None, budget: BUDGET };
    choice.descend(0);
    let best = choice.best.map(|(_, best)| best).unwrap_or_default();
    let (victims, unharmed): (Vec<_>, Vec<_>) = (0..candidates.len()).partition(|at| best.contains(at));
    for at in unharmed {
        ledger.hold(&candidates[at].gang.uid);
    }
    let mut victims: Vec<&Gang> = victims.into_iter().map(|at| candidates[at].gang).collect();
    victims.sort_by(|one, other| (&one.key, &one.uid).cmp(&(&other.key, &other.uid)));
    let fit = look(ledger, asks).map_err(|(_, wake)| wake)?;
    Ok(Room { victims, fit })
}

/// A gang that may be stopped.
#[derive(Clone, Copy, Debug)]
struct Candidate<'s> {
    price: Price,
    gang: &'s Gang,
}

/// What stopping gangs of one priority costs, the most important first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Price {
    priority: i64,
    /// Seconds of accelerators (whole units of extended resources) that would be lost.
    accelerator_s: i128,
    /// Seconds of milli-CPU that would be lost.
    cpu_ms: i128,
    gangs: u64,
    accelerators: i128,
    pods: u64,
}

impl<'s> Candidate<'s> {
    fn of(gang: &'s Gang, now: Time) -> Self {
        let kept_from = gang.checkpointed_at.max(gang.started_at);
        let lost_s = i128::from(kept_from.map_or(0, |from| now.since(from).max(0)) / 1_000_000);
        let sum = |amount: &dyn Fn(&PodSet) -> i128| -> i128 {
            gang.pod_sets.iter().map(|pod_set| amount(pod_set) * i128::from(pod_set.count)).sum()
        };
        let accelerators = sum(&|pod_set| {
            let extended = pod_set.request.iter().filter(|(ix, _)| *ix > ResourceIx::PODS);
            extended.map(|(_, amount)| i128::from(amount.0)).sum()
        });
        let price = Price {
            priority: gang.priority,
            accelerator_s: lost_s.saturating_mul(accelerators),
            cpu_ms: lost_s.saturating_mul(sum(&|pod_set| i128::from(pod_set.request.get(ResourceIx::CPU).0))),
            gangs: 1,
            accelerators,
            pods: gang.pod_sets.iter().map(|pod_set| u64::from(pod_set.count)).sum(),
        };
        Self { price, gang }
    }

    /// The smaller goes first: the cheaper, then the newer, then by name.
    fn rank(&self) -> impl Ord + use<'s> {
        let gang = self.gang;
        (self.price, Reverse(gang.started_at.unwrap_or(gang.queued_at)), &gang.key, &gang.uid)
    }
}

/// The search for the cheapest set. All candidates from an index on are let go, those before it are decided.
struct Choice<'a, 's> {
    ledger: &'a mut Ledger<'s>,
    asks: &'a Asks<'a>,
    candidates: &'a [Candidate<'s>],
    stopped: Vec<usize>,
    best: Option<(Vec<Price>, Vec<usize>)>,
    budget: u32,
}

impl Choice<'_, '_> {
    /// Decides about the candidates from `at` on; sparing comes first, so the first set found is one of which nobody
    /// can be spared in order of price. Leaves the ledger as it found it.
    fn descend(&mut self, at: usize) {
        let Some(candidate) = self.candidates.get(at) else {
            let total = self.total();
            if self.best.as_ref().is_none_or(|(best, _)| total < *best) {
                self.best = Some((total, self.stopped.clone()));
            }
            return;
        };
        if self.best.is_some() && (self.budget == 0 || self.is_hopeless()) {
            return;
        }
        let uid = &candidate.gang.uid;
        self.ledger.hold(uid);
        self.budget = self.budget.saturating_sub(1);
        if look(self.ledger, self.asks).is_ok() {
            self.descend(at + 1);
        }
        self.ledger.release(uid);
        self.stopped.push(at);
        self.descend(at + 1);
        self.stopped.pop();
    }

    /// What is stopped so far costs this, priority by priority, the highest first: work of a higher priority weighs more
    /// than any amount of work below it.
    fn total(&self) -> Vec<Price> {
        let mut total: Vec<Price> = Vec::new();
        for Price { priority, accelerator_s, cpu_ms, gangs, accelerators, pods } in
            self.stopped.iter().map(|at| self.candidates[*at].price)
        // Candidates are in descending order.
        {
            match total.last_mut().filter(|last| last.priority == priority) {
                Some(last) => {
                    last.accelerator_s = last.accelerator_s.saturating_add(accelerator_s);
                    last.cpu_ms = last.cpu_ms.saturating_add(cpu_ms);
                    last.gangs += gangs;
                    last.accelerators = last.accelerators.saturating_add(accelerators);
                    last.pods = last.pods.saturating_add(pods);
                }
                None => total.push(Price { priority, accelerator_s, cpu_ms, gangs, accelerators, pods }),
            }
        }
        total
    }

    /// Whether what was decided so far costs as much as the best set already.
    fn is_hopeless(&self) -> bool {
        self.best.as_ref().is_some_and(|(best, _)| self.total() >= *best)
    }
}
