//! The order in which victims are preempted: a right to a victim must be valid when its turn comes.

use model::PreemptionReason;

use crate::preemption::cost::Candidate;
use crate::preemption::rules::{PreemptionRight, Rules, Variant};
use crate::quota::Quotas;

impl<'s> Rules<'s> {
    /// The candidates that may be preempted together if they are taken in this order. With `within`, the
    /// preemptor must not borrow in the end, and `ReclaimWithoutBorrowing` rights count too.
    pub(super) fn in_valid_order(
        &self,
        usage: &Quotas<'s>,
        candidates: &[Candidate<'s>],
        order: impl Iterator<Item = usize>,
        within: bool,
    ) -> Vec<usize> {
        if self.fairness.is_some() {
            return self.by_share(usage, candidates);
        }
        let mut usage = usage.clone();
        let mut taken = Vec::new();
        for at in order {
            let candidate = &candidates[at];
            if self.valid_right(&usage, candidate, within).is_some() {
                taken.push(at);
                release(&mut usage, candidate);
            }
        }
        taken
    }

    /// The reasons for preempting these candidates together, in some valid order, if there is one. Not for
    /// fair sharing.
    ///
    /// The order is constructed from its end. A candidate whose right is valid after all others are released
    /// can be the last one. Charging it again only increases borrowing, so it invalidates no other right.
    pub(super) fn reasons(
        &self,
        usage: &Quotas<'s>,
        candidates: &[Candidate<'s>],
        victims: &[usize],
        within: bool,
    ) -> Option<Vec<(usize, PreemptionReason)>> {
        let mut usage = usage.clone();
        for at in victims {
            release(&mut usage, &candidates[*at]);
        }
        let (mut rest, mut reasons) = (victims.to_vec(), Vec::new());
        while !rest.is_empty() {
            let before = rest.len();
            rest.retain(|at| {
                let candidate = &candidates[*at];
                charge_again(&mut usage, candidate);
                let right = self.valid_right(&usage, candidate, within);
                match right {
                    Some(right) => reasons.push((*at, right.variant.reason())),
                    None => release(&mut usage, candidate),
                }
                right.is_none()
            });
            if rest.len() == before {
                return None;
            }
        }
        Some(reasons)
    }

    /// A right to a candidate that is valid with this usage.
    fn valid_right<'c>(
        &self,
        usage: &Quotas<'_>,
        candidate: &'c Candidate<'_>,
        within: bool,
    ) -> Option<&'c PreemptionRight> {
        let counts = |right: &&PreemptionRight| within || right.variant != Variant::ReclaimWithoutBorrowing;
        candidate.rights.iter().filter(counts).find(|right| self.is_valid(usage, right))
    }
}

/// Releases the charges of a gang.
pub(super) fn release(usage: &mut Quotas<'_>, candidate: &Candidate<'_>) {
    if let Some(charges) = candidate.charges {
        usage.release(charges);
    }
}

/// Charges a gang again.
fn charge_again(usage: &mut Quotas<'_>, candidate: &Candidate<'_>) {
    if let Some(charges) = candidate.charges {
        usage.charge(charges);
    }
}
