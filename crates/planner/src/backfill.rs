//! When a gang that does not fit could start, and who may pass it meanwhile; `promises` holds the starts that are promised.
//!
//! The first gang in order that has to wait, and for which a start can be computed from the expected ends of those who
//! run, gets that start. Whoever comes later and fits now passes it only if it will have ended by then, or if the first
//! one still fits then beside it. So no admission moves the start; only ends that come later than expected, nodes that
//! vanish and gangs that go before do.

mod promises;

use model::{Assignment, Cause, ForecastStart, Gang, QueueingHint, Reservation, Shortage, Time, World};

use crate::fit::{leave_in_turn, look};
use crate::ledger::Ledger;
use crate::order::Next;
use crate::request::{Fit, GangRequest};
pub(crate) use promises::Promises;

/// More ends than this are not looked at: what lies behind them is no forecast.
const ENDS: usize = 4096;

/// The gangs that hold capacity, by when they will presumably leave.
pub(crate) struct Timeline<'s> {
    now: Time,
    ends: Vec<End<'s>>,
}

struct End<'s> {
    at: Time,
    declared: bool,
    /// The gang, if it holds its places and is not leaving yet.
    gang: Option<&'s Gang>,
    who: Who<'s>,
}

enum Who<'s> {
    /// Everything that the gang of this uid and its pods hold.
    Holder(&'s str),
    /// What was given in this pass.
    Started { uid: &'s str, request: GangRequest<'s>, assignment: Assignment },
}

/// The ends until a time, as one gang may count on them.
struct Past<'t, 's>(Vec<&'t End<'s>>);

impl<'s> Timeline<'s> {
    /// Who holds capacity at the start of a pass. `doomed` are being stopped and count as leaving now.
    pub(crate) fn of(world: &'s World, now: Time, doomed: &[&'s Gang]) -> Self {
        let leaving = world.leaving().chain(doomed.iter().map(|gang| gang.uid.as_str()));
        let leaves = |uid| End { at: now, declared: true, gang: None, who: Who::Holder(uid) };
        let mut ends: Vec<End<'s>> = leaving.map(leaves).collect();
        let is_doomed = |gang: &&Gang| doomed.iter().any(|other| other.uid == gang.uid);
        for gang in world.holding().filter(|gang| !is_doomed(gang)) {
            let (at, declared) = gang.expected_end(now);
            ends.push(End { at, declared, gang: Some(gang), who: Who::Holder(&gang.uid) });
        }
        ends.sort_by_key(|end| (end.at, end.uid()));
        Self { now, ends }
    }

    /// Notes that a gang was admitted in this pass.
    pub(crate) fn start(&mut self, gang: &'s Gang, request: GangRequest<'s>, assignment: Assignment) {
        let started_at = gang.started_at.filter(|_| gang.state.holds()).or(Some(self.now));
        let running = Gang { started_at, runs_us: gang.runs_us, ..Gang::default() };
        let (at, declared) = running.expected_end(self.now);
        let end =
            End { at, declared, gang: Some(gang), who: Who::Started { uid: &gang.uid, request, assignment } };
        let place = self.ends.partition_point(|other| (other.at, other.uid()) < (end.at, end.uid()));
        self.ends.insert(place, end);
    }

    /// Notes that a gang is being stopped.
    pub(crate) fn stop(&mut self, uid: &str) {
        if let Some(at) = self.ends.iter().position(|end| end.uid() == uid) {
            let End { who, .. } = self.ends.remove(at);
            let end = End { at: self.now, declared: true, gang: None, who };
            let place = self.ends.partition_point(|other| (other.at, other.uid()) < (end.at, end.uid()));
            self.ends.insert(place, end);
        }
    }

    /// The ends that the gang at `place` may count on, in order.
    fn ends_for(&self, next: &Next<'s>) -> impl Iterator<Item = &End<'s>> {
        let counts =
            |end: &&End<'s>| end.declared || !end.gang.is_some_and(|gang| has_passed(gang, next, self.now));
        self.ends.iter().filter(counts).take(ENDS)
    }

    /// When the gang at `place` could start at the earliest, with the ends until then; the ledger is then at that time.
    fn advance(
        &self,
        ledger: &mut Ledger<'s>,
        next: &Next<'s>,
        request: &GangRequest<'_>,
    ) -> Option<(ForecastStart, Past<'_, 's>)> {
        let mut ends: Vec<&End<'s>> = self.ends_for(next).collect();
        let passed =
            leave_in_turn(ledger, request, ends.len(), |ledger, at, leaves| ends[at].turn(ledger, leaves));
        ends.truncate(passed.ok()?);
        let forecast = ForecastStart {
            start: ends.last().map_or(self.now, |end| end.at),
            declared: ends.iter().all(|end| end.declared),
            after: ends.last().filter(|end| end.at > self.now).map(|end| end.uid().to_owned()),
        };
        Some((forecast, Past(ends)))
    }
}

/// Whether a gang that runs went past the one at `place`. When it declares no end, it counts as endless for that one:
/// else one after the other could pass on the guess that those before will have ended.
fn has_passed(gang: &Gang, next: &Next<'_>, now: Time) -> bool {
    gang.turn(now) > next.turn && gang.started_at.is_none_or(|started| started >= next.place.queued_at)
}

impl<'s> Past<'_, 's> {
    fn forward(&self, ledger: &mut Ledger<'s>) {
        self.0.iter().for_each(|end| end.turn(ledger, true));
    }

    fn rewind(&self, ledger: &mut Ledger<'s>) {
        self.0.iter().for_each(|end| end.turn(ledger, false));
    }
}

impl<'s> End<'s> {
    fn uid(&self) -> &'s str {
        match &self.who {
            Who::Holder(uid) | Who::Started { uid, .. } => uid,
        }
    }

    fn turn(&self, ledger: &mut Ledger<'s>, leaves: bool) {
        match (&self.who, leaves) {
            (Who::Holder(uid), true) => ledger.release(uid),
            (Who::Holder(uid), false) => ledger.hold(uid),
            (Who::Started { request, assignment, .. }, true) => ledger.give_back(request, assignment),
            (Who::Started { request, assignment, .. }, false) => ledger.take_again(request, assignment),
        }
    }
}

/// A gang that must not be delayed.
#[derive(Clone)]
pub(crate) struct Head<'s> {
    next: Next<'s>,
    request: GangRequest<'s>,
    pub(crate) forecast: ForecastStart,
    /// Whether its start counts on declared ends only, and nobody goes first who could take its place at any time because
    /// his own start cannot be foreseen.
    promised: bool,
    /// How long it is expected to run.
    runs_us: Option<i64>,
    /// Where it would go.
    assignment: Assignment,
}

impl<'s> Head<'s> {
    /// Makes a gang the one that must not be delayed; none when its start cannot be computed. `after_unforeseen`: whether
    /// there was none for another gang that goes first.
    pub(crate) fn of(
        ledger: &mut Ledger<'s>,
        timeline: &Timeline<'s>,
        next: &Next<'s>,
        request: GangRequest<'s>,
        after_unforeseen: bool,
    ) -> Option<Self> {
        let (forecast, past) = timeline.advance(ledger, next, &request)?;
        let assignment = look(ledger, &request).ok().map(|fit| peek(ledger, &request, &fit));
        past.rewind(ledger);
        let promised = forecast.declared && !after_unforeseen;
        let runs_us = ledger.world.shape(next.ix).runs_us;
        Some(Self { next: *next, request, forecast, promised, runs_us, assignment: assignment? })
    }

    /// What is to be remembered of it.
    pub(crate) fn reserved(&self) -> Reservation {
        let ForecastStart { start, after, .. } = self.forecast.clone();
        Reservation { gang: self.next.place.uid.to_string(), start, after, declared: self.promised }
    }

    /// What others are told whom it holds back.
    pub(crate) fn would_be_delayed(&self) -> Shortage {
        let causes = [Cause::WouldDelay { gang: (*self.next.place.key).clone() }];
        Shortage { causes: causes.into(), wake: QueueingHint::Change }
    }

    /// The ends until its start, and of these only declared ones if it was promised: nobody may pass on the guess that a
    /// third one ends in time. Computed anew, since gangs that start in this pass are added.
    fn past<'t>(&self, timeline: &'t Timeline<'s>) -> Past<'t, 's> {
        let ends = timeline.ends_for(&self.next).take_while(|end| end.at <= self.forecast.start);
        Past(ends.filter(|end| end.declared || !self.promised).collect())
    }

    /// Places that leave alone what the head will need on its nodes.
    fn place_aside(
        &self,
        ledger: &mut Ledger<'s>,
        timeline: &Timeline<'s>,
        request: &GangRequest<'_>,
    ) -> Option<Assignment> {
        let past = self.past(timeline);
        past.forward(ledger);
        let takes = ledger.takes(self.request.shape, &self.assignment);
        let spare = takes.into_iter().map(|(node, taken)| {
            let mut spare = ledger.stock(node);
            spare.take(&taken);
            (node, spare)
        });
        let spare: Vec<_> = spare.collect();
        past.rewind(ledger);
        let before: Vec<_> = spare.iter().map(|(node, _)| (*node, ledger.stock(*node))).collect();
        for (node, spare) in &spare {
            let least = ledger.stock(*node).least(spare);
            ledger.set_stock(*node, least);
        }
        // Named while the nodes are set so: afterwards they are in other groups again.
        let assignment = look(ledger, request).ok().map(|fit| peek(ledger, request, &fit));
        for (node, stock) in before {
            ledger.set_stock(node, stock);
        }
        assignment
    }

    /// Whether the head fits at its start with all that was given so far; notes where.
    pub(crate) fn still_fits(&mut self, ledger: &mut Ledger<'s>, timeline: &Timeline<'s>) -> bool {
        let past = self.past(timeline);
        past.forward(ledger);
        let fit = look(ledger, &self.request);
        if let Ok(fit) = &fit {
            self.assignment = peek(ledger, &self.request, fit);
        }
        past.rewind(ledger);
        fit.is_ok()
    }
}

/// Where a gang would be, without taking the places.
fn peek(ledger: &mut Ledger<'_>, request: &GangRequest<'_>, fit: &Fit) -> Assignment {
    let assignment = ledger.reserve(request, fit);
    ledger.give_back(request, &assignment);
    assignment
}
