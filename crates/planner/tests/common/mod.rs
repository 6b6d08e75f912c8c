//! What all tests of the planner share: a world as text in, verdicts as text out, and the auditor looking over it.

use expect_test::Expect;
use model::{Event, FlavorIx, Plan, QueueIx, QuotaIx, Snapshot, Time, World};

/// The time of all decisions: a thousand seconds after the epoch.
const NOW: Time = Time(1_000_000_000);

/// Plans and lets the auditor judge the plan.
pub(crate) fn audited(world: &World) -> Plan {
    let snapshot: Snapshot<'_> = world.snapshot(NOW);
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

/// Plans on a world given as text and compares the verdicts.
#[allow(dead_code, reason = "not every test file speaks in scenarios")]
pub(crate) fn check(text: &str, expected: &Expect) {
    let world = scenario::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    expected.assert_eq(&scenario::verdicts(&world, &audited(&world)));
}

/// The world that the same facts make when they arrive at once, gangs and nodes in descending order.
#[allow(dead_code, reason = "not every test file rebuilds worlds")]
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
    // What was promised is history: it cannot be found in the facts.
    let reserved = world.reserved().to_vec();
    events.push(Event::Planned(Plan { reserved, ..Plan::default() }));
    for event in events {
        fresh.apply(event);
    }
    fresh
}

/// Whether a gang waits behind a weaker one that starts, whose place it may take as soon as that is folded back.
#[allow(dead_code, reason = "not every test file plays histories")]
pub(crate) fn outranked(world: &World, plan: &Plan) -> bool {
    let priority = |uid: &String| world.gang(uid).map(|gang| gang.priority);
    let started = plan.verdicts.iter().enumerate().filter(|(_, (_, verdict))| verdict.shortage().is_none());
    started.into_iter().any(|(at, (weak, _))| {
        let mut behind = plan.verdicts[at..].iter().filter(|(_, verdict)| verdict.shortage().is_some());
        behind.any(|(strong, _)| priority(strong) > priority(weak))
    })
}
