//! `StatefulSets`: their pods are one group. After `pkg/controller/jobs/statefulset` of Kueue v0.19.

use serde_json::Value;

use super::field_error::{FieldError, IMMUTABLE};
use super::set_of_pods::{check_pod_spec, check_update, complete, edit, hold_back, is_queued};
use super::{Context, JobDefaults, gates as gated_by, set_of_pods};
use crate::kueue::jobs::annotation;
use crate::kueue::jobs::pods::SUSPENDED_BY;
use crate::kueue::jobs::sets::STATEFUL_SET;
use crate::value::count;

const FRAMEWORK: &str = STATEFUL_SET.framework;
const REPLICAS: &str = "spec.replicas";

/// Whether another object holds back the pods, such as the `LeaderWorkerSet` that owns the set.
fn is_foreign(set: &Value) -> bool {
    annotation(&set["spec"]["template"], SUSPENDED_BY).is_some_and(|holder| holder != FRAMEWORK)
}

/// Has the pods of a queued set wait.
pub(super) fn default(set: &mut Value, known: &JobDefaults, context: &Context) {
    if !is_foreign(set) && complete(set, known, context) {
        edit(set, "/spec/template", |_, template| hold_back(template, FRAMEWORK));
    }
}

/// The rules that a set breaks. Its Workload is for all pods, so a queued set has all pods or none.
pub(super) fn check(
    set: &Value,
    old: Option<&Value>,
    known: &JobDefaults,
    context: &Context,
    errors: &mut Vec<FieldError>,
) {
    if is_foreign(set) {
        return;
    }
    set_of_pods::check(set, context, errors);
    let Some(old) = old else { return gated_by::check_create(set, &context.gates, errors) };
    check_update(set, old, context, errors);
    if is_queued(set, known, context) {
        let [new_spec, old_spec] = [set, old].map(|set| &set["spec"]["template"]["spec"]);
        check_pod_spec(new_spec, old_spec, "spec.template.spec", errors);
        check_replicas(set, old, errors);
    }
}

fn check_replicas(set: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let [new, before] = [set, old].map(|set| count(set, &["spec", "replicas"], 1));
    if new != 0 && before != 0 && new != before {
        errors.push(FieldError::invalid(REPLICAS, new, IMMUTABLE));
    }
    if new > 0 && before == 0 && count(set, &["status", "replicas"], 0) > 0 {
        errors.push(FieldError::forbidden(REPLICAS, "scaling down is still in progress"));
    }
}
