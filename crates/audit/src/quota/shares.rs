//! Dominant resource shares and what is fair, from quota nodes and holders alone; compared as products of 256 bits.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use model::{FairSharing, FlavorResource, ResourceIx};

use super::Quotas;
use super::rights::Case;

/// How much of what could be lent to it a node borrows, by its weight.
pub(crate) struct Share {
    /// By resource: borrowed, and lendable.
    parts: Vec<(u128, u128)>,
    weight_milli: u128,
}

impl Share {
    pub(super) fn is_borrowing(&self) -> bool {
        self.parts.iter().any(|(borrowed, _)| *borrowed > 0)
    }

    /// Without limit: it borrows with a weight of nothing.
    fn is_endless(&self) -> bool {
        self.weight_milli == 0 && self.is_borrowing()
    }

    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        let endless = self.is_endless();
        endless.cmp(&other.is_endless()).then_with(|| self.largest(endless).compare(&other.largest(endless)))
    }

    /// Its largest part, by weight.
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

/// The product of two numbers: its upper and its lower half.
fn product(one: u128, other: u128) -> (u128, u128) {
    let halves = |number: u128| (number >> 64, number & u128::from(u64::MAX));
    let ((a, b), (c, d)) = (halves(one), halves(other));
    let (middle, carried) = (a * d).overflowing_add(b * c);
    let (low, carry) = (b * d).overflowing_add(middle << 64);
    let high = a * c + (middle >> 64) + u128::from(carry) + (u128::from(carried) << 64);
    (high, low)
}

impl<'w> Quotas<'w> {
    /// The share of a node when more is charged.
    pub(crate) fn share(&self, node: &str, more: &[(&(&'w str, FlavorResource), &i128)]) -> Share {
        let mut parts: BTreeMap<ResourceIx, (i128, i128)> = BTreeMap::new();
        if let Some(Some(parent)) = self.parents.get(node) {
            let root = self.path(parent).and_then(|path| path.last().copied()).unwrap_or(parent);
            for of in self.flavored(root) {
                let (borrowed, lendable) = parts.entry(of.resource).or_default();
                *borrowed += (self.used(node, of, more) - self.owned(node, of)).max(0);
                *lendable += self.potential(parent, of);
            }
        }
        let unsigned = |sum: i128| u128::try_from(sum).unwrap_or(0);
        let parts = parts.into_values().map(|(borrowed, lendable)| (unsigned(borrowed), unsigned(lendable)));
        let parts = parts.filter(|(borrowed, lendable)| *borrowed > 0 && *lendable > 0);
        Share { parts: parts.collect(), weight_milli: u128::from(self.weight_milli(node)) }
    }

    /// Whether taking the victims from one side of a tree is fair to it: the other side will have no larger a share, or had
    /// the smaller one before the last of them was taken.
    pub(super) fn is_fair(&mut self, case: &Case<'_, 'w>, near: &str, far: &str) -> bool {
        let more = &case.more;
        let mine = self.share(near, more);
        let in_the_end = mine.compare(&self.share(far, more)).is_le();
        let before = |quotas: &Self| mine.compare(&quotas.share(far, more)).is_lt();
        match self.world.policy().fair_sharing {
            None => false,
            Some(FairSharing::FinalShare) => in_the_end,
            Some(FairSharing::InitialShare) => self.until_the_last(case, far, &before),
            Some(FairSharing::FinalOrInitialShare) => in_the_end || self.until_the_last(case, far, &before),
        }
    }
}
