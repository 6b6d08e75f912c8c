//! Simulated nodes and operators: pods run, and deleted objects release their resources.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::collections::BTreeMap;

use crate::common::{
    Cluster, Group, example, of_mcad, ray_clusters, reason, renamed, resource, rest, story, wrappers,
};
use kube::api::DynamicObject;
use sandbox::{Config, Sandbox};
use serde_json::{Value, json};

/// The default nodes, simulated.
async fn simulated() -> (Cluster, Sandbox) {
    let cluster = Cluster::bare();
    let config = Config { clock: cluster.clock.clone(), ..Config::default() };
    let sandbox = Sandbox::start(cluster.client.clone(), config).await.unwrap();
    controllers::install_crds(cluster.client.clone(), &Group::ALL, api::appwrapper::Columns::default())
        .await
        .unwrap();
    (cluster, sandbox)
}

/// Waits until a Ray cluster has all its workers.
async fn wait_ready(cluster: &Cluster, name: &str) {
    cluster.wait(&ray_clusters(), "default", name, |ray| ray.data["status"]["state"] == "ready").await;
}

/// Names of pods without their generated end, with how many containers are ready.
async fn pods(cluster: &Cluster) -> Vec<String> {
    let api = cluster.api(&resource("v1", "Pod", "pods"), "default");
    let line = |pod: DynamicObject| {
        let name = pod.metadata.name.unwrap();
        let containers = pod.data["status"]["containerStatuses"].as_array().cloned().unwrap_or_default();
        let ready = containers.iter().filter(|container| container["ready"] == true).count();
        let phase = pod.data["status"]["phase"].as_str().unwrap_or_default().to_owned();
        format!("{} {ready}/{} {phase}", name.rsplit_once('-').unwrap().0, containers.len())
    };
    api.list(&kube::api::ListParams::default()).await.unwrap().items.into_iter().map(line).collect()
}

#[tokio::test(start_paused = true)]
async fn the_2022_story_plays_with_pods() {
    let (cluster, _sandbox) = simulated().await;
    let _controller = cluster.controller();
    cluster.submit(of_mcad(example("aw-raycluster.yaml"))).await;
    wait_ready(&cluster, "raycluster-autoscaler").await;
    assert_eq!(
        pods(&cluster).await,
        ["raycluster-autoscaler-head 2/2 Running", "raycluster-autoscaler-small-group-worker 1/1 Running"]
    );
    let second =
        renamed(of_mcad(example("aw-raycluster.yaml")), "raycluster-autoscaler-1", "raycluster-autoscaler-1");
    cluster.submit(second).await;
    let status = cluster.wait_state(Group::Mcad, "raycluster-autoscaler-1", "Pending", "HeadOfLine").await;
    assert_eq!(
        reason(&status),
        "needs 20 cpu in total (declared); 12 of 32 cpu are free on 2 eligible nodes"
    );
    assert_eq!(pods(&cluster).await.len(), 2);
    // Pods of Ray clusters do not have the label of their AppWrapper, so its state never becomes Running.
    let status = cluster.wait_state(Group::Mcad, "raycluster-autoscaler", "Running", "Dispatched").await;
    assert_eq!(story(&status).len(), 4);

    cluster.delete(&wrappers(Group::Mcad), "default", "raycluster-autoscaler").await;
    wait_ready(&cluster, "raycluster-autoscaler-1").await;
    assert_eq!(
        pods(&cluster).await,
        [
            "raycluster-autoscaler-1-head 2/2 Running",
            "raycluster-autoscaler-1-small-group-worker 1/1 Running"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn the_glue_example_runs_with_simulated_pods() {
    let (cluster, _sandbox) = simulated().await;
    let _controller = cluster.controller();
    cluster.submit(example("aw-kuberay-glue.yaml")).await;
    cluster.submit(renamed(example("aw-kuberay-glue.yaml"), "raycluster-glue-1", "glue-cluster-1")).await;
    wait_ready(&cluster, "glue-cluster").await;
    cluster.wait_state(Group::Codeflare, "raycluster-glue-1", "Pending", "Backoff").await;
    assert_eq!(
        pods(&cluster).await,
        ["glue-cluster-head 1/1 Running", "glue-cluster-small-group-worker 1/1 Running"]
    );
    cluster.delete(&wrappers(Group::Codeflare), "default", "raycluster-glue").await;
    wait_ready(&cluster, "glue-cluster-1").await;
}

#[tokio::test(start_paused = true)]
async fn the_2023_pair_runs_side_by_side() {
    let (cluster, _sandbox) = simulated().await;
    let _controller = cluster.controller();
    cluster.submit(example("aw-raycluster-complete.yaml")).await;
    cluster.submit(example("aw-raycluster-complete-1.yaml")).await;
    wait_ready(&cluster, "raycluster-complete").await;
    wait_ready(&cluster, "raycluster-complete-1").await;
    assert_eq!(pods(&cluster).await.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn the_job_example_runs_and_completes() {
    let (cluster, _sandbox) = simulated().await;
    let _controller = cluster.controller();
    cluster.submit(example("aw-job.yaml")).await;
    cluster.wait_state(Group::Codeflare, "aw-job", "Running", "Running").await;
    let status = cluster.wait_state(Group::Codeflare, "aw-job", "Completed", "Completed").await;
    assert_eq!(
        rest(&status),
        serde_json::json!({
            "Succeeded": 2, "filterignore": true, "queuejobstate": "Completed",
            "sender": "before [UpdateQueueJobs] setCompleted", "state": "Completed", "totalcpu": 1000, "totalmemory": 209_715_200,
        })
    );
    let story = story(&status);
    assert_eq!(story[3], "Dispatched AppWrapperRunnable");
    assert_eq!(story.last().unwrap(), "Completed PodsCompleted");
    let pods = cluster.api(&resource("v1", "Pod", "pods"), "default");
    for pod in pods.list(&kube::api::ListParams::default()).await.unwrap().items {
        let labels = pod.metadata.labels.unwrap();
        for key in ["app", "appwrapper.mcad.ibm.com", "resourceName", "job-name"] {
            assert_eq!(labels[key], "aw-job");
        }
    }
}

/// A wrapped Ray cluster of a head and a worker, in this API version.
fn ray_of_version(name: &str, version: &str) -> Value {
    let amounts = json!({"cpu": "2", "memory": "2Gi"});
    let container = json!({"name": "ray", "image": "rayproject/ray:2.9.0", "resources": {"requests": amounts, "limits": amounts}});
    let template = json!({"spec": {"containers": [container]}});
    let worker = json!({"groupName": "small", "replicas": 1, "minReplicas": 0, "maxReplicas": 4,
        "rayStartParams": {}, "template": template});
    let ray = json!({
        "apiVersion": format!("ray.io/{version}"), "kind": "RayCluster", "metadata": {"name": name},
        "spec": {"headGroupSpec": {"rayStartParams": {}, "template": template}, "workerGroupSpecs": [worker]},
    });
    json!({
        "apiVersion": "workload.codeflare.dev/v1beta1", "kind": "AppWrapper", "metadata": {"name": name},
        "spec": {"resources": {"GenericItems": [{"generictemplate": ray}]}},
    })
}

/// How many pods of a Ray cluster are bound, and all of them to their planned nodes.
async fn pinned(cluster: &Cluster, name: &str) -> usize {
    let api = cluster.api(&resource("v1", "Pod", "pods"), "default");
    let of_cluster = kube::api::ListParams::default().labels(&format!("ray.io/cluster={name}"));
    let pods = api.list(&of_cluster).await.unwrap().items;
    let is_pinned = |pod: &&DynamicObject| {
        let spec = &pod.data["spec"];
        !spec["nodeName"].is_null() && spec["nodeSelector"]["kubernetes.io/hostname"] == spec["nodeName"]
    };
    assert_eq!(pods.iter().filter(is_pinned).count(), pods.len(), "{name}");
    pods.len()
}

#[tokio::test(start_paused = true)]
async fn objects_of_one_kind_in_two_versions_keep_their_pods_and_places() {
    let (cluster, _sandbox) = simulated().await;
    let controller = cluster.controller();
    let names = ["a", "b", "c", "d"];
    for (name, version) in names.into_iter().zip(["v1alpha1", "v1", "v1alpha1", "v1"]) {
        cluster.submit(ray_of_version(name, version)).await;
        wait_ready(&cluster, name).await;
    }
    let pods = cluster.api(&resource("v1", "Pod", "pods"), "default");
    for name in names {
        assert_eq!(pinned(&cluster, name).await, 2);
    }
    let is_all_bound = || {
        let index = controller.index.read().unwrap();
        let world = index.world();
        world.nodes().all(|node| world.usage(&node.name).unwrap().reserved.is_zero())
    };
    assert!(is_all_bound(), "places are held although all pods are bound");

    // The watch of one version ends; the objects that it has reported are still known.
    for name in ["b", "d"] {
        cluster.delete(&wrappers(Group::Codeflare), "default", name).await;
    }
    tokio::time::sleep(std::time::Duration::from_mins(5)).await;
    for pod in pods.list(&kube::api::ListParams::default()).await.unwrap().items {
        pods.delete(&pod.metadata.name.unwrap(), &<_>::default()).await.unwrap();
    }
    tokio::time::sleep(std::time::Duration::from_mins(5)).await;
    assert_eq!((pinned(&cluster, "a").await, pinned(&cluster, "c").await), (2, 2));
    assert!(is_all_bound(), "places are held although all pods are bound");
}

/// A Job of this many pods with a CPU each, wrapped.
fn wide_job(name: &str, pods: u32) -> Value {
    let containers = json!([{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]);
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {"parallelism": pods, "completions": pods, "completionMode": "Indexed",
            "template": {"spec": {"restartPolicy": "Never", "containers": containers}}},
    });
    json!({
        "apiVersion": "workload.codeflare.dev/v1beta1", "kind": "AppWrapper", "metadata": {"name": name},
        "spec": {"resources": {"GenericItems": [{"generictemplate": job}]}},
    })
}

/// Counts the pods of a Job on each node, once all of them are bound. Also returns whether any pod is still gated.
async fn bound(cluster: &Cluster, job: &str, count: usize) -> (BTreeMap<String, u32>, bool) {
    let api = cluster.api(&resource("v1", "Pod", "pods"), "default");
    let of_job = kube::api::ListParams::default().labels(&format!("job-name={job}"));
    for _ in 0..10_000 {
        let pods = api.list(&of_job).await.unwrap().items;
        let node = |pod: &DynamicObject| pod.data["spec"]["nodeName"].as_str().map(str::to_owned);
        if pods.iter().filter_map(node).count() == count {
            let mut on = BTreeMap::new();
            pods.iter().filter_map(node).for_each(|node| *on.entry(node).or_default() += 1);
            return (on, pods.iter().any(|pod| !pod.data["spec"]["schedulingGates"].is_null()));
        }
        cluster.settled().await;
    }
    panic!("not all pods of {job} were bound");
}

#[tokio::test(start_paused = true)]
async fn pods_are_bound_to_their_planned_nodes() {
    let cluster = Cluster::bare();
    let group: sandbox::NodeGroup = "count=3,name=n,cpu=8,memory=32Gi".parse().unwrap();
    let config = Config { clock: cluster.clock.clone(), nodes: group.manifests(), ..Config::default() };
    let _sandbox = Sandbox::start(cluster.client.clone(), config).await.unwrap();
    controllers::install_crds(cluster.client.clone(), &Group::ALL, api::appwrapper::Columns::default())
        .await
        .unwrap();
    let _controller = cluster.controller();
    // The scheduler would spread these pods.
    for (name, pods) in [("four", 4), ("ten", 10)] {
        cluster.submit(wide_job(name, pods)).await;
        let job = cluster.wait(&resource("batch/v1", "Job", "jobs"), "default", name, |_| true).await;
        let planned = &job.metadata.annotations.unwrap()["muster.dev/assignment"];
        let planned: Vec<BTreeMap<String, u32>> = serde_json::from_str(planned).unwrap();
        assert_eq!(bound(&cluster, name, pods as usize).await, (planned[0].clone(), false), "{name}");
    }
}
