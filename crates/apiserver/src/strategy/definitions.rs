//! Custom resource definitions: status at creation, stored versions, and the cleanup finalizer at deletion.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::object;

pub(crate) const STORAGE: &str = "customresourcedefinitions.apiextensions.k8s.io";
pub(crate) const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Initializes the status of a new definition: the storage version, with no accepted names and no conditions yet.
pub(crate) fn on_create(definition: &mut Value) {
    let stored = object::items(definition, &["spec", "versions"])
        .iter()
        .find(|version| object::flag(version, &["storage"]))
        .map(|version| object::text(version, &["name"]).to_owned());
    let status = json!({
        "acceptedNames": { "kind": "", "plural": "" },
        "conditions": null,
        "storedVersions": stored.into_iter().collect::<Vec<_>>(),
    });
    object::set(definition, &["status"], status);
}

/// Adds a new storage version to `status.storedVersions`, because objects may be stored in it from now on.
pub(crate) fn on_update(definition: &mut Value) {
    let stored = object::items(definition, &["spec", "versions"])
        .iter()
        .find(|version| object::flag(version, &["storage"]))
        .map(|version| object::text(version, &["name"]).to_owned());
    let Some(stored) = stored else { return };
    let mut all: Vec<String> =
        object::texts(definition, &["status", "storedVersions"]).map(String::from).collect();
    if !all.contains(&stored) {
        all.push(stored);
        object::set(definition, &["status", "storedVersions"], json!(all));
    }
}

/// Adds the cleanup finalizer and the condition `Terminating`: the instances are deleted before the definition.
pub(crate) fn on_delete(definition: &mut Value, now: Timestamp) {
    let mut finalizers: Vec<String> =
        object::texts(definition, &["metadata", "finalizers"]).map(String::from).collect();
    if !finalizers.iter().any(|f| f == CLEANUP_FINALIZER) {
        finalizers.push(CLEANUP_FINALIZER.into());
    }
    object::set(definition, &["metadata", "finalizers"], json!(finalizers));
    let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    set_condition(definition, now, "Terminating", "True", "InstanceDeletionPending", message);
}

/// Sets a condition; keeps `lastTransitionTime` if the status of the condition does not change.
pub(crate) fn set_condition(
    definition: &mut Value,
    now: Timestamp,
    kind: &str,
    status: &str,
    reason: &str,
    message: &str,
) {
    let mut all = object::items(definition, &["status", "conditions"]).to_vec();
    let new = json!({
        "type": kind,
        "status": status,
        "lastTransitionTime": object::stamp(now),
        "reason": reason,
        "message": message,
    });
    match all.iter_mut().find(|c| object::text(c, &["type"]) == kind) {
        Some(old) if object::text(old, &["status"]) == status => {
            old["reason"] = reason.into();
            old["message"] = message.into();
        }
        Some(old) => *old = new,
        None => all.push(new),
    }
    object::set(definition, &["status", "conditions"], all);
}
