//! All-or-nothing dispatch, the order of gangs, and the release of their resources.

use anyhow::{Result, ensure};

use crate::fixture::Fixture;
use crate::objects::{JOB, POD, WRAPPER, job, name, pod, with, wrap};

pub(super) async fn a_gang_waits_whole_until_all_its_pods_fit(fixture: &Fixture<'_>) -> Result<()> {
    fixture.node("one", "cpu=2").await?;
    fixture.node("two", "cpu=2").await?;
    fixture.submit([wrap("first", [pod("first", "cpu=2")])]).await?;
    fixture.wait_pods("first", 1).await?;
    // Only two of the three pods fit.
    fixture.submit([wrap("gang", [job("gang", 3, "cpu=1", "1h")])]).await?;
    let why = fixture.wait_queued("gang").await?;
    ensure!(why.starts_with("job: room for 2 of 3 pods, each needs 1 cpu"), "its message is {why:?}");
    fixture.keeps(JOB, "the gang has no Job", <[_]>::is_empty).await?;
    fixture.keeps(POD, "only the first runs", |pods| pods.len() == 1).await?;

    fixture.delete(WRAPPER, "first").await?;
    fixture.wait_pods("gang", 3).await?;
    let gang = fixture.wait_state("gang", "Running/Running").await?;
    ensure!(gang["status"]["message"].is_null(), "its message is still {}", gang["status"]["message"]);
    Ok(())
}

pub(super) async fn a_gang_that_fits_only_in_total_waits(fixture: &Fixture<'_>) -> Result<()> {
    fixture.node("one", "cpu=4 nvidia.com/gpu=1").await?;
    fixture.node("two", "cpu=4 nvidia.com/gpu=1").await?;
    // The wrapper declares two pods of one GPU each, but the Job has one pod with two GPUs.
    let declared = with(
        wrap("trap", [job("trap", 1, "cpu=1 nvidia.com/gpu=2", "1h")]),
        "/spec/resources/GenericItems/0/custompodresources",
        serde_json::json!([{"replicas": 2, "requests": {"cpu": 1, "nvidia.com/gpu": 1}}]),
    );
    fixture.submit([declared]).await?;
    let why = fixture.wait_queued("trap").await?;
    ensure!(
        why == "can never start on these nodes: job: needs 2 nvidia.com/gpu on one node; 2 nodes have 1 even when empty",
        "its message is {why:?}"
    );
    fixture.keeps(POD, "no pod exists", <[_]>::is_empty).await?;
    fixture.node("three", "cpu=4 nvidia.com/gpu=2").await?;
    let pods = fixture.wait_pods("trap", 1).await?;
    ensure!(pods[0]["spec"]["nodeName"] == "three", "it runs on {}", pods[0]["spec"]["nodeName"]);
    Ok(())
}

pub(super) async fn the_gang_with_higher_priority_is_dispatched_first(fixture: &Fixture<'_>) -> Result<()> {
    fixture.node("one", "cpu=2").await?;
    fixture.submit([wrap("first", [pod("first", "cpu=2")])]).await?;
    fixture.wait_pods("first", 1).await?;
    let of_priority = |name: &str, priority: i32| {
        with(wrap(name, [pod(name, "cpu=2")]), "/spec/priority", serde_json::json!(priority))
    };
    for (name, priority) in [("low", -5), ("high", 100), ("middle", 7)] {
        fixture.submit([of_priority(name, priority)]).await?;
        fixture.wait_queued(name).await?;
    }
    for (gone, next) in [("first", "high"), ("high", "middle"), ("middle", "low")] {
        fixture.delete(WRAPPER, gone).await?;
        fixture.wait_pods(next, 1).await?;
        fixture.keeps(POD, "one runs at a time", |pods| pods.len() == 1).await?;
    }
    let low = fixture.wait_state("low", "Running/Running").await?;
    ensure!(
        low["status"]["systempriority"] == -5,
        "its priority shows as {}",
        low["status"]["systempriority"]
    );
    Ok(())
}

pub(super) async fn gangs_of_equal_priority_are_dispatched_in_creation_order(
    fixture: &Fixture<'_>,
) -> Result<()> {
    fixture.node("one", "cpu=2").await?;
    fixture.submit([wrap("zero", [pod("zero", "cpu=2")])]).await?;
    fixture.wait_pods("zero", 1).await?;
    // The creation order differs from the order of names.
    for name in ["second", "first", "third"] {
        fixture.submit([wrap(name, [pod(name, "cpu=2")])]).await?;
        fixture.wait_queued(name).await?;
    }
    for (gone, next) in [("zero", "second"), ("second", "first"), ("first", "third")] {
        fixture.delete(WRAPPER, gone).await?;
        fixture.wait_pods(next, 1).await?;
    }
    Ok(())
}

pub(super) async fn a_small_gang_with_a_deadline_is_backfilled_past_a_large_one(
    fixture: &Fixture<'_>,
) -> Result<()> {
    fixture.node("one", "cpu=4").await?;
    fixture.submit([wrap("first", [pod("first", "cpu=2")])]).await?;
    fixture.wait_pods("first", 1).await?;
    fixture.submit([wrap("large", [pod("large", "cpu=4")])]).await?;
    fixture.wait_queued("large").await?;
    // The end of the first gang is unknown, but not before the deadline of the small one.
    let small = with(job("small", 2, "cpu=1", "1s"), "/spec/activeDeadlineSeconds", serde_json::json!(20));
    fixture.submit([wrap("small", [small])]).await?;
    fixture.wait(JOB, "small", "it is complete", |job| job["status"]["succeeded"] == 2).await?;
    fixture.delete(WRAPPER, "small").await?;
    fixture.delete(WRAPPER, "first").await?;
    fixture.wait_pods("large", 1).await?;
    Ok(())
}

pub(super) async fn one_of_two_gangs_that_exclude_each_other_runs_whole(fixture: &Fixture<'_>) -> Result<()> {
    for node in ["one", "two", "three", "four"] {
        fixture.node(node, "cpu=1").await?;
    }
    // A part of each gang would fit beside a part of the other.
    fixture.submit(["left", "right"].map(|name| wrap(name, [job(name, 3, "cpu=1", "1h")]))).await?;
    fixture.wait_pods("", 3).await?;
    fixture
        .keeps(POD, "all pods of one gang run, and no other pod exists", |pods| {
            let stem = |pod| name(pod).split('-').next().map(str::to_owned);
            pods.len() == 3 && pods.iter().all(|pod| stem(pod) == stem(&pods[0]))
        })
        .await?;
    let running = fixture.list(POD).await?;
    let (runs, waits) =
        if name(&running[0]).starts_with("left") { ("left", "right") } else { ("right", "left") };
    fixture.wait_queued(waits).await?;
    fixture.delete(WRAPPER, runs).await?;
    fixture.wait_pods(waits, 3).await?;
    Ok(())
}

pub(super) async fn twenty_gangs_that_fit_together_all_run(fixture: &Fixture<'_>) -> Result<()> {
    for node in ["one", "two", "three"] {
        fixture.node(node, "cpu=10").await?;
    }
    let names: Vec<_> = (0..20).map(|at| format!("gang-{at:02}")).collect();
    fixture.submit(names.iter().map(|name| wrap(name, [job(name, 2, "cpu=500m", "1h")]))).await?;
    fixture.wait_pods("gang", 40).await?;
    fixture
        .wait_all(WRAPPER, "all run", |wrappers| {
            wrappers.len() == 20 && wrappers.iter().all(|wrapper| wrapper["status"]["running"] == 2)
        })
        .await?;
    Ok(())
}

pub(super) async fn a_pending_gang_is_dispatched_when_enough_nodes_join(fixture: &Fixture<'_>) -> Result<()> {
    fixture.submit([wrap("gang", [job("gang", 2, "cpu=1", "1h")])]).await?;
    fixture.wait_queued("gang").await?;
    fixture.node("one", "cpu=1").await?;
    fixture.keeps(POD, "no part of the gang starts", <[_]>::is_empty).await?;
    fixture.node("two", "cpu=1").await?;
    fixture.wait_pods("gang", 2).await?;
    Ok(())
}

pub(super) async fn deleting_a_running_gang_releases_its_capacity(fixture: &Fixture<'_>) -> Result<()> {
    fixture.node("one", "cpu=2").await?;
    fixture
        .submit(["first", "second", "third"].map(|name| wrap(name, [job(name, 2, "cpu=1", "1h")])))
        .await?;
    fixture.wait_pods("first", 2).await?;
    for (gone, next) in [("first", "second"), ("second", "third")] {
        fixture.wait_queued(next).await?;
        fixture.delete(WRAPPER, gone).await?;
        fixture.wait_pods(next, 2).await?;
        fixture.wait_gone(JOB, gone).await?;
    }
    fixture.keeps(POD, "no pod of the others is left", |pods| pods.len() == 2).await
}

pub(super) async fn a_pending_gang_that_is_deleted_never_starts(fixture: &Fixture<'_>) -> Result<()> {
    fixture.node("one", "cpu=2").await?;
    fixture.submit(["first", "second", "third"].map(|name| wrap(name, [pod(name, "cpu=2")]))).await?;
    fixture.wait_pods("first", 1).await?;
    fixture.wait_queued("second").await?;
    fixture.wait_queued("third").await?;
    fixture.delete(WRAPPER, "second").await?;
    fixture.wait_gone(WRAPPER, "second").await?;
    fixture.delete(WRAPPER, "first").await?;
    fixture.wait_pods("third", 1).await?;
    fixture.keeps(POD, "the deleted one never starts", |pods| pods.len() == 1).await
}
