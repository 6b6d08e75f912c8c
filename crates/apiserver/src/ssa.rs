//! Server-side apply, and the tracking of `metadata.managedFields` for every other write.
//!
//! This module computes field ownership, merges an applied configuration into the live object and detects conflicts.
//! It follows KEP-555 and the behaviour of `kube-apiserver`. Decoding, defaulting, validation and the set of fields
//! that a subresource may write are the caller's.
//!
//! All versions of a kind are assumed to have the same fields, so field sets are never converted between versions.

#![allow(clippy::wildcard_enum_match_arm, reason = "the set of JSON value types is fixed")]

mod apply;
mod check;
mod compare;
mod managers;
mod objects;
mod reconcile;
mod set;
mod track;
mod walk;

use jiff::Timestamp;
use serde_json::{Value, json};

pub use self::apply::apply;
pub use self::track::track;
use crate::typeinfo::TypeInfo;

/// Parameters of a write that affect field ownership.
#[derive(Clone, Copy)]
pub struct Write<'a> {
    /// Name of the field manager: query parameter `fieldManager`, else [`manager_of_user_agent`].
    pub manager: &'a str,
    /// `apiVersion` of the request: group and version from the URL path.
    pub api_version: &'a str,
    /// Kind of the resource.
    pub kind: &'a str,
    /// Subresource of the request (`status`, `scale`, …).
    pub subresource: Option<&'a str>,
    /// Reset fields: paths that this write cannot change, so it never owns them. A write to the main resource resets
    /// `status` when the resource has a `status` subresource; a write to `status` resets `spec`.
    pub reset: &'a [&'a [&'a str]],
    /// Time of the write.
    pub now: Timestamp,
    /// Type of the object.
    pub types: &'a dyn TypeInfo,
}

/// A field that the apply changes and that another manager owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The other manager, formatted as in conflict messages: `"kubectl" using apps/v1`.
    pub manager: String,
    /// Path of the field: `.spec.replicas`.
    pub field: String,
}

/// Reason why an apply failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// Status 400, `BadRequest`.
    #[error("{0}")]
    BadRequest(String),
    /// Status 409, `Conflict`, with one cause of type `FieldManagerConflict` for each field ([`ApplyError::causes`]).
    #[error("{}", conflict_message(.0))]
    Conflicts(Vec<Conflict>),
    /// The configuration does not match the type of the object: status 500, without a reason.
    #[error("{0}")]
    Internal(String),
}

impl ApplyError {
    /// HTTP status code.
    pub fn code(&self) -> u16 {
        match self {
            Self::BadRequest(_) => 400,
            Self::Conflicts(_) => 409,
            Self::Internal(_) => 500,
        }
    }

    /// `reason` of the Status object; empty where kube-apiserver leaves it out.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::BadRequest(_) => "BadRequest",
            Self::Conflicts(_) => "Conflict",
            Self::Internal(_) => "",
        }
    }

    /// `details.causes` of the Status object.
    pub fn causes(&self) -> Vec<Value> {
        let Self::Conflicts(conflicts) = self else { return Vec::new() };
        conflicts
            .iter()
            .map(|conflict| {
                json!({
                    "reason": "FieldManagerConflict",
                    "message": format!("conflict with {}", conflict.manager),
                    "field": conflict.field,
                })
            })
            .collect()
    }
}

/// Formats the conflict message, grouped by manager. `conflicts` must be sorted by manager.
fn conflict_message(conflicts: &[Conflict]) -> String {
    if let [conflict] = conflicts {
        return format!(
            "Apply failed with 1 conflict: conflict with {}: {}",
            conflict.manager, conflict.field
        );
    }
    let mut lines = Vec::new();
    let mut manager = "";
    for conflict in conflicts {
        if conflict.manager != manager {
            manager = &conflict.manager;
            lines.push(format!("conflicts with {manager}:"));
        }
        lines.push(format!("- {}", conflict.field));
    }
    format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"))
}

/// Default field manager of a request without `fieldManager`: the `User-Agent` up to the first slash, without
/// unprintable characters, truncated to 128 bytes.
pub fn manager_of_user_agent(user_agent: &str) -> String {
    let mut manager = String::new();
    for letter in
        user_agent.split('/').next().unwrap_or_default().chars().filter(|letter| !letter.is_control())
    {
        if manager.len() + letter.len_utf8() > 128 {
            break;
        }
        manager.push(letter);
    }
    manager
}
