//! Scheduling cycles on a simulated World: plan, optionally audit the plan, apply it.

use std::fmt;

use audit::Violation;
use model::{Backfill, Event, GangState, Plan, Policy, Queue, QueueingStrategy, Time, Verdict, World};

/// The queueing strategy of the replay's only queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// First come, first served: no job passes a blocked job. Kueue's `StrictFIFO`.
    Strict,
    /// Every job that fits starts, in queue order. Kueue's `BestEffortFIFO`.
    BestEffort,
    /// EASY backfill: the first blocked job receives a reserved start, and later jobs must not delay it.
    Backfill,
}

impl Order {
    /// The name of the strategy, as in the flag `--policy`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::BestEffort => "best-effort",
            Self::Backfill => "backfill",
        }
    }

    pub(crate) fn policy(self) -> Policy {
        let backfill = match self {
            Self::Strict | Self::BestEffort => Backfill::BestEffort,
            Self::Backfill => Backfill::Reserve,
        };
        // Each job requests a time. A guess is made only about one that exceeds it, and EASY keeps that start, too.
        Policy { backfill, guessed_hold_us: i64::MAX, ..Policy::default() }
    }

    /// The only queue of a replay.
    pub(crate) fn queue(self) -> Queue {
        let order = match self {
            Self::Strict => QueueingStrategy::StrictFifo,
            Self::BestEffort | Self::Backfill => QueueingStrategy::BestEffortFifo,
        };
        Queue { queueing_strategy: order, ..Queue::default() }
    }
}

/// A plan violates an invariant. The cause is a bug in the planner or in the auditor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the plan at {} s is invalid: {}", .now.0 / 1_000_000, List(.violations))]
pub struct InvalidPlan {
    /// The virtual time of the plan.
    pub now: Time,
    /// The violated invariants.
    pub violations: Vec<Violation>,
}

struct List<'v>(&'v [Violation]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, violation) in self.0.iter().enumerate() {
            write!(f, "{}{violation}", if at == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

/// A simulated cluster with its queue.
pub(crate) struct Simulation {
    pub(crate) world: World,
    audit: bool,
}

impl Simulation {
    pub(crate) fn new(mut world: World, policy: Policy, audit: bool) -> Self {
        world.apply(Event::PolicySet(policy));
        Self { world, audit }
    }

    /// Runs one scheduling cycle and applies the plan. Admitted gangs start at `now`.
    pub(crate) fn run_cycle(&mut self, now: Time) -> Result<Plan, InvalidPlan> {
        let snapshot = self.world.snapshot(now);
        let plan = planner::plan(&snapshot);
        if self.audit {
            let violations = audit::violations(&snapshot, &plan);
            if !violations.is_empty() {
                return Err(InvalidPlan { now, violations });
            }
        }
        self.world.apply(Event::Planned(plan.clone()));
        for uid in admitted(&plan) {
            if let Some(gang) = self.world.gang(uid)
                && matches!(gang.state, GangState::Reserved(_))
            {
                let mut gang = gang.clone();
                gang.started_at = Some(now);
                self.world.apply(Event::GangUpserted(gang));
            }
        }
        Ok(plan)
    }
}

/// The uids of the gangs that a plan admits.
pub(crate) fn admitted(plan: &Plan) -> impl Iterator<Item = &str> {
    let admissions = plan.verdicts.iter().filter(|(_, verdict)| matches!(verdict, Verdict::Admit(_)));
    admissions.map(|(uid, _)| uid.as_str())
}
