//! Label selectors, and whether a workload's selector matches its pod template.

use serde_json::Value;

use super::{Errors, items, require_ok, text};
use crate::builtin::fields::selects;
use crate::field_error::{FieldError, Path};
use crate::labels::{check_key, check_labels};
use crate::names;

/// Validates the label selector at `path`.
pub(super) fn check(selector: &Value, path: Path<'_>, errors: &mut Errors) {
    check_labels(&selector["matchLabels"], path.child("matchLabels"), errors);
    let at = path.child("matchExpressions");
    for (index, expression) in items(selector, "matchExpressions").iter().enumerate() {
        requirement(expression, at.index(index), &["In", "NotIn", "Exists", "DoesNotExist"], errors);
    }
}

/// Validates one requirement of a selector, on labels or fields.
pub(super) fn requirement(requirement: &Value, path: Path<'_>, operators: &[&str], errors: &mut Errors) {
    let values = items(requirement, "values");
    let operator = text(requirement, "operator");
    let at = path.child("values");
    match operator {
        "In" | "NotIn" if values.is_empty() => {
            errors.push(FieldError::required(at, "must be specified when `operator` is 'In' or 'NotIn'"));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.push(FieldError::forbidden(at, detail));
        }
        "Gt" | "Lt" if operators.contains(&"Gt") && values.len() != 1 => {
            let detail = "must be specified single value when `operator` is 'Lt' or 'Gt'";
            errors.push(FieldError::required(at, detail));
        }
        known if operators.contains(&known) => {}
        _ => errors.push(FieldError::invalid(
            path.child("operator"),
            operator,
            "not a valid selector operator",
        )),
    }
    let key = text(requirement, "key");
    check_key(key, key, path.child("key"), errors);
    for (index, value) in values.iter().enumerate() {
        let value = value.as_str().unwrap_or_default();
        require_ok(names::label_value(value), value, at.index(index), errors);
    }
}

/// Validates the selector of a workload: required, not empty, and matching the labels of the pod template.
pub(super) fn of_template(spec: &Value, path: Path<'_>, kind: &str, errors: &mut Errors) {
    let at = path.child("selector");
    let selector = &spec["selector"];
    let before = errors.len();
    if selector.is_null() {
        // For a daemon set, kube-apiserver reports only that the selector does not match the template.
        if kind != "daemonset" {
            errors.push(FieldError::required(at, ""));
        }
        unselected(spec, path, errors);
        return;
    }
    check(selector, at, errors);
    if errors.len() > before {
        errors.push(FieldError::invalid(at, selector.clone(), "invalid label selector"));
        return;
    }
    let empty = |name: &str| {
        selector[name].is_null() || selector[name].as_object().is_some_and(serde_json::Map::is_empty)
    };
    if empty("matchLabels") && items(selector, "matchExpressions").is_empty() {
        errors.push(FieldError::invalid(
            at,
            selector.clone(),
            &format!("empty selector is invalid for {kind}"),
        ));
        return;
    }
    matches_template(spec, path, errors);
}

/// The selector must match the labels of the pod template.
pub(super) fn matches_template(spec: &Value, path: Path<'_>, errors: &mut Errors) {
    if spec["selector"].is_null() || !selects(&spec["selector"], &spec["template"]["metadata"]["labels"]) {
        unselected(spec, path, errors);
    }
}

fn unselected(spec: &Value, path: Path<'_>, errors: &mut Errors) {
    let template = path.child("template");
    let metadata = template.child("metadata");
    let labels = spec["template"]["metadata"]["labels"].clone();
    let detail = "`selector` does not match template `labels`";
    errors.push(FieldError::invalid(metadata.child("labels"), labels, detail));
}
