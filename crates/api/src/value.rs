//! Access to untyped JSON by path.

use serde_json::Value;

/// The non-empty string at `path`.
pub(crate) fn text<'a>(value: &'a Value, path: &[&str]) -> Option<&'a str> {
    at(value, path).as_str().filter(|text| !text.is_empty())
}

/// The value at `path`; `null` if it is missing.
pub(crate) fn at<'a>(value: &'a Value, path: &[&str]) -> &'a Value {
    path.iter().fold(value, |inner, key| inner.get(key).unwrap_or(&Value::Null))
}

/// The array at `path`; empty if it is missing.
pub(crate) fn list<'a>(value: &'a Value, path: &[&str]) -> &'a [Value] {
    at(value, path).as_array().map_or(&[], Vec::as_slice)
}

/// A count at `path`, or `absent`. Negative counts are 0, counts beyond 32 bits saturate, `3.0` and `"3"` are 3.
pub(crate) fn count(value: &Value, path: &[&str], absent: u32) -> u32 {
    integer(at(value, path)).map_or(absent, |n| u32::try_from(n.max(0)).unwrap_or(u32::MAX))
}

/// The integer of a number (truncated) or a string.
pub(crate) fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::Number(number) => number.as_i64().or_else(|| whole(&number.to_string())),
        Value::String(text) => text.trim().parse().ok(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

fn whole(text: &str) -> Option<i64> {
    text.split('.').next()?.parse().ok()
}
