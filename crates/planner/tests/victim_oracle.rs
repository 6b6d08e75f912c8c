//! Whether the victims of a preemption are the cheapest ones, without quota, with quota of one cohort, and with cohorts in
//! cohorts: a solver of integer programs says what the least is, and where rights depend on the turn, trying all sets does.

#![allow(clippy::disallowed_macros, reason = "the rates are worth reading, not only asserting")]

mod common;

use common::audited;
use microlp::{ComparisonOp, OptimizationDirection, Problem};
use model::{
    Amount, Assignment, Event, FlavorIx, FlavorResource, Gang, GangKey, GangState, Limits, Node, PodSet,
    Policy, PreemptionPolicy, Queue, QuotaNode, QuotaPreemption, Reclaim, ResourceGroup, ResourceIx,
    ResourceVec, Time, Verdict, World,
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
    /// GPUs per pod, node by pod, seconds it has run, queue.
    running: Vec<Running>,
    /// Pods, GPUs per pod.
    wanted: Vec<(u32, i64)>,
    /// None: there is no quota.
    quota: Option<Owned>,
}

type Running = (i64, Vec<usize>, i64, usize);

/// Who owns what in one cohort. The gang's own queue owns just what the gang wants and takes back what is lent, whatever the
/// priority.
#[derive(Clone, Debug)]
struct Owned {
    /// What each queue of those who run owns.
    queues: [i64; 3],
    /// The first two queues are in a cohort within the cohort, which owns this much beside.
    inner: Option<i64>,
}

/// The queues in the inner cohort.
const INNER: usize = 2;

fn case() -> impl Strategy<Value = Case> {
    let gang = (1..5_i64, prop::collection::vec(0..3_usize, 1..3), 1..900_i64, 0..3_usize);
    let wanted = prop::collection::vec((1..3_u32, 1..6_i64), 1..3);
    (prop::collection::vec(gang, 3..10), wanted).prop_map(|(running, wanted)| Case {
        nodes: 3,
        running,
        wanted,
        quota: None,
    })
}

fn case_with_quota() -> impl Strategy<Value = Case> {
    (case(), [0..6_i64, 0..6, 0..6]).prop_map(|(case, queues)| {
        let quota = Some(Owned { queues, inner: None });
        Case { quota, ..case }
    })
}

fn case_with_inner_cohort() -> impl Strategy<Value = Case> {
    (case(), [0..5_i64, 0..5, 0..5], 0..5_i64).prop_map(|(case, queues, inner)| {
        let quota = Some(Owned { queues, inner: Some(inner) });
        Case { quota, ..case }
    })
}

impl Case {
    fn total(&self) -> i64 {
        self.wanted.iter().map(|(count, amount)| i64::from(*count) * amount).sum()
    }

    /// What the whole cohort owns.
    fn owned(&self) -> Option<i64> {
        let Owned { queues, inner } = self.quota.as_ref()?;
        Some(queues.iter().sum::<i64>() + inner.unwrap_or(0) + self.total())
    }
}

impl Owned {
    /// Whether a queue, and the cohort around it that the gang is not in, use more than they own.
    fn borrows(&self, queue: usize, used: [i64; 3]) -> bool {
        let below = |all: &[i64; 3]| all[..INNER].iter().sum::<i64>();
        let inner = self.inner.filter(|_| queue < INNER);
        used[queue] > self.queues[queue]
            && inner.is_none_or(|inner| below(&used) > inner + below(&self.queues))
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

/// The running gangs that find room and quota, as they come.
fn placed(case: &Case) -> Vec<&Running> {
    let mut free = vec![GPUS; case.nodes];
    let mut placed: Vec<&Running> = Vec::new();
    for running in &case.running {
        let mut after = free.clone();
        running.1.iter().for_each(|node| after[*node] -= running.0);
        let used = placed.iter().map(|other| size(other)).sum::<i64>() + size(running);
        if after.iter().all(|free| *free >= 0) && case.owned().is_none_or(|owned| used <= owned) {
            free = after;
            placed.push(running);
        }
    }
    placed
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
    if let Some(Owned { queues, inner }) = &case.quota {
        add_quota(&mut world, "own", "all", case.total(), Reclaim::Any);
        if let Some(inner) = inner {
            add_quota(&mut world, "inner", "all", *inner, Reclaim::Never);
        }
        for (at, owned) in queues.iter().enumerate() {
            let cohort = if inner.is_some() && at < INNER { "inner" } else { "all" };
            add_quota(&mut world, &format!("q{at}"), cohort, *owned, Reclaim::Never);
        }
    }
    for (at, (amount, nodes, seconds, queue)) in placed(case).into_iter().enumerate() {
        let queue = case.quota.as_ref().map(|_| world.queue_ix(&format!("q{queue}"))).unwrap_or_default();
        let places = nodes.iter().map(|node| (format!("n{node}"), 1)).collect();
        world.apply(Event::GangUpserted(Gang {
            state: GangState::Reserved(Assignment { pod_sets: vec![places], ..Assignment::default() }),
            started_at: Some(Time((1000 - seconds) * 1_000_000)),
            queue,
            ..gang(&format!("r{at}"), vec![pod_set("main".into(), nodes.len(), *amount)])
        }));
    }
    let sets = case.wanted.iter().enumerate();
    let sets =
        sets.map(|(at, (count, amount))| pod_set(format!("s{at}"), *count as usize, *amount)).collect();
    let queue = case.quota.as_ref().map(|_| world.queue_ix("own")).unwrap_or_default();
    world.apply(Event::GangUpserted(Gang { priority: 1000, queue, ..gang("urgent", sets) }));
    world
}

/// A quota node and a queue for it.
fn add_quota(world: &mut World, name: &str, cohort: &str, owned: i64, reclaim: Reclaim) {
    let of = FlavorResource { flavor: FlavorIx::ANY, resource: GPU };
    world.apply(Event::QuotaUpserted(QuotaNode {
        name: name.into(),
        parent: Some(cohort.into()),
        limits: [(of, Limits { nominal: Amount(owned), ..Limits::default() })].into(),
        preemption: QuotaPreemption { reclaim, ..QuotaPreemption::default() },
        ..QuotaNode::default()
    }));
    world.apply(Event::QueueUpserted(Queue {
        name: name.into(),
        quota: Some(name.into()),
        groups: vec![ResourceGroup { resources: vec![GPU], flavors: vec![FlavorIx::ANY] }],
        ..Queue::default()
    }));
}

/// GPU seconds that the gang would lose.
fn price(running: &Running) -> i64 {
    size(running) * running.2
}

/// The least that has to be lost so that the gang fits; none when it does not fit at all. By integer programming, where no
/// cohort is within another.
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
        let taken = |gang: &Running| {
            gang.0 * i64::try_from(gang.1.iter().filter(|at| **at == node).count()).expect("small")
        };
        let mut sum: Vec<_> =
            pods.iter().zip(&case.wanted).map(|(row, (_, amount))| (row[node], real(*amount))).collect();
        sum.extend(stopped.iter().zip(&running).map(|(var, gang)| (*var, -real(taken(gang)))));
        let free = GPUS - running.iter().map(|gang| taken(gang)).sum::<i64>();
        problem.add_constraint(&sum, ComparisonOp::Le, real(free));
    }
    if let (Some(quota), Some(owned)) = (&case.quota, case.owned()) {
        let used = |queue: Option<usize>| {
            running
                .iter()
                .filter(|gang| queue.is_none_or(|queue| queue == gang.3))
                .map(|gang| size(gang))
                .sum()
        };
        // What is left of the cohort's quota suffices.
        let given: Vec<_> =
            stopped.iter().zip(&running).map(|(var, gang)| (*var, real(size(gang)))).collect();
        let all: i64 = used(None);
        problem.add_constraint(&given, ComparisonOp::Ge, real((all + case.total() - owned).max(0)));
        // With the last one of a queue back, the queue uses more than it owns.
        for (queue, owned) in quota.queues.into_iter().enumerate() {
            let beyond: i64 = used(Some(queue)) - owned;
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

/// The same by trying all sets. A set may be stopped when, without its last one, it may be, and the last one's side still uses
/// more than it owns then.
fn optimum_by_trying(case: &Case) -> Option<i64> {
    let running = placed(case);
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
        let pods = case.wanted.iter().flat_map(|(count, amount)| (0..*count).map(|_| *amount));
        let left = case.owned().is_none_or(|owned| used(set).iter().sum::<i64>() + case.total() <= owned);
        left && fit(&pods.collect::<Vec<_>>(), &mut free)
    };
    let lost = |set: usize| {
        running.iter().enumerate().filter(|(at, _)| is_in(set, *at)).map(|(_, gang)| price(gang)).sum()
    };
    (0..allowed.len()).filter(|set| allowed[*set] && fits(*set)).map(lost).min()
}

/// Whether pods fit onto nodes.
fn fit(pods: &[i64], free: &mut [i64]) -> bool {
    let Some((pod, others)) = pods.split_first() else { return true };
    (0..free.len()).any(|node| {
        free[node] -= pod;
        let fits = free[node] >= 0 && fit(others, free);
        free[node] += pod;
        fits
    })
}

/// Plans many cases: no preemption is dearer than the optimum, and none is missed.
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
                let running = placed(&case);
                let at = |uid: &str| uid[1..].parse::<usize>().expect("named by number");
                let lost: i64 = preemption.stopped().map(|uid| price(running[at(uid)])).sum();
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

/// Both ways to find the optimum.
fn agreed(case: &Case) -> Option<i64> {
    let least = optimum(case);
    assert_eq!(least, optimum_by_trying(case), "the oracles differ about {case:?}");
    least
}

#[test]
fn the_victims_are_the_cheapest_in_small_clusters() {
    compare(case(), agreed);
}

#[test]
fn the_victims_are_the_cheapest_of_those_that_quota_gives_a_right_to() {
    compare(case_with_quota(), agreed);
}

#[test]
fn the_victims_are_the_cheapest_where_cohorts_are_in_cohorts() {
    compare(case_with_inner_cohort(), optimum_by_trying);
}
