//! Whether the victims of a preemption are the cheapest ones, with a solver of integer programs as oracle.

#![allow(clippy::disallowed_macros, reason = "the rates are worth reading, not only asserting")]

mod common;

use common::audited;
use microlp::{ComparisonOp, OptimizationDirection, Problem};
use model::{
    Assignment, Event, Gang, GangKey, GangState, Node, PodSet, Policy, Preempting, ResourceIx, ResourceVec,
    Time, Verdict, World,
};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

const GPU: ResourceIx = ResourceIx(3);
const GPUS: i64 = 8;

/// A full cluster of 8-GPU nodes, and a gang that wants in.
#[derive(Clone, Debug)]
struct Case {
    nodes: usize,
    /// GPUs per pod, node by pod, seconds it has run.
    running: Vec<(i64, Vec<usize>, i64)>,
    /// Pods, GPUs per pod.
    wanted: Vec<(u32, i64)>,
}

fn case() -> impl Strategy<Value = Case> {
    let running =
        prop::collection::vec((1..5_i64, prop::collection::vec(0..3_usize, 1..3), 1..900_i64), 3..10);
    (running, prop::collection::vec((1..3_u32, 1..6_i64), 1..3)).prop_map(|(running, wanted)| Case {
        nodes: 3,
        running,
        wanted,
    })
}

fn gpus(amount: i64) -> ResourceVec {
    ResourceVec::new().with(GPU, amount).with(ResourceIx::PODS, 1)
}

fn gang(name: &str, pod_sets: Vec<PodSet>) -> Gang {
    let key = GangKey { name: name.into(), ..GangKey::default() };
    Gang { uid: name.into(), key, pod_sets: pod_sets.into(), ..Gang::default() }
}

fn pod_set(name: String, count: usize, amount: i64) -> PodSet {
    PodSet { name, count: u32::try_from(count).expect("small"), request: gpus(amount), ..PodSet::default() }
}

/// The running gangs that find room, as they come.
fn placed(case: &Case) -> Vec<&(i64, Vec<usize>, i64)> {
    let mut free = vec![GPUS; case.nodes];
    let mut placed = Vec::new();
    for running in &case.running {
        let mut after = free.clone();
        running.1.iter().for_each(|node| after[*node] -= running.0);
        if after.iter().all(|free| *free >= 0) {
            free = after;
            placed.push(running);
        }
    }
    placed
}

fn world(case: &Case) -> World {
    let mut world = World::new();
    world.resources_mut().intern("nvidia.com/gpu");
    world.apply(Event::PolicySet(Policy { preemption: Preempting::LowerPriority, ..Policy::default() }));
    for at in 0..case.nodes {
        let allocatable = ResourceVec::new().with(GPU, GPUS).with(ResourceIx::PODS, 110);
        world.apply(Event::NodeUpserted(Node {
            name: format!("n{at}"),
            ready: true,
            allocatable,
            ..Node::default()
        }));
    }
    for (at, (amount, nodes, seconds)) in placed(case).into_iter().enumerate() {
        let places = nodes.iter().map(|node| (format!("n{node}"), 1)).collect();
        world.apply(Event::GangUpserted(Gang {
            state: GangState::Reserved(Assignment { pod_sets: vec![places], ..Assignment::default() }),
            started_at: Some(Time((1000 - seconds) * 1_000_000)),
            ..gang(&format!("r{at}"), vec![pod_set("main".into(), nodes.len(), *amount)])
        }));
    }
    let sets = case.wanted.iter().enumerate();
    let sets =
        sets.map(|(at, (count, amount))| pod_set(format!("s{at}"), *count as usize, *amount)).collect();
    world.apply(Event::GangUpserted(Gang { priority: 1000, ..gang("urgent", sets) }));
    world
}

/// GPU seconds that the gang would lose.
fn price((amount, nodes, seconds): &(i64, Vec<usize>, i64)) -> i64 {
    amount * i64::try_from(nodes.len()).expect("small") * seconds
}

/// The least that has to be lost so that the gang fits; none when it does not fit at all.
fn optimum(case: &Case) -> Option<i64> {
    let real = |amount: i64| f64::from(i32::try_from(amount).expect("small"));
    let mut problem = Problem::new(OptimizationDirection::Minimize);
    let running = placed(case);
    let stopped: Vec<_> = running.iter().map(|gang| problem.add_binary_var(real(price(gang)))).collect();
    let pods: Vec<Vec<_>> = case
        .wanted
        .iter()
        .map(|(count, _)| {
            (0..case.nodes)
                .map(|_| problem.add_integer_var(0.0, (0, i32::try_from(*count).expect("small"))))
                .collect()
        })
        .collect();
    for (row, (count, _)) in pods.iter().zip(&case.wanted) {
        let sum: Vec<_> = row.iter().map(|var| (*var, 1.0)).collect();
        problem.add_constraint(&sum, ComparisonOp::Eq, f64::from(*count));
    }
    for node in 0..case.nodes {
        let taken = |gang: &(i64, Vec<usize>, i64)| {
            gang.0 * i64::try_from(gang.1.iter().filter(|at| **at == node).count()).expect("small")
        };
        let mut sum: Vec<_> =
            pods.iter().zip(&case.wanted).map(|(row, (_, amount))| (row[node], real(*amount))).collect();
        sum.extend(stopped.iter().zip(&running).map(|(var, gang)| (*var, -real(taken(gang)))));
        let free = GPUS - running.iter().map(|gang| taken(gang)).sum::<i64>();
        problem.add_constraint(&sum, ComparisonOp::Le, real(free));
    }
    let solution = problem.solve().ok()?.into_solution().ok()?;
    #[allow(clippy::cast_possible_truncation, reason = "sums of small integers")]
    Some(solution.objective().round() as i64)
}

#[test]
fn the_victims_are_the_cheapest_in_small_clusters() {
    let mut runner = TestRunner::deterministic();
    let (mut preempted, mut dearer) = (0, 0);
    for _ in 0..600 {
        let case = case().new_tree(&mut runner).expect("the strategy rejects nothing").current();
        let world = world(&case);
        let plan = audited(&world);
        match plan.verdicts.as_slice() {
            [(_, Verdict::Admit(_))] => {}
            [(_, Verdict::Preempt(preemption))] => {
                let running = placed(&case);
                let at = |uid: &str| uid[1..].parse::<usize>().expect("named by number");
                let lost: i64 = preemption.stopped().map(|uid| price(running[at(uid)])).sum();
                let least = optimum(&case).expect("the planner found a way");
                assert!(lost >= least, "the oracle is wrong about {case:?}");
                (preempted, dearer) = (preempted + 1, dearer + usize::from(lost > least));
            }
            other => assert_eq!(optimum(&case), None, "{other:?}"),
        }
    }
    println!("{dearer} of {preempted} preemptions were dearer than the optimum");
    assert!(preempted > 200, "too few preemptions to tell anything");
    assert!(dearer * 100 <= preempted, "{dearer} of {preempted} preemptions were dearer than the optimum");
}
