//! Properties of plans over random worlds and event histories. The auditor checks every plan. A full recomputation
//! checks the incremental planner.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::{admits_before_higher_priority, audited, evictions, rebuilt, resized, succeeded};
use model::{
    Backfill, DeviceShare, Effect, Event, Flavor, Gang, GangKey, GangState, Node, Plan, Pod, PodSet, Policy,
    Preemption, PreemptionPolicy, Queue, QueueIx, QueueingHint, QueueingStrategy, ResourceIx, ResourceVec,
    Taint, Time, Toleration, TolerationOperator, TopologyMode, TopologyRequest, TopologySlice, Verdict,
    World,
};
use proptest::prelude::*;

const GPU: ResourceIx = ResourceIx(3);

/// One event. Numbers are taken modulo the number of existing objects.
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
        /// Thousandths of a GPU, and the number of the GPU.
        share: Option<(i64, Option<u32>)>,
    },
    PodGone(u8),
    Gang {
        name: u8,
        priority: i64,
        slope: i64,
        at: i64,
        sets: Vec<Set>,
        declared: Option<i64>,
        runs: Option<i64>,
    },
    GangGone(u8),
    Foreign {
        name: u8,
        sets: Vec<Set>,
    },
    /// Binds a pod of a running gang, to its planned node or another one.
    Bind {
        gang: u8,
        set: u8,
        node: u8,
        number: u8,
        device: Option<u32>,
    },
    /// Removes a pod of a gang.
    Unbind {
        gang: u8,
        set: u8,
        number: u8,
    },
    /// Victims become pending again; their pods stay bound.
    Evict,
    Preemption(bool),
    /// Pods of a gang succeed.
    Succeed {
        gang: u8,
        set: u8,
        pods: u32,
    },
    /// Changes the size of a pod set of a running gang.
    Resize {
        gang: u8,
        set: u8,
        count: u32,
    },
    /// Excludes a node for a gang.
    Exclude {
        gang: u8,
        node: u8,
    },
    Backfill(u32),
    /// Changes the implicit queue or the other one.
    Queue {
        other: bool,
        strict: bool,
        reserves: bool,
    },
    /// Allows or forbids a gang to scale up while it runs.
    Elastic {
        gang: u8,
        may: bool,
    },
    /// Marks a node of a gang as unhealthy, or all its nodes as healthy.
    Fail {
        gang: u8,
        node: Option<u8>,
    },
    /// Gives the only flavor a topology of these levels.
    Flavor(&'static [&'static str]),
    Plan,
}

#[derive(Clone, Debug)]
struct Set {
    count: u32,
    cpu: i64,
    gpu: i64,
    /// Thousandths of one GPU, when the pod requests no whole one.
    share: Option<i64>,
    zone: bool,
    tolerant: bool,
    grouped: bool,
    min_count: Option<u32>,
    topology: Option<TopologyRequest>,
}

fn topology() -> impl Strategy<Value = TopologyRequest> {
    let level = || prop_oneof![Just("zone".to_owned()), Just("rack".to_owned()), Just("host".to_owned())];
    let mode = prop_oneof![
        1 => Just(TopologyMode::Unconstrained),
        1 => level().prop_map(TopologyMode::Preferred),
        2 => level().prop_map(TopologyMode::Required),
    ];
    let slice = (1..4_u32, level()).prop_map(|(size, level)| TopologySlice { size, level });
    (mode, prop_oneof![3 => Just(Vec::new()), 1 => prop::collection::vec(slice, 1..3)])
        .prop_map(|(mode, slices)| TopologyRequest { mode, slices })
}

fn set() -> impl Strategy<Value = Set> {
    let near = (
        prop::bool::weighted(0.3),
        prop::option::weighted(0.2, 0..4_u32),
        prop::option::weighted(0.3, topology()),
    );
    let gpu = prop_oneof![3 => Just(0), 1 => 1..4_i64];
    let share =
        prop_oneof![2 => Just(None), 1 => prop::sample::select(vec![100, 300, 400, 500, 700]).prop_map(Some)];
    (0..5_u32, 0..6_i64, gpu, share, prop::bool::weighted(0.2), prop::bool::ANY, near).prop_map(
        |(count, cpu, gpu, share, zone, tolerant, (grouped, min_count, topology))| Set {
            count,
            cpu,
            gpu,
            share,
            zone,
            tolerant,
            grouped,
            min_count,
            topology,
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let sets = || prop::collection::vec(set(), 0..4);
    // At most one unit of priority, up or down, within the 1000 s until the decisions.
    let slope = || prop_oneof![3 => Just(0), 1 => -1000..1000_i64];
    let declared = || prop_oneof![3 => Just(None), 1 => (0..20_i64).prop_map(Some)];
    prop_oneof![
        4 => (0..6_u8, 0..12_i64, 0..4_i64, prop::bool::ANY, prop::bool::weighted(0.2), prop::bool::weighted(0.8))
            .prop_map(|(name, cpu, gpu, zone, tainted, open)| Step::Node { name, cpu, gpu, zone, tainted, open }),
        1 => (0..6_u8).prop_map(Step::NodeGone),
        1 => (0..6_u8, 0..6_u8, 0..3_i64, prop::option::of((1..700_i64, prop::option::of(0..3_u32))))
            .prop_map(|(name, node, cpu, share)| Step::Pod { name, node, cpu, share }),
        1 => (0..6_u8).prop_map(Step::PodGone),
        6 => (0..12_u8, 0..3_i64, slope(), 0..4_i64, sets(), declared(), prop::option::of(1..500_i64))
            .prop_map(|(name, priority, slope, at, sets, declared, runs)| {
                Step::Gang { name, priority, slope, at, sets, declared, runs }
            }),
        3 => (0..12_u8).prop_map(Step::GangGone),
        1 => (0..12_u8, sets()).prop_map(|(name, sets)| Step::Foreign { name, sets }),
        3 => (0..12_u8, 0..4_u8, 0..6_u8, 0..3_u8, prop::option::of(0..3_u32))
            .prop_map(|(gang, set, node, number, device)| Step::Bind { gang, set, node, number, device }),
        2 => (0..12_u8, 0..4_u8, 0..3_u8).prop_map(|(gang, set, number)| Step::Unbind { gang, set, number }),
        2 => Just(Step::Evict),
        1 => prop::bool::weighted(0.8).prop_map(Step::Preemption),
        1 => (0..5_u32).prop_map(Step::Backfill),
        2 => (any::<bool>(), any::<bool>(), any::<bool>())
            .prop_map(|(other, strict, reserves)| Step::Queue { other, strict, reserves }),
        1 => prop_oneof![Just(&["zone", "rack", "host"][..]), Just(&["rack", "zone"][..]), Just(&[][..])].prop_map(Step::Flavor),
        1 => (0..12_u8, 0..4_u8, 0..3_u32).prop_map(|(gang, set, pods)| Step::Succeed { gang, set, pods }),
        1 => (0..12_u8, 0..4_u8, 0..5_u32).prop_map(|(gang, set, count)| Step::Resize { gang, set, count }),
        1 => (0..12_u8, 0..6_u8).prop_map(|(gang, node)| Step::Exclude { gang, node }),
        1 => (0..12_u8, prop::bool::weighted(0.8)).prop_map(|(gang, may)| Step::Elastic { gang, may }),
        1 => (0..12_u8, prop::option::weighted(0.8, 0..6_u8)).prop_map(|(gang, node)| Step::Fail { gang, node }),
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
            group: set.grouped.then(|| "g".to_owned()),
            min_count: set.min_count,
            topology: set.topology.clone(),
            share: set.share.filter(|_| set.gpu == 0).and_then(|milli| DeviceShare::new(GPU, milli).ok()),
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
        queue: QueueIx(u32::from(name % 3 == 2)),
        uid: format!("g{name}"),
        key: GangKey { kind: "gangs".into(), namespace: "default".into(), name: format!("g{name}") },
        pod_sets: sets.iter().enumerate().map(pod_set).collect(),
        ..Gang::default()
    }
}

/// A world with a second queue.
fn world() -> World {
    let mut world = World::new();
    world.resources_mut().intern("nvidia.com/gpu");
    assert_eq!(world.queue_ix("other"), QueueIx(1));
    world.apply(Event::QueueUpserted(Queue { name: "other".into(), ..Queue::default() }));
    world
}

fn event(world: &World, step: &Step) -> Option<Event> {
    Some(match step {
        Step::Node { name, cpu, gpu, zone, tainted, open } => {
            let taint = Taint { key: "t".into(), value: String::new(), effect: Effect::NoSchedule };
            Event::NodeUpserted(Node {
                name: format!("n{name}"),
                labels: BTreeMap::from([
                    ("zone".into(), zone.to_string()),
                    ("rack".into(), (name % 3).to_string()),
                    ("host".into(), name.to_string()),
                ]),
                taints: if *tainted { vec![taint] } else { Vec::new() },
                unschedulable: !open,
                ready: true,
                allocatable: amounts(*cpu, *gpu, 6),
            })
        }
        Step::NodeGone(name) => Event::NodeRemoved(format!("n{name}")),
        Step::Pod { name, node, cpu, share } => Event::PodUpserted(Pod {
            uid: format!("p{name}"),
            node: Some(format!("n{node}")),
            request: amounts(*cpu, 0, 1),
            share: share.and_then(|(milli, _)| DeviceShare::new(GPU, milli).ok()),
            device: share.and_then(|(_, number)| number),
            ..Pod::default()
        }),
        Step::PodGone(name) => Event::PodRemoved(format!("p{name}")),
        Step::Gang { name, priority, slope, at, sets, declared, runs } => {
            if world.gang(&format!("g{name}")).is_some_and(|gang| gang.state != GangState::Waiting) {
                return None;
            }
            let declared = declared.map(|cpu| amounts(cpu, 0, 0));
            Event::GangUpserted(Gang {
                priority: *priority * 1000,
                slope: *slope,
                queued_at: Time(*at),
                declared,
                runs_us: runs.map(|run| run * 1_000_000),
                ..gang(*name, sets)
            })
        }
        Step::GangGone(name) => Event::GangRemoved(format!("g{name}")),
        Step::Foreign { name, sets } => {
            Event::GangUpserted(Gang { state: GangState::Unplaced, ..gang(*name, sets) })
        }
        Step::Bind { gang, set, node, number, device } => {
            let uid = format!("g{gang}");
            let pod_set = world.gang(&uid)?.pod_sets.get(usize::from(*set))?;
            Event::PodUpserted(Pod {
                uid: format!("{uid}-{set}-{number}"),
                node: Some(format!("n{node}")),
                request: pod_set.request.clone(),
                share: pod_set.share,
                device: pod_set.share.and(*device),
                gang: Some((uid, usize::from(*set))),
                ..Pod::default()
            })
        }
        Step::Unbind { gang, set, number } => Event::PodRemoved(format!("g{gang}-{set}-{number}")),
        Step::Preemption(allowed) => {
            let preemption = if *allowed { PreemptionPolicy::LowerPriority } else { PreemptionPolicy::Never };
            Event::PolicySet(Policy { preemption, ..world.policy().clone() })
        }
        Step::Backfill(heads) => {
            let backfill = match heads {
                0 => Backfill::BestEffort,
                1 => Backfill::Reserve,
                heads => Backfill::Conservative { depth: *heads },
            };
            Event::PolicySet(Policy { backfill, ..world.policy().clone() })
        }
        Step::Succeed { gang, set, pods } => succeeded(world.gang(&format!("g{gang}"))?, *set, *pods),
        Step::Resize { gang, set, count } => resized(world.gang(&format!("g{gang}"))?, *set, *count)?,
        Step::Exclude { gang, node } => {
            let gang = world.gang(&format!("g{gang}"))?;
            let mut excluded = (*gang.excluded).clone();
            excluded.insert(format!("n{node}"));
            Event::GangUpserted(Gang { excluded: excluded.into(), ..gang.clone() })
        }
        Step::Queue { other, strict, reserves } => {
            let order = if *strict { QueueingStrategy::StrictFifo } else { QueueingStrategy::BestEffortFifo };
            let name = if *other { "other".to_owned() } else { String::new() };
            Event::QueueUpserted(Queue {
                name,
                queueing_strategy: order,
                reserves_starts: *reserves,
                ..Queue::default()
            })
        }
        Step::Elastic { gang, may } => {
            let gang = world.gang(&format!("g{gang}"))?;
            Event::GangUpserted(Gang { elastic: *may, ..gang.clone() })
        }
        Step::Fail { gang, node } => {
            let gang = world.gang(&format!("g{gang}"))?;
            let mut unhealthy = (*gang.unhealthy).clone();
            match node {
                Some(node) => _ = unhealthy.insert(format!("n{node}")),
                None => unhealthy.clear(),
            }
            Event::GangUpserted(Gang { unhealthy: unhealthy.into(), ..gang.clone() })
        }
        Step::Flavor(levels) => Event::FlavorUpserted(Flavor {
            name: "f".into(),
            topology: levels.iter().map(|level| (*level).to_owned()).collect(),
            ..Flavor::default()
        }),
        Step::Evict | Step::Plan => return None,
    })
}

/// The last verdict of each pending gang, as far as the incremental and the full planner must agree.
fn outcome(world: &World, plan: &Plan) -> BTreeMap<String, String> {
    let is_strict =
        world.queues().values().any(|queue| queue.queueing_strategy == QueueingStrategy::StrictFifo);
    let word = |verdict: &Verdict| match verdict {
        Verdict::Admit(assignment) => format!("admit {assignment:?}"),
        Verdict::Preempt(preemption) => format!("preempt {preemption:?}"),
        Verdict::Wait(_) => "wait".to_owned(),
        Verdict::Never(_) if is_strict => "wait".to_owned(), // In a strict queue only the head is evaluated.
        Verdict::Never(_) => "never".to_owned(),
    };
    let mut outcome: BTreeMap<String, String> = world
        .gangs()
        .filter_map(|gang| world.verdict(&gang.uid).map(|verdict| (gang.uid.clone(), word(verdict))))
        .collect();
    outcome.extend(plan.verdicts.iter().map(|(uid, verdict)| (uid.clone(), word(verdict))));
    let runs = |uid: &str| world.gang(uid).is_some_and(|gang| gang.state != GangState::Waiting);
    // A gang whose old pods still terminate gets this verdict only once.
    outcome.retain(|uid, _| runs(uid) || world.pods_of(uid).next().is_none());
    // The former verdict of a new victim was about its scale-up, and no longer applies.
    let preemptions = plan.verdicts.iter().filter_map(|(_, verdict)| match verdict {
        Verdict::Preempt(preemption) => Some(preemption),
        Verdict::Admit(_) | Verdict::Wait(_) | Verdict::Never(_) => None,
    });
    preemptions.flat_map(Preemption::victim_uids).for_each(|uid| _ = outcome.remove(uid));
    outcome
}

fn assert_same_state(world: &World, fresh: &World) {
    for node in world.nodes() {
        assert_eq!(world.usage(&node.name), fresh.usage(&node.name), "{}", scenario::render(world));
    }
    assert!(world.aggregate_reservations().eq(fresh.aggregate_reservations()));
    assert_eq!(world.nodes().count(), fresh.nodes().count());
    let free = |world: &World| {
        let nodes = world.classes().flat_map(|(_, row)| {
            let groups = row.groups.iter();
            groups.flat_map(|(free, nodes)| nodes.iter().map(move |(name, _)| (name.clone(), free.clone())))
        });
        nodes.collect::<BTreeMap<_, _>>()
    };
    assert_eq!(free(world), free(fresh));
    let sets = world.gangs().flat_map(|gang| gang.pod_sets.iter());
    for (set, request) in sets.filter_map(|set| Some((set, set.topology.as_ref()?))) {
        let domains = |world: &World| {
            let nodes =
                |nodes: &BTreeSet<_>| nodes.iter().map(|node| world.node_name(*node).clone()).collect();
            let levels = world.levels(set, request);
            let rows = world.domains(&levels).map(|(path, all)| (path.clone(), nodes(all)));
            rows.collect::<BTreeMap<_, BTreeSet<_>>>()
        };
        assert_eq!(domains(world), domains(fresh));
    }
}

fn config() -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_plan_of_a_history_is_valid_and_equals_the_full_recomputation(
        steps in prop::collection::vec(step(), 1..60)
    ) {
        let mut world = world();
        for step in steps.iter().chain([&Step::Plan]) {
            let evictions = if matches!(step, Step::Evict) { evictions(&world) } else { Vec::new() };
            for event in event(&world, step).into_iter().chain(evictions) {
                world.apply(event);
            }
            if !matches!(step, Step::Plan) {
                continue;
            }
            let plan = audited(&world);
            let fresh = rebuilt(&world);
            assert_same_state(&world, &fresh);
            let full = audited(&fresh);
            prop_assert_eq!(outcome(&world, &plan), outcome(&fresh, &full), "{}", scenario::render(&world));

            // A gang that loses its nomination is decided once more. A pod that leaves an unhealthy node frees its
            // resources.
            let runs = |uid: &str| {
                world.gang(uid).is_some_and(|gang| matches!(gang.state, GangState::Reserved(_)))
            };
            let nominated = |uid: &str| {
                world.gang(uid).is_some_and(|gang| matches!(gang.state, GangState::Nominated(_)))
            };
            let frees = plan.verdicts.iter().any(|(uid, verdict)| match verdict {
                Verdict::Preempt(preemption) => preemption.victim_uids().any(nominated),
                Verdict::Admit(_) => nominated(uid) || runs(uid),
                Verdict::Wait(_) | Verdict::Never(_) => nominated(uid),
            });
            let frees = frees || admits_before_higher_priority(&world, &plan);
            world.apply(Event::Planned(plan));
            if !frees {
                let again = audited(&world);
                let runs = |uid: &str| {
                    world.gang(uid).is_some_and(|gang| matches!(gang.state, GangState::Reserved(_)))
                };
                // A gang without a proven shortage is requeued on any change.
                let is_unproven = |uid: &str| {
                    let shortage = world.verdict(uid).and_then(Verdict::shortage);
                    shortage.is_some_and(|shortage| shortage.queueing_hint == QueueingHint::AnyChange)
                };
                // A gang with a reservation may report a slip: a victim counts as terminating only from now on.
                let is_reserved = |uid: &str| again.reserved.iter().any(|reserved| reserved.gang == uid);
                let is_unexpected = |(uid, verdict): &(String, Verdict)| {
                    let is_admission = matches!(verdict, Verdict::Admit(_) | Verdict::Preempt(_));
                    is_admission || (!is_unproven(uid) && !is_reserved(uid) && !runs(uid))
                };
                prop_assert!(!again.verdicts.iter().any(is_unexpected), "{:?}\n{}", again, scenario::render(&world));
            }
        }
    }
}

proptest! {
    #![proptest_config(config())]

    /// Tests the termination argument of `docs/planner/preemption.md`: without external events, preemption ends.
    #[test]
    fn preemption_ends_without_external_events(steps in prop::collection::vec(step(), 1..60)) {
        let mut world = world();
        world.apply(Event::PolicySet(Policy { preemption: PreemptionPolicy::LowerPriority, ..Policy::default() }));
        for step in steps.iter().filter(|step| !matches!(step, Step::Preemption(_))) {
            if let Some(event) = event(&world, step) {
                world.apply(event);
            }
        }
        let gangs = world.gangs().count();
        for round in 0.. {
            let plan = audited(&world);
            let has_admissions = plan.verdicts.iter().any(|(_, verdict)| verdict.shortage().is_none());
            world.apply(Event::Planned(plan));
            let mut events = evictions(&world);
            let pods_removed = world.terminating_gangs().flat_map(|uid| world.pods_of(uid));
            let pods_removed = pods_removed.map(|pod| Event::PodRemoved(pod.uid.clone()));
            events.extend(pods_removed.collect::<Vec<_>>());
            let is_settled = world.nominated().next().is_none() && world.active().next().is_none();
            if !has_admissions && events.is_empty() && is_settled {
                break;
            }
            prop_assert!(round < 8 * (gangs + 2), "not stable after {round} rounds\n{}", scenario::render(&world));
            for event in events {
                world.apply(event);
            }
        }
    }
}
