//! Running gangs that scale up, and replacement of pods on unhealthy nodes.

#![allow(clippy::needless_raw_string_hashes, reason = "this is how expect-test writes what it updates")]

use crate::common::check;
use expect_test::expect;

#[test]
fn a_scale_up_keeps_the_placed_pods_and_adds_all_missing_pods_or_none() {
    check(
        "node     a 3x   cpu=4
         running  g      elastic main 3x cpu=4 on=a-2
         pending  h      main 1x cpu=4",
        &expect![[r#"
            g  admit  main on a-2,a-1,a-3
            h  wait  main: needs 4 cpu on one node; none of 3 eligible nodes has any free
        "#]],
    );
    check(
        "node     a 3x   cpu=4
         running  g      elastic main 4x cpu=4 on=a-2
         running  k      main 3x cpu=4 on=a-2
         pending  h      main 1x cpu=4",
        &expect![[r#"
            g  wait  main: room for 2 of 3 pods, each needs 4 cpu
            h  admit  main on a-1
        "#]],
    );
}

#[test]
fn a_scale_up_waits_for_queue_order_and_quota_like_a_new_gang() {
    check(
        "node     a 4x     cpu=8 label:kind=spot
         node     b 4x     cpu=8 label:kind=firm
         flavor   spot     label:kind=spot
         flavor   firm     label:kind=firm
         quota    team     cpu@spot=24 cpu@firm=64
         queue    q        quota=team firm,spot:cpu
         pending  first    queue=q at=0 main 1x cpu=8 select:kind=spot
         running  g        queue=q elastic at=1 main 2x cpu=8 on=a-1 flavor:cpu=spot
         running  h        queue=q elastic at=2 main 2x cpu=8 on=b-1 flavor:cpu=firm
         running  i        queue=q elastic at=3 main 3x cpu=8 on=a-2 flavor:cpu=spot",
        &expect![[r#"
            first  admit  main on a-3 in spot
            g  wait  needs 8 cpu in flavor spot; quota team has 0 of at most 24 left
            h  admit  main on b-1,b-2 in firm
            i  wait  needs 16 cpu in flavor spot; quota team has 0 of at most 24 left
        "#]],
    );
}

#[test]
fn a_scale_up_preempts_nothing() {
    check(
        "policy   preemption=lower-priority
         node     a        cpu=8
         running  low      main 1x cpu=4 on=a
         running  g        elastic priority=9 main 2x cpu=4 on=a",
        &expect![[r#"
            g  wait  main: needs 4 cpu on one node; the only eligible node has none free
        "#]],
    );
}

#[test]
fn added_pods_go_to_the_topology_domain_of_the_running_pods() {
    check(
        "node     a 3x     cpu=4 label:rack=a
         node     b 3x     cpu=8 label:rack=b
         running  g        elastic main 2x cpu=4 topology:required=rack on=a-1
         running  h        elastic main 3x cpu=8 topology:required=rack on=b-1
         running  i        elastic main 4x cpu=4 topology:required=rack on=a-2",
        &expect![[r#"
            g  admit  main on a-1,a-3
            h  admit  main on b-1,b-2,b-3
            i  wait  main: needs 4 cpu on one node; none of 6 eligible nodes has any free
        "#]],
    );
}

#[test]
fn an_incomplete_slice_is_completed_before_another_one_starts() {
    check(
        "node     a 2x     cpu=2 label:rack=a
         node     b 2x     cpu=4 label:rack=b
         running  g        elastic main 8x cpu=1 slice:4=rack on=a-1*2
         running  h        elastic main 6x cpu=1 slice:4=rack on=b-1*4",
        &expect![[r#"
            g  admit  main on a-1*2,a-2*2,b-2*4
            h  never  main: 2 pods cannot be divided into slices of 4
        "#]],
    );
}

#[test]
fn pods_on_unhealthy_nodes_are_replaced_and_the_others_stay() {
    check(
        "node     a 7x     cpu=4
         quota    team     cpu=16
         queue    q        quota=team :cpu
         running  r        main 1x cpu=4 on=a-1
         running  g        queue=q unhealthy=a-3,a-5 main 4x cpu=4 on=a-2,a-3,a-4,a-5
         pod      g-2      on=a-3 cpu=4 of=g/0
         pending  h        main 1x cpu=4",
        &expect![[r#"
            g  admit  main on a-2,a-6,a-4,a-7
            h  wait  main: needs 4 cpu on one node; none of 7 eligible nodes has any free
        "#]],
    );
}

#[test]
fn replacement_pods_go_to_the_topology_domain_of_the_remaining_pods() {
    check(
        "flavor   f        topology=block,rack
         node     a1 3x    cpu=1 label:block=a label:rack=1
         node     a2 3x    cpu=1 label:block=a label:rack=2
         node     b1 3x    cpu=1 label:block=b label:rack=1
         running  g        unhealthy=a1-2 main 4x cpu=1 topology:required=block slice:2=rack on=a1-1,a1-2,a2-1,a2-2
         running  h        unhealthy=a1-1,a2-2 main 2x cpu=0 topology:required=rack slice:2=rack on=a1-1,a2-2",
        &expect![[r#"
            g  admit  main on a1-1,a1-3,a2-1,a2-2
            h  admit  main on a1-2*2
        "#]],
    );
}

#[test]
fn a_leader_is_replaced_in_the_domain_of_its_workers() {
    check(
        "node     a 3x     cpu=4 label:rack=a
         node     b 3x     cpu=4 label:rack=b
         running  g        unhealthy=b-1 lead 1x cpu=4 topology:required=rack group=x on=b-1  work 1x cpu=4 topology:required=rack group=x on=b-2
         running  h        unhealthy=a-1,a-2 lead 1x cpu=4 topology:required=rack group=x on=a-1  work 1x cpu=4 topology:required=rack group=x on=a-2",
        &expect![[r#"
            g  admit  lead on b-3; work on b-2
            h  wait  needs 8 cpu in total; 4 of 24 cpu are free on 6 eligible nodes
        "#]],
    );
}

#[test]
fn a_gang_whose_unhealthy_nodes_cannot_be_replaced_reports_the_shortage() {
    check(
        "node     a 2x     cpu=4
         running  r        main 1x cpu=2 on=a-2
         running  g        unhealthy=a-1 main 2x cpu=2 on=a-1,a-2
         pending  h        main 1x cpu=3",
        &expect![[r#"
            g  wait  main: needs 2 cpu on one node; the only eligible node has none free; 1 node is where it failed before
            h  wait  main: needs 3 cpu on one node; 1 node has 2 free
        "#]],
    );
}
