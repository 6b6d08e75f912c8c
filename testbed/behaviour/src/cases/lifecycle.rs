//! How a gang ends: completed, taken back, out of time.

use anyhow::{Result, ensure};
use serde_json::json;

use crate::objects::{
    DEPLOYMENT, JOB, POD, SERVICE, WRAPPER, config_map, deployment, done_with, example, has_condition, job,
    pod, service, story, with, wrap,
};
use crate::scene::Scene;

pub(super) async fn a_job_runs_to_completed_and_its_place_is_free(scene: &Scene<'_>) -> Result<()> {
    scene.node("one", "cpu=1").await?;
    let short = with(
        example("aw-job.yaml")?,
        "/spec/resources/GenericItems/0/generictemplate/spec/template/metadata/annotations",
        json!({"sandbox.muster.dev/run-time": "2s"}),
    );
    scene.submit([short, wrap("next", [pod("next", "cpu=1")])]).await?;
    scene.wait_state("aw-job", "Running/Running").await?;
    scene.wait_queued("next").await?;
    let done = scene.wait_state("aw-job", "Completed/Completed").await?;
    ensure!(done["status"]["Succeeded"] == 2, "it counts {}", done["status"]["Succeeded"]);
    ensure!(done["status"]["canrun"].is_null(), "it still may run");
    scene.wait_pods("next", 1).await?;
    // What has completed stays to be looked at.
    scene.wait(JOB, "aw-job", "it is kept", |job| has_condition(job, "Complete")).await?;
    Ok(())
}

pub(super) async fn a_failed_job_completes_when_its_author_says_so(scene: &Scene<'_>) -> Result<()> {
    scene.node("one", "cpu=2").await?;
    let faults = json!({"sandbox.muster.dev/run-time": "1s", "sandbox.muster.dev/fail": "exit=3"});
    let fails = with(job("fails", 1, "cpu=1", "1s"), "/spec/template/metadata/annotations", faults);
    scene.submit([done_with(wrap("fails", [fails]), "Complete,Failed")]).await?;
    let done = scene.wait_state("fails", "Completed/Completed").await?;
    ensure!(done["status"]["failed"] == 1, "it counts {}", done["status"]["failed"]);
    scene.wait(JOB, "fails", "it has failed", |job| has_condition(job, "Failed")).await?;
    Ok(())
}

pub(super) async fn pods_of_other_items_hold_completion(scene: &Scene<'_>) -> Result<()> {
    scene.node("one", "cpu=4").await?;
    let both = wrap("both", [job("short", 1, "cpu=1", "1s"), job("long", 1, "cpu=1", "1h")]);
    scene.submit([done_with(both, "Complete")]).await?;
    let held = scene.wait_state("both", "RunningHoldCompletion/RunningHoldCompletion").await?;
    let told = "RunningHoldCompletion SomeItemsCompleted".to_owned();
    ensure!(story(&held).contains(&told), "its story is {:?}", story(&held));
    scene.wait(JOB, "short", "it is complete", |job| has_condition(job, "Complete")).await?;
    scene.delete(JOB, "long").await?;
    scene.wait_state("both", "Completed/Completed").await?;
    Ok(())
}

pub(super) async fn what_never_completes_keeps_running(scene: &Scene<'_>) -> Result<()> {
    scene.node("one", "cpu=4").await?;
    let wrapper = done_with(wrap("web", [service("web"), deployment("web", 1, "cpu=1")]), "Complete");
    scene.submit([wrapper]).await?;
    scene.wait_state("web", "Running/Running").await?;
    scene.keeps(WRAPPER, "it runs", |all| all.iter().all(|one| one["status"]["state"] == "Running")).await?;
    scene.wait(SERVICE, "web", "it exists", |_| true).await?;
    scene.wait(DEPLOYMENT, "web", "it is available", |web| has_condition(web, "Available")).await?;
    Ok(())
}

pub(super) async fn a_gang_with_too_few_pods_is_taken_back_and_given_up(scene: &Scene<'_>) -> Result<()> {
    scene.node("one", "cpu=2").await?;
    // Its pods wait for a scheduler that does not exist.
    let stuck = with(job("stuck", 2, "cpu=1", "1h"), "/spec/template/spec/schedulerName", json!("nobody"));
    let requeuing = json!({"timeInSeconds": 1, "growthType": "none", "maxNumRequeuings": 2});
    let stuck = with(
        wrap("stuck", [stuck]),
        "/spec/schedulingSpec",
        json!({"minAvailable": 2, "requeuing": requeuing}),
    );
    scene.submit([stuck]).await?;
    let given_up = scene
        .wait(WRAPPER, "stuck", "it is given up", |wrapper| wrapper["status"]["state"] == "Deleted")
        .await?;
    ensure!(
        given_up["status"]["numberOfRequeueings"] == 2,
        "it counts {}",
        given_up["status"]["numberOfRequeueings"]
    );
    let why = "Insufficient number of Running and Completed pods, minimum=2, running=0, completed=0.";
    for told in
        [format!("PreemptCandidate MinPodsNotRunning {why}"), format!("Backoff PreemptionTriggered {why}")]
    {
        ensure!(story(&given_up).contains(&told), "its story is {:?}", story(&given_up));
    }
    scene.wait_gone(JOB, "stuck").await?;
    scene.submit([wrap("next", [job("next", 2, "cpu=1", "1h")])]).await?;
    scene.wait_pods("next", 2).await?;
    Ok(())
}

pub(super) async fn the_time_limit_ends_a_gang_and_frees_its_place(scene: &Scene<'_>) -> Result<()> {
    scene.node("one", "cpu=2").await?;
    let limited = with(
        wrap("limited", [job("limited", 2, "cpu=1", "1h"), config_map("limited")]),
        "/spec/schedulingSpec",
        json!({"minAvailable": 1, "dispatchDuration": {"limit": 3}}),
    );
    scene.submit([limited]).await?;
    scene.wait_pods("limited", 2).await?;
    scene.submit([wrap("next", [job("next", 2, "cpu=1", "1h")])]).await?;
    let failed = scene.wait_state("limited", "Failed/Failed").await?;
    let told =
        "PreemptCandidate DispatchDeadlineExceeded Dispatch deadline exceeded. allowed to run for 3 seconds";
    ensure!(story(&failed).contains(&told.to_owned()), "its story is {:?}", story(&failed));
    scene.wait_pods("next", 2).await?;
    scene.wait_gone(JOB, "limited").await?;
    scene.keeps(POD, "none of its pods is left", |pods| pods.len() == 2).await
}
