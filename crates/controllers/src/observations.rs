//! What reaches the loop: observations of watches, answers to questions, outcomes of writes.

use std::fmt;

use api::appwrapper::{AppWrapper, Group};
use api::quota::{self, QuotaSubtree};
use index::{Kind, wire};
use model::Forecast;

use crate::discovery::Resources;
use crate::execute::Outcome;
use crate::forbidden::ForbiddenRequest;

/// What one watch looks at.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Source {
    /// Nodes.
    Nodes,
    /// Pods of all namespaces.
    Pods,
    /// Custom resource definitions.
    Definitions,
    /// Wrappers of a group.
    Wrappers(Group),
    /// Parts of quota trees.
    Quotas(quota::Group),
    /// Objects of a kind that is wrapped, or made on the way to pods.
    Objects(Kind),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nodes => f.write_str("nodes"),
            Self::Pods => f.write_str("pods"),
            Self::Definitions => f.write_str("custom resource definitions"),
            Self::Wrappers(group) => f.write_str(&group.resource()),
            Self::Quotas(group) => f.write_str(&group.resource()),
            Self::Objects(kind) => write!(f, "objects of kind {kind}"),
        }
    }
}

/// One thing that became known.
#[derive(Debug)]
pub(crate) enum Observation {
    /// A node as it is.
    Node(wire::Node),
    /// A node is gone.
    NodeDeleted(String),
    /// A pod as it is.
    Pod(wire::Pod),
    /// A pod is gone.
    PodDeleted(String),
    /// A definition as it is.
    Definition(Box<wire::Definition>),
    /// The definition of this name is gone.
    DefinitionDeleted(String),
    /// A wrapper as it is.
    Wrapper(Group, Box<AppWrapper>),
    /// A wrapper is gone.
    WrapperDeleted(String),
    /// A part of a quota tree as it is.
    Quota(Box<QuotaSubtree>),
    /// A part of a quota tree is gone.
    QuotaDeleted(String),
    /// An object as it is.
    Object(Kind, wire::Object),
    /// An object is gone.
    ObjectDeleted(String),
    /// All that existed when a watch began has been reported.
    Synced(Source),
    /// A watch does not begin for want of a right, and which.
    WatchForbidden(Source, String),
    /// What a group and version serves.
    Discovered(String, Resources),
    /// When waiting gangs are expected to start.
    Forecast {
        /// What was seen.
        forecast: Box<Forecast>,
        /// How long not to look again, microseconds.
        pause_us: i64,
    },
    /// Pods of a wrapper, by uid, cannot be let go to the scheduler: a right is missing for that.
    UngateForbidden(String, Box<ForbiddenRequest>),
    /// A right is there that a wrapper was held for, by uid.
    PermissionGranted(String),
    /// A step of ours ended.
    StepDone(String, Box<Outcome>),
}
