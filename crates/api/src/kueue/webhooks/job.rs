//! Jobs: suspended at their creation, and the rules of their labels and annotations. After `pkg/controller/jobframework` and
//! `pkg/controller/jobs/job` of Kueue v0.19.

use serde_json::Value;

use super::field_error::{FieldError, IMMUTABLE};
use super::gates as gated_by;
use super::names::subdomain_errors;
use super::ray;
use super::{Context, DEFAULT, JobDefaults, JobRules};
use crate::kueue::jobs::{
    COMPLETIONS_FOLLOW, ELASTIC, JOB_KINDS, JobKind, LEAST_PARALLELISM, LONGEST_RUN, PREBUILT,
    PRIORITY_CLASS, QUEUE_NAME, annotation, controller, prebuilt_workload, queue_name, set_at,
};

/// The label of every namespace with its name.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// The group of the kinds of Ray.
const RAY: &str = "ray.io";

/// The kind of jobs of a resource, if it is managed.
fn kind_of(resource: &str, rules: &JobRules) -> Option<&'static JobKind> {
    let is_managed = |kind: &&JobKind| rules.frameworks.iter().any(|name| name == kind.framework);
    JOB_KINDS.iter().find(|kind| kind.plural == resource).filter(is_managed)
}

/// Fills in a managed job: the queue and the priority class with the name `default`, if they exist, and `suspend`.
pub(super) fn default(resource: &str, job: &mut Value, known: &JobDefaults, context: &Context) {
    let rules = &context.jobs;
    let Some(kind) = kind_of(resource, rules) else { return };
    if is_owned(job, rules) || kind.integration.is_skipped(job) || !is_selected(job, known, rules) {
        return;
    }
    if known.has_queue && queue_name(job).is_empty() {
        set_at(job, &["metadata", "labels", QUEUE_NAME], DEFAULT.into());
    }
    let has_class = label(job, PRIORITY_CLASS).is_some_and(|name| !name.is_empty());
    if context.gates.workload_priority_class_defaulting && known.has_class && !has_class {
        set_at(job, &["metadata", "labels", PRIORITY_CLASS], DEFAULT.into());
    }
    if rules.manages_unnamed || !queue_name(job).is_empty() {
        kind.set_suspended(job, true);
    }
}

/// Whether jobs of this namespace are managed. If its labels are not known, and others than its name decide, the
/// controller suspends the job later.
fn is_selected(job: &Value, known: &JobDefaults, rules: &JobRules) -> bool {
    let name = job["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
    match &known.namespace_labels {
        Some(labels) => rules.namespaces.matches(labels),
        None => {
            rules.namespaces.reads_only(NAMESPACE_NAME)
                && rules.namespaces.matches(&[(NAMESPACE_NAME.to_owned(), name)].into())
        }
    }
}

/// Whether another object queues for this job: an AppWrapper, or a job of a managed kind. The controller knows whether that one
/// has a queue.
fn is_owned(job: &Value, rules: &JobRules) -> bool {
    let owner = controller(job);
    let [version, kind] = ["apiVersion", "kind"].map(|field| owner[field].as_str().unwrap_or_default());
    kind == crate::appwrapper::KIND
        || rules
            .frameworks
            .iter()
            .filter_map(|name| JobKind::of_framework(name))
            .any(|known| known.is_kind_of(version, kind))
}

/// The rules that a job breaks.
pub(super) fn validate(
    resource: &str,
    job: &Value,
    old: Option<&Value>,
    context: &Context,
) -> Vec<FieldError> {
    let Some(kind) = kind_of(resource, &context.jobs) else { return Vec::new() };
    let mut errors = Vec::new();
    let is_queued = context.jobs.manages_unnamed || !queue_name(job).is_empty();
    if kind.group() == RAY {
        let is_other = is_queued && ray::check(resource, job, &mut errors).is_none();
        if is_other || (!is_queued && old.is_some()) {
            return errors;
        }
    }
    check_labels(job, &mut errors);
    match old {
        None if context.gates.admission_gated_by => gated_by::check_create(job, &mut errors),
        None => {}
        Some(old) => check_update(kind, job, old, context, &mut errors),
    }
    if resource == "jobs" {
        check_parallelism(kind, job, old, &mut errors);
        check_completions(job, &mut errors);
    }
    errors
}

fn label<'a>(job: &'a Value, key: &str) -> Option<&'a str> {
    job["metadata"]["labels"][key].as_str()
}

fn label_path(key: &str) -> String {
    format!("metadata.labels[{key}]")
}

fn annotation_path(key: &str) -> String {
    format!("metadata.annotations[{key}]")
}

fn check_labels(job: &Value, errors: &mut Vec<FieldError>) {
    let prebuilt = match annotation(job, PREBUILT).filter(|name| !name.is_empty()) {
        Some(name) => Some((annotation_path(PREBUILT), name)),
        None => label(job, PREBUILT).map(|name| (label_path(PREBUILT), name)),
    };
    for (path, name) in
        label(job, QUEUE_NAME).map(|name| (label_path(QUEUE_NAME), name)).into_iter().chain(prebuilt)
    {
        let why = subdomain_errors(name).join(",");
        if !why.is_empty() {
            errors.push(FieldError::invalid(&path, name, &why));
        }
    }
    if let Some(text) = label(job, LONGEST_RUN) {
        match text.parse::<i32>() {
            Err(_) => {
                let why = format!("strconv.Atoi: parsing {text:?}: invalid syntax");
                errors.push(FieldError::invalid(&label_path(LONGEST_RUN), text, &why));
            }
            Ok(seconds) if seconds <= 0 => {
                errors.push(FieldError::invalid(
                    &label_path(LONGEST_RUN),
                    seconds,
                    "should be greater than 0",
                ));
            }
            Ok(_) => {}
        }
    }
    if annotation(job, ELASTIC) == Some("true") {
        let why = "elastic jobs are not served by Muster yet; remove the annotation";
        errors.push(FieldError::forbidden(&annotation_path(ELASTIC), why));
    }
}

fn check_update(kind: &JobKind, job: &Value, old: &Value, context: &Context, errors: &mut Vec<FieldError>) {
    let (is_suspended, was_suspended) = (kind.is_suspended(job), kind.is_suspended(old));
    let immutable = |key: &str, errors: &mut Vec<FieldError>| {
        let new = label(job, key).unwrap_or_default();
        if new != label(old, key).unwrap_or_default() {
            errors.push(FieldError::invalid(&label_path(key), new, IMMUTABLE));
        }
    };
    if !is_suspended {
        immutable(QUEUE_NAME, errors);
        if prebuilt_workload(job) != prebuilt_workload(old) {
            let path = if annotation(job, PREBUILT).is_some() {
                annotation_path(PREBUILT)
            } else {
                label_path(PREBUILT)
            };
            errors.push(FieldError::invalid(&path, prebuilt_workload(job).unwrap_or_default(), IMMUTABLE));
        }
    }
    if !is_suspended || !was_suspended {
        immutable(LONGEST_RUN, errors);
    }
    let [new, before] = [job, old].map(|job| label(job, PRIORITY_CLASS).unwrap_or_default());
    let path = label_path(PRIORITY_CLASS);
    if !is_suspended && before.is_empty() && !new.is_empty() {
        let why = "WorkloadPriorityClass cannot be added to a non-suspended workload";
        errors.push(FieldError::invalid(&path, new, why));
    } else if new.is_empty() && !before.is_empty() {
        errors.push(FieldError::invalid(
            &path,
            new,
            "WorkloadPriorityClass cannot be removed from a workload",
        ));
    }
    if context.gates.admission_gated_by {
        gated_by::check_update(job, old, errors);
    }
}

fn number(job: &Value, field: &str) -> Option<i64> {
    job["spec"][field].as_i64()
}

/// The fewest pods of a Job are fewer than its pods. They and its parallelism do not change while it runs.
fn check_parallelism(kind: &JobKind, job: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let pods = number(job, "parallelism").unwrap_or(1).min(number(job, "completions").unwrap_or(i64::MAX));
    let path = annotation_path(LEAST_PARALLELISM);
    let fewest = annotation(job, LEAST_PARALLELISM);
    let is_new = old.is_none_or(|old| annotation(old, LEAST_PARALLELISM) != fewest);
    if let Some(text) = fewest.filter(|_| is_new) {
        match text.parse::<i32>() {
            Err(_) => {
                let why = format!("strconv.Atoi: parsing {text:?}: invalid syntax");
                errors.push(FieldError::invalid(&path, text, &why));
            }
            Ok(fewest) if i64::from(fewest) >= pods || fewest <= 0 => {
                errors.push(FieldError::invalid(
                    &path,
                    fewest,
                    &format!("should be between 0 and {}", pods - 1),
                ));
            }
            Ok(_) => {}
        }
    }
    let Some(old) = old else { return };
    let is_partial = annotation(old, LEAST_PARALLELISM).is_some();
    if is_partial
        && old["spec"]["suspend"] != true
        && number(old, "parallelism").unwrap_or(1) != number(job, "parallelism").unwrap_or(1)
    {
        let why = "cannot change when partial admission is enabled and the job is not suspended";
        errors.push(FieldError::forbidden("spec.parallelism", why));
    }
    let [follows, followed] = [job, old].map(|job| annotation(job, COMPLETIONS_FOLLOW) == Some("true"));
    if !kind.is_suspended(job) && !kind.is_suspended(old) && follows != followed {
        let why = format!("{IMMUTABLE} while the job is not suspended");
        errors.push(FieldError::forbidden(&annotation_path(COMPLETIONS_FOLLOW), &why));
    }
}

/// The completions of a Job follow its parallelism only if both are equal and the Job is indexed.
fn check_completions(job: &Value, errors: &mut Vec<FieldError>) {
    let path = annotation_path(COMPLETIONS_FOLLOW);
    let Some(text) = annotation(job, COMPLETIONS_FOLLOW) else { return };
    let truths = ["1", "t", "T", "true", "TRUE", "True"];
    let lies = ["0", "f", "F", "false", "FALSE", "False"];
    if !truths.contains(&text) {
        if !lies.contains(&text) {
            let why = format!("strconv.ParseBool: parsing {text:?}: invalid syntax");
            errors.push(FieldError::invalid(&path, text, &why));
        }
        return;
    }
    if job["spec"]["completionMode"] != "Indexed" {
        errors.push(FieldError::invalid(&path, text, "should not be enabled for NonIndexed jobs"));
    }
    if number(job, "parallelism").unwrap_or(1) != number(job, "completions").unwrap_or(1) {
        let why = format!("should be equal to parallelism when {COMPLETIONS_FOLLOW} annotation is true");
        errors.push(FieldError::invalid("spec.completions", job["spec"]["completions"].clone(), &why));
    }
}
