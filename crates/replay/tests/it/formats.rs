//! The readers of the trace formats, and the errors for invalid files.

use std::io::Write as _;
use std::num::NonZeroU32;

use expect_test::{Expect, expect};
use flate2::Compression;
use flate2::write::GzEncoder;
use replay::{Error, LeftOut, Source, Trace, philly, swf};

fn log(text: &str) -> Result<Trace, Error> {
    swf::read(&Source::new("log.swf", text), 16)
}

fn table(text: &str) -> Result<Trace, Error> {
    let shape =
        philly::Shape { nodes: NonZeroU32::MIN.saturating_add(1), gpus: NonZeroU32::MIN.saturating_add(7) };
    philly::read(&Source::new("philly.csv", text), shape)
}

fn rejected(read: Result<Trace, Error>, expected: &Expect) {
    expected.assert_eq(&read.expect_err("the text is invalid").to_string());
}

#[test]
fn a_log_with_one_invalid_number_is_rejected() {
    let good = "1 0 -1 10 4 -1 -1 4 20 -1 1 1 1 -1 -1 -1 -1 -1\n";
    rejected(
        log(&format!("; comment\n{good}2 5 -1 1O 4 -1 -1 4 20 -1 1 1 1 -1 -1 -1 -1 -1\n")),
        &expect!["log.swf:3:8: run time is `1O`, which is not a number of seconds"],
    );
    rejected(
        log(&format!("{good}{good}  3 5 -1 10 4.5 -1 -1 4 20 -1 1 1 1 -1 -1 -1 -1 -1\n")),
        &expect!["log.swf:3:13: allocated processors is `4.5`, which is not an integer in range"],
    );
    rejected(log("1 0 -1 10 4\n"), &expect!["log.swf:1:1: the line has 5 fields instead of 18"]);
    rejected(log("; only comments\n"), &expect!["log.swf has no jobs that can be replayed"]);
}

#[test]
fn jobs_with_unknown_run_time_or_width_and_jobs_wider_than_the_machine_are_skipped_and_counted() {
    let trace = log("1 0 -1 10  4 -1 -1  4 20 -1 1 1 1 -1 -1 -1 -1 -1
                     2 0 -1 -1  4 -1 -1  4 20 -1 5 1 1 -1 -1 -1 -1 -1
                     3 0 -1 10 -1 -1 -1 -1 20 -1 1 1 1 -1 -1 -1 -1 -1
                     4 0 -1 10 17 -1 -1 17 20 -1 1 1 1 -1 -1 -1 -1 -1")
    .unwrap();
    assert_eq!(trace.jobs.len(), 1);
    let left_out = [(LeftOut::UnknownRunTime, 1), (LeftOut::UnknownWidth, 1), (LeftOut::TooWide, 1)];
    assert_eq!(trace.left_out, left_out.into());
}

#[test]
fn the_declared_run_time_is_the_run_time_when_a_job_has_no_estimate() {
    let trace = log("1 0 -1 10 4 -1 -1 -1 -1 -1 1 1 1 -1 -1 -1 -1 -1
                     2 0 -1 10 4 -1 -1  8 20 -1 1 1 1 -1 -1 -1 -1 -1")
    .unwrap();
    let read: Vec<_> = trace.jobs.iter().map(|job| (job.declared_us / 1_000_000, job.width)).collect();
    assert_eq!(read, [(10, 4), (20, 8)]);
}

#[test]
fn a_table_is_read_with_columns_in_any_order_and_rejected_when_one_is_missing() {
    let trace = table("cluster,num_gpus,duration,timestamp\na,12,3.5,2017-10-09 07:01:55\n").unwrap();
    let sets: Vec<_> = trace.jobs[0].pod_sets.iter().map(|set| (set.name.as_str(), set.count)).collect();
    assert_eq!((trace.jobs[0].runs_us, sets), (3_500_000, vec![("whole", 1), ("rest", 1)]));
    rejected(table("timestamp,duration\n"), &expect!["philly.csv:1:1: the header has no column `num_gpus`"]);
    rejected(table("timestamp,duration,num_gpus\n"), &expect!["philly.csv has no jobs that can be replayed"]);
    rejected(table(""), &expect!["philly.csv has no header"]);
}

#[test]
fn a_table_with_one_invalid_field_is_rejected() {
    let header = "timestamp,duration,num_gpus\n2017-10-09 07:01:55,1,1\n";
    rejected(
        table(&format!("{header}2017-13-09 07:01:55,1,1\n")),
        &expect![
            "philly.csv:3:1: timestamp is `2017-13-09 07:01:55`, which is not a time such as 2017-10-09 07:01:55"
        ],
    );
    rejected(
        table(&format!("{header}2017-10-09 07:01:55,-,1\n")),
        &expect!["philly.csv:3:21: duration is `-`, which is not a number of seconds"],
    );
    rejected(
        table(&format!("{header}2017-10-09 07:01:55,1,-1\n")),
        &expect!["philly.csv:3:23: num_gpus is `-1`, which is not an integer in range"],
    );
    rejected(
        table(&format!("{header}2017-10-09 07:01:55,1\n")),
        &expect!["philly.csv:3:1: the line has 2 fields instead of 3"],
    );
    rejected(
        table(&format!("{header}\"2017-10-09 07:01:55\",1,1\n")),
        &expect!["philly.csv:3:1: quoted fields are not supported"],
    );
}

#[test]
fn a_gzip_file_is_decompressed_and_a_truncated_one_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.swf.gz");
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    packed.write_all(b"1 0 -1 10 4 -1 -1 4 20 -1 1 1 1 -1 -1 -1 -1 -1\n").unwrap();
    let packed = packed.finish().unwrap();
    std::fs::write(&path, &packed).unwrap();
    assert_eq!(swf::read(&Source::open(&path).unwrap(), 16).unwrap().jobs.len(), 1);
    std::fs::write(&path, &packed[..packed.len() / 2]).unwrap();
    assert!(matches!(Source::open(&path), Err(Error::Unreadable { .. })));
}
