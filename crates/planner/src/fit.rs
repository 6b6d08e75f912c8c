//! Decides whether a gang fits: quota, flavors and placement together.
//!
//! Bounds are checked first. A violated bound proves that the gang does not fit, and is the reason. Then the
//! placement is searched: greedily, exhaustively within a budget, and by repair.

use model::{Assignment, Cause, Queue, QueueingHint, SearchOutcome, Shape, Shortage, Verdict, World};

use crate::aggregate_reservations::AggregateReservations;
use crate::candidates::CandidateNodes;
use crate::ledger::Ledger;
use crate::place::{Placement, place};
use crate::quota::Trial;
use crate::repair::repair;
use crate::request::{Fit, Flavors, GangRequest, Refusal};
use crate::search::{SearchResult, search};
use crate::{explain, flavors, pod_rules, quota, topology};

/// The placement and flavors of every pod of the gang, or the verdict that it does not fit.
pub(crate) fn fit(ledger: &Ledger<'_>, request: &GangRequest<'_>) -> Result<Fit, Verdict> {
    try_fit(ledger, request).map_err(|refusal| verdict(ledger.world, request, refusal))
}

/// The verdict about a gang that does not fit: whether it ever could.
pub(crate) fn verdict(world: &World, request: &GangRequest<'_>, (causes, hint): Refusal) -> Verdict {
    let least = request.shape.with_min_counts();
    let permanent = permanent_causes(world, &GangRequest { shape: &least, ..*request });
    if permanent.is_empty() {
        return Verdict::Wait(Shortage { causes: causes.into(), queueing_hint: hint });
    }
    let queueing_hint = if pod_rules::depend_on_others(&permanent) {
        QueueingHint::PodRulesChange
    } else {
        QueueingHint::ClusterChange
    };
    Verdict::Never(Shortage { causes: permanent.into(), queueing_hint })
}

/// The placement and flavors, or the causes and the queueing hint.
pub(crate) fn try_fit(ledger: &Ledger<'_>, request: &GangRequest<'_>) -> Result<Fit, Refusal> {
    if let Some(scale_up) = request.shape.scale_up.as_ref().filter(|scale_up| scale_up.charged) {
        return Ok(Fit { flavors: Vec::new(), ..place_with(ledger, request, &scale_up.flavors)? });
    }
    let mut trial = Trial::of(&ledger.quotas);
    quota::check_open(ledger.world, request)?;
    trial.charge_named_nodes(request)?;
    if let Some(queue) = queue_with_flavors(ledger.world, request) {
        return flavors::assign(ledger, request, queue, trial);
    }
    place_with(ledger, request, &Flavors::new())
}

/// The same with given flavors.
pub(crate) fn try_fit_with(
    ledger: &Ledger<'_>,
    request: &GangRequest<'_>,
    flavors: &Flavors,
) -> Result<Fit, Refusal> {
    if !ledger.quotas.fits(&ledger.charges_with(request, request.shape, flavors)) {
        return Err((Vec::new(), QueueingHint::QuotaReleased));
    }
    place_with(ledger, request, flavors)
}

/// A placement of the pods that get nodes with these flavors. Quota is not checked.
pub(crate) fn place_with(
    ledger: &Ledger<'_>,
    request: &GangRequest<'_>,
    flavors: &Flavors,
) -> Result<Fit, Refusal> {
    let unplaced = request.unplaced(ledger.world, flavors);
    let narrow = flavors::with_flavor_constraints(ledger.world, request.shape, flavors);
    let (shape, requested) = (narrow.without(&unplaced), request.shape.without(&unplaced));
    let is_placed = unplaced.is_empty() || shape.pod_sets.iter().any(|pod_set| pod_set.count > 0);
    let placement =
        if is_placed { find_placement(ledger, &shape, &requested)? } else { Placement::default() };
    Ok(Fit { placement, flavors: flavors.clone(), unplaced })
}

/// What the nodes lack for the pods of an admitted gang that get no node; none if they have room now.
pub(crate) fn without_room(
    ledger: &Ledger<'_>,
    request: &GangRequest<'_>,
    assignment: &Assignment,
) -> Option<Shortage> {
    let shape = request.shape.with_counts(assignment.unplaced.iter().copied());
    let shape = Shape { declared: None, places_open: false, ..shape };
    let narrow = flavors::with_flavor_constraints(ledger.world, &shape, &assignment.flavors);
    let (causes, queueing_hint) = find_placement(ledger, &narrow, &shape).err()?;
    Some(Shortage { causes: causes.into(), queueing_hint })
}

/// The first success of `look_at` on the largest shapes of a gang that does not fit as a whole, down to the minimum
/// counts; else the queueing hint. One scalar reduces all reducible pod sets in proportion, and is found by
/// bisection. After Kueue's partial admission (`pkg/scheduler/flavorassigner/podset_reducer.go`, v0.19).
pub(crate) fn largest_part<T>(
    whole: &Shape,
    mut look_at: impl FnMut(&Shape) -> Result<T, QueueingHint>,
) -> Result<T, QueueingHint> {
    let least = whole.min_counts();
    let spare: Vec<u64> =
        whole.pod_sets.iter().zip(least).map(|(set, least)| u64::from(set.count - least)).collect();
    let all: u64 = spare.iter().sum();
    let part = |cut: u64| {
        let counts = whole.pod_sets.iter().zip(&spare).map(|(set, spare)| {
            let fewer = u128::from(*spare) * u128::from(cut) / u128::from(all);
            let count = set.count.saturating_sub(u32::try_from(fewer).unwrap_or(u32::MAX));
            let slice = set.topology.as_ref().and_then(|request| request.slices.first());
            let size = slice.map_or(1, |slice| slice.size.max(1)); // Whole slices only.
            let (least, whole) = (u64::from(set.count) - spare, count - count % size);
            if u64::from(whole) < least { whole.saturating_add(size).min(set.count) } else { whole }
        });
        whole.with_counts(counts)
    };
    if all == 0 {
        return Err(QueueingHint::ClusterChange);
    }
    let mut best = look_at(&part(all))?;
    let (mut short, mut enough) = (0, all);
    while enough > short + 1 {
        let middle = short.midpoint(enough);
        match look_at(&part(middle)) {
            Ok(found) => (best, enough) = (found, middle),
            Err(_) => short = middle,
        }
    }
    Ok(best)
}

/// The queue of a gang, if it has resource groups.
fn queue_with_flavors<'w>(world: &'w World, request: &GangRequest<'_>) -> Option<&'w Queue> {
    world.queues().get(&request.queue).filter(|queue| !queue.groups.is_empty())
}

/// Why a gang could not start even on an empty cluster; empty if it could, as far as that is proven.
fn permanent_causes(world: &World, request: &GangRequest<'_>) -> Vec<Cause> {
    if request.is_charged() || quota::check_open(world, request).is_err() {
        return Vec::new(); // A missing or stopped queue may appear; pods that are replaced fitted before.
    }
    if let Some(cause) = quota::permanent_causes(world, request) {
        return vec![cause];
    }
    match queue_with_flavors(world, request) {
        Some(queue) => flavors::permanent_causes(world, request, queue),
        None => explain::permanent_causes(
            world,
            &request.shape.without(&request.unplaced(world, &Flavors::new())),
        ),
    }
}

/// A placement of every pod, or the causes and the queueing hint. Resources that are declared beyond the pods
/// are counted on the nodes that are eligible for `requested`, the shape without the constraints of its
/// flavors.
pub(crate) fn find_placement(
    ledger: &Ledger<'_>,
    shape: &Shape,
    requested: &Shape,
) -> Result<Placement, Refusal> {
    let node_sets = AggregateReservations::of(ledger, shape, requested);
    let candidates = CandidateNodes::of(ledger, shape, &node_sets);
    let short = |at: &usize| {
        let count = u64::from(shape.pod_sets[*at].count);
        candidates.room(*at, count) < count
    };
    let short: Vec<usize> = (0..shape.pod_sets.len()).filter(short).collect();
    if !short.is_empty() {
        return Err((explain::insufficient_nodes(ledger, shape, &short), QueueingHint::EligibleNodeFreed));
    }
    if let Some((cause, hint)) = node_sets.shortage(ledger, shape) {
        return Err((vec![cause], hint));
    }
    if pod_rules::may_concern(shape)
        && let Some(result) = pod_rules::place(ledger, shape, requested, &node_sets, &candidates)
    {
        return result;
    }
    if topology::is_requested(shape) {
        return topology::place(ledger, shape, &node_sets, &candidates);
    }
    if let Some(placement) = place(&candidates) {
        return Ok(placement);
    }
    let some = shape.pod_sets.iter().filter(|pod_set| pod_set.count > 0);
    let pod_sets: Vec<String> = some.map(|pod_set| pod_set.name.clone()).collect();
    let (outcome, hint) = match search(&candidates) {
        SearchResult::Placed(placement) => return Ok(placement),
        SearchResult::Exhausted => (SearchOutcome::Exhausted, QueueingHint::EligibleNodeFreed),
        SearchResult::Reserved => (SearchOutcome::Reserved, QueueingHint::AnyChange),
        SearchResult::BudgetExceeded => match repair(&candidates) {
            Some(placement) => return Ok(placement),
            None => (SearchOutcome::BudgetExceeded, QueueingHint::AnyChange),
        },
    };
    Err((vec![Cause::Together { pod_sets, search: outcome }], hint))
}

/// The least number of the first of `count` holders to release until the gang fits; see
/// [`fewest_departures`].
pub(crate) fn fewest_departures_to_fit<'w>(
    ledger: &mut Ledger<'w>,
    request: &GangRequest<'_>,
    count: usize,
    apply: impl Fn(&mut Ledger<'w>, usize, bool),
) -> Result<usize, QueueingHint> {
    let fits = |ledger: &Ledger<'w>| try_fit(ledger, request).map(|_| ()).map_err(|(_, hint)| hint);
    fewest_departures(ledger, fits, count, apply)
}

/// The least number of the first of `count` holders to release until a condition holds. The condition should
/// stay true as more holders are released; where rules between pods need the pods of holders, it may not, and numbers
/// between those tried may be missed. `apply` releases a holder or restores it. On success
/// these holders stay released. When even all of them do not suffice, all are restored and the error is the
/// queueing hint.
pub(crate) fn fewest_departures<'w>(
    ledger: &mut Ledger<'w>,
    holds: impl Fn(&Ledger<'w>) -> Result<(), QueueingHint>,
    count: usize,
    apply: impl Fn(&mut Ledger<'w>, usize, bool),
) -> Result<usize, QueueingHint> {
    let go_to = |ledger: &mut Ledger<'w>, from: usize, to: usize| {
        (from..to).for_each(|at| apply(ledger, at, true));
        (to..from).for_each(|at| apply(ledger, at, false));
    };
    let (mut short, mut gone, mut step) = (0, 0, 1);
    // Few holders usually suffice: exponential steps first, then bisection.
    let enough = loop {
        match holds(ledger) {
            Ok(()) => break gone,
            Err(hint) if gone == count => {
                go_to(ledger, gone, 0);
                return Err(hint);
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
