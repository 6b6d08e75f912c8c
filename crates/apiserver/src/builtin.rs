//! What the server itself knows of built-in kinds: defaults on write, and rules.
//!
//! Holds the two entry points. Leaves metadata, status and generation, which all kinds share, to the strategies, and
//! types to `openapi`.

pub(crate) mod labels;

use serde_json::Value;

use crate::schema::FieldError;

/// A group, version and kind; the core group is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gvk<'a> {
    /// Such as `apps`.
    pub group: &'a str,
    /// Such as `v1`.
    pub version: &'a str,
    /// Such as `Deployment`.
    pub kind: &'a str,
}

/// Fills in defaults. `old` is the object that is updated, if any.
pub fn prepare(gvk: Gvk<'_>, new: &mut Value, old: Option<&Value>) {
    let _ = (gvk, new, old);
}

/// Errors of `new`, and of what changed from `old`.
pub fn validate(gvk: Gvk<'_>, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let _ = (gvk, new, old);
    Vec::new()
}
