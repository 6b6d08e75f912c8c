//! Converts items to complete objects. A `kind: List` is flattened.
//!
//! The condensed form of published articles has one item directly under `resources`. It may omit names, `apiVersion`
//! and the pod template around containers, which are filled in here.

use serde_json::{Map, Value, json};

use super::spec::{Item, SpecError, custom_pod_resources};
use crate::value::{at, list, text};

/// The items of `resources`: those of `GenericItems`, then the condensed item.
pub(super) fn items(
    resources: &Value,
    wrapper: &str,
    notes: &mut Vec<String>,
) -> Result<Vec<Item>, SpecError> {
    let mut items = Vec::new();
    for (position, item) in list(resources, &["GenericItems"]).iter().enumerate() {
        items.push(read(item, position, None, notes)?);
    }
    if resources.get("generictemplate").is_some_and(|template| !template.is_null()) {
        let mut condensed = resources.clone();
        fill_in(&mut condensed["generictemplate"], wrapper, notes);
        items.push(read(&condensed, items.len(), Some(wrapper), notes)?);
    }
    Ok(items)
}

/// Reads one item. Objects without a name get `name`, and are an error without one.
fn read(
    item: &Value,
    position: usize,
    name: Option<&str>,
    notes: &mut Vec<String>,
) -> Result<Item, SpecError> {
    let template = item
        .get("generictemplate")
        .filter(|template| template.as_object().is_some_and(|map| !map.is_empty()));
    let template = template.ok_or(SpecError::NoTemplate { item: position })?;
    let mut objects = Vec::new();
    flatten(template, &mut objects);
    for object in &mut objects {
        for (field, path) in [("kind", &["kind"][..]), ("apiVersion", &["apiVersion"])] {
            text(object, path).ok_or(SpecError::Incomplete { item: position, field })?;
        }
        if !is_named(object) {
            let name = name.ok_or(SpecError::Incomplete { item: position, field: "metadata.name" })?;
            set_name(object, name);
        }
        move_containers(object, notes);
    }
    let words = text(item, &["completionstatus"]).unwrap_or_default().split(',').map(str::trim);
    Ok(Item {
        objects,
        custom_pod_resources: custom_pod_resources(list(item, &["custompodresources"]), position)?,
        completion: words.filter(|word| !word.is_empty()).map(str::to_owned).collect(),
    })
}

/// Appends the objects of a template: the items of a list, recursively, or the template itself.
fn flatten(template: &Value, objects: &mut Vec<Value>) {
    match template.get("items").and_then(Value::as_array) {
        Some(inner) if text(template, &["kind"]).is_some_and(|kind| kind.ends_with("List")) => {
            for object in inner {
                flatten(object, objects);
            }
        }
        _ => objects.push(template.clone()),
    }
}

/// Fills in `apiVersion` and name.
fn fill_in(template: &mut Value, wrapper: &str, notes: &mut Vec<String>) {
    let Some(kind) = text(template, &["kind"]).map(str::to_owned) else { return };
    if text(template, &["apiVersion"]).is_none()
        && let Some(api_version) = default_api_version(&kind)
    {
        template["apiVersion"] = json!(api_version);
        notes.push(format!("apiVersion {api_version}"));
    }
    if !is_named(template) {
        set_name(template, wrapper);
        notes.push(format!("name {wrapper}"));
    }
}

/// Whether an object has a name, or asks for a generated one.
pub(super) fn is_named(object: &Value) -> bool {
    ["name", "generateName"].iter().any(|field| text(object, &["metadata", field]).is_some())
}

fn set_name(object: &mut Value, name: &str) {
    if let Some(map) = object.as_object_mut() {
        let metadata = map.entry("metadata").or_insert_with(|| json!({}));
        if !metadata.is_object() {
            *metadata = json!({});
        }
        metadata["name"] = json!(name);
    }
}

fn default_api_version(kind: &str) -> Option<&'static str> {
    match kind {
        "RayCluster" | "RayJob" | "RayService" => Some("ray.io/v1"),
        "Job" | "CronJob" => Some("batch/v1"),
        "Deployment" | "StatefulSet" | "ReplicaSet" | "DaemonSet" => Some("apps/v1"),
        "Pod" | "Service" | "ConfigMap" | "Secret" | "PersistentVolumeClaim" | "ServiceAccount" => Some("v1"),
        _ => None,
    }
}

/// Moves containers that are directly in a Ray group to `template.spec` of the group, and names groups and containers.
fn move_containers(object: &mut Value, notes: &mut Vec<String>) {
    let Some(cluster) = ray_cluster_mut(object) else { return };
    if let Some(head) = cluster.get_mut("headGroupSpec") {
        add_template(head, "headGroupSpec", "ray-head", notes);
    }
    let Some(groups) = cluster.get_mut("workerGroupSpecs").and_then(Value::as_array_mut) else { return };
    let single = groups.len() == 1;
    for (position, group) in groups.iter_mut().enumerate() {
        let place = format!("workerGroupSpecs[{position}]");
        add_template(group, &place, "ray-worker", notes);
        if group.is_object() && text(group, &["groupName"]).is_none() {
            let name = if single { "worker".to_owned() } else { format!("worker-{}", position + 1) };
            notes.push(format!("{place}.groupName {name}"));
            group["groupName"] = json!(name);
        }
    }
}

/// The mutable `RayCluster` spec of a Ray object, if it has one.
fn ray_cluster_mut(object: &mut Value) -> Option<&mut Value> {
    if !text(object, &["apiVersion"])?.starts_with("ray.io/") {
        return None;
    }
    let inner = match text(object, &["kind"])? {
        "RayCluster" => None,
        "RayJob" => Some("rayClusterSpec"),
        "RayService" => Some("rayClusterConfig"),
        _ => return None,
    };
    let spec = object.get_mut("spec")?;
    match inner {
        Some(key) => spec.get_mut(key),
        None => Some(spec),
    }
}

fn add_template(group: &mut Value, place: &str, container_name: &str, notes: &mut Vec<String>) {
    let Some(map) = group.as_object_mut() else { return };
    if map.contains_key("template") || !map.contains_key("containers") {
        return;
    }
    let mut pod = Map::new();
    for key in [
        "containers",
        "initContainers",
        "volumes",
        "nodeSelector",
        "affinity",
        "tolerations",
        "serviceAccountName",
    ] {
        if let Some(value) = map.remove(key) {
            pod.insert(key.to_owned(), value);
        }
    }
    notes.push(format!("{place}.template.spec around its containers"));
    for (position, container) in pod["containers"].as_array_mut().into_iter().flatten().enumerate() {
        if container.is_object() && text(container, &["name"]).is_none() {
            let name = if position == 0 {
                container_name.to_owned()
            } else {
                format!("{container_name}-{}", position + 1)
            };
            notes.push(format!("container name {name}"));
            container["name"] = json!(name);
        }
    }
    map.insert("template".to_owned(), json!({ "spec": pod }));
}

/// The `RayCluster` spec of a Ray object, if it has one.
pub(crate) fn ray_cluster(object: &Value) -> Option<&Value> {
    if !text(object, &["apiVersion"])?.starts_with("ray.io/") {
        return None;
    }
    let path: &[&str] = match text(object, &["kind"])? {
        "RayCluster" => &["spec"],
        "RayJob" => &["spec", "rayClusterSpec"],
        "RayService" => &["spec", "rayClusterConfig"],
        _ => return None,
    };
    Some(at(object, path)).filter(|spec| spec.is_object())
}
