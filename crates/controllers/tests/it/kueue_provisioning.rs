//! The admission check that asks a node autoscaler for nodes. The tests play the autoscaler.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common;
use crate::common::kueue::*;
use crate::common::{Cluster, Running, resource};
use crate::permissions::failing;
use controllers::{Config, Kueue, ProvisioningConfig, install_provisioning_crd};
use http::Method;
use kube::Client;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::ApiResource;
use serde_json::{Value, json};

fn requests() -> ApiResource {
    resource("autoscaling.x-k8s.io/v1", "ProvisioningRequest", "provisioningrequests")
}

fn templates() -> ApiResource {
    resource("v1", "PodTemplate", "podtemplates")
}

fn checks() -> ApiResource {
    kind("AdmissionCheck", "admissionchecks")
}

/// A cluster with the queue `team` of GPU nodes, whose Workloads need nodes by the check `nodes` and this configuration.
async fn cluster(config: Value) -> Cluster {
    let cluster = kueue_cluster().await;
    install_provisioning_crd(cluster.client.clone()).await.unwrap();
    let mut spec = json!({"provisioningClassName": "queued-provisioning.gke.io"});
    spec.as_object_mut().unwrap().extend(config.as_object().unwrap().clone());
    create(&cluster, "ProvisioningRequestConfig", "provisioningrequestconfigs", "gpu-nodes", spec).await;
    check(&cluster, "gpu-nodes").await;
    let strategy = json!({"admissionChecks": [{"name": "nodes"}]});
    common::jobs::gpu_queue(&cluster, 8, json!({"admissionChecksStrategy": strategy})).await;
    cluster
}

async fn check(cluster: &Cluster, config: &str) {
    let parameters =
        json!({"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": config});
    let spec = json!({"controllerName": "kueue.x-k8s.io/provisioning-request", "parameters": parameters});
    create(cluster, "AdmissionCheck", "admissionchecks", "nodes", spec).await;
}

fn controller(cluster: &Cluster) -> Running {
    controller_over(cluster, cluster.client.clone())
}

fn controller_over(cluster: &Cluster, client: Client) -> Running {
    let config = Config {
        kueue: Kueue::Scheduler,
        provisioning: Some(ProvisioningConfig::default()),
        ..Config::default()
    };
    cluster.start(client, config)
}

async fn request(cluster: &Cluster, name: &str) -> DynamicObject {
    cluster.wait(&requests(), "default", name, |_| true).await
}

/// The autoscaler sets conditions: type, status and message.
async fn answer(cluster: &Cluster, request: &str, conditions: &[(&str, bool, &str)]) {
    let of = |(kind, is_true, message): &(&str, bool, &str)| {
        json!({"type": kind, "status": if *is_true { "True" } else { "False" }, "reason": "Told", "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    let conditions: Vec<Value> = conditions.iter().map(of).collect();
    let details = json!({"NodeGroup": "pool-7"});
    let patch =
        Patch::Merge(json!({"status": {"conditions": conditions, "provisioningClassDetails": details}}));
    let api = cluster.api(&requests(), "default");
    api.patch_status(request, &PatchParams::default(), &patch).await.unwrap();
}

/// Waits until the check of a Workload has this state and this message.
async fn check_is(cluster: &Cluster, workload: &str, state: &str, message: &str) -> Value {
    let of = |object: &DynamicObject| object.data["status"]["admissionChecks"][0].clone();
    let reached = |object: &DynamicObject| of(object)["state"] == state && of(object)["message"] == message;
    of(&cluster.wait(&workloads(), "default", workload, reached).await)
}

#[tokio::test(start_paused = true)]
async fn a_workload_is_admitted_when_its_nodes_are_there() {
    let updates = json!([{"key": "pool", "valueFromProvisioningClassDetail": "NodeGroup"}]);
    let cluster = cluster(
        json!({"parameters": {"maxRunDurationSeconds": "600"}, "podSetUpdates": {"nodeSelector": updates}}),
    )
    .await;
    let _controller = controller(&cluster);
    cluster.wait(&checks(), "", "nodes", |check| is(check, "Active", "True", "Active")).await;
    submit(&cluster, "train", "team", 0, 2, 1).await;
    let found = request(&cluster, "train-nodes-1").await;
    assert_eq!(
        found.data["spec"],
        json!({"provisioningClassName": "queued-provisioning.gke.io", "parameters": {"maxRunDurationSeconds": "600"},
            "podSets": [{"podTemplateRef": {"name": "ppt-train-nodes-1-main"}, "count": 2}]})
    );
    let owner = &found.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!((&*owner.kind, &*owner.name, owner.controller), ("Workload", "train", Some(true)));
    let uid = found.metadata.uid.clone();
    let is_owned = |template: &DynamicObject| {
        template.metadata.owner_references.as_ref().is_some_and(|owners| Some(&owners[0].uid) == uid.as_ref())
    };
    let template = cluster.wait(&templates(), "default", "ppt-train-nodes-1-main", is_owned).await;
    assert_eq!(template.data["template"]["spec"]["nodeSelector"], json!({"pool": "gpu"}));
    assert_eq!(template.data["template"]["spec"]["tolerations"][0]["key"], "gpu");

    let eta = "nodes come in 40 s";
    answer(&cluster, "train-nodes-1", &[("Accepted", true, "queued"), ("Provisioned", false, eta)]).await;
    check_is(&cluster, "train", "Pending", eta).await;
    answer(&cluster, "train-nodes-1", &[("Accepted", true, "queued"), ("Provisioned", true, "there")]).await;
    let check = check_is(&cluster, "train", "Ready", "there").await;
    assert_eq!(
        check["podSetUpdates"],
        json!([{"name": "main", "nodeSelector": {"pool": "pool-7"}, "annotations": {
            "autoscaling.x-k8s.io/consume-provisioning-request": "train-nodes-1",
            "autoscaling.x-k8s.io/provisioning-class-name": "queued-provisioning.gke.io"}}])
    );
    admitted(&cluster, "train").await;
    finish(&cluster, "train").await;
    cluster.wait_gone(&requests(), "default", "train-nodes-1").await;
    let events = cluster.events().await;
    for told in [
        "train ProvisioningRequestCreated: Created ProvisioningRequest: \"train-nodes-1\"",
        "train AdmissionCheckUpdated: Admission check nodes updated state from Pending to Ready with message: there",
    ] {
        assert!(events.iter().any(|event| event == told), "{told}: {events:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_in_another_namespace_says_nothing_about_a_workload_that_it_names_as_its_controller() {
    let cluster = cluster(json!({})).await;
    let _controller = controller(&cluster);
    submit(&cluster, "train", "team", 0, 2, 1).await;
    let own = request(&cluster, "train-nodes-1").await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "intruder"}});
    cluster.create_as(&resource("v1", "Namespace", "namespaces"), "", namespace).await;
    let metadata = json!({"name": "train-nodes-2", "ownerReferences": own.metadata.owner_references});
    let forged = json!({"apiVersion": "autoscaling.x-k8s.io/v1", "kind": "ProvisioningRequest",
        "metadata": metadata, "spec": own.data["spec"]});
    let forged = cluster.create_as(&requests(), "intruder", forged).await;
    tokio::time::sleep(Duration::from_hours(1)).await;
    for (kept, namespace) in [(&own, "default"), (&forged, "intruder")] {
        let name = kept.metadata.name.as_deref().unwrap();
        let found = cluster.api(&requests(), namespace).get(name).await.unwrap();
        assert_eq!(found.metadata.uid, kept.metadata.uid);
    }
    answer(&cluster, "train-nodes-1", &[("Accepted", true, "queued"), ("Provisioned", true, "there")]).await;
    check_is(&cluster, "train", "Ready", "there").await;
}

#[tokio::test(start_paused = true)]
async fn a_template_that_describes_other_pods_than_the_workload_is_replaced() {
    let cluster = cluster(json!({})).await;
    let name = "ppt-train-nodes-1-main";
    let pod = json!({"spec": {"containers": [{"name": "x", "image": "i", "resources": {"requests": {"cpu": "64"}}}]}});
    let foreign =
        json!({"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": name}, "template": pod});
    cluster.create_as(&templates(), "default", foreign).await;
    let _controller = controller(&cluster);
    submit(&cluster, "train", "team", 0, 2, 1).await;
    request(&cluster, "train-nodes-1").await;
    let found = cluster.api(&templates(), "default").get(name).await.unwrap();
    let asked = &found.data["template"]["spec"]["containers"][0]["resources"]["requests"];
    assert_eq!(*asked, json!({"cpu": "1"}));
    let told = format!(
        "train PodTemplateReplaced: Deleted PodTemplate {name:?}: it describes other pods than the Workload"
    );
    let events = cluster.events().await;
    assert!(events.contains(&told), "{events:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_failed_request_is_followed_by_another_one_until_the_limit() {
    let cluster = cluster(json!({"retryStrategy": {"backoffLimitCount": 1, "backoffBaseSeconds": 5}})).await;
    let _controller = controller(&cluster);
    submit(&cluster, "train", "team", 0, 2, 1).await;
    request(&cluster, "train-nodes-1").await;
    answer(&cluster, "train-nodes-1", &[("Failed", true, "no stock")]).await;
    let is_evicted = |object: &DynamicObject| is(object, "Evicted", "True", "AdmissionCheck");
    let evicted = cluster.wait(&workloads(), "default", "train", is_evicted).await;
    assert_eq!(evicted.data["status"]["admissionChecks"][0]["retryCount"], 1);
    cluster.wait_gone(&requests(), "default", "train-nodes-1").await;
    give_back(&cluster, &evicted).await;
    request(&cluster, "train-nodes-2").await;
    answer(&cluster, "train-nodes-2", &[("Provisioned", true, ""), ("BookingExpired", true, "too late")])
        .await;
    let is_off = |object: &DynamicObject| object.data["spec"]["active"] == false;
    let off = cluster.wait(&workloads(), "default", "train", is_off).await;
    assert_eq!(off.data["status"]["admissionChecks"][0]["name"], "nodes");
    let told = "Admission check nodes updated state from Pending to Rejected with message: too late";
    let events = cluster.events().await;
    assert!(events.iter().any(|event| event.contains(told)), "{events:#?}");
}

#[tokio::test(start_paused = true)]
async fn an_admitted_workload_ignores_an_expired_booking_and_ends_when_its_nodes_are_revoked() {
    let cluster = cluster(json!({})).await;
    let _controller = controller(&cluster);
    submit(&cluster, "train", "team", 0, 2, 1).await;
    request(&cluster, "train-nodes-1").await;
    answer(&cluster, "train-nodes-1", &[("Provisioned", true, "there")]).await;
    admitted(&cluster, "train").await;
    answer(&cluster, "train-nodes-1", &[("Provisioned", true, "there"), ("BookingExpired", true, "late")])
        .await;
    cluster.settled().await;
    check_is(&cluster, "train", "Ready", "there").await;
    answer(&cluster, "train-nodes-1", &[("Provisioned", true, "there"), ("CapacityRevoked", true, "gone")])
        .await;
    let is_off = |object: &DynamicObject| object.data["spec"]["active"] == false;
    cluster.wait(&workloads(), "default", "train", is_off).await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_no_longer_agrees_with_its_configuration_is_made_again() {
    let cluster = cluster(json!({"parameters": {"a": "1"}})).await;
    let _controller = controller(&cluster);
    submit(&cluster, "train", "team", 0, 2, 1).await;
    let before = request(&cluster, "train-nodes-1").await;
    let api = cluster.api(&kind("ProvisioningRequestConfig", "provisioningrequestconfigs"), "");
    let patch = Patch::Merge(json!({"spec": {"parameters": {"a": "2"}}}));
    api.patch("gpu-nodes", &PatchParams::default(), &patch).await.unwrap();
    let is_new = |request: &DynamicObject| request.data["spec"]["parameters"]["a"] == "2";
    let after = cluster.wait(&requests(), "default", "train-nodes-1", is_new).await;
    assert_ne!(before.metadata.uid, after.metadata.uid);
}

#[tokio::test(start_paused = true)]
async fn a_check_says_what_is_wrong_with_its_parameters() {
    let cluster = kueue_cluster().await;
    let conversion = "provisioningrequestconfigs.kueue.x-k8s.io \"late\" not found";
    check(&cluster, "late").await;
    let _controller = controller(&cluster);
    let unserved = |check: &DynamicObject| is(check, "Active", "False", "ProvisioningRequestUnavailable");
    let found = cluster.wait(&checks(), "", "nodes", unserved).await;
    let message = condition(&found, "Active").unwrap()["message"].as_str().unwrap().to_owned();
    assert!(
        message.starts_with("ProvisioningRequest of autoscaling.x-k8s.io/v1 cannot be read"),
        "{message}"
    );
    install_provisioning_crd(cluster.client.clone()).await.unwrap();
    let is_bad = |check: &DynamicObject| is(check, "Active", "False", "BadParametersRef");
    let found = cluster.wait(&checks(), "", "nodes", is_bad).await;
    assert_eq!(condition(&found, "Active").unwrap()["message"], conversion);
    let spec = json!({"provisioningClassName": "check-capacity.autoscaling.x-k8s.io"});
    create(&cluster, "ProvisioningRequestConfig", "provisioningrequestconfigs", "late", spec).await;
    cluster.wait(&checks(), "", "nodes", |check| is(check, "Active", "True", "Active")).await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_request_is_told_in_the_check_and_tried_again() {
    let cluster = cluster(json!({})).await;
    let foreign = json!({"apiVersion": "autoscaling.x-k8s.io/v1", "kind": "ProvisioningRequest",
        "metadata": {"name": "train-nodes-1"},
        "spec": {"provisioningClassName": "other", "podSets": [{"podTemplateRef": {"name": "other"}, "count": 1}]}});
    cluster.create_as(&requests(), "default", foreign).await;
    let _controller = controller(&cluster);
    submit(&cluster, "train", "team", 0, 2, 1).await;
    let told = "Error creating ProvisioningRequest \"train-nodes-1\"";
    let is_told = |object: &DynamicObject| {
        let message = &object.data["status"]["admissionChecks"][0]["message"];
        message.as_str().is_some_and(|message| message.starts_with(told))
    };
    cluster.wait(&workloads(), "default", "train", is_told).await;
    cluster.delete_now(&requests(), "default", "train-nodes-1").await;
    check_is(&cluster, "train", "Pending", "").await;
    let events = cluster.events().await;
    let refused = events.iter().filter(|event| event.starts_with("train FailedCreate")).count();
    assert_eq!(refused, 1, "{events:#?}");
}

/// A client for which the API server refuses every request for nodes, and the number of those.
pub(crate) fn refusing_requests(cluster: &Cluster) -> (Client, Arc<AtomicUsize>) {
    let tries = Arc::<AtomicUsize>::default();
    let counted = tries.clone();
    let client = failing(cluster, move |request| {
        let is_request = request.uri().path().ends_with("/provisioningrequests");
        (request.method() == Method::POST && is_request).then(|| {
            counted.fetch_add(1, Ordering::Relaxed);
            (422, "no more than five requests".to_owned())
        })
    });
    (client, tries)
}

/// Requests for nodes are refused for a long time, and then somebody deletes their template: another one is made, and that is no reason
/// to try the request more often.
pub(crate) async fn is_patient_after_a_write_that_succeeds(cluster: &Cluster, tries: &AtomicUsize) {
    tokio::time::sleep(Duration::from_mins(10)).await;
    let template = cluster.names(&templates(), "default").await.remove(0);
    cluster.delete_now(&templates(), "default", &template).await;
    let before = tries.load(Ordering::Relaxed);
    tokio::time::sleep(Duration::from_mins(1)).await;
    cluster.wait(&templates(), "default", &template, |_| true).await;
    let tries = tries.load(Ordering::Relaxed) - before;
    assert!((1..=5).contains(&tries), "{tries} tries in a minute");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_refused_is_tried_less_and_less_often_although_its_template_is_made_again() {
    let cluster = cluster(json!({})).await;
    let (client, tries) = refusing_requests(&cluster);
    let _controller = controller_over(&cluster, client);
    submit(&cluster, "train", "team", 0, 2, 1).await;
    is_patient_after_a_write_that_succeeds(&cluster, &tries).await;
}

#[tokio::test(start_paused = true)]
async fn pods_without_a_managed_resource_need_no_request() {
    let cluster = cluster(json!({"managedResources": ["nvidia.com/gpu"]})).await;
    let _controller = controller(&cluster);
    submit(&cluster, "train", "team", 0, 2, 1).await;
    check_is(&cluster, "train", "Ready", "the provisioning request is not needed").await;
    admitted(&cluster, "train").await;
    assert!(cluster.names(&requests(), "default").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_workload_that_is_preempted_from_a_flavor_with_a_check_is_admitted_to_another_flavor() {
    let cluster = kueue_cluster().await;
    install_provisioning_crd(cluster.client.clone()).await.unwrap();
    let class = json!({"provisioningClassName": "queued-provisioning.gke.io"});
    create(&cluster, "ProvisioningRequestConfig", "provisioningrequestconfigs", "gpu-nodes", class).await;
    check(&cluster, "gpu-nodes").await;
    create(&cluster, "ResourceFlavor", "resourceflavors", "second", json!({})).await;
    let flavor =
        |name: &str, cpus: u32| json!({"name": name, "resources": [{"name": "cpu", "nominalQuota": cpus}]});
    let spec = json!({
        "preemption": {"withinClusterQueue": "LowerPriority"},
        "admissionChecksStrategy": {"admissionChecks": [{"name": "nodes", "onFlavors": ["default"]}]},
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [flavor("default", 3), flavor("second", 2)]}],
    });
    queue(&cluster, "team", 3, spec).await;
    let _controller = controller(&cluster);
    submit(&cluster, "low", "team", 0, 1, 2).await;
    request(&cluster, "low-nodes-1").await;
    answer(&cluster, "low-nodes-1", &[("Provisioned", true, "there")]).await;
    admitted(&cluster, "low").await;
    submit(&cluster, "high", "team", 9, 1, 3).await;
    let is_preempted = |object: &DynamicObject| is(object, "Preempted", "True", "InClusterQueue");
    let low = cluster.wait(&workloads(), "default", "low", is_preempted).await;
    give_back(&cluster, &low).await;
    let low = admitted(&cluster, "low").await;
    let flavors = &low.data["status"]["admission"]["podSetAssignments"][0]["flavors"];
    assert_eq!(flavors, &json!({"cpu": "second"}));
    let checks = low.data["status"]["admissionChecks"].as_array();
    assert!(checks.is_none_or(Vec::is_empty), "{checks:?}");
    request(&cluster, "high-nodes-1").await;
}

#[tokio::test(start_paused = true)]
async fn a_workload_gets_places_on_the_nodes_that_were_provisioned_for_it() {
    let cluster = kueue_cluster().await;
    install_provisioning_crd(cluster.client.clone()).await.unwrap();
    let updates = json!([{"key": "lot", "valueFromProvisioningClassDetail": "NodeGroup"}]);
    let spec = json!({"provisioningClassName": "queued-provisioning.gke.io", "podSetUpdates": {"nodeSelector": updates}});
    create(&cluster, "ProvisioningRequestConfig", "provisioningrequestconfigs", "gpu-nodes", spec).await;
    check(&cluster, "gpu-nodes").await;
    delayed_queue(&cluster, "nodes").await;
    let first = controller(&cluster);
    submit(&cluster, "train", "team", 0, 2, 2).await;
    request(&cluster, "train-nodes-1").await;
    let is_reserved = |object: &DynamicObject| is(object, "QuotaReserved", "True", "QuotaReserved");
    let reserved = cluster.wait(&workloads(), "default", "train", is_reserved).await;
    assert_eq!(assigned(&reserved)["delayedTopologyRequest"], "Pending");
    assert_eq!(assigned(&reserved)["flavors"], json!({"cpu": "hosts"}));
    assert_eq!(assigned(&reserved)["topologyAssignment"], Value::Null);
    // The nodes are lost before they are used, and others are not those of the request.
    gpu_node(&cluster, "other", ("lot", "pool-1")).await;
    answer(&cluster, "train-nodes-1", &[("Provisioned", true, "there")]).await;
    check_is(&cluster, "train", "Ready", "there").await;
    cluster.settled().await;
    let waiting = cluster.wait(&workloads(), "default", "train", is_reserved).await;
    assert!(condition(&waiting, "Admitted").is_none());
    assert_eq!(assigned(&waiting)["delayedTopologyRequest"], "Pending");
    // Told after 1, 3 and 7 s.
    tokio::time::sleep(Duration::from_millis(7_500)).await;
    let events = cluster.events().await;
    let told = "train SecondPassFailed: couldn't assign flavors to pod set main: topology \"hosts\" doesn't allow to fit any of 2 \
        pod(s). Total nodes: 1; excluded: nodeSelector: 1";
    assert_eq!(events.iter().filter(|event| **event == told).count(), 3, "{events:#?}");
    drop(first);
    let _second = controller(&cluster);
    gpu_node(&cluster, "own", ("lot", "pool-7")).await;
    let train = admitted(&cluster, "train").await;
    assert_eq!(assigned(&train)["delayedTopologyRequest"], "Ready");
    let slices = json!([{"domainCount": 1, "podCounts": {"universal": 2},
        "valuesPerLevel": [{"universal": "own"}]}]);
    assert_eq!(assigned(&train)["topologyAssignment"]["slices"], slices);
    // The places are charged: a later Workload waits for nodes although it has quota.
    submit(&cluster, "next", "team", 0, 1, 4).await;
    request(&cluster, "next-nodes-1").await;
    answer(&cluster, "next-nodes-1", &[("Provisioned", true, "there")]).await;
    check_is(&cluster, "next", "Ready", "there").await;
    cluster.settled().await;
    let next = cluster.wait(&workloads(), "default", "next", is_reserved).await;
    assert!(condition(&next, "Admitted").is_none());
    finish(&cluster, "train").await;
    admitted(&cluster, "next").await;
}
