//! All or nothing: when a gang starts, in which order, and what its leaving does.

use anyhow::{Result, ensure};

use crate::objects::{JOB, POD, WRAPPER, job, name, pod, with, wrap};
use crate::scene::Scene;

pub(super) async fn a_gang_waits_whole_until_all_its_pods_have_a_place(scene: &Scene<'_>) -> Result<()> {
    scene.node("one", "cpu=2").await?;
    scene.node("two", "cpu=2").await?;
    scene.submit([wrap("first", [pod("first", "cpu=2")])]).await?;
    scene.wait_pods("first", 1).await?;
    // One of its three pods would find no place.
    scene.submit([wrap("gang", [job("gang", 3, "cpu=1", "1h")])]).await?;
    let why = scene.wait_queued("gang").await?;
    ensure!(why.starts_with("job: room for 2 of 3 pods, each needs 1 cpu"), "it says {why:?}");
    scene.keeps(JOB, "the gang has no Job", <[_]>::is_empty).await?;
    scene.keeps(POD, "only the first runs", |pods| pods.len() == 1).await?;

    scene.delete(WRAPPER, "first").await?;
    scene.wait_pods("gang", 3).await?;
    let gang = scene.wait_state("gang", "Running/Running").await?;
    ensure!(gang["status"]["message"].is_null(), "it still says {}", gang["status"]["message"]);
    Ok(())
}

pub(super) async fn what_fits_in_total_but_on_no_node_waits(scene: &Scene<'_>) -> Result<()> {
    scene.node("one", "cpu=4 nvidia.com/gpu=1").await?;
    scene.node("two", "cpu=4 nvidia.com/gpu=1").await?;
    // Its author declared two pods of one GPU; the real one asks for two.
    let declared = with(
        wrap("trap", [job("trap", 1, "cpu=1 nvidia.com/gpu=2", "1h")]),
        "/spec/resources/GenericItems/0/custompodresources",
        serde_json::json!([{"replicas": 2, "requests": {"cpu": 1, "nvidia.com/gpu": 1}}]),
    );
    scene.submit([declared]).await?;
    let why = scene.wait_queued("trap").await?;
    ensure!(
        why == "can never start on these nodes: job: needs 2 nvidia.com/gpu on one node; 2 nodes have 1 in all",
        "it says {why:?}"
    );
    scene.keeps(POD, "no pod pends", <[_]>::is_empty).await?;
    scene.node("three", "cpu=4 nvidia.com/gpu=2").await?;
    let pods = scene.wait_pods("trap", 1).await?;
    ensure!(pods[0]["spec"]["nodeName"] == "three", "it runs on {}", pods[0]["spec"]["nodeName"]);
    Ok(())
}

pub(super) async fn the_higher_priority_goes_first(scene: &Scene<'_>) -> Result<()> {
    scene.node("one", "cpu=2").await?;
    scene.submit([wrap("first", [pod("first", "cpu=2")])]).await?;
    scene.wait_pods("first", 1).await?;
    let of_priority = |name: &str, priority: i32| {
        with(wrap(name, [pod(name, "cpu=2")]), "/spec/priority", serde_json::json!(priority))
    };
    for (name, priority) in [("low", -5), ("high", 100), ("middle", 7)] {
        scene.submit([of_priority(name, priority)]).await?;
        scene.wait_queued(name).await?;
    }
    for (gone, next) in [("first", "high"), ("high", "middle"), ("middle", "low")] {
        scene.delete(WRAPPER, gone).await?;
        scene.wait_pods(next, 1).await?;
        scene.keeps(POD, "one runs at a time", |pods| pods.len() == 1).await?;
    }
    let low = scene.wait_state("low", "Running/Running").await?;
    ensure!(
        low["status"]["systempriority"] == -5,
        "its priority shows as {}",
        low["status"]["systempriority"]
    );
    Ok(())
}

pub(super) async fn within_a_priority_the_older_goes_first(scene: &Scene<'_>) -> Result<()> {
    scene.node("one", "cpu=2").await?;
    scene.submit([wrap("zero", [pod("zero", "cpu=2")])]).await?;
    scene.wait_pods("zero", 1).await?;
    // Not in the order of their names.
    for name in ["second", "first", "third"] {
        scene.submit([wrap(name, [pod(name, "cpu=2")])]).await?;
        scene.wait_queued(name).await?;
    }
    for (gone, next) in [("zero", "second"), ("second", "first"), ("first", "third")] {
        scene.delete(WRAPPER, gone).await?;
        scene.wait_pods(next, 1).await?;
    }
    Ok(())
}

pub(super) async fn small_gangs_that_end_in_time_pass_a_large_one_that_waits(
    scene: &Scene<'_>,
) -> Result<()> {
    scene.node("one", "cpu=4").await?;
    scene.submit([wrap("first", [pod("first", "cpu=2")])]).await?;
    scene.wait_pods("first", 1).await?;
    scene.submit([wrap("large", [pod("large", "cpu=4")])]).await?;
    scene.wait_queued("large").await?;
    // Nobody knows when the first ends, but not before these.
    let small = with(job("small", 2, "cpu=1", "1s"), "/spec/activeDeadlineSeconds", serde_json::json!(20));
    scene.submit([wrap("small", [small])]).await?;
    scene.wait(JOB, "small", "it is complete", |job| job["status"]["succeeded"] == 2).await?;
    scene.delete(WRAPPER, "small").await?;
    scene.delete(WRAPPER, "first").await?;
    scene.wait_pods("large", 1).await?;
    Ok(())
}

pub(super) async fn of_two_gangs_that_exclude_each_other_one_runs_whole(scene: &Scene<'_>) -> Result<()> {
    for node in ["one", "two", "three", "four"] {
        scene.node(node, "cpu=1").await?;
    }
    // Half of each would fit beside half of the other.
    scene.submit(["left", "right"].map(|name| wrap(name, [job(name, 3, "cpu=1", "1h")]))).await?;
    scene.wait_pods("", 3).await?;
    scene
        .keeps(POD, "the pods of one gang run, none pends", |pods| {
            let stem = |pod| name(pod).split('-').next().map(str::to_owned);
            pods.len() == 3 && pods.iter().all(|pod| stem(pod) == stem(&pods[0]))
        })
        .await?;
    let running = scene.list(POD).await?;
    let (runs, waits) =
        if name(&running[0]).starts_with("left") { ("left", "right") } else { ("right", "left") };
    scene.wait_queued(waits).await?;
    scene.delete(WRAPPER, runs).await?;
    scene.wait_pods(waits, 3).await?;
    Ok(())
}

pub(super) async fn many_gangs_start_together(scene: &Scene<'_>) -> Result<()> {
    for node in ["one", "two", "three"] {
        scene.node(node, "cpu=10").await?;
    }
    let names: Vec<_> = (0..20).map(|at| format!("gang-{at:02}")).collect();
    scene.submit(names.iter().map(|name| wrap(name, [job(name, 2, "cpu=500m", "1h")]))).await?;
    scene.wait_pods("gang", 40).await?;
    scene
        .wait_all(WRAPPER, "all run", |wrappers| {
            wrappers.len() == 20 && wrappers.iter().all(|wrapper| wrapper["status"]["running"] == 2)
        })
        .await?;
    Ok(())
}

pub(super) async fn a_new_node_starts_what_waits_for_it(scene: &Scene<'_>) -> Result<()> {
    scene.submit([wrap("gang", [job("gang", 2, "cpu=1", "1h")])]).await?;
    scene.wait_queued("gang").await?;
    scene.node("one", "cpu=1").await?;
    scene.keeps(POD, "half of it does not start", <[_]>::is_empty).await?;
    scene.node("two", "cpu=1").await?;
    scene.wait_pods("gang", 2).await?;
    Ok(())
}

pub(super) async fn deleting_a_running_gang_frees_its_place(scene: &Scene<'_>) -> Result<()> {
    scene.node("one", "cpu=2").await?;
    scene.submit(["first", "second", "third"].map(|name| wrap(name, [job(name, 2, "cpu=1", "1h")]))).await?;
    scene.wait_pods("first", 2).await?;
    for (gone, next) in [("first", "second"), ("second", "third")] {
        scene.wait_queued(next).await?;
        scene.delete(WRAPPER, gone).await?;
        scene.wait_pods(next, 2).await?;
        scene.wait_gone(JOB, gone).await?;
    }
    scene.keeps(POD, "no pod of the others is left", |pods| pods.len() == 2).await
}

pub(super) async fn deleting_a_waiting_gang_leaves_nothing(scene: &Scene<'_>) -> Result<()> {
    scene.node("one", "cpu=2").await?;
    scene.submit(["first", "second", "third"].map(|name| wrap(name, [pod(name, "cpu=2")]))).await?;
    scene.wait_pods("first", 1).await?;
    scene.wait_queued("second").await?;
    scene.wait_queued("third").await?;
    scene.delete(WRAPPER, "second").await?;
    scene.wait_gone(WRAPPER, "second").await?;
    scene.delete(WRAPPER, "first").await?;
    scene.wait_pods("third", 1).await?;
    scene.keeps(POD, "the deleted one never starts", |pods| pods.len() == 1).await
}
