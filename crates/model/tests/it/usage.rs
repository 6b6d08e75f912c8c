//! The decayed usage of local queues depends only on what their gangs held and when.

#![allow(clippy::unwrap_used, reason = "a test that cannot set up its world should stop there")]

use std::collections::BTreeMap;

use model::{
    AdmissionFairSharing, Assignment, Event, Gang, GangState, PodSet, Queue, QueueIx, ResourceIx,
    ResourceVec, Time, World,
};
use proptest::prelude::*;

/// A gang: its local queue, the CPU that it holds, its start, and its duration.
type Held = (u8, i64, i64, i64);

const HALF_LIFE: i64 = 1_000_003;
const SAMPLING: i64 = 77_777;

fn rule() -> AdmissionFairSharing {
    let resource_weights = [(ResourceIx::CPU, 1)].into();
    AdmissionFairSharing {
        half_life_us: HALF_LIFE,
        sampling_us: SAMPLING,
        resource_weights,
        ..AdmissionFairSharing::default()
    }
}

fn gang(world: &mut World, at: usize, local_queue: u8, cpu: i64) -> Gang {
    let request = ResourceVec::new().with(ResourceIx::CPU, cpu);
    let pod_set = PodSet { name: "main".into(), count: 1, request, ..PodSet::default() };
    let places = Assignment { pod_sets: vec![vec![("a".into(), 1)]], ..Assignment::default() };
    Gang {
        uid: format!("g{at}"),
        local_queue: world.local_queue_ix(&format!("d{local_queue}")),
        pod_sets: vec![pod_set].into(),
        state: GangState::Reserved(places),
        ..Gang::default()
    }
}

/// The expected usage in thousandths of a base unit: each gang counts as if it had started one sampling interval earlier,
/// and its usage decays from its end.
fn expected_usage(history: &[Held], local_queue: u8, now: i64) -> i128 {
    let left = |elapsed: i64| i128::try_from(rule().left_after(elapsed) >> 32).unwrap();
    let one = 1_i128 << 32;
    let milli = history.iter().filter(|(other, ..)| *other == local_queue).map(|(_, cpu, from, duration)| {
        let until = now.min(from + duration);
        let entered = (one - left(SAMPLING)) * left(now - from) / one;
        let held = left(now - until) - left(now - from);
        i128::from(*cpu) * 1000 * (entered + held) / one
    });
    milli.sum()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn usage_depends_only_on_held_resources_and_times(
        history in prop::collection::vec((0..3_u8, 1..5000_i64, 0..5_000_000_i64, 1..4_000_000_i64), 0..12),
        ticks in prop::collection::vec(0..9_000_000_i64, 0..9),
    ) {
        let mut world = World::new();
        world.apply(Event::QueueUpserted(Queue { admission_fair_sharing: Some(rule()), ..Queue::default() }));
        let mut events: BTreeMap<(i64, usize), Vec<Event>> = BTreeMap::new();
        for (at, (local_queue, cpu, from, duration)) in history.iter().enumerate() {
            let gang = gang(&mut world, at, *local_queue, *cpu);
            let end = Event::GangRemoved(gang.uid.clone());
            events.entry((*from, 0)).or_default().push(Event::GangUpserted(gang));
            events.entry((from + duration, 1)).or_default().push(end);
        }
        // Additional clock events make no difference.
        for tick in &ticks {
            events.entry((*tick, 0)).or_default();
        }
        for ((at, _), events) in events {
            world.apply(Event::Clock(Time(at)));
            for event in events {
                world.apply(event.clone());
                world.apply(event); // Repeated events make no difference.
            }
        }
        for (local_queue, name) in (0..3_u8).map(|local_queue| (local_queue, format!("d{local_queue}"))) {
            let local_queue_ix = world.local_queue_ix(&name);
            // In 10⁻¹² of a base unit.
            let usage = i128::try_from(world.resource_weighted_usage(QueueIx(0), local_queue_ix, Time(9_000_000))).unwrap();
            let expected = expected_usage(&history, local_queue, 9_000_000);
            prop_assert!((usage / 1000 - expected).abs() <= 24, "{usage} {expected}");
        }
    }
}
