//! Between versions and views of one stored resource.
//!
//! Versions of custom resources differ in `apiVersion` alone (strategy `None`). Events are stored as `v1` and seen as
//! `events.k8s.io/v1` too; horizontal pod autoscalers are stored as `v2` and seen as `v1` too.

use serde_json::{Value, json};

use crate::object;
use crate::registry::Resource;

/// Fields of events by the names of `v1` and of `events.k8s.io/v1`.
const EVENT_NAMES: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

/// A stored object as `resource` shows it.
pub(crate) fn present(resource: &Resource, mut value: Value) -> Value {
    let wanted = resource.api_version();
    if object::text(&value, &["apiVersion"]) == wanted {
        return value;
    }
    match (resource.plural.as_str(), wanted.as_str()) {
        ("events", "events.k8s.io/v1") => rename(&mut value, EVENT_NAMES.iter().copied()),
        ("horizontalpodautoscalers", "autoscaling/v1") => autoscaler_to_v1(&mut value),
        _ => {}
    }
    object::set(&mut value, &["apiVersion"], wanted);
    fit(resource, &mut value);
    value
}

/// Prunes and defaults a custom object by the schema of a version that it was converted to.
pub(crate) fn fit(resource: &Resource, value: &mut Value) {
    if let Some(schema) = resource.custom.as_ref().and_then(|custom| custom.structural.as_ref()) {
        schema.prune(value);
        schema.default(value);
    }
}

/// An object that was written through `resource`, as it is stored.
pub(crate) fn store(resource: &Resource, mut value: Value) -> Value {
    let written = resource.api_version();
    if written == resource.stored_as {
        return value;
    }
    match (resource.plural.as_str(), written.as_str()) {
        ("events", "events.k8s.io/v1") => rename(&mut value, EVENT_NAMES.iter().map(|(a, b)| (*b, *a))),
        ("horizontalpodautoscalers", "autoscaling/v1") => autoscaler_from_v1(&mut value),
        _ => {}
    }
    object::set(&mut value, &["apiVersion"], resource.stored_as.as_str());
    value
}

fn rename<'a>(value: &mut Value, names: impl Iterator<Item = (&'a str, &'a str)>) {
    let Some(fields) = value.as_object_mut() else { return };
    for (from, to) in names {
        if let Some(field) = fields.remove(from) {
            fields.insert(to.into(), field);
        }
    }
}

/// Metrics that `v1` has no field for travel in this annotation, as in a real server.
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
