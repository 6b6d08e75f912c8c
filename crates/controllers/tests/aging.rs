//! Ranks that rise while gangs wait: MCAD's dynamic priority.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod common;

use std::time::Duration;

use common::{Cluster, Group, resource, wrappers};
use controllers::Config;
use serde_json::{Value, json};

/// A Job that fills the only node.
fn job(name: &str, priority: i32, slope: f64) -> Value {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "4"}}});
    let template = json!({"metadata": {"labels": {"app": name}},
        "spec": {"restartPolicy": "Never", "containers": [container]}});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": template}});
    json!({
        "apiVersion": "mcad.ibm.com/v1beta1", "kind": "AppWrapper", "metadata": {"name": name, "namespace": "default"},
        "spec": {"priority": priority, "priorityslope": slope, "resources": {"GenericItems": [{"generictemplate": job}]}},
    })
}

/// One node, held by a gang; two wait behind it, the lower one rises by a priority in two seconds. The name of the gang that
/// runs after ten.
async fn next(dynamic_priority: bool) -> String {
    let cluster = Cluster::new().await;
    cluster.node("n", &json!({"cpu": "4", "memory": "16Gi", "pods": "110"})).await;
    let config = Config { dynamic_priority, preemption: dynamic_priority, ..Config::default() };
    let _controller = cluster.start(cluster.client.clone(), config);
    for wrapper in [job("holder", 0, 0.0), job("steady", 3, 0.0), job("riser", 0, 0.5)] {
        cluster.submit(wrapper).await;
        cluster.settled().await;
    }
    cluster.wait_state(Group::Mcad, "holder", "Running", "Dispatched").await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    cluster.delete(&wrappers(Group::Mcad), "default", "holder").await;
    cluster.wait_gone(&resource("batch/v1", "Job", "jobs"), "default", "holder").await;
    cluster.settled().await;
    cluster.names(&resource("batch/v1", "Job", "jobs"), "default").await.join(" ")
}

#[tokio::test(start_paused = true)]
async fn with_dynamic_priority_who_waits_long_passes_who_ranked_higher_and_nobody_is_stopped() {
    assert_eq!(next(true).await, "riser");
}

#[tokio::test(start_paused = true)]
async fn without_it_a_slope_means_nothing() {
    assert_eq!(next(false).await, "steady");
}
