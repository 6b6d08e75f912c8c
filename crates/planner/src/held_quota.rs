//! Held quota: what the first gang of a strict queue keeps from other queues of its tree while it waits.
//!
//! A gang that could fit after preemption, but finds no victims, would lose the unused part of its quota to gangs that
//! borrow it, and its node may not reclaim everything from them. So it holds that part against all gangs that are
//! tried after it. After Kueue (`reserveCapacityForUnreclaimablePreempt` and `quotaResourcesToReserve` in
//! `pkg/scheduler/scheduler.go`, v0.19). Kueue holds the same for the first gang of a best-effort queue, but parks that
//! gang and drops the hold within the same second, so it decides nothing there.

use std::collections::BTreeSet;

use model::{
    Charges, FlavorResource, QueueIx, QueueingStrategy, QuotaIx, QuotaUsage, ReclaimWithinCohort, ShapeIx,
    Snapshot, World, charges,
};

use crate::flavors::Alternatives;
use crate::order::RowHead;
use crate::quota::Quotas;
use crate::request::GangRequest;

/// See the module.
pub(crate) struct HeldQuota {
    /// What the gang would be charged; decides when it is tried.
    pub(crate) requested: Charges,
    /// The unused part of it.
    pub(crate) held: Charges,
}

/// The quota node of a queue whose first gang may hold quota: the queue is strict and has neighbours, from which it may
/// not always reclaim. Reserved starts protect the first gang in another way.
fn holding_node(world: &World, queue: QueueIx) -> Option<QuotaIx> {
    let config = world.queues().get(&queue)?;
    let node = world.quota_of(queue)?;
    let rule = world.quota_nodes().get(&node)?.preemption;
    let may_hold = config.queueing_strategy == QueueingStrategy::StrictFifo
        && !config.reserves_starts
        && rule.reclaim_within_cohort != ReclaimWithinCohort::Any
        && world.forest().parent(node).is_some();
    may_hold.then_some(node)
}

impl HeldQuota {
    /// What the first gang of a queue holds; none if it holds nothing.
    pub(crate) fn of(quotas: &Quotas<'_>, request: &GangRequest<'_>) -> Option<Self> {
        let world = quotas.world();
        let node = holding_node(world, request.queue).filter(|_| request.shape.scale_up.is_none())?;
        let all = Alternatives::of(world, request).all.into_iter();
        let all = all.map(|flavors| charges(request.shape, &flavors, Some(node), &[]));
        let possible = all.filter(|requested| may_get(quotas, node, requested));
        let requested = possible.min_by_key(|requested| quotas.borrowing_level(requested, Some(node)))?;
        let held = unused_part(quotas, node, &requested);
        Some(Self { requested, held })
    }
}

/// Whether each amount is free, or could be after preemption.
fn may_get(quotas: &Quotas<'_>, node: QuotaIx, requested: &Charges) -> bool {
    let forest = quotas.world().forest();
    requested.iter().all(|((_, of), amount)| {
        *amount <= forest.available(quotas, node, *of) || may_preempt_for(quotas, node, *of, *amount)
    })
}

/// Whether a node may get an amount by preemption, if there are victims: within what it owns or its cohort owns, or
/// while it borrows.
pub(crate) fn may_preempt_for(quotas: &Quotas<'_>, node: QuotaIx, of: FlavorResource, amount: i128) -> bool {
    let (world, forest) = (quotas.world(), quotas.world().forest());
    let rule = world.quota_nodes().get(&node).map(|node| node.preemption).unwrap_or_default();
    let preempts_while_borrowing = rule.borrow_within_cohort.is_some()
        || world.policy().fair_sharing.is_some() && rule.reclaim_within_cohort != ReclaimWithinCohort::Never;
    amount <= forest.subtree_quota(node, of)
        || forest.borrowing_level(quotas, node, of, amount) < forest.height(forest.root(node))
        || preempts_while_borrowing
}

fn unused_part(quotas: &Quotas<'_>, node: QuotaIx, requested: &Charges) -> Charges {
    let forest = quotas.world().forest();
    let borrows = quotas.borrowing_level(requested, Some(node)) > 0;
    let unused = |((at, of), amount): (&(QuotaIx, FlavorResource), &i128)| {
        let left = forest.subtree_quota(node, *of) - quotas.used(node, *of);
        let borrowing = forest.limits(node, *of).and_then(|limits| limits.borrowing);
        let held = match borrowing {
            None if borrows => *amount,
            Some(limit) if borrows => *amount.min(&(left + i128::from(limit.0))),
            None | Some(_) => *amount.min(&left),
        };
        (held > 0).then_some(((*at, *of), held))
    };
    requested.iter().filter_map(unused).collect()
}

/// The first gangs of queues that may hold quota in a tree for which this cycle tries gangs. They are to be tried too,
/// so that they hold their quota when it is their turn.
pub(crate) fn rows_to_try(snapshot: &Snapshot<'_>, attempted: &BTreeSet<ShapeIx>) -> Vec<ShapeIx> {
    let world = snapshot.world;
    let holding: Vec<(QueueIx, QuotaIx)> = world
        .queues()
        .keys()
        .filter_map(|queue| Some((*queue, world.forest().root(holding_node(world, *queue)?))))
        .collect();
    if holding.is_empty() {
        return Vec::new();
    }
    let charged = attempted
        .iter()
        .map(|ix| world.shape(*ix))
        .flat_map(|row| world.quota_of(row.queue).into_iter().chain(row.charges.iter().copied()));
    let roots: BTreeSet<QuotaIx> = charged.map(|node| world.forest().root(node)).collect();
    let concerned = holding.iter().filter(|(_, root)| roots.contains(root));
    let firsts = concerned.filter_map(|(queue, _)| {
        let rows = world.rows_of(*queue).filter(|ix| world.shape(*ix).shape.scale_up.is_none());
        let firsts = rows.filter_map(|ix| RowHead::first_of(snapshot, ix));
        firsts.min_by_key(|next| (next.weighted_usage(snapshot), *next)).map(|next| next.ix)
    });
    firsts.collect()
}

/// The trees in which a first gang that may have held quota has changed.
pub(crate) fn trees_with_new_heads(world: &World) -> BTreeSet<QuotaIx> {
    let changed = world.queues().keys().filter(|queue| world.queue_head_changed(**queue));
    changed.filter_map(|queue| Some(world.forest().root(holding_node(world, *queue)?))).collect()
}
