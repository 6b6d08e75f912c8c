//! Rules for label keys, label values, annotations and conditions, with the texts of Kubernetes.

use serde_json::Value;

use super::field_error::FieldError;
use crate::value::{at, text};

/// Maximum length of a label value, and of a label key without its prefix.
const LABEL_MAX: usize = 63;
/// Maximum length of a DNS subdomain.
const SUBDOMAIN_MAX: usize = 253;
/// Maximum size of all annotations of an object, in bytes.
const ANNOTATIONS_MAX: usize = 256 << 10;
/// Maximum length of the reason of a condition.
const REASON_MAX: usize = 1 << 10;
/// Maximum length of the message of a condition.
const MESSAGE_MAX: usize = 32 << 10;

const NAME_FORMAT: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";

/// What is wrong with a label key.
pub(super) fn label_key_errors(key: &str) -> Vec<String> {
    let format = format!(
        "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character \
         (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{NAME_FORMAT}')"
    );
    let parts: Vec<&str> = key.split('/').collect();
    let (mut errors, name) = match parts.as_slice() {
        [name] => (Vec::new(), *name),
        ["", name] => (vec!["prefix part must be non-empty".to_owned()], *name),
        [prefix, name] => {
            (subdomain_errors(prefix).iter().map(|why| format!("prefix part {why}")).collect(), *name)
        }
        _ => {
            let tail = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("a valid label key {format} {tail}")];
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".into());
    } else if name.len() > LABEL_MAX {
        errors.push(format!("name part must be no more than {LABEL_MAX} bytes"));
    }
    if !is_name(name) {
        errors.push(format!("name part {format}"));
    }
    errors
}

/// What is wrong with a label value.
pub(super) fn label_value_errors(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > LABEL_MAX {
        errors.push(format!("must be no more than {LABEL_MAX} bytes"));
    }
    if !value.is_empty() && !is_name(value) {
        errors.push(format!(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start \
             and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for \
             validation is '({NAME_FORMAT})?')"
        ));
    }
    errors
}

/// What is wrong with a DNS subdomain.
pub(super) fn subdomain_errors(name: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if name.len() > SUBDOMAIN_MAX {
        errors.push(format!("must be no more than {SUBDOMAIN_MAX} bytes"));
    }
    let is_inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let is_label = |label: &str| {
        !label.is_empty() && !label.starts_with('-') && !label.ends_with('-') && label.bytes().all(is_inner)
    };
    if !name.split('.').all(is_label) {
        errors.push(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start \
             and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
                .into(),
        );
    }
    errors
}

fn is_name(name: &str) -> bool {
    let is_end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let is_inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    is_end(name.chars().next()) && is_end(name.chars().next_back()) && name.chars().all(is_inner)
}

/// Checks a label key at `path`.
pub(super) fn check_label_key(key: &str, path: &str, errors: &mut Vec<FieldError>) {
    errors.extend(label_key_errors(key).iter().map(|why| FieldError::invalid(path, key, why)));
}

/// Checks a label value at `path`.
pub(super) fn check_label_value(value: &str, path: &str, errors: &mut Vec<FieldError>) {
    errors.extend(label_value_errors(value).iter().map(|why| FieldError::invalid(path, value, why)));
}

/// Checks a map of labels; all errors have the path of the map.
pub(super) fn check_labels(labels: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for (key, value) in labels.as_object().into_iter().flatten() {
        check_label_key(key, path, errors);
        check_label_value(value.as_str().unwrap_or_default(), path, errors);
    }
}

/// Checks the keys and the size of annotations; all errors have the path of the map.
pub(super) fn check_annotations(annotations: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let mut size = 0;
    for (key, value) in annotations.as_object().into_iter().flatten() {
        let invalid = label_key_errors(&key.to_lowercase());
        errors.extend(invalid.iter().map(|why| FieldError::invalid(path, key.as_str(), why)));
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > ANNOTATIONS_MAX {
        errors.push(FieldError::too_long(path, ANNOTATIONS_MAX));
    }
}

/// Checks a label selector.
pub(super) fn check_selector(selector: &Value, path: &str, errors: &mut Vec<FieldError>) {
    check_labels(at(selector, &["matchLabels"]), &format!("{path}.matchLabels"), errors);
    let expressions = at(selector, &["matchExpressions"]).as_array().into_iter().flatten();
    for (index, expression) in expressions.enumerate() {
        let path = format!("{path}.matchExpressions[{index}]");
        let operator = text(expression, &["operator"]).unwrap_or_default();
        let values: Vec<&str> =
            at(expression, &["values"]).as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let values_path = format!("{path}.values");
        match (operator, values.is_empty()) {
            ("In" | "NotIn", true) => {
                let why = "must be specified when `operator` is 'In' or 'NotIn'";
                errors.push(FieldError::required(&values_path, why));
            }
            ("Exists" | "DoesNotExist", false) => {
                let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                errors.push(FieldError::forbidden(&values_path, why));
            }
            ("In" | "NotIn" | "Exists" | "DoesNotExist", _) => {}
            _ => {
                let why = "not a valid selector operator";
                errors.push(FieldError::invalid(&format!("{path}.operator"), operator, why));
            }
        }
        check_label_key(text(expression, &["key"]).unwrap_or_default(), &format!("{path}.key"), errors);
        for (at, value) in values.iter().enumerate() {
            check_label_value(value, &format!("{values_path}[{at}]"), errors);
        }
    }
}

/// Checks the conditions of a status.
pub(super) fn check_conditions(conditions: &[Value], path: &str, errors: &mut Vec<FieldError>) {
    let mut seen = std::collections::BTreeSet::new();
    for (index, condition) in conditions.iter().enumerate() {
        let field = |name: &str| format!("{path}[{index}].{name}");
        let kind = text(condition, &["type"]).unwrap_or_default();
        if !seen.insert(kind) {
            errors.push(FieldError::duplicate(&field("type"), kind, ""));
        }
        check_label_key(kind, &field("type"), errors);
        let status = text(condition, &["status"]).unwrap_or_default();
        if !matches!(status, "True" | "False" | "Unknown") {
            errors.push(FieldError::not_supported(&field("status"), status, ["False", "True", "Unknown"]));
        }
        if let Some(generation) = at(condition, &["observedGeneration"]).as_i64().filter(|n| *n < 0) {
            let why = "must be greater than or equal to zero";
            errors.push(FieldError::invalid(&field("observedGeneration"), generation, why));
        }
        if text(condition, &["lastTransitionTime"]).is_none() {
            errors.push(FieldError::required(&field("lastTransitionTime"), ""));
        }
        check_reason(text(condition, &["reason"]), &field("reason"), errors);
        if text(condition, &["message"]).is_some_and(|message| message.len() > MESSAGE_MAX) {
            errors.push(FieldError::too_long(&field("message"), MESSAGE_MAX));
        }
    }
}

fn check_reason(reason: Option<&str>, path: &str, errors: &mut Vec<FieldError>) {
    let Some(reason) = reason else {
        errors.push(FieldError::required(path, ""));
        return;
    };
    let is_inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ',' | ':');
    let is_valid = reason.starts_with(|c: char| c.is_ascii_alphabetic())
        && reason.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        && (reason.len() > 1 || reason != "_")
        && reason.chars().all(is_inner);
    if !is_valid {
        let why = "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric \
                   characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  \
                   or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is \
                   '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')";
        errors.push(FieldError::invalid(path, reason, why));
    }
    if reason.len() > REASON_MAX {
        errors.push(FieldError::too_long(path, REASON_MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_keys_and_values_are_checked_as_in_kubernetes() {
        for valid in ["a", "kubernetes.io/hostname", "A_b.c-1", "example.com/9"] {
            assert!(label_key_errors(valid).is_empty(), "{valid}");
        }
        let long = "a".repeat(64);
        for (key, start) in [
            ("", "name part must be non-empty"),
            ("/a", "prefix part must be non-empty"),
            ("A.com/a", "prefix part a lowercase RFC 1123 subdomain must consist of"),
            ("a/b/c", "a valid label key must consist of"),
            ("-a", "name part must consist of alphanumeric characters"),
            (long.as_str(), "name part must be no more than 63 bytes"),
        ] {
            assert!(label_key_errors(key)[0].starts_with(start), "{key}: {:?}", label_key_errors(key));
        }
        assert!(label_value_errors("").is_empty());
        assert!(label_value_errors("x y")[0].ends_with("is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"));
    }
}
