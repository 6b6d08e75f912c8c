//! The state of the world after events.

use std::collections::BTreeMap;

use model::{
    Amount, Assignment, Event, Gang, GangKey, GangState, Node, Plan, Pod, PodSet, QueueingHint, ResourceIx,
    ResourceVec, Shortage, Time, Verdict, World,
};

fn cpu(milli: i64) -> ResourceVec {
    ResourceVec::new().with(ResourceIx::CPU, milli)
}

fn node(name: &str, milli: i64) -> Event {
    Event::NodeUpserted(Node { name: name.into(), ready: true, allocatable: cpu(milli), ..Node::default() })
}

fn gang(uid: &str, count: u32, milli: i64) -> Gang {
    Gang {
        uid: uid.into(),
        key: GangKey { name: uid.into(), ..GangKey::default() },
        pod_sets: vec![PodSet { name: "main".into(), count, request: cpu(milli), ..PodSet::default() }]
            .into(),
        ..Gang::default()
    }
}

fn pod(uid: &str, node: &str, milli: i64, gang: Option<&str>) -> Event {
    Event::PodUpserted(Pod {
        uid: uid.into(),
        name: uid.into(),
        node: Some(node.into()),
        request: cpu(milli),
        gang: gang.map(|gang| (gang.to_owned(), 0)),
        ..Pod::default()
    })
}

fn on(places: &[(&str, u32)]) -> Assignment {
    let places = places.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
    Assignment { pod_sets: vec![places], ..Assignment::default() }
}

fn free(world: &World, node: &str) -> i64 {
    world.usage(node).expect("the node exists").free.get(ResourceIx::CPU).0
}

fn world(events: impl IntoIterator<Item = Event>) -> World {
    let mut world = World::new();
    events.into_iter().for_each(|event| world.apply(event));
    world
}

#[test]
fn an_admitted_gang_reserves_its_slots_before_any_pod_exists() {
    let mut world = world([node("a", 4000), node("b", 4000), Event::GangUpserted(gang("g", 3, 1000))]);
    let plan = Plan {
        generation: world.generation(),
        verdicts: vec![("g".into(), Verdict::Admit(on(&[("a", 2), ("b", 1)])))],
        ..Plan::default()
    };
    world.apply(Event::Planned(plan));
    assert_eq!((free(&world, "a"), free(&world, "b")), (2000, 3000));
    assert_eq!(world.gang("g").unwrap().state, GangState::Reserved(on(&[("a", 2), ("b", 1)])));
}

#[test]
fn a_repeated_event_does_not_change_the_generation() {
    let events = [node("a", 4000), Event::GangUpserted(gang("g", 1, 1000)), pod("p", "a", 1000, Some("g"))];
    let removals =
        [Event::NodeRemoved("b".into()), Event::GangRemoved("h".into()), Event::PodRemoved("q".into())];
    let mut world = world(events.clone());
    let generation = world.generation();
    events.into_iter().chain(removals).for_each(|event| world.apply(event));
    assert_eq!(world.generation(), generation);
    world.apply(pod("p", "a", 2000, Some("g")));
    assert_eq!(world.generation(), generation + 1);
}

#[test]
fn a_verdict_on_a_gang_that_changed_after_the_snapshot_is_ignored() {
    let mut world = world([node("a", 4000), Event::GangUpserted(gang("g", 1, 1000))]);
    let generation = world.generation();
    world.apply(Event::GangUpserted(gang("g", 2, 1000)));
    world.apply(Event::Planned(Plan {
        generation,
        verdicts: vec![("g".into(), Verdict::Admit(on(&[("a", 1)])))],
        ..Plan::default()
    }));
    assert_eq!(world.gang("g").unwrap().state, GangState::Waiting);
    assert_eq!(free(&world, "a"), 4000);
}

#[test]
fn a_parked_row_becomes_active_when_a_verdict_on_its_gang_is_ignored() {
    let mut world = world([node("a", 4000)]);
    for name in ["g", "h"] {
        world.apply(Event::GangUpserted(gang(name, 1, 9000)));
    }
    let shortage = Shortage { causes: [].into(), queueing_hint: QueueingHint::EligibleNodeFreed };
    let plan = |world: &World, verdict| Plan {
        generation: world.generation(),
        verdicts: vec![("g".into(), verdict)],
        ..Plan::default()
    };
    let waits = plan(&world, Verdict::Wait(shortage));
    world.apply(Event::Planned(waits));
    assert_eq!((world.active().count(), world.parked().count()), (0, 1));
    let starts = plan(&world, Verdict::Admit(on(&[("a", 1)])));
    world.apply(Event::GangUpserted(Gang { queued_at: Time(1), ..gang("g", 1, 9000) }));
    world.apply(Event::Planned(starts));
    assert_eq!((world.active().count(), world.parked().count()), (1, 0));
}

#[test]
fn a_pod_bound_to_another_node_releases_the_slot_that_was_planned_for_it() {
    let mut reserved = gang("g", 2, 1000);
    reserved.state = GangState::Reserved(on(&[("a", 1), ("b", 1)]));
    let mut world = world([node("a", 4000), node("b", 4000), node("c", 4000), Event::GangUpserted(reserved)]);
    world.apply(pod("p", "a", 1000, Some("g")));
    assert_eq!((free(&world, "a"), free(&world, "b"), free(&world, "c")), (3000, 3000, 4000));
    world.apply(pod("q", "c", 1000, Some("g")));
    assert_eq!((free(&world, "a"), free(&world, "b"), free(&world, "c")), (3000, 4000, 3000));
    world.apply(pod("surplus", "c", 500, Some("g")));
    assert_eq!((free(&world, "a"), free(&world, "b"), free(&world, "c")), (3000, 4000, 2500));
    world.apply(Event::PodRemoved("q".into()));
    world.apply(Event::PodRemoved("surplus".into()));
    assert_eq!((free(&world, "a"), free(&world, "b"), free(&world, "c")), (3000, 3000, 4000));
}

#[test]
fn a_pod_that_is_being_deleted_leaves_the_place_that_replaces_its_own_to_its_successor() {
    let mut reserved = gang("g", 2, 1000);
    reserved.state = GangState::Reserved(on(&[("a", 1), ("b", 1)]));
    let mut world = world([node("a", 4000), node("b", 4000), node("c", 4000), Event::GangUpserted(reserved)]);
    let leaving = |uid: &str, node: &str| {
        let Event::PodUpserted(pod) = pod(uid, node, 1000, Some("g")) else { unreachable!() };
        Event::PodUpserted(Pod { is_leaving: true, ..pod })
    };
    world.apply(leaving("p", "a"));
    world.apply(leaving("q", "c"));
    assert_eq!((free(&world, "a"), free(&world, "b"), free(&world, "c")), (3000, 3000, 3000));
    world.apply(pod("r", "b", 1000, Some("g")));
    assert_eq!((free(&world, "a"), free(&world, "b"), free(&world, "c")), (3000, 3000, 3000));
}

#[test]
fn pods_of_a_deleted_gang_stay_charged_until_they_are_removed() {
    let mut reserved = gang("g", 2, 1000);
    reserved.state = GangState::Reserved(on(&[("a", 2)]));
    let mut world = world([node("a", 4000), Event::GangUpserted(reserved), pod("p", "a", 1000, Some("g"))]);
    world.apply(Event::GangRemoved("g".into()));
    assert_eq!(free(&world, "a"), 3000);
    world.apply(Event::PodRemoved("p".into()));
    assert_eq!(free(&world, "a"), 4000);
}

#[test]
fn declared_resources_beyond_the_pods_are_reserved_as_an_aggregate() {
    let mut reserved = gang("g", 2, 1000);
    reserved.declared = Some(cpu(5000));
    reserved.state = GangState::Reserved(on(&[("a", 2)]));
    let mut world = world([node("a", 8000), Event::GangUpserted(reserved)]);
    let reserved_amounts: Vec<_> =
        world.aggregate_reservations().map(|aggregate| aggregate.reserved.to_vec()).collect();
    assert_eq!(reserved_amounts, [cpu(3000)]);
    world.apply(Event::GangRemoved("g".into()));
    assert_eq!(world.aggregate_reservations().count(), 0);
}

#[test]
fn a_gang_started_by_another_controller_reserves_an_aggregate_without_its_bound_pods() {
    let mut unplaced = gang("g", 3, 1000);
    unplaced.state = GangState::Unplaced;
    let world = world([node("a", 8000), Event::GangUpserted(unplaced), pod("p", "a", 1000, Some("g"))]);
    let reserved_amounts: Vec<_> =
        world.aggregate_reservations().map(|aggregate| aggregate.reserved.to_vec()).collect();
    assert_eq!((free(&world, "a"), reserved_amounts), (7000, vec![cpu(2000)]));
}

#[test]
fn a_node_that_returns_keeps_its_reservations() {
    let mut reserved = gang("g", 2, 1000);
    reserved.state = GangState::Reserved(on(&[("a", 2)]));
    let mut world = world([Event::GangUpserted(reserved), node("a", 4000)]);
    assert_eq!(free(&world, "a"), 2000);
    world.apply(Event::NodeRemoved("a".into()));
    assert_eq!(world.nodes().count(), 0);
    world.apply(node("a", 3000));
    assert_eq!(free(&world, "a"), 1000);
}

#[test]
fn nodes_that_differ_only_in_labels_without_constraints_are_one_class() {
    let labelled = |name: &str, zone: &str| {
        Event::NodeUpserted(Node {
            name: name.into(),
            ready: true,
            labels: BTreeMap::from([("host".into(), name.into()), ("zone".into(), zone.into())]),
            allocatable: cpu(1000),
            ..Node::default()
        })
    };
    let mut world = world([labelled("a", "x"), labelled("b", "y"), labelled("c", "y")]);
    assert_eq!(world.classes().count(), 1);
    let mut selective = gang("g", 1, 1000);
    let mut pod_sets = selective.pod_sets.to_vec();
    pod_sets[0].constraints.node_selector.insert("zone".into(), "y".into());
    selective.pod_sets = pod_sets.into();
    world.apply(Event::GangUpserted(selective));
    assert_eq!(world.classes().count(), 2);
}

#[test]
fn negative_amounts_count_as_zero() {
    let mut negative = gang("g", 1, -1000);
    negative.declared = Some(cpu(-1));
    let world = world([node("a", -5), Event::GangUpserted(negative)]);
    assert_eq!(free(&world, "a"), 0);
    assert_eq!(world.gang("g").unwrap().pod_sets[0].request.get(ResourceIx::CPU), Amount::ZERO);
}

#[test]
fn many_events_that_are_settled_once_charge_what_each_event_alone_charges() {
    let running = Gang { state: GangState::Reserved(on(&[("a", 2), ("b", 2)])), ..gang("g", 4, 1000) };
    let events = [
        node("a", 4000),
        node("b", 4000),
        Event::GangUpserted(running),
        pod("p1", "a", 1000, Some("g")),
        pod("p2", "a", 1000, Some("g")),
        pod("p3", "a", 1000, Some("g")),
        pod("stray", "b", 500, None),
        Event::PodRemoved("p1".into()),
        pod("stray", "b", 500, Some("g")),
        Event::GangRemoved("g".into()),
    ];
    for length in 0..=events.len() {
        let mut deferred = World::new();
        events[..length].iter().cloned().for_each(|event| deferred.apply_deferred(event));
        deferred.settle();
        let each = world(events[..length].iter().cloned());
        for name in ["a", "b"] {
            assert_eq!(deferred.usage(name), each.usage(name), "{length} events, node {name}");
        }
        assert_eq!(deferred.generation(), each.generation());
    }
}
