//! The status text of gangs.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use model::{
    Assignment, Cause, Event, Forecast, ForecastStart, Gang, GangKey, GangState, GangStatus, Hold, Node,
    Plan, PodSet, PodsPerNode, Position, Preemption, PreemptionReason, QueueIx, QueueingHint, Reservation,
    ResourceIx, ResourceVec, Shortage, Slip, SlipCause, Time, Verdict, Victim, World,
};

const START: Time = Time(1_795_272_000_000_000);

fn gang(name: &str, priority: i64, state: GangState) -> Gang {
    let request = ResourceVec::new().with(ResourceIx::CPU, 1000);
    Gang {
        key: GangKey { namespace: "ns".into(), name: name.into(), ..GangKey::default() },
        uid: name.into(),
        priority,
        pod_sets: [PodSet { name: "main".into(), count: 2, request, ..PodSet::default() }].into(),
        started_at: Some(START),
        runs_us: Some(3_600_000_000),
        state,
        ..Gang::default()
    }
}

fn on(node: &str) -> Assignment {
    Assignment { pod_sets: vec![vec![(node.into(), 2)]], ..Assignment::default() }
}

fn world() -> World {
    let mut world = World::new();
    for event in [
        Event::NodeUpserted(Node { name: "n".into(), ready: true, ..Node::default() }),
        Event::GangUpserted(gang("runs", 0, GangState::Reserved(on("n")))),
        Event::GangUpserted(gang("large", 5, GangState::Waiting)),
        Event::GangUpserted(gang("small", 1, GangState::Waiting)),
        Event::GangUpserted(gang("new", 9, GangState::Waiting)),
    ] {
        world.apply(event);
    }
    let (start, after) = (START.after(60_000_000), Some("runs".to_owned()));
    let causes = [Cause::StillStopping { pods: 1 }].into();
    let wait = Verdict::Wait(Shortage { causes, queueing_hint: QueueingHint::EligibleNodeFreed });
    let plan = Plan {
        generation: world.generation(),
        verdicts: vec![("large".into(), wait.clone()), ("small".into(), wait)],
        reserved: vec![Reservation {
            gang: "large".into(),
            start,
            after: after.clone(),
            declared: true,
            hold: Hold::UntilStart,
        }],
        ..Plan::default()
    };
    world.apply(Event::Planned(plan));
    let forecast = |declared| ForecastStart { start, declared, after: after.clone() };
    let starts = [("large".into(), forecast(true)), ("small".into(), forecast(false))].into();
    world.set_forecast(Forecast { at: START, starts, ..Forecast::default() });
    world
}

fn text(world: &World, now: Time, uid: &str) -> String {
    GangStatus::of(&world.snapshot(now), uid).unwrap().to_string()
}

#[test]
fn a_pending_gang_reports_its_shortage_position_and_expected_start() {
    let world = world();
    assert_eq!(
        text(&world, START, "large"),
        "1 of its pods is still terminating. Position 2 of 3, start reserved for 2026-11-21T14:41:00Z, when ns/runs ends"
    );
    assert_eq!(
        text(&world, START, "small"),
        "1 of its pods is still terminating. Position 3 of 3, start unknown: not all ends before it are known"
    );
    let passed = START.after(60_000_000);
    assert_eq!(
        text(&world, passed, "large"),
        "1 of its pods is still terminating. Position 2 of 3",
        "the reserved start has passed"
    );
    assert_eq!(text(&world, START, "new"), "not planned yet");
    assert_eq!(GangStatus::of(&world.snapshot(START), "unknown"), None);
}

/// A plan that reserves a start in `to` seconds for the large gang, or drops its reservation.
fn plan_with_start(world: &World, to: Option<i64>, cause: SlipCause) -> Plan {
    let from =
        world.reserved().iter().find(|reserved| reserved.gang == "large").map(|reserved| reserved.start);
    let to = to.map(|seconds| START.after(seconds * 1_000_000));
    let reserved = to.map(|start| Reservation {
        gang: "large".into(),
        start,
        after: None,
        declared: false,
        hold: Hold::Unused,
    });
    let slip = from.filter(|from| to.is_none_or(|to| to > *from)).map(|from| Slip {
        gang: "large".into(),
        from,
        to,
        cause,
    });
    Plan {
        generation: world.generation(),
        reserved: reserved.into_iter().collect(),
        slips: slip.into_iter().collect(),
        ..Plan::default()
    }
}

#[test]
fn a_slip_reports_the_first_reserved_start_and_the_last_cause_until_the_start_moves_back() {
    let mut world = world();
    let overran = || SlipCause::Overran {
        gang: GangKey { namespace: "ns".into(), name: "runs".into(), ..GangKey::default() },
    };
    let waits = "1 of its pods is still terminating. Position 2 of 3";
    for (to, cause, says) in [
        (
            Some(120),
            overran(),
            ", start unknown: not all ends before it are known; \
             a start at 2026-11-21T14:41:00Z was reserved, but ns/runs runs longer than it declared",
        ),
        (
            Some(180),
            SlipCause::Nodes { nodes: 2 },
            ", start unknown: not all ends before it are known; \
             a start at 2026-11-21T14:41:00Z was reserved, but 2 nodes vanished or changed",
        ),
        (
            None,
            SlipCause::Quota,
            ", expected start 2026-11-21T14:41:00Z, when ns/runs ends; \
             a start at 2026-11-21T14:41:00Z was reserved, but queues, flavors or quota changed",
        ),
        (Some(60), overran(), ", start unknown: not all ends before it are known"),
        (Some(120), overran(), ", start unknown: not all ends before it are known"),
    ] {
        let plan = plan_with_start(&world, to, cause);
        world.apply(Event::Planned(plan));
        let status = text(&world, START, "large");
        assert_eq!(status, format!("{waits}{says}"), "the last start was an estimate and no reservation");
        let slip_text = says.split_once("; ").map(|(_, slip_text)| slip_text);
        assert_eq!(Slip::status_text_in(&status), slip_text);
        assert_eq!(Slip::status_text_in(&format!("{status}. filled in: a, b")), slip_text);
    }
}

#[test]
fn a_start_that_relies_on_an_end_that_nobody_knows_has_no_time_and_says_whose_end_it_is() {
    let guess = |world: &mut World, hold| {
        let mut plan = plan_with_start(world, Some(60), SlipCause::Unplanned);
        plan.reserved[0].after = Some("runs".into());
        plan.reserved[0].hold = hold;
        world.apply(Event::Planned(plan));
    };
    let undeclared = |kind: &str| {
        let running = gang("runs", 0, GangState::Reserved(on("n")));
        Gang { runs_us: None, key: GangKey { kind: kind.into(), ..running.key.clone() }, ..running }
    };
    let told = |world: &World, now| {
        text(world, now, "large").split_once(", start unknown: ").map(|(_, rest)| rest.to_owned())
    };
    let until = START.after(600_000_000);
    for (name, running, hold, now, says) in [
        (
            "no run time of an AppWrapper",
            undeclared("appwrappers.mcad.ibm.com"),
            Hold::Unused,
            START,
            "ns/runs declares no run time (set spec.schedulingSpec.dispatchDuration.expected)",
        ),
        (
            "no run time of a Workload",
            undeclared("workloads.kueue.x-k8s.io"),
            Hold::Over,
            START,
            "ns/runs declares no run time (set the annotation muster.dev/expected-duration of its job)",
        ),
        (
            "nodes kept free",
            undeclared("workloads.kueue.x-k8s.io"),
            Hold::Until(until),
            until.after(-1_000_000),
            "ns/runs declares no run time (set the annotation muster.dev/expected-duration of its job), \
             nodes are kept free for it until 2026-11-21T14:50:00Z",
        ),
        (
            "overrun, and nodes no longer kept free",
            gang("runs", 0, GangState::Reserved(on("n"))),
            Hold::Until(until),
            START.after(3_600_000_000),
            "ns/runs runs longer than it declared",
        ),
        (
            "the last end is declared, another one is not",
            gang("runs", 0, GangState::Reserved(on("n"))),
            Hold::Unused,
            START,
            "not all ends before it are known",
        ),
    ] {
        let mut world = world();
        world.apply(Event::GangUpserted(running));
        guess(&mut world, hold);
        assert_eq!(told(&world, now).as_deref(), Some(says), "{name}");
    }
}

#[test]
fn a_start_that_moves_within_the_same_second_is_no_slip() {
    let mut world = world();
    let mut plan = plan_with_start(&world, Some(120), SlipCause::Quota);
    let start = START.after(60_900_000);
    plan.reserved[0].start = start;
    plan.slips[0].to = Some(start);
    world.apply(Event::Planned(plan));
    assert_eq!(world.slip_of("large"), None);
}

#[test]
fn a_slip_ends_when_its_gang_changes_starts_or_is_deleted() {
    let mut world = world();
    let plan = plan_with_start(&world, Some(120), SlipCause::Quota);
    world.apply(Event::Planned(plan.clone()));
    assert!(world.slip_of("large").is_some() && world.slip_of("small").is_none());
    let mut changed = world.clone();
    changed.apply(Event::GangUpserted(gang("large", 6, GangState::Waiting)));
    let mut started = world.clone();
    let admit = Verdict::Admit(on("n"));
    started.apply(Event::Planned(Plan { verdicts: vec![("large".into(), admit)], ..Plan::default() }));
    world.apply(Event::GangRemoved("large".into()));
    assert_eq!([&changed, &started, &world].map(|world| world.slip_of("large")), [None; 3]);
}

#[test]
fn a_running_gang_reports_its_nodes_start_and_expected_end() {
    let world = world();
    assert_eq!(
        text(&world, START, "runs"),
        "runs since 2026-11-21T14:40:00Z on n (2 pods), expected to end at 2026-11-21T15:40:00Z"
    );
    assert_eq!(
        text(&world, START.after(3_600_000_000), "runs"),
        "runs since 2026-11-21T14:40:00Z on n (2 pods)"
    );
}

#[test]
fn a_nominated_gang_reports_its_victims() {
    for (victims, says) in [
        (vec![], "starts when the pods of the preempted gangs have terminated"),
        (vec!["runs".to_owned()], "is preempting ns/runs"),
    ] {
        let mut world = world();
        let is_preempted = !victims.is_empty();
        let victims =
            victims.into_iter().map(|uid| Victim { uid, reason: PreemptionReason::Priority }).collect();
        let preemption = Preemption { victims, assignment: on("n") };
        world.apply(Event::GangUpserted(gang("large", 5, GangState::Nominated(preemption))));
        assert_eq!(text(&world, START, "large"), says);
        assert_eq!(text(&world, START, "runs") == "is being preempted by ns/large", is_preempted);
    }
}

#[test]
fn positions_counted_together_equal_positions_counted_one_by_one() {
    let mut world = world();
    for (name, priority) in [("a", 3), ("b", 3), ("c", 0)] {
        let other = Gang { queue: QueueIx(1), ..gang(name, priority, GangState::Waiting) };
        world.apply(Event::GangUpserted(other));
    }
    let asked = ["small", "c", "runs", "new", "large", "unknown", "b"];
    let together = world.positions(asked, START);
    for uid in asked {
        assert_eq!(together.get(uid), world.position(uid, START).as_ref(), "{uid}");
    }
    let status = |uid: &str| {
        let Position { place, of, first, ahead } = world.position(uid, START)?;
        Some((place, of, first.unwrap_or_default(), ahead.unwrap_or_default()))
    };
    assert_eq!(status("small"), Some((3, 3, "new".into(), "large".into())));
    assert_eq!(status("new"), Some((1, 3, String::new(), String::new())));
    assert_eq!(status("b"), Some((2, 3, "a".into(), "a".into())));
    assert_eq!(status("c"), Some((3, 3, "a".into(), "b".into())));
    assert_eq!(status("runs"), None);
}

#[test]
fn times_are_formatted_in_rfc_3339() {
    for (seconds, date) in [
        (0, "1970-01-01T00:00:00Z"),
        (-1, "1969-12-31T23:59:59Z"),
        (951_782_399, "2000-02-28T23:59:59Z"),
        (951_782_400, "2000-02-29T00:00:00Z"),
        (4_107_542_400, "2100-03-01T00:00:00Z"),
        (1_735_689_599, "2024-12-31T23:59:59Z"),
    ] {
        assert_eq!(Time(seconds * 1_000_000).to_string(), date);
    }
}

#[test]
fn a_text_names_twenty_nodes_and_counts_the_others() {
    let places = |nodes: u64| PodsPerNode((0..nodes).map(|at| (format!("n{at:02}"), 1 + at % 2)).collect());
    assert!(places(21).to_string().ends_with(", n20 (1 pod)"));
    assert!(places(24).to_string().ends_with(", n19 (2 pods) and 4 other nodes (6 pods)"));
}
