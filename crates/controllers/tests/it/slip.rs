//! A reserved start that slips is reported with its cause in the status, the Events and the report.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::time::Duration;

use crate::common::{Cluster, Group, wrappers};
use controllers::{Config, Observer};
use serde_json::{Value, json};

/// One pod that occupies the whole node, declares a run time in seconds, and never ends by itself.
fn gang(name: &str, priority: u64, run_time: u64) -> Value {
    let template = json!({"metadata": {"labels": {"app": name}}, "spec": {
        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "4"}}}]}});
    let object = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name},
        "spec": {"replicas": 1, "serviceName": name, "selector": {"matchLabels": {"app": name}}, "template": template}});
    json!({
        "apiVersion": "mcad.ibm.com/v1beta1", "kind": "AppWrapper", "metadata": {"name": name, "namespace": "default"},
        "spec": {"priority": priority, "schedulingSpec": {"dispatchDuration": {"expected": run_time},
            "requeuing": {"timeInSeconds": 86_400}},
            "resources": {"GenericItems": [{"generictemplate": object}]}},
    })
}

async fn message(cluster: &Cluster, name: &str) -> String {
    let wrapper = cluster.api(&wrappers(Group::Mcad), "default").get(name).await.unwrap();
    wrapper.data["status"]["message"].as_str().unwrap_or_default().to_owned()
}

/// The Events about a slipped start of a gang.
async fn moves(cluster: &Cluster, name: &str) -> Vec<String> {
    let about = format!("{name} StartMoved: ");
    let events = cluster.events().await;
    events.iter().filter_map(|event| event.strip_prefix(&about)).map(str::to_owned).collect()
}

const WAITS: &str = "statefulset: needs 4 cpu on one node; the only eligible node has none free. Position";

#[tokio::test(start_paused = true)]
async fn a_start_that_slips_because_a_gang_overruns_is_reported_once_as_an_event_and_in_the_status() {
    let cluster = Cluster::new().await;
    cluster.node("n", &json!({"cpu": "4", "memory": "16Gi", "pods": "110"})).await;
    let _controller = cluster.controller();
    for (name, run_time) in [("runs", 60), ("waits", 600)] {
        cluster.submit(gang(name, 1, run_time)).await;
        cluster.settled().await;
    }
    assert_eq!(
        message(&cluster, "waits").await,
        format!("{WAITS} 1 of 1, start reserved for 2023-11-14T22:14:20Z, when default/runs ends")
    );

    let reminder =
        "a start at 2023-11-14T22:14:20Z was reserved, but default/runs runs longer than it declared";
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(
        message(&cluster, "waits").await,
        format!("{WAITS} 1 of 1, start unknown: default/runs runs longer than it declared; {reminder}")
    );
    tokio::time::sleep(Duration::from_secs(500)).await;
    let told = message(&cluster, "waits").await;
    assert!(told.ends_with(&format!("; {reminder}")) && told.contains("start unknown: "), "{told}");
    assert_eq!(
        moves(&cluster, "waits").await,
        ["the reserved start at 2023-11-14T22:14:20Z was dropped: default/runs runs longer than it declared"]
    );

    let config = Config { clock: cluster.clock.clone(), ..Config::default() };
    let observer = Observer::of(cluster.client.clone(), config).await.unwrap();
    assert_eq!(observer.why("default", "waits")[0].wrapper().unwrap().moved.as_deref(), Some(reminder));
    assert_eq!(observer.why("default", "runs")[0].wrapper().unwrap().moved, None);

    cluster.delete(&wrappers(Group::Mcad), "default", "runs").await;
    cluster.wait_state(Group::Mcad, "waits", "Running", "Dispatched").await;
    assert_eq!(message(&cluster, "waits").await, "");
}

#[tokio::test(start_paused = true)]
async fn a_start_dropped_for_a_gang_of_higher_priority_names_that_gang() {
    let cluster = Cluster::new().await;
    cluster.node("n", &json!({"cpu": "4", "memory": "16Gi", "pods": "110"})).await;
    let _controller = cluster.controller();
    for (name, priority) in [("runs", 1), ("waits", 1), ("strong", 9)] {
        cluster.submit(gang(name, priority, 60)).await;
        cluster.settled().await;
    }
    let told = message(&cluster, "waits").await;
    let reminder = "a start at 2023-11-14T22:14:20Z was reserved, but default/strong goes first";
    assert!(told.ends_with(&format!("; {reminder}")), "{told}");
    assert_eq!(
        moves(&cluster, "waits").await,
        ["the reserved start at 2023-11-14T22:14:20Z was dropped: default/strong goes first"]
    );
    assert!(message(&cluster, "strong").await.contains("start reserved for 2023-11-14T22:14:20Z"));
}
