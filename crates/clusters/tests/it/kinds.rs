//! Jobs of many kinds run in a worker, with pods of simulated operators.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::fmt::Write as _;
use std::time::Duration;

use api::kueue::jobs::{JobKind, remote};
use kube::api::{DynamicObject, ListParams};
use serde_json::{Value, json};

use crate::common::*;

/// A kind, its spec, the number of its pods, and whether it ends by itself.
struct Case {
    framework: &'static str,
    spec: Value,
    pods: usize,
    ends: bool,
}

fn template() -> Value {
    let mut template = endless();
    template["metadata"] = json!({"annotations": {"sandbox.muster.dev/run-time": "5m"}});
    template["spec"]["restartPolicy"] = json!("Never");
    template
}

/// A template of pods that do not end by themselves.
fn endless() -> Value {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}});
    json!({"spec": {"containers": [container]}})
}

fn ray_cluster() -> Value {
    let group = json!({"groupName": "small", "replicas": 2, "minReplicas": 2, "maxReplicas": 2, "numOfHosts": 1,
        "rayStartParams": {}, "template": endless()});
    json!({"headGroupSpec": {"rayStartParams": {}, "template": endless()}, "workerGroupSpecs": [group]})
}

fn training(field: &str, roles: &[&str]) -> Value {
    let role = |name: &&str| {
        ((*name).to_owned(), json!({"replicas": 1, "restartPolicy": "Never", "template": template()}))
    };
    let roles: serde_json::Map<String, Value> = roles.iter().map(role).collect();
    json!({field: roles, "runPolicy": {"suspend": true}})
}

fn cases() -> Vec<Case> {
    let case = |framework, spec, pods, ends| Case { framework, spec, pods, ends };
    let ray_job = json!({"entrypoint": "python train.py", "submissionMode": "HTTPMode",
        "shutdownAfterJobFinishes": true, "suspend": true, "rayClusterSpec": ray_cluster()});
    let mut ray = ray_cluster();
    ray["suspend"] = json!(true);
    let job = json!({"parallelism": 2, "completions": 2, "template": template()});
    let set = json!({"suspend": true,
        "replicatedJobs": [{"name": "workers", "replicas": 2, "template": {"spec": job}}]});
    vec![
        case(
            "batch/job",
            json!({"suspend": true, "parallelism": 2, "completions": 2, "template": template()}),
            2,
            true,
        ),
        case("ray.io/rayjob", ray_job, 3, true),
        case("ray.io/raycluster", ray, 3, false),
        case("jobset.x-k8s.io/jobset", set, 4, true),
        case("kubeflow.org/mpijob", training("mpiReplicaSpecs", &["Launcher", "Worker"]), 2, true),
        case("kubeflow.org/pytorchjob", training("pytorchReplicaSpecs", &["Master", "Worker"]), 2, true),
        case("kubeflow.org/tfjob", training("tfReplicaSpecs", &["Chief", "Worker"]), 2, true),
        case("kubeflow.org/xgboostjob", training("xgbReplicaSpecs", &["Master", "Worker"]), 2, true),
        case("kubeflow.org/paddlejob", training("paddleReplicaSpecs", &["Master", "Worker"]), 2, true),
        case("kubeflow.org/jaxjob", training("jaxReplicaSpecs", &["Worker"]), 1, true),
    ]
}

/// Waits until a job of the hub has this many running pods in one worker, and its status. Returns the worker.
async fn runs(world: &World, case: &Case, name: &str) -> String {
    let kind = JobKind::of_framework(case.framework).unwrap();
    let jobs = resource(kind.api_version, kind.kind, kind.plural);
    let pods = resource("v1", "Pod", "pods");
    for _ in 0..40 {
        tokio::time::sleep(Duration::from_secs(5)).await;
        let Some(local) = world.hub.get(&jobs, name).await else { continue };
        for (cluster, worker) in &world.workers {
            let Some(copy) = worker.get(&jobs, name).await else { continue };
            let all = worker.api(&pods, "default").list(&ListParams::default()).await.unwrap();
            let is_one = |pod: &&DynamicObject| {
                pod.data["status"]["phase"] == "Running"
                    && pod.metadata.name.as_ref().unwrap().starts_with(name)
            };
            let is_same = !copy.data["status"].is_null() && local.data["status"] == copy.data["status"];
            if is_same && all.items.iter().filter(is_one).count() == case.pods {
                return (*cluster).to_owned();
            }
        }
    }
    let told = |object: Option<DynamicObject>| object.map(|object| object.data["status"].to_string());
    let mut text = format!("{name} at the hub: {:?}", told(world.hub.get(&jobs, name).await));
    for workload in world.hub.api(&workloads(), "default").list(&ListParams::default()).await.unwrap() {
        if workload.metadata.name.as_ref().unwrap().contains(name) {
            let _ = write!(text, "\n{}", workload.data["status"]);
        }
    }
    for (cluster, worker) in &world.workers {
        let _ = write!(text, "\nin {cluster}: {:?}", told(worker.get(&jobs, name).await));
        for pod in worker.api(&pods, "default").list(&ListParams::default()).await.unwrap() {
            let name = pod.metadata.name.unwrap();
            let _ = write!(text, "\n  {name} {}", pod.data["status"]["phase"]);
        }
    }
    panic!("{text}");
}

#[tokio::test(start_paused = true)]
async fn a_job_of_each_kind_runs_in_one_worker_and_its_status_and_end_come_back() {
    let world = World::new(&[("east", 16), ("west", 16)]).await;
    let _sandboxes = world.simulate().await;
    let _loop = world.start();
    for case in cases() {
        let kind = JobKind::of_framework(case.framework).unwrap();
        let jobs = resource(kind.api_version, kind.kind, kind.plural);
        let name = format!("a-{}", kind.kind.to_lowercase());
        let mut job = json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "team"},
            "annotations": {"sandbox.muster.dev/run-time": "5m"}}, "spec": case.spec.clone()});
        remote::hand_over(kind, &mut job);
        world.hub.create(&jobs, "default", &name, job).await;
        let cluster = runs(&world, &case, &name).await;
        let uid = world.hub.get(&jobs, &name).await.unwrap().metadata.uid.unwrap();
        let workload = kind.workload_name(&name, &uid);
        world.hub.wait(&workloads(), &workload, |w| w.data["status"]["clusterName"] == *cluster).await;
        if case.ends {
            let local = world.hub.wait(&workloads(), &workload, |w| condition(w, "Finished").is_some()).await;
            let reason = condition(&local, "Finished").unwrap()["reason"].clone();
            assert_eq!(reason, "Succeeded", "{name}: {}", local.data["status"]);
        } else {
            world.hub.delete(&jobs, "default", &name).await;
        }
        for worker in world.workers.values() {
            worker.gone(&jobs, &name).await;
            worker.gone(&workloads(), &workload).await;
        }
        assert!(
            world.hub.names(&resource("v1", "Pod", "pods")).await.is_empty(),
            "{name} has pods at the hub"
        );
    }
}
