//! Decoding of objects of built-in kinds, with the result of a round trip through Go's JSON decoder and encoder.
//!
//! The walk drops unknown fields, nulls and empty values, rejects wrong types with Go's error messages, and writes
//! times and quantities in canonical form. Duplicate fields, which only the JSON text shows, are in `duplicates`.

use serde_json::{Map, Value};

use super::types::{BuiltinType, Kind, store};
use super::{push_index, quantity};
use crate::object::parse_rfc3339;

/// The object does not match the type of its kind. The message is Go's: `json: cannot unmarshal …`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DecodeError(pub(super) String);

impl BuiltinType {
    /// Decodes an object into the form that kube-apiserver stores. Returns the paths of the unknown fields, which are
    /// removed.
    ///
    /// # Errors
    /// The first value with a wrong type.
    pub fn decode(&self, object: &mut Value) -> Result<Vec<String>, DecodeError> {
        let mut decoder = Decoder { unknown: Vec::new(), at: String::new() };
        let place = Place { structure: &self.resolved().name, fields: None };
        decoder.value(self, object, place)?;
        Ok(decoder.unknown)
    }

    /// Like [`BuiltinType::decode`], for the content of a patch: unknown fields are removed but not returned.
    pub fn normalize(&self, object: &mut Value) -> Result<(), DecodeError> {
        self.decode(object).map(drop)
    }
}

struct Decoder {
    unknown: Vec<String>,
    /// Path of the current value with list indices, for unknown fields.
    at: String,
}

/// Location of a value in Go's error messages: the innermost struct, and the field names without list indices.
#[derive(Clone, Copy)]
struct Place<'a> {
    structure: &'a str,
    fields: Option<&'a Field<'a>>,
}

struct Field<'a> {
    parent: Option<&'a Field<'a>>,
    name: &'a str,
}

impl Field<'_> {
    fn path(&self) -> String {
        match self.parent {
            Some(parent) => format!("{}.{}", parent.path(), self.name),
            None => self.name.to_owned(),
        }
    }
}

impl Decoder {
    fn value(&mut self, kind: &BuiltinType, value: &mut Value, place: Place<'_>) -> Result<(), DecodeError> {
        let refuse = |found: &str| Err(mismatch(found, kind, place));
        match (&kind.kind, &mut *value) {
            (Kind::Ref(index), _) => {
                let target = store().at(*index);
                if !value.is_object() {
                    return Err(mismatch(kind_of(value), kind, place));
                }
                self.value(target, value, Place { structure: &target.name, ..place })
            }
            (Kind::Object(fields), Value::Object(members)) => self.structure(fields, members, place),
            (Kind::Map(item), Value::Object(members)) => {
                for (key, member) in members.iter_mut() {
                    if member.is_null() {
                        *member = zero(item);
                    }
                    let mark = self.enter(key);
                    self.value(item, member, place)?;
                    self.at.truncate(mark);
                }
                Ok(())
            }
            (Kind::List(item), Value::Array(items)) => {
                for (index, member) in items.iter_mut().enumerate() {
                    if member.is_null() {
                        *member = zero(item);
                    }
                    let mark = self.at.len();
                    push_index(&mut self.at, index);
                    self.value(item, member, place)?;
                    self.at.truncate(mark);
                }
                Ok(())
            }
            (Kind::Bytes, Value::String(text)) => check_base64(text),
            (Kind::Integer { wide }, Value::Number(number)) => {
                let whole = number.as_i64().or_else(|| exact_integer(number.as_f64()?));
                match whole.filter(|whole| *wide || i32::try_from(*whole).is_ok()) {
                    Some(whole) => {
                        *value = whole.into();
                        Ok(())
                    }
                    None => refuse(&format!("number {number}")),
                }
            }
            (Kind::IntOrString, Value::Number(number))
                if number.as_i64().is_some_and(|n| i32::try_from(n).is_ok()) =>
            {
                Ok(())
            }
            (Kind::Quantity, Value::String(_) | Value::Number(_)) => {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                match quantity::canonical(&text) {
                    Some(canonical) => {
                        *value = canonical.into();
                        Ok(())
                    }
                    None => Err(DecodeError(quantity::MALFORMED.to_owned())),
                }
            }
            (Kind::Time { micros }, Value::String(text)) => {
                let time = parse_time(text, *micros)?;
                let format = if *micros { "%Y-%m-%dT%H:%M:%S.%6fZ" } else { "%Y-%m-%dT%H:%M:%SZ" };
                *value = time.strftime(format).to_string().into();
                Ok(())
            }
            (Kind::Any(Some(index)), Value::Object(_)) => {
                let target = store().at(*index);
                self.value(target, value, Place { structure: &target.name, ..place })
            }
            (Kind::Any(Some(index)), Value::Array(items)) => {
                let target = store().at(*index);
                for item in items.iter_mut().filter(|item| item.is_object()) {
                    self.value(target, item, Place { structure: &target.name, ..place })?;
                }
                Ok(())
            }
            (Kind::Boolean, Value::Bool(_))
            | (Kind::Number, Value::Number(_))
            | (Kind::Text | Kind::IntOrString, Value::String(_))
            | (Kind::Opaque, Value::Object(_))
            | (Kind::Any(_), _) => Ok(()),
            (_, other) => refuse(kind_of(other)),
        }
    }

    fn structure(
        &mut self,
        fields: &std::collections::BTreeMap<String, BuiltinType>,
        members: &mut Map<String, Value>,
        place: Place<'_>,
    ) -> Result<(), DecodeError> {
        let mut failed = None;
        members.retain(|name, member| {
            if failed.is_some() {
                return true;
            }
            let mark = self.enter(name);
            let keep = match fields.get(name) {
                None => {
                    self.unknown.push(self.at.clone());
                    false
                }
                Some(_) if member.is_null() => false,
                Some(kind) => {
                    let field = Field { parent: place.fields, name };
                    match self.value(kind, member, Place { fields: Some(&field), ..place }) {
                        Ok(()) => !kind.is_omitted(member),
                        Err(error) => {
                            failed = Some(error);
                            true
                        }
                    }
                }
            };
            self.at.truncate(mark);
            keep
        });
        if let Some(error) = failed {
            return Err(error);
        }
        for (name, kind) in fields {
            if !members.contains_key(name)
                && let Some(value) = kind.encoded_when_missing()
            {
                members.insert(name.clone(), value);
            }
        }
        Ok(())
    }

    fn enter(&mut self, name: &str) -> usize {
        let mark = self.at.len();
        if mark > 0 {
            self.at.push('.');
        }
        self.at.push_str(name);
        mark
    }
}

impl BuiltinType {
    /// Whether Go's encoder omits this decoded value of the field (`omitempty`, `omitzero`).
    fn is_omitted(&self, value: &Value) -> bool {
        if self.go.pointer || !self.go.omit_empty && !self.go.omit_zero {
            return false;
        }
        match value {
            Value::Null => true,
            Value::Bool(flag) => !flag,
            Value::Number(number) => number.as_f64() == Some(0.0),
            Value::String(text) => text.is_empty(),
            Value::Array(items) => items.is_empty(),
            Value::Object(fields) => {
                fields.is_empty() && (self.go.omit_zero || !matches!(self.kind, Kind::Ref(_)))
            }
        }
    }

    /// The value that Go's encoder writes for a missing field, if any. Missing lists and maps, which Go writes as
    /// null, stay absent.
    pub(super) fn encoded_when_missing(&self) -> Option<Value> {
        if self.go.pointer || self.go.kind.is_empty() || self.go.omit_zero {
            return None;
        }
        if let Kind::Ref(index) = &self.kind {
            let fields = store().at(*index).fields()?;
            let written =
                fields.iter().filter_map(|(name, field)| Some((name.clone(), field.encoded_when_missing()?)));
            return Some(Value::Object(written.collect()));
        }
        let scalar = matches!(self.kind, Kind::Text | Kind::Boolean | Kind::Integer { .. });
        (scalar && !self.go.omit_empty).then(|| zero(self))
    }
}

/// The zero value that replaces a null list item or map value.
fn zero(kind: &BuiltinType) -> Value {
    match &kind.resolved().kind {
        Kind::Object(_) | Kind::Map(_) | Kind::Opaque => Value::Object(Map::new()),
        Kind::List(_) => Value::Array(Vec::new()),
        Kind::Text | Kind::Bytes => "".into(),
        Kind::Integer { .. } | Kind::Number | Kind::IntOrString => 0.into(),
        Kind::Boolean => false.into(),
        Kind::Quantity => "0".into(),
        Kind::Time { .. } | Kind::Any(_) | Kind::Ref(_) => Value::Null,
    }
}

/// Parses a time with Go's layouts: whole seconds, or exactly six fractional digits.
fn parse_time(text: &str, micros: bool) -> Result<jiff::Timestamp, DecodeError> {
    let example = if micros { "2006-01-02T15:04:05.000000Z07:00" } else { "2006-01-02T15:04:05Z07:00" };
    let refuse = |rest: &str, part: &str| {
        let [text, rest] = [text, rest].map(crate::field_error::quote);
        Err(DecodeError(format!("parsing time {text} as \"{example}\": cannot parse {rest} as \"{part}\"")))
    };
    let Some(time) = parse_rfc3339(text) else { return refuse(text, "2006") };
    let fraction = text.get(19..).unwrap_or_default();
    let digits =
        fraction.strip_prefix('.').map_or(0, |rest| rest.bytes().take_while(u8::is_ascii_digit).count());
    if micros && digits != 6 { refuse(fraction, ".000000") } else { Ok(time) }
}

/// Converts a float to an integer if the conversion is exact.
pub(crate) fn exact_integer(number: f64) -> Option<i64> {
    #[allow(clippy::cast_possible_truncation, reason = "the range is checked just before")]
    (number.fract() == 0.0 && number.abs() < 9_007_199_254_740_992.0).then_some(number as i64)
}

/// Validates base64. Line breaks are allowed and are removed.
fn check_base64(text: &mut String) -> Result<(), DecodeError> {
    use base64::Engine as _;
    text.retain(|letter| !matches!(letter, '\r' | '\n'));
    match base64::engine::general_purpose::STANDARD.decode(&*text) {
        Ok(_) => Ok(()),
        Err(error) => {
            let at = match error {
                base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => at,
                base64::DecodeError::InvalidLength(_) | base64::DecodeError::InvalidPadding => {
                    text.len() / 4 * 4
                }
            };
            Err(DecodeError(format!("illegal base64 data at input byte {at}")))
        }
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn mismatch(found: &str, kind: &BuiltinType, place: Place<'_>) -> DecodeError {
    let go = match (kind.go.kind.as_str(), &kind.kind) {
        (_, Kind::IntOrString) => "int32".to_owned(),
        (known, _) if !known.is_empty() => known.to_owned(),
        (_, Kind::Ref(index)) => format!("v1.{}", store().at(*index).name),
        (_, Kind::Object(_)) => format!("v1.{}", kind.name),
        (_, Kind::Integer { wide }) => if *wide { "int64" } else { "int32" }.to_owned(),
        (_, Kind::Boolean) => "bool".to_owned(),
        (_, Kind::Number) => "float64".to_owned(),
        _ => "string".to_owned(),
    };
    DecodeError(match place.fields {
        Some(fields) => {
            format!(
                "json: cannot unmarshal {found} into Go struct field {}.{} of type {go}",
                place.structure,
                fields.path()
            )
        }
        None => format!("json: cannot unmarshal {found} into Go value of type {go}"),
    })
}
