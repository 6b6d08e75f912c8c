//! Custom resources whose definition names a conversion webhook.

use crate::harness::Cluster;
use apiserver::Converter;
use serde_json::{Value, json};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const OLD: &str = "/apis/example.com/v1beta1/namespaces/default/lamps";
const NEW: &str = "/apis/example.com/v1/namespaces/default/lamps";

/// Lamps have a `colour` in `v1beta1` and a `color` in `v1`, which is stored.
fn definition() -> Value {
    let version = |name: &str, field: &str| {
        json!({
            "name": name, "served": true, "storage": name == "v1",
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "properties": {field: {"type": "string"}, "size": {"type": "integer"}}},
                "status": {"type": "object", "properties": {"lit": {"type": "boolean"}}},
            }}},
            "subresources": {"status": {}},
            "additionalPrinterColumns": [{"name": "Color", "type": "string", "jsonPath": format!(".spec.{field}")}],
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "lamps.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "lamps", "singular": "lamp", "kind": "Lamp", "listKind": "LampList"},
            "versions": [version("v1beta1", "colour"), version("v1", "color")],
            "conversion": {"strategy": "Webhook", "webhook": {
                "clientConfig": {"url": "https://127.0.0.1:1/convert"}, "conversionReviewVersions": ["v1"]}},
        },
    })
}

fn convert(object: &mut Value, wanted: &str) -> Result<(), String> {
    let (from, to) = if wanted == "example.com/v1" { ("colour", "color") } else { ("color", "colour") };
    let Some(spec) = object["spec"].as_object_mut() else { return Ok(()) };
    if spec.get(from).is_some_and(|color| color == "invisible") {
        return Err("an invisible lamp has no color".into());
    }
    if let Some(color) = spec.remove(from) {
        spec.insert(to.into(), color);
    }
    Ok(())
}

fn cluster() -> Cluster {
    let mut cluster = Cluster::new();
    cluster.server.convert_with("example.com", Converter::new(convert));
    cluster.create(DEFINITIONS, definition());
    cluster.settle();
    cluster
}

fn lamp(version: &str, spec: &Value) -> Value {
    json!({"apiVersion": format!("example.com/{version}"), "kind": "Lamp", "metadata": {"name": "a"}, "spec": spec})
}

#[test]
fn objects_are_read_and_written_in_every_version() {
    let mut cluster = cluster();
    let created = cluster.create(OLD, lamp("v1beta1", &json!({"colour": "red", "size": 1})));
    assert_eq!(
        (&created["apiVersion"], &created["spec"]),
        (&json!("example.com/v1beta1"), &json!({"colour": "red", "size": 1}))
    );
    let new = cluster.get(&format!("{NEW}/a")).body;
    assert_eq!(
        (&new["apiVersion"], &new["spec"]),
        (&json!("example.com/v1"), &json!({"color": "red", "size": 1}))
    );

    cluster.merge(&format!("{NEW}/a"), json!({"spec": {"color": "blue"}}));
    assert_eq!(cluster.get(&format!("{OLD}/a")).body["spec"]["colour"], "blue");
    cluster.merge(&format!("{OLD}/a"), json!({"spec": {"size": 2}}));
    assert_eq!(cluster.get(&format!("{NEW}/a")).body["spec"], json!({"color": "blue", "size": 2}));
    let mut changed = cluster.get(&format!("{OLD}/a")).body;
    changed["spec"]["colour"] = "green".into();
    assert_eq!(cluster.put(&format!("{OLD}/a"), changed).body["spec"]["colour"], "green");
    let status =
        cluster.merge(&format!("{OLD}/a/status"), json!({"status": {"lit": true}, "spec": {"size": 9}})).body;
    assert_eq!(status["spec"], json!({"colour": "green", "size": 2}));
    assert_eq!(cluster.get(&format!("{NEW}/a")).body["status"], json!({"lit": true}));
}

#[test]
fn lists_tables_and_watches_have_the_version_of_their_request() {
    let mut cluster = cluster();
    cluster.create(NEW, lamp("v1", &json!({"color": "red"})));
    let list = cluster.get(OLD).body;
    assert_eq!(list["items"][0]["spec"], json!({"colour": "red"}));
    let accept = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    for path in [OLD, NEW] {
        let table = cluster.send("GET", path, &accept, "").body;
        assert_eq!(table["rows"][0]["cells"], json!(["a", "red"]), "{path}");
    }
    let mut watch = cluster.watch(&format!("{OLD}?watch=true"));
    assert_eq!(cluster.events(&mut watch)[0]["object"]["spec"], json!({"colour": "red"}));
    cluster.merge(&format!("{NEW}/a"), json!({"spec": {"color": "blue"}}));
    assert_eq!(cluster.events(&mut watch)[0]["object"]["spec"], json!({"colour": "blue"}));
    cluster.delete(&format!("{NEW}/a"));
    assert_eq!(cluster.events(&mut watch)[0]["object"]["spec"], json!({"colour": "blue"}));
}

#[test]
fn an_object_that_a_version_cannot_express_is_not_stored() {
    let mut cluster = cluster();
    for (path, version, field) in [(OLD, "v1beta1", "colour"), (NEW, "v1", "color")] {
        let answer = cluster.post(path, lamp(version, &json!({field: "invisible"})));
        let text = format!(
            "conversion webhook for example.com/{version}, Kind=Lamp failed: an invisible lamp has no color"
        );
        assert_eq!(answer.failure(), (500, text.as_str()));
    }
    assert!(cluster.get(NEW).names().is_empty());
}

#[test]
fn without_a_converter_only_the_stored_version_is_served() {
    let mut cluster = Cluster::new();
    cluster.create(DEFINITIONS, definition());
    cluster.settle();
    cluster.create(NEW, lamp("v1", &json!({"color": "red"})));
    let (code, message) = (
        500,
        "conversion webhook for example.com/v1, Kind=Lamp failed: conversion webhooks are not called, and no converter of group example.com is registered",
    );
    assert_eq!(cluster.get(&format!("{OLD}/a")).failure(), (code, message));
    assert_eq!(cluster.get(OLD).failure().0, 500);
    // A converter may be registered later.
    cluster.server.convert_with("example.com", Converter::new(convert));
    assert_eq!(cluster.get(&format!("{OLD}/a")).body["spec"], json!({"colour": "red"}));
}
