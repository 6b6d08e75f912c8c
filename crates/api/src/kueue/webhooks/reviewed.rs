//! The kinds of jobs with webhooks: those with a controller, and sets of pods that only the webhooks know.

use crate::kueue::jobs::pods::DEPLOYMENT;
use crate::kueue::jobs::{JOB_KINDS, JobKind};
use crate::wrapped_kinds::group;

/// A kind of jobs with webhooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReviewedKind {
    /// Its name in `integrations.frameworks`.
    pub framework: &'static str,
    /// Group and version.
    pub api_version: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// Name of the resource.
    pub plural: &'static str,
}

/// Sets of pods without a controller of their own. They hold back their pods, which wait for Workloads one by one.
const SETS: [ReviewedKind; 1] = [ReviewedKind {
    framework: DEPLOYMENT,
    api_version: "apps/v1",
    kind: "Deployment",
    plural: "deployments",
}];

impl ReviewedKind {
    /// All kinds.
    pub fn all() -> impl Iterator<Item = Self> {
        let of_job = |kind: &JobKind| Self {
            framework: kind.framework,
            api_version: kind.api_version,
            kind: kind.kind,
            plural: kind.plural,
        };
        JOB_KINDS.iter().map(of_job).chain(SETS)
    }

    /// The kind with this name in `integrations.frameworks`.
    pub fn of_framework(name: &str) -> Option<Self> {
        Self::all().find(|kind| kind.framework == name)
    }

    /// The group; empty for the core group.
    pub fn group(&self) -> &'static str {
        group(self.api_version)
    }

    /// The version.
    pub fn version(&self) -> &'static str {
        self.api_version.rsplit('/').next().unwrap_or_default()
    }

    /// Whether its jobs are pods.
    pub fn is_pod(&self) -> bool {
        self.plural == "pods"
    }

    /// Whether its objects hold back their pods. They get defaults at changes, too, because their templates may change.
    pub fn is_set_of_pods(&self) -> bool {
        SETS.contains(self) || JobKind::of_framework(self.framework).is_some_and(JobKind::is_set_of_pods)
    }

    /// Whether an owner reference names an object of this kind, in any version.
    pub(super) fn is_kind_of(&self, api_version: &str, kind: &str) -> bool {
        kind == self.kind && group(api_version) == self.group()
    }
}
