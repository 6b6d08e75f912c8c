//! Strict FIFO queues: no gang is admitted ahead of the head.

use std::collections::BTreeMap;

use model::{Gang, Plan, QueueIx, QueueingStrategy, Snapshot, Verdict};

use crate::usage_order::{self, LocalQueueUsages};
use crate::violation::Violation;

/// The first gang of each strict queue that the plan leaves pending, with its rank. `pending` is in queue order.
pub(crate) struct StrictQueueHeads<'w> {
    by_rank: BTreeMap<QueueIx, (usize, &'w Gang)>,
    /// With admission fair sharing: the gangs that may be the head; one of them is.
    by_usage: BTreeMap<QueueIx, Vec<&'w Gang>>,
}

impl<'w> StrictQueueHeads<'w> {
    pub(crate) fn of(snapshot: &Snapshot<'w>, plan: &Plan, pending: &[&'w Gang]) -> Self {
        let world = snapshot.world;
        let usages = LocalQueueUsages::after(snapshot, plan);
        let mut strict_heads = Self { by_rank: BTreeMap::new(), by_usage: BTreeMap::new() };
        let is_admitted = |gang: &Gang| {
            let mut verdicts = plan.verdicts.iter().filter(|(uid, _)| *uid == gang.uid);
            verdicts.any(|(_, verdict)| matches!(verdict, Verdict::Admit(_) | Verdict::Preempt(_)))
        };
        for (at, gang) in pending.iter().enumerate() {
            let strict = world
                .queues()
                .get(&gang.queue)
                .is_some_and(|queue| queue.queueing_strategy == QueueingStrategy::StrictFifo);
            if !strict || is_admitted(gang) {
                continue;
            }
            if usage_order::admission_fair_sharing(world, gang).is_none() {
                strict_heads.by_rank.entry(gang.queue).or_insert((at, *gang));
                continue;
            }
            let candidates = strict_heads.by_usage.entry(gang.queue).or_default();
            if !candidates.iter().any(|other| usages.precedes(other, gang)) {
                candidates.retain(|other| !usages.precedes(gang, other));
                candidates.push(gang);
            }
        }
        strict_heads
    }

    /// The head that the gang at rank `at` has to wait behind.
    pub(crate) fn head_before(&self, gang: &Gang, at: usize) -> Option<&'w Gang> {
        if let Some(candidates) = self.by_usage.get(&gang.queue) {
            let is_behind = candidates.iter().all(|first| first.uid != gang.uid);
            return candidates.first().copied().filter(|_| is_behind);
        }
        self.by_rank.get(&gang.queue).filter(|(first, _)| *first < at).map(|(_, first)| *first)
    }

    /// All gangs that may be the head of their queue.
    pub(crate) fn all(&self) -> impl Iterator<Item = &'w Gang> + '_ {
        self.by_rank.values().map(|(_, gang)| *gang).chain(self.by_usage.values().flatten().copied())
    }

    /// Whether it is uncertain which gang is the head.
    pub(crate) fn is_ambiguous(&self, gang: &Gang) -> bool {
        self.by_usage.get(&gang.queue).is_some_and(|candidates| candidates.len() > 1)
    }

    /// Reports gangs that are admitted ahead of the head, in queues ordered by rank.
    pub(crate) fn check(&self, plan: &Plan, pending: &[&Gang], found: &mut Vec<Violation>) {
        for (at, gang) in pending.iter().enumerate() {
            let is_by_rank = self.by_rank.contains_key(&gang.queue);
            let Some(first) = self.head_before(gang, at).filter(|_| is_by_rank) else { continue };
            let mut verdicts = plan.verdicts.iter().filter(|(uid, _)| *uid == gang.uid);
            if verdicts.any(|(_, verdict)| matches!(verdict, Verdict::Admit(_) | Verdict::Preempt(_))) {
                found.push(Violation::StrictHeadPassed { gang: gang.key.clone(), first: first.key.clone() });
            }
        }
    }
}
