//! Gangs, and pending gangs in rows of equal shape: in order, active or parked with a common verdict.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use super::indices::{GangIx, ShapeIx};
use super::queue_order::{OrderKey, SortKey};
use super::queueing_hints::QueueingHints;
use crate::amount::Time;
use crate::gang::{Gang, GangState, Places};
use crate::plan::{Preemption, Verdict};
use crate::queue::QueueIx;
use crate::quota::QuotaIx;
use crate::shape::Shape;
use crate::shortage::QueueingHint;
use crate::usage::LocalQueueIx;

/// Pending gangs that get the same verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShapeRow {
    /// Their shape.
    pub shape: Arc<Shape>,
    /// Their queue.
    pub queue: QueueIx,
    /// Their local queue.
    pub local_queue: LocalQueueIx,
    /// The further quota nodes that they are charged to.
    pub charges: Arc<[QuotaIx]>,
    /// Their priority, in thousandths.
    pub priority: i64,
    /// Their priority slope; see [`Gang::slope`].
    pub slope: i64,
    /// Their expected run time in microseconds.
    pub runs_us: Option<i64>,
    /// The gangs in order; never empty.
    pub waiting: BTreeSet<OrderKey>,
    /// The gangs whose verdict was not reported yet.
    pub unreported: BTreeSet<OrderKey>,
    /// The common verdict, when the first gang was planned and does not start.
    pub parked: Option<Verdict>,
}

/// The properties that gangs of a row share in addition to their shape.
type Kind = (QueueIx, LocalQueueIx, Arc<[QuotaIx]>, i64, i64, Option<i64>);

#[derive(Clone, Debug)]
pub(super) struct GangRow {
    pub(super) gang: Gang,
    pub(super) order_key: Option<OrderKey>, // Set while the gang or its missing pods are pending.
    shape: Option<ShapeIx>,                 // Likewise.
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
    placed: BTreeSet<Arc<str>>,    // Uids of gangs with a known assignment.
    nominated: BTreeSet<Arc<str>>, // Uids of nominated gangs.
    unreported: BTreeSet<ShapeIx>, // Parked rows with gangs whose verdict was not reported.
    queues: BTreeMap<QueueIx, BTreeSet<ShapeIx>>,
    heads_changed: BTreeSet<QueueIx>, // Queues whose head, pending or nominated, may have changed since the last plan.
}

impl ShapeRow {
    /// The first gang of the row that comes after another gang at a time.
    pub fn first_after(&self, sort_key: &SortKey<'_>, now: Time) -> Option<&OrderKey> {
        let last = sort_key.last_order_key(self.slope, now);
        self.waiting.range((Bound::Excluded(last), Bound::Unbounded)).next()
    }
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

    /// All rows, unsorted.
    pub(super) fn rows(&self) -> impl Iterator<Item = &ShapeRow> {
        self.table.iter().flatten()
    }

    /// The rows of a queue.
    pub(super) fn rows_of(&self, queue: QueueIx) -> impl Iterator<Item = ShapeIx> {
        self.queues.get(&queue).into_iter().flatten().copied()
    }

    pub(super) fn queue_head_changed(&self, queue: QueueIx) -> bool {
        self.heads_changed.contains(&queue)
    }

    /// Clears the changes of queue heads, which an accepted plan has seen.
    pub(super) fn clear_queue_head_changes(&mut self) {
        self.heads_changed.clear();
    }

    pub(super) fn hints(&self) -> &QueueingHints {
        &self.hints
    }

    pub(super) fn unreported(&self) -> impl Iterator<Item = ShapeIx> {
        self.unreported.iter().copied()
    }

    /// The order keys of all pending gangs, unsorted.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &OrderKey> + Clone {
        self.gangs.iter().flatten().filter_map(|row| row.order_key.as_ref())
    }

    pub(super) fn placed(&self) -> impl Iterator<Item = &Arc<str>> {
        self.placed.iter()
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
    pub(super) fn insert(&mut self, mut gang: Gang, generation: u64) -> GangIx {
        let ix = self.vacant_gangs.pop().unwrap_or_else(|| {
            self.gangs.push(None);
            GangIx(u32::try_from(self.gangs.len() - 1).expect("fewer than 2^32 gangs"))
        });
        self.update_placed_sets(&gang);
        let (order_key, shape) = self.enqueue_if_waiting(&mut gang, ix).unzip();
        self.gangs[ix.0 as usize] = Some(GangRow { gang, order_key, shape, generation });
        ix
    }

    fn enqueue_if_waiting(&mut self, gang: &mut Gang, ix: GangIx) -> Option<(OrderKey, ShapeIx)> {
        let shape = match &gang.state {
            GangState::Waiting => gang.shape(),
            GangState::Reserved(_) => gang.scale_up_request()?.shape,
            GangState::Nominated(_) | GangState::Unplaced => return None,
        };
        let order_key = OrderKey::of(gang, ix);
        let shape = self.enqueue(gang, shape, order_key.clone());
        Some((order_key, shape))
    }

    /// Updates the sets of gangs with an assignment.
    fn update_placed_sets(&mut self, gang: &Gang) {
        let uid = gang.uid.as_str();
        self.placed.remove(uid);
        self.nominated.remove(uid);
        if gang.state.assignment().is_some() {
            self.placed.insert(uid.into());
        }
        if matches!(gang.state, GangState::Nominated(_)) {
            self.nominated.insert(uid.into());
        }
    }

    /// Removes a gang.
    pub(super) fn remove(&mut self, ix: GangIx) {
        self.dequeue(ix);
        if let Some(row) = self.gangs[ix.0 as usize].take() {
            self.placed.remove(row.gang.uid.as_str());
            if self.nominated.remove(row.gang.uid.as_str()) {
                self.heads_changed.insert(row.gang.queue);
            }
        }
        self.vacant_gangs.push(ix);
    }

    /// Records a verdict; `roots` as in [`QueueingHints::park`]. Returns whether the state of the gang changed. A
    /// verdict on a gang that is neither pending nor nominated is ignored. So is a verdict on a gang that changed
    /// after `generation`; its row becomes active again.
    pub(super) fn record_verdict(
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
            row.shape.into_iter().for_each(|shape| self.activate(shape));
            return false;
        }
        match verdict {
            Verdict::Admit(assignment) => {
                self.end_second_pass(ix);
                self.set_state(ix, GangState::Reserved(assignment))
            }
            Verdict::Preempt(preemption) => self.set_state(ix, GangState::Nominated(preemption)),
            Verdict::Wait(_) | Verdict::Never(_) => {
                let (Some(shape), Some(order_key)) = (row.shape, row.order_key.clone()) else {
                    return self.set_state(ix, GangState::Waiting); // The nomination failed.
                };
                if verdict
                    .shortage()
                    .is_some_and(|shortage| shortage.queueing_hint == QueueingHint::OwnPodsGone)
                {
                    self.record_own_verdict(shape, &order_key); // The verdict applies to this gang only.
                } else {
                    self.park(shape, &order_key, verdict, roots);
                }
                false
            }
        }
    }

    /// A gang that gets the nodes that it asked for does not ask again. One that was pending gets all of them with its admission.
    fn end_second_pass(&mut self, ix: GangIx) {
        if let Some(row) = self.gangs[ix.0 as usize].as_mut().filter(|row| {
            row.gang.places == Places::Requested
                && matches!(row.gang.state, GangState::Reserved(_) | GangState::Waiting)
        }) {
            row.gang.places = Places::AtAdmission;
        }
    }

    /// Takes a gang out of the victims of a nominated gang.
    pub(super) fn drop_victim(&mut self, nominated: GangIx, victim: &str) {
        if let Some(row) = self.gangs[nominated.0 as usize].as_mut()
            && let GangState::Nominated(preemption) = &mut row.gang.state
        {
            preemption.victims.retain(|other| other.uid != victim);
        }
    }

    /// Requeues a nominated gang.
    pub(super) fn cancel_nomination(&mut self, ix: GangIx) {
        self.set_state(ix, GangState::Waiting);
    }

    /// Changes the state of a gang, and its place in the order. Returns true, for the caller to pass on.
    fn set_state(&mut self, ix: GangIx, state: GangState) -> bool {
        if let Some(shape) = self.row(ix).shape {
            self.activate(shape);
        }
        self.dequeue(ix);
        let mut row = self.gangs[ix.0 as usize].take().expect("the caller looked at it");
        if matches!(row.gang.state, GangState::Nominated(_)) {
            self.heads_changed.insert(row.gang.queue);
        }
        row.gang.state = state;
        if let GangState::Reserved(assignment) | GangState::Nominated(Preemption { assignment, .. }) =
            &mut row.gang.state
        {
            assignment.pod_sets.resize_with(row.gang.pod_sets.len(), Vec::new);
        }
        self.update_placed_sets(&row.gang);
        (row.order_key, row.shape) = self.enqueue_if_waiting(&mut row.gang, ix).unzip();
        self.gangs[ix.0 as usize] = Some(row);
        true
    }

    fn enqueue(&mut self, gang: &mut Gang, shape: Shape, order_key: OrderKey) -> ShapeIx {
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
        let goes_first = row.parked.is_some() && row.waiting.first().is_none_or(|first| order_key < *first);
        row.unreported.insert(order_key.clone());
        row.waiting.insert(order_key);
        if goes_first {
            self.heads_changed.insert(row.queue);
            // It may preempt gangs that the others may not: those that are queued later than it. The others keep their verdict.
            self.active.insert(ix);
        }
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

    /// Removes a gang from its row, and the row when it becomes empty.
    fn dequeue(&mut self, ix: GangIx) {
        let row = self.gangs[ix.0 as usize].as_mut().expect("a gang is dequeued before it is taken out");
        let (Some(order_key), Some(shape)) = (row.order_key.take(), row.shape.take()) else { return };
        let row = self.table[shape.0 as usize].as_mut().expect("waiting gangs have a shape");
        row.waiting.remove(&order_key);
        self.heads_changed.insert(row.queue);
        row.unreported.remove(&order_key);
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

    /// Notes that no pod of a gang is bound any more. If it is pending, it is tried again: while its pods were bound, its row was
    /// parked with the verdict on another gang, which may not preempt what this one may.
    pub(super) fn note_stopped(&mut self, ix: GangIx) {
        let row = self.row(ix);
        let (Some(shape), Some(order_key)) = (row.shape, row.order_key.clone()) else { return };
        let row = self.table[shape.0 as usize].as_mut().expect("waiting gangs have a shape");
        row.unreported.insert(order_key);
        if row.parked.is_some() {
            self.unreported.insert(shape);
            self.heads_changed.insert(row.queue);
            self.active.insert(shape);
        }
    }

    /// Records that the gang at `order_key` got a verdict of its own. The row becomes active, as the change that it
    /// was parked for may have happened.
    fn record_own_verdict(&mut self, ix: ShapeIx, order_key: &OrderKey) {
        self.activate(ix);
        let row = self.table[ix.0 as usize].as_mut().expect("waiting gangs have a shape");
        row.unreported.remove(order_key);
        if row.unreported.is_empty() {
            self.unreported.remove(&ix);
        }
    }

    /// Parks a row with the verdict on the gang at `order_key`.
    fn park(&mut self, ix: ShapeIx, order_key: &OrderKey, verdict: Verdict, roots: Vec<QuotaIx>) {
        let row = self.table[ix.0 as usize].as_mut().expect("waiting gangs have a shape");
        row.unreported.remove(order_key);
        if row.unreported.is_empty() {
            self.unreported.remove(&ix);
        } else {
            self.unreported.insert(ix);
        }
        let queueing_hint =
            verdict.shortage().map_or(QueueingHint::AnyChange, |shortage| shortage.queueing_hint);
        self.hints.park(ix, &row.shape, queueing_hint, roots);
        row.parked = Some(verdict);
        self.active.remove(&ix);
    }

    fn activate(&mut self, ix: ShapeIx) {
        let row = self.table[ix.0 as usize].as_mut().expect("waiting gangs have a shape");
        self.unreported.remove(&ix);
        if row.parked.take().is_some() {
            self.hints.unpark(ix, &row.shape);
            self.active.insert(ix);
        }
    }
}
