//! The starts that are promised at once: none of them may be delayed, and none moves later because another one moves.
//!
//! Those who are promised a start get one in order of rank, each behind the ones before it: the earliest at which it fits with
//! all of these at their places for as long as they declare to run. After Mu'alem and Feitelson 2001 (conservative
//! backfill), for the first few. Who was promised a start before keeps it or gets an earlier one, as long as that can still
//! be true; and it takes an earlier one only if that leaves the other promises as they are.

use std::collections::BTreeMap;

use model::{Assignment, ForecastStart, Gang, OrderKey, Reservation, Shortage, Time, World};

use super::{Head, Timeline};
use crate::ledger::Ledger;
use crate::order::Next;
use crate::request::{Fit, GangRequest};

/// More times than these are not tried for one gang: what comes later is no promise.
const TIMES: usize = 32;

/// See the module.
pub(crate) struct Promises<'s> {
    /// Who is promised a start by this pass, in order of rank.
    heads: Vec<Head<'s>>,
    /// Who was promised one before and was not looked at yet.
    former: BTreeMap<&'s str, Head<'s>>,
    heads_max: usize,
    /// Whether someone waits before the next one whose start cannot be foreseen.
    unforeseen: bool,
}

/// A gang that was just given its places.
struct Newcomer<'a> {
    request: &'a GangRequest<'a>,
    assignment: &'a Assignment,
    /// When it declares to end.
    end: Option<Time>,
}

impl<'s> Promises<'s> {
    /// Those of the last plan, to be looked at anew.
    pub(crate) fn of(world: &'s World, now: Time) -> Self {
        let heads_max = world.policy().backfill.heads() as usize;
        let kept = world.reserved().iter().filter(|_| heads_max > 1);
        let former =
            kept.filter_map(|reserved| Some((reserved.gang.as_str(), Head::former(world, now, reserved)?)));
        Self { heads: Vec::new(), former: former.collect(), heads_max, unforeseen: false }
    }

    /// Whether no further start is promised.
    pub(crate) fn is_full(&self) -> bool {
        self.heads.len() >= self.heads_max
    }

    /// What is to be remembered of them.
    pub(crate) fn reserved(&self) -> Vec<Reservation> {
        self.heads.iter().map(Head::reserved).collect()
    }

    /// Takes a gang out whose own turn has come.
    pub(crate) fn strike(&mut self, place: &OrderKey) {
        self.heads.retain(|head| head.next.place != place);
    }

    /// Promises a start to the next gang in order of rank; none when it cannot be foreseen.
    pub(crate) fn add(
        &mut self,
        ledger: &mut Ledger<'s>,
        timeline: &Timeline<'s>,
        next: &Next<'s>,
        request: GangRequest<'s>,
    ) -> Option<&Head<'s>> {
        let former = self.former.remove(&*next.place.uid);
        let head = Head::of(ledger, timeline, next, request, self.unforeseen)
            .and_then(|first| self.place(ledger, timeline, first, former.as_ref()));
        self.unforeseen |= head.is_none();
        self.heads.push(head?);
        self.heads.last()
    }

    /// Moves a gang from its first possible start to the earliest that the others leave it.
    fn place(
        &mut self,
        ledger: &mut Ledger<'s>,
        timeline: &Timeline<'s>,
        first: Head<'s>,
        former: Option<&Head<'s>>,
    ) -> Option<Head<'s>> {
        if self.heads.is_empty() && self.former.is_empty() {
            return Some(first);
        }
        let times = self.times(timeline, &first);
        if let Some(until) = former.map(|former| former.forecast.start) {
            let before = times.iter().copied().filter(|time| *time < until);
            let kept = before.chain([until]).filter(|time| *time >= first.forecast.start);
            let kept = self.among_all(|all| all.earliest(ledger, timeline, &first, kept));
            if kept.is_some() {
                return kept;
            }
        }
        self.earliest(ledger, timeline, &first, times.into_iter())
    }

    /// Does something with those of the last plan that were not looked at yet among the others.
    fn among_all<T>(&mut self, what: impl FnOnce(&mut Self) -> T) -> T {
        let settled = self.heads.len();
        self.heads.extend(self.former.values().cloned());
        let result = what(self);
        self.heads.truncate(settled);
        result
    }

    /// When anything changes from the first possible start of a gang on.
    fn times(&self, timeline: &Timeline<'s>, first: &Head<'s>) -> Vec<Time> {
        let start = first.forecast.start;
        let ends = timeline.ends_for(&first.next).map(|end| end.at);
        let mut times: Vec<Time> = ends.chain(self.heads.iter().filter_map(Head::end)).collect();
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
        first: &Head<'s>,
        times: impl Iterator<Item = Time>,
    ) -> Option<Head<'s>> {
        for start in times {
            let moved = first.starting_at(timeline, start, &self.heads);
            self.heads.push(moved);
            let kept = self.keep(ledger, timeline, None);
            let moved = self.heads.pop();
            if kept.is_ok() {
                return moved;
            }
        }
        None
    }

    /// Whether all fit at their starts with all that was given so far, to a newcomer too; notes where. Else who would be
    /// delayed.
    fn keep(
        &mut self,
        ledger: &mut Ledger<'s>,
        timeline: &Timeline<'s>,
        newcomer: Option<&Newcomer<'_>>,
    ) -> Result<(), usize> {
        let before: Vec<Assignment> = self.heads.iter().map(|head| head.assignment.clone()).collect();
        let mut order: Vec<usize> = (0..self.heads.len()).collect();
        order.sort_by_key(|at| (self.heads[*at].forecast.start, self.heads[*at].next));
        for (done, &at) in order.iter().enumerate() {
            let start = self.heads[at].forecast.start;
            let runs = |other: &&usize| self.heads[**other].end().is_none_or(|end| end > start);
            let others: Vec<usize> = order[..done].iter().filter(runs).copied().collect();
            let gone = newcomer.filter(|newcomer| newcomer.end.is_some_and(|end| end <= start));
            for other in others.iter().map(|other| &self.heads[*other]) {
                ledger.take_again(&other.request, &other.assignment);
            }
            if let Some(Newcomer { request, assignment, .. }) = gone {
                ledger.give_back(request, assignment);
            }
            let fits = self.heads[at].still_fits(ledger, timeline);
            if let Some(Newcomer { request, assignment, .. }) = gone {
                ledger.take_again(request, assignment);
            }
            for other in others.iter().map(|other| &self.heads[*other]) {
                ledger.give_back(&other.request, &other.assignment);
            }
            if !fits {
                for (head, assignment) in self.heads.iter_mut().zip(before) {
                    head.assignment = assignment;
                }
                return Err(at);
            }
        }
        Ok(())
    }

    /// Whether what a gang was given leaves all promises as they are; else what it is told.
    pub(crate) fn hold(
        &mut self,
        ledger: &mut Ledger<'s>,
        timeline: &Timeline<'s>,
        gang: &str,
    ) -> Result<(), Shortage> {
        self.keep(ledger, timeline, None).map_err(|at| self.heads[at].would_be_delayed())?;
        self.former.remove(gang);
        Ok(())
    }

    /// Admits a gang that fits with this placement, or at other places, without delaying anybody; one that was promised a start
    /// itself may not start earlier at the cost of others who were, as long as all could be kept.
    pub(crate) fn let_pass(
        &mut self,
        ledger: &mut Ledger<'s>,
        timeline: &Timeline<'s>,
        gang: &Gang,
        request: &GangRequest<'_>,
        fit: &Fit,
    ) -> Result<Assignment, Shortage> {
        // Pods that join a gang end with it.
        let started = gang.started_at.filter(|_| gang.state.holds()).unwrap_or(timeline.now);
        let end = gang.runs_us.map(|run| started.after(run)).filter(|end| *end >= timeline.now);
        match self.former.remove(gang.uid.as_str()) {
            Some(former) => {
                let mut passed =
                    self.among_all(|all| all.let_pass_until(ledger, timeline, end, request, fit));
                let is_due = former.forecast.start <= timeline.now;
                if passed.is_err() && (is_due || !self.could_wait(ledger, timeline, &former)) {
                    passed = self.let_pass_until(ledger, timeline, end, request, fit);
                }
                if passed.is_err() {
                    self.former.insert(&former.next.place.uid, former);
                }
                passed
            }
            None => self.let_pass_until(ledger, timeline, end, request, fit),
        }
    }

    /// Whether one who was promised a start could still have just that, and all others theirs.
    fn could_wait(&mut self, ledger: &mut Ledger<'s>, timeline: &Timeline<'s>, former: &Head<'s>) -> bool {
        self.among_all(|all| {
            all.heads.push(former.clone());
            all.keep(ledger, timeline, None).is_ok()
        })
    }

    fn let_pass_until(
        &mut self,
        ledger: &mut Ledger<'s>,
        timeline: &Timeline<'s>,
        end: Option<Time>,
        request: &GangRequest<'_>,
        fit: &Fit,
    ) -> Result<Assignment, Shortage> {
        let overlaps = |head: &&Head<'s>| end.is_none_or(|end| end > head.forecast.start);
        let Some(first) = self.heads.iter().find(overlaps) else {
            return Ok(ledger.reserve(request, fit));
        };
        let aside = first.place_aside(ledger, timeline, request);
        let assignment = ledger.reserve(request, fit);
        ledger.give_back(request, &assignment);
        let mut delayed = 0;
        for assignment in aside.into_iter().chain([assignment]) {
            ledger.take_again(request, &assignment);
            match self.keep(ledger, timeline, Some(&Newcomer { request, assignment: &assignment, end })) {
                Ok(()) => return Ok(assignment),
                Err(at) => delayed = at,
            }
            ledger.give_back(request, &assignment);
        }
        Err(self.heads[delayed].would_be_delayed())
    }
}

impl<'s> Head<'s> {
    /// Who was promised a start, with that start.
    fn former(world: &'s World, now: Time, reserved: &Reservation) -> Option<Self> {
        let ix = world.shape_of(&reserved.gang)?;
        let row = world.shape(ix);
        let place = row.waiting.iter().find(|place| *place.uid == *reserved.gang)?;
        let (start, declared) = (reserved.start.max(now), reserved.declared);
        let pod_sets = vec![Vec::new(); row.shape.pod_sets.len()];
        Some(Self {
            next: Next { turn: place.turn(row.slope, now), place, ix },
            request: GangRequest::of(row),
            forecast: ForecastStart { start, declared, after: reserved.after.clone() },
            promised: declared,
            runs_us: row.runs_us,
            assignment: Assignment { pod_sets, ..Assignment::default() },
        })
    }

    /// When it would end if it started as promised, if that was declared.
    fn end(&self) -> Option<Time> {
        Some(self.forecast.start.after(self.runs_us?))
    }

    /// The same with a later start.
    fn starting_at(&self, timeline: &Timeline<'s>, start: Time, others: &[Self]) -> Self {
        let mut moved = self.clone();
        if start == self.forecast.start {
            return moved;
        }
        let ends: Vec<_> = timeline.ends_for(&self.next).take_while(|end| end.at <= start).collect();
        let planned = others.iter().find(|other| other.end() == Some(start));
        let planned = planned.map(|other| &*other.next.place.uid);
        let last = ends.last().filter(|end| end.at == start).map(|end| end.uid());
        moved.forecast = ForecastStart {
            start,
            declared: self.forecast.declared && ends.iter().all(|end| end.declared),
            after: planned.or(last).map(str::to_owned),
        };
        moved.promised &= moved.forecast.declared;
        moved
    }
}
