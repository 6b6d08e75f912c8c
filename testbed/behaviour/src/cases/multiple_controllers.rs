//! Two controllers on one cluster, with and without leader election.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::environment::{Controller, Flags, LeaderElection};
use crate::fixture::Fixture;
use crate::objects::{
    CONFIG_MAP, JOB, POD, WRAPPER, condition_lines, config_map, job, name, pod, with, wrap,
};

pub(super) async fn only_the_leader_of_two_controllers_dispatches(fixture: &Fixture<'_>) -> Result<()> {
    fixture.controller().kill().await?;
    fixture.node("one", "cpu=8").await?;
    let elected = Flags { leader_election: LeaderElection::Enabled, ..Flags::default() };
    let first = fixture.controller().replica(elected).await?;
    let second = fixture.controller().replica(elected).await?;
    first.start().await?;
    dispatch(fixture, "first").await?;
    second.start().await?;
    dispatch(fixture, "second").await?;
    ensure!(
        has_dispatched(&*first) && !has_dispatched(&*second),
        "the standby controller sent {:?}",
        second.proxy().requests()
    );

    first.kill().await?;
    dispatch(fixture, "third").await?;
    ensure!(has_dispatched(&*second), "the new leader sent {:?}", second.proxy().requests());

    // A controller that shuts down releases its lease.
    first.start().await?;
    second.terminate().await?;
    dispatch(fixture, "fourth").await?;

    // A controller that cannot renew its lease exits, and does not act after the reconnect.
    second.start().await?;
    first.proxy().disconnect();
    fixture
        .eventually("exit of the disconnected controller", async || {
            Ok((!first.is_running().await?).then_some(()))
        })
        .await?;
    first.proxy().reconnect();
    dispatch(fixture, "fifth").await?;
    ensure!(!first.is_running().await? && second.is_running().await?, "the wrong controller runs");
    fixture.keeps(POD, "five pods run", |pods| pods.len() == 5).await
}

/// Whether a controller has written the status of any AppWrapper.
fn has_dispatched(controller: &dyn Controller) -> bool {
    controller.proxy().requests().keys().any(|what| what.starts_with("PATCH appwrappers/status"))
}

async fn dispatch(fixture: &Fixture<'_>, gang: &str) -> Result<()> {
    fixture.submit([wrap(gang, [config_map(gang), pod(gang, "cpu=1")])]).await?;
    fixture.wait_pods(gang, 1).await?;
    let gang = fixture.wait_state(gang, "Running/Running").await?;
    let starts = condition_lines(&gang).iter().filter(|line| line.starts_with("Dispatched")).count();
    ensure!(starts == 1, "{} has the conditions {:?}", name(&gang), condition_lines(&gang));
    Ok(())
}

/// The number of gangs of two pods, and the number of them that fit.
const GANGS: (usize, usize) = (10, 4);

pub(super) async fn two_controllers_without_election_start_no_gang_twice_or_half(
    fixture: &Fixture<'_>,
) -> Result<()> {
    for node in ["one", "two"] {
        fixture.node(node, "cpu=4").await?;
    }
    let other = fixture.controller().replica(Flags::default()).await?;
    other.start().await?;
    let names: Vec<String> = (0..GANGS.0).map(|index| format!("gang-{index}")).collect();
    // Both controllers may have reserved the same resources. A gang whose pods stay pending is requeued after this time.
    let wrapper = |name: &String| {
        let wrapper = wrap(name, [config_map(name), job(name, 2, "cpu=1", "1h")]);
        with(
            wrapper,
            "/spec/schedulingSpec",
            json!({"requeuing": {"timeInSeconds": 2, "growthType": "none"}}),
        )
    };
    fixture.submit(names.iter().map(wrapper)).await?;

    let mut remaining = names.clone();
    let mut jobs = BTreeMap::new();
    while !remaining.is_empty() {
        let fit = remaining.len().min(GANGS.1);
        let what = format!("{fit} gangs run whole, and nothing else");
        let are_whole = |pods: &[Value]| pods.len() == 2 * fit && complete_gangs(pods).len() == fit;
        let whole = complete_gangs(&fixture.wait_all(POD, &what, are_whole).await?);
        for gang in &whole {
            fixture.wait_state(gang, "Running/Running").await?;
            fixture.wait(CONFIG_MAP, gang, "it exists", |_| true).await?;
            let job = fixture.get(JOB, gang).await?.unwrap_or_default();
            ensure!(job["metadata"]["generation"] == 1, "the Job of {gang} was changed");
            jobs.insert(gang.clone(), job["metadata"]["uid"].clone());
        }
        // Once both controllers have observed the running gangs, their plans agree.
        fixture
            .keeps(POD, "the same gangs run", |pods| complete_gangs(pods) == whole && pods.len() == 2 * fit)
            .await?;
        for gang in &whole {
            let job = fixture.get(JOB, gang).await?.unwrap_or_default();
            ensure!(Some(&job["metadata"]["uid"]) == jobs.get(gang), "the Job of {gang} was created again");
        }
        for gang in remaining.iter().filter(|gang| !whole.contains(gang)) {
            let waits = fixture.wait_state(gang, "Pending/Backoff").await?;
            ensure!(
                waits["status"]["canrun"].is_null(),
                "{gang} is pending with canrun: {}",
                waits["status"]
            );
        }
        // The second controller misses the next dispatch and has to adopt its result.
        other.proxy().disconnect();
        let last = whole.last().cloned().unwrap_or_default();
        fixture.delete(WRAPPER, &last).await?;
        fixture.wait_gone(JOB, &last).await?;
        fixture.wait_pods(&format!("{last}-"), 0).await?;
        remaining.retain(|gang| *gang != last);
        let running = complete_gangs(&fixture.wait_pods("", 2 * remaining.len().min(GANGS.1)).await?);
        other.proxy().reconnect();
        // Pods may run before the status says so. From then on, neither controller writes another state.
        for gang in &running {
            fixture.wait(WRAPPER, gang, "its state is Running", has_state_running).await?;
        }
        let is_correct = |gang: &Value| !running.contains(&name(gang).to_owned()) || has_state_running(gang);
        fixture.keeps(WRAPPER, "running gangs have state Running", |all| all.iter().all(is_correct)).await?;
    }
    for controller in [fixture.controller(), &*other] {
        ensure!(controller.is_running().await?, "a controller has exited");
    }
    Ok(())
}

fn has_state_running(gang: &Value) -> bool {
    gang["status"]["state"] == "Running"
}

/// The names of the gangs whose two pods both run.
fn complete_gangs(pods: &[Value]) -> Vec<String> {
    let mut running = BTreeMap::<String, usize>::new();
    for pod in pods
        .iter()
        .filter(|pod| pod["status"]["phase"] == "Running" && pod["metadata"]["deletionTimestamp"].is_null())
    {
        if let Some((gang, _)) = name(pod).rsplit_once('-') {
            *running.entry(gang.to_owned()).or_default() += 1;
        }
    }
    running.into_iter().filter(|(_, pods)| *pods == 2).map(|(gang, _)| gang).collect()
}
