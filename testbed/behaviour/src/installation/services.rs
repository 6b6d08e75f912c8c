//! The part of kube-proxy for the Services of releases: each port of a cluster address leads to a process of a ready endpoint.
//! The testbed's cluster addresses are of loopback, so this machine has them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::Value;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::cluster::{Cluster, text};
use super::node::Node;

/// Addresses of processes, with their ports.
type Endpoints = Arc<Mutex<Vec<String>>>;

/// A port of a Service.
struct Port {
    endpoints: Endpoints,
    task: JoinHandle<()>,
}

impl Drop for Port {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Serves the Services until the value is dropped.
pub(super) async fn run(cluster: Cluster, node: Node) -> Result<()> {
    let mut ports: BTreeMap<(String, u64), Port> = BTreeMap::new();
    loop {
        if let Ok(found) = read(&cluster, &node).await {
            ports.retain(|key, _| found.contains_key(key));
            for (key, endpoints) in found {
                if let Some(port) = ports.get(&key) {
                    *port.endpoints.lock().expect("nothing panics while it holds the lock") = endpoints;
                } else {
                    ports.insert(key.clone(), listen(key, endpoints).await?);
                }
            }
        }
        sleep(Duration::from_millis(100)).await;
    }
}

/// The ready endpoints of each port.
async fn read(cluster: &Cluster, node: &Node) -> Result<BTreeMap<(String, u64), Vec<String>>> {
    let slices = cluster.list("/apis/discovery.k8s.io/v1/endpointslices").await?;
    let mut found = BTreeMap::new();
    for service in cluster.list("/api/v1/services").await? {
        let address = text(&service["spec"]["clusterIP"]);
        // `kubernetes` has the same address in all testbeds.
        if address.is_empty() || address == "None" || service["metadata"]["name"] == "kubernetes" {
            continue;
        }
        for port in service["spec"]["ports"].as_array().into_iter().flatten() {
            let of_service = slices.iter().filter(|slice| {
                slice["metadata"]["labels"]["kubernetes.io/service-name"] == service["metadata"]["name"]
                    && slice["metadata"]["namespace"] == service["metadata"]["namespace"]
            });
            let endpoints: Vec<_> = of_service.flat_map(|slice| addresses(slice, port, node)).collect();
            // Without an endpoint, connections are refused.
            if endpoints.is_empty() {
                continue;
            }
            found.insert((address.to_owned(), port["port"].as_u64().unwrap_or_default()), endpoints);
        }
    }
    Ok(found)
}

fn addresses(slice: &Value, port: &Value, node: &Node) -> Vec<String> {
    let target = slice["ports"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|target| text(&target["name"]) == text(&port["name"]));
    let Some(target) = target.and_then(|target| target["port"].as_u64()) else { return Vec::new() };
    let ready = slice["endpoints"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|endpoint| endpoint["conditions"]["ready"] == true);
    let addresses = ready.flat_map(|endpoint| endpoint["addresses"].as_array().into_iter().flatten());
    let ready = addresses.map(text).filter(|address| node.is_ready(address));
    ready.filter_map(|address| Some(format!("{}:{target}", node.address(address)?))).collect()
}

async fn listen((address, port): (String, u64), endpoints: Vec<String>) -> Result<Port> {
    let listener = TcpListener::bind(format!("{address}:{port}")).await.with_context(|| {
        format!("cannot listen on {address}:{port}, the address of a Service: run as a user that may, on a testbed whose Services are of loopback")
    })?;
    let endpoints: Endpoints = Arc::new(Mutex::new(endpoints));
    let known = endpoints.clone();
    let task = tokio::spawn(async move {
        let mut turn = 0;
        while let Ok((mut near, _)) = listener.accept().await {
            turn += 1;
            let of_turn = {
                let known = known.lock().expect("nothing panics while it holds the lock");
                (!known.is_empty()).then(|| known[turn % known.len()].clone())
            };
            tokio::spawn(async move {
                let Some(address) = of_turn else { return };
                if let Ok(mut far) = TcpStream::connect(address).await {
                    copy_bidirectional(&mut near, &mut far).await.ok();
                }
            });
        }
    });
    Ok(Port { endpoints, task })
}
