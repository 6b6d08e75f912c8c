//! Gangs whose objects are deleted, and gangs whose pods are not created.

use anyhow::{Result, ensure};
use serde_json::json;

use crate::fixture::Fixture;
use crate::objects::{
    DEPLOYMENT, JOB, POD, WRAPPER, deployment, done_with, has_condition, job, pod, with, wrap,
};

/// The patience of gangs that are short of pods.
const REQUEUING: &str = "/spec/schedulingSpec";

pub(super) async fn a_deployment_that_is_deleted_by_hand_releases_its_places(
    fixture: &Fixture<'_>,
) -> Result<()> {
    fixture.node("one", "cpu=4").await?;
    fixture.submit([wrap("first", [deployment("first", 2, "cpu=2")])]).await?;
    fixture.wait_pods("first", 2).await?;
    fixture.wait_state("first", "Running/Running").await?;
    fixture.submit([wrap("second", [pod("second", "cpu=4")])]).await?;
    fixture.wait_queued("second").await?;
    fixture.delete(DEPLOYMENT, "first").await?;
    let why = fixture.wait_event("first", "ObjectsDeleted").await?;
    ensure!(why.contains("Deployment first"), "its message is {why:?}");
    fixture.wait_pods("second", 1).await?;
    fixture.wait(WRAPPER, "first", "it is failed", |wrapper| wrapper["status"]["state"] == "Failed").await?;
    Ok(())
}

pub(super) async fn a_job_that_was_removed_while_no_controller_ran_is_complete(
    fixture: &Fixture<'_>,
) -> Result<()> {
    fixture.node("one", "cpu=4").await?;
    let expiring = with(job("ends", 2, "cpu=2", "2s"), "/spec/ttlSecondsAfterFinished", json!(0));
    fixture.submit([done_with(wrap("ends", [expiring]), "Complete")]).await?;
    fixture.wait_state("ends", "Running/Running").await?;
    fixture.submit([wrap("next", [pod("next", "cpu=4")])]).await?;
    fixture.wait_queued("next").await?;
    fixture.controller().kill().await?;
    fixture.wait_gone(JOB, "ends").await?;
    fixture.controller().start().await?;
    fixture.wait_state("ends", "Completed/Completed").await?;
    fixture.wait_pods("next", 1).await?;
    Ok(())
}

pub(super) async fn a_suspended_job_is_requeued_after_its_patience_with_the_reason(
    fixture: &Fixture<'_>,
) -> Result<()> {
    fixture.node("one", "cpu=4").await?;
    let requeuing = json!({"requeuing": {"timeInSeconds": 3, "growthType": "none", "maxNumRequeuings": 1}});
    let suspended = with(job("first", 2, "cpu=2", "1m"), "/spec/suspend", json!(true));
    fixture.submit([with(wrap("first", [suspended]), REQUEUING, requeuing)]).await?;
    fixture.wait(JOB, "first", "it is suspended", |job| has_condition(job, "Suspended")).await?;
    fixture.submit([wrap("second", [pod("second", "cpu=4")])]).await?;
    fixture.wait_pods("second", 1).await?;
    let pods = fixture.list(POD).await?;
    ensure!(pods.len() == 1, "the suspended Job has no pods: {} pods", pods.len());
    Ok(())
}

pub(super) async fn a_deployment_that_is_orphaned_gets_its_later_pods_without_a_gate(
    fixture: &Fixture<'_>,
) -> Result<()> {
    fixture.node("one", "cpu=4").await?;
    fixture.submit([wrap("first", [deployment("first", 1, "cpu=1")])]).await?;
    fixture.wait_pods("first", 1).await?;
    fixture.orphan(WRAPPER, "first").await?;
    fixture.wait_gone(WRAPPER, "first").await?;
    fixture.patch(DEPLOYMENT, "first", &json!({"spec": {"replicas": 3}})).await?;
    fixture
        .wait_all(POD, "three pods run", |pods| {
            pods.iter().filter(|pod| pod["status"]["phase"] == "Running").count() == 3
        })
        .await?;
    fixture.delete(DEPLOYMENT, "first").await
}
