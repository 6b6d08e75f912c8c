//! Gangs that start or continue with fewer pods than they request, and nodes excluded for a gang.

#![allow(clippy::needless_raw_string_hashes, reason = "this is how expect-test writes what it updates")]

use crate::common::check;
use expect_test::expect;

#[test]
fn a_gang_with_a_minimum_count_starts_with_as_many_pods_as_fit() {
    check(
        "node     a 3x   cpu=4
         running  r      main 1x cpu=4 on=a-1
         pending  g      head 1x cpu=1  worker 8x cpu=1 min=2
         pending  h      main 3x cpu=1 min=1",
        &expect![[r#"
            g  admit  head on a-2; worker on a-2*3,a-3*4
            h  wait  main: needs 1 cpu on one node; none of 3 eligible nodes has any free
        "#]],
    );
}

#[test]
fn a_gang_that_fits_completely_is_not_reduced() {
    check(
        "node     a      cpu=4
         pending  g      main 4x cpu=1 min=1",
        &expect![[r#"
            g  admit  main on a*4
        "#]],
    );
}

#[test]
fn preemption_for_the_complete_gang_comes_before_reducing_it() {
    check(
        "policy   preemption=lower-priority
         node     a 2x   cpu=4
         running  r      started=1 main 1x cpu=4 on=a-1
         pending  g      priority=1 main 2x cpu=4 min=1",
        &expect![[r#"
            g  preempt  r: main on a-1,a-2
        "#]],
    );
}

#[test]
fn fewer_pods_than_the_minimum_count_never_suffice() {
    check(
        "node     a 2x   cpu=4
         running  r      main 1x cpu=4 on=a-1
         pending  g      main 4x cpu=4 min=2
         pending  h      main 4x cpu=4 min=3",
        &expect![[r#"
            g  wait  main: room for 1 of 4 pods, each needs 4 cpu
            h  never  main: room for 2 of 3 pods, each needs 4 cpu
        "#]],
    );
}

#[test]
fn a_gang_is_reduced_by_complete_slices() {
    check(
        "node     a 2x   cpu=3 label:rack=a
         node     b 1x   cpu=3 label:rack=b
         pending  g      main 10x cpu=1 min=3 slice:2=rack",
        &expect![[r#"
            g  admit  main on a-1*3,a-2*3,b-1*2
        "#]],
    );
}

#[test]
fn slices_never_reduce_a_pod_set_below_its_minimum_count() {
    check(
        "node     a        cpu=5 label:rack=a
         pending  three    main 8x cpu=1 min=3 topology:unconstrained slice:2=rack  more 2x cpu=1
         pending  four     main 8x cpu=1 min=3 topology:unconstrained slice:2=rack  more 1x cpu=1
         pending  odd      main 1x cpu=0 topology:unconstrained slice:2=rack group=g  more 9x cpu=1 min=0 topology:unconstrained group=g",
        &expect![[r#"
            three  never  needs 6 cpu in total; 1 eligible node has 5 together
            four  admit  main on a*4; more on a
            odd  wait  more: needs 1 cpu on one node; the only eligible node has none free
        "#]],
    );
}

#[test]
fn resources_of_succeeded_pods_are_free_again() {
    check(
        "node     a 2x   cpu=4
         running  r      main 4x cpu=2 done=2 on=a-1*2,a-2*2
         pod      r-0    on=a-1 cpu=2 of=r/0
         pending  g      main 2x cpu=2
         pending  h      main 1x cpu=2",
        &expect![[r#"
            g  admit  main on a-2*2
            h  wait  main: needs 2 cpu on one node; none of 2 eligible nodes has any free
        "#]],
    );
}

#[test]
fn a_gang_that_is_scaled_down_releases_its_last_placements_at_once() {
    check(
        "node     a 2x   cpu=4
         running  r      main 1x cpu=4 on=a-1,a-2
         pending  g      main 1x cpu=4",
        &expect![[r#"
            g  admit  main on a-2
        "#]],
    );
}

#[test]
fn a_gang_is_not_placed_on_its_excluded_nodes() {
    check(
        "node     a 3x   cpu=4
         running  r      main 1x cpu=4 on=a-3
         pending  g      excluded=a-1 main 1x cpu=2
         pending  h      excluded=a-1,a-2 main 1x cpu=2
         pending  i      main 1x cpu=2",
        &expect![[r#"
            g  admit  main on a-2
            h  wait  main: needs 2 cpu on one node; the only eligible node has none free; 2 nodes are where it failed before
            i  admit  main on a-2
        "#]],
    );
    check(
        "node     a 2x   cpu=4 label:rack=a
         node     b 2x   cpu=4 label:rack=b
         pending  g      excluded=a-1 main 2x cpu=4 topology:required=rack
         pending  h      excluded=b-1,a-2 main 2x cpu=4 topology:required=rack",
        &expect![[r#"
            g  admit  main on b-1,b-2
            h  wait  main: room for 1 of 2 pods, each needs 4 cpu; 2 nodes are where it failed before
        "#]],
    );
}

#[test]
fn the_largest_part_of_a_gang_that_may_preempt_does() {
    check(
        "policy   preemption=lower-priority
         node     a 3x   cpu=4
         running  high   priority=2 main 1x cpu=4 on=a-1
         running  one    main 1x cpu=4 on=a-2
         running  two    main 1x cpu=4 on=a-3
         pending  g      priority=1 main 4x cpu=4 min=1",
        &expect![[r#"
            g  preempt  one, two: main on a-2,a-3
        "#]],
    );
    check(
        "flavor   default  quota-only
         quota    team     cpu@default=8 within=lower-priority
         queue    q        quota=team default:cpu
         running  high     priority=2 queue=q main 3x cpu=1 unplaced=3 flavor:cpu=default
         running  low      queue=q main 4x cpu=1 unplaced=4 flavor:cpu=default
         pending  g        priority=1 queue=q main 7x cpu=1 min=3
         pending  h        priority=1 queue=q main 9x cpu=1 min=6",
        &expect![[r#"
            g  preempt  low(in-queue): main 5x without node in default
            h  wait  waits behind default/g, which goes first in its queue
        "#]],
    );
}

#[test]
fn a_larger_part_that_preempts_comes_before_a_smaller_one_that_fits() {
    check(
        "policy   preemption=lower-priority
         node     a 2x   cpu=4
         running  high   priority=2 main 1x cpu=4 on=a-1
         running  low    main 1x cpu=3 on=a-2
         pending  g      priority=1 main 9x cpu=1 min=1",
        &expect![[r#"
            g  preempt  low: main on a-2*4
        "#]],
    );
}

#[test]
fn a_closed_gate_keeps_a_part_from_preempting_too() {
    check(
        "policy   preemption=lower-priority
         node     a 2x   cpu=4
         running  high   priority=2 main 1x cpu=4 on=a-1
         running  low    main 1x cpu=4 on=a-2
         pending  g      priority=1 gated main 2x cpu=4 min=1",
        &expect![[r#"
            g  wait  it would fit after preemption, but its preemption gates are closed
        "#]],
    );
}
