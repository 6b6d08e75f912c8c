//! The watched pods, with indexes by owner and by tracking label.

use std::collections::{BTreeMap, BTreeSet};

use api::appwrapper::NAME_LABEL;
use api::appwrapper::status::PendingPod;
use api::kueue::jobs::{ELASTIC_GATE, POD_SET, SLICE_NAME, TOPOLOGY_GATE, WORKLOAD};
use api::{Amounts, Meta};
use model::NodeName;

use crate::index::InternedRules;
use crate::remove_from;
use crate::wire::Pod;

/// The annotation with the least index of the pods of a pod set.
const INDEX_OFFSET: &str = "kueue.x-k8s.io/pod-index-offset";
/// Label with the completion index of a pod of an indexed Job.
const RANK_LABEL: &str = "batch.kubernetes.io/job-completion-index";

/// The phase of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodPhase {
    /// Not all containers have started.
    Pending,
    /// The containers run. Also the phase `Unknown`: the node does not report.
    Running,
    /// All containers terminated with exit code 0.
    Succeeded,
    /// All containers terminated, and one of them failed.
    Failed,
}

/// A watched pod.
#[derive(Debug, Clone)]
pub struct PodRow {
    /// Uid.
    pub uid: String,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Value of the tracking label, if the pod template has it.
    pub tracked: Option<String>,
    /// Uid of its controller (the owner reference with `controller: true`).
    pub owner: Option<String>,
    /// Role within the wrapped object, from the labels that its operator sets; empty if the object has one role only.
    pub role: String,
    /// Whether it is being deleted.
    pub is_deleting: bool,
    /// Phase.
    pub phase: PodPhase,
    /// The node that it is bound to.
    pub node: Option<String>,
    /// Effective request.
    pub request: Amounts,
    /// Set if the scheduler found no node.
    pub unschedulable: Option<PendingPod>,
    /// Whether it has Muster's scheduling gate.
    pub is_gated: bool,
    /// Whether it has the scheduling gate of Workloads with places.
    pub is_topology_gated: bool,
    /// Whether it has the scheduling gate of Workloads that grow.
    pub is_elastic_gated: bool,
    /// The Workload, or the first of its slices, and the pod set that it names: empty if it names none.
    pub workload: Option<(String, String)>,
    /// The host name in its node selector.
    pub host: Option<String>,
    /// Completion index, if its Job is indexed.
    pub rank: Option<u32>,
    /// The indices in its labels, if it is of a Workload.
    pub indices: BTreeMap<String, u32>,
    /// The least index in its pod set.
    pub index_offset: u32,
    /// Its request was compared with its pod set.
    pub(crate) is_compared: bool,
    /// Its labels and rules, as long as it occupies resources.
    pub(crate) rules: Option<InternedRules>,
    /// The place that was assigned to it.
    pub(crate) placement: Option<PodPlacement>,
}

/// The place of a gated pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PodPlacement {
    /// A node of its gang's assignment.
    On(NodeName),
    /// Any node: all places of the assignment are taken.
    Anywhere,
}

/// All watched pods.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pods {
    rows: BTreeMap<String, PodRow>,
    /// By the namespace and the uid of the owner, which is in the namespace of the pod.
    by_owner: BTreeMap<(String, String), BTreeSet<String>>,
    by_label: BTreeMap<(String, String), BTreeSet<String>>,
    /// By namespace and name of the Workload.
    by_workload: BTreeMap<(String, String), BTreeSet<String>>,
}

impl PodRow {
    /// Converts a pod. An invalid request counts as `pods: 1`; the API server rejects such pods anyway.
    pub fn of(pod: Pod) -> Self {
        let request = pod.spec.request().unwrap_or_else(|_| Amounts::from_iter([("pods", 1)]));
        let is_gated = pod.is_gated();
        let [is_topology_gated, is_elastic_gated] =
            [TOPOLOGY_GATE, ELASTIC_GATE].map(|gate| pod.has_gate(gate));
        let meta = pod.metadata;
        let unscheduled = pod.status.conditions.iter().any(|condition| {
            condition.kind == "PodScheduled"
                && condition.status == "False"
                && condition.reason == "Unschedulable"
        });
        let phase = match pod.status.phase.as_str() {
            "Running" | "Unknown" => PodPhase::Running,
            "Succeeded" => PodPhase::Succeeded,
            "Failed" => PodPhase::Failed,
            _ => PodPhase::Pending,
        };
        let unschedulable = (unscheduled && phase == PodPhase::Pending).then(|| PendingPod {
            podname: meta.name.clone(),
            conditions: pod.status.conditions.iter().filter_map(|c| serde_json::to_value(c).ok()).collect(),
        });
        Self {
            tracked: meta.labels.get(NAME_LABEL).cloned(),
            owner: meta.controller().map(|owner| owner.uid.clone()),
            role: role(&meta.labels),
            is_deleting: meta.is_deleting(),
            phase,
            node: pod.spec.node_name.filter(|node| !node.is_empty()),
            request,
            unschedulable,
            is_gated,
            is_topology_gated,
            is_elastic_gated,
            workload: workload(&meta),
            host: pod.spec.node_selector.host,
            rank: meta.labels.get(RANK_LABEL).and_then(|rank| rank.parse().ok()),
            indices: if meta.annotations.contains_key(WORKLOAD) { indices(&meta) } else { BTreeMap::new() },
            index_offset: meta.annotations.get(INDEX_OFFSET).and_then(|text| text.parse().ok()).unwrap_or(0),
            is_compared: false,
            rules: None,
            placement: None,
            uid: meta.uid,
            namespace: meta.namespace,
            name: meta.name,
        }
    }

    /// Whether it is gated and has no place yet.
    pub fn awaits_placement(&self) -> bool {
        self.is_gated && self.placement.is_none() && self.is_live()
    }

    /// Whether it still occupies resources: it is pending or running.
    pub fn is_live(&self) -> bool {
        matches!(self.phase, PodPhase::Pending | PodPhase::Running)
    }
}

/// The Workload and the pod set that a pod names. The pod set is empty if it names none.
fn workload(meta: &Meta) -> Option<(String, String)> {
    let named = [SLICE_NAME, WORKLOAD].iter().find_map(|key| meta.annotations.get(*key));
    Some((named?.clone(), meta.labels.get(POD_SET).cloned().unwrap_or_default()))
}

/// The labels of a pod that are numbers.
fn indices(meta: &Meta) -> BTreeMap<String, u32> {
    let numbers = meta.labels.iter().filter_map(|(label, text)| Some((label.clone(), text.parse().ok()?)));
    numbers.collect()
}

/// The role of a pod, from the labels of KubeRay, `JobSet` and the Kubeflow training operator.
fn role(labels: &BTreeMap<String, String>) -> String {
    match labels.get("ray.io/group").map(String::as_str) {
        Some("headgroup") => return api::demand::ray::HEAD.into(),
        Some(group) => return group.into(),
        None => {}
    }
    // The MPI operator sets the last one only.
    let keys = [
        "jobset.sigs.k8s.io/replicatedjob-name",
        "training.kubeflow.org/replica-type",
        "training.kubeflow.org/job-role",
    ];
    keys.iter().find_map(|key| labels.get(*key)).map(|role| role.to_lowercase()).unwrap_or_default()
}

impl Pods {
    /// Adds or replaces a pod; keeps its place. Returns the old row.
    pub(crate) fn upsert(&mut self, row: PodRow) -> Option<PodRow> {
        let old = self.remove(&row.uid);
        let mut row = row;
        row.placement = old.as_ref().and_then(|old| old.placement.clone());
        row.is_compared = old.as_ref().is_some_and(|old| old.is_compared);
        if let Some(owner) = &row.owner {
            let key = (row.namespace.clone(), owner.clone());
            self.by_owner.entry(key).or_default().insert(row.uid.clone());
        }
        if let Some(label) = &row.tracked {
            self.by_label.entry((row.namespace.clone(), label.clone())).or_default().insert(row.uid.clone());
        }
        if let Some((workload, _)) = &row.workload {
            let key = (row.namespace.clone(), workload.clone());
            self.by_workload.entry(key).or_default().insert(row.uid.clone());
        }
        self.rows.insert(row.uid.clone(), row);
        old
    }

    /// Assigns a place to a pod.
    pub(crate) fn set_placement(&mut self, uid: &str, placement: PodPlacement) {
        if let Some(row) = self.rows.get_mut(uid) {
            row.placement = Some(placement);
        }
    }

    /// Notes that the request of a pod was compared.
    pub(crate) fn set_compared(&mut self, uid: &str) {
        if let Some(row) = self.rows.get_mut(uid) {
            row.is_compared = true;
        }
    }

    /// Takes the labels and rules of a pod.
    pub(crate) fn take_rules(&mut self, uid: &str) -> Option<InternedRules> {
        self.rows.get_mut(uid)?.rules.take()
    }

    /// Removes a pod and returns its row.
    pub(crate) fn remove(&mut self, uid: &str) -> Option<PodRow> {
        let row = self.rows.remove(uid)?;
        if let Some(owner) = &row.owner {
            remove_from(&mut self.by_owner, &(row.namespace.clone(), owner.clone()), uid);
        }
        if let Some(label) = &row.tracked {
            remove_from(&mut self.by_label, &(row.namespace.clone(), label.clone()), uid);
        }
        if let Some((workload, _)) = &row.workload {
            remove_from(&mut self.by_workload, &(row.namespace.clone(), workload.clone()), uid);
        }
        Some(row)
    }

    pub(crate) fn get(&self, uid: &str) -> Option<&PodRow> {
        self.rows.get(uid)
    }

    /// All pods.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &PodRow> {
        self.rows.values()
    }

    /// The pods in a namespace whose controller is `owner`.
    pub(crate) fn of_owner(&self, namespace: &str, owner: &str) -> impl Iterator<Item = &PodRow> {
        self.by_owner
            .get(&(namespace.to_owned(), owner.to_owned()))
            .into_iter()
            .flatten()
            .filter_map(|uid| self.rows.get(uid))
    }

    /// The pods that name a Workload.
    pub(crate) fn of_workload(&self, namespace: &str, name: &str) -> impl Iterator<Item = &PodRow> {
        let key = (namespace.to_owned(), name.to_owned());
        self.by_workload.get(&key).into_iter().flatten().filter_map(|uid| self.rows.get(uid))
    }

    /// The pods in a namespace with this value of the tracking label.
    pub(crate) fn of_label(&self, namespace: &str, label: &str) -> impl Iterator<Item = &PodRow> {
        let key = (namespace.to_owned(), label.to_owned());
        self.by_label.get(&key).into_iter().flatten().filter_map(|uid| self.rows.get(uid))
    }
}
