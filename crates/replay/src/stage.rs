//! One decision after the other on a world: plan, have the plan audited if that is wanted, fold it back.

use std::fmt;

use audit::Violation;
use model::{Backfill, Event, GangState, Plan, Policy, Queue, QueueOrder, Time, Verdict, World};

/// Who may pass whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Nobody passes the first one.
    Strict,
    /// Whoever fits starts, in order.
    BestEffort,
    /// The first that has to wait gets a start, and others pass it only if they do not delay that.
    Backfill,
}

impl Order {
    /// As on the command line.
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
        Policy { backfill, ..Policy::default() }
    }

    /// The one queue of a replay.
    pub(crate) fn queue(self) -> Queue {
        let order = match self {
            Self::Strict => QueueOrder::Strict,
            Self::BestEffort | Self::Backfill => QueueOrder::BestEffort,
        };
        Queue { order, ..Queue::default() }
    }
}

/// A plan breaks a rule: a bug in the planner or in the auditor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the plan at {} s is wrong: {}", .now.0 / 1_000_000, List(.violations))]
pub struct Broken {
    /// When it was made.
    pub now: Time,
    /// What is wrong with it.
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

/// The world that is decided about.
pub(crate) struct Stage {
    pub(crate) world: World,
    audit: bool,
}

impl Stage {
    pub(crate) fn new(mut world: World, policy: Policy, audit: bool) -> Self {
        world.apply(Event::PolicySet(policy));
        Self { world, audit }
    }

    /// Decides what becomes of those who wait. What is admitted runs from now on.
    pub(crate) fn decide(&mut self, now: Time) -> Result<Plan, Broken> {
        let snapshot = self.world.snapshot(now);
        let plan = planner::plan(&snapshot);
        if self.audit {
            let violations = audit::violations(&snapshot, &plan);
            if !violations.is_empty() {
                return Err(Broken { now, violations });
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

/// The uids of the gangs that a plan starts.
pub(crate) fn admitted(plan: &Plan) -> impl Iterator<Item = &str> {
    let starts = plan.verdicts.iter().filter(|(_, verdict)| matches!(verdict, Verdict::Admit(_)));
    starts.map(|(uid, _)| uid.as_str())
}
