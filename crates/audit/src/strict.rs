//! Strict queues: nobody passes the first gang of one.

use std::collections::BTreeMap;

use model::{Gang, Plan, QueueIx, QueueOrder, Verdict, World};

use crate::violation::Violation;

/// The first gang of each strict queue that this plan leaves waiting. `turns` are the waiting gangs in order.
pub(crate) struct Firsts<'w>(BTreeMap<QueueIx, (usize, &'w Gang)>);

impl<'w> Firsts<'w> {
    pub(crate) fn of(world: &'w World, plan: &Plan, turns: &[&'w Gang]) -> Self {
        let mut firsts = BTreeMap::new();
        let moves = |gang: &Gang| {
            let mut verdicts = plan.verdicts.iter().filter(|(uid, _)| *uid == gang.uid);
            verdicts.any(|(_, verdict)| matches!(verdict, Verdict::Admit(_) | Verdict::Preempt(_)))
        };
        for (at, gang) in turns.iter().enumerate() {
            let strict =
                world.queues().get(&gang.queue).is_some_and(|queue| queue.order == QueueOrder::Strict);
            if strict && !firsts.contains_key(&gang.queue) && !moves(gang) {
                firsts.insert(gang.queue, (at, *gang));
            }
        }
        Self(firsts)
    }

    /// The gang that the one at `at` in order has to wait behind.
    pub(crate) fn ahead_of(&self, gang: &Gang, at: usize) -> Option<&'w Gang> {
        self.0.get(&gang.queue).filter(|(first, _)| *first < at).map(|(_, first)| *first)
    }

    /// Nobody is admitted who has to wait behind another.
    pub(crate) fn check(&self, plan: &Plan, turns: &[&Gang], found: &mut Vec<Violation>) {
        for (at, gang) in turns.iter().enumerate() {
            let Some(first) = self.ahead_of(gang, at) else { continue };
            let mut verdicts = plan.verdicts.iter().filter(|(uid, _)| *uid == gang.uid);
            if verdicts.any(|(_, verdict)| matches!(verdict, Verdict::Admit(_) | Verdict::Preempt(_))) {
                found.push(Violation::Passed { gang: gang.key.clone(), first: first.key.clone() });
            }
        }
    }
}
