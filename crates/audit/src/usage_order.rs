//! Admission fair sharing: no gang is admitted before one whose local queue has less usage.
//!
//! The recorded usage of local queues is taken from the snapshot. The usage since then, its decay, and the usage that
//! an admission adds are computed here: powers of one half as a series of `e^(−x ln 2)`. The last digits may differ
//! from those of the planner, so only certain violations are reported.

use std::collections::BTreeMap;

use model::{
    AdmissionFairSharing, Assignment, Gang, GangState, LocalQueueIx, Plan, QueueIx, QueueingStrategy,
    ResourceIx, Snapshot, Verdict, World,
};

use crate::cluster_state::total_request;
use crate::violation::Violation;
use crate::{elastic, queue_order};

/// One, in fractions of 2⁻⁶⁰.
const ONE: u128 = 1 << 60;

/// The natural logarithm of 2.
const LN_2: u128 = 799_144_290_325_165_978;

/// The admission fair sharing rule of a gang's queue.
pub(crate) fn admission_fair_sharing<'w>(world: &'w World, gang: &Gang) -> Option<&'w AdmissionFairSharing> {
    world.admission_fair_sharing(gang.queue)
}

/// The usage of local queues, in units of 10⁻¹² weighted base units.
pub(crate) struct LocalQueueUsages<'w> {
    snapshot: Snapshot<'w>,
    points: BTreeMap<(QueueIx, LocalQueueIx), u128>,
}

impl<'w> LocalQueueUsages<'w> {
    fn of(snapshot: &Snapshot<'w>) -> Self {
        let Snapshot { world, now } = *snapshot;
        let mut held: BTreeMap<_, BTreeMap<ResourceIx, u128>> = BTreeMap::new();
        for gang in world.gangs().filter(|gang| gang.state != GangState::Waiting) {
            let held = held.entry((gang.queue, gang.local_queue)).or_default();
            for (resource, amount) in resources_of(&held_by(gang)) {
                *held.entry(resource).or_default() += amount;
            }
        }
        let mut points = BTreeMap::new();
        for (local_queue, usage) in world.usages() {
            let Some(rule) = world.admission_fair_sharing(local_queue.0) else { continue };
            let left = left_after(rule, now.since(usage.at));
            let empty = BTreeMap::new();
            let held = held.get(&local_queue).unwrap_or(&empty);
            let sum = rule.resource_weights.iter().fold(0_u128, |sum, (resource, weight)| {
                let old = usage.consumed.get(resource).copied().unwrap_or(0);
                let new = held.get(resource).map_or(0, |units| units.saturating_mul(1_000_000));
                let amount = times(old, left).saturating_add(times(new, ONE - left));
                sum.saturating_add(amount.saturating_mul(u128::from(*weight)))
            });
            points.insert(local_queue, sum);
        }
        Self { snapshot: *snapshot, points }
    }

    /// The usage after all admissions of a plan.
    pub(crate) fn after(snapshot: &Snapshot<'w>, plan: &Plan) -> Self {
        let mut usages = Self::of(snapshot);
        for (uid, verdict) in &plan.verdicts {
            if let Some((gang, assignment)) = admission(snapshot.world, uid, verdict) {
                usages.charge(gang, assignment);
            }
        }
        usages
    }

    fn charge(&mut self, gang: &Gang, assignment: &Assignment) {
        let Some(rule) = admission_fair_sharing(self.snapshot.world, gang) else { return };
        let share = ONE - left_after(rule, rule.sampling_us.max(0));
        let points = self.points.entry((gang.queue, gang.local_queue)).or_default();
        for (resource, units) in resources_of(&elastic::as_placed(gang, assignment)) {
            let weight = u128::from(rule.resource_weights.get(&resource).copied().unwrap_or(0));
            let added = times(units.saturating_mul(1_000_000), share).saturating_mul(weight);
            *points = points.saturating_add(added);
        }
    }

    fn points(&self, gang: &Gang) -> u128 {
        self.points.get(&(gang.queue, gang.local_queue)).copied().unwrap_or(0)
    }

    fn weighted_usage(&self, gang: &Gang) -> u128 {
        self.weighted(gang, self.points(gang))
    }

    fn weighted(&self, gang: &Gang, points: u128) -> u128 {
        let Some(rule) = admission_fair_sharing(self.snapshot.world, gang) else { return 0 };
        match rule.weights_milli.get(&gang.local_queue).copied().unwrap_or(1000) {
            0 => u128::MAX,
            weight => points.saturating_mul(1000) / u128::from(weight),
        }
    }

    /// Whether one gang of a queue certainly precedes another one.
    pub(crate) fn precedes(&self, one: &Gang, other: &Gang) -> bool {
        let points = |gang: &Gang| self.points(gang);
        let earlier = queue_order(one, self.snapshot.now) < queue_order(other, self.snapshot.now);
        let is_even = |gang: &Gang| points(gang) == 0 || self.weighted_usage(gang) == u128::MAX;
        if one.local_queue == other.local_queue
            || (is_even(one) && is_even(other) && self.weighted_usage(one) == self.weighted_usage(other))
        {
            return earlier;
        }
        // Every update of the usage rounds by at most 2⁻³⁶ of it, and by a millionth of a base unit.
        let weights = admission_fair_sharing(self.snapshot.world, one)
            .map_or(0, |rule| rule.resource_weights.values().map(|weight| u128::from(*weight)).sum::<u128>());
        let slack = |gang: &Gang| (points(gang) >> 28).saturating_add(weights.saturating_mul(64));
        let most = self.weighted(one, points(one).saturating_add(slack(one)));
        let least = self.weighted(other, points(other).saturating_sub(slack(other)));
        most < least
    }
}

/// Checks the order of admissions. `pending` is sorted by rank.
pub(crate) fn check(snapshot: &Snapshot<'_>, plan: &Plan, pending: &[&Gang], found: &mut Vec<Violation>) {
    let world = snapshot.world;
    let verdicts = plan.verdicts.iter();
    let mut admitted: Vec<_> = verdicts.filter_map(|(uid, verdict)| admission(world, uid, verdict)).collect();
    admitted.retain(|(gang, _)| admission_fair_sharing(world, gang).is_some());
    let stays_pending = |gang: &Gang| !admitted.iter().any(|(other, _)| other.uid == gang.uid);
    let mut usages = LocalQueueUsages::of(snapshot);
    for (at, (gang, assignment)) in admitted.iter().enumerate() {
        let mut later =
            admitted[at + 1..].iter().map(|(other, _)| *other).filter(|other| other.queue == gang.queue);
        let is_comparable = |other: &&Gang| !was_held_back(world, other);
        if let Some(then) = later.find(|other| is_comparable(other) && usages.precedes(other, gang)) {
            found.push(Violation::OutOfOrder { first: gang.key.clone(), then: then.key.clone() });
        }
        if world
            .queues()
            .get(&gang.queue)
            .is_some_and(|queue| queue.queueing_strategy == QueueingStrategy::StrictFifo)
        {
            let mut still_pending =
                pending.iter().filter(|other| other.queue == gang.queue && stays_pending(other));
            if let Some(first) = still_pending.find(|other| usages.precedes(other, gang)) {
                found.push(Violation::StrictHeadPassed { gang: gang.key.clone(), first: first.key.clone() });
            }
        }
        usages.charge(gang, assignment);
    }
}

/// Whether a gang was held back for a reservation, which may be removed within the same plan.
fn was_held_back(world: &World, gang: &Gang) -> bool {
    world.policy().backfill.reservation_depth() > 0
        && world.verdict(&gang.uid).and_then(Verdict::shortage).is_some()
}

/// The gang and assignment of an admission of a pending gang.
fn admission<'w, 'p>(
    world: &'w World,
    uid: &str,
    verdict: &'p Verdict,
) -> Option<(&'w Gang, &'p Assignment)> {
    let gang = world.gang(uid).filter(|gang| gang.state == GangState::Waiting)?;
    Some((gang, verdict.assignment()?))
}

/// The gang with the pods that it holds.
fn held_by(gang: &Gang) -> Gang {
    match gang.state.assignment() {
        Some(assignment) => elastic::held(gang, assignment).0,
        None => elastic::remaining(gang),
    }
}

/// The total request of a gang by resource, clamped to `i64`.
fn resources_of(gang: &Gang) -> impl Iterator<Item = (ResourceIx, u128)> {
    let most = i128::from(i64::MAX);
    let amounts = total_request(gang).into_iter();
    amounts.map(move |(resource, amount)| (resource, amount.clamp(0, most).unsigned_abs()))
}

/// The fraction that remains after a time.
fn left_after(rule: &AdmissionFairSharing, elapsed_us: i64) -> u128 {
    let (elapsed, half_life) = (i128::from(elapsed_us).max(0), i128::from(rule.half_life_us));
    if half_life <= 0 {
        return 0;
    }
    let whole = u32::try_from(elapsed / half_life).unwrap_or(u32::MAX);
    let rest = u128::try_from(elapsed % half_life).unwrap_or(0);
    let half_life = u128::try_from(half_life).unwrap_or(1);
    let exponent = ((rest << 60) / half_life * (LN_2 >> 4)) >> 56;
    let (mut plus, mut minus, mut term) = (0_u128, 0_u128, ONE);
    for at in 1..40_u128 {
        *(if at % 2 == 1 { &mut plus } else { &mut minus }) += term;
        term = ((term * exponent) >> 60) / at;
    }
    (plus - minus).checked_shr(whole).unwrap_or(0)
}

fn times(amount: u128, fraction: u128) -> u128 {
    let (high, low) = (amount / ONE, amount % ONE);
    high.saturating_mul(fraction).saturating_add(low * fraction / ONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decay_agrees_with_the_planner() {
        let rule = AdmissionFairSharing { half_life_us: 7_000_003, ..AdmissionFairSharing::default() };
        for elapsed in [0, 1, 3_499_999, 3_500_001, 7_000_002, 7_000_003, 61_234_567, i64::MAX] {
            let (own, model) = (left_after(&rule, elapsed), rule.left_after(elapsed) >> 4);
            assert!(own.abs_diff(model) <= (own >> 36) + 1, "{elapsed}: {own} {model}");
        }
    }
}
