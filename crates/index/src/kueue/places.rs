//! The places of the pods of Workloads: in the plan, in the status, and in the pods.
//!
//! The status records the domains of each pod set as Kueue does (`topologyAssignment`), so places outlive the controller. The pods
//! of a pod set with places have Kueue's scheduling gate until one patch sets their node selector and removes the gate. After
//! `pkg/controller/tas/topology_ungater.go` of Kueue v0.19.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::kueue::jobs::{ELASTIC_GATE, TOPOLOGY_GATE};
use api::kueue::provisioning;
use api::kueue::status::{ADMITTED, Admission, PodSetAssignment, Status};
use api::kueue::{Domain, TopologyAssignment};
use api::pod::PodShape;
use api::scheduling_gate::HOSTNAME;
use model::{
    Assignment, Constraints, FlavorIx, Node, NodeName, Places, PodSet, ResourceIx, Term, TopologyRequest,
};
use serde_json::json;

use super::{WorkloadPhase, WorkloadRow};
use crate::pods::{PodPlacement, PodRow};
use crate::{Index, Ungating, translate};

/// The values of a domain, joined: no label value has this character.
const SEPARATOR: &str = "/";

impl Index {
    /// The assignment that the status of a Workload records. Pods whose domains are broader than a node are on the nodes where
    /// they are counted. Pods without any domain have no node in the plan: they are where they are bound.
    pub(super) fn recorded(&self, row: &WorkloadRow, admission: &Admission) -> Assignment {
        let of = |name: &str| admission.pod_set_assignments.iter().find(|assignment| assignment.name == name);
        let sets = &row.object.spec.pod_sets;
        let flavors = sets.iter().map(|set| {
            let assigned = of(&set.name).map(|assignment| &assignment.flavors);
            let named = assigned.into_iter().flatten().filter_map(|(resource, flavor)| {
                let flavor = self.world.flavors().iter().find(|(_, known)| known.name == *flavor)?;
                Some((self.world.resources().get(resource)?, *flavor.0))
            });
            named.collect::<BTreeMap<ResourceIx, FlavorIx>>()
        });
        let places: Vec<Vec<(NodeName, u32)>> = sets
            .iter()
            .enumerate()
            .map(|(at, set)| {
                of(&set.name).and_then(|assigned| self.nodes_of(assigned)).unwrap_or_else(|| row.seats_in(at))
            })
            .collect();
        let unplaced = sets.iter().zip(&places).map(|(set, places)| {
            let count = of(&set.name).and_then(|assigned| assigned.count).unwrap_or(set.count);
            count.saturating_sub(places.iter().map(|(_, count)| count).sum())
        });
        Assignment {
            flavors: flavors.collect(),
            unplaced: unplaced.collect(),
            pod_sets: places,
            ..Assignment::default()
        }
    }

    /// The nodes that a pod set is assigned to, if its domains are nodes.
    fn nodes_of(&self, assigned: &PodSetAssignment) -> Option<Vec<(NodeName, u32)>> {
        let places =
            places(assigned).filter(|places| places.levels.last().is_some_and(|level| level == HOSTNAME))?;
        let node = |domain: &Domain| {
            let host = domain.values.last()?;
            let known = self.hosts.get(host).and_then(|nodes| nodes.first());
            Some((known.unwrap_or(host).clone(), u32::try_from(domain.count).ok()?))
        };
        Some(places.domains.iter().filter_map(node).collect())
    }

    /// When the pods of a Workload get places: not before nodes are provisioned for it. One with quota asks for those that its
    /// status delays, when its checks are ready.
    pub(super) fn places_of(&self, row: &WorkloadRow, queue: &str) -> Places {
        let status = &row.object.status;
        if row.holds_quota() && status.admission.is_some() {
            let asks = status.awaits_places() && row.replaced().is_none();
            return match (asks, status.has_open_places()) {
                (true, _) => Places::Requested,
                (false, true) if row.replaced().is_none() => Places::Open,
                (false, _) => Places::AtAdmission,
            };
        }
        let rules = self
            .kueue
            .cluster_queues
            .get(queue)
            .map(|queue| &queue.spec.admission_checks_strategy.admission_checks);
        let provisions = |name: &str| {
            self.kueue
                .checks
                .get(name)
                .is_some_and(|check| check.spec.controller_name == provisioning::CONTROLLER)
        };
        let is_open = rules.into_iter().flatten().any(|rule| provisions(&rule.name));
        if is_open { Places::Open } else { Places::AtAdmission }
    }

    /// Pod sets in a queue whose flavors all have a topology: one without a topology request may be in any domains, and fills
    /// gaps. After Kueue's implicit topology-aware scheduling (KEP 2724).
    pub(super) fn with_implied_topology(&self, queue: &str, sets: Arc<[PodSet]>) -> Arc<[PodSet]> {
        let has_none = |set: &PodSet| set.topology.is_none();
        if !sets.iter().any(has_none) || !self.has_topologies_alone(queue) {
            return sets;
        }
        let mut sets = sets.to_vec();
        for set in sets.iter_mut().filter(|set| has_none(set)) {
            set.topology = Some(TopologyRequest::default());
        }
        sets.into()
    }

    /// The domains of a pod set, as the status records them: in the order of the ranks of its pods, and of the topology if they have
    /// none. `None` if its pods have no nodes.
    pub fn topology_assignment(
        &self,
        row: &WorkloadRow,
        assignment: &Assignment,
        pod_set: usize,
    ) -> Option<TopologyAssignment> {
        let mut nodes = assignment.pod_sets.get(pod_set).filter(|nodes| !nodes.is_empty())?.clone();
        let mut flavors = assignment.flavors.get(pod_set).into_iter().flat_map(BTreeMap::values);
        let levels = flavors.find_map(|flavor| {
            self.world
                .flavors()
                .get(flavor)
                .map(|flavor| &flavor.topology)
                .filter(|levels| !levels.is_empty())
        });
        if !row.has_ranks(pod_set) {
            let levels = levels.map_or(&[][..], Vec::as_slice);
            nodes.sort_by_cached_key(|(node, _)| (self.values_of(node, levels), node.clone()));
        }
        let levels = match levels {
            Some(levels) if levels.last().is_some_and(|lowest| lowest != HOSTNAME) => levels.clone(),
            _ => vec![HOSTNAME.to_owned()],
        };
        let mut domains: Vec<Domain> = Vec::new();
        for (node, count) in nodes {
            let (values, count) = (self.values_of(&node, &levels)?, i64::from(count));
            match domains.iter_mut().find(|known| known.values == values) {
                Some(known) => known.count += count,
                None => domains.push(Domain { values, count }),
            }
        }
        Some(TopologyAssignment { levels, domains })
    }

    /// The pod set of a Workload with quota to which a pod belongs, if the pod set has places: the uid of the Workload, and the
    /// position of the pod set.
    pub(crate) fn placed_pod_set(&self, pod: &PodRow) -> Option<(String, usize)> {
        let row = self.workload_of_pod(pod)?;
        let WorkloadPhase::Reserved(assignment) = &row.phase else { return None };
        let at = row.object.spec.pod_sets.iter().position(|set| row.has_in_set(&set.name, pod))?;
        assignment
            .pod_sets
            .get(at)
            .is_some_and(|places| !places.is_empty())
            .then(|| (row.uid().to_owned(), at))
    }

    /// The Workload that gives a pod its place, if it has places for the pod set: its uid.
    pub(crate) fn placing_workload(&self, pod: &PodRow) -> Option<String> {
        let row = self.workload_of_pod(pod)?;
        let mut sets = row.object.status.admission.as_ref()?.pod_set_assignments.iter();
        sets.any(|set| row.has_in_set(&set.name, pod) && set.topology_assignment.is_some())
            .then(|| row.uid().to_owned())
    }

    /// The gated pods of a Workload that may go to the scheduler, in the order of their ranks, then names.
    pub fn workload_ungatings(&self, uid: &str) -> Vec<Ungating> {
        let Some(row) = self.kueue.workloads.get(uid) else { return Vec::new() };
        let mut pods = self.pods.of_workload(row.namespace(), row.slice_name());
        if !pods.any(awaits_place) {
            return Vec::new();
        }
        let WorkloadPhase::Reserved(_) = &row.phase else { return Vec::new() };
        let free = self.slice_ungatings(row);
        let Some(admission) = &row.object.status.admission else { return Vec::new() };
        if !row.object.status.is(ADMITTED) {
            return Vec::new();
        }
        let mut closed = self.failed_hosts(row);
        closed.extend(row.object.status.unhealthy_hosts().map(str::to_owned));
        let sets = admission.pod_set_assignments.iter();
        let placed = sets.filter_map(|assigned| Some((assigned, places(assigned)?)));
        placed
            .flat_map(|(assigned, places)| self.ungatings_of(row, assigned, &places, &closed))
            .chain(free)
            .collect()
    }

    /// A pod whose host is closed waits until the place is replaced.
    fn ungatings_of(
        &self,
        row: &WorkloadRow,
        assigned: &PodSetAssignment,
        places: &TopologyAssignment,
        closed: &BTreeSet<String>,
    ) -> Vec<Ungating> {
        let (namespace, name) = (row.namespace(), row.slice_name());
        let is_of_set = |pod: &&PodRow| row.has_in_set(&assigned.name, pod);
        let pods: Vec<&PodRow> = self.pods.of_workload(namespace, name).filter(is_of_set).collect();
        let mut gated: Vec<&PodRow> =
            pods.iter().copied().filter(|pod| pod.is_topology_gated && awaits_place(pod)).collect();
        if gated.is_empty() {
            return Vec::new();
        }
        let live: Vec<&PodRow> =
            pods.iter().copied().filter(|pod| pod.is_live() && !pod.is_deleting).collect();
        let ranks = row.ranks(assigned, &live).unwrap_or_default();
        let rank = |pod: &PodRow| ranks.get(pod.uid.as_str()).copied();
        let mut left: Vec<i64> = places.domains.iter().map(|domain| domain.count).collect();
        // One that waits holds no place, also if its author, or its flavor, has selected its host.
        for pod in live.into_iter().filter(|pod| !(pod.is_topology_gated && awaits_place(pod))) {
            let held = self.domain_of(pod, places);
            let at = held.and_then(|held| places.domains.iter().position(|domain| domain.values == held));
            if let Some(left) = at.and_then(|at| left.get_mut(at)) {
                *left -= 1;
            }
        }
        gated.sort_by(|a, b| (rank(a), &a.name).cmp(&(rank(b), &b.name)));
        let mut ungatings = Vec::new();
        for pod in gated {
            let by_rank = rank(pod).and_then(|rank| domain_of_rank(places, rank)).filter(|at| left[*at] > 0);
            let Some(at) = by_rank.or_else(|| left.iter().position(|left| *left > 0)) else { continue };
            left[at] -= 1;
            if places.domains[at].values.last().is_some_and(|host| closed.contains(host)) {
                continue;
            }
            ungatings.push(self.ungating_of(pod, &places.levels, &places.domains[at]));
        }
        ungatings
    }

    /// A pod whose node is gone, cordoned or not ready runs on any node of its flavor.
    fn ungating_of(&self, pod: &PodRow, levels: &[String], domain: &Domain) -> Ungating {
        let is_node = levels.last().is_some_and(|level| level == HOSTNAME);
        let host = domain.values.last().filter(|_| is_node);
        let is_open = |node: &NodeName| self.world.node(node).is_some_and(Node::is_open);
        let is_gone = host.is_some_and(|host| !self.hosts.get(host).into_iter().flatten().any(is_open));
        let selector = levels.iter().cloned().zip(domain.values.iter().cloned()).filter(|_| !is_gone);
        let node = host.and_then(|host| self.hosts.get(host)?.first().cloned());
        Ungating {
            uid: pod.uid.clone(),
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            gates: if pod.is_elastic_gated { &[TOPOLOGY_GATE, ELASTIC_GATE] } else { &[TOPOLOGY_GATE] },
            node_selector: selector.collect(),
            placement: PodPlacement::On(node.unwrap_or_else(|| domain.values.join(SEPARATOR))),
        }
    }

    /// The values of the domain where a pod is, or is to be.
    fn domain_of(&self, pod: &PodRow, places: &TopologyAssignment) -> Option<Vec<String>> {
        let node = match (&pod.node, &pod.placement, &pod.host) {
            (Some(node), ..) => node,
            (None, Some(PodPlacement::On(place)), _) => place,
            (None, _, Some(host)) => return Some(vec![host.clone()]),
            (None, Some(PodPlacement::Anywhere) | None, None) => return None,
        };
        let Some(node) = self.world.node(node) else {
            return Some(node.split(SEPARATOR).map(str::to_owned).collect());
        };
        places.levels.iter().map(|level| value_of(node, level)).collect()
    }
}

/// What the ready admission checks add to the constraints of pods: by pod set.
pub(super) fn updates_of(status: &Status) -> Vec<(&str, Constraints)> {
    let ready = status.admission_checks.iter().filter(|check| check.state == "Ready");
    let updates = ready.flat_map(|check| &check.pod_set_updates).filter_map(|update| {
        let spec = json!({"nodeSelector": update["nodeSelector"], "tolerations": update["tolerations"]});
        let shape = PodShape::read(&json!({ "spec": spec })).ok()?;
        Some((update["name"].as_str()?, translate::constraints(&shape.scheduling)))
    });
    updates.collect()
}

impl WorkloadRow {
    /// The pod sets as the plan sees them: with what its ready admission checks add to their pods.
    pub(super) fn planned_pod_sets(&self) -> Arc<[PodSet]> {
        let updates = updates_of(&self.object.status);
        if updates.is_empty() || !self.holds_quota() {
            return self.pod_sets.clone();
        }
        let mut sets = self.pod_sets.to_vec();
        for set in &mut sets {
            for (_, added) in updates.iter().filter(|(name, _)| *name == set.name) {
                set.constraints.tolerations.extend(added.tolerations.iter().cloned());
                for (key, value) in &added.node_selector {
                    let known =
                        set.constraints.node_selector.entry(key.clone()).or_insert_with(|| value.clone());
                    // Nodes have one value of a label: with two wanted ones, none matches.
                    if known != value {
                        set.constraints.node_affinity = vec![Term::default()];
                    }
                }
            }
        }
        sets.into()
    }
}

/// The host name of a node. One without the label has its own name: its pods get no selector for it.
pub(super) fn host_of(node: &Node) -> &str {
    node.labels.get(HOSTNAME).unwrap_or(&node.name)
}

/// The value of a level for a node.
pub(super) fn value_of(node: &Node, level: &str) -> Option<String> {
    if level == HOSTNAME { Some(host_of(node).to_owned()) } else { node.labels.get(level).cloned() }
}

/// Whether a pod is gated and has no place yet.
fn awaits_place(pod: &PodRow) -> bool {
    (pod.is_topology_gated || pod.is_elastic_gated)
        && pod.placement.is_none()
        && pod.is_live()
        && !pod.is_deleting
}

/// The domains of a pod set. An unreadable record has none.
pub(super) fn places(assigned: &PodSetAssignment) -> Option<TopologyAssignment> {
    let recorded = assigned.topology_assignment.as_ref()?;
    TopologyAssignment::from_v1beta2(recorded).ok().filter(|places| !places.domains.is_empty())
}

/// The domain of a rank: ranks fill the domains in their order.
fn domain_of_rank(places: &TopologyAssignment, rank: u32) -> Option<usize> {
    let mut before = 0;
    places.domains.iter().position(|domain| {
        before += domain.count;
        i64::from(rank) < before
    })
}
