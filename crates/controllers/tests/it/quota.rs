//! Quota trees of MCAD.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use crate::common::{Cluster, Group, Running, resource, story, wrappers};
use controllers::{Config, install_quota_crd};
use serde_json::{Value, json};

/// A cluster with more resources than quota, and a quota tree of four CPUs: two for gold, one for bronze, which has a
/// hard limit, none for gangs without a quota label.
async fn cluster() -> Cluster {
    let cluster = Cluster::new().await;
    cluster.node("n", &json!({"cpu": "32", "memory": "64Gi", "pods": "110"})).await;
    install_quota_crd(cluster.client.clone()).await.unwrap();
    let root = json!([{"name": "root", "quotas": {"hardLimit": false, "requests": {"cpu": 4}}}]);
    subtree(&cluster, "quota_context", "root", "", &root).await;
    let groups = json!([
        {"name": "gold", "quotas": {"hardLimit": false, "requests": {"cpu": 2}}},
        {"name": "bronze", "quotas": {"hardLimit": true, "requests": {"cpu": 1}}},
        {"name": "default", "quotas": {"hardLimit": false, "requests": {"cpu": 0}}},
    ]);
    subtree(&cluster, "quota_context", "groups", "root", &groups).await;
    cluster
}

async fn subtree(cluster: &Cluster, tree: &str, name: &str, parent: &str, children: &Value) {
    let kind = resource("quota.codeflare.dev/v1alpha1", "QuotaSubtree", "quotasubtrees");
    let part = json!({"apiVersion": kind.api_version, "kind": kind.kind,
        "metadata": {"name": name, "namespace": "kube-system", "labels": {"tree": tree}},
        "spec": {"parent": parent, "children": children}});
    cluster.create_as(&kind, "kube-system", part).await;
}

fn controller(cluster: &Cluster, quota: bool) -> Running {
    cluster.start(cluster.client.clone(), Config { quota, preemption: true, ..Config::default() })
}

/// A Job of one pod.
fn job(name: &str, priority: i32, cpu: u32, labels: &Value) -> Value {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}});
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": template}});
    json!({
        "apiVersion": "workload.codeflare.dev/v1beta1", "kind": "AppWrapper",
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {"priority": priority, "resources": {"GenericItems": [{"generictemplate": job}]}},
    })
}

async fn runs(cluster: &Cluster, name: &str) {
    cluster.wait_state(Group::Codeflare, name, "Running", "Dispatched").await;
}

/// The status of a pending gang, and the reason in its message.
async fn waits(cluster: &Cluster, name: &str) -> (Value, String) {
    let status = cluster.wait_state(Group::Codeflare, name, "Pending", "Backoff").await;
    let message = status["message"].as_str().unwrap().to_owned();
    (status, message)
}

#[tokio::test(start_paused = true)]
async fn a_gang_above_its_hard_limit_waits_and_its_status_says_by_how_much() {
    let cluster = cluster().await;
    let _controller = controller(&cluster, true);
    let bronze = json!({"quota_context": "bronze"});
    cluster.submit(job("first", 0, 1, &bronze)).await;
    runs(&cluster, "first").await;
    cluster.submit(job("second", 0, 1, &bronze)).await;
    let (status, message) = waits(&cluster, "second").await;
    assert!(
        message.starts_with("needs 1 cpu; quota quota_context/bronze has 0 of at most 1 left."),
        "{message}"
    );
    assert_eq!(
        story(&status).last().unwrap(),
        "Backoff quota limit exceeded Insufficient quota and/or resources to dispatch AppWrapper."
    );
    cluster.submit(job("never", 0, 3, &bronze)).await;
    let (_, message) = waits(&cluster, "never").await;
    assert!(message.contains("needs 3 cpu; quota quota_context/bronze has at most 1"), "{message}");
    cluster.delete(&wrappers(Group::Codeflare), "default", "first").await;
    runs(&cluster, "second").await;
}

#[tokio::test(start_paused = true)]
async fn a_gang_without_a_quota_label_borrows_until_the_owner_reclaims_whatever_the_priority() {
    let cluster = cluster().await;
    let _controller = controller(&cluster, true);
    cluster.submit(job("guest", 9, 4, &json!({"unrelated": "label"}))).await;
    runs(&cluster, "guest").await;
    cluster.submit(job("owner", 0, 2, &json!({"quota_context": "gold"}))).await;
    runs(&cluster, "owner").await;
    let (status, message) = waits(&cluster, "guest").await;
    assert!(
        message.starts_with(
            "needs 4 cpu; quota quota_context/default has 2 of at most 4 left (0 of its own, 4 to borrow)."
        ),
        "{message}"
    );
    let told =
        "Preempted QuotaReclaimed Preempted by default/owner, which reclaims quota that this gang borrowed";
    assert!(story(&status).contains(&told.to_owned()), "{:#?}", story(&status));
    cluster.delete(&wrappers(Group::Codeflare), "default", "owner").await;
    runs(&cluster, "guest").await;
}

#[tokio::test(start_paused = true)]
async fn a_gang_is_charged_to_all_trees_or_to_none() {
    let cluster = cluster().await;
    let services = json!([
        {"name": "root", "quotas": {"requests": {"cpu": 1}}},
        {"name": "large", "quotas": {"requests": {"cpu": 8}}},
    ]);
    subtree(&cluster, "quota_service", "services", "", &services).await;
    let _controller = controller(&cluster, true);
    cluster.submit(job("small", 0, 2, &json!({"quota_context": "gold", "quota_service": "root"}))).await;
    let (_, message) = waits(&cluster, "small").await;
    assert!(message.contains("needs 2 cpu; quota quota_service/root has at most 1"), "{message}");
    cluster.submit(job("both", 0, 2, &json!({"quota_context": "gold", "quota_service": "large"}))).await;
    runs(&cluster, "both").await;
}

#[tokio::test(start_paused = true)]
async fn a_gang_waits_for_a_missing_quota_node_by_name() {
    let cluster = cluster().await;
    let _controller = controller(&cluster, true);
    cluster.submit(job("early", 0, 1, &json!({"quota_context": "silver"}))).await;
    let (_, message) = waits(&cluster, "early").await;
    assert!(message.contains("quota quota_context/silver does not exist"), "{message}");
    let silver = json!([{"name": "silver", "quotas": {"requests": {"cpu": "500m"}}}]);
    subtree(&cluster, "quota_context", "silver", "root", &silver).await;
    runs(&cluster, "early").await;
}

#[tokio::test(start_paused = true)]
async fn without_the_flag_quota_trees_have_no_effect() {
    let cluster = cluster().await;
    let _controller = controller(&cluster, false);
    cluster.submit(job("large", 0, 16, &json!({"quota_context": "bronze"}))).await;
    runs(&cluster, "large").await;
}

#[tokio::test(start_paused = true)]
async fn a_new_controller_charges_running_gangs_before_it_plans() {
    let cluster = cluster().await;
    let first = controller(&cluster, true);
    cluster.submit(job("first", 0, 1, &json!({"quota_context": "bronze"}))).await;
    runs(&cluster, "first").await;
    drop(first);
    cluster.submit(job("second", 0, 1, &json!({"quota_context": "bronze"}))).await;
    let _controller = controller(&cluster, true);
    waits(&cluster, "second").await;
    runs(&cluster, "first").await;
}

async fn change(cluster: &Cluster, name: &str, patch: &Value) {
    let params = kube::api::PatchParams::default();
    let wrappers = cluster.api(&wrappers(Group::Codeflare), "default");
    wrappers.patch(name, &params, &kube::api::Patch::Merge(patch)).await.unwrap();
}

/// An AppWrapper with one declared pod of an object that creates none.
fn declared(name: &str, priority: i32, cpu: u32, labels: &Value) -> Value {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    let mut wrapper = job(name, priority, cpu, labels);
    wrapper["spec"]["resources"]["GenericItems"] = json!([{"generictemplate": object, "custompodresources": [{"replicas": 1, "requests": {"cpu": cpu}}]}]);
    wrapper
}

#[tokio::test(start_paused = true)]
async fn a_running_gang_is_charged_to_the_quota_of_its_admission_whatever_its_labels_say() {
    let cluster = cluster().await;
    let first = controller(&cluster, true);
    cluster.submit(declared("first", 0, 1, &json!({"quota_context": "bronze"}))).await;
    runs(&cluster, "first").await;
    change(&cluster, "first", &json!({"metadata": {"labels": {"quota_context": "gold"}}})).await;
    cluster.submit(job("second", 0, 1, &json!({"quota_context": "bronze"}))).await;
    let (_, message) = waits(&cluster, "second").await;
    assert!(message.contains("quota quota_context/bronze has 0 of at most 1 left"), "{message}");
    let told = "charged until it is requeued to quota quota_context/bronze; the label quota_context: gold counts then";
    let has_text = |wrapper: &kube::api::DynamicObject| wrapper.data["status"]["message"] == told;
    cluster.wait(&wrappers(Group::Codeflare), "default", "first", has_text).await;
    assert!(cluster.events().await.contains(&format!("first QuotaLabelIgnored: {told}")));

    drop(first);
    let _next = controller(&cluster, true);
    cluster.submit(job("third", 0, 1, &json!({"quota_context": "bronze"}))).await;
    let (_, message) = waits(&cluster, "third").await;
    assert!(message.contains("quota quota_context/bronze has 0 of at most 1 left"), "{message}");

    change(&cluster, "first", &json!({"metadata": {"labels": {"quota_context": "bronze"}}})).await;
    let is_empty = |wrapper: &kube::api::DynamicObject| wrapper.data["status"]["message"].is_null();
    cluster.wait(&wrappers(Group::Codeflare), "default", "first", is_empty).await;
}

#[tokio::test(start_paused = true)]
async fn a_requeued_gang_is_charged_to_the_quota_of_its_present_labels() {
    let cluster = cluster().await;
    let _controller = controller(&cluster, true);
    cluster.submit(declared("guest", 9, 4, &json!({"quota_context": "default"}))).await;
    runs(&cluster, "guest").await;
    change(&cluster, "guest", &json!({"metadata": {"labels": {"quota_context": "bronze"}}})).await;
    cluster.submit(job("owner", 0, 2, &json!({"quota_context": "gold"}))).await;
    runs(&cluster, "owner").await;
    let (_, message) = waits(&cluster, "guest").await;
    assert!(message.contains("needs 4 cpu; quota quota_context/bronze has at most 1"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn a_smaller_spec_and_a_higher_priority_of_a_running_gang_have_no_effect_after_a_restart() {
    let cluster = cluster().await;
    let first = controller(&cluster, true);
    cluster.submit(declared("first", 0, 4, &json!({"quota_context": "gold"}))).await;
    runs(&cluster, "first").await;
    drop(first);
    let smaller = declared("first", 100, 1, &json!({}))["spec"].clone();
    change(&cluster, "first", &json!({"spec": smaller})).await;
    let next = controller(&cluster, true);
    cluster.submit(job("second", 0, 1, &json!({"quota_context": "gold"}))).await;
    let (_, message) = waits(&cluster, "second").await;
    assert!(message.contains("quota quota_context/gold has 0 of at most 4 left"), "{message}");
    let index = next.index.read().unwrap();
    let gang = index.world().gangs().find(|gang| gang.key.name == "first").unwrap();
    assert_eq!(gang.priority, 0);
}

#[tokio::test(start_paused = true)]
async fn a_label_of_the_namespace_selects_the_group_of_all_its_gangs() {
    let cluster = cluster().await;
    let _controller = controller(&cluster, true);
    cluster.annotate_namespace("default", &json!({"labels": {"quota_context": "bronze"}})).await;
    cluster.submit(job("greedy", 0, 2, &json!({"quota_context": "gold"}))).await;
    let (_, message) = waits(&cluster, "greedy").await;
    assert!(message.contains("needs 2 cpu; quota quota_context/bronze has at most 1"), "{message}");
}
