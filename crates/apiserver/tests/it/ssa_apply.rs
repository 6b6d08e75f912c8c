//! Server-side apply: ownership, conflicts, removal of fields, list order, and migration from client-side apply.

use crate::support;
use apiserver::ssa::{ApplyError, Write, apply, track};
use apiserver::typeinfo::{TypeInfo, UNTYPED};
use jiff::Timestamp;
use serde_json::{Value, json};

fn write<'a>(manager: &'a str, types: &'a dyn TypeInfo) -> Write<'a> {
    Write {
        manager,
        api_version: "apps/v1",
        kind: "Deployment",
        subresource: None,
        reset: &[&["status"]],
        now: Timestamp::UNIX_EPOCH,
        types,
    }
}

/// A configuration with the given spec.
fn config(spec: &Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"}, "spec": spec})
}

fn containers(containers: &Value) -> Value {
    config(&json!({"template": {"spec": {"containers": containers}}}))
}

/// Formats every entry as `manager operation: fields`.
fn owners(object: &Value) -> Vec<String> {
    let entries = object.pointer("/metadata/managedFields").and_then(Value::as_array);
    let entries = entries.into_iter().flatten();
    entries
        .map(|entry| {
            let text = |name: &str| entry[name].as_str().unwrap_or_default();
            let subresource = if text("subresource").is_empty() { "" } else { "/" };
            format!(
                "{} {}{subresource}{}: {}",
                text("manager"),
                text("operation"),
                text("subresource"),
                entry["fieldsV1"]
            )
        })
        .collect()
}

fn apply_as(manager: &str, live: Option<&Value>, config: &Value) -> Result<Value, ApplyError> {
    apply(live, config, false, &write(manager, &support::deployment()))
}

fn force_as(manager: &str, live: &Value, config: &Value) -> Value {
    apply(Some(live), config, true, &write(manager, &support::deployment()))
        .expect("a forced apply has no conflict")
}

fn update_as(manager: &str, old: Option<&Value>, mut new: Value) -> Value {
    track(old, &mut new, &write(manager, &support::deployment()));
    new
}

#[test]
fn apply_creates_an_object_owned_by_its_manager() {
    let created = apply_as("a", None, &config(&json!({"replicas": 3}))).unwrap();
    let expected = json!([{
        "manager": "a", "operation": "Apply", "apiVersion": "apps/v1", "time": "1970-01-01T00:00:00Z",
        "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:replicas": {}}},
    }]);
    assert_eq!(created["metadata"]["managedFields"], expected);
    assert_eq!(created["spec"], json!({"replicas": 3}));
}

#[test]
fn changing_a_field_of_another_manager_conflicts_unless_forced() {
    let live = update_as("kubectl-create", None, config(&json!({"replicas": 3, "paused": true})));
    let error = apply_as("a", Some(&live), &config(&json!({"replicas": 5}))).unwrap_err();
    assert_eq!((error.code(), error.reason()), (409, "Conflict"));
    assert_eq!(
        error.to_string(),
        r#"Apply failed with 1 conflict: conflict with "kubectl-create" using apps/v1: .spec.replicas"#
    );
    assert_eq!(
        error.causes(),
        [json!({"reason": "FieldManagerConflict", "field": ".spec.replicas",
            "message": r#"conflict with "kubectl-create" using apps/v1"#})]
    );

    let error = apply_as("a", Some(&live), &config(&json!({"replicas": 5, "paused": false}))).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Apply failed with 2 conflicts: conflicts with \"kubectl-create\" using apps/v1:\n- .spec.paused\n- .spec.replicas"
    );

    let forced = force_as("a", &live, &config(&json!({"replicas": 5})));
    assert_eq!(
        owners(&forced),
        [
            r#"a Apply: {"f:spec":{"f:replicas":{}}}"#,
            r#"kubectl-create Update: {"f:spec":{".":{},"f:paused":{}}}"#
        ]
    );

    let shared = apply_as("a", Some(&live), &config(&json!({"replicas": 3}))).unwrap();
    assert_eq!(
        owners(&shared),
        [
            r#"a Apply: {"f:spec":{"f:replicas":{}}}"#,
            r#"kubectl-create Update: {"f:spec":{".":{},"f:paused":{},"f:replicas":{}}}"#
        ]
    );
}

#[test]
fn conflict_messages_omit_the_version_of_apply_managers_and_name_the_subresource() {
    let live = apply_as("a", None, &config(&json!({"replicas": 3}))).unwrap();
    let error = apply_as("b", Some(&live), &config(&json!({"replicas": 5}))).unwrap_err();
    assert_eq!(error.to_string(), r#"Apply failed with 1 conflict: conflict with "a": .spec.replicas"#);

    let types = support::deployment();
    let mut scaled = live.clone();
    scaled["spec"]["replicas"] = 4.into();
    track(Some(&live), &mut scaled, &Write { subresource: Some("scale"), ..write("hpa", &types) });
    assert_eq!(owners(&scaled), [r#"hpa Update/scale: {"f:spec":{"f:replicas":{}}}"#]);
    let error = apply_as("a", Some(&scaled), &config(&json!({"replicas": 5}))).unwrap_err();
    assert_eq!(
        error.to_string(),
        r#"Apply failed with 1 conflict: conflict with "hpa" with subresource "scale" using apps/v1: .spec.replicas"#
    );
}

#[test]
fn fields_no_longer_applied_are_removed_unless_another_manager_owns_them() {
    let first = containers(&json!([{"name": "a", "image": "x", "args": ["1"]}, {"name": "b", "image": "y"}]));
    let live = apply_as("a", None, &first).unwrap();
    // A default without an owner stays with an item that is kept and is removed with an item that is removed.
    let mut defaulted = live.clone();
    defaulted["spec"]["template"]["spec"]["containers"][0]["env"] = json!([{"name": "D"}]);
    defaulted["spec"]["template"]["spec"]["containers"][1]["env"] = json!([{"name": "D"}]);
    let live = apply_as("a", Some(&defaulted), &containers(&json!([{"name": "a", "image": "x"}]))).unwrap();
    assert_eq!(
        live["spec"]["template"]["spec"]["containers"],
        json!([{"name": "a", "image": "x", "env": [{"name": "D"}]}])
    );

    let live = apply_as("b", Some(&live), &containers(&json!([{"name": "a", "args": ["2"]}]))).unwrap();
    let live = apply_as("a", Some(&live), &config(&json!({"replicas": 1}))).unwrap();
    assert_eq!(
        live["spec"]["template"]["spec"]["containers"],
        json!([{"name": "a", "args": ["2"], "env": [{"name": "D"}]}]),
        "the item is still owned by the other applier, the image is not"
    );
    let live = apply_as("b", Some(&live), &config(&json!({}))).unwrap();
    assert_eq!(live["spec"], json!({"replicas": 1}));
    assert_eq!(owners(&live), [r#"a Apply: {"f:spec":{"f:replicas":{}}}"#, r#"b Apply: {"f:spec":{}}"#]);
}

#[test]
fn applied_list_items_keep_their_order_around_items_of_other_managers() {
    struct Case {
        name: &'static str,
        live: Value,
        applied: Value,
        expected: &'static str,
    }
    let named = |names: &str| json!(names.split(' ').map(|name| json!({"name": name})).collect::<Vec<_>>());
    let cases = [
        Case { name: "append", live: named("a b"), applied: named("c"), expected: "a b c" },
        Case { name: "keep", live: named("a b c"), applied: named("a c"), expected: "a b c" },
        Case { name: "reorder", live: named("a b c"), applied: named("c a"), expected: "b c a" },
        Case { name: "insert between", live: named("a x b"), applied: named("a n b"), expected: "a x n b" },
        Case { name: "insert first", live: named("a b"), applied: named("n a"), expected: "n a b" },
    ];
    for case in cases {
        let live = update_as("other", None, containers(&case.live));
        let merged = apply_as("a", Some(&live), &containers(&case.applied)).unwrap();
        let items = merged.pointer("/spec/template/spec/containers").unwrap().as_array().unwrap();
        let names: Vec<_> = items.iter().map(|item| item["name"].as_str().unwrap()).collect();
        assert_eq!(names.join(" "), case.expected, "{}", case.name);
    }
}

#[test]
fn set_items_are_owned_separately_and_atomic_values_as_a_whole() {
    let metadata = |finalizers: &Value| json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "finalizers": finalizers}});
    let live = apply_as("a", None, &metadata(&json!(["x", "y"]))).unwrap();
    assert_eq!(owners(&live), [r#"a Apply: {"f:metadata":{"f:finalizers":{"v:\"x\"":{},"v:\"y\"":{}}}}"#]);
    let live = apply_as("b", Some(&live), &metadata(&json!(["y", "z"]))).unwrap();
    assert_eq!(live["metadata"]["finalizers"], json!(["x", "y", "z"]));
    let live = apply_as("a", Some(&live), &metadata(&json!(["x"]))).unwrap();
    assert_eq!(live["metadata"]["finalizers"], json!(["x", "y", "z"]), "y is owned by another manager");
    let live = apply_as("b", Some(&live), &metadata(&json!([]))).unwrap();
    assert_eq!(live["metadata"]["finalizers"], json!(["x"]));

    let selector = |labels: &Value| config(&json!({"selector": {"matchLabels": labels}}));
    let live = apply_as("a", None, &selector(&json!({"app": "web"}))).unwrap();
    assert_eq!(owners(&live), [r#"a Apply: {"f:spec":{"f:selector":{}}}"#]);
    let error = apply_as("b", Some(&live), &selector(&json!({"tier": "x"}))).unwrap_err();
    assert_eq!(error.to_string(), r#"Apply failed with 1 conflict: conflict with "a": .spec.selector"#);
}

#[test]
fn a_list_map_key_with_a_default_may_be_omitted() {
    let live =
        apply_as("a", None, &containers(&json!([{"name": "a", "ports": [{"containerPort": 80}]}]))).unwrap();
    assert!(
        owners(&live)[0]
            .contains(r#""k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{}}"#)
    );
    let mut defaulted = live;
    defaulted["spec"]["template"]["spec"]["containers"][0]["ports"][0]["protocol"] = "TCP".into();
    let config = containers(&json!([{"name": "a", "ports": [{"containerPort": 80, "name": "http"}]}]));
    let live = apply_as("a", Some(&defaulted), &config).unwrap();
    assert_eq!(
        live["spec"]["template"]["spec"]["containers"][0]["ports"],
        json!([{"containerPort": 80, "protocol": "TCP", "name": "http"}])
    );
}

#[test]
fn an_invalid_configuration_is_rejected_with_the_message_of_kube_apiserver() {
    let prefix = "failed to create typed patch object (default/web; apps/v1, Kind=Deployment): ";
    let cases = [
        (config(&json!({"foo": 1})), ".spec.foo: field not declared in schema"),
        (config(&json!({"replicas": "3"})), ".spec.replicas: expected numeric (int or float), got string"),
        (
            containers(&json!([{"name": "a", "env": [{"name": "A", "value": true}]}])),
            r#".spec.template.spec.containers[name="a"].env[name="A"].value: expected string, got &value.valueUnstructured{Value:true}"#,
        ),
        (
            containers(&json!({"name": "a"})),
            ".spec.template.spec.containers: expected list, got &{map[name:a]}",
        ),
        (config(&json!({"strategy": "Recreate"})), ".spec.strategy: expected map, got &{Recreate}"),
        (
            containers(&json!([{"image": "x"}])),
            r#".spec.template.spec.containers: element 0: associative list with keys has an element that omits all key fields ["name"] (and doesn't have default values for any key fields)"#,
        ),
        (
            containers(&json!([{"name": "a"}, {"name": "a"}])),
            r#".spec.template.spec.containers: duplicate entries for key [name="a"]"#,
        ),
        (
            config(&json!({"replicas": "3", "paused": "no"})),
            "errors:\n  .spec.paused: expected boolean, got &{no}\n  .spec.replicas: expected numeric (int or float), got string",
        ),
    ];
    for (config, message) in cases {
        let error = apply_as("a", None, &config).unwrap_err();
        assert_eq!((error.code(), error.to_string()), (500, format!("{prefix}{message}")));
    }

    let mut managed = config(&json!({}));
    managed["metadata"]["managedFields"] = json!([]);
    let error = apply_as("a", None, &managed).unwrap_err();
    assert_eq!((error.code(), error.to_string()), (400, "metadata.managedFields must be nil".into()));
    let error = apply_as("a", None, &json!({"apiVersion": "apps/v1", "kind": "Pod"})).unwrap_err();
    assert_eq!((error.code(), error.to_string()), (400, "invalid object type: apps/v1, Kind=Pod".into()));
}

#[test]
fn existing_fields_of_an_untracked_object_are_owned_by_before_first_apply() {
    let live = config(&json!({"replicas": 3}));
    let error = apply_as("a", Some(&live), &config(&json!({"replicas": 5}))).unwrap_err();
    assert_eq!(
        error.to_string(),
        r#"Apply failed with 1 conflict: conflict with "before-first-apply" using apps/v1: .spec.replicas"#
    );
    let applied = apply_as("a", Some(&live), &config(&json!({"paused": true}))).unwrap();
    assert_eq!(
        owners(&applied),
        [
            r#"a Apply: {"f:spec":{"f:paused":{}}}"#,
            r#"before-first-apply Update: {"f:spec":{".":{},"f:replicas":{}}}"#
        ]
    );
}

#[test]
fn applying_the_same_configuration_again_changes_nothing() {
    let types = support::deployment();
    let configuration = containers(&json!([{"name": "a", "image": "x"}]));
    let live = apply_as("a", None, &configuration).unwrap();
    let later = Write { now: Timestamp::from_second(1_000).unwrap(), ..write("a", &types) };
    assert_eq!(apply(Some(&live), &configuration, false, &later).unwrap(), live);
}

#[test]
fn reset_fields_are_neither_owned_nor_in_conflict() {
    let types = support::deployment();
    let live = apply_as("a", None, &config(&json!({"replicas": 3}))).unwrap();
    let mut reported = live.clone();
    reported["status"] = json!({"replicas": 3});
    let status = Write { subresource: Some("status"), reset: &[&["spec"]], ..write("controller", &types) };
    track(Some(&live), &mut reported, &status);
    let mut configuration = config(&json!({"replicas": 3}));
    configuration["status"] = json!({"replicas": 9});
    let applied = apply_as("a", Some(&reported), &configuration).unwrap();
    assert_eq!(
        owners(&applied),
        [
            r#"a Apply: {"f:spec":{"f:replicas":{}}}"#,
            r#"controller Update/status: {"f:status":{".":{},"f:replicas":{}}}"#
        ]
    );

    let conditions = |status: &str| {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
            "status": {"conditions": [{"type": "Ready", "status": status}]}})
    };
    let by_status = Write { manager: "b", ..status };
    let applied = apply(Some(&reported), &conditions("True"), false, &by_status).unwrap();
    assert_eq!(
        applied["status"],
        json!({"replicas": 3, "conditions": [{"type": "Ready", "status": "True"}]})
    );
    assert!(
        owners(&applied)
            .iter()
            .any(|owner| owner.starts_with(r#"b Apply/status: {"f:status":{"f:conditions""#))
    );
}

#[test]
fn kubectl_takes_over_fields_of_its_client_side_apply() {
    let old = config(&json!({"replicas": 3}));
    let mut live = old.clone();
    live["metadata"]["annotations"] =
        json!({"kubectl.kubernetes.io/last-applied-configuration": old.to_string()});
    let live = update_as("kubectl-client-side-apply", None, live);

    let error = apply_as("other", Some(&live), &config(&json!({"replicas": 5}))).unwrap_err();
    assert_eq!(error.code(), 409);
    let new = config(&json!({"replicas": 5}));
    let applied = apply_as("kubectl", Some(&live), &new).unwrap();
    assert_eq!(applied["spec"]["replicas"], 5);
    let annotation = &applied["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"];
    assert_eq!(annotation.as_str().unwrap(), format!("{new}\n"));
    assert_eq!(owners(&applied)[0], r#"kubectl Apply: {"f:spec":{"f:replicas":{}}}"#);

    // When another manager changed the value since, `kubectl` gets a conflict as well.
    let mut edited = live.clone();
    edited["spec"]["replicas"] = 4.into();
    let edited = update_as("editor", Some(&live), edited);
    let error = apply_as("kubectl", Some(&edited), &new).unwrap_err();
    assert_eq!(
        error.to_string(),
        r#"Apply failed with 1 conflict: conflict with "editor" using apps/v1: .spec.replicas"#
    );
}

#[test]
fn untyped_fields_are_owned_separately_and_untyped_lists_as_a_whole() {
    let types = UNTYPED;
    let write = |manager| Write { api_version: "x.dev/v1", kind: "Thing", ..write(manager, &types) };
    let thing = |spec: &Value| json!({"apiVersion": "x.dev/v1", "kind": "Thing", "metadata": {"name": "t"}, "spec": spec});
    let live = apply(None, &thing(&json!({"a": {"b": 1}, "list": [1, 2]})), false, &write("a")).unwrap();
    assert_eq!(owners(&live), [r#"a Apply: {"f:spec":{".":{},"f:a":{".":{},"f:b":{}},"f:list":{}}}"#]);
    let error = apply(Some(&live), &thing(&json!({"list": [1]})), false, &write("b")).unwrap_err();
    assert_eq!(error.to_string(), r#"Apply failed with 1 conflict: conflict with "a": .spec.list"#);
    let live = apply(Some(&live), &thing(&json!({"a": {"c": 1}})), false, &write("b")).unwrap();
    assert_eq!(live["spec"], json!({"a": {"b": 1, "c": 1}, "list": [1, 2]}));
}
