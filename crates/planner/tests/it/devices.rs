//! Shared devices: a share fits into one device, and the admission names the device.

use crate::common::check;
use expect_test::expect;

#[test]
fn a_share_fits_on_one_device_and_is_not_split_over_two() {
    check(
        "node     n  cpu=16 nvidia.com/gpu=2
         running  a         worker 1x share:nvidia.com/gpu=600m on=n/0
         running  b         worker 1x share:nvidia.com/gpu=600m on=n/1
         pending  c         worker 1x share:nvidia.com/gpu=600m
         pending  d         worker 2x share:nvidia.com/gpu=400m",
        &expect![[r"
            c  wait  worker: needs 600m of one nvidia.com/gpu on one node; 1 node has 400m free
            d  admit  worker on n/0,n/1
        "]],
    );
}

#[test]
fn a_share_goes_to_the_fullest_shared_device_before_an_unshared_one() {
    check(
        "node     n  cpu=16 nvidia.com/gpu=4
         running  a         worker 1x share:nvidia.com/gpu=300m on=n/0
         running  b         worker 1x share:nvidia.com/gpu=600m on=n/2
         pending  c         worker 2x share:nvidia.com/gpu=400m
         pending  d         worker 2x share:nvidia.com/gpu=700m  whole 1x nvidia.com/gpu=1
         pending  e         worker 1x nvidia.com/gpu=1",
        &expect![[r"
            c  admit  worker on n/0,n/2
            d  wait  worker, whole: each fits alone, but not together
            e  admit  worker on n
        "]],
    );
}

#[test]
fn requests_for_whole_devices_get_only_unshared_devices() {
    check(
        "node     n  cpu=16 nvidia.com/gpu=4
         pod      p  share:nvidia.com/gpu=100m on=n/3
         pod      q  share:nvidia.com/gpu=100m on=n/3
         pending  a         worker 1x nvidia.com/gpu=4
         pending  b         worker 3x nvidia.com/gpu=1",
        &expect![[r"
            a  wait  worker: needs 4 nvidia.com/gpu on one node; 1 node has 3 free
            b  admit  worker on n*3
        "]],
    );
}

#[test]
fn no_share_is_placed_beside_a_pod_whose_device_is_unknown() {
    check(
        "node     n  cpu=16 nvidia.com/gpu=2
         pod      p  share:nvidia.com/gpu=100m on=n
         pod      q  share:nvidia.com/gpu=200m on=n
         pending  a         worker 2x share:nvidia.com/gpu=500m
         pending  b         worker 1x share:nvidia.com/gpu=100m",
        &expect![[r"
            a  admit  worker on n/0*2
            b  wait  worker: needs 100m of one nvidia.com/gpu on one node; the only eligible node has none free
        "]],
    );
}

#[test]
fn larger_shares_are_placed_first() {
    check(
        "node     n  cpu=16 nvidia.com/gpu=2
         pending  a         small 2x share:nvidia.com/gpu=300m  large 2x share:nvidia.com/gpu=700m",
        &expect![[r"
            a  admit  small on n/0,n/1; large on n/0,n/1
        "]],
    );
}

#[test]
fn a_device_model_is_selected_by_node_label() {
    check(
        "node     t4    cpu=16 nvidia.com/gpu=2 label:gpu=T4
         node     p100  cpu=16 nvidia.com/gpu=1 label:gpu=P100
         node     v100  cpu=16 nvidia.com/gpu=2 label:gpu=V100
         pending  a  worker 1x share:nvidia.com/gpu=500m affinity:gpu=P100|V100",
        &expect![[r"
            a  admit  worker on p100/0
        "]],
    );
}

#[test]
fn a_gang_with_device_shares_preempts_gangs_of_lower_priority() {
    check(
        "policy   preemption=lower-priority
         node     n  cpu=16 nvidia.com/gpu=1
         running  a             worker 1x share:nvidia.com/gpu=600m on=n/0
         running  b             worker 1x share:nvidia.com/gpu=300m on=n/0
         pending  c priority=1  worker 1x share:nvidia.com/gpu=500m",
        &expect![[r"
            c  preempt  a: worker on n/0
        "]],
    );
}

#[test]
fn a_share_never_fits_when_no_node_has_the_device() {
    check(
        "node     n  cpu=16
         pending  a  worker 1x share:nvidia.com/gpu=500m",
        &expect![[r"
            a  never  worker: needs 500m of one nvidia.com/gpu on one node; the only eligible node has none
        "]],
    );
}

#[test]
fn a_share_does_not_use_devices_reserved_in_aggregate_for_other_gangs() {
    check(
        "node     n2  cpu=2 nvidia.com/gpu=3
         node     n3  cpu=1 nvidia.com/gpu=1
         node     n5  cpu=8 nvidia.com/gpu=1
         pod      p  share:nvidia.com/gpu=1m on=n2/0
         foreign  a  worker 2x nvidia.com/gpu=2
         pending  b  worker 1x cpu=1 share:nvidia.com/gpu=100m",
        &expect![[r"
            b  admit  worker on n2/0
        "]],
    );
}

#[test]
fn no_share_is_placed_on_a_device_number_that_the_node_lacks() {
    check(
        "node     n  cpu=16
         pod      p  share:nvidia.com/gpu=100m on=n/0
         pending  a  worker 1x share:nvidia.com/gpu=500m",
        &expect![[r"
            a  never  worker: needs 500m of one nvidia.com/gpu on one node; the only eligible node has none
        "]],
    );
}

#[test]
fn an_overcommitted_device_does_not_cancel_a_nomination_on_another_device() {
    check(
        "node      a        nvidia.com/gpu=2
         pod       p        on=a/0 share:nvidia.com/gpu=600m
         pod       q        on=a/0 share:nvidia.com/gpu=600m
         nominated g        main 1x nvidia.com/gpu=1 on=a",
        &expect![[r"
            g  admit  main on a
        "]],
    );
}

#[test]
fn a_nominated_share_is_admitted_only_on_a_device_that_its_victims_released() {
    check(
        "policy     preemption=lower-priority
         node       n  cpu=16 nvidia.com/gpu=1
         pod        p  nvidia.com/gpu=1 on=n of=old/0
         pending    old        worker 0x nvidia.com/gpu=1
         nominated  a          worker 1x share:nvidia.com/gpu=100m on=n/0
         nominated  b          worker 1x share:nvidia.com/gpu=100m on=n/0",
        &expect![[r"
            old  wait  1 of its pods is still terminating
        "]],
    );
}
