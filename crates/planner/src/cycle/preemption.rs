//! Preemption in a cycle: selects victims for a gang, nominates it, or undoes the selection.

use model::{OrderKey, Preemption, QueueingHint, ShapeRow, Verdict};

use super::Cycle;
use crate::fungibility::{self, FittingFlavors};
use crate::preemption::{ReleasedHolders, VictimSelection, may_preempt, select_victims, terminating_victims};
use crate::request::GangRequest;

impl<'s> Cycle<'s> {
    /// Whether a running gang is being preempted.
    pub(super) fn is_being_preempted(&self, uid: &str) -> bool {
        self.victims.contains(uid) || terminating_victims(self.snapshot.world).any(|gang| gang.uid == uid)
    }

    /// Nominates a gang for the nodes of its victims, unless it would delay a reserved start.
    pub(super) fn nominate(
        &mut self,
        row: &'s ShapeRow,
        order_key: &'s OrderKey,
        preemption: Preemption,
    ) -> Verdict {
        let Some(backfill) = &mut self.backfill else { return Verdict::Preempt(preemption) };
        if let Err(shortage) =
            backfill.reservations.check(&mut self.ledger, &backfill.timeline, &order_key.uid)
        {
            self.undo_preemption(&GangRequest::of(row), &preemption);
            return Verdict::Wait(shortage);
        }
        for victim in preemption.victim_uids() {
            backfill.timeline.preempt(victim);
        }
        if let Some(gang) = self.snapshot.world.gang(&order_key.uid) {
            backfill.timeline.admit(gang, GangRequest::of(row), preemption.assignment.clone());
        }
        Verdict::Preempt(preemption)
    }

    /// Undoes [`Self::preempt`].
    pub(super) fn undo_preemption(&mut self, request: &GangRequest<'_>, preemption: &Preemption) {
        self.ledger.unreserve(request, &preemption.assignment);
        for uid in preemption.victim_uids() {
            self.victims.remove(uid);
        }
    }

    /// The preemption that the queue of a gang prefers, although the gang fits with other flavors.
    pub(super) fn preferred_preemption(
        &mut self,
        row: &'s ShapeRow,
        order_key: &OrderKey,
    ) -> Option<Preemption> {
        if row.shape.gated {
            return None;
        }
        let fitting = fungibility::fitting(&self.ledger, &GangRequest::of(row));
        let preemption = (!fitting.is_empty()).then(|| self.preempt(row, order_key, &fitting));
        preemption.and_then(Result::ok)
    }

    /// Selects victims of lower precedence for a gang, if a rule allows it, the gang fits then, and the queue does not
    /// prefer one of the flavor assignments with which it fits now.
    pub(super) fn preempt(
        &mut self,
        row: &'s ShapeRow,
        order_key: &OrderKey,
        fitting: &[FittingFlavors],
    ) -> Result<Preemption, QueueingHint> {
        if !may_preempt(self.snapshot.world, &GangRequest::of(row)) {
            return Err(QueueingHint::QueueHeadChange);
        }
        let (request, victims) = (GangRequest::of(row), &self.victims);
        let Some(gang) = self.snapshot.world.gang(&order_key.uid) else {
            return Err(QueueingHint::ClusterChange);
        };
        let released = ReleasedHolders::of(&mut self.ledger, victims);
        let is_spared = |uid: &str| victims.contains(uid) || *uid == *order_key.uid;
        let preemptors = self.snapshot.world.preemptors_of(&order_key.uid);
        let room = select_victims(&mut self.ledger, &self.snapshot, gang, &preemptors, &is_spared, fitting);
        let VictimSelection { victims, fit } = match room {
            Ok(room) => room,
            Err(hint) => {
                released.undo(&mut self.ledger, &[]);
                return Err(hint);
            }
        };
        let assignment = self.ledger.reserve(&request, &fit);
        released.undo(&mut self.ledger, &victims);
        self.victims.extend(victims.iter().map(|victim| victim.uid.clone()));
        Ok(Preemption { victims, assignment })
    }
}
