//! Computes merge patches.

use serde_json::{Map, Value};

/// The merge patch (RFC 7386) that turns `old` into `new`. Null counts as absent.
pub(crate) fn merge_patch(old: &Value, new: &Value) -> Value {
    let (Value::Object(old), Value::Object(new)) = (old, new) else { return new.clone() };
    let mut patch = Map::new();
    for (field, value) in new.iter().filter(|(_, value)| !value.is_null()) {
        match old.get(field) {
            Some(held) if held == value => {}
            Some(held @ Value::Object(_)) if value.is_object() => {
                let inner = merge_patch(held, value);
                if inner.as_object().is_some_and(|inner| !inner.is_empty()) {
                    patch.insert(field.clone(), inner);
                }
            }
            _ => drop(patch.insert(field.clone(), value.clone())),
        }
    }
    for (field, _) in old.iter().filter(|(_, value)| !value.is_null()) {
        if new.get(field).is_none_or(Value::is_null) {
            patch.insert(field.clone(), Value::Null);
        }
    }
    Value::Object(patch)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_merge_patch_removes_changes_and_adds_fields() {
        let old = json!({ "a": 1, "b": { "c": 1, "d": 2 }, "e": [1], "f": null, "g": { "h": 1 } });
        let new = json!({ "a": 1, "b": { "c": 3 }, "e": [1, 2], "f": 4, "g": { "h": 1 }, "i": null });
        assert_eq!(merge_patch(&old, &new), json!({ "b": { "c": 3, "d": null }, "e": [1, 2], "f": 4 }));
    }
}
