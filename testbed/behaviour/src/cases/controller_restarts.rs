//! Restarts of the controller: no gang is lost, started twice or half-started.

use anyhow::{Result, ensure};
use serde_json::Value;

use crate::fixture::Fixture;
use crate::objects::{
    CONFIG_MAP, JOB, WRAPPER, condition_lines, config_map, done_with, has_condition, job, name, pod, wrap,
};

/// The name of a phase, and whether a wrapper has reached it.
type Phase = (&'static str, Box<dyn Fn(&Value) -> bool>);

pub(super) async fn a_killed_controller_leaves_no_gang_half_started(fixture: &Fixture<'_>) -> Result<()> {
    fixture.node("one", "cpu=4").await?;
    let has_reached = |condition: &'static str| {
        move |wrapper: &Value| condition_lines(wrapper).iter().any(|line| line.starts_with(condition))
    };
    // The controller is killed as soon as the phase is visible. On a real cluster it may have made further writes by then.
    let phases: [Phase; 5] = [
        ("created", Box::new(|_| true)),
        ("queueing", Box::new(has_reached("Queueing"))),
        ("intended", Box::new(|wrapper| wrapper["status"]["canrun"] == true)),
        ("dispatched", Box::new(has_reached("Dispatched"))),
        ("running", Box::new(has_reached("Running"))),
    ];
    for (at, is_reached) in phases {
        fixture.submit([wrap(at, [config_map(at), job(at, 2, "cpu=1", "1h")])]).await?;
        fixture.wait(WRAPPER, at, "the phase is reached", is_reached).await?;
        fixture.controller().kill().await?;
        let before = fixture.get(JOB, at).await?;
        fixture.controller().start().await?;

        fixture.wait_pods(at, 2).await?;
        let wrapper = fixture.wait_state(at, "Running/Running").await?;
        let dispatches =
            condition_lines(&wrapper).iter().filter(|line| line.starts_with("Dispatched")).count();
        ensure!(dispatches == 1, "killed when {at}: its conditions are {:?}", condition_lines(&wrapper));
        let job = fixture.get(JOB, at).await?.unwrap_or_default();
        if let Some(before) = before {
            ensure!(
                job["metadata"]["uid"] == before["metadata"]["uid"],
                "killed when {at}: the Job was created again"
            );
        }
        ensure!(job["metadata"]["generation"] == 1, "killed when {at}: the Job was changed");
        fixture.wait(CONFIG_MAP, at, "it exists", |_| true).await?;
        fixture.delete(WRAPPER, at).await?;
        fixture.wait_gone(JOB, at).await?;
    }
    Ok(())
}

pub(super) async fn a_restarted_controller_recovers_running_and_pending_gangs(
    fixture: &Fixture<'_>,
) -> Result<()> {
    fixture.node("one", "cpu=2").await?;
    fixture.submit(["first", "second"].map(|name| wrap(name, [pod(name, "cpu=2")]))).await?;
    fixture.wait_pods("first", 1).await?;
    fixture.wait_queued("second").await?;
    let before = fixture.get(WRAPPER, "second").await?.unwrap_or_default();
    fixture.controller().kill().await?;
    fixture.submit([wrap("third", [pod("third", "cpu=2")])]).await?;
    fixture.controller().start().await?;
    fixture.wait_queued("third").await?;
    let after = fixture.get(WRAPPER, "second").await?.unwrap_or_default();
    ensure!(
        after["status"]["conditions"] == before["status"]["conditions"],
        "the conditions of the pending gang changed: {:?}",
        condition_lines(&after)
    );
    fixture.delete(WRAPPER, "first").await?;
    fixture.wait_pods("second", 1).await?;
    fixture
        .keeps(crate::objects::POD, "only the second runs", |pods| {
            pods.len() == 1 && name(&pods[0]) == "second"
        })
        .await
}

pub(super) async fn a_restarted_controller_sees_gangs_that_ended_meanwhile(
    fixture: &Fixture<'_>,
) -> Result<()> {
    fixture.node("one", "cpu=4").await?;
    fixture
        .submit([
            done_with(wrap("ends", [job("ends", 2, "cpu=1", "2s")]), "Complete"),
            wrap("goes", [pod("goes", "cpu=2")]),
        ])
        .await?;
    fixture.wait_state("ends", "Running/Running").await?;
    fixture.wait_pods("goes", 1).await?;
    fixture.submit([wrap("next", [pod("next", "cpu=4")])]).await?;
    fixture.wait_queued("next").await?;
    fixture.controller().kill().await?;
    fixture.delete(WRAPPER, "goes").await?;
    fixture.wait_gone(crate::objects::POD, "goes").await?;
    fixture.wait(JOB, "ends", "it is complete", |job| has_condition(job, "Complete")).await?;
    fixture.controller().start().await?;
    fixture.wait_state("ends", "Completed/Completed").await?;
    fixture.wait_pods("next", 1).await?;
    Ok(())
}
