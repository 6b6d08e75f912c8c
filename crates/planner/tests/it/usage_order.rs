//! Admission fair sharing: local queues in the order of their historical usage.

#![allow(clippy::needless_raw_string_hashes, reason = "this is how expect-test writes what it updates")]

use std::fmt::Write;

use crate::common::{audited_at, check, parse_world, step};
use expect_test::expect;
use model::{Event, Position, Time};

#[test]
fn the_local_queue_with_least_usage_is_admitted_first_whatever_the_priority() {
    // The time is 1000 s. `ann` has held 2 CPUs for 100 s, with a half-life of 100 s; `ben` nothing.
    check(
        "node     a        cpu=3
         queue    team     half-life=100 interval=0 count:cpu=1000
         clock    900
         running  r        queue=team from=ann main 1x cpu=2 on=a
         pending  high     queue=team from=ann priority=9 main 1x cpu=1
         pending  late     queue=team from=ben main 1x cpu=1",
        &expect![[r#"
            late  admit  main on a
            high  wait  main: needs 1 cpu on one node; the only eligible node has none free
        "#]],
    );
}

#[test]
fn with_equal_usage_queue_order_decides() {
    check(
        "node     a        cpu=1
         queue    team     half-life=100 interval=0 count:cpu=1000
         pending  first    queue=team from=ann main 1x cpu=1
         pending  second   queue=team from=ben main 1x cpu=1
         pending  high     queue=team from=cid priority=1 main 1x cpu=1",
        &expect![[r#"
            high  admit  main on a
            first  wait  main: needs 1 cpu on one node; the only eligible node has none free
            second  wait  main: needs 1 cpu on one node; the only eligible node has none free
        "#]],
    );
}

#[test]
fn one_cycle_does_not_admit_gangs_of_only_one_local_queue() {
    // Each admission counts at once as 60 s of usage.
    check(
        "node     a        cpu=4
         queue    team     half-life=600 interval=60 count:cpu=1000
         pending  a1       queue=team from=ann main 1x cpu=1
         pending  a2       queue=team from=ann main 1x cpu=1
         pending  a3       queue=team from=ann main 1x cpu=1
         pending  b1       queue=team from=ben main 1x cpu=1
         pending  b2       queue=team from=ben main 1x cpu=1
         pending  c1       queue=team from=cid main 1x cpu=1",
        &expect![[r#"
            a1  admit  main on a
            b1  admit  main on a
            c1  admit  main on a
            a2  admit  main on a
            b2  wait  main: needs 1 cpu on one node; the only eligible node has none free
            a3  wait  main: needs 1 cpu on one node; the only eligible node has none free
        "#]],
    );
}

#[test]
fn the_weight_of_a_local_queue_divides_its_usage() {
    // `ann` has twice the weight and gets two admissions for one of `ben`. A resource without a weight does not
    // count. A local queue of weight 0 is last.
    check(
        "node     a        cpu=4 example.com/disk=99
         queue    team     half-life=600 interval=60 count:cpu=1000 weight:ann=2 weight:dot=0
         pending  d1       queue=team from=dot main 1x cpu=1
         pending  a1       queue=team from=ann main 1x cpu=1
         pending  a2       queue=team from=ann main 1x cpu=1 example.com/disk=9
         pending  a3       queue=team from=ann main 1x cpu=1
         pending  b1       queue=team from=ben main 1x cpu=1
         pending  b2       queue=team from=ben main 1x cpu=1",
        &expect![[r#"
            a1  admit  main on a
            b1  admit  main on a
            a2  admit  main on a
            a3  admit  main on a
            b2  wait  main: needs 1 cpu on one node; the only eligible node has none free
            d1  wait  main: needs 1 cpu on one node; the only eligible node has none free
        "#]],
    );
}

#[test]
fn usage_decays_with_the_half_life() {
    // The usage of `ann` was 8, of `ben` 1. After three half-lives that of `ann` is 1 too, and after four it is less.
    let mut output = String::new();
    for at in [997, 996] {
        let mut world = parse_world(&format!(
            "node     a        cpu=1
             queue    team     half-life=1 interval=0 count:cpu=1000
             served   ann      queue=team at={at} cpu=8000000000
             served   ben      queue=team at=1000 cpu=1000000000
             pending  b        queue=team from=ben main 1x cpu=1
             pending  a        queue=team from=ann main 1x cpu=1",
        ));
        let _ = write!(output, "since {at} s\n{}", step(&mut world));
    }
    expect![[r#"
        since 997 s
        b  admit  main on a
        a  wait  main: needs 1 cpu on one node; the only eligible node has none free
        since 996 s
        a  admit  main on a
        b  wait  main: needs 1 cpu on one node; the only eligible node has none free
    "#]]
    .assert_eq(&output);
}

#[test]
fn usage_is_not_compared_between_queues() {
    // Queue `team` selects `low`, whose local queue has no usage. Against the other queue its priority counts.
    check(
        "node     a        cpu=2
         queue    team     half-life=600 interval=60 count:cpu=1000
         queue    other
         served   ann      queue=team at=1000 cpu=5000000000
         pending  high     queue=team from=ann priority=5 main 1x cpu=1
         pending  low      queue=team from=ben priority=1 main 1x cpu=1
         pending  between  queue=other priority=3 main 1x cpu=1",
        &expect![[r#"
            between  admit  main on a
            low  admit  main on a
            high  wait  main: needs 1 cpu on one node; the only eligible node has none free
        "#]],
    );
}

#[test]
fn a_queue_of_a_shared_tree_selects_its_head_by_usage() {
    // In queue `one`, `ben` precedes `ann`. After that, `one` has to borrow for `ann`.
    check(
        "node     a        cpu=9
         quota    all      cpu=1
         quota    one      in=all cpu=1
         quota    two      in=all cpu=1
         queue    one      quota=one half-life=600 interval=60 count:cpu=1000 :cpu
         queue    two      quota=two :cpu
         served   ann      queue=one at=1000 cpu=5000000000
         pending  high     queue=one from=ann priority=5 main 1x cpu=1
         pending  low      queue=one from=ben main 1x cpu=1
         pending  there    queue=two priority=1 main 1x cpu=1",
        &expect![[r#"
            there  admit  main on a
            low  admit  main on a
            high  admit  main on a
        "#]],
    );
}

#[test]
fn no_gang_is_admitted_ahead_of_the_head_by_usage_of_a_strict_queue() {
    let mut world = parse_world(
        "node     a        cpu=2
         queue    team     strict half-life=600 interval=60 count:cpu=1000
         served   ann      queue=team at=1000 cpu=5000000000
         pending  small    queue=team from=ann priority=9 main 1x cpu=1
         pending  large    queue=team from=ben main 1x cpu=3",
    );
    let mut output = step(&mut world);
    output.push_str("ben has consumed more than ann\n");
    let consumed = [(model::ResourceIx::CPU, 6_000_000_000)].into();
    let (queue, local_queue) = ("team".to_owned(), "ben".to_owned());
    world.apply(Event::UsageRestored { queue, local_queue, consumed, at: Time(1_000_000_000) });
    output.push_str(&step(&mut world));
    expect![[r#"
        large  never  main: needs 3 cpu on one node; 1 node has 2 even when empty
        small  wait  waits behind default/large, which goes first in its queue
        ben has consumed more than ann
        small  admit  main on a
        large  never  main: needs 3 cpu on one node; 1 node has 2 even when empty
    "#]]
    .assert_eq(&output);
}

#[test]
fn a_queue_position_follows_the_usage_order() {
    let world = parse_world(
        "queue    team     half-life=600 interval=60 count:cpu=1000
         served   ann      queue=team at=1000 cpu=5000000000
         pending  high     queue=team from=ann priority=5 main 1x cpu=1
         pending  low      queue=team from=ben main 1x cpu=1",
    );
    let first = Some("low".to_owned());
    let expected = Position { place: 2, of: 2, first: first.clone(), ahead: first };
    assert_eq!(world.position("high", Time(1_000_000_000)), Some(expected));
}

#[test]
fn usage_decay_alone_may_change_the_head_of_a_strict_queue() {
    // The usage of `ann` decays, that of `ben` grows towards what it holds. The next plan notices this.
    let mut world = parse_world(
        "node     a        cpu=3
         queue    team     strict half-life=1 interval=0 count:cpu=1000
         clock    1000
         served   ann      queue=team at=1000 cpu=8000000000
         running  r        queue=team from=ben main 1x cpu=1 on=a
         pending  small    queue=team from=ann main 1x cpu=1
         pending  large    queue=team from=ben main 1x cpu=3",
    );
    let mut output = step(&mut world);
    let plan = audited_at(&world, Time(1_010_000_000));
    let _ = write!(output, "ten seconds later\n{}", scenario::verdicts(&world, &plan));
    expect![[r#"
        large  wait  main: needs 3 cpu on one node; 1 node has 2 free
        small  wait  waits behind default/large, which goes first in its queue
        ten seconds later
        small  admit  main on a
        large  wait  main: needs 3 cpu on one node; 1 node has 1 free
    "#]]
    .assert_eq(&output);
}

#[test]
fn victims_are_taken_from_the_local_queue_with_most_usage_whatever_the_priority() {
    check(
        "node     a        cpu=64
         quota    all
         quota    mine     in=all reclaim=any cpu=8
         quota    team     in=all
         queue    mine     quota=mine :cpu
         queue    team     quota=team half-life=100 interval=0 count:cpu=1000 :cpu
         clock    900
         running  high     queue=team from=ann priority=9 main 1x cpu=5 on=a
         running  low      queue=team from=ben main 1x cpu=3 on=a
         pending  owner    queue=mine main 1x cpu=3",
        &expect![[r#"
            owner  preempt  high(reclaimed): main on a
        "#]],
    );
}
