//! Nodes that fail under running Workloads, and the places that replace those on them.
//!
//! A node fails for a Workload when it takes no pods of it any more (gone, not ready, cordoned, or with a taint that they do not
//! tolerate), none of its pods runs there, and places there are open. The status names the nodes (`unhealthyNodes`) until the plan has
//! found other places. Nodes often fail together, so places are looked for a moment after the first has failed, for all of them. After
//! `pkg/controller/tas/node_controller.go` of Kueue v0.19, which replaces one node and evicts a Workload that loses another one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::MicroTime;
use api::kueue::status::{ADMITTED, EVICTED, PodSetAssignment, QUOTA_RESERVED, Status};
use api::scheduling_gate::HOSTNAME;
use model::{Assignment, Effect, GangState, Node, NodeName, Toleration};
use serde::{Deserialize, Serialize};

use super::places::{host_of, places, updates_of};
use super::{WorkloadPhase, WorkloadRow};
use crate::pods::{PodPhase, PodRow};
use crate::{Index, wire};

/// How long a node that is not ready counts as one that comes back, if running pods do not: Kueue's `NodeFailureDelay`.
const UNREADY_MAX: MicroTime = MicroTime(30_000_000);

/// What becomes of places on failed nodes: Kueue's gates of this name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FailedNodeRules {
    /// They are replaced, and a Workload whose pods get no others is evicted (`TASFailedNodeReplacement`).
    pub replaces: bool,
    /// A Workload is evicted at once if there are no places. Otherwise they are looked for until they are found
    /// (`TASFailedNodeReplacementFailFast`).
    pub fails_fast: bool,
    /// A cordoned node, and one with a taint that the pods do not tolerate, have failed (`TASReplaceNodeOnNodeTaints`).
    pub heeds_taints: bool,
    /// A node has not failed while a pod runs there. Otherwise running pods keep none, and a node has failed that was not ready for
    /// 30 s (`TASReplaceNodeOnPodTermination`).
    pub awaits_pods: bool,
    /// The Workload of a single pod, which cannot run elsewhere, keeps its place (`SkipReassignmentForPodOwnedWorkloads`).
    pub skips_lone_pods: bool,
}

impl Default for FailedNodeRules {
    fn default() -> Self {
        Self {
            replaces: true,
            fails_fast: true,
            heeds_taints: true,
            awaits_pods: true,
            skips_lone_pods: true,
        }
    }
}

/// Nodes that are not ready.
#[derive(Clone, Debug, Default)]
pub(super) struct UnreadyNodes {
    since: BTreeMap<NodeName, MicroTime>,
    /// Those that do not count as nodes that come back.
    failed: BTreeSet<NodeName>,
}

/// Places that the plan has found for pods of a Workload with quota: in the place of those on failed nodes, or those that come after
/// its checks.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Replacement {
    /// Nothing is known yet.
    #[default]
    Open,
    /// Nodes have just failed, others may follow: the plan is not asked yet.
    Settling,
    /// There are none now.
    Missing,
    /// The assignment with the new places. It is to be written.
    Found(Box<Assignment>),
}

impl Replacement {
    /// What is known of the places of a Workload that is observed with this status.
    pub(super) fn of(status: &Status) -> Self {
        if status.unhealthy_nodes.is_empty() { Self::Open } else { Self::Settling }
    }
}

impl WorkloadRow {
    /// Whether nodes have just failed, and other places are not looked for yet.
    pub fn is_settling(&self) -> bool {
        self.replacement == Replacement::Settling
    }

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
                PodPhase::Pending | PodPhase::Running
                    if !pod.is_deleting && self.failed_node_rules().awaits_pods =>
                {
                    *count = i64::MIN / 2;
                }
                PodPhase::Pending | PodPhase::Running | PodPhase::Failed => {}
            }
        }
        open.into_iter().filter(|(_, count)| *count > 0).map(|(host, _)| host).collect()
    }

    /// The pods of a Workload that the scheduler can bind to no node: they have to run on a node that takes no pods of theirs. Their
    /// node selector cannot be changed, so only other pods can run elsewhere. A Workload that holds no quota any more may have left
    /// some from its last admission.
    pub fn stuck_pods(&self, row: &WorkloadRow) -> Vec<&PodRow> {
        let status = &row.object.status;
        let is_left = !row.holds_quota() && !status.is(QUOTA_RESERVED);
        if !self.failed_node_rules().replaces || !is_left && !self.replaces_nodes_of(row) {
            return Vec::new();
        }
        let pods = self.pods.of_workload(row.namespace(), row.slice_name());
        let is_its = |pod: &&PodRow| self.workload_of_pod(pod).is_none_or(|of| of.uid() == row.uid());
        let mut waiting = pods.filter(|pod| awaits_host(pod)).filter(is_its).peekable();
        if waiting.peek().is_none() {
            return Vec::new();
        }
        let placed: Vec<_> = placed_sets(row).collect();
        let is_stuck = |pod: &&PodRow| {
            let tolerations = if is_left {
                let set = row.pod_sets().iter().find(|set| row.has_in_set(&set.name, pod));
                set.map(|set| set.constraints.tolerations.clone())
            } else {
                let set = placed.iter().find(|(_, assigned)| row.has_in_set(&assigned.name, pod));
                set.map(|(at, assigned)| self.tolerations_of(row, *at, assigned))
            };
            // One that was created late has to run where a place was replaced.
            let is_late = |host: &String| !is_left && !is_on_host(&placed, row, pod, host);
            let closed = |host: &String| Some(is_late(host) || is_closed(self.node_of(host), &tolerations?));
            pod.host.as_ref().and_then(closed).unwrap_or(false)
        };
        waiting.filter(is_stuck).collect()
    }

    /// Marks the Workloads of pods that have to run on one of these nodes and are not bound.
    fn note_awaited(&mut self, changed: &BTreeSet<NodeName>) {
        let hosts: BTreeSet<&str> =
            changed.iter().map(|name| self.world.node(name).map_or(name.as_str(), host_of)).collect();
        let is_awaited = |pod: &&PodRow| {
            awaits_host(pod) && pod.host.as_ref().is_some_and(|host| hosts.contains(host.as_str()))
        };
        let workloads = self.pods.iter().filter(is_awaited).filter_map(|pod| {
            let (name, _) = pod.workload.as_ref()?;
            self.workload_of_pod(pod).or_else(|| self.workload_named(&pod.namespace, name))
        });
        let uids: Vec<String> = workloads.map(|row| row.uid().to_owned()).collect();
        self.kueue.dirty_workloads.extend(uids);
    }

    /// Whether places of a Workload on failed nodes are replaced.
    fn replaces_nodes_of(&self, row: &WorkloadRow) -> bool {
        let status = &row.object.status;
        self.failed_node_rules().replaces && status.is(ADMITTED) && !status.is(EVICTED)
    }

    fn failed_node_rules(&self) -> &FailedNodeRules {
        &self.kueue.rules.failed_nodes
    }

    /// Whether a node has failed for pods with these tolerations, unless pods run there.
    fn has_failed(&self, node: Option<&Node>, tolerations: &[Toleration]) -> bool {
        let Some(node) = node else { return true };
        let rules = self.failed_node_rules();
        if !node.ready {
            return rules.awaits_pods || self.kueue.unready.failed.contains(&node.name);
        }
        rules.heeds_taints && is_closed(Some(node), tolerations)
    }

    /// Whether all places of a running Workload are on these hosts, so that nothing of it is left to run on.
    pub fn has_lost_all(&self, row: &WorkloadRow, hosts: &BTreeSet<&str>) -> bool {
        let WorkloadPhase::Reserved(assignment) = &row.phase else { return false };
        let host = |node: &str| {
            self.world.node(node).map_or_else(|| node.to_owned(), |node| host_of(node).to_owned())
        };
        assignment.unplaced.iter().all(|count| *count == 0)
            && assignment.nodes().all(|node| hosts.contains(host(node).as_str()))
    }

    /// Ends the time in which other nodes may follow those that have failed: the plan is asked for other places.
    pub fn end_settling(&mut self, uid: &str) {
        if let Some(row) = self.kueue.workloads.get_mut(uid).filter(|row| row.is_settling()) {
            row.replacement = Replacement::Open;
            self.publish_workload(uid);
        }
    }

    /// Notes since when a node is not ready.
    pub(crate) fn note_readiness(&mut self, node: &wire::Node) {
        let ready = node.status.conditions.iter().find(|condition| condition.kind == "Ready");
        if ready.is_some_and(|ready| ready.status == "True") {
            return self.forget_readiness(&node.metadata.name);
        }
        let since = ready.and_then(|ready| MicroTime::parse(&ready.last_transition_time));
        self.kueue.unready.since.insert(node.metadata.name.clone(), since.unwrap_or_default());
    }

    /// Applies that a node is ready, or gone.
    pub(crate) fn forget_readiness(&mut self, node: &str) {
        self.kueue.unready.since.remove(node);
        self.kueue.unready.failed.remove(node);
    }

    /// Applies which nodes have not been ready for too long. Returns when the next one has not.
    pub fn update_unready(&mut self, now: MicroTime) -> Option<MicroTime> {
        if self.failed_node_rules().awaits_pods {
            return None;
        }
        let (mut due, mut failed) = (None, Vec::new());
        for (name, since) in &self.kueue.unready.since {
            let end = MicroTime(since.0.saturating_add(UNREADY_MAX.0));
            if end > now {
                due = due.into_iter().chain([end]).min();
            } else if !self.kueue.unready.failed.contains(name) {
                failed.push(name.clone());
            }
        }
        if !failed.is_empty() {
            self.nodes_changed(&failed.iter().cloned().collect());
            self.kueue.unready.failed.extend(failed);
        }
        due
    }

    fn places_on_closed_hosts(&self, row: &WorkloadRow) -> BTreeMap<String, i64> {
        let mut closed = BTreeMap::new();
        let is_kept = self.failed_node_rules().skips_lone_pods && is_lone_pod(row);
        if is_kept || !self.replaces_nodes_of(row) {
            return closed;
        }
        let WorkloadPhase::Reserved(assignment) = &row.phase else { return closed };
        for (at, assigned) in placed_sets(row) {
            let tolerations = self.tolerations_of(row, at, assigned);
            let mut planned = assignment.pod_sets.get(at).into_iter().flatten();
            // The recorded domains are read only then: pods change often, nodes seldom.
            if !planned.any(|(node, _)| self.has_failed(self.world.node(node), &tolerations)) {
                continue;
            }
            for domain in places(assigned).into_iter().flat_map(|places| places.domains) {
                let Some(host) = domain.values.last() else { continue };
                if self.has_failed(self.node_of(host), &tolerations) {
                    *closed.entry(host.clone()).or_default() += domain.count;
                }
            }
        }
        closed
    }

    /// The node with this host name, or one of this name that has none.
    pub(super) fn node_of(&self, host: &str) -> Option<&Node> {
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
        if row.replaced().is_some() || row.is_settling() || !self.replaces_nodes_of(row) {
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
        self.note_seats_on(changed);
        self.note_awaited(changed);
    }
}

/// Whether a Workload is of one pod, and of no group of pods.
fn is_lone_pod(row: &WorkloadRow) -> bool {
    let owners = &*row.object.metadata.owner_references;
    let is_pod = matches!(owners, [owner] if owner.kind == "Pod" && owner.api_version == "v1");
    is_pod && !row.object.is_of_pod_group()
}

/// Whether a pod set of a pod has a place on a host.
fn is_on_host(placed: &[(usize, &PodSetAssignment)], row: &WorkloadRow, pod: &PodRow, host: &str) -> bool {
    let set = placed.iter().find(|(_, assigned)| row.has_in_set(&assigned.name, pod));
    let domains =
        set.and_then(|(_, assigned)| places(assigned)).map_or_else(Vec::new, |places| places.domains);
    domains.iter().any(|domain| domain.values.last().is_some_and(|value| value == host))
}

/// Whether a pod waits for the one node that its selector names.
fn awaits_host(pod: &PodRow) -> bool {
    let is_pending = pod.phase == PodPhase::Pending && !pod.is_deleting;
    is_pending && pod.node.is_none() && pod.host.is_some() && !pod.is_topology_gated
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
