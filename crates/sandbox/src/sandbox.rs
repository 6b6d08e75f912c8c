//! Starts all components against one API server.

mod wiring;

use std::sync::Arc;

use api::kueue::jobs::JobKind;
use serde_json::Value;
use tokio::task::JoinSet;

use self::wiring::{Operators, Wiring};
use crate::autoscaler::{self, NodePool, PoolError};
use crate::cluster::{Cluster, Resource, Room, Store, install_definitions};
use crate::nodes::{self, NodeError, NodeGroup};
use crate::operators;
use crate::pace::Pace;
use crate::ray;
use crate::storage;
use crate::wire::StorageClass;
use crate::{Clock, LogSink};

/// Configuration of a sandbox.
#[derive(Clone)]
pub struct Config {
    /// Node manifests, from [`NodeGroup::manifests`] or [`crate::nodes_from_manifests`].
    pub nodes: Vec<Value>,
    /// Divides all simulated durations. Must be positive.
    pub speed: f64,
    /// Seed of the simulated durations and generated names. Equal seeds give equal durations to objects of equal
    /// names.
    pub seed: u64,
    /// Source of the timestamps in objects.
    pub clock: Clock,
    /// Receives container logs, if set.
    pub logs: Option<LogSink>,
    /// The node pools of the autoscaler. It watches `ProvisioningRequest`s, whose definition must be installed. `None`: no
    /// autoscaler.
    pub pools: Option<Vec<NodePool>>,
    /// Whether to install the KubeRay custom resources and run their operator.
    pub ray: bool,
    /// Whether to install `JobSet`, `LeaderWorkerSet`, `MPIJob`, Kubeflow's training jobs and the other kinds of jobs that
    /// Kueue has, and run their operators.
    pub operators: bool,
    /// The kinds of jobs, beside those of Kueue's, whose definitions are installed and whose jobs the one operator for all kinds runs.
    pub kinds: Vec<&'static JobKind>,
    /// Whether AppWrappers `workload.codeflare.dev/v1beta2` are among them.
    pub wrappers: bool,
}

impl Default for Config {
    /// The default nodes, in real time.
    fn default() -> Self {
        Self {
            nodes: NodeGroup::defaults().iter().flat_map(NodeGroup::manifests).collect(),
            speed: 1.0,
            seed: 0,
            clock: Arc::new(jiff::Timestamp::now),
            logs: None,
            pools: None,
            ray: true,
            operators: true,
            kinds: Vec::new(),
            wrappers: true,
        }
    }
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { nodes, speed, seed, clock: _, logs: _, pools, ray, operators, kinds, wrappers } = self;
        f.debug_struct("Config")
            .field("nodes", &nodes.len())
            .field("speed", speed)
            .field("seed", seed)
            .field("pools", pools)
            .field("ray", ray)
            .field("operators", operators)
            .field("kinds", &kinds.len())
            .field("wrappers", wrappers)
            .finish_non_exhaustive()
    }
}

/// Why a sandbox did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The node manifests are invalid.
    #[error(transparent)]
    Nodes(#[from] NodeError),
    /// The node pools are invalid.
    #[error(transparent)]
    Pools(#[from] PoolError),
    /// The speed is not positive.
    #[error("speed {0} is not a positive number")]
    Speed(f64),
    /// The API server rejected a request or did not answer.
    #[error("the sandbox cannot {0}")]
    Api(&'static str, #[source] Box<dyn std::error::Error + Send + Sync>),
}

/// The running components. Dropping the value stops them.
#[must_use = "the components stop when this is dropped"]
#[derive(Debug)]
pub struct Sandbox {
    tasks: JoinSet<()>,
}

impl Sandbox {
    /// Creates the nodes and the custom resources, and starts all components.
    pub async fn start(client: kube::Client, config: Config) -> Result<Self, StartError> {
        nodes::distinct(&config.nodes)?;
        autoscaler::distinct(config.pools.as_deref().unwrap_or_default())?;
        if !(config.speed.is_finite() && config.speed > 0.0) {
            return Err(StartError::Speed(config.speed));
        }
        let pools = config.pools.iter().flatten();
        let pooled = pools.map(NodePool::pods_max).fold(0, i64::saturating_add);
        let nodes = Arc::new(Store::new());
        let cluster = Cluster::new(client, config.clock, Room::new(nodes.clone(), pooled));
        let mut wiring = Wiring::new(cluster, nodes, Pace::new(config.speed, config.seed));
        let definitions = wiring.definitions();
        let scales = config.pools.is_some();
        let mut kinds = if config.operators { operators::operated(&config.kinds) } else { Vec::new() };
        kinds.retain(|kind| config.wrappers || kind.framework != "workload.codeflare.dev/appwrapper");
        let operators = Operators { ray: config.ray, others: config.operators };
        let (nodes, autoscaler) = wiring.components(config.logs, operators, &kinds, scales);
        let mut resources = Vec::new();
        if config.ray {
            resources.extend(ray::definitions());
        }
        if config.operators {
            resources.extend(operators::definitions());
            resources.extend(operators::definitions_of_jobs(&kinds));
        }
        definitions.0.synced().await;
        let installed =
            install_definitions(&wiring.cluster, &definitions.0, &definitions.1, &resources).await;
        installed.map_err(|error| StartError::Api("install the custom resources", Box::new(error)))?;
        wiring.watch_custom_resources();
        wiring.start_presets();
        let class = wiring.cluster.create_if_absent(StorageClass::KIND, "", &storage::default_class()).await;
        class.map_err(|error| StartError::Api("create the default storage class", Box::new(error)))?;
        for node in config.nodes {
            let created = nodes.create(node).await;
            created.map_err(|error| StartError::Api("create a node", Box::new(error)))?;
        }
        wiring.start_heartbeats(nodes);
        if let Some((autoscaler, pools)) = autoscaler.zip(config.pools) {
            wiring.tasks.spawn(async move { autoscaler.run(pools).await });
        }
        Ok(Self { tasks: wiring.tasks })
    }

    /// Stops all components and waits for them to end.
    pub async fn shutdown(mut self) {
        self.tasks.shutdown().await;
    }
}
