//! What is read from files, and what is refused.

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

fn refused(read: Result<Trace, Error>, expected: &Expect) {
    expected.assert_eq(&read.expect_err("it cannot be read").to_string());
}

#[test]
fn a_log_with_one_bad_number_is_refused_as_a_whole() {
    let good = "1 0 -1 10 4 -1 -1 4 20 -1 1 1 1 -1 -1 -1 -1 -1\n";
    refused(
        log(&format!("; comment\n{good}2 5 -1 1O 4 -1 -1 4 20 -1 1 1 1 -1 -1 -1 -1 -1\n")),
        &expect!["log.swf:3:8: run time is `1O`, which is not a number of seconds"],
    );
    refused(
        log(&format!("{good}{good}  3 5 -1 10 4.5 -1 -1 4 20 -1 1 1 1 -1 -1 -1 -1 -1\n")),
        &expect![
            "log.swf:3:13: allocated processors is `4.5`, which is not a whole number that can be counted with"
        ],
    );
    refused(log("1 0 -1 10 4\n"), &expect!["log.swf:1:1: the line has 5 fields instead of 18"]);
    refused(log("; only comments\n"), &expect!["log.swf holds no jobs that can be replayed"]);
}

#[test]
fn jobs_that_a_log_says_too_little_about_are_left_out_and_counted() {
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
fn a_job_without_an_estimate_declares_what_it_runs() {
    let trace = log("1 0 -1 10 4 -1 -1 -1 -1 -1 1 1 1 -1 -1 -1 -1 -1
                     2 0 -1 10 4 -1 -1  8 20 -1 1 1 1 -1 -1 -1 -1 -1")
    .unwrap();
    let read: Vec<_> = trace.jobs.iter().map(|job| (job.declared_us / 1_000_000, job.width)).collect();
    assert_eq!(read, [(10, 4), (20, 8)]);
}

#[test]
fn a_table_may_have_its_columns_in_any_order_but_needs_them() {
    let trace = table("cluster,num_gpus,duration,timestamp\na,12,3.5,2017-10-09 07:01:55\n").unwrap();
    let sets: Vec<_> = trace.jobs[0].pod_sets.iter().map(|set| (set.name.as_str(), set.count)).collect();
    assert_eq!((trace.jobs[0].runs_us, sets), (3_500_000, vec![("whole", 1), ("rest", 1)]));
    refused(table("timestamp,duration\n"), &expect!["philly.csv:1:1: the header names no column `num_gpus`"]);
    refused(
        table("timestamp,duration,num_gpus\n"),
        &expect!["philly.csv holds no jobs that can be replayed"],
    );
    refused(table(""), &expect!["philly.csv holds no header"]);
}

#[test]
fn a_table_with_one_bad_field_is_refused_as_a_whole() {
    let header = "timestamp,duration,num_gpus\n2017-10-09 07:01:55,1,1\n";
    refused(
        table(&format!("{header}2017-13-09 07:01:55,1,1\n")),
        &expect![
            "philly.csv:3:1: timestamp is `2017-13-09 07:01:55`, which is not a time such as 2017-10-09 07:01:55"
        ],
    );
    refused(
        table(&format!("{header}2017-10-09 07:01:55,-,1\n")),
        &expect!["philly.csv:3:21: duration is `-`, which is not a number of seconds"],
    );
    refused(
        table(&format!("{header}2017-10-09 07:01:55,1,-1\n")),
        &expect!["philly.csv:3:23: num_gpus is `-1`, which is not a whole number that can be counted with"],
    );
    refused(
        table(&format!("{header}2017-10-09 07:01:55,1\n")),
        &expect!["philly.csv:3:1: the line has 2 fields instead of 3"],
    );
    refused(
        table(&format!("{header}\"2017-10-09 07:01:55\",1,1\n")),
        &expect!["philly.csv:3:1: quoted fields are not supported"],
    );
}

#[test]
fn a_compressed_file_reads_as_its_text_and_half_of_one_is_refused() {
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
