//! Garbage collection, namespaces, definitions: what the server does by itself.

mod harness;

use harness::{CONFIG_MAPS, Cluster, DEFINITIONS, GADGETS, config_map, gadget, gadget_definition};
use serde_json::{Value, json};

/// A config map owned by another.
fn owned(name: &str, owner: &Value, block: bool) -> Value {
    let mut value = config_map(name);
    value["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
        "controller": true, "blockOwnerDeletion": block,
    }]);
    value
}

fn family(block: bool) -> Cluster {
    let mut cluster = Cluster::new();
    let parent = cluster.create(CONFIG_MAPS, config_map("parent"));
    let child = cluster.create(CONFIG_MAPS, owned("child", &parent, block));
    cluster.create(CONFIG_MAPS, owned("grandchild", &child, block));
    cluster.settle();
    cluster
}

fn left(cluster: &mut Cluster) -> Vec<String> {
    let list = cluster.get(CONFIG_MAPS);
    list.names().into_iter().filter(|name| *name != "kube-root-ca.crt").map(String::from).collect()
}

fn delete(cluster: &mut Cluster, policy: &str) {
    let answer = cluster.delete(&format!("{CONFIG_MAPS}/parent?propagationPolicy={policy}"));
    assert_eq!(answer.code, 200, "{}", answer.text);
}

#[test]
fn dependents_follow_in_the_background() {
    let mut cluster = family(true);
    delete(&mut cluster, "Background");
    assert_eq!(left(&mut cluster), ["child", "grandchild"]);
    cluster.settle();
    assert!(left(&mut cluster).is_empty());
}

#[test]
fn an_owner_in_the_foreground_waits_for_its_dependents() {
    let mut cluster = family(true);
    cluster.merge(
        &format!("{CONFIG_MAPS}/grandchild"),
        json!({ "metadata": { "finalizers": ["example.com/hold"] } }),
    );
    delete(&mut cluster, "Foreground");
    cluster.settle();
    assert_eq!(left(&mut cluster), ["child", "grandchild", "parent"]);
    cluster.merge(&format!("{CONFIG_MAPS}/grandchild"), json!({ "metadata": { "finalizers": null } }));
    cluster.settle();
    assert!(left(&mut cluster).is_empty());
}

#[test]
fn orphans_lose_their_owner_and_live() {
    let mut cluster = family(true);
    delete(&mut cluster, "Orphan");
    cluster.settle();
    assert_eq!(left(&mut cluster), ["child", "grandchild"]);
    let child = cluster.get(&format!("{CONFIG_MAPS}/child")).body;
    assert_eq!(child["metadata"].get("ownerReferences"), None);
}

#[test]
fn an_object_whose_owner_never_was_is_garbage() {
    let mut cluster = Cluster::new();
    let ghost = json!({ "metadata": { "name": "ghost", "uid": "no-such-uid" } });
    cluster.create(CONFIG_MAPS, owned("lost", &ghost, false));
    cluster.settle();
    assert!(left(&mut cluster).is_empty());
}

#[test]
fn an_object_with_one_living_owner_only_loses_the_others() {
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
fn pods_of_a_job_are_orphaned_unless_the_client_says_otherwise() {
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
fn a_namespace_is_drained_and_refuses_what_is_new() {
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
fn a_new_namespace_gets_its_service_account() {
    let mut cluster = Cluster::new();
    cluster.create("/api/v1/namespaces", json!({ "metadata": { "name": "x" } }));
    cluster.settle();
    assert_eq!(cluster.get("/api/v1/namespaces/x/serviceaccounts").names(), ["default"]);
}

#[test]
fn a_definition_takes_its_instances_with_it() {
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
    assert_eq!(cluster.get(&definition).code, 200, "the definition waits for its instances");
    assert_eq!(cluster.post(GADGETS, gadget("new")).code, 405);
    cluster.merge(&format!("{GADGETS}/held"), json!({ "metadata": { "finalizers": null } }));
    cluster.settle();
    assert_eq!(cluster.get(&definition).code, 404);
    assert_eq!(cluster.get(GADGETS).code, 404);
    assert_eq!(cluster.brief(&mut watch), ["ADDED held", "MODIFIED held", "DELETED held"]);
    assert!(matches!(cluster.server.pull(cluster.now, &mut watch), apiserver::Pull::End));
}

#[test]
fn a_definition_becomes_established_and_names_what_it_stores() {
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
fn definitions_cannot_share_names() {
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
fn events_go_after_their_time() {
    let mut cluster = Cluster::new();
    let event = json!({ "metadata": { "name": "e" }, "involvedObject": { "kind": "Pod", "namespace": "default", "name": "p" },
        "reason": "Why", "message": "m", "type": "Normal" });
    cluster.create("/api/v1/namespaces/default/events", event);
    let other = cluster.get("/apis/events.k8s.io/v1/namespaces/default/events/e").body;
    assert_eq!((&other["note"], &other["regarding"]["name"]), (&json!("m"), &json!("p")));
    cluster.pass(3599);
    cluster.settle();
    assert_eq!(cluster.get("/api/v1/namespaces/default/events").names(), ["e"]);
    cluster.pass(2);
    cluster.settle();
    assert!(cluster.get("/api/v1/namespaces/default/events").names().is_empty());
}
