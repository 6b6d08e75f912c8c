//! Structural schemas of custom resources: pruning, defaulting and validation by the `openAPIV3Schema` of a CRD.
//!
//! This module contains [`Structural`], and re-exports [`FieldError`], the type of all validation errors of this crate.
//! Validation of the CRD object itself is in `builtin`; types of built-in kinds are in `openapi`.

pub(crate) mod cel;
mod checks;
mod formats;
mod node;
mod shape;
mod uniqueness;
mod validate;
mod walk;

use serde_json::Value;

use self::node::Node;
pub use crate::field_error::{FieldError, FieldErrorKind, Path};
use crate::field_error::{go_json, quote};

/// Maximum nesting depth of a schema, which bounds the recursion of all walks.
pub(crate) const DEPTH_MAX: usize = 100;

/// A schema that passed the structural checks, with its patterns and CEL rules compiled.
#[derive(Debug)]
pub struct Structural {
    root: Node,
}

impl Structural {
    /// Parses the `openAPIV3Schema` of a CRD version.
    ///
    /// # Errors
    /// All violations of the structural schema rules, and all CEL rules that do not compile. Field paths start at
    /// `spec.validation.openAPIV3Schema`, as in kube-apiserver for CRDs whose versions share one schema.
    pub fn parse(schema: &Value) -> Result<Self, Vec<FieldError>> {
        Self::parse_at(schema, "spec.validation.openAPIV3Schema")
    }

    /// Like [`Structural::parse`], with `path` as the prefix of all field paths.
    pub fn parse_at(schema: &Value, path: &str) -> Result<Self, Vec<FieldError>> {
        let mut errors = Vec::new();
        let path = Path::Root(path);
        let mut root = Node::parse(schema, path, 0, &mut errors);
        // The structural checks are skipped when the schema contains forbidden fields.
        if errors.iter().all(|error| error.reason != FieldErrorKind::Forbidden) {
            checks::check(&root, path, &mut errors);
        }
        if errors.is_empty() {
            validate::defaults(&root, path, &mut errors);
            cel::check_field_paths(&root, path, &mut errors);
        }
        if errors.is_empty() {
            cel::compile(&mut root, path, &mut errors);
        }
        if errors.is_empty() { Ok(Self { root }) } else { Err(errors) }
    }

    /// Removes fields that the schema does not specify. `apiVersion`, `kind` and `metadata` of the object are kept.
    ///
    /// Returns the sorted paths of the removed fields: `spec.foo`, `spec.list[0].bar`.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        walk::prune(&self.root, object)
    }

    /// Removes nulls of fields that are not nullable, then applies defaults. Runs on write and on read.
    pub fn default(&self, object: &mut Value) {
        walk::default(&self.root, object, true);
    }

    /// Validates `new`: values, embedded resources, list uniqueness and CEL rules. CEL rules are skipped, with an
    /// error that says so, when earlier errors make the object unsafe to evaluate.
    ///
    /// With `old`, transition rules run as well, and unchanged values are not validated again (ratcheting).
    pub fn validate(&self, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let mut errors = validate::validate(&self.root, new, old);
        errors.extend(uniqueness::validate(&self.root, new, old));
        if errors.iter().any(FieldError::blocks_cel_rules) {
            if cel::has_rules(&self.root) {
                errors.push(FieldError::invalid(
                    Path::Root(""),
                    Value::Null,
                    "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation",
                ));
            }
        } else {
            errors.extend(self.validate_cel(new, old));
        }
        errors
    }

    /// Runs only the CEL rules (`x-kubernetes-validations`).
    pub fn validate_cel(&self, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
        cel::validate(&self.root, new, old)
    }

    /// Whether the schema specifies a scalar at a simple path such as `.spec.replicas`.
    pub(crate) fn declares_scalar(&self, path: &str) -> bool {
        let names = path.trim_start_matches('.').split('.');
        let found = names.into_iter().try_fold(&self.root, |node, name| node.properties.get(name));
        found.is_some_and(|node| matches!(node.kind.as_str(), "string" | "boolean" | "integer"))
    }
}
