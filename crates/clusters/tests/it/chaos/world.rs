//! A hub and workers with simulated nodes, and how each action is performed.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Duration;

use clusters::{ClustersConfig, Dispatcher};
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use sandbox::Sandbox;
use serde_json::{Value, json};

use super::invariants::{evictions, owner};
use super::ledger::{LOST, Ledger};
use super::script::{Action, Script, Submission};
use crate::common::{self, Cluster, Death, Running, jobs, kubeconfig, kueue, resource, workloads};

pub(crate) const ORIGIN: &str = "kueue.x-k8s.io/multikueue-origin";
/// The owner of jobs that nobody may touch.
const STRANGER: &str = "stranger";

pub(crate) struct World {
    pub(crate) clusters: common::World,
    pub(crate) script: Script,
    pub(crate) ledger: Ledger,
    /// The simulated nodes of each cluster, and the watches of its pods.
    simulated: BTreeMap<&'static str, (Sandbox, [Running; 2])>,
    /// The loop, and what counts its writes.
    running: Option<Running>,
    death: Death,
    /// The writes of earlier loops.
    written_before: usize,
    /// The quota of the hub, before and after the last action.
    pub(crate) quotas: [u64; 2],
    /// What was in use last.
    pub(crate) used: Cell<u64>,
    /// How often jobs may have started before they got their present Workload, by uid.
    pub(crate) starts_before: BTreeMap<String, u64>,
    /// How often jobs had started when their last Workload was deleted, by uid.
    pub(crate) started_before: BTreeMap<String, usize>,
    /// The jobs of others, by worker and name, with their uids.
    pub(crate) strangers: BTreeMap<(&'static str, String), String>,
    submitted: u64,
    seeds: u64,
}

pub(crate) fn name(object: &DynamicObject) -> &str {
    object.metadata.name.as_deref().unwrap()
}

pub(crate) fn uid(object: &DynamicObject) -> &str {
    object.metadata.uid.as_deref().unwrap()
}

fn nth<T>(items: Vec<T>, number: u64) -> Option<T> {
    let count = u64::try_from(items.len()).unwrap();
    if count == 0 { None } else { items.into_iter().nth(usize::try_from(number % count).unwrap()) }
}

fn queues() -> ApiResource {
    kueue("ClusterQueue", "clusterqueues")
}

fn secrets() -> ApiResource {
    resource("v1", "Secret", "secrets")
}

fn members() -> ApiResource {
    kueue("MultiKueueCluster", "multikueueclusters")
}

async fn simulate(cluster: &Cluster, clock: controllers::Clock, seed: u64) -> Sandbox {
    let node: sandbox::NodeGroup = "name=n,cpu=64,memory=400Gi".parse().unwrap();
    let config = sandbox::Config {
        clock,
        nodes: node.manifests(),
        seed,
        ray: false,
        operators: false,
        ..sandbox::Config::default()
    };
    Sandbox::start(cluster.client.clone(), config).await.unwrap()
}

impl World {
    pub(crate) async fn new(script: Script) -> Self {
        let of = |(name, cpus): &(&'static str, u64)| (*name, u32::try_from(*cpus).unwrap());
        let workers: Vec<_> = script.workers.iter().map(of).collect();
        let clusters = common::World::new(&workers).await;
        let mut world = Self {
            clusters,
            ledger: Ledger::default(),
            simulated: BTreeMap::new(),
            running: None,
            death: Death::default(),
            written_before: 0,
            quotas: [script.hub; 2],
            used: Cell::default(),
            starts_before: BTreeMap::new(),
            started_before: BTreeMap::new(),
            strangers: BTreeMap::new(),
            submitted: 0,
            seeds: 100,
            script,
        };
        for name in world.names() {
            world.simulate(name).await;
        }
        world.set_quota("", world.script.hub).await;
        world.restart();
        world
    }

    pub(crate) fn names(&self) -> Vec<&'static str> {
        self.script.workers.iter().map(|(name, _)| *name).collect()
    }

    async fn simulate(&mut self, name: &'static str) {
        let cluster = &self.clusters.workers[name];
        let sandbox = simulate(cluster, self.clusters.clock.clone(), self.seeds).await;
        self.simulated.insert(name, (sandbox, self.ledger.follow(name, cluster)));
    }

    fn start(&mut self, death: Death) {
        self.written_before += self.death.written();
        let dispatcher = if self.script.is_incremental {
            Dispatcher::Incremental { step: 1 }
        } else {
            Dispatcher::AllAtOnce
        };
        let worker_lost_us = i64::try_from(LOST.as_micros()).unwrap();
        let config = ClustersConfig { dispatcher, worker_lost_us, ..self.clusters.config(&death) };
        self.running = Some(self.clusters.start_with(config, &death));
        self.death = death;
    }

    pub(crate) fn restart(&mut self) {
        self.running = None;
        self.start(Death::default());
    }

    /// The number of writes of all loops so far.
    pub(crate) fn written(&self) -> usize {
        self.written_before + self.death.written()
    }

    /// The cluster of this name; the hub is "".
    pub(crate) fn cluster(&self, name: &str) -> &Cluster {
        self.clusters.workers.get(name).unwrap_or(&self.clusters.hub)
    }

    pub(crate) async fn list(&self, cluster: &str, kind: &ApiResource) -> Vec<DynamicObject> {
        let list = self.cluster(cluster).api(kind, "default").list(&ListParams::default()).await;
        list.unwrap().items
    }

    /// The objects in a worker that the hub has created.
    pub(crate) async fn copies(&self, cluster: &str, kind: &ApiResource) -> Vec<DynamicObject> {
        let selection = ListParams::default().labels(ORIGIN);
        self.cluster(cluster).api(kind, "default").list(&selection).await.unwrap().items
    }

    /// What is not connected, as the hub says.
    pub(crate) async fn unconnected(&self) -> Vec<String> {
        let mut all = Vec::new();
        for name in self.names() {
            let found = self.clusters.hub.api(&members(), "").get_opt(name).await.unwrap();
            if !found.is_some_and(|member| common::is(&member, "Active", "True", "Active")) {
                all.push(format!("{name} is not connected"));
            }
        }
        all
    }

    async fn patch(&self, cluster: &str, kind: &ApiResource, name: &str, patch: Value) {
        let namespace = if kind.kind == "ClusterQueue" { "" } else { "default" };
        let api = self.cluster(cluster).api(kind, namespace);
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.ok();
    }

    async fn delete(&self, cluster: &str, kind: &ApiResource, name: &str) {
        self.cluster(cluster).api(kind, "default").delete(name, &DeleteParams::background()).await.ok();
    }

    async fn set_quota(&self, cluster: &str, cpus: u64) {
        let flavor = json!({"name": "default", "resources": [{"name": "cpu", "nominalQuota": cpus}]});
        let groups = json!([{"coveredResources": ["cpu"], "flavors": [flavor]}]);
        self.patch(cluster, &queues(), "team", json!({"spec": {"resourceGroups": groups}})).await;
    }

    async fn stop(&self, cluster: &str, policy: &str) {
        self.patch(cluster, &queues(), "team", json!({"spec": {"stopPolicy": policy}})).await;
    }

    async fn submit(&self, name: &str, of: &Submission) {
        let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}});
        let annotations = json!({"sandbox.muster.dev/run-time": of.run_time});
        let template = json!({"metadata": {"annotations": annotations},
            "spec": {"restartPolicy": "Never", "containers": [container]}});
        let job = json!({"apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": "team"}},
            "spec": {"parallelism": of.pods, "completions": of.pods, "suspend": true, "template": template,
                "managedBy": "kueue.x-k8s.io/multikueue"}});
        let job = serde_json::from_value(job).unwrap();
        self.clusters.hub.api(&jobs(), "default").create(&PostParams::default(), &job).await.ok();
    }

    async fn occupy(&mut self, worker: &'static str, number: u64) {
        let next = format!("j-{}", self.submitted + 1);
        let mut names: Vec<String> =
            self.list("", &jobs()).await.iter().map(|job| name(job).to_owned()).collect();
        names.push(next);
        let Some(taken) = nth(names, number) else { return };
        let template =
            json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
        let job = json!({"apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": taken, "labels": {"team": STRANGER}},
            "spec": {"suspend": true, "template": template}});
        let job = serde_json::from_value(job).unwrap();
        let api = self.cluster(worker).api(&jobs(), "default");
        if let Ok(created) = api.create(&PostParams::default(), &job).await {
            self.strangers.insert((worker, taken), uid(&created).to_owned());
        }
    }

    async fn vacate(&mut self, worker: &'static str) {
        let names: Vec<_> = self.strangers.keys().filter(|(at, _)| *at == worker).cloned().collect();
        for key in names {
            self.delete(worker, &jobs(), &key.1).await;
            self.strangers.remove(&key);
        }
    }

    async fn reset(&mut self, worker: &'static str) {
        self.seeds += 1;
        let cpus = self.script.workers.iter().find(|(name, _)| *name == worker).unwrap().1;
        self.simulated.remove(worker);
        self.ledger.forget(worker);
        self.strangers.retain(|(at, _), _| *at != worker);
        self.clusters.reset(worker, self.seeds, u32::try_from(cpus).unwrap()).await;
        self.simulate(worker).await;
    }

    async fn revoke(&self, worker: &'static str) {
        self.ledger.leaves(worker);
        let api = self.clusters.hub.api(&secrets(), "kueue-system");
        api.delete(&format!("{worker}-secret"), &DeleteParams::default()).await.ok();
    }

    /// A worker can be reached again, if the line, the Secret and the cluster are there.
    async fn returns(&self, worker: &'static str) {
        let secret =
            self.clusters.hub.api(&secrets(), "kueue-system").get_opt(&format!("{worker}-secret")).await;
        let member = self.clusters.hub.api(&members(), "").get_opt(worker).await;
        if secret.unwrap().is_some() && member.unwrap().is_some() && !self.cluster(worker).is_cut() {
            self.ledger.returns(worker);
        }
    }

    async fn reinstate(&self, worker: &'static str) {
        let body = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": format!("{worker}-secret")},
            "stringData": {"kubeconfig": kubeconfig(&format!("https://{worker}.example"))}});
        let api = self.clusters.hub.api(&secrets(), "kueue-system");
        api.create(&PostParams::default(), &serde_json::from_value(body).unwrap()).await.ok();
        self.returns(worker).await;
    }

    async fn join(&self, worker: &'static str) {
        let source =
            json!({"kubeConfig": {"location": format!("{worker}-secret"), "locationType": "Secret"}});
        let body = json!({"apiVersion": members().api_version, "kind": "MultiKueueCluster",
            "metadata": {"name": worker}, "spec": {"clusterSource": source}});
        let api = self.clusters.hub.api(&members(), "");
        api.create(&PostParams::default(), &serde_json::from_value(body).unwrap()).await.ok();
        self.returns(worker).await;
    }

    /// Performs an action. If it has no object, nothing happens.
    pub(crate) async fn perform(&mut self, action: &Action) {
        self.quotas[0] = self.quotas[1];
        match action {
            Action::Submit(submission) => {
                self.submitted += 1;
                self.submit(&format!("j-{}", self.submitted), submission).await;
            }
            Action::Delete(number) => {
                if let Some(job) = nth(self.list("", &jobs()).await, *number) {
                    self.delete("", &jobs(), name(&job)).await;
                }
            }
            Action::Recreate(number, submission) => {
                if let Some(job) = nth(self.list("", &jobs()).await, *number) {
                    self.delete("", &jobs(), name(&job)).await;
                    self.submit(name(&job), submission).await;
                }
            }
            Action::DeleteWorkload(number) => {
                if let Some(workload) = nth(self.list("", &workloads()).await, *number) {
                    let started = self.ledger.starts(owner(&workload));
                    self.started_before.insert(owner(&workload).to_owned(), started);
                    let starts = self.starts_before.entry(owner(&workload).to_owned()).or_default();
                    *starts += 1 + evictions(&workload);
                    self.delete("", &workloads(), name(&workload)).await;
                }
            }
            Action::Activate(number, is_active) => {
                if let Some(workload) = nth(self.list("", &workloads()).await, *number) {
                    let patch = json!({"spec": {"active": is_active}});
                    self.patch("", &workloads(), name(&workload), patch).await;
                }
            }
            Action::Suspend(number, is_suspended) => {
                if let Some(job) = nth(self.list("", &jobs()).await, *number) {
                    let patch = json!({"spec": {"suspend": is_suspended}});
                    self.patch("", &jobs(), name(&job), patch).await;
                }
            }
            Action::SetHubQuota(cpus) => {
                self.quotas[1] = *cpus;
                self.set_quota("", *cpus).await;
            }
            Action::StopHub(policy) => self.stop("", policy).await,
            Action::SetQuota(worker, cpus) => self.set_quota(worker, *cpus).await,
            Action::Stop(worker, policy) => self.stop(worker, policy).await,
            Action::Cut(worker) => {
                self.ledger.leaves(worker);
                self.cluster(worker).cut();
            }
            Action::Restore(worker) => {
                self.cluster(worker).restore();
                self.returns(worker).await;
            }
            Action::Lose(worker, is_lossy) => self.cluster(worker).lose(*is_lossy),
            Action::Reset(worker) => self.reset(worker).await,
            Action::Revoke(worker) => self.revoke(worker).await,
            Action::Reinstate(worker) => self.reinstate(worker).await,
            Action::Leave(worker) => {
                self.ledger.leaves(worker);
                self.clusters.hub.api(&members(), "").delete(worker, &DeleteParams::default()).await.ok();
            }
            Action::Join(worker) => self.join(worker).await,
            Action::EvictRemote(worker, number) => {
                if let Some(workload) = nth(self.copies(worker, &workloads()).await, *number) {
                    let patch = json!({"spec": {"active": false}});
                    self.patch(worker, &workloads(), name(&workload), patch).await;
                }
            }
            Action::DeleteRemoteJob(worker, number) => {
                // Otherwise its pods would be there without it, and the hub sees no pods.
                if let Some(job) = nth(self.copies(worker, &jobs()).await, *number) {
                    let api = self.cluster(worker).api(&jobs(), "default");
                    api.delete(name(&job), &DeleteParams::foreground()).await.ok();
                }
            }
            Action::DeleteRemoteWorkload(worker, number) => {
                if let Some(workload) = nth(self.copies(worker, &workloads()).await, *number) {
                    self.delete(worker, &workloads(), name(&workload)).await;
                }
            }
            Action::Occupy(worker, number) => self.occupy(worker, *number).await,
            Action::Vacate(worker) => self.vacate(worker).await,
            Action::Restart => self.restart(),
            Action::Crash(writes) => {
                self.running = None;
                let death = Death::after_writes(*writes);
                self.start(death.clone());
                tokio::time::timeout(Duration::from_secs(20), death.knell.notified()).await.ok();
                self.restart();
            }
            Action::RestartHub => self.clusters.restart_hub(),
        }
    }

    /// All lines, Secrets and quotas are as at the beginning.
    pub(crate) async fn repair(&mut self) {
        for worker in self.names() {
            self.cluster(worker).lose(false);
            self.cluster(worker).restore();
            self.join(worker).await;
            self.reinstate(worker).await;
            self.vacate(worker).await;
            self.stop(worker, "None").await;
            for copy in self.copies(worker, &workloads()).await {
                self.patch(worker, &workloads(), name(&copy), json!({"spec": {"active": true}})).await;
            }
        }
        for (worker, cpus) in self.script.workers.clone() {
            self.set_quota(worker, cpus).await;
        }
        self.quotas = [self.quotas[1], self.script.hub];
        self.set_quota("", self.script.hub).await;
        self.stop("", "None").await;
        for workload in self.list("", &workloads()).await {
            self.patch("", &workloads(), name(&workload), json!({"spec": {"active": true}})).await;
        }
    }

    pub(crate) async fn delete_all(&self) {
        for job in self.list("", &jobs()).await {
            self.delete("", &jobs(), name(&job)).await;
        }
    }
}
