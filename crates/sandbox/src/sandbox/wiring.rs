//! Connects watches to components and spawns their tasks.

use std::sync::Arc;

use api::kueue::jobs::JobKind;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::LogSink;
use crate::autoscaler::{Autoscaler, RequestObject, Stores};
use crate::cluster::{
    Cached, Change, Cluster, Controller, Error, Queue, Recorder, Resource, Store, reflect, run_controller,
};
use crate::kubelet::Kubelet;
use crate::nodes::{EvictionController, NodeController};
use crate::operators::{
    self, AnyJobs, JobSet, JobSets, LeaderWorkerSet, LeaderWorkerSets, MpiJob, MpiJobs, TrainingJobs,
};
use crate::pace::Pace;
use crate::ray::{ClusterOperator, JobCaches, JobOperator, RayCluster, RayJob};
use crate::scheduler::Scheduler;
use crate::storage::{Claims, EphemeralClaims, Referenced, Volumes};
use crate::wire::{CustomResourceDefinition, Deployment, Job, Key, Node, Pod, ReplicaSet};
use crate::workloads::{DaemonSets, Deployments, Jobs, ReplicaSets, StatefulSets};

type Handlers<K> = Vec<Box<dyn Fn(Change<'_, K>) + Send + Sync>>;

macro_rules! controllers {
    ($($type:ty => $name:literal, $key:ty;)*) => {
        $(impl Controller for $type {
            const NAME: &'static str = $name;
            type Key = $key;

            fn queue(&self) -> &Queue<$key> {
                &self.queue
            }

            async fn reconcile(&self, key: $key) -> Result<Option<tokio::time::Instant>, Error> {
                <$type>::reconcile(self, key).await
            }
        })*
    };
}

controllers! {
    NodeController => "nodes", String;
    EvictionController => "evictions", Key;
    Kubelet => "kubelet", Key;
    Jobs => "jobs", Key;
    ReplicaSets => "replicasets", Key;
    Deployments => "deployments", Key;
    StatefulSets => "statefulsets", Key;
    DaemonSets => "daemonsets", Key;
    Claims => "persistentvolumeclaims", Key;
    Volumes => "persistentvolumes", Key;
    EphemeralClaims => "ephemeral-volumes", Key;
    ClusterOperator => "rayclusters", Key;
    JobOperator => "rayjobs", Key;
    JobSets => "jobsets", Key;
    LeaderWorkerSets => "leaderworkersets", Key;
    MpiJobs => "mpijobs", Key;
    AnyJobs => "jobs-of-other-kinds", (usize, Key);
}

/// Which operators run.
#[derive(Clone, Copy)]
pub(super) struct Operators {
    pub(super) ray: bool,
    /// Those of `JobSet`, of training jobs, of `LeaderWorkerSet` and of `MPIJob`.
    pub(super) others: bool,
}

/// Starts a watch.
type Start = Box<dyn FnOnce(&mut JoinSet<()>, Cluster) + Send>;

/// The shared stores and the event handlers that are registered on them.
pub(super) struct Wiring {
    pub(super) cluster: Cluster,
    pub(super) tasks: JoinSet<()>,
    pace: Pace,
    recorder: Recorder,
    nodes: Arc<Store<Node>>,
    pods: Arc<Store<Pod>>,
    jobs: Arc<Store<Job>>,
    objects: Referenced,
    ray_clusters: Arc<Store<RayCluster>>,
    ray_jobs: Arc<Store<RayJob>>,
    on_job: Handlers<Job>,
    on_node: Handlers<Node>,
    on_pod: Handlers<Pod>,
    /// The watches of custom resources, whose definitions may not exist yet.
    custom: Vec<Start>,
    any_jobs: Option<Arc<AnyJobs>>,
}

impl Wiring {
    /// `nodes` is the store that the room of the cluster counts.
    pub(super) fn new(cluster: Cluster, nodes: Arc<Store<Node>>, pace: Pace) -> Self {
        let mut tasks = JoinSet::new();
        let (recorder, writer) = Recorder::new(cluster.clone());
        tasks.spawn(writer);
        Self {
            cluster,
            tasks,
            pace,
            recorder,
            nodes,
            pods: Arc::new(Store::new()),
            jobs: Arc::new(Store::new()),
            objects: Referenced::default(),
            ray_clusters: Arc::new(Store::new()),
            ray_jobs: Arc::new(Store::new()),
            on_job: Vec::new(),
            on_node: Vec::new(),
            on_pod: Vec::new(),
            custom: Vec::new(),
            any_jobs: None,
        }
    }

    /// Watches the custom resource definitions. Returns their store and a notification of its changes.
    pub(super) fn definitions(&mut self) -> (Arc<Store<CustomResourceDefinition>>, Arc<Notify>) {
        let store = Arc::new(Store::new());
        let changed = Arc::new(Notify::new());
        let notify = changed.clone();
        self.watch(&store, move |_| notify.notify_one());
        (store, changed)
    }

    /// Starts all components and watches, except the watches of custom resources: their definitions may not exist
    /// yet.
    pub(super) fn components(
        &mut self,
        logs: Option<LogSink>,
        operators: Operators,
        kinds: &[&'static JobKind],
        scales: bool,
    ) -> (Arc<NodeController>, Option<Arc<Autoscaler>>) {
        let nodes = self.node_controller();
        self.evictions();
        self.kubelet(logs);
        self.storage();
        self.jobs();
        self.replica_sets();
        self.stateful_sets();
        self.daemon_sets();
        if operators.ray {
            self.ray_operators();
        }
        if operators.others {
            self.any_jobs(kinds);
            self.job_sets();
            self.leader_worker_sets();
            self.mpi_jobs();
            self.training_jobs::<{ operators::PYTORCH }>();
            self.training_jobs::<{ operators::TENSORFLOW }>();
            self.training_jobs::<{ operators::XGBOOST }>();
            self.training_jobs::<{ operators::PADDLE }>();
            self.training_jobs::<{ operators::JAX }>();
        }
        let autoscaler = scales.then(|| self.autoscaler(&nodes));
        self.jobs.on_change(std::mem::take(&mut self.on_job));
        self.tasks.spawn(reflect(self.cluster.clone(), self.jobs.clone()));
        self.nodes.on_change(std::mem::take(&mut self.on_node));
        self.pods.on_change(std::mem::take(&mut self.on_pod));
        self.tasks.spawn(reflect(self.cluster.clone(), self.nodes.clone()));
        self.tasks.spawn(reflect(self.cluster.clone(), self.pods.clone()));
        (nodes, autoscaler)
    }

    /// Starts the watches of custom resources.
    pub(super) fn watch_custom_resources(&mut self) {
        for start in std::mem::take(&mut self.custom) {
            start(&mut self.tasks, self.cluster.clone());
        }
    }

    /// Watches custom resources when they are installed.
    fn watch_later<K: Cached>(&mut self, store: &Arc<Store<K>>) {
        let store = store.clone();
        self.custom.push(Box::new(move |tasks, cluster| drop(tasks.spawn(reflect(cluster, store)))));
    }

    /// Runs an operator, which handles every change of its custom resources when they are installed.
    fn run_operator<K: Resource, C: Controller<Key = Key>>(
        &mut self,
        store: &Arc<Store<K>>,
        operator: C,
    ) -> Arc<C> {
        let operator = self.run(operator);
        let (handler, owners) = (operator.clone(), self.any_jobs.clone());
        store.on_change(vec![Box::new(move |change| {
            handler.queue().add(change.latest().meta().key());
            if let Some(owners) = &owners {
                owners.owned_changed(change.latest().meta());
            }
        })]);
        self.watch_later(store);
        operator
    }

    /// The operator of all kinds without one of their own.
    fn any_jobs(&mut self, kinds: &[&'static JobKind]) {
        let (cluster, pods) = (self.cluster.clone(), self.pods.clone());
        let jobs = self.run(AnyJobs::new(cluster, kinds, pods, &self.recorder));
        for (at, store) in jobs.stores() {
            let handler = jobs.clone();
            store.on_change(vec![Box::new(move |change| {
                handler.queue.add((at, change.latest().meta().key()));
            })]);
            self.watch_later(&store);
        }
        self.any_jobs = Some(jobs.clone());
        self.on_pod.push(Box::new(move |change| jobs.pod_changed(change.latest())));
    }

    /// Creates the objects that come with operators, as soon as their kinds are served.
    pub(super) fn start_presets(&mut self) {
        if let Some(jobs) = self.any_jobs.clone() {
            self.tasks.spawn(async move { jobs.create_presets().await });
        }
    }

    fn job_sets(&mut self) {
        let store = Arc::new(Store::<JobSet>::new());
        let (cluster, jobs) = (self.cluster.clone(), self.jobs.clone());
        let sets = self.run_operator(&store, JobSets::new(cluster, store.clone(), jobs, &self.recorder));
        self.on_job.push(Box::new(move |change| sets.job_changed(change.latest())));
    }

    fn leader_worker_sets(&mut self) {
        let store = Arc::new(Store::<LeaderWorkerSet>::new());
        let (cluster, pods) = (self.cluster.clone(), self.pods.clone());
        let operator = LeaderWorkerSets::new(cluster, store.clone(), pods, &self.recorder);
        let sets = self.run_operator(&store, operator);
        self.on_pod.push(Box::new(move |change| sets.pod_changed(change.latest())));
    }

    fn mpi_jobs(&mut self) {
        let store = Arc::new(Store::<MpiJob>::new());
        let (cluster, jobs, pods) = (self.cluster.clone(), self.jobs.clone(), self.pods.clone());
        let operator = MpiJobs::new(cluster, store.clone(), jobs, pods, &self.recorder);
        let mpi = self.run_operator(&store, operator);
        let handler = mpi.clone();
        self.on_job.push(Box::new(move |change| handler.job_changed(change.latest())));
        self.on_pod.push(Box::new(move |change| mpi.pod_changed(change.latest())));
    }

    fn training_jobs<const K: usize>(&mut self) {
        let store = Arc::new(Store::new());
        let (cluster, pods) = (self.cluster.clone(), self.pods.clone());
        let operator = TrainingJobs::<K>::new(cluster, store.clone(), pods, &self.recorder);
        let jobs = self.run_operator(&store, operator);
        self.on_pod.push(Box::new(move |change| jobs.pod_changed(change.latest())));
    }

    fn node_controller(&mut self) -> Arc<NodeController> {
        let (cluster, nodes, pods) = (self.cluster.clone(), self.nodes.clone(), self.pods.clone());
        let controller = self.run(NodeController::new(cluster, nodes, pods, &self.recorder, self.pace));
        let handler = controller.clone();
        self.on_node.push(Box::new(move |change| handler.queue.add(change.latest().metadata.name.clone())));
        controller
    }

    fn autoscaler(&mut self, controller: &Arc<NodeController>) -> Arc<Autoscaler> {
        let requests = Arc::new(Store::<RequestObject>::new());
        let (nodes, pods) = (self.nodes.clone(), self.pods.clone());
        let stores = Stores { nodes, pods, requests: requests.clone(), objects: self.objects.clone() };
        let cluster = self.cluster.clone();
        let autoscaler =
            Arc::new(Autoscaler::new(cluster, stores, controller.clone(), &self.recorder, self.pace));
        let handler = autoscaler.clone();
        self.watch(&requests, move |_| handler.changed());
        let handler = autoscaler.clone();
        self.on_node.push(Box::new(move |change| {
            if change.old.is_none() || change.new.is_none() {
                handler.changed();
            }
        }));
        let handler = autoscaler.clone();
        self.on_pod.push(Box::new(move |_| handler.changed()));
        autoscaler
    }

    /// Starts the heartbeats of all nodes.
    pub(super) fn start_heartbeats(&mut self, controller: Arc<NodeController>) {
        self.tasks.spawn(async move { controller.heartbeats().await });
    }

    fn evictions(&mut self) {
        let (cluster, nodes, pods) = (self.cluster.clone(), self.nodes.clone(), self.pods.clone());
        let evictions = self.run(EvictionController::new(cluster, nodes, pods, &self.recorder, self.pace));
        let handler = evictions.clone();
        self.on_node.push(Box::new(move |change| handler.node_changed(&change.latest().metadata.name)));
        self.on_pod.push(Box::new(move |change| evictions.pod_changed(change.latest())));
    }

    fn kubelet(&mut self, logs: Option<LogSink>) {
        let (cluster, nodes, pods) = (self.cluster.clone(), self.nodes.clone(), self.pods.clone());
        let kubelet = self.run(Kubelet::new(cluster, nodes, pods, &self.recorder, self.pace, logs));
        let handler = kubelet.clone();
        self.on_node.push(Box::new(move |change| handler.node_changed(change)));
        self.on_pod.push(Box::new(move |change| kubelet.pod_changed(change)));
    }

    fn scheduler(&mut self) -> Arc<Scheduler> {
        let (cluster, pods) = (self.cluster.clone(), self.pods.clone());
        let scheduler = Arc::new(Scheduler::new(cluster, pods, self.objects.clone(), &self.recorder));
        let handler = scheduler.clone();
        self.on_node.push(Box::new(move |change| handler.node_changed(change)));
        let handler = scheduler.clone();
        self.on_pod.push(Box::new(move |change| handler.pod_changed(change)));
        let running = scheduler.clone();
        self.tasks.spawn(async move { running.run().await });
        scheduler
    }

    /// The scheduler, and the controllers of claims and volumes.
    fn storage(&mut self) {
        let (scheduler, objects) = (self.scheduler(), self.objects.clone());
        let (cluster, nodes, pods) = (self.cluster.clone(), self.nodes.clone(), self.pods.clone());
        let controller = Claims::new(cluster.clone(), objects.clone(), nodes, pods.clone(), &self.recorder);
        let claims = self.run(controller);
        let volumes = self.run(Volumes::new(cluster.clone(), objects.clone()));
        let created = EphemeralClaims::new(cluster, objects.claims.clone(), pods, &self.recorder);
        let created = self.run(created);
        let (claim_handler, wakes, handler) = (claims.clone(), scheduler.clone(), volumes.clone());
        self.watch(&objects.claims, move |change| {
            claim_handler.queue.add(change.latest().metadata.key());
            handler.claim_changed(change.latest());
            wakes.reference_changed();
        });
        let (claim_handler, wakes) = (claims.clone(), scheduler.clone());
        self.watch(&objects.volumes, move |change| {
            volumes.queue.add(change.latest().metadata.key());
            claim_handler.volume_changed(change.latest());
            wakes.reference_changed();
        });
        let (claim_handler, wakes) = (claims.clone(), scheduler.clone());
        self.watch(&objects.classes, move |change| {
            claim_handler.class_changed(&change.latest().metadata.name);
            wakes.reference_changed();
        });
        self.watch(&objects.namespaces, move |_| scheduler.reference_changed());
        self.on_pod.push(Box::new(move |change| {
            claims.pod_changed(change);
            created.pod_changed(change.latest());
        }));
    }

    fn jobs(&mut self) {
        let (cluster, store, pods) = (self.cluster.clone(), self.jobs.clone(), self.pods.clone());
        let jobs = self.run(Jobs::new(cluster, store, pods, &self.recorder, self.pace));
        let handler = jobs.clone();
        self.on_job.push(Box::new(move |change| handler.queue.add(change.latest().metadata.key())));
        self.on_pod.push(Box::new(move |change| jobs.pod_changed(change.latest())));
    }

    /// `ReplicaSet`s and Deployments.
    fn replica_sets(&mut self) {
        let store = Arc::new(Store::new());
        let (cluster, pods) = (self.cluster.clone(), self.pods.clone());
        let sets = self.run(ReplicaSets::new(cluster, store.clone(), pods, &self.recorder));
        let deployments = self.deployments(&store);
        let (handler, deployment_handler) = (sets.clone(), deployments.clone());
        self.watch(&store, move |change| {
            handler.queue.add(change.latest().metadata.key());
            deployment_handler.set_changed(change.latest());
        });
        self.on_pod.push(Box::new(move |change| {
            sets.pod_changed(change.latest());
            if change.new.is_none() {
                deployments.pod_removed(change.latest());
            }
        }));
    }

    fn deployments(&mut self, sets: &Arc<Store<ReplicaSet>>) -> Arc<Deployments> {
        let store = Arc::new(Store::<Deployment>::new());
        let (cluster, pods) = (self.cluster.clone(), self.pods.clone());
        let controller =
            Deployments::new(cluster, store.clone(), sets.clone(), pods, &self.recorder, self.pace);
        let deployments = self.run(controller);
        let handler = deployments.clone();
        self.watch(&store, move |change| handler.queue.add(change.latest().metadata.key()));
        deployments
    }

    fn stateful_sets(&mut self) {
        let store = Arc::new(Store::new());
        let (cluster, pods) = (self.cluster.clone(), self.pods.clone());
        let sets = self.run(StatefulSets::new(cluster, store.clone(), pods, &self.recorder));
        let handler = sets.clone();
        self.watch(&store, move |change| handler.queue.add(change.latest().metadata.key()));
        self.on_pod.push(Box::new(move |change| sets.pod_changed(change.latest())));
    }

    fn daemon_sets(&mut self) {
        let store = Arc::new(Store::new());
        let (cluster, nodes, pods) = (self.cluster.clone(), self.nodes.clone(), self.pods.clone());
        let sets = self.run(DaemonSets::new(cluster, store.clone(), pods, nodes, &self.recorder));
        let handler = sets.clone();
        self.watch(&store, move |change| handler.queue.add(change.latest().metadata.key()));
        let handler = sets.clone();
        self.on_pod.push(Box::new(move |change| handler.pod_changed(change.latest())));
        self.on_node.push(Box::new(move |_| sets.node_changed()));
    }

    fn ray_operators(&mut self) {
        let (cluster, store, pods) = (self.cluster.clone(), self.ray_clusters.clone(), self.pods.clone());
        let clusters = self.run(ClusterOperator::new(cluster, store, pods, &self.recorder, self.pace));
        let caches = JobCaches {
            jobs: self.ray_jobs.clone(),
            clusters: self.ray_clusters.clone(),
            submitters: self.jobs.clone(),
            pods: self.pods.clone(),
        };
        let jobs = self.run(JobOperator::new(self.cluster.clone(), caches, &self.recorder, self.pace));
        let (handler, deployment_handler) = (clusters.clone(), jobs.clone());
        self.ray_clusters.on_change(vec![Box::new(move |change| {
            handler.queue.add(change.latest().metadata.key());
            deployment_handler.child_changed(&**change.latest());
        })]);
        let handler = jobs.clone();
        self.ray_jobs
            .on_change(vec![Box::new(move |change| handler.queue.add(change.latest().metadata.key()))]);
        let handler = jobs.clone();
        self.on_job.push(Box::new(move |change| handler.child_changed(&**change.latest())));
        let (ray_clusters, ray_jobs) = (self.ray_clusters.clone(), self.ray_jobs.clone());
        self.watch_later(&ray_clusters);
        self.watch_later(&ray_jobs);
        self.on_pod.push(Box::new(move |change| {
            clusters.pod_changed(change.latest());
            jobs.pod_changed(change.latest());
        }));
    }

    /// Starts a controller.
    fn run<C: Controller>(&mut self, controller: C) -> Arc<C> {
        let controller = Arc::new(controller);
        self.tasks.spawn(run_controller(controller.clone()));
        controller
    }

    /// Starts a watch with a single handler.
    fn watch<K: Resource>(
        &mut self,
        store: &Arc<Store<K>>,
        handler: impl Fn(Change<'_, K>) + Send + Sync + 'static,
    ) {
        store.on_change(vec![Box::new(handler)]);
        self.tasks.spawn(reflect(self.cluster.clone(), store.clone()));
    }
}
