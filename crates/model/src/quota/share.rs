//! Dominant resource share: how much of what its neighbours could lend a node of a quota tree borrows.
//!
//! After Ghodsi et al., "Dominant Resource Fairness", NSDI 2011, with Kueue's definition (`pkg/cache/scheduler/fair_sharing.go`,
//! v0.19): of each resource, what the node uses beyond what its subtree owns, summed over flavors, divided by the most that its
//! parent could ever use of it; the largest of these fractions, divided by the node's weight. Shares are exact fractions, so
//! that two of them are equal only when they are.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::{Forest, QuotaIx, QuotaUsage};
use crate::resources::ResourceIx;

/// The dominant resource share of a node, by its weight. The larger, the more it has taken of what is not its own.
#[derive(Clone, Copy, Debug)]
pub struct DominantShare {
    /// What is borrowed of the dominant resource.
    borrowed: u128,
    /// How much of it could be lent at most; never 0.
    lendable: u128,
    weight_milli: u32,
}

impl DominantShare {
    /// In thousandths for a weight of one, rounded up. None is without limit: it borrows with a weight of zero.
    pub fn thousandths(&self) -> Option<u128> {
        let of = self.lendable.saturating_mul(u128::from(self.weight_milli.max(1)));
        (!self.is_unbounded()).then(|| self.borrowed.saturating_mul(1_000_000).div_ceil(of))
    }

    /// Whether nothing is borrowed that could be lent.
    pub fn is_zero(&self) -> bool {
        self.borrowed == 0
    }

    /// Whether it borrows with no right to anything.
    fn is_unbounded(&self) -> bool {
        self.weight_milli == 0 && self.borrowed > 0
    }
}

impl Ord for DominantShare {
    /// Those without limit come last, and are compared as if they had equal weights.
    fn cmp(&self, other: &Self) -> Ordering {
        let endless = self.is_unbounded();
        let fraction = |share: &Self| {
            let weight = if endless { 1 } else { share.weight_milli.max(1) };
            (share.borrowed, share.lendable.saturating_mul(u128::from(weight)))
        };
        endless.cmp(&other.is_unbounded()).then_with(|| compare(fraction(self), fraction(other)))
    }
}

impl PartialOrd for DominantShare {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for DominantShare {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for DominantShare {}

/// Compares two fractions as continued fractions, which cannot overflow.
fn compare((a, b): (u128, u128), (c, d): (u128, u128)) -> Ordering {
    (a / b).cmp(&(c / d)).then_with(|| match (a % b, c % d) {
        (0, rest) => 0.cmp(&rest),
        (_, 0) => Ordering::Greater,
        (one, other) => compare((d, other), (b, one)),
    })
}

impl Forest {
    /// The share of a node. A root borrows from nobody: its share is nothing. For the share after a change of usage, charge that
    /// first.
    pub fn share(&self, usage: &impl QuotaUsage, ix: QuotaIx) -> DominantShare {
        let weight_milli = self.weight_milli(ix);
        let nothing = DominantShare { borrowed: 0, lendable: 1, weight_milli };
        let Some(parent) = self.parent(ix) else { return nothing };
        let mut borrowed: BTreeMap<ResourceIx, u128> = BTreeMap::new();
        for of in self.flavor_resources(self.root(ix)) {
            if let Ok(beyond @ 1..) = u128::try_from(usage.used(ix, of).saturating_sub(self.subtree_quota(ix, of))) {
                *borrowed.entry(of.resource).or_default() += beyond;
            }
        }
        let mut lendable: BTreeMap<ResourceIx, i128> = BTreeMap::new();
        if !borrowed.is_empty() {
            for of in self.flavor_resources(self.root(ix)).filter(|of| borrowed.contains_key(&of.resource)) {
                *lendable.entry(of.resource).or_default() += self.potential_available(parent, of);
            }
        }
        let shares = borrowed.into_iter().filter_map(|(resource, borrowed)| {
            let lendable = lendable.get(&resource).and_then(|lendable| u128::try_from(*lendable).ok());
            lendable.filter(|lendable| *lendable > 0).map(|lendable| DominantShare {
                borrowed,
                lendable,
                weight_milli,
            })
        });
        shares.max().unwrap_or(nothing)
    }
}
