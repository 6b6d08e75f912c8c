//! Why a promised start moved later: one enum of causes for all surfaces.

use std::fmt;

use crate::amount::Time;
use crate::gang::GangKey;

/// A promise of the last plan that this one does not keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slip {
    /// The uid of the gang that still waits.
    pub gang: String,
    /// The start that it was promised.
    pub from: Time,
    /// The start that it is promised now; none when it is promised no more.
    pub to: Option<Time>,
    /// Why.
    pub cause: SlipCause,
}

/// Why a promised start moved later. Who is admitted behind a promise is never a cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlipCause {
    /// A gang that holds places runs longer than it declared.
    Overran {
        /// That gang.
        gang: GangKey,
    },
    /// Nodes vanished or changed in what they are.
    Nodes {
        /// How many.
        nodes: u32,
    },
    /// A flavor, a node of a quota tree or a queue changed.
    Quota,
    /// A gang of a higher rank, which was promised nothing before, is given places or a start.
    Outranked {
        /// That gang.
        gang: GangKey,
    },
    /// A gang that holds places declares no end: what was promised was a guess.
    NoEnd {
        /// That gang.
        gang: GangKey,
    },
    /// None of these: room was taken that no plan gave away, or the rules changed.
    Unplanned,
}

/// How [`Slip::status_text`] begins.
const REMINDER: &str = "a start at ";

impl Slip {
    /// What the gang is told as long as it is so. Figures that change while nothing else does are left out.
    pub fn status_text(&self) -> String {
        format!("{REMINDER}{} was reserved, but {}", self.from, self.cause)
    }

    /// The reminder in a text that was made of a [`Wait`](crate::PendingStatus), if there is one.
    pub fn status_text_in(text: &str) -> Option<&str> {
        let (_, rest) = text.split_once(&format!("; {REMINDER}"))?;
        let end = rest.find(". ").unwrap_or(rest.len());
        let at = text.len() - rest.len();
        text.get(at - REMINDER.len()..at + end)
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
            Self::NoEnd { gang } => write!(f, "{gang} runs and declares no duration"),
            Self::Unplanned => {
                f.write_str("resources were taken outside any plan, or the configuration changed")
            }
        }
    }
}
