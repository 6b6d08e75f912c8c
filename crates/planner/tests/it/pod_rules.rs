//! Placement by the rules between pods, and the causes when too few pods fit.

#![allow(clippy::needless_raw_string_hashes, reason = "this is how expect-test writes what it updates")]

use crate::common;
use crate::common::{check, parse_world, step};
use expect_test::expect;

#[test]
fn pods_with_anti_affinity_by_host_need_a_node_each() {
    check(
        "node     n 4x  cpu=16 label:zone=a label:host=x
         pending  train  worker 8x cpu=1 selected:1 apart:1=host",
        &expect![[r#"
            train  never  worker: room for 1 of 8 pods even without other pods; anti-affinity by host allows one in each of 1 domain
        "#]],
    );
    let nodes = "node a cpu=16 label:host=a
         node b cpu=16 label:host=b
         node c cpu=16 label:host=c
         node d cpu=16 label:host=d\n";
    check(
        &format!("{nodes} pending train  worker 8x cpu=1 selected:1 apart:1=host"),
        &expect![[r#"
        train  never  worker: room for 4 of 8 pods even without other pods; anti-affinity by host allows one in each of 4 domains
    "#]],
    );
    check(
        &format!("{nodes} pending train  worker 4x cpu=1 selected:1 apart:1=host"),
        &expect![[r#"
        train  admit  worker on a,b,c,d
    "#]],
    );
    check(
        &format!(
            "{nodes} pod other on=b cpu=1 selected:1
             pending train  worker 4x cpu=1 selected:1 apart:1=host"
        ),
        &expect![[r#"
            train  wait  worker: room for 3 of 4 pods; anti-affinity by host allows one in each of 3 domains, 1 node is excluded by anti-affinity with other pods by host
        "#]],
    );
}

#[test]
fn anti_affinity_of_other_pods_keeps_a_gang_off_their_domains() {
    check(
        "node     a1  cpu=16 label:zone=a
         node     a2  cpu=16 label:zone=a
         node     b1  cpu=2 label:zone=b
         node     none  cpu=1
         pod      other  on=a1 cpu=1 apart:1=zone
         pending  train  worker 3x cpu=1 selected:1
         pending  large  worker 4x cpu=1 selected:1",
        &expect![[r#"
            train  admit  worker on b1*2,none
            large  wait  worker: room for 0 of 4 pods; 2 nodes are excluded by anti-affinity with other pods by zone
        "#]],
    );
}

#[test]
fn planned_pods_of_other_gangs_keep_their_ports_and_domains() {
    check(
        "node     n 3x  cpu=16
         running  web    server 2x cpu=1 port:80/TCP on=n-1,n-2
         pending  one    server 1x cpu=1 port:80/TCP
         pending  two    server 1x cpu=1 port:10.0.0.1:80/TCP
         pending  three  server 1x cpu=1 port:80/UDP port:81/TCP
         pending  four   a 1x cpu=1 port:10.0.0.1:90/TCP  b 3x cpu=1 port:10.0.0.2:90/TCP",
        &expect![[r#"
            one  admit  server on n-3
            two  wait  server: room for 0 of 1 pods; host port 10.0.0.1:80/TCP is taken on 3 nodes
            three  admit  server on n-1
            four  admit  a on n-1; b on n-1,n-2,n-3
        "#]],
    );
}

#[test]
fn pods_are_spread_evenly() {
    let nodes = "node a1 cpu=4 label:zone=a
         node a2 cpu=4 label:zone=a
         node b1 cpu=2 label:zone=b
         node none cpu=16\n";
    check(
        &format!("{nodes} pending train worker 5x cpu=1 selected:1 spread:1=zone:1"),
        &expect![[r#"
        train  admit  worker on a1*3,b1*2
    "#]],
    );
    check(
        &format!("{nodes} pending train worker 6x cpu=1 selected:1 spread:1=zone:1"),
        &expect![[r#"
        train  never  worker: room for 5 of 6 pods even without other pods; spread by zone allows a skew of 1 over 2 domains, 1 node lacks label zone
    "#]],
    );
    check(
        &format!("{nodes} pending train worker 4x cpu=1 selected:1 spread:1=zone:2:min=3"),
        &expect![[r#"
            train  admit  worker on a1*2,b1*2
        "#]],
    );
    check(
        &format!(
            "{nodes} pod one on=a1 cpu=1 selected:1
             pod two on=a2 cpu=1 selected:1
             pending train worker 2x cpu=1 selected:1 spread:1=zone:1"
        ),
        &expect![[r#"
            train  admit  worker on b1*2
        "#]],
    );
}

#[test]
fn pods_with_affinity_share_a_domain() {
    let nodes = "node a1 cpu=2 label:zone=a
         node a2 cpu=2 label:zone=a
         node b1 cpu=8 label:zone=b\n";
    check(
        &format!("{nodes} pending train worker 5x cpu=1 selected:1 near:1=zone"),
        &expect![[r#"
        train  admit  worker on b1*5
    "#]],
    );
    check(
        &format!(
            "{nodes} pod one on=a1 cpu=1 selected:1\n pending train worker 5x cpu=1 selected:1 near:1=zone"
        ),
        &expect![[r#"
            train  wait  worker: room for 3 of 5 pods; affinity needs one of its pods in the same zone
        "#]],
    );
    check(
        &format!("{nodes} pending train worker 2x cpu=1 near:1=zone"),
        &expect![[r#"
        train  wait  worker: room for 0 of 2 pods; 3 nodes have no pod that affinity requires in the same zone
    "#]],
    );
    check(
        &format!("{nodes} pending train head 1x cpu=1 selected:1  worker 6x cpu=1 near:1=zone"),
        &expect![[r#"
            train  admit  head on b1; worker on b1*6
        "#]],
    );
}

#[test]
fn a_parked_gang_is_tried_again_when_a_pod_leaves_or_comes() {
    let mut world = parse_world(
        "node     a1  cpu=16 label:zone=a
         node     a2  cpu=16 label:zone=a
         pod      other  on=a1 cpu=1 apart:1=zone
         pending  alone  worker 1x cpu=1 selected:1
         pending  follows  worker 2x cpu=1 near:2=zone",
    );
    expect![[r#"
        alone  wait  worker: room for 0 of 1 pods; 2 nodes are excluded by anti-affinity with other pods by zone
        follows  wait  worker: room for 0 of 2 pods; 2 nodes have no pod that affinity requires in the same zone
    "#]].assert_eq(&step(&mut world));
    world.apply(model::Event::PodUpserted(model::Pod {
        uid: "leader".into(),
        node: Some("a2".into()),
        rules: Some(std::sync::Arc::new(model::PodRules {
            selected_by: [model::SelectorIx(2)].into(),
            ..model::PodRules::default()
        })),
        ..model::Pod::default()
    }));
    expect![[r#"
        follows  admit  worker on a1*2
    "#]]
    .assert_eq(&step(&mut world));
    world.apply(model::Event::PodRemoved("other".into()));
    expect![[r#"
        alone  admit  worker on a1
    "#]]
    .assert_eq(&step(&mut world));
}

#[test]
fn victims_free_their_ports_and_domains() {
    check(
        "policy   preemption=lower-priority
         node     a1  cpu=16 label:zone=a
         node     b1  cpu=16 label:zone=b
         running  low-1  worker 1x cpu=1 port:80/TCP on=a1
         running  low-2  worker 1x cpu=1 selected:1 on=b1
         pending  urgent  priority=5  worker 1x cpu=1 apart:1=zone port:80/TCP",
        &expect![[r#"
            urgent  preempt  low-2: worker on b1
        "#]],
    );
}

#[test]
fn replacements_scale_ups_and_partial_starts_obey_the_rules() {
    let nodes = "node a cpu=16 label:host=a
         node b cpu=16 label:host=b
         node c cpu=16 label:host=c
         node d cpu=1 label:host=d notready\n";
    check(
        &format!("{nodes} running train unhealthy=d worker 3x cpu=1 selected:1 apart:1=host on=a,b,d"),
        &expect![[r#"
            train  admit  worker on a,b,c
        "#]],
    );
    check(
        &format!("{nodes} running train elastic worker 4x cpu=1 selected:1 apart:1=host on=a,b"),
        &expect![[r#"
            train  wait  worker: room for 1 of 2 pods; anti-affinity by host allows one in each of 1 domain, 2 nodes are excluded by anti-affinity with other pods by host
        "#]],
    );
    check(
        &format!("{nodes} pending train worker 8x min=2 cpu=1 selected:1 apart:1=host"),
        &expect![[r#"
            train  admit  worker on a,b,c
        "#]],
    );
}

#[test]
fn rules_hold_within_a_required_topology_domain() {
    let nodes = "node a1 cpu=16 label:rack=a label:host=a1
         node a2 cpu=16 label:rack=a label:host=a2
         node b1 cpu=16 label:rack=b label:host=b1
         node b2 cpu=16 label:rack=b label:host=b2
         node b3 cpu=16 label:rack=b label:host=b3\n";
    check(
        &format!("{nodes} pending train worker 3x cpu=1 topology:required=rack selected:1 apart:1=host"),
        &expect![[r#"
            train  admit  worker on b1,b2,b3
        "#]],
    );
    check(
        &format!("{nodes} pending train worker 4x cpu=1 topology:required=rack selected:1 apart:1=host"),
        &expect![[r#"
            train  wait  worker: no rack has room for all 4 pods; the best, b, has room for 3
        "#]],
    );
}

#[test]
fn a_preferred_level_is_kept_under_rules_and_widened_as_far_as_necessary() {
    let nodes = "flavor f topology=block,rack
         node a1 cpu=16 label:block=a label:rack=1 label:host=a1
         node a2 cpu=16 label:block=a label:rack=1 label:host=a2
         node a3 cpu=16 label:block=a label:rack=2 label:host=a3
         node b1 cpu=4 label:block=b label:rack=1 label:host=b1
         node b2 cpu=16 label:block=b label:rack=1 label:host=b2
         node b3 cpu=16 label:block=b label:rack=1 label:host=b3
         node b4 cpu=16 label:block=b label:rack=2 label:host=b4\n";
    let expected = [
        (1, "a1"),
        (2, "a1,a2"),       // The tightest rack with two nodes.
        (3, "b1,b2,b3"),    // The only rack with three; rack 1 of block a is another one.
        (4, "b1,b2,b3,b4"), // One block.
        (7, "a1,a2,a3,b1,b2,b3,b4"),
    ];
    for (count, places) in expected {
        let world = parse_world(&format!(
            "{nodes} pending train worker {count}x cpu=1 topology:preferred=rack selected:1 apart:1=host"
        ));
        let verdicts = scenario::verdicts(&world, &common::audited(&world));
        assert_eq!(verdicts, format!("train  admit  worker on {places}\n"), "{count} pods");
    }
}

#[test]
fn each_pod_set_has_its_own_preferred_level_under_rules() {
    check(
        "node a1 cpu=2 label:rack=a label:host=a1
         node a2 cpu=2 label:rack=a label:host=a2
         node b1 cpu=2 label:rack=b label:host=b1
         node b2 cpu=2 label:rack=b label:host=b2
         pending train  one 2x cpu=1 topology:preferred=rack selected:1 apart:1=host  two 2x cpu=2 topology:preferred=rack selected:2 apart:2=host",
        &expect![[r#"
            train  admit  one on b1,b2; two on a1,a2
        "#]],
    );
}

#[test]
fn a_gang_that_spread_constraints_forbid_starts_once_pods_of_others_are_counted() {
    let mut world = parse_world(
        "node a cpu=4 label:zone=a
         node b cpu=1 label:zone=b
         pending train worker 2x cpu=2 selected:1 spread:1=zone:1",
    );
    let never = "train  never  worker: room for 1 of 2 pods even without other pods; spread by zone allows a skew of 1 over 2 domains\n";
    assert_eq!(step(&mut world), never);
    let other = parse_world("pod other on=b cpu=1 selected:1");
    for pod in other.pods() {
        world.apply(model::Event::PodUpserted(pod.clone()));
    }
    assert_eq!(step(&mut world), "train  admit  worker on a*2\n");
}

#[test]
fn victims_leave_the_pods_that_the_preemptor_needs() {
    let cluster = "policy  preemption=lower-priority
         node    a  cpu=4 label:zone=x
         node    b  cpu=4 label:zone=y
         running cache  priority=1  server 1x cpu=1 selected:1 on=a
         running batch  priority=2  worker 1x cpu=3 on=a
         running other  priority=2  worker 1x cpu=4 on=b\n";
    check(
        &format!("{cluster} pending train  priority=5  worker 1x cpu=2 near:1=zone"),
        &expect![[r#"
            train  preempt  batch: worker on a
        "#]],
    );
    check(
        &format!("{cluster} pending train  priority=5  worker 1x cpu=4 near:1=zone"),
        &expect![[r#"
            train  wait  worker: needs 4 cpu on one node; none of 2 eligible nodes has any free
        "#]],
    );
}

#[test]
fn reserved_starts_and_backfill_obey_the_rules() {
    check(
        "policy   backfill=reserve
         node     a  cpu=4
         running  web  started=900 runs=200  server 1x cpu=1 port:80/TCP on=a
         pending  next  runs=60  server 1x cpu=1 port:80/TCP
         pending  long  runs=600  server 1x cpu=1 port:81/TCP
         pending  port  runs=600  server 1x cpu=1 port:80/UDP port:81/UDP
         pending  late  runs=600  server 1x cpu=1 port:80/TCP",
        &expect![[r#"
            next  wait  server: room for 0 of 1 pods; host port 80/TCP is taken on 1 node (not before 1100 s, when web ends)
            long  admit  server on a
            port  admit  server on a
            late  wait  server: room for 0 of 1 pods; host port 80/TCP is taken on 1 node
        "#]],
    );
}
