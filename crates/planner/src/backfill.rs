//! Backfill: computes the earliest start of a gang that does not fit, and which gangs may start before it.
//! `reservations` manages several reserved starts.
//!
//! The first pending gang whose start can be computed from the expected ends of the running gangs gets a
//! reserved start. A later gang that fits now is backfilled only if it ends by then, or if the reserved gang
//! still fits beside it. So no admission delays a reserved start. Only gangs that overrun, nodes that vanish
//! and gangs of a higher rank do.

mod reservations;

use model::{Assignment, Cause, ForecastStart, Gang, Hold, QueueingHint, Reservation, Shortage, Time, World};

use crate::fit::{fewest_departures_to_fit, try_fit};
use crate::ledger::Ledger;
use crate::order::RowHead;
use crate::request::{Fit, GangRequest};
pub(crate) use reservations::{StartReservations, owned_quota};

/// The number of expected ends that are examined; later ones are too uncertain.
const ENDS: usize = 4096;

/// The gangs that hold resources, by their expected end.
pub(crate) struct Timeline<'s> {
    now: Time,
    ends: Vec<End<'s>>,
}

struct End<'s> {
    at: Time,
    declared: bool,
    /// The gang, if it is placed and not terminating.
    gang: Option<&'s Gang>,
    holder: Holder<'s>,
}

enum Holder<'s> {
    /// All that the gang with this uid, and its pods, hold in the cluster state.
    InWorld(&'s str),
    /// What this cycle assigned to a gang.
    Admitted { uid: &'s str, request: GangRequest<'s>, assignment: Assignment },
}

/// The ends up to a time that a gang may rely on.
struct PassedEnds<'t, 's>(Vec<&'t End<'s>>);

impl<'s> Timeline<'s> {
    /// The holders at the start of a cycle. Gangs that are terminating, and `terminating_victims`, count as
    /// ending now.
    pub(crate) fn of(world: &'s World, now: Time, terminating_victims: &[&'s Gang]) -> Self {
        let ending =
            world.terminating_gangs().chain(terminating_victims.iter().map(|gang| gang.uid.as_str()));
        let ends_now = |uid| End { at: now, declared: true, gang: None, holder: Holder::InWorld(uid) };
        let mut ends: Vec<End<'s>> = ending.map(ends_now).collect();
        let is_terminating = |gang: &&Gang| terminating_victims.iter().any(|other| other.uid == gang.uid);
        for gang in world.placed_gangs().filter(|gang| !is_terminating(gang)) {
            let (at, declared) = gang.expected_end(now);
            ends.push(End { at, declared, gang: Some(gang), holder: Holder::InWorld(&gang.uid) });
        }
        ends.sort_by_key(|end| (end.at, end.uid()));
        Self { now, ends }
    }

    /// Adds a gang that this cycle admits.
    pub(crate) fn admit(&mut self, gang: &'s Gang, request: GangRequest<'s>, assignment: Assignment) {
        let started_at = gang.started_at.filter(|_| gang.state.holds()).or(Some(self.now));
        let running = Gang { started_at, runs_us: gang.runs_us, ..Gang::default() };
        let (at, declared) = running.expected_end(self.now);
        let end = End {
            at,
            declared,
            gang: Some(gang),
            holder: Holder::Admitted { uid: &gang.uid, request, assignment },
        };
        let position = self.ends.partition_point(|other| (other.at, other.uid()) < (end.at, end.uid()));
        self.ends.insert(position, end);
    }

    /// Moves the end of a gang that this cycle preempts to now.
    pub(crate) fn preempt(&mut self, uid: &str) {
        if let Some(at) = self.ends.iter().position(|end| end.uid() == uid) {
            let End { holder, .. } = self.ends.remove(at);
            let end = End { at: self.now, declared: true, gang: None, holder };
            let position = self.ends.partition_point(|other| (other.at, other.uid()) < (end.at, end.uid()));
            self.ends.insert(position, end);
        }
    }

    /// The ends that a gang may rely on, in order. Those of backfilled gangs are known only if they are declared, or if the
    /// gang starts only after them. Then it does not rely on the gangs that this cycle backfills, too.
    fn ends_for(&self, next: &RowHead<'s>, after_backfilled: bool) -> impl Iterator<Item = &End<'s>> {
        let counts = move |end: &&End<'s>| {
            if after_backfilled {
                !self.is_of_backfilled_now(end, next)
            } else {
                !self.is_of_backfilled(end, next)
            }
        };
        self.ends.iter().filter(counts).take(ENDS)
    }

    /// Whether an end is that of a gang that this cycle admits past a pending one.
    fn is_of_backfilled_now(&self, end: &End<'s>, next: &RowHead<'s>) -> bool {
        matches!(end.holder, Holder::Admitted { .. })
            && end.gang.is_some_and(|gang| gang.sort_key(self.now) > next.rank)
    }

    /// Whether an end is only expected, and that of a gang that was backfilled past a pending one.
    fn is_of_backfilled(&self, end: &End<'s>, next: &RowHead<'s>) -> bool {
        !end.declared && end.gang.is_some_and(|gang| was_backfilled_past(gang, next, self.now))
    }

    /// The earliest start of a gang, with the ends up to then. Leaves the ledger in the state of that time.
    fn earliest_start(
        &self,
        ledger: &mut Ledger<'s>,
        next: &RowHead<'s>,
        request: &GangRequest<'_>,
        after_backfilled: bool,
    ) -> Option<(ForecastStart, PassedEnds<'_, 's>)> {
        let mut ends: Vec<&End<'s>> = self.ends_for(next, after_backfilled).collect();
        let passed = fewest_departures_to_fit(ledger, request, ends.len(), |ledger, at, is_released| {
            ends[at].apply(ledger, is_released);
        });
        ends.truncate(passed.ok()?);
        let forecast = ForecastStart {
            start: ends.last().map_or(self.now, |end| end.at),
            declared: ends.iter().all(|end| end.declared),
            after: ends.last().filter(|end| end.at > self.now).map(|end| end.uid().to_owned()),
        };
        Some((forecast, PassedEnds(ends)))
    }
}

/// Whether a running gang was backfilled past this pending one. If it also declares no end, or has exceeded it, the
/// pending gang relies on its end only if it cannot start otherwise ([`ReservedGang::after_backfilled`]).
fn was_backfilled_past(gang: &Gang, next: &RowHead<'_>, now: Time) -> bool {
    gang.sort_key(now) > next.rank
        && gang.started_at.is_none_or(|started| started >= next.order_key.queued_at)
}

impl<'s> PassedEnds<'_, 's> {
    fn release(&self, ledger: &mut Ledger<'s>) {
        self.0.iter().for_each(|end| end.apply(ledger, true));
    }

    fn restore(&self, ledger: &mut Ledger<'s>) {
        self.0.iter().for_each(|end| end.apply(ledger, false));
    }
}

impl<'s> End<'s> {
    fn uid(&self) -> &'s str {
        match &self.holder {
            Holder::InWorld(uid) | Holder::Admitted { uid, .. } => uid,
        }
    }

    fn apply(&self, ledger: &mut Ledger<'s>, is_released: bool) {
        match (&self.holder, is_released) {
            (Holder::InWorld(uid), true) => ledger.release(uid),
            (Holder::InWorld(uid), false) => ledger.restore(uid),
            (Holder::Admitted { request, assignment, .. }, true) => ledger.unreserve(request, assignment),
            (Holder::Admitted { request, assignment, .. }, false) => {
                ledger.reserve_assignment(request, assignment);
            }
        }
    }
}

/// A gang with a reserved start.
#[derive(Clone)]
pub(crate) struct ReservedGang<'s> {
    next: RowHead<'s>,
    request: GangRequest<'s>,
    pub(crate) forecast: ForecastStart,
    /// Whether a gang before it has no predictable start: it could start at any time and take these nodes.
    after_unpredictable: bool,
    /// Whether it can start only when gangs end that were backfilled past it and have no declared end, or have
    /// exceeded it. Then no gang is backfilled because it ends before: gangs could overtake this one forever, each on
    /// the guess that the previous ones will have ended.
    after_backfilled: bool,
    /// Its expected run time.
    runs_us: Option<i64>,
    /// Its nodes at the reserved start.
    assignment: Assignment,
    /// How long it holds others back if its start relies on a guessed end.
    guess: Hold,
    /// A gang that this cycle admits takes what it needs, and may: see `owned_quota`. Until the start is computed anew, no other
    /// gang passes.
    is_passed: bool,
}

impl<'s> ReservedGang<'s> {
    /// Computes the reserved start of a gang; none when it cannot be computed.
    pub(crate) fn of(
        ledger: &mut Ledger<'s>,
        timeline: &Timeline<'s>,
        next: &RowHead<'s>,
        request: GangRequest<'s>,
        after_unpredictable: bool,
    ) -> Option<Self> {
        let mut after_backfilled = false;
        let mut found = timeline.earliest_start(ledger, next, &request, false);
        if found.is_none() && timeline.ends.iter().any(|end| timeline.is_of_backfilled(end, next)) {
            after_backfilled = true;
            found = timeline.earliest_start(ledger, next, &request, true);
        }
        let (forecast, passed_ends) = found?;
        let assignment = try_fit(ledger, &request).ok().map(|fit| trial_assignment(ledger, &request, &fit));
        passed_ends.restore(ledger);
        let runs_us = ledger.world.shape(next.ix).runs_us;
        let assignment = assignment?;
        Some(Self {
            next: *next,
            request,
            forecast,
            after_unpredictable,
            after_backfilled,
            runs_us,
            assignment,
            guess: guess(ledger.world, &next.order_key.uid, timeline.now),
            is_passed: false,
        })
    }

    /// The reservation as the plan records it.
    pub(crate) fn reserved(&self) -> Reservation {
        let ForecastStart { start, after, .. } = self.forecast.clone();
        let gang = self.next.order_key.uid.to_string();
        Reservation { gang, start, after, declared: self.is_firm(), hold: self.hold() }
    }

    /// Whether the start relies on declared ends only, and no gang before it lacks a predictable start.
    fn is_firm(&self) -> bool {
        self.forecast.declared && !self.after_unpredictable
    }

    /// How long it holds others back. A start that relies on a guessed end does so for a limited time.
    fn hold(&self) -> Hold {
        if self.forecast.declared { Hold::UntilStart } else { self.guess }
    }

    /// The verdict for a gang that would delay this one.
    pub(crate) fn would_be_delayed(&self) -> Shortage {
        let causes = [Cause::WouldDelay { gang: (*self.next.order_key.key).clone() }];
        Shortage { causes: causes.into(), queueing_hint: QueueingHint::AnyChange }
    }

    /// The ends up to the reserved start; only declared ends if the start is firm, so that no gang is
    /// backfilled on the guess that a third one ends in time. Computed each time, since admissions of this
    /// cycle add ends.
    fn passed_ends<'t>(&self, timeline: &'t Timeline<'s>) -> PassedEnds<'t, 's> {
        let ends = timeline
            .ends_for(&self.next, self.after_backfilled)
            .take_while(|end| end.at <= self.forecast.start);
        PassedEnds(ends.filter(|end| end.declared || !self.is_firm()).collect())
    }

    /// Whether a gang with this declared end, if it has one, ends before the reserved start.
    fn starts_after(&self, end: Option<Time>) -> bool {
        !self.after_backfilled && end.is_some_and(|end| end <= self.forecast.start)
    }

    /// An assignment for another gang that leaves free what the reserved gang needs on its nodes.
    fn fit_around(
        &self,
        ledger: &mut Ledger<'s>,
        timeline: &Timeline<'s>,
        request: &GangRequest<'_>,
    ) -> Option<Assignment> {
        let passed_ends = self.passed_ends(timeline);
        passed_ends.release(ledger);
        let usage_by_node = ledger.usage_by_node(self.request.shape, &self.assignment);
        let remaining = usage_by_node.into_iter().map(|(node, taken)| {
            let mut remaining = ledger.node_resources(node);
            remaining.take(&taken);
            (node, remaining)
        });
        let remaining: Vec<_> = remaining.collect();
        passed_ends.restore(ledger);
        let before: Vec<_> =
            remaining.iter().map(|(node, _)| (*node, ledger.node_resources(*node))).collect();
        for (node, remaining) in &remaining {
            let least = ledger.node_resources(*node).least(remaining);
            ledger.set_node_resources(*node, least);
        }
        let (world, shape) = (ledger.world, self.request.shape);
        ledger.pod_marks.apply_assignment(world, shape, &self.assignment, 1);
        // The assignment is named before the nodes are reset, since a reset moves them to other groups.
        let assignment = try_fit(ledger, request).ok().map(|fit| trial_assignment(ledger, request, &fit));
        ledger.pod_marks.apply_assignment(world, shape, &self.assignment, -1);
        for (node, stock) in before {
            ledger.set_node_resources(node, stock);
        }
        assignment
    }

    /// Whether the gang still fits at its reserved start, given all admissions so far. Updates its nodes.
    pub(crate) fn still_fits(&mut self, ledger: &mut Ledger<'s>, timeline: &Timeline<'s>) -> bool {
        let passed_ends = self.passed_ends(timeline);
        passed_ends.release(ledger);
        let fit = try_fit(ledger, &self.request);
        if let Ok(fit) = &fit {
            self.assignment = trial_assignment(ledger, &self.request, fit);
        }
        passed_ends.restore(ledger);
        fit.is_ok()
    }
}

/// How long a gang holds others back while its start relies on a guessed end.
fn guess(world: &World, gang: &str, now: Time) -> Hold {
    match world.hold_of(gang) {
        Some(until) if until > now => Hold::Until(until),
        None if world.policy().guessed_hold_us > 0 => Hold::Unused,
        Some(_) | None => Hold::Over,
    }
}

/// The assignment that a gang would get. Leaves the ledger as it was.
fn trial_assignment(ledger: &mut Ledger<'_>, request: &GangRequest<'_>, fit: &Fit) -> Assignment {
    let assignment = ledger.reserve(request, fit);
    ledger.unreserve(request, &assignment);
    assignment
}
