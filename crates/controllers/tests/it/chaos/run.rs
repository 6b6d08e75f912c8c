//! One run: the actions of a script, the repair, and the invariants.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use serde_json::Value;

use crate::chaos::actions::Script;
use crate::chaos::invariants::Problem;
use crate::chaos::world::World;
use crate::common::wrappers;

/// How often the invariants are checked after the repair: more often in the first steps.
const STEP: Duration = Duration::from_secs(30);
const LATER_STEP: Duration = Duration::from_mins(5);
const STEPS_MAX: u32 = 80;
/// The same after a further change to a cluster at rest.
const STEPS_STABLE_MAX: u32 = 20;
/// How many checks a gang waits before another one is deleted to make room.
const STEPS_PER_DELETION: u32 = 4;
/// How long the cluster rests after a restart of the controllers and after the deletion of all `AppWrappers`.
const STABLE: Duration = Duration::from_mins(5);

/// A failed run.
pub(crate) struct Failure {
    /// The invariant that broke.
    pub(crate) invariant: &'static str,
    text: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.invariant, self.text)
    }
}

/// Runs a script on a cluster of its own.
pub(crate) fn run(script: &Script) -> Result<(), Failure> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let result = catch_unwind(AssertUnwindSafe(|| runtime.block_on(play(script.clone()))));
    result.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default();
        Err(Failure { invariant: "the test does not panic", text })
    })
}

async fn play(script: Script) -> Result<(), Failure> {
    let mut world = World::new(script).await;
    let result = play_in(&mut world).await;
    world.cluster.take_violations();
    result
}

async fn play_in(world: &mut World) -> Result<(), Failure> {
    for (pause_ms, action) in world.script.actions.clone() {
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        world.perform(&action).await;
        world.revive().await;
        check(&world.broken_now(), "during the actions")?;
    }
    world.repair().await;
    settle(world, STEPS_MAX, "hours after the repair").await?;
    let before = world.requeuings().await;
    world.restart_all().await;
    tokio::time::sleep(STABLE).await;
    settle(world, STEPS_STABLE_MAX, "after a restart of the controllers").await?;
    check(&world.requeued_since(before).await, "after a restart of the controllers")?;
    world.delete_all().await;
    tokio::time::sleep(STABLE).await;
    settle(world, STEPS_STABLE_MAX, "after the deletion of all AppWrappers").await?;
    check(&world.leftovers().await, "after the deletion of all AppWrappers")
}

/// Lets time pass until all invariants hold.
async fn settle(world: &mut World, steps_max: u32, when: &str) -> Result<(), Failure> {
    let mut problems = Vec::new();
    for step in 1..=steps_max {
        world.release_held_objects().await;
        tokio::time::sleep(if step <= 40 { STEP } else { LATER_STEP }).await;
        world.revive().await;
        check(&world.broken_now(), when)?;
        problems = world.broken_at_rest().await;
        if problems.is_empty() {
            break;
        }
        if step % STEPS_PER_DELETION == 0 {
            world.make_room().await;
        }
    }
    check(&problems, when)
}

fn check(problems: &[Problem], when: &str) -> Result<(), Failure> {
    let Some(first) = problems.first() else { return Ok(()) };
    let lines: Vec<_> =
        problems.iter().map(|problem| format!("{}: {}", problem.invariant, problem.text)).collect();
    Err(Failure { invariant: first.invariant, text: format!("{when}\n  {}", lines.join("\n  ")) })
}

impl World {
    /// If an ordinary gang waits, deletes the AppWrapper of a running one: it may run for ever.
    async fn make_room(&self) {
        let found = self.wrappers().await;
        let is_waiting = |state: &str| matches!(state, "" | "Pending");
        let state = |wrapper: &kube::api::DynamicObject| {
            wrapper.data["status"]["state"].as_str().unwrap_or_default().to_owned()
        };
        let waits = found.iter().any(|(_, wrapper)| {
            is_waiting(&state(wrapper))
                && self.submitted[wrapper.metadata.name.as_ref().unwrap()].oddity.is_none()
        });
        let running = found.iter().find(|(_, wrapper)| state(wrapper).starts_with("Running"));
        if let (true, Some((group, wrapper))) = (waits, running) {
            self.delete(&wrappers(*group), "default", wrapper.metadata.name.as_ref().unwrap()).await;
        }
    }

    /// The ordinary gangs that ran before and have been requeued since.
    async fn requeued_since(&self, before: BTreeMap<String, Value>) -> Vec<Problem> {
        let after = self.requeuings().await;
        let moved =
            before.into_iter().filter(|(name, count)| after.get(name).is_some_and(|after| after != count));
        let gangs = self.gangs();
        let text = |name: String| format!("{name}, {}", gangs.get(&name).map_or("", String::as_str));
        moved.map(|(name, _)| Problem { invariant: "a restart requeues nothing", text: text(name) }).collect()
    }

    async fn delete_all(&self) {
        for (group, wrapper) in self.wrappers().await {
            self.delete(&wrappers(group), "default", &wrapper.metadata.name.unwrap()).await;
        }
    }

    /// What is left in the index and in the cluster when all AppWrappers are deleted.
    async fn leftovers(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (kind, _) in crate::chaos::world::scalable_kinds() {
            for object in self.list(&kind).await {
                let text = format!("{} {}", kind.kind, object.metadata.name.unwrap());
                problems.push(Problem { invariant: "no object outlives its AppWrapper", text });
            }
        }
        if let Some(member) = self.leader() {
            let index = member.index.read().unwrap();
            let kinds = index.kinds().map(|(kind, _)| format!("{kind:?}"));
            problems.extend(kinds.map(|text| Problem { invariant: "the index forgets kinds", text }));
        }
        problems
    }
}
