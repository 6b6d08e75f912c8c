//! Workers that are away, evict, or hold objects of others.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::time::Duration;

use kube::api::DynamicObject;
use serde_json::json;

use crate::common::*;

fn clusters() -> kube::core::ApiResource {
    kueue("MultiKueueCluster", "multikueueclusters")
}

async fn lost(world: &World, cluster: &str) {
    world.hub.wait(&clusters(), cluster, |c| is(c, "Active", "False", "ClientConnectionFailed")).await;
}

async fn connected(world: &World, cluster: &str) {
    world.hub.wait(&clusters(), cluster, |c| is(c, "Active", "True", "Active")).await;
}

#[tokio::test(start_paused = true)]
async fn a_job_of_a_worker_that_is_away_starts_nowhere_else_before_the_timeout() {
    let world = World::new(&[("east", 4), ("west", 4)]).await;
    let _loop = world.start();
    let workload = world.submit("train", 2).await;
    let first = world.runs("train", &workload).await;
    let other = if first == "east" { "west" } else { "east" };
    let away = tokio::time::Instant::now();
    world.workers[&*first].cut();
    lost(&world, &first).await;
    tokio::time::sleep(Duration::from_mins(14)).await;
    assert_eq!(world.copies("train").await, [&*first], "it may run there");
    let local = world.hub.get(&workloads(), &workload).await.unwrap();
    assert_eq!(check(&local).0, "Ready");
    world.workers[other].wait(&jobs(), "train", |job| job.data["spec"]["suspend"] == false).await;
    assert!(away.elapsed() >= Duration::from_mins(15));
    assert!(world.hub.events().await.contains(&"MultiKueue: Reserving remote lost".to_owned()));
    world.workers[&*first].restore();
    world.workers[&*first].gone(&jobs(), "train").await;
    world.workers[&*first].gone(&workloads(), &workload).await;
    assert_eq!(world.runs("train", &workload).await, other);
}

#[tokio::test(start_paused = true)]
async fn a_short_absence_changes_nothing_and_what_ended_meanwhile_comes_back() {
    let world = World::new(&[("east", 4)]).await;
    let _loop = world.start();
    let workload = world.submit("train", 2).await;
    world.runs("train", &workload).await;
    let east = &world.workers["east"];
    east.cut();
    lost(&world, "east").await;
    east.complete("train").await;
    tokio::time::sleep(Duration::from_mins(5)).await;
    east.restore();
    world.hub.wait(&workloads(), &workload, |w| is(w, "Finished", "True", "Succeeded")).await;
    connected(&world, "east").await;
}

#[tokio::test(start_paused = true)]
async fn what_was_deleted_while_a_worker_was_away_goes_when_it_returns() {
    let world = World::new(&[("east", 4)]).await;
    let running = world.start();
    let workload = world.submit("train", 2).await;
    world.runs("train", &workload).await;
    let east = &world.workers["east"];
    east.cut();
    lost(&world, "east").await;
    world.hub.delete(&jobs(), "default", "train").await;
    world.hub.gone(&jobs(), "train").await;
    // The hub has forgotten it, too.
    drop(running);
    let _loop = world.start();
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(east.get(&jobs(), "train").await.is_some());
    east.restore();
    east.gone(&jobs(), "train").await;
    east.gone(&workloads(), &workload).await;
}

#[tokio::test(start_paused = true)]
async fn a_dead_worker_does_not_hold_up_the_others() {
    let world = World::new(&[("dead", 4), ("east", 4)]).await;
    world.workers["dead"].cut();
    let _loop = world.start();
    for name in ["a", "b", "c"] {
        let workload = world.submit(name, 1).await;
        assert_eq!(world.runs(name, &workload).await, "east");
    }
    let is_partial = |check: &DynamicObject| is(check, "Active", "True", "SomeActiveClusters");
    let found = world.hub.wait(&kueue("AdmissionCheck", "admissionchecks"), CHECK, is_partial).await;
    assert_eq!(condition(&found, "Active").unwrap()["message"], "Inactive clusters: [dead]");
}

#[tokio::test(start_paused = true)]
async fn an_eviction_in_the_worker_is_a_retry() {
    let world = World::new(&[("east", 4), ("west", 4)]).await;
    let _loop = world.start();
    let workload = world.submit("train", 2).await;
    let first = world.runs("train", &workload).await;
    world.workers[&*first]
        .merge(&workloads(), "default", &workload, json!({"spec": {"active": false}}))
        .await;
    world.workers[&*first].gone(&jobs(), "train").await;
    world.runs("train", &workload).await;
    let text = format!(
        "MultiKueue: Workload evicted on worker cluster: {first:?}, resetting for re-admission. Previously: \"Ready\""
    );
    assert!(world.hub.events().await.contains(&text), "{:#?}", world.hub.events().await);
    assert_eq!(world.copies("train").await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_workload_that_is_deleted_while_its_worker_is_away_starts_nowhere_else_before_the_timeout() {
    let world = World::new(&[("east", 4), ("west", 4)]).await;
    let first_loop = world.start();
    let workload = world.submit("train", 2).await;
    let first = world.runs("train", &workload).await;
    let other = if first == "east" { "west" } else { "east" };
    world.workers[&*first].cut();
    lost(&world, &first).await;
    let uid = world.hub.get(&workloads(), &workload).await.unwrap().metadata.uid;
    world.hub.delete(&workloads(), "default", &workload).await;
    // The next loop knows of the worker what the hub knows.
    drop(first_loop);
    let _loop = world.start();
    let begun = tokio::time::Instant::now();
    tokio::time::sleep(Duration::from_mins(14)).await;
    assert_eq!(world.copies("train").await, [&*first], "it may run there");
    world.workers[other].wait(&jobs(), "train", |job| job.data["spec"]["suspend"] == false).await;
    assert!(begun.elapsed() >= Duration::from_mins(15));
    assert_ne!(world.hub.get(&workloads(), &workload).await.unwrap().metadata.uid, uid);
}

#[tokio::test(start_paused = true)]
async fn a_workload_that_is_deactivated_in_the_only_worker_before_it_runs_says_so_and_runs_when_it_is_active()
{
    let world = World::new(&[("east", 1)]).await;
    let _loop = world.start();
    let east = &world.workers["east"];
    east.merge(&kueue("ClusterQueue", "clusterqueues"), "", "team", json!({"spec": {"stopPolicy": "Hold"}}))
        .await;
    let workload = world.submit("train", 1).await;
    east.wait(&workloads(), &workload, |_| true).await;
    east.merge(&workloads(), "default", &workload, json!({"spec": {"active": false}})).await;
    let told =
        |w: &DynamicObject| check(w).1 == "east: the workload is deactivated there (spec.active is false)";
    world.hub.wait(&workloads(), &workload, told).await;
    east.merge(&kueue("ClusterQueue", "clusterqueues"), "", "team", json!({"spec": {"stopPolicy": "None"}}))
        .await;
    east.merge(&workloads(), "default", &workload, json!({"spec": {"active": true}})).await;
    world.runs("train", &workload).await;
}

#[tokio::test(start_paused = true)]
async fn an_object_of_another_owner_with_the_same_name_is_told_and_left_alone() {
    let world = World::new(&[("east", 4)]).await;
    let _loop = world.start();
    let east = &world.workers["east"];
    let template =
        json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "mine"}]}});
    east.create(&jobs(), "default", "train", json!({"spec": {"template": template}})).await;
    let mine = east.get(&jobs(), "train").await.unwrap().metadata;
    let workload = world.submit("train", 2).await;
    let told =
        |w: &DynamicObject| check(w).1.contains("a Job \"train\" that this hub has not created is there");
    let local = world.hub.wait(&workloads(), &workload, told).await;
    assert_eq!(check(&local).0, "Pending");
    world.hub.delete(&jobs(), "default", "train").await;
    east.gone(&workloads(), &workload).await;
    let after = east.get(&jobs(), "train").await.unwrap().metadata;
    assert_eq!((after.uid, after.resource_version), (mine.uid, mine.resource_version));
}

#[tokio::test(start_paused = true)]
async fn a_revoked_kubeconfig_ends_the_connection_and_a_new_one_restores_it() {
    let world = World::new(&[("east", 4)]).await;
    let _loop = world.start();
    let workload = world.submit("train", 2).await;
    world.runs("train", &workload).await;
    let secrets = resource("v1", "Secret", "secrets");
    world.hub.delete(&secrets, "kueue-system", "east-secret").await;
    let told = world.hub.wait(&clusters(), "east", |c| is(c, "Active", "False", "BadKubeConfig")).await;
    let text = "load client config failed: Secret \"east-secret\" not found";
    assert_eq!(condition(&told, "Active").unwrap()["message"], text);
    let is_unusable = |check: &DynamicObject| is(check, "Active", "False", "NoUsableClusters");
    world.hub.wait(&kueue("AdmissionCheck", "admissionchecks"), CHECK, is_unusable).await;
    world.workers["east"].complete("train").await;
    let secret = json!({"stringData": {"kubeconfig": kubeconfig("https://east.example")}});
    world.hub.create(&secrets, "kueue-system", "east-secret", secret).await;
    connected(&world, "east").await;
    world.hub.wait(&workloads(), &workload, |w| is(w, "Finished", "True", "Succeeded")).await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_is_reset_to_empty_is_seen_and_its_job_starts_again() {
    let mut world = World::new(&[("east", 4)]).await;
    let _loop = world.start();
    // Many versions are behind the old cluster when the new one begins.
    for number in 0..40 {
        let name = format!("n-{number}");
        let namespaces = resource("v1", "Namespace", "namespaces");
        world.workers["east"].create(&namespaces, "", &name, json!({})).await;
    }
    let workload = world.submit("train", 2).await;
    world.runs("train", &workload).await;
    world.reset("east", 7, 4).await;
    let evicted = |w: &DynamicObject| condition(w, "Evicted").is_some();
    world.hub.wait(&workloads(), &workload, evicted).await;
    world.runs("train", &workload).await;
    world.workers["east"].wait(&jobs(), "train", |job| job.data["spec"]["suspend"] == false).await;
}
