//! The order in which pending gangs are tried.
//!
//! A shape row holds equal gangs in an order that time does not change. The heads of all rows are merged by
//! their rank at the time of the cycle. In a strict queue no gang is tried before the first one.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use model::{
    Cause, OrderKey, QueueIx, QueueingHint, QueueingStrategy, ShapeIx, ShapeRow, Shortage, Snapshot, SortKey,
    Verdict, World,
};

/// The next gang of a shape row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RowHead<'s> {
    /// Its rank at the time of the cycle; compared first.
    pub(crate) rank: SortKey<'s>,
    /// Its key within the row.
    pub(crate) order_key: &'s OrderKey,
    /// The row.
    pub(crate) ix: ShapeIx,
}

impl<'s> RowHead<'s> {
    /// The first gang of a row.
    pub(crate) fn first_of(snapshot: &Snapshot<'s>, ix: ShapeIx) -> Option<Self> {
        Self::from(snapshot, ix, Bound::Unbounded)
    }

    /// The next gang behind this one in its row.
    pub(crate) fn following(&self, snapshot: &Snapshot<'s>) -> Option<Self> {
        Self::from(snapshot, self.ix, Bound::Excluded(self.order_key))
    }

    /// The first gang of a row that ranks after `rank`.
    pub(crate) fn first_after(snapshot: &Snapshot<'s>, ix: ShapeIx, rank: &SortKey<'_>) -> Option<Self> {
        let row = snapshot.world.shape(ix);
        let order_key = row.first_after(rank, snapshot.now)?;
        Some(Self { rank: order_key.sort_key(row.slope, snapshot.now), order_key, ix })
    }

    /// The weighted usage of its local queue at the start of the cycle, which is compared before rank within
    /// a cluster queue.
    pub(crate) fn weighted_usage(&self, snapshot: &Snapshot<'_>) -> u128 {
        let row = snapshot.world.shape(self.ix);
        snapshot.world.weighted_usage(row.queue, row.local_queue, snapshot.now)
    }

    /// The first gang of a row after a key.
    fn from(snapshot: &Snapshot<'s>, ix: ShapeIx, after: Bound<&OrderKey>) -> Option<Self> {
        let row = snapshot.world.shape(ix);
        let order_key = row.waiting.range::<OrderKey, _>((after, Bound::Unbounded)).next()?;
        Some(Self { rank: order_key.sort_key(row.slope, snapshot.now), order_key, ix })
    }
}

/// Queues that wait for one gang during a cycle: no gang behind it is tried.
///
/// No gang overtakes the first one of a strict queue. After Kueue's `StrictFIFO` (`pkg/cache/queue/cluster_queue.go`), but
/// one cycle admits as many gangs of a queue as fit. In any queue in which quota alone decides, the gangs behind a nominated
/// one wait until its victims are gone: Kueue tries that one again and again until then.
#[derive(Default)]
pub(crate) struct BlockedQueues<'s> {
    /// The gang that blocks each queue.
    blocking: BTreeMap<QueueIx, SortKey<'s>>,
}

impl<'s> BlockedQueues<'s> {
    /// Finds the first gang of each strict queue. When that gang is tried again, all rows of the queue are,
    /// since several of its gangs may be admitted in this cycle.
    pub(crate) fn of(snapshot: &Snapshot<'s>, attempted: &mut BTreeSet<ShapeIx>) -> Self {
        let world = snapshot.world;
        let mut strict = Self::default();
        for (&queue, _) in
            world.queues().iter().filter(|(_, queue)| queue.queueing_strategy == QueueingStrategy::StrictFifo)
        {
            // Scale-up of a running gang is not subject to the strict order.
            let rows: Vec<ShapeIx> =
                world.rows_of(queue).filter(|ix| world.shape(*ix).shape.scale_up.is_none()).collect();
            // With admission fair sharing, another gang may become the first one just because time passes.
            let is_settled =
                !world.queue_head_changed(queue) && world.admission_fair_sharing(queue).is_none();
            if is_settled && !rows.iter().any(|ix| attempted.contains(ix)) {
                continue;
            }
            let firsts = rows.iter().filter_map(|&ix| RowHead::first_of(snapshot, ix));
            let first = firsts.min_by_key(|next| (next.weighted_usage(snapshot), *next));
            match first
                .filter(|first| !attempted.contains(&first.ix) && !waits_for_turn(world.shape(first.ix)))
            {
                Some(first) => {
                    strict.blocking.insert(queue, first.rank);
                }
                None => attempted.extend(rows),
            }
        }
        strict
    }

    /// Makes the first gang of a queue block it, of whose rows some are tried although none was before.
    pub(crate) fn hold_back(
        &mut self,
        snapshot: &Snapshot<'s>,
        queue: QueueIx,
        attempted: &BTreeSet<ShapeIx>,
    ) {
        let world = snapshot.world;
        if !is_strict(world, queue) || self.blocking.contains_key(&queue) {
            return;
        }
        let rows = world.rows_of(queue).filter(|ix| world.shape(*ix).shape.scale_up.is_none());
        let firsts = rows.filter_map(|ix| RowHead::first_of(snapshot, ix));
        let first = firsts.min_by_key(|next| (next.weighted_usage(snapshot), *next));
        if let Some(first) = first.filter(|first| !attempted.contains(&first.ix)) {
            self.blocking.insert(queue, first.rank);
        }
    }

    /// The gang that blocks a gang of this queue. With admission fair sharing that is the blocking gang for
    /// all others, since every gang before it was tried already.
    pub(crate) fn blocked_by(
        &self,
        world: &World,
        queue: QueueIx,
        next: &RowHead<'s>,
    ) -> Option<&SortKey<'s>> {
        let is_ahead = |first: &&SortKey<'s>| match world.admission_fair_sharing(queue) {
            Some(_) => **first != next.rank,
            None => **first < next.rank,
        };
        self.blocking.get(&queue).filter(is_ahead)
    }

    /// Makes a gang that stays pending block its strict queue.
    pub(crate) fn block(&mut self, world: &World, queue: QueueIx, next: &RowHead<'s>) {
        if is_strict(world, queue) && self.blocked_by(world, queue, next).is_none() {
            self.blocking.insert(queue, next.rank);
        }
    }

    /// Makes a gang that waits for victims block its queue, in which quota alone decides.
    pub(crate) fn await_victims(&mut self, queue: QueueIx, next: SortKey<'s>) {
        let first = self.blocking.entry(queue).or_insert(next);
        *first = next.min(*first);
    }
}

/// Whether a queue is strict.
pub(crate) fn is_strict(world: &World, queue: QueueIx) -> bool {
    world.queues().get(&queue).is_some_and(|queue| queue.queueing_strategy == QueueingStrategy::StrictFifo)
}

/// Whether gangs of a queue get reserved starts.
pub(crate) fn reserves_starts(world: &World, queue: QueueIx) -> bool {
    world.queues().get(&queue).is_none_or(|queue| queue.reserves_starts)
}

/// Whether the last verdict of a row was that its gangs wait behind the first gang of their queue.
pub(crate) fn waits_for_turn(row: &ShapeRow) -> bool {
    row.parked
        .as_ref()
        .and_then(Verdict::shortage)
        .is_some_and(|shortage| shortage.queueing_hint == QueueingHint::QueueHeadChange)
}

/// The verdict for a gang behind the one that blocks its queue.
pub(crate) fn behind_verdict(first: &SortKey<'_>) -> Verdict {
    let causes = [Cause::Behind { gang: first.key.clone() }];
    Verdict::Wait(Shortage { causes: causes.into(), queueing_hint: QueueingHint::QueueHeadChange })
}
