//! Plans that were accepted: what they decided is a fact from then on.

use super::World;
use crate::gang::GangState;
use crate::plan::{Plan, Verdict, Victim};
use crate::policy::PreemptionPolicy;
use crate::quota::{QuotaNode, QuotaPreemption};

impl World {
    /// Folds back what was decided.
    pub(super) fn accept(&mut self, plan: Plan) {
        self.classes.settle(plan.generation);
        self.quotas.settle(plan.generation);
        if plan.generation + 1 == self.generation {
            self.shapes.settle_turns(); // Nothing happened since that the plan does not know of.
        }
        self.slips.accept(&plan, &self.reserved);
        self.reserved = plan.reserved;
        let outranked = self.outranked(&plan.verdicts);
        for (uid, mut verdict) in plan.verdicts {
            let Some(&ix) = self.gangs.get(uid.as_str()) else { continue };
            let mut stopped: Vec<String> = Vec::new();
            if let Verdict::Preempt(preemption) = &mut verdict {
                self.denominate(&mut preemption.victims);
                stopped.extend(preemption.victim_uids().map(str::to_owned));
            }
            let roots = self.roots_of(ix);
            let admitted = self.shapes.tell(ix, verdict, plan.generation, roots);
            if admitted {
                for victim in stopped {
                    self.preemptions.record(&victim, &uid);
                }
                self.reclaim(Some(&uid), "");
                if self.pods_of(&uid).next().is_some() {
                    self.invalidate_places_of(&uid);
                }
            }
        }
        if !outranked.is_empty() && self.preempts() {
            for uid in &outranked {
                self.invalidate_places_of(uid);
            }
        }
    }

    /// Whether any gang may take the place of another one.
    fn preempts(&self) -> bool {
        let by_quota = |node: &QuotaNode| node.preemption != QuotaPreemption::default();
        self.policy.preemption != PreemptionPolicy::Never || self.quotas.nodes().values().any(by_quota)
    }

    /// The gangs that start, if after them a stronger one was told to wait, which could not look at them as victims yet: ranks
    /// rise and fall with time, so a weaker gang may go first.
    fn outranked(&self, verdicts: &[(String, Verdict)]) -> Vec<String> {
        let (mut started, mut outranked): (Vec<(&String, i64)>, usize) = (Vec::new(), 0);
        for (uid, verdict) in verdicts {
            let Some(priority) = self.gang(uid).map(|gang| gang.priority) else { continue };
            if verdict.shortage().is_none() {
                started.push((uid, priority));
            } else if started[outranked..].iter().any(|(_, weak)| *weak < priority) {
                outranked = started.len();
            }
        }
        started[..outranked].iter().map(|(uid, _)| (*uid).clone()).collect()
    }

    /// Victims that had not started yet wait again at once, and those who were being stopped for them are from now on
    /// being stopped for the new gang.
    fn denominate(&mut self, victims: &mut Vec<Victim>) {
        for Victim { uid, .. } in victims.clone() {
            let Some(&ix) = self.gangs.get(uid.as_str()) else { continue };
            let GangState::Nominated(preemption) = &self.shapes.row(ix).gang.state else { continue };
            victims.extend(preemption.victims.iter().cloned());
            self.shapes.denominate(ix);
            self.reclaim(Some(&uid), "");
        }
    }
}
