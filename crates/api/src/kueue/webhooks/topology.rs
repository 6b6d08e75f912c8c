//! The rules of topology annotations on the pods of jobs. After `pkg/controller/jobframework/tas_validation.go` of Kueue v0.19.

use serde::Deserialize;
use serde_json::Value;

use super::Gates;
use super::field_error::FieldError;
use super::names::check_label_key;
use crate::kueue::jobs::topology::{
    GROUP, INDEX_OFFSET, LAYERS, PREFERRED, REQUIRED, SLICE, SLICE_SIZE, UNCONSTRAINED, request, truth,
};
use crate::kueue::jobs::{JobKind, annotation};
use crate::value::count;

/// The most layers of slices.
const LAYERS_MAX: usize = 3;

/// Slices of a layer.
#[derive(Debug, Deserialize)]
struct Layer {
    #[serde(default)]
    topology: String,
    #[serde(default)]
    size: i32,
}

/// A pod set, and the path of the metadata of its pods.
pub(super) struct PathedSet {
    pub(super) path: String,
    pub(super) set: Value,
}

/// Checks the pods of a job.
pub(super) fn check_job(kind: &JobKind, job: &Value, gates: &Gates, errors: &mut Vec<FieldError>) {
    let paths = kind.integration.templates(job).into_iter().map(|pointer| field_path(&pointer) + ".metadata");
    let sets = paths.zip(kind.integration.pod_sets(job)).map(|(path, set)| PathedSet { path, set });
    check_sets(&sets.collect::<Vec<_>>(), gates, errors);
}

/// Checks pod sets: each of them, and the groups that they form.
pub(super) fn check_sets(sets: &[PathedSet], gates: &Gates, errors: &mut Vec<FieldError>) {
    for PathedSet { path, set } in sets {
        check_request(&set["template"], path, gates, errors);
        check_slices(&set["template"], path, count(set, &["count"], 0), errors);
    }
    check_groups(sets, errors);
}

/// The path of a field, from its JSON pointer. Indexes and the names of replicas are in brackets.
fn field_path(pointer: &str) -> String {
    let mut path = String::new();
    let mut is_key = false;
    for part in pointer.split('/').skip(1) {
        if is_key || part.bytes().all(|b| b.is_ascii_digit()) {
            path.extend(["[", part, "]"]);
        } else {
            path.push_str(if path.is_empty() { "" } else { "." });
            path.push_str(part);
        }
        is_key = part.ends_with("ReplicaSpecs");
    }
    path
}

/// Checks what the annotations of pods ask for. `path`: of their metadata.
pub(super) fn check_request(pod: &Value, path: &str, gates: &Gates, errors: &mut Vec<FieldError>) {
    let found = |key: &str| annotation(pod, key);
    let annotations = format!("{path}.annotations");
    let at = |key: &str| format!("{annotations}[{key}]");
    let levels = [REQUIRED, PREFERRED, UNCONSTRAINED];
    if levels.iter().filter(|key| found(key).is_some()).count() > 1 {
        let why = format!(
            "must not contain more than one topology annotation: [{}]",
            levels.map(quoted).join(", ")
        );
        errors.push(FieldError::invalid_whole(&annotations, &why));
    }
    for key in [REQUIRED, PREFERRED, SLICE] {
        if let Some(level) = found(key) {
            check_label_key(level, &at(key), errors);
        }
    }
    if let Some(group) = found(GROUP) {
        if group.parse::<u64>().is_ok() {
            errors.push(FieldError::invalid(&at(GROUP), group, "must not be a number"));
        }
        for key in [SLICE_SIZE, SLICE].into_iter().filter(|key| found(key).is_some()) {
            errors.push(excludes(&at(GROUP), key));
        }
        if found(PREFERRED).is_none() && found(REQUIRED).is_none() {
            let why = format!("may not be set when neither '{PREFERRED}' nor '{REQUIRED}' is specified");
            errors.push(FieldError::forbidden(&at(GROUP), &why));
        }
    }
    if let Some(text) = found(UNCONSTRAINED).filter(|text| truth(text).is_none()) {
        errors.push(FieldError::invalid(&at(UNCONSTRAINED), text, "must be a boolean value"));
    }
    if let Some(text) = found(INDEX_OFFSET) {
        if text.parse::<u32>().is_err() {
            errors.push(FieldError::invalid(&at(INDEX_OFFSET), text, "must be a number of pods"));
        }
        if found(GROUP).is_some() {
            errors.push(excludes(&at(INDEX_OFFSET), GROUP));
        }
    }
    if let Some(text) = found(SLICE_SIZE) {
        match text.parse::<i32>() {
            Err(_) => errors.push(FieldError::invalid(&at(SLICE_SIZE), text, "must be a numeric value")),
            Ok(size) if size < 1 => {
                errors.push(FieldError::invalid(&at(SLICE_SIZE), text, "must be greater than or equal to 1"));
            }
            Ok(_) => {}
        }
    }
    match (found(SLICE), found(SLICE_SIZE)) {
        (Some(_), None) => {
            let why = format!("must be set when '{SLICE}' is specified");
            errors.push(FieldError::required(&at(SLICE_SIZE), &why));
        }
        (None, Some(_)) => {
            let why = format!("may not be set when '{SLICE}' is not specified");
            errors.push(FieldError::forbidden(&at(SLICE_SIZE), &why));
        }
        _ => {}
    }
    if let Some(text) = found(LAYERS) {
        if !gates.tas_multi_layer_topology {
            let why = "the TASMultiLayerTopology feature gate must be enabled to use this annotation";
            errors.push(FieldError::forbidden(&at(LAYERS), why));
            return;
        }
        for key in [SLICE, SLICE_SIZE].into_iter().filter(|key| found(key).is_some()) {
            errors.push(excludes(&at(LAYERS), key));
        }
        if found(GROUP).is_some() {
            errors.push(excludes(&at(GROUP), LAYERS));
        }
        check_layers(text, &at(LAYERS), errors);
    }
}

fn quoted(text: &str) -> String {
    format!("{text:?}")
}

fn excludes(path: &str, other: &str) -> FieldError {
    FieldError::forbidden(path, &format!("may not be set when '{other}' is specified"))
}

/// Checks slices of slices: their levels differ, and the sizes divide each other.
fn check_layers(text: &str, path: &str, errors: &mut Vec<FieldError>) {
    let layers: Vec<Layer> = match serde_json::from_str(text) {
        Ok(layers) => layers,
        Err(error) => {
            errors.push(FieldError::invalid(path, text, &format!("must be a valid JSON array: {error}")));
            return;
        }
    };
    if layers.is_empty() || layers.len() > LAYERS_MAX {
        let why = format!("topology constraints must contain between 1 and {LAYERS_MAX} entries");
        errors.push(FieldError::invalid(path, text, &why));
        return;
    }
    for (at, layer) in layers.iter().enumerate() {
        check_label_key(&layer.topology, &format!("{path}[{at}].topology"), errors);
        if layer.size < 1 {
            let why = "must be greater than or equal to 1";
            errors.push(FieldError::invalid(&format!("{path}[{at}].size"), layer.size, why));
        }
    }
    for (at, layer) in layers.iter().enumerate() {
        if let Some(first) = layers[..at].iter().rposition(|other| other.topology == layer.topology) {
            let value = format!("{} (also at index {first})", layer.topology);
            errors.push(FieldError::duplicate(&format!("{path}[{at}].topology"), value, ""));
        }
    }
    for (at, pair) in layers.windows(2).enumerate() {
        let (outer, inner) = (pair[0].size, pair[1].size);
        if inner > 0 && outer % inner != 0 {
            let why = format!("must evenly divide the parent layer size {outer}");
            errors.push(FieldError::invalid(&format!("{path}[{}].size", at + 1), inner, &why));
        }
    }
}

/// Checks that a slice is not larger than the pod set.
fn check_slices(pod: &Value, path: &str, pods: u32, errors: &mut Vec<FieldError>) {
    let why = format!("must not be greater than pod set count {pods}");
    let is_larger = |size: i32| u32::try_from(size).is_ok_and(|size| size > pods);
    if let Some(text) = annotation(pod, SLICE_SIZE)
        && text.parse().is_ok_and(is_larger)
    {
        errors.push(FieldError::invalid(&format!("{path}.annotations[{SLICE_SIZE}]"), text, &why));
    }
    let layers = annotation(pod, LAYERS).and_then(|text| serde_json::from_str::<Vec<Layer>>(text).ok());
    if let Some(first) = layers.iter().flatten().next().filter(|layer| is_larger(layer.size)) {
        errors.push(FieldError::invalid(&format!("{path}.annotations[{LAYERS}]"), first.size, &why));
    }
}

/// Checks that two pod sets form a group: one of them has a single pod, and both ask for the same level.
fn check_groups(sets: &[PathedSet], errors: &mut Vec<FieldError>) {
    let mut groups: Vec<(String, Vec<(&PathedSet, Value)>)> = Vec::new();
    for set in sets {
        let Some(request) = request(&set.set["template"], None) else { continue };
        let Some(name) = request["podSetGroupName"].as_str().map(str::to_owned) else { continue };
        match groups.iter_mut().find(|(known, _)| *known == name) {
            Some((_, members)) => members.push((set, request)),
            None => groups.push((name, vec![(set, request)])),
        }
    }
    for (name, members) in groups {
        let mut refuse = |why: String| {
            for (set, _) in &members {
                let path = format!("{}.annotations[{GROUP}]", set.path);
                errors.push(FieldError::invalid(&path, name.as_str(), &why));
            }
        };
        let [(one, of_one), (other, of_other)] = members.as_slice() else {
            let sets = members.len();
            refuse(format!("can only define groups of exactly 2 pod sets, got: {sets} pod set(s)"));
            continue;
        };
        let counts = [one, other].map(|set| count(&set.set, &["count"], 0));
        if !counts.contains(&1) {
            let [one, other] = counts;
            refuse(format!(
                "can only define groups where at least one pod set has only 1 replica, got: {one} replica(s) and \
                 {other} replica(s) in the group"
            ));
        }
        if of_one["required"] != of_other["required"] || of_one["preferred"] != of_other["preferred"] {
            for (set, reference) in [(one, other), (other, one)] {
                let why = format!(
                    "must specify '{REQUIRED}' or '{PREFERRED}' topology consistent with '{}.annotations' in group '{name}'",
                    reference.path
                );
                errors.push(FieldError::invalid_whole(&format!("{}.annotations", set.path), &why));
            }
        }
    }
}
