//! `JobSet`s and training jobs through the Kubernetes API.

#![allow(clippy::unwrap_used, reason = "a failed helper ends the test")]

use crate::support::{Cluster, DEFAULT, cluster, holds};
use serde_json::{Value, json};

const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const JOB_SETS: &str = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets";
const PYTORCH_JOBS: &str = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs";

fn template(annotations: &Value) -> Value {
    json!({"metadata": {"annotations": annotations}, "spec": {"containers": [{"name": "main", "image": "i"}]}})
}

fn replicated(name: &str, replicas: u32, annotations: &Value) -> Value {
    json!({"name": name, "replicas": replicas,
        "template": {"spec": {"parallelism": 1, "completions": 1, "backoffLimit": 0, "template": template(annotations)}}})
}

fn job_set(spec: &Value, jobs: &[Value]) -> Value {
    let mut set = json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "train"},
        "spec": {"replicatedJobs": jobs}});
    set["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    set
}

async fn names(cluster: &Cluster, path: &str) -> Vec<String> {
    let name = |object: &Value| object["metadata"]["name"].as_str().unwrap().to_owned();
    cluster.list(path).await.iter().map(name).collect()
}

async fn gone(cluster: &Cluster) {
    cluster.eventually("no pod is left", || async { cluster.pods().await.is_empty().then_some(()) }).await;
}

#[tokio::test(start_paused = true)]
async fn a_job_set_is_suspended_resumed_with_other_selectors_and_completes() {
    let cluster = cluster(&DEFAULT, 1.0).await;
    let none = json!({});
    let jobs = [replicated("driver", 1, &none), replicated("worker", 2, &none)];
    cluster.create(JOB_SETS, &job_set(&json!({"suspend": true}), &jobs)).await;
    let path = format!("{JOB_SETS}/train");
    let set = cluster.until(&path, |set| set["status"]["replicatedJobsStatus"][1]["suspended"] == 2).await;
    assert_eq!(names(&cluster, JOBS).await, ["train-driver-0", "train-worker-0", "train-worker-1"]);
    assert!(holds(&set, "Suspended", "True"), "{set:#}");
    assert_eq!(cluster.pods().await.len(), 0);
    let mut placed = jobs.clone();
    placed[1]["template"]["spec"]["template"]["spec"]["nodeSelector"] = json!({"kubernetes.io/os": "linux"});
    cluster.patch(&path, &json!({"spec": {"suspend": false, "replicatedJobs": placed}})).await;
    let set = cluster.until(&path, |set| set["status"]["replicatedJobsStatus"][1]["ready"] == 2).await;
    assert!(holds(&set, "Suspended", "False"), "{set:#}");
    let pods = cluster.pods().await;
    let worker =
        pods.iter().find(|pod| pod["metadata"]["labels"]["jobset.sigs.k8s.io/job-global-index"] == "2");
    let worker = worker.unwrap();
    assert_eq!(worker["metadata"]["labels"]["jobset.sigs.k8s.io/replicatedjob-name"], "worker");
    assert_eq!(worker["spec"]["nodeSelector"], json!({"kubernetes.io/os": "linux"}));
    assert_eq!(worker["spec"]["subdomain"], "train");
    cluster.patch(&path, &json!({"spec": {"suspend": true}})).await;
    cluster.until(&path, |set| holds(set, "Suspended", "True")).await;
    gone(&cluster).await;
    cluster.until(&path, |set| set["status"]["replicatedJobsStatus"][1]["active"] == 0).await;
    cluster.patch(&path, &json!({"spec": {"suspend": false}})).await;
    let set = cluster.until(&path, |set| holds(set, "Completed", "True")).await;
    assert_eq!(set["status"]["terminalState"], "Completed");
    assert_eq!(set["status"]["replicatedJobsStatus"][1]["succeeded"], 2);
    let events = cluster.events("train").await;
    for told in ["SuspendedJobs: jobset is suspended", "AllJobsCompleted: jobset completed successfully"] {
        assert!(events.iter().any(|event| event == told), "{events:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_set_starts_again_after_a_failure_and_fails_after_the_last() {
    let cluster = cluster(&DEFAULT, 1.0).await;
    let fails = json!({"sandbox.muster.dev/fail": "exit=3"});
    let mut job = replicated("worker", 1, &fails);
    job["template"]["spec"]["template"]["spec"]["restartPolicy"] = json!("Never");
    let spec = json!({"failurePolicy": {"maxRestarts": 1}, "ttlSecondsAfterFinished": 30});
    cluster.create(JOB_SETS, &job_set(&spec, &[job])).await;
    let path = format!("{JOB_SETS}/train");
    cluster.until(&path, |set| set["status"]["restarts"] == 1).await;
    let second = |job: &Value| job["metadata"]["labels"]["jobset.sigs.k8s.io/restart-attempt"] == "1";
    cluster.until(&format!("{JOBS}/train-worker-0"), second).await;
    let set = cluster.until(&path, |set| holds(set, "Failed", "True")).await;
    let failed =
        set["status"]["conditions"].as_array().unwrap().iter().find(|c| c["type"] == "Failed").unwrap();
    assert_eq!(failed["reason"], "ReachedMaxRestarts");
    cluster.until(&path, Value::is_null).await;
    gone(&cluster).await;
}

#[tokio::test(start_paused = true)]
async fn the_jobs_of_a_job_set_start_in_order_if_they_are_to() {
    let cluster = cluster(&DEFAULT, 1.0).await;
    let short = json!({"sandbox.muster.dev/run-time": "20s"});
    let mut last = replicated("last", 1, &short);
    last["dependsOn"] = json!([{"name": "first", "status": "Complete"}]);
    cluster.create(JOB_SETS, &job_set(&json!({}), &[replicated("first", 1, &short), last])).await;
    cluster.until(&format!("{JOBS}/train-first-0"), |job| job["status"]["ready"] == 1).await;
    assert_eq!(names(&cluster, JOBS).await, ["train-first-0"]);
    cluster.until(&format!("{JOB_SETS}/train"), |set| holds(set, "Completed", "True")).await;
    assert!(cluster.elapsed() > 40.0, "{}", cluster.elapsed());
}

fn training(kind: &str, field: &str, roles: &Value, policy: &Value) -> Value {
    json!({"apiVersion": "kubeflow.org/v1", "kind": kind, "metadata": {"name": "train"},
        "spec": {"runPolicy": policy, field: roles}})
}

fn role(replicas: u32, run_time: &str) -> Value {
    json!({"replicas": replicas, "template": template(&json!({"sandbox.muster.dev/run-time": run_time}))})
}

#[tokio::test(start_paused = true)]
async fn a_pytorch_job_is_suspended_resumed_and_ends_with_its_master() {
    let cluster = cluster(&DEFAULT, 1.0).await;
    let roles = json!({"Master": role(1, "30s"), "Worker": role(2, "10m")});
    let policy = json!({"suspend": true, "cleanPodPolicy": "Running", "ttlSecondsAfterFinished": 60});
    cluster.create(PYTORCH_JOBS, &training("PyTorchJob", "pytorchReplicaSpecs", &roles, &policy)).await;
    let path = format!("{PYTORCH_JOBS}/train");
    let job = cluster.until(&path, |job| holds(job, "Suspended", "True")).await;
    assert!(holds(&job, "Created", "True") && job["status"]["startTime"].is_null(), "{job:#}");
    cluster.patch(&path, &json!({"spec": {"runPolicy": {"suspend": false}}})).await;
    let job = cluster.until(&path, |job| job["status"]["replicaStatuses"]["Worker"]["active"] == 2).await;
    assert!(holds(&job, "Running", "True") && holds(&job, "Suspended", "False"), "{job:#}");
    let mut pods = names(&cluster, "/api/v1/namespaces/default/pods").await;
    pods.sort();
    assert_eq!(pods, ["train-master-0", "train-worker-0", "train-worker-1"]);
    let labels =
        cluster.get("/api/v1/namespaces/default/pods/train-master-0").await["metadata"]["labels"].clone();
    assert_eq!(labels["training.kubeflow.org/job-role"], "master");
    assert_eq!(labels["training.kubeflow.org/replica-index"], "0");
    cluster.patch(&path, &json!({"spec": {"runPolicy": {"suspend": true}}})).await;
    let job = cluster.until(&path, |job| holds(job, "Suspended", "True")).await;
    assert!(holds(&job, "Running", "False"), "{job:#}");
    gone(&cluster).await;
    cluster.patch(&path, &json!({"spec": {"runPolicy": {"suspend": false}}})).await;
    let job = cluster.until(&path, |job| holds(job, "Succeeded", "True")).await;
    assert_eq!(job["status"]["conditions"][0]["message"], "PyTorchJob train is created.");
    assert!(job["status"]["completionTime"].is_string());
    cluster
        .eventually("the workers are gone", || async { (cluster.pods().await.len() == 1).then_some(()) })
        .await;
    cluster.until(&path, Value::is_null).await;
}

#[tokio::test(start_paused = true)]
async fn the_other_training_jobs_end_as_their_kinds_do() {
    let cases = [
        ("TFJob", "tfjobs", "tfReplicaSpecs", json!({"PS": role(1, "10m"), "Worker": role(2, "20s")})),
        (
            "XGBoostJob",
            "xgboostjobs",
            "xgbReplicaSpecs",
            json!({"Master": role(1, "20s"), "Worker": role(1, "10m")}),
        ),
        ("PaddleJob", "paddlejobs", "paddleReplicaSpecs", json!({"Worker": role(2, "20s")})),
        ("JAXJob", "jaxjobs", "jaxReplicaSpecs", json!({"Worker": role(2, "20s")})),
    ];
    for (kind, plural, field, roles) in cases {
        let cluster = cluster(&DEFAULT, 1.0).await;
        let collection = format!("/apis/kubeflow.org/v1/namespaces/default/{plural}");
        cluster.create(&collection, &training(kind, field, &roles, &json!({}))).await;
        let path = format!("{collection}/train");
        cluster.until(&path, |job| holds(job, "Running", "True")).await;
        let job = cluster.until(&path, |job| holds(job, "Succeeded", "True")).await;
        assert!(holds(&job, "Running", "False"), "{job:#}");
        assert!(cluster.elapsed() < 40.0, "{kind}: {}", cluster.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_training_job_restarts_its_pods_or_fails() {
    let cluster = cluster(&DEFAULT, 1.0).await;
    let fails = |policy: &str| {
        let annotations = json!({"sandbox.muster.dev/fail": "exit=3"});
        json!({"Worker": {"replicas": 1, "restartPolicy": policy, "template": template(&annotations)}})
    };
    let path = format!("{PYTORCH_JOBS}/train");
    let job = |roles: &Value| training("PyTorchJob", "pytorchReplicaSpecs", roles, &json!({}));
    cluster.create(PYTORCH_JOBS, &job(&fails("Never"))).await;
    let failed = cluster.until(&path, |job| holds(job, "Failed", "True")).await;
    let text = "PyTorchJob train is failed because 1 Worker replica(s) failed.";
    let conditions = failed["status"]["conditions"].as_array().unwrap();
    assert!(conditions.iter().any(|condition| condition["message"] == text), "{failed:#}");
    cluster.delete(&path).await;
    gone(&cluster).await;
    cluster.create(PYTORCH_JOBS, &job(&fails("ExitCode"))).await;
    let first = cluster.until("/api/v1/namespaces/default/pods/train-worker-0", Value::is_object).await;
    let uid = first["metadata"]["uid"].clone();
    let is_another = |pod: &Value| pod.is_object() && pod["metadata"]["uid"] != uid;
    cluster.until("/api/v1/namespaces/default/pods/train-worker-0", is_another).await;
}
