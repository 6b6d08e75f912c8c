//! Jobs, Deployments, `StatefulSet`s and `DaemonSet`s through the Kubernetes API.

#![allow(clippy::unwrap_used, reason = "a failed helper ends the test")]

use crate::support::{Cluster, DEFAULT, PODS, cluster, holds};
use serde_json::{Value, json};

const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const REPLICA_SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";
const STATEFUL_SETS: &str = "/apis/apps/v1/namespaces/default/statefulsets";
const DAEMON_SETS: &str = "/apis/apps/v1/namespaces/default/daemonsets";

fn job(name: &str, spec: &Value, annotations: &Value) -> Value {
    let mut job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": name },
        "spec": { "template": {
            "metadata": { "annotations": annotations },
            "spec": { "restartPolicy": "Never", "containers": [{ "name": "main", "image": "busybox" }] },
        } },
    });
    for (field, value) in spec.as_object().into_iter().flatten() {
        job["spec"][field] = value.clone();
    }
    job
}

fn set(kind: &str, name: &str, replicas: u32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": kind, "metadata": { "name": name },
        "spec": {
            "replicas": replicas,
            "serviceName": name,
            "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": { "containers": [{ "name": "main", "image": "nginx:1" }] },
            },
        },
    })
}

fn without(mut object: Value, fields: &[&str]) -> Value {
    let spec = object["spec"].as_object_mut().unwrap();
    for field in fields {
        spec.remove(*field);
    }
    object
}

async fn names(cluster: &Cluster) -> Vec<String> {
    cluster.pods().await.iter().map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_job_completes_after_the_default_run_time() {
    let cluster = cluster(&DEFAULT, 1.0).await;
    cluster.create(JOBS, &job("two", &json!({ "parallelism": 2, "completions": 2 }), &json!({}))).await;
    let path = format!("{JOBS}/two");
    cluster.until(&path, |job| job["status"]["ready"] == 2).await;
    assert!(cluster.elapsed() < 3.0, "{}", cluster.elapsed());
    let done = cluster.until(&path, |job| holds(job, "Complete", "True")).await;
    assert!((60.0..64.0).contains(&cluster.elapsed()), "{}", cluster.elapsed());
    assert!(holds(&done, "SuccessCriteriaMet", "True"));
    assert_eq!(
        (&done["status"]["succeeded"], done["status"]["active"].as_i64().unwrap_or(0)),
        (&json!(2), 0)
    );
    for pod in cluster.pods().await {
        assert_eq!(
            (&pod["status"]["phase"], &pod["metadata"]["finalizers"]),
            (&json!("Succeeded"), &Value::Null)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_failing_job_is_retried_up_to_its_backoff_limit() {
    let cluster = cluster(&DEFAULT, 1.0).await;
    let fails = json!({ "sandbox.muster.dev/fail": "exit=3,after=1s" });
    cluster.create(JOBS, &job("bad", &json!({ "backoffLimit": 1 }), &fails)).await;
    let failed = cluster.until(&format!("{JOBS}/bad"), |job| holds(job, "Failed", "True")).await;
    assert_eq!(failed["status"]["failed"], 2);
    let pods = cluster.pods().await;
    assert_eq!(pods.len(), 2);
    assert_eq!(pods[0]["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], 3);
}

#[tokio::test(start_paused = true)]
async fn a_suspended_job_has_no_pods_and_a_resumed_job_gets_a_new_start_time() {
    let cluster = cluster(&DEFAULT, 1.0).await;
    cluster.create(JOBS, &job("j", &json!({ "suspend": true }), &json!({}))).await;
    let path = format!("{JOBS}/j");
    let held = cluster.until(&path, |job| holds(job, "Suspended", "True")).await;
    assert_eq!(held["status"]["startTime"], Value::Null);
    cluster.patch(&path, &json!({ "spec": { "suspend": false } })).await;
    cluster.until(&path, |job| job["status"]["ready"] == 1).await;
    cluster.patch(&path, &json!({ "spec": { "suspend": true } })).await;
    let held = cluster
        .eventually("no pods are left", || async {
            cluster.pods().await.is_empty().then_some(cluster.get(&path).await)
        })
        .await;
    assert_eq!(held["status"]["failed"].as_i64().unwrap_or(0), 0);
    cluster.patch(&path, &json!({ "spec": { "suspend": false } })).await;
    cluster.until(&path, |job| holds(job, "Complete", "True")).await;
}

#[tokio::test(start_paused = true)]
async fn an_indexed_job_sets_the_index_of_each_pod_and_is_deleted_after_its_ttl() {
    let cluster = cluster(&DEFAULT, 50.0).await;
    let spec = json!({
        "completionMode": "Indexed", "parallelism": 2, "completions": 3, "ttlSecondsAfterFinished": 100,
    });
    cluster.create(JOBS, &job("ix", &spec, &json!({ "sandbox.muster.dev/run-time": "30s" }))).await;
    let path = format!("{JOBS}/ix");
    let job = cluster.until(&path, |job| holds(job, "Complete", "True")).await;
    assert_eq!(job["status"]["completedIndexes"], "0-2");
    let mut hosts: Vec<String> =
        cluster.pods().await.iter().map(|pod| pod["spec"]["hostname"].to_string()).collect();
    hosts.sort();
    assert_eq!(hosts, [r#""ix-0""#, r#""ix-1""#, r#""ix-2""#]);
    cluster
        .eventually("the job and its pods are gone", || async {
            (cluster.get(&path).await.is_null() && cluster.pods().await.is_empty()).then_some(())
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_deployment_becomes_available_rolls_out_and_rolls_back() {
    let cluster = cluster(&DEFAULT, 50.0).await;
    cluster.create(DEPLOYMENTS, &without(set("Deployment", "web", 3), &["serviceName"])).await;
    let path = format!("{DEPLOYMENTS}/web");
    let up = cluster.until(&path, |web| web["status"]["availableReplicas"] == 3).await;
    assert!(holds(&up, "Available", "True"));
    cluster
        .until(&path, |web| {
            let conditions = web["status"]["conditions"].as_array().unwrap();
            conditions.iter().any(|c| c["type"] == "Progressing" && c["reason"] == "NewReplicaSetAvailable")
        })
        .await;
    let image = |image: &str| json!({ "spec": { "template": { "spec": { "containers": [{ "name": "main", "image": image }] } } } });
    let settled = |web: &Value| {
        let status = &web["status"];
        web["metadata"]["generation"] == status["observedGeneration"]
            && ["replicas", "updatedReplicas", "availableReplicas"].iter().all(|field| status[field] == 3)
    };
    cluster.patch(&path, &image("nginx:2")).await;
    let web = cluster.until(&path, settled).await;
    assert_eq!(web["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "2");
    assert_eq!(cluster.list(REPLICA_SETS).await.len(), 2);
    cluster.patch(&path, &image("nginx:1")).await;
    cluster
        .until(&path, |web| web["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "3")
        .await;
    cluster.until(&path, settled).await;
    assert_eq!(cluster.list(REPLICA_SETS).await.len(), 2, "the first set is used again");
    cluster.patch(&path, &json!({ "spec": { "replicas": 1 } })).await;
    cluster.until(&path, |web| web["status"]["replicas"] == 1).await;
    cluster.eventually("two pods go", || async { (cluster.pods().await.len() == 1).then_some(()) }).await;
    cluster.delete(&path).await;
    cluster.eventually("nothing is left", || async { cluster.pods().await.is_empty().then_some(()) }).await;
}

#[tokio::test(start_paused = true)]
async fn a_stateful_set_starts_its_pods_in_order() {
    let cluster = cluster(&DEFAULT, 50.0).await;
    cluster.create(STATEFUL_SETS, &set("StatefulSet", "db", 3)).await;
    let path = format!("{STATEFUL_SETS}/db");
    cluster.until(&path, |db| db["status"]["readyReplicas"] == 3).await;
    let pods = cluster.pods().await;
    assert_eq!(names(&cluster).await, ["db-0", "db-1", "db-2"]);
    let started: Vec<&str> = pods.iter().map(|pod| pod["status"]["startTime"].as_str().unwrap()).collect();
    assert!(started.is_sorted(), "{started:?}");
    cluster.delete(&format!("{PODS}/db-1")).await;
    cluster
        .eventually("db-1 comes back", || async {
            let pod = cluster.get(&format!("{PODS}/db-1")).await;
            (pod["metadata"]["uid"] != pods[1]["metadata"]["uid"] && holds(&pod, "Ready", "True"))
                .then_some(())
        })
        .await;
    cluster.patch(&path, &json!({ "spec": { "replicas": 1 } })).await;
    cluster.eventually("one is left", || async { (names(&cluster).await == ["db-0"]).then_some(()) }).await;
}

#[tokio::test(start_paused = true)]
async fn a_daemon_set_has_one_pod_on_every_node() {
    let cluster = cluster(&DEFAULT, 50.0).await;
    cluster.create(DAEMON_SETS, &without(set("DaemonSet", "agent", 0), &["serviceName", "replicas"])).await;
    cluster.until(&format!("{DAEMON_SETS}/agent"), |agent| agent["status"]["numberReady"] == 2).await;
    let mut nodes: Vec<Value> =
        cluster.pods().await.iter().map(|pod| pod["spec"]["nodeName"].clone()).collect();
    nodes.sort_by_key(Value::to_string);
    assert_eq!(nodes, ["cpu", "gpu"]);
}

#[tokio::test(start_paused = true)]
async fn no_object_gets_more_pods_than_all_nodes_could_hold() {
    let cluster = cluster(&DEFAULT, 1.0).await;
    let template = json!({"metadata": {"labels": {"app": "x"}}, "spec": {"restartPolicy": "Never",
        "schedulingGates": [{"name": "example.com/held"}], "containers": [{"name": "main", "image": "i"}]}});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"},
        "spec": {"parallelism": 2_000_000_000, "completions": 2_000_000_000, "template": template}});
    cluster.create("/apis/batch/v1/namespaces/default/jobs", &job).await;
    tokio::time::sleep(std::time::Duration::from_mins(1)).await;
    assert_eq!(cluster.pods().await.len(), 220);
}

#[tokio::test(start_paused = true)]
async fn pods_beyond_a_quota_are_not_created_and_events_say_so_until_there_is_room() {
    let cluster = cluster(&DEFAULT, 50.0).await;
    let quota = json!({ "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "q" }, "spec": { "hard": { "pods": "1" } } });
    let quotas = "/api/v1/namespaces/default/resourcequotas";
    cluster.create(quotas, &quota).await;
    let template = json!({ "metadata": { "labels": { "app": "a" } }, "spec": { "containers": [{ "name": "c", "image": "i" }] } });
    let mut of_job = template.clone();
    of_job["spec"]["restartPolicy"] = json!("Never");
    let selector = json!({ "matchLabels": { "app": "a" } });
    for (path, kind, spec, message) in [
        (
            "batch/v1",
            "Job",
            json!({ "parallelism": 2, "completions": 2, "template": of_job }),
            "Error creating: pods",
        ),
        (
            "apps/v1",
            "ReplicaSet",
            json!({ "replicas": 2, "selector": selector, "template": template }),
            "Error creating: pods",
        ),
        (
            "apps/v1",
            "DaemonSet",
            json!({ "selector": selector, "template": template }),
            "Error creating: pods",
        ),
        (
            "apps/v1",
            "StatefulSet",
            json!({ "replicas": 2, "serviceName": "s", "podManagementPolicy": "Parallel",
            "selector": selector, "template": template }),
            "create Pod statefulset-1 in StatefulSet statefulset failed error: pods",
        ),
    ] {
        let name = kind.to_lowercase();
        let object = json!({ "apiVersion": path, "kind": kind, "metadata": { "name": name }, "spec": spec });
        let path = format!("/apis/{path}/namespaces/default/{name}s");
        cluster.create(&path, &object).await;
        let of_quota = "is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1";
        let told = || async {
            let events = cluster.events(&name).await;
            events.into_iter().find(|told| {
                told.starts_with(&format!("FailedCreate: {message}")) && told.ends_with(of_quota)
            })
        };
        cluster.eventually(&format!("{kind} is told"), told).await;
        cluster.delete(&format!("{path}/{name}?propagationPolicy=Background")).await;
        let none = || async { cluster.pods().await.is_empty().then_some(()) };
        cluster.eventually("its pods are gone", none).await;
    }
    let used = cluster.until(&format!("{quotas}/q"), |quota| quota["status"]["used"]["pods"] == "0").await;
    assert_eq!(used["status"]["hard"]["pods"], "1");
}

#[tokio::test(start_paused = true)]
async fn a_job_with_a_limit_per_index_fails_after_all_other_indexes_have_ended() {
    let cluster = cluster(&DEFAULT, 50.0).await;
    let job = json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "j" }, "spec": {
        "completions": 3, "parallelism": 3, "completionMode": "Indexed", "backoffLimitPerIndex": 1,
        "template": {
            "metadata": { "annotations": { "sandbox.muster.dev/fail": "exit=1,index=1", "sandbox.muster.dev/run-time": "1s" } },
            "spec": { "restartPolicy": "Never", "containers": [{ "name": "c", "image": "i" }] },
        },
    } });
    cluster.create("/apis/batch/v1/namespaces/default/jobs", &job).await;
    let failed =
        cluster.until("/apis/batch/v1/namespaces/default/jobs/j", |job| holds(job, "Failed", "True")).await;
    let status = &failed["status"];
    assert_eq!((&status["failedIndexes"], &status["completedIndexes"]), (&json!("1"), &json!("0,2")));
    assert_eq!((&status["failed"], &status["succeeded"]), (&json!(2), &json!(2)));
    let condition = status["conditions"].as_array().unwrap().iter().find(|c| c["type"] == "Failed").unwrap();
    assert_eq!(
        (&condition["reason"], &condition["message"]),
        (&json!("FailedIndexes"), &json!("Job has failed indexes"))
    );
    let counts: Vec<String> = cluster
        .pods()
        .await
        .iter()
        .filter(|pod| pod["status"]["phase"] == "Failed")
        .map(|pod| {
            pod["metadata"]["annotations"]["batch.kubernetes.io/job-index-failure-count"]
                .as_str()
                .unwrap_or("none")
                .to_owned()
        })
        .collect();
    assert!(counts.contains(&"0".to_owned()) && counts.contains(&"1".to_owned()), "{counts:?}");
}
