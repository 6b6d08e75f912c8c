//! Types for tests of patches and server-side apply, defined by a small `OpenAPI` schema.

use std::collections::BTreeMap;

use apiserver::typeinfo::{ListKind, MapKind, PatchRule, ScalarKind, Shape, TypeInfo, UNTYPED};
use serde_json::{Value, json};

/// A type defined by a schema: `type`, `properties`, `additionalProperties`, `items`, and the `x-kubernetes-`
/// extensions without that prefix.
pub(crate) struct Schema {
    keywords: Value,
    properties: BTreeMap<String, Schema>,
    values: Option<Box<Schema>>,
    items: Option<Box<Schema>>,
    keys: Vec<String>,
}

impl Schema {
    pub(crate) fn of(schema: &Value) -> Self {
        let boxed = |name: &str| schema.get(name).map(|child| Box::new(Self::of(child)));
        let properties = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
        let keys = schema.get("list-map-keys").and_then(Value::as_array).into_iter().flatten();
        Self {
            properties: properties.map(|(name, child)| (name.clone(), Self::of(child))).collect(),
            values: boxed("additionalProperties"),
            items: boxed("items"),
            keys: keys.filter_map(|key| key.as_str().map(str::to_owned)).collect(),
            keywords: schema.clone(),
        }
    }

    fn keyword(&self, name: &str) -> Option<&str> {
        self.keywords.get(name).and_then(Value::as_str)
    }
}

impl TypeInfo for Schema {
    fn shape(&self) -> Shape<'_> {
        match self.keyword("type") {
            Some("object") if self.keyword("map-type") == Some("atomic") => Shape::Map(MapKind::Atomic),
            Some("object") => Shape::Map(MapKind::Granular),
            Some("array") => Shape::List(match self.keyword("list-type") {
                Some("map") => ListKind::Map(&self.keys),
                Some("set") => ListKind::Set,
                _ => ListKind::Atomic,
            }),
            Some("string") => Shape::Scalar(ScalarKind::String),
            Some("integer") => Shape::Scalar(ScalarKind::Numeric),
            Some("boolean") => Shape::Scalar(ScalarKind::Boolean),
            Some("any") => Shape::Deduced,
            _ => Shape::Scalar(ScalarKind::Any),
        }
    }

    fn field(&self, name: &str) -> Option<&dyn TypeInfo> {
        if self.shape() == Shape::Deduced {
            return Some(&UNTYPED);
        }
        let child = self.properties.get(name).or(self.values.as_deref())?;
        Some(child)
    }

    fn declares(&self, name: &str) -> bool {
        self.properties.contains_key(name)
    }

    fn items(&self) -> &dyn TypeInfo {
        match &self.items {
            Some(items) => &**items,
            None => &UNTYPED,
        }
    }

    fn patch(&self) -> PatchRule<'_> {
        PatchRule::parse(self.keyword("patch-strategy").unwrap_or_default(), self.keyword("patch-merge-key"))
    }

    fn default_value(&self) -> Option<&Value> {
        self.keywords.get("default")
    }

    fn name(&self) -> Option<&str> {
        self.keyword("name")
    }
}

/// The type of a Deployment, with the fields that the tests use.
pub(crate) fn deployment() -> Schema {
    let labels = json!({"type": "object", "additionalProperties": {"type": "string"}});
    let ports = json!({
        "type": "array", "list-type": "map", "list-map-keys": ["containerPort", "protocol"],
        "patch-strategy": "merge", "patch-merge-key": "containerPort",
        "items": {"type": "object", "properties": {
            "containerPort": {"type": "integer"}, "protocol": {"type": "string", "default": "TCP"},
            "name": {"type": "string"},
        }},
    });
    let containers = json!({
        "type": "array", "list-type": "map", "list-map-keys": ["name"],
        "patch-strategy": "merge", "patch-merge-key": "name",
        "items": {"type": "object", "name": "v1.Container", "properties": {
            "name": {"type": "string"}, "image": {"type": "string"},
            "args": {"type": "array", "items": {"type": "string"}},
            "env": {"type": "array", "list-type": "map", "list-map-keys": ["name"], "patch-strategy": "merge",
                "patch-merge-key": "name", "items": {"type": "object", "properties": {
                    "name": {"type": "string"}, "value": {"type": "string"}}}},
            "ports": ports,
        }},
    });
    let resource_map = json!({"type": "object", "additionalProperties": {}});
    Schema::of(&json!({"type": "object", "name": "apps.v1.Deployment", "properties": {
        "apiVersion": {"type": "string"}, "kind": {"type": "string"},
        "metadata": {"type": "object", "properties": {
            "name": {"type": "string"}, "namespace": {"type": "string"}, "uid": {"type": "string"},
            "resourceVersion": {"type": "string"}, "generation": {"type": "integer"}, "creationTimestamp": {},
            "labels": labels, "annotations": labels,
            "finalizers": {"type": "array", "list-type": "set", "patch-strategy": "merge", "items": {"type": "string"}},
        }},
        "spec": {"type": "object", "name": "apps.v1.DeploymentSpec", "properties": {
            "replicas": {"type": "integer"}, "paused": {"type": "boolean"}, "quota": resource_map,
            "selector": {"type": "object", "map-type": "atomic", "properties": {"matchLabels": labels}},
            "strategy": {"type": "object", "patch-strategy": "retainKeys", "properties": {
                "type": {"type": "string"}, "rollingUpdate": {"type": "object", "properties": {"maxSurge": {}}}}},
            "template": {"type": "object", "properties": {
                "metadata": {"type": "object", "properties": {"labels": labels}},
                "spec": {"type": "object", "name": "v1.PodSpec", "properties": {
                    "containers": containers,
                    "tolerations": {"type": "array", "items": {"type": "object", "properties": {
                        "key": {"type": "string"}}}},
                }},
            }},
        }},
        "status": {"type": "object", "properties": {
            "replicas": {"type": "integer"},
            "conditions": {"type": "array", "list-type": "map", "list-map-keys": ["type"],
                "patch-strategy": "merge", "patch-merge-key": "type",
                "items": {"type": "object", "properties": {"type": {"type": "string"}, "status": {"type": "string"}}}},
        }},
    }}))
}
