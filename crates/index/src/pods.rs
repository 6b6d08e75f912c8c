//! Observed pods, and how they lead to their gangs.

use std::collections::{BTreeMap, BTreeSet};

use api::Amounts;
use api::appwrapper::NAME_LABEL;
use api::appwrapper::status::PendingPod;
use api::scheduling_gate::GATE;
use model::NodeName;

use crate::wire::Pod;

/// Label with a pod's number among those of an indexed Job.
const RANK_LABEL: &str = "batch.kubernetes.io/job-completion-index";

/// How far a pod has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodPhase {
    /// Not all its containers have started.
    Pending,
    /// Its containers run, or run no longer than the API server knows.
    Running,
    /// All its containers ended well.
    Succeeded,
    /// A container ended badly and will not be started again.
    Failed,
}

/// An observed pod.
#[derive(Debug, Clone)]
pub struct PodRow {
    /// Identity.
    pub uid: String,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Value of the tracking label, where the author of its template labels pods.
    pub tracked: Option<String>,
    /// Identity of the owner that manages it.
    pub owner: Option<String>,
    /// Role within its object, as its operator labels it; empty when it has one role only.
    pub role: String,
    /// How far it has come.
    pub phase: PodPhase,
    /// The node that it is bound to.
    pub node: Option<String>,
    /// What it takes from its node.
    pub request: Amounts,
    /// Set when the scheduler found no node.
    pub unschedulable: Option<PendingPod>,
    /// Our gate keeps it from the scheduler.
    pub is_gated: bool,
    /// The host name that its node must have.
    pub host: Option<String>,
    /// Its rank among its siblings, where its controller numbers them.
    pub rank: Option<u32>,
    /// The place that it was given.
    pub(crate) placement: Option<PodPlacement>,
}

/// The place that a gated pod was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PodPlacement {
    /// One that its gang was planned on.
    On(NodeName),
    /// All of those are taken: wherever it fits.
    Anywhere,
}

/// All observed pods.
#[derive(Debug, Default)]
pub(crate) struct Pods {
    rows: BTreeMap<String, PodRow>,
    by_owner: BTreeMap<String, BTreeSet<String>>,
    by_label: BTreeMap<(String, String), BTreeSet<String>>,
}

impl PodRow {
    /// The row of a watched pod. A request that cannot be read counts as one pod: the API server refuses such pods.
    pub fn of(pod: Pod) -> Self {
        let request = pod.spec.request().unwrap_or_else(|_| Amounts::from_iter([("pods", 1)]));
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
            phase,
            node: pod.spec.node_name.filter(|node| !node.is_empty()),
            request,
            unschedulable,
            is_gated: pod.spec.scheduling_gates.iter().any(|gate| gate.name == GATE),
            host: pod.spec.node_selector.host,
            rank: meta.labels.get(RANK_LABEL).and_then(|rank| rank.parse().ok()),
            placement: None,
            uid: meta.uid,
            namespace: meta.namespace,
            name: meta.name,
        }
    }

    /// Whether it waits behind our gate and has no place yet.
    pub fn awaits_placement(&self) -> bool {
        self.is_gated && self.placement.is_none() && self.is_live()
    }

    /// Whether it still takes from its node.
    pub fn is_live(&self) -> bool {
        matches!(self.phase, PodPhase::Pending | PodPhase::Running)
    }
}

/// The role that operators write on pods.
fn role(labels: &BTreeMap<String, String>) -> String {
    match labels.get("ray.io/group").map(String::as_str) {
        Some("headgroup") => return api::demand::ray::HEAD.into(),
        Some(group) => return group.into(),
        None => {}
    }
    let keys = ["jobset.sigs.k8s.io/replicatedjob-name", "training.kubeflow.org/replica-type"];
    keys.iter().find_map(|key| labels.get(*key)).map(|role| role.to_lowercase()).unwrap_or_default()
}

impl Pods {
    /// Keeps a row and returns the former one.
    pub(crate) fn upsert(&mut self, row: PodRow) -> Option<PodRow> {
        let old = self.remove(&row.uid);
        let mut row = row;
        row.placement = old.as_ref().and_then(|old| old.placement.clone());
        if let Some(owner) = &row.owner {
            self.by_owner.entry(owner.clone()).or_default().insert(row.uid.clone());
        }
        if let Some(label) = &row.tracked {
            self.by_label.entry((row.namespace.clone(), label.clone())).or_default().insert(row.uid.clone());
        }
        self.rows.insert(row.uid.clone(), row);
        old
    }

    /// Gives a pod a place.
    pub(crate) fn place_pods(&mut self, uid: &str, placement: PodPlacement) {
        if let Some(row) = self.rows.get_mut(uid) {
            row.placement = Some(placement);
        }
    }

    /// Forgets a row and returns it.
    pub(crate) fn remove(&mut self, uid: &str) -> Option<PodRow> {
        let row = self.rows.remove(uid)?;
        if let Some(owner) = &row.owner {
            shrink(&mut self.by_owner, owner, uid);
        }
        if let Some(label) = &row.tracked {
            shrink(&mut self.by_label, &(row.namespace.clone(), label.clone()), uid);
        }
        Some(row)
    }

    pub(crate) fn get(&self, uid: &str) -> Option<&PodRow> {
        self.rows.get(uid)
    }

    /// Pods that `owner` manages.
    pub(crate) fn of_owner(&self, owner: &str) -> impl Iterator<Item = &PodRow> {
        self.by_owner.get(owner).into_iter().flatten().filter_map(|uid| self.rows.get(uid))
    }

    /// Pods in a namespace that carry the tracking label with this value.
    pub(crate) fn of_label(&self, namespace: &str, label: &str) -> impl Iterator<Item = &PodRow> {
        let key = (namespace.to_owned(), label.to_owned());
        self.by_label.get(&key).into_iter().flatten().filter_map(|uid| self.rows.get(uid))
    }
}

fn shrink<K: Ord>(map: &mut BTreeMap<K, BTreeSet<String>>, key: &K, uid: &str) {
    if let Some(set) = map.get_mut(key) {
        set.remove(uid);
        if set.is_empty() {
            map.remove(key);
        }
    }
}
