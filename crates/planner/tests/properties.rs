//! What holds for every world and every sequence of events, with the auditor as judge and the full recomputation as
//! oracle for the incremental one.

mod common;

use std::collections::BTreeMap;

use common::{audited, rebuilt};
use model::{
    Effect, Event, Gang, GangKey, GangState, Node, Plan, Pod, PodSet, ResourceIx, ResourceVec, Taint, Time,
    Toleration, TolerationOperator, Verdict, Wake, World,
};
use proptest::prelude::*;

const GPU: ResourceIx = ResourceIx(3);

/// Something that happens; numbers are taken modulo what there is.
#[derive(Clone, Debug)]
enum Step {
    Node {
        name: u8,
        cpu: i64,
        gpu: i64,
        zone: bool,
        tainted: bool,
        open: bool,
    },
    NodeGone(u8),
    Pod {
        name: u8,
        node: u8,
        cpu: i64,
    },
    PodGone(u8),
    Gang {
        name: u8,
        priority: i64,
        at: i64,
        sets: Vec<Set>,
        declared: Option<i64>,
    },
    GangGone(u8),
    Foreign {
        name: u8,
        sets: Vec<Set>,
    },
    /// A pod of a running gang is bound, where planned or elsewhere.
    Bind {
        gang: u8,
        set: u8,
        node: u8,
        number: u8,
    },
    Plan,
}

#[derive(Clone, Debug)]
struct Set {
    count: u32,
    cpu: i64,
    gpu: i64,
    zone: bool,
    tolerant: bool,
}

fn set() -> impl Strategy<Value = Set> {
    (0..5_u32, 0..6_i64, prop_oneof![3 => Just(0), 1 => 1..4_i64], prop::bool::weighted(0.2), prop::bool::ANY)
        .prop_map(|(count, cpu, gpu, zone, tolerant)| Set { count, cpu, gpu, zone, tolerant })
}

fn step() -> impl Strategy<Value = Step> {
    let sets = || prop::collection::vec(set(), 0..4);
    let declared = || prop_oneof![3 => Just(None), 1 => (0..20_i64).prop_map(Some)];
    prop_oneof![
        4 => (0..6_u8, 0..12_i64, 0..4_i64, prop::bool::ANY, prop::bool::weighted(0.2), prop::bool::weighted(0.8))
            .prop_map(|(name, cpu, gpu, zone, tainted, open)| Step::Node { name, cpu, gpu, zone, tainted, open }),
        1 => (0..6_u8).prop_map(Step::NodeGone),
        1 => (0..6_u8, 0..6_u8, 0..3_i64).prop_map(|(name, node, cpu)| Step::Pod { name, node, cpu }),
        1 => (0..6_u8).prop_map(Step::PodGone),
        6 => (0..12_u8, 0..3_i64, 0..4_i64, sets(), declared())
            .prop_map(|(name, priority, at, sets, declared)| Step::Gang { name, priority, at, sets, declared }),
        3 => (0..12_u8).prop_map(Step::GangGone),
        1 => (0..12_u8, sets()).prop_map(|(name, sets)| Step::Foreign { name, sets }),
        3 => (0..12_u8, 0..4_u8, 0..6_u8, 0..3_u8)
            .prop_map(|(gang, set, node, number)| Step::Bind { gang, set, node, number }),
        4 => Just(Step::Plan),
    ]
}

fn amounts(cpu: i64, gpu: i64, pods: i64) -> ResourceVec {
    ResourceVec::new().with(ResourceIx::CPU, cpu * 1000).with(GPU, gpu).with(ResourceIx::PODS, pods)
}

fn gang(name: u8, sets: &[Set]) -> Gang {
    let pod_set = |(at, set): (usize, &Set)| {
        let mut pod_set = PodSet {
            name: format!("s{at}"),
            count: set.count,
            request: amounts(set.cpu, set.gpu, 1),
            ..PodSet::default()
        };
        if set.zone {
            pod_set.constraints.node_selector = BTreeMap::from([("zone".into(), "true".into())]);
        }
        if set.tolerant {
            pod_set.constraints.tolerations =
                vec![Toleration { operator: TolerationOperator::Exists, ..Toleration::default() }];
        }
        pod_set
    };
    Gang {
        uid: format!("g{name}"),
        key: GangKey { kind: "gangs".into(), namespace: "default".into(), name: format!("g{name}") },
        pod_sets: sets.iter().enumerate().map(pod_set).collect(),
        ..Gang::default()
    }
}

fn event(world: &World, step: &Step) -> Option<Event> {
    Some(match step {
        Step::Node { name, cpu, gpu, zone, tainted, open } => {
            let taint = Taint { key: "t".into(), value: String::new(), effect: Effect::NoSchedule };
            Event::NodeUpserted(Node {
                name: format!("n{name}"),
                labels: BTreeMap::from([
                    ("zone".into(), zone.to_string()),
                    ("host".into(), name.to_string()),
                ]),
                taints: if *tainted { vec![taint] } else { Vec::new() },
                unschedulable: !open,
                ready: true,
                allocatable: amounts(*cpu, *gpu, 6),
            })
        }
        Step::NodeGone(name) => Event::NodeRemoved(format!("n{name}")),
        Step::Pod { name, node, cpu } => Event::PodUpserted(Pod {
            uid: format!("p{name}"),
            node: Some(format!("n{node}")),
            request: amounts(*cpu, 0, 1),
            ..Pod::default()
        }),
        Step::PodGone(name) => Event::PodRemoved(format!("p{name}")),
        Step::Gang { name, priority, at, sets, declared } => {
            if world.gang(&format!("g{name}")).is_some_and(|gang| gang.state != GangState::Waiting) {
                return None;
            }
            let declared = declared.map(|cpu| amounts(cpu, 0, 0));
            Event::GangUpserted(Gang {
                priority: *priority,
                queued_at: Time(*at),
                declared,
                ..gang(*name, sets)
            })
        }
        Step::GangGone(name) => Event::GangRemoved(format!("g{name}")),
        Step::Foreign { name, sets } => {
            Event::GangUpserted(Gang { state: GangState::Unplaced, ..gang(*name, sets) })
        }
        Step::Bind { gang, set, node, number } => {
            let uid = format!("g{gang}");
            let pod_set = world.gang(&uid)?.pod_sets.get(usize::from(*set))?;
            Event::PodUpserted(Pod {
                uid: format!("{uid}-{set}-{number}"),
                node: Some(format!("n{node}")),
                request: pod_set.request.clone(),
                gang: Some((uid, usize::from(*set))),
                ..Pod::default()
            })
        }
        Step::Plan => return None,
    })
}

/// What each waiting gang was told last, as far as the incremental planner and the full one have to agree.
fn outcome(world: &World, plan: &Plan) -> BTreeMap<String, String> {
    let word = |verdict: &Verdict| match verdict {
        Verdict::Admit(assignment) => format!("admit {assignment:?}"),
        Verdict::Wait(_) => "wait".to_owned(),
        Verdict::Never(_) => "never".to_owned(),
    };
    let waiting = world.gangs().filter(|gang| gang.state == GangState::Waiting);
    let mut outcome: BTreeMap<String, String> = waiting
        .filter_map(|gang| world.verdict(&gang.uid).map(|verdict| (gang.uid.clone(), word(verdict))))
        .collect();
    outcome.extend(plan.verdicts.iter().map(|(uid, verdict)| (uid.clone(), word(verdict))));
    outcome
}

fn same_books(world: &World, fresh: &World) {
    for node in world.nodes() {
        assert_eq!(world.usage(&node.name), fresh.usage(&node.name), "{}", scenario::render(world));
    }
    assert!(world.aggregates().eq(fresh.aggregates()));
    assert_eq!(world.nodes().count(), fresh.nodes().count());
    let free = |world: &World| {
        let nodes = world.classes().flat_map(|(_, row)| {
            let groups = row.groups.iter();
            groups.flat_map(|(free, nodes)| nodes.iter().map(move |(name, _)| (name.clone(), free.clone())))
        });
        nodes.collect::<BTreeMap<_, _>>()
    };
    assert_eq!(free(world), free(fresh));
}

fn config() -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_plan_along_a_history_is_right_and_equals_the_full_recomputation(
        steps in prop::collection::vec(step(), 1..60)
    ) {
        let mut world = World::new();
        world.resources_mut().intern("nvidia.com/gpu");
        for step in steps.iter().chain([&Step::Plan]) {
            if let Some(event) = event(&world, step) {
                world.apply(event);
            }
            if !matches!(step, Step::Plan) {
                continue;
            }
            let plan = audited(&world);
            let fresh = rebuilt(&world);
            same_books(&world, &fresh);
            let full = audited(&fresh);
            prop_assert_eq!(outcome(&world, &plan), outcome(&fresh, &full), "{}", scenario::render(&world));

            // Pods that a gang has before it is admitted take over slots that were planned elsewhere: that frees room.
            let frees = plan.verdicts.iter().any(|(uid, verdict)| {
                matches!(verdict, Verdict::Admit(_)) && world.pods_of(uid).next().is_some()
            });
            world.apply(Event::Planned(plan));
            if !frees {
                let again = audited(&world);
                // What is not proven is tried again whenever anything changed.
                let unproven = |uid: &str| {
                    let shortage = world.verdict(uid).and_then(Verdict::shortage);
                    shortage.is_some_and(|shortage| shortage.wake == Wake::Change)
                };
                let news = |(uid, verdict): &(String, Verdict)| {
                    matches!(verdict, Verdict::Admit(_)) || !unproven(uid)
                };
                prop_assert!(!again.verdicts.iter().any(news), "{:?}\n{}", again, scenario::render(&world));
            }
        }
    }
}
