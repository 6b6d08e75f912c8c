//! What came of a replay: figures for programs, and a table for people.
//!
//! Everything here is computed from the jobs and their starts alone, so it does not depend on what decided.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;

use model::Time;
use serde::Serialize;

use crate::clock::Outcome;
use crate::stage::Order;
use crate::trace::{Job, LeftOut, Trace, Unit};

/// The figures of a replay. Times are in seconds, shares between 0 and 1.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Who might pass whom.
    pub policy: Order,
    /// How many jobs were replayed.
    pub jobs: usize,
    /// How many jobs of the file were not, by why.
    pub left_out: BTreeMap<LeftOut, usize>,
    /// How many of the jobs never started; they count in no other figure.
    pub never_started: usize,
    /// What widths are counted in.
    pub unit: Unit,
    /// How many of them there are.
    pub capacity: u64,
    /// From the first arrival to the last end.
    pub makespan_s: f64,
    /// The part of the capacity that jobs held, over the makespan.
    pub utilization: f64,
    /// The part of the capacity that was idle while a job waited that asked for no more than was idle in all.
    pub fragmentation: f64,
    /// From arrival to start, of all jobs.
    pub mean_wait_s: f64,
    /// The longest wait of all jobs.
    pub max_wait_s: f64,
    /// Wait and run over run, where a run counts as 10 s at least; of all jobs. After Feitelson, JSSPP 2001.
    pub mean_bounded_slowdown: f64,
    /// The wait of the widest 2 % of the jobs.
    pub widest_mean_wait_s: f64,
    /// The longest wait among these.
    pub widest_max_wait_s: f64,
    /// How many jobs were promised a start.
    pub promises: usize,
    /// How often a promised start moved later.
    pub promised_slips: usize,
    /// How often it did although no job had run longer than it declared.
    pub promised_slips_unexplained: usize,
    /// The largest of these moves.
    pub promised_slip_max_s: f64,
    /// GPUs without a job when as many have been asked for as there are: of the `openb` protocol only.
    pub unallocated_gpus: Option<f64>,
    /// The jobs by width, narrow ones first.
    pub classes: Vec<Class>,
    /// How often was planned.
    pub plans: usize,
}

/// Jobs of about the same width.
#[derive(Clone, Debug, Serialize)]
pub struct Class {
    /// The narrowest width.
    pub from: u32,
    /// The widest width.
    pub to: u32,
    /// How many jobs.
    pub jobs: usize,
    /// Their part of all that was run, in width times time.
    pub share: f64,
    /// Their mean wait.
    pub mean_wait_s: f64,
    /// Half of them waited no longer.
    pub median_wait_s: f64,
    /// 95 % of them waited no longer.
    pub p95_wait_s: f64,
    /// The longest wait among them.
    pub max_wait_s: f64,
    /// Their mean bounded slowdown.
    pub mean_bounded_slowdown: f64,
}

/// A job that started.
struct Ran<'t> {
    job: &'t Job,
    start: Time,
}

impl Ran<'_> {
    fn wait(&self) -> f64 {
        seconds(self.start.since(self.job.submitted))
    }

    fn end(&self) -> Time {
        self.start.after(self.job.runs_us)
    }

    fn area(&self) -> f64 {
        f64::from(self.job.width) * seconds(self.job.runs_us)
    }

    fn bounded_slowdown(&self) -> f64 {
        const BOUND_S: f64 = 10.0;
        let run = seconds(self.job.runs_us);
        ((self.wait() + run) / run.max(BOUND_S)).max(1.0)
    }
}

impl Report {
    /// What came of replaying a trace.
    pub fn of(trace: &Trace, order: Order, outcome: &Outcome) -> Self {
        let started = trace.jobs.iter().zip(&outcome.starts);
        let ran: Vec<Ran<'_>> =
            started.filter_map(|(job, start)| start.map(|start| Ran { job, start })).collect();
        let first = trace.jobs.iter().map(|job| job.submitted).min().unwrap_or_default();
        let last = ran.iter().map(Ran::end).max().unwrap_or(first);
        let makespan_s = seconds(last.since(first));
        let whole = makespan_s * count(trace.capacity);
        let widest = widest(&ran);
        let slips = &outcome.promises.slips;
        Self {
            policy: order,
            jobs: trace.jobs.len(),
            left_out: trace.left_out.clone(),
            never_started: trace.jobs.len() - ran.len(),
            unit: trace.unit,
            capacity: trace.capacity,
            makespan_s,
            utilization: part(ran.iter().map(Ran::area).sum(), whole),
            fragmentation: part(idle_though_wanted(trace, &outcome.starts), whole),
            mean_wait_s: mean(ran.iter().map(Ran::wait)),
            max_wait_s: most(ran.iter().map(Ran::wait)),
            mean_bounded_slowdown: mean(ran.iter().map(Ran::bounded_slowdown)),
            widest_mean_wait_s: mean(widest.iter().map(|ran| ran.wait())),
            widest_max_wait_s: most(widest.iter().map(|ran| ran.wait())),
            promises: outcome.promises.made,
            promised_slips: slips.len(),
            promised_slips_unexplained: slips.iter().filter(|slip| !slip.overrun).count(),
            promised_slip_max_s: most(slips.iter().map(|slip| seconds(slip.by_us))),
            unallocated_gpus: None,
            classes: classes(&ran),
            plans: outcome.plans,
        }
    }
}

/// The widest 2 % of the jobs; among equally wide ones those that came first.
fn widest<'r, 't>(ran: &'r [Ran<'t>]) -> Vec<&'r Ran<'t>> {
    let mut sorted: Vec<&Ran<'_>> = ran.iter().collect();
    sorted.sort_by_key(|ran| Reverse(ran.job.width));
    sorted.truncate(ran.len().div_ceil(50));
    sorted
}

/// Jobs in classes whose bounds are powers of two.
fn classes(ran: &[Ran<'_>]) -> Vec<Class> {
    let mut by_size: BTreeMap<u32, Vec<&Ran<'_>>> = BTreeMap::new();
    for ran in ran {
        by_size.entry(ran.job.width.max(1).ilog2()).or_default().push(ran);
    }
    let all: f64 = ran.iter().map(Ran::area).sum();
    let class = |(size, ran): (u32, Vec<&Ran<'_>>)| {
        let mut waits: Vec<f64> = ran.iter().map(|ran| ran.wait()).collect();
        waits.sort_by(f64::total_cmp);
        let at_most = |percent: usize| waits[(waits.len() * percent).div_ceil(100).max(1) - 1];
        Class {
            from: 1 << size,
            to: u32::MAX >> (31 - size),
            jobs: ran.len(),
            share: part(ran.iter().map(|ran| ran.area()).sum(), all),
            mean_wait_s: mean(waits.iter().copied()),
            median_wait_s: at_most(50),
            p95_wait_s: at_most(95),
            max_wait_s: at_most(100),
            mean_bounded_slowdown: mean(ran.iter().map(|ran| ran.bounded_slowdown())),
        }
    };
    by_size.into_iter().map(class).collect()
}

/// Units times seconds that were idle while the narrowest job that waited asked for no more than was idle.
fn idle_though_wanted(trace: &Trace, starts: &[Option<Time>]) -> f64 {
    // By time: what becomes idle, and which width begins or ceases to wait how often.
    let mut turns: BTreeMap<Time, (i64, Vec<(u32, i64)>)> = BTreeMap::new();
    for (job, start) in trace.jobs.iter().zip(starts) {
        turns.entry(job.submitted).or_default().1.push((job.width, 1));
        let Some(start) = *start else { continue };
        let turn = turns.entry(start).or_default();
        turn.0 -= i64::from(job.width);
        turn.1.push((job.width, -1));
        turns.entry(start.after(job.runs_us)).or_default().0 += i64::from(job.width);
    }
    let mut idle = i64::try_from(trace.capacity).unwrap_or(i64::MAX);
    let (mut waiting, mut since, mut lost) = (BTreeMap::<u32, i64>::new(), Time::default(), 0.0);
    for (now, (freed, queue)) in turns {
        let narrowest = waiting.iter().find(|(_, jobs)| **jobs > 0).map(|(width, _)| i64::from(*width));
        if narrowest.is_some_and(|narrowest| narrowest <= idle) {
            lost += count(idle.unsigned_abs()) * seconds(now.since(since));
        }
        since = now;
        idle += freed;
        for (width, jobs) in queue {
            *waiting.entry(width).or_default() += jobs;
        }
        waiting.retain(|_, jobs| *jobs != 0);
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

fn part(some: f64, whole: f64) -> f64 {
    if whole > 0.0 { some / whole } else { 0.0 }
}

pub(crate) fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (mut sum, mut number) = (0.0, 0_u64);
    for value in values {
        sum += value;
        number += 1;
    }
    part(sum, count(number))
}

fn most(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, f64::max)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = self.unit.name();
        writeln!(f, "policy          {}", self.policy.name())?;
        writeln!(f, "cluster         {} {unit}", self.capacity)?;
        write!(f, "jobs            {}", self.jobs)?;
        for (why, jobs) in &self.left_out {
            write!(f, ", {jobs} left out: {}", why.text())?;
        }
        writeln!(f)?;
        if self.never_started > 0 {
            writeln!(f, "never started   {}", self.never_started)?;
        }
        writeln!(f, "utilisation     {:.1} %", self.utilization * 100.0)?;
        writeln!(f, "fragmentation   {:.1} % idle though wanted", self.fragmentation * 100.0)?;
        writeln!(f, "wait            mean {:.0} s, longest {:.0} s", self.mean_wait_s, self.max_wait_s)?;
        writeln!(
            f,
            "widest 2 %      mean {:.0} s, longest {:.0} s",
            self.widest_mean_wait_s, self.widest_max_wait_s
        )?;
        writeln!(f, "slowdown        mean {:.1}, bounded at 10 s", self.mean_bounded_slowdown)?;
        write!(f, "promised starts {}, moved later {}", self.promises, self.promised_slips)?;
        if self.promised_slips > 0 {
            let explained = self.promised_slips - self.promised_slips_unexplained;
            write!(
                f,
                " ({explained} because jobs ran longer than declared, {} unexplained; by {:.0} s at most)",
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
