//! Field accessors for defaulting and validation.

use std::cmp::Ordering;

use serde_json::Value;

use crate::openapi::quantity;

/// Sets the field at `path` if it is missing or null and its parent is an object.
pub(super) fn set_default(object: &mut Value, path: &[&str], value: impl Into<Value>) {
    let Some((name, parents)) = path.split_last() else { return };
    let parent = parents.iter().try_fold(object, |at, name| at.get_mut(*name));
    if let Some(Value::Object(fields)) = parent
        && fields.get(*name).is_none_or(Value::is_null)
    {
        fields.insert((*name).to_owned(), value.into());
    }
}

/// The field `name`, if it is an object.
pub(super) fn object_mut<'v>(object: &'v mut Value, name: &str) -> Option<&'v mut Value> {
    object.get_mut(name).filter(|field| field.is_object())
}

/// The items of the list `name`; empty if it is missing.
pub(super) fn items_mut<'v>(object: &'v mut Value, name: &str) -> impl Iterator<Item = &'v mut Value> {
    object.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten()
}

/// Compares two quantities. A malformed quantity counts as zero.
pub(super) fn compare(left: &Value, right: &Value) -> Ordering {
    nanos(left).cmp(&nanos(right))
}

/// A quantity in units of 10⁻⁹; zero if it is malformed.
pub(super) fn nanos(value: &Value) -> i128 {
    value.as_str().and_then(quantity::nanos).unwrap_or_default()
}

/// Whether labels match a `LabelSelector`. An empty selector matches everything; a malformed requirement matches
/// nothing.
pub(super) fn selects(selector: &Value, labels: &Value) -> bool {
    let label = |key: &str| labels.get(key).and_then(Value::as_str);
    let by_labels = selector["matchLabels"]
        .as_object()
        .into_iter()
        .flatten()
        .all(|(key, value)| label(key).is_some() && label(key) == value.as_str());
    let by_expressions = selector["matchExpressions"].as_array().into_iter().flatten().all(|expression| {
        let found = expression["key"].as_str().and_then(label);
        let listed = |text| {
            expression["values"].as_array().into_iter().flatten().any(|one| one.as_str() == Some(text))
        };
        match expression["operator"].as_str() {
            Some("In") => found.is_some_and(listed),
            Some("NotIn") => !found.is_some_and(listed),
            Some("Exists") => found.is_some(),
            Some("DoesNotExist") => found.is_none(),
            _ => false,
        }
    });
    by_labels && by_expressions
}
