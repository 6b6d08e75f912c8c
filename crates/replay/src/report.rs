//! The metrics of a replay, as JSON and as a table.
//!
//! All metrics are computed from the jobs, their starts and their reserved starts, so they do not depend on the scheduler.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;

use model::Time;
use serde::Serialize;

use crate::event_loop::Outcome;
use crate::simulation::Order;
use crate::trace::{Job, LeftOut, Trace, Unit};

/// The metrics of a replay. Times are in seconds, fractions between 0 and 1.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The queueing strategy.
    pub policy: Order,
    /// The number of replayed jobs.
    pub jobs: usize,
    /// The number of jobs of the file that were not replayed, by reason.
    pub left_out: BTreeMap<LeftOut, usize>,
    /// The number of jobs that never started. Only `fragmentation` takes them into account.
    pub never_started: usize,
    /// The unit of job widths.
    pub unit: Unit,
    /// The capacity of the cluster, in this unit.
    pub capacity: u64,
    /// The time from the first arrival to the last completion.
    pub makespan_s: f64,
    /// The allocated fraction of the capacity over the makespan.
    pub utilization: f64,
    /// The fraction of the capacity that was idle while a pending job was no wider than the total idle capacity.
    pub fragmentation: f64,
    /// The mean time from arrival to start.
    pub mean_wait_s: f64,
    /// The longest wait.
    pub max_wait_s: f64,
    /// The mean of (wait + run time) / max(run time, 10 s), at least 1 for each job. After Feitelson, JSSPP 2001.
    pub mean_bounded_slowdown: f64,
    /// The mean wait of the widest 2 % of the jobs.
    pub widest_mean_wait_s: f64,
    /// The longest wait of the widest 2 % of the jobs.
    pub widest_max_wait_s: f64,
    /// The number of jobs with a firm reserved start.
    pub promises: usize,
    /// The number of slips of firm reserved starts.
    pub promised_slips: usize,
    /// The number of slips without a job that exceeded its declared run time.
    pub promised_slips_unexplained: usize,
    /// The longest slip.
    pub promised_slip_max_s: f64,
    /// Always `None` here; only the `openb` protocol measures unallocated GPUs.
    pub unallocated_gpus: Option<f64>,
    /// The jobs by class of width, in ascending order.
    pub classes: Vec<Class>,
    /// The number of scheduling cycles.
    pub plans: usize,
}

/// The jobs of one class of width.
#[derive(Clone, Debug, Serialize)]
pub struct Class {
    /// The least width of the class.
    pub from: u32,
    /// The greatest width of the class.
    pub to: u32,
    /// The number of jobs.
    pub jobs: usize,
    /// The fraction of the total work (width times run time).
    pub share: f64,
    /// The mean wait.
    pub mean_wait_s: f64,
    /// The median wait.
    pub median_wait_s: f64,
    /// The 95th percentile of the wait.
    pub p95_wait_s: f64,
    /// The longest wait.
    pub max_wait_s: f64,
    /// The mean bounded slowdown.
    pub mean_bounded_slowdown: f64,
}

/// A job that started.
struct StartedJob<'t> {
    job: &'t Job,
    start: Time,
}

impl StartedJob<'_> {
    fn wait(&self) -> f64 {
        seconds(self.start.since(self.job.submitted))
    }

    fn end(&self) -> Time {
        self.start.after(self.job.runs_us)
    }

    /// Width times run time.
    fn work(&self) -> f64 {
        f64::from(self.job.width) * seconds(self.job.runs_us)
    }

    fn bounded_slowdown(&self) -> f64 {
        const BOUND_S: f64 = 10.0;
        let run = seconds(self.job.runs_us);
        ((self.wait() + run) / run.max(BOUND_S)).max(1.0)
    }
}

impl Report {
    /// Computes the metrics of a replay.
    pub fn of(trace: &Trace, order: Order, outcome: &Outcome) -> Self {
        let started = trace.jobs.iter().zip(&outcome.starts);
        let ran: Vec<StartedJob<'_>> =
            started.filter_map(|(job, start)| start.map(|start| StartedJob { job, start })).collect();
        let first = trace.jobs.iter().map(|job| job.submitted).min().unwrap_or_default();
        let last = ran.iter().map(StartedJob::end).max().unwrap_or(first);
        let makespan_s = seconds(last.since(first));
        let total = makespan_s * count(trace.capacity);
        let widest = widest(&ran);
        let slips = &outcome.reserved_starts.slips;
        Self {
            policy: order,
            jobs: trace.jobs.len(),
            left_out: trace.left_out.clone(),
            never_started: trace.jobs.len() - ran.len(),
            unit: trace.unit,
            capacity: trace.capacity,
            makespan_s,
            utilization: ratio(ran.iter().map(StartedJob::work).sum(), total),
            fragmentation: ratio(fragmented_work(trace, &outcome.starts), total),
            mean_wait_s: mean(ran.iter().map(StartedJob::wait)),
            max_wait_s: max(ran.iter().map(StartedJob::wait)),
            mean_bounded_slowdown: mean(ran.iter().map(StartedJob::bounded_slowdown)),
            widest_mean_wait_s: mean(widest.iter().map(|ran| ran.wait())),
            widest_max_wait_s: max(widest.iter().map(|ran| ran.wait())),
            promises: outcome.reserved_starts.jobs,
            promised_slips: slips.len(),
            promised_slips_unexplained: slips.iter().filter(|slip| !slip.overrun).count(),
            promised_slip_max_s: max(slips.iter().map(|slip| seconds(slip.by_us))),
            unallocated_gpus: None,
            classes: classes(&ran),
            plans: outcome.plans,
        }
    }
}

/// The widest 2 % of the jobs; of equally wide jobs the earlier ones.
fn widest<'r, 't>(ran: &'r [StartedJob<'t>]) -> Vec<&'r StartedJob<'t>> {
    let mut sorted: Vec<&StartedJob<'_>> = ran.iter().collect();
    sorted.sort_by_key(|ran| Reverse(ran.job.width));
    sorted.truncate(ran.len().div_ceil(50));
    sorted
}

/// Groups the jobs in classes of width that begin at powers of two.
fn classes(ran: &[StartedJob<'_>]) -> Vec<Class> {
    let mut by_size: BTreeMap<u32, Vec<&StartedJob<'_>>> = BTreeMap::new();
    for ran in ran {
        by_size.entry(ran.job.width.max(1).ilog2()).or_default().push(ran);
    }
    let all: f64 = ran.iter().map(StartedJob::work).sum();
    let class = |(size, ran): (u32, Vec<&StartedJob<'_>>)| {
        let mut waits: Vec<f64> = ran.iter().map(|ran| ran.wait()).collect();
        waits.sort_by(f64::total_cmp);
        let at_most = |percent: usize| waits[(waits.len() * percent).div_ceil(100).max(1) - 1];
        Class {
            from: 1 << size,
            to: u32::MAX >> (31 - size),
            jobs: ran.len(),
            share: ratio(ran.iter().map(|ran| ran.work()).sum(), all),
            mean_wait_s: mean(waits.iter().copied()),
            median_wait_s: at_most(50),
            p95_wait_s: at_most(95),
            max_wait_s: at_most(100),
            mean_bounded_slowdown: mean(ran.iter().map(|ran| ran.bounded_slowdown())),
        }
    };
    by_size.into_iter().map(class).collect()
}

/// The idle capacity times seconds while the narrowest pending job was no wider than the total idle capacity.
fn fragmented_work(trace: &Trace, starts: &[Option<Time>]) -> f64 {
    // By time: the change of the idle capacity, and the changes of the number of pending jobs by width.
    let mut changes: BTreeMap<Time, (i64, Vec<(u32, i64)>)> = BTreeMap::new();
    for (job, start) in trace.jobs.iter().zip(starts) {
        changes.entry(job.submitted).or_default().1.push((job.width, 1));
        let Some(start) = *start else { continue };
        let change = changes.entry(start).or_default();
        change.0 -= i64::from(job.width);
        change.1.push((job.width, -1));
        changes.entry(start.after(job.runs_us)).or_default().0 += i64::from(job.width);
    }
    let mut idle = i64::try_from(trace.capacity).unwrap_or(i64::MAX);
    let (mut pending, mut since, mut lost) = (BTreeMap::<u32, i64>::new(), Time::default(), 0.0);
    for (now, (freed, queue)) in changes {
        let narrowest = pending.iter().find(|(_, jobs)| **jobs > 0).map(|(width, _)| i64::from(*width));
        if narrowest.is_some_and(|narrowest| narrowest <= idle) {
            lost += count(idle.unsigned_abs()) * seconds(now.since(since));
        }
        since = now;
        idle += freed;
        for (width, jobs) in queue {
            *pending.entry(width).or_default() += jobs;
        }
        pending.retain(|_, jobs| *jobs != 0);
    }
    lost
}

#[expect(clippy::cast_precision_loss, reason = "figures for people: 52 bits are enough")]
fn seconds(micros: i64) -> f64 {
    micros as f64 / 1e6
}

#[expect(clippy::cast_precision_loss, reason = "figures for people: 52 bits are enough")]
pub(crate) fn count(number: u64) -> f64 {
    number as f64
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

pub(crate) fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (mut sum, mut number) = (0.0, 0_u64);
    for value in values {
        sum += value;
        number += 1;
    }
    ratio(sum, count(number))
}

fn max(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, f64::max)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = self.unit.name();
        writeln!(f, "policy          {}", self.policy.name())?;
        writeln!(f, "cluster         {} {unit}", self.capacity)?;
        write!(f, "jobs            {}", self.jobs)?;
        for (reason, jobs) in &self.left_out {
            write!(f, ", {jobs} left out: {}", reason.text())?;
        }
        writeln!(f)?;
        if self.never_started > 0 {
            writeln!(f, "never started   {}", self.never_started)?;
        }
        writeln!(f, "utilisation     {:.1} %", self.utilization * 100.0)?;
        writeln!(
            f,
            "fragmentation   {:.1} % idle while a pending job was no wider",
            self.fragmentation * 100.0
        )?;
        writeln!(f, "wait            mean {:.0} s, longest {:.0} s", self.mean_wait_s, self.max_wait_s)?;
        writeln!(
            f,
            "widest 2 %      mean {:.0} s, longest {:.0} s",
            self.widest_mean_wait_s, self.widest_max_wait_s
        )?;
        writeln!(f, "slowdown        mean {:.1}, bounded at 10 s", self.mean_bounded_slowdown)?;
        write!(f, "reserved starts {}, slips {}", self.promises, self.promised_slips)?;
        if self.promised_slips > 0 {
            let explained = self.promised_slips - self.promised_slips_unexplained;
            write!(
                f,
                " ({explained} because jobs ran longer than declared, {} unexplained; {:.0} s at most)",
                self.promised_slips_unexplained, self.promised_slip_max_s
            )?;
        }
        writeln!(f, "\n")?;
        writeln!(
            f,
            "{:>12} {:>8} {:>8} {:>12} {:>12} {:>12} {:>12} {:>10}",
            unit, "jobs", "of work", "mean wait s", "median", "95 %", "longest", "slowdown"
        )?;
        for class in &self.classes {
            let width = if class.from == class.to {
                class.from.to_string()
            } else {
                format!("{}-{}", class.from, class.to)
            };
            writeln!(
                f,
                "{width:>12} {:>8} {:>6.1} % {:>12.0} {:>12.0} {:>12.0} {:>12.0} {:>10.1}",
                class.jobs,
                class.share * 100.0,
                class.mean_wait_s,
                class.median_wait_s,
                class.p95_wait_s,
                class.max_wait_s,
                class.mean_bounded_slowdown
            )?;
        }
        Ok(())
    }
}
