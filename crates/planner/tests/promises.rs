//! Starts that are promised at once: kept as long as everybody does what was declared.

#![allow(clippy::needless_raw_string_hashes, reason = "this is how expect-test writes what it updates")]
#![allow(clippy::format_push_string, reason = "stories are told line by line")]

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::check;
use expect_test::expect;
use model::{Event, Gang, GangState, Time, Verdict, World};
use proptest::prelude::*;

#[test]
fn the_first_two_that_wait_are_promised_starts_and_nobody_delays_either() {
    // It is 1000 s. Wide needs both nodes, at 1500 s. With one promise, next would be delayed by long.
    let world = |heads: &str| {
        format!(
            "policy   backfill={heads}
             node     a 2x     cpu=4
             running  r        started=0 runs=1500 main 1x cpu=4 on=a-1
             running  s        started=0 runs=1200 main 1x cpu=2 on=a-2
             pending  wide     runs=100 main 2x cpu=4
             pending  next     runs=200 main 1x cpu=4
             pending  long     runs=450 main 1x cpu=2
             pending  short    runs=150 main 1x cpu=2"
        )
    };
    check(
        &world("conservative:1"),
        &expect![[r#"
        wide  wait  main: needs 4 cpu on one node; 1 node has 2 free (not before 1500 s, when r ends)
        next  wait  main: needs 4 cpu on one node; 1 node has 2 free (not before 1200 s, when s ends)
        long  admit  main on a-2
        short  wait  main: needs 2 cpu on one node; none of 2 eligible nodes has any free (not before 1200 s, when s ends)
    "#]],
    );
    check(
        &world("conservative:2"),
        &expect![[r#"
        wide  wait  main: needs 4 cpu on one node; 1 node has 2 free (not before 1500 s, when r ends)
        next  wait  main: needs 4 cpu on one node; 1 node has 2 free (not before 1200 s, when s ends)
        long  wait  fits, but would delay default/next, which goes first
        short  admit  main on a-2
    "#]],
    );
}

/// What a gang asks for: when it comes, its pods, what each of them needs, and how long it runs, in seconds.
type Job = (i64, u32, i64, i64);

/// What was promised: a start for each gang.
fn promises(world: &World) -> BTreeMap<String, Time> {
    let declared = world.reserved().iter().filter(|reserved| reserved.declared);
    declared.map(|reserved| (reserved.gang.clone(), reserved.start)).collect()
}

/// Lets gangs come, start where they are planned and end when they declared, and tells every promise that is not kept.
fn broken(heads: u32, nodes: &[i64], jobs: &[Job]) -> Vec<String> {
    let mut text = format!("policy backfill=conservative:{heads}\n");
    for (at, cpu) in nodes.iter().enumerate() {
        text.push_str(&format!("node n{at} cpu={cpu}\n"));
    }
    let mut world = scenario::parse(&text).unwrap_or_else(|error| panic!("{error}"));
    let mut moments: BTreeSet<i64> = jobs.iter().map(|(at, ..)| *at).collect();
    let mut ends: BTreeMap<i64, Vec<String>> = BTreeMap::new();
    let mut broken = Vec::new();
    while let Some(second) = moments.pop_first() {
        let now = Time(second * 1_000_000);
        for uid in ends.remove(&second).unwrap_or_default() {
            world.apply(Event::GangRemoved(uid));
        }
        for (name, (_, pods, cpu, runs)) in jobs.iter().enumerate().filter(|(_, job)| job.0 == second) {
            let text = format!("pending g{name} at={second} runs={runs} main {pods}x cpu={cpu}");
            for gang in scenario::gangs(&mut world, &text).unwrap_or_default() {
                world.apply(Event::GangUpserted(gang));
            }
        }
        let before = promises(&world);
        let snapshot = world.snapshot(now);
        let plan = planner::plan(&snapshot);
        broken.extend(audit::violations(&snapshot, &plan).iter().map(ToString::to_string));
        let started: Vec<String> = plan
            .verdicts
            .iter()
            .filter(|(_, verdict)| matches!(verdict, Verdict::Admit(_)))
            .map(|(uid, _)| uid.clone())
            .collect();
        world.apply(Event::Planned(plan));
        for uid in &started {
            let gang = Gang { started_at: Some(now), ..world.gang(uid).cloned().unwrap_or_default() };
            let end = second + gang.runs_us.unwrap_or_default() / 1_000_000;
            ends.entry(end).or_default().push(uid.clone());
            moments.insert(end);
            world.apply(Event::GangUpserted(gang));
        }
        let after = promises(&world);
        for (uid, start) in before {
            let waits = world.gang(&uid).is_some_and(|gang| gang.state == GangState::Waiting);
            if waits && after.get(&uid).is_none_or(|later| *later > start) {
                broken.push(format!(
                    "{uid} was promised {start:?} and has {:?} at {second} s",
                    after.get(&uid)
                ));
            }
        }
    }
    broken
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nobody_is_late_when_all_end_as_declared_and_nobody_goes_first(
        heads in 1..5_u32,
        nodes in prop::collection::vec(1..6_i64, 1..4),
        jobs in prop::collection::vec((0..60_i64, 1..4_u32, 1..5_i64, 1..40_i64), 1..24),
    ) {
        let broken = broken(heads, &nodes, &jobs);
        prop_assert!(broken.is_empty(), "{}", broken.join("\n"));
    }
}
