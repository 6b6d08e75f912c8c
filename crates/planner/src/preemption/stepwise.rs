//! Flavors of a gang that gets them one after another, and the victims that it preempts for them.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

use model::{Amount, FlavorResource, Gang, PodSet, QueueingHint, ResourceVec, Shape, Snapshot, Victim};

use crate::flavors::{self, Attempt, Chance, Progress};
use crate::fungibility::Mode;
use crate::held_quota::may_preempt_for;
use crate::ledger::Ledger;
use crate::preemption::{FoundVictims, Holder, Holders, find_victims, may_preempt};
use crate::quota::{Quotas, check_open};
use crate::request::{Flavors, GangRequest, Refusal};

/// What an attempt comes to.
pub(crate) enum Choice {
    /// The gang fits.
    Fits(Attempt),
    /// It fits when these victims, and all terminating gangs, are gone.
    Preempts(Attempt, Vec<Victim>),
    /// It does not fit, and this event may help it.
    Lacks(Attempt, QueueingHint),
}

/// The amount of a single resource, and the victims for it.
type FoundAlone = BTreeMap<FlavorResource, (i128, Vec<Victim>)>;

/// A gang that chooses its flavors, while the terminating gangs are released in the ledger.
pub(crate) struct Chooser<'a, 's> {
    pub(crate) snapshot: &'a Snapshot<'s>,
    pub(crate) holders: &'a Holders<'s>,
    pub(crate) gang: &'s Gang,
    pub(crate) request: &'a GangRequest<'a>,
    /// The usage with the terminating gangs, and without those that wait for them.
    pub(crate) present: &'a Quotas<'s>,
    /// Those for which the gang was preempted itself.
    pub(crate) preemptors: &'a BTreeSet<&'a str>,
    pub(crate) is_spared: &'a dyn Fn(&str) -> bool,
}

impl<'s> Chooser<'_, 's> {
    /// One attempt; leaves the ledger as it was.
    pub(crate) fn choose(&self, ledger: &mut Ledger<'s>, from: &Progress) -> Result<Choice, Refusal> {
        check_open(ledger.world, self.request)?;
        let world = ledger.world;
        let (may_preempt, found) = (may_preempt(world, self.request), OnceCell::new());
        // Most gangs fit without victims.
        let holders = || -> Option<&[Holder<'s>]> {
            let find = || self.holders.candidates(self.gang, self.preemptors, self.is_spared);
            may_preempt.then(|| found.get_or_init(find).as_slice())
        };
        let mut hint = if self.preemptors.is_empty() {
            QueueingHint::QuotaReleased
        } else {
            QueueingHint::AnyChange // Another gang of the same shape may preempt gangs that this one may not.
        };
        let mut alone = FoundAlone::new();
        let attempt = flavors::attempt(ledger.world, self.request, from, &mut |of, amount| {
            self.chance(ledger, &holders, of, amount, &mut hint, &mut alone)
        })?;
        if attempt.mode == Mode::Fit {
            return Ok(Choice::Fits(attempt));
        }
        let Some(holders) = holders().filter(|_| attempt.mode != Mode::Never) else {
            return Ok(Choice::Lacks(attempt, hint));
        };
        let charges = ledger.charges_with(self.request, self.request.shape, &attempt.flavors);
        if ledger.quotas.fits(&charges) {
            return Ok(Choice::Preempts(attempt, Vec::new()));
        }
        // What is charged in one resource alone has its victims already.
        if let Some((charge, amount)) = charges.first_key_value().filter(|_| charges.len() == 1)
            && let Some((_, victims)) = alone.remove(&charge.1).filter(|(searched, _)| searched == amount)
        {
            return Ok(Choice::Preempts(attempt, victims));
        }
        match self.victims(ledger, self.request, &attempt.flavors, holders) {
            Ok(FoundVictims { victims, .. }) => Ok(Choice::Preempts(attempt, victims)),
            Err(other) => Ok(Choice::Lacks(attempt, hint.max(other))),
        }
    }

    /// How an amount of one resource can be got. As in Kueue, each is looked at alone.
    fn chance<'h>(
        &self,
        ledger: &mut Ledger<'s>,
        holders: &dyn Fn() -> Option<&'h [Holder<'s>]>,
        of: FlavorResource,
        amount: i128,
        hint: &mut QueueingHint,
        alone: &mut FoundAlone,
    ) -> Chance {
        let world = ledger.world;
        let Some(node) = self.request.quota(world) else {
            return Chance { mode: Mode::Fit, level: 0, available: amount };
        };
        let forest = world.forest();
        let available = forest.available(self.present, node, of).max(0);
        let later = forest.available(&ledger.quotas, node, of).max(0);
        let level = forest.borrowing_level(self.present, node, of, amount);
        if amount <= available.min(later) {
            return Chance { mode: Mode::Fit, level, available };
        }
        // What is free now may be what others wait for.
        let available = if amount <= available { later } else { available };
        let chance = |mode, level| Chance { mode, level, available };
        if !may_preempt_for(self.present, node, of, amount) {
            return chance(Mode::Never, level);
        }
        let Some(holders) = holders() else { return chance(Mode::NoVictims, level) };
        if amount <= later {
            return chance(Mode::Reclaim, forest.borrowing_level(&ledger.quotas, node, of, amount));
        }
        let amount = i64::try_from(amount).unwrap_or(Amount::MAX.0);
        let pod_set =
            PodSet { count: 1, request: ResourceVec::new().with(of.resource, amount), ..PodSet::default() };
        let shape = Shape { pod_sets: [pod_set].into(), places_open: true, ..Shape::default() };
        let flavors: Flavors = vec![BTreeMap::from([(of.resource, of.flavor)])];
        let request = GangRequest { shape: &shape, ..*self.request };
        match self.victims(ledger, &request, &flavors, holders) {
            Ok(FoundVictims { victims, mode, level, .. }) => {
                alone.insert(of, (amount.into(), victims));
                chance(mode, level)
            }
            Err(other) => {
                *hint = (*hint).max(other);
                chance(Mode::NoVictims, level)
            }
        }
    }

    fn victims(
        &self,
        ledger: &mut Ledger<'s>,
        request: &GangRequest<'_>,
        flavors: &Flavors,
        holders: &[Holder<'s>],
    ) -> Result<FoundVictims, QueueingHint> {
        find_victims(ledger, self.snapshot, self.gang, request, flavors, holders)
    }
}
