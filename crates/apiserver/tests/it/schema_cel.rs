//! CEL rules: the values that they see, their error messages, and protection of the server against expensive rules.

use apiserver::schema::Structural;
use serde_json::{Value, json};

fn with_spec(spec: &Value) -> Structural {
    let schema = json!({ "type": "object", "properties": { "spec": spec } });
    Structural::parse(&schema).unwrap_or_else(|errors| panic!("{errors:?}"))
}

fn errors(schema: &Structural, new: &Value, old: Option<&Value>) -> Vec<String> {
    schema.validate(new, old).iter().map(ToString::to_string).collect()
}

fn refused(rules: &Value) -> Vec<String> {
    let schema = json!({ "type": "object", "x-kubernetes-validations": rules, "properties": { "spec": {
        "type": "object", "properties": { "a": { "type": "integer" } } } } });
    Structural::parse(&schema).err().unwrap_or_default().iter().map(ToString::to_string).collect()
}

#[test]
fn a_failed_cel_rule_reports_its_message() {
    let schema = with_spec(&json!({
        "type": "object",
        "properties": { "min": { "type": "integer" }, "max": { "type": "integer" }, "name": { "type": "string",
            "x-kubernetes-validations": [{ "rule": "self.startsWith('a')", "messageExpression": "'name is ' + self" }] } },
        "x-kubernetes-validations": [
            { "rule": "self.min <= self.max", "message": "min must not exceed max", "fieldPath": ".min" },
            { "rule": "!has(self.name) || self.name != 'ab'", "reason": "FieldValueForbidden" },
        ],
    }));
    assert_eq!(
        errors(&schema, &json!({ "spec": { "min": 3, "max": 2, "name": "b" } }), None),
        ["spec.min: Invalid value: min must not exceed max", r#"spec.name: Invalid value: "b": name is b"#]
    );
    assert_eq!(
        errors(&schema, &json!({ "spec": { "min": 1, "max": 2, "name": "ab" } }), None),
        ["spec: Forbidden: failed rule: !has(self.name) || self.name != 'ab'"]
    );
    assert_eq!(
        errors(&schema, &json!({ "spec": { "max": 2 } }), None),
        [r#"spec: Invalid value: "object": no such key: min evaluating rule: min must not exceed max"#]
    );
}

#[test]
fn transition_rules_compare_with_the_old_value() {
    let schema = with_spec(&json!({
        "type": "object",
        "properties": {
            "fixed": { "type": "string", "x-kubernetes-validations": [{ "rule": "self == oldSelf", "message": "is immutable" }] },
            "grow": { "type": "integer", "x-kubernetes-validations": [
                { "rule": "!oldSelf.hasValue() || self >= oldSelf.value()", "message": "may not shrink", "optionalOldSelf": true }] },
            "ports": { "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": { "type": "object", "required": ["name"],
                    "properties": { "name": { "type": "string" }, "port": { "type": "integer" } },
                    "x-kubernetes-validations": [{ "rule": "self.port == oldSelf.port", "message": "port is fixed" }] } },
        },
    }));
    let old = json!({ "spec": { "fixed": "a", "grow": 2, "ports": [{ "name": "x", "port": 1 }, { "name": "y", "port": 2 }] } });
    assert!(errors(&schema, &old, None).is_empty());
    let new = json!({ "spec": { "fixed": "b", "grow": 1, "ports": [{ "name": "y", "port": 3 }, { "name": "new", "port": 9 }] } });
    assert_eq!(
        errors(&schema, &new, Some(&old)),
        [
            r#"spec.fixed: Invalid value: "b": is immutable"#,
            "spec.grow: Invalid value: 1: may not shrink",
            "spec.ports[0]: Invalid value: port is fixed",
        ]
    );
}

#[test]
fn unchanged_invalid_values_are_accepted_on_update() {
    let loose = json!({ "spec": { "name": "b", "other": 1 } });
    let schema = with_spec(&json!({
        "type": "object",
        "properties": {
            "name": { "type": "string", "maxLength": 3, "x-kubernetes-validations": [{ "rule": "self == 'a'" }] },
            "other": { "type": "integer" },
        },
    }));
    let mut new = loose.clone();
    new["spec"]["other"] = json!(2);
    assert!(errors(&schema, &new, Some(&loose)).is_empty());
    assert_eq!(errors(&schema, &new, None).len(), 1);
}

#[test]
fn cel_rules_are_skipped_when_a_required_field_is_missing() {
    let schema = with_spec(&json!({
        "type": "object", "required": ["a"], "properties": { "a": { "type": "integer" } },
        "x-kubernetes-validations": [{ "rule": "self.a > 0" }],
    }));
    assert_eq!(
        errors(&schema, &json!({ "spec": {} }), None),
        [
            "spec.a: Required value",
            "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation",
        ]
    );
}

#[test]
fn cel_values_have_the_types_of_their_schema() {
    let schema = with_spec(&json!({
        "type": "object",
        "properties": {
            "a-b": { "type": "integer" }, "namespace": { "type": "string" }, "under_score": { "type": "string" },
            "number": { "type": "number" },
            "time": { "type": "string", "format": "date-time" },
            "map": { "type": "object", "additionalProperties": { "type": "string" } },
            "port": { "x-kubernetes-int-or-string": true },
        },
        "x-kubernetes-validations": [
            { "rule": "self.a__dash__b == 1 && self.__namespace__ == 'n' && self.under_score == 'u'" },
            { "rule": "self.number > 0.5" },
            { "rule": "self.time < timestamp('2030-01-01T00:00:00Z')" },
            { "rule": "self.map['a-b/c'] == 'v' && self.map.all(k, size(k) > 1)" },
            { "rule": "type(self.port) == int ? self.port > 0 : self.port == 'x'" },
            { "rule": "quantity('1Gi').isGreaterThan(quantity('1G'))" },
        ],
    }));
    let object = json!({ "spec": { "a-b": 1, "namespace": "n", "under_score": "u", "number": 1,
        "time": "2026-11-21T00:00:00Z", "map": { "a-b/c": "v" }, "port": 80 } });
    assert_eq!(errors(&schema, &object, None), [""; 0]);
}

#[test]
fn a_schema_with_a_cel_rule_that_does_not_compile_is_rejected() {
    let at = "spec.validation.openAPIV3Schema.x-kubernetes-validations[0]";
    let broken = refused(&json!([{ "rule": "self.spec.a >" }]));
    assert!(broken[0].starts_with(&format!("{at}.rule: Invalid value: {{")), "{broken:?}");
    assert!(broken[0].contains("compilation failed: "), "{broken:?}");
    for (rule, reason) in [
        ("self.spec.b > 1", "ERROR: <input>:1:10: undefined field 'b'\n | self.spec.b > 1\n | .........^"),
        (
            "other == 1",
            "ERROR: <input>:1:1: undeclared reference to 'other' (in container '')\n | other == 1\n | ^",
        ),
    ] {
        let found = refused(&json!([{ "rule": rule }]));
        assert!(found[0].ends_with(reason), "{found:?}");
    }
    assert_eq!(
        refused(&json!([{ "rule": " " }])),
        [format!("{at}.rule: Required value: rule is not specified")]
    );
    assert_eq!(
        refused(&json!([{ "rule": "true", "reason": "Because" }])),
        [format!(
            r#"{at}.reason: Unsupported value: "Because": supported values: "FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired""#
        )]
    );
    assert_eq!(refused(&json!([{ "rule": "self.metadata.name != 'x' && size(self.spec) > 0" }])), [""; 0]);
}

#[test]
fn old_self_in_an_uncorrelatable_list_is_rejected() {
    let schema = json!({ "type": "object", "properties": { "list": { "type": "array", "items": {
        "type": "object", "properties": { "a": { "type": "integer",
            "x-kubernetes-validations": [{ "rule": "self >= oldSelf" }] } } } } } });
    let errors = Structural::parse(&schema).unwrap_err();
    let list = "spec.validation.openAPIV3Schema.properties[list]";
    assert_eq!(
        errors[0].to_string(),
        format!(
            r#"{list}.items.properties[a].x-kubernetes-validations[0].rule: Invalid value: "self >= oldSelf": oldSelf cannot be used on the uncorrelatable portion of the schema within {list}"#
        )
    );
}

#[test]
fn the_deepest_expression_that_compiles_can_be_evaluated() {
    let sum = format!("1{} > 0", " + 1".repeat(110));
    let nested = format!("{}self.a{} > 0", "(1 + ".repeat(40), ")".repeat(40));
    let schema = with_spec(&json!({ "type": "object", "properties": { "a": { "type": "integer" } },
        "x-kubernetes-validations": [{ "rule": sum }, { "rule": nested }] }));
    assert_eq!(errors(&schema, &json!({ "spec": { "a": 1 } }), None), [""; 0]);
}

#[test]
fn oversized_expressions_are_rejected_and_expensive_rules_exceed_the_cost_budget() {
    let deep = format!("{}true{}", "(".repeat(5_000), ")".repeat(5_000));
    let chain = format!("self{} == 1", ".a".repeat(5_000));
    let choice = "true ? true : ".repeat(500) + "true";
    let not = format!("{}true", "!".repeat(15_000));
    let sum = format!("1{} == 1", " + 1".repeat(3_000));
    for rule in [deep, chain, choice, sum] {
        assert!(!refused(&json!([{ "rule": rule }])).is_empty());
    }
    refused(&json!([{ "rule": not }]));
    let schema = with_spec(&json!({
        "type": "array", "items": { "type": "integer" },
        "x-kubernetes-validations": [{ "rule": "self.all(a, self.all(b, self.all(c, a + b + c >= 0)))" }],
    }));
    let object = json!({ "spec": vec![0; 2_000] });
    assert!(errors(&schema, &object, None)[0].contains("running out of cost budget"));
    assert!(errors(&schema, &json!({ "spec": [1, 2] }), None).is_empty());
}
