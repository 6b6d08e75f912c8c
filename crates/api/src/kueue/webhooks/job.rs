//! Jobs: suspended at their creation, and the rules of their labels and annotations. After `pkg/controller/jobframework` and
//! `pkg/controller/jobs/job` of Kueue v0.19.

use serde_json::{Value, json};

use super::field_error::{FieldError, IMMUTABLE};
use super::names::subdomain_errors;
use super::{Context, DEFAULT, Gates, JobDefaults, JobRules, Operation, ReviewedKind};
use super::{
    deployment, elastic, gates as gated_by, leader_worker_set, pod, ray, spark, statefulset, topology,
};
use crate::appwrapper::{self, components::has_components};
use crate::kueue::jobs::topology::{GROUP as POD_SET_GROUP, follow_one, truth};
use crate::kueue::jobs::train_job::PATCH_MANAGER;
use crate::kueue::jobs::{
    COMPLETIONS_FOLLOW, JobKind, LEAST_PARALLELISM, LONGEST_RUN, PREBUILT, PRIORITY_CLASS, QUEUE_NAME,
    annotation, controller, prebuilt_workload, queue_name, remote, set_at,
};
use crate::value::list;
use crate::wrapped_kinds::group;

/// The label of every namespace with its name.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// The group of the kinds of Ray.
const RAY: &str = "ray.io";

/// The kind of jobs of a resource, if it is managed.
fn kind_of(resource: &str, rules: &JobRules) -> Option<ReviewedKind> {
    managed(rules).find(|kind| kind.plural == resource)
}

fn managed(rules: &JobRules) -> impl Iterator<Item = ReviewedKind> {
    ReviewedKind::all().filter(|kind| rules.frameworks.iter().any(|name| name == kind.framework))
}

/// Fills in a managed job: the queue and the priority class with the name `default`, if they exist, and what suspends it.
pub(super) fn default(
    resource: &str,
    operation: Operation,
    job: &mut Value,
    known: &JobDefaults,
    context: &Context,
) {
    let Some(kind) = kind_of(resource, &context.jobs) else { return };
    if operation != Operation::Create && !kind.is_set_of_pods() {
        return;
    }
    match (kind.plural, JobKind::of_framework(kind.framework)) {
        ("pods", _) => pod::default(job, known, context),
        ("deployments", _) => deployment::default(job, known, context),
        ("statefulsets", _) => statefulset::default(job, known, context),
        ("leaderworkersets", _) => leader_worker_set::default(job, known, context),
        (_, Some(kind)) => {
            let is_managed = !kind.integration.is_skipped(job) && complete(job, known, context);
            if is_managed {
                kind.set_suspended(job, true);
                if known.remote_queues.contains(queue_name(job)) {
                    remote::hand_over(kind, job);
                }
            }
            if is_managed || is_owned(job, known, &context.jobs) {
                elastic::gate(kind, job, &context.gates);
            }
            match kind.plural {
                "trainjobs" => add_runtime_patch(job),
                "mpijobs" if context.gates.topology_aware_scheduling => rank_workers(job),
                _ => {}
            }
        }
        (_, None) => {}
    }
}

/// Gives a job the queue and the class with the name `default`. Returns whether it waits for a queue.
pub(super) fn complete(job: &mut Value, known: &JobDefaults, context: &Context) -> bool {
    let rules = &context.jobs;
    if is_owned(job, known, rules) || !is_selected(job, known, rules) {
        return false;
    }
    if known.has_queue && queue_name(job).is_empty() {
        set_at(job, &["metadata", "labels", QUEUE_NAME], DEFAULT.into());
    }
    let has_class = label(job, PRIORITY_CLASS).is_some_and(|name| !name.is_empty());
    if context.gates.workload_priority_class_defaulting && known.has_class && !has_class {
        set_at(job, &["metadata", "labels", PRIORITY_CLASS], DEFAULT.into());
    }
    rules.manages_unnamed || !queue_name(job).is_empty()
}

/// The patch has to be there from the beginning: a running `TrainJob` gets no new one.
fn add_runtime_patch(job: &mut Value) {
    let patches = list(job, &["spec", "runtimePatches"]);
    if !patches.iter().any(|patch| patch["manager"] == PATCH_MANAGER) {
        let patch = json!({"manager": PATCH_MANAGER, "trainingRuntimeSpec": {"template": {"spec": {}}}});
        let patches: Vec<Value> = patches.iter().cloned().chain([patch]).collect();
        set_at(job, &["spec", "runtimePatches"], patches.into());
    }
}

/// The workers of an `MPIJob` whose launcher is the first worker have the indices behind it. A job may get its queue later, so this is
/// said of jobs without one, too.
fn rank_workers(job: &mut Value) {
    let template = |role: &str| format!("/spec/mpiReplicaSpecs/{role}/template");
    let Some(launcher) = job.pointer(&template("Launcher")) else { return };
    let is_grouped = annotation(launcher, POD_SET_GROUP).is_some();
    if job["spec"]["runLauncherAsWorker"] == true
        && !is_grouped
        && let Some(worker) = job.pointer_mut(&template("Worker"))
    {
        follow_one(worker);
    }
}

/// Whether jobs of this namespace are managed. If its labels are not known, and others than its name decide, the
/// controller suspends the job later.
pub(super) fn is_selected(job: &Value, known: &JobDefaults, rules: &JobRules) -> bool {
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
pub(super) fn is_owned(job: &Value, known: &JobDefaults, rules: &JobRules) -> bool {
    !known.is_ownerless && names_owner(job, rules)
}

/// Whether a job names an AppWrapper, or a job of a managed kind, as its controller.
pub(super) fn names_owner(job: &Value, rules: &JobRules) -> bool {
    let owner = controller(job);
    let [version, kind] = ["apiVersion", "kind"].map(|field| owner[field].as_str().unwrap_or_default());
    let is_other =
        |name: &String| JobKind::of_framework(name).is_some_and(|known| known.is_kind_of(version, kind));
    appwrapper::is_wrapper(group(version), kind)
        || managed(rules).any(|known| known.is_kind_of(version, kind))
        || rules.others.iter().any(is_other)
}

/// The rules that a job breaks.
pub(super) fn validate(
    resource: &str,
    job: &Value,
    old: Option<&Value>,
    known: &JobDefaults,
    context: &Context,
) -> Vec<FieldError> {
    let Some(kind) = kind_of(resource, &context.jobs) else { return Vec::new() };
    // In the older version it is no job of Kueue's API.
    if kind.plural == appwrapper::PLURAL && !has_components(job) {
        return Vec::new();
    }
    let mut errors = Vec::new();
    match kind.plural {
        "pods" => pod::check(job, old, known, context, &mut errors),
        "deployments" => deployment::check(job, old, context, &mut errors),
        "statefulsets" => statefulset::check(job, old, known, context, &mut errors),
        "leaderworkersets" => leader_worker_set::check(job, old, known, context, &mut errors),
        _ => check(kind, job, old, known, context, &mut errors),
    }
    errors
}

/// The rules of jobs that are suspended by a field.
fn check(
    kind: ReviewedKind,
    job: &Value,
    old: Option<&Value>,
    known: &JobDefaults,
    context: &Context,
    errors: &mut Vec<FieldError>,
) {
    let is_queued = |job: &Value| context.jobs.manages_unnamed || !queue_name(job).is_empty();
    let is_spark = kind.plural == "sparkapplications";
    // A job that leaves its queue keeps its rules until it has left.
    let was_never_queued = !is_queued(job) && old.is_some_and(|old| !is_queued(old));
    if (is_spark || kind.group() == RAY) && was_never_queued {
        return;
    }
    if is_queued(job) && kind.group() == RAY {
        let is_other = ray::check(kind.plural, job, &context.gates, errors).is_none();
        if is_other {
            return;
        }
    } else if is_queued(job) && is_spark {
        spark::check(job, errors);
    }
    check_labels(job, errors);
    elastic::check(job, &context.gates, errors);
    let controlled = JobKind::of_framework(kind.framework);
    let is_suspended = |job: &Value| match controlled {
        Some(kind) => kind.is_suspended(job),
        None => job["spec"]["suspend"] == true,
    };
    match old {
        None => gated_by::check_create(job, &context.gates, errors),
        Some(old) => check_update(job, old, [job, old].map(is_suspended), known, context, errors),
    }
    if kind.plural == "jobs" {
        check_parallelism([job, old.unwrap_or(job)].map(is_suspended), job, old, &context.gates, errors);
        check_completions(job, errors);
    }
    if let Some(kind) = controlled.filter(|_| context.gates.topology_aware_scheduling) {
        let before = errors.len();
        let check = if is_spark { spark::check_topology } else { topology::check_job };
        check(kind, job, &context.gates, errors);
        if errors.len() == before && kind.plural == "jobs" {
            elastic::check_topology(job, &context.gates, errors);
        }
    }
}

pub(super) fn label<'a>(job: &'a Value, key: &str) -> Option<&'a str> {
    job["metadata"]["labels"][key].as_str()
}

pub(super) fn label_path(key: &str) -> String {
    format!("metadata.labels[{key}]")
}

pub(super) fn annotation_path(key: &str) -> String {
    format!("metadata.annotations[{key}]")
}

/// The rules of the labels and annotations of a job.
pub(super) fn check_labels(job: &Value, errors: &mut Vec<FieldError>) {
    check_queue_name(job, errors);
    check_prebuilt(job, errors);
    check_longest_run(job, errors);
}

pub(super) fn check_queue_name(job: &Value, errors: &mut Vec<FieldError>) {
    if let Some(name) = label(job, QUEUE_NAME) {
        check_name(&label_path(QUEUE_NAME), name, errors);
    }
}

/// Where a job names the Workload that it wants to use.
pub(super) fn prebuilt_path(job: &Value) -> String {
    if annotation(job, PREBUILT).is_some_and(|name| !name.is_empty()) {
        annotation_path(PREBUILT)
    } else {
        label_path(PREBUILT)
    }
}

pub(super) fn check_prebuilt(job: &Value, errors: &mut Vec<FieldError>) {
    let named = annotation(job, PREBUILT).filter(|name| !name.is_empty()).or_else(|| label(job, PREBUILT));
    if let Some(name) = named {
        check_name(&prebuilt_path(job), name, errors);
    }
}

fn check_name(path: &str, name: &str, errors: &mut Vec<FieldError>) {
    let why = subdomain_errors(name).join(",");
    if !why.is_empty() {
        errors.push(FieldError::invalid(path, name, &why));
    }
}

fn check_longest_run(job: &Value, errors: &mut Vec<FieldError>) {
    let Some(text) = label(job, LONGEST_RUN) else { return };
    let path = label_path(LONGEST_RUN);
    match text.parse::<i32>() {
        Err(_) => {
            let why = format!("strconv.Atoi: parsing {text:?}: invalid syntax");
            errors.push(FieldError::invalid(&path, text, &why));
        }
        Ok(seconds) if seconds <= 0 => {
            errors.push(FieldError::invalid(&path, seconds, "should be greater than 0"));
        }
        Ok(_) => {}
    }
}

/// Checks that a label has not changed.
pub(super) fn check_immutable(key: &str, job: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let new = label(job, key).unwrap_or_default();
    if new != label(old, key).unwrap_or_default() {
        errors.push(FieldError::invalid(&label_path(key), new, IMMUTABLE));
    }
}

/// The rules of changed labels and annotations, for a job that is, and was, suspended or not.
pub(super) fn check_update(
    job: &Value,
    old: &Value,
    [is_suspended, was_suspended]: [bool; 2],
    known: &JobDefaults,
    context: &Context,
    errors: &mut Vec<FieldError>,
) {
    if !is_suspended {
        check_immutable(QUEUE_NAME, job, old, errors);
        if prebuilt_workload(job) != prebuilt_workload(old) && !elastic::is_asked(old, &context.gates) {
            let name = prebuilt_workload(job).unwrap_or_default();
            errors.push(FieldError::invalid(&prebuilt_path(job), name, IMMUTABLE));
        }
    }
    if known.has_queue && queue_name(job).is_empty() && !queue_name(old).is_empty() {
        let why = "queue-name must not be empty in namespace with default queue";
        errors.push(FieldError::invalid(&label_path(QUEUE_NAME), "", why));
    }
    if !is_suspended || !was_suspended {
        check_immutable(LONGEST_RUN, job, old, errors);
    }
    check_class(job, old, is_suspended, errors);
    elastic::check_update(job, old, &context.gates, errors);
    gated_by::check_update(job, old, &context.gates, errors);
}

/// A priority class is not removed, and a job that is not suspended gets none.
pub(super) fn check_class(job: &Value, old: &Value, is_suspended: bool, errors: &mut Vec<FieldError>) {
    let [new, before] = [job, old].map(|job| label(job, PRIORITY_CLASS).unwrap_or_default());
    let why = match (before.is_empty(), new.is_empty()) {
        (true, false) if !is_suspended => "WorkloadPriorityClass cannot be added to a non-suspended workload",
        (false, true) => "WorkloadPriorityClass cannot be removed from a workload",
        _ => return,
    };
    errors.push(FieldError::invalid(&label_path(PRIORITY_CLASS), new, why));
}

fn number(job: &Value, field: &str) -> Option<i64> {
    job["spec"][field].as_i64()
}

/// The fewest pods of a Job are fewer than its pods. They and its parallelism do not change while it runs.
fn check_parallelism(
    [is_suspended, was_suspended]: [bool; 2],
    job: &Value,
    old: Option<&Value>,
    gates: &Gates,
    errors: &mut Vec<FieldError>,
) {
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
        if elastic::is_asked(job, gates) {
            errors.push(FieldError::invalid(&path, text, elastic::NOT_PARTIAL));
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
    if !is_suspended && !was_suspended && follows != followed {
        let why = format!("{IMMUTABLE} while the job is not suspended");
        errors.push(FieldError::forbidden(&annotation_path(COMPLETIONS_FOLLOW), &why));
    }
}

/// The completions of a Job follow its parallelism only if both are equal and the Job is indexed.
fn check_completions(job: &Value, errors: &mut Vec<FieldError>) {
    let path = annotation_path(COMPLETIONS_FOLLOW);
    let Some(text) = annotation(job, COMPLETIONS_FOLLOW) else { return };
    match truth(text) {
        Some(true) => {}
        Some(false) => return,
        None => {
            let why = format!("strconv.ParseBool: parsing {text:?}: invalid syntax");
            errors.push(FieldError::invalid(&path, text, &why));
            return;
        }
    }
    if job["spec"]["completionMode"] != "Indexed" {
        errors.push(FieldError::invalid(&path, text, "should not be enabled for NonIndexed jobs"));
    }
    if number(job, "parallelism").unwrap_or(1) != number(job, "completions").unwrap_or(1) {
        let why = format!("should be equal to parallelism when {COMPLETIONS_FOLLOW} annotation is true");
        errors.push(FieldError::invalid("spec.completions", job["spec"]["completions"].clone(), &why));
    }
}
