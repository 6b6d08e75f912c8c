//! What the server itself knows of built-in kinds: defaults on write, and rules.
//!
//! Holds the two entry points. Leaves metadata and status, which all kinds share, to the strategies, types to
//! `openapi`, and what needs other objects (priority classes, service accounts, allocation of addresses) to admission.

mod defaults;
mod fields;
pub(crate) mod labels;
mod rules;

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

/// Fills in the defaults that a real server does when an object is written.
///
/// `new` has been decoded by its type. `old` is the object that is updated, if any. Repeating it changes nothing.
pub fn prepare(gvk: Gvk<'_>, new: &mut Value, old: Option<&Value>) {
    defaults::prepare(gvk, new, old);
}

/// Adds to a new object what admission and strategies add, and nobody owns: finalizers of namespaces, selectors of
/// jobs, tolerations and the first status of pods. Its metadata is complete: the uid and the name are used.
pub fn generate(gvk: Gvk<'_>, new: &mut Value) {
    defaults::generate(gvk, new);
}

/// Errors of `new`, and of what changed from `old`. Leaves `metadata` to the caller, up to what a kind demands of it.
pub fn validate(gvk: Gvk<'_>, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    rules::check(gvk, new, old, &mut errors);
    errors
}
