//! Rules of API Priority and Fairness. After `pkg/apis/flowcontrol/validation` of Kubernetes: the fields without which an object means
//! nothing, and their ranges.

use serde_json::Value;

use super::{Errors, SPEC, items, require_one_of, text};
use crate::field_error::FieldError;

/// The largest precedence.
const PRECEDENCE_MAX: i64 = 10_000;

/// `FlowSchema`.
pub(super) fn flow_schema(new: &Value, errors: &mut Errors) {
    let spec = &new["spec"];
    let level = SPEC.child("priorityLevelConfiguration");
    if text(&spec["priorityLevelConfiguration"], "name").is_empty() {
        errors.push(FieldError::required(level.child("name"), "must reference a priority level"));
    }
    let precedence = spec["matchingPrecedence"].as_i64().unwrap_or_default();
    let at = SPEC.child("matchingPrecedence");
    if precedence <= 0 {
        errors.push(FieldError::invalid(at, precedence, "must be a positive value"));
    } else if precedence > PRECEDENCE_MAX {
        let why = format!("must not be greater than {PRECEDENCE_MAX}");
        errors.push(FieldError::invalid(at, precedence, &why));
    }
    if spec["distinguisherMethod"].is_object() {
        let at = SPEC.child("distinguisherMethod");
        require_one_of(&spec["distinguisherMethod"], "type", &["ByNamespace", "ByUser"], at, errors);
    }
    let rules = SPEC.child("rules");
    for (at, rule) in items(spec, "rules").iter().enumerate() {
        if items(rule, "subjects").is_empty() {
            let path = rules.index(at);
            errors.push(FieldError::required(
                path.child("subjects"),
                "subjects must contain at least one value",
            ));
        }
    }
}

/// `PriorityLevelConfiguration`.
pub(super) fn priority_level(new: &Value, errors: &mut Errors) {
    let spec = &new["spec"];
    require_one_of(spec, "type", &["Exempt", "Limited"], SPEC, errors);
    if text(spec, "type") == "Limited" && spec["limited"].is_null() {
        errors.push(FieldError::required(SPEC.child("limited"), "must not be empty when type is Limited"));
    }
    if spec["limited"].is_object() {
        let response = SPEC.child("limited");
        let response = response.child("limitResponse");
        require_one_of(&spec["limited"]["limitResponse"], "type", &["Queue", "Reject"], response, errors);
    }
}
