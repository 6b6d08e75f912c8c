//! `ObjectMeta` of every kind: system fields, immutable fields and validation.

use serde_json::Value;

use crate::names::{self, NameRule};
use crate::object;
use crate::status::Cause;

const ANNOTATIONS_BYTES_MAX: usize = 256 << 10;
/// Fields that only the server sets.
const SYSTEM_FIELDS: &[&str] =
    &["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"];

/// Finalizers that are valid without a domain.
const STANDARD_FINALIZERS: &[&str] = &["kubernetes", "orphan", "foregroundDeletion"];

/// Checks the types of the metadata fields. The error is that of Go's JSON decoder, and names the field.
pub(crate) fn check_shape(value: &Value) -> Result<(), String> {
    let Some(metadata) = value.get("metadata") else { return Ok(()) };
    let wrong = |field: &str, expected: &str| {
        Err(format!(
            "json: cannot unmarshal into Go struct field ObjectMeta.metadata.{field} of type {expected}"
        ))
    };
    let Some(metadata) = metadata.as_object() else {
        return if metadata.is_null() { Ok(()) } else { wrong("", "v1.ObjectMeta") };
    };
    for (key, field) in metadata {
        let fits = match key.as_str() {
            "name" | "generateName" | "namespace" | "uid" | "resourceVersion" => {
                field.is_string() || field.is_null()
            }
            "labels" | "annotations" => {
                field.is_null()
                    || field.as_object().is_some_and(|m| m.values().all(|v| v.is_string() || v.is_null()))
            }
            "finalizers" => {
                field.is_null() || field.as_array().is_some_and(|a| a.iter().all(Value::is_string))
            }
            "ownerReferences" | "managedFields" => {
                field.is_null() || field.as_array().is_some_and(|a| a.iter().all(Value::is_object))
            }
            "creationTimestamp" | "deletionTimestamp" => {
                field.is_null() || field.as_str().is_some_and(|t| object::parse_stamp(t).is_some())
            }
            "generation" | "deletionGracePeriodSeconds" => field.is_i64() || field.is_null(),
            _ => true,
        };
        if !fits {
            let expected = match key.as_str() {
                "labels" | "annotations" => "map[string]string",
                "finalizers" => "[]string",
                "ownerReferences" => "[]v1.OwnerReference",
                "managedFields" => "[]v1.ManagedFieldsEntry",
                "creationTimestamp" | "deletionTimestamp" => "v1.Time",
                "generation" | "deletionGracePeriodSeconds" => "int64",
                _ => "string",
            };
            return wrong(key, expected);
        }
    }
    Ok(())
}

/// Removes null and empty fields of metadata; typed Go objects do not encode them.
pub(crate) fn remove_empty_fields(value: &mut Value) {
    let metadata = object::map_mut(value, &["metadata"]);
    for map in ["labels", "annotations"] {
        if let Some(Value::Object(entries)) = metadata.get_mut(map) {
            for entry in entries.values_mut().filter(|entry| entry.is_null()) {
                *entry = Value::String(String::new());
            }
        }
    }
    metadata.retain(|key, field| match field {
        Value::Null => false,
        // An empty list of managed fields clears all field managers.
        Value::Array(_) if key == "managedFields" => true,
        Value::Array(items) => !items.is_empty(),
        Value::Object(entries) => !entries.is_empty(),
        Value::String(text) => !text.is_empty(),
        Value::Bool(_) | Value::Number(_) => true,
    });
}

/// Removes the fields that a client may not set at creation.
pub(crate) fn wipe_system_fields(value: &mut Value) {
    let metadata = object::map_mut(value, &["metadata"]);
    for field in SYSTEM_FIELDS.iter().chain(&["resourceVersion", "generation"]) {
        metadata.remove(*field);
    }
}

/// Restores the fields that an update cannot change. Returns errors for those changes that kube-apiserver rejects.
pub(crate) fn preserve_system_fields(old: &Value, new: &mut Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let given = object::text(new, &["metadata", "creationTimestamp"]);
    let had = object::text(old, &["metadata", "creationTimestamp"]);
    if !given.is_empty() && object::parse_stamp(given) != object::parse_stamp(had) {
        causes.push(Cause::invalid("metadata.creationTimestamp", &given.into(), "field is immutable"));
    }
    let deleting = object::get(old, &["metadata", "deletionTimestamp"]).is_some();
    let given = object::text(new, &["metadata", "deletionTimestamp"]);
    if !deleting && !given.is_empty() {
        causes.push(Cause::invalid("metadata.deletionTimestamp", &given.into(), "field is immutable"));
    }
    for field in SYSTEM_FIELDS.iter().chain(&["generation", "resourceVersion", "generateName"]) {
        object::carry(old, new, &["metadata", field]);
    }
    if deleting {
        let had: Vec<&str> = object::texts(old, &["metadata", "finalizers"]).collect();
        let added: Vec<&str> =
            object::texts(new, &["metadata", "finalizers"]).filter(|f| !had.contains(f)).collect();
        if !added.is_empty() {
            let why = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                added.iter().map(|f| format!("{f:?}")).collect::<Vec<_>>().join(", ")
            );
            causes.push(Cause::forbidden("metadata.finalizers", &why));
        }
    }
    causes
}

/// Validates metadata before it is stored.
///
/// Finalizers of a custom resource (`custom`) need no domain.
pub(crate) fn validate(value: &Value, rule: NameRule, namespaced: bool, custom: bool) -> Vec<Cause> {
    let mut causes = Vec::new();
    let text = |key| object::text(value, &["metadata", key]);
    let (name, generate) = (text("name"), text("generateName"));
    if !generate.is_empty()
        && let Err(why) = rule.check(generate, true)
    {
        causes.push(Cause::invalid("metadata.generateName", &generate.into(), &why));
    }
    if name.is_empty() {
        causes.push(Cause::required("metadata.name", "name or generateName is required"));
    } else if let Err(why) = rule.check(name, false) {
        causes.push(Cause::invalid("metadata.name", &name.into(), &why));
    }
    let namespace = text("namespace");
    if namespaced {
        if namespace.is_empty() {
            causes.push(Cause::required("metadata.namespace", ""));
        } else if let Err(why) = names::label(namespace) {
            causes.push(Cause::invalid("metadata.namespace", &namespace.into(), &why));
        }
    } else if !namespace.is_empty() {
        causes.push(Cause::forbidden("metadata.namespace", "not allowed on this type"));
    }
    validate_labels(value, &["metadata", "labels"], &mut causes);
    validate_annotations(value, &mut causes);
    validate_owners(value, &mut causes);
    for (at, finalizer) in object::texts(value, &["metadata", "finalizers"]).enumerate() {
        if let Err(why) = names::qualified(finalizer) {
            causes.push(Cause::invalid(&format!("metadata.finalizers[{at}]"), &finalizer.into(), &why));
        } else if !custom && !finalizer.contains('/') && !STANDARD_FINALIZERS.contains(&finalizer) {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            causes.push(Cause::invalid(&format!("metadata.finalizers[{at}]"), &finalizer.into(), why));
        }
    }
    causes
}

fn validate_labels(value: &Value, path: &[&str], causes: &mut Vec<Cause>) {
    let field = path.join(".");
    for (key, label) in object::map(value, path).into_iter().flatten() {
        if let Err(why) = names::qualified(key) {
            causes.push(Cause::invalid(&field, &key.as_str().into(), &why));
        }
        if let Err(why) = names::label_value(label.as_str().unwrap_or_default()) {
            causes.push(Cause::invalid(&field, label, &why));
        }
    }
}

fn validate_annotations(value: &Value, causes: &mut Vec<Cause>) {
    let mut bytes = 0;
    for (key, text) in object::map(value, &["metadata", "annotations"]).into_iter().flatten() {
        bytes += key.len() + text.as_str().map_or(0, str::len);
        if let Err(why) = names::qualified(&key.to_lowercase()) {
            causes.push(Cause::invalid("metadata.annotations", &key.as_str().into(), &why));
        }
    }
    if bytes > ANNOTATIONS_BYTES_MAX {
        causes.push(Cause {
            reason: "FieldValueTooLong".into(),
            message: format!("Too long: may not be more than {ANNOTATIONS_BYTES_MAX} bytes"),
            field: "metadata.annotations".into(),
        });
    }
}

fn validate_owners(value: &Value, causes: &mut Vec<Cause>) {
    let owners = object::items(value, &["metadata", "ownerReferences"]);
    for owner in owners {
        let field = |key: &str| format!("metadata.ownerReferences.{key}");
        let text = |key| object::text(owner, &[key]);
        if text("apiVersion").is_empty() {
            causes.push(Cause::invalid(&field("apiVersion"), &"".into(), "version must not be empty"));
        }
        for key in ["kind", "name", "uid"] {
            if text(key).is_empty() {
                causes.push(Cause::invalid(&field(key), &"".into(), "must not be empty"));
            }
        }
    }
    let controllers: Vec<&Value> = owners.iter().filter(|o| object::flag(o, &["controller"])).collect();
    if let [first, second, ..] = controllers.as_slice() {
        let why = format!(
            "Only one reference can have Controller set to true. Found \"true\" in references for {}/{} and {}/{}",
            object::text(first, &["kind"]),
            object::text(first, &["name"]),
            object::text(second, &["kind"]),
            object::text(second, &["name"]),
        );
        causes.push(Cause::invalid("metadata.ownerReferences", &Value::from(owners.to_vec()), &why));
    }
}
