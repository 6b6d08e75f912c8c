//! Running gangs whose pods never come: the author is told what is missing and why, and the places go back.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::time::Duration;

use crate::common::{Cluster, Group, ray_clusters, resource, story, wrappers};
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::ApiResource;
use serde_json::{Value, json};
use tokio::time::sleep;

fn jobs() -> ApiResource {
    resource("batch/v1", "Job", "jobs")
}

fn pods() -> ApiResource {
    resource("v1", "Pod", "pods")
}

fn deployments() -> ApiResource {
    resource("apps/v1", "Deployment", "deployments")
}

/// One node of 4 CPUs.
async fn cluster() -> Cluster {
    let cluster = Cluster::new().await;
    cluster.node("n", &json!({"cpu": "4", "memory": "16Gi", "pods": "110"})).await;
    cluster
}

fn template(cpu: &str) -> Value {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}});
    json!({"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [container]}})
}

/// A Job of so many pods of one CPU.
fn job(name: &str, pods: u32) -> Value {
    let mut template = template("1");
    template["spec"]["restartPolicy"] = json!("Never");
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {"parallelism": pods, "completions": pods, "template": template}})
}

/// A Deployment, `ReplicaSet` or `StatefulSet` of so many pods of one CPU.
fn app(kind: &str, name: &str, pods: u32) -> Value {
    json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name},
        "spec": {"replicas": pods, "serviceName": "s", "selector": {"matchLabels": {"app": "a"}}, "template": template("1")}})
}

/// A gang with a patience of 60 s.
fn gang(object: &Value) -> Value {
    json!({
        "apiVersion": "mcad.ibm.com/v1beta1", "kind": "AppWrapper",
        "metadata": {"name": object["metadata"]["name"], "namespace": "default"},
        "spec": {"schedulingSpec": {"requeuing": {"timeInSeconds": 60}},
            "resources": {"GenericItems": [{"generictemplate": object}]}},
    })
}

fn owner_reference(owner: &DynamicObject) -> Value {
    let types = owner.types.clone().unwrap();
    json!([{"apiVersion": types.api_version, "kind": types.kind, "name": owner.metadata.name,
        "uid": owner.metadata.uid, "controller": true, "blockOwnerDeletion": true}])
}

/// The controller of `owner` creates a pod, and it runs on the node.
async fn create_pod(cluster: &Cluster, owner: &DynamicObject, name: &str, labels: &Value) {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": {"nodeName": "n", "containers": [container]},
        "metadata": {"name": name, "labels": labels, "ownerReferences": owner_reference(owner)}});
    cluster.create_as(&pods(), "default", pod).await;
    set_status(cluster, &pods(), name, json!({"phase": "Running"})).await;
}

async fn set_status(cluster: &Cluster, resource: &ApiResource, name: &str, status: Value) {
    let patch = Patch::Merge(json!({"status": status}));
    cluster.api(resource, "default").patch_status(name, &PatchParams::default(), &patch).await.unwrap();
}

/// An Event about an object, as its controller writes it when it cannot create a pod.
async fn failed_create(cluster: &Cluster, object: &DynamicObject, message: &str) {
    let types = object.types.clone().unwrap();
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "failed-create"},
        "involvedObject": {"apiVersion": types.api_version, "kind": types.kind, "namespace": "default",
            "name": object.metadata.name, "uid": object.metadata.uid},
        "type": "Warning", "reason": "FailedCreate", "message": message, "source": {"component": "c"}});
    cluster.create_as(&resource("v1", "Event", "events"), "default", event).await;
}

/// The message of an AppWrapper up to the time of the requeuing.
async fn message(cluster: &Cluster, name: &str) -> String {
    let wrapper = cluster.api(&wrappers(Group::Mcad), "default").get(name).await.unwrap();
    let text = wrapper.data["status"]["message"].as_str().unwrap_or_default().to_owned();
    text.split_once(". The gang is requeued").map_or(text.clone(), |(lack, _)| lack.to_owned())
}

async fn requeuings(cluster: &Cluster, name: &str) -> i64 {
    let wrapper = cluster.api(&wrappers(Group::Mcad), "default").get(name).await.unwrap();
    wrapper.data["status"]["numberOfRequeueings"].as_i64().unwrap_or_default()
}

const EXCEEDED: &str =
    "pods \"a-x\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1";

#[tokio::test(start_paused = true)]
async fn a_gang_whose_pods_a_quota_refuses_is_told_why_and_gives_its_places_back() {
    let cluster = cluster().await;
    let _controller = cluster.controller();
    cluster.submit(gang(&job("a", 4))).await;
    let object = cluster.wait(&jobs(), "default", "a", |_| true).await;
    create_pod(&cluster, &object, "a-1", &json!({})).await;
    failed_create(&cluster, &object, EXCEEDED).await;
    sleep(Duration::from_secs(20)).await;
    assert_eq!(message(&cluster, "a").await, "", "pods may take some seconds");
    sleep(Duration::from_secs(15)).await;
    let why = format!("3 of 4 pods of Job a are not created: FailedCreate: {EXCEEDED}");
    assert_eq!(message(&cluster, "a").await, why);
    let events = cluster.events().await;
    assert_eq!(events.len(), 1, "{events:?}");
    assert!(events[0].starts_with(&format!("a PodsNotCreated: {why}")), "{events:?}");
    let mut other = gang(&job("b", 4));
    other["spec"]["priority"] = json!(1);
    cluster.submit(other).await;
    let status = cluster.wait_state(Group::Mcad, "a", "Pending", "Backoff").await;
    assert!(status["message"].is_null(), "{status}");
    let requeued = "PreemptCandidate PodsNotCreated Pods not created missing=3, running=1.";
    assert!(story(&status).iter().any(|line| line == requeued), "{:?}", story(&status));
    assert_eq!(status["numberOfRequeueings"], 1);
    cluster.delete_now(&pods(), "default", "a-1").await;
    cluster.wait_state(Group::Mcad, "b", "Running", "Dispatched").await;
}

#[tokio::test(start_paused = true)]
async fn a_suspended_job_gives_its_places_back() {
    let cluster = cluster().await;
    let _controller = cluster.controller();
    let mut suspended = job("a", 4);
    suspended["spec"]["suspend"] = json!(true);
    cluster.submit(gang(&suspended)).await;
    cluster.wait_state(Group::Mcad, "a", "Running", "Dispatched").await;
    sleep(Duration::from_secs(35)).await;
    assert_eq!(message(&cluster, "a").await, "4 of 4 pods of Job a are not created: Job a is suspended");
    sleep(Duration::from_secs(40)).await;
    assert_eq!(requeuings(&cluster, "a").await, 1);
}

#[tokio::test(start_paused = true)]
async fn the_condition_of_a_deployment_says_why_its_pods_are_not_created() {
    let cluster = cluster().await;
    let _controller = cluster.controller();
    cluster.submit(gang(&app("Deployment", "a", 2))).await;
    cluster.wait(&deployments(), "default", "a", |_| true).await;
    let why = "pods \"a-\" is forbidden: error looking up service account default/x: serviceaccount \"x\" not found";
    let condition =
        json!({"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": why});
    set_status(&cluster, &deployments(), "a", json!({"conditions": [condition]})).await;
    sleep(Duration::from_secs(35)).await;
    let text = format!("2 of 2 pods of Deployment a are not created: FailedCreate: {why}");
    assert_eq!(message(&cluster, "a").await, text);
}

#[tokio::test(start_paused = true)]
async fn a_gang_whose_operator_does_not_run_gives_its_places_back() {
    let cluster = cluster().await;
    let _controller = cluster.controller();
    let object = json!({"apiVersion": "ray.io/v1alpha1", "kind": "RayCluster", "metadata": {"name": "a"},
        "spec": {"headGroupSpec": {"template": template("1")},
            "workerGroupSpecs": [{"groupName": "w", "replicas": 2, "template": template("1")}]}});
    cluster.submit(gang(&object)).await;
    cluster.wait_state(Group::Mcad, "a", "Running", "Dispatched").await;
    sleep(Duration::from_secs(35)).await;
    assert_eq!(message(&cluster, "a").await, "3 of 3 pods of RayCluster a are not created");
    sleep(Duration::from_secs(40)).await;
    assert_eq!(requeuings(&cluster, "a").await, 1);
    // The operator runs again. An autoscaler may remove workers.
    let object = cluster.wait(&ray_clusters(), "default", "a", |_| true).await;
    create_pod(&cluster, &object, "a-head", &json!({"ray.io/node-type": "head"})).await;
    sleep(Duration::from_hours(2)).await;
    assert_eq!(message(&cluster, "a").await, "");
    assert_eq!(requeuings(&cluster, "a").await, 1);
}

#[tokio::test(start_paused = true)]
async fn patience_starts_again_with_each_pod_that_is_created() {
    let cluster = cluster().await;
    let _controller = cluster.controller();
    cluster.submit(gang(&job("a", 4))).await;
    let object = cluster.wait(&jobs(), "default", "a", |_| true).await;
    for number in 0..4 {
        sleep(Duration::from_secs(50)).await;
        create_pod(&cluster, &object, &format!("a-{number}"), &json!({})).await;
    }
    sleep(Duration::from_hours(1)).await;
    assert_eq!(message(&cluster, "a").await, "");
    assert_eq!(requeuings(&cluster, "a").await, 0);
}

#[tokio::test(start_paused = true)]
async fn pods_that_need_not_exist_are_not_missing() {
    let cluster = cluster().await;
    let _controller = cluster.controller();
    // Scaled down by hand.
    cluster.submit(gang(&app("Deployment", "scaled", 1))).await;
    cluster.wait(&deployments(), "default", "scaled", |_| true).await;
    let patch = Patch::Merge(json!({"spec": {"replicas": 0}}));
    cluster.api(&deployments(), "default").patch("scaled", &PatchParams::default(), &patch).await.unwrap();
    // Its second pod waits until the first one is ready.
    cluster.submit(gang(&app("StatefulSet", "ordered", 2))).await;
    let sets = resource("apps/v1", "StatefulSet", "statefulsets");
    let set = cluster.wait(&sets, "default", "ordered", |_| true).await;
    create_pod(&cluster, &set, "ordered-0", &json!({})).await;
    // The Job controller waits before it retries a failed pod.
    cluster.submit(gang(&job("failed", 1))).await;
    let object = cluster.wait(&jobs(), "default", "failed", |_| true).await;
    create_pod(&cluster, &object, "failed-1", &json!({})).await;
    set_status(&cluster, &pods(), "failed-1", json!({"phase": "Failed"})).await;
    // A kind without pods.
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "map"}});
    cluster.submit(gang(&map)).await;
    sleep(Duration::from_hours(2)).await;
    for name in ["scaled", "ordered", "failed", "map"] {
        assert_eq!(message(&cluster, name).await, "", "{name}");
        assert_eq!(requeuings(&cluster, name).await, 0, "{name}");
    }
}
