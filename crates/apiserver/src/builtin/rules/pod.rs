//! Pods and pod templates.

use std::collections::BTreeSet;

use serde_json::Value;

use super::container::{self, PodContext};
use super::{Errors, SPEC, items, pod_update, require_ok, require_one_of, selector, text};
use crate::field_error::{FieldError, FieldErrorKind, Path};
use crate::labels::{check_annotations, check_key, check_labels};
use crate::names;

/// `Pod`.
pub(super) fn check(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    spec(&new["spec"], SPEC, errors);
    for kind in ["containers", "initContainers"] {
        let path = SPEC.child(kind);
        for (index, container) in items(&new["spec"], kind).iter().enumerate() {
            let image = text(container, "image");
            if image.trim() != image {
                let at = path.index(index);
                let detail = "must not have leading or trailing whitespace";
                errors.push(FieldError::invalid(at.child("image"), image, detail));
            }
        }
    }
    if old.is_none() && !items(&new["spec"], "ephemeralContainers").is_empty() {
        errors.push(FieldError::forbidden(SPEC.child("ephemeralContainers"), "cannot be set on create"));
    }
    match old {
        Some(old) => pod_update::check(&new["spec"], &old["spec"], errors),
        None if !text(&new["spec"], "nodeName").is_empty()
            && !items(&new["spec"], "schedulingGates").is_empty() =>
        {
            let detail = "cannot be set until all schedulingGates have been cleared";
            errors.push(FieldError::forbidden(SPEC.child("nodeName"), detail));
        }
        None => {}
    }
}

/// A pod template at `path`.
pub(super) fn template(template: &Value, path: Path<'_>, errors: &mut Errors) {
    check_labels(&template["metadata"]["labels"], path.child("labels"), errors);
    check_annotations(&template["metadata"]["annotations"], path.child("annotations"), errors);
    let at = path.child("spec");
    spec(&template["spec"], at, errors);
    if !items(&template["spec"], "ephemeralContainers").is_empty() {
        let at = at.child("ephemeralContainers");
        errors.push(FieldError::forbidden(at, "ephemeral containers not allowed in pod template"));
    }
}

fn spec(spec: &Value, path: Path<'_>, errors: &mut Errors) {
    if let Some(seconds) = spec["terminationGracePeriodSeconds"].as_i64().filter(|seconds| *seconds < 0) {
        let at = path.child("terminationGracePeriodSeconds");
        errors.push(FieldError::invalid(at, seconds, "must be greater than or equal to 0"));
    }
    let volumes = volumes(items(spec, "volumes"), path.child("volumes"), errors);
    let pod = PodContext { volumes };
    let regular = items(spec, "containers");
    container::regular(regular, &pod, path.child("containers"), errors);
    container::init(items(spec, "initContainers"), regular, &pod, path.child("initContainers"), errors);
    require_one_of(spec, "restartPolicy", &["Always", "OnFailure", "Never"], path, errors);
    require_one_of(
        spec,
        "dnsPolicy",
        &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"],
        path,
        errors,
    );
    check_labels(&spec["nodeSelector"], path.child("nodeSelector"), errors);
    affinity(&spec["affinity"], path.child("affinity"), errors);
    gates(items(spec, "schedulingGates"), path.child("schedulingGates"), errors);
    spread(items(spec, "topologySpreadConstraints"), path.child("topologySpreadConstraints"), errors);
    for (name, rule) in [
        ("serviceAccountName", names::subdomain as fn(&str) -> Result<(), String>),
        ("nodeName", names::subdomain),
        ("priorityClassName", names::subdomain),
        ("runtimeClassName", names::subdomain),
        ("hostname", names::label),
        ("subdomain", names::label),
    ] {
        let value = text(spec, name);
        if !value.is_empty() {
            require_ok(rule(value), value, path.child(name), errors);
        }
    }
    if let Some(seconds) =
        spec["activeDeadlineSeconds"].as_i64().filter(|seconds| !(1..=i64::from(i32::MAX)).contains(seconds))
    {
        let at = path.child("activeDeadlineSeconds");
        errors.push(FieldError::invalid(at, seconds, "must be between 1 and 2147483647, inclusive"));
    }
    tolerations(items(spec, "tolerations"), path.child("tolerations"), errors);
    if !text(spec, "preemptionPolicy").is_empty() {
        require_one_of(spec, "preemptionPolicy", &["PreemptLowerPriority", "Never"], path, errors);
    }
}

/// Validates volumes. Returns the names of the volumes that containers can mount.
fn volumes<'v>(volumes: &'v [Value], path: Path<'_>, errors: &mut Errors) -> BTreeSet<&'v str> {
    let mut names = BTreeSet::new();
    for (index, volume) in volumes.iter().enumerate() {
        let at = path.index(index);
        let before = errors.len();
        let mut sources = volume
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(name, source)| *name != "name" && !source.is_null());
        match sources.next() {
            None => errors.push(FieldError::required(at, "must specify a volume type")),
            Some(_) => {
                for (more, _) in sources {
                    errors.push(FieldError::forbidden(
                        at.child(more),
                        "may not specify more than 1 volume type",
                    ));
                }
            }
        }
        for (source, field) in [
            ("configMap", "name"),
            ("secret", "secretName"),
            ("persistentVolumeClaim", "claimName"),
            ("hostPath", "path"),
        ] {
            if volume[source].is_object() && text(&volume[source], field).is_empty() {
                let at = at.child(source);
                errors.push(FieldError::required(at.child(field), ""));
            }
        }
        let name = text(volume, "name");
        if name.is_empty() {
            errors.push(FieldError::required(at.child("name"), ""));
        } else {
            require_ok(names::label(name), name, at.child("name"), errors);
        }
        if names.contains(name) {
            errors.push(FieldError::duplicate(at.child("name"), name));
        }
        if errors.len() == before {
            names.insert(name);
        }
    }
    names
}

fn gates(gates: &[Value], path: Path<'_>, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (index, gate) in gates.iter().enumerate() {
        let name = text(gate, "name");
        require_ok(names::qualified(name), name, path.index(index), errors);
        if !seen.insert(name) {
            errors.push(FieldError::duplicate(path.index(index), name));
        }
    }
}

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

fn tolerations(tolerations: &[Value], path: Path<'_>, errors: &mut Errors) {
    for (index, toleration) in tolerations.iter().enumerate() {
        let at = path.index(index);
        let [key, operator, value, effect] =
            ["key", "operator", "value", "effect"].map(|name| text(toleration, name));
        if !key.is_empty() {
            check_key(key, key, at.child("key"), errors);
        } else if operator != "Exists" {
            let detail =
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.push(FieldError::invalid(at.child("operator"), operator, detail));
        }
        if !toleration["tolerationSeconds"].is_null() && effect != "NoExecute" {
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.push(FieldError::invalid(at.child("effect"), effect, detail));
        }
        match operator {
            "" | "Equal" => require_ok(names::label_value(value), value, at.child("operator"), errors),
            "Exists" if !value.is_empty() => {
                let detail = "value must be empty when `operator` is 'Exists'";
                errors.push(FieldError::invalid(at.child("operator"), value, detail));
            }
            "Exists" => {}
            other => {
                errors.push(FieldError::not_supported(at.child("operator"), other, &["Equal", "Exists"]));
            }
        }
        if !effect.is_empty() && !EFFECTS.contains(&effect) {
            errors.push(FieldError::not_supported(at.child("effect"), effect, &EFFECTS));
        }
    }
}

/// The taints of a node.
pub(super) fn taints(taints: &[Value], path: Path<'_>, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (index, taint) in taints.iter().enumerate() {
        let at = path.index(index);
        let [key, value, effect] = ["key", "value", "effect"].map(|name| text(taint, name));
        check_key(key, key, at.child("key"), errors);
        require_ok(names::label_value(value), value, at.child("value"), errors);
        require_one_of(taint, "effect", &EFFECTS, at, errors);
        if !seen.insert((key, effect)) {
            let printed = format!(
                r#"{{"Key":{},"Value":{},"Effect":{},"TimeAdded":{}}}"#,
                Value::from(key),
                Value::from(value),
                Value::from(effect),
                taint["timeAdded"],
            );
            let detail = "taints must be unique by key and effect pair";
            errors.push(FieldError::printed(FieldErrorKind::Duplicate, at, &printed, detail));
        }
    }
}

const NODE_OPERATORS: [&str; 6] = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"];

fn affinity(affinity: &Value, path: Path<'_>, errors: &mut Errors) {
    let node_path = path.child("nodeAffinity");
    let required_path = node_path.child("requiredDuringSchedulingIgnoredDuringExecution");
    let required = &affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    if !required.is_null() {
        let at = required_path.child("nodeSelectorTerms");
        let terms = items(required, "nodeSelectorTerms");
        if terms.is_empty() {
            errors.push(FieldError::required(at, "must have at least one node selector term"));
        }
        for (index, one) in terms.iter().enumerate() {
            term(one, at.index(index), errors);
        }
    }
    let preferred_path = node_path.child("preferredDuringSchedulingIgnoredDuringExecution");
    let preferred = items(&affinity["nodeAffinity"], "preferredDuringSchedulingIgnoredDuringExecution");
    for (index, preference) in preferred.iter().enumerate() {
        let at = preferred_path.index(index);
        weight(preference, at, errors);
        term(&preference["preference"], at.child("preference"), errors);
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let kind_path = path.child(kind);
        let name = "requiredDuringSchedulingIgnoredDuringExecution";
        let at = kind_path.child(name);
        for (index, one) in items(&affinity[kind], name).iter().enumerate() {
            pod_term(one, at.index(index), errors);
        }
        let name = "preferredDuringSchedulingIgnoredDuringExecution";
        let at = kind_path.child(name);
        for (index, one) in items(&affinity[kind], name).iter().enumerate() {
            let at = at.index(index);
            weight(one, at, errors);
            pod_term(&one["podAffinityTerm"], at.child("podAffinityTerm"), errors);
        }
    }
}

fn weight(preference: &Value, path: Path<'_>, errors: &mut Errors) {
    let weight = preference["weight"].as_i64().unwrap_or_default();
    if !(1..=100).contains(&weight) {
        errors.push(FieldError::invalid(path.child("weight"), weight, "must be in the range 1-100"));
    }
}

fn term(term: &Value, path: Path<'_>, errors: &mut Errors) {
    let at = path.child("matchExpressions");
    for (index, requirement) in items(term, "matchExpressions").iter().enumerate() {
        selector::requirement(requirement, at.index(index), &NODE_OPERATORS, errors);
    }
    let at = path.child("matchFields");
    for (index, requirement) in items(term, "matchFields").iter().enumerate() {
        field_requirement(requirement, at.index(index), errors);
    }
}

/// A node selector requirement on fields. The only supported field is the name of the node.
fn field_requirement(requirement: &Value, path: Path<'_>, errors: &mut Errors) {
    let operator = text(requirement, "operator");
    if !matches!(operator, "In" | "NotIn") {
        errors.push(FieldError::invalid(path.child("operator"), operator, "not a valid selector operator"));
    } else if items(requirement, "values").len() != 1 {
        let detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
        errors.push(FieldError::required(path.child("values"), detail));
    }
    let key = text(requirement, "key");
    if key != "metadata.name" {
        errors.push(FieldError::invalid(path.child("key"), key, "not a valid field selector key"));
    }
}

fn pod_term(term: &Value, path: Path<'_>, errors: &mut Errors) {
    selector::check(&term["labelSelector"], path.child("labelSelector"), errors);
    let key = text(term, "topologyKey");
    if key.is_empty() {
        errors.push(FieldError::required(path.child("topologyKey"), "can not be empty"));
    }
    check_key(key, key, path.child("topologyKey"), errors);
}

fn spread(constraints: &[Value], path: Path<'_>, errors: &mut Errors) {
    for (index, constraint) in constraints.iter().enumerate() {
        let at = path.index(index);
        let skew = constraint["maxSkew"].as_i64().unwrap_or_default();
        if skew <= 0 {
            errors.push(FieldError::invalid(at.child("maxSkew"), skew, "must be greater than zero"));
        }
        if text(constraint, "topologyKey").is_empty() {
            errors.push(FieldError::required(at.child("topologyKey"), "can not be empty"));
        }
        let action = text(constraint, "whenUnsatisfiable");
        if !matches!(action, "DoNotSchedule" | "ScheduleAnyway") {
            let at = at.child("whenUnsatisfiable");
            errors.push(FieldError::not_supported(at, action, &["DoNotSchedule", "ScheduleAnyway"]));
        }
        selector::check(&constraint["labelSelector"], at.child("labelSelector"), errors);
    }
}
