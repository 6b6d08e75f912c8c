//! Equality of values as Kubernetes sees it for immutable fields.

use serde_json::{Map, Value};

use super::resource_groups::quantity;

/// Fields below which texts are quantities.
const AMOUNTS: [&str; 7] =
    ["requests", "limits", "resourceUsage", "overhead", "capacity", "sizeLimit", "divisor"];

/// Whether two values are the same: what is absent equals what is empty, and amounts are compared by value.
pub(super) fn same(a: &Value, b: &Value) -> bool {
    same_below(a, b, false)
}

fn same_below(a: &Value, b: &Value, amounts: bool) -> bool {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            let holds = |one: &Map<String, Value>, other: &Map<String, Value>| {
                one.iter().all(|(key, value)| {
                    let amounts = amounts || AMOUNTS.contains(&key.as_str());
                    same_below(value, other.get(key).unwrap_or(&Value::Null), amounts)
                })
            };
            holds(a, b) && holds(b, a)
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_below(a, b, amounts))
        }
        _ if a == b || (is_empty(a) && is_empty(b)) => true,
        _ if amounts => match (quantity(a), quantity(b)) {
            (Some((_, a)), Some((_, b))) => a == b,
            _ => false,
        },
        _ => false,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_empty),
        Value::Bool(_) | Value::Number(_) => false,
    }
}
