//! Shared test support: builds a world from scenario text, plans, lets the auditor check the plan, and makes the
//! events of random histories.

#![allow(dead_code, reason = "each test file uses a part")]

use expect_test::Expect;
use model::{
    Assignment, Event, FlavorIx, Gang, GangState, Hold, LocalQueueIx, Plan, Preemption, QueueIx, QuotaIx,
    Reservation, Snapshot, Time, Verdict, World,
};

/// The time of all decisions: 1000 s after the epoch.
pub(crate) const NOW: Time = Time(1_000_000_000);

/// Plans and fails the test when the auditor finds a violation.
pub(crate) fn audited(world: &World) -> Plan {
    audited_at(world, NOW)
}

/// Like [`audited`], at the given time.
pub(crate) fn audited_at(world: &World, now: Time) -> Plan {
    let snapshot: Snapshot<'_> = world.snapshot(now);
    let plan = planner::plan(&snapshot);
    let violations = audit::violations(&snapshot, &plan);
    assert!(
        violations.is_empty(),
        "{}\n{}\n{}",
        violations.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"),
        scenario::render(world),
        scenario::verdicts(world, &plan),
    );
    plan
}

/// Builds the world that a scenario text describes.
pub(crate) fn parse_world(text: &str) -> World {
    scenario::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Plans, applies the plan, and returns the verdicts.
pub(crate) fn step(world: &mut World) -> String {
    let plan = audited(world);
    let text = scenario::verdicts(world, &plan);
    world.apply(Event::Planned(plan));
    text
}

/// Plans on a world given as text and compares the verdicts.
pub(crate) fn check(text: &str, expected: &Expect) {
    let world = parse_world(text);
    expected.assert_eq(&scenario::verdicts(&world, &audited(&world)));
}

/// Rebuilds the world from the same objects at once, gangs and nodes in descending order.
pub(crate) fn rebuilt(world: &World) -> World {
    let mut fresh = World::new();
    *fresh.resources_mut() = world.resources().clone();
    fresh.apply(Event::PolicySet(world.policy().clone()));
    // The indices denote the same names in both worlds.
    let known = |name: &&str| *name != "?";
    for name in (0..).map(|ix| world.flavor_name(FlavorIx(ix))).take_while(known) {
        fresh.flavor_ix(name);
    }
    for name in (0..).map(|ix| world.quota_name(QuotaIx(ix))).take_while(known) {
        fresh.quota_ix(name);
    }
    for name in (0..).map(|ix| world.queue_name(QueueIx(ix))).take_while(known) {
        fresh.queue_ix(name);
    }
    for name in (0..).map(|ix| world.local_queue_name(LocalQueueIx(ix))).take_while(known) {
        fresh.local_queue_ix(name);
    }
    fresh.apply(Event::Clock(world.clock()));
    for node in world.quota_nodes().values() {
        fresh.apply(Event::QuotaUpserted(node.clone()));
    }
    for queue in world.queues().values() {
        fresh.apply(Event::QueueUpserted(queue.clone()));
    }
    let mut events: Vec<Event> = world.pods().cloned().map(Event::PodUpserted).collect();
    events.extend(world.nodes().cloned().map(Event::NodeUpserted));
    events.extend(world.gangs().cloned().map(Event::GangUpserted));
    events.extend(world.flavors().values().cloned().map(Event::FlavorUpserted));
    events.extend(world.quota_nodes().values().cloned().map(Event::QuotaUpserted));
    events.extend(world.queues().values().cloned().map(Event::QueueUpserted));
    events.reverse();
    events.extend(
        world
            .preemption_history()
            .map(|(gang, by)| Event::PreemptionRestored { victim: gang.into(), preemptor: by.into() }),
    );
    // Reservations and usage are history, which the objects do not contain.
    events.extend(world.usages().map(|((queue, local_queue), service)| Event::UsageRestored {
        queue: world.queue_name(queue).to_owned(),
        local_queue: world.local_queue_name(local_queue).to_owned(),
        consumed: service.consumed.clone(),
        at: service.at,
    }));
    let held = world.holds().map(|(gang, until)| {
        let hold = Hold::Until(until);
        Reservation { gang: gang.into(), start: until, after: None, declared: false, hold }
    });
    let held = Plan { reserved: held.collect(), ..Plan::default() };
    events.push(Event::Planned(held));
    let reserved = world.reserved().to_vec();
    events.push(Event::Planned(Plan { reserved, ..Plan::default() }));
    for event in events {
        fresh.apply(event);
    }
    fresh
}

/// Whether a pending gang follows an admitted one of lower priority, which the next cycle may preempt.
pub(crate) fn admits_before_higher_priority(world: &World, plan: &Plan) -> bool {
    let priority = |uid: &String| world.gang(uid).map(|gang| gang.priority);
    let started = plan.verdicts.iter().enumerate().filter(|(_, (_, verdict))| verdict.shortage().is_none());
    started.into_iter().any(|(at, (weak, _))| {
        let mut behind = plan.verdicts[at..].iter().filter(|(_, verdict)| verdict.shortage().is_some());
        behind.any(|(strong, _)| priority(strong) > priority(weak))
    })
}

/// Victims of nominated gangs become pending again at once; they have no pods.
pub(crate) fn evictions(world: &World) -> Vec<Event> {
    let preemptions = world.nominated().filter_map(|gang| match &gang.state {
        GangState::Nominated(preemption) => Some(preemption),
        GangState::Waiting | GangState::Reserved(_) | GangState::Unplaced => None,
    });
    let victims = preemptions.flat_map(Preemption::victim_uids).filter_map(|uid| world.gang(uid));
    let running = victims.filter(|gang| matches!(gang.state, GangState::Reserved(_)));
    running.map(|gang| Event::GangUpserted(Gang { state: GangState::Waiting, ..gang.clone() })).collect()
}

/// An event: more pods of a set succeed.
pub(crate) fn succeeded(gang: &Gang, set: u8, pods: u32) -> Event {
    let mut reclaimable = gang.reclaimable.clone();
    reclaimable.resize(reclaimable.len().max(usize::from(set) + 1), 0);
    reclaimable[usize::from(set)] += pods;
    Event::GangUpserted(Gang { reclaimable, ..gang.clone() })
}

/// An event: a placed gang changes the size of a pod set, if it has that set.
pub(crate) fn resized(gang: &Gang, set: u8, count: u32) -> Option<Event> {
    gang.state.assignment()?;
    let mut pod_sets = gang.pod_sets.to_vec();
    pod_sets.get_mut(usize::from(set))?.count = count;
    Some(Event::GangUpserted(Gang { pod_sets: pod_sets.into(), ..gang.clone() }))
}

/// The admissions of a plan, in order, with their placements.
pub(crate) fn admitted(plan: &Plan) -> Vec<(String, Assignment)> {
    let admits = plan.verdicts.iter().filter_map(|(uid, verdict)| match verdict {
        Verdict::Admit(assignment) => Some((uid.clone(), assignment.clone())),
        Verdict::Preempt(_) | Verdict::Wait(_) | Verdict::Never(_) => None,
    });
    admits.collect()
}
