//! Tables of custom resources, by the additional printer columns of their definition.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{age, age_of, name};
use crate::jsonpath::JsonPath;
use crate::registry::Custom;

pub(super) fn columns(custom: &Custom) -> Value {
    let column = |name: &str, kind: &str, format: &str, description: &str, priority: i64| json!({ "name": name, "type": kind, "format": format, "description": description, "priority": priority });
    let mut all = vec![column("Name", "string", "name", "", 0)];
    if custom.columns.is_empty() {
        all.push(column("Age", "date", "", "", 0));
    }
    for c in &custom.columns {
        let described = if c.description.is_empty() {
            format!("Custom resource definition column (in JSONPath format): {}", c.path)
        } else {
            c.description.clone()
        };
        all.push(column(&c.name, &c.kind, &c.format, &described, c.priority));
    }
    all.into()
}

pub(super) fn cells(custom: &Custom, value: &Value, now: Timestamp) -> Vec<Value> {
    let mut cells = vec![name(value)];
    if custom.columns.is_empty() {
        cells.push(age_of(value, now));
    }
    for column in &custom.columns {
        let found = JsonPath::parse(&column.path).and_then(|path| path.find(value).first().copied().cloned());
        cells.push(found.map_or(Value::Null, |found| cell(&column.kind, found, now)));
    }
    cells
}

/// Converts a value to a cell of a column type; null if the value has another type.
fn cell(kind: &str, value: Value, now: Timestamp) -> Value {
    match (kind, value) {
        ("integer", Value::Number(number)) => match number.as_i64() {
            Some(whole) => whole.into(),
            #[allow(clippy::cast_possible_truncation, reason = "fractions are truncated, as in Go")]
            None => (number.as_f64().unwrap_or(0.0) as i64).into(),
        },
        ("number", number @ Value::Number(_)) => number,
        ("boolean", flag @ Value::Bool(_)) => flag,
        ("date", Value::String(stamp)) => {
            if crate::object::parse_stamp(&stamp).is_some() {
                age(&stamp, now).into()
            } else {
                "<invalid>".into()
            }
        }
        ("string", Value::String(text)) => text.into(),
        ("string", Value::Null) => "<nil>".into(),
        ("string", other) => other.to_string().into(),
        _ => Value::Null,
    }
}
