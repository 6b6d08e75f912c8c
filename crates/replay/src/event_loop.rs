//! The event loop of a replay: jobs arrive as in the trace, start when the planner admits them, and end after the run time
//! of the trace.

use std::collections::BTreeSet;

use model::{Event, Gang, GangKey, Reservation, Time};

use crate::reserved_starts::{ReservedStarts, SlipTracker};
use crate::simulation::{InvalidPlan, Order, Simulation, admitted};
use crate::trace::{Job, Trace};

/// The result of a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The start of each job of the trace; `None` for a job that never starts.
    pub starts: Vec<Option<Time>>,
    /// The reserved starts of pending jobs and their slips.
    pub reserved_starts: ReservedStarts,
    /// The number of scheduling cycles.
    pub plans: usize,
}

/// Replays a trace. After each scheduling cycle, `progress` receives the number of jobs that have started.
///
/// # Errors
/// With `audit`, the auditor checks every plan, which is slow. The first plan that violates a rule ends the replay.
pub fn replay(
    trace: &Trace,
    order: Order,
    audit: bool,
    mut progress: impl FnMut(usize),
) -> Result<Outcome, InvalidPlan> {
    let mut events = EventLoop::new(trace, order, audit);
    while let Some(now) = events.next_event() {
        events.complete_jobs(now);
        events.submit_jobs(now);
        events.schedule(now)?;
        progress(events.started);
    }
    Ok(Outcome {
        starts: events.starts,
        reserved_starts: events.slips.into_reserved_starts(),
        plans: events.plans,
    })
}

struct EventLoop<'t> {
    trace: &'t Trace,
    simulation: Simulation,
    /// The number of jobs that have arrived; the index of the next arrival.
    submitted: usize,
    /// The number of jobs that have started.
    started: usize,
    starts: Vec<Option<Time>>,
    /// The running jobs, by completion time.
    ends: BTreeSet<(Time, usize)>,
    /// The running jobs that are still within their declared run time, by the declared end.
    declared_ends: BTreeSet<(Time, usize)>,
    /// The earliest reserved start: the next time at which to run a scheduling cycle without another event.
    wake: Option<Time>,
    slips: SlipTracker,
    plans: usize,
}

impl<'t> EventLoop<'t> {
    fn new(trace: &'t Trace, order: Order, audit: bool) -> Self {
        let mut simulation = Simulation::new(trace.cluster.clone(), order.policy(), audit);
        simulation.world.apply(Event::QueueUpserted(order.queue()));
        Self {
            trace,
            simulation,
            submitted: 0,
            started: 0,
            starts: vec![None; trace.jobs.len()],
            ends: BTreeSet::new(),
            declared_ends: BTreeSet::new(),
            wake: None,
            slips: SlipTracker::default(),
            plans: 0,
        }
    }

    /// The time of the next event: an arrival, a completion or a reserved start.
    fn next_event(&self) -> Option<Time> {
        let arrival = self.trace.jobs.get(self.submitted).map(|job| job.submitted);
        let end = self.ends.first().map(|(end, _)| *end);
        arrival.into_iter().chain(end).chain(self.wake).min()
    }

    /// Removes the jobs that have completed, and records the jobs that overrun their declared run time.
    fn complete_jobs(&mut self, now: Time) {
        while let Some(&(end, at)) = self.ends.first().filter(|(end, _)| *end <= now) {
            let job = &self.trace.jobs[at];
            self.declared_ends.remove(&(end.after(-job.runs_us).after(job.declared_us), at));
            self.ends.pop_first();
            self.simulation.world.apply(Event::GangRemoved(uid(at)));
        }
        while self.declared_ends.first().is_some_and(|(end, _)| *end <= now) {
            self.declared_ends.pop_first();
            self.slips.job_overran(now);
        }
    }

    /// Queues the jobs that have arrived.
    fn submit_jobs(&mut self, now: Time) {
        while let Some(job) = self.trace.jobs.get(self.submitted).filter(|job| job.submitted <= now) {
            self.simulation.world.apply(Event::GangUpserted(gang(self.submitted, job)));
            self.submitted += 1;
        }
    }

    /// Runs one scheduling cycle and starts the admitted jobs.
    fn schedule(&mut self, now: Time) -> Result<(), InvalidPlan> {
        let plan = self.simulation.run_cycle(now)?;
        self.plans += 1;
        for at in admitted(&plan).filter_map(index) {
            let job = &self.trace.jobs[at];
            self.started += 1;
            self.starts[at] = Some(now);
            self.ends.insert((now.after(job.runs_us), at));
            self.declared_ends.insert((now.after(job.declared_us), at));
            self.slips.job_started(at, now);
        }
        for Reservation { gang, start, declared, .. } in &plan.reserved {
            if let Some(at) = index(gang) {
                self.slips.start_reserved(at, now, *start, *declared);
            }
        }
        self.wake = plan.reserved.iter().flat_map(Reservation::due).filter(|start| *start > now).min();
        Ok(())
    }
}

/// The gang of a job. The planner breaks ties by name, so the name keeps jobs with equal submit times in trace order.
fn gang(at: usize, job: &Job) -> Gang {
    Gang {
        key: GangKey { kind: "jobs".into(), namespace: "trace".into(), name: uid(at) },
        uid: uid(at),
        queued_at: job.submitted,
        pod_sets: job.pod_sets.clone(),
        runs_us: Some(job.declared_us),
        ..Gang::default()
    }
}

fn uid(at: usize) -> String {
    format!("{at:010}")
}

fn index(uid: &str) -> Option<usize> {
    uid.parse().ok()
}
