//! Decides about nominated gangs: whether the nodes of their victims are free now, or are lost.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use model::{
    Assignment, Cause, Charges, FreeResources, Gang, Preemption, QueueingHint, Shape, Shortage, Sum, Verdict,
    Victim, World,
};

use crate::aggregate_reservations::AggregateReservations;
use crate::fit::try_fit;
use crate::flavors::{are_allowed, is_stepwise, with_flavor_constraints};
use crate::ledger::Ledger;
use crate::preemption::{Holders, ReleasedHolders};
use crate::quota::{Quotas, exceeds_potential, is_counted, is_open};
use crate::request::GangRequest;
use crate::{pod_rules, topology};

/// Whether quota is enough for these charges at any time: now, while the gangs that `awaiting` charges wait for their victims, and
/// later, when all that terminates is gone, `victims` of this cycle among it. Both are in the ledger, which stays as it was.
///
/// The sum of both would keep the quota of other queues from them while victims terminate. Kueue looks at the usage with all
/// victims for the present, and at that without them where it preempts (`pkg/scheduler/scheduler.go`, v0.19).
pub(crate) fn fits_beside(
    ledger: &mut Ledger<'_>,
    holders: &Holders<'_>,
    victims: &BTreeSet<String>,
    awaiting: &[Charges],
    charges: &Charges,
) -> bool {
    ledger.quotas.fits(charges)
        || without(&ledger.quotas, awaiting).fits(charges) && fits_later(ledger, holders, victims, charges)
}

/// Whether quota is enough when all that terminates is gone. Leaves the ledger as it was.
fn fits_later(
    ledger: &mut Ledger<'_>,
    holders: &Holders<'_>,
    victims: &BTreeSet<String>,
    charges: &Charges,
) -> bool {
    let released = ReleasedHolders::of(ledger, holders, victims);
    let fits = ledger.quotas.fits(charges);
    released.undo(ledger, &[]);
    fits
}

/// The nominated gangs about which quota alone decides.
pub(crate) fn stepwise(world: &World) -> impl Iterator<Item = &Gang> {
    world.nominated().filter(|gang| is_stepwise(world, &GangRequest::of_gang(gang, &gang.shape())))
}

/// The usage without the gangs that wait for their victims, which these charges are of.
pub(crate) fn without<'w>(quotas: &Quotas<'w>, awaiting: &[Charges]) -> Quotas<'w> {
    let mut present = quotas.clone();
    for charges in awaiting {
        present.release(charges);
    }
    present
}

/// The verdict for a nominated gang; none while its victims are still terminating. Where quota alone decides, `awaiting` has the charges
/// of the gangs before it that wait for theirs.
pub(crate) fn decide(
    ledger: &mut Ledger<'_>,
    holders: &Holders<'_>,
    gang: &Gang,
    preemption: &Preemption,
    awaiting: &[Charges],
) -> Option<Verdict> {
    let Preemption { victims, assignment } = preemption;
    // It may have been scaled down since.
    let held = gang.held().map_or(Cow::Borrowed(assignment), |(_, held)| held);
    let assignment = &*held;
    let shape = gang.shape();
    let is_whole = || {
        let mut least = shape.min_counts().into_iter().enumerate();
        least.all(|(at, least)| assignment.count(at) >= u64::from(least))
    };
    let request = GangRequest::of_gang(gang, &shape);
    ledger.release(&gang.uid);
    let charges = ledger.charges(&request, assignment);
    let narrow = with_flavor_constraints(ledger.world, &shape, &assignment.flavors);
    let new_victims = BTreeSet::new(); // Nominated gangs are decided about first.
    let is_enough = fits_beside(ledger, holders, &new_victims, awaiting, &charges);
    let is_open = is_open(ledger.world, &request) && are_allowed(ledger.world, &request, &assignment.flavors);
    if is_open
        && is_whole()
        && is_enough
        && is_placement_free(
            ledger,
            &narrow.placed(assignment).without(&assignment.unplaced),
            &shape.without(&assignment.unplaced),
            assignment,
        )
    {
        ledger.restore(&gang.uid);
        return Some(Verdict::Admit(assignment.clone()));
    }
    let is_possible = charges.iter().all(|((node, of), amount)| {
        !is_counted(ledger.world, *node, *of)
            || exceeds_potential(ledger.world, *node, *of, *amount).is_none()
    });
    if is_open && !is_possible {
        ledger.restore(&gang.uid);
        return Some(lost(victims)); // The quota has shrunk: it does not wait for its victims in vain.
    }
    let elsewhere = victims.is_empty() && try_fit(ledger, &request).is_ok();
    let awaits_quota = !is_enough && fits_later(ledger, holders, &new_victims, &charges);
    ledger.restore(&gang.uid);
    let world = ledger.world;
    let names: BTreeSet<&str> = assignment.nodes().collect();
    let places: BTreeSet<_> = names.iter().filter_map(|name| world.node_ix(name)).collect();
    let anywhere = !shape.declared_excess().is_zero()
        || pod_rules::may_concern(&shape)
        || world.aggregate_reservations().next().is_some();
    let in_the_way = |uid: &str| {
        let taken = world.allocated_to(uid);
        world.aggregate_reservation_of(uid).is_some()
            || taken.iter().any(|(node, _)| anywhere || places.contains(node))
    };
    // Without victims it does not have to wait for these nodes.
    if !elsewhere
        && preemption
            .victim_uids()
            .any(|uid| world.gang(uid).is_some_and(|gang| gang.state.assignment().is_some()))
    {
        return None;
    }
    if is_open && !elsewhere && awaits_quota {
        return None; // Terminating gangs hold it, victims of others among them.
    }
    let mut terminating = holders.terminating().iter();
    if !elsewhere && places.len() == names.len() && terminating.any(|uid| *uid != gang.uid && in_the_way(uid))
    {
        return None;
    }
    Some(lost(victims))
}

/// The verdict that the assignment of a nominated gang is no longer available.
fn lost(victims: &[Victim]) -> Verdict {
    let causes = [Cause::PlacesLost { victims: victims.len().try_into().unwrap_or(u32::MAX) }];
    Verdict::Wait(Shortage { causes: causes.into(), queueing_hint: QueueingHint::AnyChange })
}

/// Whether every pod could start on its node now. The same checks as [`crate::fit::find_placement`].
fn is_placement_free(ledger: &Ledger<'_>, shape: &Shape, requested: &Shape, assignment: &Assignment) -> bool {
    let node_sets = AggregateReservations::of(ledger, shape, requested);
    if node_sets.shortage(ledger, shape).is_some() {
        return false;
    }
    let world = ledger.world;
    for (pod_set, places) in shape.pod_sets.iter().zip(&assignment.pod_sets) {
        for (name, _) in places {
            let Some(class) = world.node_ix(name).and_then(|node| world.class_of(node)) else { return false };
            let is_closed = pod_set.constraints.obstacle(&world.class(class).class).is_some();
            if is_closed || shape.excluded.contains(name) {
                return false;
            }
        }
    }
    let mut taken_in: BTreeMap<usize, Sum> = BTreeMap::new();
    for (node, portion) in ledger.usage_by_node(shape, assignment) {
        let mut stock = ledger.node_resources(node);
        stock.take(&portion);
        let left = FreeResources::new(stock.amounts, &stock.shares);
        let mut amounts = ledger.free_on(node).amounts.clone();
        amounts.sub(&left.amounts); // Includes devices that become shared.
        let shared = shape.pod_sets.iter().filter_map(|set| set.share).filter(|_| !portion.shares.is_empty());
        if !amounts.fits_in(&ledger.free_on(node).amounts)
            || stock.shares.overcommits_devices_of(&portion.shares)
            || shared.into_iter().any(|share| left.is_overcommitted(share.device()))
        {
            return false;
        }
        let containing = world.class_of(node).map_or_else(Vec::new, |class| node_sets.containing(class));
        for at in containing.iter().enumerate().filter(|(_, inside)| **inside).map(|(at, _)| at) {
            taken_in.entry(at).or_default().add(&amounts);
        }
    }
    let obeys_rules =
        !pod_rules::may_concern(shape) || pod_rules::is_satisfied(ledger, shape, requested, assignment);
    obeys_rules
        && node_sets.stay_satisfied(&taken_in)
        && topology::is_satisfied(world, shape, assignment, &[])
}
