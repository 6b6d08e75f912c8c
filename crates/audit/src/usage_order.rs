//! Queues whose local queues take turns: nobody is admitted before one whose local queue has consumed less.
//!
//! What local queues had consumed at the last change is history, and taken as it is told. What is held since, how all of it fades,
//! and what an admission adds are derived here: powers of a half as a series of `e^(−x ln 2)`. The last digits may differ from
//! those that decided, so only what is certain is claimed.

use std::collections::BTreeMap;

use model::{
    AdmissionFairSharing, Assignment, Gang, GangState, LocalQueueIx, Plan, QueueIx, QueueOrder, ResourceIx,
    Snapshot, Verdict, World,
};

use crate::books::promise;
use crate::violation::Violation;
use crate::{elastic, rank};

/// Fractions are counted in 2⁻⁶⁰.
const ONE: u128 = 1 << 60;

/// The natural logarithm of 2.
const LN_2: u128 = 799_144_290_325_165_978;

/// The rule of a gang's queue, if its local queues take turns.
pub(crate) fn sharing<'w>(world: &'w World, gang: &Gang) -> Option<&'w AdmissionFairSharing> {
    world.sharing(gang.queue)
}

/// What local queues have consumed, in points: 10⁻¹² of what a base unit counts.
pub(crate) struct Turns<'w> {
    snapshot: Snapshot<'w>,
    points: BTreeMap<(QueueIx, LocalQueueIx), u128>,
}

impl<'w> Turns<'w> {
    fn of(snapshot: &Snapshot<'w>) -> Self {
        let Snapshot { world, now } = *snapshot;
        let mut held: BTreeMap<_, BTreeMap<ResourceIx, u128>> = BTreeMap::new();
        for gang in world.gangs().filter(|gang| gang.state != GangState::Waiting) {
            let held = held.entry((gang.queue, gang.local_queue)).or_default();
            for (resource, amount) in promised(&held_by(gang)) {
                *held.entry(resource).or_default() += amount;
            }
        }
        let mut points = BTreeMap::new();
        for (door, service) in world.usages() {
            let Some(rule) = world.sharing(door.0) else { continue };
            let left = left_after(rule, now.since(service.at));
            let empty = BTreeMap::new();
            let held = held.get(&door).unwrap_or(&empty);
            let sum = rule.resource_weights.iter().fold(0_u128, |sum, (resource, weight)| {
                let old = service.consumed.get(resource).copied().unwrap_or(0);
                let new = held.get(resource).map_or(0, |units| units.saturating_mul(1_000_000));
                let amount = times(old, left).saturating_add(times(new, ONE - left));
                sum.saturating_add(amount.saturating_mul(u128::from(*weight)))
            });
            points.insert(door, sum);
        }
        Self { snapshot: *snapshot, points }
    }

    /// With all that a plan gives.
    pub(crate) fn after(snapshot: &Snapshot<'w>, plan: &Plan) -> Self {
        let mut turns = Self::of(snapshot);
        for (uid, verdict) in &plan.verdicts {
            if let Some((gang, assignment)) = given(snapshot.world, uid, verdict) {
                turns.give(gang, assignment);
            }
        }
        turns
    }

    fn give(&mut self, gang: &Gang, assignment: &Assignment) {
        let Some(rule) = sharing(self.snapshot.world, gang) else { return };
        let share = ONE - left_after(rule, rule.sampling_us.max(0));
        let points = self.points.entry((gang.queue, gang.local_queue)).or_default();
        for (resource, units) in promised(&elastic::as_placed(gang, assignment)) {
            let weight = u128::from(rule.resource_weights.get(&resource).copied().unwrap_or(0));
            let entered = times(units.saturating_mul(1_000_000), share).saturating_mul(weight);
            *points = points.saturating_add(entered);
        }
    }

    fn points(&self, gang: &Gang) -> u128 {
        self.points.get(&(gang.queue, gang.local_queue)).copied().unwrap_or(0)
    }

    fn weighted_usage(&self, gang: &Gang) -> u128 {
        self.weighed(gang, self.points(gang))
    }

    fn weighed(&self, gang: &Gang, points: u128) -> u128 {
        let Some(rule) = sharing(self.snapshot.world, gang) else { return 0 };
        match rule.weights_milli.get(&gang.local_queue).copied().unwrap_or(1000) {
            0 => u128::MAX,
            weight => points.saturating_mul(1000) / u128::from(weight),
        }
    }

    /// Whether one gang of a queue certainly goes before another one of it.
    pub(crate) fn precedes(&self, one: &Gang, other: &Gang) -> bool {
        let points = |gang: &Gang| self.points(gang);
        let earlier = rank(one, self.snapshot.now) < rank(other, self.snapshot.now);
        let is_even = |gang: &Gang| points(gang) == 0 || self.weighted_usage(gang) == u128::MAX;
        if one.local_queue == other.local_queue
            || (is_even(one) && is_even(other) && self.weighted_usage(one) == self.weighted_usage(other))
        {
            return earlier;
        }
        // Every change of what is held rounds by a part in 2³⁶ at most, and by a millionth of a base unit.
        let weights = sharing(self.snapshot.world, one)
            .map_or(0, |rule| rule.resource_weights.values().map(|weight| u128::from(*weight)).sum::<u128>());
        let slack = |gang: &Gang| (points(gang) >> 28).saturating_add(weights.saturating_mul(64));
        let most = self.weighed(one, points(one).saturating_add(slack(one)));
        let least = self.weighed(other, points(other).saturating_sub(slack(other)));
        most < least
    }
}

/// Checks the order of admissions. `usage_order` are the waiting gangs by rank.
pub(crate) fn check(snapshot: &Snapshot<'_>, plan: &Plan, turns: &[&Gang], found: &mut Vec<Violation>) {
    let world = snapshot.world;
    let verdicts = plan.verdicts.iter();
    let mut moved: Vec<_> = verdicts.filter_map(|(uid, verdict)| given(world, uid, verdict)).collect();
    moved.retain(|(gang, _)| sharing(world, gang).is_some());
    let stays = |gang: &Gang| !moved.iter().any(|(other, _)| other.uid == gang.uid);
    let mut consumed = Turns::of(snapshot);
    for (at, (gang, assignment)) in moved.iter().enumerate() {
        let mut later =
            moved[at + 1..].iter().map(|(other, _)| *other).filter(|other| other.queue == gang.queue);
        let is_free = |other: &&Gang| !was_held_back(world, other);
        if let Some(then) = later.find(|other| is_free(other) && consumed.precedes(other, gang)) {
            found.push(Violation::OutOfTurn { first: gang.key.clone(), then: then.key.clone() });
        }
        if world.queues().get(&gang.queue).is_some_and(|queue| queue.order == QueueOrder::Strict) {
            let mut waiting = turns.iter().filter(|other| other.queue == gang.queue && stays(other));
            if let Some(first) = waiting.find(|other| consumed.precedes(other, gang)) {
                found.push(Violation::Passed { gang: gang.key.clone(), first: first.key.clone() });
            }
        }
        consumed.give(gang, assignment);
    }
}

/// Whether a gang was kept from starting for the sake of a promise, which may end within a plan.
fn was_held_back(world: &World, gang: &Gang) -> bool {
    world.policy().backfill.heads() > 0 && world.verdict(&gang.uid).and_then(Verdict::shortage).is_some()
}

/// A gang that waited and is given places.
fn given<'w, 'p>(world: &'w World, uid: &str, verdict: &'p Verdict) -> Option<(&'w Gang, &'p Assignment)> {
    let gang = world.gang(uid).filter(|gang| gang.state == GangState::Waiting)?;
    Some((gang, verdict.assignment()?))
}

/// The gang as large as what it holds.
fn held_by(gang: &Gang) -> Gang {
    match gang.state.assignment() {
        Some(assignment) => elastic::held(gang, assignment).0,
        None => elastic::remaining(gang),
    }
}

/// What a gang is promised, resource by resource, as far as it can be counted.
fn promised(gang: &Gang) -> impl Iterator<Item = (ResourceIx, u128)> {
    let most = i128::from(i64::MAX);
    let amounts = promise(gang).into_iter();
    amounts.map(move |(resource, amount)| (resource, amount.clamp(0, most).unsigned_abs()))
}

/// How much of something is left after a time.
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
    fn powers_of_a_half_agree_with_those_that_decide() {
        let rule = AdmissionFairSharing { half_life_us: 7_000_003, ..AdmissionFairSharing::default() };
        for elapsed in [0, 1, 3_499_999, 3_500_001, 7_000_002, 7_000_003, 61_234_567, i64::MAX] {
            let (mine, theirs) = (left_after(&rule, elapsed), rule.left_after(elapsed) >> 4);
            assert!(mine.abs_diff(theirs) <= (mine >> 36) + 1, "{elapsed}: {mine} {theirs}");
        }
    }
}
