//! When those who have to wait could start, and who may pass them.

#![allow(clippy::needless_raw_string_hashes, reason = "this is how expect-test writes what it updates")]
#![allow(clippy::format_push_string, reason = "stories are told line by line")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{audited, check, story};
use expect_test::expect;
use model::{Event, Time};

#[test]
fn a_large_gang_is_told_when_it_could_start_and_small_ones_do_not_delay_it() {
    // It is 1000 s: long ends at 1500, short at 1200.
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
fn without_a_reservation_small_gangs_pass_for_ever() {
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
fn who_fits_beside_the_reservation_may_pass_however_long_it_runs() {
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
fn ends_that_nobody_declared_are_guessed_and_said_to_be() {
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
fn those_who_go_first_are_not_held_back() {
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
fn what_no_end_makes_room_for_holds_up_nobody() {
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
fn who_was_held_back_starts_when_the_first_one_goes_away() {
    let mut world = story(
        "policy   backfill=reserve
         node     a 2x     cpu=4
         running  long     started=0 runs=1500 main 1x cpu=4 on=a-1
         pending  large    main 2x cpu=4
         pending  endless  main 1x cpu=1",
    );
    let mut told = String::new();
    for event in [None, Some(Event::GangRemoved("large".into()))] {
        if let Some(event) = event {
            world.apply(event);
        }
        let plan = audited(&world);
        told += &format!(
            "{:?}\n",
            plan.reserved.first().map(|reserved| (reserved.gang.as_str(), reserved.start))
        );
        told += &scenario::verdicts(&world, &plan);
        world.apply(Event::Planned(plan));
    }
    expect![[r#"
        Some(("large", Time(1500000000)))
        large  wait  main: room for 1 of 2 pods, each needs 4 cpu (not before 1500 s, when long ends)
        endless  wait  fits, but would delay default/large, which goes first
        None
        endless  admit  main on a-2
    "#]]
    .assert_eq(&told);
}

#[test]
fn who_was_held_back_is_tried_again_when_the_expected_end_has_passed() {
    let mut world = story(
        "policy   backfill=reserve
         node     a 2x     cpu=4
         running  long     started=0 runs=1500 main 1x cpu=4 on=a-1
         pending  large    main 2x cpu=4
         pending  slow     runs=600 main 1x cpu=1",
    );
    let mut told = String::new();
    for now in [1000, 1400, 1501] {
        let plan = planner::plan(&world.snapshot(Time(now * 1_000_000)));
        told += &format!("{now}\n{}", scenario::verdicts(&world, &plan));
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
    .assert_eq(&told);
}

#[test]
fn a_start_that_has_passed_is_computed_anew_even_when_nobody_was_held_back() {
    let mut world = story(
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
fn nobody_is_promised_a_start_behind_one_who_never_fits_in_a_strict_queue() {
    let mut world = story(
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
    let promised: Vec<&str> = plan.reserved.iter().map(|reserved| reserved.gang.as_str()).collect();
    assert_eq!(promised, ["other"]);
}
