//! What kinds do differently when they are created or updated: who may write which part, and what the server adds.
//!
//! Defaults and rules of fields are left to `builtin`; here is what needs other objects, the server's own numbers or
//! the old state. Pods have a file of their own, and so do services.

mod pods;
mod services;

use serde_json::Value;

pub(crate) use self::services::Allocations;
use crate::builtin;
use crate::object;
use crate::openapi;
use crate::registry::Resource;
use crate::server::ApiServer;
use crate::status::Status;
use crate::store::Object;
use crate::write::gvk;

/// Top-level fields whose change makes a new generation of a built-in kind.
pub(crate) const SPECS: &[&str] = &["spec", "template", "webhooks", "endpoints", "ports"];

/// Prepares a new object.
pub(crate) fn on_create(
    server: &mut ApiServer,
    resource: &Resource,
    value: &mut Value,
) -> Result<(), Status> {
    // Nodes bring their status: the node agent registers itself with it.
    if resource.has_status() && *resource.storage != *"nodes" {
        let empty = match resource.custom {
            None => openapi::empty_status(&resource.group, &resource.version, &resource.kind),
            Some(_) => None,
        };
        put(value, &["status"], empty);
    }
    builtin::generate(gvk(resource), value);
    match &*resource.storage {
        "pods" => pods::on_create(server, value)?,
        "services" => services::on_create(server, value)?,
        crate::crds::STORAGE => crate::crds::on_create(value),
        _ => {}
    }
    Ok(())
}

/// Takes from an update only the part of the object that it may write.
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
            put(new, &["status"], status);
            put(new, &["metadata", "managedFields"], managed);
        }
        "status" => {
            keep_all_but(old, new, &["status"]);
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
            put(new, &["spec", "finalizers"], finalizers);
        }
        _ => {
            if resource.has_status() {
                object::carry(old, new, &["status"]);
            }
            match &*resource.storage {
                "namespaces" => object::carry(old, new, &["spec", "finalizers"]),
                "services" => services::on_update(server, old, new)?,
                crate::crds::STORAGE => crate::crds::on_update(new),
                _ => {}
            }
        }
    }
    Ok(())
}

/// Restores every field but metadata and those named; owners cannot change with a part either.
fn keep_all_but(old: &Value, new: &mut Value, written: &[&str]) {
    let kept = |key: &str| key != "metadata" && !written.contains(&key);
    if let Some(fields) = new.as_object_mut() {
        fields.retain(|key, _| !kept(key));
    }
    for (key, field) in old.as_object().into_iter().flatten().filter(|(key, _)| kept(key)) {
        object::set(new, &[key], field.clone());
    }
    object::carry(old, new, &["metadata", "ownerReferences"]);
}

fn put(value: &mut Value, path: &[&str], new: Option<Value>) {
    match new {
        Some(new) => object::set(value, path, new),
        None => {
            object::remove(value, path);
        }
    }
}

/// Takes back what the server gave to an object that is gone.
pub(crate) fn on_gone(server: &mut ApiServer, resource: &Resource, gone: &Object) {
    match &*resource.storage {
        "services" => services::on_gone(server, &gone.value()),
        "pods" => server.forget_logs(&gone.uid),
        _ => {}
    }
}
