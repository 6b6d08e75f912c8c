//! The controller dies: nothing is lost, started twice, or left half-started.

use anyhow::{Result, ensure};
use serde_json::Value;

use crate::objects::{
    CONFIG_MAP, JOB, WRAPPER, config_map, done_with, has_condition, job, name, pod, story, wrap,
};
use crate::scene::Scene;

/// A name, and what a wrapper looks like then.
type Sight = (&'static str, Box<dyn Fn(&Value) -> bool>);

pub(super) async fn a_controller_killed_at_any_moment_leaves_nothing_half_started(
    scene: &Scene<'_>,
) -> Result<()> {
    scene.node("one", "cpu=4").await?;
    let is_told = |condition: &'static str| {
        move |wrapper: &Value| story(wrapper).iter().any(|line| line.starts_with(condition))
    };
    // Killed as soon as this can be seen; what has happened since is up to chance on a real cluster.
    let sights: [Sight; 5] = [
        ("created", Box::new(|_| true)),
        ("queueing", Box::new(is_told("Queueing"))),
        ("intended", Box::new(|wrapper| wrapper["status"]["canrun"] == true)),
        ("dispatched", Box::new(is_told("Dispatched"))),
        ("running", Box::new(is_told("Running"))),
    ];
    for (at, is_seen) in sights {
        scene.submit([wrap(at, [config_map(at), job(at, 2, "cpu=1", "1h")])]).await?;
        scene.wait(WRAPPER, at, "it is time to kill", is_seen).await?;
        scene.controller().kill().await?;
        let before = scene.get(JOB, at).await?;
        scene.controller().start().await?;

        scene.wait_pods(at, 2).await?;
        let wrapper = scene.wait_state(at, "Running/Running").await?;
        let dispatches = story(&wrapper).iter().filter(|line| line.starts_with("Dispatched")).count();
        ensure!(dispatches == 1, "killed when {at}: its story is {:?}", story(&wrapper));
        let job = scene.get(JOB, at).await?.unwrap_or_default();
        if let Some(before) = before {
            ensure!(job["metadata"]["uid"] == before["metadata"]["uid"], "killed when {at}: another Job");
        }
        ensure!(job["metadata"]["generation"] == 1, "killed when {at}: the Job was changed");
        scene.wait(CONFIG_MAP, at, "it exists", |_| true).await?;
        scene.delete(WRAPPER, at).await?;
        scene.wait_gone(JOB, at).await?;
    }
    Ok(())
}

pub(super) async fn a_new_controller_knows_what_runs_and_what_waits(scene: &Scene<'_>) -> Result<()> {
    scene.node("one", "cpu=2").await?;
    scene.submit(["first", "second"].map(|name| wrap(name, [pod(name, "cpu=2")]))).await?;
    scene.wait_pods("first", 1).await?;
    scene.wait_queued("second").await?;
    let before = scene.get(WRAPPER, "second").await?.unwrap_or_default();
    scene.controller().kill().await?;
    scene.submit([wrap("third", [pod("third", "cpu=2")])]).await?;
    scene.controller().start().await?;
    scene.wait_queued("third").await?;
    let after = scene.get(WRAPPER, "second").await?.unwrap_or_default();
    ensure!(
        after["status"]["conditions"] == before["status"]["conditions"],
        "the story of what waits began anew: {:?}",
        story(&after)
    );
    scene.delete(WRAPPER, "first").await?;
    scene.wait_pods("second", 1).await?;
    scene
        .keeps(crate::objects::POD, "only the second runs", |pods| {
            pods.len() == 1 && name(&pods[0]) == "second"
        })
        .await
}

pub(super) async fn what_ended_while_nobody_looked_is_noticed(scene: &Scene<'_>) -> Result<()> {
    scene.node("one", "cpu=4").await?;
    scene
        .submit([
            done_with(wrap("ends", [job("ends", 2, "cpu=1", "2s")]), "Complete"),
            wrap("goes", [pod("goes", "cpu=2")]),
        ])
        .await?;
    scene.wait_state("ends", "Running/Running").await?;
    scene.wait_pods("goes", 1).await?;
    scene.submit([wrap("next", [pod("next", "cpu=4")])]).await?;
    scene.wait_queued("next").await?;
    scene.controller().kill().await?;
    scene.delete(WRAPPER, "goes").await?;
    scene.wait_gone(crate::objects::POD, "goes").await?;
    scene.wait(JOB, "ends", "it is complete", |job| has_condition(job, "Complete")).await?;
    scene.controller().start().await?;
    scene.wait_state("ends", "Completed/Completed").await?;
    scene.wait_pods("next", 1).await?;
    Ok(())
}
