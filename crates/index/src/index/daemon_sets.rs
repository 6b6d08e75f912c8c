//! The pods of `DaemonSet`s that are expected on nodes that are new: they are charged until they are bound there, so that a
//! gang that is planned first does not lose its places to them.
//!
//! A pod is expected for a limited time after the creation of its node or of its `DaemonSet`: later, something keeps it away.

use std::collections::{BTreeMap, BTreeSet};

use api::MicroTime;
use api::pod::PodShape;
use model::{
    Constraints, Effect, Event, Node, NodeClass, NodeName, ResourceVec, Toleration, TolerationOperator,
};

use super::Index;
use crate::pods::PodRow;
use crate::translate;
use crate::wire;

/// For so long a pod of a `DaemonSet` is expected, in seconds.
const EXPECTED_S: i64 = 300;

/// Taints that every pod of a `DaemonSet` tolerates (`pkg/controller/daemon/util` of Kubernetes).
const TOLERATED: [(&str, Effect); 7] = [
    ("node.kubernetes.io/not-ready", Effect::NoExecute),
    ("node.kubernetes.io/unreachable", Effect::NoExecute),
    ("node.kubernetes.io/disk-pressure", Effect::NoSchedule),
    ("node.kubernetes.io/memory-pressure", Effect::NoSchedule),
    ("node.kubernetes.io/pid-pressure", Effect::NoSchedule),
    ("node.kubernetes.io/unschedulable", Effect::NoSchedule),
    ("node.kubernetes.io/network-unavailable", Effect::NoSchedule),
];

/// The `DaemonSet`s, and the pods that are expected.
#[derive(Clone, Debug, Default)]
pub(super) struct DaemonSets {
    /// By uid.
    sets: BTreeMap<String, DaemonSetRow>,
    /// When the nodes were created.
    created: BTreeMap<NodeName, MicroTime>,
    /// The uids of the `DaemonSet`s whose pods are expected on each node.
    expected: BTreeMap<NodeName, BTreeSet<String>>,
    /// Nodes to look at.
    changed: BTreeSet<NodeName>,
    /// When pods are expected no longer.
    due: BTreeSet<(MicroTime, NodeName)>,
}

/// What is kept of a `DaemonSet`.
#[derive(Clone, Debug, PartialEq)]
struct DaemonSetRow {
    namespace: String,
    name: String,
    created: MicroTime,
    request: ResourceVec,
    constraints: Constraints,
}

impl Index {
    /// Adds or updates a `DaemonSet`. One with an invalid template has no pods.
    pub(super) fn upsert_daemon_set(&mut self, set: wire::DaemonSet) {
        let uid = set.metadata.uid.clone();
        let Ok(shape) = PodShape::read(&set.spec.template) else { return self.delete_daemon_set(&uid) };
        let mut constraints = translate::constraints(&shape.scheduling);
        constraints.tolerations.extend(TOLERATED.map(|(key, effect)| Toleration {
            key: Some(key.into()),
            operator: TolerationOperator::Exists,
            value: String::new(),
            effect: Some(effect),
        }));
        let row = DaemonSetRow {
            namespace: set.metadata.namespace,
            name: set.metadata.name,
            created: MicroTime::parse(&set.metadata.creation_timestamp).unwrap_or_default(),
            request: translate::amounts(&shape.request, self.world.resources_mut()),
            constraints,
        };
        let sets = &mut self.daemon_sets;
        if sets.sets.get(&uid) != Some(&row) {
            sets.sets.insert(uid, row);
            sets.changed.extend(sets.created.keys().cloned());
        }
    }

    /// Removes a deleted `DaemonSet`.
    pub(super) fn delete_daemon_set(&mut self, uid: &str) {
        let sets = &mut self.daemon_sets;
        if sets.sets.remove(uid).is_some() {
            let waiting = sets.expected.iter().filter(|(_, expected)| expected.contains(uid));
            sets.changed.extend(waiting.map(|(node, _)| node.clone()));
        }
    }

    /// Notes a new or changed node.
    pub(super) fn note_node(&mut self, name: &str, created: &str) {
        let created = MicroTime::parse(created).unwrap_or_default();
        self.daemon_sets.created.insert(name.to_owned(), created);
        self.daemon_sets.changed.insert(name.to_owned());
    }

    /// Forgets a deleted node.
    pub(super) fn forget_node(&mut self, name: &str) {
        self.daemon_sets.created.remove(name);
        self.daemon_sets.changed.insert(name.to_owned());
    }

    /// Notes that a pod of a `DaemonSet` is bound.
    pub(super) fn note_daemon_pod(&mut self, uid: &str) {
        let Some(PodRow { node: Some(node), owner: Some(owner), .. }) = self.pods.get(uid) else { return };
        if self.daemon_sets.expected.get(node).is_some_and(|expected| expected.contains(owner)) {
            self.daemon_sets.changed.insert(node.clone());
        }
    }

    /// Charges the pods of `DaemonSet`s that are expected at `now`. Returns when one is expected no longer. To be called before
    /// each plan.
    pub fn expect_daemon_pods(&mut self, now: MicroTime) -> Option<MicroTime> {
        let sets = &mut self.daemon_sets;
        while sets.due.first().is_some_and(|(due, _)| *due <= now) {
            sets.changed.extend(sets.due.pop_first().map(|(_, node)| node));
        }
        let newest = sets.sets.values().map(|row| row.created).max();
        let changed = std::mem::take(&mut sets.changed);
        let is_open = |node: &NodeName| {
            let created = sets.created.get(node).copied().max(newest);
            sets.expected.contains_key(node)
                || created.is_some_and(|created| created.plus_s(EXPECTED_S) > now)
        };
        let changed: Vec<NodeName> = changed.into_iter().filter(is_open).collect();
        if !changed.is_empty() {
            let present = self.nodes_with_daemon_pods();
            let expected = changed.iter().map(|node| self.expected_on(node, now, &present));
            for (node, (uids, until)) in changed.iter().zip(expected.collect::<Vec<_>>()) {
                self.daemon_sets.due.extend(until.map(|until| (until, node.clone())));
                self.expect_on(node, uids);
            }
        }
        self.daemon_sets.due.first().map(|(due, _)| *due)
    }

    /// The nodes on which a live pod of each `DaemonSet` is bound.
    fn nodes_with_daemon_pods(&self) -> BTreeMap<&str, BTreeSet<&str>> {
        let nodes = |uid: &str, set: &DaemonSetRow| -> BTreeSet<&str> {
            let live = self.pods.of_owner(&set.namespace, uid).filter(|row| row.is_live());
            live.filter_map(|row| row.node.as_deref()).collect()
        };
        self.daemon_sets.sets.iter().map(|(uid, set)| (uid.as_str(), nodes(uid, set))).collect()
    }

    /// The uids of the `DaemonSet`s whose pods are expected on a node, and until when the first of them is.
    fn expected_on(
        &self,
        name: &str,
        now: MicroTime,
        present: &BTreeMap<&str, BTreeSet<&str>>,
    ) -> (BTreeSet<String>, Option<MicroTime>) {
        let Some(class) = self.world.node(name).map(class_of_one) else { return Default::default() };
        let created = self.daemon_sets.created.get(name).copied().unwrap_or_default();
        let (mut uids, mut first) = (BTreeSet::new(), None);
        for (uid, row) in &self.daemon_sets.sets {
            let until = created.max(row.created).plus_s(EXPECTED_S);
            let is_there = || present.get(uid.as_str()).is_some_and(|nodes| nodes.contains(name));
            if until > now && !is_there() && row.constraints.obstacle(&class).is_none() {
                uids.insert(uid.clone());
                first = Some(first.map_or(until, |first: MicroTime| first.min(until)));
            }
        }
        (uids, first)
    }

    /// Charges a node for the expected pods of these `DaemonSet`s, and for no others.
    fn expect_on(&mut self, node: &str, uids: BTreeSet<String>) {
        let former = self.daemon_sets.expected.remove(node).unwrap_or_default();
        for gone in former.difference(&uids) {
            self.world.apply_deferred(Event::PodRemoved(expected_uid(gone, node)));
        }
        for uid in &uids {
            let Some(row) = self.daemon_sets.sets.get(uid) else { continue };
            self.world.apply_deferred(Event::PodUpserted(model::Pod {
                uid: expected_uid(uid, node),
                namespace: row.namespace.clone(),
                name: format!("{} (expected)", row.name),
                node: Some(node.to_owned()),
                request: row.request.clone(),
                ..model::Pod::default()
            }));
        }
        if !uids.is_empty() {
            self.daemon_sets.expected.insert(node.to_owned(), uids);
        }
    }
}

/// The uid of a pod that is expected. No object has such a uid.
fn expected_uid(set: &str, node: &str) -> String {
    format!("expected/{set}/{node}")
}

/// A class with all labels of one node.
fn class_of_one(node: &Node) -> NodeClass {
    NodeClass {
        labels: node.labels.clone(),
        name: Some(node.name.as_str().into()),
        taints: node.taints.clone(),
        unschedulable: node.unschedulable,
        ready: node.ready,
    }
}
