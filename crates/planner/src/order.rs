//! In which sequence gangs are taken up.
//!
//! Each row of equal gangs is in order for good; the next ones of all rows are merged here by their turns at the time of the
//! pass.

use std::ops::Bound;

use model::{OrderKey, ShapeIx, Snapshot, Turn};

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

    /// The first gang of a row from a place on.
    fn from(snapshot: &Snapshot<'s>, ix: ShapeIx, after: Bound<&OrderKey>) -> Option<Self> {
        let row = snapshot.world.shape(ix);
        let place = row.waiting.range::<OrderKey, _>((after, Bound::Unbounded)).next()?;
        Some(Self { turn: place.turn(row.slope, snapshot.now), place, ix })
    }
}
