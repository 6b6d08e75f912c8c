//! Reservations that moved to a later start, with one enum of causes for status, events, command line and dashboard.

use std::fmt;

use crate::amount::Time;
use crate::gang_key::GangKey;

/// A reservation of the previous plan that the new plan moves to a later start or drops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slip {
    /// The uid of the pending gang.
    pub gang: String,
    /// The start that was reserved.
    pub from: Time,
    /// The new reserved start. `None` when the gang has no reservation any more.
    pub to: Option<Time>,
    /// The cause.
    pub cause: SlipCause,
}

/// Why a reserved start moved to a later time. A gang that is admitted behind the reservation is never the cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlipCause {
    /// A gang that holds capacity runs longer than declared.
    Overran {
        /// The gang.
        gang: GangKey,
    },
    /// Nodes were deleted or changed.
    Nodes {
        /// The number of nodes.
        nodes: u32,
    },
    /// A flavor, a node of a quota tree or a queue changed.
    Quota,
    /// A gang that is ahead in the order starts or is reserved a start, and had none or a later one. Or it has the same one, and other nodes
    /// than before, because a gang that overran has ended at another time than was guessed.
    Outranked {
        /// The gang.
        gang: GangKey,
    },
    /// A gang that is ahead in the order starts, or is reserved a start, later than it was reserved.
    Delayed {
        /// The gang.
        gang: GangKey,
    },
    /// A gang that holds capacity declares no run time, so the reserved start was an estimate.
    NoEnd {
        /// The gang.
        gang: GangKey,
    },
    /// None of the other causes: capacity was taken outside of any plan, or the policy changed.
    Unplanned,
}

/// The prefix of [`Slip::status_text`].
const STATUS_PREFIX: &str = "a start at ";

impl Slip {
    /// The text in the status of the gang while the slip holds. It omits figures that change while nothing else
    /// changes.
    pub fn status_text(&self) -> String {
        format!("{STATUS_PREFIX}{} was reserved, but {}", self.from, self.cause)
    }

    /// Finds the text of [`Slip::status_text`] in a text that was made from a
    /// [`PendingStatus`](crate::PendingStatus).
    pub fn status_text_in(text: &str) -> Option<&str> {
        let (_, rest) = text.split_once(&format!("; {STATUS_PREFIX}"))?;
        let end = rest.find(". ").unwrap_or(rest.len());
        let at = text.len() - rest.len();
        text.get(at - STATUS_PREFIX.len()..at + end)
    }
}

impl fmt::Display for Slip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to, cause, .. } = self;
        match to {
            Some(to) => write!(f, "the reserved start moved from {from} to {to}: {cause}"),
            None => write!(f, "the reserved start at {from} was dropped: {cause}"),
        }
    }
}

impl fmt::Display for SlipCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overran { gang } => write!(f, "{gang} runs longer than it declared"),
            Self::Nodes { nodes: 1 } => f.write_str("1 node vanished or changed"),
            Self::Nodes { nodes } => write!(f, "{nodes} nodes vanished or changed"),
            Self::Quota => f.write_str("queues, flavors or quota changed"),
            Self::Outranked { gang } => write!(f, "{gang} goes first"),
            Self::Delayed { gang } => write!(f, "{gang} goes first, and starts later than it was reserved"),
            Self::NoEnd { gang } => write!(f, "{gang} runs and declares no duration"),
            Self::Unplanned => {
                f.write_str("resources were taken outside any plan, or the configuration changed")
            }
        }
    }
}
