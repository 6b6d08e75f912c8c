//! Tracking of `managedFields` on create, update and patch.

use crate::support;
use apiserver::ssa::{Write, manager_of_user_agent, track};
use jiff::Timestamp;
use serde_json::{Value, json};

fn update(second: i64, manager: &str, old: Option<&Value>, mut new: Value) -> Value {
    let types = support::deployment();
    let write = Write {
        manager,
        api_version: "apps/v1",
        kind: "Deployment",
        subresource: None,
        reset: &[],
        now: Timestamp::from_second(second).expect("a small number of seconds"),
        types: &types,
    };
    track(old, &mut new, &write);
    new
}

fn object(spec: &Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": spec, "metadata": {
        "name": "web", "namespace": "default", "uid": "u", "resourceVersion": "1", "creationTimestamp": "x",
        "generation": 1, "labels": {"app": "web"}}})
}

fn entries(object: &Value) -> &Value {
    &object["metadata"]["managedFields"]
}

/// Formats every entry as `manager@second: fields`.
fn owners(object: &Value) -> Vec<String> {
    let entries = entries(object).as_array().map(Vec::as_slice).unwrap_or_default();
    entries
        .iter()
        .map(|entry| {
            let time = entry["time"].as_str().and_then(|time| time.parse::<Timestamp>().ok());
            let second = time.map_or(-1, Timestamp::as_second);
            format!("{}@{second}: {}", entry["manager"].as_str().unwrap_or_default(), entry["fieldsV1"])
        })
        .collect()
}

#[test]
fn create_makes_its_manager_own_all_fields_except_identity() {
    let created = update(7, "kubectl-create", None, object(&json!({"replicas": 3})));
    assert_eq!(
        *entries(&created),
        json!([{
            "manager": "kubectl-create", "operation": "Update", "apiVersion": "apps/v1",
            "time": "1970-01-01T00:00:07Z", "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
                "f:spec": {".": {}, "f:replicas": {}}
            },
        }])
    );
}

#[test]
fn update_owns_changed_fields_and_releases_removed_fields() {
    let live = update(1, "a", None, object(&json!({"replicas": 3, "paused": true})));
    let mut new = live.clone();
    new["spec"] = json!({"replicas": 4});
    let new = update(2, "b", Some(&live), new);
    assert_eq!(
        owners(&new),
        [
            r#"a@1: {"f:metadata":{"f:labels":{".":{},"f:app":{}}},"f:spec":{}}"#,
            r#"b@2: {"f:spec":{"f:replicas":{}}}"#
        ]
    );
    let again = update(3, "b", Some(&new), new.clone());
    assert_eq!(again, new, "an update without a change changes no time");
    let mut more = new.clone();
    more["spec"]["paused"] = true.into();
    let more = update(4, "b", Some(&new), more);
    assert_eq!(owners(&more)[1], r#"b@4: {"f:spec":{"f:paused":{},"f:replicas":{}}}"#);
}

#[test]
fn list_map_items_are_owned_separately() {
    let spec = |containers: &Value| object(&json!({"template": {"spec": {"containers": containers}}}));
    let live = update(1, "a", None, spec(&json!([{"name": "x", "image": "1"}])));
    let mut new = live.clone();
    new["spec"]["template"]["spec"]["containers"] =
        json!([{"name": "x", "image": "2"}, {"name": "y", "image": "1"}]);
    let new = update(2, "b", Some(&live), new);
    assert_eq!(
        owners(&new)[1],
        concat!(
            r#"b@2: {"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"x\"}":{"f:image":{}},"#,
            r#""k:{\"name\":\"y\"}":{".":{},"f:image":{},"f:name":{}}}}}}}"#
        )
    );
}

#[test]
fn valid_managed_fields_in_a_request_replace_the_stored_ones() {
    let live = update(1, "a", None, object(&json!({"replicas": 3})));
    let with = |entries: Value| {
        let mut new = live.clone();
        new["metadata"]["managedFields"] = entries;
        update(2, "b", Some(&live), new)
    };
    for reset in [json!([]), json!([{}])] {
        let forgotten = with(reset);
        assert_eq!(*entries(&forgotten), Value::Null);
        let mut new = forgotten.clone();
        new["spec"]["replicas"] = 4.into();
        assert_eq!(
            *entries(&update(3, "b", Some(&forgotten), new)),
            Value::Null,
            "nobody is tracked from then on"
        );
    }
    for unsound in [
        Value::Null,
        json!([{"manager": "m", "operation": "Steal", "apiVersion": "apps/v1", "fieldsType": "FieldsV1"}]),
        json!([{"manager": "m", "operation": "Update", "apiVersion": "apps/v1", "fieldsType": "FieldsV1",
            "fieldsV1": {"nonsense": {}}}]),
    ] {
        assert_eq!(with(unsound.clone()), live, "{unsound}");
    }
    let renamed = with(json!([{"manager": "m", "operation": "Apply", "apiVersion": "apps/v1",
        "time": "1970-01-01T00:00:05Z", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:replicas": {".": {}}}}}]));
    assert_eq!(owners(&renamed), [r#"m@5: {"f:spec":{"f:replicas":{}}}"#]);
}

#[test]
fn the_oldest_update_entries_above_ten_are_merged() {
    let mut live = update(0, "first", None, object(&json!({"replicas": 0})));
    for second in 1_i64..=15 {
        let mut new = live.clone();
        new["metadata"]["labels"][format!("l{second}")] = "x".into();
        live = update(second, &format!("m{second}"), Some(&live), new);
    }
    let owners = owners(&live);
    assert_eq!(owners.len(), 10);
    assert!(owners[0].starts_with("ancient-changes@6: "), "{owners:#?}");
    assert!(owners[0].contains("f:replicas") && owners[0].contains("f:l6"));
    assert_eq!(owners[9], r#"m15@15: {"f:metadata":{"f:labels":{"f:l15":{}}}}"#);
}

#[test]
fn duplicate_list_map_items_are_owned_as_one_item() {
    let spec =
        |env: &Value| object(&json!({"template": {"spec": {"containers": [{"name": "x", "env": env}]}}}));
    let twice = json!([{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]);
    let live = update(1, "a", None, spec(&twice));
    assert!(owners(&live)[0].contains(r#""f:env":{".":{},"k:{\"name\":\"A\"}":{}}"#), "{:?}", owners(&live));
    let mut new = live.clone();
    new["spec"]["template"]["spec"]["containers"][0]["env"] = json!([{"name": "A", "value": "1"}]);
    let new = update(2, "b", Some(&live), new);
    assert!(
        owners(&new)[1].contains(r#""k:{\"name\":\"A\"}":{".":{},"f:name":{},"f:value":{}}"#),
        "{:?}",
        owners(&new)
    );
}

#[test]
fn the_default_manager_is_derived_from_the_user_agent() {
    assert_eq!(manager_of_user_agent("kubectl/v1.32.4 (linux/amd64) kubernetes/59526cd"), "kubectl");
    assert_eq!(manager_of_user_agent("a\u{7}b"), "ab");
    assert_eq!(manager_of_user_agent(&"é".repeat(100)).len(), 128);
    assert_eq!(manager_of_user_agent(""), "");
    assert!(owners(&update(1, "", None, object(&json!({}))))[0].starts_with("unknown@1"));
}
