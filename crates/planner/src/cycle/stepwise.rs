//! Gangs that get their flavors one after another: what a gang would get when the turns of a round begin, and whether
//! it still can when its own turn comes.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::{
    OrderKey, Preemption, QueueIx, QueueingHint, QuotaUsage, Shape, ShapeRow, Shortage, Verdict, Victim,
    charges,
};

use super::Cycle;
use super::turns::Turn;
use crate::fit;
use crate::flavors::{Attempt, Attempts, Progress, is_stepwise};
use crate::nomination::{fits_beside, without};
use crate::order::RowHead;
use crate::preemption::{Choice, Chooser, ReleasedHolders};
use crate::request::{Flavors, GangRequest, Refusal};

/// What a gang would get.
pub(super) enum Nomination {
    Fits(Arc<Shape>, Flavors),
    Preempts(Arc<Shape>, Flavors, Vec<Victim>),
}

/// The verdict about a gang that does not get what it was nominated for.
pub(super) fn unproven() -> Verdict {
    Verdict::Wait(Shortage { causes: [].into(), queueing_hint: QueueingHint::AnyChange })
}

/// What comes of an attempt.
enum Outcome {
    /// The gang would get this, and would borrow at this level.
    Gets {
        nomination: Nomination,
        level: u32,
        next: Progress,
    },
    /// The next attempt starts at other flavors.
    Continues(Progress),
    Lacks(Verdict),
}

impl<'s> Cycle<'s> {
    /// Whether the gangs of a row get their flavors one after another.
    pub(super) fn is_stepwise(&self, row: &ShapeRow) -> bool {
        is_stepwise(self.snapshot.world, &GangRequest::of(row))
    }

    /// Nominates the first gang of a queue as a round begins.
    pub(super) fn nominate_stepwise(&mut self, head: &RowHead<'s>) -> Turn {
        let row = self.snapshot.world.shape(head.ix);
        let uid = &head.order_key.uid;
        self.nominations.remove(&**uid);
        let mut attempts = self.attempts.remove(&**uid).unwrap_or_default();
        let (nomination, level, next) = match self.look_at(row, head.order_key, &attempts) {
            Outcome::Gets { nomination, level, next } => (nomination, level, next),
            Outcome::Continues(next) => {
                attempts.continue_at(next);
                self.attempts.insert(uid.to_string(), attempts);
                return Turn::Again;
            }
            Outcome::Lacks(_) => return Turn::Nothing,
        };
        let (Nomination::Fits(shape, flavors) | Nomination::Preempts(shape, flavors, _)) = &nomination;
        let charges = charges(shape, flavors, self.snapshot.world.quota_of(row.queue), &[]);
        attempts.continue_at(next);
        self.attempts.insert(uid.to_string(), attempts);
        self.nominations.insert(uid.to_string(), (self.plan.verdicts.len(), nomination));
        Turn::Competes(charges, Some(level))
    }

    /// Decides about a gang that was nominated, if it still can get the same; none if others took it.
    pub(super) fn confirm(
        &mut self,
        row: &'s ShapeRow,
        order_key: &'s OrderKey,
        nomination: Nomination,
    ) -> Option<Verdict> {
        match nomination {
            Nomination::Fits(shape, flavors) => {
                let request = GangRequest { shape: &shape, ..GangRequest::of(row) };
                let charges = self.ledger.charges_with(&request, &shape, &flavors);
                let (victims, awaiting) = (&self.victims, &self.awaiting);
                if !fits_beside(&mut self.ledger, &self.holders, victims, awaiting, &charges) {
                    return None;
                }
                let fit = fit::place_with(&self.ledger, &request, &flavors).ok()?;
                Some(self.admit(row, order_key, &fit))
            }
            Nomination::Preempts(shape, flavors, victims) => {
                if victims.iter().any(|victim| self.victims.contains(&victim.uid)) {
                    return Some(self.decide(row, order_key)); // Another gang preempts some of them.
                }
                let request = GangRequest { shape: &shape, ..GangRequest::of(row) };
                let released = ReleasedHolders::of(&mut self.ledger, &self.holders, &self.victims);
                for victim in &victims {
                    self.ledger.release(&victim.uid);
                }
                let fit = fit::try_fit_with(&self.ledger, &request, &flavors);
                let assignment = fit.ok().map(|fit| self.ledger.reserve(&GangRequest::of(row), &fit));
                released.undo(&mut self.ledger, &victims);
                let assignment = assignment?;
                self.victims.extend(victims.iter().map(|victim| victim.uid.clone()));
                Some(self.nominate(row, order_key, Preemption { victims, assignment }))
            }
        }
    }

    /// Decides about a gang that competes with no other: all its attempts at once.
    pub(super) fn decide_stepwise(&mut self, row: &'s ShapeRow, order_key: &'s OrderKey) -> Verdict {
        let mut attempts = Attempts::default();
        loop {
            match self.look_at(row, order_key, &attempts) {
                Outcome::Gets { nomination, .. } => {
                    return self.confirm(row, order_key, nomination).unwrap_or_else(unproven);
                }
                Outcome::Continues(next) => attempts.continue_at(next),
                Outcome::Lacks(verdict) => return verdict,
            }
        }
    }

    /// One attempt. A gang preempts none while a gang of another queue that it may reclaim from was admitted in this cycle: the
    /// next cycle can choose that one, which has not started, and its turn comes before any other work is lost.
    fn look_at(&mut self, row: &'s ShapeRow, order_key: &OrderKey, attempts: &Attempts) -> Outcome {
        let outcome = self.whole_or_part(row, order_key, attempts);
        if let Outcome::Gets { nomination: Nomination::Preempts(.., victims), .. } = &outcome
            && !victims.is_empty()
            && self.has_new_borrowers(row.queue)
        {
            return Outcome::Lacks(unproven());
        }
        outcome
    }

    /// Notes that a gang of a queue was admitted, if the queue borrows now.
    pub(super) fn note_borrower(&mut self, queue: QueueIx) {
        let world = self.snapshot.world;
        let forest = world.forest();
        let Some(node) = world.quota_of(queue) else { return };
        let borrows = |of| self.ledger.quotas.used(node, of) > forest.subtree_quota(node, of);
        if forest.flavor_resources(node).any(borrows) {
            self.new_borrowers.insert((forest.root(node), queue));
        }
    }

    /// Whether this cycle has admitted a gang of another queue that borrows in the quota tree of this one.
    fn has_new_borrowers(&self, queue: QueueIx) -> bool {
        let world = self.snapshot.world;
        let root = world.quota_of(queue).map(|node| world.forest().root(node));
        self.new_borrowers.iter().any(|(tree, other)| Some(*tree) == root && *other != queue)
    }

    /// An attempt with the whole gang, else with the largest part of it.
    fn whole_or_part(&mut self, row: &'s ShapeRow, order_key: &OrderKey, attempts: &Attempts) -> Outcome {
        let from = &attempts.from;
        let gets = |attempt: Attempt, shape: Arc<Shape>, victims: Option<Vec<Victim>>| {
            let Attempt { flavors, level, next, .. } = attempt;
            let nomination = match victims {
                None => Nomination::Fits(shape, flavors),
                Some(victims) => Nomination::Preempts(shape, flavors, victims),
            };
            Outcome::Gets { nomination, level, next }
        };
        let (causes, next, hint) = match self.choose(row, order_key, &row.shape, from) {
            Ok(Choice::Fits(attempt)) => return gets(attempt, row.shape.clone(), None),
            Ok(Choice::Preempts(attempt, victims)) => return gets(attempt, row.shape.clone(), Some(victims)),
            Ok(Choice::Lacks(attempt, hint)) => {
                let causes = attempt.causes(self.snapshot.world, &GangRequest::of(row));
                (causes, attempt.next, hint)
            }
            Err((causes, hint)) => (causes, Progress::new(), hint),
        };
        let part = fit::largest_part(&row.shape, |shape| match self.choose(row, order_key, shape, from) {
            Ok(Choice::Fits(attempt)) => Ok(gets(attempt, Arc::new(shape.clone()), None)),
            Ok(Choice::Preempts(attempt, victims)) => {
                Ok(gets(attempt, Arc::new(shape.clone()), Some(victims)))
            }
            Ok(Choice::Lacks(_, hint)) | Err((_, hint)) => Err(hint),
        });
        match part {
            Ok(found) => found,
            Err(_) if attempts.may_continue_at(&next) => Outcome::Continues(next),
            Err(other) => {
                let refusal = (causes, hint.max(other));
                Outcome::Lacks(fit::verdict(self.snapshot.world, &GangRequest::of(row), refusal))
            }
        }
    }

    fn choose(
        &mut self,
        row: &'s ShapeRow,
        order_key: &OrderKey,
        shape: &Shape,
        from: &Progress,
    ) -> Result<Choice, Refusal> {
        let Some(gang) = self.snapshot.world.gang(&order_key.uid) else {
            return Err((Vec::new(), QueueingHint::ClusterChange));
        };
        let present = without(&self.ledger.quotas, &self.awaiting);
        let victims = &self.victims;
        let released = ReleasedHolders::of(&mut self.ledger, &self.holders, victims);
        let preemptors: BTreeSet<&str> = self.snapshot.world.preemptors_of(&order_key.uid);
        let chooser = Chooser {
            snapshot: &self.snapshot,
            holders: &self.holders,
            gang,
            request: &GangRequest { shape, ..GangRequest::of(row) },
            present: &present,
            preemptors: &preemptors,
            is_spared: &|uid| victims.contains(uid) || *uid == *order_key.uid,
        };
        let choice = chooser.choose(&mut self.ledger, from);
        released.undo(&mut self.ledger, &[]);
        choice
    }
}
