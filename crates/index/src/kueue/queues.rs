//! Flavors, cohorts and queues of Kueue as flavors, quota nodes and queues of the World.

use std::collections::BTreeMap;

use api::Amounts;
use api::kueue::objects::{ClusterQueue, CohortSpec, FairSharing, LocalQueue, ResourceFlavor, ResourceGroup};
use api::pod::Scheduling;
use model::{
    Amount, BorrowWithinCohort, Event, Flavor, FlavorFungibility, FlavorFungibilityPolicy,
    FlavorFungibilityPreference, FlavorResource, Limits, Queue, QueueingStrategy, QuotaIx, QuotaNode,
    QuotaPreemption, ReclaimWithinCohort, Taint, UndeclaredResources, WithinClusterQueue, World,
};
use serde_json::{Value, json};

use super::QueueKey;
use crate::{Index, translate};

/// The annotation of a `ClusterQueue` whose first Workload that does not fit gets a reserved start: `true`. Others follow Kueue's
/// queueing strategies alone.
const RESERVE_STARTS: &str = "muster.dev/reserve-starts";

/// The annotation of a `ClusterQueue` whose pods get nodes in all its flavors, not only in those with a topology: `true` or
/// `false`. Without it, [`KueueRules::places_pods`](super::KueueRules) decides.
const PLACE_PODS: &str = "muster.dev/place-pods";

/// The prefix of the quota nodes of `ClusterQueue`s.
const QUEUE: &str = "clusterqueue:";
/// The prefix of the quota nodes of `Cohort`s.
const COHORT: &str = "cohort:";

/// The name of the quota node of a `ClusterQueue`.
pub(super) fn queue_node(name: &str) -> String {
    format!("{QUEUE}{name}")
}

/// The name of the quota node of a `Cohort`.
pub(super) fn cohort_node(name: &str) -> String {
    format!("{COHORT}{name}")
}

/// The quota nodes of Kueue's queues and cohorts, by name.
#[derive(Debug, Clone, Default)]
pub struct QuotaNodes<'a> {
    /// Of `ClusterQueue`s.
    pub queues: BTreeMap<&'a str, QuotaIx>,
    /// Of cohorts, also those without an object.
    pub cohorts: BTreeMap<&'a str, QuotaIx>,
}

impl Index {
    /// The quota nodes of Kueue's queues and cohorts.
    pub fn quota_nodes(&self) -> QuotaNodes<'_> {
        let mut nodes = QuotaNodes::default();
        let known = self.world.quota_nodes().keys();
        for ix in known.flat_map(|ix| [*ix].into_iter().chain(self.world.forest().path(*ix))) {
            let name = self.world.quota_name(ix);
            if let Some(name) = name.strip_prefix(QUEUE) {
                nodes.queues.insert(name, ix);
            } else if let Some(name) = name.strip_prefix(COHORT) {
                nodes.cohorts.insert(name, ix);
            }
        }
        nodes
    }

    /// The cohorts of a `ClusterQueue`, from its own to the root.
    pub fn cohorts_of(&self, queue: &str) -> Vec<&str> {
        let queue = self.kueue.cluster_queues.get(queue);
        queue.map_or_else(Vec::new, |queue| self.cohort_path(&queue.spec.cohort_name))
    }

    /// A cohort and those above it. A cycle ends where it begins again.
    pub fn cohort_path<'a>(&'a self, name: &'a str) -> Vec<&'a str> {
        let mut path = Vec::new();
        let mut next = name;
        while !next.is_empty() && !path.contains(&next) {
            path.push(next);
            next = self.kueue.cohorts.get(next).map_or("", |cohort| &cohort.spec.parent_name);
        }
        path
    }

    /// The name of the topology of a flavor, if it has one.
    pub fn topology_name(&self, flavor: &str) -> Option<&str> {
        let name = &self.kueue.flavors.get(flavor)?.spec.topology_name;
        (!name.is_empty()).then_some(name)
    }

    /// Whether all flavors of a queue have a topology.
    pub(super) fn has_topologies_alone(&self, queue: &str) -> bool {
        let Some(queue) = self.kueue.cluster_queues.get(queue) else { return false };
        let groups = queue.spec.resource_groups.iter();
        let mut flavors = groups.flat_map(|group| &group.flavors).peekable();
        flavors.peek().is_some() && flavors.all(|flavor| self.topology_name(&flavor.name).is_some())
    }

    /// Updates a flavor in the World, and the queues that list it.
    pub(super) fn publish_flavor(&mut self, name: &str) {
        let event = match self.kueue.flavors.get(name) {
            Some(flavor) => Event::FlavorUpserted(self.flavor(flavor)),
            None => Event::FlavorRemoved(name.to_owned()),
        };
        self.world.apply_deferred(event);
        self.kueue.dirty_queues.insert(QueueKey::Flavor(name.to_owned()));
        let topologies = self.kueue.topologies.keys().map(|name| QueueKey::Topology(name.clone()));
        self.kueue.dirty_queues.extend(topologies);
        let queues = self.kueue.cluster_queues.values().filter(|queue| lists(queue, name));
        let queues: Vec<String> = queues.map(|queue| queue.metadata.name.clone()).collect();
        for queue in queues {
            self.publish_cluster_queue(&queue);
        }
    }

    /// Updates the flavors of a topology.
    pub(super) fn publish_flavors_of(&mut self, topology: &str) {
        self.kueue.dirty_queues.insert(QueueKey::Topology(topology.to_owned()));
        let of = self.kueue.flavors.values().filter(|flavor| flavor.spec.topology_name == topology);
        let names: Vec<String> = of.map(|flavor| flavor.metadata.name.clone()).collect();
        for name in names {
            self.publish_flavor(&name);
        }
    }

    fn flavor(&self, flavor: &ResourceFlavor) -> Flavor {
        let spec = &flavor.spec;
        let topology = self.kueue.topologies.get(&spec.topology_name);
        let levels = topology.into_iter().flat_map(|topology| &topology.spec.levels);
        let taint = |taint: &api::kueue::objects::Taint| {
            let effect = translate::effect(&taint.effect)?;
            Some(Taint { key: taint.key.clone(), value: taint.value.clone(), effect })
        };
        let tolerations = Scheduling::read(&json!({"tolerations": spec.tolerations})).tolerations;
        Flavor {
            name: flavor.metadata.name.clone(),
            node_labels: spec.node_labels.clone(),
            node_taints: spec.node_taints.iter().filter_map(taint).collect(),
            tolerations: tolerations.iter().filter_map(translate::toleration).collect(),
            topology: levels.map(|level| level.node_label.clone()).collect(),
            quota_only: spec.topology_name.is_empty(),
        }
    }

    /// Updates the quota node of a cohort. A cohort without an object has no quota of its own.
    pub(super) fn publish_cohort(&mut self, name: &str) {
        let event = match self.kueue.cohorts.get(name).map(|cohort| cohort.spec.clone()) {
            Some(spec) => Event::QuotaUpserted(cohort(name, &spec, &mut self.world)),
            None => Event::QuotaRemoved(cohort_node(name)),
        };
        self.world.apply_deferred(event);
        self.kueue.dirty_queues.insert(QueueKey::Cohort(name.to_owned()));
        self.all_queues_changed();
    }

    /// Updates a queue and its quota node, and all its Workloads.
    pub(super) fn publish_cluster_queue(&mut self, name: &str) {
        let flavors = self.kueue.flavors.keys().map(|name| QueueKey::Flavor(name.clone()));
        let checks = self.kueue.checks.keys().map(|name| QueueKey::Check(name.clone()));
        self.kueue.dirty_queues.extend(flavors.chain(checks).collect::<Vec<_>>());
        let Some(queue) = self.kueue.cluster_queues.get(name).cloned() else {
            self.world.apply_deferred(Event::QueueRemoved(name.to_owned()));
            self.world.apply_deferred(Event::QuotaRemoved(queue_node(name)));
            self.cluster_queue_changed(name);
            return;
        };
        let sharing = self.admission_fair_sharing(&queue);
        let spec = &queue.spec;
        let world = &mut self.world;
        let node = QuotaNode {
            name: queue_node(name),
            parent: (!spec.cohort_name.is_empty()).then(|| cohort_node(&spec.cohort_name)),
            limits: limits(&spec.resource_groups, world),
            weight_milli: weight_milli(&spec.fair_sharing),
            preemption: preemption(&queue),
        };
        let groups = spec.resource_groups.iter().map(|group| model::ResourceGroup {
            resources: group
                .covered_resources
                .iter()
                .map(|name| world.resources_mut().intern(name))
                .collect(),
            flavors: group.flavors.iter().map(|flavor| world.flavor_ix(&flavor.name)).collect(),
        });
        let published = Queue {
            name: name.to_owned(),
            quota: Some(queue_node(name)),
            queueing_strategy: match &*spec.queueing_strategy {
                "StrictFIFO" => QueueingStrategy::StrictFifo,
                _ => QueueingStrategy::BestEffortFifo,
            },
            groups: groups.collect(),
            fungibility: fungibility(&spec.flavor_fungibility),
            reserves_starts: queue
                .metadata
                .annotations
                .get(RESERVE_STARTS)
                .is_some_and(|value| value == "true"),
            stopped: !self.cluster_queue_activity(name).is_active,
            undeclared: if self.kueue.rules.ignores_undeclared {
                UndeclaredResources::Ignore
            } else {
                UndeclaredResources::Reject
            },
            admission_fair_sharing: sharing,
            places_pods: self.places_pods(&queue),
        };
        self.world.apply_deferred(Event::QuotaUpserted(node));
        self.world.apply_deferred(Event::QueueUpserted(published));
        self.cluster_queue_changed(name);
    }

    /// Whether the pods of a queue get places.
    pub(super) fn places_pods(&self, queue: &ClusterQueue) -> bool {
        match queue.metadata.annotations.get(PLACE_PODS).map(String::as_str) {
            Some("true") => true,
            Some("false") => false,
            _ => self.kueue.rules.places_pods,
        }
    }

    /// Updates all Workloads of a queue, and its status and those of its local queues.
    fn cluster_queue_changed(&mut self, name: &str) {
        let of = |queue: &&api::kueue::objects::LocalQueue| queue.spec.cluster_queue == name;
        let keys: Vec<(String, String)> = self
            .kueue
            .local_queues
            .values()
            .filter(of)
            .map(|queue| (queue.metadata.namespace.clone(), queue.metadata.name.clone()))
            .collect();
        for key in keys {
            self.local_queue_changed(&key);
        }
        self.kueue.dirty_queues.insert(QueueKey::Cluster(name.to_owned()));
    }

    /// Applies a new version of a local queue. One that differs in its status alone changes no Workload.
    pub(super) fn upsert_local_queue(&mut self, key: &(String, String), queue: &LocalQueue) {
        let known = self.kueue.local_queues.insert(key.clone(), queue.clone());
        let is_same = known.as_ref().is_some_and(|known| {
            (&known.spec, known.metadata.is_deleting()) == (&queue.spec, queue.metadata.is_deleting())
        });
        if is_same {
            self.kueue.dirty_queues.insert(QueueKey::Local(key.0.clone(), key.1.clone()));
            return;
        }
        if known.as_ref().is_none_or(|known| known.metadata.uid != queue.metadata.uid) {
            self.new_local_queue(key);
        }
        if known.map_or_else(FairSharing::default, |known| known.spec.fair_sharing) != queue.spec.fair_sharing
        {
            self.publish_cluster_queue(&queue.spec.cluster_queue);
        }
        self.local_queue_changed(key);
    }

    /// Applies that a local queue was deleted.
    pub(super) fn delete_local_queue(&mut self, key: &(String, String)) {
        let Some(queue) = self.kueue.local_queues.remove(key) else { return };
        if queue.spec.fair_sharing != FairSharing::default() {
            self.publish_cluster_queue(&queue.spec.cluster_queue);
        }
        self.local_queue_changed(key);
    }

    /// Updates all Workloads of a local queue, and its status.
    pub(super) fn local_queue_changed(&mut self, key: &(String, String)) {
        for uid in self.kueue.by_queue.get(key).cloned().unwrap_or_default() {
            self.publish_workload(&uid);
        }
        self.kueue.dirty_queues.insert(QueueKey::Local(key.0.clone(), key.1.clone()));
        if let Some(queue) = self.kueue.local_queues.get(key) {
            self.kueue.dirty_queues.insert(QueueKey::Cluster(queue.spec.cluster_queue.clone()));
        }
    }

    /// Updates the queues that need an admission check.
    pub(super) fn check_changed(&mut self, name: &str) {
        self.kueue.dirty_queues.insert(QueueKey::Check(name.to_owned()));
        let queues = self.kueue.cluster_queues.values().filter(|queue| needs(queue, name));
        let queues: Vec<String> = queues.map(|queue| queue.metadata.name.clone()).collect();
        for queue in queues {
            self.publish_cluster_queue(&queue);
        }
    }

    /// Marks the status of all queues of cohorts: what they may borrow has changed.
    fn all_queues_changed(&mut self) {
        let in_cohort = self.kueue.cluster_queues.values().filter(|queue| !queue.spec.cohort_name.is_empty());
        let keys: Vec<QueueKey> =
            in_cohort.map(|queue| QueueKey::Cluster(queue.metadata.name.clone())).collect();
        self.kueue.dirty_queues.extend(keys);
    }
}

/// Whether a queue lists a flavor.
pub(super) fn lists(queue: &ClusterQueue, flavor: &str) -> bool {
    queue.spec.resource_groups.iter().flat_map(|group| &group.flavors).any(|listed| listed.name == flavor)
}

/// Whether a queue needs an admission check.
pub(super) fn needs(queue: &ClusterQueue, check: &str) -> bool {
    queue.spec.admission_checks_strategy.admission_checks.iter().any(|rule| rule.name == check)
}

fn cohort(name: &str, spec: &CohortSpec, world: &mut World) -> QuotaNode {
    QuotaNode {
        name: cohort_node(name),
        parent: (!spec.parent_name.is_empty()).then(|| cohort_node(&spec.parent_name)),
        limits: limits(&spec.resource_groups, world),
        weight_milli: weight_milli(&spec.fair_sharing),
        ..QuotaNode::default()
    }
}

fn limits(groups: &[ResourceGroup], world: &mut World) -> BTreeMap<FlavorResource, Limits> {
    let mut limits = BTreeMap::new();
    for quotas in groups.iter().flat_map(|group| &group.flavors) {
        let flavor = world.flavor_ix(&quotas.name);
        for quota in &quotas.resources {
            let resource = world.resources_mut().intern(&quota.name);
            let amount = |value: &Value| Amount(amount(&quota.name, value));
            let of = Limits {
                nominal: amount(&quota.nominal_quota),
                borrowing: quota.borrowing_limit.as_ref().map(amount),
                lending: quota.lending_limit.as_ref().map(amount),
                ..Limits::default()
            };
            limits.insert(FlavorResource { flavor, resource }, of);
        }
    }
    limits
}

/// A quantity in base units; zero if it is invalid, which validation refuses.
pub(super) fn amount(resource: &str, quantity: &Value) -> i64 {
    Amounts::read(&json!({ resource: quantity })).unwrap_or_default().get(resource)
}

/// A weight in thousandths, rounded up: a positive weight is never zero.
pub(super) fn weight_milli(sharing: &FairSharing) -> Option<u32> {
    let weight = sharing.weight.as_ref()?;
    Some(u32::try_from(amount("cpu", weight)).unwrap_or(u32::MAX))
}

fn fungibility(spec: &api::kueue::objects::FlavorFungibility) -> FlavorFungibility {
    let policy = |text: &str, default| match text {
        "MayStopSearch" => FlavorFungibilityPolicy::MayStopSearch,
        "TryNextFlavor" => FlavorFungibilityPolicy::TryNextFlavor,
        _ => default,
    };
    let default = FlavorFungibility::default();
    FlavorFungibility {
        when_can_borrow: policy(&spec.when_can_borrow, default.when_can_borrow),
        when_can_preempt: policy(&spec.when_can_preempt, default.when_can_preempt),
        preference: match &*spec.preference {
            "PreemptionOverBorrowing" => FlavorFungibilityPreference::PreemptionOverBorrowing,
            _ => FlavorFungibilityPreference::BorrowingOverPreemption,
        },
    }
}

fn preemption(queue: &ClusterQueue) -> QuotaPreemption {
    let spec = &queue.spec.preemption;
    let borrows = spec.borrow_within_cohort.policy == "LowerPriority";
    let threshold = spec.borrow_within_cohort.max_priority_threshold;
    QuotaPreemption {
        within_cluster_queue: match &*spec.within_cluster_queue {
            "LowerPriority" => WithinClusterQueue::LowerPriority,
            "LowerOrNewerEqualPriority" => WithinClusterQueue::LowerOrNewerEqualPriority,
            _ => WithinClusterQueue::Never,
        },
        reclaim_within_cohort: match &*spec.reclaim_within_cohort {
            "LowerPriority" => ReclaimWithinCohort::LowerPriority,
            "Any" => ReclaimWithinCohort::Any,
            _ => ReclaimWithinCohort::Never,
        },
        borrow_within_cohort: borrows.then(|| BorrowWithinCohort {
            max_priority_threshold: threshold.map(|priority| i64::from(priority) * 1000),
        }),
    }
}
