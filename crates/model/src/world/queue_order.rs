//! Whose turn it is: the order of waiting gangs, at rest and at a time.
//!
//! A gang's rank at a time is its priority, raised by its slope for as long as it has waited, as MCAD's dynamic priority
//! is: `priority + slope × (now − queued_at)`. Two gangs of the same slope never change places, so that each row of
//! equal gangs is kept in order for good; only the first gangs of rows have to be compared at a time.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use super::shapes::{GangIx, ShapeRow};
use super::{QueueIx, World};
use crate::amount::Time;
use crate::gang::{Gang, GangKey};
use crate::usage::LocalQueueIx;

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
pub struct SortKey<'w> {
    level: Reverse<i128>,
    queued_at: Time,
    key: &'w GangKey,
    uid: &'w str,
}

/// Where a waiting gang stands in its queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    pub fn sort_key(&self, now: Time) -> SortKey<'_> {
        let level = at(level(self), self.slope, now);
        SortKey { level: Reverse(level), queued_at: self.queued_at, key: &self.key, uid: &self.uid }
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
    pub fn sort_key(&self, slope: i64, now: Time) -> SortKey<'_> {
        let level = at(self.level.0, slope, now);
        SortKey { level: Reverse(level), queued_at: self.queued_at, key: &self.key, uid: &self.uid }
    }
}

impl ShapeRow {
    /// The first of its gangs whose turn at a time comes after another one.
    pub fn first_after(&self, turn: &SortKey<'_>, now: Time) -> Option<&OrderKey> {
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
        self.positions([uid], now).remove(uid)
    }

    /// The same for any number of gangs, counted together. Those that do not wait are left out.
    pub fn positions<'u>(
        &self,
        uids: impl IntoIterator<Item = &'u str>,
        now: Time,
    ) -> BTreeMap<&'u str, Position> {
        let mut usage_order: BTreeMap<(QueueIx, LocalQueueIx), u128> = BTreeMap::new();
        for gang in self.shapes.waiting().map(|place| &self.shapes.row(place.gang).gang) {
            let weighted_usage = || self.weighted_usage(gang.queue, gang.local_queue, now);
            usage_order.entry((gang.queue, gang.local_queue)).or_insert_with(weighted_usage);
        }
        let line_up = |gang| order_in_queue(gang, &usage_order, now);
        let asked = |uid: &'u str| {
            let gang = self.gang(uid).filter(|_| self.shape_of(uid).is_some())?;
            Some(((gang.queue, line_up(gang)), uid))
        };
        let mut asked: Vec<_> = uids.into_iter().filter_map(asked).collect();
        asked.sort_unstable();
        asked.dedup();
        // For each of them, how many come after the one before in its queue and not after itself, and the last of these.
        let mut spans: Vec<(usize, Option<(u128, SortKey<'_>)>)> = vec![(0, None); asked.len()];
        let mut queues: BTreeMap<QueueIx, (usize, (u128, SortKey<'_>))> = BTreeMap::new();
        for gang in self.shapes.waiting().map(|place| &self.shapes.row(place.gang).gang) {
            let (queue, turn) = (gang.queue, line_up(gang));
            let (of, first) = queues.entry(queue).or_insert((0, turn));
            *of += 1;
            *first = turn.min(*first);
            let at = asked.partition_point(|(other, _)| *other < (queue, turn));
            let Some(((_, mine), _)) = asked.get(at).filter(|((other, _), _)| *other == queue) else {
                continue;
            };
            let (count, ahead) = &mut spans[at];
            *count += 1;
            if turn != *mine {
                *ahead = (*ahead).max(Some(turn));
            }
        }
        let mut positions = BTreeMap::new();
        let mut before: Option<(QueueIx, usize, (u128, SortKey<'_>))> = None;
        for (((queue, turn), uid), (count, between)) in asked.into_iter().zip(spans) {
            let (place, last) = match before {
                Some((same, place, last)) if same == queue => (place + count, Some(last)),
                Some(_) | None => (count, None),
            };
            let (of, first) = queues[&queue];
            positions.insert(
                uid,
                Position {
                    place,
                    of,
                    first: (first != turn).then(|| first.1.uid.to_owned()),
                    ahead: between.or(last).map(|(_, ahead)| ahead.uid.to_owned()),
                },
            );
            before = Some((queue, place, turn));
        }
        positions
    }
}

/// What a gang is ordered by within its queue at a time.
fn order_in_queue<'g>(
    gang: &'g Gang,
    usage_order: &BTreeMap<(QueueIx, LocalQueueIx), u128>,
    now: Time,
) -> (u128, SortKey<'g>) {
    let weighted_usage = usage_order.get(&(gang.queue, gang.local_queue)).copied();
    (weighted_usage.unwrap_or(0), gang.sort_key(now))
}
