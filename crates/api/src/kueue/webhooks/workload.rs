//! The rules of Workload that need no earlier state, apart from values that were stored before a rule existed.

use serde_json::Value;

use super::field_error::FieldError;
use super::resource_groups::{check_not_negative, quantity};
use super::{Gates, flavor, gates as gated_by, is_true, names};
use crate::kueue::jobs::ELASTIC;
use crate::value::{at, list, text};

/// The annotation that is added to the priority.
const PRIORITY_BOOST: &str = "kueue.x-k8s.io/priority-boost";

/// The rules that a workload breaks; `old` is the stored workload of an update.
pub(super) fn validate(workload: &Value, old: Option<&Value>, gates: &Gates) -> Vec<FieldError> {
    let mut errors = Vec::new();
    check_pod_sets(workload, gates, &mut errors);
    if has_reservation(workload) {
        check_admission(workload, old, &mut errors);
    }
    names::check_conditions(list(workload, &["status", "conditions"]), "status.conditions", &mut errors);
    check_reclaimable(workload, old, gates, &mut errors);
    check_admission_checks(workload, &mut errors);
    gated_by::check_create(workload, gates, &mut errors);
    if gates.priority_boost {
        check_priority_boost(workload, &mut errors);
    }
    errors
}

/// Warnings of values that a later version of Kueue refuses.
pub(super) fn warnings(workload: &Value) -> Vec<String> {
    let pod_sets = pod_sets(workload).iter().enumerate();
    let negative = pod_sets.filter_map(|(index, pod_set)| {
        let count = at(pod_set, &["topologyRequest", "subGroupCount"]).as_i64().filter(|count| *count < 0)?;
        Some(format!(
            "spec.podSets[{index}].topologyRequest.subGroupCount: negative value {count} is deprecated and will be rejected in \
             a future release"
        ))
    });
    negative.collect()
}

/// Whether quota is reserved.
pub(super) fn has_reservation(workload: &Value) -> bool {
    is_true(workload, "QuotaReserved")
}

/// Whether the workload is elastic.
pub(super) fn is_elastic(workload: &Value, gates: &Gates) -> bool {
    gates.elastic_jobs_via_workload_slices && at(workload, &["metadata", "annotations", ELASTIC]) == "true"
}

/// The pod sets of the spec.
pub(super) fn pod_sets(workload: &Value) -> &[Value] {
    list(workload, &["spec", "podSets"])
}

/// The name of a pod set, of its assignment, or of its reclaimable pods.
pub(super) fn name(pod_set: &Value) -> &str {
    text(pod_set, &["name"]).unwrap_or_default()
}

/// A number of pods; 0 if it is absent.
pub(super) fn count(pod_set: &Value) -> i64 {
    at(pod_set, &["count"]).as_i64().unwrap_or(0)
}

fn check_pod_sets(workload: &Value, gates: &Gates, errors: &mut Vec<FieldError>) {
    let path = "spec.podSets";
    for (index, pod_set) in pod_sets(workload).iter().enumerate() {
        check_pod_set(pod_set, &format!("{path}[{index}]"), gates, errors);
    }
    let variable = pod_sets(workload).iter().filter(|pod_set| !at(pod_set, &["minCount"]).is_null()).count();
    if variable > 1 {
        errors.push(FieldError::invalid(path, variable, "at most one podSet can use minCount"));
    }
    if variable > 0 && is_elastic(workload, gates) {
        let why = "partial admission and elastic job cannot be used together";
        errors.push(FieldError::invalid(path, variable, why));
    }
}

fn check_pod_set(pod_set: &Value, path: &str, gates: &Gates, errors: &mut Vec<FieldError>) {
    let template = at(pod_set, &["template"]);
    if gates.workload_validation_for_pod_set_metadata {
        let path = format!("{path}.template.metadata");
        names::check_labels(at(template, &["metadata", "labels"]), &format!("{path}.labels"), errors);
        let annotations = at(template, &["metadata", "annotations"]);
        names::check_annotations(annotations, &format!("{path}.annotations"), errors);
    }
    for kind in ["initContainers", "containers"] {
        for (index, container) in list(template, &["spec", kind]).iter().enumerate() {
            let path = format!("{path}.template.spec.{kind}[{index}].resources");
            check_resources(at(container, &["resources"]), &path, gates, errors);
        }
    }
    let path_of_pod = format!("{path}.template.spec.resources");
    check_resources(at(template, &["spec", "resources"]), &path_of_pod, gates, errors);
    if gates.tas_validate_workload_slice_size {
        check_slices(at(pod_set, &["topologyRequest"]), &format!("{path}.topologyRequest"), errors);
    }
}

fn check_resources(resources: &Value, path: &str, gates: &Gates, errors: &mut Vec<FieldError>) {
    for kind in ["requests", "limits"] {
        for (name, amount) in at(resources, &[kind]).as_object().into_iter().flatten() {
            let path = format!("{path}.{kind}[{name}]");
            if name == "pods" {
                errors.push(FieldError::invalid(&path, "pods", "the key is reserved for internal kueue use"));
            }
            if gates.workload_validate_resources_are_non_negative {
                check_not_negative(amount, &path, errors);
            }
        }
    }
}

/// A slice of a pod set has a level and a size above 0.
fn check_slices(request: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let why_size = "must be greater than 0";
    let (level, size) = (at(request, &["podSetSliceRequiredTopology"]), at(request, &["podSetSliceSize"]));
    let path_of_size = format!("{path}.podSetSliceSize");
    match (level.is_null(), size.as_i64()) {
        (false, None) => {
            let why = "must be set when podSetSliceRequiredTopology is specified";
            errors.push(FieldError::required(&path_of_size, why));
        }
        (false, Some(size)) if size <= 0 => errors.push(FieldError::invalid(&path_of_size, size, why_size)),
        (true, Some(_)) => {
            let why = "may not be set when podSetSliceRequiredTopology is not specified";
            errors.push(FieldError::forbidden(&path_of_size, why));
        }
        (false, Some(_)) | (true, None) => {}
    }
    let constraints = "podsetSliceRequiredTopologyConstraints";
    for (index, constraint) in list(request, &[constraints]).iter().enumerate() {
        let size = at(constraint, &["size"]).as_i64().unwrap_or(0);
        if size <= 0 {
            errors.push(FieldError::invalid(&format!("{path}.{constraints}[{index}].size"), size, why_size));
        }
    }
}

fn check_admission(workload: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let path = "status.admission";
    let admission = at(workload, &["status", "admission"]);
    if admission.is_null() {
        // A workload that was stored like this may be changed, so that it can be repaired and deleted.
        let was_stored = |old: &Value| has_reservation(old) && at(old, &["status", "admission"]).is_null();
        if !old.is_some_and(was_stored) {
            let why = "must be set while the QuotaReserved condition is true";
            errors.push(FieldError::required(path, why));
        }
        return;
    }
    for (index, assignment) in list(admission, &["podSetAssignments"]).iter().enumerate() {
        let path = format!("{path}.podSetAssignments[{index}]");
        if !pod_sets(workload).iter().any(|pod_set| name(pod_set) == name(assignment)) {
            errors.push(FieldError::not_found(&format!("{path}.name"), name(assignment)));
        }
        let pods = count(assignment);
        if pods > 0 {
            check_multiples(at(assignment, &["resourceUsage"]), pods, &path, errors);
        }
    }
}

/// The usage of a pod set is that of one pod, times the number of pods.
fn check_multiples(usage: &Value, pods: i64, path: &str, errors: &mut Vec<FieldError>) {
    for (name, value) in usage.as_object().into_iter().flatten() {
        let Some((text, amount)) = quantity(value) else { continue };
        let amount = if name == "cpu" { amount.milli() } else { amount.units() };
        if amount % pods != 0 {
            let why = format!("is not a multiple of {pods}");
            errors.push(FieldError::invalid(&format!("{path}.resourceUsage[{name}]"), text, &why));
        }
    }
}

/// Reclaimable pods are pods of a pod set. An elastic workload that has shrunk may keep a count that was stored.
fn check_reclaimable(workload: &Value, old: Option<&Value>, gates: &Gates, errors: &mut Vec<FieldError>) {
    let old = old.filter(|_| is_elastic(workload, gates));
    for reclaimable in list(workload, &["status", "reclaimablePods"]) {
        let path = format!("status.reclaimablePods[{}]", name(reclaimable));
        let Some(pod_set) = pod_sets(workload).iter().find(|pod_set| name(pod_set) == name(reclaimable))
        else {
            let known = pod_sets(workload).iter().map(name);
            errors.push(FieldError::not_supported(&format!("{path}.name"), name(reclaimable), known));
            continue;
        };
        let is_stored = |old: &Value| {
            let mut stored = list(old, &["status", "reclaimablePods"]).iter();
            stored.any(|stored| name(stored) == name(reclaimable) && count(stored) == count(reclaimable))
        };
        if count(reclaimable) > count(pod_set) && !old.is_some_and(is_stored) {
            let why = format!("should be less or equal to {}", count(pod_set));
            errors.push(FieldError::invalid(&format!("{path}.count"), count(reclaimable), &why));
        }
    }
}

fn check_admission_checks(workload: &Value, errors: &mut Vec<FieldError>) {
    let mut known: Vec<&str> = pod_sets(workload).iter().map(name).collect();
    known.sort_unstable();
    for (index, check) in list(workload, &["status", "admissionChecks"]).iter().enumerate() {
        for (at_update, update) in list(check, &["podSetUpdates"]).iter().enumerate() {
            let field =
                |name: &str| format!("status.admissionChecks[{index}].podSetUpdates[{at_update}].{name}");
            if !known.contains(&name(update)) {
                let known = known.iter().copied();
                errors.push(FieldError::not_supported(&field("name"), name(update), known));
            }
            flavor::check_tolerations(list(update, &["tolerations"]), &field("tolerations"), errors);
            names::check_annotations(at(update, &["annotations"]), &field("annotations"), errors);
            names::check_labels(at(update, &["nodeSelector"]), &field("nodeSelector"), errors);
            names::check_labels(at(update, &["labels"]), &field("labels"), errors);
        }
    }
}

fn check_priority_boost(workload: &Value, errors: &mut Vec<FieldError>) {
    let Some(value) = at(workload, &["metadata", "annotations", PRIORITY_BOOST]).as_str() else { return };
    let path = format!("metadata.annotations[{PRIORITY_BOOST}]");
    if value.is_empty() {
        let why = "must be a valid signed integer; use \"0\" explicitly, empty string is not allowed";
        errors.push(FieldError::invalid(&path, value, why));
    } else if value.parse::<i32>().is_err() {
        errors.push(FieldError::invalid(&path, value, "must be a valid signed integer"));
    }
}
