//! AppWrapper `v1beta1`: a queue in front of any Kubernetes objects, created only when all their pods have a place.
//!
//! Field names and texts of conditions are those of MCAD, so that its users' files and scripts keep working.

mod canonical;
mod crd;
mod legacy;
pub mod render;
pub mod spec;
pub mod status;
pub mod transition;

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;
use serde_json::Value;

pub(crate) use canonical::{ray_cluster, ray_cluster_mut};
pub use crd::definition;
pub use spec::{Item, Spec, SpecError};
pub use status::{Condition, State, Status};

use crate::meta::{Meta, null_is_default};

/// Version that is served and stored.
pub const VERSION: &str = "v1beta1";
/// Kind of the resource.
pub const KIND: &str = "AppWrapper";
/// Plural in URLs.
pub const PLURAL: &str = "appwrappers";
/// Label that ties created objects, and the pods of templates that carry labels, to their wrapper's name.
pub const NAME_LABEL: &str = "appwrapper.mcad.ibm.com";
/// Label with the name of the created object itself.
pub const OBJECT_LABEL: &str = "resourceName";
/// Annotation on created objects: where the plan placed their gang.
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
    /// Both, oldest first.
    pub const ALL: [Self; 2] = [Self::Mcad, Self::Codeflare];

    /// Name as in `apiVersion`.
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

    /// Name of the custom resource definition, which is also how people name the resource in full.
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

/// A group that holds no AppWrapper.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no AppWrapper group \"{0}\"; use mcad.ibm.com or workload.codeflare.dev")]
pub struct GroupError(pub String);

/// An AppWrapper as observed. The specification stays untyped here, so that no odd object can stop a watch.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct AppWrapper {
    /// Metadata.
    #[serde(deserialize_with = "null_is_default")]
    pub metadata: Meta,
    /// Specification; [`Spec::read`] interprets it.
    pub spec: Value,
    /// Status, as far as it can be read.
    #[serde(deserialize_with = "status::lenient")]
    pub status: Status,
}
