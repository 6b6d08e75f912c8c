//! Conversion of a protobuf message to JSON.
//!
//! This module walks the message and handles messages with their own JSON encoding. It writes every field that is
//! present. Empty fields that Go omits are dropped later, when the object is decoded by its type.

use base64::Engine as _;
use prost_reflect::{DynamicMessage, MapKey, ReflectMessage as _, Value as Proto};
use serde_json::{Map, Value};

use super::ProtoError;
use crate::openapi::{self, BuiltinType};

/// Converts a message to JSON.
pub(super) fn message(message: &DynamicMessage) -> Result<Value, ProtoError> {
    let descriptor = message.descriptor();
    match descriptor.name() {
        "Time" => return Ok(time(message, false)),
        "MicroTime" => return Ok(time(message, true)),
        "Duration" => return Ok(duration(integer(message, "duration"))),
        "Quantity" => return Ok(text(message, "string").into()),
        "IntOrString" => {
            let is_text = integer(message, "type") == 1;
            return Ok(if is_text {
                text(message, "strVal").into()
            } else {
                integer(message, "intVal").into()
            });
        }
        "RawExtension" | "JSON" => return embedded(message, "raw"),
        "FieldsV1" => return embedded(message, "Raw"),
        "ExtraValue" | "Verbs" => return field(message, "items"),
        "JSONSchemaPropsOrArray" => {
            let one = field(message, "schema")?;
            return if one.is_null() { field(message, "jSONSchemas") } else { Ok(one) };
        }
        "JSONSchemaPropsOrBool" => {
            let schema = field(message, "schema")?;
            return if schema.is_null() { field(message, "allows") } else { Ok(schema) };
        }
        "JSONSchemaPropsOrStringArray" => {
            let schema = field(message, "schema")?;
            return if schema.is_null() { field(message, "property") } else { Ok(schema) };
        }
        _ => {}
    }
    let component =
        format!("io.k8s.{}", descriptor.full_name().trim_start_matches("k8s.io.").replace('_', "-"));
    let known = openapi::component(&component).and_then(BuiltinType::fields);
    let is_schema = descriptor.name() == "JSONSchemaProps";
    let mut fields = Map::new();
    for (descriptor, present) in message.fields() {
        let value = value(present)?;
        let name = if is_schema { schema_name(descriptor.name()) } else { descriptor.name().to_owned() };
        // An embedded Go struct is a message of its own in protobuf, but its fields are inlined in JSON.
        let is_embedded = known.is_some_and(|known| !known.contains_key(&name));
        if let (true, Value::Object(inner)) = (is_embedded, &value) {
            fields.extend(inner.clone());
        } else {
            fields.insert(name, value);
        }
    }
    Ok(Value::Object(fields))
}

fn value(proto: &Proto) -> Result<Value, ProtoError> {
    Ok(match proto {
        Proto::Bool(flag) => (*flag).into(),
        Proto::I32(number) | Proto::EnumNumber(number) => (*number).into(),
        Proto::I64(number) => (*number).into(),
        Proto::U32(number) => (*number).into(),
        Proto::U64(number) => (*number).into(),
        Proto::F32(number) => f64::from(*number).into(),
        Proto::F64(number) => (*number).into(),
        Proto::String(text) => text.as_str().into(),
        Proto::Bytes(bytes) => base64::engine::general_purpose::STANDARD.encode(bytes).into(),
        Proto::Message(inner) => message(inner)?,
        Proto::List(items) => Value::Array(items.iter().map(value).collect::<Result<_, _>>()?),
        Proto::Map(entries) => {
            let mut fields = Map::new();
            // The order does not matter: JSON objects are sorted.
            #[allow(clippy::iter_over_hash_type, reason = "the result is a sorted map")]
            for (key, entry) in entries {
                fields.insert(key_text(key), value(entry)?);
            }
            Value::Object(fields)
        }
    })
}

fn key_text(key: &MapKey) -> String {
    match key {
        MapKey::Bool(flag) => flag.to_string(),
        MapKey::I32(number) => number.to_string(),
        MapKey::I64(number) => number.to_string(),
        MapKey::U32(number) => number.to_string(),
        MapKey::U64(number) => number.to_string(),
        MapKey::String(text) => text.clone(),
    }
}

/// The JSON value of a field; null if the field is not present.
fn field(message: &DynamicMessage, name: &str) -> Result<Value, ProtoError> {
    super::field(message, name).map_or(Ok(Value::Null), |present| value(&present))
}

fn integer(message: &DynamicMessage, name: &str) -> i64 {
    match super::field(message, name) {
        Some(Proto::I64(number)) => number,
        Some(Proto::I32(number)) => number.into(),
        _ => 0,
    }
}

fn text(message: &DynamicMessage, name: &str) -> String {
    match super::field(message, name) {
        Some(Proto::String(text)) => text,
        _ => String::new(),
    }
}

/// JSON that a message carries as bytes.
fn embedded(message: &DynamicMessage, name: &str) -> Result<Value, ProtoError> {
    match super::field(message, name) {
        Some(Proto::Bytes(raw)) if !raw.is_empty() => Ok(serde_json::from_slice(&raw)?),
        _ => Ok(Value::Null),
    }
}

/// A time in JSON. The zero time, an empty message, is null.
fn time(message: &DynamicMessage, micros: bool) -> Value {
    let (seconds, nanos) = (integer(message, "seconds"), integer(message, "nanos"));
    if seconds == 0 && nanos == 0 {
        return Value::Null;
    }
    let nanos = i32::try_from(nanos).unwrap_or_default();
    let Ok(time) = jiff::Timestamp::new(seconds, nanos) else { return Value::Null };
    let format = if micros { "%Y-%m-%dT%H:%M:%S.%6fZ" } else { "%Y-%m-%dT%H:%M:%SZ" };
    time.strftime(format).to_string().into()
}

/// Formats a whole number of seconds, given in nanoseconds, as Go formats durations: `1h30m0s`.
fn duration(nanos: i64) -> Value {
    let seconds = nanos / 1_000_000_000;
    let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let written = match (hours, minutes) {
        (0, 0) => format!("{rest}s"),
        (0, _) => format!("{minutes}m{rest}s"),
        _ => format!("{hours}h{minutes}m{rest}s"),
    };
    written.into()
}

/// Maps protobuf field names to JSON Schema keywords that are not identifiers.
fn schema_name(name: &str) -> String {
    match name {
        "ref" => "$ref".to_owned(),
        "schema" => "$schema".to_owned(),
        _ => match name.strip_prefix("xKubernetes") {
            None => name.to_owned(),
            Some(rest) => rest.chars().fold("x-kubernetes".to_owned(), |mut kebab, c| {
                if c.is_ascii_uppercase() {
                    kebab.push('-');
                }
                kebab.push(c.to_ascii_lowercase());
                kebab
            }),
        },
    }
}
