//! The rules of the annotation that lists the controllers that hold back an admission.

use std::collections::BTreeSet;

use serde_json::Value;

use super::field_error::FieldError;
use super::{Gates, names};
use crate::kueue::jobs::GATED_BY;
use crate::value::text;

const PATH: &str = "metadata.annotations[kueue.x-k8s.io/admission-gated-by]";
/// Maximum length of one name.
const NAME_MAX: usize = 63;

/// Checks the annotation of a new object, if the feature gate is on.
pub(super) fn check_create(object: &Value, gates: &Gates, errors: &mut Vec<FieldError>) {
    if gates.admission_gated_by {
        check_format(value(object), errors);
    }
}

/// Checks that names are only removed, if the feature gate is on.
pub(super) fn check_update(object: &Value, old: &Value, gates: &Gates, errors: &mut Vec<FieldError>) {
    if !gates.admission_gated_by {
        return;
    }
    let (old, new) = (value(old), value(object));
    if old.is_empty() && !new.is_empty() {
        errors.push(FieldError::forbidden(PATH, "cannot add admission gate after creation"));
    }
    let known: BTreeSet<&str> = split(old).collect();
    if !old.is_empty() && split(new).any(|gate| !known.contains(gate)) {
        errors.push(FieldError::forbidden(PATH, "can only remove gates, not add new ones"));
    }
    check_format(new, errors);
}

fn value(object: &Value) -> &str {
    text(object, &["metadata", "annotations", GATED_BY]).unwrap_or_default()
}

/// The names; none if the text is blank.
fn split(value: &str) -> impl Iterator<Item = &str> {
    let is_blank = value.trim().is_empty();
    value.split(',').map(str::trim).filter(move |_| !is_blank)
}

fn check_format(value: &str, errors: &mut Vec<FieldError>) {
    let mut seen = BTreeSet::new();
    for gate in split(value) {
        if gate.is_empty() {
            errors.push(FieldError::invalid(PATH, value, "cannot contain empty gate names"));
        } else if !seen.insert(gate) {
            errors.push(FieldError::invalid(PATH, value, &format!("duplicate gate name: {gate}")));
        } else {
            check_name(gate, errors);
        }
    }
}

/// A name is a path with a domain, as in `spec.managedBy` of a Job.
fn check_name(gate: &str, errors: &mut Vec<FieldError>) {
    match gate.split_once('/').filter(|(host, path)| !host.is_empty() && !path.is_empty()) {
        None => {
            let why = "must be a domain-prefixed path (such as \"acme.io/foo\")";
            errors.push(FieldError::invalid(PATH, gate, why));
        }
        Some((host, path)) => {
            let invalid = names::subdomain_errors(host);
            errors.extend(invalid.iter().map(|why| FieldError::invalid(PATH, host, why)));
            let is_inner = |b: u8| b.is_ascii_alphanumeric() || br"/-._~%!$&'()*+,;=:".contains(&b);
            if !path.bytes().all(is_inner) {
                let why = r"Invalid path (regex used for validation is '[A-Za-z0-9/\-._~%!$&'()*+,;=:]+')";
                errors.push(FieldError::invalid(PATH, path, why));
            }
        }
    }
    if gate.len() > NAME_MAX {
        errors.push(FieldError::too_long(PATH, NAME_MAX));
    }
}
