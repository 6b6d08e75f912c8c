//! Dominant resource shares and the fair sharing rules, from quota nodes and holders alone. Products have 256 bits.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use model::{FairSharing, FlavorResource, ResourceIx};

use super::Quotas;
use super::preemption_rules::PreemptionCase;

/// The weighted share of a node: what it borrows, relative to what is lendable to it.
pub(crate) struct Share {
    /// By resource: borrowed and lendable amount.
    parts: Vec<(u128, u128)>,
    weight_milli: u128,
}

impl Share {
    pub(super) fn is_borrowing(&self) -> bool {
        self.parts.iter().any(|(borrowed, _)| *borrowed > 0)
    }

    /// Whether the share is infinite: the node borrows with weight zero.
    fn is_infinite(&self) -> bool {
        self.weight_milli == 0 && self.is_borrowing()
    }

    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        let infinite = self.is_infinite();
        infinite
            .cmp(&other.is_infinite())
            .then_with(|| self.largest(infinite).compare(&other.largest(infinite)))
    }

    /// The largest ratio over all resources, divided by the weight.
    fn largest(&self, is_weightless: bool) -> Fraction {
        let weight = if is_weightless { 1 } else { self.weight_milli.max(1) };
        let fractions = self.parts.iter().map(|(borrowed, lendable)| Fraction(*borrowed, lendable * weight));
        fractions.max_by(Fraction::compare).unwrap_or(Fraction(0, 1))
    }
}

struct Fraction(u128, u128);

impl Fraction {
    fn compare(&self, other: &Self) -> Ordering {
        product(self.0, other.1).cmp(&product(other.0, self.1))
    }
}

/// The product of two numbers as upper and lower half.
fn product(one: u128, other: u128) -> (u128, u128) {
    let halves = |number: u128| (number >> 64, number & u128::from(u64::MAX));
    let ((a, b), (c, d)) = (halves(one), halves(other));
    let (middle, carried) = (a * d).overflowing_add(b * c);
    let (low, carry) = (b * d).overflowing_add(middle << 64);
    let high = a * c + (middle >> 64) + u128::from(carry) + (u128::from(carried) << 64);
    (high, low)
}

impl<'w> Quotas<'w> {
    /// The share of a node with additional charges.
    pub(crate) fn share(&self, node: &str, more: &[(&(&'w str, FlavorResource), &i128)]) -> Share {
        let mut parts: BTreeMap<ResourceIx, (i128, i128)> = BTreeMap::new();
        if let Some(Some(parent)) = self.parents.get(node) {
            let root = self.path(parent).and_then(|path| path.last().copied()).unwrap_or(parent);
            for of in self.flavor_resources(root) {
                let (borrowed, lendable) = parts.entry(of.resource).or_default();
                *borrowed += (self.usage(node, of, more) - self.subtree_quota(node, of)).max(0);
                *lendable += self.potential_available(parent, of);
            }
        }
        let unsigned = |sum: i128| u128::try_from(sum).unwrap_or(0);
        let parts = parts.into_values().map(|(borrowed, lendable)| (unsigned(borrowed), unsigned(lendable)));
        let parts = parts.filter(|(borrowed, lendable)| *borrowed > 0 && *lendable > 0);
        Share { parts: parts.collect(), weight_milli: u128::from(self.weight_milli(node)) }
    }

    /// Whether preempting the victims of another subtree is fair: the other share stays at least as large, or was
    /// larger before the last victim.
    pub(super) fn is_fair(&mut self, case: &PreemptionCase<'_, 'w>, requester: &str, victim: &str) -> bool {
        let more = &case.more;
        let requester_share = self.share(requester, more);
        let final_share_is_fair = requester_share.compare(&self.share(victim, more)).is_le();
        let initial_share_is_fair =
            |quotas: &Self| requester_share.compare(&quotas.share(victim, more)).is_lt();
        match self.world.policy().fair_sharing {
            None => false,
            Some(FairSharing::FinalShare) => final_share_is_fair,
            Some(FairSharing::InitialShare) => {
                self.holds_until_last_victim(case, victim, &initial_share_is_fair)
            }
            Some(FairSharing::FinalOrInitialShare) => {
                final_share_is_fair || self.holds_until_last_victim(case, victim, &initial_share_is_fair)
            }
        }
    }
}
