//! The built-in controllers: garbage collection, namespaces, custom resource definitions and expiry of events.

use crate::harness::{CONFIG_MAPS, Cluster, DEFINITIONS, GADGETS, config_map, gadget, gadget_definition};
use serde_json::{Value, json};

/// A config map with an owner reference to another config map.
fn owned(name: &str, owner: &Value, block: bool) -> Value {
    let mut value = config_map(name);
    value["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
        "controller": true, "blockOwnerDeletion": block,
    }]);
    value
}

fn cluster_with_owner_chain(block: bool) -> Cluster {
    let mut cluster = Cluster::new();
    let parent = cluster.create(CONFIG_MAPS, config_map("parent"));
    let child = cluster.create(CONFIG_MAPS, owned("child", &parent, block));
    cluster.create(CONFIG_MAPS, owned("grandchild", &child, block));
    cluster.settle();
    cluster
}

fn remaining(cluster: &mut Cluster) -> Vec<String> {
    let list = cluster.get(CONFIG_MAPS);
    list.names().into_iter().filter(|name| *name != "kube-root-ca.crt").map(String::from).collect()
}

fn delete(cluster: &mut Cluster, policy: &str) {
    let answer = cluster.delete(&format!("{CONFIG_MAPS}/parent?propagationPolicy={policy}"));
    assert_eq!(answer.code, 200, "{}", answer.text);
}

#[test]
fn background_deletion_deletes_the_dependents_after_the_owner() {
    let mut cluster = cluster_with_owner_chain(true);
    delete(&mut cluster, "Background");
    assert_eq!(remaining(&mut cluster), ["child", "grandchild"]);
    cluster.settle();
    assert!(remaining(&mut cluster).is_empty());
}

#[test]
fn foreground_deletion_deletes_the_owner_after_its_dependents() {
    let mut cluster = cluster_with_owner_chain(true);
    cluster.merge(
        &format!("{CONFIG_MAPS}/grandchild"),
        json!({ "metadata": { "finalizers": ["example.com/hold"] } }),
    );
    delete(&mut cluster, "Foreground");
    cluster.settle();
    assert_eq!(remaining(&mut cluster), ["child", "grandchild", "parent"]);
    cluster.merge(&format!("{CONFIG_MAPS}/grandchild"), json!({ "metadata": { "finalizers": null } }));
    cluster.settle();
    assert!(remaining(&mut cluster).is_empty());
}

#[test]
fn orphan_deletion_keeps_dependents_and_removes_their_owner_reference() {
    let mut cluster = cluster_with_owner_chain(true);
    delete(&mut cluster, "Orphan");
    cluster.settle();
    assert_eq!(remaining(&mut cluster), ["child", "grandchild"]);
    let child = cluster.get(&format!("{CONFIG_MAPS}/child")).body;
    assert_eq!(child["metadata"].get("ownerReferences"), None);
}

#[test]
fn an_object_whose_owner_does_not_exist_is_collected() {
    let mut cluster = Cluster::new();
    let ghost = json!({ "metadata": { "name": "ghost", "uid": "no-such-uid" } });
    cluster.create(CONFIG_MAPS, owned("lost", &ghost, false));
    cluster.settle();
    assert!(remaining(&mut cluster).is_empty());
}

#[test]
fn an_object_with_an_existing_owner_loses_only_dangling_owner_references() {
    let mut cluster = Cluster::new();
    let living = cluster.create(CONFIG_MAPS, config_map("living"));
    let mut child = owned("child", &living, false);
    let dead = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "dead", "uid": "dead" });
    child["metadata"]["ownerReferences"].as_array_mut().unwrap().push(dead);
    cluster.create(CONFIG_MAPS, child);
    cluster.settle();
    let child = cluster.get(&format!("{CONFIG_MAPS}/child")).body;
    assert_eq!(child["metadata"]["ownerReferences"].as_array().unwrap().len(), 1);
}

#[test]
fn deleting_a_job_without_a_propagation_policy_orphans_its_pods_with_a_warning() {
    let mut cluster = Cluster::new();
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let template =
        json!({ "spec": { "restartPolicy": "Never", "containers": [{ "name": "c", "image": "i" }] } });
    let job = json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "j" },
        "spec": { "template": template } });
    cluster.create(jobs, job);
    let deleted = cluster.delete(&format!("{jobs}/j"));
    assert_eq!(deleted.body["metadata"]["finalizers"], json!(["orphan"]), "{}", deleted.text);
    assert!(deleted.headers["warning"].to_str().unwrap().contains("child pods are preserved by default"));
    cluster.settle();
    assert_eq!(cluster.get(&format!("{jobs}/j")).code, 404);
}

#[test]
fn a_terminating_namespace_deletes_its_content_and_rejects_new_objects() {
    let mut cluster = Cluster::new();
    cluster.create("/api/v1/namespaces", json!({ "metadata": { "name": "x" } }));
    let maps = "/api/v1/namespaces/x/configmaps";
    let mut held = config_map("held");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    cluster.create(maps, held);
    let marked = cluster.delete("/api/v1/namespaces/x").body;
    assert_eq!(marked["status"]["phase"], "Terminating");
    cluster.settle();
    let refused = cluster.post(maps, config_map("new"));
    let message = "configmaps \"new\" is forbidden: unable to create new content in namespace x because it is being terminated";
    assert_eq!(refused.failure(), (403, message));
    assert_eq!(refused.body["details"]["causes"][0]["reason"], "NamespaceTerminating");
    let conditions = cluster.get("/api/v1/namespaces/x").body["status"]["conditions"].clone();
    assert_eq!(conditions[0]["type"], "NamespaceContentRemaining");
    cluster.merge(&format!("{maps}/held"), json!({ "metadata": { "finalizers": [] } }));
    cluster.settle();
    assert_eq!(cluster.get("/api/v1/namespaces/x").code, 404);
    assert_eq!(cluster.get(&format!("{maps}/held")).code, 404);
}

#[test]
fn a_new_namespace_gets_the_default_service_account() {
    let mut cluster = Cluster::new();
    cluster.create("/api/v1/namespaces", json!({ "metadata": { "name": "x" } }));
    cluster.settle();
    assert_eq!(cluster.get("/api/v1/namespaces/x/serviceaccounts").names(), ["default"]);
}

#[test]
fn a_deleted_definition_deletes_its_instances_first() {
    let mut cluster = Cluster::new();
    cluster.create(DEFINITIONS, gadget_definition());
    cluster.settle();
    let mut held = gadget("held");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    cluster.create(GADGETS, held);
    let mut watch = cluster.watch(&format!("{GADGETS}?watch=true"));
    let definition = format!("{DEFINITIONS}/gadgets.example.com");
    cluster.delete(&definition);
    cluster.settle();
    assert_eq!(cluster.get(&definition).code, 200, "the definition exists until its instances are deleted");
    assert_eq!(cluster.post(GADGETS, gadget("new")).code, 405);
    cluster.merge(&format!("{GADGETS}/held"), json!({ "metadata": { "finalizers": null } }));
    cluster.settle();
    assert_eq!(cluster.get(&definition).code, 404);
    assert_eq!(cluster.get(GADGETS).code, 404);
    assert_eq!(cluster.event_summaries(&mut watch), ["ADDED held", "MODIFIED held", "DELETED held"]);
    assert!(matches!(cluster.server.pull(cluster.now, &mut watch), apiserver::Pull::End));
}

#[test]
fn a_new_definition_is_established_with_its_names_and_stored_versions() {
    let mut cluster = Cluster::new();
    cluster.create(DEFINITIONS, gadget_definition());
    cluster.settle();
    let status = cluster.get(&format!("{DEFINITIONS}/gadgets.example.com")).body["status"].clone();
    assert_eq!(status["storedVersions"], json!(["v1"]));
    assert_eq!(status["acceptedNames"]["plural"], "gadgets");
    let types: Vec<_> = status["conditions"].as_array().unwrap().iter().map(|c| c["type"].clone()).collect();
    assert_eq!(types, ["NamesAccepted", "Established"]);
}

#[test]
fn a_definition_with_a_kind_in_use_is_not_established() {
    let mut cluster = Cluster::new();
    cluster.create(DEFINITIONS, gadget_definition());
    cluster.settle();
    let mut rival = gadget_definition();
    rival["metadata"]["name"] = "gadgetz.example.com".into();
    rival["spec"]["names"] = json!({ "plural": "gadgetz", "singular": "gadgetz", "kind": "Gadget" });
    cluster.create(DEFINITIONS, rival);
    cluster.settle();
    let status = cluster.get(&format!("{DEFINITIONS}/gadgetz.example.com")).body["status"].clone();
    assert_eq!(
        (&status["conditions"][0]["status"], &status["conditions"][0]["reason"]),
        (&json!("False"), &json!("KindConflict"))
    );
    assert_eq!(cluster.get("/apis/example.com/v1/gadgetz").code, 404);
}

#[test]
fn an_event_is_deleted_after_its_ttl() {
    let mut cluster = Cluster::new();
    let event = json!({ "metadata": { "name": "e" }, "involvedObject": { "kind": "Pod", "namespace": "default", "name": "p" },
        "reason": "Why", "message": "m", "type": "Normal" });
    cluster.create("/api/v1/namespaces/default/events", event);
    let other = cluster.get("/apis/events.k8s.io/v1/namespaces/default/events/e").body;
    assert_eq!((&other["note"], &other["regarding"]["name"]), (&json!("m"), &json!("p")));
    cluster.advance(3599);
    cluster.settle();
    assert_eq!(cluster.get("/api/v1/namespaces/default/events").names(), ["e"]);
    cluster.advance(2);
    cluster.settle();
    assert!(cluster.get("/api/v1/namespaces/default/events").names().is_empty());
}
