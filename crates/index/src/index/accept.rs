//! Where wrappers are after a plan: the world decides, their phases follow.

use model::{Event, Forecast, GangState, Plan, Reservation};

use super::Index;
use crate::phase::{Phase, Preemptor, Stop};

/// How many are told at once when they are expected to start.
const TOLD_AT_ONCE: usize = 200;

/// What a plan changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Accepted {
    /// The uids of those that are to be started, in the plan's order.
    pub started: Vec<String>,
    /// The uids of those that are to be stopped.
    pub stopped: Vec<String>,
    /// Somebody who had been promised places waits again: it is worth planning once more.
    pub has_losers: bool,
}

impl Index {
    /// Folds a plan back: what it admits is being started from now on, and who has to give way is being stopped. Of all
    /// others that it tells, the verdict can be read from the world.
    pub fn accept(&mut self, plan: Plan) -> Accepted {
        let mut accepted = Accepted::default();
        let decided: Vec<_> = plan.verdicts.iter().map(|(uid, _)| uid.clone()).collect();
        let is_told = |reserved: &&Reservation| self.world.reserved().contains(reserved);
        let moved = plan.reserved.iter().filter(|reserved| !is_told(reserved)).map(|reserved| &reserved.gang);
        self.dirty.extend(moved.chain(plan.slips.iter().map(|slip| &slip.gang)).cloned());
        self.world.apply(Event::Planned(plan));
        for uid in decided {
            self.follow(&uid, &mut accepted);
            self.dirty.insert(uid);
        }
        accepted
    }

    /// Notes when those who wait are expected to start. Some of those of whom nothing was known before are to be told at once, the
    /// first to start; the others when figures are told again.
    pub fn forecast(&mut self, forecast: Forecast) {
        let former = self.world.set_forecast(forecast);
        let starts = &self.world.forecast().starts;
        let mut fresh: Vec<_> = starts.iter().filter(|(uid, _)| !former.starts.contains_key(*uid)).collect();
        fresh.sort_by_key(|(uid, forecast)| (forecast.start, *uid));
        self.dirty.extend(fresh.into_iter().map(|(uid, _)| uid.clone()).take(TOLD_AT_ONCE));
    }

    /// Moves a wrapper that waits to where the world has its gang.
    fn follow(&mut self, uid: &str, accepted: &mut Accepted) {
        let (Some(gang), Some(wrapper)) = (self.world.gang(uid), self.wrappers.get_mut(uid)) else { return };
        let was_nominated = matches!(wrapper.phase, Phase::Nominated(_));
        if !was_nominated && wrapper.phase != Phase::Waiting {
            return;
        }
        match &gang.state {
            GangState::Waiting if was_nominated => {
                wrapper.phase = Phase::Waiting;
                accepted.has_losers = true;
                self.dirty.insert(uid.to_owned());
            }
            GangState::Reserved(assignment) => {
                wrapper.phase = Phase::Starting(Some(assignment.clone()));
                accepted.started.push(uid.to_owned());
            }
            GangState::Nominated(preemption) => {
                wrapper.phase = Phase::Nominated(preemption.clone());
                let (key, priority_milli) = (gang.key.clone(), gang.priority);
                for victim in preemption.victims.clone() {
                    let by = Preemptor { key: key.clone(), priority_milli, reason: victim.reason };
                    self.give_way(&victim.uid, &by, accepted);
                }
            }
            GangState::Waiting | GangState::Unplaced => {}
        }
    }

    /// A victim is to be stopped; one that has not started waits again. Who is being stopped already stays so.
    fn give_way(&mut self, uid: &str, by: &Preemptor, accepted: &mut Accepted) {
        self.follow(uid, accepted);
        let Some(wrapper) = self.wrappers.get_mut(uid) else { return };
        if let Phase::Starting(places) | Phase::Running(places) = &wrapper.phase {
            wrapper.phase = Phase::Stopping(Stop::Preempt(Some(by.clone())), places.clone());
            accepted.stopped.push(uid.to_owned());
            self.dirty.insert(uid.to_owned());
        }
    }
}
