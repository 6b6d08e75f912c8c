//! One case on one cluster: its nodes, its namespace, what it creates there, and waiting for what comes of it.

use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::environment::{Controller, Environment};
use crate::faults::Fault;
use crate::objects::{Kind, OLD_WRAPPER, POD, WRAPPER, name};

/// A case that is being played.
pub struct Scene<'a> {
    environment: &'a Environment,
    namespace: String,
}

impl<'a> Scene<'a> {
    /// Makes a namespace for a case, and starts the controller.
    pub async fn open(environment: &'a Environment, case: &str) -> Result<Self> {
        let stem: String = case.replace('_', "-").chars().take(40).collect();
        let namespace = format!("{}-{}", stem.trim_end_matches('-'), environment.word);
        let scene = Self { environment, namespace };
        let nodes = scene.list_at("/api/v1/nodes").await?;
        ensure!(nodes.is_empty(), "the cluster has nodes ({}): cases bring their own", name(&nodes[0]));
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": scene.namespace}});
        scene.call("POST", "/api/v1/namespaces", Some(&namespace)).await?;
        let account = format!("/api/v1/namespaces/{}/serviceaccounts/default", scene.namespace);
        scene.eventually("service account of the namespace", async || scene.get_at(&account).await).await?;
        environment.controller.start().await?;
        Ok(scene)
    }

    /// Removes everything, and waits until no pod is left and no node, so that the next case finds an empty cluster.
    pub async fn close(self) -> Result<()> {
        self.environment.controller.start().await?;
        for kind in [WRAPPER, OLD_WRAPPER] {
            found(self.call("DELETE", &self.path(kind, ""), None).await)?;
        }
        let namespace = format!("/api/v1/namespaces/{}", self.namespace);
        self.eventually("removal of wrappers and pods", async || {
            let mut left = 0;
            for kind in [WRAPPER, OLD_WRAPPER] {
                left += self.list(kind).await?.len();
            }
            if left == 0 {
                self.call("DELETE", &self.path(POD, ""), None).await?;
            }
            Ok((left + self.list(POD).await?.len() == 0).then_some(()))
        })
        .await?;
        self.call("DELETE", &namespace, None).await?;
        // Whoever owns pods may have made others in between; the namespace is going, so these are the last.
        self.eventually("removal of pods", async || Ok(self.list(POD).await?.is_empty().then_some(())))
            .await?;
        self.call("DELETE", "/api/v1/nodes", None).await?;
        self.eventually("removal of nodes", async || {
            Ok(self.list_at("/api/v1/nodes").await?.is_empty().then_some(()))
        })
        .await
    }

    /// The namespace of this case.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The controller that is being tested.
    pub fn controller(&self) -> &dyn Controller {
        &*self.environment.controller
    }

    /// Lets something happen to the cluster, and returns when it answers again.
    pub async fn strike(&self, fault: Fault) -> Result<()> {
        self.environment.faults.strike(fault).await
    }

    /// Lets somebody who gets in the controller's way breathe between two writes.
    pub async fn breathe(&self) {
        sleep(self.environment.haste).await;
    }

    /// Adds a node with these resources, such as `cpu=4 nvidia.com/gpu=1`, and waits until it is ready.
    pub async fn node(&self, name: &str, resources: &str) -> Result<()> {
        let node = crate::objects::node(name, resources);
        self.call("POST", "/api/v1/nodes", Some(&node)).await?;
        let path = format!("/api/v1/nodes/{name}");
        self.eventually("a ready node", async || {
            Ok(self.get_at(&path).await?.filter(crate::objects::is_ready_node))
        })
        .await?;
        Ok(())
    }

    /// Creates an object, in the namespace of this case unless it names another.
    pub async fn create(&self, object: &Value) -> Result<Value> {
        let api_version = object["apiVersion"].as_str().unwrap_or_default();
        let kind = object["kind"].as_str().unwrap_or_default();
        let path = self.path_of(api_version, kind, "");
        // AppWrappers are served from when a controller has begun, which nobody waits for.
        let served = async || found(self.call("POST", &path, Some(object)).await);
        self.eventually(&format!("{api_version} {kind} in the API"), served).await
    }

    /// Creates objects, one after the other.
    pub async fn submit(&self, objects: impl IntoIterator<Item = Value>) -> Result<()> {
        for object in objects {
            self.create(&object).await?;
        }
        Ok(())
    }

    /// The words with which the API server refuses an object.
    pub async fn refusal(&self, object: &Value) -> Result<String> {
        match self.create(object).await {
            Ok(_) => bail!("the API server accepted {}", object["metadata"]["name"]),
            Err(error) => match error.downcast::<kube::Error>() {
                Ok(kube::Error::Api(status)) => Ok(status.message),
                Ok(error) => Err(error.into()),
                Err(error) => Err(error),
            },
        }
    }

    /// An object, if there is one of that name.
    pub async fn get(&self, kind: Kind, name: &str) -> Result<Option<Value>> {
        self.get_at(&self.path(kind, name)).await
    }

    /// All objects of a kind in the namespace of this case.
    pub async fn list(&self, kind: Kind) -> Result<Vec<Value>> {
        self.list_at(&self.path(kind, "")).await
    }

    /// Begins to delete an object, and what belongs to it.
    pub async fn delete(&self, kind: Kind, name: &str) -> Result<()> {
        self.call("DELETE", &self.path(kind, name), None).await?;
        Ok(())
    }

    /// Changes an object as it was read, or one of its subresources such as `/status`; whether nobody else wrote in between.
    pub async fn write(
        &self,
        kind: Kind,
        name: &str,
        subresource: &str,
        change: impl Fn(&mut Value),
    ) -> Result<bool> {
        let Some(mut object) = self.get(kind, name).await? else { return Ok(false) };
        change(&mut object);
        let path = format!("{}{subresource}", self.path(kind, name));
        match self.call("PUT", &path, Some(&object)).await {
            Ok(_) => Ok(true),
            Err(error) => match error.downcast_ref::<kube::Error>() {
                Some(kube::Error::Api(status)) if status.code == 409 => Ok(false),
                _ => Err(error),
            },
        }
    }

    /// What a watch of a kind answers that begins at a revision and has little time.
    pub async fn watch(&self, kind: Kind, revision: u64) -> Result<String> {
        let path = format!("{}?watch=1&timeoutSeconds=1&resourceVersion={revision}", self.path(kind, ""));
        let request = http::Request::get(path).body(Vec::new())?;
        match self.environment.client.request_text(request).await {
            Err(kube::Error::Api(status)) => Ok(serde_json::to_string(&status)?),
            answer => Ok(answer?),
        }
    }

    /// Waits until an object exists and looks like this.
    pub async fn wait(
        &self,
        kind: Kind,
        name: &str,
        what: &str,
        is_met: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        let what = format!("{} {name}: {what}", kind.1);
        let found = self.eventually(&what, async || Ok(self.get(kind, name).await?.filter(&is_met))).await;
        match found {
            Ok(found) => Ok(found),
            Err(error) => {
                let now = self.get(kind, name).await?.unwrap_or_default();
                let seen =
                    json!({"metadata": {"labels": now["metadata"]["labels"]}, "status": now["status"]});
                Err(error.context(format!("it is {}", serde_json::to_string_pretty(&seen)?)))
            }
        }
    }

    /// Waits until the objects of a kind look like this, as a whole.
    pub async fn wait_all(
        &self,
        kind: Kind,
        what: &str,
        is_met: impl Fn(&[Value]) -> bool,
    ) -> Result<Vec<Value>> {
        let what = format!("all of {}: {what}", kind.1);
        let found =
            self.eventually(&what, async || Ok(Some(self.list(kind).await?).filter(|all| is_met(all)))).await;
        match found {
            Ok(found) => Ok(found),
            Err(error) => Err(error.context(format!("there are {}", brief(&self.list(kind).await?)))),
        }
    }

    /// Waits until an object is gone.
    pub async fn wait_gone(&self, kind: Kind, name: &str) -> Result<()> {
        let what = format!("{} {name} is gone", kind.1);
        self.eventually(&what, async || Ok(self.get(kind, name).await?.is_none().then_some(()))).await
    }

    /// Waits until a wrapper is in this state, with this condition to rule, such as `Running/Dispatched`.
    pub async fn wait_state(&self, name: &str, state: &str) -> Result<Value> {
        let (state, condition) = state.split_once('/').context("a state and a condition")?;
        self.wait(WRAPPER, name, state, |wrapper| {
            wrapper["status"]["state"] == state && wrapper["status"]["queuejobstate"] == condition
        })
        .await
    }

    /// Waits until a wrapper waits for its place, and returns why.
    pub async fn wait_queued(&self, name: &str) -> Result<String> {
        let wrapper = self.wait_state(name, "Pending/Backoff").await?;
        Ok(wrapper["status"]["message"].as_str().unwrap_or_default().to_owned())
    }

    /// Waits until so many pods whose names begin like this run and are ready.
    pub async fn wait_pods(&self, prefix: &str, count: usize) -> Result<Vec<Value>> {
        self.wait_all(POD, &format!("{count} of {prefix} run"), |pods| {
            let of_prefix = pods.iter().filter(|pod| name(pod).starts_with(prefix));
            let (all, ready) =
                of_prefix.fold((0, 0), |(all, ready), pod| (all + 1, ready + usize::from(is_ready(pod))));
            all == count && ready == count
        })
        .await
    }

    /// Waits until a wrapper has an event of this reason, and returns what it says.
    pub async fn wait_event(&self, name: &str, reason: &str) -> Result<String> {
        let what = format!("event {reason} of {name}");
        self.eventually(&what, async || {
            let events = self.list(crate::objects::EVENT).await?;
            let found = events.iter().find(|e| e["involvedObject"]["name"] == name && e["reason"] == reason);
            Ok(found.map(|event| event["message"].as_str().unwrap_or_default().to_owned()))
        })
        .await
    }

    /// Fails if the objects of a kind stop to look like this for as long as a cluster is watched for what must not happen.
    pub async fn keeps(&self, kind: Kind, what: &str, is_met: impl Fn(&[Value]) -> bool) -> Result<()> {
        let end = Instant::now() + self.environment.quiet;
        while Instant::now() < end {
            let all = self.list(kind).await?;
            ensure!(is_met(&all), "no longer so: {what}; there are {}", brief(&all));
            sleep(self.environment.pause).await;
        }
        Ok(())
    }

    /// Looks again and again until there is an answer.
    pub async fn eventually<T>(&self, what: &str, look: impl AsyncFn() -> Result<Option<T>>) -> Result<T> {
        let begin = Instant::now();
        while begin.elapsed() < self.environment.patience {
            if let Some(found) = look().await? {
                return Ok(found);
            }
            sleep(self.environment.pause).await;
        }
        Err(anyhow!("waited {:?} in vain for: {what}", Duration::from_secs(begin.elapsed().as_secs())))
    }

    /// A request of any kind; the answer, or the refusal as `kube::Error`.
    pub async fn call(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value> {
        let options = json!({"propagationPolicy": "Background"});
        let body = body.or((method == "DELETE").then_some(&options));
        let content_type =
            if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let request = http::Request::builder().method(method).uri(path).header("Content-Type", content_type);
        let request = request.body(body.map_or_else(Vec::new, |body| body.to_string().into_bytes()))?;
        let text = self.environment.client.request_text(request).await?;
        Ok(serde_json::from_str(&text)?)
    }

    fn path(&self, kind: Kind, name: &str) -> String {
        self.path_of(kind.0, kind.1, name)
    }

    fn path_of(&self, api_version: &str, kind: &str, name: &str) -> String {
        let root = if api_version.contains('/') { "apis" } else { "api" };
        let path =
            format!("/{root}/{api_version}/namespaces/{}/{}s/{name}", self.namespace, kind.to_lowercase());
        path.trim_end_matches('/').to_owned()
    }

    async fn get_at(&self, path: &str) -> Result<Option<Value>> {
        found(self.call("GET", path, None).await)
    }

    async fn list_at(&self, path: &str) -> Result<Vec<Value>> {
        let mut list = self.get_at(path).await?.unwrap_or_default();
        Ok(list["items"].as_array_mut().map(std::mem::take).unwrap_or_default())
    }
}

impl Debug for Scene<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scene").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

/// Nothing, if the answer is that there is no such thing.
fn found(answer: Result<Value>) -> Result<Option<Value>> {
    match answer {
        Ok(object) => Ok(Some(object)),
        Err(error) => match error.downcast_ref::<kube::Error>() {
            Some(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            _ => Err(error),
        },
    }
}

fn is_ready(pod: &Value) -> bool {
    pod["status"]["phase"] == "Running"
        && pod["metadata"]["deletionTimestamp"].is_null()
        && crate::objects::has_condition(pod, "Ready")
}

/// Names, and phases or states, for messages.
fn brief(objects: &[Value]) -> String {
    let line = |object: &Value| {
        let status = ["phase", "state", "queuejobstate"].map(|field| object["status"][field].as_str());
        let words: Vec<&str> = [name(object)].into_iter().chain(status.into_iter().flatten()).collect();
        words.join(" ")
    };
    format!("{:?}", objects.iter().map(line).collect::<Vec<_>>())
}
