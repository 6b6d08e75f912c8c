//! Applies a plan: the World changes the states of gangs, and the phases of their wrappers follow.

use model::{Event, Forecast, GangState, Plan, Reservation, Verdict};

use super::Index;
use crate::kueue::{Eviction, WorkloadRow};
use crate::phase::{Phase, Preemptor, StopReason};

/// How many wrappers with a first forecast are reconciled at once.
const NEW_FORECASTS_MAX: usize = 200;

/// The wrappers that a plan starts and stops.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct AppliedPlan {
    /// The uids of the wrappers to start, in the order of the plan.
    pub started: Vec<String>,
    /// The uids of the wrappers to stop: preemption victims.
    pub stopped: Vec<String>,
    /// Whether a nominated gang lost its nomination and waits again: another cycle may place it.
    pub has_lost_nominations: bool,
}

impl Index {
    /// Applies a plan to the World. Admitted gangs enter the phase `Starting`, and victims the phase `Stopping`. The
    /// World keeps the verdicts of all other gangs.
    pub fn apply_plan(&mut self, plan: Plan) -> AppliedPlan {
        let mut applied = AppliedPlan::default();
        let tried: Vec<_> = plan
            .verdicts
            .iter()
            .map(|(uid, verdict)| (uid.clone(), matches!(verdict, Verdict::Admit(_))))
            .collect();
        let is_known = |reserved: &&Reservation| self.world.reserved().contains(reserved);
        let changed =
            plan.reserved.iter().filter(|reserved| !is_known(reserved)).map(|reserved| &reserved.gang);
        self.dirty.extend(changed.chain(plan.slips.iter().map(|slip| &slip.gang)).cloned());
        self.world.apply(Event::Planned(plan));
        for (uid, is_admitted) in tried {
            if self.is_workload(&uid) {
                self.sync_replacement(&uid, is_admitted);
                self.apply_to_workload(&uid, &mut applied);
                continue;
            }
            self.sync_phase(&uid, &mut applied);
            self.dirty.insert(uid);
        }
        applied
    }

    /// Stores a forecast. Of the gangs that had no forecast before, those with the earliest starts are reconciled at
    /// once; the others get their forecast with the next status refresh.
    pub fn forecast(&mut self, forecast: Forecast) {
        let former = self.world.set_forecast(forecast);
        let starts = &self.world.forecast().starts;
        let mut new: Vec<_> = starts.iter().filter(|(uid, _)| !former.starts.contains_key(*uid)).collect();
        new.sort_by_key(|(uid, forecast)| (forecast.start, *uid));
        self.dirty.extend(new.into_iter().map(|(uid, _)| uid.clone()).take(NEW_FORECASTS_MAX));
    }

    /// Updates the phase of a wrapper from the state of its gang in the World.
    fn sync_phase(&mut self, uid: &str, applied: &mut AppliedPlan) {
        let (Some(gang), Some(wrapper)) = (self.world.gang(uid), self.wrappers.get_mut(uid)) else { return };
        if let (
            GangState::Reserved(assignment),
            Phase::Starting(Some(places)) | Phase::Running(Some(places)),
        ) = (&gang.state, &mut wrapper.phase)
        {
            places.clone_from(assignment); // Lost places were replaced.
            self.unchecked.insert(uid.to_owned());
            return;
        }
        let was_nominated = matches!(wrapper.phase, Phase::Nominated(_));
        if !was_nominated && wrapper.phase != Phase::Waiting {
            return;
        }
        match &gang.state {
            GangState::Waiting if was_nominated => {
                wrapper.phase = Phase::Waiting;
                applied.has_lost_nominations = true;
                self.dirty.insert(uid.to_owned());
            }
            GangState::Reserved(assignment) => {
                wrapper.phase = Phase::Starting(Some(assignment.clone()));
                applied.started.push(uid.to_owned());
            }
            GangState::Nominated(preemption) => {
                wrapper.phase = Phase::Nominated(preemption.clone());
                let (key, priority_milli) = (gang.key.clone(), gang.priority);
                for victim in preemption.victims.clone() {
                    let by = Preemptor {
                        uid: uid.to_owned(),
                        key: key.clone(),
                        priority_milli,
                        reason: victim.reason,
                    };
                    self.stop_victim(&victim.uid, &by, applied);
                }
            }
            GangState::Waiting | GangState::Unplaced => {}
        }
    }

    /// Updates a Workload from the state of its gang in the World, and stops its victims.
    fn apply_to_workload(&mut self, uid: &str, applied: &mut AppliedPlan) {
        let was_nominated = self.workload(uid).is_some_and(WorkloadRow::is_nominated);
        let preemption = self.sync_workload(uid);
        let waits = self.world.gang(uid).is_some_and(|gang| gang.state == GangState::Waiting);
        applied.has_lost_nominations |= was_nominated && waits;
        let Some(preemption) = preemption else { return };
        let Some(gang) = self.world.gang(uid) else { return };
        let (key, priority_milli) = (gang.key.clone(), gang.priority);
        for victim in preemption.victims {
            let by =
                Preemptor { uid: uid.to_owned(), key: key.clone(), priority_milli, reason: victim.reason };
            self.stop_victim(&victim.uid, &by, applied);
        }
    }

    /// Stops a victim. A victim that has not started waits again; a victim that is already being stopped does not
    /// change.
    fn stop_victim(&mut self, uid: &str, by: &Preemptor, applied: &mut AppliedPlan) {
        if self.is_workload(uid) {
            self.sync_workload(uid);
            self.evict_workload(uid, Eviction { preemptor: by.uid.clone(), reason: by.reason });
            return;
        }
        self.sync_phase(uid, applied);
        let Some(wrapper) = self.wrappers.get_mut(uid) else { return };
        if let Phase::Starting(places) | Phase::Running(places) = &wrapper.phase {
            wrapper.phase = Phase::Stopping(StopReason::Preempt(Some(by.clone())), places.clone());
            applied.stopped.push(uid.to_owned());
            self.dirty.insert(uid.to_owned());
        }
    }
}
