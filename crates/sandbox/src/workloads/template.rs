//! Creation of pods from templates, and comparison of templates.

use std::cmp::Reverse;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::cluster::Resource;
use crate::pace::{Pace, suffix};
use crate::wire::{Owner, Pod, Stamp};

/// A pod from `template`, with `owner` as its controller.
pub(crate) fn pod<K: Resource>(template: &Value, owner: &K) -> Value {
    let meta = owner.meta();
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": meta.namespace,
            "generateName": format!("{}-", meta.name),
            "ownerReferences": [Owner::controller_of(K::KIND.api_version, K::KIND.name, meta)],
        },
        "spec": template["spec"],
    });
    for field in ["labels", "annotations", "finalizers"] {
        if !template["metadata"][field].is_null() {
            pod["metadata"][field] = template["metadata"][field].clone();
        }
    }
    pod
}

/// The same with a fixed name.
pub(crate) fn named_pod<K: Resource>(template: &Value, owner: &K, name: &str) -> Value {
    let mut pod = pod(template, owner);
    if let Some(metadata) = pod["metadata"].as_object_mut() {
        metadata.remove("generateName");
        metadata.insert("name".into(), json!(name));
    }
    pod
}

/// Sets entries of a map in the metadata.
pub(crate) fn set_metadata<'a>(
    object: &mut Value,
    field: &str,
    entries: impl IntoIterator<Item = (&'a str, String)>,
) {
    let slot = &mut object["metadata"][field];
    if !slot.is_object() {
        *slot = Value::Object(Map::new());
    }
    for (name, value) in entries {
        slot[name] = json!(value);
    }
}

/// A hash of the template: ten letters.
pub(crate) fn hash(template: &Value) -> String {
    let text = template.to_string();
    let half = |part| suffix(Pace::new(1.0, part).draw(&text));
    half(1) + &half(2)
}

/// Whether the pod has been ready for at least `min_ready_seconds`.
pub(super) fn is_available(pod: &Pod, min_ready_seconds: i64, now: Stamp) -> bool {
    let ready = pod.condition("Ready").filter(|ready| ready.status == "True");
    let long = |since: Stamp| now.0.duration_since(since.0).as_secs() >= min_ready_seconds;
    ready.is_some_and(|ready| min_ready_seconds == 0 || ready.last_transition_time.is_some_and(long))
}

/// Sorts pods in the order in which a controller deletes surplus pods: unbound, not running, not ready, youngest,
/// then by name.
pub(super) fn sort_by_deletion_priority(pods: &mut [Arc<Pod>]) {
    pods.sort_by_key(|pod| {
        let age = Reverse(pod.metadata.creation_timestamp);
        (!pod.spec.node_name.is_empty(), pod.is_running(), pod.is_ready(), age, pod.metadata.name.clone())
    });
}

/// The number of pods that pass the check.
pub(super) fn count(pods: &[Arc<Pod>], check: impl Fn(&Pod) -> bool) -> i64 {
    i64::try_from(pods.iter().filter(|pod| check(pod)).count()).unwrap_or(i64::MAX)
}

/// The value of an `IntOrString`: a number, or a percentage of `total` that is rounded up or down.
pub(crate) fn int_or_percent(value: &Value, total: i64, default: &str, up: bool) -> i64 {
    let text = match value {
        Value::Number(number) => return number.as_i64().unwrap_or(0),
        Value::String(text) => text.as_str(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => default,
    };
    let percent: i64 = text.trim_end_matches('%').parse().unwrap_or(0);
    (percent * total + if up { 99 } else { 0 }) / 100
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_int_or_percent_is_a_number_or_a_percentage() {
        for (value, total, up, expected) in [
            (json!(2), 10, true, 2),
            (json!("25%"), 10, true, 3),
            (json!("25%"), 10, false, 2),
            (Value::Null, 3, true, 1),
            (Value::Null, 3, false, 0),
        ] {
            assert_eq!(int_or_percent(&value, total, "25%", up), expected, "{value} of {total}");
        }
    }
}
