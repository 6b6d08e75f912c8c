//! Ray clusters and Ray jobs in AppWrappers, as in blog posts and tutorials.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::fixture::Fixture;
use crate::objects::{
    INGRESS, OLD_WRAPPER, POD, RAY_CLUSTER, RAY_JOB, SERVICE, WRAPPER, condition_lines, example, name,
    renamed, with, wrap,
};

const DISPATCHED: [&str; 4] =
    ["Init", "Queueing AwaitingHeadOfLine", "HeadOfLine FrontOfQueue.", "Dispatched AppWrapperRunnable"];
const QUEUED: &str = "Backoff AppWrapperNotRunnable. Insufficient resources to dispatch AppWrapper.";

pub(super) async fn the_second_of_two_glue_ray_clusters_waits_for_the_first(
    fixture: &Fixture<'_>,
) -> Result<()> {
    fixture.node("gpu", "cpu=16 nvidia.com/gpu=2").await?;
    fixture.node("cpu", "cpu=16").await?;
    let first = example("aw-kuberay-glue.yaml")?;
    fixture.submit([first.clone()]).await?;
    wait_ready(fixture, "glue-cluster").await?;
    let wrapper = fixture.wait_state("raycluster-glue", "Running/Dispatched").await?;
    ensure!(condition_lines(&wrapper) == DISPATCHED, "its conditions are {:?}", condition_lines(&wrapper));
    ensure!(
        wrapper["status"]["systempriority"] == 9,
        "its priority is {}",
        wrapper["status"]["systempriority"]
    );

    fixture.submit([renamed(first, "raycluster-glue-1", "glue-cluster-1")]).await?;
    let why = fixture.wait_queued("raycluster-glue-1").await?;
    ensure!(
        why.starts_with(
            "needs 2 nvidia.com/gpu in total (declared); 0 of 2 nvidia.com/gpu are free on 2 eligible nodes."
        ),
        "its message is {why:?}"
    );
    fixture.keeps(RAY_CLUSTER, "the second does not exist", |all| all.len() == 1).await?;
    ensure!(stems(&fixture.list(POD).await?) == ["glue-cluster-head", "glue-cluster-small-group-worker"]);

    fixture.delete(WRAPPER, "raycluster-glue").await?;
    wait_ready(fixture, "glue-cluster-1").await?;
    let wrapper = fixture.wait_state("raycluster-glue-1", "Running/Dispatched").await?;
    let expected = [&DISPATCHED[..3], &[QUEUED, DISPATCHED[3]]].concat();
    ensure!(condition_lines(&wrapper) == expected, "its conditions are {:?}", condition_lines(&wrapper));
    ensure!(stems(&fixture.list(POD).await?) == ["glue-cluster-1-head", "glue-cluster-1-small-group-worker"]);
    Ok(())
}

pub(super) async fn an_autoscaling_ray_cluster_of_the_old_api_group_queues_and_runs(
    fixture: &Fixture<'_>,
) -> Result<()> {
    fixture.node("one", "cpu=16").await?;
    fixture.node("two", "cpu=16").await?;
    let mut first = example("aw-raycluster.yaml")?;
    first["apiVersion"] = OLD_WRAPPER.0.into();
    fixture.submit([first.clone()]).await?;
    wait_ready(fixture, "raycluster-autoscaler").await?;
    let wrapper =
        fixture.wait(OLD_WRAPPER, "raycluster-autoscaler", "it runs", |w| w["status"]["state"] == "Running");
    ensure!(condition_lines(&wrapper.await?) == DISPATCHED);
    let head =
        fixture.list(POD).await?.into_iter().find(|pod| name(pod).contains("-head-")).unwrap_or_default();
    let containers = head["spec"]["containers"].as_array().map_or(0, Vec::len);
    ensure!(containers == 2, "the autoscaler is beside the head: {containers} containers");

    fixture.submit([renamed(first, "raycluster-autoscaler-1", "raycluster-autoscaler-1")]).await?;
    let queued = fixture
        .wait(OLD_WRAPPER, "raycluster-autoscaler-1", "it is pending as HeadOfLine", |wrapper| {
            wrapper["status"]["queuejobstate"] == "HeadOfLine"
                && condition_lines(wrapper).last().is_some_and(|last| last == QUEUED)
        })
        .await?;
    ensure!(queued["status"]["state"] == "Pending" && queued["status"]["canrun"].is_null());
    fixture.keeps(RAY_CLUSTER, "the second does not exist", |all| all.len() == 1).await?;
    fixture.delete(OLD_WRAPPER, "raycluster-autoscaler").await?;
    wait_ready(fixture, "raycluster-autoscaler-1").await
}

pub(super) async fn a_condensed_wrapper_waits_for_the_gpus_of_its_worker(
    fixture: &Fixture<'_>,
) -> Result<()> {
    fixture.node("one", "cpu=16 nvidia.com/gpu=1").await?;
    fixture.node("two", "cpu=16 nvidia.com/gpu=1").await?;
    fixture.submit([example("aw-condensed.yaml")?]).await?;
    let why = fixture.wait_event("raycluster-glue", "NeverFits").await?;
    ensure!(
        why == "can never start on these nodes: worker: needs 2 nvidia.com/gpu on one node; 2 nodes have 1 even when empty",
        "its message is {why:?}"
    );
    fixture.keeps(POD, "the head does not start alone", <[_]>::is_empty).await?;
    fixture.node("three", "cpu=16 nvidia.com/gpu=2").await?;
    wait_ready(fixture, "raycluster-glue").await
}

pub(super) async fn a_wrapped_ray_job_completes_and_is_deleted(fixture: &Fixture<'_>) -> Result<()> {
    fixture.node("one", "cpu=8").await?;
    fixture.submit([example("aw-rayjob.yaml")?]).await?;
    let job = fixture
        .wait(RAY_JOB, "rayjob", "it is complete", |job| job["status"]["jobDeploymentStatus"] == "Complete")
        .await?;
    ensure!(job["status"]["jobStatus"] == "SUCCEEDED", "the job is {}", job["status"]["jobStatus"]);
    let wrapper = fixture.wait_state("rayjob", "Running/Dispatched").await?;
    ensure!(condition_lines(&wrapper) == DISPATCHED, "its conditions are {:?}", condition_lines(&wrapper));
    fixture.delete(WRAPPER, "rayjob").await?;
    fixture.wait_gone(RAY_JOB, "rayjob").await?;
    fixture.wait_all(POD, "all of them are gone", <[_]>::is_empty).await?;
    fixture.wait_all(SERVICE, "all of them are gone", <[_]>::is_empty).await?;
    Ok(())
}

pub(super) async fn a_ray_job_completes_beside_a_plain_job(fixture: &Fixture<'_>) -> Result<()> {
    fixture.node("one", "cpu=8").await?;
    fixture.submit([wrap("plain", [crate::objects::job("plain", 1, "cpu=1", "1h")])]).await?;
    fixture.wait_pods("plain", 1).await?;
    fixture.submit([example("aw-rayjob.yaml")?]).await?;
    let is_complete = |job: &Value| job["status"]["jobDeploymentStatus"] == "Complete";
    fixture.wait(RAY_JOB, "rayjob", "it is complete", is_complete).await.map(|_| ())
}

pub(super) async fn a_cluster_of_the_codeflare_sdk_runs_beside_its_ingresses(
    fixture: &Fixture<'_>,
) -> Result<()> {
    fixture.node("one", "cpu=8").await?;
    fixture.submit([example("aw-codeflare-sdk.yaml")?]).await?;
    wait_ready(fixture, "raytest").await?;
    let wrapper = fixture.wait_state("raytest", "Running/Dispatched").await?;
    ensure!(condition_lines(&wrapper) == DISPATCHED, "its conditions are {:?}", condition_lines(&wrapper));
    ensure!(stems(&fixture.list(POD).await?).len() == 3, "the head and two workers run");
    ensure!(
        fixture.list(INGRESS).await?.len() == 2,
        "the ingresses of the dashboard and of the client exist"
    );
    fixture.delete(WRAPPER, "raytest").await?;
    fixture.wait_all(INGRESS, "all of them are gone", <[_]>::is_empty).await?;
    fixture.wait_all(POD, "all of them are gone", <[_]>::is_empty).await?;
    Ok(())
}

pub(super) async fn an_invalid_ray_cluster_is_not_queued(fixture: &Fixture<'_>) -> Result<()> {
    fixture.node("one", "cpu=16 nvidia.com/gpu=2").await?;
    let glue = example("aw-kuberay-glue.yaml")?;
    let crossed = "/spec/resources/GenericItems/0/generictemplate/spec/workerGroupSpecs/0/minReplicas";
    fixture.submit([with(glue, crossed, json!(5))]).await?;
    let why = fixture.wait_event("raycluster-glue", "NotQueued").await?;
    ensure!(why.contains("minReplicas"), "its message is {why:?}");
    // The invalid gang does not block others.
    fixture.submit([wrap("next", [crate::objects::pod("next", "cpu=1")])]).await?;
    fixture.wait_pods("next", 1).await?;
    fixture.keeps(RAY_CLUSTER, "there is none", <[_]>::is_empty).await
}

/// Waits until a Ray cluster has all its pods.
async fn wait_ready(fixture: &Fixture<'_>, name: &str) -> Result<()> {
    fixture.wait(RAY_CLUSTER, name, "it is ready", |ray| ray["status"]["state"] == "ready").await.map(|_| ())
}

/// The names of pods without generated suffixes.
fn stems(pods: &[Value]) -> Vec<&str> {
    pods.iter().filter_map(|pod| name(pod).rsplit_once('-')).map(|(stem, _)| stem).collect()
}
