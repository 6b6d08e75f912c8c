//! The rules of Workload that compare an update with the stored workload.

use std::collections::BTreeMap;

use serde_json::Value;

use super::Gates;
use super::field_error::{FieldError, IMMUTABLE};
use super::gates as gated_by;
use super::same::same;
use super::workload::{self, count, has_reservation, is_elastic, name, pod_sets};
use crate::kueue::workload::REPLACES;
use crate::value::{at, list, text};

/// The rules that the update of a workload breaks.
pub(super) fn validate(workload: &Value, old: &Value, gates: &Gates) -> Vec<FieldError> {
    let mut errors = workload::validate(workload, Some(old), gates);
    if has_reservation(old) {
        check_pod_sets(pod_sets(workload), pod_sets(old), gates, &mut errors);
    }
    if has_reservation(workload) && has_reservation(old) {
        check_reclaimable(workload, old, gates, &mut errors);
    }
    check_admission(
        at(workload, &["status", "admission"]),
        at(old, &["status", "admission"]),
        gates,
        &mut errors,
    );
    check_updates_of_checks(workload, old, &mut errors);
    check_cluster_name(workload, old, gates, &mut errors);
    gated_by::check_update(workload, old, gates, &mut errors);
    errors
}

/// Pod sets are immutable while quota is reserved; those of elastic workloads may shrink.
fn check_pod_sets(new: &[Value], old: &[Value], gates: &Gates, errors: &mut Vec<FieldError>) {
    if new.len() != old.len() {
        errors.push(FieldError::invalid("spec.podSets", new.to_vec(), IMMUTABLE));
        return;
    }
    for (index, (new, old)) in new.iter().zip(old).enumerate() {
        let mut new = new.clone();
        if gates.elastic_jobs_via_workload_slices && count(&new) < count(old) && new.is_object() {
            new["count"] = count(old).into();
        }
        if !same(&new, old) {
            errors.push(FieldError::invalid(&format!("spec.podSets.{index}"), new, IMMUTABLE));
        }
    }
}

/// The counts of reclaimable pods do not decrease, except those of pod sets that have shrunk.
fn check_reclaimable(workload: &Value, old: &Value, gates: &Gates, errors: &mut Vec<FieldError>) {
    let counts = |workload| -> BTreeMap<&str, i64> {
        list(workload, &["status", "reclaimablePods"]).iter().map(|pods| (name(pods), count(pods))).collect()
    };
    let (new, old) = (counts(workload), counts(old));
    let path = |name: &str| format!("status.reclaimablePods[{name}]");
    for (name, count) in &new {
        let stored = old.get(name).filter(|stored| count < stored && !has_shrunk(workload, name, gates));
        if let Some(stored) = stored {
            let why = format!("cannot be less than {stored}");
            errors.push(FieldError::invalid(&format!("{}.count", path(name)), *count, &why));
        }
    }
    for name in old.keys().filter(|name| !new.contains_key(*name)) {
        if !has_shrunk(workload, name, gates) {
            errors.push(FieldError::required(&path(name), "cannot be removed"));
        }
    }
}

/// Whether a pod set of an elastic workload has fewer pods than it was admitted with.
fn has_shrunk(workload: &Value, pod_set: &str, gates: &Gates) -> bool {
    let with_name = |items: &[Value]| items.iter().find(|item| name(item) == pod_set).map(count);
    let admitted = with_name(list(workload, &["status", "admission", "podSetAssignments"]));
    let wanted = with_name(pod_sets(workload)).unwrap_or(0);
    is_elastic(workload, gates) && admitted.is_some_and(|admitted| admitted > wanted)
}

/// An admission is set or cleared, but not changed; only the places of the pods may follow later.
fn check_admission(new: &Value, old: &Value, gates: &Gates, errors: &mut Vec<FieldError>) {
    if new.is_null() || old.is_null() {
        return;
    }
    let fixed = |admission: &Value| {
        let mut admission = admission.clone();
        let assignments = admission.get_mut("podSetAssignments").and_then(Value::as_array_mut);
        for fields in assignments.into_iter().flatten().filter_map(Value::as_object_mut) {
            fields.remove("topologyAssignment");
            fields.remove("delayedTopologyRequest");
        }
        admission
    };
    let is_same =
        if gates.topology_aware_scheduling { same(&fixed(new), &fixed(old)) } else { same(new, old) };
    if !is_same {
        errors.push(FieldError::invalid("status.admission", new.clone(), IMMUTABLE));
    }
}

/// What a check adds to the pods is immutable once the check is ready.
fn check_updates_of_checks(workload: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let checks = |workload| list(workload, &["status", "admissionChecks"]);
    let is_ready = |check: &Value| at(check, &["state"]) == "Ready";
    for (index, old) in checks(old).iter().enumerate().filter(|(_, check)| is_ready(check)) {
        let new = checks(workload).iter().find(|new| name(new) == name(old)).filter(|new| is_ready(new));
        let updates = |check| at(check, &["podSetUpdates"]);
        if let Some(new) = new.filter(|new| !same(updates(new), updates(old))) {
            let path = format!("status.admissionChecks[{index}].podSetUpdates");
            errors.push(FieldError::invalid(&path, updates(new).clone(), IMMUTABLE));
        }
    }
}

/// The cluster is one of those that were nominated before.
fn check_cluster_name(workload: &Value, old: &Value, gates: &Gates, errors: &mut Vec<FieldError>) {
    let is_replacement = at(workload, &["metadata", "annotations", REPLACES]).is_string();
    if gates.elastic_jobs_via_workload_slices && is_replacement {
        return;
    }
    let cluster = |workload| text(workload, &["status", "clusterName"]);
    let (None, Some(new)) = (cluster(old), cluster(workload)) else { return };
    if !list(old, &["status", "nominatedClusterNames"]).iter().any(|nominated| nominated == new) {
        let why = "when setting clusterName it must be one of the nominatedClusterNames";
        errors.push(FieldError::invalid("status.clusterName", new, why));
    }
}
