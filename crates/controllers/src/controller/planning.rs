//! Plans when the world has changed, until nothing more is to be decided.

use api::MicroTime;
use index::{AppliedPlan, Index};
use model::{Plan, Reservation, Time};
use tokio::time::Instant;

use super::{State, decisions};
use crate::config::Inspect;
use crate::meter::Meter;

/// Maximum number of consecutive plans without a new observation.
const PLANS_PER_ROUND_MAX: usize = 16;

impl State {
    /// Plans if the world has changed since the last plan, or if the start of a reservation is due.
    pub(super) fn plan(&mut self) {
        let shared = self.index.clone();
        let mut index = Self::index(&shared);
        let now = self.now();
        index.set_clock(now);
        self.next_node_retry = index.expire_node_exclusions(now);
        self.next_daemon_pod_end = index.expect_daemon_pods(now);
        index.observe_overruns(now);
        if let Some(record) = index.take_changed_overruns() {
            self.overruns.keep(record);
        }
        if !self.has_synced {
            return;
        }
        index.settle();
        let has_departures = self.departures.due().is_some_and(|due| due <= now);
        if has_departures || self.planned_generation != Some(index.world().generation()) {
            self.departures.release(&mut index, now);
        }
        let has_changed = self.planned_generation != Some(index.world().generation());
        let is_due = self.next_reserved_start.is_some_and(|start| start <= now);
        if !(has_changed || is_due) {
            return;
        }
        let (applied, planned) =
            plan_until_settled(&mut index, now, self.config.inspect.as_ref(), Some(&self.config.meter));
        for uid in applied.started {
            self.failures.remove(&uid);
        }
        for uid in applied.stopped {
            self.permissions.step_allowed(&uid);
            if let Some(step) = self.in_flight.get(&uid) {
                step.cancelled.notify_one();
            }
        }
        self.planned_generation = Some(planned);
        let due = index.world().reserved().iter().flat_map(Reservation::due).map(|due| MicroTime(due.0));
        self.next_reserved_start = due.filter(|due| *due > now).min();
    }
}

/// Plans until another plan without new observations would decide nothing more. Returns what all plans have started and
/// stopped, and the generation of the world that the last one has taken into account.
pub(super) fn plan_until_settled(
    index: &mut Index,
    now: MicroTime,
    inspect: Option<&Inspect>,
    meter: Option<&Meter>,
) -> (AppliedPlan, u64) {
    let (mut all, mut planned) = (AppliedPlan::default(), index.world().generation());
    for _ in 0..PLANS_PER_ROUND_MAX {
        let snapshot = index.world().snapshot(Time(now.0));
        let begun = Instant::now();
        let plan: Plan = planner::plan(&snapshot);
        if let Some(meter) = meter {
            let took = begun.elapsed();
            meter.took("plan_duration_seconds", &[], took);
            decisions::planned(meter, index, &plan, took);
        }
        if let Some(inspect) = inspect {
            inspect(&snapshot, &plan);
        }
        let applied = index.apply_plan(plan);
        if let Some(meter) = meter {
            decisions::applied(meter, index, &applied);
        }
        let AppliedPlan { started, stopped, has_lost_nominations } = applied;
        planned = index.world().generation();
        index.settle();
        all.started.extend(started);
        all.stopped.extend(stopped);
        // A gang that got a place of a scale-up may ask for the next one. What the plan has lent may be reclaimed at once.
        let has_lent = index.world().trees_with_more_borrowed().next().is_some();
        if !has_lost_nominations && !has_lent && index.world().generation() == planned {
            break;
        }
    }
    (all, planned)
}
