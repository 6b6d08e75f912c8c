//! Faults of the cluster: restarts of the API server and its store, missed watch events, and concurrent writes. No gang is lost, started
//! twice or half-started, and dispatching continues.

use std::cell::Cell;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::faults::Fault;
use crate::fixture::Fixture;
use crate::objects::{
    CONFIG_MAP, JOB, POD, WRAPPER, condition_lines, config_map, done_with, job, name, pod, with, wrap,
};

/// The maximum number of requests of a controller after a restart: lists and watches of each kind, and some retries.
const REQUESTS_MAX: u64 = 300;

pub(super) async fn an_api_server_restart_loses_no_gang(fixture: &Fixture<'_>) -> Result<()> {
    survives(fixture, Fault::ApiServerRestarts).await
}

pub(super) async fn an_etcd_restart_loses_no_gang(fixture: &Fixture<'_>) -> Result<()> {
    survives(fixture, Fault::StoreRestarts).await
}

/// Injects a fault while one gang runs, one is pending and one is being dispatched.
async fn survives(fixture: &Fixture<'_>, fault: Fault) -> Result<()> {
    fixture.node("one", "cpu=6").await?;
    fixture.submit([wrap("runs", [config_map("runs"), job("runs", 2, "cpu=1", "1h")])]).await?;
    fixture.wait_pods("runs", 2).await?;
    fixture.wait_state("runs", "Running/Running").await?;
    // A low priority, so that the pending gang does not block the others.
    fixture.submit([with(wrap("waits", [pod("waits", "cpu=6")]), "/spec/priority", json!(-1))]).await?;
    fixture.wait_queued("waits").await?;
    let before = [fixture.get(JOB, "runs").await?, fixture.get(WRAPPER, "waits").await?];
    let requests_before = requests(fixture);

    fixture.submit([wrap("starts", [config_map("starts"), job("starts", 2, "cpu=1", "1h")])]).await?;
    fixture
        .wait(WRAPPER, "starts", "its dispatch has begun", |wrapper| wrapper["status"]["canrun"] == true)
        .await?;
    fixture.inject(fault).await?;

    fixture.wait_pods("starts", 2).await?;
    let started = fixture.wait_state("starts", "Running/Running").await?;
    starts_once(&started)?;
    fixture.wait(CONFIG_MAP, "starts", "it exists", |_| true).await?;
    fixture.submit([wrap("next", [job("next", 2, "cpu=1", "1h")])]).await?;
    fixture.wait_pods("next", 2).await?;
    fixture.keeps(POD, "six pods run", |pods| pods.len() == 6).await?;
    let [job, waits] = before.map(Option::unwrap_or_default);
    let now = fixture.get(JOB, "runs").await?.unwrap_or_default();
    ensure!(now["metadata"]["uid"] == job["metadata"]["uid"], "the running Job was created again");
    let now = fixture.get(WRAPPER, "waits").await?.unwrap_or_default();
    ensure!(
        now["status"]["conditions"] == waits["status"]["conditions"],
        "its conditions are {:?}",
        condition_lines(&now)
    );

    ensure!(fixture.controller().is_running().await?, "the controller has exited");
    let count = requests(fixture) - requests_before;
    ensure!(count < REQUESTS_MAX, "{count} requests: {:?}", fixture.controller().proxy().requests());
    for deleted in ["runs", "starts", "next"] {
        fixture.delete(WRAPPER, deleted).await?;
    }
    fixture.wait_pods("waits", 1).await?;
    Ok(())
}

fn requests(fixture: &Fixture<'_>) -> u64 {
    fixture.controller().proxy().requests().values().sum()
}

fn starts_once(wrapper: &Value) -> Result<()> {
    let starts = condition_lines(wrapper).iter().filter(|line| line.starts_with("Dispatched")).count();
    ensure!(starts == 1, "{} has the conditions {:?}", name(wrapper), condition_lines(wrapper));
    Ok(())
}

pub(super) async fn changes_during_a_disconnect_are_found_by_a_new_list(fixture: &Fixture<'_>) -> Result<()> {
    fixture.node("one", "cpu=4").await?;
    fixture
        .submit([
            done_with(wrap("ends", [job("ends", 1, "cpu=1", "3s")]), "Complete"),
            wrap("goes", [pod("goes", "cpu=1")]),
            wrap("stays", [pod("stays", "cpu=2")]),
        ])
        .await?;
    for gang in ["ends", "goes", "stays"] {
        fixture.wait_state(gang, "Running/Running").await?;
    }
    fixture
        .submit([wrap("waits", [pod("waits", "cpu=4")]), wrap("forgotten", [pod("forgotten", "cpu=4")])])
        .await?;
    fixture.wait_queued("waits").await?;
    fixture.wait_queued("forgotten").await?;
    let last = newest(&fixture.list(POD).await?);

    fixture.controller().proxy().disconnect();
    // Objects are deleted, created and changed, and the watch history that has these events is lost.
    fixture.delete(WRAPPER, "goes").await?;
    fixture.wait_gone(POD, "goes").await?;
    fixture.delete(WRAPPER, "forgotten").await?;
    fixture.wait(JOB, "ends", "it is complete", |job| crate::objects::has_condition(job, "Complete")).await?;
    fixture.submit([wrap("late", [pod("late", "cpu=1")])]).await?;
    fixture.node("two", "cpu=4").await?;
    fixture.inject(Fault::ApiServerRestarts).await?;
    let answer = fixture.watch(POD, last).await?;
    ensure!(answer.contains("\"code\":410"), "a watch could resume from revision {last}: {answer}");
    fixture.controller().proxy().reconnect();

    fixture.wait_state("ends", "Completed/Completed").await?;
    fixture.wait_pods("waits", 1).await?;
    fixture.wait_pods("late", 1).await?;
    fixture.keeps(POD, "nothing else runs", |pods| pods.iter().all(|pod| name(pod) != "forgotten")).await?;
    // The resources of gangs that ended during the disconnect are released.
    fixture.delete(WRAPPER, "late").await?;
    fixture.submit([wrap("fills", [job("fills", 2, "cpu=1", "1h")])]).await?;
    fixture.wait_pods("fills", 2).await?;
    ensure!(fixture.controller().is_running().await?, "the controller has exited");
    Ok(())
}

/// The highest resource version of the objects.
fn newest(objects: &[Value]) -> u64 {
    let revision = |object: &Value| object["metadata"]["resourceVersion"].as_str()?.parse().ok();
    objects.iter().filter_map(revision).max().unwrap_or(0)
}

pub(super) async fn concurrent_writes_to_a_wrapper_lose_no_update(fixture: &Fixture<'_>) -> Result<()> {
    fixture.node("one", "cpu=2").await?;
    fixture.submit([wrap("first", [pod("first", "cpu=2")])]).await?;
    fixture.wait_pods("first", 1).await?;
    let result = with_competing_writes(fixture).await;
    // After a failure, finalizers must not keep the wrappers.
    for wrapper in fixture.list(WRAPPER).await? {
        fixture
            .write(WRAPPER, name(&wrapper), "", |wrapper| wrapper["metadata"]["finalizers"] = json!([]))
            .await?;
    }
    result
}

async fn with_competing_writes(fixture: &Fixture<'_>) -> Result<()> {
    let accepted = (Cell::new(0), Cell::new(0));
    for round in 0..3 {
        let gang = format!("gang-{round}");
        fixture.submit([wrap(&gang, [config_map(&gang), job(&gang, 2, "cpu=1", "1h")])]).await?;
        accepted.0.set(0);
        accepted.1.set(0);
        let dispatch = async {
            fixture.wait_queued(&gang).await?;
            fixture.delete(WRAPPER, if round == 0 { "first" } else { "last" }).await?;
            fixture.wait_pods(&gang, 2).await?;
            fixture.wait_state(&gang, "Running/Running").await
        };
        let running = tokio::select! {
            running = dispatch => running?,
            result = compete(fixture, &gang, &accepted) => return result,
        };
        starts_once(&running)?;
        let now = fixture.get(WRAPPER, &gang).await?.unwrap_or_default();
        let count = |value: &Value| value.as_str().and_then(|count| count.parse::<u32>().ok()).unwrap_or(0);
        let metadata = &now["metadata"];
        ensure!(count(&metadata["labels"]["count"]) >= accepted.0.get(), "labels were lost: {metadata}");
        ensure!(
            metadata["finalizers"] == json!(["muster.dev/test"]),
            "finalizers are {}",
            metadata["finalizers"]
        );
        let conditions = now["status"]["conditions"].as_array().context("conditions")?;
        let seen = conditions
            .iter()
            .find(|condition| condition["type"] == "Competing")
            .context("a condition was lost")?;
        ensure!(count(&seen["message"]) >= accepted.1.get(), "a condition was lost: {seen}");
        fixture.write(WRAPPER, &gang, "", |wrapper| wrapper["metadata"]["finalizers"] = json!([])).await?;
        if round < 2 {
            fixture.delete(WRAPPER, &gang).await?;
            fixture.wait_gone(WRAPPER, &gang).await?;
            fixture.submit([wrap("last", [pod("last", "cpu=2")])]).await?;
            fixture.wait_pods("last", 1).await?;
        }
    }
    let conflicts =
        |(what, count): (String, u64)| what.starts_with("PATCH appwrappers/status (409").then_some(count);
    let conflicts: u64 = fixture.controller().proxy().requests().into_iter().filter_map(conflicts).sum();
    ensure!(conflicts > 0, "no write of the controller had a conflict");
    Ok(())
}

/// Writes a label, a finalizer and a condition to a wrapper in an endless loop of read and update. Stores the last accepted values.
async fn compete(fixture: &Fixture<'_>, wrapper: &str, accepted: &(Cell<u32>, Cell<u32>)) -> Result<()> {
    for count in 1_u32.. {
        let label = |wrapper: &mut Value| {
            wrapper["metadata"]["labels"]["count"] = json!(count.to_string());
            wrapper["metadata"]["finalizers"] = json!(["muster.dev/test"]);
        };
        if fixture.write(WRAPPER, wrapper, "", label).await? {
            accepted.0.set(count);
        }
        fixture.wait_write_interval().await;
        let own = json!({"type": "Competing", "status": "True", "message": count.to_string()});
        let condition = |wrapper: &mut Value| {
            if wrapper["status"]["conditions"].is_null() {
                return; // The controller writes the first condition.
            }
            let Some(conditions) = wrapper["status"]["conditions"].as_array_mut() else { return };
            match conditions.iter_mut().find(|condition| condition["type"] == "Competing") {
                Some(condition) => *condition = own.clone(),
                None => conditions.push(own.clone()),
            }
        };
        if fixture.write(WRAPPER, wrapper, "/status", condition).await? {
            accepted.1.set(count);
        }
        fixture.wait_write_interval().await;
    }
    Ok(())
}
