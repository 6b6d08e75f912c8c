//! An API server in memory with nodes, AppWrappers, and a Job controller and kubelets that take no time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use apiserver::{ApiServer, Reply, Service, User};
use futures::StreamExt as _;
use kube::api::DynamicObject;
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::WatchStreamExt as _;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// CPUs of a node, and pods of one CPU that it holds.
const NODE_CPUS: usize = 14;
const WRAPPERS: &str = "/apis/mcad.ibm.com/v1beta1/namespaces/default/appwrappers";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// The cluster, served on a port of the loopback interface.
pub(crate) struct Cluster {
    server: Server,
    pub(crate) address: String,
    nodes: usize,
    gang_pods: usize,
    pods: Arc<AtomicUsize>,
}

/// Requests without a socket.
#[derive(Clone)]
struct Server(Service);

impl Cluster {
    /// A cluster with as many AppWrappers as nodes.
    pub(crate) async fn start(nodes: usize, gang_pods: usize) -> Self {
        let service =
            Service::new(ApiServer::new(apiserver::Config::default()), Arc::new(jiff::Timestamp::now));
        let client = Client::new(service.clone(), "default");
        let groups = [api::appwrapper::Group::Mcad];
        controllers::install_crds(client.clone(), &groups, api::appwrapper::Columns::default())
            .await
            .expect("the definitions are installed");
        // An established definition is served shortly after.
        while !is_served(&client).await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let server = Server(service.clone());
        (0..nodes).for_each(|at| server.add_node(at));
        (0..nodes).for_each(|at| server.add_wrapper(at, gang_pods));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound").to_string();
        tokio::spawn(apiserver::serve(listener, service, None, std::future::pending()));
        let pods = Arc::<AtomicUsize>::default();
        tokio::spawn(run_jobs(client, server.clone(), pods.clone()));
        Self { server, address, nodes, gang_pods, pods }
    }

    /// The number of gangs that fit.
    pub(crate) fn fitting(&self) -> usize {
        (self.nodes * NODE_CPUS / self.gang_pods).min(self.nodes)
    }

    /// Waits until so many pods were created.
    pub(crate) async fn pods_run(&self, count: usize) {
        while self.pods.load(Ordering::Relaxed) < count {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Deletes the oldest AppWrapper and its pods.
    pub(crate) fn delete_one_gang(&self) {
        for at in 0..self.gang_pods {
            self.server.call("DELETE", &format!("{PODS}/gang-0-{at}?gracePeriodSeconds=0"), "", &Value::Null);
        }
        self.server.call("DELETE", &format!("{WRAPPERS}/gang-0"), "", &Value::Null);
    }
}

impl Server {
    fn call(&self, method: &str, path: &str, media: &str, body: &Value) -> Value {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        let request = http::Request::builder().method(method).uri(path).header("content-type", media);
        let request = request.body(text.into()).expect("the request is well-formed");
        let reply = self.0.with(|server, now| server.handle(now, &User::admin(), request));
        let Reply::Response(response) = reply else { return Value::Null };
        assert!(response.status().is_success(), "{method} {path}: {:?}", response.body());
        serde_json::from_slice(response.body()).unwrap_or_default()
    }

    fn create(&self, path: &str, object: &Value) -> Value {
        self.call("POST", path, "application/json", object)
    }

    fn patch_status(&self, path: &str, status: &Value) {
        let body = json!({ "status": status });
        self.call("PATCH", &format!("{path}/status"), "application/merge-patch+json", &body);
    }

    fn add_node(&self, at: usize) {
        let name = format!("node-{at}");
        let metadata = json!({ "name": name, "labels": { "kubernetes.io/hostname": name } });
        self.create("/api/v1/nodes", &json!({ "apiVersion": "v1", "kind": "Node", "metadata": metadata }));
        let amounts = json!({ "cpu": NODE_CPUS.to_string(), "memory": "256Gi", "pods": "110" });
        let ready = json!([{ "type": "Ready", "status": "True" }]);
        let status = json!({ "allocatable": amounts, "capacity": amounts, "conditions": ready });
        self.patch_status(&format!("/api/v1/nodes/{name}"), &status);
    }

    fn add_wrapper(&self, at: usize, pods: usize) {
        let name = format!("gang-{at}");
        let requests = json!({ "requests": { "cpu": "1", "memory": "1Gi" } });
        let container = json!({ "name": "main", "image": "none", "resources": requests });
        let template = json!({ "spec": { "restartPolicy": "Never", "containers": [container] } });
        let job = json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": name },
            "spec": { "parallelism": pods, "completions": pods, "template": template },
        });
        let items = json!([{ "replicas": 1, "completionstatus": "Complete", "generictemplate": job }]);
        let wrapper = json!({
            "apiVersion": "mcad.ibm.com/v1beta1", "kind": "AppWrapper", "metadata": { "name": name },
            "spec": { "resources": { "GenericItems": items } },
        });
        self.create(WRAPPERS, &wrapper);
    }

    /// Creates the pods of a Job, bound and running where its assignment says.
    fn run(&self, job: &DynamicObject) -> usize {
        let annotation = job.metadata.annotations.as_ref().and_then(|a| a.get("muster.dev/assignment"));
        let places: Vec<BTreeMap<String, usize>> =
            annotation.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        let nodes = places.iter().flatten().flat_map(|(node, count)| std::iter::repeat_n(node, *count));
        let template = &job.data["spec"]["template"];
        let name = job.metadata.name.as_deref().unwrap_or_default();
        let owner = json!([{ "apiVersion": "batch/v1", "kind": "Job", "name": name, "controller": true,
            "uid": job.metadata.uid }]);
        let mut count = 0;
        for (at, node) in nodes.enumerate() {
            let mut spec = template["spec"].clone();
            spec["nodeSelector"] = json!({ "kubernetes.io/hostname": node });
            spec["nodeName"] = json!(node);
            spec.as_object_mut().map(|spec| spec.remove("schedulingGates"));
            let pod = format!("{name}-{at}");
            let labels = &template["metadata"]["labels"];
            let metadata = json!({ "name": pod, "labels": labels, "ownerReferences": owner });
            self.create(
                PODS,
                &json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec }),
            );
            let conditions =
                json!([{ "type": "PodScheduled", "status": "True" }, { "type": "Ready", "status": "True" }]);
            let path = format!("{PODS}/{pod}");
            self.patch_status(&path, &json!({ "phase": "Running", "conditions": conditions }));
            count += 1;
        }
        self.patch_status(&format!("{JOBS}/{name}"), &json!({ "active": count }));
        count
    }
}

async fn is_served(client: &Client) -> bool {
    let list = http::Request::get(WRAPPERS).body(Vec::new()).expect("the request is well-formed");
    client.request::<Value>(list).await.is_ok()
}

/// Creates the pods of each Job that appears.
async fn run_jobs(client: Client, server: Server, pods: Arc<AtomicUsize>) {
    let kind = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("batch", "v1", "Job"), "jobs");
    let jobs = Api::<DynamicObject>::all_with(client, &kind);
    let changes = kube::runtime::watcher(jobs, kube::runtime::watcher::Config::default());
    let mut changes = std::pin::pin!(changes.default_backoff().applied_objects());
    while let Some(change) = changes.next().await {
        let Ok(job) = change else { continue };
        if job.data["status"]["active"].is_null() {
            pods.fetch_add(server.run(&job), Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
    }
}
