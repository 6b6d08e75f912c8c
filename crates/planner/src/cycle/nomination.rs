//! Nominated gangs in a cycle, and those of their queues that wait for them.

use std::collections::BTreeSet;

use model::{Gang, GangState, QueueIx, ShapeIx, Verdict};

use super::Cycle;
use crate::nomination;
use crate::order::{self, RowHead};

impl<'s> Cycle<'s> {
    /// Decides about nominated gangs, in queue order. Where quota alone decides, those behind one do not keep from it what the victims of
    /// another one have left. Gangs that have waited behind them for their turn are tried again.
    pub(super) fn decide_nominated(&mut self) {
        let world = self.snapshot.world;
        let mut admitted: BTreeSet<QueueIx> = BTreeSet::new();
        let mut nominated: Vec<&'s Gang> = world.nominated().collect();
        nominated.sort_by_key(|gang| gang.sort_key(self.snapshot.now));
        let released: BTreeSet<&str> = nomination::stepwise(world).map(|gang| gang.uid.as_str()).collect();
        for uid in &released {
            self.ledger.release(uid);
        }
        for gang in nominated {
            let GangState::Nominated(preemption) = &gang.state else { continue };
            let is_stepwise = released.contains(gang.uid.as_str());
            if is_stepwise {
                self.ledger.restore(&gang.uid);
            }
            let awaiting = if is_stepwise { &*self.awaiting } else { &[] };
            let verdict = nomination::decide(&mut self.ledger, &self.holders, gang, preemption, awaiting);
            let is_admitted = matches!(verdict, Some(Verdict::Admit(_)));
            if !is_admitted && is_stepwise {
                self.blocked.await_victims(gang.queue, gang.sort_key(self.snapshot.now));
                self.awaiting.extend(world.charged(&gang.uid).cloned());
            }
            admitted.extend(is_admitted.then_some(gang.queue));
            self.plan.verdicts.extend(verdict.map(|verdict| (gang.uid.clone(), verdict)));
        }
        let is_free = |queue: &&QueueIx| admitted.contains(queue) || world.queue_head_changed(**queue);
        for queue in world.queues().keys().filter(is_free) {
            let rows: Vec<ShapeIx> =
                world.rows_of(*queue).filter(|ix| order::waits_for_turn(world.shape(*ix))).collect();
            for ix in rows {
                let first = RowHead::first_of(&self.snapshot, ix).filter(|_| self.attempted.insert(ix));
                self.push(first);
            }
        }
    }
}
