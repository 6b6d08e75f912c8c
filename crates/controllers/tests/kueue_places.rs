//! Workloads whose pods get nodes: a job starts if every pod has a place, and each pod goes to its place.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod common;

use common::gang_pods::{cordon, evict, host, pods, run};
use common::jobs::*;
use common::kueue::*;
use common::{Cluster, Running, gang_pods};
use controllers::{Config, Kueue, KueueOptions, KueueRules};
use kube::api::DynamicObject;
use serde_json::{Value, json};

fn controller(cluster: &Cluster) -> Running {
    let rules = KueueRules { places_pods: true, ..KueueRules::default() };
    let kueue_options = KueueOptions { rules, ..KueueOptions::default() };
    let (kueue, jobs) = (Kueue::Scheduler, all_kinds());
    cluster.start(cluster.client.clone(), Config { kueue, kueue_options, jobs, ..Config::default() })
}

/// Nodes of 4 CPUs of the pool `gpu` in racks, and a queue of 100 CPUs.
async fn cluster_of(racks: &[&[&str]]) -> Cluster {
    let names: Vec<&str> = racks.iter().flat_map(|rack| rack.iter().copied()).collect();
    let cluster = gang_pods::cluster(&names).await;
    for (rack, names) in racks.iter().enumerate() {
        for name in *names {
            let labels = json!({"pool": "gpu", "rack": format!("r{rack}")});
            gang_pods::patch_node(&cluster, name, &json!({"metadata": {"labels": labels}})).await;
        }
    }
    install(&cluster).await;
    gpu_queue(&cluster, 100, json!({})).await;
    cluster
}

/// A Job of so many pods of 2 CPUs.
fn pairs(name: &str, pods: u32) -> Value {
    let mut job = job(name, pods);
    job["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "2".into();
    job
}

/// The Job controller creates a pod of a started Job.
async fn create_pod(cluster: &Cluster, job: &DynamicObject, name: &str) {
    let template = &job.data["spec"]["template"];
    let owner = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": job.metadata.name, "uid": job.metadata.uid,
        "controller": true, "blockOwnerDeletion": true}]);
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"], "spec": template["spec"]});
    pod["metadata"]["name"] = name.into();
    pod["metadata"]["ownerReferences"] = owner;
    cluster.create_as(&pods(), "default", pod).await;
}

fn places(workload: &DynamicObject) -> &Value {
    &workload.data["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"]
}

#[tokio::test(start_paused = true)]
async fn a_job_starts_if_every_pod_has_a_node_and_its_pods_go_there() {
    let cluster = cluster_of(&[&["a", "b"]]).await;
    let controller = controller(&cluster);
    submit_job(&cluster, pairs("train", 3)).await;
    let train = running(&cluster, "train").await;
    let gate = json!([{"name": "kueue.x-k8s.io/topology"}]);
    assert_eq!(train.data["spec"]["template"]["spec"]["schedulingGates"], gate);
    let workload =
        workload_of(&cluster, "train", |workload| is(workload, "Admitted", "True", "Admitted")).await;
    assert_eq!(places(&workload)["levels"], json!(["kubernetes.io/hostname"]));
    submit_job(&cluster, pairs("next", 2)).await;
    let next =
        workload_of(&cluster, "next", |workload| is(workload, "QuotaReserved", "False", "Pending")).await;
    let message = condition(&next, "QuotaReserved").unwrap()["message"].as_str().unwrap().to_owned();
    assert!(
        message.contains("couldn't assign flavors to pod set main: ") && message.contains("cpu"),
        "{message}"
    );
    // The places outlive the controller.
    drop(controller);
    let _controller = self::controller(&cluster);
    let mut hosts = Vec::new();
    for pod in ["train-1", "train-2", "train-3"] {
        create_pod(&cluster, &train, pod).await;
        let node = host(&cluster, pod).await;
        run(&cluster, pod, &node).await;
        hosts.push(node);
    }
    hosts.sort();
    assert!(hosts == ["a", "a", "b"] || hosts == ["a", "b", "b"], "{hosts:?}");
    submit_job(&cluster, pairs("small", 1)).await;
    let small = running(&cluster, "small").await;
    create_pod(&cluster, &small, "small-1").await;
    let free = if hosts == ["a", "a", "b"] { "b" } else { "a" };
    assert_eq!(host(&cluster, "small-1").await, free);
    run(&cluster, "small-1", free).await;
    let complete = json!({"type": "Complete", "status": "True", "message": ""});
    status(&cluster, "train", json!({"active": 0, "succeeded": 3, "conditions": [complete]})).await;
    workload_of(&cluster, "train", |workload| is(workload, "Finished", "True", "Succeeded")).await;
    cluster.settled().await;
    assert_eq!(running_jobs(&cluster).await, ["small", "train"], "the pods of the ended Job hold its nodes");
    for pod in ["train-1", "train-2", "train-3"] {
        evict(&cluster, pod).await;
    }
    running(&cluster, "next").await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_created_again_takes_the_free_place_and_any_node_if_its_node_takes_none() {
    let cluster = cluster_of(&[&["a", "b", "c"]]).await;
    let _controller = controller(&cluster);
    submit_job(&cluster, pairs("train", 4)).await;
    let train = running(&cluster, "train").await;
    let mut hosts = Vec::new();
    for pod in ["train-1", "train-2", "train-3", "train-4"] {
        create_pod(&cluster, &train, pod).await;
        hosts.push(host(&cluster, pod).await);
        run(&cluster, pod, hosts.last().unwrap()).await;
    }
    evict(&cluster, "train-1").await;
    create_pod(&cluster, &train, "train-5").await;
    assert_eq!(host(&cluster, "train-5").await, hosts[0]);
    run(&cluster, "train-5", &hosts[0]).await;
    cordon(&cluster, &hosts[0]).await;
    evict(&cluster, "train-5").await;
    create_pod(&cluster, &train, "train-6").await;
    assert_eq!(host(&cluster, "train-6").await, "any");
}

#[tokio::test(start_paused = true)]
async fn an_annotation_of_the_queue_decides_about_places() {
    let cluster = cluster_of(&[&["a"]]).await;
    let queues = cluster_queues();
    let patch = json!({"metadata": {"annotations": {"muster.dev/place-pods": "false"}}});
    let api = cluster.api(&queues, "");
    api.patch("team", &kube::api::PatchParams::default(), &kube::api::Patch::Merge(patch)).await.unwrap();
    let _controller = controller(&cluster);
    submit_job(&cluster, pairs("large", 10)).await;
    let large = running(&cluster, "large").await;
    assert_eq!(large.data["spec"]["template"]["spec"]["schedulingGates"], Value::Null);
    let workload =
        workload_of(&cluster, "large", |workload| is(workload, "Admitted", "True", "Admitted")).await;
    assert_eq!(*places(&workload), Value::Null);
}

#[tokio::test(start_paused = true)]
async fn a_topology_keeps_a_pod_set_in_one_domain() {
    let cluster = cluster_of(&[&["a"], &["b", "c"]]).await;
    create(&cluster, "Topology", "topologies", "racks", json!({"levels": [{"nodeLabel": "rack"}]})).await;
    let flavor = json!({"nodeLabels": {"pool": "gpu"}, "topologyName": "racks"});
    create(&cluster, "ResourceFlavor", "resourceflavors", "racked", flavor).await;
    let quota = json!({"name": "racked", "resources": [{"name": "cpu", "nominalQuota": 100}]});
    let groups = json!({"resourceGroups": [{"coveredResources": ["cpu"], "flavors": [quota]}]});
    queue(&cluster, "racked", 100, groups).await;
    let kueue = Kueue::Scheduler;
    let _controller =
        cluster.start(cluster.client.clone(), Config { kueue, jobs: all_kinds(), ..Config::default() });
    let mut train = pairs("train", 3);
    train["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "racked".into();
    let required = json!({"kueue.x-k8s.io/podset-required-topology": "rack"});
    train["spec"]["template"]["metadata"] = json!({ "annotations": required });
    submit_job(&cluster, train.clone()).await;
    let started = running(&cluster, "train").await;
    let workload =
        workload_of(&cluster, "train", |workload| is(workload, "Admitted", "True", "Admitted")).await;
    assert_eq!(places(&workload)["levels"], json!(["rack"]));
    create_pod(&cluster, &started, "train-1").await;
    let is_ungated = |pod: &DynamicObject| pod.data["spec"]["schedulingGates"].is_null();
    let pod = cluster.wait(&pods(), "default", "train-1", is_ungated).await;
    assert_eq!(pod.data["spec"]["nodeSelector"], json!({"pool": "gpu", "rack": "r1"}));
    train["metadata"]["name"] = "large".into();
    train["spec"]["parallelism"] = 5.into();
    train["spec"]["completions"] = 5.into();
    submit_job(&cluster, train).await;
    let large =
        workload_of(&cluster, "large", |workload| is(workload, "QuotaReserved", "False", "Pending")).await;
    let message = condition(&large, "QuotaReserved").unwrap()["message"].as_str().unwrap().to_owned();
    let expected = "couldn't assign flavors to pod set main: no rack has room for all 5 pods";
    assert!(message.starts_with(expected), "{message}");
}

/// The Jobs that are not suspended.
async fn running_jobs(cluster: &Cluster) -> Vec<String> {
    let list = cluster.api(&jobs(), "default").list(&kube::api::ListParams::default()).await.unwrap();
    let running = list.items.into_iter().filter(|job| job.data["spec"]["suspend"] == false);
    let mut names: Vec<String> = running.filter_map(|job| job.metadata.name).collect();
    names.sort();
    names
}
