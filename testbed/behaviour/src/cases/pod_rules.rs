//! Rules between pods, and pods that name their node.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::fixture::Fixture;
use crate::objects::{NODE, POD, WRAPPER, deployment, job, name, pod, with, wrap};

/// The label of a host.
const HOST: &str = "kubernetes.io/hostname";
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
    nodes_of(pods, "")
}

/// The node of each pod whose name begins with this.
fn nodes_of<'a>(pods: &'a [Value], prefix: &str) -> Vec<&'a str> {
    let named = pods.iter().filter(|pod| name(pod).starts_with(prefix));
    named.map(|pod| pod["spec"]["nodeName"].as_str().unwrap_or("none")).collect()
}

pub(super) async fn trainers_with_anti_affinity_wait_for_a_node_each(fixture: &Fixture<'_>) -> Result<()> {
    for node in ["one", "two", "three", "four"] {
        fixture.node(node, "cpu=8").await?;
    }
    let train = with_affinity(job("train", 8, "cpu=1", "1h"), "podAntiAffinity", HOST, "train");
    fixture.submit([wrap("train", [train])]).await?;
    let why = fixture.wait_queued("train").await?;
    ensure!(why.contains("anti-affinity") && why.contains(HOST), "its message is {why:?}");
    for node in ["five", "six", "seven"] {
        fixture.node(node, "cpu=8").await?;
    }
    fixture.keeps(POD, "no part of it starts", <[_]>::is_empty).await?;
    fixture.node("eight", "cpu=8").await?;
    let pods = fixture.wait_pods("train", 8).await?;
    let used: BTreeSet<&str> = nodes(&pods).into_iter().collect();
    ensure!(used.len() == 8, "they run on {used:?}");
    // Its pods keep the pods of another gang away that its terms select.
    let other = with_app(job("other", 1, "cpu=1", "1h"), "train");
    fixture.submit([wrap("other", [other])]).await?;
    fixture.wait_queued("other").await?;
    fixture.delete(WRAPPER, "train").await?;
    fixture.wait_pods("other", 1).await.map(|_| ())
}

pub(super) async fn pods_with_a_host_port_wait_for_a_node_each(fixture: &Fixture<'_>) -> Result<()> {
    fixture.node("one", "cpu=8").await?;
    fixture.node("two", "cpu=8").await?;
    let port = json!([{"containerPort": 8080, "hostPort": 8080}]);
    let with_port = |name, pods| {
        with(job(name, pods, "cpu=1", "1h"), "/spec/template/spec/containers/0/ports", port.clone())
    };
    fixture.submit([wrap("serve", [with_port("serve", 4)])]).await?;
    let why = fixture.wait_queued("serve").await?;
    ensure!(why.contains("8080"), "its message is {why:?}");
    fixture.keeps(POD, "no part of it starts", <[_]>::is_empty).await?;
    // A pod that no gang owns takes the port of the third node.
    for node in ["three", "four", "five"] {
        fixture.node(node, "cpu=8").await?;
        if node == "three" {
            let foreign = with(pod("foreign", "cpu=1"), "/spec/containers/0/ports", port.clone());
            fixture.submit([with(foreign, "/spec/nodeSelector", json!({HOST: "three"}))]).await?;
            fixture.wait_pods("foreign", 1).await?;
        }
    }
    let pods = fixture.wait_pods("serve", 4).await?;
    let used: BTreeSet<&str> = nodes_of(&pods, "serve").into_iter().collect();
    ensure!(used == BTreeSet::from(["one", "two", "four", "five"]), "they run on {used:?}");
    Ok(())
}

pub(super) async fn pods_with_a_hard_spread_start_only_when_all_keep_the_skew(
    fixture: &Fixture<'_>,
) -> Result<()> {
    zones(fixture, &[("one", "a"), ("two", "b")], "cpu=4").await?;
    fixture.submit([with(pod("full", "cpu=3"), "/spec/nodeSelector", json!({HOST: "two"}))]).await?;
    fixture.wait_pods("full", 1).await?;
    let constraint = json!([{"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "train"}}}]);
    let train =
        with(job("train", 4, "cpu=1", "1h"), "/spec/template/spec/topologySpreadConstraints", constraint);
    fixture.submit([wrap("train", [train])]).await?;
    let why = fixture.wait_queued("train").await?;
    ensure!(why.contains(ZONE), "its message is {why:?}");
    fixture.keeps(POD, "no part of it starts", |pods| pods.len() == 1).await?;
    fixture.delete(POD, "full").await?;
    let pods = fixture.wait_pods("train", 4).await?;
    let mut used = nodes(&pods);
    used.sort_unstable();
    ensure!(used == ["one", "one", "two", "two"], "they run on {used:?}");
    Ok(())
}

pub(super) async fn pods_join_a_foreign_pod_in_its_zone(fixture: &Fixture<'_>) -> Result<()> {
    zones(fixture, &[("one", "a"), ("two", "b"), ("three", "b")], "cpu=2").await?;
    let train = with_affinity(job("train", 3, "cpu=1", "1h"), "podAffinity", ZONE, "db");
    fixture.submit([wrap("train", [train])]).await?;
    let why = fixture.wait_queued("train").await?;
    ensure!(why.contains("affinity"), "its message is {why:?}");
    fixture.keeps(POD, "no part of it starts", <[_]>::is_empty).await?;
    fixture.submit([with(pod("db", "cpu=1"), "/spec/nodeSelector", json!({HOST: "two"}))]).await?;
    let pods = fixture.wait_pods("train", 3).await?;
    ensure!(!nodes(&pods).contains(&"one"), "they run on {:?}", nodes(&pods));
    Ok(())
}

pub(super) async fn a_foreign_pod_keeps_a_gang_away_with_its_anti_affinity(
    fixture: &Fixture<'_>,
) -> Result<()> {
    zones(fixture, &[("one", "a"), ("two", "b")], "cpu=4").await?;
    let foreign = with(pod("foreign", "cpu=1"), "/spec/nodeSelector", json!({HOST: "one"}));
    let foreign = with(foreign, "/spec/affinity", affinity("podAntiAffinity", ZONE, "train"));
    fixture.submit([foreign]).await?;
    fixture.wait_pods("foreign", 1).await?;
    fixture.submit([wrap("large", [with_app(job("large", 5, "cpu=1", "1h"), "train")])]).await?;
    let why = fixture.wait_queued("large").await?;
    ensure!(why.contains("anti-affinity"), "its message is {why:?}");
    fixture.submit([wrap("small", [with_app(job("small", 2, "cpu=1", "1h"), "train")])]).await?;
    let pods = fixture.wait_pods("small", 2).await?;
    let used = nodes_of(&pods, "small");
    ensure!(used == ["two", "two"], "they run on {used:?}");
    fixture.delete(WRAPPER, "small").await?;
    fixture.delete(POD, "foreign").await?;
    fixture.wait_pods("large", 5).await.map(|_| ())
}

pub(super) async fn a_replacement_keeps_the_rules_of_its_gang_also_after_a_restart(
    fixture: &Fixture<'_>,
) -> Result<()> {
    for node in ["one", "two", "three"] {
        fixture.node(node, "cpu=8").await?;
    }
    let web = with_affinity(deployment("web", 2, "cpu=1"), "podAntiAffinity", HOST, "web");
    fixture.submit([wrap("web", [web])]).await?;
    let pods = fixture.wait_pods("web", 2).await?;
    let used = nodes(&pods);
    let free =
        ["one", "two", "three"].into_iter().find(|node| !used.contains(node)).context("a free node")?;
    fixture.controller().kill().await?;
    fixture.controller().start().await?;
    // The other node of the gang has room, but the rule forbids it.
    fixture.drain(used[0]).await?;
    let moved = fixture.wait_pods("web", 2).await?;
    let now: BTreeSet<&str> = nodes(&moved).into_iter().collect();
    ensure!(now == BTreeSet::from([used[1], free]), "they run on {now:?}");
    // A pod without a gang gets the label that the rule selects: the gang of the next wrapper has no node left.
    fixture.uncordon(used[0]).await?;
    fixture.submit([with(pod("foreign", "cpu=1"), "/spec/nodeSelector", json!({HOST: used[0]}))]).await?;
    fixture.wait_pods("foreign", 1).await?;
    let relabel = |app: &str| json!({"metadata": {"labels": {"app": app}}});
    fixture.patch(POD, "foreign", &relabel("web")).await?;
    let next = with_affinity(with_app(job("next", 1, "cpu=1", "1h"), "next"), "podAntiAffinity", HOST, "web");
    fixture.submit([wrap("next", [next])]).await?;
    fixture.wait_queued("next").await?;
    fixture.patch(POD, "foreign", &relabel("other")).await?;
    let pods = fixture.wait_pods("next", 1).await?;
    let runs_on = nodes_of(&pods, "next");
    ensure!(runs_on == [used[0]], "it runs on {runs_on:?}");
    Ok(())
}

pub(super) async fn pods_run_in_the_zone_of_the_volume_of_their_claim(fixture: &Fixture<'_>) -> Result<()> {
    zones(fixture, &[("one", "a"), ("two", "b"), ("three", "b")], "cpu=1").await?;
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
    let is_told = |wrapper: &Value| {
        let message = wrapper["status"]["message"].as_str().unwrap_or_default();
        message.starts_with("job: claim data does not exist")
    };
    fixture.wait(WRAPPER, "train", "its message names the claim", is_told).await?;
    fixture.submit([volume, claim]).await?;
    let pods = fixture.wait_pods("train", 2).await?;
    ensure!(!nodes(&pods).contains(&"one"), "they run on {:?}", nodes(&pods));
    // There is room for one pod, but the other one would have to run in the other zone.
    fixture.submit([wrap("next", [train("next")])]).await?;
    fixture.wait_queued("next").await.map(|_| ())
}

/// Adds a node in each of these zones.
async fn zones(fixture: &Fixture<'_>, nodes: &[(&str, &str)], resources: &str) -> Result<()> {
    for (node, zone) in nodes {
        fixture.node(node, resources).await?;
        fixture.patch(NODE, node, &json!({"metadata": {"labels": {ZONE: zone}}})).await?;
    }
    Ok(())
}

/// Required affinity or anti-affinity to the pods with this `app` label.
fn affinity(kind: &str, key: &str, app: &str) -> Value {
    let term = json!({"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}});
    json!({kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}})
}

fn with_affinity(job: Value, kind: &str, key: &str, app: &str) -> Value {
    with(job, "/spec/template/spec/affinity", affinity(kind, key, app))
}

/// The Job whose pods have another `app` label.
fn with_app(job: Value, app: &str) -> Value {
    with(job, "/spec/template/metadata/labels/app", json!(app))
}
