//! What the webhooks of Deployments, `StatefulSets` and `LeaderWorkerSets` share: these sets of pods hold back their pods by an
//! annotation, and their state is the number of ready pods.

use std::collections::BTreeSet;

use serde_json::Value;

use super::field_error::{FieldError, IMMUTABLE};
use super::job::{self, label};
use super::same::same_field;
use super::{Context, JobDefaults};
use crate::kueue::jobs::pods::SUSPENDED_BY;
use crate::kueue::jobs::role_hash::shape;
use crate::kueue::jobs::{PRIORITY_CLASS, QUEUE_NAME, queue_name, set_at};

/// Gives a set of pods the queue and the class with the name `default`. Returns whether its pods wait for a queue. A set that
/// is being deleted stays as it is.
pub(super) fn complete(set: &mut Value, known: &JobDefaults, context: &Context) -> bool {
    !is_deleting(set) && job::complete(set, known, context)
}

/// Whether the pods of a set wait for a queue.
pub(super) fn is_queued(set: &Value, known: &JobDefaults, context: &Context) -> bool {
    let rules = &context.jobs;
    let is_selected = || rules.manages_unnamed && job::is_selected(set, known, rules);
    !is_deleting(set) && !job::is_owned(set, known, rules) && (!queue_name(set).is_empty() || is_selected())
}

fn is_deleting(set: &Value) -> bool {
    !set["metadata"]["deletionTimestamp"].is_null()
}

/// Changes a template of a set of pods, if it has it.
pub(super) fn edit(set: &mut Value, pointer: &str, change: impl FnOnce(&Value, &mut Value)) {
    let Some(mut template) = set.pointer_mut(pointer).filter(|it| it.is_object()).map(Value::take) else {
        return;
    };
    change(set, &mut template);
    if let Some(place) = set.pointer_mut(pointer) {
        *place = template;
    }
}

/// Has the pods of a template wait.
pub(super) fn hold_back(template: &mut Value, framework: &str) {
    set_at(template, &["metadata", "annotations", SUSPENDED_BY], framework.into());
}

/// Copies the queue and the class of a set of pods to a template.
pub(super) fn name_queue(set: &Value, template: &mut Value) {
    for key in [QUEUE_NAME, PRIORITY_CLASS] {
        if let Some(name) = label(set, key).filter(|name| !name.is_empty()) {
            set_at(template, &["metadata", "labels", key], name.into());
        }
    }
}

/// The rules of labels and annotations at each write.
pub(super) fn check(set: &Value, context: &Context, errors: &mut Vec<FieldError>) {
    job::check_queue_name(set, errors);
    super::elastic::check(set, &context.gates, errors);
}

/// The rules of changed labels and annotations. A set whose pods are ready stays in its queue, and no set leaves it.
pub(super) fn check_update(set: &Value, old: &Value, context: &Context, errors: &mut Vec<FieldError>) {
    let is_suspended = old["status"]["readyReplicas"].as_i64().unwrap_or(0) == 0;
    if !is_suspended || queue_name(set).is_empty() {
        job::check_immutable(QUEUE_NAME, set, old, errors);
    }
    job::check_class(set, old, is_suspended, errors);
    super::gates::check_update(set, old, &context.gates, errors);
}

/// Checks that pods keep what decides where they can run.
pub(super) fn check_pod_spec(spec: &Value, old: &Value, path: &str, errors: &mut Vec<FieldError>) {
    check_shape("", &shape(spec), &shape(old), path, errors);
}

/// Compares a part of the specs. Containers are compared one by one.
fn check_shape(name: &str, new: &Value, old: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let is_containers = ["containers", "initContainers"].contains(&name);
    match (new, old) {
        (Value::Object(new_fields), Value::Object(old_fields))
            if name.is_empty() || path.ends_with(']') || is_container_resources(name, path) =>
        {
            let fields: BTreeSet<&String> = new_fields.keys().chain(old_fields.keys()).collect();
            for field in fields {
                check_shape(field, &new[field], &old[field], &format!("{path}.{field}"), errors);
            }
        }
        (Value::Array(new), Value::Array(old)) if is_containers && new.len() == old.len() => {
            for (at, (new, old)) in new.iter().zip(old).enumerate() {
                check_shape("container", new, old, &format!("{path}[{at}]"), errors);
            }
        }
        _ => {
            // The resources of a pod are its requests alone.
            let name = if name == "resources" { "requests" } else { name };
            if !same_field(name, new, old) {
                errors.push(FieldError::invalid(path, new.clone(), IMMUTABLE));
            }
        }
    }
}

fn is_container_resources(name: &str, path: &str) -> bool {
    name == "resources" && path.ends_with("].resources")
}
