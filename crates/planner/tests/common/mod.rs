//! What all tests of the planner share: a world as text in, verdicts as text out, the auditor looking over it, and what happens
//! to gangs in histories.

#![allow(dead_code, reason = "each test file uses a part")]

use expect_test::Expect;
use model::{
    Assignment, Event, FlavorIx, Gang, GangState, LocalQueueIx, Plan, Preemption, QueueIx, QuotaIx, Snapshot,
    Time, Verdict, World,
};

/// The time of all decisions: a thousand seconds after the epoch.
pub(crate) const NOW: Time = Time(1_000_000_000);

/// Plans and lets the auditor judge the plan.
pub(crate) fn audited(world: &World) -> Plan {
    audited_at(world, NOW)
}

/// The same at a time.
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

/// The world that a text describes.
pub(crate) fn story(text: &str) -> World {
    scenario::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Plans and folds the plan back: the verdicts.
pub(crate) fn step(world: &mut World) -> String {
    let plan = audited(world);
    let text = scenario::verdicts(world, &plan);
    world.apply(Event::Planned(plan));
    text
}

/// Plans on a world given as text and compares the verdicts.
pub(crate) fn check(text: &str, expected: &Expect) {
    let world = story(text);
    expected.assert_eq(&scenario::verdicts(&world, &audited(&world)));
}

/// The world that the same facts make when they arrive at once, gangs and nodes in descending order.
pub(crate) fn rebuilt(world: &World) -> World {
    let mut fresh = World::new();
    *fresh.resources_mut() = world.resources().clone();
    fresh.apply(Event::PolicySet(world.policy().clone()));
    // Indices mean the same names in both.
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
    events.extend(world.stopped().map(|(gang, by)| Event::Stopped { gang: gang.into(), by: by.into() }));
    // What was promised and what was consumed is history: it cannot be found in the facts.
    events.extend(world.usages().map(|((queue, local_queue), service)| Event::Served {
        queue: world.queue_name(queue).to_owned(),
        local_queue: world.local_queue_name(local_queue).to_owned(),
        consumed: service.consumed.clone(),
        at: service.at,
    }));
    let reserved = world.reserved().to_vec();
    events.push(Event::Planned(Plan { reserved, ..Plan::default() }));
    for event in events {
        fresh.apply(event);
    }
    fresh
}

/// Whether a gang waits behind a weaker one that starts, whose place it may take as soon as that is folded back.
pub(crate) fn outranked(world: &World, plan: &Plan) -> bool {
    let priority = |uid: &String| world.gang(uid).map(|gang| gang.priority);
    let started = plan.verdicts.iter().enumerate().filter(|(_, (_, verdict))| verdict.shortage().is_none());
    started.into_iter().any(|(at, (weak, _))| {
        let mut behind = plan.verdicts[at..].iter().filter(|(_, verdict)| verdict.shortage().is_some());
        behind.any(|(strong, _)| priority(strong) > priority(weak))
    })
}

/// Victims of nominated gangs wait again at once; they have no pods.
pub(crate) fn evictions(world: &World) -> Vec<Event> {
    let preemptions = world.nominated().filter_map(|gang| match &gang.state {
        GangState::Nominated(preemption) => Some(preemption),
        GangState::Waiting | GangState::Reserved(_) | GangState::Unplaced => None,
    });
    let victims = preemptions.flat_map(Preemption::stopped).filter_map(|uid| world.gang(uid));
    let running = victims.filter(|gang| matches!(gang.state, GangState::Reserved(_)));
    running.map(|gang| Event::GangUpserted(Gang { state: GangState::Waiting, ..gang.clone() })).collect()
}

/// More pods of a set have succeeded.
pub(crate) fn succeeded(gang: &Gang, set: u8, pods: u32) -> Event {
    let mut reclaimable = gang.reclaimable.clone();
    reclaimable.resize(reclaimable.len().max(usize::from(set) + 1), 0);
    reclaimable[usize::from(set)] += pods;
    Event::GangUpserted(Gang { reclaimable, ..gang.clone() })
}

/// A gang that holds places has more or fewer pods in a set, if it has that set.
pub(crate) fn resized(gang: &Gang, set: u8, count: u32) -> Option<Event> {
    gang.state.assignment()?;
    let mut pod_sets = gang.pod_sets.to_vec();
    pod_sets.get_mut(usize::from(set))?.count = count;
    Some(Event::GangUpserted(Gang { pod_sets: pod_sets.into(), ..gang.clone() }))
}

/// What a plan admits, in order, where.
pub(crate) fn admitted(plan: &Plan) -> Vec<(String, Assignment)> {
    let admits = plan.verdicts.iter().filter_map(|(uid, verdict)| match verdict {
        Verdict::Admit(assignment) => Some((uid.clone(), assignment.clone())),
        Verdict::Preempt(_) | Verdict::Wait(_) | Verdict::Never(_) => None,
    });
    admits.collect()
}
