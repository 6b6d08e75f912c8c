//! Preemption in a cycle: selects victims for a gang, nominates it, or undoes the selection.

use std::collections::BTreeSet;

use model::{OrderKey, Preemption, QueueingHint, Shape, ShapeRow, Verdict};

use super::{Cycle, gated};
use crate::backfill::owned_quota;
use crate::fit;
use crate::fungibility::{self, FittingFlavors};
use crate::preemption::{ReleasedHolders, VictimSelection, may_preempt, select_victims};
use crate::request::{Fit, Flavors, GangRequest};

/// A part of a gang.
pub(super) enum Part {
    /// It fits now.
    Fits(Fit),
    /// It fits after a preemption.
    FitsAfterPreemption { shape: Shape, flavors: Flavors },
}

impl Part {
    pub(super) fn flavors(self) -> Flavors {
        match self {
            Self::Fits(fit) => fit.flavors,
            Self::FitsAfterPreemption { flavors, .. } => flavors,
        }
    }
}

impl<'s> Cycle<'s> {
    /// Whether a running gang is being preempted.
    pub(super) fn is_being_preempted(&self, uid: &str) -> bool {
        self.victims.contains(uid) || self.holders.terminating_victims().contains(uid)
    }

    /// Nominates a gang for the nodes of its victims, unless its gates are closed or it would delay a reserved start.
    pub(super) fn nominate(
        &mut self,
        row: &'s ShapeRow,
        order_key: &'s OrderKey,
        preemption: Preemption,
    ) -> Verdict {
        if row.shape.gated {
            self.undo_preemption(&GangRequest::of(row), &preemption);
            return Verdict::Wait(gated());
        }
        let Some(backfill) = &mut self.backfill else { return Verdict::Preempt(preemption) };
        let request = GangRequest::of(row);
        let mut owned = BTreeSet::new();
        if backfill.reservations.has_guess() {
            let released = ReleasedHolders::of(&mut self.ledger, &self.holders, &self.victims);
            owned = owned_quota(&self.ledger, &request, &preemption.assignment);
            released.undo(&mut self.ledger, &[]);
        }
        let (reservations, timeline) = (&mut backfill.reservations, &backfill.timeline);
        if let Err(shortage) = reservations.check(&mut self.ledger, timeline, &order_key.uid, &owned) {
            self.undo_preemption(&request, &preemption);
            return Verdict::Wait(shortage);
        }
        for victim in preemption.victim_uids() {
            backfill.timeline.preempt(victim);
        }
        if let Some(gang) = self.snapshot.world.gang(&order_key.uid) {
            backfill.timeline.admit(gang, request, preemption.assignment.clone());
        }
        self.renew_passed_starts();
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
        let preemption = (!fitting.is_empty()).then(|| self.preempt(row, &row.shape, order_key, &fitting));
        preemption.and_then(Result::ok)
    }

    /// The largest part of a gang that fits, or that fits after a preemption.
    pub(super) fn largest_part(
        &mut self,
        row: &'s ShapeRow,
        order_key: &OrderKey,
    ) -> Result<Part, QueueingHint> {
        let request = GangRequest::of(row);
        fit::largest_part(request.shape, |shape| {
            let hint = match fit::try_fit(&self.ledger, &GangRequest { shape, ..request }) {
                Ok(fit) => return Ok(Part::Fits(fit)),
                Err((_, hint)) => hint,
            };
            match self.preempt(row, shape, order_key, &[]) {
                Ok(preemption) => {
                    self.undo_preemption(&request, &preemption);
                    let flavors = preemption.assignment.flavors;
                    Ok(Part::FitsAfterPreemption { shape: shape.clone(), flavors })
                }
                Err(other) => Err(hint.max(other)),
            }
        })
    }

    /// Selects victims of lower precedence for a gang with this shape, if a rule allows it, the gang fits then, and the
    /// queue does not prefer one of the flavor assignments with which it fits now.
    pub(super) fn preempt(
        &mut self,
        row: &'s ShapeRow,
        shape: &Shape,
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
        let released = ReleasedHolders::of(&mut self.ledger, &self.holders, victims);
        let is_spared = |uid: &str| victims.contains(uid) || *uid == *order_key.uid;
        let preemptors = self.snapshot.world.preemptors_of(&order_key.uid);
        let candidates = || self.holders.candidates(gang, &preemptors, &is_spared);
        let room =
            select_victims(&mut self.ledger, &self.snapshot, gang, shape, &preemptors, &candidates, fitting);
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
