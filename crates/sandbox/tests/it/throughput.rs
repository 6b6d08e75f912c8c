//! Starts many Ray clusters at a speed that removes all simulated delays. Runs in real time on several threads.
#![allow(clippy::unwrap_used, reason = "a failed helper ends the test")]

use std::sync::Arc;
use std::time::Duration;

use apiserver::{ApiServer, Service};
use sandbox::{Config, NodeGroup, Sandbox};
use serde_json::{Value, json};
use tokio::time::Instant;

const CLUSTERS: usize = 50;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_ray_clusters_become_ready_within_a_minute() {
    let service = Service::new(ApiServer::new(apiserver::Config::default()), Arc::new(jiff::Timestamp::now));
    let client = kube::Client::new(service, "default");
    let group: NodeGroup = "count=10,cpu=1000,memory=4000Gi,pods=1000".parse().unwrap();
    let config = Config { nodes: group.manifests(), speed: 1e9, ..Config::default() };
    let _sandbox = Sandbox::start(client.clone(), config).await.unwrap();
    let start = Instant::now();
    let template = json!({ "spec": { "containers": [{
        "name": "ray", "image": "ray", "resources": { "limits": { "cpu": "1", "memory": "1Gi" } } }] } });
    for number in 0..CLUSTERS {
        let cluster = json!({
            "apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": { "name": format!("c{number}") },
            "spec": {
                "headGroupSpec": { "template": template },
                "workerGroupSpecs": [{ "groupName": "w", "replicas": 1, "template": template }],
            },
        });
        let body = cluster.to_string().into_bytes();
        let request = http::Request::post("/apis/ray.io/v1/namespaces/default/rayclusters")
            .header("content-type", "application/json")
            .body(body)
            .unwrap();
        client.request::<Value>(request).await.unwrap();
    }
    let mut round = tokio::time::interval(Duration::from_millis(50));
    loop {
        round.tick().await;
        let request = http::Request::get("/apis/ray.io/v1/rayclusters").body(vec![]).unwrap();
        let clusters: Value = client.request(request).await.unwrap();
        let ready =
            clusters["items"].as_array().unwrap().iter().filter(|c| c["status"]["state"] == "ready").count();
        if ready == CLUSTERS {
            break;
        }
        assert!(start.elapsed() < Duration::from_mins(1), "only {ready} are ready");
    }
    println!("{CLUSTERS} clusters were ready after {:.2} s", start.elapsed().as_secs_f64());
}
