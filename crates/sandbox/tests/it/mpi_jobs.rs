//! `MPIJobs` through the Kubernetes API.

#![allow(clippy::unwrap_used, reason = "a failed helper ends the test")]

use crate::support::{Cluster, DEFAULT, PODS, cluster, holds};
use serde_json::{Value, json};

const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const MPI_JOBS: &str = "/apis/kubeflow.org/v2beta1/namespaces/default/mpijobs";
const TRAIN: &str = "/apis/kubeflow.org/v2beta1/namespaces/default/mpijobs/train";

fn role(replicas: u32, annotations: &Value) -> Value {
    json!({"replicas": replicas, "template": {"metadata": {"annotations": annotations},
        "spec": {"containers": [{"name": "main", "image": "i"}]}}})
}

fn mpi_job(launcher: &Value, spec: &Value) -> Value {
    let mut job = json!({"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": {"name": "train"},
        "spec": {"mpiReplicaSpecs": {"Launcher": role(1, launcher), "Worker": role(2, &json!({}))}}});
    job["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    job
}

async fn workers(cluster: &Cluster) -> Vec<String> {
    let name = |pod: &Value| pod["metadata"]["name"].as_str().unwrap().to_owned();
    let mut names: Vec<String> = cluster.pods().await.iter().map(name).collect();
    names.retain(|name| name.starts_with("train-worker"));
    names.sort();
    names
}

#[tokio::test(start_paused = true)]
async fn an_mpi_job_is_suspended_resumed_and_ends_with_its_launcher() {
    let cluster = cluster(&DEFAULT, 1.0).await;
    let policy = json!({"suspend": true, "cleanPodPolicy": "Running"});
    let launcher = json!({"sandbox.muster.dev/run-time": "30s"});
    cluster.create(MPI_JOBS, &mpi_job(&launcher, &json!({"runPolicy": policy}))).await;
    let job = cluster.until(TRAIN, |job| holds(job, "Suspended", "True")).await;
    assert!(holds(&job, "Created", "True") && holds(&job, "Running", "False"), "{job:#}");
    assert!(job["status"]["startTime"].is_null(), "{job:#}");
    cluster.until(&format!("{JOBS}/train-launcher"), |job| job["spec"]["suspend"] == true).await;
    assert!(cluster.pods().await.is_empty());
    for suspend in [false, true, false] {
        cluster.patch(TRAIN, &json!({"spec": {"runPolicy": {"suspend": suspend}}})).await;
        if suspend {
            cluster.until(TRAIN, |job| holds(job, "Suspended", "True")).await;
            cluster
                .eventually("no pod is left", || async { cluster.pods().await.is_empty().then_some(()) })
                .await;
            continue;
        }
        let job = cluster.until(TRAIN, |job| holds(job, "Running", "True")).await;
        assert!(holds(&job, "Suspended", "False"), "{job:#}");
        let shown = json!({"Launcher": {"active": 1}, "Worker": {"active": 2}});
        assert_eq!(job["status"]["replicaStatuses"], shown);
        assert_eq!(workers(&cluster).await, ["train-worker-0", "train-worker-1"]);
    }
    let labels = cluster.get(&format!("{PODS}/train-worker-1")).await["metadata"]["labels"].clone();
    assert_eq!(labels["training.kubeflow.org/replica-index"], "1");
    assert_eq!(labels["training.kubeflow.org/job-role"], "worker");
    let job = cluster.until(TRAIN, |job| holds(job, "Succeeded", "True")).await;
    assert!(holds(&job, "Running", "False") && job["status"]["completionTime"].is_string(), "{job:#}");
    assert_eq!(job["status"]["replicaStatuses"]["Launcher"], json!({"succeeded": 1}));
    cluster
        .eventually("no worker is left", || async { workers(&cluster).await.is_empty().then_some(()) })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_launcher_that_waits_for_the_workers_is_created_after_them() {
    let cluster = cluster(&DEFAULT, 1.0).await;
    let mut job = mpi_job(&json!({}), &json!({"launcherCreationPolicy": "WaitForWorkersReady"}));
    let never = json!({"sandbox.muster.dev/fail": "never-ready"});
    job["spec"]["mpiReplicaSpecs"]["Worker"] = role(1, &never);
    cluster.create(MPI_JOBS, &job).await;
    cluster.until(&format!("{PODS}/train-worker-0"), |pod| pod["status"]["phase"] == "Running").await;
    assert!(cluster.list(JOBS).await.is_empty());
    cluster.delete(TRAIN).await;
    cluster.eventually("no pod is left", || async { cluster.pods().await.is_empty().then_some(()) }).await;
    job["spec"]["mpiReplicaSpecs"]["Worker"] = role(1, &json!({}));
    cluster.create(MPI_JOBS, &job).await;
    cluster.until(TRAIN, |job| holds(job, "Succeeded", "True")).await;
    assert_eq!(workers(&cluster).await, ["train-worker-0"]);
}

#[tokio::test(start_paused = true)]
async fn an_mpi_job_fails_with_its_launcher() {
    let cluster = cluster(&DEFAULT, 1.0).await;
    let mut job =
        mpi_job(&json!({"sandbox.muster.dev/fail": "exit=3"}), &json!({"runPolicy": {"backoffLimit": 0}}));
    job["spec"]["mpiReplicaSpecs"]["Launcher"]["restartPolicy"] = json!("Never");
    cluster.create(MPI_JOBS, &job).await;
    let job = cluster.until(TRAIN, |job| holds(job, "Failed", "True")).await;
    assert_eq!(job["status"]["replicaStatuses"]["Launcher"], json!({"failed": 1}));
    let conditions = job["status"]["conditions"].as_array().unwrap();
    assert!(conditions.iter().any(|condition| condition["reason"] == "BackoffLimitExceeded"), "{job:#}");
}
