//! Equality of values as Kubernetes sees it for immutable fields: that of the Go types, of which the JSON leaves out what is
//! empty.

use serde_json::{Map, Value};

use super::resource_groups::quantity;

/// Maps of amounts, which are compared by value.
const AMOUNTS: [&str; 5] = ["requests", "limits", "resourceUsage", "overhead", "capacity"];
/// Maps of texts, in which a key with an empty text is not an absent key.
const TEXTS: [&str; 5] = ["labels", "annotations", "nodeSelector", "matchLabels", "flavors"];
/// Objects that are not optional in Go: the empty one equals an absent one.
const PARTS: [&str; 2] = ["metadata", "resources"];

/// Whether two values are the same: an empty text, list or map equals an absent one, and amounts are compared by value.
pub(super) fn same(a: &Value, b: &Value) -> bool {
    same_field("", a, b)
}

/// Compares the values of a field.
pub(super) fn same_field(field: &str, a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) if AMOUNTS.contains(&field) => same_entries(a, b, same_amount),
        (Value::Object(a), Value::Object(b)) if TEXTS.contains(&field) => a == b,
        (Value::Object(a), Value::Object(b)) => {
            let holds = |one: &Map<String, Value>, other: &Map<String, Value>| {
                one.iter().all(|(key, value)| same_field(key, value, other.get(key).unwrap_or(&Value::Null)))
            };
            holds(a, b) && holds(b, a)
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_field("", a, b))
        }
        _ => a == b || (is_absent(field, a) && is_absent(field, b)),
    }
}

fn same_entries(
    a: &Map<String, Value>,
    b: &Map<String, Value>,
    same: impl Fn(&Value, &Value) -> bool,
) -> bool {
    a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
}

fn same_amount(a: &Value, b: &Value) -> bool {
    match (quantity(a), quantity(b)) {
        (Some((_, a)), Some((_, b))) => a == b,
        _ => a == b,
    }
}

/// Whether the value of a field equals an absent one.
fn is_absent(field: &str, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) if PARTS.contains(&field) => {
            fields.iter().all(|(field, value)| is_absent(field, value))
        }
        Value::Object(fields) => (AMOUNTS.contains(&field) || TEXTS.contains(&field)) && fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_compared_as_in_go() {
        for (a, b, expected) in [
            (json!({"image": ""}), json!({}), true),
            (json!({"ports": []}), json!({"ports": null}), true),
            (json!({"resources": {"requests": {}}}), json!({}), true),
            (
                json!({"resources": {"requests": {"cpu": "1"}}}),
                json!({"resources": {"requests": {"cpu": "1000m"}}}),
                true,
            ),
            (
                json!({"resources": {"requests": {"cpu": 1}}}),
                json!({"resources": {"requests": {"cpu": "1"}}}),
                true,
            ),
            (json!({"resources": {"requests": {"cpu": "0"}}}), json!({"resources": {"requests": {}}}), false),
            (json!({"labels": {"a": ""}}), json!({"labels": {}}), false),
            (json!({"labels": {"a": "1"}}), json!({"labels": {"a": "1.0"}}), false),
            (json!({"labels": {}}), json!({}), true),
            (json!({"emptyDir": {}}), json!({}), false),
            (json!({"count": 0}), json!({}), false),
            (json!([1, 2]), json!([2, 1]), false),
        ] {
            assert_eq!(same(&a, &b), expected, "{a} and {b}");
            assert_eq!(same(&b, &a), expected, "{b} and {a}");
        }
    }
}
