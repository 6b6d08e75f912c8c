//! Gangs that others are being stopped for: whether their places are free now, or never will be.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use model::{Assignment, Cause, Gang, Preemption, QueueingHint, Room, Shape, Shortage, Sum, Verdict};

use crate::aggregate_reservations::AggregateReservations;
use crate::fit::look;
use crate::flavors::{are_open, narrowed};
use crate::ledger::Ledger;
use crate::preemption::doomed;
use crate::quota::is_open;
use crate::request::GangRequest;
use crate::topology;

/// What becomes of a nominated gang; none while others are still on their way out of its places.
pub(crate) fn settle(ledger: &mut Ledger<'_>, gang: &Gang, preemption: &Preemption) -> Option<Verdict> {
    let Preemption { victims, assignment } = preemption;
    let held = gang.held().map_or(Cow::Borrowed(assignment), |(_, held)| held); // It may have shrunk meanwhile.
    let assignment = &*held;
    let shape = gang.shape();
    let is_whole = || {
        let mut least = shape.counts_min().into_iter().enumerate();
        least.all(|(at, least)| assignment.placed(at) >= u64::from(least))
    };
    let request = GangRequest::of_gang(gang, &shape);
    ledger.release(&gang.uid);
    let charges = ledger.charges(&request, assignment);
    let narrow = narrowed(ledger.world, &shape, &assignment.flavors);
    let is_open = is_open(ledger.world, &request) && are_open(ledger.world, &request, &assignment.flavors);
    if is_open
        && is_whole()
        && ledger.quotas.suffice(&charges)
        && are_free(ledger, &narrow.placed(assignment), &shape, assignment)
    {
        ledger.hold(&gang.uid);
        return Some(Verdict::Admit(assignment.clone()));
    }
    let elsewhere = victims.is_empty() && look(ledger, &request).is_ok();
    ledger.hold(&gang.uid);
    let world = ledger.world;
    let names: BTreeSet<&str> = assignment.nodes().collect();
    let places: BTreeSet<_> = names.iter().filter_map(|name| world.node_ix(name)).collect();
    let anywhere = !shape.excess().is_zero() || world.aggregates().next().is_some();
    let in_the_way = |uid: &str| {
        let taken = world.taken_by(uid);
        world.aggregate_of(uid).is_some() || taken.iter().any(|(node, _)| anywhere || places.contains(node))
    };
    // Nobody was stopped for its places, so it need not wait for just these.
    if !elsewhere
        && preemption
            .stopped()
            .any(|uid| world.gang(uid).is_some_and(|gang| gang.state.assignment().is_some()))
    {
        return None;
    }
    let doomed = doomed(world).map(|gang| gang.uid.as_str());
    if !elsewhere
        && places.len() == names.len()
        && doomed.chain(world.leaving()).any(|uid| uid != gang.uid && in_the_way(uid))
    {
        return None;
    }
    let causes = [Cause::PlacesLost { victims: victims.len().try_into().unwrap_or(u32::MAX) }];
    Some(Verdict::Wait(Shortage { causes: causes.into(), wake: QueueingHint::Change }))
}

/// Whether every pod could start at its place at once. As for [`crate::fit::seat`].
fn are_free(ledger: &Ledger<'_>, shape: &Shape, asked: &Shape, assignment: &Assignment) -> bool {
    let node_sets = AggregateReservations::of(ledger, shape, asked);
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
    for (node, portion) in ledger.takes(shape, assignment) {
        let mut stock = ledger.stock(node);
        stock.take(&portion);
        let left = Room::beside(stock.amounts, &stock.shares);
        let mut amounts = ledger.free_on(node).amounts.clone();
        amounts.sub(&left.amounts); // With the devices that are opened.
        let shared = shape.pod_sets.iter().filter_map(|set| set.share).filter(|_| !portion.shares.is_empty());
        if !amounts.fits_in(&ledger.free_on(node).amounts)
            || stock.shares.is_overfull_for(&portion.shares)
            || shared.into_iter().any(|share| left.shares_too_many(share.device()))
        {
            return false;
        }
        let around = world.class_of(node).map_or_else(Vec::new, |class| node_sets.around(class));
        for at in around.iter().enumerate().filter(|(_, inside)| **inside).map(|(at, _)| at) {
            taken_in.entry(at).or_default().add(&amounts);
        }
    }
    node_sets.hold_out(&taken_in) && topology::holds(world, shape, assignment)
}
