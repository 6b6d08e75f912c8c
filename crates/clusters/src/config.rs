//! How other clusters are used.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use controllers::{Clock, Meter};
use futures::future::BoxFuture;
use kube::Client;
use kube::config::Kubeconfig;

/// Makes the client of a worker from its kubeconfig, which was judged before.
pub type Connect = Arc<dyn Fn(Kubeconfig) -> BoxFuture<'static, Result<Client, String>> + Send + Sync>;

/// Who nominates clusters for a Workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dispatcher {
    /// All that are connected, at once.
    AllAtOnce,
    /// So many every five minutes, in the order of the configuration.
    Incremental {
        /// Their number.
        step: usize,
    },
    /// Another program.
    External,
}

/// How other clusters are used.
#[derive(Clone)]
pub struct ClustersConfig {
    /// The namespace of the Secrets with kubeconfigs.
    pub namespace: String,
    /// The folder of kubeconfigs in files.
    pub folder: PathBuf,
    /// The name of this hub among those that use the same workers.
    pub origin: String,
    /// How long a worker may be away until its Workloads run elsewhere, in microseconds.
    pub worker_lost_us: i64,
    /// Whether objects in workers are removed whose Workload is gone.
    pub collects: bool,
    /// Who nominates clusters.
    pub dispatcher: Dispatcher,
    /// The current time.
    pub clock: Clock,
    /// What counts.
    pub meter: Meter,
    /// How workers are reached.
    pub connect: Connect,
}

impl Default for ClustersConfig {
    fn default() -> Self {
        Self {
            namespace: "kueue-system".into(),
            folder: "/etc/multikueue/kubeconfigs".into(),
            origin: "multikueue".into(),
            worker_lost_us: 900_000_000,
            collects: true,
            dispatcher: Dispatcher::AllAtOnce,
            clock: Arc::new(jiff::Timestamp::now),
            meter: Meter::default(),
            connect: Arc::new(|config| Box::pin(crate::connect(config))),
        }
    }
}

impl fmt::Debug for ClustersConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClustersConfig")
            .field("namespace", &self.namespace)
            .field("origin", &self.origin)
            .field("worker_lost_us", &self.worker_lost_us)
            .field("dispatcher", &self.dispatcher)
            .finish_non_exhaustive()
    }
}
