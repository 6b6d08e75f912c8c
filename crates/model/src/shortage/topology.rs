//! Why the topology request of a pod set cannot be satisfied.

use std::fmt;

use super::Basis;

/// The topology request of a pod set cannot be satisfied at present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopologyShortage {
    /// The pod set.
    pub pod_set: String,
    /// The leader, which goes to the same domain.
    pub leader: Option<String>,
    /// The number of pods, without the leader.
    pub count: u32,
    /// How many of them fit; in the best domain when all must be in one domain.
    pub room: u32,
    /// The level of which one domain must hold all pods, and its best domain. The domain is `None` when no eligible
    /// node is in a domain of this level.
    pub within: Option<(String, Option<String>)>,
    /// The slices: number of pods, and level of the domain.
    pub slices: Vec<(u32, String)>,
    /// Whether the figures refer to free or to empty nodes.
    pub basis: Basis,
}

impl fmt::Display for TopologyShortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pod_set, leader, count, room, within, slices, basis } = self;
        let together = leader.as_ref().map_or_else(String::new, |leader| format!(" with {leader}"));
        let empty = if *basis == Basis::Empty { " even when empty" } else { "" };
        match within {
            Some((level, None)) => return write!(f, "{pod_set}: no node that is eligible is in any {level}"),
            Some((level, Some(domain))) => {
                write!(
                    f,
                    "{pod_set}: no {level} has room for all {count} pods{together}{empty}; the best, {domain}, has room for {room}"
                )?;
            }
            None => write!(f, "{pod_set}: room for {room} of {count} pods{together}{empty}")?,
        }
        for (at, (size, level)) in slices.iter().enumerate() {
            let separator = if at == 0 { ", in slices of" } else { " and" };
            write!(f, "{separator} {size} within one {level}")?;
        }
        Ok(())
    }
}
