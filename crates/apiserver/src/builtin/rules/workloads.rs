//! Workloads of the group `apps`.

use serde_json::Value;

use super::{Errors, SPEC, immutable, int_or_percent, magnitude, nonnegative, pod, selector, text};
use crate::field_error::{FieldError, FieldErrorKind, Path};
use crate::object;

/// `Deployment`.
pub(super) fn deployment(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    let spec = &new["spec"];
    nonnegative(spec, "replicas", SPEC, errors);
    selector::of_template(spec, SPEC, "deployment", errors);
    template(spec, SPEC.child("template"), "ReplicaSet", errors);
    strategy(&spec["strategy"], SPEC.child("strategy"), errors);
    for name in ["minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"] {
        nonnegative(spec, name, SPEC, errors);
    }
    if let Some(deadline) = spec["progressDeadlineSeconds"].as_i64()
        && deadline <= spec["minReadySeconds"].as_i64().unwrap_or_default()
    {
        let at = SPEC.child("progressDeadlineSeconds");
        errors.push(FieldError::invalid(at, deadline, "must be greater than minReadySeconds"));
    }
    fixed_selector(new, old, errors);
}

/// `ReplicaSet`.
pub(super) fn replica_set(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    let spec = &new["spec"];
    nonnegative(spec, "replicas", SPEC, errors);
    nonnegative(spec, "minReadySeconds", SPEC, errors);
    selector::of_template(spec, SPEC, "deployment", errors);
    template(spec, SPEC.child("template"), "ReplicaSet", errors);
    fixed_selector(new, old, errors);
}

/// `DaemonSet`.
pub(super) fn daemon_set(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    let spec = &new["spec"];
    selector::of_template(spec, SPEC, "daemonset", errors);
    template(spec, SPEC.child("template"), "DaemonSet", errors);
    nonnegative(spec, "minReadySeconds", SPEC, errors);
    nonnegative(spec, "revisionHistoryLimit", SPEC, errors);
    fixed_selector(new, old, errors);
}

/// `StatefulSet`.
pub(super) fn stateful_set(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    let spec = &new["spec"];
    let policy = text(spec, "podManagementPolicy");
    if !matches!(policy, "OrderedReady" | "Parallel") {
        let at = SPEC.child("podManagementPolicy");
        errors.push(FieldError::invalid(at, policy, "must be 'OrderedReady' or 'Parallel'"));
    }
    let strategy = text(&spec["updateStrategy"], "type");
    if !matches!(strategy, "RollingUpdate" | "OnDelete") {
        let at = SPEC.child("updateStrategy");
        let detail = "must be 'RollingUpdate' or 'OnDelete'";
        errors.push(FieldError::printed(FieldErrorKind::Invalid, at, &shown(strategy), detail));
    }
    for name in ["replicas", "minReadySeconds", "revisionHistoryLimit"] {
        nonnegative(spec, name, SPEC, errors);
    }
    selector::of_template(spec, SPEC, "statefulset", errors);
    // Volume claim templates become volumes of the pods, so containers may mount them.
    let mut with_claims = spec.clone();
    for claim in super::items(spec, "volumeClaimTemplates") {
        let volume = serde_json::json!({ "name": claim["metadata"]["name"], "emptyDir": {} });
        let volumes = object::map_mut(&mut with_claims, &["template", "spec"])
            .entry("volumes")
            .or_insert_with(|| Value::Array(Vec::new()));
        if let Some(volumes) = volumes.as_array_mut() {
            volumes.retain(|one| one["name"] != volume["name"]);
            volumes.push(volume);
        }
    }
    template(&with_claims, SPEC.child("template"), "StatefulSet", errors);
    let Some(old) = old else { return };
    let mut munged = new["spec"].clone();
    for field in [
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    ] {
        object::carry(&old["spec"], &mut munged, &[field]);
    }
    if munged != old["spec"] {
        errors.push(FieldError::forbidden(
            SPEC,
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
        ));
    }
}

/// Formats a strategy of an unsupported type as kube-apiserver does.
fn shown(kind: &str) -> String {
    format!(r#"{{"Type":{},"RollingUpdate":null}}"#, Value::from(kind))
}

fn fixed_selector(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    if let Some(old) = old {
        immutable(&new["spec"]["selector"], &old["spec"]["selector"], SPEC.child("selector"), errors);
    }
}

fn template(spec: &Value, path: Path<'_>, kind: &str, errors: &mut Errors) {
    let template = &spec["template"];
    if template.is_null() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    pod::template(template, path, errors);
    let at = path.child("spec");
    let policy = text(&template["spec"], "restartPolicy");
    if policy != "Always" {
        errors.push(FieldError::not_supported(at.child("restartPolicy"), policy, &["Always"]));
    }
    if !template["spec"]["activeDeadlineSeconds"].is_null() {
        let detail = format!("activeDeadlineSeconds in {kind} is not Supported");
        errors.push(FieldError::forbidden(at.child("activeDeadlineSeconds"), &detail));
    }
}

fn strategy(strategy: &Value, path: Path<'_>, errors: &mut Errors) {
    let rolling = &strategy["rollingUpdate"];
    let at = path.child("rollingUpdate");
    match text(strategy, "type") {
        "Recreate" => {
            if !rolling.is_null() {
                errors.push(FieldError::forbidden(
                    at,
                    "may not be specified when strategy `type` is 'Recreate'",
                ));
            }
        }
        "RollingUpdate" => {
            for name in ["maxUnavailable", "maxSurge"] {
                int_or_percent(&rolling[name], at.child(name), errors);
            }
            if magnitude(&rolling["maxUnavailable"]) == 0 && magnitude(&rolling["maxSurge"]) == 0 {
                let value = rolling["maxUnavailable"].clone();
                let at = at.child("maxUnavailable");
                errors.push(FieldError::invalid(at, value, "may not be 0 when `maxSurge` is 0"));
            }
            if rolling["maxUnavailable"].is_string() && magnitude(&rolling["maxUnavailable"]) > 100 {
                let value = rolling["maxUnavailable"].clone();
                errors.push(FieldError::invalid(
                    at.child("maxUnavailable"),
                    value,
                    "must not be greater than 100%",
                ));
            }
        }
        kind => errors.push(FieldError::printed(
            FieldErrorKind::NotSupported,
            path,
            &shown(kind),
            r#"supported values: "Recreate", "RollingUpdate""#,
        )),
    }
}
