//! The number of writes, and their delay.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use crate::common;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::common::jobs::*;
use crate::common::kueue::*;
use crate::common::{Cluster, Group, example, of_mcad, recording, renamed, resource, wrappers};
use controllers::{Config, Kueue};
use kube::Client;
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};
use tower::Service as _;

#[tokio::test(start_paused = true)]
async fn a_dispatch_takes_two_status_writes_and_its_objects_and_a_wait_one_status_write_and_an_event() {
    let cluster = Cluster::new().await;
    cluster.default_nodes().await;
    let (client, writes) = recording(&cluster);
    let _controller = cluster.controller_over(client);
    cluster.submit(of_mcad(example("aw-raycluster.yaml"))).await;
    cluster.wait_state(Group::Mcad, "raycluster-autoscaler", "Running", "Dispatched").await;
    cluster.settled().await;
    let status =
        "PATCH /apis/mcad.ibm.com/v1beta1/namespaces/default/appwrappers/raycluster-autoscaler/status";
    let create = "POST /apis/ray.io/v1alpha1/namespaces/default/rayclusters";
    assert_eq!(writes.lock().unwrap().split_off(0), [status, create, status]);

    cluster.submit(renamed(of_mcad(example("aw-raycluster.yaml")), "next", "next")).await;
    cluster.wait_state(Group::Mcad, "next", "Pending", "HeadOfLine").await;
    cluster.settled().await;
    let status = "PATCH /apis/mcad.ibm.com/v1beta1/namespaces/default/appwrappers/next/status";
    assert_eq!(writes.lock().unwrap().split_off(0), [status, "POST /api/v1/namespaces/default/events"]);
}

#[tokio::test(start_paused = true)]
async fn changed_figures_are_written_at_most_every_ten_seconds() {
    let cluster = Cluster::new().await;
    cluster.default_nodes().await;
    let (client, writes) = recording(&cluster);
    let _controller = cluster.controller_over(client);
    cluster.submit(of_mcad(example("aw-raycluster.yaml"))).await;
    cluster.submit(renamed(of_mcad(example("aw-raycluster.yaml")), "next", "next")).await;
    cluster.wait_state(Group::Mcad, "next", "Pending", "HeadOfLine").await;
    for n in 0..5 {
        cluster
            .node(&format!("more-{n}"), &serde_json::json!({"cpu": "1", "memory": "1Gi", "pods": "110"}))
            .await;
        cluster.settled().await;
    }
    let about = |writes: &Mutex<Vec<String>>| {
        writes
            .lock()
            .unwrap()
            .iter()
            .filter(|write| write.contains("/next/") || write.contains("events"))
            .count()
    };
    assert_eq!(about(&writes), 2);
    let told = |wrapper: &kube::api::DynamicObject| {
        common::reason(&wrapper.data["status"])
            == "needs 20 cpu in total (declared); 17 of 37 cpu are free on 7 eligible nodes"
    };
    cluster.wait(&wrappers(Group::Mcad), "default", "next", told).await;
    assert_eq!(about(&writes), 3);
}

#[tokio::test(start_paused = true)]
async fn without_changes_expected_starts_are_written_ever_less_often() {
    let cluster = Cluster::new().await;
    cluster.default_nodes().await;
    let (client, writes) = recording(&cluster);
    let _controller = cluster.controller_over(client);
    // None of them declares a run time.
    for name in ["first", "second", "third"] {
        let mut wrapper = renamed(of_mcad(example("aw-raycluster.yaml")), name, name);
        // No operator creates the pods.
        wrapper["spec"]["schedulingSpec"]["requeuing"] = serde_json::json!({"timeInSeconds": 86_400});
        cluster.submit(wrapper).await;
    }
    cluster.wait_state(Group::Mcad, "third", "Pending", "HeadOfLine").await;
    let mut of_hours = Vec::new();
    for _ in 0..4 {
        tokio::time::sleep(std::time::Duration::from_hours(1)).await;
        of_hours.push(writes.lock().unwrap().split_off(0).len());
    }
    let [first, later @ ..] = &of_hours[..] else { unreachable!() };
    assert!(*first < 40 && later.iter().all(|writes| *writes < 10), "writes in each hour: {of_hours:?}");
}

#[tokio::test(start_paused = true)]
async fn the_next_gang_is_dispatched_without_delay_after_a_deletion() {
    let cluster = Cluster::new().await;
    cluster.default_nodes().await;
    let _controller = cluster.controller();
    cluster.submit(of_mcad(example("aw-raycluster.yaml"))).await;
    cluster.submit(renamed(of_mcad(example("aw-raycluster.yaml")), "next", "next")).await;
    cluster.wait_state(Group::Mcad, "next", "Pending", "HeadOfLine").await;
    let before = tokio::time::Instant::now();
    cluster.delete(&wrappers(Group::Mcad), "default", "raycluster-autoscaler").await;
    cluster.wait_state(Group::Mcad, "next", "Running", "Dispatched").await;
    assert!(before.elapsed().as_millis() < 100, "it took {:?} of virtual time", before.elapsed());
}

#[tokio::test(start_paused = true)]
async fn queue_positions_are_refreshed_at_a_limited_rate() {
    let cluster = Cluster::new().await;
    cluster.default_nodes().await;
    let (client, writes) = recording(&cluster);
    let _controller = cluster.controller_over(client);
    cluster.submit(of_mcad(example("aw-raycluster.yaml"))).await;
    for name in ["second", "third", "fourth"] {
        cluster.submit(renamed(of_mcad(example("aw-raycluster.yaml")), name, name)).await;
        cluster.wait_state(Group::Mcad, name, "Pending", "HeadOfLine").await;
    }
    let position = |name: &'static str, position: &'static str| {
        let is_told = move |wrapper: &kube::api::DynamicObject| {
            wrapper.data["status"]["message"].as_str().unwrap().contains(position)
        };
        let cluster = &cluster;
        async move { cluster.wait(&wrappers(Group::Mcad), "default", name, is_told).await }
    };
    position("second", "Position 1 of 3").await;
    position("third", "Position 2 of 3").await;
    writes.lock().unwrap().clear();
    cluster.delete(&wrappers(Group::Mcad), "default", "second").await;
    position("fourth", "Position 2 of 2").await;
    position("third", "Position 1 of 2").await;
    let patches = writes.lock().unwrap().iter().filter(|write| write.starts_with("PATCH")).count();
    assert_eq!(patches, 2, "{:?}", writes.lock().unwrap());
}

/// Creates a pod of a Job as the Job controller does, with its scheduling gate.
async fn pod_of(cluster: &Cluster, job: &DynamicObject, name: &str) {
    let template = &job.data["spec"]["template"];
    let owner = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": job.metadata.name, "uid": job.metadata.uid,
        "controller": true, "blockOwnerDeletion": true}]);
    let labels = &template["metadata"]["labels"];
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": template["spec"],
        "metadata": {"name": name, "labels": labels, "ownerReferences": owner}});
    cluster.create_as(&resource("v1", "Pod", "pods"), "default", pod).await;
}

async fn dispatched_job(cluster: &Cluster) -> DynamicObject {
    cluster.submit(example("aw-job.yaml")).await;
    cluster.wait_state(Group::Codeflare, "aw-job", "Running", "Dispatched").await;
    cluster.wait(&resource("batch/v1", "Job", "jobs"), "default", "aw-job", |_| true).await
}

#[tokio::test(start_paused = true)]
async fn pod_changes_within_half_a_second_take_one_status_write() {
    let cluster = Cluster::new().await;
    cluster.default_nodes().await;
    let (client, writes) = recording(&cluster);
    let _controller = cluster.controller_over(client);
    let job = dispatched_job(&cluster).await;
    writes.lock().unwrap().clear();
    let pods = ["a", "b"];
    let begin = tokio::time::Instant::now();
    for pod in pods {
        pod_of(&cluster, &job, pod).await;
        cluster.settled().await;
    }
    for pod in pods {
        let runs = Patch::Merge(json!({"status": {"phase": "Running"}}));
        let api = cluster.api(&resource("v1", "Pod", "pods"), "default");
        api.patch_status(pod, &PatchParams::default(), &runs).await.unwrap();
        cluster.settled().await;
    }
    let both_run = |wrapper: &DynamicObject| {
        wrapper.data["status"]["running"] == 2 && wrapper.data["status"]["queuejobstate"] == "Running"
    };
    cluster.wait(&wrappers(Group::Codeflare), "default", "aw-job", both_run).await;
    assert!(begin.elapsed().as_millis() < 600, "it took {:?} of virtual time", begin.elapsed());
    let about_pods = writes.lock().unwrap().iter().filter(|write| write.contains("/pods/")).count();
    let others: Vec<String> =
        writes.lock().unwrap().iter().filter(|write| !write.contains("/pods/")).cloned().collect();
    let status = "PATCH /apis/workload.codeflare.dev/v1beta1/namespaces/default/appwrappers/aw-job/status";
    assert_eq!((about_pods, others), (2, vec![status.to_owned()]), "two gates and one status");
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_dispatched_gang_are_ungated_while_other_gangs_are_dispatched() {
    let cluster = Cluster::new().await;
    cluster.default_nodes().await;
    let stuck = Arc::new(AtomicBool::new(false));
    let (service, holds) = (cluster.service.clone(), stuck.clone());
    let connection = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let is_held = holds.load(Ordering::Relaxed) && request.uri().path().ends_with("/jobs");
        let mut service = service.clone();
        async move {
            if is_held && request.method() == http::Method::POST {
                std::future::pending::<()>().await;
            }
            service.call(request).await
        }
    });
    let config = Config { writers: 1, ..Config::default() };
    let _controller = cluster.start(Client::new(connection, "default"), config);
    let job = dispatched_job(&cluster).await;
    stuck.store(true, Ordering::Relaxed);
    cluster.submit(renamed(example("aw-job.yaml"), "next", "next")).await;
    let has_intent = |wrapper: &DynamicObject| wrapper.data["status"]["canrun"] == true;
    cluster.wait(&wrappers(Group::Codeflare), "default", "next", has_intent).await;
    pod_of(&cluster, &job, "a").await;
    let is_let_go = |pod: &DynamicObject| pod.data["spec"]["schedulingGates"] == Value::Null;
    cluster.wait(&resource("v1", "Pod", "pods"), "default", "a", is_let_go).await;
}

/// The writes about jobs and their Workloads: method, resource and subresource. Without Events and the statuses of queues.
fn about_jobs(writes: &Mutex<Vec<String>>) -> Vec<String> {
    let is_about = |write: &&String| !write.ends_with("/events") && !write.contains("queues/");
    let all = std::mem::take(&mut *writes.lock().unwrap());
    let shown = |write: &String| {
        let (method, path) = write.split_once(' ').unwrap();
        let (_, path) = path.split_once("/namespaces/default/").unwrap();
        let mut parts = path.split('/');
        let (resource, subresource) = (parts.next().unwrap(), parts.nth(1).unwrap_or_default());
        format!("{method} {resource} {subresource}").trim_end().to_owned()
    };
    all.iter().filter(is_about).map(shown).collect()
}

#[tokio::test(start_paused = true)]
async fn a_job_in_a_queue_takes_three_writes_to_run_and_two_to_end() {
    let cluster = kueue_cluster().await;
    let (client, writes) = recording(&cluster);
    let config = Config { kueue: Kueue::Scheduler, jobs: all_kinds(), ..Config::default() };
    let _controller = cluster.start(client, config);
    gpu_queue(&cluster, 8, json!({})).await;
    let ray = Jobs::of(&cluster, "ray.io/rayjob");
    ray.install().await;
    cluster.settled().await;
    writes.lock().unwrap().clear();
    let starts = |resource| ["POST workloads", "PATCH workloads status", resource].map(str::to_owned);
    let ends = ["PATCH workloads status", "PATCH workloads"];

    submit_job(&cluster, job("train", 2)).await;
    running(&cluster, "train").await;
    cluster.settled().await;
    assert_eq!(about_jobs(&writes), starts("PUT jobs"));
    let complete = json!({"type": "Complete", "status": "True", "message": "done"});
    status(&cluster, "train", json!({"conditions": [complete]})).await;
    cluster.settled().await;
    assert_eq!(about_jobs(&writes), ends);

    ray.submit("serve", ray_job(1)).await;
    ray.running("serve").await;
    cluster.settled().await;
    assert_eq!(about_jobs(&writes), starts("PUT rayjobs"));
    ray.status("serve", &json!({"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"})).await;
    cluster.settled().await;
    assert_eq!(about_jobs(&writes), ends);
}
