//! What pod sets ask of the topology of nodes: to be near each other in racks, blocks or hosts.
//!
//! A level of a topology is named by the key of a node label, and the nodes that have the same value of it, and of the
//! labels of all broader levels, are one domain. The request is Kueue's (`apis/kueue/v1beta2/workload_types.go`,
//! `PodSetTopologyRequest`, v0.19); how it is met is left to `planner`.

use std::fmt;

use crate::shortage::Basis;

/// How many layers of slices a pod set may ask for.
pub const SLICE_LAYERS_MAX: usize = 3;

/// What a pod set asks of the topology of its nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopologyRequest {
    /// How near all of its pods are to be to each other.
    pub mode: TopologyMode,
    /// Runs of pods that are each to be in one domain: the largest runs first, each layer within the one before it.
    pub slices: Vec<TopologySlice>,
}

/// How near to each other the pods of a set are to be.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TopologyMode {
    /// Anywhere, as long as the gaps that others leave are filled first. With slices: as near as may be.
    #[default]
    Unconstrained,
    /// In one domain of this level if that is possible, else of the next broader one; else in as few as may be.
    Preferred(String),
    /// In one domain of this level.
    Required(String),
}

/// Every so many pods are to be in one domain of a level.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopologySlice {
    /// How many pods.
    pub size: u32,
    /// The label key of the level.
    pub level: String,
}

/// Why a request makes no sense, so that no cluster could meet it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopologyError {
    /// It asks for more layers of slices than there may be.
    Layers(usize),
    /// The pods, or the runs of pods around it, are no multiple of a slice.
    Size {
        /// What is to be cut.
        whole: u32,
        /// Into slices of this size.
        slice: u32,
    },
    /// The level of a slice is not below the one around it.
    Order {
        /// The level around it.
        above: String,
        /// The level of the slice.
        level: String,
    },
    /// A group is more than a leader of one pod and its workers.
    Group(String),
}

/// Too few pods of a set find room near enough to each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopologyShortage {
    /// The pod set.
    pub pod_set: String,
    /// Its leader, which goes where it goes.
    pub leader: Option<String>,
    /// How many pods it has, without the leader.
    pub count: u32,
    /// For how many of them there is room, in the best domain if all have to be in one.
    pub room: u32,
    /// The level of which one domain has to hold all, and the best domain; none when no eligible node is in any.
    pub within: Option<(String, Option<String>)>,
    /// The slices: how many pods, in one domain of which level.
    pub slices: Vec<(u32, String)>,
    /// What that is measured on.
    pub basis: Basis,
}

impl TopologyRequest {
    /// The label keys of the levels that are asked for, the broadest first as far as the request tells; each once.
    pub fn keys(&self) -> Vec<&str> {
        let mode = match &self.mode {
            TopologyMode::Preferred(level) | TopologyMode::Required(level) => Some(level.as_str()),
            TopologyMode::Unconstrained => None,
        };
        let mut keys = Vec::new();
        for key in mode.into_iter().chain(self.slices.iter().map(|slice| slice.level.as_str())) {
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        keys
    }

    /// What is wrong with the request of a set of `count` pods in a topology of these levels, broadest first.
    pub fn fault(&self, count: u32, levels: &[String]) -> Option<TopologyError> {
        if self.slices.len() > SLICE_LAYERS_MAX {
            return Some(TopologyError::Layers(self.slices.len()));
        }
        let depth = |level: &str| levels.iter().position(|key| key == level);
        let mut whole = count;
        let mut above: Option<&str> = match &self.mode {
            TopologyMode::Required(level) => Some(level),
            TopologyMode::Preferred(_) | TopologyMode::Unconstrained => None,
        };
        for (at, TopologySlice { size, level }) in self.slices.iter().enumerate() {
            if *size == 0 || !whole.is_multiple_of(*size) {
                return Some(TopologyError::Size { whole, slice: *size });
            }
            let lower = above.is_none_or(|above| {
                depth(above) < depth(level) || (at == 0 && above == level) // One domain of the level holds all slices.
            });
            if !lower {
                return Some(TopologyError::Order {
                    above: above.unwrap_or_default().to_owned(),
                    level: level.clone(),
                });
            }
            (whole, above) = (*size, Some(level.as_str()));
        }
        None
    }
}

impl fmt::Display for TopologyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Layers(layers) => {
                write!(f, "asks for {layers} layers of slices, {SLICE_LAYERS_MAX} at most are possible")
            }
            Self::Size { whole, slice } => {
                write!(f, "{whole} pods cannot be divided into slices of {slice}")
            }
            Self::Order { above, level } => {
                write!(f, "asks for slices in {level}, which is not below {above}")
            }
            Self::Group(group) => {
                write!(f, "group {group} is more than a leader of one pod and one other pod set")
            }
        }
    }
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
