//! Running gangs that are scaled by users and by the in-tree autoscaler of Ray.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::fixture::Fixture;
use crate::objects::{
    POD, RAY_CLUSTER, STATEFUL_SET, WRAPPER, name, pod, ray_cluster, stateful_set, with, wrap,
};

pub(super) async fn workers_of_an_autoscaling_ray_cluster_get_places_and_give_them_back(
    fixture: &Fixture<'_>,
) -> Result<()> {
    for node in ["one", "two", "three"] {
        fixture.node(node, "cpu=3").await?;
    }
    let ray = with(ray_cluster("ray", "cpu=2", 1), "/spec/enableInTreeAutoscaling", json!(true));
    fixture.submit([wrap("ray", [ray])]).await?;
    let before = fixture.wait_pods("ray", 2).await?;
    // The autoscaler asks for two workers more than there are nodes.
    resize_workers(fixture, "ray", 4, &[]).await?;
    let grown = fixture.wait_all(POD, "two workers run, and two wait", |pods| count(pods) == (3, 2)).await?;
    is_kept(&before, &grown)?;
    let is_pinned = |pod: &Value| {
        let host = &pod["spec"]["nodeSelector"]["kubernetes.io/hostname"];
        pod["spec"]["nodeName"].is_null() || *host == pod["spec"]["nodeName"]
    };
    ensure!(grown.iter().all(is_pinned), "a pod is not pinned to its place");
    let says_why = |wrapper: &Value| {
        wrapper["status"]["message"]
            .as_str()
            .is_some_and(|text| text.starts_with("a pod of a scale-up waits"))
    };
    fixture.wait(WRAPPER, "ray", "it tells why", says_why).await?;
    fixture.submit([wrap("waits", [pod("waits", "cpu=2")])]).await?;
    fixture.wait_queued("waits").await?;
    // It removes these workers again, by name.
    let old: Vec<&str> = before.iter().map(name).collect();
    let added: Vec<&str> = grown.iter().map(name).filter(|pod| !old.contains(pod)).collect();
    resize_workers(fixture, "ray", 1, &added).await?;
    fixture.wait_pods("waits", 1).await?;
    fixture.wait_pods("ray", 2).await?;
    fixture.wait(WRAPPER, "ray", "nothing waits", |wrapper| wrapper["status"]["message"].is_null()).await?;
    nothing_is_left(fixture).await
}

pub(super) async fn a_stateful_set_that_is_scaled_up_and_down_is_charged_for_its_pods(
    fixture: &Fixture<'_>,
) -> Result<()> {
    for node in ["one", "two", "three"] {
        fixture.node(node, "cpu=3").await?;
    }
    fixture.submit([wrap("store", [stateful_set("store", 1, "cpu=2")])]).await?;
    let before = fixture.wait_pods("store", 1).await?;
    fixture.patch(STATEFUL_SET, "store", &json!({"spec": {"replicas": 3}})).await?;
    let grown = fixture.wait_pods("store", 3).await?;
    is_kept(&before, &grown)?;
    nothing_is_left(fixture).await?;
    fixture.patch(STATEFUL_SET, "store", &json!({"spec": {"replicas": 2}})).await?;
    fixture.submit([wrap("next", [pod("next", "cpu=2")])]).await?;
    fixture.wait_pods("next", 1).await?;
    let kept = fixture.wait_pods("store", 2).await?;
    is_kept(&before, &kept)?;
    nothing_is_left(fixture).await
}

/// Changes the number of workers of a Ray cluster, and names the pods to delete, as the autoscaler does.
async fn resize_workers(fixture: &Fixture<'_>, ray: &str, replicas: u32, delete: &[&str]) -> Result<()> {
    let mut now = fixture.get(RAY_CLUSTER, ray).await?.context("the Ray cluster")?;
    let mut groups = now["spec"]["workerGroupSpecs"].take();
    groups[0]["replicas"] = json!(replicas);
    groups[0]["scaleStrategy"] = json!({"workersToDelete": delete});
    fixture.patch(RAY_CLUSTER, ray, &json!({"spec": {"workerGroupSpecs": groups}})).await.map(drop)
}

/// The number of pods with a node, and of pods without one.
fn count(pods: &[Value]) -> (usize, usize) {
    let placed = pods.iter().filter(|pod| pod["status"]["phase"] == "Running").count();
    (placed, pods.iter().filter(|pod| pod["spec"]["nodeName"].is_null()).count())
}

fn is_kept(before: &[Value], now: &[Value]) -> Result<()> {
    for pod in before {
        let is_same = |other: &Value| other["metadata"]["uid"] == pod["metadata"]["uid"];
        ensure!(now.iter().any(is_same), "{} was removed, although it was healthy", name(pod));
    }
    Ok(())
}

/// Fails if a further pod starts.
async fn nothing_is_left(fixture: &Fixture<'_>) -> Result<()> {
    fixture.submit([wrap("more", [pod("more", "cpu=2")])]).await?;
    fixture.wait_queued("more").await?;
    fixture.delete(WRAPPER, "more").await?;
    fixture.wait_gone(WRAPPER, "more").await
}
