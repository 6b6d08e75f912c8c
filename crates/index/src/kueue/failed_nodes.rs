//! Nodes that fail under running Workloads, and the places that replace those on them.
//!
//! A node fails for a Workload when it takes no pods of it any more (gone, not ready, cordoned, or with a taint that they do not
//! tolerate), none of its pods runs there, and places there are open. The status names the node (`unhealthyNodes`) until the plan has
//! found other places. After `pkg/controller/tas/node_controller.go` of Kueue v0.19.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::kueue::status::{ADMITTED, EVICTED, PodSetAssignment};
use api::scheduling_gate::HOSTNAME;
use model::{Assignment, Effect, GangState, Node, NodeName, Toleration};

use super::places::{host_of, places, updates_of};
use super::{WorkloadPhase, WorkloadRow};
use crate::Index;
use crate::pods::{PodPhase, PodRow};

/// Places that the plan has found for pods of a Workload with quota: in the place of those on failed nodes, or those that come after
/// its checks.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Replacement {
    /// Nothing is known yet.
    #[default]
    Open,
    /// There are none now.
    Missing,
    /// The assignment with the new places. It is to be written.
    Found(Box<Assignment>),
}

impl WorkloadRow {
    /// The assignment whose places are to be written: nodes have failed, or the checks are ready.
    pub fn replaced(&self) -> Option<&Assignment> {
        if let Replacement::Found(assignment) = &self.replacement { Some(assignment) } else { None }
    }

    /// Whether the last plan has found none of the places that the Workload asks for.
    pub fn lacks_replacement(&self) -> bool {
        self.replacement == Replacement::Missing
    }
}

impl Index {
    /// The host names of the nodes that have failed for a running Workload, in alphabetical order.
    pub fn failed_hosts(&self, row: &WorkloadRow) -> BTreeSet<String> {
        let mut open = self.places_on_closed_hosts(row);
        if open.is_empty() {
            return BTreeSet::new();
        }
        for pod in self.pods.of_workload(row.namespace(), row.slice_name()) {
            let Some(node) = pod.node.as_deref().and_then(|node| self.world.node(node)) else { continue };
            let Some(count) = open.get_mut(host_of(node)) else { continue };
            match pod.phase {
                PodPhase::Succeeded => *count -= 1,
                // While a pod runs there, the others may come back.
                PodPhase::Pending | PodPhase::Running if !pod.is_deleting => *count = i64::MIN / 2,
                PodPhase::Pending | PodPhase::Running | PodPhase::Failed => {}
            }
        }
        open.into_iter().filter(|(_, count)| *count > 0).map(|(host, _)| host).collect()
    }

    /// The pods of a running Workload that the scheduler can bind to no node: they have to run on a node that takes no pods of
    /// theirs. Their node selector cannot be changed, so only other pods can run elsewhere.
    pub fn stuck_pods(&self, row: &WorkloadRow) -> Vec<&PodRow> {
        let pods = self.pods.of_workload(row.namespace(), row.slice_name());
        let waits = |pod: &&PodRow| {
            let is_pending = pod.phase == PodPhase::Pending && !pod.is_deleting;
            is_pending && pod.node.is_none() && pod.host.is_some() && !pod.is_topology_gated
        };
        let mut waiting = pods.filter(waits).peekable();
        if !self.replaces_nodes_of(row) || waiting.peek().is_none() {
            return Vec::new();
        }
        let placed: Vec<_> = placed_sets(row).collect();
        let is_stuck = |pod: &&PodRow| {
            let Some(((_, set), host)) = pod.workload.as_ref().zip(pod.host.as_ref()) else { return false };
            let set = placed.iter().find(|(_, assigned)| assigned.name == *set);
            set.is_some_and(|(at, assigned)| {
                is_closed(self.node_of(host), &self.tolerations_of(row, *at, assigned))
            })
        };
        waiting.filter(is_stuck).collect()
    }

    /// Whether places of a Workload on failed nodes are replaced.
    fn replaces_nodes_of(&self, row: &WorkloadRow) -> bool {
        let status = &row.object.status;
        self.kueue.rules.replaces_nodes && status.is(ADMITTED) && !status.is(EVICTED)
    }

    fn places_on_closed_hosts(&self, row: &WorkloadRow) -> BTreeMap<String, i64> {
        let mut closed = BTreeMap::new();
        if !self.replaces_nodes_of(row) {
            return closed;
        }
        let WorkloadPhase::Reserved(assignment) = &row.phase else { return closed };
        for (at, assigned) in placed_sets(row) {
            let tolerations = self.tolerations_of(row, at, assigned);
            let mut planned = assignment.pod_sets.get(at).into_iter().flatten();
            // The recorded domains are read only then: pods change often, nodes seldom.
            if !planned.any(|(node, _)| is_closed(self.world.node(node), &tolerations)) {
                continue;
            }
            for domain in places(assigned).into_iter().flat_map(|places| places.domains) {
                let Some(host) = domain.values.last() else { continue };
                if is_closed(self.node_of(host), &tolerations) {
                    *closed.entry(host.clone()).or_default() += domain.count;
                }
            }
        }
        closed
    }

    /// The node with this host name, or one of this name that has none.
    fn node_of(&self, host: &str) -> Option<&Node> {
        let named =
            self.hosts.get(host).and_then(|nodes| nodes.first()).and_then(|name| self.world.node(name));
        let unnamed = || self.world.node(host).filter(|node| !node.labels.contains_key(HOSTNAME));
        named.or_else(unnamed)
    }

    /// The tolerations of the pods of a pod set: those of its template, its flavors and its admission checks.
    fn tolerations_of(&self, row: &WorkloadRow, at: usize, assigned: &PodSetAssignment) -> Vec<Toleration> {
        let own =
            row.pod_sets().get(at).into_iter().flat_map(|set| set.constraints.tolerations.iter().cloned());
        let flavors = self.world.flavors().values();
        let used = flavors.filter(|flavor| assigned.flavors.values().any(|name| *name == flavor.name));
        let of_flavors = used.flat_map(|flavor| flavor.tolerations.iter().cloned());
        let checks = updates_of(&row.object.status);
        let of_set = checks.into_iter().filter(|(name, _)| *name == assigned.name);
        let of_checks = of_set.flat_map(|(_, added)| added.tolerations);
        own.chain(of_flavors).chain(of_checks).collect()
    }

    /// The nodes whose places the plan is to replace: those that the status names.
    pub(super) fn unhealthy_nodes(&self, row: &WorkloadRow) -> Arc<BTreeSet<NodeName>> {
        if row.replaced().is_some() || !self.replaces_nodes_of(row) {
            return Arc::default();
        }
        let node = |host: &str| self.node_of(host).map_or_else(|| host.to_owned(), |node| node.name.clone());
        Arc::new(row.object.status.unhealthy_hosts().map(node).collect())
    }

    /// Applies the verdict of a plan about the places that a Workload with quota asks for.
    pub(crate) fn sync_replacement(&mut self, uid: &str, is_found: bool) {
        let Some(gang) = self.world.gang(uid) else { return };
        let GangState::Reserved(assignment) = &gang.state else { return };
        let Some(row) = self.kueue.workloads.get_mut(uid) else { return };
        let asks = !gang.unhealthy.is_empty() || row.object.status.awaits_places();
        if !asks || !matches!(row.phase, WorkloadPhase::Reserved(_)) {
            return;
        }
        let assignment = assignment.clone();
        row.replacement =
            if is_found { Replacement::Found(Box::new(assignment)) } else { Replacement::Missing };
        if is_found {
            self.publish_workload(uid);
        }
    }

    /// Marks the Workloads with places on these nodes for reconciliation.
    pub(crate) fn nodes_changed(&mut self, changed: &BTreeSet<NodeName>) {
        let is_on = |places: &Assignment| places.nodes().any(|node| changed.contains(node));
        let placed = self.world.placed_gangs().filter(|gang| gang.state.assignment().is_some_and(is_on));
        let workloads = placed.filter(|gang| self.kueue.workloads.contains_key(&gang.uid));
        let uids: Vec<String> = workloads.map(|gang| gang.uid.clone()).collect();
        self.kueue.dirty_workloads.extend(uids);
    }
}

/// The pod sets whose pods have nodes: their positions and their assignments.
fn placed_sets(row: &WorkloadRow) -> impl Iterator<Item = (usize, &PodSetAssignment)> {
    let admission = row.object.status.admission.iter();
    let sets = &row.object.spec.pod_sets;
    admission.flat_map(|admission| &admission.pod_set_assignments).filter_map(move |assigned| {
        let levels = &assigned.topology_assignment.as_ref()?["levels"];
        let lowest = levels.as_array()?.last()?;
        let at = sets.iter().position(|set| set.name == assigned.name)?;
        (lowest == HOSTNAME).then_some((at, assigned))
    })
}

/// Whether a node takes no new pods with these tolerations.
fn is_closed(node: Option<&Node>, tolerations: &[Toleration]) -> bool {
    let Some(node) = node.filter(|node| node.is_open()) else { return true };
    let mut taints = node.taints.iter().filter(|taint| taint.effect != Effect::PreferNoSchedule);
    taints.any(|taint| !tolerations.iter().any(|toleration| toleration.covers(taint)))
}
