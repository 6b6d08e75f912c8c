//! Managed fields of a write: the field manager, the type of the object, and the fields that server-side apply ignores.

use jiff::Timestamp;
use serde_json::Value;

use crate::openapi;
use crate::registry::Resource;
use crate::ssa::{self, ApplyError, Write};
use crate::typeinfo::{TypeInfo, UNTYPED};

/// The field manager of a write.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FieldManager<'a> {
    pub(crate) name: &'a str,
    /// The subresource that is written; empty for the main resource.
    pub(crate) subresource: &'a str,
    pub(crate) now: Timestamp,
}

/// The type of the objects of a resource, for patches and managed fields.
pub(crate) fn types(resource: &Resource) -> &dyn TypeInfo {
    match &resource.custom {
        Some(custom) => custom.structural.as_ref().map_or(&UNTYPED as &dyn TypeInfo, |schema| schema),
        None => openapi::builtin(&resource.group, &resource.version, &resource.kind)
            .map_or(&UNTYPED as &dyn TypeInfo, |kind| kind),
    }
}

/// Applies a configuration to `old` by server-side apply; creates the object if `old` is `None`.
pub(crate) fn apply(
    resource: &Resource,
    manager: &FieldManager<'_>,
    old: Option<&Value>,
    configuration: &Value,
    force: bool,
) -> Result<Value, ApplyError> {
    with_write_context(resource, manager, |write| ssa::apply(old, configuration, force, write))
}

/// Updates the managed fields after a write other than server-side apply.
pub(crate) fn track(resource: &Resource, manager: &FieldManager<'_>, old: Option<&Value>, new: &mut Value) {
    with_write_context(resource, manager, |write| ssa::track(old, new, write));
}

/// Updates the managed fields for a change by a built-in controller, with the field manager of a real cluster.
pub(crate) fn track_system_update(
    now: Timestamp,
    resource: &Resource,
    old: &Value,
    new: &mut Value,
    (name, subresource): (&str, &str),
) {
    track(resource, &FieldManager { name, subresource, now }, Some(old), new);
}

fn with_write_context<T>(
    resource: &Resource,
    manager: &FieldManager<'_>,
    act: impl FnOnce(&Write<'_>) -> T,
) -> T {
    let api_version = resource.api_version();
    let reset: &[&[&str]] = match (manager.subresource, resource.custom.is_some()) {
        ("", _) if resource.has_status() => &[&["status"]],
        ("status", true) => &[&["spec"], &["metadata"]],
        ("status", false) => &[&["spec"]],
        _ => &[],
    };
    act(&Write {
        manager: manager.name,
        api_version: &api_version,
        kind: &resource.kind,
        subresource: Some(manager.subresource).filter(|name| !name.is_empty()),
        reset,
        now: manager.now,
        types: types(resource),
    })
}
