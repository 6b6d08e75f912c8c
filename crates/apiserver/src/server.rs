//! The state of the server: configuration, store, registry, and the work queue of the built-in controllers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use crate::admission::{Admission, Webhook};
use crate::aggregation::AggregatedApi;
use crate::allocator::ServiceAllocator;
use crate::converter::Converter;
use crate::documents::Documents;
use crate::plugins::AdmissionPlugin;
use crate::registry::Registry;
use crate::rng::Rng;
use crate::store::{History, Location, Store};
use crate::user::{Auth, User};

/// Configuration of a server.
#[derive(Debug, Clone)]
pub struct Config {
    /// Seed of the generator of uids and generated names.
    pub seed: u64,
    /// How requests are authenticated.
    pub auth: Auth,
    /// Version that `/version` returns, e.g. `v1.36.0`.
    pub version: String,
    /// Size of the change log of each resource, in changes.
    pub history_changes: usize,
    /// Size of the change log of each resource, in bytes.
    pub history_bytes: usize,
    /// Seconds after which an event is deleted.
    pub event_ttl_seconds: i64,
    /// Whether quotas are counted, as kube-controller-manager does beside kube-apiserver. A quota that is not counted allows everything.
    pub counts_quotas: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            seed: 0,
            auth: Auth::Open,
            version: "v1.36.0".into(),
            history_changes: 50_000,
            history_bytes: 128 << 20,
            event_ttl_seconds: 3600,
            counts_quotas: true,
        }
    }
}

/// An item in the work queue of the built-in controllers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WorkItem {
    /// Garbage collection: the owners of an object may be deleted, or its dependents may have to be deleted or
    /// orphaned.
    GarbageCollect(Location),
    /// Namespace controller: default objects, or deletion of the content.
    Namespace(String),
    /// Definition controller: establishing a definition, or deleting its instances.
    Definition(String),
}

/// A Kubernetes API server without a clock, tasks or sockets.
#[derive(Debug)]
pub struct ApiServer {
    pub(crate) config: Config,
    pub(crate) store: Store,
    pub(crate) registry: Registry,
    pub(crate) rng: Rng,
    /// Pending work of the built-in controllers.
    pub(crate) work_queue: BTreeSet<WorkItem>,
    /// Objects with a TTL, ordered by time of expiry.
    pub(crate) expiring: BTreeSet<(Timestamp, Location)>,
    pub(crate) expires_at: BTreeMap<Location, Timestamp>,
    pub(crate) terminating_namespaces: BTreeSet<String>,
    pub(crate) booted: bool,
    pub(crate) services: ServiceAllocator,
    /// Issued service account tokens, with their user and time of expiry.
    pub(crate) tokens: BTreeMap<String, (User, Timestamp)>,
    /// Log lines, by pod uid and container name.
    pub(crate) logs: BTreeMap<(String, String), Vec<(Timestamp, String)>>,
    /// Cached `OpenAPI` v3 documents, by group and version.
    pub(crate) documents: Documents,
    /// Number of simulated restarts.
    pub(crate) restarts: u64,
    /// Groups and versions that another component serves.
    pub(crate) aggregated: BTreeMap<(String, String), AggregatedApi>,
    /// Converters of custom resources, by group.
    pub(crate) converters: BTreeMap<String, Converter>,
    /// Admission plugins, by group, in the order in which they are asked.
    pub(crate) plugins: BTreeMap<String, Vec<Arc<dyn AdmissionPlugin>>>,
    /// Webhooks in the same process that review writes.
    pub(crate) webhooks: Vec<Webhook>,
    /// The admission of the request that is being executed, if webhooks may have to be called.
    pub(crate) admission: Option<Box<Admission>>,
}

impl ApiServer {
    /// An empty server. The first call creates the default namespaces, because creation needs the current time.
    pub fn new(config: Config) -> Self {
        let history = History { changes: config.history_changes, bytes: config.history_bytes };
        let registry = Registry::new();
        let mut store = Store::new(history);
        for resource in registry.all().filter(|r| !r.is_virtual()) {
            store.open(&resource.storage);
        }
        Self {
            rng: Rng::new(config.seed),
            store,
            registry,
            config,
            work_queue: BTreeSet::new(),
            expiring: BTreeSet::new(),
            expires_at: BTreeMap::new(),
            terminating_namespaces: BTreeSet::new(),
            booted: false,
            services: ServiceAllocator::default(),
            tokens: BTreeMap::new(),
            logs: BTreeMap::new(),
            documents: Documents::default(),
            restarts: 0,
            aggregated: BTreeMap::new(),
            converters: BTreeMap::new(),
            plugins: BTreeMap::new(),
            webhooks: Vec::new(),
            admission: None,
        }
    }

    /// Simulates a restart that keeps the stored objects. Every watch ends. A client that resumes from an older
    /// revision gets 410 `Expired`, because the change log is compacted.
    pub fn restart(&mut self) {
        self.restarts += 1;
        self.store.compact();
    }

    /// The resources that changed since the last call; the caller wakes their watches.
    pub fn take_changed(&mut self) -> impl Iterator<Item = Arc<str>> + use<> {
        self.store.take_changed().into_iter()
    }
}
