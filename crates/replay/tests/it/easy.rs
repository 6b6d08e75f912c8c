//! Compares replays on one machine with an independent simulation of EASY backfill that shares no code with the planner.

use std::fmt::Write as _;

use proptest::prelude::*;
use replay::{Order, Source, replay, swf};

/// A job that requests one resource; times in seconds.
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
        .expect("writing to a string succeeds");
    }
    log
}

fn replayed(jobs: &[Job], processors: u32, order: Order) -> Vec<i64> {
    let trace = swf::read(&Source::new("random.swf", log(jobs)), processors).expect("the log is well formed");
    let outcome = replay(&trace, order, true, |_| ()).expect("every plan passes the audit");
    let unexplained = outcome.reserved_starts.slips.iter().find(|slip| !slip.overrun);
    assert_eq!(unexplained, None, "a reserved start slipped although no job ran longer than declared");
    outcome.starts.iter().map(|start| start.expect("every job fits the machine").0 / 1_000_000).collect()
}

/// The reference simulation, after Mu'alem and Feitelson, "Utilization, Predictability, Workloads, and User Runtime Estimates
/// in Scheduling the IBM SP2 with Backfilling", TPDS 2001, section 2.2. The jobs are sorted by submit time.
fn reference(jobs: &[Job], processors: u32, order: Order) -> Vec<i64> {
    let mut starts: Vec<Option<i64>> = vec![None; jobs.len()];
    let mut times: Vec<i64> = jobs.iter().map(|job| job.submitted).collect();
    while let Some(now) = times.iter().copied().min() {
        times.retain(|time| *time > now);
        let mut blocked = false; // A job is blocked, and no later job may pass it.
        let mut head: Option<(i64, u32)> = None; // The shadow time and the extra processors of the first blocked job.
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
            let starts_now = !blocked
                && job.width <= free
                && head.is_none_or(|(shadow, extra)| now + job.declared <= shadow || job.width <= extra);
            if starts_now {
                starts[at] = Some(now);
                times.extend((job.runs > 0).then_some(now + job.runs));
                if let Some((shadow, extra)) = &mut head
                    && now + job.declared > *shadow
                {
                    *extra -= job.width;
                }
            } else if order == Order::Strict {
                blocked = true;
            } else if order == Order::Backfill && head.is_none() {
                let free_at = |time: i64| {
                    free + running.iter().filter(|(end, _)| *end <= time).map(|(_, width)| width).sum::<u32>()
                };
                let shadow =
                    running.iter().map(|(end, _)| *end).filter(|end| free_at(*end) >= job.width).min();
                let shadow = shadow.expect("the job fits on the empty machine");
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

/// Jobs whose declared run times are independent of their run times.
fn overrunning() -> impl Strategy<Value = Vec<Job>> {
    let job =
        (0..40_i64, 1..30_i64, 1..30_i64, 1..=PROCESSORS).prop_map(|(submitted, runs, declared, width)| {
            Job { submitted: submitted * 10, runs: runs * 20, declared: declared * 20, width }
        });
    prop::collection::vec(job, 1..24).prop_map(|mut jobs| {
        jobs.sort_by_key(|job| job.submitted);
        jobs
    })
}

fn job((submitted, runs, declared, width): (i64, i64, i64, u32)) -> Job {
    Job { submitted, runs, declared, width }
}

#[test]
fn an_estimated_start_does_not_move_while_the_estimate_of_an_overdue_job_ages() {
    let jobs = [(50, 240, 20, 7), (50, 20, 200, 2), (70, 20, 200, 2)].map(job);
    assert_eq!(replayed(&jobs, PROCESSORS, Order::Backfill), [50, 290, 290]);
}

/// The eighth job is queued behind the fifth. The start of the fifth is unknown while overdue jobs that passed it run.
#[test]
fn a_job_queued_behind_a_job_of_unknown_start_receives_no_firm_reservation() {
    let jobs = [
        (0, 20, 20, 1),
        (0, 20, 20, 1),
        (70, 320, 500, 1),
        (100, 300, 20, 2),
        (110, 20, 280, 6),
        (110, 300, 300, 4),
        (130, 260, 20, 2),
        (160, 40, 180, 4),
        (160, 20, 20, 1),
        (180, 520, 20, 3),
    ]
    .map(job);
    replayed(&jobs, PROCESSORS, Order::Backfill);
}

#[test]
fn jobs_retried_after_a_reserved_start_moved_are_considered_in_queue_order() {
    let jobs = [(0, 20, 20, 1), (0, 300, 60, 3), (0, 20, 20, 6), (60, 20, 140, 3), (280, 20, 20, 1)].map(job);
    assert_eq!(replayed(&jobs, PROCESSORS, Order::Backfill), [0, 0, 300, 280, 280]);
}

#[test]
fn a_job_queued_behind_an_equal_job_of_unknown_start_receives_no_reservation() {
    let jobs = [(0, 120, 20, 1), (0, 20, 60, 8), (110, 240, 20, 1), (110, 20, 60, 8)].map(job);
    assert_eq!(replayed(&jobs, PROCESSORS, Order::Backfill), [0, 350, 110, 370]);
}

/// When the fourth job receives its reserved start, the third job is overdue, and its estimated end is that same time.
#[test]
fn no_job_is_backfilled_on_the_estimated_end_of_an_overdue_job() {
    let jobs = [
        (0, 180, 220, 4),
        (30, 140, 180, 1),
        (30, 140, 60, 1),
        (70, 20, 20, 3),
        (90, 20, 80, 1),
        (150, 20, 20, 1),
        (160, 20, 20, 1),
    ]
    .map(job);
    replayed(&jobs, PROCESSORS, Order::Backfill);
}

fn config() -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn backfill_starts_every_job_when_the_reference_does(jobs in jobs()) {
        prop_assert_eq!(replayed(&jobs, PROCESSORS, Order::Backfill), reference(&jobs, PROCESSORS, Order::Backfill));
    }

    #[test]
    fn best_effort_starts_every_job_when_the_reference_does(jobs in jobs()) {
        prop_assert_eq!(replayed(&jobs, PROCESSORS, Order::BestEffort), reference(&jobs, PROCESSORS, Order::BestEffort));
    }

    #[test]
    fn a_strict_queue_starts_every_job_when_the_reference_does(jobs in jobs()) {
        prop_assert_eq!(replayed(&jobs, PROCESSORS, Order::Strict), reference(&jobs, PROCESSORS, Order::Strict));
    }

    #[test]
    fn plans_pass_the_audit_when_jobs_run_longer_than_declared(jobs in overrunning()) {
        replayed(&jobs, PROCESSORS, Order::Backfill);
    }
}
