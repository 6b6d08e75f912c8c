//! The phase of a wrapper: its state in the memory of this process. The status has the state at its last write.

use model::{Assignment, GangKey, GangState, Preemption, PreemptionReason};

/// The phase of a wrapper.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// Undecided: the kinds or objects of the wrapper are not listed yet.
    Unknown,
    /// The gang cannot be queued, for these reasons. The planner does not see it.
    Inadmissible(Vec<String>),
    /// The gang is pending.
    Waiting,
    /// The gang is nominated: its preemption victims are being stopped, and it starts when their places are free.
    Nominated(Preemption),
    /// The gang is admitted and its objects are being created. No assignment: another controller started it without
    /// one.
    Starting(Option<Assignment>),
    /// All objects exist. No assignment: another controller dispatched the gang without one.
    Running(Option<Assignment>),
    /// The gang is being stopped: its objects will be or are being deleted. It keeps its places meanwhile; after a
    /// restart of the controller only those of its bound pods.
    Stopping(StopReason, Option<Assignment>),
    /// The objects are deleted. The status with the result is not written yet.
    Stopped(StopReason, Option<Assignment>),
    /// The gang has a terminal state.
    Finished,
}

/// The reason why a gang is stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StopReason {
    /// The gang is requeued: it lacked pods for too long.
    Requeue,
    /// The gang exceeded its dispatch limit.
    Deadline,
    /// The gang is preempted. The preemptor is unknown after a restart: the status does not have it.
    Preempt(Option<Preemptor>),
    /// The gang releases its places because the permission to create its objects was missing for too long. The text
    /// names the permission.
    Forbidden(String),
}

/// The gang that preempts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preemptor {
    /// Its uid.
    pub uid: String,
    /// Its key.
    pub key: GangKey,
    /// Its priority, in thousandths.
    pub priority_milli: i64,
    /// The rule that permits the preemption.
    pub reason: PreemptionReason,
}

impl Phase {
    /// Whether the gang is in the queue: it has no objects and is not admitted.
    pub fn is_queued(&self) -> bool {
        matches!(self, Self::Unknown | Self::Inadmissible(_) | Self::Waiting | Self::Nominated(_))
    }

    /// The state of the gang in the World; `None` if the World has no such gang.
    pub(crate) fn gang_state(&self) -> Option<GangState> {
        match self {
            Self::Waiting => Some(GangState::Waiting),
            Self::Nominated(preemption) => Some(GangState::Nominated(preemption.clone())),
            Self::Starting(places) | Self::Running(places) => {
                Some(places.clone().map_or(GangState::Unplaced, GangState::Reserved))
            }
            Self::Stopping(_, places) | Self::Stopped(_, places) => places.clone().map(GangState::Reserved),
            Self::Unknown | Self::Inadmissible(_) | Self::Finished => None,
        }
    }
}
