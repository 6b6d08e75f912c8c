//! Queues in which quota alone decides: gangs behind one that waits for its victims wait, too. After Kueue.

use std::collections::BTreeMap;

use model::{Gang, GangState, Plan, Snapshot, Verdict};

use crate::quota::Quotas;
use crate::violation::Violation;
use crate::{queue_order, usage_order};

/// The gangs that wait for their victims after a plan.
pub(crate) struct Awaiting<'w> {
    snapshot: Snapshot<'w>,
    gangs: Vec<&'w Gang>,
}

impl<'w> Awaiting<'w> {
    pub(crate) fn of(
        snapshot: &Snapshot<'w>,
        quotas: &Quotas<'_>,
        decided: &BTreeMap<&str, &Verdict>,
    ) -> Self {
        let awaits = |gang: &&Gang| {
            let verdict = decided.get(gang.uid.as_str());
            match &gang.state {
                GangState::Nominated(_) => !matches!(verdict, Some(Verdict::Admit(_))),
                GangState::Waiting => matches!(verdict, Some(Verdict::Preempt(_))),
                GangState::Reserved(_) | GangState::Unplaced => false,
            }
        };
        let gangs = snapshot.world.gangs().filter(awaits).filter(|gang| quotas.is_stepwise(gang)).collect();
        Self { snapshot: *snapshot, gangs }
    }

    /// Their uids.
    pub(crate) fn uids(&self) -> Vec<&'w str> {
        self.gangs.iter().map(|gang| gang.uid.as_str()).collect()
    }

    /// The gang that another one of its queue has to wait behind.
    pub(crate) fn first_before(&self, gang: &Gang) -> Option<&'w Gang> {
        let Snapshot { world, now } = self.snapshot;
        let by_usage = usage_order::admission_fair_sharing(world, gang).is_some();
        let goes_first = |first: &&&Gang| {
            first.queue == gang.queue
                && first.uid != gang.uid
                && (by_usage || queue_order(first, now) < queue_order(gang, now))
        };
        self.gangs.iter().find(goes_first).copied()
    }

    /// Reports gangs that are admitted although they have to wait.
    pub(crate) fn check(&self, plan: &Plan, found: &mut Vec<Violation>) {
        for (uid, verdict) in &plan.verdicts {
            let Some(gang) = self.snapshot.world.gang(uid).filter(|gang| gang.state == GangState::Waiting)
            else {
                continue;
            };
            let by_usage = usage_order::admission_fair_sharing(self.snapshot.world, gang).is_some();
            let starts = matches!(verdict, Verdict::Admit(_) | Verdict::Preempt(_)) && !by_usage;
            if let Some(first) = self.first_before(gang).filter(|_| starts) {
                found.push(Violation::AwaitingPassed { gang: gang.key.clone(), first: first.key.clone() });
            }
        }
    }
}
