//! Properties of plans over random quota trees, queues and flavors. The auditor checks every plan. A full
//! recomputation checks the incremental planner.

use std::collections::BTreeMap;

use crate::common::{admits_before_higher_priority, audited, evictions, rebuilt, resized, succeeded};
use model::{
    Amount, BorrowWithinCohort, Effect, Event, FairSharing, Flavor, FlavorFungibility,
    FlavorFungibilityPolicy, FlavorFungibilityPreference, FlavorIx, FlavorResource, Gang, GangKey, GangState,
    Limits, Node, Places, Plan, PodSet, Policy, PreemptionPolicy, Queue, QueueingHint, QueueingStrategy,
    QuotaIx, QuotaNode, QuotaPreemption, ReclaimWithinCohort, ResourceGroup, ResourceIx, ResourceVec, Taint,
    Time, Toleration, TolerationOperator, UndeclaredResources, Verdict, WithinClusterQueue, World,
};
use proptest::prelude::*;

const GPU: ResourceIx = ResourceIx(3);
const FLAVORS: u16 = 3;
const NODES: u8 = 5;
const QUEUES: u32 = 3;

/// One event. Numbers are taken modulo the number of existing objects.
#[derive(Clone, Debug)]
enum Step {
    Node {
        name: u8,
        kind: u8,
        cpu: i64,
        gpu: i64,
        open: bool,
    },
    NodeGone(u8),
    Flavor {
        name: u8,
        kind: u8,
        tainted: bool,
        tolerant: bool,
        quota_only: bool,
    },
    FlavorGone(u8),
    Quota {
        name: u8,
        parent: Option<u8>,
        limits: Vec<Limit>,
        rules: QuotaPreemption,
    },
    QuotaGone(u8),
    Fairness(Option<FairSharing>),
    Queue {
        name: u8,
        quota: Option<u8>,
        split_groups: bool,
        /// The flavor fungibility: the bits are `whenCanBorrow`, `whenCanPreempt` and the preference.
        fungibility: u8,
        ignores_undeclared: bool,
        stopped: bool,
        places_pods: bool,
        strict: bool,
    },
    QueueGone(u8),
    Gang {
        name: u8,
        queue: u8,
        priority: i64,
        sets: Vec<Set>,
        extra_quotas: Vec<u8>,
        declared: Option<i64>,
        open: bool,
    },
    /// An admitted gang asks for its open places.
    RequestPlaces(u8),
    GangGone(u8),
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
    Preemption(bool),
    Plan,
}

#[derive(Clone, Debug)]
struct Limit {
    flavor: u16,
    gpu: bool,
    nominal: i64,
    /// The capacity of the nodes is added to the nominal quota.
    adds_node_capacity: bool,
    borrowing: Option<i64>,
    lending: Option<i64>,
}

#[derive(Clone, Debug)]
struct Set {
    count: u32,
    cpu: i64,
    gpu: i64,
    kind: Option<u8>,
    tolerant: bool,
    grouped: bool,
    min_count: Option<u32>,
}

fn limit() -> impl Strategy<Value = Limit> {
    let some = || prop_oneof![2 => Just(None), 1 => (0..6_i64).prop_map(Some)];
    (0..FLAVORS, any::<bool>(), -1..12_i64, prop::bool::weighted(0.2), some(), some()).prop_map(
        |(flavor, gpu, nominal, adds_node_capacity, borrowing, lending)| Limit {
            flavor,
            gpu,
            nominal: if adds_node_capacity { nominal - 8 } else { nominal },
            adds_node_capacity,
            borrowing,
            lending,
        },
    )
}

fn set() -> impl Strategy<Value = Set> {
    let kind = prop_oneof![4 => Just(None), 1 => (0..2_u8).prop_map(Some)];
    (
        0..3_u32,
        0..5_i64,
        prop_oneof![2 => Just(0), 1 => 1..3_i64],
        kind,
        any::<bool>(),
        prop::bool::weighted(0.3),
        prop::option::weighted(0.3, 0..3_u32),
    )
        .prop_map(|(count, cpu, gpu, kind, tolerant, grouped, min_count)| Set {
            count,
            cpu,
            gpu,
            kind,
            tolerant,
            grouped,
            min_count,
        })
}

fn rules() -> impl Strategy<Value = QuotaPreemption> {
    let within = prop_oneof![
        Just(WithinClusterQueue::Never),
        Just(WithinClusterQueue::LowerPriority),
        Just(WithinClusterQueue::LowerOrNewerEqualPriority)
    ];
    let reclaim = prop_oneof![
        Just(ReclaimWithinCohort::Never),
        Just(ReclaimWithinCohort::LowerPriority),
        Just(ReclaimWithinCohort::Any)
    ];
    let borrowing = prop::option::of(prop::option::of((0..3_i64).prop_map(|most| most * 1000)));
    (within, reclaim, borrowing).prop_map(|(within, reclaim, borrowing)| QuotaPreemption {
        within_cluster_queue: within,
        reclaim_within_cohort: reclaim,
        borrow_within_cohort: borrowing
            .map(|max_priority_threshold| BorrowWithinCohort { max_priority_threshold }),
    })
}

fn fairness() -> impl Strategy<Value = Option<FairSharing>> {
    let rule = prop_oneof![
        Just(FairSharing::FinalOrInitialShare),
        Just(FairSharing::FinalShare),
        Just(FairSharing::InitialShare)
    ];
    prop::option::of(rule)
}

fn step() -> impl Strategy<Value = Step> {
    let sets = || prop::collection::vec(set(), 0..3);
    let declared = || prop_oneof![4 => Just(None), 1 => (0..12_i64).prop_map(Some)];
    let extra_quotas = || prop_oneof![3 => Just(Vec::new()), 1 => prop::collection::vec(0..NODES, 1..3)];
    prop_oneof![
        2 => (0..4_u8, 0..3_u8, 0..12_i64, 0..4_i64, prop::bool::weighted(0.9))
            .prop_map(|(name, kind, cpu, gpu, open)| Step::Node { name, kind, cpu, gpu, open }),
        1 => (0..4_u8).prop_map(Step::NodeGone),
        1 => (1..3_u8, 0..3_u8, prop::bool::weighted(0.3), any::<bool>(), prop::bool::weighted(0.3))
            .prop_map(|(name, kind, tainted, tolerant, quota_only)| Step::Flavor { name, kind, tainted, tolerant, quota_only }),
        4 => (0..10_u8).prop_map(Step::RequestPlaces),
        1 => (1..3_u8).prop_map(Step::FlavorGone),
        2 => (0..NODES, prop::option::weighted(0.6, 0..NODES), prop::collection::vec(limit(), 0..7), rules())
            .prop_map(|(name, parent, limits, rules)| Step::Quota { name, parent, limits, rules }),
        1 => fairness().prop_map(Step::Fairness),
        1 => (0..NODES).prop_map(Step::QuotaGone),
        2 => (1..4_u8, prop::option::weighted(0.9, 0..NODES), any::<bool>(), 0..8_u8, any::<bool>(), prop::bool::weighted(0.1), prop::bool::weighted(0.2), prop::bool::weighted(0.3))
            .prop_map(|(name, quota, split_groups, fungibility, ignores_undeclared, stopped, places_pods, strict)| {
                Step::Queue { name, quota, split_groups, fungibility, ignores_undeclared, stopped, places_pods, strict }
            }),
        1 => (1..4_u8).prop_map(Step::QueueGone),
        16 => (0..10_u8, 0..4_u8, 0..3_i64, sets(), extra_quotas(), declared(), prop::bool::weighted(0.2))
            .prop_map(|(name, queue, priority, sets, extra_quotas, declared, open)| {
                Step::Gang { name, queue, priority, sets, extra_quotas, declared, open }
            }),
        8 => (0..10_u8).prop_map(Step::GangGone),
        2 => (0..10_u8, 0..3_u8, 0..3_u32).prop_map(|(gang, set, pods)| Step::Succeed { gang, set, pods }),
        2 => (0..10_u8, 0..3_u8, 0..5_u32).prop_map(|(gang, set, count)| Step::Resize { gang, set, count }),
        1 => prop::bool::weighted(0.5).prop_map(Step::Preemption),
        10 => Just(Step::Plan),
    ]
}

fn flavor_name(ix: u16) -> String {
    if ix == 0 { String::new() } else { format!("f{ix}") }
}

fn kind(kind: u8) -> BTreeMap<String, String> {
    if kind == 2 { BTreeMap::new() } else { BTreeMap::from([("kind".to_owned(), kind.to_string())]) }
}

fn taint() -> Taint {
    Taint { key: "t".into(), value: String::new(), effect: Effect::NoSchedule }
}

fn tolerations(tolerant: bool) -> Vec<Toleration> {
    let all = Toleration { operator: TolerationOperator::Exists, ..Toleration::default() };
    if tolerant { vec![all] } else { Vec::new() }
}

/// A world whose names are interned in order.
fn world() -> World {
    let mut world = World::new();
    world.resources_mut().intern("nvidia.com/gpu");
    for ix in 0..FLAVORS {
        assert_eq!(world.flavor_ix(&flavor_name(ix)), FlavorIx(ix));
    }
    for ix in 0..u32::from(NODES) {
        assert_eq!(world.quota_ix(&format!("n{ix}")), QuotaIx(ix));
    }
    for ix in 1..=QUEUES {
        assert_eq!(world.queue_ix(&format!("q{ix}")).0, ix);
    }
    for step in initial_steps() {
        world.apply(event(&world, &step).expect("all of these happen"));
    }
    world
}

/// The first events: nodes with room for many gangs, and two queues that lend to each other.
fn initial_steps() -> Vec<Step> {
    let limits = |nominal: i64, borrowing: Option<i64>| {
        let limit = |(flavor, gpu)| Limit {
            flavor,
            gpu,
            nominal,
            adds_node_capacity: false,
            borrowing,
            lending: None,
        };
        (0..FLAVORS).flat_map(|flavor| [(flavor, false), (flavor, true)]).map(limit).collect()
    };
    let rules = QuotaPreemption {
        within_cluster_queue: WithinClusterQueue::LowerPriority,
        reclaim_within_cohort: ReclaimWithinCohort::Any,
        ..QuotaPreemption::default()
    };
    let quota = |name, limits| Step::Quota { name, parent: (name > 0).then_some(0), limits, rules };
    let queue = |name, split_groups| Step::Queue {
        name,
        quota: Some(name),
        split_groups,
        fungibility: 2,
        ignores_undeclared: false,
        stopped: false,
        places_pods: false,
        strict: false,
    };
    vec![
        Step::Node { name: 2, kind: 1, cpu: 40, gpu: 20, open: true },
        Step::Node { name: 3, kind: 2, cpu: 40, gpu: 20, open: true },
        Step::Flavor { name: 1, kind: 1, tainted: false, tolerant: false, quota_only: false },
        Step::Flavor { name: 2, kind: 2, tainted: false, tolerant: true, quota_only: false },
        quota(0, Vec::new()),
        quota(1, limits(3, None)),
        quota(2, limits(2, Some(2))),
        quota(3, limits(4, None)),
        queue(1, false),
        queue(2, true),
    ]
}

fn pod_set((at, set): (usize, &Set)) -> PodSet {
    let mut pod_set = PodSet {
        name: format!("s{at}"),
        count: set.count,
        request: ResourceVec::new()
            .with(ResourceIx::CPU, set.cpu * 1000)
            .with(GPU, set.gpu)
            .with(ResourceIx::PODS, 1),
        group: set.grouped.then(|| "g".to_owned()),
        min_count: set.min_count,
        ..PodSet::default()
    };
    pod_set.constraints.node_selector = set.kind.map(kind).unwrap_or_default();
    pod_set.constraints.tolerations = tolerations(set.tolerant);
    pod_set
}

fn groups(split_groups: bool) -> Vec<ResourceGroup> {
    let group = |resources: &[ResourceIx], flavors: &[u16]| ResourceGroup {
        resources: resources.to_vec(),
        flavors: flavors.iter().copied().map(FlavorIx).collect(),
    };
    if split_groups {
        vec![group(&[ResourceIx::CPU], &[0]), group(&[GPU], &[1, 2])]
    } else {
        vec![group(&[ResourceIx::CPU, GPU], &[1, 2])]
    }
}

fn flavor_fungibility(bits: u8) -> FlavorFungibility {
    use FlavorFungibilityPolicy::{MayStopSearch, TryNextFlavor};
    let prefers_preemption = bits & 4 > 0;
    let tries_next = |bit: u8| prefers_preemption || bits & bit > 0;
    FlavorFungibility {
        when_can_borrow: if tries_next(1) { TryNextFlavor } else { MayStopSearch },
        when_can_preempt: if tries_next(2) { TryNextFlavor } else { MayStopSearch },
        preference: if prefers_preemption {
            FlavorFungibilityPreference::PreemptionOverBorrowing
        } else {
            FlavorFungibilityPreference::BorrowingOverPreemption
        },
    }
}

fn event(world: &World, step: &Step) -> Option<Event> {
    Some(match step {
        Step::NodeGone(name) => Event::NodeRemoved(format!("node{name}")),
        Step::Node { name, kind: of, cpu, gpu, open } => Event::NodeUpserted(Node {
            name: format!("node{name}"),
            labels: kind(*of),
            taints: if *of == 0 { vec![taint()] } else { Vec::new() },
            ready: true,
            unschedulable: !open,
            allocatable: ResourceVec::new()
                .with(ResourceIx::CPU, cpu * 1000)
                .with(GPU, *gpu)
                .with(ResourceIx::PODS, 30),
        }),
        Step::Flavor { name, kind: of, tainted, tolerant, quota_only } => Event::FlavorUpserted(Flavor {
            name: flavor_name(u16::from(*name)),
            node_labels: kind(*of),
            node_taints: if *tainted { vec![taint()] } else { Vec::new() },
            tolerations: tolerations(*tolerant),
            quota_only: *quota_only,
            ..Flavor::default()
        }),
        Step::FlavorGone(name) => Event::FlavorRemoved(flavor_name(u16::from(*name))),
        Step::Quota { name, parent, limits, rules } => {
            let limits = limits.iter().map(|limit| {
                let (resource, unit) = if limit.gpu { (GPU, 1) } else { (ResourceIx::CPU, 1000) };
                let amount = |units: i64| Amount(units * unit);
                let of = FlavorResource { flavor: FlavorIx(limit.flavor), resource };
                let (borrowing, lending) = (limit.borrowing.map(amount), limit.lending.map(amount));
                let (nominal, adds_node_capacity) = (amount(limit.nominal), limit.adds_node_capacity);
                (of, Limits { nominal, adds_node_capacity, borrowing, lending })
            });
            Event::QuotaUpserted(QuotaNode {
                name: format!("n{name}"),
                parent: parent.map(|parent| format!("n{parent}")),
                limits: limits.collect(),
                preemption: *rules,
                ..QuotaNode::default()
            })
        }
        Step::QuotaGone(name) => Event::QuotaRemoved(format!("n{name}")),
        Step::Queue {
            name,
            quota,
            split_groups,
            fungibility,
            ignores_undeclared,
            stopped,
            places_pods,
            strict,
        } => Event::QueueUpserted(Queue {
            name: format!("q{name}"),
            quota: quota.map(|quota| format!("n{quota}")),
            groups: groups(*split_groups),
            fungibility: flavor_fungibility(*fungibility),
            undeclared: if *ignores_undeclared {
                UndeclaredResources::Ignore
            } else {
                UndeclaredResources::Reject
            },
            stopped: *stopped,
            places_pods: *places_pods,
            queueing_strategy: if *strict {
                QueueingStrategy::StrictFifo
            } else {
                QueueingStrategy::BestEffortFifo
            },
            reserves_starts: false,
            ..Queue::default()
        }),
        Step::QueueGone(name) => Event::QueueRemoved(format!("q{name}")),
        Step::Gang { name, queue, priority, sets, extra_quotas, declared, open } => {
            let uid = format!("g{name}");
            if world.gang(&uid).is_some_and(|gang| gang.state != GangState::Waiting) {
                return None;
            }
            Event::GangUpserted(Gang {
                key: GangKey { kind: "gangs".into(), namespace: "default".into(), name: uid.clone() },
                uid,
                queue: model::QueueIx(u32::from(*queue)),
                charges: extra_quotas.iter().map(|ix| QuotaIx(u32::from(*ix))).collect(),
                priority: *priority * 1000,
                pod_sets: sets.iter().enumerate().map(pod_set).collect(),
                declared: declared.map(|cpu| ResourceVec::new().with(ResourceIx::CPU, cpu * 1000)),
                queued_at: Time(i64::from(*name)),
                places: if *open { Places::Open } else { Places::AtAdmission },
                ..Gang::default()
            })
        }
        Step::RequestPlaces(gang) => {
            let gang = world.gang(&format!("g{gang}"))?;
            Event::GangUpserted(Gang { places: Places::Requested, ..gang.clone() })
        }
        Step::GangGone(name) => Event::GangRemoved(format!("g{name}")),
        Step::Succeed { gang, set, pods } => succeeded(world.gang(&format!("g{gang}"))?, *set, *pods),
        Step::Resize { gang, set, count } => resized(world.gang(&format!("g{gang}"))?, *set, *count)?,
        Step::Preemption(allowed) => {
            let preemption = if *allowed { PreemptionPolicy::LowerPriority } else { PreemptionPolicy::Never };
            Event::PolicySet(Policy { preemption, ..world.policy().clone() })
        }
        Step::Fairness(fair_sharing) => {
            Event::PolicySet(Policy { fair_sharing: *fair_sharing, ..world.policy().clone() })
        }
        Step::Plan => return None,
    })
}

/// Whether a queue is strict. When its first gang changes, gangs that it held quota from are tried again.
fn has_strict_queue(world: &World) -> bool {
    world.queues().values().any(|queue| queue.queueing_strategy == QueueingStrategy::StrictFifo)
}

/// The last verdict of each pending gang, as far as the incremental and the full planner must agree.
fn outcome(world: &World, plan: &Plan) -> BTreeMap<String, String> {
    let is_strict = has_strict_queue(world);
    let word = |verdict: &Verdict| match verdict {
        Verdict::Admit(assignment) => format!("admit {assignment:?}"),
        Verdict::Preempt(preemption) => format!("preempt {preemption:?}"),
        Verdict::Wait(_) => "wait".to_owned(),
        Verdict::Never(_) if is_strict => "wait".to_owned(), // In a strict queue only the head is evaluated.
        Verdict::Never(_) => "never".to_owned(),
    };
    let asks = |gang: &&Gang| gang.state == GangState::Waiting || gang.places == Places::Requested;
    let waiting = world.gangs().filter(asks);
    let output =
        waiting.filter_map(|gang| world.verdict(&gang.uid).map(|verdict| (gang.uid.clone(), word(verdict))));
    output.chain(plan.verdicts.iter().map(|(uid, verdict)| (uid.clone(), word(verdict)))).collect()
}

/// The quota and usage of every quota node, maintained by events, equal those computed from scratch.
fn same_usage(world: &World, fresh: &World) {
    for node in (0..u32::from(NODES)).map(QuotaIx) {
        for flavor in (0..FLAVORS).map(FlavorIx) {
            for resource in [ResourceIx::CPU, GPU] {
                let of = FlavorResource { flavor, resource };
                assert_eq!(
                    world.forest().subtree_quota(node, of),
                    fresh.forest().subtree_quota(node, of),
                    "{}",
                    scenario::render(world)
                );
                assert_eq!(
                    world.quota_used(node, of),
                    fresh.quota_used(node, of),
                    "{}",
                    scenario::render(world)
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_plan_respects_quota_and_equals_the_full_recomputation(steps in prop::collection::vec(step(), 1..60)) {
        let mut world = world();
        for step in steps.iter().chain([&Step::Plan]) {
            if let Some(event) = event(&world, step) {
                world.apply(event);
            }
            if !matches!(step, Step::Plan) {
                continue;
            }
            for event in evictions(&world) {
                world.apply(event);
            }
            let plan = audited(&world);
            let fresh = rebuilt(&world);
            same_usage(&world, &fresh);
            let full = audited(&fresh);
            prop_assert_eq!(outcome(&world, &plan), outcome(&fresh, &full), "{}", scenario::render(&world));
            let is_incomplete = plan.verdicts.iter().any(|(uid, verdict)| match verdict {
                Verdict::Preempt(_) => true,
                Verdict::Admit(_) | Verdict::Wait(_) | Verdict::Never(_) => world.gang(uid).is_some_and(|gang| matches!(gang.state, GangState::Nominated(_))),
            });
            let is_incomplete = is_incomplete || admits_before_higher_priority(&world, &plan);
            world.apply(Event::Planned(plan));
            // A gang that was rejected before may reclaim quota from a gang that borrows now.
            if !is_incomplete && world.trees_with_more_borrowed().next().is_none() {
                let again = audited(&world);
                let is_proven = |uid: &str| {
                    let shortage = world.verdict(uid).and_then(Verdict::shortage);
                    shortage.is_none_or(|shortage| shortage.queueing_hint != QueueingHint::AnyChange)
                };
                let has_unexpected = again
                    .verdicts
                    .iter()
                    .any(|(uid, verdict)| verdict.shortage().is_none() || is_proven(uid) && !has_strict_queue(&world));
                prop_assert!(!has_unexpected, "{:?}\n{}", again, scenario::render(&world));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Tests the termination argument of `docs/planner/preemption.md`: without external events, preemption ends under
    /// every preemption policy.
    #[test]
    fn preemption_by_quota_rules_ends_without_external_events(steps in prop::collection::vec(step(), 1..60)) {
        let mut world = world();
        for step in &steps {
            if let Some(event) = event(&world, step) {
                world.apply(event);
            }
        }
        let gangs = world.gangs().count();
        for round in 0.. {
            let plan = audited(&world);
            let has_admissions = plan.verdicts.iter().any(|(_, verdict)| verdict.shortage().is_none());
            world.apply(Event::Planned(plan));
            let events = evictions(&world);
            if !has_admissions && events.is_empty() && world.nominated().next().is_none() {
                break;
            }
            prop_assert!(round < 8 * (gangs + 2), "not stable after {round} rounds\n{}", scenario::render(&world));
            for event in events {
                world.apply(event);
            }
        }
    }
}
