//! The search for the cheapest set of victims.

use crate::asks::Asks;
use crate::fit::look;
use crate::ledger::Ledger;
use crate::preempt::price::{Candidate, Price, total};

/// How many times the gang is tried to be placed in search of a cheaper set, after the first one was found.
const BUDGET: u32 = 256;

/// The search for the cheapest set. All candidates from an index on are let go, those before it are decided.
pub(super) struct Choice<'a, 's> {
    ledger: &'a mut Ledger<'s>,
    asks: &'a Asks<'a>,
    candidates: &'a [Candidate<'s>],
    stopped: Vec<usize>,
    best: Option<(Vec<Price>, Vec<usize>)>,
    budget: u32,
}

impl<'a, 's> Choice<'a, 's> {
    /// The candidates that make up the cheapest set, by index. All of them are let go, the dearest comes first.
    pub(super) fn cheapest(
        ledger: &'a mut Ledger<'s>,
        asks: &'a Asks<'a>,
        candidates: &'a [Candidate<'s>],
    ) -> Vec<usize> {
        let mut choice = Self { ledger, asks, candidates, stopped: Vec::new(), best: None, budget: BUDGET };
        choice.descend(0);
        choice.best.map(|(_, best)| best).unwrap_or_default()
    }

    /// Decides about the candidates from `at` on; sparing comes first, so the first set found is one of which nobody
    /// can be spared in order of price. Leaves the ledger as it found it.
    fn descend(&mut self, at: usize) {
        let Some(candidate) = self.candidates.get(at) else {
            let total = self.price();
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

    fn price(&self) -> Vec<Price> {
        total(self.stopped.iter().map(|at| self.candidates[*at].price))
    }

    /// Whether what was decided so far costs as much as the best set already.
    fn is_hopeless(&self) -> bool {
        self.best.as_ref().is_some_and(|(best, _)| self.price() >= *best)
    }
}
