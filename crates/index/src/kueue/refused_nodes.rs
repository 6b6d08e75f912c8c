//! Nodes that kube-scheduler refuses to the pods of a Workload: a plugin rejects the node, or other pods took the place.
//!
//! Such a Workload is evicted when its pods are not ready in time. The nodes are excluded for it for a while, so that the next plan
//! uses other nodes, as for AppWrappers ([`crate::index`], `unschedulable`). A restart of the controller forgets them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::MicroTime;
use api::kueue::status::{Condition, EVICTED, Status};
use model::{GangState, NodeName};

use super::WorkloadRow;
use crate::Index;

/// Least time of an exclusion: twice the pause of an AppWrapper that is requeued.
const EXCLUSION_MIN_US: i64 = 600_000_000;

impl WorkloadRow {
    /// Nodes that the planner must not use. An assignment that exists is not affected.
    pub(super) fn excluded(&self, state: &GangState) -> Arc<BTreeSet<NodeName>> {
        match state {
            GangState::Waiting => Arc::new(self.refused.keys().cloned().collect()),
            GangState::Nominated(_) | GangState::Reserved(_) | GangState::Unplaced => Arc::default(),
        }
    }
}

impl Index {
    /// Excludes the nodes that the unschedulable pods of a Workload have to run on, for twice the pause before it is tried again,
    /// so that they are still excluded if it fails on other nodes. To be called when it is evicted.
    pub(super) fn exclude_refused_nodes(&mut self, uid: &str) {
        let Some(row) = self.kueue.workloads.get(uid) else { return };
        let status = &row.object.status;
        let Some(evicted) = status.condition(EVICTED).and_then(Condition::since) else { return };
        let pause_us = status.requeue_at().map_or(0, |at| at.0.saturating_sub(evicted.0));
        let until = MicroTime(evicted.0.saturating_add(pause_us.saturating_mul(2).max(EXCLUSION_MIN_US)));
        let refused = self
            .pods
            .of_workload(row.namespace(), row.slice_name())
            .filter(|pod| pod.unschedulable.is_some() && pod.node.is_none() && !pod.is_deleting);
        let hosts: BTreeSet<&String> = refused.filter_map(|pod| pod.host.as_ref()).collect();
        let nodes: BTreeMap<NodeName, MicroTime> =
            hosts.into_iter().filter_map(|host| Some((self.node_of(host)?.name.clone(), until))).collect();
        if nodes.is_empty() {
            return;
        }
        self.note_exclusion(uid, until);
        if let Some(row) = self.kueue.workloads.get_mut(uid) {
            row.refused.extend(nodes);
        }
    }

    /// Ends exclusions of a Workload.
    pub(crate) fn readmit_nodes(&mut self, uid: &str, is_over: impl Fn(&str, MicroTime) -> bool) {
        let Some(row) = self.kueue.workloads.get_mut(uid) else { return };
        let before = row.refused.len();
        row.refused.retain(|node, until| !is_over(node, *until));
        if row.refused.len() < before {
            self.publish_workload(uid);
        }
    }
}

/// Whether a Workload is evicted because its pods were not ready in time.
pub(super) fn is_timed_out(status: &Status) -> bool {
    status
        .condition(EVICTED)
        .filter(|evicted| evicted.reason == "PodsReadyTimeout")
        .is_some_and(Condition::is_true)
}
