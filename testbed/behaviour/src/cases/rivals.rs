//! Two controllers for one cluster, as replicas or by mistake.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::environment::{Controller, Manner};
use crate::objects::{CONFIG_MAP, JOB, POD, WRAPPER, config_map, job, name, pod, story, with, wrap};
use crate::scene::Scene;

pub(super) async fn of_two_elected_controllers_one_acts_and_the_other_follows(
    scene: &Scene<'_>,
) -> Result<()> {
    scene.controller().kill().await?;
    scene.node("one", "cpu=8").await?;
    let left = scene.controller().another(Manner::Elected).await?;
    let right = scene.controller().another(Manner::Elected).await?;
    left.start().await?;
    dispatch(scene, "first").await?;
    right.start().await?;
    dispatch(scene, "second").await?;
    ensure!(acts(&*left) && !acts(&*right), "the one that stands by did {:?}", right.link().requests());

    left.kill().await?;
    dispatch(scene, "third").await?;
    ensure!(acts(&*right), "who did? It asked {:?}", right.link().requests());

    // One that ends in order gives the lease back.
    left.start().await?;
    right.end().await?;
    dispatch(scene, "fourth").await?;

    // One that cannot renew its lease ends, and does nothing when it could again.
    right.start().await?;
    left.link().cut();
    scene
        .eventually("end of the one that was cut off", async || Ok((!left.runs().await?).then_some(())))
        .await?;
    left.link().mend();
    dispatch(scene, "fifth").await?;
    ensure!(!left.runs().await? && right.runs().await?, "the wrong one runs");
    scene.keeps(POD, "five pods run", |pods| pods.len() == 5).await
}

/// Whether a controller has written anything of a gang.
fn acts(controller: &dyn Controller) -> bool {
    controller.link().requests().keys().any(|what| what.starts_with("PATCH appwrappers/status"))
}

async fn dispatch(scene: &Scene<'_>, gang: &str) -> Result<()> {
    scene.submit([wrap(gang, [config_map(gang), pod(gang, "cpu=1")])]).await?;
    scene.wait_pods(gang, 1).await?;
    let gang = scene.wait_state(gang, "Running/Running").await?;
    let starts = story(&gang).iter().filter(|line| line.starts_with("Dispatched")).count();
    ensure!(starts == 1, "{} has the story {:?}", name(&gang), story(&gang));
    Ok(())
}

/// How many gangs of two pods there are, and how many of them fit.
const GANGS: (usize, usize) = (10, 4);

pub(super) async fn two_controllers_by_mistake_start_no_gang_twice_or_half(scene: &Scene<'_>) -> Result<()> {
    for node in ["one", "two"] {
        scene.node(node, "cpu=4").await?;
    }
    let other = scene.controller().another(Manner::Alone).await?;
    other.start().await?;
    let names: Vec<String> = (0..GANGS.0).map(|index| format!("gang-{index}")).collect();
    // Both may have given away the same place; who finds it taken is taken back after this time.
    let gang = |name: &String| {
        let wrapper = wrap(name, [config_map(name), job(name, 2, "cpu=1", "1h")]);
        with(
            wrapper,
            "/spec/schedulingSpec",
            json!({"requeuing": {"timeInSeconds": 2, "growthType": "none"}}),
        )
    };
    scene.submit(names.iter().map(gang)).await?;

    let mut left = names.clone();
    let mut jobs = BTreeMap::new();
    while !left.is_empty() {
        let fit = left.len().min(GANGS.1);
        let what = format!("{fit} gangs run whole, and nothing else");
        let are_whole = |pods: &[Value]| pods.len() == 2 * fit && whole_of(pods).len() == fit;
        let whole = whole_of(&scene.wait_all(POD, &what, are_whole).await?);
        for gang in &whole {
            scene.wait_state(gang, "Running/Running").await?;
            scene.wait(CONFIG_MAP, gang, "it exists", |_| true).await?;
            let job = scene.get(JOB, gang).await?.unwrap_or_default();
            ensure!(job["metadata"]["generation"] == 1, "the Job of {gang} was changed");
            jobs.insert(gang.clone(), job["metadata"]["uid"].clone());
        }
        // Once both have seen what runs, they agree.
        scene
            .keeps(POD, "the same gangs run", |pods| whole_of(pods) == whole && pods.len() == 2 * fit)
            .await?;
        for gang in &whole {
            let job = scene.get(JOB, gang).await?.unwrap_or_default();
            ensure!(Some(&job["metadata"]["uid"]) == jobs.get(gang), "the Job of {gang} was made again");
        }
        for gang in left.iter().filter(|gang| !whole.contains(gang)) {
            let waits = scene.wait_state(gang, "Pending/Backoff").await?;
            ensure!(waits["status"]["canrun"].is_null(), "{gang} waits and may run: {}", waits["status"]);
        }
        // What one of them does not see at once, it has to take as it finds it.
        other.link().cut();
        let last = whole.last().cloned().unwrap_or_default();
        scene.delete(WRAPPER, &last).await?;
        scene.wait_gone(JOB, &last).await?;
        scene.wait_pods(&format!("{last}-"), 0).await?;
        left.retain(|gang| *gang != last);
        let running = whole_of(&scene.wait_pods("", 2 * left.len().min(GANGS.1)).await?);
        other.link().mend();
        // Pods may run before the one that made them has told so; from then on nobody tells anything else.
        for gang in &running {
            scene.wait(WRAPPER, gang, "it is said to run", is_said_to_run).await?;
        }
        let is_right = |gang: &Value| !running.contains(&name(gang).to_owned()) || is_said_to_run(gang);
        scene.keeps(WRAPPER, "what runs is said to run", |all| all.iter().all(is_right)).await?;
    }
    for controller in [scene.controller(), &*other] {
        ensure!(controller.runs().await?, "a controller has ended");
    }
    Ok(())
}

fn is_said_to_run(gang: &Value) -> bool {
    gang["status"]["state"] == "Running"
}

/// The gangs of which both pods run, by name.
fn whole_of(pods: &[Value]) -> Vec<String> {
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
