//! Random tests of a hub with workers: users and operators act on simulated clusters in virtual time, lines break, the loop dies, and then
//! every job runs that may, in one cluster, and nothing is left of what was deleted.
//!
//! A seed decides what happens. `CHAOS_SEEDS=1-500 cargo test -p clusters chaos::` runs a range on all cores.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod invariants;
mod ledger;
#[path = "../../../controllers/tests/it/chaos/rng.rs"]
mod rng;
mod script;
#[path = "../../../controllers/tests/it/chaos/seeds.rs"]
mod seeds;
mod world;

use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use script::Script;
use world::World;

/// Seeds of a run without `CHAOS_SEEDS`.
const SEEDS: RangeInclusive<u64> = 1..=6;
/// Those that have failed once: pods without their job (7, 8), a Workload that is deleted at the hub (14, 28), a worker that is reset (57).
const FAILED_ONCE: [u64; 5] = [7, 8, 14, 28, 57];
/// What the loop writes after an action, at once and by the second.
const WRITES_MAX: usize = 300;
const WRITES_PER_SECOND_MAX: u64 = 6;
/// What it writes about a job that begins or ends.
const WRITES_OF_A_CHANGE: usize = 20;
/// What it writes to ask one more cluster for room: the name at the hub, the Workload there.
const WRITES_OF_A_QUESTION: usize = 2;
/// How long clusters at rest are watched.
const REST: Duration = Duration::from_mins(10);
const STEP: Duration = Duration::from_secs(30);
const STEPS_MAX: u32 = 60;

#[test]
fn after_any_actions_and_a_repair_every_job_that_may_run_runs_in_one_cluster() {
    let seeds = seeds::chosen(SEEDS.chain(FAILED_ONCE));
    let failed = seeds::run(&seeds, |seed| {
        let script = Script::new(seed);
        run(&script).inspect_err(|text| eprintln!("{text}\n{script}"))
    });
    let told: Vec<_> =
        failed.iter().map(|(seed, text)| format!("CHAOS_SEEDS={seed}-{seed}: {text}")).collect();
    assert!(failed.is_empty(), "{} of {} seeds failed:\n{}", failed.len(), seeds.len(), told.join("\n"));
}

/// Plays a script on clusters of its own.
fn run(script: &Script) -> Result<(), String> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let result = catch_unwind(AssertUnwindSafe(|| {
        runtime.block_on(async { play(&mut World::new(script.clone()).await).await })
    }));
    result.unwrap_or_else(|panic| {
        Err(format!("the test panicked: {}", panic.downcast_ref::<String>().cloned().unwrap_or_default()))
    })
}

fn check(problems: &[String], when: &str) -> Result<(), String> {
    if problems.is_empty() { Ok(()) } else { Err(format!("{when}: {}", problems.join("; "))) }
}

async fn play(world: &mut World) -> Result<(), String> {
    for (at, (pause_ms, action)) in world.script.actions.clone().into_iter().enumerate() {
        let when = format!("after action {at}, {action:?}");
        let (written, pause) = (world.written(), Duration::from_millis(pause_ms));
        world.perform(&action).await;
        // Often at first: what is written follows an action.
        let mut passed = Duration::ZERO;
        let mut step = Duration::from_millis(20);
        while passed < pause {
            tokio::time::sleep(step.min(pause.saturating_sub(passed))).await;
            (passed, step) = (passed + step, step * 2);
            check(&world.broken_now().await, &when)?;
        }
        let most = WRITES_MAX + usize::try_from(WRITES_PER_SECOND_MAX * pause.as_secs()).unwrap();
        let writes = world.written() - written;
        if writes > most {
            return Err(format!("{when}: {writes} writes in {pause:?}"));
        }
    }
    world.repair().await;
    settle(world, "after the repair", async |world: &World| world.broken_at_rest().await).await?;
    let (written, states) = (world.written(), world.states().await);
    tokio::time::sleep(REST).await;
    let changed = world.states().await.difference(&states).count();
    let writes = world.written() - written;
    let asked = world.asked_later().await;
    if writes > changed * WRITES_OF_A_CHANGE + asked * WRITES_OF_A_QUESTION {
        return Err(format!(
            "at rest: {writes} writes in {REST:?}, while {changed} jobs have changed and {asked} clusters may have been asked"
        ));
    }
    settle(world, "at rest", async |world: &World| world.broken_at_rest().await).await?;
    world.restart();
    settle(world, "after a restart", async |world: &World| world.broken_at_rest().await).await?;
    world.delete_all().await;
    settle(world, "after the deletion of all jobs", async |world: &World| world.leftovers().await).await
}

/// Lets time pass until nothing is broken.
async fn settle(
    world: &World,
    when: &str,
    broken: impl AsyncFn(&World) -> Vec<String>,
) -> Result<(), String> {
    let mut problems = Vec::new();
    for _ in 0..STEPS_MAX {
        tokio::time::sleep(STEP).await;
        check(&world.broken_now().await, when)?;
        problems = broken(world).await;
        if problems.is_empty() {
            break;
        }
    }
    check(&problems, when)
}
