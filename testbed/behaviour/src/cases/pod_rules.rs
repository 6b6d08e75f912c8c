//! Rules between pods, and pods that name their node.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::fixture::Fixture;
use crate::objects::{NODE, POD, WRAPPER, job, name, pod, with, wrap};

/// The label of a zone.
const ZONE: &str = "topology.kubernetes.io/zone";

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

pub(super) async fn pods_run_in_the_zone_of_the_volume_of_their_claim(fixture: &Fixture<'_>) -> Result<()> {
    for (node, zone) in [("one", "a"), ("two", "b"), ("three", "b")] {
        fixture.node(node, "cpu=1").await?;
        label(fixture, node, &json!({ZONE: zone})).await?;
    }
    let terms = json!([{"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["b"]}]}]);
    let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "muster-data"}, "spec": {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany"], "hostPath": {"path": "/tmp"},
        "storageClassName": "", "persistentVolumeReclaimPolicy": "Retain",
        "claimRef": {"namespace": fixture.namespace(), "name": "data"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}});
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": {
        "volumeName": "muster-data", "accessModes": ["ReadWriteMany"], "storageClassName": "",
        "resources": {"requests": {"storage": "1Gi"}}}});
    let uses = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    let train = |name| with(job(name, 2, "cpu=1", "1h"), "/spec/template/spec/volumes", uses.clone());
    fixture.submit([wrap("train", [train("train")])]).await?;
    let why = fixture.wait_queued("train").await?;
    ensure!(why.starts_with("job: claim data does not exist"), "its message is {why:?}");
    fixture.submit([volume, claim]).await?;
    let pods = fixture.wait_pods("train", 2).await?;
    ensure!(!nodes(&pods).contains(&"one"), "they run on {:?}", nodes(&pods));
    // There is room for one pod, but the other one would have to run in the other zone.
    fixture.submit([wrap("next", [train("next")])]).await?;
    fixture.wait_queued("next").await.map(|_| ())
}

async fn label(fixture: &Fixture<'_>, node: &str, labels: &Value) -> Result<()> {
    fixture.patch(NODE, node, &json!({"metadata": {"labels": labels}})).await.map(|_| ())
}
