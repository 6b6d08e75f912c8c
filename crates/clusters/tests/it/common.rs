//! A hub and its workers in memory, without sockets; time is virtual. The tests play the controllers of the jobs.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::kueue::jobs::JOB_KINDS;
use clusters::{Clusters, ClustersConfig};
use controllers::{Clock, Config, Controller, JobsConfig, Kueue, install_kueue_crds};
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::wait::await_condition;
use kube::{Api, Client};
use sandbox::Sandbox;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tower::ServiceExt as _;

/// Timeout of a condition in virtual time.
const PATIENCE: Duration = Duration::from_mins(40);
const VERSION: &str = "kueue.x-k8s.io/v1beta2";
pub(crate) const CHECK: &str = "remote";

/// A task that ends with its value.
pub(crate) struct Running(JoinHandle<()>);

impl Running {
    pub(crate) fn spawn(task: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(task))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The end of a connection, at a write.
#[derive(Clone, Default)]
pub(crate) struct Death {
    written: Arc<AtomicUsize>,
    lifetime: Option<usize>,
    pub(crate) knell: Arc<Notify>,
}

impl Death {
    pub(crate) fn after_writes(lifetime: usize) -> Self {
        Self { lifetime: Some(lifetime), ..Self::default() }
    }

    /// The number of writes so far.
    pub(crate) fn written(&self) -> usize {
        self.written.load(Ordering::SeqCst)
    }

    /// Whether a request is still sent, and whether its answer arrives.
    fn judge(&self, is_write: bool) -> (bool, bool) {
        let Some(lifetime) = self.lifetime else {
            self.written.fetch_add(usize::from(is_write), Ordering::SeqCst);
            return (true, true);
        };
        if !is_write && self.written.load(Ordering::SeqCst) < lifetime {
            return (true, true);
        }
        let nth = self.written.fetch_add(1, Ordering::SeqCst) + 1;
        (nth <= lifetime, nth < lifetime)
    }
}

/// The line from the hub to a cluster.
struct Line {
    service: Mutex<apiserver::Service>,
    is_cut: AtomicBool,
    /// Of three writes, one is lost, and the answer of another one.
    is_lossy: AtomicBool,
    writes: AtomicUsize,
}

impl Line {
    fn new(service: apiserver::Service) -> Self {
        let (is_cut, is_lossy) = (AtomicBool::default(), AtomicBool::default());
        Self { service: Mutex::new(service), is_cut, is_lossy, writes: AtomicUsize::default() }
    }

    fn service(&self) -> apiserver::Service {
        self.service.lock().unwrap().clone()
    }

    /// Whether a request is still sent, and whether its answer arrives.
    fn judge(&self, is_write: bool) -> (bool, bool) {
        if !is_write || !self.is_lossy.load(Ordering::Relaxed) {
            return (true, true);
        }
        let nth = self.writes.fetch_add(1, Ordering::Relaxed) % 3;
        (nth != 0, nth == 2)
    }
}

/// A cluster with Kueue's kinds.
pub(crate) struct Cluster {
    pub(crate) client: Client,
    clock: Clock,
    line: Arc<Line>,
}

pub(crate) fn resource(api_version: &str, kind: &str, plural: &str) -> ApiResource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

pub(crate) fn kueue(kind: &str, plural: &str) -> ApiResource {
    resource(VERSION, kind, plural)
}

pub(crate) fn workloads() -> ApiResource {
    kueue("Workload", "workloads")
}

pub(crate) fn jobs() -> ApiResource {
    resource("batch/v1", "Job", "jobs")
}

impl Cluster {
    async fn new(clock: &Clock, seed: u64) -> Self {
        let server = apiserver::ApiServer::new(apiserver::Config { seed, ..apiserver::Config::default() });
        let service = apiserver::Service::new(server, clock.clone());
        let client = Client::new(service.clone(), "default");
        let cluster = Self { client, clock: clock.clone(), line: Arc::new(Line::new(service)) };
        cluster.install().await;
        cluster
    }

    async fn install(&self) {
        let conversion = json!({"url": "https://127.0.0.1:1/convert", "caBundle": ""});
        install_kueue_crds(self.client.clone(), &conversion).await.unwrap();
        self.create(&kueue("ResourceFlavor", "resourceflavors"), "", "default", json!({"spec": {}})).await;
    }

    /// Nothing is left of it: another cluster answers at its address.
    pub(crate) async fn reset(&mut self, seed: u64, cpus: u32) {
        let fresh = Self::new(&self.clock, seed).await;
        fresh.queue(cpus, json!({})).await;
        let before = std::mem::replace(&mut *self.line.service.lock().unwrap(), fresh.line.service());
        before.with(|server, _| server.restart());
        self.client = fresh.client;
    }

    /// A client that can be cut, and dies with a certain write.
    pub(crate) fn connection(&self, death: &Death) -> Client {
        let (line, death) = (self.line.clone(), death.clone());
        let client = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let (line, death) = (line.clone(), death.clone());
            async move {
                if line.is_cut.load(Ordering::Relaxed) {
                    return Err(std::io::Error::other("cut off"));
                }
                let is_write = request.method() != http::Method::GET;
                let (is_sent, is_answered) = death.judge(is_write);
                if is_sent {
                    let (is_carried, is_carried_back) = line.judge(is_write);
                    let answer =
                        if is_carried { Some(line.service().oneshot(request).await.unwrap()) } else { None };
                    if is_answered {
                        let lost = || std::io::Error::other("the connection was reset");
                        return answer.filter(|_| is_carried_back).ok_or_else(lost);
                    }
                    death.knell.notify_one();
                }
                std::future::pending().await
            }
        });
        Client::new(client, "default")
    }

    /// All requests of connections fail from now on, and their watches end.
    pub(crate) fn cut(&self) {
        self.line.is_cut.store(true, Ordering::Relaxed);
        self.line.service().with(|server, _| server.restart());
    }

    pub(crate) fn restore(&self) {
        self.line.is_cut.store(false, Ordering::Relaxed);
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.line.is_cut.load(Ordering::Relaxed)
    }

    /// Whether writes and answers of connections are lost.
    pub(crate) fn lose(&self, is_lossy: bool) {
        self.line.is_lossy.store(is_lossy, Ordering::Relaxed);
    }

    pub(crate) fn api(&self, resource: &ApiResource, namespace: &str) -> Api<DynamicObject> {
        match namespace {
            "" => Api::all_with(self.client.clone(), resource),
            _ => Api::namespaced_with(self.client.clone(), namespace, resource),
        }
    }

    pub(crate) async fn create(
        &self,
        resource: &ApiResource,
        namespace: &str,
        name: &str,
        mut object: Value,
    ) {
        object["apiVersion"] = resource.api_version.clone().into();
        object["kind"] = resource.kind.clone().into();
        object["metadata"]["name"] = name.into();
        let object = serde_json::from_value(object).unwrap();
        self.api(resource, namespace).create(&PostParams::default(), &object).await.unwrap();
    }

    /// A queue `team` of so many CPUs, with further fields of its spec.
    async fn queue(&self, cpus: u32, more: Value) {
        let flavor = json!({"name": "default", "resources": [{"name": "cpu", "nominalQuota": cpus}]});
        let mut spec = json!({"namespaceSelector": {},
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [flavor]}]});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.create(&kueue("ClusterQueue", "clusterqueues"), "", "team", json!({ "spec": spec })).await;
        let local = json!({"spec": {"clusterQueue": "team"}});
        self.create(&kueue("LocalQueue", "localqueues"), "default", "team", local).await;
    }

    /// Admits Workloads, starts and stops jobs.
    pub(crate) fn controller(&self, client: Client) -> Running {
        let jobs = JobsConfig { kinds: JOB_KINDS.iter().collect(), ..JobsConfig::default() };
        let config = Config {
            groups: Vec::new(),
            kueue: Kueue::Scheduler,
            jobs,
            clock: self.clock.clone(),
            ..Config::default()
        };
        let controller = Controller::new(client, config);
        Running(tokio::spawn(async move { controller.run(std::future::pending()).await.unwrap() }))
    }

    /// Waits until an object exists and satisfies the predicate.
    pub(crate) async fn wait(
        &self,
        resource: &ApiResource,
        name: &str,
        is_met: impl Fn(&DynamicObject) -> bool,
    ) -> DynamicObject {
        let is_shared = resource.group == "kueue.x-k8s.io" && resource.plural != "workloads";
        let namespace = if is_shared { "" } else { "default" };
        let api = self.api(resource, namespace);
        let condition = |object: Option<&DynamicObject>| object.is_some_and(&is_met);
        let waiting = tokio::time::timeout(PATIENCE, await_condition(api.clone(), name, condition));
        if let Ok(found) = waiting.await {
            return found.unwrap().unwrap();
        }
        let now = api.get_opt(name).await.unwrap();
        panic!("{} {name}: {}", resource.kind, serde_json::to_string_pretty(&now).unwrap());
    }

    /// Waits until an object is gone.
    pub(crate) async fn gone(&self, resource: &ApiResource, name: &str) {
        let api = self.api(resource, "default");
        let gone = await_condition(api, name, |object: Option<&DynamicObject>| object.is_none());
        tokio::time::timeout(PATIENCE, gone).await.unwrap_or_else(|_| panic!("{name} is there")).unwrap();
    }

    pub(crate) async fn get(&self, resource: &ApiResource, name: &str) -> Option<DynamicObject> {
        self.api(resource, "default").get_opt(name).await.unwrap()
    }

    pub(crate) async fn names(&self, resource: &ApiResource) -> Vec<String> {
        let list = self.api(resource, "default").list(&ListParams::default()).await.unwrap();
        list.items.into_iter().map(|object| object.metadata.name.unwrap()).collect()
    }

    pub(crate) async fn merge(&self, resource: &ApiResource, namespace: &str, name: &str, patch: Value) {
        let api = self.api(resource, namespace);
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    pub(crate) async fn merge_status(&self, resource: &ApiResource, name: &str, status: Value) {
        let patch = Patch::Merge(json!({ "status": status }));
        self.api(resource, "default").patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }

    pub(crate) async fn delete(&self, resource: &ApiResource, namespace: &str, name: &str) {
        self.api(resource, namespace).delete(name, &DeleteParams::background()).await.unwrap();
    }

    /// The Job of the hub ends here.
    pub(crate) async fn complete(&self, name: &str) {
        let complete = json!({"type": "Complete", "status": "True", "message": "all done", "reason": "CompletionsReached"});
        self.merge_status(&jobs(), name, json!({"active": 0, "succeeded": 1, "conditions": [complete]}))
            .await;
    }

    /// The texts of all Events: reason and message.
    pub(crate) async fn events(&self) -> Vec<String> {
        let list =
            self.api(&resource("v1", "Event", "events"), "").list(&ListParams::default()).await.unwrap();
        let text = |event: &DynamicObject| {
            format!("{}: {}", event.data["reason"].as_str().unwrap(), event.data["message"].as_str().unwrap())
        };
        list.items.iter().map(text).collect()
    }
}

pub(crate) fn condition<'a>(object: &'a DynamicObject, kind: &str) -> Option<&'a Value> {
    object.data["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

pub(crate) fn is(object: &DynamicObject, kind: &str, status: &str, reason: &str) -> bool {
    condition(object, kind).is_some_and(|known| known["status"] == status && known["reason"] == reason)
}

pub(crate) fn kubeconfig(server: &str) -> String {
    json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]})
    .to_string()
}

/// A hub with a queue whose Workloads run in workers.
pub(crate) struct World {
    pub(crate) hub: Cluster,
    pub(crate) workers: BTreeMap<&'static str, Cluster>,
    pub(crate) clock: Clock,
    running: BTreeMap<&'static str, Running>,
}

impl World {
    /// Workers with so many CPUs each, with their controllers.
    pub(crate) async fn new(workers: &[(&'static str, u32)]) -> Self {
        let (started, epoch) =
            (tokio::time::Instant::now(), jiff::Timestamp::from_second(1_700_000_000).unwrap());
        let clock: Clock = Arc::new(move || epoch + started.elapsed());
        let hub = Cluster::new(&clock, 0).await;
        let namespaces = resource("v1", "Namespace", "namespaces");
        hub.create(&namespaces, "", "kueue-system", json!({})).await;
        let mut world = Self { hub, workers: BTreeMap::new(), clock, running: BTreeMap::new() };
        // No two clusters have an object of the same uid.
        for ((name, cpus), seed) in workers.iter().zip(1..) {
            let worker = Cluster::new(&world.clock, seed).await;
            worker.queue(*cpus, json!({})).await;
            world.running.insert(name, worker.controller(worker.client.clone()));
            world.join(name, &kubeconfig(&format!("https://{name}.example"))).await;
            world.workers.insert(name, worker);
        }
        let mut names: Vec<&str> = workers.iter().map(|(name, _)| *name).collect();
        if names.is_empty() {
            names.push("none");
        }
        let config = json!({"spec": {"clusters": names}});
        world.hub.create(&kueue("MultiKueueConfig", "multikueueconfigs"), "", "all", config).await;
        let parameters = json!({"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "all"});
        let check =
            json!({"spec": {"controllerName": "kueue.x-k8s.io/multikueue", "parameters": parameters}});
        world.hub.create(&kueue("AdmissionCheck", "admissionchecks"), "", CHECK, check).await;
        let strategy = json!({"admissionChecksStrategy": {"admissionChecks": [{"name": CHECK}]}});
        world.hub.queue(100, strategy).await;
        world.running.insert("", world.hub.controller(world.hub.client.clone()));
        world
    }

    /// A node with pods, and the operators of all kinds, in each cluster.
    pub(crate) async fn simulate(&self) -> Vec<Sandbox> {
        let mut all = Vec::new();
        for cluster in self.workers.values().chain([&self.hub]) {
            let nodes = "name=n,cpu=64,memory=400Gi".parse::<sandbox::NodeGroup>().unwrap().manifests();
            let config = sandbox::Config { clock: self.clock.clone(), nodes, ..sandbox::Config::default() };
            all.push(Sandbox::start(cluster.client.clone(), config).await.unwrap());
        }
        all
    }

    /// The controllers of the hub begin anew.
    pub(crate) fn restart_hub(&mut self) {
        drop(self.running.remove(""));
        self.running.insert("", self.hub.controller(self.hub.client.clone()));
    }

    /// A worker begins anew, empty, with so many CPUs.
    pub(crate) async fn reset(&mut self, name: &'static str, seed: u64, cpus: u32) {
        drop(self.running.remove(name));
        let worker = self.workers.get_mut(name).unwrap();
        worker.reset(seed, cpus).await;
        self.running.insert(name, worker.controller(worker.client.clone()));
    }

    /// Makes a cluster with its Secret.
    pub(crate) async fn join(&self, name: &str, kubeconfig: &str) {
        let secret = json!({"stringData": {"kubeconfig": kubeconfig}});
        let secrets = resource("v1", "Secret", "secrets");
        self.hub.create(&secrets, "kueue-system", &format!("{name}-secret"), secret).await;
        let source = json!({"kubeConfig": {"location": format!("{name}-secret"), "locationType": "Secret"}});
        let cluster = json!({"spec": {"clusterSource": source}});
        self.hub.create(&kueue("MultiKueueCluster", "multikueueclusters"), "", name, cluster).await;
    }

    pub(crate) fn config(&self, death: &Death) -> ClustersConfig {
        let of = |(name, worker): (&&'static str, &Cluster)| {
            (format!("https://{name}.example"), worker.connection(death))
        };
        let clients: BTreeMap<String, Client> = self.workers.iter().map(of).collect();
        let clients = Mutex::new(clients);
        ClustersConfig {
            clock: self.clock.clone(),
            connect: Arc::new(move |config| {
                let server = config.clusters[0].cluster.clone().unwrap().server.unwrap();
                let client = clients.lock().unwrap().get(&server).cloned();
                Box::pin(async move { client.ok_or_else(|| format!("nothing answers at {server}")) })
            }),
            ..ClustersConfig::default()
        }
    }

    pub(crate) fn start_with(&self, config: ClustersConfig, death: &Death) -> Running {
        let clusters = Clusters::new(self.hub.connection(death), config);
        Running(tokio::spawn(async move { match clusters.run().await {} }))
    }

    /// Starts the loop.
    pub(crate) fn start(&self) -> Running {
        let death = Death::default();
        self.start_with(self.config(&death), &death)
    }

    /// Creates a Job at the hub with so many pods of one CPU. Returns the name of its Workload.
    pub(crate) async fn submit(&self, name: &str, pods: u32) -> String {
        let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}});
        let template = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
        let job = json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "team"}},
            "spec": {"parallelism": pods, "completions": pods, "suspend": true, "template": template,
                "managedBy": "kueue.x-k8s.io/multikueue"}});
        self.hub.create(&jobs(), "default", name, job).await;
        let uid = self.hub.get(&jobs(), name).await.unwrap().metadata.uid.unwrap();
        JOB_KINDS[0].workload_name(name, &uid)
    }

    /// Waits until the Job of the hub is admitted, and runs in a cluster. Returns its name.
    pub(crate) async fn runs(&self, job: &str, workload: &str) -> String {
        let admitted = self.hub.wait(&workloads(), workload, |w| is(w, "Admitted", "True", "Admitted")).await;
        let cluster = admitted.data["status"]["clusterName"].as_str().unwrap().to_owned();
        let worker = &self.workers[cluster.as_str()];
        worker.wait(&jobs(), job, |job| job.data["spec"]["suspend"] == false).await;
        cluster
    }

    /// The workers that have a Job, with the number of all.
    pub(crate) async fn copies(&self, job: &str) -> Vec<&'static str> {
        let mut found = Vec::new();
        for (name, worker) in &self.workers {
            if worker.get(&jobs(), job).await.is_some() {
                found.push(*name);
            }
        }
        found
    }
}

pub(crate) fn check(workload: &DynamicObject) -> (String, String) {
    let check = &workload.data["status"]["admissionChecks"][0];
    let text = |field: &str| check[field].as_str().unwrap_or_default().to_owned();
    (text("state"), text("message"))
}
