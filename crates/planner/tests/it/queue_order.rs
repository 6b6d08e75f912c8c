//! Queue order: priority, slope, time of queueing, and strict FIFO.

#![allow(clippy::needless_raw_string_hashes, reason = "this is how expect-test writes what it updates")]

use crate::common::{check, parse_world, step};
use expect_test::expect;
use model::{Event, Gang, GangKey, Position, Queue, QueueingStrategy, Time, World};

#[test]
fn a_slope_raises_long_pending_gangs_above_a_higher_priority() {
    // The time is 1000 s. The slope is 0.01 priority per second: `old` has risen by 9.9, `young` by 0.1.
    check(
        "node     a        cpu=2
         pending  high     at=1   priority=5  main 1x cpu=1
         pending  young    at=990 priority=0  slope=10000 main 1x cpu=1
         pending  old      at=10  priority=0  slope=10000 main 1x cpu=1",
        &expect![[r#"
            old  admit  main on a
            high  admit  main on a
            young  wait  main: needs 1 cpu on one node; the only eligible node has none free
        "#]],
    );
}

#[test]
fn a_negative_slope_puts_newer_gangs_first() {
    check(
        "node     a        cpu=1
         pending  old      at=10  slope=-1 main 1x cpu=1
         pending  young    at=990 slope=-1 main 1x cpu=1",
        &expect![[r#"
            young  admit  main on a
            old  wait  main: needs 1 cpu on one node; the only eligible node has none free
        "#]],
    );
}

#[test]
fn a_queue_position_names_the_head_and_the_gang_just_ahead() {
    let world = parse_world(
        "pending  steady   at=0 priority=5 main 1x cpu=1
         pending  rising   at=0 priority=0 slope=1000000 main 1x cpu=1
         pending  last     at=9 priority=0 main 1x cpu=1
         running  other    at=0 main 1x cpu=1",
    );
    let at = |uid: &str, second: i64| world.position(uid, Time(second * 1_000_000));
    let position = |place, first: Option<&str>, ahead: Option<&str>| {
        Some(Position { place, of: 3, first: first.map(str::to_owned), ahead: ahead.map(str::to_owned) })
    };
    assert_eq!(at("rising", 4), position(2, Some("steady"), Some("steady")));
    assert_eq!(at("rising", 6), position(1, None, None));
    assert_eq!(at("last", 6), position(3, Some("rising"), Some("steady")));
    assert_eq!(at("other", 6), None);
}

/// A world whose implicit queue is strict FIFO.
fn strict(text: &str) -> World {
    let mut world = parse_world(text);
    world.apply(Event::QueueUpserted(Queue {
        queueing_strategy: QueueingStrategy::StrictFifo,
        ..Queue::default()
    }));
    world
}

#[test]
fn no_gang_is_admitted_ahead_of_the_head_of_a_strict_queue() {
    let mut world = strict(
        "node     a        cpu=4
         running  r        main 1x cpu=2 on=a
         pending  one      main 1x cpu=1
         pending  large    main 1x cpu=4
         pending  small    main 1x cpu=1
         pending  other    main 1x cpu=2",
    );
    let mut output = String::new();
    output.push_str(&step(&mut world));
    output.push_str("large goes away\n");
    world.apply(Event::GangRemoved("large".into()));
    output.push_str(&step(&mut world));
    expect![[r#"
        one  admit  main on a
        large  wait  main: needs 4 cpu on one node; 1 node has 1 free
        small  wait  waits behind default/large, which goes first in its queue
        other  wait  waits behind default/large, which goes first in its queue
        large goes away
        small  admit  main on a
        other  wait  main: needs 2 cpu on one node; the only eligible node has none free
    "#]]
    .assert_eq(&output);
}

#[test]
fn the_head_of_a_strict_queue_is_admitted_while_identical_gangs_wait_behind_it() {
    let mut world = strict(
        "node     a       cpu=1
         pending  large   at=2 main 1x cpu=2
         pending  behind  at=3 main 1x cpu=1",
    );
    let mut output = vec![step(&mut world)];
    let first = Gang { uid: "first".into(), ..world.gang("behind").expect("it waits").clone() };
    let key = GangKey { name: "first".into(), ..first.key.clone() };
    world.apply(Event::GangUpserted(Gang { key, queued_at: Time(1_000_000), ..first }));
    output.push(step(&mut world));
    expect![[r#"
        large  never  main: needs 2 cpu on one node; 1 node has 1 even when empty
        behind  wait  waits behind default/large, which goes first in its queue
        --
        first  admit  main on a
        large  never  main: needs 2 cpu on one node; 1 node has 1 even when empty
        behind  wait  waits behind default/large, which goes first in its queue
    "#]]
    .assert_eq(&output.join("--\n"));
}

#[test]
fn a_strict_queue_admits_as_many_gangs_in_one_cycle_as_fit() {
    let mut world = strict(
        "node     a        cpu=4
         running  r        main 1x cpu=4 on=a
         pending  first    main 1x cpu=1
         pending  second   main 1x cpu=2
         pending  third    main 1x cpu=1
         pending  fourth   main 1x cpu=1",
    );
    let mut output = String::new();
    output.push_str(&step(&mut world));
    output.push_str("r ends\n");
    world.apply(Event::GangRemoved("r".into()));
    output.push_str(&step(&mut world));
    output.push_str(&step(&mut world));
    expect![[r#"
        first  wait  main: needs 1 cpu on one node; the only eligible node has none free
        third  wait  main: needs 1 cpu on one node; the only eligible node has none free
        fourth  wait  main: needs 1 cpu on one node; the only eligible node has none free
        second  wait  waits behind default/first, which goes first in its queue
        r ends
        first  admit  main on a
        second  admit  main on a
        third  admit  main on a
        fourth  wait  main: needs 1 cpu on one node; the only eligible node has none free
    "#]]
    .assert_eq(&output);
}

#[test]
fn a_preemption_in_another_queue_lets_no_gang_pass_the_head_of_a_strict_queue() {
    // What victims leave over may be of use to parked gangs behind the preemptor, such as `third`. `head` is before it, and
    // still does not fit.
    let mut world = parse_world(
        "flavor   default  quota-only
         quota    one      cpu@default=8
         quota    two      cpu@default=4 within=lower-priority
         queue    one      quota=one strict reserves=none default:cpu
         queue    two      quota=two reserves=none default:cpu
         running  low      queue=two main 4x cpu=1 unplaced=4 flavor:cpu=default
         pending  head     priority=9 queue=one main 1x cpu=10
         pending  third    priority=1 queue=one main 1x cpu=1",
    );
    let mut text = step(&mut world);
    let high = scenario::parse(
        "queue    one
         queue    two
         pending  high     priority=5 queue=two main 1x cpu=2",
    );
    let mut high = high.expect("it parses").gang("high").expect("it exists").clone();
    high.queue = world.queue_ix("two");
    world.apply(Event::GangUpserted(high));
    text.push_str("high comes\n");
    text.push_str(&step(&mut world));
    expect![[r#"
        head  never  needs 10 cpu in flavor default; quota one has at most 8
        third  wait  waits behind default/head, which goes first in its queue
        high comes
        high  preempt  low(in-queue): main 1x without node in default
    "#]]
    .assert_eq(&text);
}
