//! The rules of `ResourceFlavor`, and of tolerations.

use std::collections::BTreeSet;

use serde_json::Value;

use super::field_error::FieldError;
use super::names;
use crate::value::{at, list, text};

/// The rules that a flavor breaks.
pub(super) fn validate(flavor: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    names::check_labels(at(flavor, &["spec", "nodeLabels"]), "spec.nodeLabels", &mut errors);
    check_taints(list(flavor, &["spec", "nodeTaints"]), &mut errors);
    check_tolerations(list(flavor, &["spec", "tolerations"]), "spec.tolerations", &mut errors);
    errors
}

fn check_taints(taints: &[Value], errors: &mut Vec<FieldError>) {
    let mut seen = BTreeSet::new();
    for (index, taint) in taints.iter().enumerate() {
        let path = format!("spec.nodeTaints[{index}]");
        let part = |name: &str| text(taint, &[name]).unwrap_or_default();
        names::check_label_key(part("key"), &format!("{path}.key"), errors);
        let invalid = names::label_value_errors(part("value"));
        if !invalid.is_empty() {
            errors.push(FieldError::invalid(&format!("{path}.value"), part("value"), &invalid.join(";")));
        }
        if !seen.insert((part("effect"), part("key"))) {
            let why = "taints must be unique by key and effect pair";
            errors.push(FieldError::duplicate(&path, taint.clone(), why));
        }
    }
}

/// Checks the keys of tolerations.
pub(super) fn check_tolerations(tolerations: &[Value], path: &str, errors: &mut Vec<FieldError>) {
    for (index, toleration) in tolerations.iter().enumerate() {
        if let Some(key) = text(toleration, &["key"]) {
            names::check_label_key(key, &format!("{path}[{index}].key"), errors);
        }
    }
}
