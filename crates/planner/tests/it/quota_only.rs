//! Quota-only flavors: pods that are charged to quota and get no node, and open places that a second pass fills.

#![allow(clippy::needless_raw_string_hashes, reason = "this is how expect-test writes what it updates")]

use crate::common::{check, parse_world, step};
use expect_test::expect;
use model::{Event, Gang, Places, World};

#[test]
fn a_quota_only_flavor_admits_without_any_node() {
    check(
        "flavor   default  quota-only
         quota    team     cpu@default=8
         queue    q        quota=team default:cpu
         pending  fits     queue=q head 1x cpu=1 worker 3x cpu=2
         pending  waits    queue=q main 1x cpu=2
         pending  never    queue=q main 1x cpu=9",
        &expect![[r#"
            fits  admit  head 1x without node in default; worker 3x without node in default; no room: head: there is no node. worker: there is no node
            waits  wait  needs 2 cpu in flavor default; quota team has 1 of at most 8 left
            never  never  needs 9 cpu in flavor default; quota team has at most 8
        "#]],
    );
}

#[test]
fn what_the_nodes_lack_is_told_and_refuses_nothing() {
    check(
        "node     a        cpu=4 label:pool=small
         flavor   default  quota-only
         flavor   gpu      quota-only label:pool=gpu
         quota    team     cpu@default=16 cpu@gpu=16
         queue    q        quota=team default:cpu
         queue    g        quota=team gpu:cpu
         running  r        queue=q main 1x cpu=2 unplaced=1 flavor:cpu=default
         pod      p        of=r/0 on=a cpu=2
         pending  fits     queue=q main 1x cpu=2
         pending  large    queue=q main 1x cpu=8
         pending  nowhere  queue=g main 1x cpu=1",
        &expect![[r#"
            fits  admit  main 1x without node in default
            large  admit  main 1x without node in default; no room: main: needs 8 cpu on one node; 1 node has 2 free
            nowhere  admit  main 1x without node in gpu; no room: main: no node matches node selector pool=gpu (1 node)
        "#]],
    );
}

#[test]
fn a_queue_may_place_pods_in_quota_only_flavors() {
    check(
        "node     a        cpu=4
         flavor   default  quota-only
         quota    team     cpu@default=16
         queue    q        quota=team places-pods default:cpu
         pending  fits     queue=q main 2x cpu=2
         pending  waits    queue=q main 1x cpu=2
         pending  never    queue=q main 1x cpu=8",
        &expect![[r#"
            fits  admit  main on a*2 in default
            waits  wait  with default: main: needs 2 cpu on one node; the only eligible node has none free
            never  never  main: needs 8 cpu on one node; 1 node has 4 even when empty
        "#]],
    );
}

#[test]
fn pods_of_one_gang_may_be_placed_or_not_by_their_flavors() {
    check(
        "node     a        cpu=4 nvidia.com/gpu=2 label:pool=gpu
         flavor   default  quota-only
         flavor   gpu      label:pool=gpu
         quota    team     cpu@default=16 nvidia.com/gpu@gpu=4
         queue    q        quota=team default:cpu gpu:nvidia.com/gpu
         pending  mixed    queue=q head 1x cpu=8 worker 2x cpu=1 nvidia.com/gpu=1
         pending  waits    queue=q head 1x cpu=1 worker 1x cpu=1 nvidia.com/gpu=1",
        &expect![[r#"
            mixed  admit  head 1x without node in default; worker on a*2 in default and gpu; no room: head: needs 8 cpu on one node; 1 node has 2 free
            waits  wait  with default and gpu: worker: needs 1 nvidia.com/gpu on one node; the only eligible node has none free
        "#]],
    );
}

#[test]
fn a_topology_request_needs_a_flavor_with_a_topology() {
    check(
        "node     a        cpu=4 label:rack=1
         flavor   default  quota-only
         flavor   racks    label:rack=1 topology=rack
         quota    team     cpu@default=16 cpu@racks=16
         queue    q        quota=team default,racks:cpu
         queue    plain    quota=team default:cpu
         queue    r        quota=team racks:cpu
         pending  tas      queue=q main 1x cpu=1 topology:required=rack
         pending  other    queue=q main 1x cpu=1
         pending  refused  queue=plain main 1x cpu=1 topology:required=rack
         pending  implied  queue=r main 1x cpu=1",
        &expect![[r#"
            tas  admit  main on a in racks
            other  admit  main 1x without node in default
            refused  never  main: requests a topology, which flavor default does not have
            implied  admit  main on a in racks
        "#]],
    );
}

#[test]
fn preemption_without_nodes_frees_quota() {
    check(
        "flavor   default  quota-only
         quota    team     cpu@default=8 within=lower-priority
         queue    q        quota=team default:cpu
         running  low      queue=q main 8x cpu=1 unplaced=8 flavor:cpu=default
         pending  high     priority=1 queue=q main 2x cpu=2",
        &expect![[r#"
            high  preempt  low(in-queue): main 2x without node in default
        "#]],
    );
}

#[test]
fn partial_admission_counts_pods_without_nodes() {
    check(
        "flavor   default  quota-only
         quota    team     cpu@default=8
         queue    q        quota=team default:cpu
         pending  some     queue=q main 12x min=2 cpu=1",
        &expect![[r#"
            some  admit  main 8x without node in default; no room: main: there is no node
        "#]],
    );
}

/// The verdicts until nothing changes.
fn settle(world: &mut World) -> String {
    let steps = std::iter::repeat_with(|| step(world));
    steps.take_while(|text| !text.is_empty()).collect::<Vec<_>>().join("---\n")
}

fn set_places(world: &mut World, uid: &str, places: Places) {
    let gang = world.gang(uid).expect("it exists").clone();
    world.apply(Event::GangUpserted(Gang { places, ..gang }));
}

#[test]
fn a_second_pass_fills_open_places_in_the_same_flavors() {
    let mut world = parse_world(
        "node     a        cpu=4 label:pool=one
         flavor   one      label:pool=one
         flavor   two      label:pool=two
         quota    team     cpu@one=4 cpu@two=16
         queue    q        quota=team one,two:cpu
         pending  g        queue=q places=open main 4x cpu=1
         pending  h        queue=q places=open main 4x cpu=2",
    );
    let mut text = settle(&mut world);
    set_places(&mut world, "g", Places::Requested);
    set_places(&mut world, "h", Places::Requested);
    text.push_str("checks are ready\n");
    text.push_str(&settle(&mut world));
    let node = scenario::parse("node b cpu=8 label:pool=two").expect("it parses");
    world.apply(Event::NodeUpserted(node.node("b").expect("it exists").clone()));
    text.push_str("a node comes\n");
    text.push_str(&settle(&mut world));
    expect![[r#"
        g  admit  main 4x without node in one
        h  admit  main 4x without node in two; no room: main: no node matches node selector pool=two (1 node)
        checks are ready
        g  admit  main on a*4 in one
        h  wait  main: no node matches node selector pool=two (1 node)
        a node comes
        h  admit  main on b*4 in two
    "#]]
    .assert_eq(&text);
    assert!(world.gangs().all(|gang| gang.places == Places::AtAdmission));
}

#[test]
fn a_gang_with_open_places_can_be_preempted() {
    check(
        "flavor   one      label:pool=one
         node     a        cpu=8 label:pool=one
         quota    team     cpu@one=8 within=lower-priority
         queue    q        quota=team one:cpu
         running  low      queue=q places=open main 8x cpu=1 unplaced=8 flavor:cpu=one
         pending  high     priority=1 queue=q main 2x cpu=2",
        &expect![[r#"
            high  preempt  low(in-queue): main on a*2 in one
        "#]],
    );
}

#[test]
fn a_request_for_places_in_a_quota_only_flavor_is_over_at_once() {
    let mut world = parse_world(
        "flavor   default  quota-only
         quota    team     cpu@default=8
         queue    q        quota=team default:cpu
         running  taken    queue=q places=requested main 2x cpu=1 unplaced=2 flavor:cpu=default",
    );
    assert_eq!(settle(&mut world), "");
    assert_eq!(world.gang("taken").map(|gang| gang.places), Some(Places::AtAdmission));
}

#[test]
fn a_pending_gang_has_no_open_places_to_ask_for() {
    let mut world = parse_world(
        "flavor   default  quota-only
         quota    team     cpu@default=8
         queue    q        quota=team default:cpu
         pending  new      queue=q places=requested main 2x cpu=1",
    );
    assert_eq!(
        step(&mut world),
        "new  admit  main 2x without node in default; no room: main: there is no node\n"
    );
    assert_eq!(step(&mut world), "");
}

#[test]
fn quota_may_count_other_amounts_than_nodes() {
    check(
        "node     a        cpu=4 label:pool=one
         flavor   one      label:pool=one
         quota    team     credits@one=8 within=lower-priority
         queue    q        quota=team one:credits
         running  low      queue=q main 1x cpu=1 quota:credits=4 quota:cpu=0 on=a flavor:credits=one
         pending  fits     queue=q main 1x cpu=3 quota:credits=4 quota:cpu=0
         pending  short    queue=q main 1x cpu=1 quota:credits=1 quota:cpu=0
         pending  high     priority=1 queue=q main 1x cpu=4 quota:credits=1 quota:cpu=0
         pending  never    queue=q main 1x cpu=1 quota:credits=9 quota:cpu=0
         pending  large    queue=q main 1x cpu=5 quota:credits=1 quota:cpu=0
         pending  plain    queue=q main 1x cpu=1",
        &expect![[r#"
            high  preempt  low(in-queue): main on a in one
            fits  wait  needs 4 credits in flavor one; quota team has 3 of at most 8 left
            short  wait  with one: main: needs 1 cpu on one node; the only eligible node has none free
            never  never  needs 9 credits in flavor one; quota team has at most 8
            large  never  main: needs 5 cpu on one node; 1 node has 4 even when empty
            plain  never  queue q has no quota for cpu
        "#]],
    );
}
