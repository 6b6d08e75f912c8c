//! Contradictory quotas and gangs: each gets a verdict. None causes a panic or a wrong admission. The auditor checks
//! every plan.

#![allow(clippy::needless_raw_string_hashes, reason = "this is how expect-test writes what it updates")]

use crate::common::check;
use expect_test::expect;

#[test]
fn contradictory_limits_never_admit_more_than_the_quota() {
    // The lending limit exceeds the nominal quota, the borrowing limit is negative, and the parent's quota is
    // negative.
    check(
        "node     a        cpu=64
         quota    all      cpu=-4
         quota    mine     in=all within=lower-priority reclaim=any borrowing cpu=8 lend:cpu=100
         quota    yours    in=all reclaim=any cpu=4 borrow:cpu=-2 lend:cpu=-3
         queue    mine     quota=mine :cpu
         queue    yours    quota=yours :cpu
         running  y        queue=yours main 1x cpu=6 on=a
         running  m        queue=mine main 1x cpu=4 on=a
         pending  g        queue=mine priority=5 main 1x cpu=4
         pending  h        queue=yours priority=5 main 1x cpu=3
         pending  i        queue=yours priority=5 main 1x cpu=2",
        &expect![[r#"
            g  never  needs 4 cpu; quota mine has at most 1
            h  never  needs 3 cpu; quota yours has at most 2
            i  wait  needs 2 cpu; quota yours has 0 of at most 2 left
        "#]],
    );
}

#[test]
fn queues_in_a_cohort_cycle_admit_nothing_and_preempt_nothing() {
    check(
        "policy   fair-sharing=final-share preemption=lower-priority
         node     a        cpu=8
         quota    x        in=y reclaim=any within=lower-priority cpu=8
         quota    y        in=z cpu=8
         quota    z        in=x cpu=8
         quota    self     in=self cpu=8 within=lower-priority
         queue    x        quota=x :cpu
         queue    y        quota=y :cpu
         queue    self     quota=self :cpu
         running  there    queue=y main 1x cpu=4 on=a
         running  strange  main 1x cpu=4 on=a
         pending  g        queue=x priority=5 main 1x cpu=4
         pending  h        queue=self priority=5 main 1x cpu=4
         pending  i        charge=x,self priority=5 main 1x cpu=4
         pending  free     priority=1 main 1x cpu=4",
        &expect![[r#"
            g  wait  quota x has no root: its ancestors form a cycle
            h  wait  quota self has no root: its ancestors form a cycle
            i  wait  quota x has no root: its ancestors form a cycle
            free  preempt  strange: main on a
        "#]],
    );
}

#[test]
fn gangs_without_pods_neither_preempt_nor_are_preempted() {
    check(
        "policy   preemption=lower-priority
         node     a        cpu=4
         quota    team     within=lower-priority cpu=4
         queue    q        quota=team :cpu
         running  empty    queue=q main 0x cpu=4 on=
         running  full     queue=q main 1x cpu=4 on=a
         pending  nothing  queue=q priority=5 main 0x cpu=4
         pending  none     queue=q priority=5
         pending  one      queue=q priority=4 main 1x cpu=4",
        &expect![[r#"
            nothing  admit
            none  admit
            one  preempt  full(in-queue): main on a
        "#]],
    );
}

#[test]
fn a_gang_of_a_million_pods_is_decided_like_a_gang_of_one() {
    check(
        "node     a 2x     cpu=1000 pods=600000
         quota    all
         quota    mine     in=all within=lower-priority reclaim=any cpu=1000
         quota    yours    in=all cpu=10
         queue    mine     quota=mine :cpu
         queue    yours    quota=yours :cpu
         running  y        queue=yours main 200000x cpu=1m on=a-1*200000
         pending  fits     queue=mine main 1000000x cpu=1m
         pending  never    queue=mine main 1000000x cpu=2m
         pending  most     queue=mine main 4294967295x cpu=1m",
        &expect![[r#"
            fits  preempt  y(reclaimed): main on a-1*400000,a-2*600000
            never  never  needs 2000 cpu; quota mine has at most 1010 (1000 of its own, 10 to borrow)
            most  never  needs 4294967295m cpu; quota mine has at most 1010 (1000 of its own, 10 to borrow)
        "#]],
    );
}

#[test]
fn quota_for_a_resource_that_no_node_has_admits_nothing() {
    check(
        "policy   preemption=lower-priority
         node     a        cpu=8
         quota    team     within=lower-priority cpu=8 example.com/fpga=8
         queue    q        quota=team :cpu,example.com/fpga
         running  r        queue=q main 1x cpu=8 on=a
         pending  g        queue=q priority=5 main 1x cpu=1 example.com/fpga=1
         pending  h        queue=q priority=5 main 1x cpu=1 example.com/fpga=0",
        &expect![[r#"
            g  never  main: needs 1 example.com/fpga on one node; the only eligible node has none
            h  preempt  r(in-queue): main on a
        "#]],
    );
}

#[test]
fn overflowing_sums_cause_no_useless_preemption() {
    check(
        "policy   fair-sharing=final-or-initial-share
         node     a        cpu=9223372036854775
         quota    all      cpu=9223372036854775
         quota    one      in=all reclaim=any within=lower-priority cpu=9223372036854775 weight=4294967
         quota    two      in=all reclaim=any within=lower-priority cpu=9223372036854775 borrow:cpu=9223372036854775
         quota    three    in=all reclaim=any weight=0
         queue    one      quota=one :cpu
         queue    two      quota=two :cpu
         queue    three    quota=three :cpu
         running  r        queue=three main 1x cpu=9223372036854775 on=a
         pending  g        queue=one priority=5 main 4294967295x cpu=9223372036854775
         pending  h        queue=two priority=5 main 1x cpu=9223372036854775
         pending  i        queue=three priority=5 main 1x cpu=1",
        &expect![[r#"
            g  never  needs 9223372036854775807m cpu; quota one has at most 9223372036854775807m (9223372036854775 of its own, 807m to borrow)
            i  wait  main: needs 1 cpu on one node; the only eligible node has none free
            h  preempt  r(reclaimed): main on a
        "#]],
    );
}

#[test]
fn quota_from_node_capacity_is_zero_when_the_nodes_do_not_exist() {
    check(
        "node     a        cpu=9223372036854775
         node     b        cpu=9223372036854775
         quota    ghost    cpu@ghost=nodes
         quota    debt     cpu=nodes-9223372036854775 example.com/fpga=nodes-1
         quota    round    in=round cpu=nodes
         quota    huge     cpu=nodes+9223372036854775
         queue    ghost    quota=ghost ghost:cpu
         queue    debt     quota=debt :cpu,example.com/fpga
         queue    round    quota=round :cpu
         queue    huge     quota=huge :cpu
         pending  g        queue=ghost main 1x cpu=1
         pending  h        queue=debt main 1x cpu=1 example.com/fpga=1
         pending  i        queue=round main 1x cpu=1
         pending  j        queue=huge main 2x cpu=4611686018427387",
        &expect![[r#"
            g  never  flavor ghost does not exist
            h  never  needs 1 example.com/fpga; quota debt has at most 0
            i  wait  quota round has no root: its ancestors form a cycle
            j  admit  main on a*2
        "#]],
    );
}

#[test]
fn invalid_admission_fair_sharing_settings_still_give_an_order() {
    // The usage is recorded in the future, or time runs backwards. No resource counts, or every local queue has
    // weight 0.
    check(
        "node     a        cpu=4
         queue    now      half-life=-5 interval=-5 count:cpu=4294967295
         queue    nothing  half-life=9223372036854775807 interval=9223372036854775807
         queue    nobody   strict half-life=0 interval=1 count:cpu=1000 weight:ann=0 weight:ben=0
         served   ann      queue=now at=9000 cpu=340282366920938463463374607431768211455
         clock    500
         clock    400
         pending  n1       queue=now from=ann main 1x cpu=1
         pending  n2       queue=now from=ben main 1x cpu=1
         pending  o1       queue=nothing from=ann main 1x cpu=1
         pending  o2       queue=nothing from=ben main 0x
         pending  p1       queue=nobody from=ann main 1x cpu=1
         pending  p2       queue=nobody from=ben main 1x cpu=9223372036854775807",
        &expect![[r#"
            n1  admit  main on a
            n2  admit  main on a
            o1  admit  main on a
            o2  admit
            p1  admit  main on a
            p2  never  main: needs 9223372036854775807m cpu on one node; 1 node has 4 even when empty
        "#]],
    );
}
