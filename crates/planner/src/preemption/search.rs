//! The search for the cheapest set of victims.

use crate::ledger::Ledger;
use crate::preemption::cost::{Candidate, Cost, total};
use crate::preemption::target::Target;
use crate::quota::Quotas;

/// How many times the gang is tried to be placed in search of a cheaper set, after the first one was found.
const BUDGET: u32 = 256;

/// The search for the cheapest set. All candidates from an index on are let go, those before it are decided.
pub(super) struct Choice<'a, 's> {
    ledger: &'a mut Ledger<'s>,
    aim: &'a Target<'a, 's>,
    candidates: &'a [Candidate<'s>],
    stopped: Vec<usize>,
    best: Option<(Vec<Cost>, Vec<usize>)>,
    budget: u32,
    /// What is used while nobody is stopped yet, if not all of the candidates may be stopped together.
    usage: Option<Quotas<'s>>,
}

impl<'a, 's> Choice<'a, 's> {
    /// The candidates that make up the cheapest set, by index. All of them are let go, and may be; the dearest comes first.
    pub(super) fn cheapest(
        ledger: &'a mut Ledger<'s>,
        aim: &'a Target<'a, 's>,
        candidates: &'a [Candidate<'s>],
    ) -> (Vec<Cost>, Vec<usize>) {
        let mut choice = Self::of(ledger, aim, candidates);
        if aim.rules.fairness.is_some() {
            choice.spare_in_turn();
        }
        choice.descend(0);
        choice.best.unwrap_or_default()
    }

    /// The same where not all of them may be stopped together: the cheapest of the sets that may, if it is cheaper than one that
    /// is known.
    pub(super) fn cheaper(
        ledger: &'a mut Ledger<'s>,
        aim: &'a Target<'a, 's>,
        candidates: &'a [Candidate<'s>],
        usage: Quotas<'s>,
        known: Option<Vec<Cost>>,
    ) -> Option<(Vec<Cost>, Vec<usize>)> {
        let mut choice = Self::of(ledger, aim, candidates);
        choice.usage = Some(usage);
        choice.best = known.map(|price| (price, Vec::new()));
        choice.descend(0);
        choice.best.filter(|(_, best)| !best.is_empty())
    }

    fn of(ledger: &'a mut Ledger<'s>, aim: &'a Target<'a, 's>, candidates: &'a [Candidate<'s>]) -> Self {
        Self { ledger, aim, candidates, stopped: Vec::new(), best: None, budget: BUDGET, usage: None }
    }

    /// Spares one after the other, the dearest first, while the others suffice and may be stopped without it; over again, for
    /// what is fair may become so later.
    fn spare_in_turn(&mut self) {
        let mut stopped: Vec<usize> = (0..self.candidates.len()).collect();
        loop {
            let before = stopped.len();
            for at in stopped.clone() {
                self.ledger.hold(&self.candidates[at].gang.uid);
                let rest: Vec<usize> = stopped.iter().copied().filter(|other| *other != at).collect();
                if self.aim.is_reached(self.ledger).is_ok() && self.is_fair(&rest) {
                    stopped = rest;
                } else {
                    self.ledger.release(&self.candidates[at].gang.uid);
                }
            }
            if stopped.len() == before {
                break;
            }
        }
        for at in (0..self.candidates.len()).filter(|at| !stopped.contains(at)) {
            self.ledger.release(&self.candidates[at].gang.uid);
        }
        self.best = Some((self.price(&stopped), stopped));
    }

    /// Decides about the candidates from `at` on; sparing comes first, so the first set found is one of which nobody
    /// can be spared in order of price. Leaves the ledger as it found it.
    fn descend(&mut self, at: usize) {
        let Some(candidate) = self.candidates.get(at) else {
            let total = self.price(&self.stopped);
            if !self.may_be_stopped() {
                return;
            }
            if self.best.as_ref().is_none_or(|(best, _)| total < *best) && self.is_fair(&self.stopped) {
                self.best = Some((total, self.stopped.clone()));
            }
            return;
        };
        let is_over = self.budget == 0 && (self.best.is_some() || self.usage.is_some());
        if is_over || self.is_hopeless() || !self.may_be_stopped() {
            return;
        }
        let uid = &candidate.gang.uid;
        self.ledger.hold(uid);
        self.budget = self.budget.saturating_sub(1);
        if self.aim.is_reached(self.ledger).is_ok() {
            self.descend(at + 1);
        }
        self.ledger.release(uid);
        self.stopped.push(at);
        self.descend(at + 1);
        self.stopped.pop();
    }

    /// Whether those who were chosen so far may be stopped together.
    fn may_be_stopped(&self) -> bool {
        self.usage.as_ref().is_none_or(|usage| {
            let Target { rules, within, .. } = self.aim;
            rules.reasons(usage, self.candidates, &self.stopped, *within).is_some()
        })
    }

    fn is_fair(&self, stopped: &[usize]) -> bool {
        let victims: Vec<_> = stopped.iter().map(|at| &self.candidates[*at]).collect();
        self.aim.rules.is_fair(&self.ledger.quotas, &victims)
    }

    fn price(&self, stopped: &[usize]) -> Vec<Cost> {
        total(stopped.iter().map(|at| self.candidates[*at].price))
    }

    /// Whether what was decided so far costs as much as the best set already.
    fn is_hopeless(&self) -> bool {
        self.best.as_ref().is_some_and(|(best, _)| self.price(&self.stopped) >= *best)
    }
}
