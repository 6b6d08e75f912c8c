//! Small traces, from text to report.

#![allow(clippy::needless_raw_string_hashes, reason = "this is how expect-test writes what it updates")]

use std::fmt::Write as _;
use std::num::NonZeroU32;

use expect_test::{Expect, expect};
use replay::{Order, Outcome, Report, Source, Trace, philly, replay, swf};

fn machine(processors: u32, text: &str) -> Trace {
    swf::read(&Source::new("log.swf", text), processors).expect("the log is well formed")
}

fn cluster(nodes: u32, gpus: u32, rows: &str) -> Trace {
    let shape = philly::Shape { nodes: count(nodes), gpus: count(gpus) };
    let text = format!("timestamp,duration,num_gpus,gpu_time,cluster\n{rows}");
    philly::read(&Source::new("philly.csv", text), shape).expect("the table is well formed")
}

fn count(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).expect("not zero")
}

fn audited(trace: &Trace, order: Order) -> Outcome {
    replay(trace, order, true, |_| ()).expect("every plan passes the audit")
}

/// Compares the arrival, start and end of each job in trace order, in seconds since the first arrival.
fn check(trace: &Trace, order: Order, expected: &Expect) {
    let outcome = audited(trace, order);
    let mut text = String::new();
    let first = trace.jobs[0].submitted;
    let second = |time: model::Time| time.since(first) / 1_000_000;
    for (job, start) in trace.jobs.iter().zip(&outcome.starts) {
        write!(text, "{} x{} came {}, ", job.name, job.width, second(job.submitted))
            .expect("writing to a string succeeds");
        let ran = start.map(|start| (second(start), second(start.after(job.runs_us))));
        match ran {
            Some((start, end)) => writeln!(text, "ran {start} to {end}"),
            None => writeln!(text, "never started"),
        }
        .expect("writing to a string succeeds");
    }
    expected.assert_eq(&text);
}

/// The second job needs the whole machine.
const WIDE_IN_THE_MIDDLE: &str = "; four processors
    1 0 -1 100 3 -1 -1 3 100 -1 1 1 1 -1 -1 -1 -1 -1
    2 1 -1  50 4 -1 -1 4  50 -1 1 1 1 -1 -1 -1 -1 -1
    3 2 -1 200 1 -1 -1 1 200 -1 1 1 1 -1 -1 -1 -1 -1
    4 3 -1  90 1 -1 -1 1  90 -1 1 1 1 -1 -1 -1 -1 -1";

#[test]
fn narrow_jobs_pass_a_blocked_wide_job_under_best_effort() {
    let expected = expect![[r#"
        1 x3 came 0, ran 0 to 100
        2 x4 came 1, ran 202 to 252
        3 x1 came 2, ran 2 to 202
        4 x1 came 3, ran 100 to 190
    "#]];
    check(&machine(4, WIDE_IN_THE_MIDDLE), Order::BestEffort, &expected);
}

#[test]
fn a_blocked_wide_job_starts_at_its_reserved_start_under_backfill() {
    let expected = expect![[r#"
        1 x3 came 0, ran 0 to 100
        2 x4 came 1, ran 100 to 150
        3 x1 came 2, ran 150 to 350
        4 x1 came 3, ran 3 to 93
    "#]];
    check(&machine(4, WIDE_IN_THE_MIDDLE), Order::Backfill, &expected);
}

#[test]
fn a_reserved_start_slips_with_cause_overrun_when_a_job_exceeds_its_declared_run_time() {
    let trace = machine(
        4,
        "1 0 -1 130 4 -1 -1 4 100 -1 1 1 1 -1 -1 -1 -1 -1
         2 1 -1  50 4 -1 -1 4  50 -1 1 1 1 -1 -1 -1 -1 -1",
    );
    let outcome = audited(&trace, Order::Backfill);
    let slips: Vec<_> = outcome.reserved_starts.slips.iter().map(|slip| (slip.job, slip.overrun)).collect();
    assert_eq!((outcome.reserved_starts.jobs, slips), (1, vec![(1, true)]));
    assert_eq!(outcome.starts[1].unwrap().0, 130_000_000);
}

#[test]
fn a_job_that_fits_only_in_total_waits_for_a_free_node() {
    // Four GPUs are idle, two on each node. The third job needs four GPUs on one node.
    let trace = cluster(
        2,
        4,
        "2017-10-09 07:00:00,100.0,2,200.0,a
         2017-10-09 07:00:00,60.0,3,180.0,a
         2017-10-09 07:00:01,10.0,4,40.0,a
         2017-10-09 07:00:02,10.0,8,80.0,a",
    );
    let expected = expect![[r#"
        2017-10-09 07:00:00/2 x2 came 0, ran 0 to 100
        2017-10-09 07:00:00/3 x3 came 0, ran 0 to 60
        2017-10-09 07:00:01/4 x4 came 1, ran 60 to 70
        2017-10-09 07:00:02/8 x8 came 2, ran 100 to 110
    "#]];
    check(&trace, Order::Backfill, &expected);
}

#[test]
fn a_report_prints_as_a_table_and_as_json() {
    let trace = machine(
        4,
        &format!(
            "{WIDE_IN_THE_MIDDLE}
             5 4 -1 -1 1 -1 -1 1 90 -1 5 1 1 -1 -1 -1 -1 -1
             6 5 -1 10 5 -1 -1 5 90 -1 1 1 1 -1 -1 -1 -1 -1"
        ),
    );
    let report = Report::of(&trace, Order::Backfill, &audited(&trace, Order::Backfill));
    expect![[r#"
        policy          backfill
        cluster         4 processors
        jobs            4, 1 left out: run time unknown, 1 left out: wider than the cluster
        utilisation     56.4 %
        fragmentation   0.6 % idle while a pending job was no wider
        wait            mean 62 s, longest 148 s
        widest 2 %      mean 99 s, longest 99 s
        slowdown        mean 1.7, bounded at 10 s
        reserved starts 2, slips 0

          processors     jobs  of work  mean wait s       median         95 %      longest   slowdown
                   1        2   36.7 %           74            0          148          148        1.4
                 2-3        1   38.0 %            0            0            0            0        1.0
                 4-7        1   25.3 %           99           99           99           99        3.0
    "#]]
    .assert_eq(&report.to_string());
    expect![[r#"{"policy":"backfill","jobs":4,"left_out":{"unknown_run_time":1,"too_wide":1},"never_started":0,"unit":"processors","capacity":4,"makespan_s":350.0,"utilization":0.5642857142857143,"fragmentation":0.005714285714285714,"mean_wait_s":61.75,"max_wait_s":148.0,"mean_bounded_slowdown":1.68,"widest_mean_wait_s":99.0,"widest_max_wait_s":99.0,"promises":2,"promised_slips":0,"promised_slips_unexplained":0,"promised_slip_max_s":0.0,"unallocated_gpus":null,"classes":[{"from":1,"to":1,"jobs":2,"share":0.3670886075949367,"mean_wait_s":74.0,"median_wait_s":0.0,"p95_wait_s":148.0,"max_wait_s":148.0,"mean_bounded_slowdown":1.37},{"from":2,"to":3,"jobs":1,"share":0.379746835443038,"mean_wait_s":0.0,"median_wait_s":0.0,"p95_wait_s":0.0,"max_wait_s":0.0,"mean_bounded_slowdown":1.0},{"from":4,"to":7,"jobs":1,"share":0.25316455696202533,"mean_wait_s":99.0,"median_wait_s":99.0,"p95_wait_s":99.0,"max_wait_s":99.0,"mean_bounded_slowdown":2.98}],"plans":8}"#]].assert_eq(&serde_json::to_string(&report).unwrap());
}
