//! The queue order: the order of pending gangs, at the epoch and at a time, and the position of a gang.
//!
//! The effective priority of a gang is its priority plus its slope times its pending time, as MCAD's dynamic
//! priority: `priority + slope × (now − queued_at)`. Two gangs of the same slope never change their order. So each
//! row of equal gangs stays sorted, and only the heads of rows are compared at a time.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::World;
use super::indices::GangIx;
use crate::amount::Time;
use crate::gang::Gang;
use crate::gang_key::GangKey;
use crate::queue::QueueIx;
use crate::usage::LocalQueueIx;

/// Effective priorities are exact, in units of 10⁻¹² of a priority. A thousandth (the unit of priority) is 10⁹ of
/// these. A millionth per second (the unit of slope) is one per microsecond.
const PER_MILLI: i128 = 1_000_000_000;

/// The sort key of a pending gang among gangs of the same slope: the smaller goes first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OrderKey {
    /// The effective priority at the epoch, in units of 10⁻¹² of a priority; higher first.
    pub priority_at_epoch: Reverse<i128>,
    /// Earlier first.
    pub queued_at: Time,
    /// Breaks ties.
    pub key: Arc<GangKey>,
    /// Breaks ties between an object and its successor of the same name.
    pub uid: Arc<str>,
    /// The gang.
    pub gang: GangIx,
}

/// The sort key of a gang at a time, among all gangs: the smaller goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SortKey<'w> {
    priority: Reverse<i128>,
    queued_at: Time,
    /// The key of the gang.
    pub key: &'w GangKey,
    uid: &'w str,
}

/// The position of a pending gang in its queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// The position, from 1.
    pub place: usize,
    /// The number of pending gangs in its queue, itself included.
    pub of: usize,
    /// The uid of the first gang of its queue, if that is another gang.
    pub first: Option<String>,
    /// The uid of the gang just before it.
    pub ahead: Option<String>,
}

impl Gang {
    /// Its sort key at a time. For a gang that is not pending, the key that it would have.
    pub fn sort_key(&self, now: Time) -> SortKey<'_> {
        let priority = priority_at(priority_at_epoch(self), self.slope, now);
        SortKey { priority: Reverse(priority), queued_at: self.queued_at, key: &self.key, uid: &self.uid }
    }
}

impl OrderKey {
    pub(super) fn of(gang: &Gang, ix: GangIx) -> Self {
        Self {
            priority_at_epoch: Reverse(priority_at_epoch(gang)),
            queued_at: gang.queued_at,
            key: Arc::new(gang.key.clone()),
            uid: gang.uid.as_str().into(),
            gang: ix,
        }
    }

    /// The sort key at a time of a gang of this slope.
    pub fn sort_key(&self, slope: i64, now: Time) -> SortKey<'_> {
        let priority = priority_at(self.priority_at_epoch.0, slope, now);
        SortKey { priority: Reverse(priority), queued_at: self.queued_at, key: &self.key, uid: &self.uid }
    }
}

impl SortKey<'_> {
    /// The last order key of a row of this slope that is not after this sort key at a time.
    pub(super) fn last_order_key(&self, slope: i64, now: Time) -> OrderKey {
        OrderKey {
            priority_at_epoch: Reverse(priority_at(self.priority.0, slope.saturating_neg(), now)),
            queued_at: self.queued_at,
            key: Arc::new(self.key.clone()),
            uid: self.uid.into(),
            gang: GangIx(u32::MAX),
        }
    }
}

/// The effective priority at the epoch.
fn priority_at_epoch(gang: &Gang) -> i128 {
    let aging = i128::from(gang.slope).saturating_mul(i128::from(gang.queued_at.0));
    (i128::from(gang.priority) * PER_MILLI).saturating_sub(aging)
}

/// The effective priority at a time.
fn priority_at(at_epoch: i128, slope: i64, now: Time) -> i128 {
    at_epoch.saturating_add(i128::from(slope) * i128::from(now.0))
}

impl World {
    /// The position of a pending gang in its queue at a time; `None` for a gang that is not pending.
    ///
    /// This scans all pending gangs: use it for messages, not in loops.
    pub fn position(&self, uid: &str, now: Time) -> Option<Position> {
        self.positions([uid], now).remove(uid)
    }

    /// The positions of many gangs, in one scan of all pending ones. Gangs that are not pending are left out.
    pub fn positions<'u>(
        &self,
        uids: impl IntoIterator<Item = &'u str>,
        now: Time,
    ) -> BTreeMap<&'u str, Position> {
        let is_pending = |uid: &&'u str| self.shape_of(uid).is_some();
        let pending: Vec<&'u str> = uids.into_iter().filter(is_pending).collect();
        if pending.is_empty() {
            return BTreeMap::new();
        }
        let mut usage_order: BTreeMap<(QueueIx, LocalQueueIx), u128> = BTreeMap::new();
        for gang in self.shapes.waiting().map(|order_key| &self.shapes.row(order_key.gang).gang) {
            let weighted_usage = || self.weighted_usage(gang.queue, gang.local_queue, now);
            usage_order.entry((gang.queue, gang.local_queue)).or_insert_with(weighted_usage);
        }
        let queue_order = |gang| order_in_queue(gang, &usage_order, now);
        let requested = |uid: &'u str| {
            let gang = self.gang(uid)?;
            Some(((gang.queue, queue_order(gang)), uid))
        };
        let mut requested: Vec<_> = pending.into_iter().filter_map(requested).collect();
        requested.sort_unstable();
        requested.dedup();
        // For each: the number of gangs after the previous one in its queue, up to itself, and the last gang before it.
        let mut spans: Vec<(usize, Option<(u128, SortKey<'_>)>)> = vec![(0, None); requested.len()];
        let mut queues: BTreeMap<QueueIx, (usize, (u128, SortKey<'_>))> = BTreeMap::new();
        for gang in self.shapes.waiting().map(|order_key| &self.shapes.row(order_key.gang).gang) {
            let (queue, sort_key) = (gang.queue, queue_order(gang));
            let (of, first) = queues.entry(queue).or_insert((0, sort_key));
            *of += 1;
            *first = sort_key.min(*first);
            let at = requested.partition_point(|(other, _)| *other < (queue, sort_key));
            let Some(((_, mine), _)) = requested.get(at).filter(|((other, _), _)| *other == queue) else {
                continue;
            };
            let (count, ahead) = &mut spans[at];
            *count += 1;
            if sort_key != *mine {
                *ahead = (*ahead).max(Some(sort_key));
            }
        }
        let mut positions = BTreeMap::new();
        let mut before: Option<(QueueIx, usize, (u128, SortKey<'_>))> = None;
        for (((queue, sort_key), uid), (count, between)) in requested.into_iter().zip(spans) {
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
                    first: (first != sort_key).then(|| first.1.uid.to_owned()),
                    ahead: between.or(last).map(|(_, ahead)| ahead.uid.to_owned()),
                },
            );
            before = Some((queue, place, sort_key));
        }
        positions
    }
}

/// The order of gangs within a queue: the weighted usage of the local queue, then the sort key.
fn order_in_queue<'g>(
    gang: &'g Gang,
    usage_order: &BTreeMap<(QueueIx, LocalQueueIx), u128>,
    now: Time,
) -> (u128, SortKey<'g>) {
    let weighted_usage = usage_order.get(&(gang.queue, gang.local_queue)).copied();
    (weighted_usage.unwrap_or(0), gang.sort_key(now))
}
