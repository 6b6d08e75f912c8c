//! Kueue's visibility API at `muster up`: the positions of pending Workloads.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use kube::Client;
use serde_json::{Value, json};

use crate::common::{Up, muster};

const GROUP: &str = "/apis/visibility.kueue.x-k8s.io";
const CLUSTER_QUEUE: &str = "/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/shared/pendingworkloads";
const KUEUE: &str = "/apis/kueue.x-k8s.io/v1beta2";

fn client(running: &Up) -> Client {
    let config = kube::Config::new(format!("http://{}", running.address("API server")).parse().unwrap());
    Client::try_from(config).unwrap()
}

/// Sends a request as a user; none is the administrator.
async fn send(client: &Client, method: &str, path: &str, user: &str, body: &Value) -> kube::Result<Value> {
    let mut request = http::Request::builder().method(method).uri(path);
    let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    request = request.header("content-type", kind);
    if !user.is_empty() {
        request = request.header("impersonate-user", user);
    }
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    client.request(request.body(body).unwrap()).await
}

async fn get(client: &Client, path: &str) -> Value {
    send(client, "GET", path, "", &Value::Null).await.unwrap()
}

/// Code, reason and message of the refusal of a request.
async fn refusal(client: &Client, path: &str, user: &str) -> (u16, String, String) {
    match send(client, "GET", path, user, &Value::Null).await {
        Err(kube::Error::Api(status)) => (status.code, status.reason.clone(), status.message.clone()),
        other => panic!("{path}: {other:?}"),
    }
}

async fn create(client: &Client, path: &str, kind: &str, name: &str, spec: Value) {
    let object = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}, "spec": spec});
    send(client, "POST", &format!("{KUEUE}/{path}"), "", &object).await.unwrap();
}

/// A ClusterQueue `shared` of four CPUs with two local queues, `a` and `b`.
async fn queues(client: &Client) {
    create(client, "resourceflavors", "ResourceFlavor", "main", json!({})).await;
    let quota = json!([{"coveredResources": ["cpu"], "flavors": [{"name": "main", "resources": [{"name": "cpu", "nominalQuota": 4}]}]}]);
    let spec = json!({"namespaceSelector": {}, "resourceGroups": quota});
    create(client, "clusterqueues", "ClusterQueue", "shared", spec).await;
    for name in ["a", "b"] {
        let spec = json!({"clusterQueue": "shared"});
        create(client, "namespaces/default/localqueues", "LocalQueue", name, spec).await;
    }
}

async fn submit(client: &Client, name: &str, queue: &str, priority: i32) {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": 4}}});
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
    let spec = json!({"queueName": queue, "priority": priority, "active": true,
        "podSets": [{"name": "main", "count": 1, "template": template}]});
    create(client, "namespaces/default/workloads", "Workload", name, spec).await;
}

/// Name and positions of each listed Workload.
fn listed(summary: &Value) -> Vec<(String, u64, u64)> {
    let items = summary["items"].as_array().unwrap().iter();
    let item = |item: &Value| {
        let position = |field: &str| item[field].as_u64().unwrap();
        let name = item["metadata"]["name"].as_str().unwrap().to_owned();
        (name, position("positionInClusterQueue"), position("positionInLocalQueue"))
    };
    items.map(item).collect()
}

/// Reads a path until it lists these names.
async fn wait_for(client: &Client, path: &str, names: &[&str]) -> Vec<(String, u64, u64)> {
    let began = Instant::now();
    loop {
        let found = listed(&get(client, path).await);
        if found.iter().map(|(name, ..)| name.as_str()).eq(names.iter().copied()) {
            return found;
        }
        assert!(began.elapsed() < Duration::from_mins(1), "{path}: {found:?}");
        tokio::task::yield_now().await;
    }
}

fn positions(expected: &[(&str, u64, u64)]) -> Vec<(String, u64, u64)> {
    expected.iter().map(|(name, cluster, local)| ((*name).to_owned(), *cluster, *local)).collect()
}

#[tokio::test]
async fn positions_are_those_of_muster_why_in_both_versions() {
    let dir = tempfile::tempdir().unwrap();
    let running = Up::start(&["--node", "count=1,name=n,cpu=4,memory=16Gi"], dir.path());
    let client = client(&running);
    queues(&client).await;
    submit(&client, "runs", "a", 0).await;
    wait_for(&client, CLUSTER_QUEUE, &[]).await;
    for (name, queue, priority) in [("low", "a", 1), ("high", "b", 9), ("middle", "a", 5), ("last", "b", 0)] {
        submit(&client, name, queue, priority).await;
    }
    let all = ["high", "middle", "low", "last"];
    let found = wait_for(&client, CLUSTER_QUEUE, &all).await;
    assert_eq!(found, positions(&[("high", 0, 0), ("middle", 1, 0), ("low", 2, 1), ("last", 3, 1)]));
    for (name, place, _) in &found {
        let flags = ["why", &format!("workload/{name}"), "--kubeconfig", ".muster/kubeconfig"];
        let output = muster(&flags, dir.path()).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(said.contains(&format!("at position {} of 4", place + 1)), "{name}: {said}");
    }
    for version in ["v1beta1", "v1beta2"] {
        let path = format!("{GROUP}/{version}/namespaces/default/localqueues/a/pendingworkloads");
        let summary = get(&client, &path).await;
        assert_eq!(listed(&summary), positions(&[("middle", 1, 0), ("low", 2, 1)]));
        assert_eq!(summary["kind"], "PendingWorkloadsSummary");
        assert_eq!(summary["apiVersion"], format!("visibility.kueue.x-k8s.io/{version}"));
        let item = &summary["items"][0];
        assert_eq!((&item["priority"], &item["localQueueName"]), (&json!(5), &json!("a")));
        assert_eq!(item["metadata"]["namespace"], "default");
    }
    for (query, expected) in [
        ("limit=1", &all[..1]),
        ("offset=1&limit=2", &all[1..3]),
        ("offset=3", &all[3..]),
        ("offset=9223372036854775807&limit=9223372036854775807", &[]),
        ("limit=0", &all),
        ("limit=-1", &[]),
        ("offset=-1&limit=1", &all[..1]),
    ] {
        let found = listed(&get(&client, &format!("{CLUSTER_QUEUE}?{query}")).await);
        assert!(
            found.iter().map(|(name, ..)| name.as_str()).eq(expected.iter().copied()),
            "{query}: {found:?}"
        );
    }
    // Workloads that no cycle tries are listed, too, behind those that wait for their turn.
    let stopped = json!({"spec": {"stopPolicy": "Hold"}});
    send(&client, "PATCH", &format!("{KUEUE}/clusterqueues/shared"), "", &stopped).await.unwrap();
    wait_for(&client, CLUSTER_QUEUE, &all).await;
    let started = Instant::now();
    while get(&client, &format!("{KUEUE}/clusterqueues/shared")).await["status"]["pendingWorkloads"] != 4 {
        assert!(started.elapsed() < Duration::from_mins(1), "the status counts as many");
        tokio::task::yield_now().await;
    }
    assert_eq!(running.end(), Some(0));
}

#[tokio::test]
async fn what_a_request_lacks_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let running = Up::start(&["--node", "count=1,name=n,cpu=4,memory=16Gi"], dir.path());
    let client = client(&running);
    queues(&client).await;
    wait_for(&client, CLUSTER_QUEUE, &[]).await;
    for (path, kind) in [("clusterqueues", "clusterqueue"), ("namespaces/default/localqueues", "localqueue")]
    {
        let refused = refusal(&client, &format!("{GROUP}/v1beta2/{path}/none/pendingworkloads"), "").await;
        let text = format!("{kind}.visibility.kueue.x-k8s.io \"none\" not found");
        assert_eq!(refused, (404, "NotFound".into(), text));
    }
    for query in ["limit=x", "offset=1.5", "limit=99999999999999999999", "limit="] {
        let (code, reason, text) = refusal(&client, &format!("{CLUSTER_QUEUE}?{query}"), "").await;
        assert_eq!((code, &*reason), (400, "BadRequest"), "{query}");
        assert!(text.starts_with(query), "{query}: {text}");
    }
    let forbidden = refusal(&client, CLUSTER_QUEUE, "tenant").await;
    assert_eq!((forbidden.0, &*forbidden.1), (403, "Forbidden"));
    assert!(forbidden.2.contains("clusterqueues/pendingworkloads"), "{}", forbidden.2);
    let rules = json!([{"apiGroups": ["visibility.kueue.x-k8s.io"], "resources": ["localqueues/pendingworkloads"], "verbs": ["get"]}]);
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let role = json!({"metadata": {"name": "reads"}, "rules": rules});
    send(&client, "POST", &format!("{rbac}/roles"), "", &role).await.unwrap();
    let binding = json!({"metadata": {"name": "reads"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reads"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "tenant"}]});
    send(&client, "POST", &format!("{rbac}/rolebindings"), "", &binding).await.unwrap();
    let local = format!("{GROUP}/v1beta1/namespaces/default/localqueues/a/pendingworkloads");
    let summary = send(&client, "GET", &local, "tenant", &Value::Null).await.unwrap();
    assert_eq!(summary["items"], json!([]));
    assert_eq!(refusal(&client, CLUSTER_QUEUE, "tenant").await.0, 403, "of other namespaces, too");

    let posted = send(&client, "POST", CLUSTER_QUEUE, "", &json!({})).await;
    assert!(matches!(posted, Err(kube::Error::Api(status)) if status.code == 405));
    let whole = refusal(&client, &format!("{GROUP}/v1beta2/clusterqueues"), "").await;
    assert_eq!(whole.0, 405, "queues have no verbs here");
    let group = get(&client, GROUP).await;
    assert_eq!(group["preferredVersion"]["version"], "v1beta2");
    assert_eq!(group["versions"].as_array().unwrap().len(), 2);
    let resources = get(&client, &format!("{GROUP}/v1beta1")).await;
    let resources: Vec<_> = resources["resources"].as_array().unwrap().iter().collect();
    let names: Vec<_> = resources.iter().map(|resource| resource["name"].as_str().unwrap()).collect();
    let expected =
        ["clusterqueues", "clusterqueues/pendingworkloads", "localqueues", "localqueues/pendingworkloads"];
    assert_eq!(names, expected);
    assert_eq!((&resources[0]["verbs"], &resources[3]["verbs"]), (&json!([]), &json!(["get"])));
    assert_eq!((&resources[1]["namespaced"], &resources[3]["namespaced"]), (&json!(false), &json!(true)));
    assert!(resources.iter().all(|resource| resource["kind"] == "PendingWorkloadsSummary"));
    assert_eq!(running.end(), Some(0));
}
