//! Validates an applied configuration against its type: unknown fields, wrong types and duplicate list items.

use std::collections::BTreeSet;

use serde_json::Value;

use super::set::display;
use super::walk::item_element;
use crate::patch::{go_syntax, go_value};
use crate::typeinfo::{ListKind, ScalarKind, Shape, TypeInfo};

/// Validates a configuration. The error lists all violations in the format of kube-apiserver.
pub(super) fn check(config: &Value, types: &dyn TypeInfo) -> Result<(), String> {
    let mut walk = Walk { path: Vec::new(), errors: Vec::new() };
    walk.node(config, types);
    match walk.errors.as_slice() {
        [] => Ok(()),
        [error] => Err(error.clone()),
        errors => Err(format!("errors:\n  {}", errors.join("\n  "))),
    }
}

struct Walk {
    path: Vec<String>,
    errors: Vec<String>,
}

impl Walk {
    fn fail(&mut self, message: &str) {
        let path = display(&self.path);
        self.errors.push(if path.is_empty() { message.to_owned() } else { format!("{path}: {message}") });
    }

    fn below(&mut self, element: String, value: &Value, types: &dyn TypeInfo) {
        self.path.push(element);
        self.node(value, types);
        self.path.pop();
    }

    fn node(&mut self, value: &Value, types: &dyn TypeInfo) {
        match (types.shape(), value) {
            (Shape::Opaque | Shape::Deduced, _)
            | (_, Value::Null)
            | (Shape::Scalar(ScalarKind::Numeric), Value::Number(_))
            | (Shape::Scalar(ScalarKind::String), Value::String(_))
            | (Shape::Scalar(ScalarKind::Boolean), Value::Bool(_))
            | (Shape::Scalar(ScalarKind::Any), Value::Number(_) | Value::String(_) | Value::Bool(_)) => {}
            (Shape::Scalar(ScalarKind::Numeric), other) => {
                self.fail(&format!("expected numeric (int or float), got {}", go_type(other)));
            }
            (Shape::Scalar(ScalarKind::String), other) => {
                let other = go_syntax(other);
                self.fail(&format!("expected string, got &value.valueUnstructured{{Value:{other}}}"));
            }
            (Shape::Scalar(ScalarKind::Boolean), other) => {
                self.fail(&format!("expected boolean, got &{{{}}}", go_value(other)));
            }
            (Shape::Scalar(ScalarKind::Any), other) => {
                self.fail(&format!("expected any scalar, got &{{{}}}", go_value(other)));
            }
            (Shape::Map(_), Value::Object(fields)) => {
                for (name, below) in fields {
                    let Some(child) = types.field(name) else {
                        self.path.push(super::set::field(name));
                        self.fail("field not declared in schema");
                        self.path.pop();
                        return;
                    };
                    self.below(super::set::field(name), below, child);
                }
            }
            (Shape::Map(_), other) => self.fail(&format!("expected map, got &{{{}}}", go_value(other))),
            (Shape::List(kind), Value::Array(items)) => self.list(items, kind, types.items()),
            (Shape::List(_), other) => self.fail(&format!("expected list, got &{{{}}}", go_value(other))),
        }
    }

    fn list(&mut self, items: &[Value], kind: ListKind<'_>, types: &dyn TypeInfo) {
        let mut seen = BTreeSet::new();
        for (index, item) in items.iter().enumerate() {
            let element = if kind == ListKind::Atomic {
                format!("i:{index}")
            } else {
                match item_element(kind, types, item) {
                    Ok(element) => element,
                    Err(message) => {
                        self.fail(&format!("element {index}: {message}"));
                        return;
                    }
                }
            };
            if !seen.insert(element.clone()) {
                let key = display(std::slice::from_ref(&element));
                self.fail(&format!("duplicate entries for key {key}"));
            }
            self.below(element, item, types);
        }
    }
}

/// The Go type that holds the decoded value.
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}
