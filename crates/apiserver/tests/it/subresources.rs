//! Subresources, reviews, discovery, `OpenAPI` documents, RBAC and service account tokens.

use std::collections::BTreeMap;

use crate::harness::{Cluster, DEFINITIONS, PODS, gadget_definition, pod};
use apiserver::{Auth, Config, User};
use serde_json::{Value, json};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

fn deployment() -> Value {
    json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "d" }, "spec": {
        "replicas": 2, "selector": { "matchLabels": { "a": "b" } },
        "template": { "metadata": { "labels": { "a": "b" } },
                      "spec": { "containers": [{ "name": "c", "image": "i" }] } } } })
}

#[test]
fn the_scale_subresource_reads_and_writes_replicas() {
    let mut cluster = Cluster::new();
    cluster.create(DEPLOYMENTS, deployment());
    let path = format!("{DEPLOYMENTS}/d/scale");
    let scale = cluster.get(&path).body;
    assert_eq!((&scale["kind"], &scale["spec"]["replicas"]), (&json!("Scale"), &json!(2)));
    assert_eq!(scale["status"]["selector"], "a=b");
    let scaled = cluster.merge(&path, json!({ "spec": { "replicas": 5 } }));
    assert_eq!(scaled.body["spec"]["replicas"], 5, "{}", scaled.text);
    let live = cluster.get(&format!("{DEPLOYMENTS}/d")).body;
    assert_eq!((&live["spec"]["replicas"], &live["metadata"]["generation"]), (&json!(5), &json!(2)));
    let wrong = cluster.merge(&path, json!({ "spec": { "replicas": -1 } }));
    assert_eq!(wrong.code, 422, "{}", wrong.text);
    let mut stale = scale;
    stale["spec"]["replicas"] = 7.into();
    assert_eq!(cluster.put(&path, stale).code, 409);
}

#[test]
fn an_eviction_respects_the_disruption_budget() {
    let mut cluster = Cluster::new();
    let mut labelled = pod("p");
    labelled["metadata"]["labels"] = json!({ "app": "x" });
    cluster.create(PODS, labelled);
    cluster.post(&format!("{PODS}/p/binding"), json!({ "target": { "kind": "Node", "name": "n" } }));
    let ready =
        json!({ "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] } });
    cluster.merge(&format!("{PODS}/p/status"), ready);
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    cluster.create(
        budgets,
        json!({ "metadata": { "name": "b" },
        "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": "x" } } } }),
    );
    let status = json!({ "status": { "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1, "observedGeneration": 1 } });
    cluster.merge(&format!("{budgets}/b/status"), status);
    let eviction = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": "p" } });
    let refused = cluster.post(&format!("{PODS}/p/eviction"), eviction.clone());
    assert_eq!(refused.failure(), (429, "Cannot evict pod as it would violate the pod's disruption budget."));
    let cause = &refused.body["details"]["causes"][0];
    assert_eq!(
        (&cause["reason"], &cause["message"]),
        (
            &json!("DisruptionBudget"),
            &json!("The disruption budget b needs 1 healthy pods and has 1 currently")
        )
    );
    cluster.merge(&format!("{budgets}/b/status"), json!({ "status": { "disruptionsAllowed": 1 } }));
    assert_eq!(cluster.post(&format!("{PODS}/p/eviction"), eviction).code, 201);
    let evicted = cluster.get(&format!("{PODS}/p")).body;
    assert!(evicted["metadata"]["deletionTimestamp"].is_string());
    let disrupted = &evicted["status"]["conditions"][1];
    assert_eq!(
        (&disrupted["type"], &disrupted["status"], &disrupted["reason"]),
        (&json!("DisruptionTarget"), &json!("True"), &json!("EvictionByEvictionAPI"))
    );
    assert_eq!(cluster.get(&format!("{budgets}/b")).body["status"]["disruptionsAllowed"], 0);
}

#[test]
fn a_second_binding_of_a_pod_is_rejected() {
    let mut cluster = Cluster::new();
    cluster.create(PODS, pod("p"));
    let binding = json!({ "target": { "kind": "Node", "name": "n" } });
    assert_eq!(cluster.post(&format!("{PODS}/p/binding"), binding.clone()).code, 201);
    let again = cluster.post(&format!("{PODS}/p/binding"), binding);
    let why = "Operation cannot be fulfilled on pods/binding \"p\": pod p is already assigned to node \"n\"";
    assert_eq!(again.failure(), (409, why));
}

#[test]
fn the_log_subresource_returns_the_appended_lines() {
    let mut cluster = Cluster::new();
    let created = cluster.create(PODS, pod("p"));
    let unbound = cluster.get(&format!("{PODS}/p/log"));
    assert_eq!((unbound.code, unbound.text.as_str()), (200, ""));
    let binding = json!({ "target": { "kind": "Node", "name": "n" } });
    assert_eq!(cluster.post(&format!("{PODS}/p/binding"), binding).code, 201);
    let waiting = cluster.get(&format!("{PODS}/p/log"));
    let why = "container \"main\" in pod \"p\" is waiting to start: ContainerCreating";
    assert_eq!(waiting.failure(), (400, why));
    let running = json!({ "status": { "containerStatuses": [
        { "name": "main", "ready": true, "restartCount": 0, "image": "i", "imageID": "", "state": { "running": {} } }] } });
    cluster.merge(&format!("{PODS}/p/status"), running);
    let now = cluster.now;
    cluster.server.append_log(now, created["metadata"]["uid"].as_str().unwrap(), "main", "one\ntwo\n");
    assert_eq!(cluster.get(&format!("{PODS}/p/log?container=main")).text, "one\ntwo\n");
    assert_eq!(cluster.get(&format!("{PODS}/p/log?tailLines=1")).text, "two\n");
    assert_eq!(cluster.get(&format!("{PODS}/p/log?container=x")).code, 400);
}

#[test]
fn discovery_is_served_aggregated_and_unaggregated_with_an_etag() {
    let mut cluster = Cluster::new();
    cluster.create(DEFINITIONS, gadget_definition());
    cluster.settle();
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
    let all = cluster.send("GET", "/apis", &[("accept", accept)], "");
    assert_eq!(
        all.headers["content-type"],
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    );
    let groups: Vec<&str> = all.body["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|g| g["metadata"]["name"].as_str().unwrap())
        .collect();
    assert_eq!((groups[0], groups.last().copied()), ("apps", Some("example.com")));
    let etag = all.headers["etag"].to_str().unwrap().to_owned();
    assert_eq!(cluster.send("GET", "/apis", &[("accept", accept), ("if-none-match", &etag)], "").code, 304);
    let plain = cluster.get("/apis/example.com").body;
    let versions: Vec<_> =
        plain["versions"].as_array().unwrap().iter().map(|v| v["version"].clone()).collect();
    assert_eq!(versions, ["v1", "v1alpha1"]);
    let resources = cluster.get("/apis/example.com/v1").body["resources"].clone();
    assert_eq!((&resources[0]["name"], &resources[1]["name"]), (&json!("gadgets"), &json!("gadgets/status")));
    assert_eq!(resources[0]["shortNames"], json!(["gd"]));
}

#[test]
fn openapi_documents_describe_the_served_resources() {
    let mut cluster = Cluster::new();
    cluster.create(DEFINITIONS, gadget_definition());
    cluster.settle();
    let index = cluster.get("/openapi/v3").body;
    let url = index["paths"]["apis/example.com/v1"]["serverRelativeURL"].as_str().unwrap().to_owned();
    let document = cluster.get(&url).body;
    let patch = &document["paths"]["/apis/example.com/v1/namespaces/{namespace}/gadgets/{name}"]["patch"];
    let parameters = patch["parameters"].as_array().unwrap();
    assert!(parameters.iter().any(|p| p["name"] == "fieldValidation"));
}

fn cluster_with_rbac() -> Cluster {
    let tokens = BTreeMap::from([("secret".to_owned(), User::new("alice", &["dev"]))]);
    Cluster::with(Config { auth: Auth::Tokens(tokens), ..Config::default() })
}

#[test]
fn a_role_allows_only_its_rules() {
    let mut cluster = cluster_with_rbac();
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    cluster.create(
        &format!("{rbac}/roles"),
        json!({ "metadata": { "name": "reader" },
        "rules": [{ "apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"] }] }),
    );
    cluster.create(
        &format!("{rbac}/rolebindings"),
        json!({ "metadata": { "name": "reader" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader" },
        "subjects": [{ "kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "dev" }] }),
    );
    cluster.user = User::new("alice", &["dev"]);
    assert_eq!(cluster.get(PODS).code, 200);
    let refused = cluster.get("/api/v1/namespaces/kube-system/pods");
    let why = "pods is forbidden: User \"alice\" cannot list resource \"pods\" in API group \"\" in the namespace \"kube-system\"";
    assert_eq!(refused.failure(), (403, why));
    assert_eq!(cluster.post(PODS, pod("p")).code, 403);
    let review = |verb: &str| {
        json!({ "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": { "resourceAttributes": { "verb": verb, "resource": "pods", "namespace": "default" } } })
    };
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    assert_eq!(cluster.post(path, review("list")).body["status"]["allowed"], true);
    assert_eq!(cluster.post(path, review("delete")).body["status"]["allowed"], false);
    cluster.user = User::anonymous();
    assert_eq!(cluster.get("/version").code, 200);
    assert_eq!(cluster.get("/apis").code, 403);
}

#[test]
fn a_service_account_token_is_valid_until_it_expires() {
    let mut cluster = cluster_with_rbac();
    let request = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": { "expirationSeconds": 600 } });
    let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let token = cluster.create(path, request)["status"]["token"].clone();
    let review = json!({ "spec": { "token": token } });
    let reviews = "/apis/authentication.k8s.io/v1/tokenreviews";
    let status = cluster.post(reviews, review.clone()).body["status"].clone();
    assert_eq!(status["user"]["username"], "system:serviceaccount:default:default");
    cluster.advance(601);
    assert_eq!(cluster.post(reviews, review).body["status"].get("authenticated"), None);
}
