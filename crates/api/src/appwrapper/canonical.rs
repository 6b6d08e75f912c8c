//! From what authors write to complete objects: `kind: List`, and the condensed shape of published articles, which puts one
//! item directly under `resources` and leaves out names, `apiVersion` and the inner `template`.

use serde_json::{Map, Value, json};

use super::spec::{Item, SpecError, rows};
use crate::value::{at, list, text};

/// Items of `resources`: those under `GenericItems`, and the condensed one.
pub(super) fn items(
    resources: &Value,
    wrapper: &str,
    notes: &mut Vec<String>,
) -> Result<Vec<Item>, SpecError> {
    let mut items = Vec::new();
    for (position, item) in list(resources, &["GenericItems"]).iter().enumerate() {
        items.push(read(item, position, wrapper, notes)?);
    }
    if resources.get("generictemplate").is_some_and(|template| !template.is_null()) {
        let mut condensed = resources.clone();
        complete(&mut condensed["generictemplate"], wrapper, notes);
        items.push(read(&condensed, items.len(), wrapper, notes)?);
    }
    Ok(items)
}

fn read(item: &Value, position: usize, wrapper: &str, notes: &mut Vec<String>) -> Result<Item, SpecError> {
    let template = item
        .get("generictemplate")
        .filter(|template| template.as_object().is_some_and(|map| !map.is_empty()));
    let template = template.ok_or(SpecError::NoTemplate { item: position })?;
    let mut objects = Vec::new();
    unpack(template, &mut objects);
    for object in &mut objects {
        for (field, path) in [("kind", &["kind"][..]), ("apiVersion", &["apiVersion"])] {
            text(object, path).ok_or(SpecError::Incomplete { item: position, field })?;
        }
        // A name is only missing in the condensed shape, where the wrapper's stands in.
        if text(object, &["metadata", "name"]).is_none()
            && text(object, &["metadata", "generateName"]).is_none()
        {
            set_name(object, wrapper);
        }
        lift_containers(object, notes);
    }
    let words = text(item, &["completionstatus"]).unwrap_or_default().split(',').map(str::trim);
    Ok(Item {
        objects,
        rows: rows(list(item, &["custompodresources"]), position)?,
        completion: words.filter(|word| !word.is_empty()).map(str::to_owned).collect(),
    })
}

/// The objects of a template: those of a list, lists within lists included, or the template itself.
fn unpack(template: &Value, objects: &mut Vec<Value>) {
    match template.get("items").and_then(Value::as_array) {
        Some(inner) if text(template, &["kind"]).is_some_and(|kind| kind.ends_with("List")) => {
            for object in inner {
                unpack(object, objects);
            }
        }
        _ => objects.push(template.clone()),
    }
}

/// Fills in group, version and name.
fn complete(template: &mut Value, wrapper: &str, notes: &mut Vec<String>) {
    let Some(kind) = text(template, &["kind"]).map(str::to_owned) else { return };
    if text(template, &["apiVersion"]).is_none()
        && let Some(api_version) = usual_version(&kind)
    {
        template["apiVersion"] = json!(api_version);
        notes.push(format!("apiVersion {api_version}"));
    }
    if text(template, &["metadata", "name"]).is_none()
        && text(template, &["metadata", "generateName"]).is_none()
    {
        set_name(template, wrapper);
        notes.push(format!("name {wrapper}"));
    }
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

fn usual_version(kind: &str) -> Option<&'static str> {
    match kind {
        "RayCluster" | "RayJob" | "RayService" => Some("ray.io/v1"),
        "Job" | "CronJob" => Some("batch/v1"),
        "Deployment" | "StatefulSet" | "ReplicaSet" | "DaemonSet" => Some("apps/v1"),
        "Pod" | "Service" | "ConfigMap" | "Secret" | "PersistentVolumeClaim" | "ServiceAccount" => Some("v1"),
        _ => None,
    }
}

/// Moves containers that stand directly in a Ray group into the group's `template.spec`, and names groups and containers.
fn lift_containers(object: &mut Value, notes: &mut Vec<String>) {
    let Some(cluster) = ray_cluster_mut(object) else { return };
    if let Some(head) = cluster.get_mut("headGroupSpec") {
        lift(head, "headGroupSpec", "ray-head", notes);
    }
    let Some(groups) = cluster.get_mut("workerGroupSpecs").and_then(Value::as_array_mut) else { return };
    let single = groups.len() == 1;
    for (position, group) in groups.iter_mut().enumerate() {
        let place = format!("workerGroupSpecs[{position}]");
        lift(group, &place, "ray-worker", notes);
        if group.is_object() && text(group, &["groupName"]).is_none() {
            let name = if single { "worker".to_owned() } else { format!("worker-{}", position + 1) };
            notes.push(format!("{place}.groupName {name}"));
            group["groupName"] = json!(name);
        }
    }
}

/// The specification of the Ray cluster inside an object, if it has one.
pub(crate) fn ray_cluster_mut(object: &mut Value) -> Option<&mut Value> {
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

fn lift(group: &mut Value, place: &str, container_name: &str, notes: &mut Vec<String>) {
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

/// The Ray cluster specification inside an object, to read.
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
