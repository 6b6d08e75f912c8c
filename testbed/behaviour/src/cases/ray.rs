//! Ray clusters and Ray jobs in wrappers: what the blog posts and tutorials show.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::objects::{
    OLD_WRAPPER, POD, RAY_CLUSTER, RAY_JOB, SERVICE, WRAPPER, example, name, renamed, story, with, wrap,
};
use crate::scene::Scene;

const DISPATCHED: [&str; 4] =
    ["Init", "Queueing AwaitingHeadOfLine", "HeadOfLine FrontOfQueue.", "Dispatched AppWrapperRunnable"];
const QUEUED: &str = "Backoff AppWrapperNotRunnable. Insufficient resources to dispatch AppWrapper.";

pub(super) async fn the_glue_pair_runs_one_after_the_other(scene: &Scene<'_>) -> Result<()> {
    scene.node("gpu", "cpu=16 nvidia.com/gpu=2").await?;
    scene.node("cpu", "cpu=16").await?;
    let first = example("aw-kuberay-glue.yaml")?;
    scene.submit([first.clone()]).await?;
    wait_ready(scene, "glue-cluster").await?;
    let wrapper = scene.wait_state("raycluster-glue", "Running/Dispatched").await?;
    ensure!(story(&wrapper) == DISPATCHED, "its story is {:?}", story(&wrapper));
    ensure!(
        wrapper["status"]["systempriority"] == 9,
        "its priority is {}",
        wrapper["status"]["systempriority"]
    );

    scene.submit([renamed(first, "raycluster-glue-1", "glue-cluster-1")]).await?;
    let why = scene.wait_queued("raycluster-glue-1").await?;
    ensure!(
        why.starts_with(
            "needs 2 nvidia.com/gpu in total (declared); 0 of 2 nvidia.com/gpu are free on 2 eligible nodes."
        ),
        "it says {why:?}"
    );
    scene.keeps(RAY_CLUSTER, "the second does not exist", |all| all.len() == 1).await?;
    ensure!(stems(&scene.list(POD).await?) == ["glue-cluster-head", "glue-cluster-small-group-worker"]);

    scene.delete(WRAPPER, "raycluster-glue").await?;
    wait_ready(scene, "glue-cluster-1").await?;
    let wrapper = scene.wait_state("raycluster-glue-1", "Running/Dispatched").await?;
    let expected = [&DISPATCHED[..3], &[QUEUED, DISPATCHED[3]]].concat();
    ensure!(story(&wrapper) == expected, "its story is {:?}", story(&wrapper));
    ensure!(stems(&scene.list(POD).await?) == ["glue-cluster-1-head", "glue-cluster-1-small-group-worker"]);
    Ok(())
}

pub(super) async fn the_story_of_2022_plays(scene: &Scene<'_>) -> Result<()> {
    scene.node("one", "cpu=16").await?;
    scene.node("two", "cpu=16").await?;
    let first = example("aw-raycluster.yaml")?;
    scene.submit([first.clone()]).await?;
    wait_ready(scene, "raycluster-autoscaler").await?;
    let wrapper =
        scene.wait(OLD_WRAPPER, "raycluster-autoscaler", "it runs", |w| w["status"]["state"] == "Running");
    ensure!(story(&wrapper.await?) == DISPATCHED);
    let head =
        scene.list(POD).await?.into_iter().find(|pod| name(pod).contains("-head-")).unwrap_or_default();
    let containers = head["spec"]["containers"].as_array().map_or(0, Vec::len);
    ensure!(containers == 2, "the autoscaler is beside the head: {containers} containers");

    scene.submit([renamed(first, "raycluster-autoscaler-1", "raycluster-autoscaler-1")]).await?;
    let queued = scene
        .wait(OLD_WRAPPER, "raycluster-autoscaler-1", "it waits as the head of the line", |wrapper| {
            wrapper["status"]["queuejobstate"] == "HeadOfLine"
                && story(wrapper).last().is_some_and(|last| last == QUEUED)
        })
        .await?;
    ensure!(queued["status"]["state"] == "Pending" && queued["status"]["canrun"].is_null());
    scene.keeps(RAY_CLUSTER, "the second does not exist", |all| all.len() == 1).await?;
    scene.delete(OLD_WRAPPER, "raycluster-autoscaler").await?;
    wait_ready(scene, "raycluster-autoscaler-1").await
}

pub(super) async fn the_condensed_form_waits_for_the_two_gpus_of_its_worker(scene: &Scene<'_>) -> Result<()> {
    scene.node("one", "cpu=16 nvidia.com/gpu=1").await?;
    scene.node("two", "cpu=16 nvidia.com/gpu=1").await?;
    scene.submit([example("aw-condensed.yaml")?]).await?;
    let why = scene.wait_event("raycluster-glue", "NeverFits").await?;
    ensure!(
        why == "can never start on these nodes: worker: needs 2 nvidia.com/gpu on one node; 2 nodes have 1 in all",
        "it says {why:?}"
    );
    scene.keeps(POD, "the head does not start alone", <[_]>::is_empty).await?;
    scene.node("three", "cpu=16 nvidia.com/gpu=2").await?;
    wait_ready(scene, "raycluster-glue").await
}

pub(super) async fn a_ray_job_runs_to_its_end(scene: &Scene<'_>) -> Result<()> {
    scene.node("one", "cpu=8").await?;
    scene.submit([example("aw-rayjob.yaml")?]).await?;
    let job = scene
        .wait(RAY_JOB, "rayjob", "it is complete", |job| job["status"]["jobDeploymentStatus"] == "Complete")
        .await?;
    ensure!(job["status"]["jobStatus"] == "SUCCEEDED", "the job is {}", job["status"]["jobStatus"]);
    let wrapper = scene.wait_state("rayjob", "Running/Dispatched").await?;
    ensure!(story(&wrapper) == DISPATCHED, "its story is {:?}", story(&wrapper));
    scene.delete(WRAPPER, "rayjob").await?;
    scene.wait_gone(RAY_JOB, "rayjob").await?;
    scene.wait_all(POD, "all of them are gone", <[_]>::is_empty).await?;
    scene.wait_all(SERVICE, "all of them are gone", <[_]>::is_empty).await?;
    Ok(())
}

pub(super) async fn a_ray_job_finds_its_submitter_where_plain_jobs_ran_before(
    scene: &Scene<'_>,
) -> Result<()> {
    scene.node("one", "cpu=8").await?;
    scene.submit([wrap("plain", [crate::objects::job("plain", 1, "cpu=1", "1h")])]).await?;
    scene.wait_pods("plain", 1).await?;
    scene.submit([example("aw-rayjob.yaml")?]).await?;
    let is_complete = |job: &Value| job["status"]["jobDeploymentStatus"] == "Complete";
    scene.wait(RAY_JOB, "rayjob", "it is complete", is_complete).await.map(|_| ())
}

pub(super) async fn a_ray_cluster_that_its_operator_would_ignore_is_held(scene: &Scene<'_>) -> Result<()> {
    scene.node("one", "cpu=16 nvidia.com/gpu=2").await?;
    let glue = example("aw-kuberay-glue.yaml")?;
    let crossed = "/spec/resources/GenericItems/0/generictemplate/spec/workerGroupSpecs/0/minReplicas";
    scene.submit([with(glue, crossed, json!(5))]).await?;
    let why = scene.wait_event("raycluster-glue", "NotQueued").await?;
    ensure!(why.contains("minReplicas"), "it says {why:?}");
    // It blocks nobody.
    scene.submit([wrap("next", [crate::objects::pod("next", "cpu=1")])]).await?;
    scene.wait_pods("next", 1).await?;
    scene.keeps(RAY_CLUSTER, "there is none", <[_]>::is_empty).await
}

/// Waits until a Ray cluster has all its pods.
async fn wait_ready(scene: &Scene<'_>, name: &str) -> Result<()> {
    scene.wait(RAY_CLUSTER, name, "it is ready", |ray| ray["status"]["state"] == "ready").await.map(|_| ())
}

/// Names of pods without what was generated.
fn stems(pods: &[Value]) -> Vec<&str> {
    pods.iter().filter_map(|pod| name(pod).rsplit_once('-')).map(|(stem, _)| stem).collect()
}
