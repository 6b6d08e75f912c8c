//! Compares the placement of gangs with rules between pods with an exhaustive search, in small random clusters with pods
//! of others, bound or only planned. What the planner admits, a simulated kube-scheduler binds in any order, each pod
//! pinned to its planned node. How often a gang is refused although it fits is measured; for one pod set with
//! anti-affinity by host, host ports or one spread constraint, never.

#![allow(clippy::disallowed_macros, reason = "the rates are worth reading, not only asserting")]

mod scheduler;
mod victims;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::common::{NOW, audited, audited_at, evictions, rebuilt};
use model::{
    Assignment, Backfill, Effect, Event, Gang, GangKey, GangState, HostPort, Node, NodeIx, Plan, Pod,
    PodAffinity, PodMark, PodRules, PodSet, PodTerm, Policy, PreemptionPolicy, ResourceIx, ResourceVec,
    SelectorIx, SpreadConstraint, Taint, Toleration, TolerationOperator, Verdict, World,
};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use scheduler::{Cluster, Placed, binds};

/// The pods of a set: their number, CPUs each, rules, and whether they tolerate the taint.
#[derive(Clone, Debug)]
struct Set {
    count: u32,
    cpu: i64,
    rules: PodRules,
    tolerates: bool,
}

#[derive(Clone, Debug)]
struct Case {
    /// The zone (0: none), the CPUs, and whether the node is tainted.
    nodes: Vec<(u8, i64, bool)>,
    sets: Vec<Set>,
    /// Pods without a gang: their node and rules.
    foreign: Vec<(usize, PodRules)>,
    /// Pods of a running gang with equal rules: their nodes, and whether they are bound.
    running: (PodRules, Vec<(usize, bool)>),
}

fn selector() -> impl Strategy<Value = SelectorIx> {
    (1..3_u32).prop_map(SelectorIx)
}

fn key() -> impl Strategy<Value = String> {
    prop_oneof![Just("host".to_owned()), Just("zone".to_owned())]
}

fn port() -> impl Strategy<Value = HostPort> {
    let address = prop::option::of((1..3_u8).prop_map(|last| format!("10.0.0.{last}")));
    (80..82_u16, address).prop_map(|(port, address)| HostPort { port, protocol: "TCP".into(), address })
}

fn constraint(selector: impl Strategy<Value = SelectorIx>) -> impl Strategy<Value = SpreadConstraint> {
    (
        selector,
        key(),
        1..3_u32,
        prop_oneof![4 => Just(1), 1 => 2..4_u32],
        prop::bool::weighted(0.8),
        any::<bool>(),
    )
        .prop_map(|(selector, topology_key, max_skew, min_domains, honors_affinity, honors_taints)| {
            SpreadConstraint { selector, topology_key, max_skew, min_domains, honors_affinity, honors_taints }
        })
}

fn term() -> impl Strategy<Value = PodTerm> {
    (selector(), key()).prop_map(|(selector, topology_key)| PodTerm { selector, topology_key })
}

fn affinity() -> impl Strategy<Value = PodAffinity> {
    (selector(), prop::collection::btree_set(key(), 1..3))
        .prop_map(|(selector, topology_keys)| PodAffinity { selector, topology_keys })
}

/// Any rules; each kind in about a third of the cases.
fn rules() -> impl Strategy<Value = PodRules> {
    let some = || prop::bool::weighted(0.3);
    (
        prop::collection::btree_set(selector(), 0..3),
        prop::collection::btree_set(term(), 0..2),
        prop::option::weighted(0.3, affinity()),
        prop::collection::vec(constraint(selector()), 0..3),
        prop::collection::btree_set(port(), 0..2),
        (some(), some(), some()),
    )
        .prop_map(|(selected_by, anti_affinity, affinity, spread, host_ports, (apart, even, ports))| {
            PodRules {
                selected_by,
                anti_affinity: if apart { anti_affinity } else { BTreeSet::new() },
                affinity,
                spread: if even { spread } else { Vec::new() },
                host_ports: if ports { host_ports } else { BTreeSet::new() },
            }
        })
}

fn apart_by_host() -> impl Strategy<Value = PodRules> {
    Just(PodRules {
        selected_by: [SelectorIx(1)].into(),
        anti_affinity: [PodTerm { selector: SelectorIx(1), topology_key: "host".into() }].into(),
        ..PodRules::default()
    })
}

fn with_ports() -> impl Strategy<Value = PodRules> {
    let ports = prop::collection::btree_set(port(), 1..3);
    ports.prop_map(|host_ports| PodRules { host_ports, ..PodRules::default() })
}

fn spread_once() -> impl Strategy<Value = PodRules> {
    (constraint(Just(SelectorIx(1))), prop::bool::weighted(0.8)).prop_map(|(constraint, selected)| PodRules {
        selected_by: if selected { [SelectorIx(1)].into() } else { BTreeSet::new() },
        spread: vec![constraint],
        ..PodRules::default()
    })
}

/// Cases with this number of pod sets. With `is_exact`, planned pods have no spread constraint that depends on other
/// nodes when they are pinned.
fn case(
    rules_of_sets: impl Strategy<Value = PodRules>,
    sets: usize,
    is_exact: bool,
) -> impl Strategy<Value = Case> {
    let set = (1..5_u32, 1..3_i64, rules_of_sets, any::<bool>())
        .prop_map(|(count, cpu, rules, tolerates)| Set { count, cpu, rules, tolerates });
    let nodes = prop::collection::vec((0..4_u8, 1..6_i64, prop::bool::weighted(0.2)), 2..5);
    (
        nodes,
        prop::collection::vec(set, sets),
        prop::collection::vec((0..4_usize, rules()), 0..3),
        (rules(), prop::collection::vec((0..4_usize, any::<bool>()), 0..3)),
    )
        .prop_map(move |(nodes, sets, mut foreign, mut running)| {
            foreign.retain(|(node, _)| *node < nodes.len());
            running.1.retain(|(node, _)| *node < nodes.len());
            running.0.spread.retain(|constraint| !is_exact || !constraint.exceeds_pin());
            Case { nodes, sets, foreign, running }
        })
}

fn vector(cpu: i64, pods: i64) -> ResourceVec {
    ResourceVec::new().with(ResourceIx::CPU, cpu * 1000).with(ResourceIx::PODS, pods)
}

fn node(at: usize, (zone, cpu, tainted): (u8, i64, bool)) -> Node {
    let mut labels = BTreeMap::from([("host".to_owned(), format!("n{at}"))]);
    if zone > 0 {
        labels.insert("zone".into(), zone.to_string());
    }
    let taint = Taint { key: "t".into(), value: String::new(), effect: Effect::NoSchedule };
    let taints = if tainted { vec![taint] } else { Vec::new() };
    let allocatable = vector(cpu, 110);
    Node { name: format!("n{at}"), labels, taints, ready: true, allocatable, ..Node::default() }
}

fn some(rules: &PodRules) -> Option<Arc<PodRules>> {
    (!rules.is_empty()).then(|| Arc::new(rules.clone()))
}

fn pod_set(at: usize, set: &Set) -> PodSet {
    let mut pod_set = PodSet {
        name: format!("s{at}"),
        count: set.count,
        request: vector(set.cpu, 1),
        rules: some(&set.rules),
        ..PodSet::default()
    };
    if set.tolerates {
        let any = Toleration { operator: TolerationOperator::Exists, ..Toleration::default() };
        pod_set.constraints.tolerations.push(any);
    }
    pod_set
}

fn world(case: &Case) -> World {
    let mut world = World::new();
    for (at, values) in case.nodes.iter().enumerate() {
        world.apply(Event::NodeUpserted(node(at, *values)));
    }
    for (at, (node, rules)) in case.foreign.iter().enumerate() {
        let (uid, node) = (format!("f{at}"), Some(format!("n{node}")));
        let request = vector(0, 1);
        world.apply(Event::PodUpserted(Pod { uid, node, request, rules: some(rules), ..Pod::default() }));
    }
    let (rules, places) = &case.running;
    let running = PodSet { name: "r".into(), request: vector(0, 1), rules: some(rules), ..PodSet::default() };
    let count = u32::try_from(places.len()).expect("few");
    let nodes = places.iter().map(|(node, _)| (format!("n{node}"), 1)).collect();
    world.apply(Event::GangUpserted(Gang {
        uid: "running".into(),
        key: GangKey { name: "running".into(), ..GangKey::default() },
        pod_sets: [PodSet { count, ..running }].into(),
        state: GangState::Reserved(Assignment { pod_sets: vec![nodes], ..Assignment::default() }),
        ..Gang::default()
    }));
    for (at, (node, _)) in places.iter().enumerate().filter(|(_, (_, is_bound))| *is_bound) {
        world.apply(Event::PodUpserted(Pod {
            uid: format!("r{at}"),
            node: Some(format!("n{node}")),
            request: vector(0, 1),
            rules: some(rules),
            gang: Some(("running".into(), 0)),
            ..Pod::default()
        }));
    }
    world.apply(Event::GangUpserted(Gang {
        uid: "g".into(),
        key: GangKey { name: "g".into(), ..GangKey::default() },
        pod_sets: case.sets.iter().enumerate().map(|(at, set)| pod_set(at, set)).collect(),
        ..Gang::default()
    }));
    world
}

/// The pods that are bound, and the planned pods of the running gang.
fn before(case: &Case) -> (Cluster<'_>, Vec<Placed<'_>>) {
    let nodes = case.nodes.iter().enumerate().map(|(at, values)| node(at, *values)).collect();
    let mut bound: Vec<Placed<'_>> = Vec::new();
    bound.extend(case.foreign.iter().map(|(node, rules)| Placed { node: *node, rules, tolerates: false }));
    let (rules, places) = &case.running;
    let running = |is: bool| {
        let places = places.iter().filter(move |(_, is_bound)| *is_bound == is);
        places.map(move |(node, _)| Placed { node: *node, rules, tolerates: false })
    };
    bound.extend(running(true));
    (Cluster { nodes, bound }, running(false).collect())
}

/// Whether the rules hold for a placement, and the pods are bound in these random orders.
fn is_valid(case: &Case, pods: &[Placed<'_>], orders: &[u64]) -> bool {
    let (mut end, planned) = before(case);
    end.bound.extend(planned.iter().copied());
    for pod in pods {
        if !end.admits_pair(*pod) {
            return false;
        }
        end.bound.push(*pod);
    }
    pods.iter().all(|pod| end.admits_spread(*pod, false, true))
        && orders.iter().all(|order| binds_in_order(case, pods, *order))
}

/// Whether the planned pods of the running gang would be bound without the gang.
fn is_sound(case: &Case, orders: &[u64]) -> bool {
    orders.iter().all(|order| binds_in_order(case, &[], *order))
}

fn binds_in_order(case: &Case, pods: &[Placed<'_>], order: u64) -> bool {
    let (mut cluster, planned) = before(case);
    let mut waiting: Vec<Placed<'_>> = planned.into_iter().chain(pods.iter().copied()).collect();
    let mut state = (order + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    for at in (1..waiting.len()).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        waiting.swap(at, usize::try_from(state >> 33).expect("31 bits") % (at + 1));
    }
    binds(&mut cluster, waiting)
}

/// Tries every placement.
fn is_feasible<'a>(
    case: &'a Case,
    set: usize,
    node: usize,
    left: u32,
    free: &mut Vec<i64>,
    pods: &mut Vec<Placed<'a>>,
) -> bool {
    let Some(current) = case.sets.get(set) else { return is_valid(case, pods, &[1, 2, 3, 4, 5, 6, 7, 8]) };
    if left == 0 {
        let count = case.sets.get(set + 1).map_or(0, |set| set.count);
        return is_feasible(case, set + 1, 0, count, free, pods);
    }
    for at in node..free.len() {
        if free[at] < current.cpu || (case.nodes[at].2 && !current.tolerates) {
            continue;
        }
        free[at] -= current.cpu;
        pods.push(Placed { node: at, rules: &current.rules, tolerates: current.tolerates });
        let found = is_feasible(case, set, at, left - 1, free, pods);
        pods.pop();
        free[at] += current.cpu;
        if found {
            return true;
        }
    }
    false
}

/// Applies a plan, and compares the pods that rules concern with those of a world built from the same objects.
fn check_marks(world: &World, plan: &Plan) {
    let mut world = world.clone();
    world.apply(Event::Planned(plan.clone()));
    let marks = |world: &World| -> Vec<(PodMark, Vec<(String, u32)>)> {
        let all = world.pod_marks(&PodMark::Selected(SelectorIx(0)));
        let named = |(node, count): (&NodeIx, &u32)| (world.node_name(*node).to_string(), *count);
        all.map(|(mark, nodes)| {
            let mut nodes: Vec<_> = nodes.iter().map(named).collect();
            nodes.sort();
            (mark.clone(), nodes)
        })
        .collect()
    };
    assert_eq!(marks(&world), marks(&rebuilt(&world)));
}

/// Returns the number of feasible cases, and how many of them the planner refuses.
fn sample(runner: &mut TestRunner, cases: usize, strategy: impl Strategy<Value = Case>) -> (usize, usize) {
    let (mut feasible, mut refused) = (0, 0);
    while cases > feasible {
        let case = strategy.new_tree(runner).expect("the strategy rejects nothing").current();
        if !is_sound(&case, &[1, 2, 3, 4, 5, 6, 7, 8]) {
            continue; // The planner would not have planned the running gang like this.
        }
        let world = world(&case);
        let plan = audited(&world);
        check_marks(&world, &plan);
        let free: Vec<i64> = case.nodes.iter().map(|(_, cpu, _)| *cpu).collect();
        let first = case.sets[0].count;
        let possible = is_feasible(&case, 0, 0, first, &mut free.clone(), &mut Vec::new());
        match plan.verdicts.as_slice() {
            [(_, Verdict::Admit(assignment))] => {
                let mut pods = Vec::new();
                for (set, places) in case.sets.iter().zip(&assignment.pod_sets) {
                    for (name, count) in places {
                        let node = name[1..].parse().expect("a number");
                        let pod = Placed { node, rules: &set.rules, tolerates: set.tolerates };
                        pods.extend((0..*count).map(|_| pod));
                    }
                }
                let orders: Vec<u64> = (0..24).collect();
                assert!(is_valid(&case, &pods, &orders), "{}{plan:?}", scenario::render(&world));
                feasible += 1;
            }
            [(_, verdict)] => {
                let is_never = matches!(verdict, Verdict::Never(_));
                assert!(!(is_never && possible), "never, but it fits: {}", scenario::render(&world));
                if possible && std::env::var_os("RULES").is_some() {
                    println!("{}{verdict:?}\n", scenario::render(&world));
                }
                feasible += usize::from(possible);
                refused += usize::from(possible);
            }
            verdicts => panic!("one gang is pending: {verdicts:?}"),
        }
    }
    (feasible, refused)
}

#[test]
fn admitted_gangs_bind_in_any_order_and_few_feasible_ones_are_refused() {
    let mut runner = TestRunner::deterministic();
    let families = [
        ("anti-affinity by host", 0, sample(&mut runner, 400, case(apart_by_host(), 1, true))),
        ("host ports", 0, sample(&mut runner, 400, case(with_ports(), 1, true))),
        ("one spread constraint", 0, sample(&mut runner, 400, case(spread_once(), 1, true))),
        ("any rules, one set", 1, sample(&mut runner, 400, case(rules(), 1, false))),
        ("any rules, two sets", 3, sample(&mut runner, 400, case(rules(), 2, false))),
        ("any rules, three sets", 3, sample(&mut runner, 200, case(rules(), 3, false))),
    ];
    for (family, percent, (feasible, refused)) in families {
        println!("{family}: {refused} of {feasible} feasible gangs refused");
        assert!(
            refused * 100 <= feasible * percent,
            "{family}: {refused} of {feasible} feasible gangs refused"
        );
    }
}

/// Each pod set of a case as a gang of its own, with preemption and reserved starts: plans until nothing changes, then
/// lets the pods of others leave one after the other. The auditor checks each plan.
fn replay(case: &Case, priorities: &[i64], depth: u32) {
    let mut world = world(case);
    world.apply(Event::GangRemoved("g".into()));
    let backfill = if depth == 0 { Backfill::BestEffort } else { Backfill::Conservative { depth } };
    let preemption = PreemptionPolicy::LowerPriority;
    world.apply(Event::PolicySet(Policy { preemption, backfill, ..Policy::default() }));
    for (at, (set, priority)) in case.sets.iter().zip(priorities).enumerate() {
        let name = format!("g{at}");
        world.apply(Event::GangUpserted(Gang {
            uid: name.clone(),
            key: GangKey { name, ..GangKey::default() },
            priority: priority * 1000,
            runs_us: (at % 2 == 0).then_some(60_000_000),
            pod_sets: [pod_set(at, set)].into(),
            ..Gang::default()
        }));
    }
    let leave = world.pods().map(|pod| Event::PodRemoved(pod.uid.clone()));
    let mut leave: Vec<Event> = leave.chain([Event::GangRemoved("running".into())]).collect();
    for step in 0..24 {
        let now = NOW.after(step * 1_000_000);
        let plan = audited_at(&world, now);
        check_marks(&world, &plan);
        let moves = plan.verdicts.iter().any(|(_, verdict)| verdict.shortage().is_none());
        world.apply(Event::Planned(plan));
        let evicted = evictions(&world);
        let is_stable = !moves && evicted.is_empty();
        let left = if is_stable { leave.pop() } else { None };
        evicted.into_iter().chain(left).for_each(|event| world.apply(event));
    }
}

#[test]
fn the_auditor_finds_nothing_with_preemption_and_reserved_starts() {
    let mut runner = TestRunner::deterministic();
    let priorities = prop::collection::vec(0..3_i64, 4);
    let strategy = (case(rules(), 4, false), priorities, 0..3_u32);
    for _ in 0..600 {
        let (case, priorities, depth) =
            strategy.new_tree(&mut runner).expect("nothing is rejected").current();
        if is_sound(&case, &[1, 2, 3, 4, 5, 6, 7, 8]) {
            replay(&case, &priorities, depth);
        }
    }
}
