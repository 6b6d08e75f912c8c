//! Validation of kinds without a pod template.

use std::collections::BTreeSet;

use base64::Engine as _;
use serde_json::Value;

use super::container::{port_name, port_number};
use super::{
    Errors, SPEC, immutable, int_or_percent, items, magnitude, nonnegative, pod, require_ok, require_one_of,
    resources, selector, text,
};
use crate::field_error::{FieldError, FieldErrorKind, Path};
use crate::labels::check_labels;
use crate::names;
use crate::object;

/// Maximum size of the data in a `ConfigMap` or `Secret`, in bytes.
const DATA_BYTES_MAX: i64 = 1 << 20;
const IMMUTABLE_IS_SET: &str = "field is immutable when `immutable` is set";

/// `Service`.
pub(super) fn service(service: &Value, errors: &mut Errors) {
    let spec = &service["spec"];
    let headless = spec["clusterIP"] == "None";
    let external = spec["type"] == "ExternalName";
    let ports = items(spec, "ports");
    let at = SPEC.child("ports");
    if ports.is_empty() && !headless && !external {
        errors.push(FieldError::required(at, ""));
    }
    require_one_of(spec, "type", &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"], SPEC, errors);
    require_one_of(spec, "sessionAffinity", &["ClientIP", "None"], SPEC, errors);
    check_labels(&spec["selector"], SPEC.child("selector"), errors);
    if external {
        let name = text(spec, "externalName");
        let at = SPEC.child("externalName");
        if name.is_empty() {
            errors.push(FieldError::required(at, ""));
        } else {
            require_ok(names::subdomain(name.trim_end_matches('.')), name, at, errors);
        }
    }
    let (mut by_name, mut by_number) = (BTreeSet::new(), BTreeSet::new());
    for (index, port) in ports.iter().enumerate() {
        let at = at.index(index);
        let name = text(port, "name");
        if name.is_empty() {
            if ports.len() > 1 {
                errors.push(FieldError::required(at.child("name"), ""));
            }
        } else if let Err(reason) = names::label(name) {
            errors.push(FieldError::invalid(at.child("name"), name, &reason));
        } else if !by_name.insert(name) {
            errors.push(FieldError::duplicate(at.child("name"), name));
        }
        let number = port["port"].as_i64().unwrap_or_default();
        port_number(&Value::from(number), at.child("port"), errors);
        require_one_of(port, "protocol", &["SCTP", "TCP", "UDP"], at, errors);
        let target = &port["targetPort"];
        match target.as_str() {
            Some(name) => port_name(name, at.child("targetPort"), errors),
            None => port_number(target, at.child("targetPort"), errors),
        }
        if !by_number.insert((number, text(port, "protocol"))) {
            let printed = format!(
                r#"{{"Name":{},"Protocol":{},"AppProtocol":{},"Port":{number},"TargetPort":0,"NodePort":{}}}"#,
                Value::from(name),
                port["protocol"],
                port["appProtocol"],
                port["nodePort"].as_i64().unwrap_or_default(),
            );
            errors.push(FieldError::printed(FieldErrorKind::Duplicate, at, &printed, ""));
        }
    }
}

fn check_key(key: &str, path: Path<'_>, errors: &mut Errors) {
    let reason = if key.is_empty() || !key.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b)) {
        "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
    } else if key.len() > 253 {
        "must be no more than 253 bytes"
    } else if key == "." || key == ".." {
        "must not be '.' or '..'"
    } else if key.starts_with("..") {
        "must not start with '..'"
    } else {
        return;
    };
    errors.push(FieldError::invalid(path.key(key), key, reason));
}

/// `ConfigMap`.
pub(super) fn config_map(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    let mut size = 0;
    for name in ["data", "binaryData"] {
        let path = Path::Root(name);
        for (key, value) in new[name].as_object().into_iter().flatten() {
            check_key(key, path, errors);
            size += decoded_size(value, name == "binaryData");
            if name == "data" && !new["binaryData"][key].is_null() {
                errors.push(FieldError::invalid(
                    path.key(key),
                    key.as_str(),
                    "duplicate of key present in binaryData",
                ));
            }
        }
    }
    if i64::try_from(size).unwrap_or(i64::MAX) > DATA_BYTES_MAX {
        errors.push(FieldError::too_long(Path::Root("[]"), DATA_BYTES_MAX));
    }
    if let Some(old) = old.filter(|old| old["immutable"] == true) {
        reject_immutable_change(new, old, &["data", "binaryData"], errors);
    }
}

fn decoded_size(value: &Value, encoded: bool) -> usize {
    let text = value.as_str().unwrap_or_default();
    if encoded { text.trim_end_matches('=').len() * 3 / 4 } else { text.len() }
}

fn reject_immutable_change(new: &Value, old: &Value, fields: &[&str], errors: &mut Errors) {
    if new["immutable"] != true {
        errors.push(FieldError::forbidden(Path::Root("immutable"), IMMUTABLE_IS_SET));
    }
    for field in fields {
        if new[*field] != old[*field] {
            errors.push(FieldError::forbidden(Path::Root(field), IMMUTABLE_IS_SET));
        }
    }
}

/// `Secret`.
pub(super) fn secret(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    let data = Path::Root("data");
    let mut size = 0;
    for (key, value) in new["data"].as_object().into_iter().flatten() {
        check_key(key, data, errors);
        size += decoded_size(value, true);
    }
    if i64::try_from(size).unwrap_or(i64::MAX) > DATA_BYTES_MAX {
        errors.push(FieldError::too_long(data, DATA_BYTES_MAX));
    }
    let has = |key: &str| new["data"].get(key).is_some();
    let required: &[&str] = match text(new, "type") {
        "kubernetes.io/dockercfg" => &[".dockercfg"],
        "kubernetes.io/dockerconfigjson" => &[".dockerconfigjson"],
        "kubernetes.io/basic-auth" if !has("username") && !has("password") => &["username", "password"],
        "kubernetes.io/ssh-auth" => &["ssh-privatekey"],
        "kubernetes.io/tls" => &["tls.crt", "tls.key"],
        _ => &[],
    };
    for key in required.iter().filter(|key| !has(key)) {
        errors.push(FieldError::required(data.key(key), ""));
    }
    for key in required.iter().filter(|key| key.starts_with(".docker")) {
        let decoded =
            new["data"][*key].as_str().map(|text| base64::engine::general_purpose::STANDARD.decode(text));
        if let Some(Ok(decoded)) = decoded
            && let Some(detail) = not_an_object(&decoded)
        {
            errors.push(FieldError::invalid(data.key(key), "<secret contents redacted>", &detail));
        }
    }
    if new["type"] == "kubernetes.io/service-account-token" {
        let key = "kubernetes.io/service-account.name";
        if object::text(new, &["metadata", "annotations", key]).is_empty() {
            let at = Path::Root("metadata.annotations");
            errors.push(FieldError::required(at.key(key), ""));
        }
    }
    if let Some(old) = old {
        immutable(&new["type"], &old["type"], Path::Root("type"), errors);
        if old["immutable"] == true {
            reject_immutable_change(new, old, &["data"], errors);
        }
    }
}

fn not_an_object(text: &[u8]) -> Option<String> {
    let kind = match serde_json::from_slice::<Value>(text) {
        Ok(Value::Object(_) | Value::Null) => return None,
        Ok(Value::Bool(_)) => "bool",
        Ok(Value::Number(_)) => "number",
        Ok(Value::String(_)) => "string",
        Ok(Value::Array(_)) => "array",
        Err(error) => return Some(error.to_string()),
    };
    Some(format!("json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}"))
}

/// `Node`.
pub(super) fn node(node: &Value, errors: &mut Errors) {
    pod::taints(items(&node["spec"], "taints"), Path::Root("metadata.taints"), errors);
    let status = Path::Root("status");
    for name in ["capacity", "allocatable"] {
        let at = status.child(name);
        for (resource, quantity) in object::map(node, &["status", name]).into_iter().flatten() {
            resources::quantity_value(resource, quantity, at.child(resource), errors);
        }
    }
}

/// `ResourceQuota`.
pub(super) fn resource_quota(quota: &Value, errors: &mut Errors) {
    let hard = SPEC.child("hard");
    for (name, quantity) in object::map(quota, &["spec", "hard"]).into_iter().flatten() {
        if let Err(reason) = names::qualified(name) {
            errors.push(FieldError::invalid(hard.key(name), name.as_str(), &reason));
        }
        if !name.contains('/') && !resources::is_quota_resource(name) {
            for detail in [
                "must be a standard resource type or fully qualified",
                "must be a standard resource for quota",
            ] {
                errors.push(FieldError::invalid(hard.key(name), name.as_str(), detail));
            }
        }
        resources::quantity_value(name, quantity, hard.key(name), errors);
    }
}

/// `PodDisruptionBudget`.
pub(super) fn disruption_budget(budget: &Value, errors: &mut Errors) {
    let spec = &budget["spec"];
    if !spec["minAvailable"].is_null() && !spec["maxUnavailable"].is_null() {
        let printed = format!(
            r#"{{"MinAvailable":{},"Selector":{},"MaxUnavailable":{},"UnhealthyPodEvictionPolicy":{}}}"#,
            spec["minAvailable"],
            spec["selector"],
            spec["maxUnavailable"],
            spec["unhealthyPodEvictionPolicy"],
        );
        let detail = "minAvailable and maxUnavailable cannot be both set";
        errors.push(FieldError::printed(FieldErrorKind::Invalid, SPEC, &printed, detail));
    }
    for name in ["minAvailable", "maxUnavailable"] {
        let value = &spec[name];
        int_or_percent(value, SPEC.child(name), errors);
        if value.is_string() && magnitude(value) > 100 {
            errors.push(FieldError::invalid(
                SPEC.child(name),
                value.clone(),
                "must not be greater than 100%",
            ));
        }
    }
    selector::check(&spec["selector"], SPEC.child("selector"), errors);
    if !spec["unhealthyPodEvictionPolicy"].is_null() {
        require_one_of(spec, "unhealthyPodEvictionPolicy", &["AlwaysAllow", "IfHealthyBudget"], SPEC, errors);
    }
}

/// `HorizontalPodAutoscaler`.
pub(super) fn autoscaler(autoscaler: &Value, errors: &mut Errors) {
    let spec = &autoscaler["spec"];
    let min = spec["minReplicas"].as_i64().unwrap_or(1);
    let max = spec["maxReplicas"].as_i64().unwrap_or_default();
    if min < 1 {
        let at = SPEC.child("minReplicas");
        errors.push(FieldError::invalid(at, min, "must be greater than or equal to 1"));
    }
    if max < 1 {
        errors.push(FieldError::required(SPEC.child("maxReplicas"), "must be set and greater than 0"));
    }
    if max < min {
        let detail = "must be greater than or equal to `minReplicas`";
        errors.push(FieldError::invalid(SPEC.child("maxReplicas"), max, detail));
    }
    let target = SPEC.child("scaleTargetRef");
    for name in ["kind", "name"] {
        if text(&spec["scaleTargetRef"], name).is_empty() {
            errors.push(FieldError::required(target.child(name), ""));
        }
    }
    let version = text(&spec["scaleTargetRef"], "apiVersion");
    if !version.contains('/') && spec["scaleTargetRef"]["kind"] != "ReplicationController" {
        let detail = "apiVersion must specify API group";
        errors.push(FieldError::invalid(target.child("apiVersion"), version, detail));
    }
}

/// `PriorityClass`.
pub(super) fn priority_class(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    const USER_MAX: i64 = 1_000_000_000;
    let name = object::name(new);
    let value = new["value"].as_i64().unwrap_or_default();
    if name.starts_with("system-") {
        let known = matches!(
            (name, value),
            ("system-cluster-critical", 2_000_000_000) | ("system-node-critical", 2_000_001_000)
        );
        if !known {
            let detail = format!(
                "priority class names with 'system-' prefix are reserved for system use only. error: {name} is not a known system priority class"
            );
            errors.push(FieldError::forbidden(Path::Root("metadata.name"), &detail));
        }
    } else if value > USER_MAX {
        let detail = format!("maximum allowed value of a user defined priority is {USER_MAX}");
        errors.push(FieldError::forbidden(Path::Root("value"), &detail));
    }
    require_one_of(new, "preemptionPolicy", &["PreemptLowerPriority", "Never"], Path::Root(""), errors);
    if let Some(old) = old {
        if value != old["value"].as_i64().unwrap_or_default() {
            errors.push(FieldError::forbidden(Path::Root("value"), "may not be changed in an update."));
        }
        immutable(&new["preemptionPolicy"], &old["preemptionPolicy"], Path::Root("preemptionPolicy"), errors);
    }
}

/// `Lease`.
pub(super) fn lease(lease: &Value, errors: &mut Errors) {
    let spec = &lease["spec"];
    if let Some(seconds) = spec["leaseDurationSeconds"].as_i64().filter(|seconds| *seconds <= 0) {
        errors.push(FieldError::invalid(
            SPEC.child("leaseDurationSeconds"),
            seconds,
            "must be greater than 0",
        ));
    }
    nonnegative(spec, "leaseTransitions", SPEC, errors);
}
