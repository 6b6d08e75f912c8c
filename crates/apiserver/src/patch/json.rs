//! JSON patch (RFC 6902), with limits on the size and depth of the result.

use json_patch::{AddOperation, Patch, PatchOperation};
use serde_json::Value;

use super::{DEPTH_MAX, PatchError, json_kind};

/// Maximum number of operations in one patch, as in kube-apiserver.
const OPERATIONS_MAX: usize = 10_000;
/// Maximum total size that the `copy` operations of one patch add, in bytes: the limit on request bodies.
const COPIED_BYTES_MAX: usize = 3 * 1024 * 1024;

/// Applies a JSON patch: either all operations or none.
///
/// A patch that is not a list of operations is malformed (400). An operation that cannot be applied, including a
/// failed `test`, makes the request unprocessable (422).
pub fn json(doc: &Value, patch: &Value) -> Result<Value, PatchError> {
    let operations = patch.as_array().ok_or_else(|| {
        PatchError::Malformed(format!(
            "error decoding patch: json: cannot unmarshal {} into Go value of type []handlers.jsonPatchOp",
            json_kind(patch)
        ))
    })?;
    if operations.len() > OPERATIONS_MAX {
        return Err(PatchError::TooLarge(format!(
            "The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {}",
            operations.len()
        )));
    }
    let operations = operations.iter().map(decode).collect::<Result<Vec<_>, _>>()?;
    let mut patched = doc.clone();
    let mut copied = 0;
    for operation in operations {
        let operation = lenient(&patched, operation);
        check_limits(&patched, &operation, &mut copied)?;
        json_patch::patch(&mut patched, &Patch(vec![operation]))
            .map_err(|error| PatchError::Unprocessable(error.to_string()))?;
    }
    Ok(patched)
}

/// Decodes one operation. Like kube-apiserver, it reads a missing value as `null` and leaves other errors to the
/// application.
fn decode(operation: &Value) -> Result<PatchOperation, PatchError> {
    let Value::Object(fields) = operation else {
        return Err(PatchError::Malformed(format!(
            "error decoding patch: json: cannot unmarshal {} into Go value of type handlers.jsonPatchOp",
            json_kind(operation)
        )));
    };
    for name in ["op", "path", "from"] {
        match fields.get(name) {
            None | Some(Value::Null | Value::String(_)) => {}
            Some(other) => {
                return Err(PatchError::Malformed(format!(
                    "error decoding patch: json: cannot unmarshal {} into Go struct field jsonPatchOp.{name} of type string",
                    json_kind(other)
                )));
            }
        }
    }
    let mut fields = fields.clone();
    if matches!(fields.get("op").and_then(Value::as_str), Some("add" | "replace" | "test")) {
        fields.entry("value").or_insert(Value::Null);
    }
    serde_json::from_value(Value::Object(fields))
        .map_err(|error| PatchError::Unprocessable(error.to_string()))
}

/// As in kube-apiserver, `replace` adds a field that the object does not have.
fn lenient(doc: &Value, operation: PatchOperation) -> PatchOperation {
    let PatchOperation::Replace(replace) = operation else { return operation };
    let parent = replace.path.as_str().rsplit_once('/').and_then(|(parent, _)| doc.pointer(parent));
    if parent.is_some_and(Value::is_object) {
        return PatchOperation::Add(AddOperation { path: replace.path, value: replace.value });
    }
    PatchOperation::Replace(replace)
}

/// Rejects an operation that nests the document too deeply or copies too much.
fn check_limits(doc: &Value, operation: &PatchOperation, copied: &mut usize) -> Result<(), PatchError> {
    let (path, value) = match operation {
        PatchOperation::Add(add) => (&add.path, Some(&add.value)),
        PatchOperation::Replace(replace) => (&replace.path, Some(&replace.value)),
        PatchOperation::Move(from) => (&from.path, doc.pointer(from.from.as_str())),
        PatchOperation::Copy(from) => {
            let source = doc.pointer(from.from.as_str());
            *copied += source.map_or(0, encoded_bytes);
            if *copied > COPIED_BYTES_MAX {
                return Err(PatchError::Unprocessable(format!(
                    "Unable to complete the copy, the accumulated size increase of copy is {copied}, exceeding the limit {COPIED_BYTES_MAX}"
                )));
            }
            (&from.path, source)
        }
        PatchOperation::Remove(_) | PatchOperation::Test(_) => return Ok(()),
    };
    let depth = path.as_str().matches('/').count() + value.map_or(0, depth);
    if depth > DEPTH_MAX {
        return Err(PatchError::Unprocessable(format!(
            "the document would nest deeper than {DEPTH_MAX} levels"
        )));
    }
    Ok(())
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or(0),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// Size of the value as compact JSON in bytes, without the effect of escapes.
fn encoded_bytes(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) => 4,
        Value::Number(number) => number.to_string().len(),
        Value::String(text) => text.len() + 2,
        Value::Array(items) => 2 + items.iter().map(|item| 1 + encoded_bytes(item)).sum::<usize>(),
        Value::Object(fields) => {
            2 + fields.iter().map(|(name, field)| name.len() + 4 + encoded_bytes(field)).sum::<usize>()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json as value;

    #[test]
    fn operations_apply_in_order() {
        let doc = value!({"spec": {"replicas": 1, "args": ["a", "c"]}});
        let patch = value!([
            {"op": "test", "path": "/spec/replicas", "value": 1},
            {"op": "replace", "path": "/spec/replicas", "value": 2},
            {"op": "add", "path": "/spec/args/1", "value": "b"},
            {"op": "add", "path": "/spec/args/-", "value": "d"},
            {"op": "copy", "from": "/spec/args", "path": "/spec/more"},
            {"op": "move", "from": "/spec/more/0", "path": "/first"},
            {"op": "remove", "path": "/spec/more"},
            {"op": "add", "path": "/a~1b", "value": {"x~y": 1}},
        ]);
        let expected = value!({
            "first": "a", "a/b": {"x~y": 1}, "spec": {"replicas": 2, "args": ["a", "b", "c", "d"]},
        });
        assert_eq!(json(&doc, &patch).unwrap(), expected);
    }

    #[test]
    fn replace_adds_a_missing_field_as_in_kube_apiserver() {
        let patch = value!([{"op": "replace", "path": "/o/b", "value": 1}]);
        assert_eq!(json(&value!({"o": {}}), &patch).unwrap(), value!({"o": {"b": 1}}));
        let patch = value!([{"op": "replace", "path": "/l/1", "value": 1}]);
        assert_eq!(json(&value!({"l": [0]}), &patch).unwrap_err().code(), 422);
    }

    #[test]
    fn json_patch_errors_have_the_status_codes_of_kube_apiserver() {
        struct Case {
            name: &'static str,
            patch: Value,
            code: u16,
        }
        let cases = [
            Case { name: "no list", patch: value!({"op": "add"}), code: 400 },
            Case { name: "no object", patch: value!(["add"]), code: 400 },
            Case { name: "op is no string", patch: value!([{"op": 1, "path": "/a"}]), code: 400 },
            Case {
                name: "failed test",
                patch: value!([{"op": "test", "path": "/a", "value": 2}]),
                code: 422,
            },
            Case { name: "nothing to remove", patch: value!([{"op": "remove", "path": "/b"}]), code: 422 },
            Case {
                name: "nothing to replace",
                patch: value!([{"op": "replace", "path": "/b/c", "value": 1}]),
                code: 422,
            },
            Case { name: "no parent", patch: value!([{"op": "add", "path": "/b/c", "value": 1}]), code: 422 },
            Case { name: "unknown operation", patch: value!([{"op": "grow", "path": "/a"}]), code: 422 },
            Case { name: "no path", patch: value!([{"op": "add", "value": 1}]), code: 422 },
            Case {
                name: "path without slash",
                patch: value!([{"op": "add", "path": "a", "value": 1}]),
                code: 422,
            },
            Case {
                name: "move into itself",
                patch: value!([{"op": "move", "from": "/o", "path": "/o/p"}]),
                code: 422,
            },
        ];
        for case in cases {
            let error = json(&value!({"a": 1, "o": {}}), &case.patch).unwrap_err();
            assert_eq!(error.code(), case.code, "{}: {error}", case.name);
        }
    }

    #[test]
    fn a_patch_that_exceeds_a_limit_is_rejected() {
        let many = vec![value!({"op": "test", "path": "", "value": {}}); OPERATIONS_MAX + 1];
        assert_eq!(json(&value!({}), &Value::Array(many)).unwrap_err().code(), 413);
        // Each operation copies the whole document into itself.
        let doubling = vec![value!({"op": "copy", "from": "", "path": "/a"}); 200];
        assert_eq!(json(&value!({"b": 1}), &Value::Array(doubling)).unwrap_err().code(), 422);
        let wide: Vec<_> =
            (0..100).map(|n| value!({"op": "copy", "from": "/big", "path": format!("/copy{n}")})).collect();
        let doc = value!({"big": "x".repeat(100_000)});
        assert_eq!(json(&doc, &Value::Array(wide)).unwrap_err().code(), 422);
        let deep: Vec<_> =
            (1..500).map(|n| value!({"op": "add", "path": "/a".repeat(n), "value": {}})).collect();
        assert_eq!(json(&value!({}), &Value::Array(deep)).unwrap_err().code(), 422);
    }
}
