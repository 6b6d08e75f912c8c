//! Whose turn it is: the order of waiting gangs, at rest and at a time.
//!
//! A gang's rank at a time is its priority, raised by its slope for as long as it has waited, as MCAD's dynamic priority
//! is: `priority + slope × (now − queued_at)`. Two gangs of the same slope never change places, so that each row of
//! equal gangs is kept in order for good; only the first gangs of rows have to be compared at a time.

use std::cmp::Reverse;
use std::ops::Bound;
use std::sync::Arc;

use super::shapes::{GangIx, ShapeRow};
use super::{QueueIx, World};
use crate::amount::Time;
use crate::gang::{Gang, GangKey};

/// Ranks are exact: in units of 10⁻¹² of a priority, of which a thousandth (the unit of priority) is 10⁹, and a millionth
/// a second (the unit of slope) is one a microsecond.
const PER_MILLI: i128 = 1_000_000_000;

/// The place of a waiting gang among those of its slope: the smaller goes first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OrderKey {
    /// The rank that it would have had at the epoch; higher first. In units of 10⁻¹² of a priority.
    pub level: Reverse<i128>,
    /// Earlier first.
    pub queued_at: Time,
    /// Breaks ties.
    pub key: Arc<GangKey>,
    /// Breaks ties between an object and its successor of the same name.
    pub uid: Arc<str>,
    /// The gang itself.
    pub gang: GangIx,
}

/// The turn of a gang at a time, among all: the smaller goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Turn<'w> {
    level: Reverse<i128>,
    queued_at: Time,
    key: &'w GangKey,
    uid: &'w str,
}

/// Where a waiting gang stands in its queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// Its place, from 1.
    pub place: usize,
    /// How many wait in its queue, itself included.
    pub of: usize,
    /// The uid of the gang that goes first in its queue, if that is another one.
    pub first: Option<String>,
    /// The uid of the gang just before it.
    pub ahead: Option<String>,
}

impl Gang {
    /// Its turn at a time, while it waits and as it would be if it waited.
    pub fn turn(&self, now: Time) -> Turn<'_> {
        let level = at(level(self), self.slope, now);
        Turn { level: Reverse(level), queued_at: self.queued_at, key: &self.key, uid: &self.uid }
    }
}

impl OrderKey {
    pub(super) fn of(gang: &Gang, ix: GangIx) -> Self {
        Self {
            level: Reverse(level(gang)),
            queued_at: gang.queued_at,
            key: Arc::new(gang.key.clone()),
            uid: gang.uid.as_str().into(),
            gang: ix,
        }
    }

    /// The turn at a time of a gang of this slope.
    pub fn turn(&self, slope: i64, now: Time) -> Turn<'_> {
        let level = at(self.level.0, slope, now);
        Turn { level: Reverse(level), queued_at: self.queued_at, key: &self.key, uid: &self.uid }
    }
}

impl ShapeRow {
    /// The first of its gangs whose turn at a time comes after another one.
    pub fn first_after(&self, turn: &Turn<'_>, now: Time) -> Option<&OrderKey> {
        let probe = OrderKey {
            level: Reverse(at(turn.level.0, self.slope.saturating_neg(), now)),
            queued_at: turn.queued_at,
            key: Arc::new(turn.key.clone()),
            uid: turn.uid.into(),
            gang: GangIx(u32::MAX),
        };
        self.waiting.range((Bound::Excluded(probe), Bound::Unbounded)).next()
    }
}

/// The rank of a gang at the epoch.
fn level(gang: &Gang) -> i128 {
    let aged = i128::from(gang.slope).saturating_mul(i128::from(gang.queued_at.0));
    (i128::from(gang.priority) * PER_MILLI).saturating_sub(aged)
}

/// A rank at a time.
fn at(level: i128, slope: i64, now: Time) -> i128 {
    level.saturating_add(i128::from(slope) * i128::from(now.0))
}

impl World {
    /// Where a waiting gang stands in its queue at a time; none for one that does not wait.
    ///
    /// Counts one by one: for people, not for loops.
    pub fn position(&self, uid: &str, now: Time) -> Option<Position> {
        let gang = self.gang(uid)?;
        let turn = self.shape_of(uid).map(|_| gang.turn(now))?;
        let mut position = Position { place: 1, of: 0, first: None, ahead: None };
        let (mut first, mut ahead) = (turn, None);
        for other in self.waiting_in(gang.queue) {
            let other = other.turn(now);
            position.of += 1;
            first = first.min(other);
            if other < turn {
                position.place += 1;
                ahead = ahead.max(Some(other));
            }
        }
        position.first = (first != turn).then(|| first.uid.to_owned());
        position.ahead = ahead.map(|ahead| ahead.uid.to_owned());
        Some(position)
    }

    fn waiting_in(&self, queue: QueueIx) -> impl Iterator<Item = &Gang> {
        self.shapes
            .waiting()
            .map(|place| &self.shapes.row(place.gang).gang)
            .filter(move |gang| gang.queue == queue)
    }
}
