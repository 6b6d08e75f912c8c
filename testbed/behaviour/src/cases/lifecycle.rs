//! The end of a gang: completion, requeueing below `minAvailable`, and the dispatch limit.

use anyhow::{Result, ensure};
use serde_json::json;

use crate::fixture::Fixture;
use crate::objects::{
    DEPLOYMENT, JOB, POD, SERVICE, WRAPPER, condition_lines, config_map, deployment, done_with, example,
    has_condition, job, pod, service, with, wrap,
};

pub(super) async fn a_completed_job_releases_its_capacity(fixture: &Fixture<'_>) -> Result<()> {
    fixture.node("one", "cpu=1").await?;
    let short = with(
        example("aw-job.yaml")?,
        "/spec/resources/GenericItems/0/generictemplate/spec/template/metadata/annotations",
        json!({"sandbox.muster.dev/run-time": "2s"}),
    );
    fixture.submit([short, wrap("next", [pod("next", "cpu=1")])]).await?;
    fixture.wait_state("aw-job", "Running/Running").await?;
    fixture.wait_queued("next").await?;
    let done = fixture.wait_state("aw-job", "Completed/Completed").await?;
    ensure!(done["status"]["Succeeded"] == 2, "it counts {}", done["status"]["Succeeded"]);
    ensure!(done["status"]["canrun"].is_null(), "canrun is still set");
    fixture.wait_pods("next", 1).await?;
    // The completed Job is kept.
    fixture.wait(JOB, "aw-job", "it is kept", |job| has_condition(job, "Complete")).await?;
    Ok(())
}

pub(super) async fn a_failed_job_completes_when_completionstatus_lists_failed(
    fixture: &Fixture<'_>,
) -> Result<()> {
    fixture.node("one", "cpu=2").await?;
    let faults = json!({"sandbox.muster.dev/run-time": "1s", "sandbox.muster.dev/fail": "exit=3"});
    let fails = with(job("fails", 1, "cpu=1", "1s"), "/spec/template/metadata/annotations", faults);
    fixture.submit([done_with(wrap("fails", [fails]), "Complete,Failed")]).await?;
    let done = fixture.wait_state("fails", "Completed/Completed").await?;
    ensure!(done["status"]["failed"] == 1, "it counts {}", done["status"]["failed"]);
    fixture.wait(JOB, "fails", "it has failed", |job| has_condition(job, "Failed")).await?;
    Ok(())
}

pub(super) async fn a_running_second_item_holds_completion(fixture: &Fixture<'_>) -> Result<()> {
    fixture.node("one", "cpu=4").await?;
    let both = wrap("both", [job("short", 1, "cpu=1", "1s"), job("long", 1, "cpu=1", "1h")]);
    fixture.submit([done_with(both, "Complete")]).await?;
    let held = fixture.wait_state("both", "RunningHoldCompletion/RunningHoldCompletion").await?;
    let expected = "RunningHoldCompletion SomeItemsCompleted".to_owned();
    ensure!(condition_lines(&held).contains(&expected), "its conditions are {:?}", condition_lines(&held));
    fixture.wait(JOB, "short", "it is complete", |job| has_condition(job, "Complete")).await?;
    fixture.delete(JOB, "long").await?;
    fixture.wait_state("both", "Completed/Completed").await?;
    Ok(())
}

pub(super) async fn a_gang_without_completing_items_keeps_running(fixture: &Fixture<'_>) -> Result<()> {
    fixture.node("one", "cpu=4").await?;
    let wrapper = done_with(wrap("web", [service("web"), deployment("web", 1, "cpu=1")]), "Complete");
    fixture.submit([wrapper]).await?;
    fixture.wait_state("web", "Running/Running").await?;
    fixture
        .keeps(WRAPPER, "it runs", |all| all.iter().all(|one| one["status"]["state"] == "Running"))
        .await?;
    fixture.wait(SERVICE, "web", "it exists", |_| true).await?;
    fixture.wait(DEPLOYMENT, "web", "it is available", |web| has_condition(web, "Available")).await?;
    Ok(())
}

pub(super) async fn a_gang_below_min_available_is_requeued_then_deleted(fixture: &Fixture<'_>) -> Result<()> {
    fixture.node("one", "cpu=2").await?;
    // The pods name a scheduler that does not exist.
    let stuck = with(job("stuck", 2, "cpu=1", "1h"), "/spec/template/spec/schedulerName", json!("nobody"));
    let requeuing = json!({"timeInSeconds": 1, "growthType": "none", "maxNumRequeuings": 2});
    let stuck = with(
        wrap("stuck", [stuck]),
        "/spec/schedulingSpec",
        json!({"minAvailable": 2, "requeuing": requeuing}),
    );
    fixture.submit([stuck]).await?;
    let deleted = fixture
        .wait(WRAPPER, "stuck", "its state is Deleted", |wrapper| wrapper["status"]["state"] == "Deleted")
        .await?;
    ensure!(
        deleted["status"]["numberOfRequeueings"] == 2,
        "it counts {}",
        deleted["status"]["numberOfRequeueings"]
    );
    let why = "Insufficient number of Running and Completed pods, minimum=2, running=0, completed=0.";
    for expected in
        [format!("PreemptCandidate MinPodsNotRunning {why}"), format!("Backoff PreemptionTriggered {why}")]
    {
        ensure!(
            condition_lines(&deleted).contains(&expected),
            "its conditions are {:?}",
            condition_lines(&deleted)
        );
    }
    fixture.wait_gone(JOB, "stuck").await?;
    fixture.submit([wrap("next", [job("next", 2, "cpu=1", "1h")])]).await?;
    fixture.wait_pods("next", 2).await?;
    Ok(())
}

pub(super) async fn a_gang_past_its_dispatch_limit_fails_and_releases_its_capacity(
    fixture: &Fixture<'_>,
) -> Result<()> {
    fixture.node("one", "cpu=2").await?;
    let limited = with(
        wrap("limited", [job("limited", 2, "cpu=1", "1h"), config_map("limited")]),
        "/spec/schedulingSpec",
        json!({"minAvailable": 1, "dispatchDuration": {"limit": 3}}),
    );
    fixture.submit([limited]).await?;
    fixture.wait_pods("limited", 2).await?;
    fixture.submit([wrap("next", [job("next", 2, "cpu=1", "1h")])]).await?;
    let failed = fixture.wait_state("limited", "Failed/Failed").await?;
    let expected =
        "PreemptCandidate DispatchDeadlineExceeded Dispatch deadline exceeded. allowed to run for 3 seconds";
    ensure!(
        condition_lines(&failed).contains(&expected.to_owned()),
        "its conditions are {:?}",
        condition_lines(&failed)
    );
    fixture.wait_pods("next", 2).await?;
    fixture.wait_gone(JOB, "limited").await?;
    fixture.keeps(POD, "no pod of the failed gang is left", |pods| pods.len() == 2).await
}
