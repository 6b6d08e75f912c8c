//! The kinds whose objects are queued, and objects of them that do not exist yet.

use api::appwrapper::{self, AppWrapper, Group};
use api::kueue::workload::{self, Workload};
use api::{Meta, MicroTime};
use index::{Index, KueueChange, KueueKind};
use serde_json::Value;

use crate::error::Error;

/// A kind whose objects are queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GangKind {
    /// The AppWrapper of a group.
    Wrapper(Group),
    /// Kueue's Workload.
    Workload,
}

impl GangKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Wrapper(Group::ALL[0]), Self::Wrapper(Group::ALL[1]), Self::Workload];

    /// Kind and plural.
    pub fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Wrapper(_) => (appwrapper::KIND, appwrapper::PLURAL),
            Self::Workload => KueueKind::Workload.resource(),
        }
    }

    /// Group and version in which its objects are read.
    pub fn api_version(self) -> String {
        match self {
            Self::Wrapper(group) => group.api_version(),
            Self::Workload => workload::API_VERSION.into(),
        }
    }

    /// Groups and versions in which its manifests are written.
    pub fn api_versions(self) -> Vec<String> {
        match self {
            Self::Wrapper(group) => vec![group.api_version()],
            Self::Workload => {
                let versions = [api::kueue::V1BETA2, api::kueue::V1BETA1];
                versions.map(|version| format!("{}/{version}", api::kueue::GROUP)).into()
            }
        }
    }

    /// The resource with its group, as in [`GangKey::kind`].
    pub fn resource(self) -> String {
        match self {
            Self::Wrapper(group) => group.resource(),
            Self::Workload => index::WORKLOADS.into(),
        }
    }

    /// The kind of a manifest.
    pub fn of(manifest: &Value) -> Option<Self> {
        let (version, kind) = (manifest["apiVersion"].as_str()?, manifest["kind"].as_str()?);
        let is_meant = |known: &Self| {
            known.names().0 == kind && known.api_versions().iter().any(|known| known == version)
        };
        Self::ALL.into_iter().find(is_meant)
    }
}

/// An object that does not exist yet, as the API server would store it.
#[derive(Debug)]
pub enum NewGang {
    /// An AppWrapper of a group.
    Wrapper(Group, Box<AppWrapper>),
    /// A Workload.
    Workload(Box<Workload>),
}

impl NewGang {
    /// Reads an object of any known version.
    ///
    /// # Errors
    /// The field that cannot be read.
    pub fn read(kind: GangKind, mut object: Value) -> Result<Self, String> {
        let text = |error: serde_json::Error| error.to_string();
        Ok(match kind {
            GangKind::Wrapper(group) => {
                Self::Wrapper(group, Box::new(serde_json::from_value(object).map_err(text)?))
            }
            GangKind::Workload => {
                api::kueue::convert(&mut object, workload::API_VERSION).map_err(|error| error.to_string())?;
                Self::Workload(Box::new(serde_json::from_value(object).map_err(text)?))
            }
        })
    }

    /// Its metadata.
    pub fn metadata(&mut self) -> &mut Meta {
        match self {
            Self::Wrapper(_, wrapper) => &mut wrapper.metadata,
            Self::Workload(workload) => &mut workload.metadata,
        }
    }

    /// Adds it to an index. An AppWrapper or Workload of the same name is an error.
    pub(in crate::controller) fn add_to(self, index: &mut Index, now: MicroTime) -> Result<(), Error> {
        check_is_new(index, &self)?;
        match self {
            Self::Wrapper(group, wrapper) => index.upsert_wrapper(group, *wrapper, now),
            Self::Workload(mut workload) => {
                workload.spec.priority = index.class_priority(&workload).unwrap_or(workload.spec.priority);
                index.apply_kueue(KueueChange::Workload(workload));
            }
        }
        Ok(())
    }
}

/// Refuses an object whose name is taken.
fn check_is_new(index: &Index, gang: &NewGang) -> Result<(), Error> {
    let is_taken = match gang {
        NewGang::Wrapper(group, wrapper) => index.wrappers().any(|other| {
            let meta = &wrapper.metadata;
            (other.key.group, &other.key.namespace, &other.key.name) == (*group, &meta.namespace, &meta.name)
        }),
        NewGang::Workload(workload) => {
            let meta = &workload.metadata;
            index.workload_named(&meta.namespace, &meta.name).is_some()
        }
    };
    if !is_taken {
        return Ok(());
    }
    let (kind, name) = match gang {
        NewGang::Wrapper(group, wrapper) => (GangKind::Wrapper(*group), &wrapper.metadata.name),
        NewGang::Workload(workload) => (GangKind::Workload, &workload.metadata.name),
    };
    Err(Error::Exists(format!("{} {name:?} exists already or is given twice", kind.resource())))
}
