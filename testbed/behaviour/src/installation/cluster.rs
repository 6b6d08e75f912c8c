//! Requests to the API server, as untyped JSON.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use http::Request;
use kube::Client;
use serde_json::Value;
use tokio::time::{Instant, sleep};

/// A client, and how long an expected state may take.
#[derive(Clone)]
pub(super) struct Cluster {
    pub(super) client: Client,
    pub(super) timeout: Duration,
}

impl Cluster {
    pub(super) async fn get(&self, path: &str) -> Result<Option<Value>> {
        match self.client.request(Request::get(path).body(Vec::new())?).await {
            Ok(object) => Ok(Some(object)),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot get {path}")),
        }
    }

    /// The items of a list; none if the cluster does not have the kind.
    pub(super) async fn list(&self, path: &str) -> Result<Vec<Value>> {
        let list = self.get(path).await?.unwrap_or_default();
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }

    pub(super) async fn create(&self, path: &str, object: &Value) -> Result<Value> {
        self.create_as(path, object, None).await
    }

    /// Creates an object, in the name of another user.
    pub(super) async fn create_as(&self, path: &str, object: &Value, user: Option<&str>) -> Result<Value> {
        let mut request = Request::post(path).header("Content-Type", "application/json");
        if let Some(user) = user {
            request = request.header("Impersonate-User", user);
        }
        let created = self.client.request(request.body(serde_json::to_vec(object)?)?).await;
        created.with_context(|| format!("cannot create an object in {path}"))
    }

    pub(super) async fn patch(&self, path: &str, patch: &Value) -> Result<Value> {
        let request = Request::patch(path).header("Content-Type", "application/merge-patch+json");
        let patched = self.client.request(request.body(serde_json::to_vec(patch)?)?).await;
        patched.with_context(|| format!("cannot patch {path}"))
    }

    pub(super) async fn delete(&self, path: &str) -> Result<()> {
        match self.client.request::<Value>(Request::delete(path).body(Vec::new())?).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(error).with_context(|| format!("cannot delete {path}")),
        }
    }

    /// Waits until `poll` has a value.
    pub(super) async fn until<T>(&self, what: &str, poll: impl AsyncFn() -> Result<Option<T>>) -> Result<T> {
        let end = Instant::now() + self.timeout;
        loop {
            let last = match poll().await {
                Ok(Some(value)) => return Ok(value),
                Ok(None) => String::new(),
                Err(error) => format!(": {error:#}"),
            };
            if Instant::now() > end {
                bail!("not within {:?}: {what}{last}", self.timeout);
            }
            sleep(Duration::from_millis(100)).await;
        }
    }
}

/// A text in an object; empty if there is none.
pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
