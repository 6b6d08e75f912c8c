//! What local queues consume follows from who held what from when to when, however it is told.

#![allow(clippy::unwrap_used, reason = "a test that cannot set up its world should stop there")]

use std::collections::BTreeMap;

use model::{
    AdmissionFairSharing, Assignment, Event, Gang, GangState, PodSet, Queue, QueueIx, ResourceIx,
    ResourceVec, Time, World,
};
use proptest::prelude::*;

/// A gang: its local queue, what it holds, from when, and for how long.
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

fn gang(world: &mut World, at: usize, door: u8, cpu: i64) -> Gang {
    let request = ResourceVec::new().with(ResourceIx::CPU, cpu);
    let pod_set = PodSet { name: "main".into(), count: 1, request, ..PodSet::default() };
    let places = Assignment { pod_sets: vec![vec![("a".into(), 1)]], ..Assignment::default() };
    Gang {
        uid: format!("g{at}"),
        local_queue: world.local_queue_ix(&format!("d{door}")),
        pod_sets: vec![pod_set].into(),
        state: GangState::Reserved(places),
        ..Gang::default()
    }
}

/// In thousandths of a base unit: each gang counts as if it had begun one interval earlier, and fades since its end.
fn by_history(history: &[Held], door: u8, now: i64) -> i128 {
    let left = |elapsed: i64| i128::try_from(rule().left_after(elapsed) >> 32).unwrap();
    let one = 1_i128 << 32;
    let milli = history.iter().filter(|(other, ..)| *other == door).map(|(_, cpu, from, lasts)| {
        let until = now.min(from + lasts);
        let entered = (one - left(SAMPLING)) * left(now - from) / one;
        let held = left(now - until) - left(now - from);
        i128::from(*cpu) * 1000 * (entered + held) / one
    });
    milli.sum()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_consumed_follows_from_who_held_what_when(
        history in prop::collection::vec((0..3_u8, 1..5000_i64, 0..5_000_000_i64, 1..4_000_000_i64), 0..12),
        ticks in prop::collection::vec(0..9_000_000_i64, 0..9),
    ) {
        let mut world = World::new();
        world.apply(Event::QueueUpserted(Queue { admission_fair_sharing: Some(rule()), ..Queue::default() }));
        let mut events: BTreeMap<(i64, usize), Vec<Event>> = BTreeMap::new();
        for (at, (door, cpu, from, lasts)) in history.iter().enumerate() {
            let gang = gang(&mut world, at, *door, *cpu);
            let end = Event::GangRemoved(gang.uid.clone());
            events.entry((*from, 0)).or_default().push(Event::GangUpserted(gang));
            events.entry((from + lasts, 1)).or_default().push(end);
        }
        // Looking at the clock in between makes no difference.
        for tick in &ticks {
            events.entry((*tick, 0)).or_default();
        }
        for ((at, _), events) in events {
            world.apply(Event::Clock(Time(at)));
            for event in events {
                world.apply(event.clone());
                world.apply(event); // Nor does repeating anything.
            }
        }
        for (door, name) in (0..3_u8).map(|door| (door, format!("d{door}"))) {
            let door_ix = world.local_queue_ix(&name);
            // In 10⁻¹² of a base unit.
            let points = i128::try_from(world.resource_weighted_usage(QueueIx(0), door_ix, Time(9_000_000))).unwrap();
            let expected = by_history(&history, door, 9_000_000);
            prop_assert!((points / 1000 - expected).abs() <= 24, "{points} {expected}");
        }
    }
}
