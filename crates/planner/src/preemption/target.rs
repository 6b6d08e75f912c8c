//! What stopping others is for: that a gang fits with certain flavors. And the cheapest way there.

use std::cmp::Reverse;

use model::{Gang, PreemptionReason, QueueingHint};

use crate::fit::{leave_until, look_with};
use crate::ledger::Ledger;
use crate::preemption::cost::{Candidate, Cost};
use crate::preemption::rules::Rules;
use crate::preemption::search::Choice;
use crate::quota::Quotas;
use crate::request::{Flavors, GangRequest};

/// How many gangs beyond the cheapest that suffice are considered as well, if they are no dearer by rule and priority.
const ALTERNATIVES: usize = 16;

/// With no more candidates than these all sets of them are considered.
const EVERYBODY: usize = 24;

/// See the module.
pub(super) struct Target<'a, 's> {
    pub(super) request: &'a GangRequest<'a>,
    pub(super) flavors: &'a Flavors,
    pub(super) rules: &'a Rules<'s>,
    /// Those who may be stopped, the cheapest first.
    pub(super) candidates: &'a [Candidate<'s>],
    /// The gang is to end within what its node owns, for the sake of titles that demand that.
    pub(super) within: bool,
}

/// Gangs that may be stopped together and make room.
pub(super) struct Set<'s> {
    pub(super) price: Vec<Cost>,
    pub(super) victims: Vec<(&'s Gang, PreemptionReason)>,
}

impl<'s> Target<'_, 's> {
    /// Whether the gang fits now; else what could help. The more gangs are gone, the sooner it does.
    pub(super) fn is_reached(&self, ledger: &Ledger<'s>) -> Result<(), QueueingHint> {
        if self.within && !self.rules.ends_within(&ledger.quotas, self.candidates) {
            return Err(QueueingHint::Quota);
        }
        look_with(ledger, self.request, self.flavors).map(|_| ()).map_err(|(_, wake)| wake)
    }

    /// The cheapest victims, as far as is searched. Leaves the ledger as it found it.
    pub(super) fn cheapest(&self, ledger: &mut Ledger<'s>) -> Result<Set<'s>, QueueingHint> {
        let (count, usage) = (self.candidates.len(), ledger.quotas.clone());
        let mut turns = self.rules.in_turn(&usage, self.candidates, 0..count, self.within);
        if self.rules.fairness.is_some() {
            return self.cheapest_of(ledger, &usage, &turns);
        }
        let all: Vec<usize> = (0..count).collect();
        if turns.len() < count && self.rules.reasons(&usage, self.candidates, &all, self.within).is_some() {
            turns = all;
        }
        let found = self.cheapest_of(ledger, &usage, &turns);
        if turns.len() == count {
            return found;
        }
        // Rights may have been used up on gangs that are of no use: those who are needed come first.
        let Some(useful) = self.useful(ledger) else { return found }; // Even all of them are too few.
        let others = (0..count).filter(|at| !useful.contains(at));
        let order = useful.iter().copied().chain(others);
        let turns = self.rules.in_turn(&usage, self.candidates, order, self.within);
        let found = match (found, self.cheapest_of(ledger, &usage, &turns)) {
            (Ok(one), Ok(other)) => Some(if other.price < one.price { other } else { one }),
            (Ok(set), Err(_)) | (Err(_), Ok(set)) => Some(set),
            (Err(_), Err(_)) => None,
        };
        let cheaper = if count <= EVERYBODY { self.cheaper(ledger, &usage, found.as_ref()) } else { None };
        cheaper.or(found).ok_or(QueueingHint::Change)
    }

    /// The cheapest of all sets that may be stopped together, if it is cheaper than one that is known.
    fn cheaper(
        &self,
        ledger: &mut Ledger<'s>,
        usage: &Quotas<'s>,
        known: Option<&Set<'s>>,
    ) -> Option<Set<'s>> {
        let dearest_first: Vec<Candidate<'s>> = self.candidates.iter().rev().cloned().collect();
        for candidate in &dearest_first {
            ledger.release(&candidate.gang.uid);
        }
        let known = known.map(|set| set.price.clone());
        let found = Choice::cheaper(ledger, self, &dearest_first, usage.clone(), known);
        for candidate in &dearest_first {
            ledger.hold(&candidate.gang.uid);
        }
        let (price, best) = found?;
        let reasons = self.rules.reasons(usage, &dearest_first, &best, self.within)?;
        let victims = reasons.into_iter().map(|(at, reason)| (dearest_first[at].gang, reason)).collect();
        Some(Set { price, victims })
    }

    /// Those of whom nobody can be spared, if all candidates could be stopped together.
    fn useful(&self, ledger: &mut Ledger<'s>) -> Option<Vec<usize>> {
        let all: Vec<usize> = (0..self.candidates.len()).collect();
        let gone = self.enough(ledger, &all).ok()?;
        let mut useful: Vec<usize> = all[..gone].to_vec();
        for at in (0..gone).rev() {
            ledger.hold(&self.candidates[at].gang.uid);
            if self.is_reached(ledger).is_ok() {
                useful.retain(|other| *other != at);
            } else {
                ledger.release(&self.candidates[at].gang.uid);
            }
        }
        for at in &useful {
            ledger.hold(&self.candidates[*at].gang.uid);
        }
        Some(useful)
    }

    /// How many of these have to be let go, in turn. They are let go.
    fn enough(&self, ledger: &mut Ledger<'s>, turns: &[usize]) -> Result<usize, QueueingHint> {
        let turn = |ledger: &mut Ledger<'s>, at: usize, leaves| {
            let uid = &self.candidates[turns[at]].gang.uid;
            if leaves { ledger.release(uid) } else { ledger.hold(uid) }
        };
        leave_until(ledger, |ledger| self.is_reached(ledger), turns.len(), turn)
    }

    /// The cheapest set of some who may all be stopped together; in this order, as far as they are needed.
    fn cheapest_of(
        &self,
        ledger: &mut Ledger<'s>,
        usage: &Quotas<'s>,
        order: &[usize],
    ) -> Result<Set<'s>, QueueingHint> {
        let mut enough = self.enough(ledger, order)?;
        let price = |at: usize| self.candidates[order[at]].price;
        let last = enough.checked_sub(1).map(price);
        let is_alike = |at: &usize| last.is_some_and(|last| last.is_like(&price(*at)));
        for at in (enough..order.len()).take(ALTERNATIVES).take_while(is_alike) {
            ledger.release(&self.candidates[order[at]].gang.uid);
            enough = at + 1;
        }
        let mut some: Vec<usize> = order[..enough].to_vec();
        some.sort_by_key(|at| Reverse(*at)); // The dearest first: it is the first to be spared.
        let candidates: Vec<Candidate<'s>> = some.iter().map(|at| self.candidates[*at].clone()).collect();
        let (price, best) = Choice::cheapest(ledger, self, &candidates);
        for spared in (0..candidates.len()).filter(|at| !best.contains(at)) {
            ledger.hold(&candidates[spared].gang.uid);
        }
        let reasons = if self.rules.fairness.is_some() {
            let fair = |at: usize| (at, self.rules.fair_ground(&ledger.quotas, &candidates[at]));
            Some(best.iter().copied().map(fair).collect())
        } else {
            self.rules.reasons(usage, &candidates, &best, self.within)
        };
        for at in &best {
            ledger.hold(&candidates[*at].gang.uid);
        }
        let victims = reasons
            .ok_or(QueueingHint::Change)?
            .into_iter()
            .map(|(at, reason)| (candidates[at].gang, reason));
        Ok(Set { price, victims: victims.collect() })
    }
}
