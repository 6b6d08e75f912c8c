//! Strict queues: nobody passes the first gang of one.

use std::collections::BTreeMap;

use model::{Gang, Plan, QueueIx, QueueOrder, Snapshot, Verdict};

use crate::usage_order::{self, Turns};
use crate::violation::Violation;

/// The first gang of each strict queue that this plan leaves waiting, with its place by rank. `usage_order` are the waiting gangs by
/// rank.
pub(crate) struct Firsts<'w> {
    by_rank: BTreeMap<QueueIx, (usize, &'w Gang)>,
    /// Where local queues take turns: those that may be the first, of which one is.
    by_turn: BTreeMap<QueueIx, Vec<&'w Gang>>,
}

impl<'w> Firsts<'w> {
    pub(crate) fn of(snapshot: &Snapshot<'w>, plan: &Plan, turns: &[&'w Gang]) -> Self {
        let world = snapshot.world;
        let consumed = Turns::after(snapshot, plan);
        let mut firsts = Self { by_rank: BTreeMap::new(), by_turn: BTreeMap::new() };
        let moves = |gang: &Gang| {
            let mut verdicts = plan.verdicts.iter().filter(|(uid, _)| *uid == gang.uid);
            verdicts.any(|(_, verdict)| matches!(verdict, Verdict::Admit(_) | Verdict::Preempt(_)))
        };
        for (at, gang) in turns.iter().enumerate() {
            let strict =
                world.queues().get(&gang.queue).is_some_and(|queue| queue.order == QueueOrder::Strict);
            if !strict || moves(gang) {
                continue;
            }
            if usage_order::sharing(world, gang).is_none() {
                firsts.by_rank.entry(gang.queue).or_insert((at, *gang));
                continue;
            }
            let may_be = firsts.by_turn.entry(gang.queue).or_default();
            if !may_be.iter().any(|other| consumed.precedes(other, gang)) {
                may_be.retain(|other| !consumed.precedes(gang, other));
                may_be.push(gang);
            }
        }
        firsts
    }

    /// The gang that the one at `at` by rank has to wait behind.
    pub(crate) fn ahead_of(&self, gang: &Gang, at: usize) -> Option<&'w Gang> {
        if let Some(may_be) = self.by_turn.get(&gang.queue) {
            let is_behind = may_be.iter().all(|first| first.uid != gang.uid);
            return may_be.first().copied().filter(|_| is_behind);
        }
        self.by_rank.get(&gang.queue).filter(|(first, _)| *first < at).map(|(_, first)| *first)
    }

    /// Whether it is not known if a gang has to wait behind another.
    pub(crate) fn is_unsure(&self, gang: &Gang) -> bool {
        self.by_turn.get(&gang.queue).is_some_and(|may_be| may_be.len() > 1)
    }

    /// Nobody is admitted who has to wait behind another, where rank decides.
    pub(crate) fn check(&self, plan: &Plan, turns: &[&Gang], found: &mut Vec<Violation>) {
        for (at, gang) in turns.iter().enumerate() {
            let is_by_rank = self.by_rank.contains_key(&gang.queue);
            let Some(first) = self.ahead_of(gang, at).filter(|_| is_by_rank) else { continue };
            let mut verdicts = plan.verdicts.iter().filter(|(uid, _)| *uid == gang.uid);
            if verdicts.any(|(_, verdict)| matches!(verdict, Verdict::Admit(_) | Verdict::Preempt(_))) {
                found.push(Violation::Passed { gang: gang.key.clone(), first: first.key.clone() });
            }
        }
    }
}
