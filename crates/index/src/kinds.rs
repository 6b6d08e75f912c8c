//! Kinds of wrapped objects, with their state from discovery and watches.

use std::fmt;

/// A kind with its group and version, as in the `apiVersion` and `kind` of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind {
    /// Group and version, such as `ray.io/v1`, or `v1`.
    pub api_version: String,
    /// Kind.
    pub kind: String,
}

/// The state of a kind on this cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KindState {
    /// Discovery has not answered yet.
    Unknown,
    /// The cluster does not serve it.
    Missing,
    /// The kind is cluster-scoped, so an AppWrapper cannot contain it.
    ClusterScoped,
    /// The cluster serves it, and the controller watches it.
    Served {
        /// Name in URLs: the plural.
        plural: String,
        /// Whether the watch has synced.
        listed: bool,
    },
    /// The cluster serves it, but the controller has no permission to watch it.
    Forbidden {
        /// Name in URLs: the plural.
        plural: String,
        /// Names the missing permission.
        message: String,
    },
}

impl KindState {
    /// The name in URLs, if the cluster serves the kind and the kind is namespaced.
    pub fn plural(&self) -> Option<&str> {
        match self {
            Self::Served { plural, .. } | Self::Forbidden { plural, .. } => Some(plural),
            Self::Unknown | Self::Missing | Self::ClusterScoped => None,
        }
    }
}

impl Kind {
    /// A kind by `apiVersion` and `kind`.
    pub fn new(api_version: impl Into<String>, kind: impl Into<String>) -> Self {
        Self { api_version: api_version.into(), kind: kind.into() }
    }

    /// The group; empty for the core group.
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// The version.
    pub fn version(&self) -> &str {
        self.api_version.split_once('/').map_or(&self.api_version, |(_, version)| version)
    }

    /// Whether the pods of an object of this kind exist until the object ends. Not so for a `RayJob`, whose operator may
    /// delete the cluster, and for a bare pod.
    pub(crate) fn keeps_pods(&self) -> bool {
        !matches!((self.group(), self.kind.as_str()), ("ray.io", "RayJob") | ("", "Pod"))
    }

    /// The kinds of the objects that the operator of this kind creates between the object and its pods.
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
