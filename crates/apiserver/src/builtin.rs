//! Defaulting and validation of built-in kinds.
//!
//! This module contains the entry points. Metadata and status, which all kinds have in common, are handled by the
//! strategies; types are in `openapi`. Defaults and rules that depend on other objects (priority classes, service
//! accounts, allocation of addresses) are handled by admission.

mod defaults;
mod fields;
pub(crate) mod pod_amounts;
mod rules;

use serde_json::Value;

use crate::field_error::FieldError;

/// Group, version and kind. The core group is the empty string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gvk<'a> {
    /// Such as `apps`.
    pub group: &'a str,
    /// Such as `v1`.
    pub version: &'a str,
    /// Such as `Deployment`.
    pub kind: &'a str,
}

/// Applies the defaults that kube-apiserver applies on write.
///
/// `new` has been decoded by its type. `old` is the previous version on update. The function is idempotent.
pub fn prepare(gvk: Gvk<'_>, new: &mut Value, old: Option<&Value>) {
    defaults::prepare(gvk, new, old);
}

/// Sets the fields that admission and the create strategies set on a new object, without an owning manager:
/// finalizers of namespaces, selectors of jobs, tolerations and the initial status of pods. Name and uid must already
/// be set.
pub fn generate(gvk: Gvk<'_>, new: &mut Value) {
    defaults::generate(gvk, new);
}

/// Validates `new` and the changes from `old`. The caller validates `metadata`, except for the rules of individual
/// kinds.
pub fn validate(gvk: Gvk<'_>, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    rules::check(gvk, new, old, &mut errors);
    errors
}
