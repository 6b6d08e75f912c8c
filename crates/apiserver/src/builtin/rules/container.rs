//! Containers of pods: names, images, ports, environment, mounts and probes.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Errors, items, nonnegative, require_ok, require_one_of, resources, text};
use crate::field_error::{FieldError, Path};
use crate::names;

/// Properties of the pod that its containers refer to.
pub(super) struct PodContext<'a> {
    /// Names of the volumes of the pod.
    pub(super) volumes: BTreeSet<&'a str>,
}

/// Validates the regular containers of a pod. At least one is required.
pub(super) fn regular(containers: &[Value], pod: &PodContext<'_>, path: Path<'_>, errors: &mut Errors) {
    if containers.is_empty() {
        errors.push(FieldError::required(path, ""));
    }
    let mut seen = BTreeSet::new();
    for (index, container) in containers.iter().enumerate() {
        let at = path.index(index);
        common(container, pod, at, errors);
        let name = text(container, "name");
        if !seen.insert(name) {
            errors.push(FieldError::duplicate(at.child("name"), name));
        }
        probes(container, at, errors);
        restart_policy(container, at, errors);
    }
}

/// Validates init containers. Their names must differ from the names of the `regular` containers.
pub(super) fn init(
    containers: &[Value],
    regular: &[Value],
    pod: &PodContext<'_>,
    path: Path<'_>,
    errors: &mut Errors,
) {
    let mut seen: BTreeSet<&str> = regular.iter().map(|container| text(container, "name")).collect();
    for (index, container) in containers.iter().enumerate() {
        let at = path.index(index);
        common(container, pod, at, errors);
        restart_policy(container, at, errors);
        let name = text(container, "name");
        if !name.is_empty() && !seen.insert(name) {
            errors.push(FieldError::duplicate(at.child("name"), name));
        }
        if container["restartPolicy"] == "Always" {
            probes(container, at, errors);
            continue;
        }
        for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
            if !container[field].is_null() {
                let detail = "may not be set for init containers without restartPolicy=Always";
                errors.push(FieldError::forbidden(at.child(field), detail));
            }
        }
    }
}

fn restart_policy(container: &Value, path: Path<'_>, errors: &mut Errors) {
    if !container["restartPolicy"].is_null() {
        require_one_of(container, "restartPolicy", &["Always", "Never", "OnFailure"], path, errors);
    }
}

fn common(container: &Value, pod: &PodContext<'_>, path: Path<'_>, errors: &mut Errors) {
    let name = text(container, "name");
    if name.is_empty() {
        errors.push(FieldError::required(path.child("name"), ""));
    } else {
        require_ok(names::label(name), name, path.child("name"), errors);
    }
    if text(container, "image").is_empty() {
        errors.push(FieldError::required(path.child("image"), ""));
    }
    require_one_of(container, "terminationMessagePolicy", &["File", "FallbackToLogsOnError"], path, errors);
    ports(items(container, "ports"), path.child("ports"), errors);
    environment(items(container, "env"), path.child("env"), errors);
    let from = path.child("envFrom");
    for source in items(container, "envFrom") {
        let given = ["configMapRef", "secretRef"].iter().filter(|name| !source[**name].is_null()).count();
        if given == 0 {
            errors.push(FieldError::invalid(from, "", "must specify one of: `configMapRef` or `secretRef`"));
        } else if given > 1 {
            errors.push(FieldError::invalid(
                from,
                "",
                "may not have more than one field specified at a time",
            ));
        }
    }
    mounts(items(container, "volumeMounts"), pod, path.child("volumeMounts"), errors);
    require_one_of(container, "imagePullPolicy", &["Always", "IfNotPresent", "Never"], path, errors);
    resources::check(&container["resources"], path.child("resources"), errors);
}

/// Validates the name of a port.
pub(super) fn port_name(name: &str, path: Path<'_>, errors: &mut Errors) {
    for (broken, reason) in [
        (name.len() > 15, "must be no more than 15 characters"),
        (
            !name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-'),
            "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
        ),
        (!name.bytes().any(|byte| byte.is_ascii_lowercase()), "must contain at least one letter (a-z)"),
        (name.contains("--"), "must not contain consecutive hyphens"),
        (name.starts_with('-') || name.ends_with('-'), "must not begin or end with a hyphen"),
    ] {
        if broken {
            errors.push(FieldError::invalid(path, name, reason));
        }
    }
}

/// Validates a port number, if there is one.
pub(super) fn port_number(value: &Value, path: Path<'_>, errors: &mut Errors) {
    if let Some(number) = value.as_i64().filter(|number| !(1..=65_535).contains(number)) {
        errors.push(FieldError::invalid(path, number, "must be between 1 and 65535, inclusive"));
    }
}

fn ports(ports: &[Value], path: Path<'_>, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let at = path.index(index);
        let name = text(port, "name");
        if !name.is_empty() {
            let before = errors.len();
            port_name(name, at.child("name"), errors);
            if errors.len() == before && !seen.insert(name) {
                errors.push(FieldError::duplicate(at.child("name"), name));
            }
        }
        if port["containerPort"].as_i64().unwrap_or_default() == 0 {
            errors.push(FieldError::required(at.child("containerPort"), ""));
        } else {
            port_number(&port["containerPort"], at.child("containerPort"), errors);
        }
        port_number(&port["hostPort"], at.child("hostPort"), errors);
        require_one_of(port, "protocol", &["SCTP", "TCP", "UDP"], at, errors);
    }
}

fn environment(variables: &[Value], path: Path<'_>, errors: &mut Errors) {
    for (index, variable) in variables.iter().enumerate() {
        let at = path.index(index);
        let name = text(variable, "name");
        if name.is_empty() {
            errors.push(FieldError::required(at.child("name"), ""));
        } else if !name.chars().all(|c| (' '..='~').contains(&c) && c != '=') {
            let detail = "a valid environment variable name must consist only of printable ASCII characters other than '='";
            errors.push(FieldError::invalid(at.child("name"), name, detail));
        }
        let Some(from) = variable["valueFrom"].as_object() else { continue };
        let from_path = at.child("valueFrom");
        references(&variable["valueFrom"], from_path, errors);
        let given = from.values().filter(|source| !source.is_null()).count();
        let detail = if given == 0 {
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        } else if !text(variable, "value").is_empty() {
            "may not be specified when `value` is not empty"
        } else if given > 1 {
            "may not have more than one field specified at a time"
        } else {
            continue;
        };
        errors.push(FieldError::invalid(from_path, "", detail));
    }
}

/// Pod fields that an environment variable may refer to (downward API).
const DOWNWARD_API_FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

fn references(from: &Value, path: Path<'_>, errors: &mut Errors) {
    for kind in ["configMapKeyRef", "secretKeyRef"] {
        let reference = &from[kind];
        if reference.is_null() {
            continue;
        }
        let at = path.child(kind);
        let name = text(reference, "name");
        require_ok(names::subdomain(name), name, at.child("name"), errors);
        if text(reference, "key").is_empty() {
            errors.push(FieldError::required(at.child("key"), ""));
        }
    }
    let reference = &from["fieldRef"];
    if !reference.is_null() {
        let at = path.child("fieldRef");
        let field = text(reference, "fieldPath");
        let keyed =
            ["metadata.labels['", "metadata.annotations['"].iter().any(|prefix| field.starts_with(prefix));
        if field.is_empty() {
            errors.push(FieldError::required(at.child("fieldPath"), ""));
        } else if !keyed && !DOWNWARD_API_FIELDS.contains(&field) {
            let detail = format!("error converting fieldPath: field label not supported: {field}");
            errors.push(FieldError::invalid(at.child("fieldPath"), field, &detail));
        }
    }
}

fn mounts(mounts: &[Value], pod: &PodContext<'_>, path: Path<'_>, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (index, mount) in mounts.iter().enumerate() {
        let at = path.index(index);
        let name = text(mount, "name");
        if name.is_empty() {
            errors.push(FieldError::required(at.child("name"), ""));
        }
        if !pod.volumes.contains(name) {
            errors.push(FieldError::not_found(at.child("name"), name));
        }
        let target = text(mount, "mountPath");
        if target.is_empty() {
            errors.push(FieldError::required(at.child("mountPath"), ""));
        }
        if !seen.insert(target) {
            errors.push(FieldError::invalid(at.child("mountPath"), target, "must be unique"));
        }
    }
}

fn probes(container: &Value, path: Path<'_>, errors: &mut Errors) {
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let probe = &container[name];
        if probe.is_null() {
            continue;
        }
        let at = path.child(name);
        handler(probe, at, errors);
        for field in
            ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
        {
            nonnegative(probe, field, at, errors);
        }
        if name != "readinessProbe" && probe["successThreshold"].as_i64().is_some_and(|times| times != 1) {
            errors.push(FieldError::invalid(
                at.child("successThreshold"),
                probe["successThreshold"].clone(),
                "must be 1",
            ));
        }
    }
}

fn handler(handler: &Value, path: Path<'_>, errors: &mut Errors) {
    let given: Vec<&str> = ["exec", "httpGet", "tcpSocket", "grpc"]
        .into_iter()
        .filter(|name| !handler[*name].is_null())
        .collect();
    for more in given.iter().skip(1) {
        errors.push(FieldError::forbidden(path.child(more), "may not specify more than 1 handler type"));
    }
    match given.first() {
        None => errors.push(FieldError::required(path, "must specify a handler type")),
        Some(&"exec") if items(&handler["exec"], "command").is_empty() => {
            let at = path.child("exec");
            errors.push(FieldError::required(at.child("command"), ""));
        }
        Some(name @ (&"httpGet" | &"tcpSocket")) => {
            let at = path.child(name);
            let port = &handler[*name]["port"];
            match port.as_str() {
                Some(text) => port_name(text, at.child("port"), errors),
                None => port_number(port, at.child("port"), errors),
            }
        }
        Some(_) => {}
    }
}
