//! Pods: held back at their creation, and the rules of pods and of groups of pods. After
//! `pkg/controller/jobs/pod/pod_webhook.go` of Kueue v0.19.

use serde_json::Value;

use super::field_error::{FieldError, IMMUTABLE};
use super::names::subdomain_errors;
use super::{
    Context, JobDefaults, JobRules, Operation, add_finalizer, elastic, gates as gated_by, job, topology,
};
use crate::kueue::jobs::pods::{
    ADMISSION_GATE, GROUP_INDEX, GROUP_INDEX_LABEL, GROUP_NAME, GROUP_TOTAL, MANAGED, POD, RETRIABLE,
    ROLE_HASH, SUSPENDED_BY, group_name, group_total, role,
};
use crate::kueue::jobs::{TOPOLOGY_GATE, annotation, prebuilt_workload, set_at};
use crate::scheduling_gate::add_to;

/// The value of the label of managed pods.
const IS_MANAGED: &str = "true";

/// Holds back a new pod that a set of pods holds back, or that is for a queue.
pub(super) fn default(pod: &mut Value, known: &JobDefaults, context: &Context) {
    if !pod["spec"].is_object() {
        return;
    }
    if annotation(pod, SUSPENDED_BY).is_none() {
        if context.jobs.pods_of_sets_only || !job::complete(pod, known, context) {
            return;
        }
        add_finalizer(pod, MANAGED);
    }
    // The controller of sets of pods watches by this label. Kueue's adds it to their pods a moment later.
    set_at(pod, &["metadata", "labels", MANAGED], IS_MANAGED.into());
    add_to(&mut pod["spec"], ADMISSION_GATE);
    if context.gates.topology_aware_scheduling {
        if let Some(key) = annotation(pod, GROUP_INDEX_LABEL) {
            let index = job::label(pod, key).unwrap_or_default().to_owned();
            set_at(pod, &["metadata", "labels", GROUP_INDEX], index.into());
        }
        add_to(&mut pod["spec"], TOPOLOGY_GATE);
    }
    let role = role(pod);
    set_at(pod, &["metadata", "annotations", ROLE_HASH], role.into());
}

/// The rules that a pod breaks.
pub(super) fn check(
    pod: &Value,
    old: Option<&Value>,
    known: &JobDefaults,
    context: &Context,
    errors: &mut Vec<FieldError>,
) {
    match old {
        None => {
            job::check_labels(pod, errors);
            elastic::check(pod, &context.gates, errors);
            gated_by::check_create(pod, &context.gates, errors);
        }
        Some(old) => {
            let suspended = [pod, old].map(|pod| POD.is_suspended(pod));
            if suspended[0] {
                job::check_prebuilt(pod, errors);
            }
            job::check_update(pod, old, suspended, known, context, errors);
        }
    }
    if job::label(pod, MANAGED).is_some_and(|value| value != IS_MANAGED) {
        let why = format!("managed label value can only be '{IS_MANAGED}'");
        errors.push(FieldError::forbidden(&job::label_path(MANAGED), &why));
    }
    check_group(pod, errors);
    topology::check_request(pod, "metadata", &context.gates, errors);
    if let Some((group, workload)) = group_name(pod).zip(prebuilt_workload(pod))
        && group != workload
    {
        let why = "prebuilt workload and pod group should be equal";
        errors.push(FieldError::invalid(&job::prebuilt_path(pod), workload, why));
    }
    if let Some(old) = old {
        check_group_update(pod, old, errors);
    }
}

/// Whether an annotation names the group of a pod, and not a label.
fn is_group_annotated(pod: &Value) -> bool {
    annotation(pod, GROUP_NAME).is_some_and(|name| !name.is_empty())
}

fn group_path(pod: &Value) -> String {
    if is_group_annotated(pod) { job::annotation_path(GROUP_NAME) } else { job::label_path(GROUP_NAME) }
}

/// A group has a name and a number of pods.
fn check_group(pod: &Value, errors: &mut Vec<FieldError>) {
    let total = annotation(pod, GROUP_TOTAL);
    let place = if is_group_annotated(pod) { "annotation" } else { "label" };
    let both = || format!("both the '{GROUP_TOTAL}' annotation and the '{GROUP_NAME}' {place} should be set");
    match (group_name(pod), total) {
        (None, Some(_)) => {
            errors.push(FieldError::required(&group_path(pod), &both()));
            return;
        }
        (Some(name), _) => {
            let why = subdomain_errors(name).join(",");
            if !why.is_empty() {
                errors.push(FieldError::invalid(&group_path(pod), name, &why));
            }
            if total.is_none() {
                errors.push(FieldError::required(&job::annotation_path(GROUP_TOTAL), &both()));
                return;
            }
        }
        (None, None) => {}
    }
    if let (Some(text), Err(why)) = (total, group_total(pod)) {
        errors.push(FieldError::invalid(&job::annotation_path(GROUP_TOTAL), text, &why));
    }
}

/// A pod stays in its group, and a group that is not retried stays so.
fn check_group_update(pod: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let is_unretriable = |pod: &Value| annotation(pod, RETRIABLE) == Some("false");
    if group_name(pod).is_some() && is_unretriable(old) && !is_unretriable(pod) {
        let why = "unretriable pod group can't be converted to retriable";
        errors.push(FieldError::forbidden(&job::annotation_path(RETRIABLE), why));
    }
    let [new, before] = [pod, old].map(|pod| group_name(pod).unwrap_or_default());
    if !before.is_empty() && new != before {
        errors.push(FieldError::invalid(&group_path(pod), new, IMMUTABLE));
    }
}

/// The warning about a pod that is managed beside its owner.
pub(super) fn warning(pod: &Value, operation: Operation, rules: &JobRules) -> Option<String> {
    let is_held = operation == Operation::Update && annotation(pod, SUSPENDED_BY).is_some();
    let is_twice = job::label(pod, MANAGED) == Some(IS_MANAGED) && job::names_owner(pod, rules);
    (is_twice && !is_held).then(|| {
        format!(
            "pod owner is managed by kueue, label '{MANAGED}={IS_MANAGED}' might lead to unexpected behaviour"
        )
    })
}
