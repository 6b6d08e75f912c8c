//! Why Workloads cannot be queued.

use api::kueue::jobs::GATED_BY;
use api::kueue::objects::ClusterQueue;
use api::selector::LabelSelector;

use super::WorkloadRow;
use crate::Index;
use crate::index::references::References;
use crate::similar::similar;

/// Why a Workload cannot be queued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocker {
    /// Kueue's message.
    pub text: String,
    /// What is wrong with the queue, or what to change.
    pub remedy: Option<String>,
    /// What kind of obstacle it is.
    pub kind: BlockerKind,
}

/// What keeps a Workload from being queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockerKind {
    /// A queue is missing, or cannot be read.
    Missing,
    /// A queue is stopped or not ready.
    Suspended,
    /// The Workload itself does not comply.
    Invalid,
    /// An annotation names controllers that hold it back.
    Gated,
}

impl Blocker {
    /// Why the claims of a Workload keep its pods from starting.
    pub(super) fn of_claims(claims: &References) -> Option<Self> {
        let problems = claims.problems.join("; ");
        let is_clear = problems.is_empty();
        (!is_clear).then_some(Self { text: problems, remedy: None, kind: BlockerKind::Missing })
    }
}

impl Index {
    /// Why a Workload cannot be queued. Texts after `getQueueBlocker` of Kueue's `workload_controller.go` and
    /// `ValidateAdmissibility`.
    pub(super) fn workload_blocker(&self, row: &WorkloadRow) -> Option<Blocker> {
        let blocker = |kind, text: String| Some(Blocker { text, remedy: None, kind });
        let queue_blocker = |kind, text, remedy| Some(Blocker { text, remedy: Some(remedy), kind });
        if let Some(failure) = self.kueue.failures.values().next() {
            return blocker(BlockerKind::Missing, failure.clone());
        }
        if let Some(gates) = self.admission_gates(row) {
            return blocker(BlockerKind::Gated, format!("Admission is gated by: {gates}"));
        }
        let name = &row.object.spec.queue_name;
        let Some(local) = self.kueue.local_queues.get(&row.queue_key()) else {
            let text = format!("LocalQueue {name} doesn't exist");
            return queue_blocker(BlockerKind::Missing, text, "create it, or name another one".into());
        };
        if local.is_stopped() || local.metadata.is_deleting() {
            let remedy = if local.is_stopped() {
                format!("its stopPolicy is {}", local.spec.stop_policy)
            } else {
                "it is being deleted".into()
            };
            return queue_blocker(BlockerKind::Suspended, format!("LocalQueue {name} is inactive"), remedy);
        }
        let queue = &local.spec.cluster_queue;
        let Some(cluster_queue) = self.kueue.cluster_queues.get(queue) else {
            let text = format!("ClusterQueue {queue} doesn't exist");
            let remedy = format!("create it, or change LocalQueue {name}, which names it");
            return queue_blocker(BlockerKind::Missing, text, remedy);
        };
        let activity = self.cluster_queue_activity(queue);
        if !activity.is_active {
            let text = format!("ClusterQueue {queue} is inactive");
            let remedy = format!("{}{}", activity.message, self.meant_flavors(cluster_queue));
            return queue_blocker(BlockerKind::Suspended, text, remedy);
        }
        let labels = self.selectors.observed_namespace(row.namespace());
        let selector = cluster_queue.spec.namespace_selector.as_ref().map(LabelSelector::read);
        if !selector.as_ref().is_some_and(|selector| selector.matches(labels)) {
            let text = "workload namespace doesn't match ClusterQueue selector".into();
            let lacking =
                selector.map(|selector| selector.unmet(labels)).filter(|lacking| !lacking.is_empty());
            let remedy = match lacking {
                Some(lacking) => {
                    format!("ClusterQueue {queue} is for namespaces with {}", lacking.join(", "))
                }
                None => format!("ClusterQueue {queue} selects no namespaces"),
            };
            return queue_blocker(BlockerKind::Invalid, text, remedy);
        }
        row.refusal
            .clone()
            .or_else(|| self.slice_blocker(row))
            .and_then(|text| blocker(BlockerKind::Invalid, text))
    }

    /// What the names of missing flavors of a queue resemble.
    fn meant_flavors(&self, queue: &ClusterQueue) -> String {
        let named =
            queue.spec.resource_groups.iter().flat_map(|group| &group.flavors).map(|flavor| &flavor.name);
        let missing = named.filter(|name| !self.kueue.flavors.contains_key(*name));
        let known = || self.kueue.flavors.keys().map(String::as_str);
        let meant = missing.filter_map(|name| Some(format!(" Did you mean {}?", similar(name, known())?)));
        meant.collect()
    }

    /// The resource for which the queue of a Workload has quota, if the Workload asks for one of a similar name without quota.
    pub fn meant_resource(&self, row: &WorkloadRow, resource: &str) -> Option<&str> {
        let queue = self.cluster_queue(self.cluster_queue_of(row)?)?;
        let covered = queue.spec.resource_groups.iter().flat_map(|group| &group.covered_resources);
        similar(resource, covered.map(String::as_str))
    }

    /// The controllers that hold a Workload back, as its annotation names them.
    fn admission_gates<'a>(&self, row: &'a WorkloadRow) -> Option<&'a str> {
        let gates = row.object.metadata.annotations.get(GATED_BY)?;
        (self.kueue.rules.gates_admission && !gates.is_empty()).then_some(gates.as_str())
    }
}
