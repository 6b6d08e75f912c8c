//! What kinds do differently when they are created or updated: who may write which part, and what the server adds.

use serde_json::{Value, json};

use crate::object;
use crate::registry::Resource;
use crate::server::ApiServer;
use crate::status::Status;

/// Top-level fields whose change makes a new generation of a built-in kind.
pub(crate) const SPECS: &[&str] = &["spec", "template", "webhooks", "endpoints", "ports"];

/// Prepares a new object.
pub(crate) fn on_create(
    server: &mut ApiServer,
    resource: &Resource,
    value: &mut Value,
) -> Result<(), Status> {
    let _ = server;
    if resource.has_status() && resource.plural != "nodes" {
        object::remove(value, &["status"]);
    }
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "namespaces") => {
            let name = object::name(value).to_owned();
            object::set(value, &["metadata", "labels", "kubernetes.io/metadata.name"], name);
            object::set(value, &["spec", "finalizers"], json!(["kubernetes"]));
            object::set(value, &["status"], json!({ "phase": "Active" }));
        }
        ("", "pods") => object::set(value, &["status"], json!({ "phase": "Pending" })),
        ("", "persistentvolumes" | "persistentvolumeclaims") => {
            object::set(value, &["status"], json!({ "phase": "Pending" }));
        }
        ("apiextensions.k8s.io", _) => crate::crds::on_create(value),
        _ => {}
    }
    Ok(())
}

/// Takes from an update only the part of the object that it may write.
pub(crate) fn on_update(resource: &Resource, old: &Value, new: &mut Value, subresource: &str) {
    match subresource {
        "status" if resource.custom.is_some() => {
            let status = new.get("status").cloned();
            let managed = object::get(new, &["metadata", "managedFields"]).cloned();
            *new = old.clone();
            put(new, &["status"], status);
            put(new, &["metadata", "managedFields"], managed);
        }
        "status" => {
            let fields: Vec<String> =
                old.as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect();
            if let Some(map) = new.as_object_mut() {
                map.retain(|key, _| fields.contains(key) || key == "status");
            }
            for field in fields.iter().filter(|field| !matches!(field.as_str(), "metadata" | "status")) {
                object::carry(old, new, &[field]);
            }
            object::carry(old, new, &["metadata", "ownerReferences"]);
        }
        "finalize" => {
            let finalizers = object::get(new, &["spec", "finalizers"]).cloned();
            object::carry(old, new, &["status"]);
            put(new, &["spec", "finalizers"], finalizers);
        }
        _ => {
            if resource.has_status() {
                object::carry(old, new, &["status"]);
            }
            if resource.plural == "namespaces" && resource.group.is_empty() {
                object::carry(old, new, &["spec", "finalizers"]);
            }
        }
    }
}

fn put(value: &mut Value, path: &[&str], new: Option<Value>) {
    match new {
        Some(new) => object::set(value, path, new),
        None => {
            object::remove(value, path);
        }
    }
}
