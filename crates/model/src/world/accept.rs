//! Accepting a plan: its decisions change the state of gangs.

use super::World;
use crate::gang::{Gang, GangState};
use crate::plan::{Plan, Verdict, Victim};
use crate::policy::PreemptionPolicy;
use crate::quota::{QuotaNode, QuotaPreemption};

impl World {
    /// Folds an accepted plan.
    pub(super) fn accept(&mut self, plan: Plan) {
        self.classes.clear_changes_up_to(plan.generation);
        self.quotas.clear_changes_up_to(plan.generation);
        self.ledger.pod_marks.clear_changes_up_to(plan.generation);
        if plan.generation + 1 == self.generation {
            self.shapes.clear_queue_head_changes(); // No event happened since the snapshot of the plan.
        }
        self.slips.fold(&plan, &self.reserved);
        self.holds.fold(&plan);
        self.reserved = plan.reserved;
        let outranked = self.outranked(&plan.verdicts);
        for (uid, mut verdict) in plan.verdicts {
            let Some(&ix) = self.gangs.get(uid.as_str()) else { continue };
            let mut victims: Vec<String> = Vec::new();
            if let Verdict::Preempt(preemption) = &mut verdict {
                self.replace_nominated_victims(&mut preemption.victims);
                victims.extend(preemption.victim_uids().map(str::to_owned));
            }
            let was_pending = self.shapes.row(ix).gang.state == GangState::Waiting;
            let roots = self.roots_of(ix);
            let state_changed = self.shapes.record_verdict(ix, verdict, plan.generation, roots);
            if state_changed {
                self.without_room.remove(&uid);
                if was_pending {
                    self.end_as_victim(&uid);
                }
                for victim in victims {
                    self.preemptions.record(&victim, &uid);
                }
                self.recompute_claim(&uid);
                if self.pods_of(&uid).next().is_some() {
                    self.invalidate_places_of(&uid);
                }
            }
        }
        for (uid, shortage) in plan.without_room {
            if self.gang(&uid).is_some_and(|gang| gang.state.assignment().is_some()) {
                self.without_room.insert(uid, shortage);
            }
        }
        if !outranked.is_empty() && self.allows_preemption() {
            for uid in &outranked {
                self.invalidate_places_of(uid);
            }
        }
    }

    /// Takes a gang that was pending, and gets capacity anew, out of the victims of gangs that are nominated: they await only
    /// the run that they preempted.
    pub(super) fn end_as_victim(&mut self, uid: &str) {
        let awaits = |gang: &&Gang| match &gang.state {
            GangState::Nominated(preemption) => preemption.victim_uids().any(|victim| victim == uid),
            GangState::Waiting | GangState::Reserved(_) | GangState::Unplaced => false,
        };
        let awaiting = self.nominated().filter(awaits).filter_map(|gang| self.gangs.get(gang.uid.as_str()));
        for ix in awaiting.copied().collect::<Vec<_>>() {
            self.shapes.drop_victim(ix, uid);
        }
    }

    /// Whether any rule permits preemption.
    fn allows_preemption(&self) -> bool {
        let by_quota = |node: &QuotaNode| node.preemption != QuotaPreemption::default();
        self.policy.preemption != PreemptionPolicy::Never || self.quotas.nodes().values().any(by_quota)
    }

    /// The admitted gangs that come before a gang of higher priority that has to wait. The planner could not consider
    /// them as victims yet. With aging, a gang of lower priority may go first.
    fn outranked(&self, verdicts: &[(String, Verdict)]) -> Vec<String> {
        let (mut admitted, mut outranked): (Vec<(&String, i64)>, usize) = (Vec::new(), 0);
        for (uid, verdict) in verdicts {
            let Some(priority) = self.gang(uid).map(|gang| gang.priority) else { continue };
            if verdict.shortage().is_none() {
                admitted.push((uid, priority));
            } else if admitted[outranked..].iter().any(|(_, lower)| *lower < priority) {
                outranked = admitted.len();
            }
        }
        admitted[..outranked].iter().map(|(uid, _)| (*uid).clone()).collect()
    }

    /// Requeues victims that are only nominated. Their own victims become victims of the new gang.
    fn replace_nominated_victims(&mut self, victims: &mut Vec<Victim>) {
        for Victim { uid, .. } in victims.clone() {
            let Some(&ix) = self.gangs.get(uid.as_str()) else { continue };
            let GangState::Nominated(preemption) = &self.shapes.row(ix).gang.state else { continue };
            victims.extend(preemption.victims.iter().cloned());
            self.shapes.cancel_nomination(ix);
            self.recompute_claim(&uid);
        }
    }
}
