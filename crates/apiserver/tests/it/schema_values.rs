//! Structural schemas through the public interface: pruning, defaulting, validation and their messages.

use apiserver::schema::Structural;
use serde_json::{Value, json};

fn structural(schema: &Value) -> Structural {
    Structural::parse(schema).unwrap_or_else(|errors| panic!("{errors:?}"))
}

/// A schema with `spec` as the schema of the field `spec`.
fn with_spec(spec: &Value) -> Structural {
    structural(&json!({ "type": "object", "properties": { "spec": spec } }))
}

fn refused(schema: &Value) -> Vec<String> {
    Structural::parse(schema).err().unwrap_or_default().iter().map(ToString::to_string).collect()
}

fn errors(schema: &Structural, new: &Value, old: Option<&Value>) -> Vec<String> {
    schema.validate(new, old).iter().map(ToString::to_string).collect()
}

#[test]
fn unknown_fields_are_pruned_and_reported() {
    let schema = structural(&json!({
        "type": "object",
        "properties": {
            "spec": { "type": "object", "properties": {
                "known": { "type": "string" },
                "list": { "type": "array", "items": { "type": "object", "properties": { "a": { "type": "integer" } } } },
                "map": { "type": "object", "additionalProperties": { "type": "object", "properties": { "b": { "type": "integer" } } } },
                "free": { "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                          "properties": { "strict": { "type": "object" } } },
                "template": { "type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true },
            } },
        },
    }));
    let mut object = json!({
        "apiVersion": "example.com/v1", "kind": "Thing", "metadata": { "name": "x", "labels": { "l": "1" } },
        "extra": 1,
        "spec": {
            "known": "k", "unknown": 1,
            "list": [{ "a": 1, "z": 2 }],
            "map": { "key": { "b": 1, "c": 2 } },
            "free": { "anything": { "goes": true }, "strict": { "gone": 1 } },
            "template": { "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p" }, "spec": { "x": 1 } },
        },
    });
    let unknown = schema.prune(&mut object);
    assert_eq!(
        unknown,
        ["extra", "spec.free.strict.gone", "spec.list[0].z", "spec.map.key.c", "spec.unknown"]
    );
    assert_eq!(
        object,
        json!({
            "apiVersion": "example.com/v1", "kind": "Thing", "metadata": { "name": "x", "labels": { "l": "1" } },
            "spec": {
                "known": "k",
                "list": [{ "a": 1 }],
                "map": { "key": { "b": 1 } },
                "free": { "anything": { "goes": true }, "strict": {} },
                "template": { "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p" }, "spec": { "x": 1 } },
            },
        })
    );
    assert!(schema.prune(&mut object).is_empty());
}

#[test]
fn defaults_replace_missing_fields_and_disallowed_nulls() {
    let schema = with_spec(&json!({
        "type": "object", "default": {},
        "properties": {
            "replicas": { "type": "integer", "default": 1 },
            "nullable": { "type": "string", "nullable": true, "default": "d" },
            "plain": { "type": "string" },
            "items": { "type": "array", "items": { "type": "object", "properties": { "port": { "type": "integer", "default": 80 } } } },
        },
    }));
    let mut empty = json!({});
    schema.default(&mut empty);
    assert_eq!(empty, json!({ "spec": { "replicas": 1, "nullable": "d" } }));
    let mut nulls = json!({ "spec": { "replicas": null, "nullable": null, "plain": null, "items": [{}, { "port": 1 }] } });
    schema.default(&mut nulls);
    assert_eq!(
        nulls,
        json!({ "spec": { "replicas": 1, "nullable": null, "items": [{ "port": 80 }, { "port": 1 }] } })
    );
}

#[test]
fn invalid_values_are_rejected_with_the_messages_of_kube_apiserver() {
    struct Case {
        name: &'static str,
        schema: Value,
        value: Value,
        expected: &'static [&'static str],
    }
    let cases = [
        Case {
            name: "wrong type",
            schema: json!({ "type": "integer" }),
            value: json!("a"),
            expected: &[
                r#"spec.x: Invalid value: "string": spec.x in body must be of type integer: "string""#,
            ],
        },
        Case {
            name: "null",
            schema: json!({ "type": "string" }),
            value: json!(null),
            expected: &[r#"spec.x: Invalid value: "null": spec.x in body must be of type string: "null""#],
        },
        Case {
            name: "nullable",
            schema: json!({ "type": "string", "nullable": true }),
            value: json!(null),
            expected: &[],
        },
        Case {
            name: "integer as number",
            schema: json!({ "type": "number" }),
            value: json!(1),
            expected: &[],
        },
        Case {
            name: "whole float as integer",
            schema: json!({ "type": "integer" }),
            value: json!(2.0),
            expected: &[],
        },
        Case {
            name: "enum",
            schema: json!({ "type": "string", "enum": ["b", "c"] }),
            value: json!("a"),
            expected: &[r#"spec.x: Unsupported value: "a": supported values: "b", "c""#],
        },
        Case {
            name: "pattern and length",
            schema: json!({ "type": "string", "pattern": "^a+$", "maxLength": 2 }),
            value: json!("bbb"),
            expected: &["spec.x: Too long: may not be more than 2 bytes"],
        },
        Case {
            name: "minimum",
            schema: json!({ "type": "integer", "minimum": 1 }),
            value: json!(0),
            expected: &["spec.x: Invalid value: 0: spec.x in body should be greater than or equal to 1"],
        },
        Case {
            name: "exclusive maximum",
            schema: json!({ "type": "number", "maximum": 1.5, "exclusiveMaximum": true }),
            value: json!(1.5),
            expected: &["spec.x: Invalid value: 1.5: spec.x in body should be less than 1.5"],
        },
        Case {
            name: "narrow integer",
            schema: json!({ "type": "integer", "format": "int32" }),
            value: json!(99_999_999_999i64),
            expected: &[
                r#"<nil>: Invalid value: "": Checked value must be of type integer with format int32 in spec.x"#,
            ],
        },
        Case {
            name: "multiple",
            schema: json!({ "type": "integer", "multipleOf": 5 }),
            value: json!(7),
            expected: &["spec.x: Invalid value: 7: spec.x in body should be a multiple of 5"],
        },
        Case {
            name: "too many items",
            schema: json!({ "type": "array", "maxItems": 1, "items": { "type": "string" } }),
            value: json!(["a", "b"]),
            expected: &["spec.x: Too many: 2: must have at most 1 item"],
        },
        Case {
            name: "too few properties",
            schema: json!({ "type": "object", "minProperties": 1, "additionalProperties": { "type": "string" } }),
            value: json!({}),
            expected: &["spec.x: Invalid value: 0: spec.x in body should have at least 1 properties"],
        },
        Case {
            name: "required",
            schema: json!({ "type": "object", "required": ["a"], "properties": { "a": { "type": "string" } } }),
            value: json!({}),
            expected: &["spec.x.a: Required value"],
        },
        Case {
            name: "format",
            schema: json!({ "type": "string", "format": "date-time" }),
            value: json!("yesterday"),
            expected: &[
                r#"spec.x: Invalid value: "yesterday": spec.x in body must be of type date-time: "yesterday""#,
            ],
        },
        Case {
            name: "int or string",
            schema: json!({ "x-kubernetes-int-or-string": true, "anyOf": [{ "type": "integer" }, { "type": "string" }] }),
            value: json!("50%"),
            expected: &[],
        },
        Case {
            name: "set",
            schema: json!({ "type": "array", "x-kubernetes-list-type": "set", "items": { "type": "string" } }),
            value: json!(["a", "b", "a", "a"]),
            expected: &[r#"spec.x[2]: Duplicate value: "a""#],
        },
        Case {
            name: "list map",
            schema: json!({ "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": { "type": "object", "required": ["name"], "properties": { "name": { "type": "string" } } } }),
            value: json!([{ "name": "a" }, { "name": "a" }]),
            expected: &[r#"spec.x[1]: Duplicate value: {"name":"a"}"#],
        },
        Case {
            name: "one of",
            schema: json!({ "type": "object", "properties": { "a": { "type": "string" }, "b": { "type": "string" } },
                "oneOf": [{ "required": ["a"] }, { "required": ["b"] }] }),
            value: json!({ "a": "1", "b": "2" }),
            expected: &[
                r#"<nil>: Invalid value: "": "spec.x" must validate one and only one schema (oneOf). Found 2 valid alternatives"#,
            ],
        },
        Case {
            name: "embedded resource",
            schema: json!({ "type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true }),
            value: json!({ "kind": "" }),
            expected: &[
                "spec.x.apiVersion: Required value",
                r#"spec.x.kind: Invalid value: "": must not be empty"#,
            ],
        },
    ];
    for case in cases {
        let schema = with_spec(&json!({ "type": "object", "properties": { "x": case.schema } }));
        let object = json!({ "spec": { "x": case.value } });
        assert_eq!(errors(&schema, &object, None), case.expected, "{}", case.name);
        assert_eq!(
            errors(&schema, &object, Some(&object)).len(),
            usize::from(case.name == "embedded resource") * 2,
            "{}",
            case.name
        );
    }
}

#[test]
fn non_structural_schemas_are_rejected() {
    for (schema, expected) in [
        (
            json!({ "properties": {} }),
            vec!["spec.validation.openAPIV3Schema.type: Required value: must not be empty at the root"],
        ),
        (
            json!({ "type": "object", "properties": { "spec": {} } }),
            vec![
                "spec.validation.openAPIV3Schema.properties[spec].type: Required value: must not be empty for specified object fields",
            ],
        ),
        (
            json!({ "type": "object", "properties": { "a": { "type": "array" } } }),
            vec!["spec.validation.openAPIV3Schema.properties[a].items: Required value: must be specified"],
        ),
        (
            json!({ "type": "object", "properties": { "a": { "type": "string", "anyOf": [{ "type": "string" }] } } }),
            vec![
                "spec.validation.openAPIV3Schema.properties[a].anyOf[0].type: Forbidden: must be empty to be structural",
            ],
        ),
        (
            json!({ "type": "object", "properties": { "a": { "type": "object" } }, "oneOf": [{ "properties": { "b": {} } }] }),
            vec![
                "spec.validation.openAPIV3Schema.properties[b]: Required value: because it is defined in spec.validation.openAPIV3Schema.oneOf[0].properties[b]",
            ],
        ),
        (
            json!({ "type": "object", "properties": { "a": { "type": "strin" } } }),
            vec![
                r#"spec.validation.openAPIV3Schema.properties[a].type: Unsupported value: "strin": supported values: "array", "boolean", "integer", "number", "object", "string""#,
            ],
        ),
    ] {
        assert_eq!(refused(&schema), expected, "{schema}");
    }
}

#[test]
fn invalid_defaults_are_rejected() {
    let at = "spec.validation.openAPIV3Schema.properties[a].default";
    for (schema, expected) in [
        (
            json!({ "type": "integer", "default": "x" }),
            format!(r#"{at}: Invalid value: "string":  in body must be of type integer: "string""#),
        ),
        (
            json!({ "type": "string", "enum": ["b"], "default": "a" }),
            format!(r#"{at}: Unsupported value: "a": supported values: "b""#),
        ),
        (
            json!({ "type": "object", "default": { "x": 1 } }),
            format!(r#"{at}: Invalid value: {{"x":1}}: must not have unknown fields"#),
        ),
    ] {
        assert_eq!(refused(&json!({ "type": "object", "properties": { "a": schema } })), [expected]);
    }
}

#[test]
fn schemas_deeper_than_the_limit_are_rejected() {
    let mut schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let mut value = json!({});
    for _ in 0..90 {
        schema = json!({ "type": "object", "properties": { "a": schema } });
        value = json!({ "a": value });
    }
    let parsed = structural(&schema);
    parsed.prune(&mut value);
    parsed.default(&mut value);
    assert!(parsed.validate(&value, None).is_empty());
    for _ in 0..30 {
        schema = json!({ "type": "object", "properties": { "a": schema } });
    }
    assert!(refused(&schema)[0].ends_with("must not be nested deeper than 100 levels"));
}
