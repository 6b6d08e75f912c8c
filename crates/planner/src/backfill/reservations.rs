//! Several reserved starts at once. No backfilled gang delays any of them, and no reserved start moves
//! because of another.
//!
//! Gangs get reserved starts in order of rank: the earliest time at which a gang fits while the ones before
//! it hold their nodes for their declared run time. After Mu'alem and Feitelson 2001 (conservative backfill),
//! for the first few gangs. A gang keeps the reserved start of the last plan as long as it is still possible.
//! It moves to an earlier start only if all other reserved starts stay as they are.

use std::collections::{BTreeMap, BTreeSet};

use model::{
    Assignment, ForecastStart, Gang, Hold, OrderKey, QuotaIx, QuotaUsage, Reservation, ResourceIx, Shortage,
    Time, World,
};

use super::{ReservedGang, Timeline, guess};
use crate::ledger::Ledger;
use crate::order::RowHead;
use crate::quota::is_counted;
use crate::request::{Fit, GangRequest};

/// The number of start times that are tried for one gang. A later start is not reserved.
const TIMES: usize = 32;

/// See the module.
pub(crate) struct StartReservations<'s> {
    /// The gangs with a start reserved in this cycle, in order of rank.
    gangs: Vec<ReservedGang<'s>>,
    /// The gangs with a start reserved by the last plan that this cycle has not examined yet.
    former: BTreeMap<&'s str, ReservedGang<'s>>,
    gangs_max: usize,
    /// Whether a gang before the next one has no predictable start.
    has_unpredictable: bool,
}

/// A gang that was just assigned its nodes.
struct BackfilledGang<'a> {
    request: &'a GangRequest<'a>,
    assignment: &'a Assignment,
    /// Its declared end.
    end: Option<Time>,
}

impl<'s> StartReservations<'s> {
    /// The reservations of the last plan, to be examined again.
    pub(crate) fn of(world: &'s World, timeline: &Timeline<'s>) -> Self {
        let gangs_max = world.policy().backfill.reservation_depth() as usize;
        let kept = world.reserved().iter().filter(|_| gangs_max > 1);
        let former = kept.filter_map(|reserved| {
            Some((reserved.gang.as_str(), ReservedGang::former(world, timeline, reserved)?))
        });
        Self { gangs: Vec::new(), former: former.collect(), gangs_max, has_unpredictable: false }
    }

    /// Whether the limit of reserved starts is reached.
    pub(crate) fn is_full(&self) -> bool {
        self.gangs.len() >= self.gangs_max
    }

    /// The reservations as the plan records them.
    pub(crate) fn reserved(&self) -> Vec<Reservation> {
        self.gangs.iter().map(ReservedGang::reserved).collect()
    }

    /// Whether a reserved start that holds others back relies on a guessed end, so that a gang with quota of its own may pass it.
    pub(crate) fn has_guess(&self) -> bool {
        self.gangs.iter().any(|head| matches!(head.hold(), Hold::Unused | Hold::Until(_)))
    }

    /// Passes over a pending gang that gets no reserved start: it may start at any time.
    pub(crate) fn pass_over(&mut self) {
        self.has_unpredictable = true;
    }

    /// Removes a gang that is tried itself.
    pub(crate) fn remove(&mut self, order_key: &OrderKey) {
        self.gangs.retain(|head| head.next.order_key != order_key);
    }

    /// Reserves a start for the next gang in order of rank; none when it cannot be computed.
    pub(crate) fn add(
        &mut self,
        ledger: &mut Ledger<'s>,
        timeline: &Timeline<'s>,
        next: &RowHead<'s>,
        request: GangRequest<'s>,
    ) -> Option<&ReservedGang<'s>> {
        let former = self.former.remove(&*next.order_key.uid);
        let head = ReservedGang::of(ledger, timeline, next, request, self.has_unpredictable)
            .and_then(|first| self.schedule(ledger, timeline, first, former.as_ref()));
        self.has_unpredictable |= head.as_ref().is_none_or(|head| head.hold() == Hold::Over);
        self.gangs.push(head?);
        self.gangs.last()
    }

    /// Finds the earliest start from the first possible one on that respects the other reservations.
    fn schedule(
        &mut self,
        ledger: &mut Ledger<'s>,
        timeline: &Timeline<'s>,
        first: ReservedGang<'s>,
        former: Option<&ReservedGang<'s>>,
    ) -> Option<ReservedGang<'s>> {
        if self.gangs.is_empty() && self.former.is_empty() {
            return Some(first);
        }
        let times = self.candidate_starts(timeline, &first);
        if let Some(until) = former.map(|former| former.forecast.start) {
            let before = times.iter().copied().filter(|time| *time < until);
            let kept = before.chain([until]).filter(|time| *time >= first.forecast.start);
            let kept = self.with_former(|all| all.earliest(ledger, timeline, &first, kept));
            if kept.is_some() {
                return kept;
            }
        }
        self.earliest(ledger, timeline, &first, times.into_iter())
    }

    /// Calls a function while the unexamined reservations of the last plan count among the others.
    fn with_former<T>(&mut self, what: impl FnOnce(&mut Self) -> T) -> T {
        let settled = self.gangs.len();
        self.gangs.extend(self.former.values().cloned());
        let result = what(self);
        self.gangs.truncate(settled);
        result
    }

    /// The times from the first possible start of a gang on at which resources change hands.
    fn candidate_starts(&self, timeline: &Timeline<'s>, first: &ReservedGang<'s>) -> Vec<Time> {
        let start = first.forecast.start;
        let ends = timeline.ends_for(&first.next, first.after_backfilled).map(|end| end.at);
        let mut times: Vec<Time> = ends.chain(self.gangs.iter().filter_map(ReservedGang::end)).collect();
        times.retain(|time| *time > start);
        times.push(start);
        times.sort();
        times.dedup();
        times.truncate(TIMES);
        times
    }

    fn earliest(
        &mut self,
        ledger: &mut Ledger<'s>,
        timeline: &Timeline<'s>,
        first: &ReservedGang<'s>,
        times: impl Iterator<Item = Time>,
    ) -> Option<ReservedGang<'s>> {
        for start in times {
            let moved = first.with_start(timeline, start, &self.gangs);
            self.gangs.push(moved);
            let kept = self.recheck(ledger, timeline, None, &BTreeSet::new());
            let moved = self.gangs.pop();
            if kept.is_ok() {
                return moved;
            }
        }
        None
    }

    /// Whether all gangs fit at their reserved starts, given all admissions so far and a newly backfilled
    /// gang. Updates their nodes. Otherwise the error is the index of the gang that would be delayed. Those that rely on
    /// guessed ends, and yield to a gang with quota of its own at these nodes, may be delayed.
    fn recheck(
        &mut self,
        ledger: &mut Ledger<'s>,
        timeline: &Timeline<'s>,
        backfilled: Option<&BackfilledGang<'_>>,
        owned: &BTreeSet<QuotaIx>,
    ) -> Result<(), usize> {
        let before: Vec<Assignment> = self.gangs.iter().map(|head| head.assignment.clone()).collect();
        let mut order: Vec<usize> = (0..self.gangs.len()).collect();
        order.retain(|at| {
            let head = &self.gangs[*at];
            head.hold() != Hold::Over && !(head.is_passed && backfilled.is_none())
        });
        let mut passed: BTreeSet<usize> = BTreeSet::new();
        order.sort_by_key(|at| (self.gangs[*at].forecast.start, self.gangs[*at].next));
        for (done, &at) in order.iter().enumerate() {
            let start = self.gangs[at].forecast.start;
            let runs = |other: &&usize| self.gangs[**other].end().is_none_or(|end| end > start);
            let others = order[..done].iter().filter(|other| !passed.contains(*other)).filter(runs);
            let others: Vec<usize> = others.copied().collect();
            let ended = backfilled.filter(|backfilled| self.gangs[at].starts_after(backfilled.end));
            for other in others.iter().map(|other| &self.gangs[*other]) {
                ledger.reserve_assignment(&other.request, &other.assignment);
            }
            if let Some(BackfilledGang { request, assignment, .. }) = ended {
                ledger.unreserve(request, assignment);
            }
            let fits = self.gangs[at].still_fits(ledger, timeline);
            if let Some(BackfilledGang { request, assignment, .. }) = ended {
                ledger.reserve_assignment(request, assignment);
            }
            for other in others.iter().map(|other| &self.gangs[*other]) {
                ledger.unreserve(&other.request, &other.assignment);
            }
            if !fits && self.gangs[at].yields_to(ledger.world, owned) {
                passed.insert(at);
            } else if !fits {
                for (head, assignment) in self.gangs.iter_mut().zip(before) {
                    head.assignment = assignment;
                }
                return Err(at);
            }
        }
        for at in passed {
            self.gangs[at].is_passed = true;
        }
        Ok(())
    }

    /// Computes the starts anew that were passed. Returns those gangs.
    pub(crate) fn renew_passed(
        &mut self,
        ledger: &mut Ledger<'s>,
        timeline: &Timeline<'s>,
    ) -> Vec<RowHead<'s>> {
        let mut renewed = Vec::new();
        for at in 0..self.gangs.len() {
            if !self.gangs[at].is_passed {
                continue;
            }
            let passed = self.gangs.remove(at);
            let ReservedGang { next, request, after_unpredictable, .. } = passed;
            let first = ReservedGang::of(ledger, timeline, &next, request, after_unpredictable);
            match first.and_then(|first| self.schedule(ledger, timeline, first, None)) {
                Some(head) => {
                    renewed.push(head.next);
                    self.gangs.insert(at, head);
                }
                None => self.gangs.insert(at, passed),
            }
        }
        renewed
    }

    /// Whether the assignment of a nominated gang keeps all reserved starts that it has to; else the verdict for it.
    /// `owned`: its quota nodes, if it stays within their nominal quota.
    pub(crate) fn check(
        &mut self,
        ledger: &mut Ledger<'s>,
        timeline: &Timeline<'s>,
        gang: &str,
        owned: &BTreeSet<QuotaIx>,
    ) -> Result<(), Shortage> {
        self.recheck(ledger, timeline, None, owned).map_err(|at| self.gangs[at].would_be_delayed())?;
        self.former.remove(gang);
        Ok(())
    }

    /// Admits a gang that fits, with this placement or another one, if it delays no reserved start. A gang
    /// with a reserved start starts early only if all other reservations can be kept as well.
    pub(crate) fn admit(
        &mut self,
        ledger: &mut Ledger<'s>,
        timeline: &Timeline<'s>,
        gang: &Gang,
        request: &GangRequest<'_>,
        fit: &Fit,
    ) -> Result<Assignment, Shortage> {
        // Pods of a scale-up end with their gang.
        let started = gang.started_at.filter(|_| gang.state.holds()).unwrap_or(timeline.now);
        let end = gang.runs_us.map(|run| started.after(run)).filter(|end| *end >= timeline.now);
        match self.former.remove(gang.uid.as_str()) {
            Some(former) => {
                let mut passed = self.with_former(|all| all.backfill(ledger, timeline, end, request, fit));
                let is_due = former.forecast.start <= timeline.now;
                if passed.is_err() && (is_due || !self.can_keep_start(ledger, timeline, &former)) {
                    passed = self.backfill(ledger, timeline, end, request, fit);
                }
                if passed.is_err() {
                    self.former.insert(&former.next.order_key.uid, former);
                }
                passed
            }
            None => self.backfill(ledger, timeline, end, request, fit),
        }
    }

    /// Whether a gang with a reserved start, and all others, could keep their starts.
    fn can_keep_start(
        &mut self,
        ledger: &mut Ledger<'s>,
        timeline: &Timeline<'s>,
        former: &ReservedGang<'s>,
    ) -> bool {
        self.with_former(|all| {
            all.gangs.push(former.clone());
            all.recheck(ledger, timeline, None, &BTreeSet::new()).is_ok()
        })
    }

    fn backfill(
        &mut self,
        ledger: &mut Ledger<'s>,
        timeline: &Timeline<'s>,
        end: Option<Time>,
        request: &GangRequest<'_>,
        fit: &Fit,
    ) -> Result<Assignment, Shortage> {
        let overlaps = |head: &&ReservedGang<'s>| !head.starts_after(end) && head.hold() != Hold::Over;
        let Some(first) = self.gangs.iter().find(overlaps) else {
            return Ok(ledger.reserve(request, fit));
        };
        let around = first.fit_around(ledger, timeline, request);
        let assignment = ledger.reserve(request, fit);
        ledger.unreserve(request, &assignment);
        let mut delayed = 0;
        // It passes a guessed start only if it cannot start beside it.
        let beside = around.into_iter().chain([assignment.clone()]).map(|assignment| (assignment, false));
        let passing = self.has_guess().then_some((assignment, true));
        for (assignment, may_pass) in beside.chain(passing) {
            ledger.reserve_assignment(request, &assignment);
            let owned = if may_pass { owned_quota(ledger, request, &assignment) } else { BTreeSet::new() };
            if !may_pass || !owned.is_empty() {
                let backfilled = BackfilledGang { request, assignment: &assignment, end };
                match self.recheck(ledger, timeline, Some(&backfilled), &owned) {
                    Ok(()) => return Ok(assignment),
                    Err(at) => delayed = at,
                }
            }
            ledger.unreserve(request, &assignment);
        }
        Err(self.gangs[delayed].would_be_delayed())
    }
}

/// The quota nodes that a gang is charged to, if they own all that it gets: with it, they use no more than their nominal quota,
/// which counts every resource that it requests. The gang is charged in the ledger already.
pub(crate) fn owned_quota(
    ledger: &Ledger<'_>,
    request: &GangRequest<'_>,
    assignment: &Assignment,
) -> BTreeSet<QuotaIx> {
    let charges = ledger.charges(request, assignment);
    let counted = || charges.keys().filter(|(node, of)| is_counted(ledger.world, *node, *of));
    let resources: BTreeSet<ResourceIx> = counted().map(|(_, of)| of.resource).collect();
    let requested = request.shape.quota_request();
    let mut requested = requested.iter().filter(|(ix, amount)| amount.0 > 0 && *ix != ResourceIx::PODS);
    let (forest, usage) = (ledger.world.forest(), &ledger.quotas);
    let is_owned = requested.all(|(ix, _)| resources.contains(&ix))
        && counted().all(|(node, of)| usage.used(*node, *of) <= forest.subtree_quota(*node, *of));
    if is_owned { counted().map(|(node, _)| *node).collect() } else { BTreeSet::new() }
}

impl<'s> ReservedGang<'s> {
    /// Whether it gives way to a gang within the nominal quota of these nodes: it relies on a guess, and has no part in that quota.
    fn yields_to(&self, world: &World, owned: &BTreeSet<QuotaIx>) -> bool {
        let own = self.request.charges.iter().copied().chain(world.quota_of(self.request.queue));
        self.hold() != Hold::UntilStart
            && !owned.is_empty()
            && own.into_iter().all(|node| !owned.contains(&node))
    }

    /// A gang with a start reserved by the last plan, with that start.
    fn former(world: &'s World, timeline: &Timeline<'s>, reserved: &Reservation) -> Option<Self> {
        let now = timeline.now;
        let ix = world.shape_of(&reserved.gang)?;
        let row = world.shape(ix);
        let order_key = row.waiting.iter().find(|order_key| *order_key.uid == *reserved.gang)?;
        let start = reserved.start.max(now);
        let declared = reserved.hold == Hold::UntilStart;
        let pod_sets = vec![Vec::new(); row.shape.pod_sets.len()];
        let next = RowHead { rank: order_key.sort_key(row.slope, now), order_key, ix };
        let mut ends = timeline.ends.iter().take_while(|end| end.at <= start);
        let after_backfilled = !reserved.declared && ends.any(|end| timeline.is_of_backfilled(end, &next));
        Some(Self {
            next,
            request: GangRequest::of(row),
            forecast: ForecastStart { start, declared, after: reserved.after.clone() },
            after_unpredictable: declared && !reserved.declared,
            after_backfilled,
            runs_us: row.runs_us,
            assignment: Assignment { pod_sets, ..Assignment::default() },
            guess: guess(world, &reserved.gang, now),
            is_passed: false,
        })
    }

    /// Its end if it starts as reserved, if it declares a run time.
    fn end(&self) -> Option<Time> {
        Some(self.forecast.start.after(self.runs_us?))
    }

    /// The same gang with a later start.
    fn with_start(&self, timeline: &Timeline<'s>, start: Time, others: &[Self]) -> Self {
        let mut moved = self.clone();
        if start == self.forecast.start {
            return moved;
        }
        let ends: Vec<_> =
            timeline.ends_for(&self.next, self.after_backfilled).take_while(|end| end.at <= start).collect();
        let planned = others.iter().find(|other| other.end() == Some(start));
        let planned = planned.map(|other| &*other.next.order_key.uid);
        let last = ends.last().filter(|end| end.at == start).map(|end| end.uid());
        moved.forecast = ForecastStart {
            start,
            declared: self.forecast.declared && ends.iter().all(|end| end.declared),
            after: planned.or(last).map(str::to_owned),
        };
        moved
    }
}
