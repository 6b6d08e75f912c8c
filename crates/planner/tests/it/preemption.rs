//! Preemption by priority: the choice of victims, and what happens to the preemptor and its victims.

#![allow(clippy::needless_raw_string_hashes, reason = "this is how expect-test writes what it updates")]

use crate::common::{check, parse_world, step};
use expect_test::expect;
use model::{Event, GangState, Node, Policy, Verdict, World};

#[test]
fn no_gang_is_preempted_when_the_policy_forbids_it() {
    check(
        "node     a        cpu=4
         running  r        main 1x cpu=4 on=a
         pending  urgent   priority=9 main 1x cpu=4",
        &expect![[r#"
            urgent  wait  main: needs 4 cpu on one node; the only eligible node has none free
        "#]],
    );
}

#[test]
fn a_gang_of_higher_priority_preempts_a_complete_gang() {
    check(
        "policy   preemption=lower-priority
         node     a 2x     cpu=4
         running  r        main 2x cpu=4 on=a-1,a-2
         pending  equal    main 1x cpu=4
         pending  urgent   priority=9 main 1x cpu=4
         pending  next     priority=8 main 1x cpu=4",
        &expect![[r#"
            urgent  preempt  r: main on a-1
            next  preempt  : main on a-2
            equal  wait  main: needs 4 cpu on one node; none of 2 eligible nodes has any free
        "#]],
    );
}

#[test]
fn a_nominated_gang_that_exceeds_the_quota_meanwhile_waits_no_longer_for_its_victims() {
    let mut world = parse_world(
        "node      a       cpu=64
         quota     mine    cpu=2 within=lower-priority
         running   r       charge=mine main 1x cpu=2 on=a
         nominated large   charge=mine priority=9 victims=r(in-queue) main 1x cpu=3 on=a",
    );
    let output = [step(&mut world), step(&mut world)];
    expect![[r#"
        large  wait  1 gang was preempted for it, but the nodes are taken or gone
        --
        large  never  needs 3 cpu; quota mine has at most 2
    "#]]
    .assert_eq(&output.join("--\n"));
}

#[test]
fn a_gated_gang_starts_where_it_fits_and_preempts_no_other() {
    check(
        "policy   preemption=lower-priority
         node     a        cpu=4
         running  r        main 1x cpu=3 on=a
         pending  closed   priority=9 gated main 1x cpu=2
         pending  fits     priority=8 gated main 1x cpu=1",
        &expect![[r#"
            closed  wait  it would fit after preemption, but its preemption gates are closed
            fits  admit  main on a
        "#]],
    );
    check(
        "policy   preemption=lower-priority
         node     a        cpu=4
         running  r        main 1x cpu=3 on=a
         pending  closed   priority=9 gated main 1x cpu=2
         pending  open     priority=9 main 1x cpu=2",
        &expect![[r#"
            closed  wait  it would fit after preemption, but its preemption gates are closed
            open  preempt  r: main on a
        "#]],
    );
}

#[test]
fn the_cheapest_victims_are_preempted_and_only_needed_ones() {
    // Victim order: lowest priority, then the least accelerator time lost, then the newest.
    check(
        "policy   preemption=lower-priority
         node     a 4x     cpu=8 nvidia.com/gpu=2
         running  p1       priority=1 started=0 main 1x nvidia.com/gpu=2 on=a-1
         running  long     started=0 main 1x nvidia.com/gpu=2 on=a-2
         running  short    started=500 main 1x nvidia.com/gpu=2 on=a-3
         running  saved    started=0 checkpointed=900 main 1x nvidia.com/gpu=2 on=a-4
         pending  urgent   priority=9 main 2x nvidia.com/gpu=2",
        &expect![[r#"
            urgent  preempt  saved, short: main on a-3,a-4
        "#]],
    );
    check(
        "policy   preemption=lower-priority
         node     a        nvidia.com/gpu=8
         running  one      main 1x nvidia.com/gpu=1 on=a
         running  two      main 1x nvidia.com/gpu=2 on=a
         running  five     main 1x nvidia.com/gpu=5 on=a
         pending  urgent   priority=9 main 1x nvidia.com/gpu=2",
        &expect![[r#"
            urgent  preempt  two: main on a
        "#]],
    );
}

#[test]
fn one_victim_is_preferred_to_two() {
    check(
        "policy   preemption=lower-priority
         node     a        nvidia.com/gpu=4
         running  w        started=100 main 1x nvidia.com/gpu=2 on=a
         running  x        started=100 main 1x nvidia.com/gpu=1 on=a
         running  y        started=100 main 1x nvidia.com/gpu=1 on=a
         pending  urgent   priority=9 main 1x nvidia.com/gpu=2",
        &expect![[r#"
            urgent  preempt  w: main on a
        "#]],
    );
}

#[test]
fn protected_gangs_and_useless_victims_are_not_preempted() {
    check(
        "policy   preemption=lower-priority
         node     a        cpu=4
         node     b        cpu=4 label:zone=b
         running  shielded protected main 1x cpu=4 on=b
         running  useless  main 1x cpu=4 on=a
         pending  urgent   priority=9 main 1x cpu=4 select:zone=b",
        &expect![[r#"
            urgent  wait  main: needs 4 cpu on one node; the only eligible node has none free; 1 node does not match node selector zone=b
        "#]],
    );
}

#[test]
fn no_gang_is_preempted_for_a_gang_that_would_still_not_fit() {
    check(
        "policy   preemption=lower-priority
         node     a        cpu=4
         node     b        cpu=4
         running  weak     main 1x cpu=4 on=a
         running  strong   priority=9 main 1x cpu=1 on=b
         pending  urgent   priority=5 main 2x cpu=4",
        &expect![[r#"
            urgent  wait  main: needs 4 cpu on one node; 1 node has 3 free
        "#]],
    );
}

#[test]
fn a_gang_waits_for_terminating_pods_instead_of_preempting_more() {
    check(
        "policy   preemption=lower-priority
         node     a        cpu=4
         node     b        cpu=4
         pod      old      on=a cpu=4 of=ended/0
         running  weak     main 1x cpu=4 on=b
         pending  urgent   priority=5 main 1x cpu=4
         pending  same     main 1x cpu=4",
        &expect![[r#"
            urgent  preempt  : main on a
            same  wait  main: needs 4 cpu on one node; none of 2 eligible nodes has any free
        "#]],
    );
}

#[test]
fn a_nomination_holds_its_nodes_until_the_victims_are_gone() {
    let mut world = parse_world(
        "policy   preemption=lower-priority
         node     a        cpu=4
         running  weak     main 2x cpu=2 on=a*2
         pod      weak-0   on=a cpu=2 of=weak/0
         pod      weak-1   on=a cpu=2 of=weak/0
         pending  urgent   priority=5 main 1x cpu=3
         pending  small    main 1x cpu=1",
    );
    let mut output = vec![step(&mut world), step(&mut world)];
    // The victim is pending again; its pods are still bound.
    let mut weak = world.gang("weak").unwrap().clone();
    weak.state = GangState::Waiting;
    world.apply(Event::GangUpserted(weak));
    output.push(step(&mut world));
    world.apply(Event::PodRemoved("weak-0".into()));
    output.push(step(&mut world));
    world.apply(Event::PodRemoved("weak-1".into()));
    output.push(step(&mut world));
    output.push(step(&mut world));
    expect![[r#"
        urgent  preempt  weak: main on a
        small  preempt  : main on a
        --
        --
        weak  wait  2 of its pods are still terminating
        --
        --
        urgent  admit  main on a
        small  admit  main on a
        weak  wait  main: needs 2 cpu on one node; the only eligible node has none free
        --
    "#]]
    .assert_eq(&output.join("--\n"));
}

#[test]
fn a_gang_whose_pods_have_terminated_is_told_the_verdict_of_its_row() {
    let mut world = parse_world(
        "node     a         cpu=3
         pod      other     on=a cpu=1
         pod      first-0   on=a cpu=1 of=first/0
         pod      second-0  on=a cpu=1 of=second/0
         pending  first     main 1x cpu=3
         pending  second    main 1x cpu=3",
    );
    let mut output = vec![step(&mut world)];
    for pod in ["first-0", "second-0"] {
        world.apply(Event::PodRemoved(pod.into()));
    }
    output.extend([step(&mut world), step(&mut world)]);
    expect![[r#"
        first  wait  1 of its pods is still terminating
        second  wait  1 of its pods is still terminating
        --
        first  wait  main: needs 3 cpu on one node; 1 node has 2 free
        second  wait  main: needs 3 cpu on one node; 1 node has 2 free
        --
    "#]]
    .assert_eq(&output.join("--\n"));
}

#[test]
fn a_victim_that_is_admitted_again_is_not_awaited() {
    let mut world = parse_world(
        "policy   preemption=lower-priority
         node     a        cpu=4
         running  first    main 1x cpu=2 on=a
         running  second   main 1x cpu=2 on=a
         pending  urgent   priority=5 main 1x cpu=4",
    );
    let mut output = vec![step(&mut world)];
    let mut first = world.gang("first").unwrap().clone();
    first.state = GangState::Waiting;
    let nominated = world.gang("urgent").unwrap().clone();
    world.apply(Event::GangUpserted(first));
    let other = Node { name: "b".into(), ..world.nodes().next().unwrap().clone() };
    world.apply(Event::NodeUpserted(other));
    output.push(step(&mut world));
    // Its controller reports the nomination as it was.
    world.apply(Event::GangUpserted(nominated));
    // Were `first` about to leave, this one would be nominated for its place.
    let late = scenario::gangs(&mut world, "pending late main 1x cpu=4").unwrap().remove(0);
    world.apply(Event::GangUpserted(late));
    output.push(step(&mut world));
    expect![[r#"
        urgent  preempt  first, second: main on a
        --
        first  admit  main on b
        --
        late  wait  main: needs 4 cpu on one node; 1 node has 2 free
    "#]]
    .assert_eq(&output.join("--\n"));
}

#[test]
fn a_nominated_gang_whose_nodes_are_lost_is_requeued() {
    let mut world = parse_world(
        "policy    preemption=lower-priority
         node      a        cpu=4
         nominated urgent   priority=5 victims=weak main 1x cpu=4 on=a
         pod       intruder on=a cpu=1",
    );
    let output = [step(&mut world), step(&mut world)];
    expect![[r#"
        urgent  wait  1 gang was preempted for it, but the nodes are taken or gone
        --
        urgent  wait  main: needs 4 cpu on one node; 1 node has 3 free
    "#]]
    .assert_eq(&output.join("--\n"));
    assert!(matches!(world.verdict("urgent"), Some(Verdict::Wait(_))));
}

#[test]
fn a_nominated_gang_is_preempted_by_a_higher_priority_at_no_cost() {
    let mut world = parse_world(
        "policy    preemption=lower-priority
         node      a        cpu=4
         running   weak     main 1x cpu=4 on=a
         pending   urgent   priority=5 main 1x cpu=4",
    );
    let mut output = vec![step(&mut world)];
    let top = scenario::gangs(&mut world, "pending top priority=9 main 1x cpu=4").unwrap().remove(0);
    world.apply(Event::GangUpserted(top));
    output.push(step(&mut world));
    output.push(step(&mut world));
    expect![[r#"
        urgent  preempt  weak: main on a
        --
        top  preempt  urgent: main on a
        --
        urgent  wait  main: needs 4 cpu on one node; the only eligible node has none free
    "#]]
    .assert_eq(&output.join("--\n"));
}

#[test]
fn a_gang_does_not_preempt_a_gang_it_was_preempted_for() {
    // Directly or transitively. Another gang of the same shape has no preemption history.
    check(
        "policy   preemption=lower-priority
         node     a        cpu=4
         running  r        main 1x cpu=4 on=a
         pending  first    priority=1 main 1x cpu=4
         pending  second   priority=1 main 1x cpu=4
         stopped  first    for=between
         stopped  between  for=r",
        &expect![[r#"
            first  wait  main: needs 4 cpu on one node; the only eligible node has none free
            second  preempt  r: main on a
        "#]],
    );
}

#[test]
fn a_gang_admitted_first_by_slope_is_preempted_by_base_priority_with_declared_totals() {
    let text = "policy   preemption=lower-priority
         node     n        cpu=10
         pending  rising   at=0 priority=1 slope=1000  declared:cpu=8
         pending  falling  at=0 priority=2 slope=-1000 declared:cpu=8";
    let mut world = parse_world(text);
    let output = [step(&mut world), step(&mut world)];
    expect![[r#"
        rising  admit
        falling  wait  needs 8 cpu in total (declared); 2 of 10 cpu are free on 1 eligible node
        --
        falling  preempt  rising:
    "#]]
    .assert_eq(&output.join("--\n"));
}

#[test]
fn preemption_history_is_dropped_with_either_gang_and_with_a_policy_change() {
    let text = "policy   preemption=lower-priority
         node     a        cpu=4
         running  r        main 1x cpu=4 on=a
         pending  urgent   priority=1 main 1x cpu=4";
    let mut world = parse_world(text);
    let mut output = vec![step(&mut world)];
    let pairs = |world: &World| {
        world.preemption_history().map(|(gang, by)| format!("{gang} for {by}")).collect::<Vec<_>>()
    };
    assert_eq!(pairs(&world), ["r for urgent"]);
    for event in [
        Event::GangRemoved("urgent".into()),
        Event::GangRemoved("r".into()),
        Event::PolicySet(Policy::default()),
    ] {
        let mut world = world.clone();
        world.apply(event);
        assert_eq!(pairs(&world), [""; 0]);
    }
    output.push(step(&mut world));
    expect![[r#"
        urgent  preempt  r: main on a
        --
    "#]]
    .assert_eq(&output.join("--\n"));
}
