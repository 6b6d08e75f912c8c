//! Jobs that change their size while they run: which kinds may, and the scheduling gate of their pods. After
//! `pkg/controller/jobframework` and `pkg/controller/jobs` of Kueue v0.19.

use serde_json::{Value, json};

use super::Gates;
use super::field_error::{FieldError, IMMUTABLE};
use super::job::annotation_path;
use crate::kueue::jobs::topology::{PREFERRED, REQUIRED};
use crate::kueue::jobs::{ELASTIC, ELASTIC_GATE, JOB_KINDS, JobKind, annotation, set_at};
use crate::value::{at, list};

/// Why such a job does not start with fewer pods.
pub(super) const NOT_PARTIAL: &str = "partial admission and elastic job cannot be used together";

/// Whether a job asks to change its size.
pub(super) fn is_asked(job: &Value, gates: &Gates) -> bool {
    gates.elastic_jobs_via_workload_slices && annotation(job, ELASTIC) == Some("true")
}

/// Gates the pods of a job that changes its size.
pub(super) fn gate(kind: &JobKind, job: &mut Value, gates: &Gates) {
    // The cluster of a RayJob is gated itself.
    if !is_asked(job, gates) || !kind.is_elastic(job) || kind.plural == "rayjobs" {
        return;
    }
    for template in kind.integration.templates(job) {
        let Some(template) = job.pointer_mut(&template).filter(|template| template.is_object()) else {
            continue;
        };
        let known = list(template, &["spec", "schedulingGates"]);
        if known.iter().all(|gate| gate["name"] != ELASTIC_GATE) {
            let all: Vec<Value> = known.iter().cloned().chain([json!({"name": ELASTIC_GATE})]).collect();
            set_at(template, &["spec", "schedulingGates"], all.into());
        }
    }
}

/// Only some kinds change their size.
pub(super) fn check(job: &Value, gates: &Gates, errors: &mut Vec<FieldError>) {
    let [api_version, kind] = ["apiVersion", "kind"].map(|field| job[field].as_str().unwrap_or_default());
    let grows = |known: &JobKind| {
        known.api_version == api_version && known.kind == kind && known.integration.can_grow()
    };
    if is_asked(job, gates) && !JOB_KINDS.iter().any(grows) {
        let version =
            if api_version.contains('/') { api_version.to_owned() } else { format!("/{api_version}") };
        let why = format!("elastic job is not supported for \"{version}, Kind={kind}\"");
        errors.push(FieldError::forbidden(&annotation_path(ELASTIC), &why));
    }
}

/// Whether a job changes its size does not change.
pub(super) fn check_update(job: &Value, old: &Value, gates: &Gates, errors: &mut Vec<FieldError>) {
    let is_now = is_asked(job, gates);
    if is_now != is_asked(old, gates) {
        errors.push(FieldError::invalid(&annotation_path(ELASTIC), is_now, IMMUTABLE));
    }
}

/// Pods that come later have no domain that all others are in.
pub(super) fn check_topology(job: &Value, gates: &Gates, errors: &mut Vec<FieldError>) {
    if !is_asked(job, gates) {
        return;
    }
    for (key, mode) in [(REQUIRED, "required"), (PREFERRED, "preferred")] {
        if annotation(&job["spec"]["template"], key).is_some() {
            let why = format!("{mode} topology is not supported with elastic jobs");
            errors.push(FieldError::forbidden(&format!("spec.template.metadata.annotations.{key}"), &why));
            return;
        }
    }
}

/// All pods of a cluster are gated.
pub(super) fn check_gates(cluster: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let mut check = |template: &Value, path: String| {
        let gates = at(template, &["spec", "schedulingGates"]);
        if gates.as_array().is_none_or(|gates| !gates.contains(&json!({"name": ELASTIC_GATE}))) {
            let why = "an elastic job must have the ElasticJobSchedulingGate";
            errors.push(FieldError::invalid(&path, gates.clone(), why));
        }
    };
    for (at, group) in list(cluster, &["workerGroupSpecs"]).iter().enumerate() {
        check(&group["template"], format!("{path}.workerGroupSpecs[{at}].template.spec.schedulingGates"));
    }
    let head = &cluster["headGroupSpec"]["template"];
    check(head, format!("{path}.headGroupSpec.template.spec.schedulingGates"));
}
