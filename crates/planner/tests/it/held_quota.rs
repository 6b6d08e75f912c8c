//! Held quota: what the first gang of a strict queue keeps from queues that could borrow it.

#![allow(clippy::needless_raw_string_hashes, reason = "this is how expect-test writes what it updates")]

use crate::common::{check, parse_world, step};
use expect_test::expect;
use model::Event;

/// `one` owns 6 and uses 4 of them; `two` owns 6 and uses 8. The first gang of `one` needs 4, and 0 are free beside
/// the 2 that are unused.
fn world(one: &str, queue: &str) -> String {
    format!(
        "flavor   default  quota-only
         quota    all
         quota    one      in=all cpu@default=8 {one}
         quota    two      in=all cpu@default=6
         queue    one      quota=one {queue} default:cpu
         queue    two      quota=two reserves=none default:cpu
         running  own      queue=one priority=9 main 4x cpu=1 unplaced=4 flavor:cpu=default
         running  lent     queue=two priority=9 main 8x cpu=1 unplaced=8 flavor:cpu=default
         pending  first    queue=one main 4x cpu=1
         pending  steals   queue=two at=9 main 2x cpu=1"
    )
}

#[test]
fn the_first_gang_of_a_strict_queue_holds_its_unused_quota() {
    check(
        &world("reclaim=lower-priority", "strict reserves=none"),
        &expect![[r#"
            first  wait  needs 4 cpu in flavor default; quota one has 2 of at most 14 left (8 of its own, 6 to borrow)
            steals  wait  needs 2 cpu in flavor default; quota two has 0 of at most 14 left (6 of its own, 8 to borrow)
        "#]],
    );
    check(
        &world("", "strict reserves=none"),
        &expect![[r#"
            first  wait  needs 4 cpu in flavor default; quota one has 2 of at most 14 left (8 of its own, 6 to borrow)
            steals  wait  needs 2 cpu in flavor default; quota two has 0 of at most 14 left (6 of its own, 8 to borrow)
        "#]],
    );
}

#[test]
fn nothing_is_held_where_everything_can_be_reclaimed_or_others_may_pass() {
    check(
        &world("reclaim=any", "strict reserves=none"),
        &expect![[r#"
            first  preempt  lent(reclaimed): main 4x without node in default
            steals  admit  main 2x without node in default; no room: main: there is no node
        "#]],
    );
    check(
        &world("", "reserves=none"),
        &expect![[r#"
            first  wait  needs 4 cpu in flavor default; quota one has 2 of at most 14 left (8 of its own, 6 to borrow)
            steals  admit  main 2x without node in default; no room: main: there is no node
        "#]],
    );
}

#[test]
fn nothing_is_held_for_more_than_the_queue_owns_unless_it_may_preempt_while_it_borrows() {
    let large = |rule: &str| {
        world(rule, "strict reserves=none")
            .replace("first    queue=one main 4x", "first    queue=one main 9x")
    };
    check(
        &large(""),
        &expect![[r#"
            first  wait  needs 9 cpu in flavor default; quota one has 2 of at most 14 left (8 of its own, 6 to borrow)
            steals  admit  main 2x without node in default; no room: main: there is no node
        "#]],
    );
    check(
        &large("reclaim=lower-priority borrowing"),
        &expect![[r#"
            first  wait  needs 9 cpu in flavor default; quota one has 2 of at most 14 left (8 of its own, 6 to borrow)
            steals  wait  needs 2 cpu in flavor default; quota two has 0 of at most 14 left (6 of its own, 8 to borrow)
        "#]],
    );
}

#[test]
fn gangs_that_go_first_take_unused_quota() {
    let urgent =
        world("", "strict reserves=none").replace("steals   queue=two at=9", "urgent   queue=two priority=1");
    check(
        &urgent.replace("cpu@default=6", "cpu@default=10"),
        &expect![[r#"
        urgent  admit  main 2x without node in default; no room: main: there is no node
        first  admit  main 4x without node in default; no room: main: there is no node
    "#]],
    );
}

#[test]
fn held_quota_is_free_again_when_the_first_gang_is_gone() {
    let mut world = parse_world(&world("", "strict reserves=none"));
    let mut text = step(&mut world);
    world.apply(Event::GangRemoved("first".into()));
    text.push_str("first is gone\n");
    text.push_str(&step(&mut world));
    expect![[r#"
        first  wait  needs 4 cpu in flavor default; quota one has 2 of at most 14 left (8 of its own, 6 to borrow)
        steals  wait  needs 2 cpu in flavor default; quota two has 0 of at most 14 left (6 of its own, 8 to borrow)
        first is gone
        steals  admit  main 2x without node in default; no room: main: there is no node
    "#]]
    .assert_eq(&text);
}

#[test]
fn quota_stays_held_while_only_other_gangs_change() {
    let mut world = parse_world(&world("", "strict reserves=none"));
    let mut text = step(&mut world);
    let late = scenario::parse(
        "queue    one
         queue    two
         pending  late queue=two at=10 main 1x cpu=1",
    );
    let mut late = late.expect("it parses").gang("late").expect("it exists").clone();
    late.queue = world.queue_ix("two");
    world.apply(Event::GangUpserted(late));
    text.push_str("late comes\n");
    text.push_str(&step(&mut world));
    expect![[r#"
        first  wait  needs 4 cpu in flavor default; quota one has 2 of at most 14 left (8 of its own, 6 to borrow)
        steals  wait  needs 2 cpu in flavor default; quota two has 0 of at most 14 left (6 of its own, 8 to borrow)
        late comes
        first  wait  needs 4 cpu in flavor default; quota one has 2 of at most 14 left (8 of its own, 6 to borrow)
        late  wait  needs 1 cpu in flavor default; quota two has 0 of at most 14 left (6 of its own, 8 to borrow)
    "#]]
    .assert_eq(&text);
}

#[test]
fn a_preemption_elsewhere_gives_no_held_quota_away() {
    let mut world = parse_world(
        "policy   preemption=lower-priority
         node     a        cpu=40
         flavor   default
         quota    all
         quota    one      in=all cpu@default=8
         quota    two      in=all cpu@default=6
         queue    one      quota=one strict reserves=none default:cpu
         queue    two      quota=two reserves=none default:cpu
         running  own      queue=one priority=9 main 4x cpu=1 on=a*4 flavor:cpu=default
         running  lent     queue=two priority=9 main 8x cpu=1 on=a*8 flavor:cpu=default
         running  low      main 1x cpu=28 on=a
         pending  first    priority=8 queue=one main 4x cpu=1
         pending  steals   queue=two at=9 main 2x cpu=1",
    );
    let mut text = step(&mut world);
    let urgent = scenario::parse("pending  urgent priority=7 main 1x cpu=4").expect("it parses");
    world.apply(Event::GangUpserted(urgent.gang("urgent").expect("it exists").clone()));
    text.push_str("urgent comes\n");
    text.push_str(&step(&mut world));
    expect![[r#"
        steals  wait  with default: main: needs 1 cpu on one node; the only eligible node has none free
        first  wait  needs 4 cpu in flavor default; quota one has 2 of at most 14 left (8 of its own, 6 to borrow)
        urgent comes
        urgent  preempt  low: main on a
        first  wait  needs 4 cpu in flavor default; quota one has 2 of at most 14 left (8 of its own, 6 to borrow)
        steals  wait  needs 2 cpu in flavor default; quota two has 0 of at most 14 left (6 of its own, 8 to borrow)
    "#]]
    .assert_eq(&text);
}
