//! A pending AppWrapper whose start nobody can know, and jobs of queues that would fit meanwhile.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::time::Duration;

use crate::common::gang_pods;
use crate::common::jobs::*;
use crate::common::kueue::*;
use crate::common::{Cluster, Group, Running, wrappers};
use controllers::{Config, Kueue, KueueOptions, KueueRules};
use serde_json::{Value, json};

fn controller(cluster: &Cluster) -> Running {
    let rules = KueueRules { places_pods: true, ..KueueRules::default() };
    let kueue_options = KueueOptions { rules, ..KueueOptions::default() };
    let (kueue, jobs) = (Kueue::Scheduler, all_kinds());
    cluster.start(cluster.client.clone(), Config { kueue, kueue_options, jobs, ..Config::default() })
}

/// Pods that occupy a node each, and declare no run time.
fn gang(name: &str, pods: u32) -> Value {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "4"}}});
    let template = json!({"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}});
    let object = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name},
        "spec": {"replicas": pods, "serviceName": name, "selector": {"matchLabels": {"app": name}}, "template": template}});
    json!({"apiVersion": "mcad.ibm.com/v1beta1", "kind": "AppWrapper", "metadata": {"name": name, "namespace": "default"},
        "spec": {"schedulingSpec": {"requeuing": {"timeInSeconds": 86_400}},
            "resources": {"GenericItems": [{"generictemplate": object}]}}})
}

async fn message(cluster: &Cluster, name: &str) -> String {
    let wrapper = cluster.api(&wrappers(Group::Mcad), "default").get(name).await.unwrap();
    wrapper.data["status"]["message"].as_str().unwrap_or_default().to_owned()
}

/// Two nodes, and a queue that owns one CPU of them and may borrow two. A gang runs on one node, and another one waits for both.
async fn a_gang_waits() -> (Cluster, Running) {
    let cluster = gang_pods::cluster(&["a", "b"]).await;
    for node in ["a", "b"] {
        let labels = json!({"metadata": {"labels": {"pool": "gpu"}}});
        gang_pods::patch_node(&cluster, node, &labels).await;
    }
    install(&cluster).await;
    gpu_queue(&cluster, 1, json!({"cohortName": "all"})).await;
    let lent = json!([{"name": "gpu", "resources": [{"name": "cpu", "nominalQuota": 2}]}]);
    let groups = json!([{"coveredResources": ["cpu"], "flavors": lent}]);
    queue(&cluster, "lends", 0, json!({"cohortName": "all", "resourceGroups": groups})).await;
    let controller = controller(&cluster);
    cluster.submit(gang("runs", 1)).await;
    cluster.settled().await;
    cluster.submit(gang("waits", 2)).await;
    cluster.settled().await;
    let told = message(&cluster, "waits").await;
    let start = "start unknown: default/runs declares no run time (set spec.schedulingSpec.dispatchDuration.expected)";
    assert!(told.ends_with(start), "{told}");
    (cluster, controller)
}

#[tokio::test(start_paused = true)]
async fn a_pending_gang_without_a_known_start_holds_no_queue_back_from_its_quota() {
    let (cluster, _controller) = a_gang_waits().await;
    submit_job(&cluster, job("owned", 1)).await;
    running(&cluster, "owned").await;
}

#[tokio::test(start_paused = true)]
async fn a_pending_gang_without_a_known_start_holds_others_back_for_ten_minutes() {
    let (cluster, _controller) = a_gang_waits().await;
    // It would end after the guessed end of the gang that runs.
    tokio::time::sleep(Duration::from_secs(5)).await;
    submit_job(&cluster, job("borrows", 2)).await;
    let waits =
        workload_of(&cluster, "borrows", |workload| is(workload, "QuotaReserved", "False", "Pending"));
    let waits = waits.await;
    let told = condition(&waits, "QuotaReserved").unwrap()["message"].as_str().unwrap();
    assert!(told.contains("would delay default/waits, which goes first"), "{told}");

    tokio::time::sleep(Duration::from_mins(2)).await;
    let told = message(&cluster, "waits").await;
    assert!(
        told.contains("start unknown: ") && told.contains(", nodes are kept free for it until "),
        "{told}"
    );
    tokio::time::sleep(Duration::from_mins(9)).await;
    running(&cluster, "borrows").await;
    let told = message(&cluster, "waits").await;
    assert!(told.contains("start unknown: ") && !told.contains("kept free"), "{told}");
}
