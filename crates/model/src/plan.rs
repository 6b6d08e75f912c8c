//! The result of a planning cycle: verdicts, preemptions and reservations.

use crate::amount::Time;
use crate::assignment::Assignment;
use crate::shortage::Shortage;
use crate::slip::Slip;

/// The decisions of one planning cycle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The generation of the world that the plan was computed from.
    pub generation: u64,
    /// The new verdicts by uid of the gang, in the order of decision. Gangs whose verdict did not change are left
    /// out.
    pub verdicts: Vec<(String, Verdict)>,
    /// What the nodes lack for admitted gangs whose pods get no node from the plan: information, never a refusal. Each
    /// gang is judged alone, against what the other decisions of the plan leave free.
    pub without_room: Vec<(String, Shortage)>,
    /// The reservations in queue order: at most as many as [`Backfill`](crate::Backfill) allows, and only for gangs
    /// with a known start. A new cycle is due at the earliest of these starts.
    pub reserved: Vec<Reservation>,
    /// The reservations of the previous plan that moved to a later start or were dropped, with the cause.
    pub slips: Vec<Slip>,
}

/// A reserved start of a pending gang. Gangs that are admitted by backfill must not delay it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// The uid of the gang.
    pub gang: String,
    /// The reserved start.
    pub start: Time,
    /// The uid of the last gang that has to end before the start. `None` when no such gang is running.
    pub after: Option<String>,
    /// The start depends only on declared run times, and every gang before it has a known start.
    pub declared: bool,
    /// How long it holds other gangs back.
    pub hold: Hold,
}

impl Reservation {
    /// Whether both reserve the same start for the same gang, with the same certainty.
    pub fn is_same(&self, other: &Self) -> bool {
        let content = |one: &Self| (one.start, one.declared, one.hold);
        self.gang == other.gang && content(self) == content(other)
    }

    /// The times at which it is to be planned anew.
    pub fn due(&self) -> impl Iterator<Item = Time> + use<> {
        [Some(self.start), self.hold.until()].into_iter().flatten()
    }
}

/// How long a reservation holds back gangs that would delay it. A start that depends on an end that nobody declared is
/// a guess: it holds others back for a limited time ([`Policy::guessed_hold_us`](crate::Policy::guessed_hold_us)), and
/// never a gang that stays within the nominal quota of other quota nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hold {
    /// Until its start: it depends only on declared ends.
    #[default]
    UntilStart,
    /// A guess that has held nothing back yet.
    Unused,
    /// A guess that has held gangs back. It does so no longer than until this time.
    Until(Time),
    /// A guess whose time is over: it holds nothing back.
    Over,
}

impl Hold {
    /// When a guess no longer holds others back.
    pub fn until(self) -> Option<Time> {
        match self {
            Self::Until(until) => Some(until),
            Self::UntilStart | Self::Unused | Self::Over => None,
        }
    }
}

/// A preemption that a plan decides: the victims, and the assignment of the gang that preempts them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preemption {
    /// The gangs to preempt. Empty when the capacity is already being released.
    pub victims: Vec<Victim>,
    /// The assignment of the preemptor. It is reserved from now on. The gang is admitted when the capacity is free.
    pub assignment: Assignment,
}

impl Preemption {
    /// The uids of the victims.
    pub fn victim_uids(&self) -> impl Iterator<Item = &str> {
        self.victims.iter().map(|victim| victim.uid.as_str())
    }
}

/// A gang that is preempted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Victim {
    /// The uid of the gang.
    pub uid: String,
    /// The rule that permits the preemption.
    pub reason: PreemptionReason,
}

/// The rule that permits a preemption. The last four are Kueue's preemption reasons.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum PreemptionReason {
    /// The preemptor has a higher priority, by the policy of the cluster ([`crate::PreemptionPolicy`]).
    #[default]
    Priority,
    /// Both gangs are charged to the same quota node, and the preemptor goes first there.
    InClusterQueue,
    /// The preemptor stays within the quota of its node, or of a subtree around it, and the victim's node borrows.
    InCohortReclamation,
    /// The preemptor's node has a smaller dominant share than the victim's node.
    InCohortFairSharing,
    /// Both nodes borrow, and the preemptor has the higher priority.
    InCohortReclaimWhileBorrowing,
}

/// The decision about a pending gang.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The gang is admitted: every pod has a node.
    Admit(Assignment),
    /// The gang gets this assignment after the victims are preempted.
    Preempt(Preemption),
    /// The gang does not fit now, but would fit if other gangs ended.
    Wait(Shortage),
    /// The gang does not fit even on empty nodes and unused quota.
    Never(Shortage),
}

impl Verdict {
    /// The assignment of a gang that is admitted, now or after preemption.
    pub fn assignment(&self) -> Option<&Assignment> {
        match self {
            Self::Admit(assignment) | Self::Preempt(Preemption { assignment, .. }) => Some(assignment),
            Self::Wait(_) | Self::Never(_) => None,
        }
    }

    /// The reasons why the gang is not admitted.
    pub fn shortage(&self) -> Option<&Shortage> {
        match self {
            Self::Admit(_) | Self::Preempt(_) => None,
            Self::Wait(shortage) | Self::Never(shortage) => Some(shortage),
        }
    }
}
