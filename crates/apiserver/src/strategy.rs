//! Create and update strategies, like `PrepareForCreate` and `PrepareForUpdate` of kube-apiserver: restricts an update
//! to the fields that the main resource or subresource may write, and adds fields that depend on other objects, on
//! allocators or on the old object.
//!
//! Defaulting and validation of fields are in `builtin`.

mod claims;
pub(crate) mod definitions;
mod limit_ranges;
mod pods;
mod runtime_classes;
mod services;

use serde_json::Value;

use crate::builtin::{self, Gvk};
use crate::object;
use crate::openapi;
use crate::registry::Resource;
use crate::server::ApiServer;
use crate::status::Status;
use crate::store::Object;

/// Top-level fields of built-in kinds whose change increments `metadata.generation`.
pub(crate) const GENERATION_FIELDS: &[&str] = &["spec", "template", "webhooks", "endpoints", "ports"];

pub(crate) fn gvk(resource: &Resource) -> Gvk<'_> {
    Gvk { group: &resource.group, version: &resource.version, kind: &resource.kind }
}

/// Prepares a new object.
pub(crate) fn on_create(
    server: &mut ApiServer,
    resource: &Resource,
    value: &mut Value,
) -> Result<(), Status> {
    // A kubelet registers its node with a status; other kinds lose the status at creation.
    if resource.has_status() && *resource.storage != *"nodes" {
        let empty = match resource.custom {
            None => openapi::empty_status(&resource.group, &resource.version, &resource.kind),
            Some(_) => None,
        };
        set_or_remove(value, &["status"], empty);
    }
    match &*resource.storage {
        "pods" => limit_ranges::set_defaults(server, value),
        "persistentvolumeclaims" => claims::set_class(server, value),
        _ => {}
    }
    builtin::generate(gvk(resource), value);
    match &*resource.storage {
        "pods" => pods::on_create(server, value)?,
        "persistentvolumeclaims" => limit_ranges::check_claim(server, value)
            .map_err(|why| Status::forbidden("", "persistentvolumeclaims", object::name(value), &why))?,
        "services" => services::on_create(server, value)?,
        definitions::STORAGE => definitions::on_create(value),
        _ => {}
    }
    Ok(())
}

/// Restores the fields of an update that the main resource or subresource may not write.
pub(crate) fn on_update(
    server: &mut ApiServer,
    resource: &Resource,
    old: &Value,
    new: &mut Value,
    subresource: &str,
) -> Result<(), Status> {
    match subresource {
        "status" if resource.custom.is_some() => {
            let status = new.get("status").cloned();
            let managed = object::get(new, &["metadata", "managedFields"]).cloned();
            *new = old.clone();
            set_or_remove(new, &["status"], status);
            set_or_remove(new, &["metadata", "managedFields"], managed);
        }
        "status" => {
            restore_all_but(old, new, &["status"]);
            if *resource.storage == *"pods" {
                pods::on_status(old, new);
            }
        }
        "resize" | "ephemeralcontainers" => {
            let containers = pods::writable(new, subresource);
            *new = old.clone();
            for (path, part) in containers {
                object::set(new, &["spec", path], part);
            }
        }
        "finalize" => {
            let finalizers = object::get(new, &["spec", "finalizers"]).cloned();
            *new = old.clone();
            set_or_remove(new, &["spec", "finalizers"], finalizers);
        }
        _ => {
            if resource.has_status() {
                object::carry(old, new, &["status"]);
            }
            match &*resource.storage {
                "namespaces" => object::carry(old, new, &["spec", "finalizers"]),
                "services" => services::on_update(server, old, new)?,
                definitions::STORAGE => definitions::on_update(new),
                _ => {}
            }
        }
    }
    Ok(())
}

/// Restores every field except metadata and `written`. Restores owner references too, as a subresource cannot change
/// them.
fn restore_all_but(old: &Value, new: &mut Value, written: &[&str]) {
    let kept = |key: &str| key != "metadata" && !written.contains(&key);
    if let Some(fields) = new.as_object_mut() {
        fields.retain(|key, _| !kept(key));
    }
    for (key, field) in old.as_object().into_iter().flatten().filter(|(key, _)| kept(key)) {
        object::set(new, &[key], field.clone());
    }
    object::carry(old, new, &["metadata", "ownerReferences"]);
}

fn set_or_remove(value: &mut Value, path: &[&str], new: Option<Value>) {
    match new {
        Some(new) => object::set(value, path, new),
        None => {
            object::remove(value, path);
        }
    }
}

/// Releases the allocations and logs of a deleted object.
pub(crate) fn on_deleted(server: &mut ApiServer, resource: &Resource, gone: &Object) {
    match &*resource.storage {
        "services" => services::on_deleted(server, &gone.value()),
        "pods" => server.forget_logs(&gone.uid),
        _ => {}
    }
}
