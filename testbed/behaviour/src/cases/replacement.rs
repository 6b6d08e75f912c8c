//! Running gangs whose pods are replaced: nodes are drained, flap or vanish, pods fail and are retried, templates are updated.
//!
//! The other pods of the gang stay, the new pod is pinned to the planned place, and the gang holds no more than before.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::fixture::Fixture;
use crate::objects::{
    DEPLOYMENT, JOB, NODE, POD, RAY_CLUSTER, STATEFUL_SET, WRAPPER, condition_lines, deployment, job, name,
    pod, ray_cluster, stateful_set, with, wrap,
};

pub(super) async fn a_stateful_set_keeps_running_while_its_nodes_are_drained(
    fixture: &Fixture<'_>,
) -> Result<()> {
    nodes(fixture, &["one", "two", "three"]).await?;
    fixture.submit([wrap("store", [stateful_set("store", 2, "cpu=2")])]).await?;
    let pods = fixture.wait_pods("store", 2).await?;
    let free = unused(&pods, &["one", "two", "three"])?;
    let (drained, stays) = (node_of(&pods[1]), &pods[0]);
    fixture.drain(drained).await?;
    let now = fixture.wait_pods("store", 2).await?;
    ensure!(node_of(&now[1]) == free, "the new pod is on {}, not on {free}", node_of(&now[1]));
    is_pinned(&now[1])?;
    is_same(stays, &now)?;
    nothing_is_left(fixture).await?;
    // The other pod moves to the node that is free again.
    fixture.uncordon(drained).await?;
    fixture.drain(node_of(stays)).await?;
    let last = fixture.wait_pods("store", 2).await?;
    ensure!(node_of(&last[0]) == drained, "the first pod is on {}, not on {drained}", node_of(&last[0]));
    is_same(&now[1], &last)?;
    started_once(fixture, "store", STATEFUL_SET).await?;
    fixture.uncordon(node_of(stays)).await?;
    one_place_is_left(fixture).await
}

pub(super) async fn the_head_and_the_worker_of_a_ray_cluster_move_from_drained_nodes(
    fixture: &Fixture<'_>,
) -> Result<()> {
    nodes(fixture, &["one", "two", "three"]).await?;
    fixture.submit([wrap("ray", [ray_cluster("ray", "cpu=2", 1)])]).await?;
    let mut pods = fixture.wait_pods("ray", 2).await?;
    for role in ["worker", "head"] {
        let free = unused(&pods, &["one", "two", "three"])?;
        let is_of_role = |pod: &&Value| name(pod).contains(role);
        let drained = node_of(pods.iter().find(is_of_role).context("a pod")?).to_owned();
        fixture.drain(&drained).await?;
        let now = fixture.wait_pods("ray", 2).await?;
        let new = now.iter().find(is_of_role).context("a new pod")?;
        ensure!(node_of(new) == free, "the new {role} is on {}, not on {free}", node_of(new));
        is_pinned(new)?;
        let stays = pods.iter().find(|pod| !is_of_role(pod)).context("the other pod")?;
        is_same(stays, &now)?;
        nothing_is_left(fixture).await?;
        fixture.uncordon(&drained).await?;
        pods = now;
    }
    started_once(fixture, "ray", RAY_CLUSTER).await?;
    one_place_is_left(fixture).await
}

pub(super) async fn a_failed_pod_of_a_job_is_retried_at_its_place(fixture: &Fixture<'_>) -> Result<()> {
    nodes(fixture, &["one", "two"]).await?;
    let retried = with(job("train", 2, "cpu=2", "1h"), "/spec/backoffLimit", json!(4));
    fixture.submit([wrap("train", [retried])]).await?;
    let pods = fixture.wait_pods("train", 2).await?;
    let annotations = json!({"sandbox.muster.dev/run-time": null, "sandbox.muster.dev/fail": "exit=3"});
    fixture.patch(POD, name(&pods[1]), &json!({"metadata": {"annotations": annotations}})).await?;
    let both_run = |all: &[Value]| {
        let running: Vec<_> = all.iter().filter(|pod| pod["status"]["phase"] == "Running").collect();
        all.len() == 3 && running.len() == 2
    };
    let now = fixture.wait_all(POD, "the failed pod has a successor", both_run).await?;
    let old: Vec<&str> = pods.iter().map(name).collect();
    let new = now.iter().find(|pod| !old.contains(&name(pod))).context("a new pod")?;
    ensure!(node_of(new) == node_of(&pods[1]), "the new pod is on {}", node_of(new));
    is_pinned(new)?;
    is_same(&pods[0], &now)?;
    started_once(fixture, "train", JOB).await
}

pub(super) async fn a_rolling_update_of_a_deployment_moves_its_places_with_its_pods(
    fixture: &Fixture<'_>,
) -> Result<()> {
    nodes(fixture, &["one", "two", "three"]).await?;
    fixture.submit([wrap("web", [deployment("web", 2, "cpu=2")])]).await?;
    let old = fixture.wait_pods("web", 2).await?;
    let annotations = json!({"version": "2"});
    let update = json!({"spec": {"template": {"metadata": {"annotations": annotations}}}});
    fixture.patch(DEPLOYMENT, "web", &update).await?;
    let is_updated = |pods: &[Value]| {
        let new = pods.iter().filter(|pod| pod["metadata"]["annotations"]["version"] == "2");
        pods.len() == 2 && new.filter(|pod| pod["status"]["phase"] == "Running").count() == 2
    };
    let new = fixture.wait_all(POD, "all are of the new version", is_updated).await?;
    ensure!(new.iter().all(|pod| old.iter().all(|old| name(old) != name(pod))));
    started_once(fixture, "web", DEPLOYMENT).await?;
    one_place_is_left(fixture).await
}

pub(super) async fn a_rolling_update_on_a_full_cluster_passes_each_place_on(
    fixture: &Fixture<'_>,
) -> Result<()> {
    nodes(fixture, &["one", "two"]).await?;
    let rolling = json!({"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}, "type": "RollingUpdate"});
    let web = with(deployment("web", 2, "cpu=2"), "/spec/strategy", rolling);
    fixture.submit([wrap("web", [web])]).await?;
    fixture.wait_pods("web", 2).await?;
    let update = json!({"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}});
    fixture.patch(DEPLOYMENT, "web", &update).await?;
    let is_updated = |pods: &[Value]| {
        let new = pods.iter().filter(|pod| pod["metadata"]["annotations"]["version"] == "2");
        pods.len() == 2 && new.filter(|pod| pod["status"]["phase"] == "Running").count() == 2
    };
    // A new pod may be created before its predecessor is deleted. Then it has no planned place and runs where one becomes free.
    let new = fixture.wait_all(POD, "all are of the new version", is_updated).await?;
    ensure!(node_of(&new[0]) != node_of(&new[1]), "both pods run on {}", node_of(&new[0]));
    started_once(fixture, "web", DEPLOYMENT).await?;
    fixture.submit([wrap("next", [pod("next", "cpu=1")])]).await?;
    fixture.wait_queued("next").await.map(|_| ())
}

pub(super) async fn a_node_that_flaps_disturbs_no_gang(fixture: &Fixture<'_>) -> Result<()> {
    nodes(fixture, &["one", "two", "three"]).await?;
    fixture.submit([wrap("train", [job("train", 2, "cpu=2", "1h")])]).await?;
    let pods = fixture.wait_pods("train", 2).await?;
    for _ in 0..3 {
        fixture.flap(node_of(&pods[1])).await?;
    }
    fixture
        .keeps(POD, "the same pods run", |now| {
            now.len() == 2 && pods.iter().all(|pod| is_same(pod, now).is_ok())
        })
        .await?;
    started_once(fixture, "train", JOB).await?;
    one_place_is_left(fixture).await
}

pub(super) async fn a_gang_moves_as_a_whole_from_a_drained_rack(fixture: &Fixture<'_>) -> Result<()> {
    for (node, rack) in [("a-1", "a"), ("a-2", "a"), ("b-1", "b"), ("b-2", "b")] {
        fixture.node(node, "cpu=2").await?;
        fixture.patch(NODE, node, &json!({"metadata": {"labels": {"rack": rack}}})).await?;
    }
    fixture
        .submit([wrap("train", [with(job("train", 2, "cpu=2", "1h"), "/spec/backoffLimit", json!(9))])])
        .await?;
    let pods = fixture.wait_pods("train", 2).await?;
    ensure!(pods.iter().all(|pod| node_of(pod).starts_with("a-")), "the gang is not on the first rack");
    for node in ["a-1", "a-2"] {
        fixture.cordon(node).await?;
    }
    for node in ["a-1", "a-2"] {
        fixture.drain(node).await?;
    }
    let on_the_other_rack = |now: &[Value]| {
        let running = now.iter().filter(|pod| pod["status"]["phase"] == "Running");
        running.filter(|pod| node_of(pod).starts_with("b-")).count() == 2
    };
    fixture.wait_all(POD, "two pods run on the other rack", on_the_other_rack).await?;
    started_once(fixture, "train", JOB).await
}

pub(super) async fn a_gang_without_a_free_node_is_requeued_after_its_whole_patience(
    fixture: &Fixture<'_>,
) -> Result<()> {
    const PATIENCE: Duration = Duration::from_secs(8);
    nodes(fixture, &["one", "two"]).await?;
    let patience = json!({"requeuing": {"timeInSeconds": PATIENCE.as_secs(), "growthType": "none"}});
    let store = wrap("store", [stateful_set("store", 2, "cpu=2")]);
    fixture.submit([with(store, "/spec/schedulingSpec", patience)]).await?;
    let pods = fixture.wait_pods("store", 2).await?;
    fixture.wait_state("store", "Running/Running").await?;
    let begin = Instant::now();
    fixture.drain(node_of(&pods[1])).await?;
    let wrapper = fixture.wait(WRAPPER, "store", "it is requeued", |wrapper| {
        condition_lines(wrapper).iter().any(|line| line.starts_with("PreemptCandidate PodsFailedScheduling"))
    });
    wrapper.await?;
    ensure!(begin.elapsed() >= PATIENCE, "the gang was requeued after {:?}", begin.elapsed());
    fixture.wait_gone(STATEFUL_SET, "store").await?;
    fixture.wait_queued("store").await?;
    fixture.uncordon(node_of(&pods[1])).await?;
    fixture.wait_pods("store", 2).await.map(|_| ())
}

/// Nodes of two CPUs.
async fn nodes(fixture: &Fixture<'_>, names: &[&str]) -> Result<()> {
    for name in names {
        fixture.node(name, "cpu=2").await?;
    }
    Ok(())
}

fn node_of(pod: &Value) -> &str {
    pod["spec"]["nodeName"].as_str().unwrap_or_default()
}

/// The node without a pod.
fn unused<'a>(pods: &[Value], nodes: &[&'a str]) -> Result<&'a str> {
    let free = nodes.iter().find(|node| pods.iter().all(|pod| node_of(pod) != **node));
    free.copied().context("every node has a pod")
}

fn is_pinned(pod: &Value) -> Result<()> {
    let host = &pod["spec"]["nodeSelector"]["kubernetes.io/hostname"];
    ensure!(*host == node_of(pod), "{} is pinned to {host} and runs on {}", name(pod), node_of(pod));
    Ok(())
}

/// Fails if the pod is not among `now`, or is being deleted.
fn is_same(pod: &Value, now: &[Value]) -> Result<()> {
    let same = now.iter().find(|other| other["metadata"]["uid"] == pod["metadata"]["uid"]);
    let is_kept = same.is_some_and(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    ensure!(is_kept, "{} was removed, although it was healthy", name(pod));
    Ok(())
}

/// Fails if the gang was started more than once, or has another object now.
async fn started_once(fixture: &Fixture<'_>, gang: &str, kind: crate::objects::Kind) -> Result<()> {
    let wrapper = fixture.get(WRAPPER, gang).await?.context("the wrapper")?;
    let lines = condition_lines(&wrapper);
    let starts = lines.iter().filter(|line| line.starts_with("Dispatched")).count();
    ensure!(starts == 1, "its conditions are {lines:?}");
    ensure!(wrapper["status"]["message"].is_null(), "its message is {}", wrapper["status"]["message"]);
    ensure!(fixture.list(kind).await?.len() == 1, "its object is gone");
    Ok(())
}

/// Fails if a further pod starts.
async fn nothing_is_left(fixture: &Fixture<'_>) -> Result<()> {
    fixture.submit([wrap("waits", [pod("waits", "cpu=2")])]).await?;
    fixture.wait_queued("waits").await?;
    fixture.delete(WRAPPER, "waits").await?;
    fixture.wait_gone(WRAPPER, "waits").await
}

/// Fails if there is not room for exactly one further pod of a whole node.
async fn one_place_is_left(fixture: &Fixture<'_>) -> Result<()> {
    fixture.submit([wrap("fills", [pod("fills", "cpu=2")])]).await?;
    fixture.wait_pods("fills", 1).await?;
    nothing_is_left(fixture).await
}
