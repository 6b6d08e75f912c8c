//! A simulated cluster with queues and one controller, and how each action is performed.

use std::time::Duration;

use controllers::{Config, Controller, Kueue, KueueOptions, KueueRules, install_crds};
use kube::Client;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PropagationPolicy};
use kube::core::ApiResource;
use sandbox::{NodeGroup, Sandbox};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::common::jobs::{all_kinds, jobs, priority_class, ray_cluster, ray_job, template};
use crate::common::kueue::{cluster_queues, create, install, workloads};
use crate::common::mortal::Mortal;
use crate::common::queued_pods::{member, pods, queued_pod};
use crate::common::{Cluster, Group, resource, wrappers};
use crate::kueue_chaos::disturbances::stateful_sets;
use crate::kueue_chaos::operations::strategy;
use crate::kueue_chaos::script::{Action, Queue, Script, Submission};

const NODES: [&str; 3] = ["n-0", "n-1", "n-2"];
/// With so many CPUs in a queue, all jobs fit at once.
const GENEROUS: u64 = 400;
/// The CPUs of a node where there are few.
const FEW_CPUS: u64 = 6;
pub(crate) const QUEUE_LABEL: &str = "kueue.x-k8s.io/queue-name";
/// The finalizer of a job whose deletion somebody delays.
const ARCHIVE: &str = "example.com/archive";
const CLASS_LABEL: &str = "kueue.x-k8s.io/priority-class";

pub(crate) struct World {
    pub(crate) cluster: Cluster,
    _sandbox: Sandbox,
    pub(crate) script: Script,
    /// The quota of each queue in each flavor, before and after the last action.
    pub(crate) quotas: [Vec<u64>; 2],
    controller: JoinHandle<String>,
    submitted: usize,
}

impl Drop for World {
    fn drop(&mut self) {
        self.controller.abort();
    }
}

/// One simulated node.
fn node_group(name: &str, cpus: u64) -> NodeGroup {
    let rack = u8::from(name != NODES[0]);
    let text =
        format!("name={name},cpu={cpus},memory=4000Gi,label.kubernetes.io/os=linux,label.rack=r{rack}");
    text.parse().unwrap()
}

fn nodes() -> ApiResource {
    resource("v1", "Node", "nodes")
}

/// The kinds of jobs, with the field that suspends them.
pub(crate) fn job_kinds() -> [(ApiResource, &'static str); 4] {
    [
        (jobs(), "/spec/suspend"),
        (resource("ray.io/v1", "RayJob", "rayjobs"), "/spec/suspend"),
        (resource("ray.io/v1", "RayCluster", "rayclusters"), "/spec/suspend"),
        (resource("jobset.x-k8s.io/v1alpha2", "JobSet", "jobsets"), "/spec/suspend"),
    ]
}

pub(crate) fn name(object: &DynamicObject) -> &str {
    object.metadata.name.as_deref().unwrap()
}

pub(crate) fn label<'a>(object: &'a DynamicObject, key: &str) -> Option<&'a str> {
    object.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

pub(crate) fn is_owned_by(object: &DynamicObject, uid: Option<&String>) -> bool {
    object.metadata.owner_references.iter().flatten().any(|owner| Some(&owner.uid) == uid)
}

pub(crate) fn is_owned(object: &DynamicObject) -> bool {
    object.metadata.owner_references.as_ref().is_some_and(|owners| !owners.is_empty())
}

/// The element with this number, counted round.
pub(crate) fn nth<T>(items: Vec<T>, number: u64) -> Option<T> {
    let count = u64::try_from(items.len()).unwrap();
    if count == 0 { None } else { items.into_iter().nth(usize::try_from(number % count).unwrap()) }
}

fn start(cluster: &Cluster, client: Client, places_pods: bool) -> JoinHandle<String> {
    let rules = KueueRules { places_pods, ..KueueRules::default() };
    let config = Config {
        kueue: Kueue::Scheduler,
        kueue_options: KueueOptions { rules, ..KueueOptions::default() },
        jobs: all_kinds(),
        clock: cluster.clock.clone(),
        inspect: Some(cluster.inspect()),
        ..Config::default()
    };
    let controller = Controller::new(client, config);
    tokio::spawn(async move { format!("{:?}", controller.run(std::future::pending()).await) })
}

impl World {
    pub(crate) async fn new(script: Script) -> Self {
        let cluster = Cluster::bare();
        let cpus = if script.places_pods { FEW_CPUS } else { GENEROUS };
        let config = sandbox::Config {
            clock: cluster.clock.clone(),
            nodes: NODES.iter().flat_map(|name| node_group(name, cpus).manifests()).collect(),
            seed: script.seed,
            ..sandbox::Config::default()
        };
        let sandbox = Sandbox::start(cluster.client.clone(), config).await.unwrap();
        install_crds(cluster.client.clone(), &Group::ALL, api::appwrapper::Columns::default()).await.unwrap();
        install(&cluster).await;
        let more = json!({"nodeLabels": {"kubernetes.io/os": "linux"}});
        create(&cluster, "ResourceFlavor", "resourceflavors", "second", more).await;
        priority_class(&cluster, "low", -10).await;
        priority_class(&cluster, "high", 10).await;
        let quotas: Vec<_> = script.queues.iter().map(|queue| queue.cpus).collect();
        let controller = start(&cluster, cluster.client.clone(), script.places_pods);
        let world = Self {
            cluster,
            _sandbox: sandbox,
            quotas: [quotas.clone(), quotas],
            controller,
            submitted: 0,
            script,
        };
        world.prepare_operations().await;
        for (at, queue) in world.script.queues.iter().enumerate() {
            let (name, mut spec) =
                (format!("q-{at}"), json!({"namespaceSelector": {}, "preemption": queue.preemption}));
            if queue.in_cohort {
                spec["cohortName"] = json!("c");
            }
            if world.script.has_check {
                spec["admissionChecksStrategy"] = strategy();
            }
            spec["resourceGroups"] = world.groups(queue, queue.cpus);
            create(&world.cluster, "ClusterQueue", "clusterqueues", &name, spec).await;
            create(&world.cluster, "LocalQueue", "localqueues", &name, json!({"clusterQueue": name})).await;
        }
        world
    }

    fn groups(&self, queue: &Queue, cpus: u64) -> Value {
        let mut quota = json!({"name": "cpu", "nominalQuota": cpus});
        if let Some(limit) = queue.borrows_at_most {
            quota["borrowingLimit"] = json!(limit);
        }
        let names = ["default", "second"].into_iter().take(self.script.flavors);
        let flavors: Vec<_> = names.map(|name| json!({"name": name, "resources": [quota]})).collect();
        json!([{"coveredResources": ["cpu"], "flavors": flavors}])
    }

    /// Why the controller ended, if it did.
    pub(crate) async fn end(&mut self) -> Option<String> {
        if !self.controller.is_finished() {
            return None;
        }
        let ended = (&mut self.controller).await;
        self.restart();
        Some(format!("{ended:?}"))
    }

    pub(crate) fn restart(&mut self) {
        self.controller.abort();
        self.controller = start(&self.cluster, self.cluster.client.clone(), self.script.places_pods);
    }

    pub(crate) async fn list(&self, kind: &ApiResource) -> Vec<DynamicObject> {
        self.cluster.api(kind, "").list(&ListParams::default()).await.unwrap().items
    }

    /// The number of writes to the API server so far.
    pub(crate) async fn written(&self) -> u64 {
        let list = self.cluster.api(&nodes(), "").list(&ListParams::default()).await.unwrap();
        list.metadata.resource_version.unwrap().parse().unwrap()
    }

    /// The jobs that users have created and that are in a queue, except groups of pods, with their kind. No other object owns them.
    pub(crate) async fn jobs(&self) -> Vec<(ApiResource, &'static str, DynamicObject)> {
        let mut found = Vec::new();
        for (kind, field) in job_kinds() {
            let is_one = |job: &DynamicObject| !is_owned(job) && label(job, QUEUE_LABEL).is_some();
            let own = self.list(&kind).await.into_iter().filter(is_one);
            found.extend(own.map(|job| (kind.clone(), field, job)));
        }
        found
    }

    async fn set_finalizers(&self, kind: &ApiResource, job: &DynamicObject, finalizers: Value) {
        self.patch(kind, "default", name(job), json!({"metadata": {"finalizers": finalizers}})).await;
    }

    pub(crate) async fn patch(&self, kind: &ApiResource, namespace: &str, name: &str, patch: Value) {
        let api = self.cluster.api(kind, namespace);
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.ok();
    }

    pub(crate) async fn delete(&self, kind: &ApiResource, name: &str) {
        self.cluster.api(kind, "default").delete(name, &DeleteParams::background()).await.ok();
    }

    /// Performs an action. If it has no object, nothing happens.
    pub(crate) async fn perform(&mut self, action: &Action) {
        let [now, restored] = &mut self.quotas;
        now.clone_from(restored);
        match action {
            Action::Submit(submission) => self.submit(submission).await,
            Action::DeleteJob(number) => {
                if let Some((kind, _, job)) = nth(self.jobs().await, *number) {
                    self.delete(&kind, name(&job)).await;
                }
            }
            Action::OrphanJob(number) => {
                if let Some((kind, _, job)) = nth(self.jobs().await, *number) {
                    let orphan = DeleteParams {
                        propagation_policy: Some(PropagationPolicy::Orphan),
                        ..DeleteParams::default()
                    };
                    self.cluster.api(&kind, "default").delete(name(&job), &orphan).await.ok();
                }
            }
            Action::AddFinalizer(number) => {
                if let Some((kind, _, job)) = nth(self.jobs().await, *number) {
                    self.set_finalizers(&kind, &job, json!([ARCHIVE])).await;
                }
            }
            Action::LeaveQueue(number) => {
                if let Some((kind, _, job)) = nth(self.jobs().await, *number) {
                    let labels = json!({"metadata": {"labels": {QUEUE_LABEL: null}}});
                    self.patch(&kind, "default", name(&job), labels).await;
                }
            }
            Action::DeleteWorkload(number) => {
                if let Some(workload) = nth(self.list(&workloads()).await, *number) {
                    self.delete(&workloads(), name(&workload)).await;
                }
            }
            Action::ChangeQueue(number, queue) => {
                // The webhook refuses it for others.
                let mut all = self.jobs().await;
                all.retain(|(_, field, job)| job.data.pointer(field) == Some(&json!(true)));
                if let Some((kind, _, job)) = nth(all, *number) {
                    let labels = json!({"metadata": {"labels": {QUEUE_LABEL: self.queue_name(*queue)}}});
                    self.patch(&kind, "default", name(&job), labels).await;
                }
            }
            Action::Suspend(number, is_suspended) => {
                if let Some((kind, _, job)) = nth(self.jobs().await, *number) {
                    self.patch(&kind, "default", name(&job), json!({"spec": {"suspend": is_suspended}}))
                        .await;
                }
            }
            Action::Resize(number, count) => {
                let elastic = "kueue.x-k8s.io/elastic-job";
                let mut all = self.list(&jobs()).await;
                all.retain(|job| {
                    job.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(elastic))
                });
                if let Some(job) = nth(all, *number) {
                    self.patch(&jobs(), "default", name(&job), json!({"spec": {"parallelism": count}})).await;
                }
            }
            Action::Activate(number, is_active) => {
                if let Some(workload) = nth(self.list(&workloads()).await, *number) {
                    let patch = json!({"spec": {"active": is_active}});
                    self.patch(&workloads(), "default", name(&workload), patch).await;
                }
            }
            Action::DeletePod(number) => {
                if let Some(pod) = nth(self.list(&pods()).await, *number) {
                    self.delete(&pods(), name(&pod)).await;
                }
            }
            Action::FailPod(number) => {
                if let Some(pod) = nth(self.list(&pods()).await, *number) {
                    let fault =
                        json!({"metadata": {"annotations": {"sandbox.muster.dev/fail": "exit=3,times=1"}}});
                    self.patch(&pods(), "default", name(&pod), fault).await;
                }
            }
            Action::Drain(number) => self.drain(nth(NODES.to_vec(), *number).unwrap()).await,
            Action::Uncordon(number) => self.cordon(nth(NODES.to_vec(), *number).unwrap(), false).await,
            Action::SetQuota(number, cpus) => self.set_quota(self.queue_at(*number), *cpus).await,
            Action::Stop(number, policy) => {
                let patch = json!({"spec": {"stopPolicy": policy}});
                self.patch(&cluster_queues(), "", &self.queue_name(*number), patch).await;
            }
            Action::RestartController => self.restart(),
            Action::Crash(writes) => {
                self.controller.abort();
                let mortal = Mortal::after_writes(&self.cluster, *writes);
                self.controller = start(&self.cluster, mortal.client.clone(), self.script.places_pods);
                tokio::time::timeout(Duration::from_secs(1), mortal.death.notified()).await.ok();
                self.restart();
            }
            Action::Disturb(disturbance) => self.disturb(disturbance).await,
            Action::Operate(operation) => self.operate(operation).await,
        }
    }

    /// The name of the next job.
    pub(crate) fn next_name(&mut self) -> String {
        self.submitted += 1;
        format!("j-{}", self.submitted)
    }

    fn queue_at(&self, number: u64) -> usize {
        usize::try_from(number % u64::try_from(self.script.queues.len()).unwrap()).unwrap()
    }

    pub(crate) fn queue_name(&self, number: u64) -> String {
        format!("q-{}", self.queue_at(number))
    }

    async fn set_quota(&mut self, at: usize, cpus: u64) {
        self.quotas[1][at] = cpus;
        let groups = self.groups(&self.script.queues[at], cpus);
        self.patch(&cluster_queues(), "", &format!("q-{at}"), json!({"spec": {"resourceGroups": groups}}))
            .await;
    }

    async fn submit(&mut self, of: &Submission) {
        let (name, count) = (self.next_name(), u32::try_from(of.pods).unwrap());
        let mut labels = json!({QUEUE_LABEL: self.queue_name(of.queue)});
        if !of.priority.is_empty() {
            labels[CLASS_LABEL] = json!(of.priority);
        }
        let mut pod = template();
        pod["metadata"] = json!({"annotations": {"sandbox.muster.dev/run-time": of.run_time}});
        let mut annotations = json!({});
        let (kind, mut spec) = match of.kind {
            "Job" => (0, json!({"parallelism": count, "completions": count, "template": pod})),
            "RayJob" => (1, ray_job(count)),
            "RayCluster" => (2, ray_cluster(count)),
            "JobSet" => {
                let job = json!({"spec": {"parallelism": count, "completions": count, "template": pod}});
                (3, json!({"replicatedJobs": [{"name": "workers", "replicas": 1, "template": job}]}))
            }
            _ => {
                for at in 0..count {
                    let mut metadata = member(&name, count);
                    metadata["labels"].as_object_mut().unwrap().extend(labels.as_object().unwrap().clone());
                    metadata["annotations"]["sandbox.muster.dev/run-time"] = json!(of.run_time);
                    // A limit of the namespace may refuse it.
                    self.try_create(&pods(), queued_pod(&format!("{name}-{at}"), &metadata)).await;
                }
                return;
            }
        };
        if of.is_elastic {
            annotations["kueue.x-k8s.io/elastic-job"] = json!("true");
            spec["completions"] = json!(100);
        }
        if let Some(least) = of.least {
            annotations["kueue.x-k8s.io/job-min-parallelism"] = json!(least.to_string());
        }
        spec["suspend"] = json!(true);
        let (kind, _) = &job_kinds()[kind];
        let metadata = json!({"name": name, "labels": labels, "annotations": annotations});
        let job =
            json!({"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec});
        self.cluster.create_as(kind, "default", job).await;
    }

    async fn cordon(&self, node: &str, is_unschedulable: bool) {
        self.patch(&nodes(), "", node, json!({"spec": {"unschedulable": is_unschedulable}})).await;
    }

    /// Cordons a node and deletes its pods.
    async fn drain(&self, node: &str) {
        self.cordon(node, true).await;
        for pod in self.list(&pods()).await.iter().filter(|pod| pod.data["spec"]["nodeName"] == node) {
            self.delete(&pods(), name(pod)).await;
        }
    }

    /// The operator removes whatever hinders jobs.
    pub(crate) async fn repair(&mut self) {
        for at in 0..self.script.queues.len() {
            self.set_quota(at, GENEROUS).await;
            self.patch(&cluster_queues(), "", &format!("q-{at}"), json!({"spec": {"stopPolicy": "None"}}))
                .await;
        }
        self.lift_limit().await;
        self.release_children().await;
        let known: Vec<_> = self.list(&nodes()).await.iter().map(|node| name(node).to_owned()).collect();
        let more = ["r-0", "r-1", "r-2"].into_iter().filter(|_| self.script.places_pods);
        for node in NODES.into_iter().chain(more) {
            if !known.iter().any(|known| known == node) {
                for manifest in node_group(node, GENEROUS).manifests() {
                    let manifest = serde_json::to_value(manifest).unwrap();
                    self.cluster.create_as(&nodes(), "", manifest).await;
                }
            }
            self.cordon(node, false).await;
        }
    }

    /// Removes the finalizers of the RayClusters of RayJobs: the operator waits until they are gone, and says until then that
    /// its RayJob may have pods.
    async fn release_children(&self) {
        let kinds = job_kinds();
        let of = |kind: &str| kinds.iter().map(|(known, _)| known).find(|known| known.kind == kind).unwrap();
        let (parents, children) = (of("RayJob"), of("RayCluster"));
        let jobs = self.list(parents).await;
        let names: Vec<_> =
            jobs.iter().filter_map(|job| job.data["status"]["rayClusterName"].as_str()).collect();
        for child in self.list(children).await.iter().filter(|child| names.contains(&name(child))) {
            self.set_finalizers(children, child, Value::Null).await;
        }
    }

    pub(crate) async fn delete_all(&self) {
        for wrapper in self.list(&wrappers(Group::Mcad)).await {
            self.delete(&wrappers(Group::Mcad), name(&wrapper)).await;
        }
        // Also those that others own: an owner may be the job that it owns.
        for (kind, _) in job_kinds() {
            for job in self.list(&kind).await {
                self.set_finalizers(&kind, &job, Value::Null).await;
                self.delete(&kind, name(&job)).await;
            }
        }
        for set in self.list(&stateful_sets()).await {
            self.delete(&stateful_sets(), name(&set)).await;
        }
        for pod in self.list(&pods()).await {
            self.delete(&pods(), name(&pod)).await;
        }
        // A group whose pods have failed waits for others. It is ended by the deletion of its Workload.
        for workload in self.list(&workloads()).await {
            if workload.metadata.owner_references.iter().flatten().any(|owner| owner.kind == "Pod") {
                self.delete(&workloads(), name(&workload)).await;
            }
        }
    }
}
