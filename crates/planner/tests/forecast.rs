//! When those who wait will start: foreseen, and then played.

#![allow(clippy::needless_raw_string_hashes, reason = "this is how expect-test writes what it updates")]
#![allow(clippy::format_push_string, reason = "stories are told line by line")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeMap;

use common::{NOW, evictions, story};
use expect_test::{Expect, expect};
use model::{Event, Forecast, Gang, GangState, Time, Verdict, World};
use proptest::prelude::*;

/// Looks ahead in a world in which nothing was decided yet. It is 1000 s.
fn forecast(text: &str) -> Forecast {
    planner::forecast(story(text).excerpt(usize::MAX, NOW), NOW)
}

fn check(text: &str, expected: &Expect) {
    expected.assert_eq(&scenario::forecast(&forecast(text)));
}

#[test]
fn everyone_who_waits_is_told_when_its_turn_will_come_and_after_whom() {
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
fn who_would_delay_a_promised_start_is_told_when_it_no_longer_does() {
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
fn what_counts_on_guessed_ends_is_a_guess_and_a_gang_that_declares_none_runs_as_others_do() {
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
fn quota_is_waited_for_like_room() {
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
fn a_victim_runs_again_when_the_stronger_one_has_ended() {
    let mut world = story(
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
    .assert_eq(&scenario::forecast(&future(&world)));
}

#[test]
fn who_fits_on_no_node_is_not_foreseen() {
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
fn who_waits_behind_all_that_were_looked_at_starts_after_them() {
    let world = story(
        "node     a        cpu=4
         running  r        started=900 runs=200 main 1x cpu=4 on=a
         pending  first    runs=50 main 1x cpu=4
         pending  second   runs=50 main 1x cpu=4
         pending  third    runs=50 main 1x cpu=4
         pending  late     at=1001 runs=50 main 1x cpu=4",
    );
    let forecast = planner::forecast(world.excerpt(2, NOW), NOW);
    let told = |uid: &str| {
        let forecast = forecast.of(uid, world.gang(uid).unwrap().queued_at)?;
        Some((forecast.start.0 / 1_000_000, forecast.declared))
    };
    assert_eq!(
        ["first", "second", "third", "late"].map(told),
        [Some((1100, true)), Some((1150, true)), Some((1150, false)), None]
    );
}

/// What is foreseen in the world as it is.
fn future(world: &World) -> Forecast {
    let mut forecast = planner::forecast(world.excerpt(usize::MAX, NOW), NOW);
    forecast.starts.retain(|_, forecast| forecast.start > NOW);
    forecast
}

/// Lets all that wait start where they are planned and end as declared; tells when each started at first.
fn played(mut world: World) -> BTreeMap<String, Time> {
    let holders = world.holding().map(|gang| (gang.expected_end(NOW).0, gang.uid.clone()));
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

fn days() -> impl Strategy<Value = String> {
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
    fn what_is_foreseen_is_what_happens_when_all_end_as_declared(text in days()) {
        let world = story(&text);
        let forecast = planner::forecast(world.excerpt(usize::MAX, NOW), NOW);
        let foreseen: BTreeMap<String, Time> =
            forecast.starts.iter().map(|(uid, forecast)| (uid.clone(), forecast.start)).collect();
        prop_assert_eq!(&foreseen, &played(world.clone()));
        let never = world.gangs().filter(|gang| !foreseen.contains_key(&gang.uid)).map(|gang| gang.uid.clone());
        prop_assert_eq!(forecast.unforeseen, never.collect());
    }

    #[test]
    fn no_promised_start_comes_before_it_is_foreseen(text in days()) {
        let mut world = story(&text);
        let plan = planner::plan(&world.snapshot(NOW));
        world.apply(Event::Planned(plan));
        for gang in world.holding().cloned().collect::<Vec<_>>() {
            world.apply(Event::GangUpserted(Gang { started_at: Some(NOW), ..gang }));
        }
        let forecast = planner::forecast(world.excerpt(usize::MAX, NOW), NOW);
        for reserved in world.reserved().iter().filter(|reserved| reserved.declared) {
            let foreseen = forecast.starts.get(&reserved.gang).map(|forecast| forecast.start);
            prop_assert!(foreseen.is_some_and(|start| start <= reserved.start), "{reserved:?} {foreseen:?}");
        }
    }
}
