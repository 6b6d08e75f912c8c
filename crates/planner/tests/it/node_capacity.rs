//! Quota that adds the capacity of nodes.

#![allow(clippy::needless_raw_string_hashes, reason = "this is how expect-test writes what it updates")]

use crate::common::{check, parse_world, step};
use expect_test::expect;
use model::{Event, Queue, World};

#[test]
fn queues_share_the_total_capacity_of_the_nodes() {
    // The teams get all CPUs but 2, and one team may use 5 of them. Cordoned and unready nodes do not count. Taints
    // do not matter.
    check(
        "node     a        cpu=8
         node     b        cpu=4 taint:x:NoSchedule
         node     c        cpu=99 cordoned
         node     d        cpu=99 notready
         quota    all      cpu=nodes-2
         quota    one      in=all borrow:cpu=5
         quota    two      in=all
         queue    one      quota=one :cpu
         queue    two      quota=two :cpu
         running  r        queue=two main 3x cpu=2 on=a*3
         pending  much     queue=one main 6x cpu=1
         pending  more     queue=two main 1x cpu=5
         pending  too      queue=two main 11x cpu=1",
        &expect![[r#"
            much  never  needs 6 cpu; quota one has at most 5 (0 of its own, 5 to borrow)
            more  wait  needs 5 cpu; quota two has 4 of at most 10 left (0 of its own, 10 to borrow)
            too  never  needs 11 cpu; quota two has at most 10 (0 of its own, 10 to borrow)
        "#]],
    );
}

#[test]
fn the_quota_of_a_flavor_is_the_capacity_of_its_nodes() {
    // Spot nodes are tainted. A GPU node with another taint belongs to no flavor.
    check(
        "node     spot 2x  nvidia.com/gpu=4 label:gpu=a100 taint:spot=yes:NoSchedule
         node     own      nvidia.com/gpu=2 label:gpu=a100
         node     broken   nvidia.com/gpu=8 label:gpu=a100 taint:ill:NoExecute
         flavor   own      label:gpu=a100
         flavor   spot     label:gpu=a100 taint:spot=yes:NoSchedule tolerate:spot
         quota    team     nvidia.com/gpu@own=nodes nvidia.com/gpu@spot=nodes-1
         queue    team     quota=team own,spot:nvidia.com/gpu undeclared=ignore
         pending  first    queue=team main 1x nvidia.com/gpu=2
         pending  second   queue=team main 1x nvidia.com/gpu=4 tolerate:spot
         pending  third    queue=team main 1x nvidia.com/gpu=4 tolerate:spot
         pending  fourth   queue=team main 2x nvidia.com/gpu=4 tolerate:spot",
        &expect![[r#"
            first  admit  main on own in own
            second  admit  main on spot-1 in spot
            third  wait  needs 4 nvidia.com/gpu in flavor own; quota team has at most 2. needs 4 nvidia.com/gpu in flavor spot; quota team has 3 of at most 7 left
            fourth  never  needs 8 nvidia.com/gpu in flavor own; quota team has at most 2. needs 8 nvidia.com/gpu in flavor spot; quota team has at most 7
        "#]],
    );
}

#[test]
fn node_capacity_counts_pods_like_any_other_resource() {
    check(
        "node     a        cpu=8 pods=5
         quota    team     pods=nodes-2
         quota    other    pods=4 cpu=8
         queue    team     quota=team :pods undeclared=ignore
         queue    other    quota=other :pods,cpu
         pending  three    queue=team main 3x cpu=1
         pending  one      queue=team main 1x cpu=1
         pending  five     queue=other main 5x cpu=1",
        &expect![[r#"
            three  admit  main on a*3
            one  wait  needs 1 pods; quota team has 0 of at most 3 left
            five  never  needs 5 pods; quota other has at most 4
        "#]],
    );
}

fn event(world: &mut World, text: &str) {
    let fresh = parse_world(text);
    let node = fresh.nodes().next().cloned().map(Event::NodeUpserted);
    world.apply(node.unwrap_or_else(|| Event::NodeRemoved("b".into())));
}

#[test]
fn quota_changes_with_the_nodes() {
    let mut world = parse_world(
        "node     a        cpu=2 label:kind=x
         flavor   x        label:kind=x
         quota    team     cpu@x=nodes
         queue    team     quota=team x:cpu
         pending  g        queue=team main 2x cpu=2",
    );
    let mut output = step(&mut world);
    for change in ["node b cpu=2", "node b cpu=2 label:kind=x cordoned", "node b cpu=2 label:kind=x", ""] {
        event(&mut world, change);
        let what = if change.is_empty() { "node b is gone" } else { change };
        output = format!("{output}{what}\n{}", step(&mut world));
        if change.is_empty() {
            world.apply(Event::GangRemoved("g".into()));
        }
    }
    for gang in scenario::gangs(&mut world, "pending h queue=team main 2x cpu=2").unwrap_or_default() {
        world.apply(Event::GangUpserted(gang));
    }
    output.push_str(&step(&mut world));
    expect![[r#"
        g  never  needs 4 cpu in flavor x; quota team has at most 2
        node b cpu=2
        g  never  needs 4 cpu in flavor x; quota team has at most 2
        node b cpu=2 label:kind=x cordoned
        g  never  needs 4 cpu in flavor x; quota team has at most 2
        node b cpu=2 label:kind=x
        g  admit  main on a,b in x
        node b is gone
        h  never  needs 4 cpu in flavor x; quota team has at most 2
    "#]]
    .assert_eq(&output);
}

#[test]
fn the_implicit_queue_may_use_quota_from_node_capacity() {
    let mut world = parse_world(
        "node     a        cpu=4
         quota    nodes    cpu=nodes pods=nodes
         quota    guest    in=nodes cpu=1 borrow:cpu=0
         queue    any      quota=nodes :cpu,pods
         queue    guest    quota=guest :cpu
         pending  g        main 3x cpu=1
         pending  h        queue=guest main 1x cpu=1
         pending  i        queue=guest main 2x cpu=1
         pending  j        main 1x cpu=1",
    );
    let any = world.queues().values().find(|queue| queue.name == "any").cloned().unwrap_or_default();
    world.apply(Event::QueueUpserted(Queue { name: String::new(), ..any }));
    expect![[r#"
        g  admit  main on a*3
        h  admit  main on a
        i  never  needs 2 cpu; quota guest has at most 1
        j  wait  main: needs 1 cpu on one node; the only eligible node has none free
    "#]]
    .assert_eq(&step(&mut world));
}
