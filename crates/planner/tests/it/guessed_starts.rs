//! Reserved starts that rely on ends that nobody declared: how long they hold others back, and whom.

#![allow(clippy::needless_raw_string_hashes, reason = "this is how expect-test writes what it updates")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{audited_at, check, parse_world};
use expect_test::expect;
use model::{Event, Hold, Reservation, Time, World};

/// Adds gangs, plans at this second, and returns the verdicts and the reservations.
fn plan(world: &mut World, second: i64, gangs: &[&str]) -> (String, Vec<Reservation>) {
    for text in gangs {
        for gang in scenario::gangs(world, text).unwrap() {
            world.apply(Event::GangUpserted(gang));
        }
    }
    let plan = audited_at(world, at(second));
    let (verdicts, reserved) = (scenario::verdicts(world, &plan), plan.reserved.clone());
    world.apply(Event::Planned(plan));
    (verdicts, reserved)
}

fn at(second: i64) -> Time {
    Time(second * 1_000_000)
}

fn admits(verdicts: &str, gang: &str) -> bool {
    verdicts.lines().any(|line| line.starts_with(&format!("{gang}  admit")))
}

/// `large` waits for `runs`, on the other node of two.
fn world(runs: &str) -> World {
    parse_world(&format!(
        "policy   backfill=reserve
         node     a 2x   cpu=4
         running  runs   {runs} main 1x cpu=4 on=a-1
         pending  large  main 2x cpu=4"
    ))
}

#[test]
fn a_start_that_relies_on_a_guessed_end_holds_others_back_for_ten_minutes_in_all() {
    let mut world = world("started=400");
    assert_eq!(plan(&mut world, 1000, &[]).1[0].hold, Hold::Unused);
    let (verdicts, reserved) = plan(&mut world, 2000, &["pending small at=2000 main 1x cpu=1"]);
    assert!(!admits(&verdicts, "small"), "{verdicts}");
    assert_eq!(reserved[0].hold, Hold::Until(at(2600)));
    let (verdicts, reserved) = plan(&mut world, 2599, &["pending late at=2599 main 1x cpu=1"]);
    assert!(!admits(&verdicts, "late"), "{verdicts}");
    assert!(reserved[0].due().any(|due| due == at(2600)));
    let (verdicts, reserved) = plan(&mut world, 2600, &[]);
    assert!(admits(&verdicts, "small") && admits(&verdicts, "late"), "{verdicts}");
    assert_eq!(reserved[0].hold, Hold::Over);
    let (verdicts, _) = plan(&mut world, 9000, &["pending later at=9000 main 1x cpu=1"]);
    assert!(admits(&verdicts, "later"), "{verdicts}");
}

#[test]
fn a_gang_that_loses_its_guessed_start_for_a_while_does_not_get_the_time_anew() {
    let mut world = world("started=400");
    plan(&mut world, 1000, &["pending small at=1000 main 1x cpu=1"]);
    let urgent = "pending urgent at=1300 priority=1 main 2x cpu=4";
    let (_, reserved) = plan(&mut world, 1300, &[urgent]);
    assert_eq!(reserved[0].gang, "urgent");
    world.apply(Event::GangRemoved("urgent".into()));
    let (_, reserved) = plan(&mut world, 1400, &[]);
    assert_eq!((&*reserved[0].gang, reserved[0].hold), ("large", Hold::Until(at(1600))));
}

#[test]
fn a_start_that_relies_on_declared_ends_holds_others_back_until_then() {
    let mut world = world("started=400 runs=90000");
    for second in [1000, 2000, 80_000] {
        let small = format!("pending small-{second} at={second} main 1x cpu=1");
        let (verdicts, reserved) = plan(&mut world, second, &[&small]);
        assert!(!verdicts.contains("admit"), "{verdicts}");
        assert_eq!(reserved[0].hold, Hold::UntilStart);
    }
}

#[test]
fn a_policy_without_such_holds_lets_every_gang_pass_a_guessed_start() {
    check(
        "policy   backfill=reserve guessed-hold=0
         node     a 2x   cpu=4
         running  runs   started=400 main 1x cpu=4 on=a-1
         pending  large  main 2x cpu=4
         pending  small  main 1x cpu=1",
        &expect![[r#"
            large  wait  main: room for 1 of 2 pods, each needs 4 cpu (not before ~1600 s, when runs ends, holds nothing back)
            small  admit  main on a-2
        "#]],
    );
}

#[test]
fn a_guessed_start_never_holds_back_a_gang_within_the_nominal_quota_of_another_queue() {
    let world = |runs: &str, queue: &str| {
        format!(
            "policy   backfill=reserve
             node     a 2x     cpu=4
             quota    all      cpu=4
             quota    team     in=all cpu=1
             queue    team     quota=team :cpu
             running  runs     {runs} main 1x cpu=4 on=a-1
             pending  large    {queue} main 2x cpu=4
             pending  owned    queue=team main 1x cpu=1
             pending  borrows  queue=team main 1x cpu=1"
        )
    };
    check(
        &world("started=400", ""),
        &expect![[r#"
            large  wait  main: room for 1 of 2 pods, each needs 4 cpu (not before ~1600 s, when runs ends)
            owned  admit  main on a-2
            borrows  wait  fits, but would delay default/large, which goes first
        "#]],
    );
    check(
        &world("started=400 runs=900", ""),
        &expect![[r#"
            large  wait  main: room for 1 of 2 pods, each needs 4 cpu (not before 1300 s, when runs ends)
            owned  wait  fits, but would delay default/large, which goes first
            borrows  wait  fits, but would delay default/large, which goes first
        "#]],
    );
}

/// `large` waits for `runs`, and `owned` asks for quota of its own.
fn with_quota(large: &str, owned: &str) -> World {
    parse_world(&format!(
        "policy   backfill=reserve
         node     a 2x     cpu=4
         quota    all      cpu=16
         quota    team     in=all cpu=1
         queue    team     quota=team :cpu
         running  runs     started=400 main 1x cpu=4 on=a-1
         pending  large    {large} main 2x cpu=4
         pending  owned    {owned}"
    ))
}

#[test]
fn a_gang_passes_no_guessed_start_of_one_with_a_part_in_its_quota() {
    for (large, passes) in [("", true), ("queue=team", false)] {
        let mut world = with_quota(large, "queue=team main 1x cpu=1");
        let (verdicts, _) = plan(&mut world, 1000, &[]);
        assert_eq!(admits(&verdicts, "owned"), passes, "{verdicts}");
    }
}

#[test]
fn a_guessed_start_that_a_gang_has_passed_is_reserved_anew() {
    let mut world = with_quota("", "queue=team runs=5000 main 1x cpu=1");
    let (verdicts, reserved) = plan(&mut world, 1000, &[]);
    assert!(admits(&verdicts, "owned"), "{verdicts}");
    assert_eq!((&*reserved[0].gang, reserved[0].start), ("large", at(6000)));
}

#[test]
fn a_gang_that_starts_gets_the_time_anew_if_it_has_to_wait_again() {
    let mut world = world("started=400");
    plan(&mut world, 1000, &["pending small at=1000 main 1x cpu=1"]);
    assert_eq!(world.hold_of("large"), Some(at(1600)));
    world.apply(Event::GangRemoved("runs".into()));
    let (verdicts, _) = plan(&mut world, 1100, &[]);
    assert!(admits(&verdicts, "large"), "{verdicts}");
    assert_eq!(world.hold_of("large"), None);
}

#[test]
fn a_gang_that_preempts_within_the_nominal_quota_of_its_queue_passes_a_guessed_start() {
    for (quota, passes) in [(4, true), (3, false)] {
        let mut world = parse_world(&format!(
            "policy   backfill=reserve
             node     a 2x     cpu=4
             quota    all      cpu=16
             quota    team     in=all cpu={quota} within=lower-priority
             queue    team     quota=team :cpu
             running  runs     started=400 main 1x cpu=4 on=a-1
             running  weak     queue=team started=500 main 1x cpu=4 on=a-2
             pending  large    priority=2 main 2x cpu=4
             pending  strong   priority=1 queue=team main 1x cpu=4"
        ));
        let (verdicts, _) = plan(&mut world, 1000, &[]);
        let preempts = verdicts.lines().any(|line| line.starts_with("strong  preempt"));
        assert_eq!(preempts, passes, "{verdicts}");
    }
}

#[test]
fn a_gang_passes_no_guessed_start_with_a_resource_that_its_quota_does_not_count() {
    for (memory, passes) in [("", true), ("memory=1Gi", false)] {
        let mut world = parse_world(&format!(
            "policy   backfill=reserve
             node     a 2x     cpu=4 memory=4Gi
             quota    all      cpu=16
             quota    team     in=all cpu=1
             queue    team     quota=team undeclared=ignore :cpu
             running  runs     started=400 main 1x cpu=4 on=a-1
             pending  large    main 2x cpu=4
             pending  owned    queue=team main 1x cpu=1 {memory}"
        ));
        let (verdicts, _) = plan(&mut world, 1000, &[]);
        assert_eq!(admits(&verdicts, "owned"), passes, "{verdicts}");
    }
}

#[test]
fn among_several_reserved_starts_a_guess_whose_time_is_over_holds_nothing_back() {
    check(
        "policy   backfill=conservative:2 guessed-hold=0
         node     a 2x     cpu=4 label:pool=a
         node     b        cpu=4 label:pool=b
         running  runs     started=400 main 1x cpu=4 on=a-1
         running  short    started=400 runs=900 main 1x cpu=4 on=b
         pending  large    main 2x cpu=4 select:pool=a
         pending  next     main 1x cpu=4 select:pool=b
         pending  small    main 1x cpu=1 select:pool=a",
        &expect![[r#"
            large  wait  main: room for 1 of 2 pods, each needs 4 cpu; 1 node does not match node selector pool=a (not before ~1600 s, when runs ends, holds nothing back)
            next  wait  main: needs 4 cpu on one node; the only eligible node has none free; 2 nodes do not match node selector pool=b (not before ~1300 s, when short ends)
            small  admit  main on a-2
        "#]],
    );
}

#[test]
fn a_guessed_start_that_is_passed_takes_nothing_from_another_one() {
    let mut world = parse_world(
        "policy   backfill=conservative:2
         node     a 2x     cpu=4 label:pool=a
         node     b        cpu=4 label:pool=b
         quota    all      cpu=16
         quota    team     in=all cpu=2
         queue    team     quota=team :cpu
         running  runs     started=400 main 1x cpu=4 on=a-1
         running  long     started=300 main 1x cpu=3 on=b
         pending  large    main 2x cpu=4 select:pool=a
         pending  borrows  queue=team main 1x cpu=4
         pending  owned    queue=team one 1x cpu=1 select:pool=a other 1x cpu=1 select:pool=b",
    );
    let (verdicts, reserved) = plan(&mut world, 1000, &[]);
    assert!(admits(&verdicts, "owned"), "{verdicts}");
    assert!(reserved.iter().any(|reserved| reserved.gang == "borrows"), "{verdicts}");
}

#[test]
fn several_guessed_starts_that_one_gang_passes_are_all_reserved_anew() {
    let mut world = parse_world(
        "policy   backfill=conservative:2
         node     a 2x     cpu=4 label:pool=a
         node     b 2x     cpu=4 label:pool=b
         quota    all      cpu=16
         quota    team     in=all cpu=2
         queue    team     quota=team :cpu
         running  run-a    started=400 main 1x cpu=4 on=a-1
         running  run-b    started=300 main 1x cpu=4 on=b-1
         pending  large-a  main 2x cpu=4 select:pool=a
         pending  large-b  main 2x cpu=4 select:pool=b
         pending  owned    queue=team runs=5000 one 1x cpu=1 select:pool=a other 1x cpu=1 select:pool=b",
    );
    let (verdicts, reserved) = plan(&mut world, 1000, &[]);
    assert!(admits(&verdicts, "owned"), "{verdicts}");
    let starts: Vec<_> = reserved.iter().map(|reserved| (&*reserved.gang, reserved.start)).collect();
    assert_eq!(starts, [("large-a", at(6000)), ("large-b", at(6000))]);
}

#[test]
fn a_gang_is_placed_around_the_reserved_start_that_holds_it_back_and_not_around_a_guess_whose_time_is_over() {
    let mut world = parse_world(
        "policy   backfill=conservative:2 guessed-hold=0
         node     a 2x     cpu=4 label:pool=a
         node     b 2x     cpu=4 label:pool=b
         running  runs     started=400 main 1x cpu=4 on=a-1
         running  short    started=400 runs=900 main 1x cpu=3 on=b-1
         running  long     started=400 runs=90000 main 1x cpu=2 on=b-2
         pending  large    main 2x cpu=4 select:pool=a
         pending  next     main 1x cpu=4 select:pool=b
         pending  small    main 1x cpu=1 select:pool=b",
    );
    let (verdicts, _) = plan(&mut world, 1000, &[]);
    assert!(verdicts.contains("small  admit  main on b-2"), "{verdicts}");
}

/// `first` has a start reserved for when `far` ends, and `second`, which goes after it, one for when `near` ends. Then both end early, and
/// `other` runs until 1500 s.
fn with_an_earlier_start(near: &str) -> (String, Vec<Reservation>) {
    let mut world = parse_world(&format!(
        "policy   backfill=conservative:2 guessed-hold=0
         node     one      cpu=4 label:pool=one
         node     two      cpu=4 label:pool=two
         running  near     {near} main 1x cpu=4 on=one
         running  far      started=400 runs=4600 main 1x cpu=4 on=two
         pending  first    main 2x cpu=4
         pending  second   runs=1000 main 1x cpu=4 select:pool=one"
    ));
    let (verdicts, reserved) = plan(&mut world, 1000, &[]);
    assert_eq!(reserved.len(), 2, "{verdicts}");
    for ended in ["near", "far"] {
        world.apply(Event::GangRemoved(ended.into()));
    }
    plan(&mut world, 1200, &["running other started=1100 runs=400 main 1x cpu=4 on=one"])
}

#[test]
fn a_start_moves_to_an_earlier_time_only_if_the_declared_start_of_another_gang_is_kept() {
    for (near, start) in [("started=400 runs=1200", 5000), ("started=400", 1500)] {
        let (verdicts, reserved) = with_an_earlier_start(near);
        assert_eq!((&*reserved[0].gang, reserved[0].start), ("first", at(start)), "{verdicts}");
    }
}

#[test]
fn a_start_that_is_reserved_anew_is_no_promise_if_a_gang_before_it_has_no_predictable_start() {
    for (first, is_firm) in [("", true), ("pending first priority=3 main 2x cpu=4 select:pool=b", false)] {
        let mut world = parse_world(&format!(
            "policy   backfill=conservative:2
             node     a 2x     cpu=4 label:pool=a
             node     b 2x     cpu=4 label:pool=b
             quota    all      cpu=16
             quota    team     in=all cpu=4 within=lower-priority
             queue    team     quota=team :cpu
             running  runs-a   started=400 runs=2100 main 1x cpu=4 on=a-1
             running  runs-b   started=400 main 1x cpu=4 on=b-1
             running  weak     queue=team started=500 main 1x cpu=4 on=a-2
             {first}
             pending  small    main 1x cpu=1 select:pool=b"
        ));
        plan(&mut world, 1000, &[]);
        let large = "pending large at=2000 priority=2 main 2x cpu=4 select:pool=a";
        let strong = "pending strong at=2000 priority=1 queue=team runs=1000 main 1x cpu=4 select:pool=a";
        let (verdicts, reserved) = plan(&mut world, 2000, &[large, strong]);
        let large = reserved.iter().find(|reserved| reserved.gang == "large").unwrap();
        assert_eq!((large.start, large.declared), (at(3000), is_firm), "{verdicts}");
    }
}
