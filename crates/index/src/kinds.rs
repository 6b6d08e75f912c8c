//! Kinds of wrapped objects, and what is known about them on this cluster.

use std::fmt;

/// A kind in a group and version, as objects name it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind {
    /// Group and version, such as `ray.io/v1`, or `v1`.
    pub api_version: String,
    /// Kind.
    pub kind: String,
}

/// What is known about a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KindState {
    /// Nothing yet.
    Unknown,
    /// The cluster does not serve it.
    Missing,
    /// Objects belong to no namespace, so no wrapper may hold them.
    ClusterScoped,
    /// Objects can be created.
    Served {
        /// Name in URLs.
        plural: String,
        /// Whether all existing objects of wrappers have been seen.
        listed: bool,
    },
    /// Objects exist or could, but may not be looked at.
    Barred {
        /// Name in URLs.
        plural: String,
        /// Which right is missing.
        why: String,
    },
}

impl KindState {
    /// The name in URLs of a kind that is served in namespaces.
    pub fn plural(&self) -> Option<&str> {
        match self {
            Self::Served { plural, .. } | Self::Barred { plural, .. } => Some(plural),
            Self::Unknown | Self::Missing | Self::ClusterScoped => None,
        }
    }
}

impl Kind {
    /// The kind that an object names.
    pub fn new(api_version: impl Into<String>, kind: impl Into<String>) -> Self {
        Self { api_version: api_version.into(), kind: kind.into() }
    }

    /// Group, empty for the core.
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// Version within the group.
    pub fn version(&self) -> &str {
        self.api_version.split_once('/').map_or(&self.api_version, |(_, version)| version)
    }

    /// Kinds of objects that the operator of this kind makes on the way to pods.
    pub fn children(&self) -> Vec<Self> {
        match (self.group(), self.kind.as_str()) {
            ("apps", "Deployment") => vec![Self::new(&self.api_version, "ReplicaSet")],
            ("ray.io", "RayJob") => {
                vec![Self::new(&self.api_version, "RayCluster"), Self::new("batch/v1", "Job")]
            }
            ("ray.io", "RayService") => vec![Self::new(&self.api_version, "RayCluster")],
            ("jobset.x-k8s.io", "JobSet") => vec![Self::new("batch/v1", "Job")],
            _ => Vec::new(),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {}", self.kind, self.api_version)
    }
}
