//! Parked rows by queueing hint, so that an event finds the rows that it concerns without a scan.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::World;
use super::indices::{GangIx, ShapeIx};
use crate::quota::QuotaIx;
use crate::shape::Shape;
use crate::shortage::QueueingHint;

/// Rows grouped by shape.
type ByShape = BTreeMap<Arc<Shape>, BTreeSet<ShapeIx>>;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct QueueingHints {
    by_hint: BTreeMap<QueueingHint, ByShape>,
    /// Rows that released quota may help, by the root of each tree that they are charged to.
    by_quota_root: BTreeMap<QuotaIx, BTreeSet<ShapeIx>>,
    parked: BTreeMap<ShapeIx, Parked>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Parked {
    queueing_hint: QueueingHint,
    roots: Vec<QuotaIx>,
}

impl QueueingHints {
    /// Parks a row, or updates the hint of a parked row. `roots` are the roots of the quota trees that it is charged
    /// to.
    pub(super) fn park(
        &mut self,
        ix: ShapeIx,
        shape: &Arc<Shape>,
        queueing_hint: QueueingHint,
        mut roots: Vec<QuotaIx>,
    ) {
        if queueing_hint < QueueingHint::QuotaReleased {
            roots.clear();
        }
        let parked = Parked { queueing_hint, roots };
        if self.parked.get(&ix) == Some(&parked) {
            return;
        }
        self.unpark(ix, shape);
        self.by_hint.entry(queueing_hint).or_default().entry(shape.clone()).or_default().insert(ix);
        for root in &parked.roots {
            self.by_quota_root.entry(*root).or_default().insert(ix);
        }
        self.parked.insert(ix, parked);
    }

    /// Removes a row, if it is parked.
    pub(super) fn unpark(&mut self, ix: ShapeIx, shape: &Arc<Shape>) {
        let Some(Parked { queueing_hint, roots }) = self.parked.remove(&ix) else { return };
        if let Some(by_shape) = self.by_hint.get_mut(&queueing_hint) {
            remove(by_shape, shape, ix);
        }
        for root in &roots {
            remove(&mut self.by_quota_root, root, ix);
        }
    }
}

fn remove<K: Ord>(sets: &mut BTreeMap<K, BTreeSet<ShapeIx>>, key: &K, ix: ShapeIx) {
    if let Some(rows) = sets.get_mut(key) {
        rows.remove(&ix);
        if rows.is_empty() {
            sets.remove(key);
        }
    }
}

impl World {
    /// The parked rows.
    pub fn parked(&self) -> impl Iterator<Item = ShapeIx> {
        self.shapes.hints().parked.keys().copied()
    }

    /// The parked rows with this hint, grouped by shape.
    pub fn parked_for(
        &self,
        queueing_hint: QueueingHint,
    ) -> impl Iterator<Item = (&Shape, &BTreeSet<ShapeIx>)> {
        let by_shape = self.shapes.hints().by_hint.get(&queueing_hint);
        by_shape.into_iter().flatten().map(|(shape, rows)| (&**shape, rows))
    }

    /// The parked rows that released quota in the tree of this root may help: they are charged to it, and their hint
    /// is [`QueueingHint::QuotaReleased`] or a later one. The trees are those at the time of parking.
    pub fn parked_under(&self, root: QuotaIx) -> impl Iterator<Item = ShapeIx> {
        self.shapes.hints().by_quota_root.get(&root).into_iter().flatten().copied()
    }

    /// The roots of the quota trees that a pending gang is charged to.
    pub(super) fn roots_of(&self, ix: GangIx) -> Vec<QuotaIx> {
        let gang = &self.shapes.row(ix).gang;
        let charged = self.quota_of(gang.queue).into_iter().chain(gang.charges.iter().copied());
        charged.map(|node| self.forest().root(node)).collect()
    }
}
