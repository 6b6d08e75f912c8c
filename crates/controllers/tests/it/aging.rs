//! Dynamic priority of MCAD: the priority of pending gangs grows.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::time::Duration;

use crate::common::{Cluster, Group, resource, wrappers};
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

/// One node, occupied by a gang, and two pending gangs. The priority of the lower one grows by one in two seconds.
/// Returns the gang that is dispatched after ten seconds.
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
async fn with_dynamic_priority_a_gang_that_waits_long_is_dispatched_first_and_no_gang_is_preempted() {
    assert_eq!(next(true).await, "riser");
}

#[tokio::test(start_paused = true)]
async fn without_dynamic_priority_a_slope_has_no_effect() {
    assert_eq!(next(false).await, "steady");
}
