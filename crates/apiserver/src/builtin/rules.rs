//! Validation of built-in kinds, with the messages of kube-apiserver.
//!
//! This module dispatches by kind and contains checks that several kinds use. It covers the rules that users commonly
//! violate; values that only matter to a kubelet or a cloud provider are not validated.

mod cluster;
mod container;
mod definition;
mod flow_control;
mod jobs;
mod pod;
mod pod_update;
mod rbac;
mod resources;
mod selector;
mod webhooks;
mod workloads;

use serde_json::Value;

use super::Gvk;
use crate::field_error::{FieldError, Path};

/// Collected validation errors.
type Errors = Vec<FieldError>;

const SPEC: Path<'static> = Path::Root("spec");

/// Validates `new` and the changes from `old`.
pub(super) fn check(gvk: Gvk<'_>, new: &Value, old: Option<&Value>, errors: &mut Errors) {
    match (gvk.group, gvk.kind) {
        ("", "Pod") => pod::check(new, old, errors),
        ("", "PodTemplate") => pod::template(&new["template"], Path::Root("template"), errors),
        ("", "Service") => cluster::service(new, errors),
        ("", "ConfigMap") => cluster::config_map(new, old, errors),
        ("", "Secret") => cluster::secret(new, old, errors),
        ("", "Node") => cluster::node(new, errors),
        ("", "ResourceQuota") => cluster::resource_quota(new, errors),
        ("apps", "Deployment") => workloads::deployment(new, old, errors),
        ("apps", "ReplicaSet") => workloads::replica_set(new, old, errors),
        ("apps", "StatefulSet") => workloads::stateful_set(new, old, errors),
        ("apps", "DaemonSet") => workloads::daemon_set(new, old, errors),
        ("batch", "Job") => jobs::job(new, old, errors),
        ("batch", "CronJob") => jobs::cron_job(new, old, errors),
        ("policy", "PodDisruptionBudget") => cluster::disruption_budget(new, errors),
        ("autoscaling", "HorizontalPodAutoscaler") => cluster::autoscaler(new, errors),
        ("scheduling.k8s.io", "PriorityClass") => cluster::priority_class(new, old, errors),
        ("coordination.k8s.io", "Lease") => cluster::lease(new, errors),
        ("flowcontrol.apiserver.k8s.io", "FlowSchema") => flow_control::flow_schema(new, errors),
        ("flowcontrol.apiserver.k8s.io", _) => flow_control::priority_level(new, errors),
        ("rbac.authorization.k8s.io", kind) => rbac::check(kind, new, old, errors),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => definition::check(new, old, errors),
        (
            "admissionregistration.k8s.io",
            "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration",
        ) => {
            webhooks::check(new, errors);
        }
        _ => {}
    }
}

/// The string field `name`; empty if it is missing.
fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value[name].as_str().unwrap_or_default()
}

/// The items of the list `name`; empty if it is missing.
fn items<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    value[name].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Rejects a negative integer.
fn nonnegative(object: &Value, name: &str, path: Path<'_>, errors: &mut Errors) {
    if let Some(number) = object[name].as_i64().filter(|number| *number < 0) {
        errors.push(FieldError::invalid(path.child(name), number, "must be greater than or equal to 0"));
    }
}

/// Rejects a change of an immutable field.
fn immutable(new: &Value, old: &Value, path: Path<'_>, errors: &mut Errors) {
    if new != old {
        errors.push(FieldError::invalid(path, new.clone(), "field is immutable"));
    }
}

/// Rejects an unsupported value. An empty value is reported as missing.
fn require_one_of(object: &Value, name: &str, known: &[&str], path: Path<'_>, errors: &mut Errors) {
    let value = text(object, name);
    if value.is_empty() {
        errors.push(FieldError::required(path.child(name), ""));
    } else if !known.contains(&value) {
        errors.push(FieldError::not_supported(path.child(name), value, known));
    }
}

/// Adds an error for `value` if `checked` is one.
fn require_ok(checked: Result<(), String>, value: &str, path: Path<'_>, errors: &mut Errors) {
    if let Err(reason) = checked {
        errors.push(FieldError::invalid(path, value, &reason));
    }
}

/// Validates a non-negative integer or percentage: `3`, `25%`.
fn int_or_percent(value: &Value, path: Path<'_>, errors: &mut Errors) {
    if value.as_i64().is_some_and(|number| number < 0) {
        errors.push(FieldError::invalid(path, value.clone(), "must be greater than or equal to 0"));
    }
    if let Some(text) = value.as_str().filter(|text| percent(text).is_none()) {
        errors.push(FieldError::invalid(
            path,
            text,
            "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')",
        ));
    }
}

fn percent(text: &str) -> Option<u64> {
    let digits = text.strip_suffix('%')?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

/// The number in `3` or `25%`.
fn magnitude(value: &Value) -> u64 {
    value.as_str().and_then(percent).or(value.as_u64()).unwrap_or_default()
}
