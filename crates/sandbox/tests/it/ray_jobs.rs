//! The life cycle of RayJobs through the Kubernetes API.
#![allow(clippy::unwrap_used, reason = "a failed helper ends the test")]

use crate::support::{Cluster, DEFAULT, cluster};
use serde_json::{Value, json};

const RAYJOBS: &str = "/apis/ray.io/v1/namespaces/default/rayjobs";
const RAYCLUSTERS: &str = "/apis/ray.io/v1/namespaces/default/rayclusters";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";

fn ray_job(spec: &Value, annotations: &Value) -> Value {
    let template = json!({ "spec": { "containers": [{
        "name": "ray", "image": "rayproject/ray:2.52.0", "resources": { "limits": { "cpu": "1", "memory": "1Gi" } },
    }] } });
    let mut job = json!({
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": { "name": "demo", "annotations": annotations },
        "spec": {
            "entrypoint": "python train.py",
            "rayClusterSpec": {
                "rayVersion": "2.52.0",
                "headGroupSpec": { "rayStartParams": {}, "template": template },
                "workerGroupSpecs": [{
                    "groupName": "small-group", "replicas": 1, "minReplicas": 1, "maxReplicas": 5,
                    "rayStartParams": {}, "template": template,
                }],
            },
        },
    });
    for (field, value) in spec.as_object().into_iter().flatten() {
        job["spec"][field] = value.clone();
    }
    job
}

fn is(job: &Value, state: &str) -> bool {
    job["status"]["jobDeploymentStatus"] == state
}

async fn path(cluster: &Cluster, job: &Value) -> String {
    cluster.create(RAYJOBS, job).await;
    format!("{RAYJOBS}/demo")
}

#[tokio::test(start_paused = true)]
async fn a_job_runs_on_its_own_cluster_which_is_deleted_after_the_ttl() {
    let cluster = cluster(&DEFAULT, 50.0).await;
    let spec = json!({ "shutdownAfterJobFinishes": true, "ttlSecondsAfterFinished": 100 });
    let path = path(&cluster, &ray_job(&spec, &json!({}))).await;
    let job = cluster.until(&path, |job| job["status"]["jobStatus"] == "RUNNING").await;
    let name = job["status"]["rayClusterName"].as_str().unwrap().to_owned();
    assert_eq!(job["status"]["dashboardURL"], format!("{name}-head-svc.default.svc.cluster.local:8265"));
    assert_eq!(job["status"]["rayClusterStatus"]["state"], "ready");
    assert_eq!(job["metadata"]["finalizers"], json!(["ray.io/rayjob-finalizer"]));
    assert_eq!(cluster.pods().await.len(), 3);
    let ray = cluster.get(&format!("{RAYCLUSTERS}/{name}")).await;
    assert_eq!(ray["metadata"]["labels"]["ray.io/originated-from-cr-name"], "demo");
    let done = cluster.until(&path, |job| is(job, "Complete")).await;
    assert_eq!(
        (&done["status"]["jobStatus"], &done["status"]["succeeded"]),
        (&json!("SUCCEEDED"), &json!(1))
    );
    assert!(!cluster.get(&format!("{RAYCLUSTERS}/{name}")).await.is_null());
    cluster
        .eventually("only the submitter is left", || async {
            (cluster.list(RAYCLUSTERS).await.is_empty() && cluster.phases().await == ["Succeeded"])
                .then_some(())
        })
        .await;
    cluster.delete(&path).await;
    cluster
        .eventually("nothing is left", || async {
            let jobs = cluster.list(JOBS).await;
            (cluster.get(&path).await.is_null() && jobs.is_empty() && cluster.pods().await.is_empty())
                .then_some(())
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_suspended_job_has_no_cluster_and_a_resumed_job_gets_new_names() {
    let cluster = cluster(&DEFAULT, 50.0).await;
    let spec = json!({ "suspend": true, "shutdownAfterJobFinishes": true });
    let path = path(&cluster, &ray_job(&spec, &json!({}))).await;
    cluster.until(&path, |job| is(job, "Suspended")).await;
    assert!(cluster.list(RAYCLUSTERS).await.is_empty());
    cluster.patch(&path, &json!({ "spec": { "suspend": false } })).await;
    let first = cluster.until(&path, |job| job["status"]["jobStatus"] == "RUNNING").await;
    cluster.patch(&path, &json!({ "spec": { "suspend": true } })).await;
    let held = cluster.until(&path, |job| is(job, "Suspended")).await;
    assert!(held["status"]["jobId"].is_null() && held["status"]["rayClusterName"].is_null());
    cluster.eventually("no pods are left", || async { cluster.pods().await.is_empty().then_some(()) }).await;
    cluster.patch(&path, &json!({ "spec": { "suspend": false } })).await;
    let done = cluster.until(&path, |job| is(job, "Complete")).await;
    assert_ne!(done["status"]["rayClusterName"], first["status"]["rayClusterName"]);
}

#[tokio::test(start_paused = true)]
async fn a_failing_job_is_retried_on_a_new_cluster_each_time() {
    let cluster = cluster(&DEFAULT, 50.0).await;
    let spec = json!({ "backoffLimit": 1, "submitterConfig": { "backoffLimit": 0 } });
    let fails = json!({ "sandbox.muster.dev/fail": "exit=1,after=5s" });
    let path = path(&cluster, &ray_job(&spec, &fails)).await;
    let failed = cluster.until(&path, |job| is(job, "Failed")).await;
    assert_eq!((&failed["status"]["failed"], &failed["status"]["reason"]), (&json!(2), &json!("AppFailed")));
    let events = cluster.events("demo").await;
    assert_eq!(
        events.iter().filter(|event| event.starts_with("CreatedRayCluster:")).count(),
        2,
        "{events:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_job_without_submitter_job_runs_for_its_annotated_run_time() {
    for mode in ["HTTPMode", "SidecarMode"] {
        let cluster = cluster(&DEFAULT, 1.0).await;
        let spec = json!({ "submissionMode": mode });
        let path = path(&cluster, &ray_job(&spec, &json!({ "sandbox.muster.dev/run-time": "100s" }))).await;
        let done = cluster.until(&path, |job| is(job, "Complete")).await;
        assert_eq!(done["status"]["jobStatus"], "SUCCEEDED", "{mode}");
        assert!((100.0..170.0).contains(&cluster.elapsed()), "{mode} took {}", cluster.elapsed());
        assert!(cluster.list(JOBS).await.is_empty());
        assert_eq!(cluster.pods().await.len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn an_interactive_job_waits_until_its_job_id_is_set() {
    let cluster = cluster(&DEFAULT, 50.0).await;
    let path = path(&cluster, &ray_job(&json!({ "submissionMode": "InteractiveMode" }), &json!({}))).await;
    cluster.until(&path, |job| is(job, "Waiting")).await;
    cluster.patch(&path, &json!({ "spec": { "jobId": "mine" } })).await;
    let done = cluster.until(&path, |job| is(job, "Complete")).await;
    assert_eq!(done["status"]["jobId"], "mine");
}

#[tokio::test(start_paused = true)]
async fn a_job_that_selects_a_cluster_runs_when_that_cluster_is_ready() {
    let cluster = cluster(&DEFAULT, 50.0).await;
    let mut job = ray_job(&json!({ "clusterSelector": { "ray.io/cluster": "shared" } }), &json!({}));
    let spec = job["spec"].as_object_mut().unwrap().remove("rayClusterSpec").unwrap();
    let path = path(&cluster, &job).await;
    cluster.until(&path, |job| is(job, "Initializing")).await;
    let shared = json!({ "apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": { "name": "shared" }, "spec": spec });
    cluster.create(RAYCLUSTERS, &shared).await;
    let done = cluster.until(&path, |job| is(job, "Complete")).await;
    assert_eq!(done["status"]["rayClusterName"], "shared");
}
