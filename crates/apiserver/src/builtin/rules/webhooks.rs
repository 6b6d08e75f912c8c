//! Configurations of webhooks.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Errors, items, require_one_of, text};
use crate::field_error::{FieldError, FieldErrorKind, Path};
use crate::names;
use crate::schema::cel;

const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];
const SIDE_EFFECTS: [&str; 2] = ["None", "NoneOnDryRun"];
const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
/// Segments of the name of a webhook, at least.
const NAME_SEGMENTS_MIN: usize = 3;

/// `MutatingWebhookConfiguration` and `ValidatingWebhookConfiguration`.
pub(super) fn check(new: &Value, errors: &mut Errors) {
    let mut names = BTreeSet::new();
    for (index, webhook) in items(new, "webhooks").iter().enumerate() {
        let path = Path::Root("webhooks").index(index);
        name(text(webhook, "name"), path.child("name"), errors);
        for (index, rule) in items(webhook, "rules").iter().enumerate() {
            check_rule(rule, path.child("rules").index(index), errors);
        }
        require_one_of(webhook, "failurePolicy", &["Fail", "Ignore"], path, errors);
        require_one_of(webhook, "matchPolicy", &["Equivalent", "Exact"], path, errors);
        side_effects(text(webhook, "sideEffects"), path.child("sideEffects"), errors);
        let timeout = &webhook["timeoutSeconds"];
        if timeout.as_i64().is_some_and(|seconds| !(1..=30).contains(&seconds)) {
            let detail = "the timeout value must be between 1 and 30 seconds";
            errors.push(FieldError::invalid(path.child("timeoutSeconds"), timeout.clone(), detail));
        }
        if !webhook["reinvocationPolicy"].is_null() {
            require_one_of(webhook, "reinvocationPolicy", &["IfNeeded", "Never"], path, errors);
        }
        client_config(&webhook["clientConfig"], path.child("clientConfig"), errors);
        match_conditions(items(webhook, "matchConditions"), path.child("matchConditions"), errors);
        review_versions(webhook, path.child("admissionReviewVersions"), errors);
        if !names.insert(text(webhook, "name")) {
            errors.push(FieldError::duplicate(path.child("name"), text(webhook, "name")));
        }
    }
}

fn name(name: &str, path: Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else if let Err(reason) = names::subdomain(name) {
        errors.push(FieldError::invalid(path, name, &reason));
    } else if name.split('.').count() < NAME_SEGMENTS_MIN {
        let detail = "should be a domain with at least three segments separated by dots";
        errors.push(FieldError::invalid(path, name, detail));
    }
}

fn check_rule(rule: &Value, path: Path<'_>, errors: &mut Errors) {
    for (list, what) in
        [("operations", "operations"), ("apiGroups", "API groups"), ("apiVersions", "API versions")]
    {
        let listed = items(rule, list);
        if listed.is_empty() {
            errors.push(FieldError::required(path.child(list), ""));
        } else if listed.len() > 1 && listed.iter().any(|item| item == "*") {
            let detail = format!("if '*' is present, must not specify other {what}");
            errors.push(FieldError::invalid(path.child(list), rule[list].clone(), &detail));
        }
    }
    for (index, operation) in items(rule, "operations").iter().enumerate() {
        let operation = operation.as_str().unwrap_or_default();
        if !OPERATIONS.contains(&operation) {
            errors.push(FieldError::not_supported(
                path.child("operations").index(index),
                operation,
                &OPERATIONS,
            ));
        }
    }
    if items(rule, "resources").is_empty() {
        errors.push(FieldError::required(path.child("resources"), ""));
    }
    require_one_of(rule, "scope", &["*", "Cluster", "Namespaced"], path, errors);
}

fn side_effects(side_effects: &str, path: Path<'_>, errors: &mut Errors) {
    if side_effects.is_empty() {
        errors.push(FieldError::required(path, &format!("must specify one of {}", SIDE_EFFECTS.join(", "))));
    } else if !SIDE_EFFECTS.contains(&side_effects) {
        errors.push(FieldError::not_supported(path, side_effects, &SIDE_EFFECTS));
    }
}

fn client_config(config: &Value, path: Path<'_>, errors: &mut Errors) {
    let (url, service) = (&config["url"], &config["service"]);
    if url.is_null() == service.is_null() {
        errors.push(FieldError::required(path, "exactly one of url or service is required"));
    } else if let Some(text) = url.as_str() {
        let parsed = text.parse::<http::Uri>();
        let is_https = parsed.is_ok_and(|url| url.scheme_str() == Some("https") && url.host().is_some());
        if !is_https {
            let detail = "'https' is the only allowed URL scheme; desired format: https://host[/path]";
            errors.push(FieldError::invalid(path.child("url"), text, detail));
        }
    } else {
        let at = path.child("service");
        for (field, detail) in
            [("name", "service name is required"), ("namespace", "service namespace is required")]
        {
            if text(service, field).is_empty() {
                errors.push(FieldError::required(at.child(field), detail));
            }
        }
    }
}

fn match_conditions(conditions: &[Value], path: Path<'_>, errors: &mut Errors) {
    let mut names = BTreeSet::new();
    for (index, condition) in conditions.iter().enumerate() {
        let at = path.index(index);
        let expression = text(condition, "expression").trim();
        if expression.is_empty() {
            errors.push(FieldError::required(at.child("expression"), ""));
        } else if let Err(reason) = cel::check(expression) {
            errors.push(FieldError::printed(
                FieldErrorKind::Invalid,
                at.child("expression"),
                &format!("{expression:?}"),
                &reason,
            ));
        }
        let name = text(condition, "name");
        if name.is_empty() {
            errors.push(FieldError::required(at.child("name"), ""));
        } else if !names.insert(name) {
            errors.push(FieldError::duplicate(at.child("name"), name));
        }
    }
}

fn review_versions(webhook: &Value, path: Path<'_>, errors: &mut Errors) {
    let versions = items(webhook, "admissionReviewVersions");
    let is_accepted =
        |version: &Value| version.as_str().is_some_and(|version| REVIEW_VERSIONS.contains(&version));
    let accepted = REVIEW_VERSIONS.join(", ");
    if versions.is_empty() {
        errors.push(FieldError::required(path, &format!("must specify one of {accepted}")));
    } else if !versions.iter().any(is_accepted) {
        let detail = format!("must include at least one of {accepted}");
        errors.push(FieldError::invalid(path, webhook["admissionReviewVersions"].clone(), &detail));
    }
}
