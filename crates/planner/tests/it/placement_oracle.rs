//! Measures how often a feasible gang is rejected. A case is feasible by construction, or an integer program decides.

#![allow(clippy::disallowed_macros, reason = "the rates are worth reading, not only asserting")]

use crate::common::audited;
use microlp::{ComparisonOp, OptimizationDirection, Problem};
use model::{Event, Gang, GangKey, Node, PodSet, ResourceIx, ResourceVec, Verdict, World};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

const GPU: ResourceIx = ResourceIx(3);

type Amounts = [i64; 3];

/// A cluster and one gang for it.
#[derive(Clone, Debug)]
struct Case {
    nodes: Vec<Amounts>,
    sets: Vec<(u32, Amounts)>,
    /// The case is constructed from a placement, so it is feasible.
    feasible_by_construction: bool,
}

/// Nodes and pods of any size. Many of these cases are trivially infeasible or trivially feasible.
fn any_case() -> impl Strategy<Value = Case> {
    let nodes = prop::collection::vec([0..16_i64, 0..16, 0..5], 2..6);
    let sets = prop::collection::vec((1..4_u32, [0..9_i64, 0..9, 0..3]), 1..5);
    (nodes, sets).prop_map(|(nodes, sets)| Case { nodes, sets, feasible_by_construction: false })
}

/// A placement of the gang fills the nodes up to `slack` in each resource: hard, but feasible.
fn tightly_filled(nodes: usize, count: u32, slack: i64) -> impl Strategy<Value = Case> {
    let sets = prop::collection::vec((1..=count, [1..9_i64, 0..9, 0..3]), 2..6);
    let homes = prop::collection::vec(0..nodes, 64);
    (sets, homes, prop::collection::vec([0..=slack, 0..=slack, 0..=slack.min(1)], nodes)).prop_map(
        |(sets, homes, mut nodes)| {
            let mut homes = homes.iter().cycle();
            for (count, request) in &sets {
                for _ in 0..*count {
                    let home = *homes.next().expect("a cycle of some homes has no end");
                    for (node, amount) in nodes[home].iter_mut().zip(request) {
                        *node += amount;
                    }
                }
            }
            Case { nodes, sets, feasible_by_construction: true }
        },
    )
}

fn vector([cpu, memory, gpu]: Amounts, pods: i64) -> ResourceVec {
    ResourceVec::new()
        .with(ResourceIx::CPU, cpu * 1000)
        .with(ResourceIx::MEMORY, memory << 30)
        .with(GPU, gpu)
        .with(ResourceIx::PODS, pods)
}

fn world(case: &Case) -> World {
    let mut world = World::new();
    world.resources_mut().intern("nvidia.com/gpu");
    for (at, node) in case.nodes.iter().enumerate() {
        let (name, allocatable) = (format!("n{at}"), vector(*node, 110));
        world.apply(Event::NodeUpserted(Node { name, ready: true, allocatable, ..Node::default() }));
    }
    let pod_set = |(at, (count, request)): (usize, &(u32, Amounts))| PodSet {
        name: format!("s{at}"),
        count: *count,
        request: vector(*request, 1),
        ..PodSet::default()
    };
    world.apply(Event::GangUpserted(Gang {
        uid: "g".into(),
        key: GangKey { name: "g".into(), ..GangKey::default() },
        pod_sets: case.sets.iter().enumerate().map(pod_set).collect(),
        ..Gang::default()
    }));
    world
}

/// Decides by integer programming whether a placement exists. A variable is the number of pods of one set on one
/// node.
fn is_feasible(case: &Case) -> bool {
    let mut problem = Problem::new(OptimizationDirection::Minimize);
    let count = |count: u32| i32::try_from(count).expect("small");
    let vars: Vec<Vec<_>> = case
        .sets
        .iter()
        .map(|(pods, _)| case.nodes.iter().map(|_| problem.add_integer_var(0.0, (0, count(*pods)))).collect())
        .collect();
    let real = |amount: i64| f64::from(i32::try_from(amount).expect("small"));
    for (row, (pods, _)) in vars.iter().zip(&case.sets) {
        let sum: Vec<_> = row.iter().map(|var| (*var, 1.0)).collect();
        problem.add_constraint(&sum, ComparisonOp::Eq, f64::from(*pods));
    }
    for (at, node) in case.nodes.iter().enumerate() {
        for (resource, amount) in node.iter().enumerate() {
            let sum: Vec<_> = vars
                .iter()
                .zip(&case.sets)
                .map(|(row, (_, request))| (row[at], real(request[resource])))
                .collect();
            problem.add_constraint(&sum, ComparisonOp::Le, real(*amount));
        }
    }
    problem.solve().is_ok()
}

/// Samples cases. Returns the number of feasible cases, and how many of them the planner rejects.
fn sample(runner: &mut TestRunner, cases: usize, strategy: impl Strategy<Value = Case>) -> (usize, usize) {
    let (mut feasible, mut refused) = (0, 0);
    for _ in 0..cases {
        let case = strategy.new_tree(runner).expect("the strategy rejects nothing").current();
        let world = world(&case);
        let admitted = matches!(audited(&world).verdicts.as_slice(), [(_, Verdict::Admit(_))]);
        if admitted {
            feasible += 1; // The auditor has checked the placement.
        } else if case.feasible_by_construction || is_feasible(&case) {
            (feasible, refused) = (feasible + 1, refused + 1);
        }
    }
    (feasible, refused)
}

#[test]
fn at_most_one_percent_of_small_feasible_gangs_is_rejected() {
    let mut runner = TestRunner::deterministic();
    let families = [
        ("anything", sample(&mut runner, 600, any_case())),
        ("brimful 3x3", sample(&mut runner, 600, tightly_filled(3, 3, 0))),
        ("brimful 5x4", sample(&mut runner, 300, tightly_filled(5, 4, 0))),
        ("nearly brimful 5x4", sample(&mut runner, 300, tightly_filled(5, 4, 1))),
        ("nearly brimful 8x6", sample(&mut runner, 100, tightly_filled(8, 6, 2))),
        ("brimful 10x8", sample(&mut runner, 100, tightly_filled(10, 8, 0))),
        ("nearly brimful 12x8", sample(&mut runner, 200, tightly_filled(12, 8, 1))),
        // Large and tight: here the search budget decides.
        ("nearly brimful 20x12", sample(&mut runner, 100, tightly_filled(20, 12, 2))),
    ];
    for (family, (feasible, refused)) in families {
        println!("{family}: {refused} of {feasible} feasible gangs refused");
        assert!(feasible > 50, "{family}: too few feasible cases to tell anything");
        assert!(refused * 100 <= feasible, "{family}: {refused} of {feasible} feasible gangs refused");
    }
}
