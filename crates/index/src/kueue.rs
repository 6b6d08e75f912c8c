//! Kueue's objects: the queues and flavors of the World, and the Workloads as its gangs.
//!
//! - `queues`: flavors, cohorts and queues as flavors, quota nodes and queues of the World;
//! - `requests`: what pods request of quota, after the configuration and the limits of their namespace;
//! - `usage`: what local queues have consumed;
//! - `workloads`: the state of each Workload, and its gang;
//! - `places`: the places of their pods in the plan, in the status, and in the pods; `ranks`: which pod goes to which place;
//! - `refused_nodes`: nodes that kube-scheduler refuses to the pods of a Workload;
//! - `seats`: the nodes where pods are counted whose domains are broader than a node;
//! - `slices`: Workloads that continue others with more pods;
//! - `claims`: the persistent volume claims of Workloads;
//! - `blocked_admission`: Workloads that wait until the pods of others are ready;
//! - `blockers`: why Workloads cannot be queued;
//! - `figures`: whether queues are active, and the figures of their status.
//!
//! Names of quota nodes have a prefix with a colon, which no name of an MCAD quota tree has.

mod blocked_admission;
mod blockers;
mod claims;
mod failed_nodes;
mod figures;
mod places;
mod queues;
mod ranks;
mod refused_nodes;
mod requests;
mod seats;
mod slices;
mod usage;
mod workloads;

use std::collections::{BTreeMap, BTreeSet};

use api::Meta;
use api::kueue::FINALIZER;
use api::kueue::objects::{
    AdmissionCheck, ClusterQueue, Cohort, LocalQueue, ResourceFlavor, Topology, WorkloadPriorityClass,
};
use api::kueue::workload::Workload;

use blocked_admission::BlockedAdmission;
pub use blockers::{Blocker, BlockerKind};
pub use failed_nodes::FailedNodeRules;
use failed_nodes::UnreadyNodes;
pub use figures::{Activity, FlavorFigures, LocalQueueFigures, Pending, QueueFigures};
pub use queues::QuotaNodes;
pub use requests::{KueueRules, UsageRules};
pub use workloads::{Eviction, WORKLOADS, WorkloadPhase, WorkloadRow};

use crate::Index;

/// The object of Kueue that was added, modified or deleted.
#[derive(Debug, Clone)]
pub enum KueueChange {
    /// A `ResourceFlavor` was added or modified.
    Flavor(ResourceFlavor),
    /// A `Topology` was added or modified.
    Topology(Topology),
    /// A `Cohort` was added or modified.
    Cohort(Cohort),
    /// A `ClusterQueue` was added or modified.
    ClusterQueue(Box<ClusterQueue>),
    /// A `LocalQueue` was added or modified.
    LocalQueue(LocalQueue),
    /// An `AdmissionCheck` was added or modified.
    Check(AdmissionCheck),
    /// A `WorkloadPriorityClass` was added or modified.
    PriorityClass(WorkloadPriorityClass),
    /// A `Workload` was added or modified.
    Workload(Box<Workload>),
    /// A cluster-scoped object was deleted; its kind and name.
    Deleted(KueueKind, String),
    /// A `LocalQueue` was deleted; its uid.
    LocalQueueDeleted(String),
    /// A `Workload` was deleted; its uid.
    WorkloadDeleted(String),
}

impl KueueChange {
    /// The change that an object of a kind was deleted.
    pub fn deleted(kind: KueueKind, uid: String, name: String) -> Self {
        match kind {
            KueueKind::LocalQueue => Self::LocalQueueDeleted(uid),
            KueueKind::Workload => Self::WorkloadDeleted(uid),
            KueueKind::Flavor
            | KueueKind::Topology
            | KueueKind::Cohort
            | KueueKind::ClusterQueue
            | KueueKind::Check
            | KueueKind::PriorityClass => Self::Deleted(kind, name),
        }
    }
}

/// The kinds of Kueue that are watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum KueueKind {
    /// `ResourceFlavor`.
    Flavor,
    /// `Topology`.
    Topology,
    /// `Cohort`.
    Cohort,
    /// `ClusterQueue`.
    ClusterQueue,
    /// `LocalQueue`.
    LocalQueue,
    /// `AdmissionCheck`.
    Check,
    /// `WorkloadPriorityClass`.
    PriorityClass,
    /// `Workload`.
    Workload,
}

impl KueueKind {
    /// All kinds.
    pub const ALL: [Self; 8] = [
        Self::Flavor,
        Self::Topology,
        Self::Cohort,
        Self::ClusterQueue,
        Self::LocalQueue,
        Self::Check,
        Self::PriorityClass,
        Self::Workload,
    ];

    /// Kind and plural.
    pub fn resource(self) -> (&'static str, &'static str) {
        match self {
            Self::Flavor => ("ResourceFlavor", "resourceflavors"),
            Self::Topology => ("Topology", "topologies"),
            Self::Cohort => ("Cohort", "cohorts"),
            Self::ClusterQueue => ("ClusterQueue", "clusterqueues"),
            Self::LocalQueue => ("LocalQueue", "localqueues"),
            Self::Check => ("AdmissionCheck", "admissionchecks"),
            Self::PriorityClass => ("WorkloadPriorityClass", "workloadpriorityclasses"),
            Self::Workload => ("Workload", "workloads"),
        }
    }
}

/// A queue whose status may have changed, or an object whose finalizer may have.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum QueueKey {
    /// A `ResourceFlavor`, by name.
    Flavor(String),
    /// A `Topology`, by name.
    Topology(String),
    /// An `AdmissionCheck`, by name.
    Check(String),
    /// A `Cohort`, by name.
    Cohort(String),
    /// A `ClusterQueue`, by name.
    Cluster(String),
    /// A `LocalQueue`, by namespace and name.
    Local(String, String),
}

/// All observed objects of Kueue.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kueue {
    flavors: BTreeMap<String, ResourceFlavor>,
    topologies: BTreeMap<String, Topology>,
    cohorts: BTreeMap<String, Cohort>,
    cluster_queues: BTreeMap<String, ClusterQueue>,
    local_queues: BTreeMap<(String, String), LocalQueue>,
    checks: BTreeMap<String, AdmissionCheck>,
    /// By uid.
    workloads: BTreeMap<String, WorkloadRow>,
    /// The uids of Workloads that use persistent volume claims and have not ended.
    claiming: BTreeSet<String>,
    /// The uids of the slices of a job, by namespace and name of the first one.
    by_chain: BTreeMap<(String, String), BTreeSet<String>>,
    /// The uids of Workloads that replace another one, by its namespace and name.
    by_replaced: BTreeMap<(String, String), BTreeSet<String>>,
    /// The uids of Workloads by namespace and name.
    by_name: BTreeMap<(String, String), String>,
    /// The uids of the Workloads of each local queue that have not ended, by namespace and name.
    by_queue: BTreeMap<(String, String), BTreeSet<String>>,
    /// The uids of the Workloads that have not ended and whose status names a `ClusterQueue`, by its name.
    by_cluster_queue: BTreeMap<String, BTreeSet<String>>,
    /// Why kinds cannot be listed: no Workload is admitted meanwhile.
    failures: BTreeMap<KueueKind, String>,
    /// Whether pending Workloads are planned.
    admits: bool,
    /// Workloads are watched.
    pub(crate) is_served: bool,
    rules: KueueRules,
    blocked: BlockedAdmission,
    /// The recorded usage of local queues is restored.
    are_usages_restored: bool,
    /// The values of priority classes, by name.
    priority_classes: BTreeMap<String, i32>,
    dirty_workloads: BTreeSet<String>,
    unready: UnreadyNodes,
    /// The uids of Workloads whose pods may have to be counted on other nodes.
    unseated: BTreeSet<String>,
    dirty_queues: BTreeSet<QueueKey>,
}

impl Index {
    /// Sets how Workloads are counted and ordered. To be called before any is observed.
    pub fn set_kueue_rules(&mut self, rules: KueueRules) {
        self.kueue.rules = rules;
    }

    /// How Workloads are counted and ordered.
    pub fn kueue_rules(&self) -> &KueueRules {
        &self.kueue.rules
    }

    /// Applies that Workloads are watched: what changes their requests is to be watched, too.
    pub fn set_workloads_served(&mut self) {
        self.kueue.is_served = true;
    }

    /// Sets whether pending Workloads are planned. To be called before any is observed.
    pub fn set_admits_workloads(&mut self, admits: bool) {
        self.kueue.admits = admits;
    }

    /// Sets why the objects of a kind are unknown, if they are: no Workload is admitted, and each says why.
    pub fn set_kueue_failure(&mut self, kind: KueueKind, message: Option<&str>) {
        let failures = &mut self.kueue.failures;
        let before = match message {
            Some(message) => failures.insert(kind, message.to_owned()),
            None => failures.remove(&kind),
        };
        if before.as_deref() != message {
            let uids: Vec<String> = self.kueue.workloads.keys().cloned().collect();
            for uid in uids {
                self.publish_workload(&uid);
            }
        }
    }

    /// Applies a change of an object of Kueue.
    pub fn apply_kueue(&mut self, change: KueueChange) {
        match change {
            KueueChange::Flavor(flavor) => {
                let name = flavor.metadata.name.clone();
                let known = self.kueue.flavors.get(&name).map(|known| (&known.metadata, &known.spec));
                let is_same = is_same(known, &flavor.metadata, &flavor.spec);
                self.kueue.flavors.insert(name.clone(), flavor);
                if !is_same {
                    self.publish_flavor(&name);
                }
            }
            KueueChange::Topology(topology) => {
                let name = topology.metadata.name.clone();
                self.kueue.topologies.insert(name.clone(), topology);
                self.publish_flavors_of(&name);
            }
            KueueChange::Cohort(cohort) => {
                let name = cohort.metadata.name.clone();
                let known = self.kueue.cohorts.get(&name).map(|known| (&known.metadata, &known.spec));
                let is_same = is_same(known, &cohort.metadata, &cohort.spec);
                self.kueue.cohorts.insert(name.clone(), cohort);
                if is_same {
                    self.kueue.dirty_queues.insert(QueueKey::Cohort(name));
                } else {
                    self.publish_cohort(&name);
                }
            }
            KueueChange::ClusterQueue(queue) => {
                let name = queue.metadata.name.clone();
                let known = self.kueue.cluster_queues.get(&name).map(|known| (&known.metadata, &known.spec));
                let is_same = is_same(known, &queue.metadata, &queue.spec);
                self.kueue.cluster_queues.insert(name.clone(), *queue);
                // A new status, which this process writes often, changes no Workload.
                if is_same {
                    self.kueue.dirty_queues.insert(QueueKey::Cluster(name));
                } else {
                    self.publish_cluster_queue(&name);
                }
            }
            KueueChange::LocalQueue(queue) => {
                let key = (queue.metadata.namespace.clone(), queue.metadata.name.clone());
                self.upsert_local_queue(&key, &queue);
            }
            KueueChange::Check(check) => {
                let name = check.metadata.name.clone();
                self.kueue.checks.insert(name.clone(), check);
                self.check_changed(&name);
            }
            KueueChange::PriorityClass(class) => {
                let name = class.metadata.name.clone();
                self.kueue.priority_classes.insert(name.clone(), class.value);
                self.priority_class_changed(&name);
            }
            KueueChange::Workload(workload) => self.upsert_workload(*workload),
            KueueChange::Deleted(kind, name) => self.delete_kueue(kind, &name),
            KueueChange::LocalQueueDeleted(uid) => {
                let of_uid = |queue: &LocalQueue| queue.metadata.uid == uid;
                let key = self
                    .kueue
                    .local_queues
                    .iter()
                    .find(|(_, queue)| of_uid(queue))
                    .map(|(key, _)| key.clone());
                if let Some(key) = key {
                    self.delete_local_queue(&key);
                }
            }
            KueueChange::WorkloadDeleted(uid) => self.delete_workload(&uid),
        }
    }

    fn delete_kueue(&mut self, kind: KueueKind, name: &str) {
        match kind {
            KueueKind::Flavor => {
                self.kueue.flavors.remove(name);
                self.publish_flavor(name);
            }
            KueueKind::Topology => {
                self.kueue.topologies.remove(name);
                self.publish_flavors_of(name);
            }
            KueueKind::Cohort => {
                self.kueue.cohorts.remove(name);
                self.publish_cohort(name);
            }
            KueueKind::ClusterQueue => {
                self.kueue.cluster_queues.remove(name);
                self.publish_cluster_queue(name);
            }
            KueueKind::Check => {
                self.kueue.checks.remove(name);
                self.check_changed(name);
            }
            KueueKind::PriorityClass => drop(self.kueue.priority_classes.remove(name)),
            KueueKind::LocalQueue | KueueKind::Workload => {}
        }
    }

    /// Marks the Workloads of a priority class for reconciliation.
    fn priority_class_changed(&mut self, name: &str) {
        let of_class =
            self.kueue.workloads.values().filter(|row| row.object.own_priority_class() == Some(name));
        let uids: Vec<String> = of_class.map(|row| row.uid().to_owned()).collect();
        self.kueue.dirty_workloads.extend(uids);
    }

    /// The priority that the `WorkloadPriorityClass` of a Workload has, if it is another one than that of its spec.
    pub fn new_priority(&self, row: &WorkloadRow) -> Option<i32> {
        self.class_priority(&row.object).filter(|value| *value != row.object.spec.priority)
    }

    /// The priority that the `WorkloadPriorityClass` of a Workload has, if it names one that exists.
    pub fn class_priority(&self, workload: &Workload) -> Option<i32> {
        self.kueue.priority_classes.get(workload.own_priority_class()?).copied()
    }

    /// Forgets all objects of a kind.
    pub fn forget_kueue(&mut self, kind: KueueKind) {
        let kueue = &self.kueue;
        let names: Vec<String> = match kind {
            KueueKind::Flavor => kueue.flavors.keys().cloned().collect(),
            KueueKind::Topology => kueue.topologies.keys().cloned().collect(),
            KueueKind::Cohort => kueue.cohorts.keys().cloned().collect(),
            KueueKind::ClusterQueue => kueue.cluster_queues.keys().cloned().collect(),
            KueueKind::Check => kueue.checks.keys().cloned().collect(),
            KueueKind::PriorityClass => kueue.priority_classes.keys().cloned().collect(),
            KueueKind::LocalQueue => {
                kueue.local_queues.values().map(|queue| queue.metadata.uid.clone()).collect()
            }
            KueueKind::Workload => kueue.workloads.keys().cloned().collect(),
        };
        for name in names {
            self.apply_kueue(KueueChange::deleted(kind, name.clone(), name));
        }
    }

    /// Applies that the labels of a namespace, which decide which queues admit its Workloads, have changed.
    pub(crate) fn namespace_labels_changed(&mut self, name: &str) {
        let inside = self.kueue.workloads.values().filter(|row| row.namespace() == name);
        let uids: Vec<String> = inside.map(|row| row.uid().to_owned()).collect();
        for uid in uids {
            self.publish_workload(&uid);
        }
    }

    /// The uids of the Workloads with a change since the last call.
    pub fn take_dirty_workloads(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.kueue.dirty_workloads)
    }

    /// The queues whose status may have changed since the last call.
    pub fn take_dirty_queues(&mut self) -> BTreeSet<QueueKey> {
        std::mem::take(&mut self.kueue.dirty_queues)
    }

    /// Marks a Workload for reconciliation.
    pub fn mark_workload_dirty(&mut self, uid: &str) {
        if self.kueue.workloads.contains_key(uid) {
            self.kueue.dirty_workloads.insert(uid.to_owned());
        }
    }

    /// The Workload with this uid.
    pub fn workload(&self, uid: &str) -> Option<&WorkloadRow> {
        self.kueue.workloads.get(uid)
    }

    /// The Workload of this name.
    pub fn workload_named(&self, namespace: &str, name: &str) -> Option<&WorkloadRow> {
        self.kueue.workloads.get(self.kueue.by_name.get(&(namespace.to_owned(), name.to_owned()))?)
    }

    /// All Workloads, by uid.
    pub fn workloads(&self) -> impl Iterator<Item = &WorkloadRow> {
        self.kueue.workloads.values()
    }

    /// The `ClusterQueue` of this name.
    pub fn cluster_queue(&self, name: &str) -> Option<&ClusterQueue> {
        self.kueue.cluster_queues.get(name)
    }

    /// All `ClusterQueue`s, by name.
    pub fn cluster_queues(&self) -> impl Iterator<Item = &ClusterQueue> {
        self.kueue.cluster_queues.values()
    }

    /// All `LocalQueue`s, by namespace and name.
    pub fn local_queues(&self) -> impl Iterator<Item = &LocalQueue> {
        self.kueue.local_queues.values()
    }

    /// All `Cohort`s that have an object, by name.
    pub fn cohorts(&self) -> impl Iterator<Item = &Cohort> {
        self.kueue.cohorts.values()
    }

    /// The `Cohort` of this name.
    pub fn cohort(&self, name: &str) -> Option<&Cohort> {
        self.kueue.cohorts.get(name)
    }

    /// The metadata of an object; `None` if it is not there.
    fn queue_meta(&self, key: &QueueKey) -> Option<&Meta> {
        let kueue = &self.kueue;
        match key {
            QueueKey::Cluster(name) => kueue.cluster_queues.get(name).map(|queue| &queue.metadata),
            QueueKey::Local(namespace, name) => {
                self.local_queue(namespace, name).map(|queue| &queue.metadata)
            }
            QueueKey::Cohort(name) => kueue.cohorts.get(name).map(|cohort| &cohort.metadata),
            QueueKey::Flavor(name) => kueue.flavors.get(name).map(|flavor| &flavor.metadata),
            QueueKey::Topology(name) => kueue.topologies.get(name).map(|topology| &topology.metadata),
            QueueKey::Check(name) => kueue.checks.get(name).map(|check| &check.metadata),
        }
    }

    /// The uid of an object; `None` if it is not there.
    pub fn queue_uid(&self, key: &QueueKey) -> Option<&str> {
        self.queue_meta(key).map(|meta| meta.uid.as_str())
    }

    /// The finalizers that an object is to have, if they are others than it has: a `ClusterQueue` is kept until no
    /// admitted Workload is left in it, a `ResourceFlavor` and an `AdmissionCheck` until no queue names them, a `Topology`
    /// until no flavor does.
    pub fn wanted_finalizers(&self, key: &QueueKey) -> Option<Vec<String>> {
        let has_finalizer = !matches!(key, QueueKey::Cohort(_) | QueueKey::Local(..));
        let meta = self.queue_meta(key).filter(|_| has_finalizer)?;
        match (meta.is_deleting(), meta.has_finalizer(FINALIZER)) {
            (false, false) => Some(meta.finalizers.iter().cloned().chain([FINALIZER.to_owned()]).collect()),
            (true, true) if !self.is_used(key) => Some(meta.finalizers_without(FINALIZER)),
            (false | true, _) => None,
        }
    }

    /// Whether a Workload is admitted in a queue, a queue names a flavor or check, or a flavor names a topology.
    fn is_used(&self, key: &QueueKey) -> bool {
        let mut queues = self.kueue.cluster_queues.values();
        match key {
            QueueKey::Cluster(name) => self.cluster_queue_figures(name).admitted > 0,
            QueueKey::Flavor(name) => queues.any(|queue| queues::lists(queue, name)),
            QueueKey::Topology(name) => {
                self.kueue.flavors.values().any(|flavor| flavor.spec.topology_name == *name)
            }
            QueueKey::Check(name) => queues.any(|queue| queues::needs(queue, name)),
            QueueKey::Cohort(_) | QueueKey::Local(..) => false,
        }
    }

    /// The `LocalQueue` of this namespace and name.
    pub fn local_queue(&self, namespace: &str, name: &str) -> Option<&LocalQueue> {
        self.kueue.local_queues.get(&(namespace.to_owned(), name.to_owned()))
    }
}

/// Whether an object differs in its status alone from what is known of it.
fn is_same<S: PartialEq>(known: Option<(&Meta, &S)>, meta: &Meta, spec: &S) -> bool {
    known.is_some_and(|(of, known)| known == spec && of.is_same(meta))
}
