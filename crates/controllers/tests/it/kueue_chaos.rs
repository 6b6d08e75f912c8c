//! Random tests of jobs in queues of Kueue's API: users and operators act on a simulated cluster in virtual time, and
//! then every job runs that may, and nobody holds quota without need.
//!
//! A seed decides what happens. `CHAOS_SEEDS=1-500 cargo test -p controllers kueue_chaos::` runs a range on all cores.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod disturbances;
mod invariants;
mod operations;
mod script;
mod world;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use script::Script;
use world::World;

use crate::chaos::seeds;

/// Seeds of a run without `CHAOS_SEEDS`: some, and those that have failed once.
const SEEDS: (RangeInclusive<u64>, [u64; 6]) = (1..=12, [28, 29, 39, 201, 214, 400]);
/// The same for seeds with disturbances.
const DISTURBED: (RangeInclusive<u64>, [u64; 8]) =
    (1_000..=1_011, [1_017, 1_067, 1_183, 1_223, 1_294, 1_319, 1_393, 1_467]);
/// The same for seeds with sets of pods.
const WITH_SETS: (RangeInclusive<u64>, [u64; 1]) = (3_000..=3_005, [3_169]);
/// The same for seeds with checks, topologies, and times without webhooks.
const WITH_OPERATIONS: (RangeInclusive<u64>, [u64; 22]) = (
    5_000..=5_007,
    [
        5_051, 5_064, 5_065, 5_067, 5_141, 5_168, 5_361, 5_513, 5_557, 5_740, 5_800, 5_895, 6_206, 6_490,
        6_583, 6_588, 6_595, 6_671, 6_689, 6_733, 6_937, 6_964,
    ],
);
/// The same for seeds whose topologies may end at racks.
const WITH_RACKS: RangeInclusive<u64> = 9_000..=9_005;
/// After this pause the controller has reacted to an action.
const REACTION_MS: u64 = 1_000;
/// An action and what it causes at once write no more than this.
const WRITES_MAX: u64 = 1_000;
/// Nothing that lasts causes more writes than these, by the second.
const WRITES_PER_SECOND_MAX: u64 = 10;
/// How long a cluster at rest is watched.
const REST: Duration = Duration::from_mins(10);
const STEP: Duration = Duration::from_secs(30);
const STEPS_MAX: u32 = 40;

#[test]
fn after_any_actions_and_a_repair_every_job_that_may_run_runs_and_nobody_holds_quota_without_need() {
    let all = SEEDS.0.chain(SEEDS.1).chain(DISTURBED.0).chain(DISTURBED.1);
    let all = all
        .chain(WITH_SETS.0)
        .chain(WITH_SETS.1)
        .chain(WITH_OPERATIONS.0)
        .chain(WITH_OPERATIONS.1)
        .chain(WITH_RACKS);
    let seeds = seeds::chosen(all);
    let failed = seeds::run(&seeds, |seed| {
        let script = Script::new(seed);
        run(&script).inspect_err(|text| eprintln!("{text}\n{script}"))
    });
    let told: Vec<_> =
        failed.iter().map(|(seed, text)| format!("CHAOS_SEEDS={seed}-{seed}: {text}")).collect();
    assert!(failed.is_empty(), "{} of {} seeds failed:\n{}", failed.len(), seeds.len(), told.join("\n"));
}

/// Runs a script on a cluster of its own.
fn run(script: &Script) -> Result<(), String> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let result = catch_unwind(AssertUnwindSafe(|| {
        runtime.block_on(async {
            let mut world = World::new(script.clone()).await;
            let result = play(&mut world).await;
            world.cluster.take_violations();
            result
        })
    }));
    result.unwrap_or_else(|panic| {
        Err(format!("the test panicked: {}", panic.downcast_ref::<String>().cloned().unwrap_or_default()))
    })
}

fn check(problems: &[String], when: &str) -> Result<(), String> {
    if problems.is_empty() { Ok(()) } else { Err(format!("{when}: {}", problems.join("; "))) }
}

async fn play(world: &mut World) -> Result<(), String> {
    let mut used = BTreeMap::new();
    for (at, (pause_ms, action)) in world.script.actions.clone().into_iter().enumerate() {
        let when = format!("after action {at}, {action:?}");
        let written = world.written().await;
        world.perform(&action).await;
        rest(world, written, Duration::from_millis(pause_ms), &when).await?;
        check(world.end().await.as_slice(), &when)?;
        check(&world.broken_now(&mut used).await, &when)?;
        if pause_ms >= REACTION_MS {
            check(&world.broken_soon().await, &when)?;
        }
    }
    world.repair().await;
    settle(world, "after the repair", async |world: &World| world.broken_at_rest().await).await?;
    let written = world.written().await;
    rest(world, written, REST, "at rest").await?;
    world.restart();
    settle(world, "after a restart", async |world: &World| world.broken_at_rest().await).await?;
    world.delete_all().await;
    settle(world, "after the deletion of all jobs", async |world: &World| world.leftovers().await).await
}

/// Lets time pass. Nobody writes for ever meanwhile.
async fn rest(world: &World, written: u64, pause: Duration, when: &str) -> Result<(), String> {
    tokio::time::sleep(pause).await;
    let writes = world.written().await - written;
    let most = WRITES_MAX + WRITES_PER_SECOND_MAX * pause.as_secs();
    if writes <= most { Ok(()) } else { Err(format!("{when}: {writes} writes in {pause:?}")) }
}

/// Lets time pass until nothing is broken.
async fn settle(
    world: &mut World,
    when: &str,
    broken: impl AsyncFn(&World) -> Vec<String>,
) -> Result<(), String> {
    let mut problems = Vec::new();
    for _ in 0..STEPS_MAX {
        world.approve().await;
        tokio::time::sleep(STEP).await;
        check(world.end().await.as_slice(), when)?;
        problems = broken(world).await;
        if problems.is_empty() {
            break;
        }
    }
    problems.extend(world.cluster.violations());
    check(&problems, when)
}
