//! A builder of structural schemas.

use serde_json::{Map, Value, json};

/// The schema of one value.
#[derive(Debug, Clone)]
pub(super) struct Schema(Map<String, Value>);

/// A schema of a type; an empty description is left out.
fn typed(kind: &str, description: &str) -> Schema {
    let schema = Schema(Map::new()).with("type", kind);
    if description.is_empty() { schema } else { schema.with("description", description) }
}

/// An object; its fields follow.
pub(super) fn object(description: &str) -> Schema {
    typed("object", description)
}

/// A text.
pub(super) fn text(description: &str) -> Schema {
    typed("string", description)
}

/// One of these texts.
pub(super) fn choice(values: &[&str], description: &str) -> Schema {
    text(description).with("enum", json!(values))
}

/// A text of at most `max` characters that matches a pattern.
pub(super) fn pattern(max: u32, pattern: &str, description: &str) -> Schema {
    text(description).max_length(max).with("pattern", pattern)
}

/// A time stamp.
pub(super) fn stamp(description: &str) -> Schema {
    text(description).with("format", "date-time")
}

/// A truth value.
pub(super) fn flag(description: &str) -> Schema {
    typed("boolean", description)
}

/// An integer of 32 bits.
pub(super) fn integer(description: &str) -> Schema {
    typed("integer", description).with("format", "int32")
}

/// An integer of 64 bits.
pub(super) fn integer64(description: &str) -> Schema {
    typed("integer", description).with("format", "int64")
}

/// A list.
pub(super) fn array(items: Schema, description: &str) -> Schema {
    typed("array", description).with("items", items.0)
}

/// A map from texts to values.
pub(super) fn map(values: Schema, description: &str) -> Schema {
    typed("object", description).with("additionalProperties", values.0)
}

/// An amount of a resource.
pub(super) fn quantity(description: &str) -> Schema {
    let schema = Schema(Map::new())
        .with("anyOf", json!([{"type": "integer"}, {"type": "string"}]))
        .with("pattern", QUANTITY)
        .with("x-kubernetes-int-or-string", true);
    if description.is_empty() { schema } else { schema.with("description", description) }
}

/// Pattern of a Kubernetes quantity.
const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

impl Schema {
    /// The schema as JSON.
    pub(super) fn into_value(self) -> Value {
        self.0.into()
    }

    /// Sets a key of the schema.
    pub(super) fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.0.insert(key.into(), value.into());
        self
    }

    /// Changes the schema if a condition holds.
    pub(super) fn when(self, holds: bool, change: impl FnOnce(Self) -> Self) -> Self {
        if holds { change(self) } else { self }
    }

    /// Adds a field to an object.
    pub(super) fn field(mut self, name: &str, schema: Self) -> Self {
        let properties = self.0.entry("properties").or_insert_with(|| json!({}));
        properties[name] = schema.into_value();
        self
    }

    /// The fields that an object must have.
    pub(super) fn required(self, fields: &[&str]) -> Self {
        self.with("required", json!(fields))
    }

    /// The value of an absent field.
    pub(super) fn default(self, value: impl Into<Value>) -> Self {
        self.with("default", value)
    }

    /// Maximum length of a text, in characters.
    pub(super) fn max_length(self, max: u32) -> Self {
        self.with("maxLength", max)
    }

    /// Minimum length of a text, in characters.
    pub(super) fn min_length(self, min: u32) -> Self {
        self.with("minLength", min)
    }

    /// Minimum of a number.
    pub(super) fn minimum(self, min: u32) -> Self {
        self.with("minimum", min)
    }

    /// Minimum number of items of a list.
    pub(super) fn min_items(self, min: u32) -> Self {
        self.with("minItems", min)
    }

    /// Maximum number of items of a list.
    pub(super) fn max_items(self, max: u32) -> Self {
        self.with("maxItems", max)
    }

    /// A list that has one owner for server-side apply.
    pub(super) fn atomic(self) -> Self {
        self.with("x-kubernetes-list-type", "atomic")
    }

    /// A list of unique values.
    pub(super) fn set(self) -> Self {
        self.with("x-kubernetes-list-type", "set")
    }

    /// A list whose items have a unique key.
    pub(super) fn keyed(self, keys: &[&str]) -> Self {
        self.with("x-kubernetes-list-map-keys", json!(keys)).with("x-kubernetes-list-type", "map")
    }

    /// A CEL rule, with the message of Kueue.
    pub(super) fn rule(mut self, message: &str, rule: &str) -> Self {
        let rules = self.0.entry("x-kubernetes-validations").or_insert_with(|| json!([]));
        if let Some(rules) = rules.as_array_mut() {
            rules.push(json!({"message": message, "rule": rule}));
        }
        self
    }

    /// Keeps fields that the schema does not name.
    pub(super) fn open(self) -> Self {
        self.with("x-kubernetes-preserve-unknown-fields", true)
    }
}
