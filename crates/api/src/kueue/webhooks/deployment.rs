//! Deployments: their pods wait one by one. After `pkg/controller/jobs/deployment` of Kueue v0.19.

use serde_json::{Value, json};

use super::field_error::FieldError;
use super::set_of_pods::{check_update, complete, edit, hold_back, name_queue};
use super::{Context, JobDefaults, gates as gated_by, set_of_pods};
use crate::kueue::jobs::pods::{DEPLOYMENT, MANAGED};
use crate::kueue::jobs::set_at;

/// Has the pods of a queued Deployment wait for its queue.
pub(super) fn default(deployment: &mut Value, known: &JobDefaults, context: &Context) {
    if !complete(deployment, known, context) {
        return;
    }
    edit(deployment, "/spec/template", hold_back_one_by_one);
}

/// Has the pods of a template wait, each by itself, in the queue of their Deployment.
fn hold_back_one_by_one(deployment: &Value, template: &mut Value) {
    hold_back(template, DEPLOYMENT);
    set_at(template, &["metadata", "labels", MANAGED], "true".into());
    name_queue(deployment, template);
}

/// A pod of a queued Deployment. Its name is that of the Deployment: whoever asks for several names them.
pub fn pod_of_deployment(deployment: &Value) -> Value {
    let mut pod = deployment["spec"]["template"].clone();
    hold_back_one_by_one(deployment, &mut pod);
    for field in ["name", "namespace", "creationTimestamp"] {
        set_at(&mut pod, &["metadata", field], deployment["metadata"][field].clone());
    }
    let mut whole = json!({"apiVersion": "v1", "kind": "Pod"});
    for field in ["metadata", "spec"] {
        whole[field] = pod[field].take();
    }
    whole
}

/// The rules that a Deployment breaks.
pub(super) fn check(
    deployment: &Value,
    old: Option<&Value>,
    context: &Context,
    errors: &mut Vec<FieldError>,
) {
    set_of_pods::check(deployment, context, errors);
    match old {
        Some(old) => check_update(deployment, old, context, errors),
        None => gated_by::check_create(deployment, &context.gates, errors),
    }
}
