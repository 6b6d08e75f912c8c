//! Decayed usage of local queues, and the order of local queues that follows from it.
//!
//! A local queue is the namespaced entry to a queue, as in Kueue. Its usage is an exponentially weighted average of
//! what its gangs hold: past usage counts half after every half-life. The local queue with the smallest weighted
//! usage goes first. After Kueue's admission fair sharing (`pkg/util/admissionfairsharing`, KEP 4136). While the held
//! amount `current` does not change, Kueue's update `(1 − a) × old + a × current` with `a = 1 −
//! 2^(−elapsed/half-life)` gives the same result for any number of updates. So usage is updated only when the held
//! amount changes, and computed when it is read.
//!
//! Kueue charges a gang `a × request` at admission and withdraws this penalty at the next sample, which counts the
//! gang itself. Here the penalty stays, as if the gang had held its capacity for one sampling interval before its
//! admission. It decays like other usage, needs no timer, and also counts gangs that run shorter than the interval.

use std::collections::BTreeMap;

use crate::amount::Time;
use crate::resources::{ResourceIx, ResourceVec};

/// The name of a local queue, as a dense index; see `World::local_queue_ix`. Zero stands for no local queue. Local
/// queues of the same name in different queues are different local queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LocalQueueIx(pub u32);

/// The admission fair sharing rule of a queue: gangs of the local queue with the smallest usage go first, before
/// priority.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdmissionFairSharing {
    /// The half-life in microseconds; 0: only the current usage counts. Kueue's `usageHalfLifeTime`.
    pub half_life_us: i64,
    /// At admission, a gang is charged as if it had held its capacity for this many microseconds. So one local queue
    /// does not get everything that one planning cycle has to give. Kueue's `usageSamplingInterval`.
    pub sampling_us: i64,
    /// The weight of a base unit of each resource, in millionths. Resources that are not listed do not count.
    pub resource_weights: BTreeMap<ResourceIx, u32>,
    /// The fair sharing weight of local queues, in thousandths; 1000 when not listed. A local queue of weight 0 goes
    /// last.
    pub weights_milli: BTreeMap<LocalQueueIx, u32>,
}

/// Usage by resource in millionths of base units, without zeros.
pub type ConsumedResources = BTreeMap<ResourceIx, u128>;

/// The decayed usage of a local queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DecayedUsage {
    /// The decayed usage at time `at`.
    pub consumed: ConsumedResources,
    /// The time of `consumed`; `current` did not change since then.
    pub at: Time,
    /// What its gangs hold, in millionths of base units.
    pub current: ConsumedResources,
}

/// Fractions are counted in 2⁻⁶⁴.
const ONE: u128 = 1 << 64;

/// One base unit in [`ConsumedResources`].
const UNIT: u128 = 1_000_000;

/// `2^(−1/2)`, `2^(−1/4)`, `2^(−1/8)` and so on; each is the square root of the one before, rounded down.
const ROOTS: [u128; 40] = {
    let mut roots = [0; 40];
    let (mut at, mut last) = (0, ONE / 2);
    while at < roots.len() {
        last = (last * ONE).isqrt();
        roots[at] = last;
        at += 1;
    }
    roots
};

impl AdmissionFairSharing {
    /// The fraction of past usage that is left after a time, in 2⁻⁶⁴: `2^(−elapsed/half-life)`. The result is exact
    /// at whole half-lives and otherwise accurate to one part in 2³⁹. In between, the binary digits of the fraction
    /// select the roots of one half that are multiplied.
    pub fn left_after(&self, elapsed_us: i64) -> u128 {
        let Ok(half_life @ 1..) = u128::try_from(self.half_life_us) else { return 0 };
        let Ok(elapsed) = u128::try_from(elapsed_us) else { return ONE };
        let halvings = u32::try_from(elapsed / half_life).unwrap_or(u32::MAX);
        let mut rest = elapsed % half_life;
        let mut left = ONE;
        for root in ROOTS {
            rest *= 2;
            if rest >= half_life {
                rest -= half_life;
                left = part(left, root);
            }
        }
        left.checked_shr(halvings).unwrap_or(0)
    }

    /// The usage that is charged at admission. Kueue's entry penalty.
    pub fn entry_penalty(&self, request: &ResourceVec) -> ConsumedResources {
        let share = ONE - self.left_after(self.sampling_us.max(0));
        let entered =
            in_consumed_units(request).into_iter().map(|(resource, amount)| (resource, part(amount, share)));
        entered.filter(|(_, amount)| *amount > 0).collect()
    }

    /// The usage multiplied by the weights of the resources, in 10⁻¹² of a weighted base unit, saturating.
    pub fn resource_weighted_usage(&self, consumed: &ConsumedResources) -> u128 {
        let weight = |resource| u128::from(self.resource_weights.get(resource).copied().unwrap_or(0));
        let usage = consumed.iter().map(|(resource, amount)| amount.saturating_mul(weight(resource)));
        usage.fold(0, u128::saturating_add)
    }

    /// The resource-weighted usage divided by the weight of the local queue, rounded down. The smaller goes first.
    pub fn weighted_usage(&self, usage: u128, local_queue: LocalQueueIx) -> u128 {
        let weight = self.weights_milli.get(&local_queue).copied().unwrap_or(1000);
        usage.saturating_mul(1000).checked_div(u128::from(weight)).unwrap_or(u128::MAX)
    }
}

impl DecayedUsage {
    /// The decayed usage at a time that is not before [`Self::at`].
    pub fn consumed_at(&self, now: Time, sharing: &AdmissionFairSharing) -> ConsumedResources {
        let left = sharing.left_after(now.since(self.at));
        let mut consumed = self.current.clone();
        self.consumed.keys().for_each(|resource| _ = consumed.entry(*resource).or_default());
        for (resource, amount) in &mut consumed {
            let before = self.consumed.get(resource).copied().unwrap_or(0);
            *amount = if before > *amount {
                *amount + part(before - *amount, left)
            } else {
                *amount - part(*amount - before, left)
            };
        }
        consumed.retain(|_, amount| *amount > 0);
        consumed
    }

    /// Updates the usage to a time.
    pub(crate) fn advance(&mut self, now: Time, sharing: &AdmissionFairSharing) {
        self.consumed = self.consumed_at(now, sharing);
        self.at = self.at.max(now);
    }

    /// Whether both usages are zero.
    pub(crate) fn is_empty(&self) -> bool {
        self.consumed.is_empty() && self.current.is_empty()
    }
}

/// The amounts in millionths of base units.
pub(crate) fn in_consumed_units(request: &ResourceVec) -> ConsumedResources {
    let amounts =
        request.iter().map(|(resource, amount)| (resource, u128::try_from(amount.0).unwrap_or(0) * UNIT));
    amounts.filter(|(_, amount)| *amount > 0).collect()
}

/// The product of an amount and a fraction, rounded down. The fraction is at most one.
fn part(amount: u128, fraction: u128) -> u128 {
    let (high, low) = (amount >> 64, amount & (ONE - 1));
    high.saturating_mul(fraction).saturating_add((low * fraction) >> 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sharing(half_life_us: i64) -> AdmissionFairSharing {
        AdmissionFairSharing { half_life_us, ..AdmissionFairSharing::default() }
    }

    #[test]
    fn usage_halves_with_every_half_life() {
        let left = |elapsed| sharing(600).left_after(elapsed);
        assert_eq!((left(-5), left(0), left(600), left(1800)), (ONE, ONE, ONE / 2, ONE / 8));
        assert_eq!(left(600 * 64), 1);
        assert_eq!((left(600 * 65), left(i64::MAX)), (0, 0));
        // 2^(−1/3) is 0.7937005…
        assert_eq!(left(200) * 10_000_000 / ONE, 7_937_005);
        assert_eq!((sharing(0).left_after(0), sharing(-1).left_after(5)), (0, 0));
    }

    #[test]
    fn intermediate_updates_do_not_change_the_usage() {
        let sharing = sharing(1_000_000);
        let cpu = |amount| ConsumedResources::from([(ResourceIx::CPU, amount)]);
        let mut usage = DecayedUsage { consumed: cpu(8_000 * UNIT), at: Time(0), current: cpu(1_000 * UNIT) };
        let at_once = usage.consumed_at(Time(3_000_000), &sharing);
        assert_eq!(at_once, cpu(1_875 * UNIT));
        for second in 1..=3 {
            usage.advance(Time(second * 1_000_000), &sharing);
        }
        assert_eq!(usage.consumed, at_once);
        assert_eq!(usage.consumed_at(Time(5), &sharing), at_once, "time does not run backwards");
    }

    #[test]
    fn huge_usage_saturates() {
        let sharing =
            AdmissionFairSharing { resource_weights: [(ResourceIx::CPU, u32::MAX)].into(), ..sharing(1) };
        let most = DecayedUsage { current: [(ResourceIx::CPU, u128::MAX)].into(), ..DecayedUsage::default() };
        let consumed = most.consumed_at(Time(i64::MAX), &sharing);
        assert_eq!(sharing.resource_weighted_usage(&consumed), u128::MAX);
        assert_eq!(sharing.weighted_usage(u128::MAX, LocalQueueIx(0)), u128::MAX / 1000);
    }
}
