//! What admission changes in pods, and the pods of `DaemonSet`s on new nodes: both count before a gang starts.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::fixture::Fixture;
use crate::objects::{DAEMON_SET, POD, WRAPPER, job, name, pod, with, wrap};
use crate::webhook::Webhook;

/// The path of the collection of runtime classes.
const CLASSES: &str = "/apis/node.k8s.io/v1/runtimeclasses";

/// The path of the collection of configurations of mutating webhooks.
const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";

/// A `LimitRange` with a default request and a maximum of CPU for containers.
fn limit_range(default: &str, max: &str) -> Value {
    let limit = json!({"type": "Container", "defaultRequest": {"cpu": default}, "default": {"cpu": max}, "max": {"cpu": max}});
    json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "limits"}, "spec": {"limits": [limit]}})
}

/// A Job whose pods request nothing.
fn without_requests(name: &str, pods: u32) -> Value {
    with(job(name, pods, "cpu=1", "1h"), "/spec/template/spec/containers/0/resources", json!({}))
}

pub(super) async fn the_default_requests_of_a_limit_range_count(fixture: &Fixture<'_>) -> Result<()> {
    for node in ["one", "two", "three", "four"] {
        fixture.node(node, "cpu=4").await?;
    }
    fixture.create(&limit_range("500m", "1")).await?;
    fixture.submit([wrap("forty", [without_requests("forty", 40)])]).await?;
    let why = fixture.wait_queued("forty").await?;
    ensure!(why.contains("room for 32 of 40 pods, each needs 500m cpu"), "its message is {why:?}");
    fixture.keeps(POD, "no part of it starts", <[_]>::is_empty).await?;
    fixture.submit([wrap("thirty", [without_requests("thirty", 32)])]).await?;
    fixture.wait_pods("thirty", 32).await?;
    fixture.delete(WRAPPER, "thirty").await?;
    fixture.node("five", "cpu=4").await?;
    fixture.wait_pods("forty", 40).await.map(|_| ())
}

pub(super) async fn a_gang_beyond_a_limit_range_waits_with_the_refusal(fixture: &Fixture<'_>) -> Result<()> {
    fixture.node("one", "cpu=4").await?;
    fixture.create(&limit_range("500m", "1")).await?;
    let large = json!({"requests": {"cpu": "2"}, "limits": {"cpu": "2"}});
    let large = with(job("large", 2, "cpu=2", "1h"), "/spec/template/spec/containers/0/resources", large);
    fixture.submit([wrap("large", [large])]).await?;
    let why = fixture.wait_event("large", "NotQueued").await?;
    ensure!(why.contains("maximum cpu usage per Container is 1, but limit is 2"), "the Event says {why:?}");
    fixture.submit([wrap("small", [without_requests("small", 2)])]).await?;
    fixture.wait_pods("small", 2).await?;
    fixture
        .keeps(POD, "no other pod exists", |pods| pods.iter().all(|pod| name(pod).starts_with("small")))
        .await?;
    let path = format!("/api/v1/namespaces/{}/limitranges/limits", fixture.namespace());
    fixture.call("DELETE", &path, None).await?;
    fixture.delete(WRAPPER, "small").await?;
    fixture.wait_pods("large", 2).await.map(|_| ())
}

pub(super) async fn the_overhead_of_a_runtime_class_counts(fixture: &Fixture<'_>) -> Result<()> {
    fixture.node("one", "cpu=4").await?;
    fixture.node("two", "cpu=4").await?;
    let class = format!("kata-{}", fixture.namespace());
    let kata = json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": class}, "handler": "kata",
        "overhead": {"podFixed": {"cpu": "1"}}});
    fixture.call("POST", CLASSES, Some(&kata)).await?;
    let of_class = |name, pods| {
        with(job(name, pods, "cpu=1", "1h"), "/spec/template/spec/runtimeClassName", json!(class))
    };
    fixture.submit([wrap("eight", [of_class("eight", 8)])]).await?;
    let why = fixture.wait_queued("eight").await?;
    ensure!(why.contains("room for 4 of 8 pods, each needs 2 cpu"), "its message is {why:?}");
    fixture.submit([wrap("four", [of_class("four", 4)])]).await?;
    fixture.wait_pods("four", 4).await?;
    fixture.call("DELETE", &format!("{CLASSES}/{class}"), None).await.map(|_| ())
}

pub(super) async fn a_sidecar_that_a_webhook_injects_counts(fixture: &Fixture<'_>) -> Result<()> {
    fixture.node("one", "cpu=4").await?;
    fixture.node("two", "cpu=4").await?;
    let webhook = Webhook::start("1").await?;
    let registered = webhook.configuration(fixture.namespace(), fixture.namespace());
    fixture.call("POST", WEBHOOKS, Some(&registered)).await?;
    // The API server calls it some time after its registration.
    let dry = format!("/api/v1/namespaces/{}/pods?dryRun=All", fixture.namespace());
    let probe = pod("probe", "cpu=1");
    fixture
        .eventually("a sidecar in a pod", async || {
            let pod = fixture.call("POST", &dry, Some(&probe)).await?;
            Ok(pod["spec"]["containers"][1].is_object().then_some(()))
        })
        .await?;
    fixture.submit([wrap("eight", [job("eight", 8, "cpu=1", "1h")])]).await?;
    let why = fixture.wait_queued("eight").await?;
    ensure!(why.contains("room for 4 of 8 pods, each needs 2 cpu"), "its message is {why:?}");
    fixture.submit([wrap("four", [job("four", 4, "cpu=1", "1h")])]).await?;
    fixture.wait_pods("four", 4).await?;
    fixture.call("DELETE", &format!("{WEBHOOKS}/{}", fixture.namespace()), None).await.map(|_| ())
}

pub(super) async fn a_gang_leaves_room_for_the_daemons_of_a_new_node(fixture: &Fixture<'_>) -> Result<()> {
    let container = json!({"name": "agent", "image": "agent", "resources": {"requests": {"cpu": "1"}}});
    let labels = json!({"app": "agent"});
    let agent = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent"}, "spec": {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}}}});
    fixture.create(&agent).await?;
    fixture.submit([wrap("train", [job("train", 2, "cpu=2", "1h")])]).await?;
    fixture.wait_queued("train").await?;
    fixture.node("one", "cpu=4").await?;
    fixture.wait_pods("agent", 1).await?;
    fixture.keeps(POD, "the gang does not fit beside the daemon", |pods| pods.len() == 1).await?;
    fixture.node("two", "cpu=5").await?;
    fixture.wait_pods("train", 2).await?;
    fixture.wait_pods("agent", 2).await?;
    fixture.delete(DAEMON_SET, "agent").await
}
