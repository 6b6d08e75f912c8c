//! Resource names, vectors of amounts, and exact sums of such vectors.

use std::collections::BTreeMap;

use crate::amount::Amount;

/// A resource, as a dense index into [`ResourceNames`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceIx(pub u16);

impl ResourceIx {
    /// `cpu`, in milli.
    pub const CPU: Self = Self(0);
    /// `memory`, in bytes.
    pub const MEMORY: Self = Self(1);
    /// `pods`: every pod requests one, every node has a limit.
    pub const PODS: Self = Self(2);

    fn at(self) -> usize {
        usize::from(self.0)
    }
}

/// Interns resource names. The first three are always `cpu`, `memory` and `pods`.
#[derive(Clone, Debug)]
pub struct ResourceNames {
    names: Vec<String>,
    index: BTreeMap<String, ResourceIx>,
}

impl Default for ResourceNames {
    fn default() -> Self {
        let mut names = Self { names: Vec::new(), index: BTreeMap::new() };
        for name in ["cpu", "memory", "pods"] {
            names.intern(name);
        }
        names
    }
}

impl ResourceNames {
    /// The index of `name`, which is added if it is new.
    ///
    /// The table holds 65,535 names. Further names share the last index, so their requests are overestimated, never
    /// lost.
    pub fn intern(&mut self, name: &str) -> ResourceIx {
        if let Some(&ix) = self.index.get(name) {
            return ix;
        }
        let Ok(next) = u16::try_from(self.names.len()) else { return ResourceIx(u16::MAX) };
        let ix = ResourceIx(next);
        self.names.push(name.to_owned());
        self.index.insert(name.to_owned(), ix);
        ix
    }

    /// The index of `name`, if it was interned.
    pub fn get(&self, name: &str) -> Option<ResourceIx> {
        self.index.get(name).copied()
    }

    /// The name of an index; `?` for an index that this table does not contain.
    pub fn name(&self, ix: ResourceIx) -> &str {
        self.names.get(ix.at()).map_or("?", String::as_str)
    }

    /// All resources with their names, by index.
    pub fn iter(&self) -> impl Iterator<Item = (ResourceIx, &str)> {
        (0..=u16::MAX).map(ResourceIx).zip(self.names.iter().map(String::as_str))
    }
}

/// An amount per resource; resources that are not set are zero. Vectors with equal amounts compare equal.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceVec(Vec<Amount>); // Invariant: the last entry is not zero.

impl ResourceVec {
    /// The vector of zeros.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// The amount of one resource.
    pub fn get(&self, ix: ResourceIx) -> Amount {
        self.0.get(ix.at()).copied().unwrap_or_default()
    }

    /// Sets the amount of one resource.
    pub fn set(&mut self, ix: ResourceIx, amount: Amount) {
        if self.0.len() <= ix.at() {
            if amount == Amount::ZERO {
                return;
            }
            self.0.resize(ix.at() + 1, Amount::ZERO);
        }
        self.0[ix.at()] = amount;
        self.trim();
    }

    /// This vector with one amount set, to build vectors in one expression.
    #[must_use]
    pub fn with(mut self, ix: ResourceIx, amount: i64) -> Self {
        self.set(ix, Amount(amount));
        self
    }

    /// Whether every amount is zero.
    pub fn is_zero(&self) -> bool {
        self.0.is_empty()
    }

    /// The resources with a nonzero amount, by index.
    pub fn iter(&self) -> impl Iterator<Item = (ResourceIx, Amount)> + '_ {
        (0..=u16::MAX)
            .map(ResourceIx)
            .zip(self.0.iter().copied())
            .filter(|(_, amount)| *amount != Amount::ZERO)
    }

    /// Adds `other`, saturating.
    pub fn add(&mut self, other: &Self) {
        self.zip(other, Amount::plus);
    }

    /// Subtracts `other`, saturating; amounts may become negative.
    pub fn sub(&mut self, other: &Self) {
        self.zip(other, Amount::minus);
    }

    /// Raises each amount to that of `other` where it is smaller.
    pub fn raise_to(&mut self, other: &Self) {
        self.zip(other, Amount::max);
    }

    /// The larger amount of the two, per resource.
    #[must_use]
    pub fn max(mut self, other: &Self) -> Self {
        self.raise_to(other);
        self
    }

    /// The product with a count, saturating.
    #[must_use]
    pub fn times(&self, count: u32) -> Self {
        let mut product = Self(self.0.iter().map(|amount| amount.times(count)).collect());
        product.trim();
        product
    }

    /// This vector with negative amounts replaced by zero.
    #[must_use]
    pub fn positive(&self) -> Self {
        let mut positive = Self(self.0.iter().map(|amount| (*amount).max(Amount::ZERO)).collect());
        positive.trim();
        positive
    }

    /// Whether all amounts can be subtracted from `free`; see [`Amount::fits_in`].
    pub fn fits_in(&self, free: &Self) -> bool {
        self.iter().all(|(ix, amount)| amount.fits_in(free.get(ix)))
    }

    /// How many times this vector fits in `free`: at most `most`, which is also the result for a zero vector.
    pub fn copies_in(&self, free: &Self, most: u32) -> u32 {
        let mut copies = i64::from(most);
        for (ix, amount) in self.iter().filter(|(_, amount)| amount.0 > 0) {
            let times = if amount == Amount::MAX { 0 } else { (free.get(ix).0.max(0)) / amount.0 };
            copies = copies.min(times);
        }
        u32::try_from(copies).unwrap_or(most)
    }

    /// The resources with an amount above zero.
    pub fn mask(&self) -> ResourceMask {
        let mut mask = ResourceMask::NONE;
        for (ix, _) in self.iter().filter(|(_, amount)| amount.0 > 0) {
            mask = mask.with(ix);
        }
        mask
    }

    /// The resources of which `self` has more than `before`.
    pub fn increased_since(&self, before: &Self) -> ResourceMask {
        let mut mask = ResourceMask::NONE;
        for at in 0..self.0.len().max(before.0.len()) {
            let ix = ResourceIx(u16::try_from(at).unwrap_or(u16::MAX));
            if self.get(ix) > before.get(ix) {
                mask = mask.with(ix);
            }
        }
        mask
    }

    fn zip(&mut self, other: &Self, op: impl Fn(Amount, Amount) -> Amount) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), Amount::ZERO);
        }
        for (at, amount) in self.0.iter_mut().enumerate() {
            *amount = op(*amount, other.0.get(at).copied().unwrap_or_default());
        }
        self.trim();
    }

    fn trim(&mut self) {
        while self.0.last() == Some(&Amount::ZERO) {
            self.0.pop();
        }
    }
}

impl FromIterator<(ResourceIx, Amount)> for ResourceVec {
    /// Adds the amounts of a resource that occurs twice.
    fn from_iter<I: IntoIterator<Item = (ResourceIx, Amount)>>(pairs: I) -> Self {
        let mut vector = Self::new();
        for (ix, amount) in pairs {
            let sum = vector.get(ix).plus(amount);
            vector.set(ix, sum);
        }
        vector
    }
}

/// A set of resources. The 64th and all later resources share one bit, so a set may contain too many resources, never
/// too few.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceMask(u64);

impl ResourceMask {
    /// No resource.
    pub const NONE: Self = Self(0);
    /// Every resource.
    pub const ALL: Self = Self(u64::MAX);

    /// This set with one more resource.
    #[must_use]
    pub fn with(self, ix: ResourceIx) -> Self {
        Self(self.0 | 1 << ix.0.min(63))
    }

    /// The union.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether the sets intersect.
    pub fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// An exact sum of vectors: adding and later subtracting a vector restores the original value, even for huge amounts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sum(Vec<i128>); // Invariant: the last entry is not zero.

impl Sum {
    /// Adds a vector.
    pub fn add(&mut self, vector: &ResourceVec) {
        self.scaled(vector, 1);
    }

    /// Subtracts a vector.
    pub fn sub(&mut self, vector: &ResourceVec) {
        self.scaled(vector, -1);
    }

    /// Adds `count` times a vector.
    pub fn add_times(&mut self, vector: &ResourceVec, count: u32) {
        self.scaled(vector, i128::from(count));
    }

    /// Adds another sum.
    pub fn add_sum(&mut self, other: &Self) {
        self.zip(other, |mine, theirs| mine + theirs);
    }

    /// Subtracts another sum.
    pub fn sub_sum(&mut self, other: &Self) {
        self.zip(other, |mine, theirs| mine - theirs);
    }

    /// The sum for one resource, in its base unit.
    pub fn get(&self, ix: ResourceIx) -> i128 {
        self.0.get(ix.at()).copied().unwrap_or_default()
    }

    /// The resources with a nonzero sum, by index.
    pub fn iter(&self) -> impl Iterator<Item = (ResourceIx, i128)> + '_ {
        (0..=u16::MAX).map(ResourceIx).zip(self.0.iter().copied()).filter(|(_, sum)| *sum != 0)
    }

    /// Whether every sum is zero.
    pub fn is_zero(&self) -> bool {
        self.0.is_empty()
    }

    /// The sum as a vector, clamped to the range of amounts.
    pub fn to_vec(&self) -> ResourceVec {
        self.iter().map(|(ix, sum)| (ix, Amount::clamped(sum))).collect()
    }

    fn zip(&mut self, other: &Self, op: fn(i128, i128) -> i128) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine = op(*mine, *theirs);
        }
        self.trim();
    }

    fn scaled(&mut self, vector: &ResourceVec, factor: i128) {
        if self.0.len() < vector.0.len() {
            self.0.resize(vector.0.len(), 0);
        }
        for (sum, amount) in self.0.iter_mut().zip(&vector.0) {
            *sum += i128::from(amount.0) * factor;
        }
        self.trim();
    }

    fn trim(&mut self) {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_with_equal_amounts_are_equal() {
        let mut vector = ResourceVec::new().with(ResourceIx::CPU, 1).with(ResourceIx::PODS, 2);
        vector.set(ResourceIx::PODS, Amount::ZERO);
        assert_eq!(vector, ResourceVec::new().with(ResourceIx::CPU, 1));
    }

    #[test]
    fn zero_fits_where_the_free_amount_is_negative() {
        let short = ResourceVec::new().with(ResourceIx::CPU, -5).with(ResourceIx::MEMORY, 1);
        assert!(ResourceVec::new().with(ResourceIx::MEMORY, 1).fits_in(&short));
        assert!(!ResourceVec::new().with(ResourceIx::CPU, 1).fits_in(&short));
    }

    #[test]
    fn a_saturated_amount_fits_nowhere() {
        let all = ResourceVec::new().with(ResourceIx::CPU, i64::MAX);
        assert!(!all.fits_in(&all));
        assert_eq!(all.copies_in(&all, 7), 0);
    }

    #[test]
    fn a_sum_is_exact_after_subtraction() {
        let huge = ResourceVec::new().with(ResourceIx::CPU, i64::MAX);
        let small = ResourceVec::new().with(ResourceIx::CPU, 7);
        let mut sum = Sum::default();
        sum.add(&small);
        sum.add(&huge);
        sum.add(&huge);
        assert_eq!(sum.to_vec(), huge);
        sum.sub(&huge);
        sum.sub(&huge);
        assert_eq!(sum.to_vec(), small);
    }

    #[test]
    fn copies_are_limited_by_the_scarcest_resource() {
        let one = ResourceVec::new().with(ResourceIx::CPU, 500).with(ResourceIx::PODS, 1);
        let free = ResourceVec::new().with(ResourceIx::CPU, 1999).with(ResourceIx::PODS, 110);
        assert_eq!(one.copies_in(&free, 10), 3);
        assert_eq!(one.copies_in(&free, 2), 2);
        assert_eq!(ResourceVec::new().copies_in(&free, 2), 2);
    }
}
