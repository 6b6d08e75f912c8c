//! Topology-aware placement: required and preferred levels, slices, groups and leaders.

#![allow(clippy::needless_raw_string_hashes, reason = "this is how expect-test writes what it updates")]

use crate::common::check;
use expect_test::expect;

#[test]
fn a_required_level_places_all_pods_in_the_tightest_domain() {
    check(
        "node     a 3x   cpu=4 label:rack=a
         node     b 2x   cpu=4 label:rack=b
         node     c 2x   cpu=2 label:rack=c
         pending  g      main 4x cpu=2 topology:required=rack",
        &expect![[r#"
            g  admit  main on b-1*2,b-2*2
        "#]],
    );
}

#[test]
fn a_gang_that_requires_a_rack_waits_although_the_cluster_has_room() {
    check(
        "node     a 2x   cpu=4 label:rack=a
         node     b 2x   cpu=4 label:rack=b
         running  r      main 1x cpu=4 on=a-1
         running  s      main 1x cpu=2 on=b-1
         pending  g      main 4x cpu=2 topology:required=rack
         pending  h      main 5x cpu=2 topology:required=rack
         pending  i      main 2x cpu=1 topology:required=zone",
        &expect![[r#"
            g  wait  main: no rack has room for all 4 pods; the best, b, has room for 3
            h  never  main: no rack has room for all 5 pods even when empty; the best, a, has room for 4
            i  never  main: no node that is eligible is in any zone
        "#]],
    );
}

#[test]
fn racks_of_the_same_name_in_two_blocks_are_two_domains() {
    check(
        "flavor   f      topology=block,rack
         node     a 2x   cpu=2 label:block=a label:rack=1
         node     b 2x   cpu=2 label:block=b label:rack=1
         pending  g      main 4x cpu=1 topology:required=rack
         pending  h      main 5x cpu=1 topology:required=rack
         pending  i      main 5x cpu=1",
        &expect![[r#"
            g  admit  main on a-1*2,a-2*2
            h  never  main: no rack has room for all 5 pods even when empty; the best, a/1, has room for 4
            i  wait  main: room for 4 of 5 pods, each needs 1 cpu
        "#]],
    );
}

/// kueue#14452: a domain is not a part of another one whose name begins with its name.
#[test]
fn racks_whose_names_begin_alike_are_two_domains() {
    check(
        "flavor   f      topology=rack
         node     a      cpu=2 label:rack=r1
         node     b      cpu=2 label:rack=r10
         pending  g      main 3x cpu=1 topology:required=rack
         pending  h      main 2x cpu=1 topology:required=rack",
        &expect![[r#"
            g  never  main: no rack has room for all 3 pods even when empty; the best, r1, has room for 2
            h  admit  main on a*2
        "#]],
    );
}

#[test]
fn a_preferred_level_falls_back_to_a_broader_one_and_then_to_the_fewest_domains() {
    check(
        "flavor   f      topology=block,rack
         node     a1 2x  cpu=2 label:block=a label:rack=1
         node     a2 2x  cpu=2 label:block=a label:rack=2
         node     b1 2x  cpu=2 label:block=b label:rack=1
         node     b2 3x  cpu=2 label:block=b label:rack=2
         pending  rack   main 3x cpu=2 topology:preferred=rack
         pending  block  main 4x cpu=2 topology:preferred=rack
         pending  both   main 2x cpu=2 topology:preferred=rack
         pending  large  main 20x cpu=2 topology:preferred=rack",
        &expect![[r#"
            rack  admit  main on b2-1,b2-2,b2-3
            block  admit  main on a1-1,a1-2,a2-1,a2-2
            both  admit  main on b1-1,b1-2
            large  never  main: room for 9 of 20 pods, each needs 2 cpu
        "#]],
    );
    check(
        "flavor   f      topology=block,rack
         node     a1 2x  cpu=2 label:block=a label:rack=1
         node     a2 2x  cpu=2 label:block=a label:rack=2
         node     b1 2x  cpu=2 label:block=b label:rack=1
         node     b2 3x  cpu=2 label:block=b label:rack=2
         node     c1 1x  cpu=2 label:block=c label:rack=1
         pending  few    main 6x cpu=2 topology:preferred=rack",
        &expect![[r#"
            few  admit  main on b1-1,b1-2,b2-1,b2-2,b2-3,c1-1
        "#]],
    );
}

#[test]
fn unconstrained_pods_use_the_smallest_gaps_first() {
    check(
        "flavor   f      topology=rack,host
         node     a      cpu=8 label:rack=a label:host=a
         node     b      cpu=3 label:rack=a label:host=b
         node     c      cpu=2 label:rack=b label:host=c
         pending  one    main 3x cpu=1 topology:unconstrained
         pending  many   main 9x cpu=1 topology:unconstrained",
        &expect![[r#"
            one  admit  main on b*3
            many  admit  main on a*7,c*2
        "#]],
    );
}

#[test]
fn every_slice_is_in_one_domain_and_pod_indexes_follow_the_topology() {
    check(
        "flavor   f      topology=block,rack,host
         node     z      cpu=3 label:block=a label:rack=1 label:host=z
         node     y      cpu=3 label:block=a label:rack=2 label:host=y
         node     x      cpu=5 label:block=b label:rack=1 label:host=x
         pending  g      main 6x cpu=1 slice:2=host
         pending  h      main 4x cpu=1 slice:2=host",
        &expect![[r#"
            g  admit  main on z*2,y*2,x*2
            h  wait  main: room for 2 of 4 pods, in slices of 2 within one host
        "#]],
    );
}

#[test]
fn slices_are_nested_up_to_three_layers() {
    check(
        "flavor   f      topology=block,rack,host
         node     a1 2x  cpu=2 label:block=a label:rack=1
         node     a1h    cpu=2 label:block=a label:rack=1 label:host=a1h
         node     a1i    cpu=3 label:block=a label:rack=1 label:host=a1i
         node     a2h    cpu=4 label:block=a label:rack=2 label:host=a2h
         node     b1h    cpu=4 label:block=b label:rack=1 label:host=b1h
         node     b2h    cpu=4 label:block=b label:rack=2 label:host=b2h
         pending  g      main 16x cpu=1 slice:8=block slice:4=rack slice:2=host
         pending  h      main 8x cpu=1 slice:8=block slice:4=rack slice:2=host topology:required=block
         pending  i      main 24x cpu=1 slice:8=block slice:4=rack slice:2=host",
        &expect![[r#"
            g  admit  main on a1h*2,a1i*2,a2h*4,b1h*4,b2h*4
            h  wait  main: room for 5 of 8 pods, each needs 1 cpu
            i  never  main: room for 21 of 24 pods, each needs 1 cpu
        "#]],
    );
}

#[test]
fn a_leader_is_placed_in_the_domain_of_its_workers() {
    check(
        "node     a 2x   cpu=4 label:rack=a
         node     b 2x   cpu=4 label:rack=b
         running  r      main 1x cpu=1 on=a-1
         pending  g      lead 1x cpu=2 topology:required=rack group=x  work 3x cpu=2 topology:required=rack group=x
         pending  h      lead 1x cpu=2 topology:required=rack group=x  work 3x cpu=2 topology:required=rack group=x",
        &expect![[r#"
            g  admit  lead on b-1; work on b-1,b-2*2
            h  wait  needs 8 cpu in total; 7 of 16 cpu are free on 4 eligible nodes
        "#]],
    );
}

#[test]
fn invalid_topology_requests_are_reported() {
    check(
        "flavor   f      topology=block,rack
         node     a 2x   cpu=9 label:block=a label:rack=a
         pending  g      main 5x cpu=1 slice:2=rack
         pending  h      main 4x cpu=1 topology:required=rack slice:2=block
         pending  i      main 8x cpu=1 slice:8=block slice:4=rack slice:2=host slice:1=core
         pending  j      a 2x cpu=1 topology:unconstrained group=x  b 2x cpu=1 topology:unconstrained group=x",
        &expect![[r#"
            g  never  main: 5 pods cannot be divided into slices of 2
            h  never  main: asks for slices in block, which is not below rack
            i  never  main: asks for 4 layers of slices, 3 at most are possible
            j  never  a: group x is more than a leader of one pod and one other pod set
        "#]],
    );
}

#[test]
fn several_pod_sets_get_domains_and_pods_without_a_request_go_anywhere() {
    check(
        "node     a 2x   cpu=4 label:rack=a
         node     b 2x   cpu=3 label:rack=b
         node     c      cpu=1
         pending  g      x 2x cpu=3 topology:required=rack  y 3x cpu=2 topology:required=rack  z 2x cpu=1",
        &expect![[r#"
            g  admit  x on b-1,b-2; y on a-1,a-2*2; z on a-1*2
        "#]],
    );
}

#[test]
fn victims_are_preempted_in_the_domain_that_fits_the_gang() {
    check(
        "policy   preemption=lower-priority
         node     a 2x   cpu=4 label:rack=a
         node     b 2x   cpu=4 label:rack=b
         running  r      started=1 main 1x cpu=4 on=a-1
         running  s      started=1 main 1x cpu=4 on=b-1
         running  t      started=1 main 1x cpu=4 on=b-2
         pending  g      priority=1 main 2x cpu=4 topology:required=rack",
        &expect![[r#"
            g  preempt  r: main on a-1,a-2
        "#]],
    );
}

/// The racks of Kueue's example of balanced placement (KEP 2724).
const UNEVEN_RACKS: &str = "flavor   f      topology=block,rack,host
         node     x1  gpu=12 label:block=b label:rack=r1 label:host=x1
         node     x2  gpu=12 label:block=b label:rack=r1 label:host=x2
         node     x3  gpu=14 label:block=b label:rack=r2 label:host=x3
         node     x4  gpu=6 label:block=b label:rack=r2 label:host=x4";

#[test]
fn balanced_placement_leaves_no_domain_a_small_remainder() {
    let gangs = "pending  sliced  main 16x gpu=1 topology:preferred=rack slice:4=host";
    check(
        &format!("policy   topology=balanced\n{UNEVEN_RACKS}\n{gangs}"),
        &expect![[r#"
        sliced  admit  main on x1*8,x2*8
    "#]],
    );
    check(
        &format!("{UNEVEN_RACKS}\n{gangs}"),
        &expect![[r#"
        sliced  admit  main on x3*12,x4*4
    "#]],
    );
    let gangs = "pending  three   main 9x gpu=4 topology:preferred=block slice:1=host
         pending  large   main 100x gpu=1 topology:preferred=rack";
    check(
        &format!("policy   topology=balanced\n{UNEVEN_RACKS}\n{gangs}"),
        &expect![[r#"
        three  admit  main on x1*3,x2*2,x3*3,x4
        large  never  main: room for 44 of 100 pods, each needs 1 gpu
    "#]],
    );
}

#[test]
fn balanced_placement_counts_the_leader() {
    check(
        &format!(
            "policy   topology=balanced\n{UNEVEN_RACKS}
         pending  led  leader 1x gpu=1 group=g topology:preferred=rack workers 30x gpu=1 group=g topology:preferred=rack slice:5=host"
        ),
        &expect![[r#"
            led  admit  leader on x1; workers on x1*10,x2*10,x3*10
        "#]],
    );
}

#[test]
fn without_gap_filling_free_pods_are_in_few_domains() {
    let nodes = "flavor   f      topology=rack,host
         node     a  cpu=4 label:rack=a label:host=a
         node     b  cpu=2 label:rack=b label:host=b
         node     c  cpu=2 label:rack=c label:host=c
         pending  g  main 4x cpu=1 topology:unconstrained";
    check(
        nodes,
        &expect![[r#"
        g  admit  main on a*4
    "#]],
    );
    let more = nodes.replace("main 4x", "main 5x");
    check(
        &more,
        &expect![[r#"
            g  admit  main on a*3,b*2
        "#]],
    );
    check(
        &format!("policy   topology=best-fit\n{more}"),
        &expect![[r#"
        g  admit  main on a*4,b
    "#]],
    );
}

#[test]
fn each_flavor_has_the_levels_of_its_own_topology() {
    // The first flavor by name has a rack, too, below blocks, which the nodes of the second one do not have.
    check(
        "flavor   a      label:pool=a topology=block,rack
         flavor   b      label:pool=b topology=zone,rack
         node     n 2x   cpu=2 label:pool=b label:zone=z label:rack=r
         quota    q      cpu@a=0 cpu@b=10
         queue    q      quota=q a,b:cpu
         pending  g      queue=q main 2x cpu=2 topology:required=rack",
        &expect![[r#"
            g  admit  main on n-1,n-2 in b
        "#]],
    );
}

#[test]
fn preferred_nodes_come_first() {
    let nodes = "flavor   f      topology=rack,host
         node     a  cpu=2 label:rack=r label:host=a
         node     b  cpu=2 label:rack=r label:host=b label:disk=fast
         node     c  cpu=4 label:rack=s label:host=c label:disk=fast label:zone=z";
    let gangs = "pending  one    main 1x cpu=1 topology:unconstrained prefer:5:disk=fast
         pending  two    main 2x cpu=1 topology:required=rack prefer:5:disk=fast&zone=z prefer:1:field:metadata.name=a
         pending  three  main 3x cpu=1 topology:unconstrained prefer:2:disk=fast prefer:9:host!=c";
    check(
        &format!("{nodes}\n{gangs}"),
        &expect![[r#"
        one  admit  main on b
        two  admit  main on c*2
        three  admit  main on a*2,b
    "#]],
    );
}
