//! Rules between pods, and pods that name their node.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::fixture::Fixture;
use crate::objects::{POD, WRAPPER, job, name, pod, with, wrap};

pub(super) async fn pods_that_name_their_node_start_there_together(fixture: &Fixture<'_>) -> Result<()> {
    fixture.node("one", "cpu=2").await?;
    fixture.node("two", "cpu=4").await?;
    let on = |object: Value, path: &str, node: &str| with(object, path, json!(node));
    let train = on(job("train", 2, "cpu=2", "1h"), "/spec/template/spec/nodeName", "two");
    fixture.submit([wrap("train", [train])]).await?;
    let pods = fixture.wait_pods("train", 2).await?;
    ensure!(pods.iter().all(|pod| pod["spec"]["nodeName"] == "two"), "they run on {:?}", nodes(&pods));
    // The other node is free, but the next gang names the full one.
    let next = on(pod("next", "cpu=1"), "/spec/nodeName", "two");
    fixture.submit([wrap("next", [next])]).await?;
    fixture.wait_queued("next").await?;
    fixture.delete(WRAPPER, "train").await?;
    fixture.wait_pods("next", 1).await?;
    fixture.keeps(POD, "it runs alone", |pods| pods.len() == 1 && name(&pods[0]) == "next").await
}

/// The node of each pod.
fn nodes(pods: &[Value]) -> Vec<&str> {
    pods.iter().map(|pod| pod["spec"]["nodeName"].as_str().unwrap_or("none")).collect()
}
