//! On one machine of equal processors, replays agree with a tiny simulation that shares no code with the planner.

use std::fmt::Write as _;

use proptest::prelude::*;
use replay::{Order, Source, replay, swf};

/// A job of one resource; times in seconds.
#[derive(Clone, Copy, Debug)]
struct Job {
    submitted: i64,
    runs: i64,
    declared: i64,
    width: u32,
}

fn log(jobs: &[Job]) -> String {
    let mut log = "; Version: 2\n".to_owned();
    for (at, Job { submitted, runs, declared, width }) in jobs.iter().enumerate() {
        writeln!(
            log,
            "{} {submitted} -1 {runs} {width} -1 -1 {width} {declared} -1 1 1 1 -1 -1 -1 -1 -1",
            at + 1
        )
        .expect("text takes all");
    }
    log
}

fn replayed(jobs: &[Job], processors: u32, order: Order) -> Vec<i64> {
    let trace = swf::read(&Source::new("random.swf", log(jobs)), processors).expect("the log is well formed");
    let outcome = replay(&trace, order, true, |_| ()).expect("no plan breaks a rule");
    let unexplained = outcome.promises.slips.iter().find(|slip| !slip.overrun);
    assert_eq!(unexplained, None, "a promised start moved without a cause");
    outcome.starts.iter().map(|start| start.expect("every job fits the machine").0 / 1_000_000).collect()
}

/// The textbook: Mu'alem and Feitelson, "Utilization, Predictability, Workloads, and User Runtime Estimates in Scheduling
/// the IBM SP2 with Backfilling", TPDS 2001, section 2.2. Jobs come in the order of their submission.
fn textbook(jobs: &[Job], processors: u32, reserve: bool) -> Vec<i64> {
    let mut starts: Vec<Option<i64>> = vec![None; jobs.len()];
    let mut times: Vec<i64> = jobs.iter().map(|job| job.submitted).collect();
    while let Some(now) = times.iter().copied().min() {
        times.retain(|time| *time > now);
        let mut head: Option<(i64, u32)> = None; // When it starts, and how many processors it leaves over then.
        for at in 0..jobs.len() {
            let job = jobs[at];
            if job.submitted > now || starts[at].is_some() {
                continue;
            }
            let running = |other: usize| starts[other].filter(|start| start + jobs[other].runs > now);
            let running: Vec<(i64, u32)> = (0..jobs.len())
                .filter_map(|other| {
                    running(other).map(|start| (start + jobs[other].declared, jobs[other].width))
                })
                .collect();
            let free = processors - running.iter().map(|(_, width)| width).sum::<u32>();
            let starts_now = job.width <= free
                && head.is_none_or(|(shadow, extra)| now + job.declared <= shadow || job.width <= extra);
            if starts_now {
                starts[at] = Some(now);
                times.extend((job.runs > 0).then_some(now + job.runs));
                if let Some((shadow, extra)) = &mut head
                    && now + job.declared > *shadow
                {
                    *extra -= job.width;
                }
            } else if reserve && head.is_none() {
                let free_at = |time: i64| {
                    free + running.iter().filter(|(end, _)| *end <= time).map(|(_, width)| width).sum::<u32>()
                };
                let shadow =
                    running.iter().map(|(end, _)| *end).filter(|end| free_at(*end) >= job.width).min();
                let shadow = shadow.expect("it fits the empty machine");
                head = Some((shadow, free_at(shadow) - job.width));
            }
        }
    }
    starts.into_iter().map(|start| start.expect("every job starts")).collect()
}

const PROCESSORS: u32 = 8;

fn jobs() -> impl Strategy<Value = Vec<Job>> {
    let job = (0..40_i64, 1..30_i64, 0..20_i64, 1..=PROCESSORS)
        .prop_map(|(submitted, runs, spare, width)| Job { submitted, runs, declared: runs + spare, width });
    prop::collection::vec(job, 1..24).prop_map(|mut jobs| {
        jobs.sort_by_key(|job| job.submitted);
        jobs
    })
}

proptest! {
    #[test]
    fn backfill_starts_every_job_when_the_textbook_does(jobs in jobs()) {
        prop_assert_eq!(replayed(&jobs, PROCESSORS, Order::Backfill), textbook(&jobs, PROCESSORS, true));
    }

    #[test]
    fn best_effort_starts_every_job_when_the_textbook_does(jobs in jobs()) {
        prop_assert_eq!(replayed(&jobs, PROCESSORS, Order::BestEffort), textbook(&jobs, PROCESSORS, false));
    }
}
