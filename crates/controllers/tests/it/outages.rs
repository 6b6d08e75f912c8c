//! The API server is unreachable, or other clients write at the same time.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use crate::common;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{Cluster, Connection, Group, config_maps, wrappers};
use controllers::Config;
use http_body_util::Either;
use kube::Client;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tower::ServiceExt;

const SECOND: Duration = Duration::from_secs(1);

async fn cluster() -> Cluster {
    let cluster = Cluster::new().await;
    cluster.node("n", &json!({"cpu": "4", "memory": "64Gi", "pods": "110"})).await;
    cluster
}

/// A gang without pods that holds so many CPUs as long as it exists.
fn gang(name: &str, cpus: u32) -> Value {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    let declared = json!([{"replicas": 1, "requests": {"cpu": cpus}}]);
    json!({
        "apiVersion": Group::Mcad.api_version(), "kind": "AppWrapper", "metadata": {"name": name},
        "spec": {"resources": {"GenericItems": [
            {"replicas": 1, "custompodresources": declared, "generictemplate": object},
        ]}},
    })
}

/// Names of the objects of gangs.
async fn objects(cluster: &Cluster) -> Vec<String> {
    let mut names = cluster.names(&config_maps(), "default").await;
    names.retain(|name| name != "kube-root-ca.crt");
    names
}

/// Cuts the connection of a controller and ends its watches.
fn cut(cluster: &Cluster, connection: &Connection) {
    connection.cut();
    cluster.service.with(|server, _| server.restart());
}

#[tokio::test(start_paused = true)]
async fn after_a_long_outage_the_index_is_current_within_seconds() {
    let cluster = cluster().await;
    let connection = cluster.connection();
    let _controller = cluster.controller_over(connection.client.clone());
    cluster.submit(gang("before", 2)).await;
    cluster.wait_state(Group::Mcad, "before", "Running", "Dispatched").await;
    cut(&cluster, &connection);
    cluster.delete(&wrappers(Group::Mcad), "default", "before").await;
    cluster.submit(gang("after", 4)).await;
    sleep(Duration::from_mins(20)).await;
    connection.restore();
    let restored = Instant::now();
    cluster.wait_state(Group::Mcad, "after", "Running", "Dispatched").await;
    // One retry delay until the request succeeds, and one until the list succeeds.
    assert!(restored.elapsed() < 16 * SECOND, "it took {:?}", restored.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_reconnected_controller_accepts_what_another_controller_did() {
    let cluster = cluster().await;
    let connection = cluster.connection();
    let _first = cluster.controller();
    let _second = cluster.start(connection.client.clone(), Config::default());
    cluster.submit(gang("a", 4)).await;
    cluster.wait_state(Group::Mcad, "a", "Running", "Dispatched").await;
    cluster.submit(gang("b", 4)).await;
    cluster.submit(gang("c", 4)).await;
    cluster.wait_state(Group::Mcad, "c", "Pending", "HeadOfLine").await;
    cluster.settled().await;

    cut(&cluster, &connection);
    cluster.delete(&wrappers(Group::Mcad), "default", "a").await;
    let running = cluster.wait_state(Group::Mcad, "b", "Running", "Dispatched").await;
    sleep(SECOND).await;
    connection.restore();
    for _ in 0..1_000 {
        sleep(Duration::from_millis(50)).await;
        let now = cluster.api(&wrappers(Group::Mcad), "default").get("b").await.unwrap();
        assert_eq!(now.data["status"], running);
    }
    assert_eq!(objects(&cluster).await, ["b"]);

    // Both controllers charge the same gangs.
    cluster.delete(&wrappers(Group::Mcad), "default", "b").await;
    cluster.wait_state(Group::Mcad, "c", "Running", "Dispatched").await;
    cluster.submit(gang("d", 1)).await;
    cluster.wait_state(Group::Mcad, "d", "Pending", "HeadOfLine").await;
    sleep(Duration::from_mins(1)).await;
    assert_eq!(objects(&cluster).await, ["c"]);
}

#[tokio::test(start_paused = true)]
async fn a_gang_is_not_requeued_for_pods_that_the_watch_has_not_reported() {
    let cluster = cluster().await;
    let (service, silence) = (cluster.service.clone(), tokio::sync::watch::Sender::new(true));
    let silent = silence.clone();
    let without_pods = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (service, mut silent) = (service.clone(), silent.subscribe());
        async move {
            if request.uri().path() == "/api/v1/pods" && request.uri().query().unwrap().contains("watch=true")
            {
                silent.wait_for(|is_silent| !is_silent).await.unwrap();
            }
            Ok::<_, std::io::Error>(service.oneshot(request).await.unwrap())
        }
    });
    let _controller = cluster.controller_over(Client::new(without_pods, "default"));
    let containers = json!([{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]);
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": containers}});
    let mut wrapper = gang("a", 1);
    wrapper["spec"] = json!({"resources": {"GenericItems": [{"generictemplate": pod}]},
        "schedulingSpec": {"minAvailable": 1, "requeuing": {"timeInSeconds": 30, "growthType": "none"}}});
    cluster.submit(wrapper).await;
    cluster.wait_state(Group::Mcad, "a", "Running", "Dispatched").await;
    let pods = cluster.api(&common::resource("v1", "Pod", "pods"), "default");
    let running = Patch::Merge(json!({"status": {"phase": "Running"}}));
    pods.patch_status("a", &PatchParams::default(), &running).await.unwrap();
    sleep(Duration::from_mins(5)).await;
    cluster.wait_state(Group::Mcad, "a", "Running", "Dispatched").await;
    assert!(pods.get("a").await.unwrap().metadata.deletion_timestamp.is_none());

    silence.send_replace(false);
    cluster.wait_state(Group::Mcad, "a", "Running", "Running").await;
    // After the watch has reported it, a failed pod does cause a requeue.
    let failed = Patch::Merge(json!({"status": {"phase": "Failed"}}));
    pods.patch_status("a", &PatchParams::default(), &failed).await.unwrap();
    let status = cluster.wait_state(Group::Mcad, "a", "Pending", "Backoff").await;
    assert_eq!(status["numberOfRequeueings"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_writes_between_any_two_requests_does_not_prevent_a_dispatch() {
    let cluster = cluster().await;
    let (service, writes) = (cluster.service.clone(), Arc::new(AtomicUsize::new(0)));
    let behind = cluster.client.clone();
    let meddled = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (service, writes, behind) = (service.clone(), writes.clone(), behind.clone());
        async move {
            // Not before the intent: its write is conditional on the observed version, so a client that writes fast
            // enough delays it.
            let path = request.uri().path().to_owned();
            if path.ends_with("/a/status") && writes.fetch_add(1, Ordering::Relaxed) > 0 {
                add_condition(&behind, path.trim_end_matches("/status")).await;
            }
            Ok::<_, std::io::Error>(service.oneshot(request).await.unwrap())
        }
    });
    let _controller = cluster.controller_over(Client::new(meddled, "default"));
    cluster.submit(gang("a", 4)).await;
    let started = cluster.wait_state(Group::Mcad, "a", "Running", "Dispatched").await;
    let conditions = started["conditions"].as_array().unwrap();
    let types: Vec<_> = conditions.iter().map(|condition| condition["type"].as_str().unwrap()).collect();
    assert_eq!(types.iter().filter(|kind| **kind == "Dispatched").count(), 1);
    // The conditions of the other client stay.
    assert_eq!(types.iter().filter(|kind| **kind == "Meddled").count(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_object_whose_deletion_conflicts_is_deleted_again() {
    let cluster = cluster().await;
    let (service, deletions) = (cluster.service.clone(), Arc::new(AtomicUsize::new(0)));
    let conflicting = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (service, deletions) = (service.clone(), deletions.clone());
        async move {
            let is_first = *request.method() == http::Method::DELETE
                && request.uri().path().ends_with("/configmaps/a")
                && deletions.fetch_add(1, Ordering::Relaxed) == 0;
            if is_first {
                let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                    "message": "changed at the same time", "reason": "Conflict", "code": 409});
                let answer = http::Response::builder().status(409).header("Content-Type", "application/json");
                let body = kube::client::Body::from(status.to_string().into_bytes());
                return Ok::<_, std::io::Error>(answer.body(Either::Right(body)).unwrap());
            }
            Ok(service.oneshot(request).await.unwrap().map(Either::Left))
        }
    });
    let _controller = cluster.controller_over(Client::new(conflicting, "default"));
    cluster.submit(gang("a", 4)).await;
    cluster.wait_state(Group::Mcad, "a", "Running", "Dispatched").await;
    let object = cluster.wait(&config_maps(), "default", "a", |_| true).await;
    // The status of a gang that another controller has requeued.
    let stopped = Patch::Merge(json!({"status": {"canrun": false, "queuejobstate": "PreemptCandidate"}}));
    let api = cluster.api(&wrappers(Group::Mcad), "default");
    api.patch_status("a", &PatchParams::default(), &stopped).await.unwrap();
    cluster.wait(&config_maps(), "default", "a", |now| now.metadata.uid != object.metadata.uid).await;
    cluster.wait_state(Group::Mcad, "a", "Running", "Dispatched").await;
}

/// Adds a condition to the status of an AppWrapper.
async fn add_condition(client: &Client, path: &str) {
    let condition = json!({"type": "Meddled", "status": "True"});
    let patch = json!([{"op": "add", "path": "/status/conditions/-", "value": condition}]);
    let request = http::Request::patch(format!("{path}/status"))
        .header("Content-Type", "application/json-patch+json")
        .body(patch.to_string().into_bytes());
    client.request::<Value>(request.unwrap()).await.unwrap();
}
