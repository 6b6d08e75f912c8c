//! `ResourceQuota`: what it refuses, and what it counts.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::harness::{Cluster, PODS};
use serde_json::{Value, json};

const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";

fn pod(name: &str, requests: &Value) -> Value {
    json!({ "metadata": { "name": name }, "spec": {
        "containers": [{ "name": "c", "image": "i", "resources": { "requests": requests, "limits": requests } }] } })
}

fn quota(name: &str, hard: &Value) -> Value {
    json!({ "metadata": { "name": name }, "spec": { "hard": hard } })
}

fn used(cluster: &mut Cluster, name: &str) -> Value {
    cluster.get(&format!("{QUOTAS}/{name}")).body["status"]["used"].clone()
}

#[test]
fn a_pod_beyond_a_quota_is_forbidden_until_others_have_ended() {
    let mut cluster = Cluster::new();
    cluster.create(PODS, pod("before", &json!({ "cpu": "500m" })));
    let hard =
        json!({ "requests.cpu": "2", "limits.memory": "1Gi", "pods": "3", "requests.nvidia.com/gpu": "1" });
    cluster.create(QUOTAS, quota("q", &hard));
    let status = cluster.get(&format!("{QUOTAS}/q")).body["status"].clone();
    assert_eq!(status["hard"], hard);
    assert_eq!(
        status["used"],
        json!({ "limits.memory": "0", "pods": "1", "requests.cpu": "500m", "requests.nvidia.com/gpu": "0" })
    );
    let ask = json!({ "cpu": "1", "memory": "512Mi", "nvidia.com/gpu": "1" });
    cluster.create(PODS, pod("a", &ask));
    assert_eq!(
        used(&mut cluster, "q"),
        json!({ "limits.memory": "512Mi", "pods": "2", "requests.cpu": "1500m", "requests.nvidia.com/gpu": "1" })
    );
    let refused = cluster.post(PODS, pod("b", &ask));
    let why = "pods \"b\" is forbidden: exceeded quota: q, requested: requests.cpu=1,requests.nvidia.com/gpu=1, \
               used: requests.cpu=1500m,requests.nvidia.com/gpu=1, limited: requests.cpu=2,requests.nvidia.com/gpu=1";
    assert_eq!(refused.failure(), (403, why));
    let refused = cluster.post(PODS, pod("b", &json!({ "memory": "1Mi" })));
    let why = "pods \"b\" is forbidden: failed quota: q: must specify requests.cpu for: c";
    assert_eq!(refused.failure(), (403, why));
    // A pod that has ended counts no more, and neither does one that is deleted.
    cluster.merge(&format!("{PODS}/a/status"), json!({ "status": { "phase": "Succeeded" } }));
    assert_eq!(used(&mut cluster, "q")["requests.cpu"], "500m");
    cluster.create(PODS, pod("b", &ask));
    for name in ["a", "b", "before"] {
        assert_eq!(cluster.delete(&format!("{PODS}/{name}")).code, 200);
    }
    assert_eq!(
        used(&mut cluster, "q"),
        json!({ "limits.memory": "0", "pods": "0", "requests.cpu": "0", "requests.nvidia.com/gpu": "0" })
    );
}

#[test]
fn a_dry_run_is_checked_and_not_counted() {
    let mut cluster = Cluster::new();
    cluster.create(QUOTAS, quota("q", &json!({ "pods": "1" })));
    let dry = format!("{PODS}?dryRun=All");
    assert_eq!(cluster.post(&dry, pod("a", &json!({}))).code, 201);
    assert_eq!(used(&mut cluster, "q"), json!({ "pods": "0" }));
    cluster.create(PODS, pod("a", &json!({})));
    assert_eq!(cluster.post(&dry, pod("b", &json!({}))).code, 403);
}

#[test]
fn objects_of_every_kind_are_counted() {
    let mut cluster = Cluster::new();
    let hard = json!({ "configmaps": "2", "count/jobs.batch": "1", "services.nodeports": "1", "services": "5",
        "requests.storage": "2Gi", "gold.storageclass.storage.k8s.io/requests.storage": "1Gi", "count/pods": "1" });
    cluster.create(QUOTAS, quota("q", &hard));
    let map = |name: &str| json!({ "metadata": { "name": name } });
    let maps = "/api/v1/namespaces/default/configmaps";
    let there = cluster.get(maps).names().len();
    for at in there..2 {
        cluster.create(maps, map(&format!("m{at}")));
    }
    let why = "configmaps \"x\" is forbidden: exceeded quota: q, requested: configmaps=1, used: configmaps=2, limited: configmaps=2";
    assert_eq!(cluster.post(maps, map("x")).failure(), (403, why));
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let job = |name: &str| {
        json!({ "metadata": { "name": name }, "spec": { "template": { "spec": {
        "restartPolicy": "Never", "containers": [{ "name": "c", "image": "i" }] } } } })
    };
    cluster.create(jobs, job("a"));
    let why = "jobs.batch \"b\" is forbidden: exceeded quota: q, requested: count/jobs.batch=1, used: count/jobs.batch=1, limited: count/jobs.batch=1";
    assert_eq!(cluster.post(jobs, job("b")).failure(), (403, why));
    let services = "/api/v1/namespaces/default/services";
    let service = |ports: &[u16]| {
        let ports: Vec<Value> =
            ports.iter().map(|port| json!({ "name": format!("p{port}"), "port": port })).collect();
        json!({ "metadata": { "name": "s" }, "spec": { "type": "NodePort", "selector": { "a": "b" }, "ports": ports } })
    };
    let why = "services \"s\" is forbidden: exceeded quota: q, requested: services.nodeports=2, used: services.nodeports=0, limited: services.nodeports=1";
    assert_eq!(cluster.post(services, service(&[1, 2])).failure(), (403, why));
    cluster.create(services, service(&[1]));
    let more = cluster.merge(&format!("{services}/s"), service(&[1, 2]));
    let why = "services \"s\" is forbidden: exceeded quota: q, requested: services.nodeports=1, used: services.nodeports=1, limited: services.nodeports=1";
    assert_eq!(more.failure(), (403, why));
    let claim = |name: &str, class: &str| {
        json!({ "metadata": { "name": name }, "spec": { "accessModes": ["ReadWriteOnce"],
        "storageClassName": class, "resources": { "requests": { "storage": "1Gi" } } } })
    };
    cluster.create(CLAIMS, claim("a", "gold"));
    let gold = "gold.storageclass.storage.k8s.io/requests.storage=1Gi";
    let why = format!(
        "persistentvolumeclaims \"b\" is forbidden: exceeded quota: q, requested: {gold}, used: {gold}, limited: {gold}"
    );
    assert_eq!(cluster.post(CLAIMS, claim("b", "gold")).failure(), (403, &*why));
    cluster.create(CLAIMS, claim("b", "other"));
    // Ended pods are objects.
    cluster.create(PODS, pod("p", &json!({})));
    cluster.merge(&format!("{PODS}/p/status"), json!({ "status": { "phase": "Failed" } }));
    assert_eq!(cluster.post(PODS, pod("q", &json!({}))).code, 403);
    // Another limit is counted anew.
    cluster.merge(&format!("{QUOTAS}/q"), json!({ "spec": { "hard": { "count/pods": null, "pods": "1" } } }));
    cluster.create(PODS, pod("q", &json!({})));
    assert_eq!(used(&mut cluster, "q")["pods"], "1");
}

#[test]
fn scopes_select_the_pods_of_a_quota() {
    let classed = |operator: &str, values: &Value| {
        json!({ "scopeSelector": { "matchExpressions": [
            { "scopeName": "PriorityClass", "operator": operator, "values": values }] } })
    };
    let small = json!({ "cpu": "1" });
    for (scopes, first, second) in [
        (json!({ "scopes": ["BestEffort"] }), pod("a", &small), pod("b", &json!({}))),
        (json!({ "scopes": ["NotBestEffort"] }), pod("a", &json!({})), pod("b", &small)),
        (
            json!({ "scopes": ["NotTerminating"] }),
            with(&json!({ "activeDeadlineSeconds": 5 })),
            pod("b", &small),
        ),
        (
            json!({ "scopes": ["Terminating"] }),
            pod("b", &small),
            with(&json!({ "activeDeadlineSeconds": 5 })),
        ),
        (classed("In", &json!(["high"])), pod("b", &small), with(&json!({ "priorityClassName": "high" }))),
        (
            classed("DoesNotExist", &json!([])),
            with(&json!({ "priorityClassName": "high" })),
            pod("b", &small),
        ),
    ] {
        let mut cluster = Cluster::new();
        cluster.create(
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            json!({ "metadata": { "name": "high" }, "value": 5 }),
        );
        let mut limited = quota("q", &json!({ "pods": "0" }));
        for (field, value) in scopes.as_object().unwrap() {
            limited["spec"][field] = value.clone();
        }
        cluster.create(QUOTAS, limited);
        cluster.create(PODS, first);
        assert_eq!(cluster.post(PODS, second).code, 403, "{scopes}");
    }
}

/// A pod with these fields.
fn with(fields: &Value) -> Value {
    let mut pod = pod("x", &json!({ "cpu": "1" }));
    for (field, value) in fields.as_object().unwrap() {
        pod["spec"][field] = value.clone();
    }
    pod
}

#[test]
fn an_update_is_checked_if_it_adds_to_a_quota() {
    let mut cluster = Cluster::new();
    cluster.create(PODS, pod("a", &json!({})));
    cluster.create(QUOTAS, quota("q", &json!({ "requests.cpu": "0" })));
    let mut ending = quota("ending", &json!({ "pods": "0" }));
    ending["spec"]["scopes"] = json!(["Terminating"]);
    cluster.create(QUOTAS, ending);
    assert_eq!(
        cluster.merge(&format!("{PODS}/a"), json!({ "metadata": { "labels": { "a": "b" } } })).code,
        200
    );
    let refused = cluster.merge(&format!("{PODS}/a"), json!({ "spec": { "activeDeadlineSeconds": 5 } }));
    let why =
        "pods \"a\" is forbidden: exceeded quota: ending, requested: pods=1, used: pods=0, limited: pods=0";
    assert_eq!(refused.failure(), (403, why));
    // A pod with requests of its own need not state those of its containers.
    cluster.merge(
        &format!("{QUOTAS}/q"),
        json!({ "spec": { "hard": { "requests.cpu": "2", "limits.memory": "2Gi" } } }),
    );
    let mut whole = pod("b", &json!({}));
    whole["spec"]["resources"] = json!({ "requests": { "cpu": "1" }, "limits": { "cpu": "1" } });
    cluster.create(PODS, whole);
    assert_eq!(used(&mut cluster, "q"), json!({ "limits.memory": "0", "requests.cpu": "1" }));
}
