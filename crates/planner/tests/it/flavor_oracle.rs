//! Measures how often a feasible gang with flavors, placements and devices is rejected. A case is feasible by
//! construction, or an integer program decides.

#![allow(clippy::disallowed_macros, reason = "the rates are worth reading, not only asserting")]

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::common::{audited, parse_world};
use microlp::{ComparisonOp, OptimizationDirection, Problem, Variable};
use model::Verdict;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

/// Values of the label `zone`. Each is a flavor of CPU, and of GPUs when these have no flavors of their own. The last
/// is tainted.
const ZONES: [&str; 3] = ["a", "b", "c"];
const TAINTED: usize = 2;
/// Values of the label `model`. Each is a flavor of GPUs when these have flavors of their own.
const MODELS: [&str; 2] = ["x", "y"];

#[derive(Clone, Debug, Default)]
struct Node {
    zone: usize,
    model: usize,
    cpu: i64,
    gpus: i64,
}

#[derive(Clone, Debug)]
struct Set {
    count: i64,
    cpu: i64,
    /// Whole GPUs per pod.
    gpus: i64,
    /// Thousandths of one GPU, if the pod requests a share.
    milli: i64,
    tolerates: bool,
    /// The zones and models that the selector or affinity allows.
    zones: [bool; 3],
    models: [bool; 2],
}

impl Set {
    /// GPUs of all pods, as quota counts them.
    fn total_gpus(&self) -> i64 {
        self.count * self.gpus + (self.count * self.milli + 999) / 1000
    }

    fn may_use(&self, zone: usize, model: usize) -> bool {
        self.zones[zone] && self.models[model] && (zone != TAINTED || self.tolerates)
    }
}

#[derive(Clone, Debug)]
struct Case {
    nodes: Vec<Node>,
    sets: Vec<Set>,
    /// GPUs have flavors of their own, so the pods of a set get two flavors.
    separate_gpu_flavors: bool,
    /// CPU quota by zone. GPU quota by model, or by zone when GPUs have no flavors of their own.
    cpu_quota: [i64; 3],
    gpu_quota: [i64; 3],
    /// The case is constructed from a placement, so it is feasible.
    feasible_by_construction: bool,
}

fn set(count: i64) -> impl Strategy<Value = Set> {
    let gpus = prop_oneof![
        2 => Just((0, 0)),
        1 => (1..3_i64).prop_map(|gpus| (gpus, 0)),
        1 => (2..8_i64).prop_map(|tenths| (0, tenths * 100)),
    ];
    let some = || any::<[bool; 3]>().prop_map(|some| if some.contains(&true) { some } else { [true; 3] });
    (1..=count, 1..7_i64, gpus, any::<bool>(), some(), some()).prop_map(
        |(count, cpu, (gpus, milli), tolerates, zones, [x, y, both])| {
            let zones = if tolerates || zones[0] || zones[1] { zones } else { [true; 3] };
            let models = if both || (!x && !y) { [true; 2] } else { [x, y] };
            Set { count, cpu, gpus, milli, tolerates, zones, models }
        },
    )
}

/// Nodes, pods and quota of any size. Many of these cases are trivially infeasible or trivially feasible.
fn any_case() -> impl Strategy<Value = Case> {
    let node = (0..3_usize, 0..2_usize, 0..16_i64, 0..4_i64);
    let node = node.prop_map(|(zone, model, cpu, gpus)| Node { zone, model, cpu, gpus });
    let quota = ([8..40_i64, 8..40, 8..40], [2..10_i64, 2..10, 2..10]);
    (prop::collection::vec(node, 2..7), prop::collection::vec(set(3), 1..4), any::<bool>(), quota).prop_map(
        |(nodes, sets, separate_gpu_flavors, (cpu_quota, gpu_quota))| Case {
            nodes,
            sets,
            separate_gpu_flavors,
            cpu_quota,
            gpu_quota,
            feasible_by_construction: false,
        },
    )
}

/// A placement of the gang fills nodes and quota up to `slack`: hard, but feasible.
fn tightly_filled(nodes: usize, count: i64, sets: usize, slack: i64) -> impl Strategy<Value = Case> {
    let sets = prop::collection::vec(set(count), 1..=sets);
    let choices = prop::collection::vec((0..64_usize, 0..64_usize), 64);
    (sets, choices, any::<bool>()).prop_map(move |(sets, choices, separate_gpu_flavors)| {
        let empty = |at| Node { zone: at % 3, model: at / 3 % 2, cpu: slack, gpus: 0 };
        let mut case = Case {
            nodes: (0..nodes).map(empty).collect(),
            sets,
            separate_gpu_flavors,
            cpu_quota: [slack; 3],
            gpu_quota: [0; 3],
            feasible_by_construction: true,
        };
        let mut choices = choices.into_iter().cycle();
        let mut shares: BTreeMap<usize, Vec<i64>> = BTreeMap::new();
        for set in case.sets.clone() {
            let open: Vec<usize> =
                (0..nodes).filter(|at| set.may_use(case.nodes[*at].zone, case.nodes[*at].model)).collect();
            let mut next = || choices.next().expect("a cycle of some choices has no end").0;
            let first = &case.nodes[open[next() % open.len()]];
            let (zone, model) = (first.zone, first.model);
            case.cpu_quota[zone] += set.count * set.cpu;
            case.gpu_quota[if separate_gpu_flavors { model } else { zone }] += set.total_gpus();
            let is_bound = separate_gpu_flavors && set.total_gpus() > 0;
            let alike =
                |at: &usize| case.nodes[*at].zone == zone && (!is_bound || case.nodes[*at].model == model);
            let homes: Vec<usize> = open.iter().copied().filter(alike).collect();
            for _ in 0..set.count {
                let home = homes[next() % homes.len()];
                case.nodes[home].cpu += set.cpu;
                case.nodes[home].gpus += set.gpus;
                shares.entry(home).or_default().extend((set.milli > 0).then_some(set.milli));
            }
        }
        for (home, shares) in shares {
            case.nodes[home].gpus += devices(shares);
        }
        case
    })
}

/// Counts the devices that first-fit decreasing needs for these shares.
fn devices(mut shares: Vec<i64>) -> i64 {
    shares.sort_unstable_by(|one, other| other.cmp(one));
    let mut taken: Vec<i64> = Vec::new();
    for share in shares {
        match taken.iter_mut().find(|taken| **taken + share <= 1000) {
            Some(taken) => *taken += share,
            None => taken.push(share),
        }
    }
    i64::try_from(taken.len()).expect("small")
}

/// Renders a case as scenario text.
fn text(case: &Case) -> String {
    let mut text = String::new();
    let taint = |zone: usize| if zone == TAINTED { " taint:dear:NoSchedule" } else { "" };
    for (at, Node { zone, model, cpu, gpus }) in case.nodes.iter().enumerate() {
        let (labels, taint) =
            (format!("label:zone={} label:model={}", ZONES[*zone], MODELS[*model]), taint(*zone));
        writeln!(text, "node n{at} {labels}{taint} cpu={cpu} nvidia.com/gpu={gpus}").expect("memory");
    }
    for (at, zone) in ZONES.iter().enumerate() {
        writeln!(text, "flavor {zone} label:zone={zone}{}", taint(at)).expect("memory");
    }
    text.push_str("flavor x label:model=x\nflavor y label:model=y\nquota team");
    let gpu_flavors: &[&str] = if case.separate_gpu_flavors { &MODELS } else { &ZONES };
    for (zone, quota) in ZONES.iter().zip(case.cpu_quota) {
        write!(text, " cpu@{zone}={quota}").expect("memory");
    }
    for (flavor, quota) in gpu_flavors.iter().zip(case.gpu_quota) {
        write!(text, " nvidia.com/gpu@{flavor}={quota}").expect("memory");
    }
    let groups =
        if case.separate_gpu_flavors { "a,b,c:cpu x,y:nvidia.com/gpu" } else { "a,b,c:cpu,nvidia.com/gpu" };
    write!(text, "\nqueue q quota=team {groups}\npending g queue=q").expect("memory");
    for (at, set) in case.sets.iter().enumerate() {
        write!(text, " s{at} {}x cpu={}", set.count, set.cpu).expect("memory");
        match (set.gpus, set.milli) {
            (0, 0) => {}
            (0, milli) => write!(text, " share:nvidia.com/gpu={milli}m").expect("memory"),
            (gpus, _) => write!(text, " nvidia.com/gpu={gpus}").expect("memory"),
        }
        text.push_str(if set.tolerates { " tolerate:dear" } else { "" });
        for (key, names, some) in [("zone", &ZONES[..], &set.zones[..]), ("model", &MODELS, &set.models)] {
            let some: Vec<&str> =
                names.iter().zip(some).filter(|(_, some)| **some).map(|(name, _)| *name).collect();
            match some.as_slice() {
                [one] => write!(text, " select:{key}={one}").expect("memory"),
                _ if some.len() == names.len() => {}
                _ => write!(text, " affinity:{key}={}", some.join("|")).expect("memory"),
            }
        }
    }
    text.push('\n');
    text
}

/// An integer program: bounded sums of variables.
struct Program(Problem);

impl Program {
    fn binary(&mut self) -> Variable {
        self.0.add_binary_var(0.0)
    }

    fn up_to(&mut self, most: i64) -> Variable {
        self.0.add_integer_var(0.0, (0, i32::try_from(most).expect("small")))
    }

    fn bound(&mut self, sum: impl IntoIterator<Item = (Variable, i64)>, how: ComparisonOp, bound: i64) {
        let real = |amount: i64| f64::from(i32::try_from(amount).expect("small"));
        let sum: Vec<_> = sum.into_iter().map(|(var, times)| (var, real(times))).collect();
        self.0.add_constraint(&sum, how, real(bound));
    }
}

/// Decides by integer programming whether flavors, placements and devices exist.
fn is_feasible(case: &Case) -> bool {
    let mut program = Program(Problem::new(OptimizationDirection::Minimize));
    // Flavors: exactly one of each kind for each pod set.
    let mut choose = |flavors: usize| {
        let row = |_: &Set| (0..flavors).map(|_| program.binary()).collect();
        case.sets.iter().map(row).collect::<Vec<Vec<Variable>>>()
    };
    let (zones, models) = (choose(ZONES.len()), choose(MODELS.len()));
    for row in zones.iter().chain(&models) {
        program.bound(row.iter().map(|var| (*var, 1)), ComparisonOp::Eq, 1);
    }
    let by_flavor = |rows: &[Vec<Variable>], flavor: usize, requested: fn(&Set) -> i64| {
        let sum = rows.iter().zip(&case.sets).map(|(row, set)| (row[flavor], requested(set)));
        sum.collect::<Vec<_>>()
    };
    for (zone, quota) in case.cpu_quota.into_iter().enumerate() {
        program.bound(by_flavor(&zones, zone, |set| set.count * set.cpu), ComparisonOp::Le, quota);
    }
    let gpu_flavors = if case.separate_gpu_flavors { &models } else { &zones };
    for (flavor, quota) in case.gpu_quota.into_iter().enumerate().take(gpu_flavors[0].len()) {
        program.bound(by_flavor(gpu_flavors, flavor, Set::total_gpus), ComparisonOp::Le, quota);
    }
    // Pods: the number of each pod set on each node, where its flavors and constraints allow it.
    let pods: Vec<Vec<Variable>> =
        case.sets.iter().map(|set| case.nodes.iter().map(|_| program.up_to(set.count)).collect()).collect();
    for (at, (set, row)) in case.sets.iter().zip(&pods).enumerate() {
        program.bound(row.iter().map(|var| (*var, 1)), ComparisonOp::Eq, set.count);
        for (Node { zone, model, .. }, var) in case.nodes.iter().zip(row) {
            let most = if set.may_use(*zone, *model) { set.count } else { 0 };
            program.bound([(*var, 1), (zones[at][*zone], -most)], ComparisonOp::Le, 0);
            if case.separate_gpu_flavors && set.total_gpus() > 0 {
                program.bound([(*var, 1), (models[at][*model], -most)], ComparisonOp::Le, 0);
            }
        }
    }
    for (at, node) in case.nodes.iter().enumerate() {
        let here = || case.sets.iter().zip(&pods).map(|(set, row)| (set, row[at]));
        program.bound(here().map(|(set, var)| (var, set.cpu)), ComparisonOp::Le, node.cpu);
        // Devices: a shared device counts as used, and holds 1000 thousandths.
        let mut devices: Vec<(Variable, i64)> = here().map(|(set, var)| (var, set.gpus)).collect();
        let mut shares: BTreeMap<Variable, Vec<(Variable, i64)>> = BTreeMap::new();
        for _ in 0..node.gpus {
            let opened = program.binary();
            devices.push((opened, 1));
            let mut load = vec![(opened, -1000)];
            for (set, var) in here().filter(|(set, _)| set.milli > 0) {
                let some = program.up_to(set.count);
                load.push((some, set.milli));
                shares.entry(var).or_default().push((some, 1));
            }
            program.bound(load, ComparisonOp::Le, 0);
        }
        for (_, var) in here().filter(|(set, _)| set.milli > 0) {
            let mut sum = shares.remove(&var).unwrap_or_default();
            sum.push((var, -1));
            program.bound(sum, ComparisonOp::Eq, 0);
        }
        program.bound(devices, ComparisonOp::Le, node.gpus);
    }
    program.0.solve().is_ok()
}

/// Samples cases. Returns the number of feasible cases, and how many of them the planner rejects.
fn sample(runner: &mut TestRunner, cases: usize, strategy: impl Strategy<Value = Case>) -> (usize, usize) {
    let (mut feasible, mut refused) = (0, 0);
    for _ in 0..cases {
        let case = strategy.new_tree(runner).expect("the strategy rejects nothing").current();
        let world = parse_world(&text(&case));
        let admitted = matches!(audited(&world).verdicts.as_slice(), [(_, Verdict::Admit(_))]);
        let is_feasible_case = case.feasible_by_construction || is_feasible(&case);
        assert!(is_feasible_case || !admitted, "the oracle misses a way:\n{}", scenario::render(&world));
        feasible += usize::from(is_feasible_case);
        refused += usize::from(is_feasible_case && !admitted);
    }
    (feasible, refused)
}

#[test]
fn at_most_one_percent_of_feasible_gangs_with_flavors_and_devices_is_rejected() {
    let mut runner = TestRunner::deterministic();
    let families = [
        ("anything", sample(&mut runner, 600, any_case())),
        ("brimful, 6 nodes, 3 sets of 3", sample(&mut runner, 400, tightly_filled(6, 3, 3, 0))),
        ("nearly brimful, 6 nodes, 4 sets of 4", sample(&mut runner, 400, tightly_filled(6, 4, 4, 1))),
        ("brimful, 12 nodes, 4 sets of 6", sample(&mut runner, 200, tightly_filled(12, 6, 4, 0))),
        ("nearly brimful, 18 nodes, 6 sets of 8", sample(&mut runner, 200, tightly_filled(18, 8, 6, 1))),
    ];
    for (family, (feasible, refused)) in families {
        println!("{family}: {refused} of {feasible} feasible gangs refused");
        assert!(feasible > 50, "{family}: too few feasible cases to tell anything");
        assert!(refused * 100 <= feasible, "{family}: {refused} of {feasible} feasible gangs refused");
    }
}
