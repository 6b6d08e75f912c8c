//! AppWrapper `v1beta1`: a custom resource that contains Kubernetes objects. They are created when all their pods fit.
//!
//! Field names and condition texts are those of MCAD, so that manifests and scripts for MCAD work unchanged.

mod canonical;
pub mod components;
mod crd;
mod legacy;
pub mod limits;
pub mod render;
pub mod spec;
pub mod status;
pub mod transition;

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;
use serde_json::Value;

pub(crate) use canonical::ray_cluster;
pub use crd::{Columns, add_components, definition};
pub use spec::{Item, Spec, SpecError};
pub use status::{Condition, QueuePlace, State, Status};

use crate::meta::{Meta, null_is_default};

/// API version, served and stored.
pub const VERSION: &str = "v1beta1";
/// Kind of the resource.
pub const KIND: &str = "AppWrapper";
/// Plural in URLs.
pub const PLURAL: &str = "appwrappers";
/// Tracking label: the name of the AppWrapper, on created objects and on the pods of templates that have labels.
pub const NAME_LABEL: &str = "appwrapper.mcad.ibm.com";
/// Label with the name of the created object.
pub const OBJECT_LABEL: &str = "resourceName";
/// Annotation on created objects: the assignment of their gang.
pub const ASSIGNMENT_ANNOTATION: &str = "muster.dev/assignment";

/// The two API groups under which the resource has been published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    /// `mcad.ibm.com`, until 2023.
    Mcad,
    /// `workload.codeflare.dev`, since 2023.
    Codeflare,
}

impl Group {
    /// All groups, oldest first.
    pub const ALL: [Self; 2] = [Self::Mcad, Self::Codeflare];

    /// Name of the group.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mcad => "mcad.ibm.com",
            Self::Codeflare => "workload.codeflare.dev",
        }
    }

    /// Group and version.
    pub fn api_version(self) -> String {
        format!("{}/{VERSION}", self.name())
    }

    /// Name of the CRD: the full name of the resource.
    pub fn resource(self) -> String {
        format!("{PLURAL}.{}", self.name())
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Group {
    type Err = GroupError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|group| group.name() == name).ok_or_else(|| GroupError(name.to_owned()))
    }
}

/// Whether a kind is that of AppWrappers. Anybody may call a kind of another group so.
pub fn is_wrapper(group: &str, kind: &str) -> bool {
    kind == KIND && Group::ALL.iter().any(|known| known.name() == group)
}

/// An unknown API group.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no AppWrapper group \"{0}\"; use mcad.ibm.com or workload.codeflare.dev")]
pub struct GroupError(pub String);

/// A watched AppWrapper. The spec is not decoded here, so that an invalid object does not fail the watch.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct AppWrapper {
    /// Metadata.
    #[serde(deserialize_with = "null_is_default")]
    pub metadata: Meta,
    /// Spec; [`Spec::read`] parses it.
    pub spec: Value,
    /// Status; default if it is invalid.
    #[serde(deserialize_with = "status::lenient")]
    pub status: Status,
}
