//! Dominant resource share: the share of the lendable quota that a node of a quota tree borrows.
//!
//! After Ghodsi et al., "Dominant Resource Fairness", NSDI 2011, with Kueue's definition
//! (`pkg/cache/scheduler/fair_sharing.go`, v0.19). For each resource: the usage of the node beyond its subtree quota,
//! summed over flavors, divided by the most that its parent could use of it. The share is the largest of these
//! fractions, divided by the weight of the node. Shares are exact fractions, so shares compare equal only when they
//! are equal.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::{Forest, QuotaIx, QuotaUsage};
use crate::resources::ResourceIx;

/// The weighted dominant resource share of a node. The larger the share, the more the node borrows.
#[derive(Clone, Copy, Debug)]
pub struct DominantShare {
    /// The borrowed amount of the dominant resource.
    borrowed: u128,
    /// The amount of it that could be lent at most; never 0.
    lendable: u128,
    weight_milli: u32,
}

impl DominantShare {
    /// The share in thousandths for a weight of one, rounded up. `None` when it is unbounded: the node borrows and
    /// its weight is zero.
    pub fn thousandths(&self) -> Option<u128> {
        let of = self.lendable.saturating_mul(u128::from(self.weight_milli.max(1)));
        (!self.is_unbounded()).then(|| self.borrowed.saturating_mul(1_000_000).div_ceil(of))
    }

    /// The share in thousandths for a weight of one as an exact fraction, numerator and denominator. `None` when it is
    /// unbounded.
    pub fn exact_thousandths(&self) -> Option<(u128, u128)> {
        let of = self.lendable.saturating_mul(u128::from(self.weight_milli.max(1)));
        (!self.is_unbounded()).then(|| (self.borrowed.saturating_mul(1_000_000), of))
    }

    /// Whether nothing is borrowed.
    pub fn is_zero(&self) -> bool {
        self.borrowed == 0
    }

    /// Whether the node borrows with a weight of zero.
    fn is_unbounded(&self) -> bool {
        self.weight_milli == 0 && self.borrowed > 0
    }
}

impl Ord for DominantShare {
    /// Unbounded shares come last. Among themselves they compare as if their weights were equal.
    fn cmp(&self, other: &Self) -> Ordering {
        let unbounded = self.is_unbounded();
        let fraction = |share: &Self| {
            let weight = if unbounded { 1 } else { share.weight_milli.max(1) };
            (share.borrowed, share.lendable.saturating_mul(u128::from(weight)))
        };
        unbounded.cmp(&other.is_unbounded()).then_with(|| compare(fraction(self), fraction(other)))
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
    /// The share of a node. A root does not borrow, so its share is zero. To get the share after a change of usage,
    /// charge the change first.
    pub fn share(&self, usage: &impl QuotaUsage, ix: QuotaIx) -> DominantShare {
        let weight_milli = self.weight_milli(ix);
        let nothing = DominantShare { borrowed: 0, lendable: 1, weight_milli };
        let Some(parent) = self.parent(ix) else { return nothing };
        let mut borrowed: BTreeMap<ResourceIx, u128> = BTreeMap::new();
        for of in self.flavor_resources(self.root(ix)) {
            if let Ok(beyond @ 1..) =
                u128::try_from(usage.used(ix, of).saturating_sub(self.subtree_quota(ix, of)))
            {
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
