//! In which sequence gangs are taken up.
//!
//! Each row of equal gangs is in order for good; the next ones of all rows are merged here by their turns at the time of the
//! pass. In a strict queue, nobody's turn comes before that of the first one.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use model::{
    Cause, OrderKey, QueueIx, QueueOrder, QueueingHint, ShapeIx, ShapeRow, Shortage, Snapshot, Turn, Verdict,
    World,
};

/// A waiting gang whose turn may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Next<'s> {
    /// When its turn is; decides first.
    pub(crate) turn: Turn<'s>,
    /// Its place in its row.
    pub(crate) place: &'s OrderKey,
    /// Its row.
    pub(crate) ix: ShapeIx,
}

impl<'s> Next<'s> {
    /// The first gang of a row.
    pub(crate) fn first_of(snapshot: &Snapshot<'s>, ix: ShapeIx) -> Option<Self> {
        Self::from(snapshot, ix, Bound::Unbounded)
    }

    /// The one behind it in its row.
    pub(crate) fn behind(&self, snapshot: &Snapshot<'s>) -> Option<Self> {
        Self::from(snapshot, self.ix, Bound::Excluded(self.place))
    }

    /// The first gang of a row whose turn comes after another one.
    pub(crate) fn after(snapshot: &Snapshot<'s>, ix: ShapeIx, turn: &Turn<'_>) -> Option<Self> {
        let row = snapshot.world.shape(ix);
        let place = row.first_after(turn, snapshot.now)?;
        Some(Self { turn: place.turn(row.slope, snapshot.now), place, ix })
    }

    /// What decides before rank within its queue, before anything starts in the pass.
    pub(crate) fn weighted_usage(&self, snapshot: &Snapshot<'_>) -> u128 {
        let row = snapshot.world.shape(self.ix);
        snapshot.world.weighted_usage(row.queue, row.local_queue, snapshot.now)
    }

    /// The first gang of a row from a place on.
    fn from(snapshot: &Snapshot<'s>, ix: ShapeIx, after: Bound<&OrderKey>) -> Option<Self> {
        let row = snapshot.world.shape(ix);
        let place = row.waiting.range::<OrderKey, _>((after, Bound::Unbounded)).next()?;
        Some(Self { turn: place.turn(row.slope, snapshot.now), place, ix })
    }
}

/// Strict queues in the course of a pass: nobody passes the first gang of one. After Kueue's `StrictFIFO`
/// (`pkg/cache/queue/cluster_queue.go`), but as many of a queue start in one pass as fit.
#[derive(Default)]
pub(crate) struct Strict<'s> {
    /// The gang of each queue that waits and that nobody passes.
    barred: BTreeMap<QueueIx, Next<'s>>,
}

impl<'s> Strict<'s> {
    /// Finds the queues' first gangs. When one is worth another try, so is whoever waits behind it: all of them may start
    /// in this pass.
    pub(crate) fn of(snapshot: &Snapshot<'s>, tried: &mut BTreeSet<ShapeIx>) -> Self {
        let world = snapshot.world;
        let mut strict = Self::default();
        for (&queue, _) in world.queues().iter().filter(|(_, queue)| queue.order == QueueOrder::Strict) {
            // Pods that join a gang that runs are no part of the line.
            let rows: Vec<ShapeIx> =
                world.rows_of(queue).filter(|ix| world.shape(*ix).shape.scale_up.is_none()).collect();
            // Where local queues take turns, time alone may put another one first.
            let is_settled = !world.has_turned(queue) && world.sharing(queue).is_none();
            if is_settled && !rows.iter().any(|ix| tried.contains(ix)) {
                continue;
            }
            let firsts = rows.iter().filter_map(|&ix| Next::first_of(snapshot, ix));
            let first = firsts.min_by_key(|next| (next.weighted_usage(snapshot), *next));
            match first.filter(|first| !tried.contains(&first.ix) && !waits_behind(world.shape(first.ix))) {
                Some(first) => {
                    strict.barred.insert(queue, first);
                }
                None => tried.extend(rows),
            }
        }
        strict
    }

    /// The gang that a gang of this queue has to wait behind. Where local queues take turns, that is whoever is barred: nobody is
    /// left who comes before it.
    pub(crate) fn ahead_of(&self, world: &World, queue: QueueIx, next: &Next<'s>) -> Option<&Next<'s>> {
        let is_ahead = |first: &&Next<'s>| match world.sharing(queue) {
            Some(_) => first.place != next.place,
            None => first.turn < next.turn,
        };
        self.barred.get(&queue).filter(is_ahead)
    }

    /// Notes that a gang of a queue has to wait.
    pub(crate) fn bar(&mut self, world: &World, queue: QueueIx, next: &Next<'s>) {
        if is_strict(world, queue) && self.ahead_of(world, queue, next).is_none() {
            self.barred.insert(queue, *next);
        }
    }
}

/// Whether nobody passes the first gang of a queue.
pub(crate) fn is_strict(world: &World, queue: QueueIx) -> bool {
    world.queues().get(&queue).is_some_and(|queue| queue.order == QueueOrder::Strict)
}

/// Whether the gangs of a row were last told that it is not their turn.
pub(crate) fn waits_behind(row: &ShapeRow) -> bool {
    row.parked
        .as_ref()
        .and_then(Verdict::shortage)
        .is_some_and(|shortage| shortage.wake == QueueingHint::Turn)
}

/// What a gang is told whose turn has not come.
pub(crate) fn behind(first: &Next<'_>) -> Verdict {
    let causes = [Cause::Behind { gang: (*first.place.key).clone() }];
    Verdict::Wait(Shortage { causes: causes.into(), wake: QueueingHint::Turn })
}
