//! What was decided.

use crate::amount::Time;
use crate::gang::Assignment;
use crate::shortage::Shortage;
use crate::slip::Slip;

/// The decisions of one pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The generation of the world that was planned on.
    pub generation: u64,
    /// By uid of the gang, in the order in which they were decided; only what was decided anew.
    pub verdicts: Vec<(String, Verdict)>,
    /// The gangs that others must not delay, in order: as many as [`Backfill`](crate::Backfill) says, those whose start can
    /// be foreseen. When the earliest of these times comes, it is worth planning again.
    pub reserved: Vec<Reservation>,
    /// The promises of the last plan that are not kept, with the cause.
    pub slips: Vec<Slip>,
}

/// The promised start of a gang that others must not delay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// The uid of the gang.
    pub gang: String,
    /// When it is to start.
    pub start: Time,
    /// The uid of the gang whose end makes room at last, if it is one that still is to end.
    pub after: Option<String>,
    /// Every end that the start counts on was declared, none guessed, and of all who wait before it the start is foreseen.
    pub declared: bool,
}

impl Reservation {
    /// Whether this is the same promise: of the same start to the same gang, as sure as the other.
    pub fn is_same(&self, other: &Self) -> bool {
        (&self.gang, self.start, self.declared) == (&other.gang, other.start, other.declared)
    }
}

/// A gang's claim to the places of others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preemption {
    /// The gangs to be stopped as a whole, by name. Empty when the places are being vacated already.
    pub victims: Vec<Victim>,
    /// Where the gang will go. The places are its own from now on; it is admitted once they are free.
    pub assignment: Assignment,
}

impl Preemption {
    /// The uids of the gangs to be stopped.
    pub fn victim_uids(&self) -> impl Iterator<Item = &str> {
        self.victims.iter().map(|victim| victim.uid.as_str())
    }
}

/// A gang that is to be stopped for another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Victim {
    /// Its uid.
    pub uid: String,
    /// What gives the other one the right to its place.
    pub reason: PreemptionReason,
}

/// What gives one gang the right to the place of another. The last four are Kueue's reasons for preemption.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum PreemptionReason {
    /// Its higher priority, by the rule of the cluster ([`crate::PreemptionPolicy`]).
    #[default]
    Priority,
    /// Both are charged to the same quota node, and it goes first there.
    InClusterQueue,
    /// It stays within what its node, or a subtree around it, owns, and the other one uses more than its own.
    InCohortReclamation,
    /// Its share is smaller than that of the other one.
    InCohortFairSharing,
    /// It borrows as the other one does, and has the higher priority.
    InCohortReclaimWhileBorrowing,
}

/// What becomes of a waiting gang.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every pod has a place: it may start.
    Admit(Assignment),
    /// Every pod has a place as soon as others have left, who are to be stopped for it.
    Preempt(Preemption),
    /// It fits when others leave.
    Wait(Shortage),
    /// It fits on no such nodes, whoever leaves.
    Never(Shortage),
}

impl Verdict {
    /// The places that it is given, now or once others have left.
    pub fn assignment(&self) -> Option<&Assignment> {
        match self {
            Self::Admit(assignment) | Self::Preempt(Preemption { assignment, .. }) => Some(assignment),
            Self::Wait(_) | Self::Never(_) => None,
        }
    }

    /// Why it does not start, if it does not.
    pub fn shortage(&self) -> Option<&Shortage> {
        match self {
            Self::Admit(_) | Self::Preempt(_) => None,
            Self::Wait(shortage) | Self::Never(shortage) => Some(shortage),
        }
    }
}
