//! Measures how often a feasible gang with a topology request is rejected. The oracle tries all placements in small
//! clusters. One pod set, with or without a leader, is never rejected. Several pod sets are placed one after the
//! other, which may miss a placement.

#![allow(clippy::disallowed_macros, reason = "the rates are worth reading, not only asserting")]

use std::collections::BTreeMap;

use crate::common::audited;
use model::{
    Event, Gang, GangKey, Node, PodSet, ResourceIx, ResourceVec, TopologyMode, TopologyRequest,
    TopologySlice, Verdict, World,
};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

/// A pod set: the number of pods, the CPU of each, whether one rack is required, and the slice size per rack.
#[derive(Clone, Debug)]
struct Set {
    count: u32,
    cpu: i64,
    one_rack: bool,
    slice: u32,
    asks: bool,
}

#[derive(Clone, Debug)]
struct Case {
    /// The rack and the CPU of each node.
    nodes: Vec<(u8, i64)>,
    sets: Vec<Set>,
    /// The first pod set is one pod that leads the second.
    has_leader: bool,
}

fn set(asks: impl Strategy<Value = bool>) -> impl Strategy<Value = Set> {
    (1..4_u32, 1..5_i64, any::<bool>(), 1..3_u32, asks).prop_map(|(runs, cpu, one_rack, slice, asks)| Set {
        count: runs * slice,
        cpu,
        one_rack,
        slice,
        asks,
    })
}

fn case(sets: impl Strategy<Value = Vec<Set>>, has_leader: bool) -> impl Strategy<Value = Case> {
    let nodes = prop::collection::vec((0..3_u8, 1..8_i64), 2..6);
    (nodes, sets).prop_map(move |(nodes, mut sets)| {
        if has_leader {
            sets[0] = Set { count: 1, slice: 1, one_rack: sets[1].one_rack, asks: true, ..sets[0].clone() };
            sets[1].asks = true;
        }
        Case { nodes, sets, has_leader }
    })
}

fn world(case: &Case) -> World {
    let mut world = World::new();
    let vector =
        |cpu: i64, pods| ResourceVec::new().with(ResourceIx::CPU, cpu * 1000).with(ResourceIx::PODS, pods);
    for (at, (rack, cpu)) in case.nodes.iter().enumerate() {
        world.apply(Event::NodeUpserted(Node {
            name: format!("n{at}"),
            labels: BTreeMap::from([("rack".into(), rack.to_string())]),
            ready: true,
            allocatable: vector(*cpu, 110),
            ..Node::default()
        }));
    }
    let pod_set = |(at, set): (usize, &Set)| {
        let mode =
            if set.one_rack { TopologyMode::Required("rack".into()) } else { TopologyMode::Unconstrained };
        let slice = TopologySlice { size: set.slice, level: "rack".into() };
        let slices = if set.slice > 1 { vec![slice] } else { Vec::new() };
        PodSet {
            name: format!("s{at}"),
            count: set.count,
            request: vector(set.cpu, 1),
            group: (case.has_leader && at < 2).then(|| "g".to_owned()),
            topology: set.asks.then_some(TopologyRequest { mode, slices }),
            ..PodSet::default()
        }
    };
    world.apply(Event::GangUpserted(Gang {
        uid: "g".into(),
        key: GangKey { name: "g".into(), ..GangKey::default() },
        pod_sets: case.sets.iter().enumerate().map(pod_set).collect(),
        ..Gang::default()
    }));
    world
}

/// Tries every placement of all pod sets from `at` on. `racks` holds the racks of the pod sets before.
fn is_feasible(case: &Case, at: usize, free: &mut Vec<i64>, racks: &mut Vec<Vec<u8>>) -> bool {
    let Some(set) = case.sets.get(at) else { return true };
    try_nodes(case, set, 0, set.count, &mut vec![0; free.len()], free, racks)
}

fn try_nodes(
    case: &Case,
    set: &Set,
    node: usize,
    left: u32,
    here: &mut Vec<u32>,
    free: &mut Vec<i64>,
    racks: &mut Vec<Vec<u8>>,
) -> bool {
    if node == free.len() {
        if left > 0 || !is_near(case, set, here, racks) {
            return false;
        }
        let used = case.nodes.iter().zip(&*here).filter(|(_, pods)| **pods > 0).map(|((rack, _), _)| *rack);
        racks.push(used.collect());
        let found = is_feasible(case, racks.len(), free, racks);
        racks.pop();
        return found;
    }
    for pods in 0..=left {
        let taken = set.cpu * i64::from(pods);
        if taken > free[node] {
            break;
        }
        free[node] -= taken;
        here[node] = pods;
        let found = try_nodes(case, set, node + 1, left - pods, here, free, racks);
        free[node] += taken;
        here[node] = 0;
        if found {
            return true;
        }
    }
    false
}

fn is_near(case: &Case, set: &Set, here: &[u32], racks: &[Vec<u8>]) -> bool {
    let mut by_rack: BTreeMap<u8, u32> = BTreeMap::new();
    for ((rack, _), pods) in case.nodes.iter().zip(here).filter(|(_, pods)| **pods > 0) {
        *by_rack.entry(*rack).or_default() += pods;
    }
    let with_leader = !case.has_leader
        || racks.len() != 1
        || racks[0].iter().all(|rack| by_rack.len() == 1 && by_rack.contains_key(rack));
    !set.asks
        || ((!set.one_rack || (by_rack.len() == 1 && with_leader))
            && by_rack.values().all(|pods| pods.is_multiple_of(set.slice)))
}

/// Returns the number of feasible cases, and how many of them the planner rejects.
fn sample(runner: &mut TestRunner, cases: usize, strategy: impl Strategy<Value = Case>) -> (usize, usize) {
    let (mut feasible, mut refused) = (0, 0);
    for _ in 0..cases {
        let case = strategy.new_tree(runner).expect("the strategy rejects nothing").current();
        let admitted = matches!(audited(&world(&case)).verdicts.as_slice(), [(_, Verdict::Admit(_))]);
        let mut free: Vec<i64> = case.nodes.iter().map(|(_, cpu)| *cpu).collect();
        let possible = is_feasible(&case, 0, &mut free, &mut Vec::new());
        assert!(possible || !admitted, "the oracle misses a way: {case:?}");
        feasible += usize::from(possible);
        refused += usize::from(possible && !admitted);
    }
    (feasible, refused)
}

#[test]
fn few_feasible_gangs_with_topology_requests_are_rejected() {
    let mut runner = TestRunner::deterministic();
    let sets = |asks: fn() -> BoxedStrategy<bool>, count: usize| prop::collection::vec(set(asks()), count);
    let always = || Just(true).boxed();
    let often = || prop::bool::weighted(0.7).boxed();
    let families = [
        ("one set", 0, sample(&mut runner, 1000, case(sets(always, 1), false))),
        ("leader and workers", 0, sample(&mut runner, 1000, case(sets(always, 2), true))),
        ("two sets", 1, sample(&mut runner, 1000, case(sets(often, 2), false))),
        ("three sets", 3, sample(&mut runner, 1000, case(sets(often, 3), false))),
    ];
    for (family, percent, (feasible, refused)) in families {
        println!("{family}: {refused} of {feasible} feasible gangs refused");
        assert!(feasible > 50, "{family}: too few feasible cases to tell anything");
        assert!(
            refused * 100 <= feasible * percent,
            "{family}: {refused} of {feasible} feasible gangs refused"
        );
    }
}
