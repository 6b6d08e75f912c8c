//! An in-memory cluster for tests: an API server without sockets, nodes, the kinds that examples wrap, and
//! controllers whose plans are all audited. Time is virtual.

#![allow(dead_code, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

pub(crate) mod elastic;
pub(crate) mod gang_pods;
pub(crate) mod jobs;
pub(crate) mod kueue;
pub(crate) mod mortal;
pub(crate) mod queued_pods;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use controllers::{Clock, Config, Controller, install_crds};
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind, TypeMeta};
use kube::runtime::wait::await_condition;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tower::{Service as _, ServiceExt};

pub(crate) use api::appwrapper::Group;

/// Timeout of a condition in virtual time.
const PATIENCE: Duration = Duration::from_mins(10);

pub(crate) struct Cluster {
    pub(crate) client: Client,
    pub(crate) service: apiserver::Service,
    pub(crate) clock: Clock,
    violations: Arc<Mutex<Vec<String>>>,
}

/// A client whose connection can be cut.
pub(crate) struct Connection {
    pub(crate) client: Client,
    is_cut: Arc<AtomicBool>,
    failed: Arc<AtomicUsize>,
}

impl Connection {
    /// The number of requests that have failed because the connection was cut.
    pub(crate) fn failed(&self) -> usize {
        self.failed.load(Ordering::Relaxed)
    }

    /// All requests fail from now on. Running watches continue until the server ends them.
    pub(crate) fn cut(&self) {
        self.is_cut.store(true, Ordering::Relaxed);
    }

    pub(crate) fn restore(&self) {
        self.is_cut.store(false, Ordering::Relaxed);
    }
}

/// A running controller, stopped when dropped.
pub(crate) struct Running {
    task: JoinHandle<()>,
    pub(crate) index: Arc<std::sync::RwLock<index::Index>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A resource from its kind and plural name.
pub(crate) fn resource(api_version: &str, kind: &str, plural: &str) -> ApiResource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

pub(crate) fn wrappers(group: Group) -> ApiResource {
    resource(&group.api_version(), "AppWrapper", "appwrappers")
}

pub(crate) fn ray_clusters() -> ApiResource {
    resource("ray.io/v1alpha1", "RayCluster", "rayclusters")
}

pub(crate) fn config_maps() -> ApiResource {
    resource("v1", "ConfigMap", "configmaps")
}

/// A manifest from the folder of examples.
pub(crate) fn example(name: &str) -> Value {
    let path = format!("{}/../../examples/{name}", env!("CARGO_MANIFEST_DIR"));
    serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// The same AppWrapper in the older API group.
pub(crate) fn of_mcad(mut wrapper: Value) -> Value {
    wrapper["apiVersion"] = json!(Group::Mcad.api_version());
    wrapper
}

/// The same AppWrapper with another name, also of its first object.
pub(crate) fn renamed(mut wrapper: Value, name: &str, object: &str) -> Value {
    wrapper["metadata"]["name"] = json!(name);
    wrapper["spec"]["resources"]["GenericItems"][0]["generictemplate"]["metadata"]["name"] = json!(object);
    wrapper
}

impl Cluster {
    /// An empty cluster that serves both AppWrapper groups and Ray clusters.
    pub(crate) async fn new() -> Self {
        let cluster = Self::bare();
        cluster.define("ray.io", "RayCluster", "rayclusters", &["v1", "v1alpha1"]).await;
        install_crds(cluster.client.clone(), &Group::ALL, api::appwrapper::Columns::default()).await.unwrap();
        cluster
    }

    /// An empty cluster.
    pub(crate) fn bare() -> Self {
        let (started, epoch) =
            (tokio::time::Instant::now(), jiff::Timestamp::from_second(1_700_000_000).unwrap());
        let clock: Clock = Arc::new(move || epoch + started.elapsed());
        let service =
            apiserver::Service::new(apiserver::ApiServer::new(apiserver::Config::default()), clock.clone());
        Self { client: Client::new(service.clone(), "default"), service, clock, violations: Arc::default() }
    }

    /// The two default nodes of the sandbox.
    pub(crate) async fn default_nodes(&self) {
        self.node("gpu", &json!({"cpu": "16", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": "2"})).await;
        self.node("cpu", &json!({"cpu": "16", "memory": "64Gi", "pods": "110"})).await;
    }

    pub(crate) async fn node(&self, name: &str, allocatable: &Value) {
        let nodes = self.api(&resource("v1", "Node", "nodes"), "");
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
        let conditions = json!([{"type": "Ready", "status": "True"}]);
        let status = json!({"status": {"allocatable": allocatable, "capacity": allocatable, "conditions": conditions}});
        nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    }

    /// Installs a CRD without validation, with a status subresource.
    pub(crate) async fn define(&self, group: &str, kind: &str, plural: &str, versions: &[&str]) {
        self.define_with(group, kind, plural, versions, &json!({"status": {}})).await;
    }

    /// Installs a CRD without validation.
    pub(crate) async fn define_with(
        &self,
        group: &str,
        kind: &str,
        plural: &str,
        versions: &[&str],
        subresources: &Value,
    ) {
        let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let version = |(at, name): (usize, &&str)| {
            json!({"name": name, "served": true, "storage": at == 0, "subresources": subresources,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": open, "status": open}}}})
        };
        let versions: Vec<_> = versions.iter().enumerate().map(version).collect();
        let name = format!("{plural}.{group}");
        // Kubernetes protects the groups of its own domain.
        let annotations = json!({"api-approved.kubernetes.io": "unapproved, for a test"});
        let metadata = json!({"name": name, "annotations": annotations});
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": metadata,
            "spec": {"group": group, "scope": "Namespaced", "versions": versions,
                "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List")}},
        });
        let definitions =
            resource("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions");
        self.create_as(&definitions, "", definition).await;
        self.wait(&definitions, "", &name, |definition| {
            let conditions = definition.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().any(|c| c["type"] == "Established" && c["status"] == "True")
        })
        .await;
    }

    /// A separate client whose connection can be cut.
    pub(crate) fn connection(&self) -> Connection {
        let (is_cut, failed) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let (cut, count, service) = (is_cut.clone(), failed.clone(), self.service.clone());
        let client = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let (cut, count, service) = (cut.clone(), count.clone(), service.clone());
            async move {
                if cut.load(Ordering::Relaxed) {
                    count.fetch_add(1, Ordering::Relaxed);
                    return Err(std::io::Error::other("cut off"));
                }
                Ok(service.oneshot(request).await.unwrap())
            }
        });
        Connection { client: Client::new(client, "default"), is_cut, failed }
    }

    /// A client whose writes take so long.
    pub(crate) fn slow_client(&self, pause: Duration) -> Client {
        let service = self.service.clone();
        let client = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let service = service.clone();
            async move {
                if request.method() != http::Method::GET {
                    tokio::time::sleep(pause).await;
                }
                service.oneshot(request).await
            }
        });
        Client::new(client, "default")
    }

    /// Starts a controller with this cluster's client.
    pub(crate) fn controller(&self) -> Running {
        self.controller_over(self.client.clone())
    }

    /// Starts a controller that reaches the API server through `client`.
    pub(crate) fn controller_over(&self, client: Client) -> Running {
        self.controller_with(client, false)
    }

    /// Starts a controller with preemption.
    pub(crate) fn preempting_controller(&self) -> Running {
        self.controller_with(self.client.clone(), true)
    }

    /// Starts a controller that reaches the API server through `client`.
    pub(crate) fn controller_with(&self, client: Client, preemption: bool) -> Running {
        self.start(client, Config { preemption, ..Config::default() })
    }

    /// Starts a controller with this configuration. It uses the clock of the cluster, and every plan is audited.
    pub(crate) fn start(&self, client: Client, config: Config) -> Running {
        let config = Config { clock: self.clock.clone(), inspect: Some(self.inspect()), ..config };
        let controller = Controller::new(client, config);
        let index = controller.index();
        let task = tokio::spawn(async move { controller.run(std::future::pending()).await.unwrap() });
        Running { task, index }
    }

    /// Audits every plan of a controller.
    pub(crate) fn inspect(&self) -> controllers::Inspect {
        let violations = self.violations.clone();
        Arc::new(move |snapshot, plan| {
            let found = audit::violations(snapshot, plan);
            if !found.is_empty() {
                // A test of the planner can begin with it.
                eprintln!(
                    "the auditor disagrees at {}:\n{}",
                    snapshot.now.0,
                    scenario::render(snapshot.world)
                );
            }
            violations.lock().unwrap().extend(found.iter().map(|violation| format!("{violation:?}")));
        })
    }

    /// Changes labels and annotations of a Namespace.
    pub(crate) async fn annotate_namespace(&self, name: &str, metadata: &Value) {
        let namespaces = self.api(&resource("v1", "Namespace", "namespaces"), "");
        let patch = Patch::Merge(json!({"metadata": metadata}));
        namespaces.patch(name, &PatchParams::default(), &patch).await.unwrap();
        self.settled().await;
    }

    pub(crate) fn api(&self, resource: &ApiResource, namespace: &str) -> Api<DynamicObject> {
        match namespace {
            "" => Api::all_with(self.client.clone(), resource),
            _ => Api::namespaced_with(self.client.clone(), namespace, resource),
        }
    }

    pub(crate) async fn create_as(
        &self,
        resource: &ApiResource,
        namespace: &str,
        object: Value,
    ) -> DynamicObject {
        let object = serde_json::from_value(object).unwrap();
        self.api(resource, namespace).create(&PostParams::default(), &object).await.unwrap()
    }

    /// Creates an AppWrapper in its namespace, by default in `default`.
    pub(crate) async fn submit(&self, wrapper: Value) -> DynamicObject {
        let group: Group =
            wrapper["apiVersion"].as_str().unwrap().split('/').next().unwrap().parse().unwrap();
        let namespace = wrapper["metadata"]["namespace"].as_str().unwrap_or("default").to_owned();
        self.create_as(&wrappers(group), &namespace, wrapper).await
    }

    /// Submits a gang of one object without pods.
    pub(crate) async fn submit_config_map(&self, name: &str) {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        let wrapper = json!({
            "apiVersion": Group::Mcad.api_version(), "kind": "AppWrapper", "metadata": {"name": name},
            "spec": {"resources": {"GenericItems": [{"replicas": 1, "generictemplate": object}]}},
        });
        self.submit(wrapper).await;
    }

    /// Waits until an object exists and satisfies the predicate.
    pub(crate) async fn wait(
        &self,
        resource: &ApiResource,
        namespace: &str,
        name: &str,
        is_met: impl Fn(&DynamicObject) -> bool,
    ) -> DynamicObject {
        let api = self.api(resource, namespace);
        let condition = |object: Option<&DynamicObject>| object.is_some_and(&is_met);
        if let Ok(found) = tokio::time::timeout(PATIENCE, await_condition(api.clone(), name, condition)).await
        {
            let mut found = found.unwrap().unwrap();
            // Items of a list have no `kind` and `apiVersion`.
            found.types.get_or_insert_with(|| TypeMeta {
                api_version: resource.api_version.clone(),
                kind: resource.kind.clone(),
            });
            return found;
        }
        let now = api.get_opt(name).await.unwrap();
        panic!("{} {name} did not reach the expected state: {}", resource.kind, pretty(&now));
    }

    /// Waits until the status of an AppWrapper in `default` has this `state` and `queuejobstate`.
    pub(crate) async fn wait_state(
        &self,
        group: Group,
        name: &str,
        state: &str,
        queuejobstate: &str,
    ) -> Value {
        let is_reached = |wrapper: &DynamicObject| {
            wrapper.data["status"]["state"] == state
                && wrapper.data["status"]["queuejobstate"] == queuejobstate
        };
        self.wait(&wrappers(group), "default", name, is_reached).await.data["status"].clone()
    }

    /// Waits until all tasks are idle: only then does virtual time advance.
    pub(crate) async fn settled(&self) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    /// Waits until an object is deleted.
    pub(crate) async fn wait_gone(&self, resource: &ApiResource, namespace: &str, name: &str) {
        let api = self.api(resource, namespace);
        let gone = |object: Option<&DynamicObject>| object.is_none();
        tokio::time::timeout(PATIENCE, await_condition(api, name, gone))
            .await
            .expect("the object was not deleted")
            .unwrap();
    }

    pub(crate) async fn delete(&self, resource: &ApiResource, namespace: &str, name: &str) {
        self.api(resource, namespace).delete(name, &DeleteParams::background()).await.unwrap();
    }

    /// Deletes an object with a grace period of zero.
    pub(crate) async fn delete_now(&self, resource: &ApiResource, namespace: &str, name: &str) {
        let params = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::background() };
        match self.api(resource, namespace).delete(name, &params).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => panic!("{name} cannot be deleted: {error}"),
        }
    }

    /// Names of all objects of a kind in a namespace.
    pub(crate) async fn names(&self, resource: &ApiResource, namespace: &str) -> Vec<String> {
        let list = self.api(resource, namespace).list(&ListParams::default()).await.unwrap();
        list.items.into_iter().filter_map(|object| object.metadata.name).collect()
    }

    /// Reasons and messages of the Events about AppWrappers, oldest first.
    pub(crate) async fn events(&self) -> Vec<String> {
        let list =
            self.api(&resource("v1", "Event", "events"), "").list(&ListParams::default()).await.unwrap();
        let text = |event: &DynamicObject| {
            let field = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let about = field(&event.data["involvedObject"]["name"]);
            format!("{about} {}: {}", field(&event.data["reason"]), field(&event.data["message"]))
        };
        list.items.iter().filter(|event| event.data["source"]["component"] == "muster").map(text).collect()
    }

    /// All violations that the auditor has found so far.
    pub(crate) fn violations(&self) -> Vec<String> {
        self.violations.lock().unwrap().clone()
    }

    /// The same; they do not fail the test any more.
    pub(crate) fn take_violations(&self) -> Vec<String> {
        std::mem::take(&mut *self.violations.lock().unwrap())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.violations(), Vec::<String>::new(), "the auditor disagrees with a plan");
        }
    }
}

pub(crate) fn pretty(value: &impl serde::Serialize) -> String {
    serde_json::to_string_pretty(value).unwrap()
}

/// Types, reasons and messages of the conditions, one line each; without the digest of the places.
pub(crate) fn story(status: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let line = |c: &Value| format!("{} {} {}", text(&c["type"]), text(&c["reason"]), text(&c["message"]));
    let all = status["conditions"].as_array().into_iter().flatten();
    let of_mcad =
        all.filter(|condition| condition["type"] != "PlacesReserved" && condition["type"] != "NodesAvoided");
    of_mcad.map(|condition| line(condition).trim_end().to_owned()).collect()
}

/// The reason of a pending AppWrapper, without its position and expected start.
pub(crate) fn reason(status: &Value) -> &str {
    let message = status["message"].as_str().unwrap_or_default();
    message.split_once(". Position ").map_or(message, |(reason, _)| reason)
}

/// A status without conditions and timestamps.
pub(crate) fn rest(status: &Value) -> Value {
    let mut status = status.clone();
    status.as_object_mut().unwrap().retain(|key, _| key != "conditions" && !key.ends_with("timestamp"));
    status
}

/// A client that records every write.
pub(crate) fn recording(cluster: &Cluster) -> (Client, Arc<Mutex<Vec<String>>>) {
    let writes: Arc<Mutex<Vec<String>>> = Arc::default();
    let (service, notes) = (cluster.service.clone(), writes.clone());
    let connection = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        if request.method() != http::Method::GET {
            notes.lock().unwrap().push(format!("{} {}", request.method(), request.uri().path()));
        }
        let mut service = service.clone();
        async move { service.call(request).await }
    });
    (Client::new(connection, "default"), writes)
}
