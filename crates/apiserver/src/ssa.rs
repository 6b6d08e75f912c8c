//! Server-side apply, and the upkeep of `metadata.managedFields` by every other write.
//!
//! Holds who owns which field, how a configuration is merged into an object, and when that is a conflict. Follows
//! KEP-555 and the behaviour of `kube-apiserver`. Leaves to others: decoding, defaulting, validation, and the choice
//! of what a subresource may write.
//!
//! All versions of a kind are taken to have the same fields.

#![allow(clippy::wildcard_enum_match_arm, reason = "JSON has six kinds of values, and gets no seventh")]

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

/// Circumstances of a write.
#[derive(Clone, Copy)]
pub struct Write<'a> {
    /// Who writes: query parameter `fieldManager`, else [`manager_of_user_agent`].
    pub manager: &'a str,
    /// `apiVersion` of the request: the group and version of its path.
    pub api_version: &'a str,
    /// Kind of the resource.
    pub kind: &'a str,
    /// Subresource through which the object is written (`status`, `scale`, …).
    pub subresource: Option<&'a str>,
    /// Fields that this write cannot change, as paths: `status` for the main resource if that has a subresource
    /// `status`, `spec` for the latter. Nobody gets to own them by this write.
    pub reset: &'a [&'a [&'a str]],
    /// Time of the write.
    pub now: Timestamp,
    /// Type of the object.
    pub types: &'a dyn TypeInfo,
}

/// One field that somebody else owns with another value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The owner as messages show it, quoted: `"kubectl" using apps/v1`.
    pub manager: String,
    /// The field: `.spec.replicas`.
    pub field: String,
}

/// Why a configuration was not applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// Status 400, `BadRequest`.
    #[error("{0}")]
    BadRequest(String),
    /// Status 409, `Conflict`, one cause of type `FieldManagerConflict` each ([`ApplyError::causes`]).
    #[error("{}", conflict_message(.0))]
    Conflicts(Vec<Conflict>),
    /// The configuration does not fit the type: status 500, without a reason.
    #[error("{0}")]
    Internal(String),
}

impl ApplyError {
    /// HTTP status.
    pub fn code(&self) -> u16 {
        match self {
            Self::BadRequest(_) => 400,
            Self::Conflicts(_) => 409,
            Self::Internal(_) => 500,
        }
    }

    /// `reason` of the Status object, empty where upstream leaves it out.
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

/// Lists conflicts by manager. `conflicts` are in that order.
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

/// The manager of a request that names none: its `User-Agent` up to the first slash, without what cannot be printed,
/// at most 128 bytes.
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
