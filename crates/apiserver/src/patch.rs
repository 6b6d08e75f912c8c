//! The three kinds of patches that carry a change: JSON patch, JSON merge patch, strategic merge patch.
//!
//! Holds what each does to a document and how each can fail. Leaves to others: server-side apply (`ssa`), decoding of
//! request bodies, defaulting and validation of what comes out.

#![allow(clippy::wildcard_enum_match_arm, reason = "JSON has six kinds of values, and gets no seventh")]

mod golang;
mod json;
mod strategic;

use serde_json::Value;

pub(crate) use golang::{go_syntax, go_value};
pub use json::json;
pub use strategic::strategic;

/// Objects nest at most this deep, so that no recursion exhausts the stack, and clients whose JSON reader stops at 128
/// levels can read them within lists and events.
pub(crate) const DEPTH_MAX: usize = 100;

/// Why a patch was not applied. `Display` tells the cause; the wire carries [`PatchError::message`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The patch is not one: status 400, `BadRequest`.
    #[error("{0}")]
    Malformed(String),
    /// A well-formed patch does not fit the document: status 422, `Invalid`, with a message that tells nothing.
    #[error("{0}")]
    Unprocessable(String),
    /// More operations than are allowed: status 413, `RequestEntityTooLarge`.
    #[error("{0}")]
    TooLarge(String),
    /// What upstream does not classify: status 500, without a reason.
    #[error("{0}")]
    Internal(String),
}

impl PatchError {
    /// HTTP status.
    pub fn code(&self) -> u16 {
        match self {
            Self::Malformed(_) => 400,
            Self::TooLarge(_) => 413,
            Self::Unprocessable(_) => 422,
            Self::Internal(_) => 500,
        }
    }

    /// `reason` of the Status object, empty where upstream leaves it out.
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

/// Applies a JSON merge patch (RFC 7386): objects merge, `null` deletes, everything else replaces.
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

/// How Go's decoder names the kind of a value.
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
        // (original, patch, result); the rows of appendix A whose patch is an object.
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
    fn a_merge_patch_that_is_no_object_is_a_bad_request() {
        let error = merge(&json!({}), &json!([])).unwrap_err();
        assert_eq!(error.code(), 400);
        assert_eq!(
            error.message(),
            "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"
        );
    }
}
