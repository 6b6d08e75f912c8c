//! Quota and flavors: what each queue may use, and the messages of gangs that exceed it.

#![allow(clippy::needless_raw_string_hashes, reason = "this is how expect-test writes what it updates")]

use crate::common::check;
use expect_test::expect;

#[test]
fn a_queue_without_a_cohort_uses_only_its_nominal_quota() {
    check(
        "node     a 4x     nvidia.com/gpu=8
         quota    team     nvidia.com/gpu=10
         queue    q        quota=team :nvidia.com/gpu
         running  r        queue=q main 1x nvidia.com/gpu=4 on=a-1
         pending  fits     queue=q main 1x nvidia.com/gpu=6
         pending  waits    queue=q main 2x nvidia.com/gpu=4
         pending  never    queue=q main 2x nvidia.com/gpu=6
         pending  outside  main 2x nvidia.com/gpu=6",
        &expect![[r#"
            fits  admit  main on a-2
            waits  wait  needs 8 nvidia.com/gpu; quota team has 0 of at most 10 left
            never  never  needs 12 nvidia.com/gpu; quota team has at most 10
            outside  admit  main on a-3,a-4
        "#]],
    );
}

#[test]
fn borrowing_is_bounded_by_the_lending_limits_of_other_queues() {
    check(
        "node     a        cpu=100
         quota    all
         quota    one      in=all cpu=10 borrow:cpu=6
         quota    two      in=all cpu=10 lend:cpu=4
         queue    one      quota=one :cpu
         queue    two      quota=two :cpu
         pending  a        queue=one main 1x cpu=15
         running  b        queue=one main 1x cpu=14 flavor:cpu= on=a
         pending  c        queue=two main 1x cpu=6
         pending  d        queue=two main 1x cpu=1",
        &expect![[r#"
            a  never  needs 15 cpu; quota one has at most 14 (10 of its own, 4 to borrow)
            c  admit  main on a
            d  wait  needs 1 cpu; quota two has 0 of at most 20 left (10 of its own, 10 to borrow)
        "#]],
    );
}

#[test]
fn a_stopped_or_missing_queue_admits_nothing_and_says_so() {
    check(
        "node     a        cpu=8
         quota    x        in=y
         quota    y        in=x cpu=8
         quota    ok       cpu=8
         queue    stopped  quota=ok stopped :cpu
         queue    nowhere  quota=gone :cpu
         queue    cyclic   quota=x :cpu
         queue    small    quota=ok :cpu
         pending  a        queue=stopped main 1x cpu=1
         pending  b        queue=absent main 1x cpu=1
         pending  c        queue=nowhere main 1x cpu=1
         pending  d        queue=cyclic main 1x cpu=1
         pending  e        queue=small main 1x memory=1
         pending  f        charge=gone main 1x cpu=1
         pending  g        queue=small main 1x cpu=1",
        &expect![[r#"
            a  wait  queue stopped is stopped
            b  wait  queue absent does not exist
            c  wait  quota gone does not exist
            d  wait  quota x has no root: its ancestors form a cycle
            e  never  queue small has no quota for memory
            f  wait  quota gone does not exist
            g  admit  main on a
        "#]],
    );
}

#[test]
fn flavors_are_tried_in_order_and_pods_are_placed_on_their_nodes() {
    check(
        "node     spot 2x  cpu=8 label:kind=spot taint:spot:NoSchedule
         node     firm 2x  cpu=8 label:kind=firm
         node     other    cpu=64
         flavor   spot     label:kind=spot taint:spot:NoSchedule
         flavor   firm     label:kind=firm
         quota    team     cpu@spot=8 cpu@firm=16
         queue    q        quota=team spot,firm:cpu
         pending  intolerant  queue=q main 1x cpu=8
         pending  tolerant    queue=q main 1x cpu=8 tolerate:spot
         pending  bound       queue=q main 1x cpu=8 tolerate:spot select:kind=firm
         pending  last        queue=q main 1x cpu=8 tolerate:spot",
        &expect![[r#"
            intolerant  admit  main on firm-1 in firm
            tolerant  admit  main on spot-1 in spot
            bound  admit  main on firm-2 in firm
            last  wait  needs 8 cpu in flavor spot; quota team has 0 of at most 8 left. needs 8 cpu in flavor firm; quota team has 0 of at most 16 left
        "#]],
    );
}

#[test]
fn a_flavor_whose_nodes_are_too_fragmented_does_not_fit() {
    check(
        "node     a 2x     nvidia.com/gpu=4 label:gpu=a
         node     b        nvidia.com/gpu=8 label:gpu=b
         flavor   a        label:gpu=a
         flavor   b        label:gpu=b
         quota    team     nvidia.com/gpu@a=8 nvidia.com/gpu@b=8
         queue    q        quota=team a,b:nvidia.com/gpu
         pending  whole    queue=q main 1x nvidia.com/gpu=8
         pending  halves   queue=q main 2x nvidia.com/gpu=4",
        &expect![[r#"
            whole  admit  main on b in b
            halves  admit  main on a-1,a-2 in a
        "#]],
    );
}

#[test]
fn another_combination_of_flavors_is_found_where_the_first_choice_fails() {
    check(
        "node     a        nvidia.com/gpu=8 label:gpu=a
         node     b        nvidia.com/gpu=8 label:gpu=b
         flavor   a        label:gpu=a
         flavor   b        label:gpu=b
         quota    team     nvidia.com/gpu@a=8 nvidia.com/gpu@b=8
         queue    q        quota=team a,b:nvidia.com/gpu
         pending  g        queue=q  small 1x nvidia.com/gpu=4  large 2x nvidia.com/gpu=4 select:gpu=a",
        &expect![[r#"
            g  admit  small on b in b; large on a*2 in a
        "#]],
    );
}

#[test]
fn pod_sets_of_one_group_get_the_same_flavor() {
    check(
        "node     a        cpu=4 label:gpu=a
         node     b        cpu=16 label:gpu=b
         flavor   a        label:gpu=a
         flavor   b        label:gpu=b
         quota    team     cpu@a=4 cpu@b=16
         queue    q        quota=team a,b:cpu
         pending  apart    queue=q  head 1x cpu=1  worker 1x cpu=4
         pending  together queue=q  head 1x cpu=1 group=g  worker 1x cpu=4 group=g",
        &expect![[r#"
            apart  admit  head on a in a; worker on b in b
            together  admit  head on b in b; worker on b in b
        "#]],
    );
}

#[test]
fn borrowing_an_earlier_flavor_is_preferred_to_nominal_quota_of_a_later_one() {
    check(
        "node     a        cpu=64
         flavor   one
         flavor   two
         quota    all      cpu@one=8
         quota    team     in=all cpu@one=2 cpu@two=8
         queue    q        quota=team one,two:cpu
         pending  g        queue=q main 1x cpu=8",
        &expect![[r#"
            g  admit  main on a in one
        "#]],
    );
}

#[test]
fn when_can_borrow_try_prefers_nominal_quota_of_a_later_flavor() {
    check(
        "node     a        cpu=64
         flavor   one
         flavor   two
         quota    all      cpu@one=8
         quota    team     in=all cpu@one=2 cpu@two=8
         queue    q        quota=team when-can-borrow=try one,two:cpu
         pending  g        queue=q main 1x cpu=8",
        &expect![[r#"
            g  admit  main on a in two
        "#]],
    );
}

#[test]
fn each_resource_group_assigns_its_own_flavor() {
    check(
        "node     a        cpu=8 nvidia.com/gpu=8 label:gpu=a100 label:zone=z
         node     b        cpu=8 nvidia.com/gpu=8 label:gpu=v100 label:zone=z
         flavor   zone     label:zone=z
         flavor   a100     label:gpu=a100
         flavor   v100     label:gpu=v100
         quota    team     cpu@zone=4 memory@zone=1Gi nvidia.com/gpu@a100=2 nvidia.com/gpu@v100=8
         queue    q        quota=team zone:cpu,memory a100,v100:nvidia.com/gpu
         pending  g        queue=q main 1x cpu=2 nvidia.com/gpu=4
         pending  h        queue=q main 1x cpu=2 memory=2Gi",
        &expect![[r#"
            g  admit  main on b in zone and v100
            h  never  needs 2Gi memory in flavor zone; quota team has at most 1Gi
        "#]],
    );
}

#[test]
fn the_pods_resource_is_charged_where_a_queue_declares_it() {
    check(
        "node     a        cpu=64
         quota    team     cpu=64 pods=3
         queue    q        quota=team :cpu,pods
         pending  g        queue=q main 2x cpu=1
         pending  h        queue=q main 2x cpu=1",
        &expect![[r#"
            g  admit  main on a*2
            h  wait  needs 2 pods; quota team has 1 of at most 3 left
        "#]],
    );
}

#[test]
fn undeclared_resources_are_rejected_or_ignored() {
    check(
        "node     a        cpu=64 memory=64Gi
         quota    team     cpu=64
         queue    q        quota=team :cpu
         queue    lax      quota=team undeclared=ignore :cpu
         pending  g        queue=q main 1x cpu=1 memory=1Gi
         pending  h        queue=lax main 1x cpu=1 memory=1Gi",
        &expect![[r#"
            g  never  queue q has no quota for memory
            h  admit  main on a
        "#]],
    );
}

#[test]
fn a_gang_is_charged_to_all_its_trees_or_to_none() {
    check(
        "node     a        cpu=64
         quota    org      cpu=8
         quota    gold     in=org cpu=8
         quota    context  cpu=4
         quota    batch    in=context
         pending  g        charge=gold,batch main 1x cpu=4
         pending  h        charge=gold,batch main 1x cpu=4
         pending  i        charge=gold main 1x cpu=12
         pending  j        charge=gold main 1x cpu=16
         pending  k        charge=gold main 1x cpu=4 memory=0",
        &expect![[r#"
            g  admit  main on a
            h  wait  needs 4 cpu; quota batch has 0 of at most 4 left (0 of its own, 4 to borrow)
            i  admit  main on a
            j  wait  needs 16 cpu; quota gold has 0 of at most 16 left (8 of its own, 8 to borrow)
            k  wait  needs 4 cpu; quota gold has 0 of at most 16 left (8 of its own, 8 to borrow)
        "#]],
    );
}

#[test]
fn quantities_that_overflow_are_never_admitted() {
    check(
        "node     a        cpu=9223372036854775807
         quota    huge     cpu=9223372036854775807
         quota    negative cpu=-5 lend:cpu=9 borrow:cpu=-3 in=huge
         queue    q        quota=huge :cpu
         queue    n        quota=negative :cpu
         pending  g        queue=q main 4294967295x cpu=9223372036854775807
         pending  h        queue=q main 1000000x cpu=1m
         pending  i        queue=n main 1x cpu=1m
         pending  j        queue=q main 0x cpu=1
         pending  k        queue=q",
        &expect![[r#"
            g  never  needs 9223372036854775807m cpu; quota huge has at most 9223372036854770807m
            h  never  main: room for 110 of 1000000 pods, each needs 1 pods
            i  never  needs 1m cpu; quota negative has at most 0
            j  admit
            k  admit
        "#]],
    );
}
