//! Uniqueness in lists of type `set` and `map`, and `apiVersion`, `kind` and `metadata` of embedded resources.
//!
//! Validation of single values is in `validate`.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::node::Node;
use super::{FieldError, Path};
use crate::labels::{check_annotations, check_labels};
use crate::names::NameRule;

/// Validates the embedded resources of `new`, then its lists. Duplicates that the old object already has are allowed.
pub(super) fn validate(root: &Node, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    embedded(root, new, Path::Root(""), true, &mut errors);
    let mut before = Vec::new();
    if let Some(old) = old {
        lists(root, old, Path::Root(""), &mut before);
    }
    if before.is_empty() {
        lists(root, new, Path::Root(""), &mut errors);
    }
    errors
}

/// The item of the old list that corresponds to `item`: the one with the same keys in a list map, none in other
/// lists.
pub(super) fn old_item<'o>(schema: &Node, old: Option<&'o Value>, item: &Value) -> Option<&'o Value> {
    if schema.list_type.as_deref() != Some("map") {
        return None;
    }
    let mut same = old?
        .as_array()?
        .iter()
        .filter(|one| schema.list_keys.iter().all(|key| one.get(key) == item.get(key)));
    let found = same.next()?;
    if same.next().is_some() { None } else { Some(found) }
}

fn lists(schema: &Node, value: &Value, path: Path<'_>, errors: &mut Vec<FieldError>) {
    match value {
        Value::Array(items) => {
            match schema.list_type.as_deref() {
                Some("set") => {
                    for index in repeated(items.iter()) {
                        errors.push(FieldError::duplicate(path.index(index), items[index].clone()));
                    }
                }
                Some("map") => list_map(schema, items, path, errors),
                _ => {}
            }
            if let Some(schema) = &schema.items {
                for (index, item) in items.iter().enumerate() {
                    lists(schema, item, path.index(index), errors);
                }
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                if let Some(property) = schema.properties.get(name) {
                    lists(property, field, path.child(name), errors);
                } else if let Some(property) = schema.child(name) {
                    lists(property, field, path.key(name), errors);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn list_map(schema: &Node, items: &[Value], path: Path<'_>, errors: &mut Vec<FieldError>) {
    if let Some(index) = items.iter().position(|item| !item.is_object() && !item.is_null()) {
        let detail = "must be an object for an array of list-type map";
        errors.push(FieldError::invalid(path.index(index), items[index].clone(), detail));
        return;
    }
    let keys: Vec<Value> = items
        .iter()
        .map(|item| {
            let present =
                schema.list_keys.iter().filter_map(|key| Some((key.clone(), item.get(key)?.clone())));
            Value::Object(present.collect::<Map<_, _>>())
        })
        .collect();
    for index in repeated(keys.iter()) {
        errors.push(FieldError::duplicate(path.index(index), keys[index].clone()));
    }
}

/// Index of the second occurrence of each value that occurs more than once.
fn repeated<'v>(values: impl Iterator<Item = &'v Value>) -> Vec<usize> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut second = Vec::new();
    for (index, value) in values.enumerate() {
        let times = seen.entry(value.to_string()).or_default();
        *times += 1;
        if *times == 2 {
            second.push(index);
        }
    }
    second
}

fn embedded(schema: &Node, value: &Value, path: Path<'_>, is_root: bool, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(fields) => {
            if schema.embedded && !is_root {
                identity(fields, path, errors);
            }
            for (name, field) in fields {
                if let Some(property) = schema.properties.get(name) {
                    embedded(property, field, path.child(name), false, errors);
                } else if let Some(property) = schema.child(name) {
                    embedded(property, field, path.key(name), false, errors);
                }
            }
        }
        Value::Array(items) => {
            let Some(schema) = &schema.items else { return };
            for (index, item) in items.iter().enumerate() {
                embedded(schema, item, path.index(index), false, errors);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn identity(fields: &Map<String, Value>, path: Path<'_>, errors: &mut Vec<FieldError>) {
    for name in ["apiVersion", "kind"] {
        let at = path.child(name);
        match fields.get(name) {
            None => errors.push(FieldError::required(at, "")),
            Some(Value::String(text)) if text.is_empty() => {
                errors.push(FieldError::invalid(at, "", "must not be empty"));
            }
            Some(Value::String(text)) if name == "apiVersion" && text.matches('/').count() > 1 => {
                errors.push(FieldError::invalid(
                    at,
                    text.as_str(),
                    &format!("unexpected GroupVersion string: {text}"),
                ));
            }
            Some(Value::String(text)) if name == "kind" => {
                if let Err(reason) = NameRule::Label1035.check(&text.to_lowercase(), false) {
                    let detail = format!("may have mixed case, but should otherwise match: {reason}");
                    errors.push(FieldError::invalid(at, text.as_str(), &detail));
                }
            }
            Some(Value::String(_)) => {}
            Some(other) => errors.push(FieldError::invalid(at, other.clone(), "must be a string")),
        }
    }
    let at = path.child("metadata");
    match fields.get("metadata") {
        None | Some(Value::Null) => {}
        Some(metadata @ Value::Object(_)) => {
            check_labels(&metadata["labels"], at.child("labels"), errors);
            check_annotations(&metadata["annotations"], at.child("annotations"), errors);
        }
        Some(other) => errors.push(FieldError::invalid(at, other.clone(), "must be an object")),
    }
}
