//! Compares the cost of victims with the optimum: without quota, with the quota of one cohort, and with nested
//! cohorts. An integer program computes the optimum. Where the order of preemption matters, the oracle tries all
//! sets.

#![allow(clippy::disallowed_macros, reason = "the rates are worth reading, not only asserting")]

use crate::common::audited;
use microlp::{ComparisonOp, OptimizationDirection, Problem};
use model::{
    Amount, Assignment, Event, FlavorIx, FlavorResource, Gang, GangKey, GangState, Limits, Node, PodSet,
    Policy, PreemptionPolicy, Queue, QuotaNode, QuotaPreemption, ReclaimWithinCohort, ResourceGroup,
    ResourceIx, ResourceVec, Time, Verdict, World,
};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

const GPU: ResourceIx = ResourceIx(3);
const GPUS: i64 = 8;

/// A full cluster of 8-GPU nodes, and a pending gang.
#[derive(Clone, Debug)]
struct Case {
    nodes: usize,
    /// The running gangs: GPUs per pod, the node of each pod, run time in seconds, queue.
    running: Vec<Running>,
    /// The pod sets of the gang: number of pods, GPUs per pod.
    requested: Vec<(u32, i64)>,
    /// `None` without quota.
    quota: Option<NominalQuotas>,
}

type Running = (i64, Vec<usize>, i64, usize);

/// The nominal quotas of one cohort. The quota of the gang's queue equals the gang's request. That queue reclaims
/// lent quota, whatever the priority.
#[derive(Clone, Debug)]
struct NominalQuotas {
    /// The nominal quota of each queue of the running gangs.
    queues: [i64; 3],
    /// The first two queues are in a nested cohort with this quota of its own.
    nested: Option<i64>,
}

/// The number of queues in the nested cohort.
const NESTED: usize = 2;

fn case() -> impl Strategy<Value = Case> {
    let gang = (1..5_i64, prop::collection::vec(0..3_usize, 1..3), 1..900_i64, 0..3_usize);
    let requested = prop::collection::vec((1..3_u32, 1..6_i64), 1..3);
    (prop::collection::vec(gang, 3..10), requested).prop_map(|(running, requested)| Case {
        nodes: 3,
        running,
        requested,
        quota: None,
    })
}

fn case_with_quota() -> impl Strategy<Value = Case> {
    (case(), [0..6_i64, 0..6, 0..6]).prop_map(|(case, queues)| {
        let quota = Some(NominalQuotas { queues, nested: None });
        Case { quota, ..case }
    })
}

fn case_with_nested_cohort() -> impl Strategy<Value = Case> {
    (case(), [0..5_i64, 0..5, 0..5], 0..5_i64).prop_map(|(case, queues, nested)| {
        let quota = Some(NominalQuotas { queues, nested: Some(nested) });
        Case { quota, ..case }
    })
}

impl Case {
    fn total(&self) -> i64 {
        self.requested.iter().map(|(count, amount)| i64::from(*count) * amount).sum()
    }

    /// The total quota of the cohort.
    fn cohort_quota(&self) -> Option<i64> {
        let NominalQuotas { queues, nested } = self.quota.as_ref()?;
        Some(queues.iter().sum::<i64>() + nested.unwrap_or(0) + self.total())
    }
}

impl NominalQuotas {
    /// Whether a queue borrows, and its nested cohort too if the gang is outside of it.
    fn borrows(&self, queue: usize, used: [i64; 3]) -> bool {
        let below = |all: &[i64; 3]| all[..NESTED].iter().sum::<i64>();
        let nested = self.nested.filter(|_| queue < NESTED);
        used[queue] > self.queues[queue]
            && nested.is_none_or(|nested| below(&used) > nested + below(&self.queues))
    }
}

fn size((amount, nodes, ..): &Running) -> i64 {
    amount * i64::try_from(nodes.len()).expect("small")
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

/// The running gangs that fit on nodes and into quota, in order of arrival.
fn fitting(case: &Case) -> Vec<&Running> {
    let mut free = vec![GPUS; case.nodes];
    let mut fitting: Vec<&Running> = Vec::new();
    for running in &case.running {
        let mut after = free.clone();
        running.1.iter().for_each(|node| after[*node] -= running.0);
        let used = fitting.iter().map(|other| size(other)).sum::<i64>() + size(running);
        if after.iter().all(|free| *free >= 0) && case.cohort_quota().is_none_or(|nominal| used <= nominal) {
            free = after;
            fitting.push(running);
        }
    }
    fitting
}

fn world(case: &Case) -> World {
    let mut world = World::new();
    world.resources_mut().intern("nvidia.com/gpu");
    world
        .apply(Event::PolicySet(Policy { preemption: PreemptionPolicy::LowerPriority, ..Policy::default() }));
    for at in 0..case.nodes {
        let allocatable = ResourceVec::new().with(GPU, GPUS).with(ResourceIx::PODS, 110);
        world.apply(Event::NodeUpserted(Node {
            name: format!("n{at}"),
            ready: true,
            allocatable,
            ..Node::default()
        }));
    }
    if let Some(NominalQuotas { queues, nested }) = &case.quota {
        add_quota(&mut world, "own", "all", case.total(), ReclaimWithinCohort::Any);
        if let Some(nested) = nested {
            add_quota(&mut world, "inner", "all", *nested, ReclaimWithinCohort::Never);
        }
        for (at, nominal) in queues.iter().enumerate() {
            let cohort = if nested.is_some() && at < NESTED { "inner" } else { "all" };
            add_quota(&mut world, &format!("q{at}"), cohort, *nominal, ReclaimWithinCohort::Never);
        }
    }
    for (at, (amount, nodes, seconds, queue)) in fitting(case).into_iter().enumerate() {
        let queue = case.quota.as_ref().map(|_| world.queue_ix(&format!("q{queue}"))).unwrap_or_default();
        let places = nodes.iter().map(|node| (format!("n{node}"), 1)).collect();
        world.apply(Event::GangUpserted(Gang {
            state: GangState::Reserved(Assignment { pod_sets: vec![places], ..Assignment::default() }),
            started_at: Some(Time((1000 - seconds) * 1_000_000)),
            queue,
            ..gang(&format!("r{at}"), vec![pod_set("main".into(), nodes.len(), *amount)])
        }));
    }
    let sets = case.requested.iter().enumerate();
    let sets =
        sets.map(|(at, (count, amount))| pod_set(format!("s{at}"), *count as usize, *amount)).collect();
    let queue = case.quota.as_ref().map(|_| world.queue_ix("own")).unwrap_or_default();
    world.apply(Event::GangUpserted(Gang { priority: 1000, queue, ..gang("urgent", sets) }));
    world
}

/// Adds a quota node and a queue that uses it.
fn add_quota(world: &mut World, name: &str, cohort: &str, nominal: i64, reclaim: ReclaimWithinCohort) {
    let of = FlavorResource { flavor: FlavorIx::ANY, resource: GPU };
    world.apply(Event::QuotaUpserted(QuotaNode {
        name: name.into(),
        parent: Some(cohort.into()),
        limits: [(of, Limits { nominal: Amount(nominal), ..Limits::default() })].into(),
        preemption: QuotaPreemption { reclaim_within_cohort: reclaim, ..QuotaPreemption::default() },
        ..QuotaNode::default()
    }));
    world.apply(Event::QueueUpserted(Queue {
        name: name.into(),
        quota: Some(name.into()),
        groups: vec![ResourceGroup { resources: vec![GPU], flavors: vec![FlavorIx::ANY] }],
        ..Queue::default()
    }));
}

/// The GPU seconds that preemption of the gang loses.
fn cost(running: &Running) -> i64 {
    size(running) * running.2
}

/// The least cost of victims for which the gang fits; `None` when it does not fit at all. Solved as an integer
/// program; not for nested cohorts.
fn optimum(case: &Case) -> Option<i64> {
    let real = |amount: i64| f64::from(i32::try_from(amount).expect("small"));
    let mut problem = Problem::new(OptimizationDirection::Minimize);
    let running = fitting(case);
    let stopped: Vec<_> = running.iter().map(|gang| problem.add_binary_var(real(cost(gang)))).collect();
    let pods: Vec<Vec<_>> = case
        .requested
        .iter()
        .map(|(count, _)| {
            (0..case.nodes)
                .map(|_| problem.add_integer_var(0.0, (0, i32::try_from(*count).expect("small"))))
                .collect()
        })
        .collect();
    for (row, (count, _)) in pods.iter().zip(&case.requested) {
        let sum: Vec<_> = row.iter().map(|var| (*var, 1.0)).collect();
        problem.add_constraint(&sum, ComparisonOp::Eq, f64::from(*count));
    }
    for node in 0..case.nodes {
        let taken = |gang: &Running| {
            gang.0 * i64::try_from(gang.1.iter().filter(|at| **at == node).count()).expect("small")
        };
        let mut sum: Vec<_> =
            pods.iter().zip(&case.requested).map(|(row, (_, amount))| (row[node], real(*amount))).collect();
        sum.extend(stopped.iter().zip(&running).map(|(var, gang)| (*var, -real(taken(gang)))));
        let free = GPUS - running.iter().map(|gang| taken(gang)).sum::<i64>();
        problem.add_constraint(&sum, ComparisonOp::Le, real(free));
    }
    if let (Some(quota), Some(nominal)) = (&case.quota, case.cohort_quota()) {
        let used = |queue: Option<usize>| {
            running
                .iter()
                .filter(|gang| queue.is_none_or(|queue| queue == gang.3))
                .map(|gang| size(gang))
                .sum()
        };
        // The remaining quota of the cohort suffices.
        let given: Vec<_> =
            stopped.iter().zip(&running).map(|(var, gang)| (*var, real(size(gang)))).collect();
        let all: i64 = used(None);
        problem.add_constraint(&given, ComparisonOp::Ge, real((all + case.total() - nominal).max(0)));
        // With its last victim running again, the queue still borrows.
        for (queue, nominal) in quota.queues.into_iter().enumerate() {
            let beyond: i64 = used(Some(queue)) - nominal;
            let mine = stopped.iter().zip(&running).filter(|(_, gang)| gang.3 == queue);
            let mut sum: Vec<_> = mine.clone().map(|(var, gang)| (*var, real(size(gang)))).collect();
            let mut lasts = Vec::new();
            for (var, gang) in mine {
                let last = problem.add_binary_var(0.0);
                problem.add_constraint([(last, 1.0), (*var, -1.0)], ComparisonOp::Le, 0.0);
                sum.push((last, -real(size(gang))));
                lasts.push((last, 1.0));
                if beyond <= 0 {
                    problem.add_constraint([(*var, 1.0)], ComparisonOp::Le, 0.0);
                }
            }
            problem.add_constraint(&lasts, ComparisonOp::Le, 1.0);
            problem.add_constraint(&sum, ComparisonOp::Le, real((beyond - 1).max(0)));
        }
    }
    let solution = problem.solve().ok()?.into_solution().ok()?;
    #[allow(clippy::cast_possible_truncation, reason = "sums of small integers")]
    Some(solution.objective().round() as i64)
}

/// Computes the same optimum by trying all sets. A set may be preempted when it may without its last victim, and the
/// branch of the last victim still borrows at that point.
fn optimum_by_enumeration(case: &Case) -> Option<i64> {
    let running = fitting(case);
    let is_in = |set: usize, at: usize| set >> at & 1 == 1;
    let stays = |set: usize| running.iter().enumerate().filter(move |(at, _)| !is_in(set, *at));
    let used = |set: usize| {
        let mut used = [0; 3];
        stays(set).for_each(|(_, gang)| used[gang.3] += size(gang));
        used
    };
    let is_open =
        |set: usize, queue: usize| case.quota.as_ref().is_none_or(|quota| quota.borrows(queue, used(set)));
    let mut allowed = vec![true];
    for set in 1..1 << running.len() {
        let could_be_last = |(at, gang): (usize, &&Running)| {
            let before = set & !(1 << at);
            is_in(set, at) && allowed[before] && is_open(before, gang.3)
        };
        let is_allowed = running.iter().enumerate().any(could_be_last);
        allowed.push(is_allowed);
    }
    let fits = |set: usize| {
        let mut free = vec![GPUS; case.nodes];
        stays(set).for_each(|(_, gang)| gang.1.iter().for_each(|node| free[*node] -= gang.0));
        let pods = case.requested.iter().flat_map(|(count, amount)| (0..*count).map(|_| *amount));
        let left =
            case.cohort_quota().is_none_or(|nominal| used(set).iter().sum::<i64>() + case.total() <= nominal);
        left && fit(&pods.collect::<Vec<_>>(), &mut free)
    };
    let lost = |set: usize| {
        running.iter().enumerate().filter(|(at, _)| is_in(set, *at)).map(|(_, gang)| cost(gang)).sum()
    };
    (0..allowed.len()).filter(|set| allowed[*set] && fits(*set)).map(lost).min()
}

/// Whether the pods fit on the nodes.
fn fit(pods: &[i64], free: &mut [i64]) -> bool {
    let Some((pod, others)) = pods.split_first() else { return true };
    (0..free.len()).any(|node| {
        free[node] -= pod;
        let fits = free[node] >= 0 && fit(others, free);
        free[node] += pod;
        fits
    })
}

/// Plans many cases. No preemption costs more than the optimum, and no possible preemption is missed.
fn compare(cases: impl Strategy<Value = Case>, optimum: impl Fn(&Case) -> Option<i64>) {
    let mut runner = TestRunner::deterministic();
    let (mut preempted, mut dearer, mut missed) = (0, 0, 0);
    for _ in 0..600 {
        let case = cases.new_tree(&mut runner).expect("the strategy rejects nothing").current();
        let world = world(&case);
        let plan = audited(&world);
        match plan.verdicts.as_slice() {
            [(_, Verdict::Admit(_))] => {}
            [(_, Verdict::Preempt(preemption))] => {
                let running = fitting(&case);
                let at = |uid: &str| uid[1..].parse::<usize>().expect("named by number");
                let lost: i64 = preemption.victim_uids().map(|uid| cost(running[at(uid)])).sum();
                let least = optimum(&case).expect("the planner found a way");
                assert!(lost >= least, "the oracle is wrong about {case:?}");
                (preempted, dearer) = (preempted + 1, dearer + u32::from(lost > least));
            }
            _ => missed += u32::from(optimum(&case).is_some()),
        }
    }
    println!("{dearer} of {preempted} preemptions were dearer than the optimum, {missed} were missed");
    assert!(preempted > 200, "too few preemptions to tell anything: {preempted}");
    assert_eq!((dearer, missed), (0, 0), "dearer than the optimum, and missed, of {preempted}");
}

/// Computes the optimum in both ways and compares them.
fn cross_checked_optimum(case: &Case) -> Option<i64> {
    let least = optimum(case);
    assert_eq!(least, optimum_by_enumeration(case), "the oracles differ about {case:?}");
    least
}

#[test]
fn victims_have_the_least_cost_in_small_clusters() {
    compare(case(), cross_checked_optimum);
}

#[test]
fn victims_have_the_least_cost_among_those_that_quota_rules_allow() {
    compare(case_with_quota(), cross_checked_optimum);
}

#[test]
fn victims_have_the_least_cost_in_nested_cohorts() {
    compare(case_with_nested_cohort(), optimum_by_enumeration);
}
