//! The fixture of one case on one cluster: its namespace, its nodes and objects, and waits for their expected state.

mod nodes;

use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::environment::{Controller, Environment};
use crate::faults::Fault;
use crate::objects::{Kind, OLD_WRAPPER, POD, WRAPPER, name};

/// The configuration of the webhook that reviews authors.
pub(crate) const WEBHOOK: &str =
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/muster";

/// The nodes of cases. The pods of an installation have a node of their own.
const NODES: &str = "/api/v1/nodes?labelSelector=!behaviour.muster.dev/installation";

/// The Service of the webhook of a controller that is a process.
const WEBHOOK_SERVICE: &str = "/api/v1/namespaces/muster/services/muster-webhook";

/// The fixture of a running case.
pub struct Fixture<'a> {
    environment: &'a Environment,
    namespace: String,
}

impl<'a> Fixture<'a> {
    /// Creates a namespace for a case, and starts the controller.
    pub async fn open(environment: &'a Environment, case: &str) -> Result<Self> {
        let stem: String = case.replace('_', "-").chars().take(40).collect();
        let namespace = format!("{}-{}", stem.trim_end_matches('-'), environment.run_id);
        let fixture = Self { environment, namespace };
        let nodes = fixture.list_at(NODES).await?;
        ensure!(
            nodes.is_empty(),
            "the cluster has nodes ({}), but cases create their own nodes",
            name(&nodes[0])
        );
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": fixture.namespace}});
        fixture.call("POST", "/api/v1/namespaces", Some(&namespace)).await?;
        let account = format!("/api/v1/namespaces/{}/serviceaccounts/default", fixture.namespace);
        fixture
            .eventually("service account of the namespace", async || fixture.get_at(&account).await)
            .await?;
        environment.controller.start().await?;
        Ok(fixture)
    }

    /// Deletes all objects and nodes of the case, and waits until the cluster is empty.
    pub async fn close(self) -> Result<()> {
        self.environment.controller.start().await?;
        // Left by a controller that reviewed authors. The one that runs now removes it, too, but may be killed before.
        found(self.call("DELETE", WEBHOOK, None).await)?;
        found(self.call("DELETE", WEBHOOK_SERVICE, None).await)?;
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
        // Controllers may have created further pods in the meantime. The namespace is terminating, so no others follow.
        self.eventually("removal of pods", async || Ok(self.list(POD).await?.is_empty().then_some(())))
            .await?;
        self.call("DELETE", "/api/v1/persistentvolumes", None).await?;
        self.call("DELETE", NODES, None).await?;
        self.eventually("removal of nodes", async || Ok(self.list_at(NODES).await?.is_empty().then_some(())))
            .await
    }

    /// The namespace of this case.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The timeout for an expected state.
    pub fn timeout(&self) -> Duration {
        self.environment.timeout
    }

    /// How long an unexpected state must not appear.
    pub fn stable_period(&self) -> Duration {
        self.environment.stable_period
    }

    /// The controller under test.
    pub fn controller(&self) -> &dyn Controller {
        &*self.environment.controller
    }

    /// Injects a fault, and returns when the API server answers again.
    pub async fn inject(&self, fault: Fault) -> Result<()> {
        self.environment.faults.inject(fault).await
    }

    /// Waits between two writes of a client that competes with the controller.
    pub async fn wait_write_interval(&self) {
        sleep(self.environment.write_interval).await;
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

    /// Creates an object in the namespace of this case.
    pub async fn create(&self, object: &Value) -> Result<Value> {
        let api_version = object["apiVersion"].as_str().unwrap_or_default();
        let kind = object["kind"].as_str().unwrap_or_default();
        let path = self.path_of(api_version, kind, "");
        // The API server serves AppWrappers only after the controller has installed the CRDs.
        let served = async || found(self.call("POST", &path, Some(object)).await);
        self.eventually(&format!("{api_version} {kind} in the API"), served).await
    }

    /// Creates objects in this order.
    pub async fn submit(&self, objects: impl IntoIterator<Item = Value>) -> Result<()> {
        for object in objects {
            self.create(&object).await?;
        }
        Ok(())
    }

    /// The message with which the API server rejects an object.
    pub async fn rejection(&self, object: &Value) -> Result<String> {
        match self.create(object).await {
            Ok(_) => bail!("the API server accepted {}", object["metadata"]["name"]),
            Err(error) => match error.downcast::<kube::Error>() {
                Ok(kube::Error::Api(status)) => Ok(status.message),
                Ok(error) => Err(error.into()),
                Err(error) => Err(error),
            },
        }
    }

    /// The object with this name, if it exists.
    pub async fn get(&self, kind: Kind, name: &str) -> Result<Option<Value>> {
        self.get_at(&self.path(kind, name)).await
    }

    /// All objects of a kind in the namespace of this case.
    pub async fn list(&self, kind: Kind) -> Result<Vec<Value>> {
        self.list_at(&self.path(kind, "")).await
    }

    /// Deletes an object with background propagation, and does not wait until it is gone.
    pub async fn delete(&self, kind: Kind, name: &str) -> Result<()> {
        self.call("DELETE", &self.path(kind, name), None).await?;
        Ok(())
    }

    /// Deletes an object without its dependents, and does not wait until it is gone.
    pub async fn orphan(&self, kind: Kind, name: &str) -> Result<()> {
        let options = json!({"propagationPolicy": "Orphan"});
        self.call("DELETE", &self.path(kind, name), Some(&options)).await?;
        Ok(())
    }

    /// Reads, changes and updates an object or a subresource such as `/status`. Returns `false` on a conflict, or when the object
    /// does not exist.
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

    /// Merges a patch into an object.
    pub async fn patch(&self, kind: Kind, name: &str, patch: &Value) -> Result<Value> {
        self.call("PATCH", &self.path(kind, name), Some(patch)).await
    }

    /// The response to a watch of one second from a resource version.
    pub async fn watch(&self, kind: Kind, revision: u64) -> Result<String> {
        let path = format!("{}?watch=1&timeoutSeconds=1&resourceVersion={revision}", self.path(kind, ""));
        let request = http::Request::get(path).body(Vec::new())?;
        match self.environment.client.request_text(request).await {
            Err(kube::Error::Api(status)) => Ok(serde_json::to_string(&status)?),
            answer => Ok(answer?),
        }
    }

    /// Waits until an object exists and meets a condition.
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
                Err(error.context(format!("the object is {}", serde_json::to_string_pretty(&seen)?)))
            }
        }
    }

    /// Waits until the list of objects of a kind meets a condition.
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
            Err(error) => Err(error.context(format!("the objects are {}", brief(&self.list(kind).await?)))),
        }
    }

    /// Waits until an object no longer exists.
    pub async fn wait_gone(&self, kind: Kind, name: &str) -> Result<()> {
        let what = format!("{} {name} is gone", kind.1);
        self.eventually(&what, async || Ok(self.get(kind, name).await?.is_none().then_some(()))).await
    }

    /// Waits until a wrapper has this `state` and `queuejobstate`, such as `Running/Dispatched`.
    pub async fn wait_state(&self, name: &str, state: &str) -> Result<Value> {
        let (state, condition) = state.split_once('/').context("a state and a condition")?;
        self.wait(WRAPPER, name, state, |wrapper| {
            wrapper["status"]["state"] == state && wrapper["status"]["queuejobstate"] == condition
        })
        .await
    }

    /// Waits until a wrapper is pending with `Backoff`, and returns its status message.
    pub async fn wait_queued(&self, name: &str) -> Result<String> {
        let wrapper = self.wait_state(name, "Pending/Backoff").await?;
        Ok(wrapper["status"]["message"].as_str().unwrap_or_default().to_owned())
    }

    /// Waits until there are exactly `count` pods with this name prefix, and all are ready.
    pub async fn wait_pods(&self, prefix: &str, count: usize) -> Result<Vec<Value>> {
        self.wait_all(POD, &format!("{count} pods of {prefix} are ready"), |pods| {
            let of_prefix = pods.iter().filter(|pod| name(pod).starts_with(prefix));
            let (all, ready) =
                of_prefix.fold((0, 0), |(all, ready), pod| (all + 1, ready + usize::from(is_ready(pod))));
            all == count && ready == count
        })
        .await
    }

    /// Waits until a wrapper has an event with this reason, and returns its message.
    pub async fn wait_event(&self, name: &str, reason: &str) -> Result<String> {
        let what = format!("event {reason} of {name}");
        self.eventually(&what, async || {
            let events = self.list(crate::objects::EVENT).await?;
            let found = events.iter().find(|e| e["involvedObject"]["name"] == name && e["reason"] == reason);
            Ok(found.map(|event| event["message"].as_str().unwrap_or_default().to_owned()))
        })
        .await
    }

    /// Fails if the list of objects of a kind stops to meet a condition during the stable period.
    pub async fn keeps(&self, kind: Kind, what: &str, is_met: impl Fn(&[Value]) -> bool) -> Result<()> {
        let end = Instant::now() + self.environment.stable_period;
        while Instant::now() < end {
            let all = self.list(kind).await?;
            ensure!(is_met(&all), "no longer true: {what}; the objects are {}", brief(&all));
            sleep(self.environment.poll_interval).await;
        }
        Ok(())
    }

    /// Polls until there is a value, or until the timeout.
    pub async fn eventually<T>(&self, what: &str, poll: impl AsyncFn() -> Result<Option<T>>) -> Result<T> {
        let begin = Instant::now();
        while begin.elapsed() < self.environment.timeout {
            if let Some(found) = poll().await? {
                return Ok(found);
            }
            sleep(self.environment.poll_interval).await;
        }
        Err(anyhow!("timed out after {:?}: {what}", Duration::from_secs(begin.elapsed().as_secs())))
    }

    /// Sends a request. Returns the response body, or the error status as `kube::Error`.
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

    /// Sends a request as a user, with this content type. Returns the response body, or the message of the refusal.
    pub async fn call_as(
        &self,
        user: &str,
        method: &str,
        path: &str,
        (content_type, body): (&str, &Value),
    ) -> Result<std::result::Result<Value, String>> {
        let request = http::Request::builder().method(method).uri(path);
        let request = request.header("Content-Type", content_type).header("Impersonate-User", user);
        let request = request.body(body.to_string().into_bytes())?;
        match self.environment.client.request_text(request).await {
            Ok(text) => Ok(Ok(serde_json::from_str(&text)?)),
            Err(kube::Error::Api(status)) => Ok(Err(status.message)),
            Err(error) => Err(error.into()),
        }
    }

    /// The path of an object in the namespace of this case, or of the collection.
    pub fn path(&self, kind: Kind, name: &str) -> String {
        self.path_of(kind.0, kind.1, name)
    }

    fn path_of(&self, api_version: &str, kind: &str, name: &str) -> String {
        let root = if api_version.contains('/') { "apis" } else { "api" };
        let namespace = match kind {
            "Node"
            | "PersistentVolume"
            | "CustomResourceDefinition"
            | "ClusterQueue"
            | "ResourceFlavor"
            | "WorkloadPriorityClass" => String::new(),
            _ => format!("/namespaces/{}", self.namespace),
        };
        let kind = kind.to_lowercase();
        let plural = if kind.ends_with('s') { "es" } else { "s" };
        let path = format!("/{root}/{api_version}{namespace}/{kind}{plural}/{name}");
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

impl Debug for Fixture<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fixture").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

/// Converts the error 404 to `None`.
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

/// The names and phases or states of objects, for messages.
fn brief(objects: &[Value]) -> String {
    let line = |object: &Value| {
        let status = ["phase", "state", "queuejobstate"].map(|field| object["status"][field].as_str());
        let words: Vec<&str> = [name(object)].into_iter().chain(status.into_iter().flatten()).collect();
        words.join(" ")
    };
    format!("{:?}", objects.iter().map(line).collect::<Vec<_>>())
}
