//! Topology requests of pod sets: pods in the same rack, block or host.
//!
//! A topology level is named by the key of a node label. Nodes with the same value of this label, and of the labels
//! of all broader levels, form one domain. The request is Kueue's (`apis/kueue/v1beta2/workload_types.go`,
//! `PodSetTopologyRequest`, v0.19). The `planner` crate satisfies it.

use std::fmt;

/// The maximum number of slice layers of a pod set.
pub const SLICE_LAYERS_MAX: usize = 3;

/// The topology request of a pod set.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopologyRequest {
    /// The constraint on all pods of the set.
    pub mode: TopologyMode,
    /// Slice layers from the largest slice to the smallest; each layer divides the one before it.
    pub slices: Vec<TopologySlice>,
}

/// The constraint on all pods of a set.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TopologyMode {
    /// Any domains; fragmented capacity is filled first. With slices: as few domains as possible.
    #[default]
    Unconstrained,
    /// One domain of this level if possible, else one domain of the next broader level, else as few domains as
    /// possible.
    Preferred(String),
    /// One domain of this level.
    Required(String),
}

/// Every `size` pods must be in one domain of the level.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopologySlice {
    /// The number of pods of a slice.
    pub size: u32,
    /// The label key of the level.
    pub level: String,
}

/// Why a topology request is invalid, so that no cluster can satisfy it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopologyError {
    /// It has more slice layers than supported.
    Layers(usize),
    /// The number of pods, or the size of the enclosing slice, is not a multiple of the slice size.
    Size {
        /// The number of pods to divide.
        whole: u32,
        /// The slice size.
        slice: u32,
    },
    /// The level of a slice is not below the enclosing level.
    Order {
        /// The enclosing level.
        above: String,
        /// The level of the slice.
        level: String,
    },
    /// A pod set group is more than a leader of one pod and its workers.
    Group(String),
}

impl TopologyRequest {
    /// The distinct label keys of the requested levels, in the order of the request, which is broadest first.
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

    /// Validates the request for a pod set of `count` pods in a topology of these levels, broadest first.
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
                // A single domain of the level may hold all slices.
                depth(above) < depth(level) || (at == 0 && above == level)
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
