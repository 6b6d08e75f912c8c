//! Compares the victims of gangs with rules with all sets of victims: a gang that fits after some set of gangs has left
//! finds victims.

use std::collections::BTreeSet;

use model::{Assignment, Event, Gang, GangKey, Node, Pod, Policy, PreemptionPolicy, Verdict, World};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::{Case, case, node, pod_set, rules, some, vector};
use crate::common::audited;

/// The pending gang, which may preempt all others.
const PREEMPTOR: &str = "g0";

/// What the samples show.
#[derive(Debug, Default)]
struct Figures {
    /// Gangs that fit only after others have left.
    feasible: usize,
    /// Of these: no victims were found.
    missed: usize,
    /// More gangs were preempted than necessary.
    dearer: usize,
}

/// The nodes and the pods of others, the running gangs with bound pods, and the preemptor; `None` if a set of the case
/// does not start.
fn running(case: &Case) -> Option<World> {
    let mut world = World::new();
    for (at, values) in case.nodes.iter().enumerate() {
        let node: Node = node(at, *values);
        world.apply(Event::NodeUpserted(node));
    }
    for (at, (node, rules)) in case.foreign.iter().enumerate() {
        let (uid, node) = (format!("f{at}"), Some(format!("n{node}")));
        world.apply(Event::PodUpserted(Pod {
            uid,
            node,
            request: vector(0, 1),
            rules: some(rules),
            ..Pod::default()
        }));
    }
    let preemption = PreemptionPolicy::LowerPriority;
    world.apply(Event::PolicySet(Policy { preemption, ..Policy::default() }));
    for (at, set) in case.sets.iter().enumerate().skip(1) {
        world.apply(Event::GangUpserted(gang(at, 0, case)));
        let plan = audited(&world);
        let [(uid, Verdict::Admit(Assignment { pod_sets, .. }))] = plan.verdicts.as_slice() else {
            return None;
        };
        let (uid, places) = (uid.clone(), pod_sets[0].clone());
        world.apply(Event::Planned(plan));
        let nodes = places.into_iter().flat_map(|(node, count)| (0..count).map(move |_| node.clone()));
        for (number, node) in nodes.enumerate() {
            let request = vector(set.cpu, 1);
            world.apply(Event::PodUpserted(Pod {
                uid: format!("{uid}-{number}"),
                node: Some(node),
                request,
                rules: some(&set.rules),
                gang: Some((uid.clone(), 0)),
                ..Pod::default()
            }));
        }
    }
    Some(world)
}

fn gang(at: usize, priority: i64, case: &Case) -> Gang {
    let name = format!("g{at}");
    Gang {
        uid: name.clone(),
        key: GangKey { name, ..GangKey::default() },
        priority,
        pod_sets: [pod_set(at, &case.sets[at])].into(),
        ..Gang::default()
    }
}

/// Whether the pending gang starts after these gangs have left.
fn starts_without(world: &World, left: &BTreeSet<String>) -> bool {
    let mut world = world.clone();
    let is_gone = |pod: &&Pod| pod.gang.as_ref().is_some_and(|(gang, _)| left.contains(gang));
    let pods: Vec<String> = world.pods().filter(is_gone).map(|pod| pod.uid.clone()).collect();
    for uid in pods {
        world.apply(Event::PodRemoved(uid));
    }
    for uid in left {
        world.apply(Event::GangRemoved(uid.clone()));
    }
    world.apply(Event::PolicySet(Policy::default()));
    matches!(audited(&world).verdicts.as_slice(), [(_, Verdict::Admit(_))])
}

/// The fewest gangs that have to leave; none if no set of them suffices.
fn fewest(world: &World, gangs: usize) -> Option<usize> {
    let chosen = |bits: usize| (1..=gangs).filter(move |at| bits >> (at - 1) & 1 == 1);
    let sets = (0..1_usize << gangs)
        .filter(|bits| starts_without(world, &chosen(*bits).map(|at| format!("g{at}")).collect()));
    sets.map(|bits| chosen(bits).count()).min()
}

fn sample(cases: usize) -> Figures {
    let mut runner = TestRunner::deterministic();
    let mut figures = Figures::default();
    let strategy = case(rules(), 4, false).prop_map(|case| Case { running: Default::default(), ..case });
    while figures.feasible < cases {
        let case = strategy.new_tree(&mut runner).expect("the strategy rejects nothing").current();
        let Some(mut world) = running(&case) else { continue };
        world.apply(Event::GangUpserted(gang(0, 1000, &case)));
        let plan = audited(&world);
        let Some(needed) = fewest(&world, case.sets.len() - 1).filter(|needed| *needed > 0) else { continue };
        figures.feasible += 1;
        let verdict = plan.verdicts.iter().find(|(uid, _)| uid == PREEMPTOR);
        match verdict.map(|(_, verdict)| verdict) {
            Some(Verdict::Preempt(preemption)) => {
                let left = preemption.victim_uids().map(str::to_owned).collect();
                assert!(
                    starts_without(&world, &left),
                    "{left:?} do not suffice: {}",
                    scenario::render(&world)
                );
                figures.dearer += usize::from(left.len() > needed);
            }
            verdict => {
                figures.missed += 1;
                if std::env::var_os("RULES").is_some() {
                    println!("{}{verdict:?}\n", scenario::render(&world));
                }
            }
        }
    }
    figures
}

#[test]
fn a_gang_with_rules_finds_victims_where_some_set_suffices() {
    let figures = sample(400);
    println!("{figures:?}");
    assert_eq!(figures.missed, 0, "{figures:?}");
}
