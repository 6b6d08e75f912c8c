//! Admission without quota: the gangs that are admitted, and the messages of the pending ones.

#![allow(clippy::needless_raw_string_hashes, reason = "this is how expect-test writes what it updates")]

use crate::common::check;
use expect_test::expect;

#[test]
fn a_gang_that_fits_only_in_total_waits() {
    check(
        "node     gpu 2x   cpu=4 memory=32G nvidia.com/gpu=1
         pending  ray      declared:cpu=6 declared:memory=32G declared:nvidia.com/gpu=2  head 1x cpu=2 memory=8G  worker 1x cpu=4 memory=8G nvidia.com/gpu=2",
        &expect![[r#"
            ray  never  worker: needs 2 nvidia.com/gpu on one node; 2 nodes have 1 even when empty
        "#]],
    );
}

#[test]
fn gangs_are_admitted_by_priority_then_time_then_name() {
    check(
        "node     a        cpu=3
         pending  late     at=9             main 1x cpu=1
         pending  b        at=5             main 1x cpu=1
         pending  a        at=5             main 1x cpu=1
         pending  urgent   at=10 priority=1 main 1x cpu=1",
        &expect![[r#"
            urgent  admit  main on a
            a  admit  main on a
            b  admit  main on a
            late  wait  main: needs 1 cpu on one node; the only eligible node has none free
        "#]],
    );
}

#[test]
fn a_gang_that_does_not_fit_blocks_no_other_gang() {
    check(
        "node     a 2x     cpu=4
         running  r        main 1x cpu=4 on=a-1
         pending  large    main 2x cpu=4
         pending  small    main 1x cpu=1",
        &expect![[r#"
            large  wait  main: room for 1 of 2 pods, each needs 4 cpu
            small  admit  main on a-2
        "#]],
    );
}

#[test]
fn a_gang_is_never_admitted_partially() {
    check(
        "node     a 2x     cpu=4 nvidia.com/gpu=1
         pending  g        head 1x cpu=2  worker 3x nvidia.com/gpu=1",
        &expect![[r#"
            g  never  worker: room for 2 of 3 pods, each needs 1 nvidia.com/gpu
        "#]],
    );
}

#[test]
fn bound_pods_and_reserved_placements_both_use_nodes() {
    check(
        "node     a        cpu=4
         pod      other    on=a cpu=1
         running  r        main 2x cpu=1 on=a*2
         pod      r-0      on=a cpu=1 of=r/0
         pending  fits     main 1x cpu=1
         pending  waits    main 1x cpu=1",
        &expect![[r#"
            fits  admit  main on a
            waits  wait  main: needs 1 cpu on one node; the only eligible node has none free
        "#]],
    );
}

#[test]
fn selectors_affinity_and_taints_filter_nodes_and_are_reported() {
    check(
        "node     plain 2x cpu=8
         node     gpu 3x   cpu=8 nvidia.com/gpu=1 label:accelerator=v100 taint:nvidia.com/gpu=present:NoSchedule
         pending  s        head 1x cpu=1 select:accelerator=a100
         pending  t        main 1x nvidia.com/gpu=1
         pending  u        main 4x nvidia.com/gpu=1 tolerate:nvidia.com/gpu
         pending  v        main 2x cpu=5 affinity:accelerator=a100|v100 tolerate:nvidia.com/gpu
         pending  w        main 1x cpu=1 affinity:zone",
        &expect![[r#"
            s  never  head: no node matches node selector accelerator=a100 (5 nodes)
            t  never  main: needs 1 nvidia.com/gpu on one node; none of 2 eligible nodes has any; 3 nodes have taint nvidia.com/gpu=present:NoSchedule
            u  never  main: room for 3 of 4 pods, each needs 1 nvidia.com/gpu
            v  admit  main on gpu-1,gpu-2
            w  never  main: no node matches the required node affinity (5 nodes)
        "#]],
    );
}

#[test]
fn on_unready_or_cordoned_nodes_a_gang_waits_but_is_not_infeasible() {
    check(
        "node     a        cpu=4 cordoned
         node     b        cpu=4 notready
         pending  g        main 1x cpu=2",
        &expect![[r#"
            g  wait  main: no node is eligible; 1 node is not ready, 1 node is unschedulable
        "#]],
    );
}

#[test]
fn resources_declared_beyond_the_pods_must_be_free_in_total() {
    check(
        "node     a 2x     cpu=16
         running  r        main 1x cpu=15 on=a-1
         pending  g        declared:cpu=20  main 1x cpu=1
         pending  h        declared:cpu=16  main 1x cpu=1
         pending  i        main 2x cpu=1",
        &expect![[r#"
            g  wait  needs 20 cpu in total (declared); 17 of 32 cpu are free on 2 eligible nodes
            h  admit  main on a-1
            i  wait  needs 2 cpu in total; 1 of 32 cpu is free on 2 eligible nodes
        "#]],
    );
}

#[test]
fn an_aggregate_reservation_is_not_used_by_other_gangs() {
    check(
        "node     a        cpu=4 label:pool=a
         node     b        cpu=4
         foreign  f        main 3x cpu=1 select:pool=a
         pending  g        main 1x cpu=2 select:pool=a
         pending  h        main 4x cpu=1
         pending  i        main 1x cpu=1",
        &expect![[r#"
            g  wait  needs 2 cpu in total; 1 of 4 cpu is free on 1 eligible node
            h  admit  main on b*4
            i  admit  main on a
        "#]],
    );
}

#[test]
fn a_gang_that_requests_nothing_is_admitted_at_once() {
    check(
        "pending  empty
         pending  zero     main 0x cpu=4
         pending  free     main 1x pods=0",
        &expect![[r#"
            empty  admit
            zero  admit
            free  never  main: there is no node
        "#]],
    );
}

#[test]
fn pods_of_different_shapes_are_packed_together() {
    check(
        "node     a        cpu=6
         node     b        cpu=10
         pending  g        small 2x cpu=2  middle 2x cpu=3  large 1x cpu=6",
        &expect![[r#"
            g  admit  small on b*2; middle on b*2; large on a
        "#]],
    );
}

#[test]
fn pods_without_gpu_requests_avoid_gpu_nodes() {
    check(
        "node     gpu      cpu=4 nvidia.com/gpu=4
         node     plain    cpu=8
         pending  g        head 1x cpu=4  worker 1x cpu=4 nvidia.com/gpu=4",
        &expect![[r#"
            g  admit  head on plain; worker on gpu
        "#]],
    );
}

#[test]
fn pod_sets_that_fit_only_separately_report_it() {
    check(
        "node     a        cpu=5
         node     b        cpu=5
         running  r        main 1x cpu=1 on=b
         node     c        cpu=9 cordoned
         pending  g        x 1x cpu=4  y 2x cpu=2",
        &expect![[r#"
            g  admit  x on b; y on a*2
        "#]],
    );
    check(
        "node     a        cpu=5
         node     b        cpu=5
         node     c        cpu=9 cordoned
         pending  g        x 2x cpu=3  y 2x cpu=2
         pending  h        x 1x cpu=3  y 3x cpu=2  z 1x cpu=1",
        &expect![[r#"
            g  admit  x on a,b; y on a,b
            h  wait  x: needs 3 cpu on one node; none of 2 eligible nodes has any free; 1 node is unschedulable. y: needs 2 cpu on one node; none of 2 eligible nodes has any free; 1 node is unschedulable. z: needs 1 cpu on one node; none of 2 eligible nodes has any free; 1 node is unschedulable
        "#]],
    );
}

#[test]
fn a_gang_waits_when_each_resource_is_free_but_on_no_node_together() {
    check(
        "node     a        cpu=8 memory=1Gi
         node     b        cpu=1 memory=64Gi
         pending  g        main 1x cpu=4 memory=16Gi",
        &expect![[r#"
            g  never  main: needs 4 cpu and 16Gi memory on one node; 1 node has the cpu, 1 node has the memory, none has all
        "#]],
    );
}

#[test]
fn quantities_that_overflow_never_fit() {
    check(
        "node     a        cpu=9223372036854775807 memory=9223372036854775807
         pending  g        main 1x memory=9223372036854775807
         pending  h        main 4294967295x cpu=9223372036854775807
         pending  i        declared:memory=9223372036854775807 declared:cpu=9223372036854775807 main 1x cpu=1
         pending  j        main 1x cpu=1",
        &expect![[r#"
            g  never  main: needs 8191.9Pi memory on one node; 1 node has 8191.9Pi even when empty
            h  never  main: needs 9223372036854775807m cpu on one node; 1 node has 9223372036854775807m even when empty
            i  never  needs 8191.9Pi memory in total (declared); 1 eligible node has 8191.9Pi together
            j  admit  main on a
        "#]],
    );
}

#[test]
fn a_resource_that_no_node_has_is_infeasible() {
    check(
        "node     a        cpu=8
         pending  g        main 1x cpu=1 example.com/fpga=1",
        &expect![[r#"
            g  never  main: needs 1 example.com/fpga on one node; the only eligible node has none
        "#]],
    );
}
