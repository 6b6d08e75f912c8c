//! DecayedUsage: what the submitters of a queue have consumed of late, and the order among them that follows.
//!
//! A local queue is the door through which somebody submits to a queue. Its consumption is the average of what its gangs hold,
//! in which the past counts half as much after every half-life; whoever has the least of it, by weight, goes first. After Kueue's
//! admission fair sharing (`pkg/util/admissionfairsharing`, KEP 4136): between two changes of what is held, `using`, Kueue's
//! `(1 − a) × old + a × using` with `a = 1 − 2^(−elapsed/half-life)` comes to the same however often it is taken, so it is
//! taken when something changes, and when somebody asks.
//!
//! Kueue charges a gang `a × request` when it is admitted, and takes that back at the next sample, which counts the gang itself. Here it
//! stays, as if the gang had held its places for one sampling interval already: it fades like all that was consumed, no timer
//! is needed, and gangs shorter than the interval count as well.

use std::collections::BTreeMap;

use crate::amount::Time;
use crate::resources::{ResourceIx, ResourceVec};

/// A local queue's name, as a dense index; see `World::local_queue_ix`. Zero is that of gangs that name none. A local queue
/// is a name within a queue: the same name in another queue is another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LocalQueueIx(pub u32);

/// How the local queues of a queue take turns: the one that consumed least goes first, before priority.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdmissionFairSharing {
    /// After how many microseconds what was consumed counts half; 0: only what is held now counts.
    pub half_life_us: i64,
    /// A gang counts from its admission as if it had held its places for so many microseconds, so that one local queue does not
    /// get all that one pass has to give. Kueue's `usageSamplingInterval`.
    pub sampling_us: i64,
    /// What a base unit of a resource counts, in millionths. A resource that is not listed does not count.
    pub resource_weights: BTreeMap<ResourceIx, u32>,
    /// How much more than others a local queue may consume, in thousandths; 1000 where none is given. Of weight 0 it goes last.
    pub weights_milli: BTreeMap<LocalQueueIx, u32>,
}

/// What is consumed: millionths of base units, by resource, without zeros.
pub type ConsumedResources = BTreeMap<ResourceIx, u128>;

/// What a local queue consumes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DecayedUsage {
    /// What it had consumed at a time.
    pub consumed: ConsumedResources,
    /// That time; it holds the same since.
    pub at: Time,
    /// What its gangs hold, in millionths of base units.
    pub using: ConsumedResources,
}

/// Fractions are counted in 2⁻⁶⁴.
const ONE: u128 = 1 << 64;

/// A base unit, in what is consumed.
const UNIT: u128 = 1_000_000;

/// `2^(−1/2)`, `2^(−1/4)`, `2^(−1/8)` and so on, each the root of the one before, rounded down.
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
    /// How much of something is left after a time, in 2⁻⁶⁴: `2^(−elapsed/half-life)`, exact at whole half-lives and
    /// otherwise to a part in 2³⁹. Between them, the binary digits of the fraction say which roots of a half are
    /// multiplied.
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

    /// What counts of an amount as soon as it is admitted.
    pub fn entry_penalty(&self, promise: &ResourceVec) -> ConsumedResources {
        let share = ONE - self.left_after(self.sampling_us.max(0));
        let entered = held(promise).into_iter().map(|(resource, amount)| (resource, part(amount, share)));
        entered.filter(|(_, amount)| *amount > 0).collect()
    }

    /// What is consumed, by the weights of the resources: in 10⁻¹² of what a base unit counts, saturating.
    pub fn resource_weighted_usage(&self, consumed: &ConsumedResources) -> u128 {
        let weight = |resource| u128::from(self.resource_weights.get(resource).copied().unwrap_or(0));
        let points = consumed.iter().map(|(resource, amount)| amount.saturating_mul(weight(resource)));
        points.fold(0, u128::saturating_add)
    }

    /// The points of a local queue by its weight, rounded down: the smaller goes first.
    pub fn weighted_usage(&self, points: u128, local_queue: LocalQueueIx) -> u128 {
        let weight = self.weights_milli.get(&local_queue).copied().unwrap_or(1000);
        points.saturating_mul(1000).checked_div(u128::from(weight)).unwrap_or(u128::MAX)
    }
}

impl DecayedUsage {
    /// What it has consumed at a time; not before [`Self::at`].
    pub fn consumed_at(&self, now: Time, sharing: &AdmissionFairSharing) -> ConsumedResources {
        let left = sharing.left_after(now.since(self.at));
        let mut consumed = self.using.clone();
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

    /// Brings it to a time.
    pub(crate) fn advance(&mut self, now: Time, sharing: &AdmissionFairSharing) {
        self.consumed = self.consumed_at(now, sharing);
        self.at = self.at.max(now);
    }

    /// Whether there is nothing to remember.
    pub(crate) fn is_nothing(&self) -> bool {
        self.consumed.is_empty() && self.using.is_empty()
    }
}

/// What is held, in millionths of base units.
pub(crate) fn held(promise: &ResourceVec) -> ConsumedResources {
    let amounts =
        promise.iter().map(|(resource, amount)| (resource, u128::try_from(amount.0).unwrap_or(0) * UNIT));
    amounts.filter(|(_, amount)| *amount > 0).collect()
}

/// A fraction of an amount, rounded down. The fraction is at most one.
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
    fn what_is_left_halves_with_every_half_life() {
        let left = |elapsed| sharing(600).left_after(elapsed);
        assert_eq!((left(-5), left(0), left(600), left(1800)), (ONE, ONE, ONE / 2, ONE / 8));
        assert_eq!(left(600 * 64), 1);
        assert_eq!((left(600 * 65), left(i64::MAX)), (0, 0));
        // 2^(−1/3) is 0.7937005…
        assert_eq!(left(200) * 10_000_000 / ONE, 7_937_005);
        assert_eq!((sharing(0).left_after(0), sharing(-1).left_after(5)), (0, 0));
    }

    #[test]
    fn it_does_not_matter_how_often_somebody_looks() {
        let sharing = sharing(1_000_000);
        let cpu = |amount| ConsumedResources::from([(ResourceIx::CPU, amount)]);
        let mut usage = DecayedUsage { consumed: cpu(8_000 * UNIT), at: Time(0), using: cpu(1_000 * UNIT) };
        let at_once = usage.consumed_at(Time(3_000_000), &sharing);
        assert_eq!(at_once, cpu(1_875 * UNIT));
        for second in 1..=3 {
            usage.advance(Time(second * 1_000_000), &sharing);
        }
        assert_eq!(usage.consumed, at_once);
        assert_eq!(usage.consumed_at(Time(5), &sharing), at_once, "time does not run backwards");
    }

    #[test]
    fn amounts_beyond_counting_saturate() {
        let sharing =
            AdmissionFairSharing { resource_weights: [(ResourceIx::CPU, u32::MAX)].into(), ..sharing(1) };
        let most = DecayedUsage { using: [(ResourceIx::CPU, u128::MAX)].into(), ..DecayedUsage::default() };
        let consumed = most.consumed_at(Time(i64::MAX), &sharing);
        assert_eq!(sharing.resource_weighted_usage(&consumed), u128::MAX);
        assert_eq!(sharing.weighted_usage(u128::MAX, LocalQueueIx(0)), u128::MAX / 1000);
    }
}
