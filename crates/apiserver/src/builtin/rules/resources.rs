//! Resource requests and limits of containers.

use serde_json::Value;

use super::Errors;
use crate::builtin::fields::{compare, nanos};
use crate::field_error::{FieldError, Path};
use crate::names;

const NEGATIVE: &str = "must be greater than or equal to 0";

/// The field `resources` of a container.
pub(super) fn check(resources: &Value, path: Path<'_>, errors: &mut Errors) {
    let limits = resources["limits"].as_object();
    let requests = resources["requests"].as_object();
    let limits_path = path.child("limits");
    let requests_path = path.child("requests");
    for (name, quantity) in limits.into_iter().flatten() {
        container_resource(name, quantity, limits_path.key(name), errors);
    }
    for (name, quantity) in requests.into_iter().flatten() {
        container_resource(name, quantity, requests_path.key(name), errors);
        let shown = quantity.as_str().unwrap_or_default();
        match limits.and_then(|limits| limits.get(name)) {
            Some(limit) => {
                let bound = limit.as_str().unwrap_or_default();
                let order = compare(quantity, limit);
                if order.is_ne() && !allows_overcommit(name) {
                    let detail = format!("must be equal to {name} limit of {bound}");
                    errors.push(FieldError::invalid(requests_path, shown, &detail));
                } else if order.is_gt() {
                    let detail = format!("must be less than or equal to {name} limit of {bound}");
                    errors.push(FieldError::invalid(requests_path, shown, &detail));
                }
            }
            None if allows_overcommit(name) => {}
            None => errors.push(FieldError::required(
                limits_path,
                "Limit must be set for non overcommitable resources",
            )),
        }
    }
    let has =
        |prefix: &str| limits.into_iter().chain(requests).flatten().any(|(name, _)| name.starts_with(prefix));
    if has("hugepages-") && !has("cpu") && !has("memory") {
        errors.push(FieldError::forbidden(path, "HugePages require cpu or memory"));
    }
}

fn container_resource(name: &str, quantity: &Value, path: Path<'_>, errors: &mut Errors) {
    if let Err(reason) = names::qualified(name) {
        errors.push(FieldError::invalid(path, name, &reason));
    }
    let standard = matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-");
    if !name.contains('/') && !standard {
        errors.push(FieldError::invalid(path, name, "must be a standard resource type or fully qualified"));
        errors.push(FieldError::invalid(path, name, "must be a standard resource for containers"));
    } else if is_extended(name) && name.starts_with("requests.") {
        errors.push(FieldError::invalid(path, name, "doesn't follow extended resource name standard"));
    }
    quantity_value(name, quantity, path, errors);
}

/// Validates a quantity of the resource `name`.
pub(super) fn quantity_value(name: &str, quantity: &Value, path: Path<'_>, errors: &mut Errors) {
    if nanos(quantity) < 0 {
        errors.push(FieldError::invalid(path, quantity.clone(), NEGATIVE));
    }
    if is_extended(name) && nanos(quantity) % 1_000_000_000 != 0 {
        errors.push(FieldError::invalid(path, quantity.clone(), "must be an integer"));
    }
}

/// Whether a `ResourceQuota` may limit the resource: a pod resource or an object count.
pub(super) fn is_quota_resource(name: &str) -> bool {
    const OBJECTS: [&str; 9] = [
        "pods",
        "services",
        "replicationcontrollers",
        "resourcequotas",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "services.nodeports",
        "services.loadbalancers",
    ];
    let resource = name.strip_prefix("requests.").or(name.strip_prefix("limits.")).unwrap_or(name);
    OBJECTS.contains(&name)
        || matches!(resource, "cpu" | "memory" | "ephemeral-storage")
        || name == "requests.storage"
        || resource.starts_with("hugepages-")
}

/// Whether the resource is an extended resource such as `nvidia.com/gpu`.
fn is_extended(name: &str) -> bool {
    name.contains('/') && !name.starts_with("kubernetes.io/") && !name.contains(".kubernetes.io/")
}

/// Whether requests may be smaller than limits (overcommit).
fn allows_overcommit(name: &str) -> bool {
    !is_extended(name) && !name.starts_with("hugepages-")
}
