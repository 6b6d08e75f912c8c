//! Structural schemas of custom resources: what the server does to an object because of its CRD's `openAPIV3Schema`.
//!
//! Holds [`Structural`], which prunes, defaults and validates, and [`FieldError`], which all validation of this crate
//! speaks. Leaves to others the CRD object around the schema (`builtin`), and the types of built-in kinds (`openapi`).

mod cel;
mod checks;
mod error;
mod formats;
mod node;
mod shape;
mod uniqueness;
mod validate;
mod walk;

use serde_json::Value;

pub use self::error::{FieldError, FieldErrorKind, Path};
pub(crate) use self::error::{go_json, quote};
pub(crate) use self::formats::parse_rfc3339;
use self::node::Node;

/// Deepest nesting of a schema that is accepted, so that no walk exhausts the stack.
pub(crate) const DEPTH_MAX: usize = 100;

/// A schema that passed the structural checks, with its patterns and rules compiled.
#[derive(Debug)]
pub struct Structural {
    root: Node,
}

impl Structural {
    /// Reads the `openAPIV3Schema` of a CRD version.
    ///
    /// # Errors
    /// Every rule of structural schemas that it breaks, and every CEL rule that does not compile. Paths start at
    /// `spec.validation.openAPIV3Schema`, as those of a real server do for CRDs whose versions share one schema.
    pub fn parse(schema: &Value) -> Result<Self, Vec<FieldError>> {
        Self::parse_at(schema, "spec.validation.openAPIV3Schema")
    }

    /// As [`Structural::parse`], with `path` in front of the field of each error.
    pub fn parse_at(schema: &Value, path: &str) -> Result<Self, Vec<FieldError>> {
        let mut errors = Vec::new();
        let path = Path::Root(path);
        let mut root = Node::parse(schema, path, 0, &mut errors);
        // What is no structural schema at all is not judged as one.
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

    /// Removes fields that the schema does not know. `apiVersion`, `kind` and `metadata` of the object stay.
    ///
    /// Returns the paths of what was removed, sorted: `spec.foo`, `spec.list[0].bar`.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        walk::prune(&self.root, object)
    }

    /// Drops nulls where the schema allows none, then fills in defaults. For writes and for reads.
    pub fn default(&self, object: &mut Value) {
        walk::default(&self.root, object, true);
    }

    /// All errors of `new`: values, embedded resources, uniqueness in lists, and CEL rules (skipped, with an error
    /// that says so, when the object is too broken for them).
    ///
    /// With `old`, transition rules run, and what is unchanged is not judged again (ratcheting).
    pub fn validate(&self, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let mut errors = validate::validate(&self.root, new, old);
        errors.extend(uniqueness::validate(&self.root, new, old));
        if errors.iter().any(FieldError::blocks_rules) {
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

    /// Only the CEL rules (`x-kubernetes-validations`).
    pub fn validate_cel(&self, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
        cel::validate(&self.root, new, old)
    }

    /// Whether the schema declares the field at a simple path, such as `.spec.replicas`, and as a scalar.
    pub(crate) fn declares_scalar(&self, path: &str) -> bool {
        let names = path.trim_start_matches('.').split('.');
        let found = names.into_iter().try_fold(&self.root, |node, name| node.properties.get(name));
        found.is_some_and(|node| matches!(node.kind.as_str(), "string" | "boolean" | "integer"))
    }
}
