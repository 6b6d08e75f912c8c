//! Random histories with admission fair sharing. The auditor finds no admission before a local queue with less usage.
//! Without reservations, the incremental plan equals the plan of a rebuilt world.

#![allow(clippy::unwrap_used, reason = "a test that cannot set up its world should stop there")]

use crate::common::{admitted, audited_at, parse_world, rebuilt};
use model::{Backfill, Event, FairSharing, Gang, GangState, Policy, Time, World};
use proptest::prelude::*;

/// A gang: its queue, its local queue, its priority, its number of pods, the request of each pod, and its run time.
type GangSpec = (usize, usize, i64, u32, i64, Option<i64>);

#[derive(Clone, Debug)]
enum Step {
    Add(Vec<GangSpec>),
    Remove(usize),
    /// Evicts a gang, which is pending again.
    Stop(usize),
    /// Advances the time by seconds.
    Pass(i64),
    /// Sets or removes the fair sharing rule of the queue without a tree.
    Rule(Option<(i64, i64, u32)>),
    Plan,
}

const QUEUES: [&str; 4] = ["team", "line", "one", "two"];
const DOORS: [&str; 3] = ["ann", "ben", "cid"];

fn step() -> impl Strategy<Value = Step> {
    let runs = prop::option::of(1..500_i64);
    let spec = (0..QUEUES.len(), 0..DOORS.len(), 0..2_i64, 1..3_u32, 1..5_i64, runs);
    let rule = prop::option::weighted(0.8, (0..300_i64, 0..90_i64, 0..3000_u32));
    prop_oneof![
        6 => prop::collection::vec(spec, 1..8).prop_map(Step::Add),
        5 => (0..40_usize).prop_map(Step::Remove),
        1 => (0..40_usize).prop_map(Step::Stop),
        4 => (0..400_i64).prop_map(Step::Pass),
        1 => rule.prop_map(Step::Rule),
        6 => Just(Step::Plan),
    ]
}

/// One queue without a tree, one strict queue, and two that share a tree.
fn world(policy: Policy) -> World {
    let mut world = parse_world(
        "clock 1
         node a 3x cpu=8
         quota all cpu=2
         quota one in=all cpu=6
         quota two in=all cpu=8
         queue team half-life=100 interval=30 count:cpu=1000 weight:ben=1500m
         queue line strict half-life=50 interval=0 count:cpu=1000 count:pods=7 weight:cid=0
         queue one quota=one half-life=300 interval=60 count:cpu=1000 :cpu
         queue two quota=two :cpu",
    );
    world.apply(Event::PolicySet(policy));
    world
}

fn gangs(world: &mut World, names: &mut usize, spec: &[GangSpec]) -> Vec<Gang> {
    let line = |(queue, door, priority, pods, cpu, runs): &GangSpec| {
        *names += 1;
        let runs = runs.map_or(String::new(), |runs| format!("runs={runs}"));
        let (queue, door) = (QUEUES[*queue], DOORS[*door]);
        format!(
            "pending g{names} at={names} queue={queue} from={door} priority={priority} {runs} main {pods}x cpu={cpu}\n"
        )
    };
    let text: String = spec.iter().map(line).collect();
    scenario::gangs(world, &text).unwrap()
}

fn rule(world: &World, rule: Option<(i64, i64, u32)>) -> Event {
    let mut queue = world.queues().values().find(|queue| queue.name == "team").unwrap().clone();
    queue.admission_fair_sharing = rule.map(|(half_life, sampling, weight)| model::AdmissionFairSharing {
        half_life_us: half_life * 1_000_000,
        sampling_us: sampling * 1_000_000,
        resource_weights: [(model::ResourceIx::CPU, 1000)].into(),
        weights_milli: [(model::LocalQueueIx(1), weight)].into(),
    });
    Event::QueueUpserted(queue)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn gangs_are_admitted_in_usage_order_and_plans_equal_the_full_recomputation(
        fair in prop::bool::ANY,
        heads in prop_oneof![2 => Just(0), 1 => 1..4_u32],
        steps in prop::collection::vec(step(), 1..24),
    ) {
        let fair_sharing = fair.then_some(FairSharing::FinalOrInitialShare);
        let backfill = Backfill::Conservative { depth: heads };
        let mut world = world(Policy { fair_sharing, backfill, ..Policy::default() });
        let (mut names, mut now) = (0, Time(1_000_000));
        for step in steps.iter().chain([&Step::Plan]) {
            match step {
                Step::Add(spec) => {
                    for gang in gangs(&mut world, &mut names, spec) {
                        world.apply(Event::GangUpserted(gang));
                    }
                }
                Step::Remove(name) => world.apply(Event::GangRemoved(format!("g{name}"))),
                Step::Stop(name) => {
                    if let Some(gang) = world.gang(&format!("g{name}")).cloned() {
                        world.apply(Event::GangUpserted(Gang { state: GangState::Waiting, ..gang }));
                    }
                }
                Step::Pass(seconds) => {
                    now = now.after(seconds * 1_000_000);
                    world.apply(Event::Clock(now));
                }
                Step::Rule(change) => world.apply(rule(&world, *change)),
                Step::Plan => {
                    let plan = audited_at(&world, now);
                    let fresh = rebuilt(&world);
                    prop_assert!(world.usages().eq(fresh.usages()), "{}", scenario::render(&world));
                    let full = audited_at(&fresh, now);
                    // A gang held back for a reservation is not requeued before a change or the reserved time.
                    if heads == 0 {
                        prop_assert_eq!(admitted(&plan), admitted(&full), "{}", scenario::render(&world));
                    }
                    world.apply(Event::Planned(plan));
                }
            }
        }
    }
}
