//! Conversion of JSON values to CEL values, typed by the schema.
//!
//! This module contains [`bind`] and the escaping of field names that are not CEL identifiers.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use base64::Engine as _;
use kube_cel::cel::objects::{Key, Map};
use kube_cel::cel::{Context, Program, Value as CelValue};
use serde_json::Value;

use crate::schema::node::Node;

/// Converts `value` to its CEL value. Field names are escaped, map keys are not. At the root only the parts of
/// `metadata` that rules may access are visible.
pub(super) fn bind(schema: &Node, value: &Value, is_root: bool) -> CelValue {
    match value {
        Value::Null => CelValue::Null,
        Value::Bool(flag) => CelValue::Bool(*flag),
        Value::Number(number) => match number.as_i64() {
            Some(number) if schema.kind != "number" => CelValue::Int(number),
            _ => CelValue::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => bind_text(&schema.limits.format, text),
        Value::Array(items) => {
            let schema = schema.items.as_deref().unwrap_or(untyped());
            CelValue::List(Arc::new(items.iter().map(|item| bind(schema, item, false)).collect()))
        }
        Value::Object(fields) => {
            let is_resource = is_root || schema.embedded;
            let map: HashMap<Key, CelValue> = fields
                .iter()
                .filter_map(|(name, field)| {
                    let (key, bound) = if let Some(property) = schema.properties.get(name) {
                        (escape(name), bind(property, field, false))
                    } else if let Some(property) = schema.child(name) {
                        (name.clone(), bind(property, field, false))
                    } else if is_resource && matches!(name.as_str(), "apiVersion" | "kind") {
                        (name.clone(), bind(untyped(), field, false))
                    } else if is_resource && name == "metadata" {
                        let names = ["name", "generateName"];
                        let shown = names
                            .iter()
                            .filter_map(|name| Some(((*name).to_owned(), field.get(name)?.clone())));
                        (name.clone(), bind(untyped(), &Value::Object(shown.collect()), false))
                    } else if schema.preserve_unknown || schema.is_map() || std::ptr::eq(schema, untyped()) {
                        (name.clone(), bind(untyped(), field, false))
                    } else {
                        return None;
                    };
                    Some((Key::String(Arc::new(key)), bound))
                })
                .collect();
            CelValue::Map(Map { map: Arc::new(map) })
        }
    }
}

/// The schema of values without a schema.
pub(super) fn untyped() -> &'static Node {
    static UNTYPED: OnceLock<Node> = OnceLock::new();
    UNTYPED.get_or_init(Node::default)
}

fn bind_text(format: &str, text: &str) -> CelValue {
    let plain = || CelValue::String(Arc::new(text.to_owned()));
    match format {
        "byte" => base64::engine::general_purpose::STANDARD
            .decode(text)
            .map_or_else(|_| plain(), |bytes| CelValue::Bytes(Arc::new(bytes))),
        // The interpreter's own conversion functions produce its timestamp and duration types.
        "date" => converted("timestamp(v)", &format!("{text}T00:00:00Z")).unwrap_or_else(plain),
        "date-time" => converted("timestamp(v)", text).unwrap_or_else(plain),
        "duration" => converted("duration(v)", text).unwrap_or_else(plain),
        _ => plain(),
    }
}

fn converted(conversion: &str, text: &str) -> Option<CelValue> {
    let program = Program::compile(conversion).ok()?;
    let mut context = Context::default();
    context.add_variable_from_value("v", text.to_owned());
    program.execute(&context).ok()
}

/// Escapes a field name as a CEL identifier, such as `foo__dash__bar`.
pub(super) fn escape(name: &str) -> String {
    const RESERVED: [&str; 21] = [
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    ];
    if RESERVED.contains(&name) {
        return format!("__{name}__");
    }
    name.replace("__", "__underscores__")
        .replace('.', "__dot__")
        .replace('-', "__dash__")
        .replace('/', "__slash__")
}
