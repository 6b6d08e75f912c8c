//! Selects the next gang of a cluster queue: merges the heads of its shape rows in queue order.
//!
//! With admission fair sharing, the local queue with the lowest weighted usage goes first, then rank decides.
//! An admission adds to the usage at once. Without it, the usage of every local queue counts as zero.

use std::collections::{BTreeMap, BTreeSet};

use model::{LocalQueueIx, QueueIx, ResourceVec, Snapshot};

use crate::order::RowHead;

/// The decayed usage of local queues, with the admissions of this cycle.
pub(crate) struct LocalQueueUsages<'s> {
    snapshot: Snapshot<'s>,
    weighted_usage_sum: BTreeMap<(QueueIx, LocalQueueIx), u128>,
}

impl<'s> LocalQueueUsages<'s> {
    pub(crate) fn of(snapshot: &Snapshot<'s>) -> Self {
        Self { snapshot: *snapshot, weighted_usage_sum: BTreeMap::new() }
    }

    /// The weighted usage of a local queue, which is compared before rank; the smaller goes first.
    pub(crate) fn weighted_usage(&mut self, queue: QueueIx, local_queue: LocalQueueIx) -> u128 {
        let Some(sharing) = self.snapshot.world.admission_fair_sharing(queue) else { return 0 };
        sharing.weighted_usage(*self.weighted_usage_sum(queue, local_queue), local_queue)
    }

    /// Adds the entry penalty of an admitted gang to the usage of its local queue.
    pub(crate) fn record_admission(
        &mut self,
        queue: QueueIx,
        local_queue: LocalQueueIx,
        request: &ResourceVec,
    ) {
        let Some(sharing) = self.snapshot.world.admission_fair_sharing(queue) else { return };
        let weighted_usage_sum = self.weighted_usage_sum(queue, local_queue);
        *weighted_usage_sum = weighted_usage_sum
            .saturating_add(sharing.resource_weighted_usage(&sharing.entry_penalty(request)));
    }

    fn weighted_usage_sum(&mut self, queue: QueueIx, local_queue: LocalQueueIx) -> &mut u128 {
        let Snapshot { world, now } = self.snapshot;
        self.weighted_usage_sum
            .entry((queue, local_queue))
            .or_insert_with(|| world.resource_weighted_usage(queue, local_queue, now))
    }
}

/// The row heads of one cluster queue.
#[derive(Default)]
pub(crate) struct QueueHeads<'s> {
    local_queues: BTreeMap<LocalQueueIx, BTreeSet<RowHead<'s>>>,
    /// The first gang of each local queue, with the weighted usage of that local queue.
    heads: BTreeSet<(u128, RowHead<'s>, LocalQueueIx)>,
    current: BTreeMap<LocalQueueIx, (u128, RowHead<'s>)>,
}

impl<'s> QueueHeads<'s> {
    /// Adds a gang of a local queue that has this weighted usage.
    pub(crate) fn insert(&mut self, next: RowHead<'s>, local_queue: LocalQueueIx, weighted_usage: u128) {
        self.local_queues.entry(local_queue).or_default().insert(next);
        self.update_head(local_queue, weighted_usage);
    }

    /// The first gang, with the weighted usage of its local queue.
    pub(crate) fn first(&self) -> Option<(u128, RowHead<'s>)> {
        self.heads.first().map(|(weighted_usage, next, _)| (*weighted_usage, *next))
    }

    /// Takes out the first gang.
    pub(crate) fn pop_first(&mut self) -> Option<RowHead<'s>> {
        let (weighted_usage, next, local_queue) = *self.heads.first()?;
        if let Some(gangs) = self.local_queues.get_mut(&local_queue) {
            gangs.remove(&next);
        }
        self.update_head(local_queue, weighted_usage);
        Some(next)
    }

    /// Recomputes the entry of a local queue.
    pub(crate) fn update_head(&mut self, local_queue: LocalQueueIx, weighted_usage: u128) {
        let first = self
            .local_queues
            .get(&local_queue)
            .and_then(BTreeSet::first)
            .map(|first| (weighted_usage, *first));
        if self.current.get(&local_queue).copied() == first {
            return;
        }
        if let Some((weighted_usage, next)) = self.current.remove(&local_queue) {
            self.heads.remove(&(weighted_usage, next, local_queue));
        }
        if let Some((weighted_usage, next)) = first {
            self.heads.insert((weighted_usage, next, local_queue));
            self.current.insert(local_queue, (weighted_usage, next));
        }
    }
}
