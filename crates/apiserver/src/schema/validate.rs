//! Validation of values against a structural schema. Messages are those of the validator in kube-apiserver.
//!
//! This module checks types, limits and branches. List uniqueness and embedded resources are in `uniqueness`, CEL
//! rules in `cel`. A value that equals the old value at the same path is not validated again (ratcheting).

use serde_json::{Number, Value};

use super::formats;
use super::node::{Additional, Node};
use super::uniqueness::old_item;
use super::{FieldError, Path};

/// Validates `new`; errors are in the order of the walk.
pub(super) fn validate(root: &Node, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    node(root, new, old, Path::Root(""), &mut errors);
    errors
}

/// Validates the defaults in a schema. `path` is the path of the schema.
pub(super) fn defaults(schema: &Node, path: Path<'_>, errors: &mut Vec<FieldError>) {
    if let Some(default) = &schema.default {
        let at = path.child("default").to_string();
        let mut found = validate(schema, default, None);
        for error in &mut found {
            error.field = if error.field == "<nil>" { at.clone() } else { format!("{at}.{}", error.field) };
        }
        errors.extend(found);
        if !super::walk::prune_value(schema, &mut default.clone()).is_empty() {
            errors.push(FieldError::invalid(at, default.clone(), "must not have unknown fields"));
        }
    }
    let properties = path.child("properties");
    for (name, property) in &schema.properties {
        defaults(property, properties.key(name), errors);
    }
    if let Some(items) = &schema.items {
        defaults(items, path.child("items"), errors);
    }
    if let Some(Additional::Schema(schema)) = &schema.additional {
        defaults(schema, path.child("additionalProperties"), errors);
    }
}

/// Name of the JSON type in messages.
fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if is_integer(number) => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn is_integer(number: &Number) -> bool {
    number.is_i64() || number.is_u64()
}

fn node(schema: &Node, value: &Value, old: Option<&Value>, path: Path<'_>, errors: &mut Vec<FieldError>) {
    if old == Some(value) {
        return;
    }
    check_type(schema, value, path, errors);
    if !value.is_null() {
        branches(schema, value, path, errors);
        limits(schema, value, path, errors);
    }
    if !schema.limits.enumeration.is_empty() && !schema.limits.enumeration.contains(value) {
        let supported: Vec<String> = schema
            .limits
            .enumeration
            .iter()
            .map(|one| one.as_str().map_or_else(|| one.to_string(), str::to_owned))
            .collect();
        errors.push(FieldError::not_supported(path, value.clone(), &supported));
    }
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let old = old.and_then(|old| old.get(name));
                if let Some(property) = schema.child(name) {
                    node(property, field, old, path.child(name), errors);
                } else if matches!(schema.additional, Some(Additional::Allowed(false))) {
                    let detail = format!("{path}.{name} in body is a forbidden property");
                    errors.push(FieldError::invalid(path, name.as_str(), &detail));
                }
            }
            for name in &schema.limits.required {
                if !fields.contains_key(name) {
                    errors.push(FieldError::required(path.child(name), ""));
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema_of_items) = &schema.items {
                for (index, item) in items.iter().enumerate() {
                    let old = old_item(schema, old, item);
                    node(schema_of_items, item, old, path.index(index), errors);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn check_type(schema: &Node, value: &Value, path: Path<'_>, errors: &mut Vec<FieldError>) {
    let actual = kind_of(value);
    let (expected, fits) = if schema.int_or_string {
        ("integer,string", matches!(actual, "integer" | "string"))
    } else {
        let fits = match schema.kind.as_str() {
            "" => true,
            "number" => matches!(actual, "number" | "integer"),
            "integer" => actual == "integer" || value.as_f64().is_some_and(|number| number.fract() == 0.0),
            kind => kind == actual,
        };
        (schema.kind.as_str(), fits)
    };
    if fits || (value.is_null() && (schema.nullable || expected.is_empty())) {
        return;
    }
    let detail = format!("{path} in body must be of type {expected}: {actual:?}");
    errors.push(FieldError::type_invalid(path, actual, &detail));
}

fn limits(schema: &Node, value: &Value, path: Path<'_>, errors: &mut Vec<FieldError>) {
    let limits = &schema.limits;
    match value {
        Value::String(text) => {
            let length = count(text.chars().count());
            // Only the first violated limit is reported.
            if let Some(max) = limits.max_length.filter(|max| length > *max) {
                errors.push(FieldError::too_long(path, max));
            } else if let Some(min) = limits.min_length.filter(|min| length < *min) {
                let detail = format!("{path} in body should be at least {min} chars long");
                errors.push(FieldError::invalid(path, text.as_str(), &detail));
            } else if let Some(pattern) = limits.pattern.as_ref().filter(|pattern| !pattern.is_match(text)) {
                let detail = format!("{path} in body should match '{pattern}'");
                errors.push(FieldError::invalid(path, text.as_str(), &detail));
            }
            if formats::is_valid(&limits.format, text) == Some(false) {
                let detail =
                    format!("{path} in body must be of type {}: {}", limits.format, super::quote(text));
                errors.push(FieldError::type_invalid(path, text.as_str(), &detail));
            }
        }
        Value::Number(number) => number_limits(schema, number, path, errors),
        Value::Array(items) => {
            if let Some(max) = limits.max_items.filter(|max| count(items.len()) > *max) {
                errors.push(FieldError::too_many(path, items.len(), max));
            }
            if let Some(min) = limits.min_items.filter(|min| count(items.len()) < *min) {
                let detail = format!("{path} in body should have at least {min} items");
                errors.push(FieldError::invalid(path, items.len(), &detail));
            }
        }
        Value::Object(fields) => {
            if let Some(max) = limits.max_properties.filter(|max| count(fields.len()) > *max) {
                errors.push(FieldError::too_many(path, fields.len(), max));
            }
            if let Some(min) = limits.min_properties.filter(|min| count(fields.len()) < *min) {
                let detail = format!("{path} in body should have at least {min} properties");
                errors.push(FieldError::invalid(path, fields.len(), &detail));
            }
        }
        Value::Null | Value::Bool(_) => {}
    }
}

fn count(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}

fn number_limits(schema: &Node, number: &Number, path: Path<'_>, errors: &mut Vec<FieldError>) {
    let limits = &schema.limits;
    let Some(value) = number.as_f64() else { return };
    let shown = |bound: f64| {
        // Bounds on integers are printed as integers.
        if is_integer(number) && bound.fract() == 0.0 { format!("{bound:.0}") } else { bound.to_string() }
    };
    // kube-apiserver reports this error without a field. Formats are not checked when the value may have several
    // types.
    let whole = value.fract() == 0.0;
    let narrow =
        limits.format == "int32" && number.as_i64().is_none_or(|number| i32::try_from(number).is_err());
    if schema.kind == "integer" && (narrow || !whole) {
        let format = if limits.format == "int32" { "with format int32" } else { "(default format)" };
        let detail = format!("Checked value must be of type integer {format} in {path}");
        errors.push(FieldError::invalid(Path::Root(""), "", &detail));
    }
    if let Some(factor) = limits.multiple_of.filter(|factor| is_integer(number) && *factor < 1.0) {
        // kube-apiserver compares integers with the truncated factor.
        let detail = format!("factor MultipleOf declared for {path} must be positive: {}", factor.trunc());
        errors.push(FieldError::invalid(path, 0, &detail));
    }
    let mut reject = |detail: String| {
        let detail = format!("{path} in body should be {detail}");
        errors.push(FieldError::invalid(path, Value::Number(number.clone()), &detail));
    };
    if let Some(factor) = limits.multiple_of.filter(|factor| !is_integer(number) || *factor >= 1.0) {
        let quotient = if factor < 1.0 { 1.0 / factor * value } else { value / factor };
        if factor > 0.0 && quotient.fract() != 0.0 {
            reject(format!("a multiple of {}", shown(factor)));
        }
    }
    if let Some(max) = limits.maximum {
        if limits.exclusive_maximum && value >= max {
            reject(format!("less than {}", shown(max)));
        } else if value > max {
            reject(format!("less than or equal to {}", shown(max)));
        }
    }
    if let Some(min) = limits.minimum {
        if limits.exclusive_minimum && value <= min {
            reject(format!("greater than {}", shown(min)));
        } else if value < min {
            reject(format!("greater than or equal to {}", shown(min)));
        }
    }
}

/// The errors of one branch.
fn branch_errors(branch: &Node, value: &Value, path: Path<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    node(branch, value, None, path, &mut errors);
    errors
}

fn branches(schema: &Node, value: &Value, path: Path<'_>, errors: &mut Vec<FieldError>) {
    // kube-apiserver reports these errors without a field.
    let reject = |errors: &mut Vec<FieldError>, detail: String| {
        errors.push(FieldError::invalid(Path::Root(""), "", &detail));
    };
    let quoted = |path: Path<'_>| super::quote(&path.to_string());
    if !schema.any_of.is_empty() {
        let results: Vec<_> = schema.any_of.iter().map(|branch| branch_errors(branch, value, path)).collect();
        if !results.iter().any(Vec::is_empty) {
            reject(errors, format!("{} must validate at least one schema (anyOf)", quoted(path)));
            errors.extend(best_branch(results));
        }
    }
    if !schema.one_of.is_empty() {
        let results: Vec<_> = schema.one_of.iter().map(|branch| branch_errors(branch, value, path)).collect();
        let valid = results.iter().filter(|errors| errors.is_empty()).count();
        if valid != 1 {
            let found = if valid == 0 {
                "Found none valid".to_owned()
            } else {
                format!("Found {valid} valid alternatives")
            };
            reject(
                errors,
                format!("{} must validate one and only one schema (oneOf). {found}", quoted(path)),
            );
            if valid == 0 {
                errors.extend(best_branch(results));
            }
        }
    }
    if !schema.all_of.is_empty() {
        let results: Vec<_> = schema.all_of.iter().map(|branch| branch_errors(branch, value, path)).collect();
        let valid = results.iter().filter(|errors| errors.is_empty()).count();
        let total = results.len();
        errors.extend(results.into_iter().flatten());
        if valid != total {
            let none = if valid == 0 { ". None validated" } else { "" };
            reject(errors, format!("{} must validate all the schemas (allOf){none}", quoted(path)));
        }
    }
    if let Some(not) = &schema.not
        && branch_errors(not, value, path).is_empty()
    {
        reject(errors, format!("{} must not validate the schema (not)", quoted(path)));
    }
}

/// The errors of the failed branch with the fewest errors; the first of them if there are several.
fn best_branch(results: Vec<Vec<FieldError>>) -> Vec<FieldError> {
    results.into_iter().min_by_key(Vec::len).unwrap_or_default()
}
