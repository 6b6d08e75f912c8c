//! Test harness: a sandbox on an in-process API server in virtual time, and a client for it.
#![allow(dead_code, reason = "each test file uses only some of the helpers")]
#![allow(clippy::unwrap_used, reason = "a failed helper ends the test")]

use std::sync::Arc;
use std::time::Duration;

use api::kueue::jobs::JobKind;
use apiserver::{ApiServer, Service};
use jiff::Timestamp;
use sandbox::{Config, NodeGroup, NodePool, Sandbox};
use serde_json::{Value, json};
use tokio::time::Instant;

/// A running sandbox with its client.
pub(crate) struct Cluster {
    pub(crate) client: kube::Client,
    pub(crate) sandbox: Sandbox,
    started: Instant,
}

/// Starts a sandbox with these nodes at this speed.
pub(crate) async fn cluster(nodes: &[&str], speed: f64) -> Cluster {
    started(nodes, Config { speed, ..Config::default() }).await
}

/// Starts a sandbox with kinds of jobs from a file.
pub(crate) async fn cluster_with_kinds(nodes: &[&str], kinds: Vec<&'static JobKind>) -> Cluster {
    started(nodes, Config { kinds, ..Config::default() }).await
}

async fn started(nodes: &[&str], config: Config) -> Cluster {
    let started = Instant::now();
    let epoch: Timestamp = "2026-11-21T12:00:00Z".parse().unwrap();
    let clock: sandbox::Clock = Arc::new(move || epoch + started.elapsed());
    let service = Service::new(ApiServer::new(apiserver::Config::default()), clock.clone());
    let client = kube::Client::new(service.clone(), "default");
    let logs: sandbox::LogSink = Arc::new(move |pod, container, text| {
        service.with(|server, now| server.append_log(now, pod, container, text));
    });
    let nodes = nodes.iter().flat_map(|text| text.parse::<NodeGroup>().unwrap().manifests()).collect();
    let config = Config { nodes, clock, logs: Some(logs), ..config };
    let sandbox = Sandbox::start(client.clone(), config).await.unwrap();
    Cluster { client, sandbox, started }
}

/// Starts a sandbox with these nodes and node pools in real time.
pub(crate) async fn cluster_with_pools(nodes: &[&str], pools: &[&str]) -> Cluster {
    let pools: Vec<NodePool> = pools.iter().map(|text| text.parse().unwrap()).collect();
    started(nodes, Config { pools: Some(pools), ..Config::default() }).await
}

/// The default nodes of a sandbox.
pub(crate) const DEFAULT: [&str; 2] =
    ["count=1,name=gpu,cpu=16,memory=64Gi,nvidia.com/gpu=2", "count=1,name=cpu,cpu=16,memory=64Gi"];

impl Cluster {
    /// Virtual seconds since the start.
    pub(crate) fn elapsed(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    pub(crate) async fn request(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, kube::Error> {
        let content = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let request =
            http::Request::builder().method(method).uri(path).header("content-type", content).body(body);
        self.client.request(request.unwrap()).await
    }

    /// Creates an object.
    pub(crate) async fn create(&self, path: &str, object: &Value) -> Value {
        self.request("POST", path, Some(object)).await.unwrap()
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        self.request("GET", path, None).await.unwrap_or(Value::Null)
    }

    pub(crate) async fn text(&self, path: &str) -> String {
        let request = http::Request::get(path).body(vec![]).unwrap();
        self.client.request_text(request).await.unwrap()
    }

    pub(crate) async fn patch(&self, path: &str, patch: &Value) -> Value {
        self.request("PATCH", path, Some(patch)).await.unwrap()
    }

    pub(crate) async fn delete(&self, path: &str) {
        self.request("DELETE", path, None).await.unwrap();
    }

    /// Items of a collection.
    pub(crate) async fn list(&self, path: &str) -> Vec<Value> {
        self.get(path).await["items"].as_array().cloned().unwrap_or_default()
    }

    pub(crate) async fn pods(&self) -> Vec<Value> {
        self.list("/api/v1/namespaces/default/pods").await
    }

    /// The sorted phases of all pods.
    pub(crate) async fn phases(&self) -> Vec<String> {
        let mut phases: Vec<String> = self
            .pods()
            .await
            .iter()
            .map(|pod| pod["status"]["phase"].as_str().unwrap_or("").to_owned())
            .collect();
        phases.sort();
        phases
    }

    /// All events about objects with this name, as `REASON: message`.
    pub(crate) async fn events(&self, name: &str) -> Vec<String> {
        let events = self.list("/api/v1/namespaces/default/events").await;
        let about = events.iter().filter(|event| event["involvedObject"]["name"] == name);
        let text = |event: &Value| {
            format!("{}: {}", event["reason"].as_str().unwrap(), event["message"].as_str().unwrap())
        };
        about.map(text).collect()
    }

    /// Waits until the check returns a value; at most ten virtual minutes.
    pub(crate) async fn eventually<T, F: Future<Output = Option<T>>>(
        &self,
        what: &str,
        check: impl Fn() -> F,
    ) -> T {
        match self.within(check).await {
            Some(value) => value,
            None => panic!("timed out waiting until {what}\n{:#}", Value::Array(self.pods().await)),
        }
    }

    /// Waits until the object at `path` passes the check.
    pub(crate) async fn until(&self, path: &str, check: impl Fn(&Value) -> bool) -> Value {
        let check = &check;
        match self.within(|| async move { Some(self.get(path).await).filter(|object| check(object)) }).await {
            Some(object) => object,
            None => panic!("timed out, {path} is {:#}", self.get(path).await),
        }
    }

    async fn within<T, F: Future<Output = Option<T>>>(&self, check: impl Fn() -> F) -> Option<T> {
        let deadline = Instant::now() + Duration::from_mins(10);
        let mut round = tokio::time::interval(Duration::from_millis(20));
        while Instant::now() < deadline {
            round.tick().await;
            let value = check().await;
            if value.is_some() {
                return value;
            }
        }
        None
    }
}

/// Whether the object has the condition with this status.
pub(crate) fn holds(object: &Value, condition: &str, status: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|c| c["type"] == condition && c["status"] == status)
}

/// A pod with one container and these requests and limits.
pub(crate) fn pod(name: &str, requests: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name },
        "spec": { "containers": [{ "name": "main", "image": "busybox", "resources": { "requests": requests, "limits": requests } }] },
    })
}

/// Pods of the default namespace.
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";
