//! The turns of queues that share quota: which gangs compete.

use model::{Charges, ShapeRow, charges};

use super::{Cycle, terminating_pods};
use crate::fit;
use crate::flavors::needs_quota_alone;
use crate::order::RowHead;
use crate::request::GangRequest;

/// What the first gang of a queue does in a round.
pub(super) enum Turn {
    /// It competes for these charges, and would borrow at this level if that does not follow from them.
    Competes(Charges, Option<u32>),
    /// It has another attempt in the next round.
    Again,
    /// It gets nothing.
    Nothing,
}

impl<'s> Cycle<'s> {
    /// Looks at the first gang of each queue whose turn in a round has come. If it would get quota, it competes for it with
    /// the first gangs of other queues; else its turn ends here.
    pub(super) fn decide_contenders(&mut self) {
        let world = self.snapshot.world;
        while let Some(next) = self.heads.pop_undecided() {
            let row = world.shape(next.ix);
            match self.turn(&next) {
                Turn::Competes(charges, level) => self.heads.add_contender(world, next, charges, level),
                Turn::Again => self.push(Some(next)),
                Turn::Nothing => match self.held_quota(&next) {
                    Some(held) => self.heads.add_contender(world, next, held.requested, None),
                    None => self.attempt(&next),
                },
            }
            if self.takes_turns(row) {
                self.heads.end_turn(world, row.queue);
            }
        }
    }

    /// What a gang would be charged at the quota node of its queue if it were scheduled now.
    fn turn(&mut self, next: &RowHead<'s>) -> Turn {
        let world = self.snapshot.world;
        let row = world.shape(next.ix);
        let request = GangRequest::of(row);
        let is_known = self.blocked.blocked_by(world, row.queue, next).is_some()
            || self.known_verdict(row, next.order_key).is_some();
        if is_known || terminating_pods(world, &next.order_key.uid).is_some() {
            return Turn::Nothing;
        }
        if self.is_stepwise(row) {
            return self.nominate_stepwise(next);
        }
        let preferred = self.preferred_preemption(row, next.order_key);
        let fit = if preferred.is_some() { None } else { fit::try_fit(&self.ledger, &request).ok() };
        let flavors = match fit {
            Some(fit) => fit.flavors,
            None => match preferred.map_or_else(|| self.preempt(row, &row.shape, next.order_key, &[]), Ok) {
                Ok(preemption) => {
                    self.undo_preemption(&request, &preemption);
                    preemption.assignment.flavors
                }
                Err(_) => match self.largest_part(row, next.order_key) {
                    Ok(part) => part.flavors(),
                    Err(_) => return Turn::Nothing,
                },
            },
        };
        Turn::Competes(charges(request.shape, &flavors, world.quota_of(row.queue), &[]), None)
    }

    /// Whether the queue of a gang has one turn in each round. A slice that replaces another one takes it like any gang. After
    /// Kueue (`pkg/scheduler/scheduler.go`, v0.19: one head of each queue in a scheduling cycle).
    fn takes_turns(&self, row: &ShapeRow) -> bool {
        let world = self.snapshot.world;
        world.policy().fair_sharing.is_none() && needs_quota_alone(world, &GangRequest::of(row))
    }
}
