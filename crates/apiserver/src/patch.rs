//! JSON patch, JSON merge patch and strategic merge patch.
//!
//! This module applies patches to documents and classifies their errors. Server-side apply is in `ssa`. Decoding of
//! request bodies, and defaulting and validation of the result, are the caller's.

#![allow(clippy::wildcard_enum_match_arm, reason = "the set of JSON value types is fixed")]

mod golang;
mod json;
mod strategic;

use serde_json::Value;

pub(crate) use golang::{go_syntax, go_value};
pub use json::json;
pub use strategic::strategic;

/// Maximum nesting depth of objects. It bounds all recursion, and it leaves room for lists and watch events around an
/// object: the JSON decoders of some clients stop at 128 levels.
pub(crate) const DEPTH_MAX: usize = 100;

/// Reason why a patch failed. `Display` gives the cause; the Status object carries [`PatchError::message`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The patch is malformed: status 400, `BadRequest`.
    #[error("{0}")]
    Malformed(String),
    /// The patch is well-formed but cannot be applied to the document: status 422, `Invalid`, with a generic message.
    #[error("{0}")]
    Unprocessable(String),
    /// The patch has too many operations: status 413, `RequestEntityTooLarge`.
    #[error("{0}")]
    TooLarge(String),
    /// An error that kube-apiserver does not classify: status 500, without a reason.
    #[error("{0}")]
    Internal(String),
}

impl PatchError {
    /// HTTP status code.
    pub fn code(&self) -> u16 {
        match self {
            Self::Malformed(_) => 400,
            Self::TooLarge(_) => 413,
            Self::Unprocessable(_) => 422,
            Self::Internal(_) => 500,
        }
    }

    /// `reason` of the Status object; empty where kube-apiserver leaves it out.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "BadRequest",
            Self::TooLarge(_) => "RequestEntityTooLarge",
            Self::Unprocessable(_) => "Invalid",
            Self::Internal(_) => "",
        }
    }

    /// `message` of the Status object.
    pub fn message(&self) -> &str {
        match self {
            Self::Unprocessable(_) => "the server rejected our request due to an error in our request",
            Self::Malformed(text) | Self::TooLarge(text) | Self::Internal(text) => text,
        }
    }
}

/// Applies a JSON merge patch (RFC 7386): objects are merged, `null` deletes a field, any other value replaces it.
pub fn merge(doc: &Value, patch: &Value) -> Result<Value, PatchError> {
    if !patch.is_object() {
        return Err(PatchError::Malformed(format!(
            "error decoding patch: json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            json_kind(patch)
        )));
    }
    let mut merged = doc.clone();
    json_patch::merge(&mut merged, patch);
    Ok(merged)
}

/// Name of the JSON type in the messages of Go's decoder.
fn json_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_merge_patch_follows_the_examples_of_rfc_7386() {
        // (original, patch, result): the examples of appendix A whose patch is an object.
        let cases = [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
            (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
        ];
        for (original, patch, expected) in cases {
            assert_eq!(merge(&original, &patch).unwrap(), expected, "{original} + {patch}");
        }
    }

    #[test]
    fn a_merge_patch_that_is_not_an_object_is_a_bad_request() {
        let error = merge(&json!({}), &json!([])).unwrap_err();
        assert_eq!(error.code(), 400);
        assert_eq!(
            error.message(),
            "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"
        );
    }
}
