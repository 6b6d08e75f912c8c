//! A simulated cluster with controllers, and how each action is performed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use controllers::{Clock, Config, Controller, Error, LeaderElectionConfig, install_crds, install_quota_crd};
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use sandbox::{NodeGroup, Sandbox};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::chaos::actions::{Action, Script};
use crate::chaos::authors::Submission;
use crate::chaos::link::{Leadership, Link, Promises, Weather};
use crate::common::{Cluster, Group, resource, wrappers};

/// Nodes of the cluster. The last one has two GPUs.
const NODES: [&str; 4] = ["n-0", "n-1", "n-2", "n-3"];
const TAINT: &str = "example.com/maintenance";

/// The scalable kinds, with the field that counts their pods.
const SCALABLE: [(&str, &str, &str, &str); 5] = [
    ("apps/v1", "Deployment", "deployments", "replicas"),
    ("apps/v1", "StatefulSet", "statefulsets", "replicas"),
    ("batch/v1", "Job", "jobs", "parallelism"),
    ("ray.io/v1", "RayCluster", "rayclusters", "workerGroupSpecs"),
    ("v1", "Pod", "pods", ""),
];

/// A controller process.
pub(crate) struct Member {
    pub(crate) link: Arc<Link>,
    pub(crate) index: Arc<RwLock<index::Index>>,
    task: JoinHandle<Result<(), Error>>,
    shutdown: Option<oneshot::Sender<()>>,
}

impl Drop for Member {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A cluster under test.
pub(crate) struct World {
    pub(crate) cluster: Cluster,
    _sandbox: Sandbox,
    pub(crate) script: Script,
    pub(crate) members: Vec<Member>,
    started: usize,
    /// Offset of the controllers' clock, in seconds.
    clock_offset_s: Arc<AtomicI64>,
    weather: Weather,
    pub(crate) leadership: Arc<Mutex<Leadership>>,
    pub(crate) promises: Arc<Mutex<Promises>>,
    pub(crate) submitted: BTreeMap<String, Submission>,
    /// Objects that were scaled, with the value to restore, by uid.
    scaled: BTreeMap<String, (ApiResource, String, Value)>,
    /// Names of wrapped objects that were changed such that their gang may not be able to run as planned.
    pub(crate) tampered: BTreeSet<String>,
    /// Why a controller ended that should not have.
    pub(crate) crashes: Vec<String>,
}

pub(crate) fn pods() -> ApiResource {
    resource("v1", "Pod", "pods")
}

pub(crate) fn nodes() -> ApiResource {
    resource("v1", "Node", "nodes")
}

pub(crate) fn scalable_kinds() -> impl Iterator<Item = (ApiResource, &'static str)> {
    SCALABLE
        .into_iter()
        .map(|(api_version, kind, plural, field)| (resource(api_version, kind, plural), field))
}

fn node_manifests(name: &str) -> Vec<Value> {
    let gpus = if name == NODES[3] { ",nvidia.com/gpu=2" } else { "" };
    let group: NodeGroup = format!("name={name},cpu=8,memory=64Gi{gpus}").parse().unwrap();
    group.manifests()
}

fn node_name(nth: u64) -> &'static str {
    NODES[usize::try_from(nth % 4).unwrap()]
}

/// The element with this number, counted round.
fn nth<T>(items: Vec<T>, number: u64) -> Option<T> {
    let count = u64::try_from(items.len()).unwrap();
    if count == 0 { None } else { items.into_iter().nth(usize::try_from(number % count).unwrap()) }
}

fn quota_subtrees() -> ApiResource {
    resource("quota.codeflare.dev/v1alpha1", "QuotaSubtree", "quotasubtrees")
}

fn quota_children(cpus: u64) -> Value {
    json!({"spec": {"children": [{"name": "root", "quotas": {"hardLimit": false, "requests": {"cpu": cpus}}}]}})
}

impl World {
    pub(crate) async fn new(script: Script) -> Self {
        let cluster = Cluster::bare();
        let manifests = NODES.iter().flat_map(|name| node_manifests(name)).collect();
        let config = sandbox::Config {
            clock: cluster.clock.clone(),
            nodes: manifests,
            seed: script.seed,
            ..sandbox::Config::default()
        };
        let sandbox = Sandbox::start(cluster.client.clone(), config).await.unwrap();
        install_crds(cluster.client.clone(), &Group::ALL, api::appwrapper::Columns::default()).await.unwrap();
        let mut world = Self {
            cluster,
            _sandbox: sandbox,
            members: Vec::new(),
            started: 0,
            clock_offset_s: Arc::default(),
            weather: Weather::default(),
            leadership: Arc::default(),
            promises: Arc::default(),
            submitted: BTreeMap::new(),
            scaled: BTreeMap::new(),
            tampered: BTreeSet::new(),
            crashes: Vec::new(),
            script,
        };
        if world.script.quota {
            world.create_quota().await;
        }
        world.revive().await;
        world
    }

    async fn create_quota(&self) {
        install_quota_crd(self.cluster.client.clone()).await.unwrap();
        let groups = json!({"spec": {"parent": "root", "children": [
            {"name": "gold", "quotas": {"hardLimit": false, "requests": {"cpu": 16}}},
            {"name": "bronze", "quotas": {"hardLimit": false, "requests": {"cpu": 4}}},
            {"name": "default", "quotas": {"hardLimit": false, "requests": {"cpu": 0}}},
        ]}});
        for (name, mut part) in [("root", quota_children(32)), ("groups", groups)] {
            let kind = quota_subtrees();
            part["apiVersion"] = json!(kind.api_version);
            part["kind"] = json!(kind.kind);
            part["metadata"] =
                json!({"name": name, "namespace": "kube-system", "labels": {"tree": "quota_context"}});
            self.cluster.create_as(&kind, "kube-system", part).await;
        }
    }

    /// Starts controllers in place of those that have ended.
    pub(crate) async fn revive(&mut self) {
        for member in std::mem::take(&mut self.members) {
            if member.task.is_finished() {
                self.bury(member).await;
            } else {
                self.members.push(member);
            }
        }
        while self.members.len() < 1 + usize::from(self.script.election) {
            self.started += 1;
            self.start(self.started);
        }
    }

    async fn bury(&mut self, mut member: Member) {
        match (&mut member.task).await {
            Ok(Ok(()) | Err(Error::LeaseLost(_))) => {}
            Ok(Err(error)) => self.crashes.push(format!("a controller ended: {error}")),
            Err(error) if error.is_panic() => {
                let panic = error.into_panic();
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
                self.crashes.push(format!("a controller panicked: {}", text.unwrap_or_default()));
            }
            Err(_) => {}
        }
    }

    fn start(&mut self, number: usize) {
        let is_elected = self.script.election;
        let seed = self.script.seed ^ u64::try_from(number).unwrap();
        let link = Link::new(number, is_elected, seed, self.leadership.clone(), self.promises.clone());
        link.set_weather(self.weather);
        let (offset, clock) = (self.clock_offset_s.clone(), self.cluster.clock.clone());
        let clock: Clock =
            Arc::new(move || clock() + jiff::SignedDuration::from_secs(offset.load(Ordering::Relaxed)));
        let config = Config {
            clock,
            preemption: self.script.preemption,
            quota: self.script.quota,
            inspect: Some(self.cluster.inspect()),
            ..Config::default()
        };
        let controller = Controller::new(link.client(&self.cluster.service), config);
        let index = controller.index();
        let (shutdown, ended) = oneshot::channel::<()>();
        let ended = async move {
            if ended.await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        let task = if is_elected {
            tokio::spawn(controller.run_elected(LeaderElectionConfig::new(format!("c-{number}")), ended))
        } else {
            tokio::spawn(controller.run(ended))
        };
        self.members.push(Member { link, index, task, shutdown: Some(shutdown) });
    }

    /// All objects of a kind, in the order of their names.
    pub(crate) async fn list(&self, kind: &ApiResource) -> Vec<DynamicObject> {
        self.cluster
            .api(kind, "")
            .list(&ListParams::default())
            .await
            .map_or_else(|_| Vec::new(), |list| list.items)
    }

    /// The AppWrappers of both groups.
    pub(crate) async fn wrappers(&self) -> Vec<(Group, DynamicObject)> {
        let mut found = Vec::new();
        for group in Group::ALL {
            found.extend(self.list(&wrappers(group)).await.into_iter().map(|wrapper| (group, wrapper)));
        }
        found.sort_by_key(|(_, wrapper)| wrapper.metadata.name.clone());
        found
    }

    async fn patch(&self, kind: &ApiResource, namespace: &str, name: &str, patch: &Value) {
        // The object may be gone.
        self.cluster
            .api(kind, namespace)
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .ok();
    }

    async fn patch_node(&self, name: &str, patch: &Value) {
        self.patch(&nodes(), "", name, patch).await;
    }

    /// Deletes an object; it may be gone.
    pub(crate) async fn delete(&self, kind: &ApiResource, namespace: &str, name: &str) {
        self.cluster.api(kind, namespace).delete(name, &DeleteParams::background()).await.ok();
    }

    /// Performs an action. If it has no object, nothing happens.
    pub(crate) async fn perform(&mut self, action: &Action) {
        match action {
            Action::Submit(submission) => self.submit(submission).await,
            Action::DeleteWrapper(number) => {
                if let Some((group, wrapper)) = nth(self.wrappers().await, *number) {
                    self.delete(&wrappers(group), "default", &wrapper.metadata.name.unwrap()).await;
                }
            }
            Action::DeletePod(number) => {
                if let Some(pod) = nth(self.list(&pods()).await, *number) {
                    self.tamper_with_pod(&pod);
                    self.delete(&pods(), "default", &pod.metadata.name.unwrap()).await;
                }
            }
            Action::DeleteObject(number) => {
                if let Some((kind, _, object)) = nth(self.objects().await, *number) {
                    let name = object.metadata.name.unwrap();
                    self.tampered.insert(name.clone());
                    self.delete(&kind, "default", &name).await;
                }
            }
            Action::HoldObject(number) => {
                if let Some((kind, _, object)) = nth(self.objects().await, *number) {
                    let finalizers = json!({"metadata": {"finalizers": ["example.com/hold"]}});
                    self.patch(&kind, "default", &object.metadata.name.unwrap(), &finalizers).await;
                }
            }
            Action::RelabelWrapper(number, quota) => {
                let labels = json!({"metadata": {"labels": {"quota_context": quota}}});
                self.patch_wrapper(*number, &labels).await;
            }
            Action::Reprioritize(number, priority) => {
                self.patch_wrapper(*number, &json!({"spec": {"priority": priority}})).await;
            }
            Action::ScaleObject(number, pods) => self.scale(*number, *pods).await,
            Action::SuspendJob(number) => self.suspend(*number, true).await,
            Action::ResumeJob(number) => self.suspend(*number, false).await,
            Action::Cordon(number) => self.cordon(node_name(*number), true).await,
            Action::Uncordon(number) => self.cordon(node_name(*number), false).await,
            Action::Drain(number) => self.drain(node_name(*number)).await,
            Action::Taint(number, effect) => {
                let taints = json!([{"key": TAINT, "effect": effect}]);
                self.patch_node(node_name(*number), &json!({"spec": {"taints": taints}})).await;
            }
            Action::LoseNode(number) => self.lose(node_name(*number), json!("true")).await,
            Action::ReconnectNode(number) => self.lose(node_name(*number), Value::Null).await,
            Action::DeleteNode(number) => self.delete(&nodes(), "", node_name(*number)).await,
            Action::AddNode(number) => self.add_node(node_name(*number)).await,
            Action::RelabelNode(number) => {
                let labels = json!({"example.com/zone": format!("z-{}", number % 3)});
                self.patch_node(node_name(*number), &json!({"metadata": {"labels": labels}})).await;
            }
            Action::SetQuota(cpus) => self.set_quota(*cpus).await,
            Action::RestartController | Action::ReleaseLease => self.end_controller(action).await,
            Action::StepClock(seconds) => drop(self.clock_offset_s.fetch_add(*seconds, Ordering::Relaxed)),
            Action::CutLink => {
                self.members.iter().take(1).for_each(|member| member.link.set_cut(true));
                self.cluster.service.with(|server, _| server.restart());
            }
            Action::MendLink => self.members.iter().for_each(|member| member.link.set_cut(false)),
            Action::DropWatches => self.cluster.service.with(|server, _| server.restart()),
            Action::SetWeather(weather) => self.set_weather(*weather),
            Action::CalmWeather => self.set_weather(Weather::default()),
        }
    }

    async fn submit(&mut self, submission: &Submission) {
        let object = serde_json::from_value(submission.manifest.clone()).unwrap();
        let version = submission.manifest["apiVersion"].as_str().unwrap();
        let group: Group = version.split('/').next().unwrap().parse().unwrap();
        let created =
            self.cluster.api(&wrappers(group), "default").create(&PostParams::default(), &object).await;
        match created {
            Ok(_) => drop(self.submitted.insert(submission.name.clone(), submission.clone())),
            Err(error) => assert!(submission.oddity.is_some(), "an ordinary AppWrapper was refused: {error}"),
        }
    }

    /// A pod without a controller does not return.
    fn tamper_with_pod(&mut self, pod: &DynamicObject) {
        let owners = pod.metadata.owner_references.iter().flatten();
        if owners.clone().any(|owner| owner.kind == "AppWrapper") {
            self.tampered.insert(pod.metadata.name.clone().unwrap());
        }
    }

    async fn patch_wrapper(&self, number: u64, patch: &Value) {
        if let Some((group, wrapper)) = nth(self.wrappers().await, number) {
            self.patch(&wrappers(group), "default", &wrapper.metadata.name.unwrap(), patch).await;
        }
    }

    /// The wrapped objects of scalable kinds, with the field that counts their pods.
    async fn objects(&self) -> Vec<(ApiResource, &'static str, DynamicObject)> {
        let mut found = Vec::new();
        for (kind, field) in scalable_kinds().filter(|(_, field)| !field.is_empty()) {
            found.extend(self.list(&kind).await.into_iter().map(|object| (kind.clone(), field, object)));
        }
        found
    }

    async fn scale(&mut self, number: u64, replicas: u64) {
        let Some((kind, field, object)) = nth(self.objects().await, number) else { return };
        let (name, uid) = (object.metadata.name.unwrap(), object.metadata.uid.unwrap());
        let old = object.data["spec"][field].clone();
        let mut new = old.clone();
        if new.is_array() {
            new[0]["replicas"] = json!(replicas);
        } else {
            new = json!(replicas);
        }
        let restore = json!({"spec": {field: old}});
        self.patch(&kind, "default", &name, &json!({"spec": {field: new}})).await;
        self.scaled.entry(uid).or_insert((kind, name, restore));
    }

    async fn suspend(&self, number: u64, is_suspended: bool) {
        let kind = resource("batch/v1", "Job", "jobs");
        if let Some(job) = nth(self.list(&kind).await, number) {
            self.patch(
                &kind,
                "default",
                &job.metadata.name.unwrap(),
                &json!({"spec": {"suspend": is_suspended}}),
            )
            .await;
        }
    }

    async fn cordon(&self, node: &str, is_unschedulable: bool) {
        self.patch_node(node, &json!({"spec": {"unschedulable": is_unschedulable}})).await;
    }

    async fn lose(&self, node: &str, value: Value) {
        self.patch_node(node, &json!({"metadata": {"annotations": {"sandbox.muster.dev/lost": value}}}))
            .await;
    }

    /// Cordons a node and evicts its pods, as `kubectl drain --force` does.
    async fn drain(&mut self, node: &str) {
        self.cordon(node, true).await;
        for pod in self.list(&pods()).await {
            if pod.data["spec"]["nodeName"] != node {
                continue;
            }
            self.tamper_with_pod(&pod);
            let name = pod.metadata.name.unwrap();
            let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "default"}});
            let api = self.cluster.api(&pods(), "default");
            api.create_subresource::<Value, Value>("eviction", &name, &PostParams::default(), &eviction)
                .await
                .ok();
        }
    }

    async fn add_node(&self, name: &str) {
        for manifest in node_manifests(name) {
            let node = serde_json::from_value(manifest).unwrap();
            self.cluster.api(&nodes(), "").create(&PostParams::default(), &node).await.ok();
        }
    }

    async fn set_quota(&self, cpus: u64) {
        self.patch(&quota_subtrees(), "kube-system", "root", &quota_children(cpus)).await;
    }

    /// Kills all controllers and starts others.
    pub(crate) async fn restart_all(&mut self) {
        self.members.clear();
        self.revive().await;
    }

    async fn end_controller(&mut self, action: &Action) {
        if self.members.is_empty() {
            return;
        }
        let mut member = self.members.remove(0);
        if matches!(action, Action::ReleaseLease) {
            member.shutdown.take().unwrap().send(()).ok();
            let ended = tokio::time::timeout(Duration::from_mins(2), &mut member.task).await;
            match ended {
                Ok(Ok(Ok(()) | Err(Error::LeaseLost(_)))) => {}
                other => self.crashes.push(format!("a controller did not shut down: {other:?}")),
            }
        }
        drop(member);
        self.revive().await;
    }

    fn set_weather(&mut self, weather: Weather) {
        self.weather = weather;
        self.members.iter().for_each(|member| member.link.set_weather(weather));
    }

    /// The operator repairs everything.
    pub(crate) async fn repair(&mut self) {
        self.set_weather(Weather::default());
        self.members.iter().for_each(|member| member.link.set_cut(false));
        self.set_quota(64).await;
        for node in NODES {
            self.add_node(node).await;
            self.cordon(node, false).await;
            self.lose(node, Value::Null).await;
            self.remove_taint(node).await;
        }
        for (uid, (kind, name, restore)) in std::mem::take(&mut self.scaled) {
            let now = self.cluster.api(&kind, "default").get_opt(&name).await.unwrap();
            if now.is_some_and(|now| now.metadata.uid.as_deref() == Some(&uid)) {
                self.patch(&kind, "default", &name, &restore).await;
            }
        }
        for job in self.list(&resource("batch/v1", "Job", "jobs")).await {
            if job.data["spec"]["suspend"] == true {
                let patch = json!({"spec": {"suspend": false}});
                self.patch(
                    &resource("batch/v1", "Job", "jobs"),
                    "default",
                    &job.metadata.name.unwrap(),
                    &patch,
                )
                .await;
            }
        }
    }

    /// Removes the finalizers that actions and authors have set.
    pub(crate) async fn release_held_objects(&self) {
        for (kind, _, object) in self.objects().await {
            let mut finalizers = object.metadata.finalizers.clone().unwrap_or_default();
            let count = finalizers.len();
            finalizers.retain(|finalizer| !finalizer.starts_with("example.com/"));
            if finalizers.len() < count {
                let patch = json!({"metadata": {"finalizers": finalizers}});
                self.patch(&kind, "default", &object.metadata.name.unwrap(), &patch).await;
            }
        }
    }

    async fn remove_taint(&self, name: &str) {
        let Some(node) = self.cluster.api(&nodes(), "").get_opt(name).await.unwrap() else { return };
        let mut taints = node.data["spec"]["taints"].as_array().cloned().unwrap_or_default();
        taints.retain(|taint| taint["key"] != TAINT);
        self.patch_node(name, &json!({"spec": {"taints": taints}})).await;
    }
}
