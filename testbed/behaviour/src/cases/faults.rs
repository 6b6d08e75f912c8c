//! The cluster fails: the API server or its store restarts, changes are missed, others write the same objects. Nothing is lost, made
//! twice or half-started, and afterwards all goes on as before.

use std::cell::Cell;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::faults::Fault;
use crate::objects::{
    CONFIG_MAP, JOB, POD, WRAPPER, config_map, done_with, job, name, pod, story, with, wrap,
};
use crate::scene::Scene;

/// Most requests of a controller that has to find its way again after a restart: some lists and watches for each kind, some tries.
const REQUESTS_MAX: u64 = 300;

pub(super) async fn an_api_server_that_restarts_leaves_nothing_lost_or_half_started(
    scene: &Scene<'_>,
) -> Result<()> {
    across(scene, Fault::ApiServerRestarts).await
}

pub(super) async fn a_store_that_restarts_leaves_nothing_lost_or_half_started(
    scene: &Scene<'_>,
) -> Result<()> {
    across(scene, Fault::StoreRestarts).await
}

/// Gangs that run, wait and are just being started when something befalls the cluster.
async fn across(scene: &Scene<'_>, fault: Fault) -> Result<()> {
    scene.node("one", "cpu=6").await?;
    scene.submit([wrap("runs", [config_map("runs"), job("runs", 2, "cpu=1", "1h")])]).await?;
    scene.wait_pods("runs", 2).await?;
    scene.wait_state("runs", "Running/Running").await?;
    // It goes last, so that it does not keep others from what it waits for.
    scene.submit([with(wrap("waits", [pod("waits", "cpu=6")]), "/spec/priority", json!(-1))]).await?;
    scene.wait_queued("waits").await?;
    let before = [scene.get(JOB, "runs").await?, scene.get(WRAPPER, "waits").await?];
    let asked = requests(scene);

    scene.submit([wrap("starts", [config_map("starts"), job("starts", 2, "cpu=1", "1h")])]).await?;
    scene.wait(WRAPPER, "starts", "it is being started", |it| it["status"]["canrun"] == true).await?;
    scene.strike(fault).await?;

    scene.wait_pods("starts", 2).await?;
    let started = scene.wait_state("starts", "Running/Running").await?;
    starts_once(&started)?;
    scene.wait(CONFIG_MAP, "starts", "it exists", |_| true).await?;
    scene.submit([wrap("next", [job("next", 2, "cpu=1", "1h")])]).await?;
    scene.wait_pods("next", 2).await?;
    scene.keeps(POD, "six pods run", |pods| pods.len() == 6).await?;
    let [job, waits] = before.map(Option::unwrap_or_default);
    let now = scene.get(JOB, "runs").await?.unwrap_or_default();
    ensure!(now["metadata"]["uid"] == job["metadata"]["uid"], "the Job that ran was made again");
    let now = scene.get(WRAPPER, "waits").await?.unwrap_or_default();
    ensure!(now["status"]["conditions"] == waits["status"]["conditions"], "its story is {:?}", story(&now));

    ensure!(scene.controller().runs().await?, "the controller has ended");
    let asked = requests(scene) - asked;
    ensure!(asked < REQUESTS_MAX, "it asked {asked} times: {:?}", scene.controller().link().requests());
    for gone in ["runs", "starts", "next"] {
        scene.delete(WRAPPER, gone).await?;
    }
    scene.wait_pods("waits", 1).await?;
    Ok(())
}

fn requests(scene: &Scene<'_>) -> u64 {
    scene.controller().link().requests().values().sum()
}

fn starts_once(wrapper: &Value) -> Result<()> {
    let starts = story(wrapper).iter().filter(|line| line.starts_with("Dispatched")).count();
    ensure!(starts == 1, "{} has the story {:?}", name(wrapper), story(wrapper));
    Ok(())
}

pub(super) async fn what_changed_while_nobody_could_tell_is_noticed(scene: &Scene<'_>) -> Result<()> {
    scene.node("one", "cpu=4").await?;
    scene
        .submit([
            done_with(wrap("ends", [job("ends", 1, "cpu=1", "3s")]), "Complete"),
            wrap("goes", [pod("goes", "cpu=1")]),
            wrap("stays", [pod("stays", "cpu=2")]),
        ])
        .await?;
    for gang in ["ends", "goes", "stays"] {
        scene.wait_state(gang, "Running/Running").await?;
    }
    scene
        .submit([wrap("waits", [pod("waits", "cpu=4")]), wrap("forgotten", [pod("forgotten", "cpu=4")])])
        .await?;
    scene.wait_queued("waits").await?;
    scene.wait_queued("forgotten").await?;
    let last = newest(&scene.list(POD).await?);

    scene.controller().link().cut();
    // Deleted, created and changed, and for all of it no event is left to tell.
    scene.delete(WRAPPER, "goes").await?;
    scene.wait_gone(POD, "goes").await?;
    scene.delete(WRAPPER, "forgotten").await?;
    scene.wait(JOB, "ends", "it is complete", |job| crate::objects::has_condition(job, "Complete")).await?;
    scene.submit([wrap("late", [pod("late", "cpu=1")])]).await?;
    scene.node("two", "cpu=4").await?;
    scene.strike(Fault::ApiServerRestarts).await?;
    let answer = scene.watch(POD, last).await?;
    ensure!(answer.contains("\"code\":410"), "a watch could go on from revision {last}: {answer}");
    scene.controller().link().mend();

    scene.wait_state("ends", "Completed/Completed").await?;
    scene.wait_pods("waits", 1).await?;
    scene.wait_pods("late", 1).await?;
    scene.keeps(POD, "nothing else runs", |pods| pods.iter().all(|pod| name(pod) != "forgotten")).await?;
    // What left while nobody looked is not charged any more.
    scene.delete(WRAPPER, "late").await?;
    scene.submit([wrap("fills", [job("fills", 2, "cpu=1", "1h")])]).await?;
    scene.wait_pods("fills", 2).await?;
    ensure!(scene.controller().runs().await?, "the controller has ended");
    Ok(())
}

/// The highest revision of objects.
fn newest(objects: &[Value]) -> u64 {
    let revision = |object: &Value| object["metadata"]["resourceVersion"].as_str()?.parse().ok();
    objects.iter().filter_map(revision).max().unwrap_or(0)
}

pub(super) async fn who_writes_the_same_wrapper_all_the_time_loses_nothing_and_stops_nobody(
    scene: &Scene<'_>,
) -> Result<()> {
    scene.node("one", "cpu=2").await?;
    scene.submit([wrap("first", [pod("first", "cpu=2")])]).await?;
    scene.wait_pods("first", 1).await?;
    let played = meddled(scene).await;
    // What is left of a story that ended badly must not stay for ever.
    for wrapper in scene.list(WRAPPER).await? {
        scene
            .write(WRAPPER, name(&wrapper), "", |wrapper| wrapper["metadata"]["finalizers"] = json!([]))
            .await?;
    }
    played
}

async fn meddled(scene: &Scene<'_>) -> Result<()> {
    let told = (Cell::new(0), Cell::new(0));
    for round in 0..3 {
        let gang = format!("gang-{round}");
        scene.submit([wrap(&gang, [config_map(&gang), job(&gang, 2, "cpu=1", "1h")])]).await?;
        told.0.set(0);
        told.1.set(0);
        let story = async {
            scene.wait_queued(&gang).await?;
            scene.delete(WRAPPER, if round == 0 { "first" } else { "last" }).await?;
            scene.wait_pods(&gang, 2).await?;
            scene.wait_state(&gang, "Running/Running").await
        };
        let running = tokio::select! {
            running = story => running?,
            meddled = meddle(scene, &gang, &told) => return meddled,
        };
        starts_once(&running)?;
        let now = scene.get(WRAPPER, &gang).await?.unwrap_or_default();
        let count = |value: &Value| value.as_str().and_then(|count| count.parse::<u32>().ok()).unwrap_or(0);
        let metadata = &now["metadata"];
        ensure!(count(&metadata["labels"]["count"]) >= told.0.get(), "labels were lost: {metadata}");
        ensure!(
            metadata["finalizers"] == json!(["muster.dev/test"]),
            "finalizers are {}",
            metadata["finalizers"]
        );
        let conditions = now["status"]["conditions"].as_array().context("conditions")?;
        let seen = conditions
            .iter()
            .find(|condition| condition["type"] == "Meddled")
            .context("a condition was lost")?;
        ensure!(count(&seen["message"]) >= told.1.get(), "a condition was lost: {seen}");
        scene.write(WRAPPER, &gang, "", |wrapper| wrapper["metadata"]["finalizers"] = json!([])).await?;
        if round < 2 {
            scene.delete(WRAPPER, &gang).await?;
            scene.wait_gone(WRAPPER, &gang).await?;
            scene.submit([wrap("last", [pod("last", "cpu=2")])]).await?;
            scene.wait_pods("last", 1).await?;
        }
    }
    let refused =
        |(what, count): (String, u64)| what.starts_with("PATCH appwrappers/status (409").then_some(count);
    let refused: u64 = scene.controller().link().requests().into_iter().filter_map(refused).sum();
    ensure!(refused > 0, "the two never got in each other's way");
    Ok(())
}

/// Writes labels, a finalizer and a condition of its own to a wrapper, on top of what it has read, for ever. Counts what was accepted.
async fn meddle(scene: &Scene<'_>, wrapper: &str, told: &(Cell<u32>, Cell<u32>)) -> Result<()> {
    for count in 1_u32.. {
        let label = |wrapper: &mut Value| {
            wrapper["metadata"]["labels"]["count"] = json!(count.to_string());
            wrapper["metadata"]["finalizers"] = json!(["muster.dev/test"]);
        };
        if scene.write(WRAPPER, wrapper, "", label).await? {
            told.0.set(count);
        }
        scene.breathe().await;
        let meddled = json!({"type": "Meddled", "status": "True", "message": count.to_string()});
        let condition = |wrapper: &mut Value| {
            if wrapper["status"]["conditions"].is_null() {
                return; // Who is first begins the story.
            }
            let Some(conditions) = wrapper["status"]["conditions"].as_array_mut() else { return };
            match conditions.iter_mut().find(|condition| condition["type"] == "Meddled") {
                Some(condition) => *condition = meddled.clone(),
                None => conditions.push(meddled.clone()),
            }
        };
        if scene.write(WRAPPER, wrapper, "/status", condition).await? {
            told.1.set(count);
        }
        scene.breathe().await;
    }
    Ok(())
}
