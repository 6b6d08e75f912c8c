//! Packing policies: the nodes that each policy prefers. Whether a gang fits does not depend on the policy.

use crate::common::{audited, check};
use expect_test::expect;
use model::{
    DeviceShare, Event, Gang, GangKey, Node, Packing, PodSet, Policy, ResourceIx, ResourceVec, Time, Verdict,
    World,
};
use proptest::prelude::*;

const GPU: ResourceIx = ResourceIx(3);

#[test]
fn tightest_fit_prefers_the_fullest_node_and_avoids_device_nodes() {
    check(
        "policy   packing=tightest-fit
         node     gpu    cpu=2 nvidia.com/gpu=4
         node     large  cpu=16
         node     small  cpu=4
         pending  a      worker 2x cpu=2",
        &expect![[r"
            a  admit  worker on small*2
        "]],
    );
}

#[test]
fn fewest_nodes_keeps_a_gang_together_although_other_nodes_are_fuller() {
    let nodes = "
         node     a  cpu=2
         node     b  cpu=2
         node     c  cpu=12
         pending  g  head 1x cpu=2  worker 3x cpu=2";
    check(
        &format!("policy packing=fewest-nodes {nodes}"),
        &expect![[r"
            g  admit  head on c; worker on c*3
        "]],
    );
    check(
        &format!("policy packing=tightest-fit {nodes}"),
        &expect![[r"
            g  admit  head on c; worker on a,b,c
        "]],
    );
}

#[test]
fn least_fragmentation_keeps_free_gpu_pairs_that_other_gangs_request() {
    // Two thirds of the requested GPUs need two on one node. For one GPU the tightest node is the one with a pair.
    let nodes = "
         node     pair    cpu=4  nvidia.com/gpu=2
         node     triple  cpu=16 nvidia.com/gpu=3
         pending  a priority=1  one   1x cpu=2 nvidia.com/gpu=1
         pending  b             pair  2x cpu=2 nvidia.com/gpu=2";
    check(
        &format!("policy packing=least-fragmentation {nodes}"),
        &expect![[r"
            a  admit  one on triple
            b  admit  pair on pair,triple
        "]],
    );
    check(
        &format!("policy packing=tightest-fit {nodes}"),
        &expect![[r"
            a  admit  one on pair
            b  wait  pair: room for 1 of 2 pods, each needs 2 nvidia.com/gpu; 2 nodes have 1 left
        "]],
    );
}

#[test]
fn least_fragmentation_avoids_other_devices_when_the_gpu_fragmentation_is_similar() {
    // Node `pair` is already lost to gangs of four GPUs, so using it is a gain for these gangs. They are one in a
    // hundred.
    let world = |fours: u32| {
        format!(
            "policy   packing=least-fragmentation
             node     eight  cpu=16 nvidia.com/gpu=8
             node     pair   cpu=16 nvidia.com/gpu=2 example.com/fpga=1
             pending  a priority=1  one   1x cpu=1 nvidia.com/gpu=1
             pending  b             ones  98x cpu=1 nvidia.com/gpu=1
             pending  c             four  {fours}x cpu=1 nvidia.com/gpu=4"
        )
    };
    check(
        &world(1),
        &expect![[r"
            a  admit  one on eight
            b  never  ones: room for 10 of 98 pods, each needs 1 nvidia.com/gpu
            c  admit  four on eight
        "]],
    );
    check(
        &world(50),
        &expect![[r"
            a  admit  one on pair
            b  never  ones: room for 10 of 98 pods, each needs 1 nvidia.com/gpu
            c  never  four: room for 2 of 50 pods, each needs 4 nvidia.com/gpu; 1 node has 2 left when empty
        "]],
    );
}

#[test]
fn least_fragmentation_prefers_zero_loss_to_a_minimal_one() {
    // One gang in a hundred would lose the last node with four free GPUs.
    check(
        "policy   packing=least-fragmentation
         node     eight  cpu=16 nvidia.com/gpu=8 example.com/fpga=1
         node     four   cpu=16 nvidia.com/gpu=4
         pending  a priority=1  one   1x cpu=1 nvidia.com/gpu=1
         pending  b             ones  98x cpu=1 nvidia.com/gpu=1
         pending  c             four  1x cpu=1 nvidia.com/gpu=4",
        &expect![[r"
            a  admit  one on eight
            b  never  ones: room for 12 of 98 pods, each needs 1 nvidia.com/gpu
            c  admit  four on four
        "]],
    );
}

#[test]
fn spread_places_each_pod_on_the_emptiest_node() {
    check(
        "policy   packing=spread
         node     a  cpu=4
         node     b  cpu=8
         node     c  cpu=4
         pending  g  worker 4x cpu=2",
        &expect![[r"
            g  admit  worker on a,b*2,c
        "]],
    );
}

#[test]
fn thousands_of_pods_are_spread_almost_evenly() {
    check(
        "policy   packing=spread
         node     a 4x  cpu=1000 pods=10000
         pending  g     worker 4000x cpu=100m",
        &expect![[r"
            g  admit  worker on a-1*999,a-2*999,a-3*1002,a-4*1000
        "]],
    );
}

/// A pod set: the number of pods, and the CPUs, GPUs and share of one GPU of each.
type Set = (u32, i64, i64, Option<i64>);

fn world(packing: Packing, nodes: &[(i64, i64)], gangs: &[Vec<Set>]) -> World {
    let mut world = World::new();
    world.resources_mut().intern("nvidia.com/gpu");
    world.apply(Event::PolicySet(Policy { packing, ..Policy::default() }));
    for (at, (cpu, gpu)) in nodes.iter().enumerate() {
        let allocatable =
            ResourceVec::new().with(ResourceIx::CPU, *cpu).with(ResourceIx::PODS, 8).with(GPU, *gpu);
        let name = format!("n{at}");
        world.apply(Event::NodeUpserted(Node { name, ready: true, allocatable, ..Node::default() }));
    }
    for (at, sets) in gangs.iter().enumerate() {
        let pod_set = |(at, (count, cpu, gpu, milli)): (usize, &Set)| PodSet {
            name: format!("s{at}"),
            count: *count,
            request: ResourceVec::new()
                .with(ResourceIx::CPU, *cpu)
                .with(ResourceIx::PODS, 1)
                .with(GPU, if milli.is_some() { 0 } else { *gpu }),
            share: milli.and_then(|milli| DeviceShare::new(GPU, milli).ok()),
            ..PodSet::default()
        };
        world.apply(Event::GangUpserted(Gang {
            uid: format!("g{at}"),
            key: GangKey { name: format!("g{at}"), ..GangKey::default() },
            queued_at: Time(i64::try_from(at).expect("few gangs")),
            pod_sets: sets.iter().enumerate().map(pod_set).collect(),
            ..Gang::default()
        }));
    }
    world
}

fn set() -> impl Strategy<Value = Set> {
    let share =
        prop_oneof![2 => Just(None), 1 => prop::sample::select(vec![200, 400, 500, 700]).prop_map(Some)];
    (1..5_u32, 0..6_i64, 0..3_i64, share)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// The auditor checks every plan. Each admission changes what is free, so only the first gang is compared.
    #[test]
    fn every_policy_makes_valid_plans_and_agrees_on_whether_a_gang_fits(
        nodes in prop::collection::vec((0..16_i64, 0..5_i64), 1..6),
        gangs in prop::collection::vec(prop::collection::vec(set(), 1..4), 1..5),
    ) {
        let mut first = Vec::new();
        for packing in Packing::ALL {
            let mut world = world(packing, &nodes, &gangs);
            let plan = audited(&world);
            first.push(plan.verdicts.iter().any(|(uid, verdict)| uid == "g0" && matches!(verdict, Verdict::Admit(_))));
            world.apply(Event::Planned(plan));
            prop_assert!(audited(&world).verdicts.is_empty(), "nothing is left to say");
        }
        prop_assert!(first.iter().all(|fits| *fits == first[0]), "{:?}: {first:?}", Packing::ALL);
    }

    /// The request statistics that events maintain equal those counted from scratch.
    #[test]
    fn request_statistics_are_exact_whenever_the_policy_reads_them(
        gangs in prop::collection::vec(prop::collection::vec(set(), 1..4), 1..5),
        removed in 0..5_usize,
    ) {
        let mut world = world(Packing::LeastFragmentation, &[], &gangs);
        world.apply(Event::GangRemoved(format!("g{removed}")));
        world.apply(Event::GangUpserted(Gang { uid: "g0".into(), ..Gang::default() }));
        let counted: Vec<_> = world.demand().map(|(kind, pods)| (kind.clone(), pods)).collect();
        world.apply(Event::PolicySet(Policy::default()));
        prop_assert_eq!(world.demand().count(), 0);
        world.apply(Event::PolicySet(Policy { packing: Packing::LeastFragmentation, ..Policy::default() }));
        let anew: Vec<_> = world.demand().map(|(kind, pods)| (kind.clone(), pods)).collect();
        prop_assert_eq!(counted, anew);
    }
}
