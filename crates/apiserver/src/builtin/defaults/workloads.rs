//! Defaults of kinds with a pod template.

use serde_json::{Value, json};

use super::pod::template_of;
use crate::builtin::fields::{items_mut, object_mut, set_default};
use crate::object;

/// `Deployment`.
pub(super) fn deployment(deployment: &mut Value) {
    let Some(spec) = spec(deployment) else { return };
    set_default(spec, &["replicas"], 1);
    set_default(spec, &["strategy"], json!({}));
    set_default(spec, &["strategy", "type"], "RollingUpdate");
    if spec["strategy"]["type"] == "RollingUpdate" {
        set_default(spec, &["strategy", "rollingUpdate"], json!({}));
        set_default(spec, &["strategy", "rollingUpdate", "maxUnavailable"], "25%");
        set_default(spec, &["strategy", "rollingUpdate", "maxSurge"], "25%");
    }
    set_default(spec, &["revisionHistoryLimit"], 10);
    set_default(spec, &["progressDeadlineSeconds"], 600);
    template_of(spec);
}

/// `ReplicaSet`.
pub(super) fn replica_set(set: &mut Value) {
    let Some(spec) = spec(set) else { return };
    set_default(spec, &["replicas"], 1);
    template_of(spec);
}

/// `ReplicationController`: selector and labels default to the labels of the pod template.
pub(super) fn replication_controller(controller: &mut Value) {
    let labels = object::map(controller, &["spec", "template", "metadata", "labels"]).cloned();
    let Some(spec) = spec(controller) else { return };
    set_default(spec, &["replicas"], 1);
    template_of(spec);
    if let Some(labels) = labels {
        set_default(spec, &["selector"], labels.clone());
        set_default(controller, &["metadata", "labels"], labels);
    }
}

/// `StatefulSet`.
pub(super) fn stateful_set(set: &mut Value) {
    let Some(spec) = spec(set) else { return };
    set_default(spec, &["podManagementPolicy"], "OrderedReady");
    set_default(spec, &["updateStrategy"], json!({}));
    if spec["updateStrategy"]["type"].is_null() {
        set_default(spec, &["updateStrategy", "type"], "RollingUpdate");
        set_default(spec, &["updateStrategy", "rollingUpdate"], json!({}));
    }
    if spec["updateStrategy"]["type"] == "RollingUpdate" {
        set_default(spec, &["updateStrategy", "rollingUpdate", "partition"], 0);
    }
    set_default(spec, &["persistentVolumeClaimRetentionPolicy"], json!({}));
    set_default(spec, &["persistentVolumeClaimRetentionPolicy", "whenDeleted"], "Retain");
    set_default(spec, &["persistentVolumeClaimRetentionPolicy", "whenScaled"], "Retain");
    set_default(spec, &["replicas"], 1);
    set_default(spec, &["revisionHistoryLimit"], 10);
    for claim in items_mut(spec, "volumeClaimTemplates") {
        set_default(claim, &["apiVersion"], "v1");
        set_default(claim, &["kind"], "PersistentVolumeClaim");
        object::set(claim, &["status", "phase"], "Pending");
        set_default(claim, &["spec", "volumeMode"], "Filesystem");
    }
    template_of(spec);
}

/// Sets the template generation annotation of a new `DaemonSet`.
pub(super) fn generate_daemon_set(set: &mut Value) {
    object::set(set, &["metadata", "annotations", "deprecated.daemonset.template.generation"], "1");
}

/// `DaemonSet`.
pub(super) fn daemon_set(set: &mut Value) {
    let Some(spec) = spec(set) else { return };
    set_default(spec, &["updateStrategy"], json!({}));
    set_default(spec, &["updateStrategy", "type"], "RollingUpdate");
    if spec["updateStrategy"]["type"] == "RollingUpdate" {
        set_default(spec, &["updateStrategy", "rollingUpdate"], json!({}));
        set_default(spec, &["updateStrategy", "rollingUpdate", "maxUnavailable"], 1);
        set_default(spec, &["updateStrategy", "rollingUpdate", "maxSurge"], 0);
    }
    set_default(spec, &["revisionHistoryLimit"], 10);
    template_of(spec);
}

/// `Job`.
pub(super) fn job(job: &mut Value) {
    let Some(spec) = spec(job) else { return };
    if spec["completions"].is_null() && spec["parallelism"].is_null() {
        set_default(spec, &["completions"], 1);
    }
    set_default(spec, &["parallelism"], 1);
    let limit = if spec["backoffLimitPerIndex"].is_null() { 6 } else { i32::MAX };
    set_default(spec, &["backoffLimit"], limit);
    set_default(spec, &["completionMode"], "NonIndexed");
    set_default(spec, &["suspend"], false);
    set_default(spec, &["manualSelector"], false);
    let replacement = if spec["podFailurePolicy"].is_null() { "TerminatingOrFailed" } else { "Failed" };
    set_default(spec, &["podReplacementPolicy"], replacement);
    for rule in spec.get_mut("podFailurePolicy").into_iter().flat_map(|policy| items_mut(policy, "rules")) {
        for pattern in items_mut(rule, "onPodConditions") {
            if object::text(pattern, &["status"]).is_empty() {
                object::set(pattern, &["status"], "True");
            }
        }
    }
    template_of(spec);
}

/// Sets the selector of a new `Job` and the matching labels of its pod template, unless the job has a manual
/// selector.
pub(super) fn generate_job(job: &mut Value) {
    let (name, uid) = (object::name(job).to_owned(), object::uid(job).to_owned());
    let Some(spec) = spec(job) else { return };
    if spec["manualSelector"] != true {
        let labels = object::map_mut(spec, &["template", "metadata", "labels"]);
        for key in ["job-name", "batch.kubernetes.io/job-name"] {
            labels.entry(key).or_insert_with(|| name.clone().into());
        }
        for key in ["controller-uid", "batch.kubernetes.io/controller-uid"] {
            labels.entry(key).or_insert_with(|| uid.clone().into());
        }
        let selector = object::map_mut(spec, &["selector", "matchLabels"]);
        selector.entry("batch.kubernetes.io/controller-uid").or_insert_with(|| uid.into());
    }
    let labels = object::map(job, &["spec", "template", "metadata", "labels"]).cloned();
    if let Some(labels) = labels
        && object::map(job, &["metadata", "labels"]).is_none_or(serde_json::Map::is_empty)
    {
        object::set(job, &["metadata", "labels"], labels);
    }
}

/// `CronJob`.
pub(super) fn cron_job(job: &mut Value) {
    let Some(spec) = spec(job) else { return };
    set_default(spec, &["concurrencyPolicy"], "Allow");
    set_default(spec, &["suspend"], false);
    set_default(spec, &["successfulJobsHistoryLimit"], 3);
    set_default(spec, &["failedJobsHistoryLimit"], 1);
    if let Some(job) = spec.get_mut("jobTemplate").and_then(|template| object_mut(template, "spec")) {
        template_of(job);
    }
}

fn spec(object: &mut Value) -> Option<&mut Value> {
    object_mut(object, "spec")
}
