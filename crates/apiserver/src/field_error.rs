//! Field validation errors, in the format of Kubernetes.
//!
//! This module contains [`FieldError`], its kinds, and [`Path`], which allocates only when an error is formatted. The
//! `Status` object that carries the errors as causes is built elsewhere.

use std::fmt::{self, Write as _};

use serde_json::Value;

/// One invalid field. Becomes one cause of a 422 `Status`; `reason`, `message` and `field` are those of the cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// Path from the root of the object, such as `spec.containers[0].name`; `<nil>` if the error is about the whole
    /// object.
    pub field: String,
    /// Kind of the error.
    pub reason: FieldErrorKind,
    /// Label of the kind, the invalid value and the detail, as kubectl prints them after the field.
    pub message: String,
}

/// Kinds of field errors (`k8s.io/apimachinery/pkg/util/validation/field`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FieldErrorKind {
    /// A required field is missing.
    Required,
    /// The value is malformed or violates a rule.
    Invalid,
    /// The value has the wrong JSON type.
    TypeInvalid,
    /// The value is not one of the supported values.
    NotSupported,
    /// A value that must be unique occurs twice.
    Duplicate,
    /// The value is well-formed but not allowed here.
    Forbidden,
    /// The string is too long.
    TooLong,
    /// The list or map has too many entries.
    TooMany,
    /// The value refers to something that does not exist.
    NotFound,
    /// The check itself failed.
    Internal,
}

impl FieldErrorKind {
    /// The `reason` of the cause.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::NotFound => "FieldValueNotFound",
            Self::Internal => "InternalError",
        }
    }

    /// The label at the beginning of the message.
    fn label(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Duplicate => "Duplicate value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::NotFound => "Not found",
            Self::Internal => "Internal error",
        }
    }
}

impl FieldError {
    fn without_value(reason: FieldErrorKind, field: impl fmt::Display, detail: &str) -> Self {
        let separator = if detail.is_empty() { "" } else { ": " };
        Self { field: name_of(&field), reason, message: format!("{}{separator}{detail}", reason.label()) }
    }

    fn with_value(reason: FieldErrorKind, field: impl fmt::Display, value: &Value, detail: &str) -> Self {
        Self::printed(reason, field, &printed(value), detail)
    }

    /// `Required value: detail`.
    pub fn required(field: impl fmt::Display, detail: &str) -> Self {
        Self::without_value(FieldErrorKind::Required, field, detail)
    }

    /// `Forbidden: detail`.
    pub fn forbidden(field: impl fmt::Display, detail: &str) -> Self {
        Self::without_value(FieldErrorKind::Forbidden, field, detail)
    }

    /// `Internal error: detail`.
    pub fn internal(field: impl fmt::Display, detail: &str) -> Self {
        Self::without_value(FieldErrorKind::Internal, field, detail)
    }

    /// `Invalid value: value: detail`.
    pub fn invalid(field: impl fmt::Display, value: impl Into<Value>, detail: &str) -> Self {
        Self::with_value(FieldErrorKind::Invalid, field, &value.into(), detail)
    }

    /// An error with a value that the caller formats, for values that Go prints as structs with their own field
    /// order.
    pub(crate) fn printed(
        reason: FieldErrorKind,
        field: impl fmt::Display,
        value: &str,
        detail: &str,
    ) -> Self {
        let separator = if detail.is_empty() { "" } else { ": " };
        Self {
            field: name_of(&field),
            reason,
            message: format!("{}: {value}{separator}{detail}", reason.label()),
        }
    }

    /// `Invalid value: detail`, for values that are too large to print.
    pub fn invalid_omitted(field: impl fmt::Display, detail: &str) -> Self {
        Self::without_value(FieldErrorKind::Invalid, field, detail)
    }

    /// `Invalid value: value: detail`, for a wrong JSON type.
    pub fn type_invalid(field: impl fmt::Display, value: impl Into<Value>, detail: &str) -> Self {
        Self::with_value(FieldErrorKind::TypeInvalid, field, &value.into(), detail)
    }

    /// `Unsupported value: value: supported values: "a", "b"`.
    pub fn not_supported<S: AsRef<str>>(
        field: impl fmt::Display,
        value: impl Into<Value>,
        supported: &[S],
    ) -> Self {
        let quoted: Vec<String> = supported.iter().map(|one| quote(one.as_ref())).collect();
        let detail = if quoted.is_empty() {
            String::new()
        } else {
            format!("supported values: {}", quoted.join(", "))
        };
        Self::with_value(FieldErrorKind::NotSupported, field, &value.into(), &detail)
    }

    /// `Duplicate value: value`.
    pub fn duplicate(field: impl fmt::Display, value: impl Into<Value>) -> Self {
        Self::with_value(FieldErrorKind::Duplicate, field, &value.into(), "")
    }

    /// `Duplicate value`, for values that are too large to print.
    pub fn duplicate_omitted(field: impl fmt::Display) -> Self {
        Self::without_value(FieldErrorKind::Duplicate, field, "")
    }

    /// `Not found: value`.
    pub fn not_found(field: impl fmt::Display, value: impl Into<Value>) -> Self {
        Self::with_value(FieldErrorKind::NotFound, field, &value.into(), "")
    }

    /// `Too long: may not be more than max bytes`.
    pub fn too_long(field: impl fmt::Display, max: i64) -> Self {
        let unit = if max == 1 { "byte" } else { "bytes" };
        Self::without_value(FieldErrorKind::TooLong, field, &format!("may not be more than {max} {unit}"))
    }

    /// `Too many: actual: must have at most max items`.
    pub fn too_many(field: impl fmt::Display, actual: usize, max: i64) -> Self {
        let unit = if max == 1 { "item" } else { "items" };
        Self::with_value(
            FieldErrorKind::TooMany,
            field,
            &Value::from(actual),
            &format!("must have at most {max} {unit}"),
        )
    }

    /// Whether an error of this kind prevents the evaluation of CEL rules.
    pub(crate) fn blocks_cel_rules(&self) -> bool {
        matches!(
            self.reason,
            FieldErrorKind::NotSupported
                | FieldErrorKind::Required
                | FieldErrorKind::TooLong
                | FieldErrorKind::TooMany
                | FieldErrorKind::TypeInvalid
        )
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

fn name_of(field: &impl fmt::Display) -> String {
    let name = field.to_string();
    if name.is_empty() { "<nil>".to_owned() } else { name }
}

fn printed(value: &Value) -> String {
    if let Value::String(text) = value { quote(text) } else { go_json(value) }
}

/// JSON as Go's encoder writes it, with HTML characters escaped.
pub(crate) fn go_json(value: &Value) -> String {
    value.to_string().replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

/// Quotes like Go's `%q`.
pub(crate) fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            c if u32::from(c) < 0x20 || u32::from(c) == 0x7f => {
                write!(quoted, "\\x{:02x}", u32::from(c)).expect("writing to a string does not fail");
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// Path of a value in an object. It borrows its parent, so extending a path does not allocate.
#[derive(Clone, Copy, Debug)]
pub enum Path<'a> {
    /// The object itself, or a prefix given as text (may be empty).
    Root(&'a str),
    /// A field: `.name`.
    Child(&'a Path<'a>, &'a str),
    /// An item of a list: `[3]`.
    Index(&'a Path<'a>, usize),
    /// An entry of a map: `[key]`.
    Key(&'a Path<'a>, &'a str),
}

impl<'a> Path<'a> {
    /// The path of the field `name`.
    #[must_use]
    pub fn child(&'a self, name: &'a str) -> Path<'a> {
        Path::Child(self, name)
    }

    /// The path of item `index`.
    #[must_use]
    pub fn index(&'a self, index: usize) -> Path<'a> {
        Path::Index(self, index)
    }

    /// The path of entry `key`.
    #[must_use]
    pub fn key(&'a self, key: &'a str) -> Path<'a> {
        Path::Key(self, key)
    }

    fn is_empty(&self) -> bool {
        matches!(self, Path::Root(""))
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Root(name) => f.write_str(name),
            Path::Child(parent, name) if parent.is_empty() => f.write_str(name),
            Path::Child(parent, name) => write!(f, "{parent}.{name}"),
            Path::Index(parent, index) => write!(f, "{parent}[{index}]"),
            Path::Key(parent, key) => write!(f, "{parent}[{key}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn field_errors_are_formatted_as_in_kubernetes() {
        let root = Path::Root("");
        let spec = root.child("spec");
        let list = spec.child("ports");
        for (error, printed) in [
            (FieldError::required(list.index(2), ""), "spec.ports[2]: Required value"),
            (FieldError::required(list.index(2), "need it"), "spec.ports[2]: Required value: need it"),
            (FieldError::invalid(spec.key("a/b"), "x\"y", "no"), r#"spec[a/b]: Invalid value: "x\"y": no"#),
            (FieldError::invalid(spec, json!({"a": 1}), ""), r#"spec: Invalid value: {"a":1}"#),
            (
                FieldError::not_supported(spec, "a", &["b", "c"]),
                r#"spec: Unsupported value: "a": supported values: "b", "c""#,
            ),
            (FieldError::too_long(spec, 1), "spec: Too long: may not be more than 1 byte"),
            (FieldError::too_many(spec, 3, 2), "spec: Too many: 3: must have at most 2 items"),
            (FieldError::invalid(root, Value::Null, "rules"), "<nil>: Invalid value: null: rules"),
        ] {
            assert_eq!(error.to_string(), printed);
        }
    }
}
