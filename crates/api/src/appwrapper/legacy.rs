//! `resources.Items`: the typed items of AppWrappers before 2023, converted to plain objects.

use serde_json::{Value, json};

use super::NAME_LABEL;
use super::canonical::is_named;
use super::spec::{Item, SpecError};
use crate::value::{at, count, text};

/// Converts the items of the legacy list.
pub(super) fn items(legacy: &[Value], wrapper: &str) -> Result<Vec<Item>, SpecError> {
    legacy.iter().enumerate().map(|(position, item)| read(item, position, wrapper)).collect()
}

fn read(item: &Value, position: usize, wrapper: &str) -> Result<Item, SpecError> {
    let template = item.get("template").filter(|template| template.is_object());
    let template = template.ok_or(SpecError::NoTemplate { item: position })?;
    let kind = text(item, &["type"]).or_else(|| text(template, &["kind"])).unwrap_or_default();
    let objects = match kind {
        "Pod" => pods(template, count(item, &["replicas"], 1), position, wrapper),
        "Service" | "Secret" | "ConfigMap" | "PersistentVolumeClaim" => vec![typed(template, "v1", kind)],
        "StatefulSet" | "Deployment" | "ReplicaSet" => vec![typed(template, "apps/v1", kind)],
        "NetworkPolicy" => vec![typed(template, "networking.k8s.io/v1", kind)],
        _ => return Err(SpecError::LegacyType { item: position, kind: kind.to_owned() }),
    };
    if objects.iter().any(|object| !is_named(object)) {
        return Err(SpecError::LegacyName { item: position });
    }
    Ok(Item { objects, ..Item::default() })
}

/// The pods of an item with a pod template (or a pod) and `replicas`.
fn pods(template: &Value, replicas: u32, item: usize, wrapper: &str) -> Vec<Value> {
    let pod = template.get("template").unwrap_or(template);
    let pod_at = |index| {
        let mut metadata = at(pod, &["metadata"]).clone();
        if !metadata.is_object() {
            metadata = json!({});
        }
        metadata["name"] = json!(format!("{wrapper}-{item}-{index}"));
        if !metadata["labels"].is_object() {
            metadata["labels"] = json!({});
        }
        metadata["labels"]["appwrapper-name"] = json!(wrapper);
        metadata["labels"][NAME_LABEL] = json!(wrapper);
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod["spec"]})
    };
    (0..replicas).map(pod_at).collect()
}

fn typed(template: &Value, api_version: &str, kind: &str) -> Value {
    let mut object = template.clone();
    if text(&object, &["apiVersion"]).is_none() {
        object["apiVersion"] = json!(api_version);
    }
    object["kind"] = json!(kind);
    object
}
