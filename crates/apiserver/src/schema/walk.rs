//! Pruning of unknown fields and defaulting by a structural schema.
//!
//! Both walks change the object in place and never fail. The caller decides when each of them runs.

use serde_json::Value;

use super::node::{Additional, Node};
use crate::openapi::exact_integer;

/// Removes fields that `root` does not specify. Returns their sorted paths.
pub(super) fn prune(root: &Node, object: &mut Value) -> Vec<String> {
    Pruner::run(root, object, true)
}

/// Like [`prune`], for a value inside an object.
pub(super) fn prune_value(schema: &Node, value: &mut Value) -> Vec<String> {
    Pruner::run(schema, value, false)
}

fn is_meta(name: &str) -> bool {
    matches!(name, "apiVersion" | "kind" | "metadata")
}

struct Pruner {
    path: String,
    unknown: Vec<String>,
}

impl Pruner {
    fn run(schema: &Node, value: &mut Value, is_resource: bool) -> Vec<String> {
        let mut pruner = Self { path: String::new(), unknown: Vec::new() };
        pruner.node(Some(schema), value, is_resource, false);
        pruner.unknown.sort();
        pruner.unknown
    }

    /// `keep`: the enclosing list preserves unknown fields, so its items preserve them too.
    fn node(&mut self, schema: Option<&Node>, value: &mut Value, is_resource: bool, keep: bool) {
        let is_resource = is_resource || schema.is_some_and(|schema| schema.embedded);
        let keep_unknown = keep || schema.is_some_and(|schema| schema.preserve_unknown);
        match value {
            Value::Object(fields) => fields.retain(|name, field| {
                if is_resource && is_meta(name) {
                    // The metadata of the root is checked when the object is decoded. Metadata that does not decode
                    // is left to validation.
                    if name == "metadata"
                        && !self.path.is_empty()
                        && let Ok(unknown) = crate::openapi::object_meta().decode(field)
                    {
                        let path = &self.path;
                        self.unknown.extend(unknown.iter().map(|field| format!("{path}.metadata.{field}")));
                    }
                    return true;
                }
                let mark = self.path.len();
                let child = schema.and_then(|schema| schema.child(name));
                let anything =
                    schema.is_some_and(|schema| matches!(schema.additional, Some(Additional::Allowed(true))));
                let keep = match child {
                    Some(child) => {
                        self.enter_field(name);
                        self.node(Some(child), field, false, false);
                        true
                    }
                    None if keep_unknown => true,
                    None if anything => {
                        self.enter_field(name);
                        self.node(None, field, false, false);
                        true
                    }
                    None => {
                        self.enter_field(name);
                        if !is_meta(name) || mark > 0 {
                            self.unknown.push(self.path.clone());
                        }
                        false
                    }
                };
                self.path.truncate(mark);
                keep
            }),
            Value::Array(items) => {
                for (index, item) in items.iter_mut().enumerate() {
                    let mark = self.path.len();
                    crate::openapi::push_index(&mut self.path, index);
                    match schema.and_then(|schema| schema.items.as_deref()) {
                        None if keep_unknown => {}
                        items => self.node(items, item, false, keep_unknown),
                    }
                    self.path.truncate(mark);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn enter_field(&mut self, name: &str) {
        if !self.path.is_empty() {
            self.path.push('.');
        }
        self.path.push_str(name);
    }
}

/// Removes nulls of fields that are not nullable and have no default, then applies defaults.
pub(super) fn default(schema: &Node, value: &mut Value, is_resource: bool) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, field| {
                !field.is_null()
                    || (is_resource && is_meta(name))
                    || schema.child(name).is_none_or(|child| child.nullable || child.default.is_some())
            });
            for (name, property) in &schema.properties {
                let Some(default) = &property.default else { continue };
                if fields.get(name).is_none_or(|field| field.is_null() && !property.nullable) {
                    fields.insert(name.clone(), default.clone());
                }
            }
            for (name, field) in fields.iter_mut() {
                let Some(child) = schema.child(name) else { continue };
                fill(child, field);
            }
        }
        Value::Array(items) => {
            let Some(schema) = schema.items.as_deref() else { return };
            for item in items {
                fill(schema, item);
            }
        }
        // Go writes a float without a fraction as an integer.
        Value::Number(number) => {
            if let Some(whole) = number.as_f64().filter(|_| number.is_f64()).and_then(exact_integer) {
                *value = whole.into();
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

fn fill(schema: &Node, value: &mut Value) {
    if value.is_null()
        && !schema.nullable
        && let Some(default) = &schema.default
    {
        value.clone_from(default);
    }
    default(schema, value, schema.embedded);
}
