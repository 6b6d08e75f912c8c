//! Backfill: reservations for gangs that do not fit, and the gangs that may run ahead of them.

#![allow(clippy::needless_raw_string_hashes, reason = "this is how expect-test writes what it updates")]
#![allow(clippy::format_push_string, reason = "the output is built line by line")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{audited, check, parse_world};
use expect_test::expect;
use model::{Event, Time};

#[test]
fn a_reserved_gang_reports_its_start_and_backfill_does_not_delay_it() {
    // The time is 1000 s. Gang `long` ends at 1500 s, `short` at 1200 s.
    check(
        "policy   backfill=reserve
         node     a 2x     cpu=4
         running  long     started=0 runs=1500 main 1x cpu=4 on=a-1
         running  short    started=0 runs=1200 main 1x cpu=2 on=a-2
         pending  large    main 2x cpu=4
         pending  endless  main 1x cpu=1
         pending  slow     runs=501 main 1x cpu=1
         pending  quick    runs=500 main 1x cpu=1",
        &expect![[r#"
            large  wait  main: needs 4 cpu on one node; 1 node has 2 free (not before 1500 s, when long ends)
            endless  wait  fits, but would delay default/large, which goes first
            slow  wait  fits, but would delay default/large, which goes first
            quick  admit  main on a-2
        "#]],
    );
}

#[test]
fn without_a_reservation_smaller_gangs_are_always_admitted_first() {
    check(
        "node     a 2x     cpu=4
         running  long     started=0 runs=1500 main 1x cpu=4 on=a-1
         pending  large    main 2x cpu=4
         pending  endless  main 1x cpu=1",
        &expect![[r#"
            large  wait  main: room for 1 of 2 pods, each needs 4 cpu
            endless  admit  main on a-2
        "#]],
    );
}

#[test]
fn a_gang_that_fits_beside_the_reservation_is_backfilled_whatever_its_run_time() {
    check(
        "policy   backfill=reserve
         node     a 2x     cpu=4
         node     b        cpu=8
         running  long     started=0 runs=1500 main 1x cpu=4 on=a-1
         running  other    started=0 runs=1500 main 1x cpu=7 on=b
         pending  large    main 2x cpu=4
         pending  endless  main 1x cpu=1
         pending  wide     main 1x cpu=3",
        &expect![[r#"
            large  wait  main: room for 1 of 2 pods, each needs 4 cpu; 1 node has 1 left (not before 1500 s, when long ends)
            endless  admit  main on b
            wide  admit  main on a-2
        "#]],
    );
}

#[test]
fn an_undeclared_end_is_estimated_and_reported_as_an_estimate() {
    check(
        "policy   backfill=reserve
         node     a        cpu=4
         running  r        started=400 main 1x cpu=4 on=a
         pending  g        main 1x cpu=4",
        &expect![[r#"
            g  wait  main: needs 4 cpu on one node; the only eligible node has none free (not before ~1600 s, when r ends)
        "#]],
    );
}

#[test]
fn gangs_ahead_of_the_reserved_gang_are_not_held_back() {
    check(
        "policy   backfill=reserve
         node     a 2x     cpu=4
         running  long     started=0 runs=1500 main 1x cpu=4 on=a-1
         pending  large    main 2x cpu=4
         pending  urgent   priority=1 main 1x cpu=1",
        &expect![[r#"
            urgent  admit  main on a-2
            large  wait  main: needs 4 cpu on one node; 1 node has 3 free (not before ~1500 s, when long ends)
        "#]],
    );
}

#[test]
fn a_gang_that_no_ending_gang_makes_room_for_gets_no_reservation() {
    check(
        "policy   backfill=reserve
         node     a        cpu=4
         node     b        cpu=4 cordoned
         running  long     started=0 runs=1500 main 1x cpu=4 on=a
         pending  broken   main 2x cpu=4
         pending  next     main 1x cpu=4",
        &expect![[r#"
            broken  wait  main: needs 4 cpu on one node; the only eligible node has none free; 1 node is unschedulable
            next  wait  main: needs 4 cpu on one node; the only eligible node has none free; 1 node is unschedulable (not before ~1500 s, when long ends)
        "#]],
    );
}

#[test]
fn gangs_do_not_pass_a_reserved_gang_while_a_backfilled_one_exceeds_its_time() {
    // Gang `passed` was started ahead of `large` for 200 s, and runs for 600 s. What ends in a minute could delay
    // `large` as well, because nothing tells when `passed` ends.
    check(
        "policy   backfill=reserve
         node     a        cpu=4
         node     b        cpu=4
         node     c        cpu=1
         running  passed   at=300 started=400 runs=200 main 1x cpu=4 on=b
         pending  large    at=100 main 2x cpu=4
         pending  endless  at=500 main 1x cpu=4
         pending  quick    at=501 runs=1 main 1x cpu=4
         pending  beside   at=502 main 1x cpu=1",
        &expect![[r#"
            large  wait  main: room for 1 of 2 pods, each needs 4 cpu; 1 node has 1 left (not before ~1400 s, when passed ends)
            endless  wait  fits, but would delay default/large, which goes first
            quick  wait  fits, but would delay default/large, which goes first
            beside  admit  main on c
        "#]],
    );
}

#[test]
fn gangs_do_not_pass_a_reserved_gang_while_one_without_a_declared_end_was_backfilled() {
    check(
        "policy   backfill=reserve
         node     a        cpu=4
         node     b        cpu=4
         running  passed   at=300 started=400 main 1x cpu=1 on=b
         pending  large    at=100 main 2x cpu=4
         pending  endless  at=500 main 1x cpu=4
         pending  beside   at=502 main 1x cpu=1",
        &expect![[r#"
            large  wait  main: room for 1 of 2 pods, each needs 4 cpu; 1 node has 3 left (not before ~1600 s, when passed ends)
            endless  wait  fits, but would delay default/large, which goes first
            beside  wait  fits, but would delay default/large, which goes first
        "#]],
    );
}

#[test]
fn a_held_back_gang_is_admitted_when_the_reserved_gang_is_removed() {
    let mut world = parse_world(
        "policy   backfill=reserve
         node     a 2x     cpu=4
         running  long     started=0 runs=1500 main 1x cpu=4 on=a-1
         pending  large    main 2x cpu=4
         pending  endless  main 1x cpu=1",
    );
    let mut output = String::new();
    for event in [None, Some(Event::GangRemoved("large".into()))] {
        if let Some(event) = event {
            world.apply(event);
        }
        let plan = audited(&world);
        output += &format!(
            "{:?}\n",
            plan.reserved.first().map(|reserved| (reserved.gang.as_str(), reserved.start))
        );
        output += &scenario::verdicts(&world, &plan);
        world.apply(Event::Planned(plan));
    }
    expect![[r#"
        Some(("large", Time(1500000000)))
        large  wait  main: room for 1 of 2 pods, each needs 4 cpu (not before 1500 s, when long ends)
        endless  wait  fits, but would delay default/large, which goes first
        None
        endless  admit  main on a-2
    "#]]
    .assert_eq(&output);
}

#[test]
fn a_held_back_gang_is_requeued_when_the_expected_end_has_passed() {
    let mut world = parse_world(
        "policy   backfill=reserve
         node     a 2x     cpu=4
         running  long     started=0 runs=1500 main 1x cpu=4 on=a-1
         pending  large    main 2x cpu=4
         pending  slow     runs=600 main 1x cpu=1",
    );
    let mut output = String::new();
    for now in [1000, 1400, 1501] {
        let plan = planner::plan(&world.snapshot(Time(now * 1_000_000)));
        output += &format!("{now}\n{}", scenario::verdicts(&world, &plan));
        world.apply(Event::Planned(plan));
    }
    expect![[r#"
        1000
        large  wait  main: room for 1 of 2 pods, each needs 4 cpu (not before 1500 s, when long ends)
        slow  wait  fits, but would delay default/large, which goes first
        1400
        1501
        large  wait  main: room for 1 of 2 pods, each needs 4 cpu (not before ~1561 s, when long ends)
        slow  wait  fits, but would delay default/large, which goes first
        large  late  promised for 1500 s, now 1561 s: default/long runs longer than it declared
    "#]]
    .assert_eq(&output);
}

#[test]
fn a_reserved_start_in_the_past_is_recomputed_even_when_no_gang_was_held_back() {
    let mut world = parse_world(
        "policy   backfill=reserve
         node     a        cpu=4
         running  long     started=0 runs=1500 main 1x cpu=4 on=a
         pending  large    main 1x cpu=4",
    );
    let mut starts = Vec::new();
    for now in [1000, 1501] {
        let plan = planner::plan(&world.snapshot(Time(now * 1_000_000)));
        starts.extend(plan.reserved.iter().map(|reserved| (reserved.start.0 / 1_000_000, reserved.declared)));
        world.apply(Event::Planned(plan));
    }
    assert_eq!(starts, [(1500, true), (1561, false)]);
}

#[test]
fn no_reservation_is_made_behind_an_infeasible_head_of_a_strict_queue() {
    let mut world = parse_world(
        "policy   backfill=reserve
         queue    q        strict
         node     a        cpu=4
         running  r        started=0 runs=1500 main 1x cpu=4 on=a
         pending  huge     queue=q main 1x cpu=8
         pending  next     queue=q main 1x cpu=4",
    );
    let first = audited(&world);
    world.apply(Event::Planned(first));
    let others = scenario::gangs(&mut world, "pending other at=9 main 1x cpu=4").unwrap();
    world.apply(Event::GangUpserted(others[0].clone()));
    let plan = audited(&world);
    let reserved: Vec<&str> = plan.reserved.iter().map(|reserved| reserved.gang.as_str()).collect();
    assert_eq!(reserved, ["other"]);
}

#[test]
fn only_gangs_of_queues_that_reserve_starts_hold_others_back() {
    let world = |words: &str| {
        format!(
            "policy   backfill=reserve
             node     a 2x   cpu=4
             queue    kueue  {words}
             queue    other
             running  r      runs=100 started=990 main 1x cpu=4 on=a-1
             pending  large  queue=kueue runs=10 main 2x cpu=4
             pending  same   queue=kueue main 1x cpu=4
             pending  small  queue=other main 1x cpu=4"
        )
    };
    check(
        &world(""),
        &expect![[r#"
        large  wait  main: room for 1 of 2 pods, each needs 4 cpu (not before 1090 s, when r ends)
        same  wait  fits, but would delay default/large, which goes first
        small  wait  fits, but would delay default/large, which goes first
    "#]],
    );
    check(
        &world("reserves=none"),
        &expect![[r#"
        large  wait  main: room for 1 of 2 pods, each needs 4 cpu
        same  admit  main on a-2
        small  wait  main: needs 4 cpu on one node; none of 2 eligible nodes has any free (not before ~1060 s, when same ends)
    "#]],
    );
    check(
        &world("reserves=none strict"),
        &expect![[r#"
        large  wait  main: room for 1 of 2 pods, each needs 4 cpu
        same  wait  waits behind default/large, which goes first in its queue
        small  admit  main on a-2
    "#]],
    );
}

#[test]
fn a_queue_without_reserved_starts_respects_those_of_others() {
    check(
        "policy   backfill=reserve
         node     a 2x   cpu=4
         queue    kueue  reserves=none
         running  r      runs=100 started=990 main 1x cpu=4 on=a-1
         pending  large  runs=10 main 2x cpu=4
         pending  short  queue=kueue runs=60 main 1x cpu=2
         pending  long   queue=kueue runs=600 main 1x cpu=2",
        &expect![[r#"
            large  wait  main: room for 1 of 2 pods, each needs 4 cpu (not before 1090 s, when r ends)
            short  admit  main on a-2
            long  wait  fits, but would delay default/large, which goes first
        "#]],
    );
}

#[test]
fn a_gang_that_starts_only_after_backfilled_ones_fits_beside_all_that_one_cycle_admits() {
    // `one` and `two` declare no end and were backfilled past `large`. That `first` ends before `large` starts is a guess, too.
    check(
        "policy   backfill=reserve
         node     n 3x     cpu=4
         running  one      at=20 started=500 main 1x cpu=1 on=n-1
         running  two      at=21 started=500 main 1x cpu=1 on=n-2
         pending  large    at=10 main 2x cpu=4
         pending  first    at=30 main 1x cpu=3
         pending  second   at=40 runs=100 main 1x cpu=3",
        &expect![[r#"
            large  wait  main: room for 1 of 2 pods, each needs 4 cpu; 2 nodes have 3 left (not before ~1500 s, when one ends)
            first  admit  main on n-2
            second  wait  fits, but would delay default/large, which goes first
        "#]],
    );
}
