//! Conversion between the storage version and the served versions of a resource.
//!
//! Versions of custom resources differ only in `apiVersion` (conversion strategy `None`), or a converter is registered. Events are stored as `v1` and
//! also served as `events.k8s.io/v1`. Horizontal pod autoscalers are stored as `v2` and also served as `v1`.

use serde_json::{Value, json};

use crate::converter::{Conversion, failed};
use crate::object;
use crate::registry::Resource;
use crate::status::Status;

/// Event fields with different names in `v1` and `events.k8s.io/v1`.
const EVENT_NAMES: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

/// Converts a stored object to the version of `resource`.
pub(crate) fn from_storage(resource: &Resource, mut value: Value) -> Value {
    let wanted = resource.api_version();
    if object::text(&value, &["apiVersion"]) == wanted {
        return value;
    }
    match (resource.plural.as_str(), wanted.as_str()) {
        ("events", "events.k8s.io/v1") => rename(&mut value, EVENT_NAMES.iter().copied()),
        ("horizontalpodautoscalers", "autoscaling/v1") => autoscaler_to_v1(&mut value),
        _ => {}
    }
    // Cannot fail: what cannot be converted is not stored.
    if let Err(why) = convert_custom(resource, &mut value, &wanted) {
        tracing::error!(name = object::name(&value), "cannot convert a stored object to {wanted}: {why}");
    }
    object::set(&mut value, &["apiVersion"], wanted);
    apply_schema(resource, &mut value);
    value
}

/// Prunes and defaults a custom resource by the schema of the version that it was converted to.
pub(crate) fn apply_schema(resource: &Resource, value: &mut Value) {
    if let Some(schema) = resource.custom.as_ref().and_then(|custom| custom.structural.as_ref()) {
        schema.prune(value);
        schema.default(value);
    }
}

/// Converts an object in the version of `resource` to the storage version.
///
/// # Errors
/// The registered converter refuses the object.
pub(crate) fn to_storage(resource: &Resource, mut value: Value) -> Result<Value, Status> {
    let written = resource.api_version();
    if written == resource.stored_as {
        return Ok(value);
    }
    match (resource.plural.as_str(), written.as_str()) {
        ("events", "events.k8s.io/v1") => rename(&mut value, EVENT_NAMES.iter().map(|(a, b)| (*b, *a))),
        ("horizontalpodautoscalers", "autoscaling/v1") => autoscaler_from_v1(&mut value),
        _ => {}
    }
    let converted = convert_custom(resource, &mut value, &resource.stored_as);
    converted.map_err(|why| failed(resource, &written, &why))?;
    object::set(&mut value, &["apiVersion"], resource.stored_as.as_str());
    Ok(value)
}

/// Converts a custom resource by its registered converter, if there is one.
fn convert_custom(resource: &Resource, value: &mut Value, wanted: &str) -> Result<(), String> {
    match resource.custom.as_ref().map(|custom| &custom.conversion) {
        Some(Conversion::ByConverter(converter)) => converter.convert(value, wanted),
        Some(Conversion::ByVersion | Conversion::Missing) | None => Ok(()),
    }
}

fn rename<'a>(value: &mut Value, names: impl Iterator<Item = (&'a str, &'a str)>) {
    let Some(fields) = value.as_object_mut() else { return };
    for (from, to) in names {
        if let Some(field) = fields.remove(from) {
            fields.insert(to.into(), field);
        }
    }
}

/// The annotation that holds metrics for which `v1` has no field, as in kube-apiserver.
const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";

fn autoscaler_to_v1(value: &mut Value) {
    let metrics = object::remove(value, &["spec", "metrics"]).unwrap_or_default();
    let cpu = |metric: &Value| {
        let utilization = object::int(metric, &["resource", "target", "averageUtilization"]);
        (object::text(metric, &["resource", "name"]) == "cpu").then_some(utilization).flatten()
    };
    let metrics = metrics.as_array().cloned().unwrap_or_default();
    if let Some(percent) = metrics.iter().find_map(cpu) {
        object::set(value, &["spec", "targetCPUUtilizationPercentage"], percent);
    }
    let others: Vec<&Value> = metrics.iter().filter(|metric| cpu(metric).is_none()).collect();
    if !others.is_empty() {
        object::set(value, &["metadata", "annotations", METRICS], json!(others).to_string());
    }
    let current = object::remove(value, &["status", "currentMetrics"]).unwrap_or_default();
    let percent = current
        .as_array()
        .into_iter()
        .flatten()
        .find_map(|metric| object::int(metric, &["resource", "current", "averageUtilization"]));
    if let Some(percent) = percent {
        object::set(value, &["status", "currentCPUUtilizationPercentage"], percent);
    }
    object::remove(value, &["status", "conditions"]);
    object::remove(value, &["spec", "behavior"]);
}

fn autoscaler_from_v1(value: &mut Value) {
    let mut metrics = Vec::new();
    if let Some(percent) = object::remove(value, &["spec", "targetCPUUtilizationPercentage"]) {
        metrics.push(json!({
            "type": "Resource",
            "resource": { "name": "cpu", "target": { "type": "Utilization", "averageUtilization": percent } },
        }));
    }
    if let Some(Value::String(text)) = object::remove(value, &["metadata", "annotations", METRICS])
        && let Ok(Value::Array(others)) = serde_json::from_str(&text)
    {
        metrics.extend(others);
    }
    if !metrics.is_empty() {
        object::set(value, &["spec", "metrics"], metrics);
    }
    if let Some(percent) = object::remove(value, &["status", "currentCPUUtilizationPercentage"]) {
        let current = json!([{
            "type": "Resource",
            "resource": { "name": "cpu", "current": { "averageUtilization": percent } },
        }]);
        object::set(value, &["status", "currentMetrics"], current);
    }
}
