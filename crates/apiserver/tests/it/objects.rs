//! Create, read, update and delete of single objects.

use crate::harness::{
    CONFIG_MAPS, Cluster, DEFINITIONS, GADGETS, PODS, config_map, gadget, gadget_definition, pod,
};
use serde_json::json;

#[test]
fn an_object_is_created_read_patched_and_deleted() {
    let mut cluster = Cluster::new();
    let created = cluster.create(CONFIG_MAPS, config_map("a"));
    assert_eq!(created["metadata"]["namespace"], "default");
    assert_eq!(created["metadata"]["creationTimestamp"], "2026-01-02T03:04:05Z");
    assert_eq!(cluster.get(&format!("{CONFIG_MAPS}/a")).body, created);
    let patched = cluster.merge(&format!("{CONFIG_MAPS}/a"), json!({ "data": { "b": "2" } }));
    assert_eq!(patched.body["data"], json!({ "a": "1", "b": "2" }));
    let gone = cluster.delete(&format!("{CONFIG_MAPS}/a"));
    assert_eq!(gone.body["status"], "Success");
    assert_eq!(
        gone.body["details"],
        json!({ "name": "a", "kind": "configmaps", "uid": created["metadata"]["uid"] })
    );
    let missing = cluster.get(&format!("{CONFIG_MAPS}/a"));
    assert_eq!(missing.failure(), (404, "configmaps \"a\" not found"));
}

#[test]
fn a_no_op_update_keeps_the_resource_version() {
    let mut cluster = Cluster::new();
    let created = cluster.create(CONFIG_MAPS, config_map("a"));
    let again = cluster.put(&format!("{CONFIG_MAPS}/a"), created.clone());
    assert_eq!(again.body["metadata"]["resourceVersion"], created["metadata"]["resourceVersion"]);
}

#[test]
fn an_update_with_an_old_resource_version_is_a_conflict() {
    let mut cluster = Cluster::new();
    let created = cluster.create(CONFIG_MAPS, config_map("a"));
    cluster.merge(&format!("{CONFIG_MAPS}/a"), json!({ "data": { "b": "2" } }));
    let (code, message) = (
        409,
        "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes to the latest version and try again",
    );
    assert_eq!(cluster.put(&format!("{CONFIG_MAPS}/a"), created).failure(), (code, message));
}

#[test]
fn a_bound_pod_terminates_until_a_deletion_with_zero_grace_period() {
    let mut cluster = Cluster::new();
    cluster.create(PODS, pod("a"));
    let bound =
        cluster.post(&format!("{PODS}/a/binding"), json!({ "target": { "kind": "Node", "name": "n" } }));
    assert_eq!(bound.code, 201, "{}", bound.text);
    let marked = cluster.delete(&format!("{PODS}/a"));
    assert_eq!(marked.body["metadata"]["deletionGracePeriodSeconds"], 30);
    assert_eq!(marked.body["metadata"]["deletionTimestamp"], "2026-01-02T03:04:35Z");
    let options = json!({ "gracePeriodSeconds": 0 }).to_string();
    let confirmed = cluster.send("DELETE", &format!("{PODS}/a"), &[], options);
    assert_eq!(confirmed.body["kind"], "Pod", "{}", confirmed.text);
    assert_eq!(cluster.get(&format!("{PODS}/a")).code, 404);
}

#[test]
fn an_unbound_pod_is_deleted_immediately() {
    let mut cluster = Cluster::new();
    cluster.create(PODS, pod("a"));
    assert_eq!(cluster.delete(&format!("{PODS}/a")).body["kind"], "Pod");
    assert_eq!(cluster.get(&format!("{PODS}/a")).code, 404);
}

#[test]
fn custom_resources_of_an_established_definition_are_served_in_every_version() {
    let mut cluster = Cluster::new();
    cluster.create(DEFINITIONS, gadget_definition());
    cluster.settle();
    cluster.create(GADGETS, gadget("g"));
    let alpha = cluster.get("/apis/example.com/v1alpha1/namespaces/default/gadgets/g");
    assert_eq!(alpha.body["apiVersion"], "example.com/v1alpha1");
    assert_eq!(alpha.body["spec"]["size"], 3);
    assert_eq!(cluster.get(&format!("{GADGETS}?fieldSelector=spec.color%3Dred")).names(), ["g"]);
    assert_eq!(
        cluster.get(&format!("{GADGETS}?fieldSelector=spec.color!%3Dred")).names(),
        Vec::<&str>::new()
    );
}

#[test]
fn status_is_written_only_through_its_subresource() {
    let mut cluster = Cluster::new();
    cluster.create(DEFINITIONS, gadget_definition());
    cluster.settle();
    cluster.create(GADGETS, gadget("g"));
    let path = format!("{GADGETS}/g");
    let both = json!({ "spec": { "size": 4 }, "status": { "ok": true } });
    let main = cluster.merge(&path, both.clone()).body;
    assert_eq!((&main["spec"]["size"], &main["status"]), (&json!(4), &json!(null)));
    assert_eq!(main["metadata"]["generation"], 2);
    let status = cluster
        .merge(&format!("{path}/status"), json!({ "spec": { "size": 9 }, "status": { "ok": 1 } }))
        .body;
    assert_eq!((&status["spec"]["size"], &status["status"]["ok"]), (&json!(4), &json!(1)));
    assert_eq!(status["metadata"]["generation"], 2);
}
