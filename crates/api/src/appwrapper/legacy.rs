//! `resources.Items`: the typed items of before 2023, turned into plain objects.

use serde_json::{Value, json};

use super::NAME_LABEL;
use super::spec::{Item, SpecError};
use crate::value::{at, count, text};

/// More pods than one wrapper may list one by one; templates with a count have no such limit.
const PODS_MAX: u32 = 1_000;

/// Items of the legacy list, each as the objects that it stands for.
pub(super) fn items(legacy: &[Value], wrapper: &str) -> Result<Vec<Item>, SpecError> {
    legacy.iter().enumerate().map(|(position, item)| read(item, position, wrapper)).collect()
}

fn read(item: &Value, position: usize, wrapper: &str) -> Result<Item, SpecError> {
    let template = item.get("template").filter(|template| template.is_object());
    let template = template.ok_or(SpecError::NoTemplate { item: position })?;
    let kind = text(item, &["type"]).or_else(|| text(template, &["kind"])).unwrap_or_default();
    let objects = match kind {
        "Pod" => match count(item, &["replicas"], 1) {
            replicas if replicas > PODS_MAX => {
                return Err(SpecError::LegacyPods { item: position, replicas });
            }
            replicas => pods(template, replicas, position, wrapper),
        },
        "Service" | "Secret" | "ConfigMap" | "PersistentVolumeClaim" => vec![typed(template, "v1", kind)],
        "StatefulSet" | "Deployment" | "ReplicaSet" => vec![typed(template, "apps/v1", kind)],
        "NetworkPolicy" => vec![typed(template, "networking.k8s.io/v1", kind)],
        _ => return Err(SpecError::LegacyType { item: position, kind: kind.to_owned() }),
    };
    Ok(Item { objects, ..Item::default() })
}

/// Pods of an item that holds a pod template (or a pod) and a number.
fn pods(template: &Value, replicas: u32, item: usize, wrapper: &str) -> Vec<Value> {
    let pod = template.get("template").unwrap_or(template);
    let one = |index| {
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
    (0..replicas).map(one).collect()
}

fn typed(template: &Value, api_version: &str, kind: &str) -> Value {
    let mut object = template.clone();
    if text(&object, &["apiVersion"]).is_none() {
        object["apiVersion"] = json!(api_version);
    }
    object["kind"] = json!(kind);
    object
}
