//! Scheduling gates: every gated template is of a kind whose pods are followed, and no pod stays gated without a gang.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{Cluster, Group, Running, resource, wrappers};
use api::scheduling_gate::GATE;
use api::wrapped_kinds::{WRAPPED_KINDS, WrappedKind};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use kube::Client;
use kube::api::{DeleteParams, DynamicObject, PropagationPolicy};
use kube::client::Body;
use kube::core::ApiResource;
use serde_json::{Value, json};
use tower::ServiceExt;

fn pods() -> ApiResource {
    resource("v1", "Pod", "pods")
}

fn deployments() -> ApiResource {
    resource("apps/v1", "Deployment", "deployments")
}

/// The resource of a kind; the plurals of all kinds of these tests end with `s`.
fn of_kind(api_version: &str, kind: &str) -> ApiResource {
    resource(api_version, kind, &format!("{}s", kind.to_lowercase()))
}

/// One node with a host name label.
async fn cluster() -> Cluster {
    let cluster = Cluster::new().await;
    cluster.node("n-0", &json!({"cpu": "8", "memory": "64Gi", "pods": "110"})).await;
    let label = json!({"metadata": {"labels": {"kubernetes.io/hostname": "n-0"}}});
    let nodes = cluster.api(&resource("v1", "Node", "nodes"), "");
    nodes.patch("n-0", &kube::api::PatchParams::default(), &kube::api::Patch::Merge(label)).await.unwrap();
    cluster
}

fn pod_spec() -> Value {
    json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]})
}

fn wrapped(name: &str, object: &Value) -> Value {
    json!({
        "apiVersion": Group::Mcad.api_version(), "kind": "AppWrapper", "metadata": {"name": name},
        "spec": {"resources": {"GenericItems": [{"generictemplate": object}]}},
    })
}

fn deployment(name: &str) -> Value {
    let labels = json!({"app": name});
    let template = json!({"metadata": {"labels": labels}, "spec": pod_spec()});
    let mut deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}});
    deployment["spec"]["template"]["spec"]["restartPolicy"] = json!("Always");
    deployment
}

/// An object of a kind: its `apiVersion`, and the manifest.
fn object_of(entry: &WrappedKind) -> (String, Value) {
    let version = if entry.group == "jobset.x-k8s.io" { "v1alpha2" } else { "v1" };
    let api_version =
        if entry.group.is_empty() { version.into() } else { format!("{}/{version}", entry.group) };
    let template = json!({"metadata": {"labels": {"app": "x"}}, "spec": pod_spec()});
    let group = json!({"groupName": "w", "replicas": 1, "template": template});
    let spec = match entry.kind {
        "Pod" => pod_spec(),
        "Job" => json!({"template": template}),
        "Deployment" | "ReplicaSet" | "StatefulSet" => {
            let mut spec = deployment("x")["spec"].clone();
            spec["serviceName"] = json!("x");
            if entry.kind != "StatefulSet" {
                spec.as_object_mut().unwrap().remove("serviceName");
            }
            spec
        }
        "JobSet" => json!({"replicatedJobs": [{"name": "a", "template": {"spec": {"template": template}}}]}),
        "RayCluster" => json!({"headGroupSpec": {"template": template}, "workerGroupSpecs": [group]}),
        "RayService" => {
            json!({"rayClusterConfig": {"headGroupSpec": {"template": template}, "workerGroupSpecs": [group]}})
        }
        "RayJob" => json!({"submitterPodTemplate": template,
            "rayClusterSpec": {"headGroupSpec": {"template": template}, "workerGroupSpecs": [group]}}),
        _ => {
            json!({"mpiReplicaSpecs": {"Launcher": {"template": template}, "Worker": {"replicas": 1, "template": template}}})
        }
    };
    let object =
        json!({"apiVersion": api_version, "kind": entry.kind, "metadata": {"name": "x"}, "spec": spec});
    (api_version, object)
}

/// Labels of a pod of one role below an object of this kind, as its operator sets them.
fn role_labels(kind: &str, parent: &str) -> Value {
    match (kind, parent) {
        ("RayJob", "Job") | ("Deployment" | "ReplicaSet" | "StatefulSet" | "Job", _) => json!({"app": "x"}),
        ("RayCluster" | "RayJob" | "RayService", _) => json!({"ray.io/group": "headgroup"}),
        ("JobSet", _) => json!({"jobset.sigs.k8s.io/replicatedjob-name": "a"}),
        ("MPIJob", "Job") => json!({"training.kubeflow.org/job-role": "launcher"}),
        _ => json!({"training.kubeflow.org/replica-type": "worker"}),
    }
}

/// Creates an object with this controller.
async fn create_under(cluster: &Cluster, owner: &DynamicObject, mut object: Value) -> DynamicObject {
    let types = owner.types.clone().unwrap();
    object["metadata"]["ownerReferences"] = json!([{"apiVersion": types.api_version, "kind": types.kind,
        "name": owner.metadata.name, "uid": owner.metadata.uid, "controller": true, "blockOwnerDeletion": true}]);
    let of = of_kind(object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap());
    let mut created = cluster.create_as(&of, "default", object).await;
    created.types = Some(kube::core::TypeMeta { api_version: of.api_version, kind: of.kind });
    created
}

/// A gated pod, as an operator creates it from a gated template.
fn gated_pod(name: &str, labels: &Value) -> Value {
    let mut spec = pod_spec();
    spec["schedulingGates"] = json!([{"name": GATE}]);
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec})
}

/// Waits until a pod is ungated. Returns the host name that it is pinned to.
async fn host(cluster: &Cluster, name: &str) -> String {
    let is_ungated = |pod: &DynamicObject| pod.data["spec"]["schedulingGates"].is_null();
    let pod = cluster.wait(&pods(), "default", name, is_ungated).await;
    pod.data["spec"]["nodeSelector"]["kubernetes.io/hostname"].as_str().unwrap_or("any").to_owned()
}

async fn is_gated(cluster: &Cluster, name: &str) -> bool {
    let pod = cluster.api(&pods(), "default").get(name).await.unwrap();
    !pod.data["spec"]["schedulingGates"].is_null()
}

/// The names of the roles or pods that are created for an object, each below which kind.
fn parents(entry: &WrappedKind) -> Vec<&'static str> {
    match entry.kind {
        "MPIJob" => vec!["MPIJob", "Job"],
        _ if entry.children.is_empty() => vec![entry.kind],
        _ => entry.children.iter().map(|(_, kind)| *kind).collect(),
    }
}

#[tokio::test(start_paused = true)]
async fn the_pods_of_every_gated_kind_are_pinned_to_their_planned_node() {
    for entry in WRAPPED_KINDS {
        let cluster = cluster().await;
        let (api_version, object) = object_of(entry);
        let is_defined = matches!(entry.group, "" | "apps" | "batch") || entry.kind == "RayCluster";
        if !is_defined {
            let (_, version) = api_version.split_once('/').unwrap();
            let plural = format!("{}s", entry.kind.to_lowercase());
            cluster.define(entry.group, entry.kind, &plural, &[version]).await;
        }
        let _controller = cluster.controller();
        cluster.submit(wrapped("x", &object)).await;
        let object = cluster.wait(&of_kind(&api_version, entry.kind), "default", "x", |_| true).await;
        if entry.kind == "Pod" {
            assert_eq!(host(&cluster, "x").await, "n-0");
            continue;
        }
        assert!(serde_json::to_string(&object.data).unwrap().contains(GATE), "{} is not gated", entry.kind);
        for parent in parents(entry) {
            let mut owner = object.clone();
            let child = entry.children.iter().find(|(_, kind)| *kind == parent);
            if let Some((group, kind)) = child {
                let template = json!({"metadata": {"labels": {"app": "x"}}, "spec": pod_spec()});
                let spec = match *kind {
                    "ReplicaSet" => object.data["spec"].clone(),
                    _ => json!({"template": template}),
                };
                let mut spec = spec;
                spec.as_object_mut()
                    .unwrap()
                    .retain(|key, _| ["replicas", "selector", "template"].contains(&&**key));
                let child = json!({"apiVersion": format!("{group}/v1"), "kind": kind, "metadata": {"name": "child"}, "spec": spec});
                owner = create_under(&cluster, &object, child).await;
            }
            let name = format!("pod-of-{}", parent.to_lowercase());
            create_under(&cluster, &owner, gated_pod(&name, &role_labels(entry.kind, parent))).await;
            assert_eq!(host(&cluster, &name).await, "n-0", "{} through {parent}", entry.kind);
        }
    }
}

/// Deletes an AppWrapper without its objects.
async fn orphan(cluster: &Cluster, name: &str) {
    let api = cluster.api(&wrappers(Group::Mcad), "default");
    let params =
        DeleteParams { propagation_policy: Some(PropagationPolicy::Orphan), ..DeleteParams::default() };
    api.delete(name, &params).await.unwrap();
    cluster.wait_gone(&wrappers(Group::Mcad), "default", name).await;
}

/// The Deployment controller creates the `ReplicaSet` of a Deployment.
async fn replica_set(cluster: &Cluster, deployment: &DynamicObject) -> DynamicObject {
    let mut spec = deployment.data["spec"].clone();
    spec.as_object_mut().unwrap().retain(|key, _| ["replicas", "selector", "template"].contains(&&**key));
    let set =
        json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "d-1"}, "spec": spec});
    create_under(cluster, deployment, set).await
}

/// A running gang of one Deployment, and its `ReplicaSet`.
async fn running_deployment(cluster: &Cluster) -> (Running, DynamicObject) {
    let controller = cluster.controller();
    cluster.submit(wrapped("d", &deployment("d"))).await;
    let deployment = cluster.wait(&deployments(), "default", "d", |_| true).await;
    let set = replica_set(cluster, &deployment).await;
    create_under(cluster, &set, gated_pod("first", &json!({"app": "d"}))).await;
    assert_eq!(host(cluster, "first").await, "n-0");
    (controller, set)
}

#[tokio::test(start_paused = true)]
async fn pods_of_orphaned_objects_are_ungated_also_those_that_are_created_later() {
    let cluster = cluster().await;
    let (_controller, set) = running_deployment(&cluster).await;
    orphan(&cluster, "d").await;
    for name in ["second", "third"] {
        create_under(&cluster, &set, gated_pod(name, &json!({"app": "d"}))).await;
        assert_eq!(host(&cluster, name).await, "any");
        // By then the watches of the kinds have ended.
        tokio::time::sleep(Duration::from_hours(1)).await;
    }
    assert!(cluster.api(&deployments(), "default").get_opt("d").await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn pods_that_were_orphaned_while_no_controller_ran_are_ungated() {
    let cluster = cluster().await;
    let (controller, set) = running_deployment(&cluster).await;
    drop(controller);
    create_under(&cluster, &set, gated_pod("second", &json!({"app": "d"}))).await;
    orphan(&cluster, "d").await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(is_gated(&cluster, "second").await);
    let _controller = cluster.controller();
    assert_eq!(host(&cluster, "second").await, "any");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_was_gated_when_its_appwrapper_was_orphaned_is_ungated() {
    let cluster = cluster().await;
    let (controller, set) = running_deployment(&cluster).await;
    drop(controller);
    let second = create_under(&cluster, &set, gated_pod("second", &json!({"app": "d"}))).await;
    orphan(&cluster, "d").await;
    cluster.delete_now(&deployments(), "default", "d").await;
    // Garbage collection deletes the pod; it is not ungated before.
    let _controller = cluster.controller();
    cluster.wait_gone(&pods(), "default", second.metadata.name.as_deref().unwrap()).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_author_set_the_gate_is_ungated() {
    let cluster = cluster().await;
    let _controller = cluster.controller();
    cluster.create_as(&pods(), "default", gated_pod("forged", &json!({}))).await;
    assert_eq!(host(&cluster, "forged").await, "any");
}

#[tokio::test(start_paused = true)]
async fn a_gated_pod_below_an_object_that_is_not_followed_is_ungated() {
    let cluster = cluster().await;
    let _controller = cluster.controller();
    // KubeRay creates a Job from the gated template of the head when a cluster with an external Redis is deleted.
    let ray = object_of(WrappedKind::find("ray.io", "RayCluster").unwrap()).1;
    cluster.submit(wrapped("x", &ray)).await;
    let ray = cluster.wait(&of_kind("ray.io/v1", "RayCluster"), "default", "x", |_| true).await;
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "redis-cleanup"},
        "spec": {"template": {"metadata": {"labels": {"app": "x"}}, "spec": pod_spec()}}});
    let job = create_under(&cluster, &ray, job).await;
    create_under(&cluster, &job, gated_pod("cleanup", &json!({"ray.io/group": "headgroup"}))).await;
    assert_eq!(host(&cluster, "cleanup").await, "any");
}

#[tokio::test(start_paused = true)]
async fn a_conflict_with_another_writer_does_not_leave_a_pod_gated() {
    let cluster = cluster().await;
    let conflicts = Arc::new(AtomicUsize::new(0));
    let (service, count) = (cluster.service.clone(), conflicts.clone());
    let client = tower::service_fn(move |request: Request<Body>| {
        let (service, count) = (service.clone(), count.clone());
        async move {
            let is_patch = request.method() == Method::PATCH && request.uri().path().contains("/pods/");
            if is_patch && count.fetch_add(1, Ordering::Relaxed) < 3 {
                let body = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 409,
                    "reason": "Conflict", "message": "the object has been modified"});
                let answer = Response::builder().status(409);
                return Ok(answer.body(Full::from(body.to_string()).boxed_unsync()).unwrap());
            }
            let answer = service.oneshot(request).await?;
            Ok::<_, std::convert::Infallible>(
                answer.map(|body| body.map_err(|never| match never {}).boxed_unsync()),
            )
        }
    });
    let _controller = cluster.controller_over(Client::new(client, "default"));
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": pod_spec()});
    cluster.submit(wrapped("p", &pod)).await;
    assert_eq!(host(&cluster, "p").await, "n-0");
    assert!(conflicts.load(Ordering::Relaxed) > 3);
}
