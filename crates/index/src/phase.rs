//! Where a wrapper is in this process. What the status says is where it was when it was last written.

use model::Assignment;

/// Where a wrapper is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// Facts that decide it have not been observed yet.
    Unknown,
    /// It cannot be queued, and why. Nothing is planned for it.
    Held(Vec<String>),
    /// It waits for a plan.
    Waiting,
    /// It is being started: its place is promised, its objects are being made. Without an assignment, somebody else began.
    Starting(Option<Assignment>),
    /// Its objects exist. Where its pods were placed, unless somebody else dispatched it.
    Running(Option<Assignment>),
    /// Its objects are being removed.
    Stopping(Stop),
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
}

impl Phase {
    /// Whether its capacity is promised.
    pub fn is_reserved(&self) -> bool {
        matches!(self, Self::Starting(_) | Self::Running(_))
    }
}
