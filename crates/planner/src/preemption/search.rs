//! Branch-and-bound search for the cheapest set of victims.

use crate::ledger::Ledger;
use crate::preemption::cost::{Candidate, Cost, total};
use crate::preemption::goal::Goal;
use crate::quota::Quotas;

/// The number of placements that are tried to find a cheaper set, once a set was found.
const BUDGET: u32 = 256;

/// The state of the search. The candidates from an index on are released, the ones before it are decided.
pub(super) struct VictimSearch<'a, 's> {
    ledger: &'a mut Ledger<'s>,
    goal: &'a Goal<'a, 's>,
    candidates: &'a [Candidate<'s>],
    victims: Vec<usize>,
    best: Option<(Vec<Cost>, Vec<usize>)>,
    budget: u32,
    /// The usage before any preemption, if not all candidates may be preempted together.
    usage: Option<Quotas<'s>>,
}

impl<'a, 's> VictimSearch<'a, 's> {
    /// The cheapest set, by index. All candidates are released, may be preempted together, and are ordered by
    /// descending cost.
    pub(super) fn cheapest(
        ledger: &'a mut Ledger<'s>,
        goal: &'a Goal<'a, 's>,
        candidates: &'a [Candidate<'s>],
    ) -> (Vec<Cost>, Vec<usize>) {
        let mut search = Self::of(ledger, goal, candidates);
        if goal.rules.fairness.is_some() {
            search.spare_one_by_one();
        }
        search.descend(0);
        search.best.unwrap_or_default()
    }

    /// The same where not all candidates may be preempted together: the cheapest valid set, if it is cheaper
    /// than `known`.
    pub(super) fn cheaper(
        ledger: &'a mut Ledger<'s>,
        goal: &'a Goal<'a, 's>,
        candidates: &'a [Candidate<'s>],
        usage: Quotas<'s>,
        known: Option<Vec<Cost>>,
    ) -> Option<(Vec<Cost>, Vec<usize>)> {
        let mut search = Self::of(ledger, goal, candidates);
        search.usage = Some(usage);
        search.best = known.map(|cost| (cost, Vec::new()));
        search.descend(0);
        search.best.filter(|(_, best)| !best.is_empty())
    }

    fn of(ledger: &'a mut Ledger<'s>, goal: &'a Goal<'a, 's>, candidates: &'a [Candidate<'s>]) -> Self {
        Self { ledger, goal, candidates, victims: Vec::new(), best: None, budget: BUDGET, usage: None }
    }

    /// Spares candidates one by one, the most expensive first, while the others suffice and remain fair.
    /// Repeats this, since a set may become fair after another candidate is spared.
    fn spare_one_by_one(&mut self) {
        let mut victims: Vec<usize> = (0..self.candidates.len()).collect();
        loop {
            let before = victims.len();
            for at in victims.clone() {
                self.ledger.restore(&self.candidates[at].gang.uid);
                let rest: Vec<usize> = victims.iter().copied().filter(|other| *other != at).collect();
                if self.goal.is_reached(self.ledger).is_ok() && self.is_fair(&rest) {
                    victims = rest;
                } else {
                    self.ledger.release(&self.candidates[at].gang.uid);
                }
            }
            if victims.len() == before {
                break;
            }
        }
        for at in (0..self.candidates.len()).filter(|at| !victims.contains(at)) {
            self.ledger.release(&self.candidates[at].gang.uid);
        }
        self.best = Some((self.cost(&victims), victims));
    }

    /// Decides about the candidates from `at` on. Tries to spare each first, so the first set that is found
    /// is minimal in order of cost. Leaves the ledger as it was.
    fn descend(&mut self, at: usize) {
        let Some(candidate) = self.candidates.get(at) else {
            let total = self.cost(&self.victims);
            if !self.is_allowed() {
                return;
            }
            if self.best.as_ref().is_none_or(|(best, _)| total < *best) && self.is_fair(&self.victims) {
                self.best = Some((total, self.victims.clone()));
            }
            return;
        };
        let is_over = self.budget == 0 && (self.best.is_some() || self.usage.is_some());
        if is_over || self.exceeds_best() || !self.is_allowed() {
            return;
        }
        let uid = &candidate.gang.uid;
        self.ledger.restore(uid);
        self.budget = self.budget.saturating_sub(1);
        if self.goal.is_reached(self.ledger).is_ok() {
            self.descend(at + 1);
        }
        self.ledger.release(uid);
        self.victims.push(at);
        self.descend(at + 1);
        self.victims.pop();
    }

    /// Whether the victims chosen so far may be preempted together.
    fn is_allowed(&self) -> bool {
        self.usage.as_ref().is_none_or(|usage| {
            let Goal { rules, within, .. } = self.goal;
            rules.reasons(usage, self.candidates, &self.victims, *within).is_some()
        })
    }

    fn is_fair(&self, victims: &[usize]) -> bool {
        let victims: Vec<_> = victims.iter().map(|at| &self.candidates[*at]).collect();
        self.goal.rules.is_fair(&self.ledger.quotas, &victims)
    }

    fn cost(&self, victims: &[usize]) -> Vec<Cost> {
        total(victims.iter().map(|at| self.candidates[*at].cost))
    }

    /// Whether the victims chosen so far cost at least as much as the best set.
    fn exceeds_best(&self) -> bool {
        self.best.as_ref().is_some_and(|(best, _)| self.cost(&self.victims) >= *best)
    }
}
