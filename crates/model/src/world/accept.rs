//! What a plan decided becomes part of the world.

use super::World;
use crate::gang::GangState;
use crate::plan::{Plan, Verdict, Victim};

impl World {
    /// Folds a plan back: what it decided is true from now on.
    pub(super) fn accept(&mut self, plan: Plan) {
        self.classes.settle(plan.generation);
        self.quotas.settle(plan.generation);
        if plan.generation + 1 == self.generation {
            self.shapes.settle_turns(); // Nothing happened since that the plan does not know of.
        }
        self.reserved = plan.reserved;
        for (uid, mut verdict) in plan.verdicts {
            let Some(&ix) = self.gangs.get(uid.as_str()) else { continue };
            let mut stopped: Vec<String> = Vec::new();
            if let Verdict::Preempt(preemption) = &mut verdict {
                self.denominate(&mut preemption.victims);
                stopped.extend(preemption.stopped().map(str::to_owned));
            }
            let roots = self.roots_of(ix);
            let admitted = self.shapes.tell(ix, verdict, plan.generation, roots);
            if admitted {
                for victim in stopped {
                    self.stopped.note(&victim, &uid);
                }
                self.reclaim(Some(&uid), "");
                if self.pods_of(&uid).next().is_some() {
                    self.doubt_places_of(&uid);
                }
            }
        }
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
