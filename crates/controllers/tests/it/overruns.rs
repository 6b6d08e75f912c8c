//! Gangs that ran longer than they declared, and what is known about it after their AppWrappers were deleted.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::time::Duration;

use crate::common::{Cluster, Group, wrappers};
use controllers::{Config, Controller};
use serde_json::json;
use tokio::task::JoinHandle;

/// A controller that publishes its configuration, as that of the binary does.
fn controller(cluster: &Cluster) -> JoinHandle<()> {
    let config =
        Config { clock: cluster.clock.clone(), inspect: Some(cluster.inspect()), ..Config::default() };
    let controller = Controller::new(cluster.client.clone(), config);
    tokio::spawn(async move { controller.publish_config_and_run(std::future::pending()).await.unwrap() })
}

async fn submit(cluster: &Cluster, name: &str) {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    cluster
        .submit(json!({
            "apiVersion": "mcad.ibm.com/v1beta1", "kind": "AppWrapper",
            "metadata": {"name": name, "namespace": "default", "annotations": {"muster.dev/expected-duration": "1m"}},
            "spec": {"resources": {"GenericItems": [{"generictemplate": map}]}},
        }))
        .await;
    cluster.settled().await;
    cluster.wait_state(Group::Mcad, name, "Running", "Dispatched").await;
}

async fn stretched(cluster: &Cluster, name: &str) -> Option<String> {
    let start = format!("{name} RunTimeStretched: ");
    cluster.events().await.into_iter().find(|event| event.starts_with(&start))
}

#[tokio::test(start_paused = true)]
async fn an_overrun_counts_after_its_app_wrapper_was_deleted_and_the_controller_restarted() {
    let cluster = Cluster::new().await;
    let first = controller(&cluster);
    submit(&cluster, "liar").await;
    assert_eq!(stretched(&cluster, "liar").await, None);
    tokio::time::sleep(Duration::from_mins(10)).await;
    submit(&cluster, "probe").await; // The controller looks at the time when something happens.
    cluster.delete(&wrappers(Group::Mcad), "default", "liar").await;
    cluster.delete(&wrappers(Group::Mcad), "default", "probe").await;
    cluster.settled().await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    first.abort();
    let _second = controller(&cluster);
    cluster.settled().await;
    submit(&cluster, "next").await;
    let event = stretched(&cluster, "next").await.unwrap();
    assert!(event.contains("the declared run time counts 16 times"), "{event}");
}
