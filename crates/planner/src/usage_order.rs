//! Whom a queue sends next: the next gangs of its rows, in order.
//!
//! Where the local queues of a queue take turns, the one that has consumed least goes first, then rank; what starts in the
//! pass counts at once. Where they do not, all have consumed nothing.

use std::collections::{BTreeMap, BTreeSet};

use model::{LocalQueueIx, QueueIx, ResourceVec, Snapshot};

use crate::order::Next;

/// What the local queues of all queues have consumed, with what starts in this pass.
pub(crate) struct LocalQueueUsages<'s> {
    snapshot: Snapshot<'s>,
    points: BTreeMap<(QueueIx, LocalQueueIx), u128>,
}

impl<'s> LocalQueueUsages<'s> {
    pub(crate) fn of(snapshot: &Snapshot<'s>) -> Self {
        Self { snapshot: *snapshot, points: BTreeMap::new() }
    }

    /// What decides before rank within a queue: the smaller goes first.
    pub(crate) fn weighted_usage(&mut self, queue: QueueIx, local_queue: LocalQueueIx) -> u128 {
        let Some(sharing) = self.snapshot.world.sharing(queue) else { return 0 };
        sharing.weighted_usage(*self.points(queue, local_queue), local_queue)
    }

    /// Something starts.
    pub(crate) fn serve(&mut self, queue: QueueIx, local_queue: LocalQueueIx, promise: &ResourceVec) {
        let Some(sharing) = self.snapshot.world.sharing(queue) else { return };
        let points = self.points(queue, local_queue);
        *points = points.saturating_add(sharing.points(&sharing.entry_penalty(promise)));
    }

    fn points(&mut self, queue: QueueIx, local_queue: LocalQueueIx) -> &mut u128 {
        let Snapshot { world, now } = self.snapshot;
        self.points.entry((queue, local_queue)).or_insert_with(|| world.points(queue, local_queue, now))
    }
}

/// The line of one queue.
#[derive(Default)]
pub(crate) struct QueueHeads<'s> {
    local_queues: BTreeMap<LocalQueueIx, BTreeSet<Next<'s>>>,
    /// The first gang of each local queue, with what that has consumed.
    firsts: BTreeSet<(u128, Next<'s>, LocalQueueIx)>,
    listed: BTreeMap<LocalQueueIx, (u128, Next<'s>)>,
}

impl<'s> QueueHeads<'s> {
    /// Adds a gang that came through a local queue with this weighted_usage.
    pub(crate) fn insert(&mut self, next: Next<'s>, local_queue: LocalQueueIx, weighted_usage: u128) {
        self.local_queues.entry(local_queue).or_default().insert(next);
        self.list(local_queue, weighted_usage);
    }

    /// The first of all, with its weighted_usage.
    pub(crate) fn first(&self) -> Option<(u128, Next<'s>)> {
        self.firsts.first().map(|(weighted_usage, next, _)| (*weighted_usage, *next))
    }

    /// Takes the first of all out.
    pub(crate) fn pop_first(&mut self) -> Option<Next<'s>> {
        let (weighted_usage, next, local_queue) = *self.firsts.first()?;
        if let Some(gangs) = self.local_queues.get_mut(&local_queue) {
            gangs.remove(&next);
        }
        self.list(local_queue, weighted_usage);
        Some(next)
    }

    /// Lists the first gang of a local queue anew.
    pub(crate) fn list(&mut self, local_queue: LocalQueueIx, weighted_usage: u128) {
        let first = self
            .local_queues
            .get(&local_queue)
            .and_then(BTreeSet::first)
            .map(|first| (weighted_usage, *first));
        if self.listed.get(&local_queue).copied() == first {
            return;
        }
        if let Some((weighted_usage, next)) = self.listed.remove(&local_queue) {
            self.firsts.remove(&(weighted_usage, next, local_queue));
        }
        if let Some((weighted_usage, next)) = first {
            self.firsts.insert((weighted_usage, next, local_queue));
            self.listed.insert(local_queue, (weighted_usage, next));
        }
    }
}
