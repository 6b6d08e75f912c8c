//! Whether a gang fits into what is free: quota, flavors and places together.
//!
//! Bounds come first: when one of them is broken, the gang provably does not fit, and the bound says why. Then
//! placement, by rules of thumb, by search and by repair.

use model::{Cause, Queue, QueueingHint, SearchOutcome, Shape, Shortage, Verdict, World};

use crate::aggregate_reservations::AggregateReservations;
use crate::candidates::CandidateNodes;
use crate::ledger::Ledger;
use crate::place::{Placement, place};
use crate::quota::Trial;
use crate::repair::repair;
use crate::request::{Fit, Flavors, GangRequest, Refusal};
use crate::search::{Found, search};
use crate::{explain, flavors, quota, topology};

/// Places and flavors for every pod of the gang, or the verdict that there are none.
pub(crate) fn fit(ledger: &Ledger<'_>, request: &GangRequest<'_>) -> Result<Fit, Verdict> {
    look(ledger, request).map_err(|(causes, wake)| {
        let least = request.shape.least();
        let never = never(ledger.world, &GangRequest { shape: &least, ..*request });
        if never.is_empty() {
            Verdict::Wait(Shortage { causes: causes.into(), wake })
        } else {
            Verdict::Never(Shortage { causes: never.into(), wake: QueueingHint::Nodes })
        }
    })
}

/// Places and flavors, or why there are none and what could help.
pub(crate) fn look(ledger: &Ledger<'_>, request: &GangRequest<'_>) -> Result<Fit, Refusal> {
    if let Some(scale_up) = request.shape.scale_up.as_ref().filter(|scale_up| scale_up.charged) {
        let narrow = flavors::narrowed(ledger.world, request.shape, &scale_up.flavors);
        return Ok(Fit { placement: seat(ledger, &narrow, request.shape)?, flavors: Vec::new() });
    }
    let mut trial = Trial::of(&ledger.quotas);
    quota::closed(ledger.world, request)?;
    trial.charge_named(request)?;
    if let Some(queue) = flavored(ledger.world, request) {
        return flavors::choose(ledger, request, queue, trial);
    }
    let placement = seat(ledger, request.shape, request.shape)?;
    Ok(Fit { placement, flavors: Vec::new() })
}

/// The same with these flavors and no others.
pub(crate) fn look_with(
    ledger: &Ledger<'_>,
    request: &GangRequest<'_>,
    flavors: &Flavors,
) -> Result<Fit, Refusal> {
    if !ledger.quotas.suffice(&ledger.charges_with(request, request.shape, flavors)) {
        return Err((Vec::new(), QueueingHint::Quota));
    }
    let placement = seat(ledger, &flavors::narrowed(ledger.world, request.shape, flavors), request.shape)?;
    Ok(Fit { placement, flavors: flavors.clone() })
}

/// Places and flavors for as many pods as possible, down to the fewest with which the gang may start, when there are none
/// for all; else what could help. One scalar cuts all pod sets that may be cut in proportion, and is bisected. After Kueue's
/// partial admission (`pkg/scheduler/flavorassigner/podset_reducer.go`, v0.19).
pub(crate) fn partly(ledger: &Ledger<'_>, request: &GangRequest<'_>) -> Result<Fit, QueueingHint> {
    let least = request.shape.counts_min();
    let spare: Vec<u64> =
        request.shape.pod_sets.iter().zip(least).map(|(set, least)| u64::from(set.count - least)).collect();
    let all: u64 = spare.iter().sum();
    let look_at = |cut: u64| {
        let counts = request.shape.pod_sets.iter().zip(&spare).map(|(set, spare)| {
            let fewer = u128::from(*spare) * u128::from(cut) / u128::from(all);
            let count = set.count.saturating_sub(u32::try_from(fewer).unwrap_or(u32::MAX));
            let slice = set.topology.as_ref().and_then(|request| request.slices.first());
            let size = slice.map_or(1, |slice| slice.size.max(1)); // Whole slices only.
            let (least, whole) = (u64::from(set.count) - spare, count - count % size);
            if u64::from(whole) < least { whole.saturating_add(size).min(set.count) } else { whole }
        });
        look(ledger, &GangRequest { shape: &request.shape.with_counts(counts), ..*request })
    };
    if all == 0 {
        return Err(QueueingHint::Nodes);
    }
    let mut best = look_at(all).map_err(|(_, wake)| wake)?;
    let (mut short, mut enough) = (0, all);
    while enough > short + 1 {
        let middle = short.midpoint(enough);
        match look_at(middle) {
            Ok(fit) => (best, enough) = (fit, middle),
            Err(_) => short = middle,
        }
    }
    Ok(best)
}

/// The queue of a gang, if it gives flavors.
fn flavored<'w>(world: &'w World, request: &GangRequest<'_>) -> Option<&'w Queue> {
    world.queues().get(&request.queue).filter(|queue| !queue.groups.is_empty())
}

/// Why a gang could not start even if nothing else ran; empty if it could, as far as is proven.
fn never(world: &World, request: &GangRequest<'_>) -> Vec<Cause> {
    if request.is_charged() || quota::closed(world, request).is_err() {
        return Vec::new(); // What is missing or stopped may come; pods that ran fit somewhere.
    }
    if let Some(cause) = quota::never(world, request) {
        return vec![cause];
    }
    match flavored(world, request) {
        Some(queue) => flavors::never(world, request, queue),
        None => explain::never(world, request.shape),
    }
}

/// A placement of every pod, or why there is none and what could help. What is declared beyond the pods is counted on the
/// nodes that are eligible for `asked`, the shape before it was narrowed to flavors.
pub(crate) fn seat(ledger: &Ledger<'_>, shape: &Shape, asked: &Shape) -> Result<Placement, Refusal> {
    let node_sets = AggregateReservations::of(ledger, shape, asked);
    let candidates = CandidateNodes::of(ledger, shape, &node_sets);
    let short = |at: &usize| {
        let count = u64::from(shape.pod_sets[*at].count);
        candidates.room(*at, count) < count
    };
    let short: Vec<usize> = (0..shape.pod_sets.len()).filter(short).collect();
    if !short.is_empty() {
        return Err((explain::short(ledger, shape, &short), QueueingHint::Room));
    }
    if let Some((cause, wake)) = node_sets.shortage(ledger, shape) {
        return Err((vec![cause], wake));
    }
    if topology::is_asked(shape) {
        return topology::place(ledger, shape, &node_sets, &candidates);
    }
    if let Some(placement) = place(&candidates) {
        return Ok(placement);
    }
    let some = shape.pod_sets.iter().filter(|pod_set| pod_set.count > 0);
    let pod_sets: Vec<String> = some.map(|pod_set| pod_set.name.clone()).collect();
    let (outcome, wake) = match search(&candidates) {
        Found::Placed(placement) => return Ok(placement),
        Found::Nowhere => (SearchOutcome::Exhausted, QueueingHint::Room),
        Found::OnlyPromised => (SearchOutcome::Reserved, QueueingHint::Change),
        Found::Undecided => match repair(&candidates) {
            Some(placement) => return Ok(placement),
            None => (SearchOutcome::BudgetExceeded, QueueingHint::Change),
        },
    };
    Err((vec![Cause::Together { pod_sets, search: outcome }], wake))
}

/// How many of `count` holders have to leave at least, in a given turn, until the gang fits: see [`leave_until`].
pub(crate) fn leave_in_turn<'w>(
    ledger: &mut Ledger<'w>,
    request: &GangRequest<'_>,
    count: usize,
    turn: impl Fn(&mut Ledger<'w>, usize, bool),
) -> Result<usize, QueueingHint> {
    let fits = |ledger: &Ledger<'w>| look(ledger, request).map(|_| ()).map_err(|(_, wake)| wake);
    leave_until(ledger, fits, count, turn)
}

/// How many of `count` holders have to leave at least, in a given turn, until something holds that holds the more the more of
/// them are gone. `turn` lets one of them go or has it back. Those who have to leave are gone afterwards; when even all of
/// them are too few all are back, and the error says what could help.
pub(crate) fn leave_until<'w>(
    ledger: &mut Ledger<'w>,
    holds: impl Fn(&Ledger<'w>) -> Result<(), QueueingHint>,
    count: usize,
    turn: impl Fn(&mut Ledger<'w>, usize, bool),
) -> Result<usize, QueueingHint> {
    let go_to = |ledger: &mut Ledger<'w>, from: usize, to: usize| {
        (from..to).for_each(|at| turn(ledger, at, true));
        (to..from).for_each(|at| turn(ledger, at, false));
    };
    let (mut short, mut gone, mut step) = (0, 0, 1);
    // Mostly few are enough: ever longer strides first, then bisection.
    let enough = loop {
        match holds(ledger) {
            Ok(()) => break gone,
            Err(wake) if gone == count => {
                go_to(ledger, gone, 0);
                return Err(wake);
            }
            Err(_) => short = gone,
        }
        let next = (gone + step).min(count);
        go_to(ledger, gone, next);
        (gone, step) = (next, step * 2);
    };
    let mut enough = enough;
    while enough > short + 1 {
        let middle = short.midpoint(enough);
        go_to(ledger, gone, middle);
        gone = middle;
        if holds(ledger).is_ok() {
            enough = middle;
        } else {
            short = middle;
        }
    }
    go_to(ledger, gone, enough);
    Ok(enough)
}
