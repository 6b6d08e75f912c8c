//! Property tests: no schema, value or request body makes the server panic.

use apiserver::builtin::{self, Gvk};
use apiserver::openapi::{builtin as builtin_type, duplicate_fields};
use apiserver::schema::Structural;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// Arbitrary JSON, a few levels deep, with field names that schemas and kinds use.
fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-zA-Z0-9%.:/ -]{0,8}".prop_map(Value::from),
        prop::sample::select(vec!["1Gi", "Always", "-1", "2026-11-21T00:00:00Z", "self", "object", "array"])
            .prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 6, |inner| {
        let name = prop::sample::select(vec![
            "metadata",
            "spec",
            "status",
            "containers",
            "template",
            "name",
            "image",
            "labels",
            "selector",
            "matchLabels",
            "replicas",
            "resources",
            "limits",
            "cpu",
            "ports",
            "a",
            "b",
            "volumes",
            "env",
            "items",
        ]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((name, inner), 0..6).prop_map(|fields| Value::Object(
                fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
            )),
        ]
    })
}

/// An arbitrary schema, often malformed.
fn any_schema() -> impl Strategy<Value = Value> {
    let kind =
        prop::sample::select(vec!["object", "array", "string", "integer", "number", "boolean", "", "null"]);
    let extra = (
        prop::sample::select(vec![
            "x-kubernetes-preserve-unknown-fields",
            "x-kubernetes-int-or-string",
            "x-kubernetes-embedded-resource",
            "nullable",
            "x-kubernetes-list-type",
            "x-kubernetes-list-map-keys",
            "x-kubernetes-map-type",
            "default",
            "enum",
            "pattern",
            "maxLength",
            "minimum",
            "format",
            "required",
            "oneOf",
            "not",
            "x-kubernetes-validations",
            "additionalProperties",
        ]),
        prop_oneof![
            any_value(),
            Just(json!(true)),
            Just(json!("map")),
            Just(json!(["a"])),
            Just(json!([{ "rule": "self == oldSelf" }])),
            Just(json!([{ "rule": "has(self.a) && self.a.all(x, x > 1)" }])),
            Just(json!("^a+$")),
            Just(json!(3)),
        ],
    );
    let leaf =
        (kind.clone(), prop_oneof![2 => Just(Vec::new()), 1 => prop::collection::vec(extra.clone(), 1..3)])
            .prop_map(|(kind, extras)| with(kind, extras, &[]));
    leaf.prop_recursive(4, 24, 3, move |inner| {
        (
            kind.clone(),
            prop_oneof![3 => Just(Vec::new()), 1 => prop::collection::vec(extra.clone(), 1..2)],
            prop::collection::vec(inner, 1..3),
        )
            .prop_map(|(kind, extras, children)| with(kind, extras, &children))
    })
}

fn with(kind: &str, extras: Vec<(&str, Value)>, children: &[Value]) -> Value {
    let mut schema = Map::new();
    schema.insert("type".to_owned(), kind.into());
    if let Some(first) = children.first() {
        if kind == "array" {
            schema.insert("items".to_owned(), first.clone());
        } else {
            let names = ["a", "b", "spec"];
            let fields = names.iter().zip(children).map(|(name, child)| ((*name).to_owned(), child.clone()));
            schema.insert("properties".to_owned(), Value::Object(fields.collect()));
        }
    }
    schema.extend(extras.into_iter().map(|(name, value)| (name.to_owned(), value)));
    Value::Object(schema)
}

proptest! {
    #[test]
    fn schemas_and_values_never_panic(schema in any_schema(), new in any_value(), old in any_value()) {
        let schema = json!({ "type": "object", "properties": { "spec": schema } });
        if let Ok(parsed) = Structural::parse(&schema) {
            let mut object = json!({ "spec": new });
            let old = json!({ "spec": old });
            parsed.prune(&mut object);
            prop_assert!(parsed.prune(&mut object).is_empty(), "pruning twice finds nothing");
            parsed.default(&mut object);
            let once = object.clone();
            parsed.default(&mut object);
            prop_assert_eq!(&once, &object, "defaulting twice changes nothing");
            parsed.validate(&object, None);
            parsed.validate(&object, Some(&old));
        }
    }

    #[test]
    fn decoding_and_validating_built_in_kinds_never_panics(mut object in any_value(), old in any_value()) {
        for (group, kind) in [("", "Pod"), ("apps", "Deployment"), ("batch", "Job"), ("", "Service"), ("apps", "StatefulSet")] {
            let gvk = Gvk { group, version: "v1", kind };
            let mut raw = object.clone();
            builtin::prepare(gvk, &mut raw, Some(&old));
            builtin::validate(gvk, &raw, Some(&old));
            let decoded = builtin_type(group, "v1", kind).expect("the kind is built in").decode(&mut object);
            if decoded.is_ok() {
                let once = object.clone();
                let again = builtin_type(group, "v1", kind).expect("the kind is built in").decode(&mut object);
                prop_assert_eq!(again, Ok(Vec::new()));
                prop_assert_eq!(once, object.clone(), "decoding twice changes nothing");
            }
        }
    }

    #[test]
    fn duplicate_field_detection_never_panics(text in "[\\[\\]{}:,\"ab0 ]{0,40}") {
        duplicate_fields(text.as_bytes());
    }
}
