//! The loop of a replay: jobs come, start when the planner says so, and end when the trace says so.

use std::collections::BTreeSet;

use model::{Event, Gang, GangKey, Reserved, Time};

use crate::promise::{Promises, Watch};
use crate::stage::{Broken, Order, Stage, admitted};
use crate::trace::{Job, Trace};

/// What became of the jobs of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// When each job started; none for one that never did.
    pub starts: Vec<Option<Time>>,
    /// How the promises made to waiting jobs were kept.
    pub promises: Promises,
    /// How often was planned.
    pub plans: usize,
}

/// Replays a trace. With `audit`, every plan is checked, slowly, and the first wrong one ends the replay. `progress` is
/// told how many jobs have started.
pub fn replay(
    trace: &Trace,
    order: Order,
    audit: bool,
    mut progress: impl FnMut(usize),
) -> Result<Outcome, Broken> {
    let mut clock = Clock::new(trace, order, audit);
    while let Some(now) = clock.next() {
        clock.end(now);
        clock.submit(now);
        clock.plan(now)?;
        progress(clock.started);
    }
    Ok(Outcome { starts: clock.starts, promises: clock.watch.into_promises(), plans: clock.plans })
}

struct Clock<'t> {
    trace: &'t Trace,
    stage: Stage,
    /// How many jobs have come.
    submitted: usize,
    started: usize,
    starts: Vec<Option<Time>>,
    /// The jobs that run, by when they will have ended.
    ends: BTreeSet<(Time, usize)>,
    /// Those of them that have not run longer than they declared, by when they will have.
    declared: BTreeSet<(Time, usize)>,
    /// When the planner wants to be asked again.
    wake: Option<Time>,
    watch: Watch,
    plans: usize,
}

impl<'t> Clock<'t> {
    fn new(trace: &'t Trace, order: Order, audit: bool) -> Self {
        let mut stage = Stage::new(trace.cluster.clone(), order.policy(), audit);
        stage.world.apply(Event::QueueUpserted(order.queue()));
        Self {
            trace,
            stage,
            submitted: 0,
            started: 0,
            starts: vec![None; trace.jobs.len()],
            ends: BTreeSet::new(),
            declared: BTreeSet::new(),
            wake: None,
            watch: Watch::default(),
            plans: 0,
        }
    }

    /// When something happens next.
    fn next(&self) -> Option<Time> {
        let comes = self.trace.jobs.get(self.submitted).map(|job| job.submitted);
        let ends = self.ends.first().map(|(end, _)| *end);
        comes.into_iter().chain(ends).chain(self.wake).min()
    }

    /// Those who end by now leave.
    fn end(&mut self, now: Time) {
        while let Some(&(end, at)) = self.ends.first().filter(|(end, _)| *end <= now) {
            let job = &self.trace.jobs[at];
            self.declared.remove(&(end.after(-job.runs_us).after(job.declared_us), at));
            self.ends.pop_first();
            self.stage.world.apply(Event::GangRemoved(uid(at)));
        }
        while self.declared.first().is_some_and(|(end, _)| *end <= now) {
            self.declared.pop_first();
            self.watch.overran(now);
        }
    }

    /// Those who have come by now are queued.
    fn submit(&mut self, now: Time) {
        while let Some(job) = self.trace.jobs.get(self.submitted).filter(|job| job.submitted <= now) {
            self.stage.world.apply(Event::GangUpserted(gang(self.submitted, job)));
            self.submitted += 1;
        }
    }

    fn plan(&mut self, now: Time) -> Result<(), Broken> {
        let plan = self.stage.decide(now)?;
        self.plans += 1;
        for at in admitted(&plan).filter_map(index) {
            let job = &self.trace.jobs[at];
            self.started += 1;
            self.starts[at] = Some(now);
            self.ends.insert((now.after(job.runs_us), at));
            self.declared.insert((now.after(job.declared_us), at));
            self.watch.started(at, now);
        }
        for Reserved { gang, start, declared, .. } in &plan.reserved {
            if let Some(at) = index(gang) {
                self.watch.told(at, now, *start, *declared);
            }
        }
        self.wake = plan.reserved.iter().map(|reserved| reserved.start).filter(|start| *start > now).min();
        Ok(())
    }
}

/// Jobs of one time stay in the order of the trace, because names break ties.
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
