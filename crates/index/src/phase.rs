//! Where a wrapper is in this process. What the status says is where it was when it was last written.

use model::{Assignment, GangKey, GangState, Preemption, PreemptionReason};

/// Where a wrapper is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// Facts that decide it have not been observed yet.
    Unknown,
    /// It cannot be queued, and why. Nothing is planned for it.
    Held(Vec<String>),
    /// It waits for a plan.
    Waiting,
    /// Places are its own that others are being stopped for; it starts once these are free.
    Nominated(Preemption),
    /// It is being started: its place is promised, its objects are being made. Without an assignment, somebody else began.
    Starting(Option<Assignment>),
    /// Its objects exist. Where its pods were placed, unless somebody else dispatched it.
    Running(Option<Assignment>),
    /// It is to be stopped, or its objects are being removed. It keeps its places meanwhile; after a restart only those of
    /// its pods that are bound.
    Stopping(Stop, Option<Assignment>),
    /// Its objects were removed, and what comes of that is awaited.
    Leaving(Stop, Option<Assignment>),
    /// Nothing will happen any more.
    Ended,
}

/// Why objects are being removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// To be queued again.
    Requeue,
    /// It ran longer than it may.
    Deadline,
    /// To make room for another gang; nothing is known of it any more after a restart, when the status tells.
    Preempt(Option<Preemptor>),
    /// To give back places that it cannot use: for too long a right was missing to make its objects, and which.
    NotAllowed(String),
}

/// For whom a gang is stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preemptor {
    /// Its name.
    pub key: GangKey,
    /// Its priority, in thousandths.
    pub priority_milli: i64,
    /// What gives it the right to the place.
    pub reason: PreemptionReason,
}

impl Phase {
    /// Whether nothing exists of the gang, and nothing was promised to it that it could rely on.
    pub fn is_queued(&self) -> bool {
        matches!(self, Self::Unknown | Self::Held(_) | Self::Waiting | Self::Nominated(_))
    }

    /// The state of the gang that the planner sees, if it is to see one.
    pub(crate) fn gang_state(&self) -> Option<GangState> {
        match self {
            Self::Waiting => Some(GangState::Waiting),
            Self::Nominated(preemption) => Some(GangState::Nominated(preemption.clone())),
            Self::Starting(places) | Self::Running(places) => {
                Some(places.clone().map_or(GangState::Unplaced, GangState::Reserved))
            }
            Self::Stopping(_, places) | Self::Leaving(_, places) => places.clone().map(GangState::Reserved),
            Self::Unknown | Self::Held(_) | Self::Ended => None,
        }
    }

    /// Whether it keeps its places to itself, even those of pods that have succeeded.
    pub(crate) fn is_reserved(&self) -> bool {
        match self {
            Self::Starting(_) | Self::Running(_) => true,
            Self::Stopping(_, places) | Self::Leaving(_, places) => places.is_some(),
            Self::Unknown | Self::Held(_) | Self::Waiting | Self::Nominated(_) | Self::Ended => false,
        }
    }
}
