//! Patches and other writes: errors, managed fields, generation and warnings.

use crate::harness::{CONFIG_MAPS, Cluster, PODS, config_map, pod};
use serde_json::json;

fn patch(cluster: &mut Cluster, path: &str, kind: &str, body: &serde_json::Value) -> (u64, String) {
    let kind = format!("application/{kind}");
    let answer = cluster.send("PATCH", path, &[("content-type", &kind)], body.to_string());
    let (code, message) = answer.failure();
    (code, message.to_owned())
}

#[test]
fn a_patch_whose_result_cannot_be_decoded_is_invalid() {
    let mut cluster = Cluster::new();
    cluster.create(PODS, pod("a"));
    let path = format!("{PODS}/a");
    let (code, message) =
        patch(&mut cluster, &path, "strategic-merge-patch+json", &json!({"spec": {"priority": "x"}}));
    assert_eq!(code, 422);
    assert_eq!(
        message,
        r#" "" is invalid: patch: Invalid value: "map[spec:map[priority:x]]": unrecognized type: int32"#
    );
    let (code, message) = patch(&mut cluster, &path, "merge-patch+json", &json!({"spec": {"priority": "x"}}));
    assert_eq!(code, 422);
    assert!(
        message.starts_with(r#" "" is invalid: patch: Invalid value: "{\"apiVersion\":\"v1\""#),
        "{message}"
    );
    assert!(
        message.ends_with(
            "json: cannot unmarshal string into Go struct field PodSpec.spec.priority of type int32"
        )
    );
    let strict = format!("{path}?fieldValidation=Strict");
    let (code, message) = patch(&mut cluster, &strict, "merge-patch+json", &json!({"spec": {"x": 1}}));
    assert_eq!(code, 422);
    assert!(message.ends_with(r#"strict decoding error: unknown field "spec.x""#), "{message}");
}

#[test]
fn a_json_patch_that_does_not_apply_gives_a_generic_error() {
    let mut cluster = Cluster::new();
    cluster.create(CONFIG_MAPS, config_map("a"));
    let body = json!([{"op": "test", "path": "/data/a", "value": "other"}]);
    let failed = patch(&mut cluster, &format!("{CONFIG_MAPS}/a"), "json-patch+json", &body);
    assert_eq!(failed, (422, "the server rejected our request due to an error in our request".into()));
}

#[test]
fn an_immortal_namespace_cannot_be_deleted() {
    let mut cluster = Cluster::new();
    let answer = cluster.delete("/api/v1/namespaces/default");
    assert_eq!(
        answer.failure(),
        (403, "namespaces \"default\" is forbidden: this namespace may not be deleted")
    );
}

#[test]
fn a_create_does_not_own_zero_values_or_fields_that_the_server_adds() {
    let mut cluster = Cluster::new();
    let created = cluster.create("/api/v1/namespaces", json!({"metadata": {"name": "a"}}));
    assert_eq!(
        created["metadata"]["managedFields"][0]["fieldsV1"],
        json!({"f:metadata": {"f:labels": {".": {}, "f:kubernetes.io/metadata.name": {}}}})
    );
}

#[test]
fn a_create_of_a_pod_owns_defaults_but_not_fields_set_by_admission() {
    let mut cluster = Cluster::new();
    let created = cluster.create(PODS, pod("a"));
    let fields = &created["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"];
    assert!(fields["f:dnsPolicy"].is_object() && fields["f:tolerations"].is_null(), "{fields}");
    assert!(fields["f:serviceAccount"].is_null() && fields["."].is_null(), "{fields}");
    assert!(fields["f:containers"]["."].is_null(), "the list is always there: {fields}");
    assert!(created["spec"]["tolerations"].is_array() && created["spec"]["serviceAccount"] == "default");
}

#[test]
fn a_changed_annotation_increments_the_generation_of_a_deployment() {
    let mut cluster = Cluster::new();
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": pod("x")["spec"]});
    cluster.create(
        path,
        json!({"metadata": {"name": "a"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}),
    );
    let annotated = cluster.merge(&format!("{path}/a"), json!({"metadata": {"annotations": {"x": "y"}}}));
    assert_eq!(annotated.body["metadata"]["generation"], 2, "{}", annotated.text);
    let labelled = cluster.merge(&format!("{path}/a"), json!({"metadata": {"labels": {"x": "y"}}}));
    assert_eq!(labelled.body["metadata"]["generation"], 2);
}

#[test]
fn ephemeral_containers_are_written_only_through_their_subresource() {
    let mut cluster = Cluster::new();
    cluster.create(PODS, pod("a"));
    let debug = json!({"spec": {"ephemeralContainers": [{"name": "debug", "image": "busybox"}]}});
    let refused = cluster.merge(&format!("{PODS}/a"), debug.clone());
    assert_eq!(refused.code, 422, "{}", refused.text);
    let written = cluster.merge(&format!("{PODS}/a/ephemeralcontainers"), debug);
    assert_eq!(written.code, 200, "{}", written.text);
    assert_eq!(written.body["spec"]["ephemeralContainers"][0]["name"], "debug");
}

#[test]
fn openapi_v2_is_an_empty_document() {
    let mut cluster = Cluster::new();
    let answer = cluster.get("/openapi/v2");
    assert_eq!(answer.code, 200);
    assert!(answer.text.contains("2.0") && answer.text.contains("Kubernetes"));
}

#[test]
fn an_object_nested_too_deep_is_rejected() {
    let mut cluster = Cluster::new();
    let nested = |levels: usize| {
        format!("{{\"metadata\":{{\"name\":\"a\"}},\"x\":{}1{}}}", "[".repeat(levels), "]".repeat(levels))
    };
    for (levels, code) in [(99, 201), (100, 400), (126, 400)] {
        let json = cluster.send("POST", CONFIG_MAPS, &[], nested(levels));
        assert_eq!(json.code, code, "{levels}: {}", json.text);
    }
    let patch = json!([{"op": "add", "path": "/data", "value": {}}, {"op": "add", "path": "/data/a".repeat(60), "value": {}}]);
    let kind = [("content-type", "application/json-patch+json")];
    let answer = cluster.send("PATCH", &format!("{CONFIG_MAPS}/a"), &kind, patch.to_string());
    assert_eq!(answer.code, 422, "{}", answer.text);
}

#[test]
fn strict_field_validation_reports_all_duplicate_and_unknown_fields() {
    let mut cluster = Cluster::new();
    let body = r#"{"metadata":{"name":"a"},"data":{"a":"1","a":"2"},"x":1}"#;
    let strict = format!("{CONFIG_MAPS}?fieldValidation=Strict");
    let refused = cluster.send("POST", &strict, &[], body);
    let why = "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: \
               duplicate field \"data.a\", unknown field \"x\"";
    assert_eq!(refused.failure(), (400, why));
    assert_eq!(cluster.send("POST", CONFIG_MAPS, &[], body).code, 201);
}

#[test]
fn a_field_manager_longer_than_the_limit_is_rejected() {
    let mut cluster = Cluster::new();
    let path = format!("{CONFIG_MAPS}?fieldManager={}", "m".repeat(129));
    let refused = cluster.post(&path, config_map("a"));
    let why =
        "CreateOptions.meta.k8s.io \"\" is invalid: fieldManager: Too long: may not be more than 128 bytes";
    assert_eq!(refused.failure(), (422, why));
}

#[test]
fn an_apply_may_have_a_resource_version_but_not_another_uid() {
    let mut cluster = Cluster::new();
    let apply = |cluster: &mut Cluster, metadata: serde_json::Value| {
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
        let kind = [("content-type", "application/apply-patch+yaml")];
        cluster.send("PATCH", &format!("{CONFIG_MAPS}/a?fieldManager=m"), &kind, body.to_string())
    };
    let why = "Operation cannot be fulfilled on configmaps \"a\": uid mismatch: the provided object specified uid u, \
               and no existing object was found";
    assert_eq!(apply(&mut cluster, json!({"name": "a", "uid": "u"})).failure(), (409, why));
    assert_eq!(apply(&mut cluster, json!({"name": "a", "resourceVersion": "5"})).code, 201);
    let why = "ConfigMap \"a\" is invalid: metadata.uid: Invalid value: \"u\": field is immutable";
    assert_eq!(apply(&mut cluster, json!({"name": "a", "uid": "u"})).failure(), (422, why));
    assert_eq!(apply(&mut cluster, json!({"name": "a", "resourceVersion": "5"})).code, 409);
}
