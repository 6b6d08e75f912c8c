//! Parked rows by what could help them, so that an event finds those that it concerns without a look at the others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::World;
use super::shapes::{GangIx, ShapeIx};
use crate::gang::Shape;
use crate::quota::QuotaIx;
use crate::shortage::QueueingHint;

/// Rows, grouped by what their gangs consist of.
type ByShape = BTreeMap<Arc<Shape>, BTreeSet<ShapeIx>>;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct QueueingHints {
    parked: BTreeMap<QueueingHint, ByShape>,
    /// Those that less usage could help, by the root of each tree that they are charged to.
    charged: BTreeMap<QuotaIx, BTreeSet<ShapeIx>>,
    of: BTreeMap<ShapeIx, Parked>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Parked {
    wake: QueueingHint,
    roots: Vec<QuotaIx>,
}

impl QueueingHints {
    /// Parks a row, or notes that it waits for something else now. `roots`: those of the quota trees that it is charged to.
    pub(super) fn park(
        &mut self,
        ix: ShapeIx,
        shape: &Arc<Shape>,
        wake: QueueingHint,
        mut roots: Vec<QuotaIx>,
    ) {
        if wake < QueueingHint::QuotaReleased {
            roots.clear();
        }
        let parked = Parked { wake, roots };
        if self.of.get(&ix) == Some(&parked) {
            return;
        }
        self.unpark(ix, shape);
        self.parked.entry(wake).or_default().entry(shape.clone()).or_default().insert(ix);
        for root in &parked.roots {
            self.charged.entry(*root).or_default().insert(ix);
        }
        self.of.insert(ix, parked);
    }

    /// Takes a row out, if it is parked.
    pub(super) fn unpark(&mut self, ix: ShapeIx, shape: &Arc<Shape>) {
        let Some(Parked { wake, roots }) = self.of.remove(&ix) else { return };
        if let Some(by_shape) = self.parked.get_mut(&wake) {
            remove(by_shape, shape, ix);
        }
        for root in &roots {
            remove(&mut self.charged, root, ix);
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
    /// The rows that were tried in vain and are parked.
    pub fn parked(&self) -> impl Iterator<Item = ShapeIx> {
        self.shapes.hints().of.keys().copied()
    }

    /// Those of them that wait for this, grouped by what their gangs consist of.
    pub fn parked_for(&self, wake: QueueingHint) -> impl Iterator<Item = (&Shape, &BTreeSet<ShapeIx>)> {
        let by_shape = self.shapes.hints().parked.get(&wake);
        by_shape.into_iter().flatten().map(|(shape, rows)| (&**shape, rows))
    }

    /// Those of them that less usage in a quota tree could help, given by its root: they are charged to it, and wait for
    /// [`QueueingHint::QuotaReleased`] or for what happens more often. As of the trees when they were parked.
    pub fn parked_under(&self, root: QuotaIx) -> impl Iterator<Item = ShapeIx> {
        self.shapes.hints().charged.get(&root).into_iter().flatten().copied()
    }

    /// The roots of the quota trees that a waiting gang is charged to.
    pub(super) fn roots_of(&self, ix: GangIx) -> Vec<QuotaIx> {
        let gang = &self.shapes.row(ix).gang;
        let charged = self.quota_of(gang.queue).into_iter().chain(gang.charges.iter().copied());
        charged.map(|node| self.forest().root(node)).collect()
    }
}
