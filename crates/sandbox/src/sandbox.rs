//! Wires all components to one API server and keeps them running.

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::Clock;
use crate::cluster::{Change, Cluster, Recorder, Resource, Store, drive, reflect};
use crate::kubelet::Kubelet;
use crate::nodes::{self, Evictions, NodeController, NodeError, NodeGroup};
use crate::pace::Pace;
use crate::ray::{self, ClusterOperator, RayCluster};
use crate::scheduler::Scheduler;
use crate::wire::{CustomResourceDefinition, Node, Pod};

/// Reconciliations of one controller at a time.
const WORKERS: usize = 16;

/// What a sandbox simulates, and how fast.
#[derive(Clone)]
pub struct Config {
    /// Node manifests, from [`NodeGroup::manifests`] or [`crate::nodes_from_manifests`].
    pub nodes: Vec<Value>,
    /// Divides all simulated durations; positive.
    pub speed: f64,
    /// Varies simulated durations; equal seeds give equal durations to objects of equal names.
    pub seed: u64,
    /// The time that stamps show.
    pub clock: Clock,
    /// Whether the KubeRay resources and their operator are there.
    pub ray: bool,
}

impl Default for Config {
    /// The default nodes in real time.
    fn default() -> Self {
        Self {
            nodes: NodeGroup::defaults().iter().flat_map(NodeGroup::manifests).collect(),
            speed: 1.0,
            seed: 0,
            clock: Arc::new(jiff::Timestamp::now),
            ray: true,
        }
    }
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { nodes, speed, seed, clock: _, ray } = self;
        f.debug_struct("Config")
            .field("nodes", &nodes.len())
            .field("speed", speed)
            .field("seed", seed)
            .field("ray", ray)
            .finish_non_exhaustive()
    }
}

/// Why a sandbox did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Nodes are described that cannot be.
    #[error(transparent)]
    Nodes(#[from] NodeError),
    /// The speed is not positive.
    #[error("speed {0} is not a positive number")]
    Speed(f64),
    /// The API server refused or did not answer.
    #[error("the sandbox cannot {0}")]
    Api(&'static str, #[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Components that run until this is dropped.
#[must_use = "the components end when this is dropped"]
#[derive(Debug)]
pub struct Sandbox {
    tasks: JoinSet<()>,
}

impl Sandbox {
    /// Creates the nodes and the custom resources, and starts all components.
    pub async fn start(client: kube::Client, config: Config) -> Result<Self, StartError> {
        nodes::distinct(&config.nodes)?;
        if !(config.speed.is_finite() && config.speed > 0.0) {
            return Err(StartError::Speed(config.speed));
        }
        let mut builder =
            Builder::new(Cluster::new(client, config.clock), Pace::new(config.speed, config.seed));
        let definitions = if config.ray { Some(builder.definitions()) } else { None };
        let controller = builder.nodes();
        builder.ray(config.ray);
        builder.start();
        if let Some((store, changed)) = definitions {
            store.synced().await;
            let installed = ray::install_crds(&builder.cluster, &store, &changed).await;
            installed.map_err(|error| StartError::Api("install the Ray resources", Box::new(error)))?;
            builder.watch_ray();
        }
        for node in config.nodes {
            let created = controller.create(node).await;
            created.map_err(|error| StartError::Api("create a node", Box::new(error)))?;
        }
        Ok(Self { tasks: builder.tasks })
    }

    /// Ends all components and waits until they have.
    pub async fn shutdown(mut self) {
        self.tasks.shutdown().await;
    }
}

type Handlers<K> = Vec<Box<dyn Fn(Change<'_, K>) + Send + Sync>>;

/// Collects stores, handlers and tasks before anything runs.
struct Builder {
    cluster: Cluster,
    pace: Pace,
    recorder: Recorder,
    nodes: Arc<Store<Node>>,
    pods: Arc<Store<Pod>>,
    clusters: Arc<Store<RayCluster>>,
    on_node: Handlers<Node>,
    on_pod: Handlers<Pod>,
    tasks: JoinSet<()>,
}

impl Builder {
    fn new(cluster: Cluster, pace: Pace) -> Self {
        let mut tasks = JoinSet::new();
        let (recorder, writer) = Recorder::new(cluster.clone());
        tasks.spawn(writer);
        Self {
            cluster,
            pace,
            recorder,
            nodes: Arc::new(Store::new()),
            pods: Arc::new(Store::new()),
            clusters: Arc::new(Store::new()),
            on_node: Vec::new(),
            on_pod: Vec::new(),
            tasks,
        }
    }

    fn definitions(&mut self) -> (Arc<Store<CustomResourceDefinition>>, Arc<Notify>) {
        let store = Arc::new(Store::new());
        let changed = Arc::new(Notify::new());
        let notify = changed.clone();
        store.on_change(vec![Box::new(move |_| notify.notify_one())]);
        self.watch(&store);
        (store, changed)
    }

    /// Nodes, what binds pods to them, and what runs there.
    fn nodes(&mut self) -> Arc<NodeController> {
        let (cluster, nodes, pods, pace) = (&self.cluster, &self.nodes, &self.pods, self.pace);
        let recorder = &self.recorder;
        let controller =
            Arc::new(NodeController::new(cluster.clone(), nodes.clone(), pods.clone(), recorder, pace));
        let evictions =
            Arc::new(Evictions::new(cluster.clone(), nodes.clone(), pods.clone(), recorder, pace));
        let kubelet = Arc::new(Kubelet::new(cluster.clone(), nodes.clone(), pods.clone(), recorder, pace));
        let scheduler = Arc::new(Scheduler::new(cluster.clone(), pods.clone(), recorder));

        let (a, b, c, d) = (controller.clone(), evictions.clone(), kubelet.clone(), scheduler.clone());
        self.on_node.push(Box::new(move |change| {
            let name = &change.latest().metadata.name;
            a.queue.add(name.clone());
            b.node_changed(name);
            c.node_changed(change);
            d.node_changed(change);
        }));
        let (b, c, d) = (evictions.clone(), kubelet.clone(), scheduler.clone());
        self.on_pod.push(Box::new(move |change| {
            b.pod_changed(change.latest());
            c.pod_changed(change);
            d.pod_changed(change);
        }));

        let a = controller.clone();
        self.tasks.spawn(async move { drive("nodes", &a.queue, WORKERS, |name| a.reconcile(name)).await });
        self.tasks.spawn(async move {
            drive("evictions", &evictions.queue, WORKERS, |key| evictions.reconcile(key)).await;
        });
        self.tasks.spawn(async move {
            drive("kubelet", &kubelet.queue, WORKERS, |key| kubelet.reconcile(key)).await;
        });
        self.tasks.spawn(async move { scheduler.run().await });
        let beating = controller.clone();
        self.tasks.spawn(async move {
            beating.heartbeats().await;
        });
        controller
    }

    fn ray(&mut self, wanted: bool) {
        if !wanted {
            return;
        }
        let (cluster, clusters, pods) = (self.cluster.clone(), self.clusters.clone(), self.pods.clone());
        let operator = Arc::new(ClusterOperator::new(cluster, clusters, pods, &self.recorder, self.pace));
        let a = operator.clone();
        self.clusters.on_change(vec![Box::new(move |change| a.queue.add(change.latest().metadata.key()))]);
        let a = operator.clone();
        self.on_pod.push(Box::new(move |change| a.pod_changed(change.latest())));
        self.tasks.spawn(async move {
            drive("rayclusters", &operator.queue, WORKERS, |key| operator.reconcile(key)).await;
        });
    }

    /// Starts the watches of kinds that every API server has.
    fn start(&mut self) {
        self.nodes.on_change(std::mem::take(&mut self.on_node));
        self.pods.on_change(std::mem::take(&mut self.on_pod));
        let (nodes, pods) = (self.nodes.clone(), self.pods.clone());
        self.watch(&nodes);
        self.watch(&pods);
    }

    fn watch_ray(&mut self) {
        let clusters = self.clusters.clone();
        self.watch(&clusters);
    }

    fn watch<K: Resource>(&mut self, store: &Arc<Store<K>>) {
        self.tasks.spawn(reflect(self.cluster.clone(), store.clone()));
    }
}
