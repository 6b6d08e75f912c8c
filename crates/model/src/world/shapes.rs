//! Gangs, and the waiting ones by shape: in order, awake or parked with the verdict that they share.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::QueueIx;
use super::queue_order::OrderKey;
use super::queueing_hints::QueueingHints;
use crate::gang::{Gang, GangState, Shape};
use crate::plan::{Preemption, Verdict};
use crate::quota::QuotaIx;
use crate::shortage::QueueingHint;
use crate::usage::LocalQueueIx;

/// A gang, as a dense index. Indices of gangs that are gone are used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GangIx(pub u32);

/// Gangs of one shape, queue, local queue, charges, priority, slope and expected run, as a dense index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShapeIx(pub u32);

/// Waiting gangs that are decided alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShapeRow {
    /// What each of them consists of.
    pub shape: Arc<Shape>,
    /// Their queue.
    pub queue: QueueIx,
    /// Their local queue.
    pub local_queue: LocalQueueIx,
    /// The further quota nodes that they are charged to.
    pub charges: Arc<[QuotaIx]>,
    /// Their priority, in thousandths.
    pub priority: i64,
    /// By how much they rise while they wait; see [`Gang::slope`].
    pub slope: i64,
    /// How long each of them is expected to run, in microseconds.
    pub runs_us: Option<i64>,
    /// The gangs in order; never empty.
    pub waiting: BTreeSet<OrderKey>,
    /// Those of them that have not been told any verdict yet.
    pub unreported: BTreeSet<OrderKey>,
    /// Why none of them starts, if the first was tried in vain.
    pub parked: Option<Verdict>,
}

/// What gangs of one shape have to share beside it to be decided alike.
type Kind = (QueueIx, LocalQueueIx, Arc<[QuotaIx]>, i64, i64, Option<i64>);

#[derive(Clone, Debug)]
pub(super) struct GangRow {
    pub(super) gang: Gang,
    pub(super) place: Option<OrderKey>, // Some while it waits, or pods of it do.
    shape: Option<ShapeIx>,             // Likewise.
    generation: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Shapes {
    gangs: Vec<Option<GangRow>>,
    vacant_gangs: Vec<GangIx>,
    table: Vec<Option<ShapeRow>>,
    vacant: Vec<ShapeIx>,
    index: BTreeMap<Arc<Shape>, BTreeMap<Kind, ShapeIx>>,
    active: BTreeSet<ShapeIx>,
    hints: QueueingHints,
    holding: BTreeSet<Arc<str>>,   // Uids of gangs that hold known places.
    nominated: BTreeSet<Arc<str>>, // Those of them that wait for others to leave.
    unreported: BTreeSet<ShapeIx>,     // Parked, with gangs that have not been told.
    queues: BTreeMap<QueueIx, BTreeSet<ShapeIx>>,
    turned: BTreeSet<QueueIx>, // Where a waiting gang left, or came first in a parked row, since the last plan was accepted.
}

impl Shapes {
    pub(super) fn row(&self, ix: GangIx) -> &GangRow {
        self.gangs[ix.0 as usize].as_ref().expect("a gang index is only lent while the gang exists")
    }

    pub(super) fn shape(&self, ix: ShapeIx) -> &ShapeRow {
        self.table[ix.0 as usize].as_ref().expect("a shape index is only lent while gangs of it wait")
    }

    pub(super) fn active(&self) -> impl Iterator<Item = ShapeIx> {
        self.active.iter().copied()
    }

    /// All rows, in no order.
    pub(super) fn rows(&self) -> impl Iterator<Item = &ShapeRow> {
        self.table.iter().flatten()
    }

    /// The rows of a queue.
    pub(super) fn rows_of(&self, queue: QueueIx) -> impl Iterator<Item = ShapeIx> {
        self.queues.get(&queue).into_iter().flatten().copied()
    }

    pub(super) fn queue_head_changed(&self, queue: QueueIx) -> bool {
        self.turned.contains(&queue)
    }

    /// Who left or came until now is known to a plan.
    pub(super) fn settle_turns(&mut self) {
        self.turned.clear();
    }

    pub(super) fn hints(&self) -> &QueueingHints {
        &self.hints
    }

    pub(super) fn unreported(&self) -> impl Iterator<Item = ShapeIx> {
        self.unreported.iter().copied()
    }

    /// The places of all waiting gangs, in no order.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &OrderKey> + Clone {
        self.gangs.iter().flatten().filter_map(|row| row.place.as_ref())
    }

    pub(super) fn holding(&self) -> impl Iterator<Item = &Arc<str>> {
        self.holding.iter()
    }

    pub(super) fn nominated(&self) -> impl Iterator<Item = &Arc<str>> {
        self.nominated.iter()
    }

    pub(super) fn verdict(&self, ix: GangIx) -> Option<&Verdict> {
        self.row(ix).shape.and_then(|shape| self.shape(shape).parked.as_ref())
    }

    pub(super) fn shape_of(&self, ix: GangIx) -> Option<ShapeIx> {
        self.row(ix).shape
    }

    /// Adds a gang.
    pub(super) fn put(&mut self, mut gang: Gang, generation: u64) -> GangIx {
        let ix = self.vacant_gangs.pop().unwrap_or_else(|| {
            self.gangs.push(None);
            GangIx(u32::try_from(self.gangs.len() - 1).expect("fewer than 2^32 gangs"))
        });
        self.list(&gang);
        let (place, shape) = self.enqueue_if_waiting(&mut gang, ix).unzip();
        self.gangs[ix.0 as usize] = Some(GangRow { gang, place, shape, generation });
        ix
    }

    fn enqueue_if_waiting(&mut self, gang: &mut Gang, ix: GangIx) -> Option<(OrderKey, ShapeIx)> {
        let shape = match &gang.state {
            GangState::Waiting => gang.shape(),
            GangState::Reserved(_) => gang.scale_up_request()?.shape,
            GangState::Nominated(_) | GangState::Unplaced => return None,
        };
        let place = OrderKey::of(gang, ix);
        let shape = self.enqueue(gang, shape, place.clone());
        Some((place, shape))
    }

    /// Keeps the lists of gangs that hold places.
    fn list(&mut self, gang: &Gang) {
        let uid = gang.uid.as_str();
        self.holding.remove(uid);
        self.nominated.remove(uid);
        if gang.state.assignment().is_some() {
            self.holding.insert(uid.into());
        }
        if matches!(gang.state, GangState::Nominated(_)) {
            self.nominated.insert(uid.into());
        }
    }

    /// Takes a gang out.
    pub(super) fn take(&mut self, ix: GangIx) {
        self.dequeue(ix);
        if let Some(row) = self.gangs[ix.0 as usize].take() {
            self.holding.remove(row.gang.uid.as_str());
            self.nominated.remove(row.gang.uid.as_str());
        }
        self.vacant_gangs.push(ix);
    }

    /// Folds a verdict back; `roots` as in [`QueueingHints::park`]. True when the gang holds something else than before. A verdict on
    /// a gang that neither waits nor is nominated is ignored, and on one that changed since `generation` as well: then its row
    /// is to be tried again.
    pub(super) fn tell(
        &mut self,
        ix: GangIx,
        verdict: Verdict,
        generation: u64,
        roots: Vec<QuotaIx>,
    ) -> bool {
        let row = self.row(ix);
        let nominated = matches!(row.gang.state, GangState::Nominated(_));
        if row.shape.is_none() && !nominated {
            return false;
        }
        if row.generation > generation {
            row.shape.into_iter().for_each(|shape| self.wake(shape));
            return false;
        }
        match verdict {
            Verdict::Admit(assignment) => self.settle(ix, GangState::Reserved(assignment)),
            Verdict::Preempt(preemption) => self.settle(ix, GangState::Nominated(preemption)),
            Verdict::Wait(_) | Verdict::Never(_) => {
                let (Some(shape), Some(place)) = (row.shape, row.place.clone()) else {
                    return self.settle(ix, GangState::Waiting); // Nominated in vain.
                };
                if verdict.shortage().is_some_and(|shortage| shortage.queueing_hint == QueueingHint::OwnPodsGone) {
                    self.tell_alone(shape, &place); // Its own affair: others of the shape do not share it.
                } else {
                    self.park(shape, &place, verdict, roots);
                }
                false
            }
        }
    }

    /// Puts a nominated gang back into the queue.
    pub(super) fn denominate(&mut self, ix: GangIx) {
        self.settle(ix, GangState::Waiting);
    }

    /// Gives a gang another state, and its place in the order with it. True, for the caller to pass on.
    fn settle(&mut self, ix: GangIx, state: GangState) -> bool {
        if let Some(shape) = self.row(ix).shape {
            self.wake(shape);
        }
        self.dequeue(ix);
        let mut row = self.gangs[ix.0 as usize].take().expect("the caller looked at it");
        row.gang.state = state;
        if let GangState::Reserved(assignment) | GangState::Nominated(Preemption { assignment, .. }) =
            &mut row.gang.state
        {
            assignment.pod_sets.resize_with(row.gang.pod_sets.len(), Vec::new);
        }
        self.list(&row.gang);
        (row.place, row.shape) = self.enqueue_if_waiting(&mut row.gang, ix).unzip();
        self.gangs[ix.0 as usize] = Some(row);
        true
    }

    fn enqueue(&mut self, gang: &mut Gang, shape: Shape, place: OrderKey) -> ShapeIx {
        let shape =
            self.index.get_key_value(&shape).map_or_else(|| Arc::new(shape), |(shape, _)| shape.clone());
        if gang.state == GangState::Waiting {
            gang.pod_sets = shape.pod_sets.clone();
            gang.excluded = shape.excluded.clone();
        }
        let kind =
            (gang.queue, gang.local_queue, gang.charges.clone(), gang.priority, gang.slope, gang.runs_us);
        let known = self.index.get(&shape).and_then(|rows| rows.get(&kind));
        let ix = match known {
            Some(&ix) => ix,
            None => self.add(shape, kind),
        };
        let row = self.table[ix.0 as usize].as_mut().expect("indexed shapes exist");
        if row.parked.is_some() {
            self.unreported.insert(ix);
        }
        if row.parked.is_some() && row.waiting.first().is_none_or(|first| place < *first) {
            self.turned.insert(row.queue);
        }
        row.unreported.insert(place.clone());
        row.waiting.insert(place);
        ix
    }

    fn add(&mut self, shape: Arc<Shape>, kind: Kind) -> ShapeIx {
        let (queue, local_queue, charges, priority, slope, runs_us) = kind.clone();
        let row = ShapeRow {
            shape: shape.clone(),
            queue,
            local_queue,
            charges,
            priority,
            slope,
            runs_us,
            waiting: BTreeSet::new(),
            unreported: BTreeSet::new(),
            parked: None,
        };
        let ix = if let Some(ix) = self.vacant.pop() {
            self.table[ix.0 as usize] = Some(row);
            ix
        } else {
            self.table.push(Some(row));
            ShapeIx(u32::try_from(self.table.len() - 1).expect("fewer than 2^32 shapes"))
        };
        self.index.entry(shape).or_default().insert(kind, ix);
        self.queues.entry(queue).or_default().insert(ix);
        self.active.insert(ix);
        ix
    }

    /// Takes a gang out of the order of waiting ones, and its shape with it when it was the last.
    fn dequeue(&mut self, ix: GangIx) {
        let row = self.gangs[ix.0 as usize].as_mut().expect("a gang is dequeued before it is taken out");
        let (Some(place), Some(shape)) = (row.place.take(), row.shape.take()) else { return };
        let row = self.table[shape.0 as usize].as_mut().expect("waiting gangs have a shape");
        row.waiting.remove(&place);
        self.turned.insert(row.queue);
        row.unreported.remove(&place);
        if row.unreported.is_empty() {
            self.unreported.remove(&shape);
        }
        if row.waiting.is_empty() {
            let row = self.table[shape.0 as usize].take().expect("looked at above");
            self.active.remove(&shape);
            self.hints.unpark(shape, &row.shape);
            if let Some(rows) = self.queues.get_mut(&row.queue) {
                rows.remove(&shape);
            }
            if let Some(rows) = self.index.get_mut(&row.shape) {
                rows.remove(&(
                    row.queue,
                    row.local_queue,
                    row.charges.clone(),
                    row.priority,
                    row.slope,
                    row.runs_us,
                ));
                if rows.is_empty() {
                    self.index.remove(&row.shape);
                }
            }
            self.vacant.push(shape);
        }
    }

    /// Notes that the gang at `place` was told something of its own. What the shape waited for may have come, so it is not
    /// parked any more.
    fn tell_alone(&mut self, ix: ShapeIx, place: &OrderKey) {
        self.wake(ix);
        let row = self.table[ix.0 as usize].as_mut().expect("waiting gangs have a shape");
        row.unreported.remove(place);
        if row.unreported.is_empty() {
            self.unreported.remove(&ix);
        }
    }

    /// Parks a shape with the verdict that the gang at `place` was told.
    fn park(&mut self, ix: ShapeIx, place: &OrderKey, verdict: Verdict, roots: Vec<QuotaIx>) {
        let row = self.table[ix.0 as usize].as_mut().expect("waiting gangs have a shape");
        row.unreported.remove(place);
        if row.unreported.is_empty() {
            self.unreported.remove(&ix);
        } else {
            self.unreported.insert(ix);
        }
        let wake = verdict.shortage().map_or(QueueingHint::AnyChange, |shortage| shortage.queueing_hint);
        self.hints.park(ix, &row.shape, wake, roots);
        row.parked = Some(verdict);
        self.active.remove(&ix);
    }

    fn wake(&mut self, ix: ShapeIx) {
        let row = self.table[ix.0 as usize].as_mut().expect("waiting gangs have a shape");
        self.unreported.remove(&ix);
        if row.parked.take().is_some() {
            self.hints.unpark(ix, &row.shape);
            self.active.insert(ix);
        }
    }
}
