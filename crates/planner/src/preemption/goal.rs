//! The goal of a preemption, that a gang fits with certain flavors, and the cheapest set of victims that
//! reaches it.

use std::cmp::Reverse;

use model::{Gang, PreemptionReason, QueueingHint};

use crate::fit::{fewest_departures, try_fit_with};
use crate::ledger::Ledger;
use crate::pod_rules::may_concern;
use crate::preemption::cost::{Candidate, Cost};
use crate::preemption::rules::Rules;
use crate::preemption::search::VictimSearch;
use crate::quota::Quotas;
use crate::request::{Flavors, GangRequest};

/// The number of candidates of equal tier and priority that are considered beyond those that suffice.
const ALTERNATIVES: usize = 16;

/// Up to this number of candidates, all sets of victims are considered.
const EXHAUSTIVE_MAX: usize = 24;

/// See the module.
pub(super) struct Goal<'a, 's> {
    pub(super) request: &'a GangRequest<'a>,
    pub(super) flavors: &'a Flavors,
    pub(super) rules: &'a Rules<'s>,
    /// The gangs that may be preempted, the cheapest first.
    pub(super) candidates: &'a [Candidate<'s>],
    /// The preemptor's node must not borrow in the end, as `ReclaimWithoutBorrowing` requires.
    pub(super) within: bool,
}

/// Gangs that may be preempted together and suffice.
pub(super) struct VictimSet<'s> {
    pub(super) cost: Vec<Cost>,
    pub(super) victims: Vec<(&'s Gang, PreemptionReason)>,
}

impl<'s> Goal<'_, 's> {
    /// Whether the gang fits now; else the queueing hint. Stays true as more gangs are released, unless rules between
    /// pods need their pods.
    pub(super) fn is_reached(&self, ledger: &Ledger<'s>) -> Result<(), QueueingHint> {
        if self.within && !self.rules.stays_within_owned(&ledger.quotas, self.candidates) {
            return Err(QueueingHint::QuotaReleased);
        }
        try_fit_with(ledger, self.request, self.flavors).map(|_| ()).map_err(|(_, hint)| hint)
    }

    /// The cheapest victims that the search finds. Leaves the ledger as it was.
    pub(super) fn cheapest(&self, ledger: &mut Ledger<'s>) -> Result<VictimSet<'s>, QueueingHint> {
        let (count, usage) = (self.candidates.len(), ledger.quotas.clone());
        let mut order = self.rules.in_valid_order(&usage, self.candidates, 0..count, self.within);
        if self.rules.fairness.is_some() {
            return self.cheapest_of(ledger, &usage, &order);
        }
        let all: Vec<usize> = (0..count).collect();
        if order.len() < count && self.rules.reasons(&usage, self.candidates, &all, self.within).is_some() {
            order = all;
        }
        let found = self.cheapest_of(ledger, &usage, &order);
        if order.len() == count {
            return found;
        }
        // The order by cost may use up rights on gangs that do not help: try the necessary ones first.
        // Even all candidates do not suffice.
        let Some(necessary) = self.necessary(ledger) else { return found };
        let others = (0..count).filter(|at| !necessary.contains(at));
        let order = necessary.iter().copied().chain(others);
        let order = self.rules.in_valid_order(&usage, self.candidates, order, self.within);
        let found = match (found, self.cheapest_of(ledger, &usage, &order)) {
            (Ok(one), Ok(other)) => Some(if other.cost < one.cost { other } else { one }),
            (Ok(set), Err(_)) | (Err(_), Ok(set)) => Some(set),
            (Err(_), Err(_)) => None,
        };
        let cheaper =
            if count <= EXHAUSTIVE_MAX { self.cheaper(ledger, &usage, found.as_ref()) } else { None };
        cheaper.or(found).ok_or(QueueingHint::AnyChange)
    }

    /// The cheapest of all sets that may be preempted together, if it is cheaper than `known`.
    fn cheaper(
        &self,
        ledger: &mut Ledger<'s>,
        usage: &Quotas<'s>,
        known: Option<&VictimSet<'s>>,
    ) -> Option<VictimSet<'s>> {
        let dearest_first: Vec<Candidate<'s>> = self.candidates.iter().rev().cloned().collect();
        for candidate in &dearest_first {
            ledger.release(&candidate.gang.uid);
        }
        let known = known.map(|set| set.cost.clone());
        let found = VictimSearch::cheaper(ledger, self, &dearest_first, usage.clone(), known);
        for candidate in &dearest_first {
            ledger.restore(&candidate.gang.uid);
        }
        let (cost, best) = found?;
        let reasons = self.rules.reasons(usage, &dearest_first, &best, self.within)?;
        let victims = reasons.into_iter().map(|(at, reason)| (dearest_first[at].gang, reason)).collect();
        Some(VictimSet { cost, victims })
    }

    /// A minimal set of candidates that suffices, ignoring whether they may be preempted together.
    fn necessary(&self, ledger: &mut Ledger<'s>) -> Option<Vec<usize>> {
        let all: Vec<usize> = (0..self.candidates.len()).collect();
        let count = self.release_until_reached(ledger, &all).ok()?;
        let mut necessary: Vec<usize> = all[..count].to_vec();
        for at in (0..count).rev() {
            ledger.restore(&self.candidates[at].gang.uid);
            if self.is_reached(ledger).is_ok() {
                necessary.retain(|other| *other != at);
            } else {
                ledger.release(&self.candidates[at].gang.uid);
            }
        }
        for at in &necessary {
            ledger.restore(&self.candidates[*at].gang.uid);
        }
        Some(necessary)
    }

    /// Releases candidates in order until the goal is reached, and returns their number.
    fn release_until_reached(&self, ledger: &mut Ledger<'s>, order: &[usize]) -> Result<usize, QueueingHint> {
        let apply = |ledger: &mut Ledger<'s>, at: usize, is_released| {
            let uid = &self.candidates[order[at]].gang.uid;
            if is_released { ledger.release(uid) } else { ledger.restore(uid) }
        };
        fewest_departures(ledger, |ledger| self.is_reached(ledger), order.len(), apply)
    }

    /// The cheapest set among candidates that may all be preempted together; takes them in this order as far
    /// as necessary.
    fn cheapest_of(
        &self,
        ledger: &mut Ledger<'s>,
        usage: &Quotas<'s>,
        order: &[usize],
    ) -> Result<VictimSet<'s>, QueueingHint> {
        let sufficient = self.release_until_reached(ledger, order)?;
        let mut enough = sufficient;
        let cost = |at: usize| self.candidates[order[at]].cost;
        let last = enough.checked_sub(1).map(cost);
        let is_alike = |at: &usize| last.is_some_and(|last| last.is_same_tier(&cost(*at)));
        for at in (enough..order.len()).take(ALTERNATIVES).take_while(is_alike) {
            ledger.release(&self.candidates[order[at]].gang.uid);
            enough = at + 1;
        }
        // With affinity or spread constraints, a gang may need pods of candidates.
        if enough > sufficient && may_concern(self.request.shape) && self.is_reached(ledger).is_err() {
            for at in &order[sufficient..enough] {
                ledger.restore(&self.candidates[*at].gang.uid);
            }
            enough = sufficient;
        }
        let mut some: Vec<usize> = order[..enough].to_vec();
        some.sort_by_key(|at| Reverse(*at)); // The most expensive first: it is the first one to be spared.
        let candidates: Vec<Candidate<'s>> = some.iter().map(|at| self.candidates[*at].clone()).collect();
        let (cost, best) = VictimSearch::cheapest(ledger, self, &candidates);
        for spared in (0..candidates.len()).filter(|at| !best.contains(at)) {
            ledger.restore(&candidates[spared].gang.uid);
        }
        let reasons = if self.rules.fairness.is_some() {
            let fair = |at: usize| (at, self.rules.fair_sharing_reason(&ledger.quotas, &candidates[at]));
            Some(best.iter().copied().map(fair).collect())
        } else {
            self.rules.reasons(usage, &candidates, &best, self.within)
        };
        for at in &best {
            ledger.restore(&candidates[*at].gang.uid);
        }
        let victims = reasons
            .ok_or(QueueingHint::AnyChange)?
            .into_iter()
            .map(|(at, reason)| (candidates[at].gang, reason));
        Ok(VictimSet { cost, victims: victims.collect() })
    }
}
