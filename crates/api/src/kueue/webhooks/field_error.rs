//! An invalid field, with the texts of Kubernetes.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

/// The text of a change of an immutable field.
pub(super) const IMMUTABLE: &str = "field is immutable";

/// One rule that an object breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// Path of the field, such as `spec.resourceGroups[0].flavors[1].name`.
    pub field: String,
    /// Kind of the error.
    pub reason: Reason,
    /// Kind, value and detail, as kubectl prints them after the path.
    pub message: String,
}

/// Kinds of errors (`k8s.io/apimachinery/pkg/util/validation/field`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// A required value is missing.
    Required,
    /// The value breaks a rule.
    Invalid,
    /// The value is none of the supported ones.
    NotSupported,
    /// A value that must be unique occurs twice.
    Duplicate,
    /// The value is not allowed here.
    Forbidden,
    /// The text is too long.
    TooLong,
    /// The list is too long.
    TooMany,
    /// The value refers to something that does not exist.
    NotFound,
}

impl Reason {
    /// The `reason` of a cause in a `Status`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::NotFound => "FieldValueNotFound",
        }
    }

    fn label(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Invalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Duplicate => "Duplicate value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::NotFound => "Not found",
        }
    }
}

impl FieldError {
    fn new(reason: Reason, field: &str, value: Option<&Value>, detail: &str) -> Self {
        let mut message = reason.label().to_owned();
        if let Some(value) = value {
            message.push_str(": ");
            message.push_str(&value.to_string());
        }
        if !detail.is_empty() {
            message.push_str(": ");
            message.push_str(detail);
        }
        Self { field: field.to_owned(), reason, message }
    }

    /// `Required value: detail`.
    pub(super) fn required(field: &str, detail: &str) -> Self {
        Self::new(Reason::Required, field, None, detail)
    }

    /// `Forbidden: detail`.
    pub(super) fn forbidden(field: &str, detail: &str) -> Self {
        Self::new(Reason::Forbidden, field, None, detail)
    }

    /// `Invalid value: value: detail`.
    pub(super) fn invalid(field: &str, value: impl Into<Value>, detail: &str) -> Self {
        Self::new(Reason::Invalid, field, Some(&value.into()), detail)
    }

    /// `Invalid value: detail`, for a value that is too large to be named.
    pub(super) fn invalid_whole(field: &str, detail: &str) -> Self {
        Self::new(Reason::Invalid, field, None, detail)
    }

    /// `Too many: count: must have at most max items`.
    pub(super) fn too_many(field: &str, count: usize, max: usize) -> Self {
        Self::new(Reason::TooMany, field, Some(&count.into()), &format!("must have at most {max} items"))
    }

    /// `Duplicate value: value: detail`.
    pub(super) fn duplicate(field: &str, value: impl Into<Value>, detail: &str) -> Self {
        Self::new(Reason::Duplicate, field, Some(&value.into()), detail)
    }

    /// `Not found: value`.
    pub(super) fn not_found(field: &str, value: impl Into<Value>) -> Self {
        Self::new(Reason::NotFound, field, Some(&value.into()), "")
    }

    /// `Unsupported value: value: supported values: "a", "b"`.
    pub(super) fn not_supported<'a>(
        field: &str,
        value: impl Into<Value>,
        supported: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let quoted: Vec<String> = supported.into_iter().map(|one| Value::from(one).to_string()).collect();
        let detail = if quoted.is_empty() {
            String::new()
        } else {
            format!("supported values: {}", quoted.join(", "))
        };
        Self::new(Reason::NotSupported, field, Some(&value.into()), &detail)
    }

    /// `Too long: may not be more than max bytes`.
    pub(super) fn too_long(field: &str, max: usize) -> Self {
        Self::new(Reason::TooLong, field, None, &format!("may not be more than {max} bytes"))
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

/// The text of several errors, as Kueue's webhooks return it: equal errors once, more than one in brackets.
pub fn aggregate(errors: &[FieldError]) -> String {
    let mut seen = BTreeSet::new();
    let texts = errors.iter().map(ToString::to_string);
    let texts: Vec<String> = texts.filter(|text| seen.insert(text.clone())).collect();
    if let [one] = texts.as_slice() { one.clone() } else { format!("[{}]", texts.join(", ")) }
}
