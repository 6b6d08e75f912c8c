//! Access to fields of objects as `serde_json::Value`. The functions do not panic on values of unexpected types.

use serde_json::{Map, Value};

/// The value at `path`, a sequence of field names.
pub(crate) fn get<'a>(value: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(value, |at, key| at.get(key))
}

/// The string at `path`; empty if there is none.
pub(crate) fn text<'a>(value: &'a Value, path: &[&str]) -> &'a str {
    get(value, path).and_then(Value::as_str).unwrap_or_default()
}

/// The integer at `path`.
pub(crate) fn int(value: &Value, path: &[&str]) -> Option<i64> {
    get(value, path).and_then(Value::as_i64)
}

/// The boolean at `path`; false if there is none.
pub(crate) fn flag(value: &Value, path: &[&str]) -> bool {
    get(value, path).and_then(Value::as_bool).unwrap_or_default()
}

/// The array at `path`; empty if there is none.
pub(crate) fn items<'a>(value: &'a Value, path: &[&str]) -> &'a [Value] {
    get(value, path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The object at `path`.
pub(crate) fn map<'a>(value: &'a Value, path: &[&str]) -> Option<&'a Map<String, Value>> {
    get(value, path).and_then(Value::as_object)
}

/// The strings of the array at `path`.
pub(crate) fn texts<'a>(value: &'a Value, path: &[&str]) -> impl Iterator<Item = &'a str> {
    items(value, path).iter().filter_map(Value::as_str)
}

/// The object at `path`. Creates missing objects on the path, and replaces values of other types by objects.
pub(crate) fn map_mut<'a>(value: &'a mut Value, path: &[&str]) -> &'a mut Map<String, Value> {
    let mut at = value;
    for key in path {
        if !at.is_object() {
            *at = Value::Object(Map::new());
        }
        let Value::Object(map) = at else { unreachable!("made an object above") };
        at = map.entry(*key).or_insert_with(|| Value::Object(Map::new()));
    }
    if !at.is_object() {
        *at = Value::Object(Map::new());
    }
    let Value::Object(map) = at else { unreachable!("made an object above") };
    map
}

/// Sets the field at `path`; creates missing objects on the path.
pub(crate) fn set(value: &mut Value, path: &[&str], new: impl Into<Value>) {
    if let Some((last, parents)) = path.split_last() {
        map_mut(value, parents).insert((*last).into(), new.into());
    }
}

/// Removes the field at `path` and returns it.
pub(crate) fn remove(value: &mut Value, path: &[&str]) -> Option<Value> {
    let (last, parents) = path.split_last()?;
    let parent = parents.iter().try_fold(value, |at, key| at.get_mut(key))?;
    parent.as_object_mut()?.remove(*last)
}

/// Copies the field at `path` from `from` to `to`; removes it from `to` if `from` does not have it.
pub(crate) fn carry(from: &Value, to: &mut Value, path: &[&str]) {
    match get(from, path) {
        Some(value) => set(to, path, value.clone()),
        None => {
            remove(to, path);
        }
    }
}

pub(crate) fn name(value: &Value) -> &str {
    text(value, &["metadata", "name"])
}

pub(crate) fn namespace(value: &Value) -> &str {
    text(value, &["metadata", "namespace"])
}

pub(crate) fn uid(value: &Value) -> &str {
    text(value, &["metadata", "uid"])
}

/// Formats a time as `metav1.Time`: UTC with seconds precision.
pub(crate) fn stamp(time: jiff::Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Parses a `metav1.Time` or `metav1.MicroTime`.
pub(crate) fn parse_stamp(text: &str) -> Option<jiff::Timestamp> {
    text.parse().ok()
}

/// Parses an RFC 3339 time, which must have an offset or `Z`.
pub(crate) fn parse_rfc3339(text: &str) -> Option<jiff::Timestamp> {
    // The parser accepts more: a space as separator, and times without seconds or offset.
    let bytes = text.as_bytes();
    let places = [(10, b'T'), (13, b':'), (16, b':')];
    let regular = places
        .iter()
        .all(|(at, expected)| bytes.get(*at).is_some_and(|byte| byte.eq_ignore_ascii_case(expected)));
    let has_offset = text.ends_with(['Z', 'z']) || text.get(19..)?.contains(['+', '-']);
    if !regular || !has_offset || !text.is_ascii() || text.len() < 20 {
        return None;
    }
    text.parse().ok()
}

/// The group and version of an `apiVersion`.
pub(crate) fn group_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

/// The `apiVersion` of a group and version.
pub(crate) fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.into() } else { format!("{group}/{version}") }
}
