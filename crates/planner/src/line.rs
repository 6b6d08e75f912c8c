//! Whom a queue sends next: the next gangs of its rows, in order.
//!
//! Where the local queues of a queue take turns, the one that has consumed least goes first, then rank; what starts in the
//! pass counts at once. Where they do not, all have consumed nothing.

use std::collections::{BTreeMap, BTreeSet};

use model::{LocalQueueIx, QueueIx, ResourceVec, Snapshot};

use crate::order::Next;

/// What the local queues of all queues have consumed, with what starts in this pass.
pub(crate) struct Burdens<'s> {
    snapshot: Snapshot<'s>,
    points: BTreeMap<(QueueIx, LocalQueueIx), u128>,
}

impl<'s> Burdens<'s> {
    pub(crate) fn of(snapshot: &Snapshot<'s>) -> Self {
        Self { snapshot: *snapshot, points: BTreeMap::new() }
    }

    /// What decides before rank within a queue: the smaller goes first.
    pub(crate) fn burden(&mut self, queue: QueueIx, local_queue: LocalQueueIx) -> u128 {
        let Some(sharing) = self.snapshot.world.sharing(queue) else { return 0 };
        sharing.burden(*self.points(queue, local_queue), local_queue)
    }

    /// Something starts.
    pub(crate) fn serve(&mut self, queue: QueueIx, local_queue: LocalQueueIx, promise: &ResourceVec) {
        let Some(sharing) = self.snapshot.world.sharing(queue) else { return };
        let points = self.points(queue, local_queue);
        *points = points.saturating_add(sharing.points(&sharing.on_entry(promise)));
    }

    fn points(&mut self, queue: QueueIx, local_queue: LocalQueueIx) -> &mut u128 {
        let Snapshot { world, now } = self.snapshot;
        self.points.entry((queue, local_queue)).or_insert_with(|| world.points(queue, local_queue, now))
    }
}

/// The line of one queue.
#[derive(Default)]
pub(crate) struct Line<'s> {
    doors: BTreeMap<LocalQueueIx, BTreeSet<Next<'s>>>,
    /// The first gang of each local queue, with what that has consumed.
    firsts: BTreeSet<(u128, Next<'s>, LocalQueueIx)>,
    listed: BTreeMap<LocalQueueIx, (u128, Next<'s>)>,
}

impl<'s> Line<'s> {
    /// Adds a gang that came through a local queue with this burden.
    pub(crate) fn insert(&mut self, next: Next<'s>, local_queue: LocalQueueIx, burden: u128) {
        self.doors.entry(local_queue).or_default().insert(next);
        self.list(local_queue, burden);
    }

    /// The first of all, with its burden.
    pub(crate) fn first(&self) -> Option<(u128, Next<'s>)> {
        self.firsts.first().map(|(burden, next, _)| (*burden, *next))
    }

    /// Takes the first of all out.
    pub(crate) fn pop_first(&mut self) -> Option<Next<'s>> {
        let (burden, next, local_queue) = *self.firsts.first()?;
        if let Some(gangs) = self.doors.get_mut(&local_queue) {
            gangs.remove(&next);
        }
        self.list(local_queue, burden);
        Some(next)
    }

    /// Lists the first gang of a local queue anew.
    pub(crate) fn list(&mut self, local_queue: LocalQueueIx, burden: u128) {
        let first = self.doors.get(&local_queue).and_then(BTreeSet::first).map(|first| (burden, *first));
        if self.listed.get(&local_queue).copied() == first {
            return;
        }
        if let Some((burden, next)) = self.listed.remove(&local_queue) {
            self.firsts.remove(&(burden, next, local_queue));
        }
        if let Some((burden, next)) = first {
            self.firsts.insert((burden, next, local_queue));
            self.listed.insert(local_queue, (burden, next));
        }
    }
}
