//! Gangs whose pods get no node: their flavors are chosen one after another, and their queues take turns, as in Kueue.

#![allow(clippy::needless_raw_string_hashes, reason = "this is how expect-test writes what it updates")]

use crate::common::{NOW, check, parse_world, step};
use expect_test::expect;
use model::{Event, GangState};
use planner::LackReason;

#[test]
fn each_queue_of_a_cohort_has_one_turn_in_a_round() {
    // In the first round `m-1` goes first, which does not borrow, then `g-1` borrows what is left. A queue with another
    // turn before `g-1` would take it for `m-2`.
    check(
        "flavor   default  quota-only
         quota    all
         quota    greedy   in=all cpu@default=8
         quota    modest   in=all cpu@default=6
         queue    greedy   quota=greedy default:cpu
         queue    modest   quota=modest default:cpu
         pending  g-1      queue=greedy priority=1 main 1x cpu=10
         pending  m-1      queue=modest main 1x cpu=3
         pending  m-2      queue=modest main 1x cpu=2",
        &expect![[r#"
            m-1  admit  main 1x without node in default; no room: main: there is no node
            g-1  admit  main 1x without node in default; no room: main: there is no node
            m-2  wait  needs 2 cpu in flavor default; quota modest has 1 of at most 14 left (6 of its own, 8 to borrow)
        "#]],
    );
}

#[test]
fn a_gang_that_others_overtook_chooses_again_in_the_next_round() {
    check(
        "flavor   one      quota-only
         flavor   two      quota-only
         quota    all      cpu@one=4
         quota    a        in=all cpu@two=4
         quota    b        in=all
         queue    a        quota=a one,two:cpu
         queue    b        quota=b one:cpu
         pending  first    queue=b priority=1 main 4x cpu=1
         pending  second   queue=a main 4x cpu=1",
        &expect![[r#"
            first  admit  main 4x without node in one; no room: main: there is no node
            second  admit  main 4x without node in two; no room: main: there is no node
        "#]],
    );
}

#[test]
fn an_attempt_that_fails_is_followed_by_one_from_the_flavors_behind() {
    // At first `head` gets `one`, and `worker` fits nowhere; the second attempt gives `two` to `head`.
    check(
        "flavor   one      quota-only
         flavor   two      quota-only
         quota    q        cpu@one=3 cpu@two=2
         queue    q        quota=q one,two:cpu
         pending  g        queue=q head 2x cpu=1 worker 3x cpu=1",
        &expect![[r#"
            g  admit  head 2x without node in two; worker 3x without node in one; no room: head: there is no node. worker: there is no node
        "#]],
    );
}

#[test]
fn a_flavor_that_was_the_best_of_all_is_not_taken_back() {
    // `head` gets `two` in the only attempt, which tries all flavors for it, and `worker` would need all of it.
    check(
        "flavor   one      quota-only
         flavor   two      quota-only
         quota    all      cpu@one=2
         quota    q        in=all cpu@two=3
         queue    q        quota=q when-can-borrow=try one,two:cpu
         pending  g        queue=q head 1x cpu=1 worker 1x cpu=3",
        &expect![[r#"
            g  wait  needs 3 cpu in flavor one; quota q has at most 2 (0 of its own, 2 to borrow). needs 3 cpu in flavor two; quota q has 2 of at most 3 left
        "#]],
    );
}

#[test]
fn a_gang_preempts_rather_than_take_a_choice_back() {
    // `head` in `two` would leave room for `worker` in `one`.
    check(
        "flavor   one      quota-only
         flavor   two      quota-only
         quota    q        cpu@one=8 cpu@two=8 within=lower-priority
         queue    q        quota=q one,two:cpu
         running  low-1    queue=q main 5x cpu=1 unplaced=5 flavor:cpu=one
         running  low-2    queue=q main 6x cpu=1 unplaced=6 flavor:cpu=two
         pending  g        priority=1 queue=q head 1x cpu=1 worker 3x cpu=1",
        &expect![[r#"
            g  preempt  low-1(in-queue): head 1x without node in one; worker 3x without node in one
        "#]],
    );
}

#[test]
fn a_gang_preempts_in_its_own_queue_only_within_what_the_queue_owns() {
    let world = |borrowing: &str| {
        format!(
            "flavor   default  quota-only
             quota    all
             quota    team     in=all cpu@default=2 within=lower-priority {borrowing}
             quota    other    in=all cpu@default=2
             queue    q        quota=team default:cpu
             running  low      queue=q main 4x cpu=1 unplaced=4 flavor:cpu=default
             pending  small    priority=1 queue=q main 2x cpu=1
             pending  large    priority=2 queue=q main 4x cpu=1"
        )
    };
    check(
        &world(""),
        &expect![[r#"
            large  wait  needs 4 cpu in flavor default; quota team has 0 of at most 4 left (2 of its own, 2 to borrow)
            small  preempt  low(in-queue): main 2x without node in default
        "#]],
    );
    check(
        &world("reclaim=lower-priority borrowing"),
        &expect![[r#"
            large  preempt  low(in-queue): main 4x without node in default
            small  wait  waits behind default/large, which goes first in its queue
        "#]],
    );
}

#[test]
fn a_gang_that_waits_for_the_victims_of_another_one_keeps_its_nomination() {
    let mut world = parse_world(
        "flavor   default  quota-only
         quota    all
         quota    a        in=all cpu@default=2 within=lower-priority
         quota    b        in=all cpu@default=1 reclaim=any
         quota    c        in=all cpu@default=1 reclaim=any
         queue    a        quota=a default:cpu
         queue    b        quota=b default:cpu
         queue    c        quota=c default:cpu
         running  borrower queue=a main 4x cpu=1 unplaced=4 flavor:cpu=default
         pending  first    queue=b main 1x cpu=1
         pending  second   queue=c main 1x cpu=1",
    );
    let mut output = vec![step(&mut world), step(&mut world)];
    let mut borrower = world.gang("borrower").unwrap().clone();
    borrower.state = GangState::Waiting;
    world.apply(Event::GangUpserted(borrower));
    output.push(step(&mut world));
    expect![[r#"
        first  preempt  borrower(reclaimed): main 1x without node in default
        second  preempt  : main 1x without node in default
        --
        --
        first  admit  main 1x without node in default; no room: main: there is no node
        second  admit  main 1x without node in default; no room: main: there is no node
        borrower  wait  needs 4 cpu in flavor default; quota a has 2 of at most 4 left (2 of its own, 2 to borrow)
    "#]]
    .assert_eq(&output.join("--\n"));
}

#[test]
fn gangs_behind_one_that_waits_for_its_victims_wait_for_their_turn() {
    // `small` would fit in `spare`.
    let mut world = parse_world(
        "flavor   default  quota-only
         flavor   spare    quota-only
         quota    q        cpu@default=2 cpu@spare=1 within=lower-priority
         queue    q        quota=q default,spare:cpu
         running  low      priority=-1 queue=q main 2x cpu=1 unplaced=2 flavor:cpu=default
         pending  urgent   priority=1 queue=q main 1x cpu=2
         pending  small    queue=q main 1x cpu=1
         pending  later    queue=q main 1x cpu=2",
    );
    let mut output = vec![step(&mut world), step(&mut world)];
    let top = scenario::gangs(&mut world, "pending top priority=2 queue=q main 1x cpu=1").unwrap().remove(0);
    world.apply(Event::GangUpserted(top));
    output.push(step(&mut world)); // It goes before the one that waits.
    let mut low = world.gang("low").unwrap().clone();
    low.state = GangState::Waiting;
    world.apply(Event::GangUpserted(low));
    output.push(step(&mut world));
    expect![[r#"
        urgent  preempt  low(in-queue): main 1x without node in default
        small  wait  waits behind default/urgent, which goes first in its queue
        later  wait  waits behind default/urgent, which goes first in its queue
        --
        --
        top  admit  main 1x without node in spare; no room: main: there is no node
        --
        urgent  admit  main 1x without node in default; no room: main: there is no node
        small  wait  needs 1 cpu in flavor default; quota q has 0 of at most 2 left. needs 1 cpu in flavor spare; quota q has 0 of at most 1 left
        later  wait  needs 2 cpu in flavor default; quota q has 0 of at most 2 left. needs 2 cpu in flavor spare; quota q has at most 1
        low  wait  needs 2 cpu in flavor default; quota q has 0 of at most 2 left. needs 2 cpu in flavor spare; quota q has at most 1
    "#]].assert_eq(&output.join("--\n"));
}

#[test]
fn quota_that_was_lent_in_a_cycle_is_reclaimed_in_the_next_one_from_the_gang_that_got_it() {
    // `b-1` borrows what `a-2` may reclaim in the next round. In the same cycle, `important` would be its only victim.
    let mut world = parse_world(
        "flavor   default    quota-only
         quota    all
         quota    a          in=all cpu@default=2 reclaim=any
         quota    b          in=all cpu@default=2 reclaim=any
         queue    a          quota=a default:cpu
         queue    b          quota=b default:cpu
         running  important  queue=b priority=5 main 1x cpu=2 unplaced=1 flavor:cpu=default
         pending  a-1        queue=a main 1x cpu=1
         pending  a-2        queue=a main 1x cpu=1
         pending  b-1        queue=b main 1x cpu=1",
    );
    let output = [step(&mut world), step(&mut world)];
    expect![[r#"
        a-1  admit  main 1x without node in default; no room: main: there is no node
        b-1  admit  main 1x without node in default; no room: main: there is no node
        a-2  wait
        --
        a-2  preempt  b-1(reclaimed): main 1x without node in default
    "#]]
    .assert_eq(&output.join("--\n"));
}

#[test]
fn the_reasons_are_those_of_the_last_attempt() {
    // At first `head` gets `one`, which leaves 1 there; the second attempt gives it `two`.
    let world = parse_world(
        "flavor   one      quota-only
         flavor   two      quota-only
         quota    q        cpu@one=3 cpu@two=2
         queue    q        quota=q one,two:cpu
         pending  g        queue=q head 2x cpu=1 worker 4x cpu=1",
    );
    let lacks = planner::lacks(&world.snapshot(NOW), "g").expect("quota alone decides");
    let told = lacks.iter().map(|lack| match &lack.reason {
        LackReason::Refused(cause) => format!("{:?} {cause:?}", lack.pod_sets),
        LackReason::Quota { of, before, needs, available } => {
            let flavor = world.flavor_name(of.flavor);
            format!("{:?} {flavor}: {before} before, {needs} needed, available {available:?}", lack.pod_sets)
        }
    });
    expect![[r#"
        [1] one: 0 before, 4000 needed, available None
        [1] two: 2000 before, 4000 needed, available None"#]]
    .assert_eq(&told.collect::<Vec<_>>().join("\n"));
}

#[test]
fn a_gang_whose_attempts_come_round_again_waits() {
    // Kueue would try it for ever: each attempt leaves one pod set flavors to see.
    check(
        "flavor   one      quota-only
         flavor   two      quota-only
         quota    q        cpu@one=2 cpu@two=2
         queue    q        quota=q one,two:cpu
         pending  g        queue=q a 1x cpu=1 b 2x cpu=1 c 2x cpu=1",
        &expect![[r#"
            g  wait  needs 2 cpu in flavor one; quota q has 1 of at most 2 left. needs 2 cpu in flavor two; quota q has 0 of at most 2 left
        "#]],
    );
}

#[test]
fn a_nominated_gang_takes_what_its_victims_have_left_although_another_one_waits_for_more() {
    let mut world = parse_world(
        "flavor   default  quota-only
         quota    all
         quota    a        in=all cpu@default=2 reclaim=any
         quota    b        in=all cpu@default=2
         quota    c        in=all cpu@default=2 reclaim=any
         queue    a        quota=a default:cpu
         queue    b        quota=b default:cpu
         queue    c        quota=c default:cpu
         running  mid      queue=b priority=1 main 1x cpu=3 unplaced=1 flavor:cpu=default
         running  high     queue=b priority=2 main 1x cpu=3 unplaced=1 flavor:cpu=default
         pending  first    queue=a priority=1 main 1x cpu=2
         pending  second   queue=c main 1x cpu=2",
    );
    let mut output = vec![step(&mut world)];
    for victim in ["mid", "high"] {
        let mut gone = world.gang(victim).unwrap().clone();
        gone.state = GangState::Waiting;
        world.apply(Event::GangUpserted(gone));
        output.push(step(&mut world));
    }
    expect![[r#"
        first  preempt  mid(reclaimed): main 1x without node in default
        second  preempt  high(reclaimed): main 1x without node in default
        --
        first  admit  main 1x without node in default; no room: main: there is no node
        mid  wait  needs 3 cpu in flavor default; quota b has 1 of at most 6 left (2 of its own, 4 to borrow)
        --
        second  admit  main 1x without node in default; no room: main: there is no node
        high  wait  needs 3 cpu in flavor default; quota b has 2 of at most 6 left (2 of its own, 4 to borrow)
        mid  wait  needs 3 cpu in flavor default; quota b has 2 of at most 6 left (2 of its own, 4 to borrow)
    "#]]
    .assert_eq(&output.join("--\n"));
}
