//! A client of a cluster that samples are applied to, with discovery of the served kinds.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

/// The interval between two polls.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The path of the collection of a kind, and whether the kind is namespaced.
type Collection = (String, bool);

/// One of the two clusters.
pub struct Server {
    client: Client,
    /// The collections by API version and kind; `None` for a kind that is not served.
    kinds: Mutex<BTreeMap<(String, String), Option<Collection>>>,
    /// The timeout for an expected state.
    pub timeout: Duration,
}

impl Server {
    /// The cluster of a client.
    pub fn new(client: Client, timeout: Duration) -> Self {
        Self { client, kinds: Mutex::default(), timeout }
    }

    /// Sends a request, and returns the status and the body of the response.
    pub async fn call(&self, method: &str, path: &str, body: Option<&Value>) -> Result<(u16, Value)> {
        let request = http::Request::builder().method(method).uri(path);
        let request = request.header("Content-Type", "application/json");
        let body = body.map_or_else(Vec::new, |body| body.to_string().into_bytes());
        let response = self.client.send(request.body(Body::from(body))?).await?;
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await?.to_bytes();
        Ok((status, serde_json::from_slice(&bytes).unwrap_or_default()))
    }

    /// The objects of a collection; none if the collection is not served.
    pub async fn list(&self, path: &str) -> Result<Vec<Value>> {
        match self.call("GET", path, None).await? {
            (200, mut list) => Ok(list["items"].as_array_mut().map(std::mem::take).unwrap_or_default()),
            (404, _) => Ok(Vec::new()),
            (status, body) => bail!("cannot list {path}: {status} {}", body["message"]),
        }
    }

    /// Creates a node if it does not exist, and waits until it is ready.
    pub async fn node(&self, node: &Value) -> Result<()> {
        let (status, body) = self.call("POST", "/api/v1/nodes", Some(node)).await?;
        ensure!(matches!(status, 201 | 409), "cannot create a node: {status} {}", body["message"]);
        let path = format!("/api/v1/nodes/{}", crate::objects::name(node));
        self.until(&path, crate::objects::is_ready_node).await
    }

    /// Creates a namespace, and waits until it has its default service account.
    pub async fn namespace(&self, name: &str) -> Result<()> {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        let (status, body) = self.call("POST", "/api/v1/namespaces", Some(&namespace)).await?;
        ensure!(status == 201, "cannot create the namespace {name}: {status} {}", body["message"]);
        self.until(&format!("/api/v1/namespaces/{name}/serviceaccounts/default"), |_| true).await
    }

    async fn until(&self, path: &str, is_met: impl Fn(&Value) -> bool) -> Result<()> {
        let begin = Instant::now();
        while begin.elapsed() < self.timeout {
            if let (200, body) = self.call("GET", path, None).await?
                && is_met(&body)
            {
                return Ok(());
            }
            sleep(POLL_INTERVAL).await;
        }
        bail!("timed out after {:?}: {path}", self.timeout)
    }

    /// Creates an object in this namespace, regardless of its own namespace field. Returns 201, or the reason of the rejection.
    pub async fn apply(&self, object: &Value, namespace: &str) -> Result<Value> {
        let kind = object["kind"].as_str().context("an object has a kind")?;
        let api_version = object["apiVersion"].as_str().context("an object has an apiVersion")?;
        let Some((path, namespaced)) = self.collection(api_version, kind).await? else {
            return Ok(json!("not served"));
        };
        if !namespaced {
            return Ok(json!("not namespaced"));
        }
        let mut object = object.clone();
        object["metadata"]["namespace"] = json!(namespace);
        let path = path.replace("NAMESPACE", namespace);
        Ok(match self.call("POST", &path, Some(&object)).await? {
            (201, _) => json!(201),
            (status, body) => json!({"status": status, "message": body["message"]}),
        })
    }

    async fn collection(&self, api_version: &str, kind: &str) -> Result<Option<Collection>> {
        let key = (api_version.to_owned(), kind.to_owned());
        if let Some(known) = self.kinds.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(known.clone());
        }
        let root = if api_version.contains('/') { "/apis" } else { "/api" };
        let (_, served) = self.call("GET", &format!("{root}/{api_version}"), None).await?;
        let resources = served["resources"].as_array().into_iter().flatten();
        let of_kind = |resource: &&Value| {
            resource["kind"] == kind && resource["name"].as_str().is_some_and(|name| !name.contains('/'))
        };
        let collection = resources.into_iter().find(of_kind).map(|resource| {
            let name = resource["name"].as_str().unwrap_or_default();
            let path = format!("{root}/{api_version}/namespaces/NAMESPACE/{name}");
            (path, resource["namespaced"] == true)
        });
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner).insert(key, collection.clone());
        Ok(collection)
    }
}
