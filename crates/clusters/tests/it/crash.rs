//! The loop is killed between any two of its writes, at the hub and in workers; the next one continues.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use crate::common::*;
use serde_json::json;

/// Plays the story once for each write of the loop: it is killed after this write, and another one continues. Returns the number of writes.
async fn walk(story: impl AsyncFn(&World)) -> usize {
    for lifetime in 1.. {
        let world = World::new(&[("east", 4), ("west", 4)]).await;
        let death = Death::after_writes(lifetime);
        let first = world.start_with(world.config(&death), &death);
        let mut story = Box::pin(story(&world));
        let died = tokio::select! {
            biased;
            () = death.knell.notified() => true,
            () = &mut story => false,
        };
        drop(first);
        if !died {
            return lifetime - 1;
        }
        let _second = world.start();
        story.await;
    }
    unreachable!("the story ends")
}

#[tokio::test(start_paused = true)]
async fn after_a_crash_at_any_write_a_job_runs_once_and_leaves_nothing_behind() {
    let writes = walk(async |world| {
        let workload = world.submit("train", 2).await;
        let cluster = world.runs("train", &workload).await;
        assert_eq!(world.copies("train").await, [&*cluster]);
        let worker = &world.workers[&*cluster];
        let running = json!({"active": 2, "ready": 2, "startTime": "2023-11-14T22:13:20Z"});
        worker.merge_status(&jobs(), "train", running).await;
        world.hub.wait(&jobs(), "train", |job| job.data["status"]["ready"] == 2).await;
        world.hub.merge(&workloads(), "default", &workload, json!({"spec": {"active": false}})).await;
        worker.gone(&jobs(), "train").await;
        let released =
            |w: &kube::api::DynamicObject| condition(w, "QuotaReserved").unwrap()["status"] == "False";
        world.hub.wait(&workloads(), &workload, released).await;
        world.hub.merge(&workloads(), "default", &workload, json!({"spec": {"active": true}})).await;
        let cluster = world.runs("train", &workload).await;
        assert_eq!(world.copies("train").await, [&*cluster]);
        world.workers[&*cluster].complete("train").await;
        let local = world.hub.wait(&workloads(), &workload, |w| is(w, "Finished", "True", "Succeeded")).await;
        let evictions = &local.data["status"]["schedulingStats"]["evictions"];
        assert_eq!(evictions.as_array().unwrap().len(), 1, "{evictions}");
        for worker in world.workers.values() {
            worker.gone(&jobs(), "train").await;
            worker.gone(&workloads(), &workload).await;
        }
    })
    .await;
    assert!(writes >= 15, "only {writes} writes were covered");
}
