//! Built-in `OpenAPI` types: decoding of objects, and the generated documents.

use apiserver::openapi::{CustomResource, ResourceInfo, SubresourceInfo, builtin, document, hash, index};
use serde_json::{Value, json};

fn decode(group: &str, kind: &str, mut object: Value) -> Result<(Value, Vec<String>), String> {
    let unknown = builtin(group, "v1", kind)
        .expect("the kind is built in")
        .decode(&mut object)
        .map_err(|error| error.to_string())?;
    Ok((object, unknown))
}

#[test]
fn decoding_drops_unknown_fields_and_nulls_and_writes_empty_values_as_go_does() {
    let (pod, unknown) = decode(
        "",
        "Pod",
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": "p", "creationTimestamp": null, "labels": {}, "annotations": null },
            "spec": {
                "hostNetwork": false, "terminationGracePeriodSeconds": 0, "nodeName": "", "foo": 1,
                "containers": [{ "name": "c", "image": "i", "bar": {}, "env": [{ "name": "E", "value": "" }],
                                 "resources": { "limits": { "cpu": 1, "memory": "1024Mi" } }, "args": null }],
            },
        }),
    )
    .unwrap();
    assert_eq!(unknown, ["spec.containers[0].bar", "spec.foo"]);
    assert_eq!(
        pod,
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p" },
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "containers": [{ "name": "c", "image": "i", "env": [{ "name": "E" }],
                                 "resources": { "limits": { "cpu": "1", "memory": "1Gi" } } }],
            },
            "status": {},
        })
    );
}

#[test]
fn a_wrong_type_gives_the_error_of_the_go_decoder() {
    for (group, kind, object, expected) in [
        (
            "apps",
            "Deployment",
            json!({ "spec": { "replicas": "three" } }),
            "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            "",
            "Pod",
            json!({ "spec": { "containers": { "name": "c" } } }),
            "json: cannot unmarshal object into Go struct field PodSpec.spec.containers of type []v1.Container",
        ),
        (
            "",
            "Pod",
            json!({ "spec": { "containers": [{ "ports": [{ "containerPort": 99_999_999_999i64 }] }] } }),
            "json: cannot unmarshal number 99999999999 into Go struct field ContainerPort.spec.containers.ports.containerPort of type int32",
        ),
        (
            "",
            "Pod",
            json!({ "metadata": { "labels": { "a": 1 } } }),
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string",
        ),
        (
            "",
            "Pod",
            json!({ "spec": { "overhead": { "cpu": "lots" } } }),
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        ("", "Secret", json!({ "data": { "a": "%" } }), "illegal base64 data at input byte 0"),
        (
            "",
            "Pod",
            json!({ "metadata": { "deletionTimestamp": "soon" } }),
            r#"parsing time "soon" as "2006-01-02T15:04:05Z07:00": cannot parse "soon" as "2006""#,
        ),
    ] {
        assert_eq!(decode(group, kind, object).unwrap_err(), expected);
    }
}

#[test]
fn base64_with_line_breaks_decodes() {
    let (decoded, _) = decode("", "Secret", json!({ "data": { "a": "aGVs\r\nbG8=\n" } })).unwrap();
    assert_eq!(decoded["data"]["a"], "aGVsbG8=");
}

#[test]
fn decoding_is_idempotent() {
    let object = json!({
        "metadata": { "name": "n", "creationTimestamp": "2026-11-21T03:00:00.5+01:00" },
        "status": { "capacity": { "cpu": "1.5", "memory": "0.5Gi" }, "conditions": [{ "type": "Ready", "status": "True" }] },
    });
    let (once, _) = decode("", "Node", object).unwrap();
    assert_eq!(once["metadata"]["creationTimestamp"], "2026-11-21T02:00:00Z");
    assert_eq!(once["status"]["capacity"], json!({ "cpu": "1500m", "memory": "512Mi" }));
    let (twice, unknown) = decode("", "Node", once.clone()).unwrap();
    assert_eq!(once, twice);
    assert!(unknown.is_empty());
}

#[test]
fn schemas_in_definitions_are_not_pruned() {
    let schema = json!({ "type": "object", "properties": { "a": { "type": "array", "items": { "type": "string" } },
        "b": { "additionalProperties": true, "x-kubernetes-preserve-unknown-fields": true, "default": { "x": [1] } } } });
    let object = json!({ "metadata": { "name": "t" }, "spec": { "group": "g", "scope": "Cluster", "names": { "plural": "ts", "kind": "T" },
        "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } }] } });
    let (decoded, unknown) = decode("apiextensions.k8s.io", "CustomResourceDefinition", object).unwrap();
    assert!(unknown.is_empty(), "{unknown:?}");
    assert_eq!(decoded["spec"]["versions"][0]["schema"]["openAPIV3Schema"], schema);
}

#[test]
fn deeply_nested_schemas_in_definitions_decode() {
    let mut schema = json!({ "type": "string" });
    for _ in 0..55 {
        schema = json!({ "type": "object", "properties": { "a": schema } });
    }
    let text = json!({ "spec": { "versions": [{ "schema": { "openAPIV3Schema": schema } }] } }).to_string();
    let object = serde_json::from_str(&text).expect("the parser takes 127 levels");
    let (decoded, unknown) = decode("apiextensions.k8s.io", "CustomResourceDefinition", object).unwrap();
    assert!(unknown.is_empty());
    assert_eq!(decoded["spec"]["versions"][0]["schema"]["openAPIV3Schema"], schema);
}

const VERBS: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

fn resource<'a>(group: &'a str, version: &'a str, kind: &'a str, plural: &'a str) -> ResourceInfo<'a> {
    let status = SubresourceInfo { name: "status", kind: ("", "", ""), verbs: &["get", "patch", "update"] };
    ResourceInfo { group, version, kind, plural, namespaced: true, verbs: VERBS, subresources: vec![status] }
}

#[test]
fn a_document_has_the_extensions_that_kubectl_reads() {
    let pods = [resource("", "v1", "Pod", "pods")];
    let document = document("", "v1", &pods, &[]);
    let patch = &document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"];
    assert_eq!(
        patch["x-kubernetes-group-version-kind"],
        json!({ "group": "", "version": "v1", "kind": "Pod" })
    );
    assert_eq!(patch["x-kubernetes-action"], "patch");
    let names: Vec<&str> =
        patch["parameters"].as_array().unwrap().iter().filter_map(|one| one["name"].as_str()).collect();
    assert_eq!(names, ["dryRun", "fieldManager", "fieldValidation", "force"]);
    let schemas = document["components"]["schemas"].as_object().unwrap();
    for name in ["io.k8s.api.core.v1.Pod", "io.k8s.api.core.v1.PodSpec", "io.k8s.api.core.v1.PodList"] {
        assert!(schemas[name]["description"].is_string(), "{name}");
    }
    assert!(!schemas.contains_key("io.k8s.api.core.v1.Node"));
    assert!(document["paths"].get("/api/v1/namespaces/{namespace}/pods/{name}/status").is_some());
    every_reference_resolves(&document, &document);
}

fn every_reference_resolves(document: &Value, at: &Value) {
    match at {
        Value::Object(fields) => {
            for (name, field) in fields {
                if let ("$ref", Some(target)) = (name.as_str(), field.as_str()) {
                    assert!(document.pointer(target.trim_start_matches('#')).is_some(), "{target}");
                }
                every_reference_resolves(document, field);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| every_reference_resolves(document, item)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn a_custom_resource_schema_includes_object_metadata() {
    let schema = json!({ "type": "object", "description": "A thing.", "properties": { "spec": {
        "type": "object", "description": "What is wanted.", "properties": {
            "size": { "x-kubernetes-int-or-string": true },
            "pod": { "type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true },
        } } } });
    let custom = CustomResource {
        group: "example.com",
        version: "v1",
        kind: "Thing",
        plural: "things",
        list_kind: "ThingList",
        schema: &schema,
    };
    let things = [resource("example.com", "v1", "Thing", "things")];
    let document = document("example.com", "v1", &things, &[custom]);
    let thing = &document["components"]["schemas"]["com.example.v1.Thing"];
    assert_eq!(
        thing["x-kubernetes-group-version-kind"],
        json!([{ "group": "example.com", "version": "v1", "kind": "Thing" }])
    );
    assert_eq!(thing["properties"]["spec"]["description"], "What is wanted.");
    let meta = "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
    assert_eq!(thing["properties"]["metadata"]["allOf"][0]["$ref"], meta);
    let spec = &thing["properties"]["spec"]["properties"];
    assert_eq!(spec["size"]["anyOf"], json!([{ "type": "integer" }, { "type": "string" }]));
    assert_eq!(spec["pod"]["properties"]["metadata"]["allOf"][0]["$ref"], meta);
    assert_eq!(spec["pod"]["required"], json!(["kind", "apiVersion"]));
    assert!(document["components"]["schemas"]["com.example.v1.ThingList"]["properties"]["items"].is_object());
    every_reference_resolves(&document, &document);
}

#[test]
fn the_index_links_documents_by_content_hash() {
    let schema = Value::Null;
    let custom = CustomResource {
        group: "example.com",
        version: "v1",
        kind: "Thing",
        plural: "things",
        list_kind: "ThingList",
        schema: &schema,
    };
    let things = [resource("example.com", "v1", "Thing", "things")];
    let before = hash("example.com", "v1", &things, &[custom]);
    let other = json!({ "type": "object" });
    assert_ne!(before, hash("example.com", "v1", &things, &[CustomResource { schema: &other, ..custom }]));
    let index = index([("", "v1", "AB".to_owned()), ("example.com", "v1", before.clone())]);
    assert_eq!(index["paths"]["api/v1"]["serverRelativeURL"], "/openapi/v3/api/v1?hash=AB");
    assert_eq!(
        index["paths"]["apis/example.com/v1"]["serverRelativeURL"],
        format!("/openapi/v3/apis/example.com/v1?hash={before}")
    );
}

#[test]
fn enum_fields_list_their_values() {
    let pods = [resource("", "v1", "Pod", "pods")];
    let document = document("", "v1", &pods, &[]);
    let spec = &document["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"]["properties"];
    assert_eq!(spec["restartPolicy"]["enum"], json!(["Always", "Never", "OnFailure"]));
    let description = spec["restartPolicy"]["description"].as_str().unwrap();
    assert!(description.contains("Possible enum values"), "{description}");
}
