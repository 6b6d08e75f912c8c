//! Mistakes of admins, as docs/operations.md lists them: quota that is cut below its usage, a clock that steps, a standby that has
//! to be quick.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use crate::common;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use crate::common::kueue::{admitted, cluster_queues, is, kueue_cluster, queue, waits, workloads};
use crate::common::{Cluster, Group, wrappers};
use controllers::{Config, Controller, Kueue, LeaderElectionConfig};
use jiff::SignedDuration;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tokio::time::Instant;

/// An AppWrapper with one pod of so many CPUs.
fn gang(name: &str, cpu: &str) -> Value {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}});
    let template = json!({"metadata": {"labels": {"app": name}}, "spec": {"restartPolicy": "Never", "containers": [container]}});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": template}});
    json!({
        "apiVersion": "mcad.ibm.com/v1beta1", "kind": "AppWrapper", "metadata": {"name": name, "namespace": "default"},
        "spec": {"resources": {"GenericItems": [{"completionstatus": "Complete", "generictemplate": job}]}},
    })
}

async fn set_quota(cluster: &Cluster, name: &str, cpus: u32) {
    let groups = json!([{"coveredResources": ["cpu"], "flavors": [
        {"name": "default", "resources": [{"name": "cpu", "nominalQuota": cpus}]}]}]);
    let patch = Patch::Merge(json!({"spec": {"resourceGroups": groups}}));
    cluster.api(&cluster_queues(), "").patch(name, &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn quota_that_is_cut_below_its_usage_stops_no_workload_and_admits_none_until_enough_have_ended() {
    let cluster = kueue_cluster().await;
    queue(&cluster, "team", 4, json!({})).await;
    let config = Config { kueue: Kueue::Scheduler, ..Config::default() };
    let controller = cluster.start(cluster.client.clone(), config.clone());
    for name in ["first", "second"] {
        common::kueue::submit(&cluster, name, "team", 0, 1, 2).await;
        admitted(&cluster, name).await;
    }
    set_quota(&cluster, "team", 1).await;
    common::kueue::submit(&cluster, "third", "team", 0, 1, 1).await;
    waits(&cluster, "third", "Pending").await;
    // A restart changes nothing.
    drop(controller);
    let _controller = cluster.start(cluster.client.clone(), config);
    cluster.delete_now(&workloads(), "default", "first").await;
    tokio::time::sleep(Duration::from_mins(5)).await;
    waits(&cluster, "third", "Pending").await;
    let second = cluster.api(&workloads(), "default").get("second").await.unwrap();
    assert!(is(&second, "Admitted", "True", "Admitted"), "{second:?}");
    cluster.delete_now(&workloads(), "default", "second").await;
    admitted(&cluster, "third").await;
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_steps_starts_nothing_twice_and_holds_nothing_up() {
    let cluster = Cluster::new().await;
    cluster.node("n", &json!({"cpu": "4", "memory": "16Gi", "pods": "110"})).await;
    let (step_s, true_clock) = (Arc::new(AtomicI64::new(0)), cluster.clock.clone());
    let stepped = step_s.clone();
    let clock: controllers::Clock =
        Arc::new(move || true_clock() + SignedDuration::from_secs(stepped.load(Ordering::Relaxed)));
    let controller = Controller::new(cluster.client.clone(), Config { clock, ..Config::default() });
    let task = tokio::spawn(async move { controller.run(std::future::pending::<()>()).await.unwrap() });
    for (at, step) in [0, 86_400, -86_400, 3_600 * 24 * 365, 0].into_iter().enumerate() {
        step_s.store(step, Ordering::Relaxed);
        let (name, waiting) = (format!("runs-{at}"), format!("waits-{at}"));
        let began = Instant::now();
        cluster.submit(gang(&name, "4")).await;
        cluster.wait_state(Group::Mcad, &name, "Running", "Dispatched").await;
        assert!(
            began.elapsed() < Duration::from_secs(5),
            "a step of {step} s holds up a start for {:?}",
            began.elapsed()
        );
        cluster.submit(gang(&waiting, "4")).await;
        cluster
            .wait(&wrappers(Group::Mcad), "default", &waiting, |wrapper| {
                wrapper.data["status"]["message"].as_str().is_some_and(|message| message.contains("cpu"))
            })
            .await;
        cluster.delete(&wrappers(Group::Mcad), "default", &waiting).await;
        cluster.delete(&wrappers(Group::Mcad), "default", &name).await;
        cluster.wait_gone(&wrappers(Group::Mcad), "default", &name).await;
        cluster.wait_gone(&wrappers(Group::Mcad), "default", &waiting).await;
    }
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_standby_acts_within_a_second_of_an_orderly_stop_and_within_15_seconds_of_a_crash() {
    let cluster = Cluster::new().await;
    cluster.default_nodes().await;
    let candidate = |identity: &str| {
        let election = LeaderElectionConfig {
            // The defaults of the flags.
            lease_duration: Duration::from_secs(12),
            renew_deadline: Duration::from_secs(8),
            ..LeaderElectionConfig::new(identity)
        };
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let config = Config { clock: cluster.clock.clone(), ..Config::default() };
        let controller = Controller::new(cluster.client.clone(), config);
        let stopped = async move { drop(stopped.await) };
        (stop, tokio::spawn(async move { controller.run_elected(election, stopped).await }))
    };
    let mut leader = candidate("0");
    cluster.submit(gang("before", "1")).await;
    cluster.wait_state(Group::Mcad, "before", "Running", "Dispatched").await;
    for number in 1..40_u64 {
        let next = candidate(&number.to_string());
        // At any point of the period of renewals.
        tokio::time::sleep(Duration::from_millis(5_000 + 170 * number)).await;
        let began = Instant::now();
        let limit = if number % 2 == 0 {
            leader.0.send(()).unwrap();
            Duration::from_secs(1)
        } else {
            leader.1.abort();
            Duration::from_secs(15)
        };
        let name = format!("after-{number}");
        cluster.submit(gang(&name, "10m")).await;
        cluster.wait_state(Group::Mcad, &name, "Running", "Dispatched").await;
        assert!(began.elapsed() < limit, "takeover {number} took {:?}", began.elapsed());
        leader = next;
    }
    leader.1.abort();
}
