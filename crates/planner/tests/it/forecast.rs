//! Forecasts of the start of pending gangs, compared with a simulation.

#![allow(clippy::needless_raw_string_hashes, reason = "this is how expect-test writes what it updates")]
#![allow(clippy::format_push_string, reason = "the output is built line by line")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use crate::common::{NOW, evictions, parse_world};
use expect_test::{Expect, expect};
use model::{Event, Forecast, Gang, GangState, Time, Verdict, World};
use proptest::prelude::*;

/// Forecasts a world in which no gang has a verdict yet. The time is 1000 s.
fn forecast(text: &str) -> Forecast {
    planner::forecast(parse_world(text).forecast_copy(usize::MAX, NOW), NOW)
}

fn check(text: &str, expected: &Expect) {
    expected.assert_eq(&scenario::forecast(&forecast(text)));
}

#[test]
fn every_pending_gang_gets_a_forecast_start_and_the_gang_it_follows() {
    check(
        "node     a        cpu=4
         running  r        started=900 runs=200 main 1x cpu=4 on=a
         pending  first    runs=50 main 1x cpu=4
         pending  second   runs=50 main 1x cpu=4
         pending  third    runs=50 main 1x cpu=4",
        &expect![[r#"
            first  1100 s, when r ends
            second  1150 s, when first ends
            third  1200 s, when second ends
        "#]],
    );
}

#[test]
fn a_gang_that_would_delay_a_reservation_gets_a_forecast_after_it() {
    check(
        "policy   backfill=reserve
         node     a 2x     cpu=4
         running  long     started=0 runs=1500 main 1x cpu=4 on=a-1
         pending  large    runs=100 main 2x cpu=4
         pending  slow     runs=600 main 1x cpu=1
         pending  quick    runs=500 main 1x cpu=1",
        &expect![[r#"
            quick  1000 s
            large  1500 s, when quick ends
            slow  1600 s, when large ends
        "#]],
    );
}

#[test]
fn a_gang_that_a_guessed_start_holds_back_is_forecast_to_start_at_the_end_of_the_hold() {
    check(
        "policy   backfill=reserve
         node     a 2x     cpu=4
         running  runs     started=0 main 1x cpu=4 on=a-1
         pending  large    runs=100 main 2x cpu=4
         pending  small    runs=5000 main 1x cpu=1",
        &expect![[r#"
            small  ~1600 s
            large  ~6600 s, when small ends
        "#]],
    );
}

#[test]
fn a_forecast_from_estimated_ends_is_an_estimate_and_an_undeclared_run_time_is_typical() {
    check(
        "node     a        cpu=4
         running  r        started=900 main 1x cpu=4 on=a
         pending  first    main 1x cpu=4
         pending  second   main 1x cpu=4",
        &expect![[r#"
            first  ~1100 s, when r ends
            second  ~1300 s, when first ends
        "#]],
    );
}

#[test]
fn a_gang_short_of_quota_gets_a_forecast_like_one_short_of_nodes() {
    check(
        "quota    q        cpu=4
         queue    q        quota=q :cpu
         node     a        cpu=16
         running  r        queue=q started=900 runs=200 main 1x cpu=4 on=a
         pending  first    queue=q runs=50 main 1x cpu=4
         pending  second   queue=q runs=50 main 1x cpu=4",
        &expect![[r#"
            first  1100 s, when r ends
            second  1150 s, when first ends
        "#]],
    );
}

#[test]
fn a_victim_is_forecast_to_restart_when_its_preemptor_has_ended() {
    let mut world = parse_world(
        "policy   preemption=lower-priority
         node     a        cpu=4
         running  weak     started=900 runs=200 main 1x cpu=4 on=a
         pending  strong   at=950 priority=1 runs=50 main 1x cpu=4
         pending  other    at=960 runs=30 main 1x cpu=4",
    );
    let plan = planner::plan(&world.snapshot(NOW));
    world.apply(Event::Planned(plan));
    assert!(matches!(world.gang("strong").unwrap().state, GangState::Nominated(_)));
    expect![[r#"
        weak  1050 s, when strong ends
        other  1250 s, when weak ends
    "#]]
    .assert_eq(&scenario::forecast(&forecast_now(&world)));
}

#[test]
fn a_gang_that_fits_on_no_node_gets_no_forecast() {
    check(
        "node     a        cpu=4
         running  r        started=900 runs=200 main 1x cpu=4 on=a
         pending  huge     main 1x cpu=8
         pending  small    runs=50 main 1x cpu=4",
        &expect![[r#"
            small  1100 s, when r ends
            huge  never, as far as can be foreseen
        "#]],
    );
}

#[test]
fn a_gang_beyond_the_forecast_limit_starts_after_all_forecast_gangs() {
    let world = parse_world(
        "node     a        cpu=4
         running  r        started=900 runs=200 main 1x cpu=4 on=a
         pending  first    runs=50 main 1x cpu=4
         pending  second   runs=50 main 1x cpu=4
         pending  third    runs=50 main 1x cpu=4
         pending  late     at=1001 runs=50 main 1x cpu=4",
    );
    let forecast = planner::forecast(world.forecast_copy(2, NOW), NOW);
    let forecast_of = |uid: &str| {
        let forecast = forecast.of(uid, world.gang(uid).unwrap().queued_at)?;
        Some((forecast.start.0 / 1_000_000, forecast.declared))
    };
    assert_eq!(
        ["first", "second", "third", "late"].map(forecast_of),
        [Some((1100, true)), Some((1150, true)), Some((1150, false)), None]
    );
}

/// Forecasts the world as it is.
fn forecast_now(world: &World) -> Forecast {
    let mut forecast = planner::forecast(world.forecast_copy(usize::MAX, NOW), NOW);
    forecast.starts.retain(|_, forecast| forecast.start > NOW);
    forecast
}

/// Simulates: every pending gang starts where it is planned and ends as declared. Returns the first start of each
/// gang.
fn simulate(mut world: World) -> BTreeMap<String, Time> {
    let holders = world.placed_gangs().map(|gang| (gang.expected_end(NOW).0, gang.uid.clone()));
    let mut ends: Vec<(Time, String)> = holders.collect();
    let (mut now, mut starts) = (NOW, BTreeMap::new());
    loop {
        for _ in 0..20 {
            for event in evictions(&world) {
                if let Event::GangUpserted(victim) = &event {
                    ends.retain(|(_, uid)| *uid != victim.uid);
                }
                world.apply(event);
            }
            let plan = planner::plan(&world.snapshot(now));
            let admits = plan.verdicts.iter().filter(|(_, verdict)| matches!(verdict, Verdict::Admit(_)));
            let admitted: Vec<String> = admits.map(|(uid, _)| uid.clone()).collect();
            world.apply(Event::Planned(plan));
            for uid in admitted {
                let gang = Gang { started_at: Some(now), ..world.gang(&uid).cloned().unwrap() };
                ends.push((now.after(gang.runs_us.unwrap()), uid.clone()));
                starts.entry(uid).or_insert(now);
                world.apply(Event::GangUpserted(gang));
            }
        }
        ends.sort();
        let Some((next, _)) = ends.first().cloned() else { return starts };
        now = next;
        ends.retain(|(end, uid)| {
            if *end == now {
                world.apply(Event::GangRemoved(uid.clone()));
            }
            *end > now
        });
    }
}

fn random_world() -> impl Strategy<Value = String> {
    let gang = (1..4_u32, 1..5_i64, 1..40_i64, 0..3_i64, 0..4_i64);
    let policy = (prop::sample::select(vec!["", "preemption=lower-priority"]), 0..4_u32);
    (policy, prop::collection::vec(1..6_i64, 1..4), prop::collection::vec(gang, 1..24)).prop_map(
        |((preemption, heads), nodes, gangs)| {
            let backfill = if heads > 0 { format!(" backfill=conservative:{heads}") } else { String::new() };
            let mut text = match format!("{preemption}{backfill}").trim() {
                "" => String::new(),
                policy => format!("policy {policy}\n"),
            };
            text.push_str("quota tight cpu=6\nqueue tight quota=tight :cpu\n");
            for (at, cpu) in nodes.iter().enumerate() {
                text.push_str(&format!("node n{at} cpu={cpu}\n"));
            }
            for (at, (pods, cpu, runs, priority, queue)) in gangs.iter().enumerate() {
                let queue = if *queue == 0 { "queue=tight " } else { "" };
                text.push_str(&format!(
                    "pending g{at} at={at} priority={priority} {queue}runs={runs} main {pods}x cpu={cpu}\n"
                ));
            }
            text
        },
    )
}

proptest! {
    #[test]
    fn the_forecast_equals_the_simulation_when_all_gangs_end_as_declared(text in random_world()) {
        let world = parse_world(&text);
        let forecast = planner::forecast(world.forecast_copy(usize::MAX, NOW), NOW);
        let forecast_starts: BTreeMap<String, Time> =
            forecast.starts.iter().map(|(uid, forecast)| (uid.clone(), forecast.start)).collect();
        prop_assert_eq!(&forecast_starts, &simulate(world.clone()));
        let never = world.gangs().filter(|gang| !forecast_starts.contains_key(&gang.uid)).map(|gang| gang.uid.clone());
        prop_assert_eq!(forecast.without_start, never.collect());
    }

    #[test]
    fn no_reserved_start_is_before_its_forecast(text in random_world()) {
        let mut world = parse_world(&text);
        let plan = planner::plan(&world.snapshot(NOW));
        world.apply(Event::Planned(plan));
        for gang in world.placed_gangs().cloned().collect::<Vec<_>>() {
            world.apply(Event::GangUpserted(Gang { started_at: Some(NOW), ..gang }));
        }
        let forecast = planner::forecast(world.forecast_copy(usize::MAX, NOW), NOW);
        for reserved in world.reserved().iter().filter(|reserved| reserved.declared) {
            let forecast_start = forecast.starts.get(&reserved.gang).map(|forecast| forecast.start);
            prop_assert!(
                forecast_start.is_some_and(|start| start <= reserved.start),
                "{reserved:?} {forecast_start:?}"
            );
        }
    }
}
