//! Nodes that kube-scheduler refuses to the pods of a Workload: the next attempt uses others.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::time::Duration;

use crate::common::elastic::create_pod;
use crate::common::gang_pods::{evict, host, refuse};
use crate::common::jobs::*;
use crate::common::kueue::*;
use crate::common::{Cluster, Running};
use crate::kueue_places::{cluster_of, domains, pairs};
use controllers::{Config, Kueue, KueueOptions, PodsReady};
use index::KueueRules;
use kube::api::DynamicObject;

/// A controller that places all pods and evicts a Workload whose pods are not ready within a minute.
fn controller(cluster: &Cluster) -> Running {
    let pods_ready = PodsReady {
        timeout_us: 60_000_000,
        recovery_us: None,
        retries_max: None,
        pause_s: 30,
        pause_max_s: 300,
    };
    let rules = KueueRules { places_pods: true, ..KueueRules::default() };
    let kueue_options = KueueOptions { rules, pods_ready: Some(pods_ready), ..KueueOptions::default() };
    let (kueue, jobs) = (Kueue::Scheduler, all_kinds());
    cluster.start(cluster.client.clone(), Config { kueue, kueue_options, jobs, ..Config::default() })
}

/// Runs a Job of one pod until the scheduler has refused its node and the Job is stopped. Returns the host.
async fn refused(cluster: &Cluster, pod: &str) -> String {
    let train = running(cluster, "train").await;
    create_pod(cluster, &train, pod).await;
    let host = host(cluster, pod).await;
    refuse(cluster, pod).await;
    stopped(cluster, "train").await;
    evict(cluster, pod).await;
    host
}

#[tokio::test(start_paused = true)]
async fn a_workload_meets_a_node_that_refuses_its_pods_once() {
    let cluster = cluster_of(&[&["a", "b"]]).await;
    let first = controller(&cluster);
    submit_job(&cluster, pairs("train", 1)).await;
    let node = refused(&cluster, "train-1").await;
    let other = if node == "a" { "b" } else { "a" };
    assert_eq!(refused(&cluster, "train-2").await, other, "the other node is tried");

    // Both are refused, so it waits until the first exclusion ends.
    let waits = |workload: &DynamicObject| {
        let known = condition(workload, "QuotaReserved");
        known.is_some_and(|known| known["message"].as_str().unwrap().contains("are where it failed before"))
    };
    let workload = workload_of(&cluster, "train", waits).await;
    assert!(workload.data["status"]["admission"].is_null());
    tokio::time::sleep(Duration::from_mins(10)).await;
    running(&cluster, "train").await;
    let workload = workload_of(&cluster, "train", |_| true).await;
    assert!(domains(&workload).contains(&format!("{node:?}")), "{}", domains(&workload));
    drop(first);
}
