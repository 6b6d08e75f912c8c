//! Defaults of kinds that make pods.

use serde_json::{Value, json};

use super::pod::template_of;
use crate::builtin::fields::{absent, items_mut, object_mut};
use crate::object;

/// A `Deployment`.
pub(super) fn deployment(deployment: &mut Value) {
    let Some(spec) = spec(deployment) else { return };
    absent(spec, &["replicas"], 1);
    absent(spec, &["strategy"], json!({}));
    absent(spec, &["strategy", "type"], "RollingUpdate");
    if spec["strategy"]["type"] == "RollingUpdate" {
        absent(spec, &["strategy", "rollingUpdate"], json!({}));
        absent(spec, &["strategy", "rollingUpdate", "maxUnavailable"], "25%");
        absent(spec, &["strategy", "rollingUpdate", "maxSurge"], "25%");
    }
    absent(spec, &["revisionHistoryLimit"], 10);
    absent(spec, &["progressDeadlineSeconds"], 600);
    template_of(spec);
}

/// A `ReplicaSet`.
pub(super) fn replica_set(set: &mut Value) {
    let Some(spec) = spec(set) else { return };
    absent(spec, &["replicas"], 1);
    template_of(spec);
}

/// A `ReplicationController`: selector and labels come from its template.
pub(super) fn replication_controller(controller: &mut Value) {
    let labels = object::map(controller, &["spec", "template", "metadata", "labels"]).cloned();
    let Some(spec) = spec(controller) else { return };
    absent(spec, &["replicas"], 1);
    template_of(spec);
    if let Some(labels) = labels {
        absent(spec, &["selector"], labels.clone());
        absent(controller, &["metadata", "labels"], labels);
    }
}

/// A `StatefulSet`.
pub(super) fn stateful_set(set: &mut Value) {
    let Some(spec) = spec(set) else { return };
    absent(spec, &["podManagementPolicy"], "OrderedReady");
    absent(spec, &["updateStrategy"], json!({}));
    if spec["updateStrategy"]["type"].is_null() {
        absent(spec, &["updateStrategy", "type"], "RollingUpdate");
        absent(spec, &["updateStrategy", "rollingUpdate"], json!({}));
    }
    if spec["updateStrategy"]["type"] == "RollingUpdate" {
        absent(spec, &["updateStrategy", "rollingUpdate", "partition"], 0);
    }
    absent(spec, &["persistentVolumeClaimRetentionPolicy"], json!({}));
    absent(spec, &["persistentVolumeClaimRetentionPolicy", "whenDeleted"], "Retain");
    absent(spec, &["persistentVolumeClaimRetentionPolicy", "whenScaled"], "Retain");
    absent(spec, &["replicas"], 1);
    absent(spec, &["revisionHistoryLimit"], 10);
    for claim in items_mut(spec, "volumeClaimTemplates") {
        absent(claim, &["apiVersion"], "v1");
        absent(claim, &["kind"], "PersistentVolumeClaim");
        object::set(claim, &["status", "phase"], "Pending");
        absent(claim, &["spec", "volumeMode"], "Filesystem");
    }
    template_of(spec);
}

/// What a new `DaemonSet` gets: an annotation that counts its templates.
pub(super) fn generate_daemon_set(set: &mut Value) {
    object::set(set, &["metadata", "annotations", "deprecated.daemonset.template.generation"], "1");
}

/// A `DaemonSet`.
pub(super) fn daemon_set(set: &mut Value) {
    let Some(spec) = spec(set) else { return };
    absent(spec, &["updateStrategy"], json!({}));
    absent(spec, &["updateStrategy", "type"], "RollingUpdate");
    if spec["updateStrategy"]["type"] == "RollingUpdate" {
        absent(spec, &["updateStrategy", "rollingUpdate"], json!({}));
        absent(spec, &["updateStrategy", "rollingUpdate", "maxUnavailable"], 1);
        absent(spec, &["updateStrategy", "rollingUpdate", "maxSurge"], 0);
    }
    absent(spec, &["revisionHistoryLimit"], 10);
    template_of(spec);
}

/// A `Job`.
pub(super) fn job(job: &mut Value) {
    let Some(spec) = spec(job) else { return };
    if spec["completions"].is_null() && spec["parallelism"].is_null() {
        absent(spec, &["completions"], 1);
    }
    absent(spec, &["parallelism"], 1);
    let limit = if spec["backoffLimitPerIndex"].is_null() { 6 } else { i32::MAX };
    absent(spec, &["backoffLimit"], limit);
    absent(spec, &["completionMode"], "NonIndexed");
    absent(spec, &["suspend"], false);
    absent(spec, &["manualSelector"], false);
    let replacement = if spec["podFailurePolicy"].is_null() { "TerminatingOrFailed" } else { "Failed" };
    absent(spec, &["podReplacementPolicy"], replacement);
    for rule in spec.get_mut("podFailurePolicy").into_iter().flat_map(|policy| items_mut(policy, "rules")) {
        for pattern in items_mut(rule, "onPodConditions") {
            if object::text(pattern, &["status"]).is_empty() {
                object::set(pattern, &["status"], "True");
            }
        }
    }
    template_of(spec);
}

/// The pods of a new `Job` get labels that select them, unless it brings its own selector.
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

/// A `CronJob`.
pub(super) fn cron_job(job: &mut Value) {
    let Some(spec) = spec(job) else { return };
    absent(spec, &["concurrencyPolicy"], "Allow");
    absent(spec, &["suspend"], false);
    absent(spec, &["successfulJobsHistoryLimit"], 3);
    absent(spec, &["failedJobsHistoryLimit"], 1);
    if let Some(job) = spec.get_mut("jobTemplate").and_then(|template| object_mut(template, "spec")) {
        template_of(job);
    }
}

fn spec(object: &mut Value) -> Option<&mut Value> {
    object_mut(object, "spec")
}
