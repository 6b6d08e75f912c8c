//! One node of a structural schema, parsed from JSON.
//!
//! This module contains [`Node`] and its parser, which reports malformed JSON Schema. The structural schema rules are
//! in `checks`; the operations on nodes are in the other modules.

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::{Map, Value};

use super::cel::Rule;
use super::{DEPTH_MAX, FieldError, Path};

/// Schema of one value with its constraints. Also used for the branches of `allOf`, `anyOf`, `oneOf` and `not`.
#[derive(Debug, Default)]
pub(super) struct Node {
    /// The JSON type; empty if not specified.
    pub(super) kind: String,
    pub(super) nullable: bool,
    pub(super) int_or_string: bool,
    pub(super) preserve_unknown: bool,
    pub(super) embedded: bool,
    pub(super) default: Option<Value>,
    pub(super) described: bool,
    pub(super) titled: bool,
    pub(super) list_type: Option<String>,
    pub(super) list_keys: Vec<String>,
    pub(super) map_type: Option<String>,
    pub(super) properties: BTreeMap<String, Node>,
    pub(super) additional: Option<Additional>,
    pub(super) items: Option<Box<Node>>,
    pub(super) limits: Limits,
    pub(super) all_of: Vec<Node>,
    pub(super) any_of: Vec<Node>,
    pub(super) one_of: Vec<Node>,
    pub(super) not: Option<Box<Node>>,
    pub(super) rules: Vec<Rule>,
}

/// `additionalProperties`.
#[derive(Debug)]
pub(super) enum Additional {
    /// `true` or `false`.
    Allowed(bool),
    /// A map with values of this schema.
    Schema(Box<Node>),
}

/// Constraints on a single value.
#[derive(Debug, Default)]
pub(super) struct Limits {
    pub(super) format: String,
    pub(super) maximum: Option<f64>,
    pub(super) exclusive_maximum: bool,
    pub(super) minimum: Option<f64>,
    pub(super) exclusive_minimum: bool,
    pub(super) multiple_of: Option<f64>,
    pub(super) max_length: Option<i64>,
    pub(super) min_length: Option<i64>,
    pub(super) pattern: Option<Regex>,
    pub(super) max_items: Option<i64>,
    pub(super) min_items: Option<i64>,
    pub(super) unique_items: bool,
    pub(super) max_properties: Option<i64>,
    pub(super) min_properties: Option<i64>,
    pub(super) required: Vec<String>,
    pub(super) enumeration: Vec<Value>,
}

impl Node {
    /// Parses `schema` and adds an error for each malformed member.
    pub(super) fn parse(schema: &Value, path: Path<'_>, depth: usize, errors: &mut Vec<FieldError>) -> Self {
        let Some(schema) = schema.as_object() else {
            errors.push(FieldError::invalid(path, schema.clone(), "must be an object"));
            return Self::default();
        };
        if depth > DEPTH_MAX {
            errors.push(FieldError::forbidden(
                path,
                &format!("must not be nested deeper than {DEPTH_MAX} levels"),
            ));
            return Self::default();
        }
        let mut reader = Reader { schema, path, errors };
        for unsupported in [
            "$ref",
            "definitions",
            "dependencies",
            "patternProperties",
            "id",
            "deprecated",
            "additionalItems",
        ] {
            reader.forbid(unsupported);
        }
        let mut node = Self {
            kind: reader.text("type").unwrap_or_default(),
            nullable: reader.flag("nullable"),
            int_or_string: reader.flag("x-kubernetes-int-or-string"),
            preserve_unknown: reader.flag("x-kubernetes-preserve-unknown-fields"),
            embedded: reader.flag("x-kubernetes-embedded-resource"),
            default: schema.get("default").filter(|value| !value.is_null()).cloned(),
            described: schema.get("description").and_then(Value::as_str).is_some_and(|text| !text.is_empty()),
            titled: schema.get("title").and_then(Value::as_str).is_some_and(|text| !text.is_empty()),
            list_type: reader.text("x-kubernetes-list-type"),
            list_keys: reader.texts("x-kubernetes-list-map-keys"),
            map_type: reader.text("x-kubernetes-map-type"),
            limits: Limits::parse(&mut reader),
            rules: Rule::parse_all(schema.get("x-kubernetes-validations"), path, reader.errors),
            ..Self::default()
        };
        if schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
            let at = path.child("x-kubernetes-preserve-unknown-fields");
            errors.push(FieldError::invalid(at, false, "must be true or undefined"));
        }
        match schema.get("properties") {
            None | Some(Value::Null) => {}
            Some(Value::Object(properties)) => {
                let at = path.child("properties");
                for (name, property) in properties {
                    let child = Self::parse(property, at.key(name), depth + 1, errors);
                    node.properties.insert(name.clone(), child);
                }
            }
            Some(other) => {
                errors.push(FieldError::invalid(
                    path.child("properties"),
                    other.clone(),
                    "must be an object",
                ));
            }
        }
        match schema.get("additionalProperties") {
            None | Some(Value::Null) => {}
            Some(Value::Bool(allowed)) => node.additional = Some(Additional::Allowed(*allowed)),
            Some(other) => {
                let child = Self::parse(other, path.child("additionalProperties"), depth + 1, errors);
                node.additional = Some(Additional::Schema(Box::new(child)));
            }
        }
        match schema.get("items") {
            None | Some(Value::Null) => {}
            Some(Value::Array(_)) => errors.push(FieldError::forbidden(
                path.child("items"),
                "items must be a schema object and not an array",
            )),
            Some(other) => {
                node.items = Some(Box::new(Self::parse(other, path.child("items"), depth + 1, errors)));
            }
        }
        node.all_of = Self::branches(schema, "allOf", path, depth, errors);
        node.any_of = Self::branches(schema, "anyOf", path, depth, errors);
        node.one_of = Self::branches(schema, "oneOf", path, depth, errors);
        if let Some(not) = schema.get("not").filter(|not| !not.is_null()) {
            node.not = Some(Box::new(Self::parse(not, path.child("not"), depth + 1, errors)));
        }
        node
    }

    fn branches(
        schema: &Map<String, Value>,
        name: &str,
        path: Path<'_>,
        depth: usize,
        errors: &mut Vec<FieldError>,
    ) -> Vec<Self> {
        let at = path.child(name);
        match schema.get(name) {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(branches)) => branches
                .iter()
                .enumerate()
                .map(|(index, branch)| Self::parse(branch, at.index(index), depth + 1, errors))
                .collect(),
            Some(other) => {
                errors.push(FieldError::invalid(at, other.clone(), "must be an array"));
                Vec::new()
            }
        }
    }

    /// Schema of the field `name`: a property, or an entry of a map.
    pub(super) fn child(&self, name: &str) -> Option<&Node> {
        self.properties.get(name).or(match &self.additional {
            Some(Additional::Schema(schema)) => Some(schema),
            Some(Additional::Allowed(_)) | None => None,
        })
    }

    /// Whether `additionalProperties` allows any field name.
    pub(super) fn is_map(&self) -> bool {
        matches!(self.additional, Some(Additional::Schema(_) | Additional::Allowed(true)))
    }
}

impl Limits {
    fn parse(reader: &mut Reader<'_, '_, '_>) -> Self {
        Self {
            format: reader.text("format").unwrap_or_default(),
            maximum: reader.number("maximum"),
            exclusive_maximum: reader.flag("exclusiveMaximum"),
            minimum: reader.number("minimum"),
            exclusive_minimum: reader.flag("exclusiveMinimum"),
            multiple_of: reader.number("multipleOf"),
            max_length: reader.count("maxLength"),
            min_length: reader.count("minLength"),
            pattern: reader.pattern(),
            max_items: reader.count("maxItems"),
            min_items: reader.count("minItems"),
            unique_items: reader.flag("uniqueItems"),
            max_properties: reader.count("maxProperties"),
            min_properties: reader.count("minProperties"),
            required: reader.texts("required"),
            enumeration: match reader.schema.get("enum") {
                Some(Value::Array(values)) => values.clone(),
                _ => Vec::new(),
            },
        }
    }
}

/// Reads the members of one schema object and reports members of the wrong type.
struct Reader<'s, 'p, 'e> {
    schema: &'s Map<String, Value>,
    path: Path<'p>,
    errors: &'e mut Vec<FieldError>,
}

impl Reader<'_, '_, '_> {
    fn read<T>(&mut self, name: &str, expected: &str, read: impl Fn(&Value) -> Option<T>) -> Option<T> {
        let value = self.schema.get(name).filter(|value| !value.is_null())?;
        let read = read(value);
        if read.is_none() {
            self.errors.push(FieldError::invalid(self.path.child(name), value.clone(), expected));
        }
        read
    }

    fn forbid(&mut self, name: &str) {
        if self.schema.get(name).is_some_and(|value| !value.is_null()) {
            self.errors
                .push(FieldError::forbidden(self.path.child(name), &format!("{name} is not supported")));
        }
    }

    fn text(&mut self, name: &str) -> Option<String> {
        self.read(name, "must be a string", |value| value.as_str().map(str::to_owned))
    }

    fn texts(&mut self, name: &str) -> Vec<String> {
        let texts = self.read(name, "must be an array of strings", |value| {
            value.as_array()?.iter().map(|item| item.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>()
        });
        texts.unwrap_or_default()
    }

    fn flag(&mut self, name: &str) -> bool {
        self.read(name, "must be a boolean", Value::as_bool).unwrap_or_default()
    }

    fn number(&mut self, name: &str) -> Option<f64> {
        self.read(name, "must be a number", Value::as_f64)
    }

    fn count(&mut self, name: &str) -> Option<i64> {
        self.read(name, "must be an integer", Value::as_i64)
    }

    fn pattern(&mut self) -> Option<Regex> {
        let text = self.text("pattern").filter(|text| !text.is_empty())?;
        match Regex::new(&text) {
            Ok(regex) => Some(regex),
            Err(error) => {
                let reason = error.to_string();
                let reason = reason.lines().last().unwrap_or_default().trim().trim_start_matches("error: ");
                self.errors.push(FieldError::invalid(
                    self.path.child("pattern"),
                    text,
                    &format!("must be a valid regular expression, but isn't: error parsing regexp: {reason}"),
                ));
                None
            }
        }
    }
}
