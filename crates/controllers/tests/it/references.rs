//! Objects that pod templates refer to, and constraints that are not planned: the author is told, and others do not wait.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::{Cluster, Group, resource, wrappers};
use controllers::{Config, Observer};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::client::Body;
use kube::core::ApiResource;
use serde_json::{Value, json};
use tower::ServiceExt;

fn jobs() -> ApiResource {
    resource("batch/v1", "Job", "jobs")
}

/// A node in each zone, with one CPU each.
async fn cluster(zones: &[&str]) -> Cluster {
    let cluster = Cluster::new().await;
    for zone in zones {
        cluster.node(zone, &json!({"cpu": "1", "memory": "64Gi", "pods": "110"})).await;
        let labels = json!({"metadata": {"labels": {"kubernetes.io/hostname": zone, "zone": zone}}});
        let nodes = cluster.api(&resource("v1", "Node", "nodes"), "");
        nodes.patch(zone, &PatchParams::default(), &Patch::Merge(labels)).await.unwrap();
    }
    cluster
}

/// An AppWrapper of a Job with one pod of one CPU.
fn gang(name: &str, spec: &Value) -> Value {
    let mut spec = spec.clone();
    spec["restartPolicy"] = json!("Never");
    spec["containers"] = json!([{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]);
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": {"spec": spec}}});
    json!({"apiVersion": Group::Mcad.api_version(), "kind": "AppWrapper", "metadata": {"name": name},
        "spec": {"resources": {"GenericItems": [{"generictemplate": job}]}}})
}

fn with_claim(claim: &str) -> Value {
    json!({"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]})
}

/// A claim that is bound to a volume in this zone.
pub(crate) async fn bound_claim(cluster: &Cluster, name: &str, zone: &str) {
    bound_claim_of_mode(cluster, name, zone, "ReadWriteMany").await;
}

async fn bound_claim_of_mode(cluster: &Cluster, name: &str, zone: &str, mode: &str) {
    let terms = json!([{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}]);
    let capacity = json!({"storage": "1Gi"});
    let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": {"capacity": capacity,
        "accessModes": [mode], "hostPath": {"path": "/tmp"}, "nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}});
    cluster.create_as(&resource("v1", "PersistentVolume", "persistentvolumes"), "", volume).await;
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": {"volumeName": name,
        "accessModes": [mode], "storageClassName": "", "resources": {"requests": capacity}}});
    cluster
        .create_as(&resource("v1", "PersistentVolumeClaim", "persistentvolumeclaims"), "default", claim)
        .await;
}

/// The node that the assignment of a created Job names, and whether its template is gated.
async fn created(cluster: &Cluster, name: &str) -> (String, bool) {
    let job = cluster.wait(&jobs(), "default", name, |_| true).await;
    let annotations = job.metadata.annotations.clone().unwrap();
    let assignment = annotations.values().find(|text| text.starts_with("[{")).unwrap().clone();
    (assignment, !job.data["spec"]["template"]["spec"]["schedulingGates"].is_null())
}

async fn wait_message(cluster: &Cluster, name: &str, part: &str) {
    let is_told = |wrapper: &DynamicObject| {
        wrapper.data["status"]["message"].as_str().unwrap_or_default().contains(part)
    };
    cluster.wait(&wrappers(Group::Mcad), "default", name, is_told).await;
}

/// A client that may not list these resources as long as `may` is false.
fn without(cluster: &Cluster, plural: &'static str, may: Arc<AtomicBool>) -> Client {
    let service = cluster.service.clone();
    let client = tower::service_fn(move |request: Request<Body>| {
        let (service, may) = (service.clone(), may.clone());
        async move {
            if request.uri().path().ends_with(plural) && !may.load(Ordering::Relaxed) {
                let message = format!(
                    "{plural} is forbidden: User \"m\" cannot list resource \"{plural}\" in API group \"\" at the cluster scope"
                );
                let body = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403, "reason": "Forbidden", "message": message});
                let answer = Response::builder().status(403);
                return Ok(answer.body(Full::from(body.to_string()).boxed_unsync()).unwrap());
            }
            let answer = service.oneshot(request).await?;
            Ok::<_, std::convert::Infallible>(
                answer.map(|body| body.map_err(|never| match never {}).boxed_unsync()),
            )
        }
    });
    Client::new(client, "default")
}

#[tokio::test(start_paused = true)]
async fn a_gang_waits_for_its_claim_and_runs_where_the_volume_is() {
    let cluster = cluster(&["a", "b"]).await;
    let controller = cluster.controller();
    cluster.submit(gang("train", &with_claim("data"))).await;
    let missing = "job: claim data does not exist in namespace default: create it";
    wait_message(&cluster, "train", missing).await;
    assert_eq!(cluster.events().await, [format!("train NotQueued: {missing}")]);
    // Others do not wait for it.
    cluster.submit(gang("other", &json!({}))).await;
    assert_eq!(created(&cluster, "other").await, ("[{\"a\":1}]".into(), true));
    cluster.delete(&wrappers(Group::Mcad), "default", "other").await;
    bound_claim(&cluster, "data", "b").await;
    assert_eq!(created(&cluster, "train").await, ("[{\"b\":1}]".into(), true));
    // Another gang with the claim waits for the node, also for a new controller.
    cluster.submit(gang("next", &with_claim("data"))).await;
    wait_message(&cluster, "next", "Position 1 of 1").await;
    drop(controller);
    let _controller = cluster.controller();
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(cluster.names(&jobs(), "default").await, ["train"]);
    cluster.delete(&wrappers(Group::Mcad), "default", "train").await;
    assert_eq!(created(&cluster, "next").await, ("[{\"b\":1}]".into(), true));
}

#[tokio::test(start_paused = true)]
async fn a_gang_whose_claims_may_not_be_listed_starts_unplanned_and_says_so() {
    let cluster = cluster(&["a", "b"]).await;
    bound_claim(&cluster, "data", "b").await;
    let may = Arc::<AtomicBool>::default();
    let _controller = cluster.controller_over(without(&cluster, "persistentvolumeclaims", may.clone()));
    cluster.submit(gang("train", &with_claim("data"))).await;
    cluster.submit(gang("other", &json!({}))).await;
    assert!(created(&cluster, "other").await.1);
    assert!(!created(&cluster, "train").await.1);
    let right = "not allowed: m cannot list persistentvolumeclaims";
    wait_message(&cluster, "train", right).await;
    let told = cluster.events().await;
    assert!(
        told.iter().any(|text| text.starts_with("train NotPlanned: ") && text.contains(right)),
        "{told:?}"
    );
    // The next gang is planned as soon as the permission is granted.
    may.store(true, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_mins(1)).await;
    cluster.delete(&wrappers(Group::Mcad), "default", "train").await;
    cluster.delete(&wrappers(Group::Mcad), "default", "other").await;
    cluster.submit(gang("next", &with_claim("data"))).await;
    assert_eq!(created(&cluster, "next").await, ("[{\"b\":1}]".into(), true));
}

#[tokio::test(start_paused = true)]
async fn resource_claims_are_told_before_the_start() {
    let cluster = cluster(&["a"]).await;
    let config = Config { clock: cluster.clock.clone(), ..Config::default() };
    let _controller = cluster.controller();
    cluster.submit(gang("first", &json!({}))).await;
    created(&cluster, "first").await;
    cluster
        .submit(gang("dra", &json!({"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]})))
        .await;
    let told = "not planned: job: resource claims. These pods start where the scheduler finds nodes, perhaps not all of them";
    wait_message(&cluster, "dra", told).await;
    assert!(cluster.events().await.contains(&format!("dra NotPlanned: {told}")));
    let observer = Observer::of(cluster.client.clone(), config).await.unwrap();
    let report = &observer.why("default", "dra")[0];
    assert_eq!(report.wrapper().unwrap().unplanned.as_deref(), Some(told));
    observer.close().await;
    cluster.delete(&wrappers(Group::Mcad), "default", "first").await;
    assert!(!created(&cluster, "dra").await.1);
}

#[tokio::test(start_paused = true)]
async fn gangs_wait_while_namespaces_cannot_be_listed_and_say_so() {
    let cluster = cluster(&["a"]).await;
    let may = Arc::<AtomicBool>::default();
    let _controller = cluster.controller_over(without(&cluster, "namespaces", may.clone()));
    cluster.submit(gang("g", &json!({}))).await;
    wait_message(&cluster, "g", "cannot list namespaces").await;
    may.store(true, Ordering::Relaxed);
    cluster.wait(&jobs(), "default", "g", |_| true).await;
}

/// The pod of a Job, which the scheduler refuses with this message.
async fn refused_pod(cluster: &Cluster, job: &str, message: &str) {
    let owner = cluster.wait(&jobs(), "default", job, |_| true).await;
    let owners = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": owner.metadata.uid, "controller": true}]);
    let containers = json!([{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]);
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": containers},
        "metadata": {"name": format!("{job}-0"), "ownerReferences": owners}});
    let pods = resource("v1", "Pod", "pods");
    cluster.create_as(&pods, "default", pod).await;
    let condition =
        json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message});
    let status = json!({"status": {"phase": "Pending", "conditions": [condition]}});
    let api = cluster.api(&pods, "default");
    api.patch_status(&format!("{job}-0"), &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_gang_that_is_not_planned_says_what_the_scheduler_says_and_is_requeued() {
    let cluster = cluster(&["a"]).await;
    let _controller = cluster.controller();
    cluster
        .submit(gang("dra", &json!({"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]})))
        .await;
    refused_pod(&cluster, "dra", "0/1 nodes are available: 1 cannot allocate all claims.").await;
    let told = "1 pod is without a node: the scheduler says: 0/1 nodes are available: 1 cannot allocate all claims. The gang is requeued at";
    wait_message(&cluster, "dra", told).await;
    let is_requeued = |wrapper: &DynamicObject| wrapper.data["status"]["numberOfRequeueings"] == 1;
    cluster.wait(&wrappers(Group::Mcad), "default", "dra", is_requeued).await;
}

/// Polls an object until it meets a condition, for hours if need be. Returns it, and after how many minutes it did.
async fn poll(
    api: Api<DynamicObject>,
    name: &str,
    is_met: impl Fn(&DynamicObject) -> bool,
) -> (DynamicObject, u64) {
    let started = tokio::time::Instant::now();
    for _ in 0..2_000 {
        if let Some(object) = api.get_opt(name).await.unwrap().filter(&is_met) {
            return (object, (started.elapsed().as_secs() + 30) / 60);
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    panic!("{name} did not reach the expected state");
}

#[tokio::test(start_paused = true)]
async fn a_gang_that_is_not_planned_is_tried_on_other_places_and_pauses_longer_each_time() {
    is_tried_on_other_places(false).await;
}

#[tokio::test(start_paused = true)]
async fn a_restart_forgets_no_node_that_a_gang_avoids_and_no_pause() {
    is_tried_on_other_places(true).await;
}

/// A gang whose pods are refused again and again. `restarts`: after each requeue by another controller.
async fn is_tried_on_other_places(restarts: bool) {
    let cluster = cluster(&["a", "b"]).await;
    let mut controller = cluster.controller();
    let claims = json!({"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]});
    cluster.submit(gang("dra", &claims)).await;
    let (mut tried, mut job_uid) = (Vec::new(), None);
    for times in 1..=5 {
        let (job, pause) =
            poll(cluster.api(&jobs(), "default"), "dra", |job| job.metadata.uid != job_uid).await;
        job_uid = job.metadata.uid;
        let places = created(&cluster, "dra").await.0;
        refused_pod(&cluster, "dra", "0/2 nodes are available: 2 cannot allocate all claims.").await;
        let is_requeued = |wrapper: &DynamicObject| wrapper.data["status"]["numberOfRequeueings"] == times;
        let api = cluster.api(&wrappers(Group::Mcad), "default");
        tried.push((places, pause, poll(api, "dra", is_requeued).await.1));
        if restarts {
            drop(controller);
            controller = cluster.controller();
        }
        cluster.delete_now(&resource("v1", "Pod", "pods"), "default", "dra-0").await;
    }
    drop(controller);
    // Without other nodes, it waits until those that failed longest ago are no longer excluded. Times are in minutes.
    let expected = [("a", 0, 5), ("b", 0, 5), ("a", 5, 10), ("b", 5, 20), ("a", 15, 40)];
    let expected = expected.map(|(node, pause, held)| (format!("[{{\"{node}\":1}}]"), pause, held));
    assert_eq!(tried, expected);
}

#[tokio::test(start_paused = true)]
async fn a_claim_for_one_pod_keeps_other_gangs_waiting_also_after_a_restart() {
    let cluster = cluster(&["a", "b"]).await;
    let patch = Patch::Merge(json!({"metadata": {"labels": {"zone": "a"}}}));
    let nodes = cluster.api(&resource("v1", "Node", "nodes"), "");
    nodes.patch("b", &PatchParams::default(), &patch).await.unwrap();
    let controller = cluster.controller();
    bound_claim_of_mode(&cluster, "data", "a", "ReadWriteOncePod").await;
    cluster.submit(gang("first", &with_claim("data"))).await;
    created(&cluster, "first").await;
    cluster.submit(gang("second", &with_claim("data"))).await;
    let why = "another pod uses a ReadWriteOncePod claim of these pods";
    wait_message(&cluster, "second", why).await;
    drop(controller);
    let _controller = cluster.controller();
    cluster.submit(gang("third", &with_claim("data"))).await;
    wait_message(&cluster, "third", why).await;
    cluster.delete(&wrappers(Group::Mcad), "default", "first").await;
    created(&cluster, "second").await;
    // The node itself is free for others.
    cluster.submit(gang("free", &json!({}))).await;
    created(&cluster, "free").await;
    assert_eq!(cluster.violations(), [""; 0]);
}
