//! Nodes for pods whose recorded domains are broader than a node.
//!
//! When the lowest level of a topology is a rack, the status names racks, and the scheduler selects the nodes. The plan counts room on
//! nodes, so each pod of a Workload with quota is charged to a node of its domain from the admission on, as Kueue charges the domain
//! (`pkg/cache/scheduler/tas_flavor_snapshot.go`, v0.19): where the pod is bound, else where the plan has put it, else where there is
//! room.

use std::collections::{BTreeMap, BTreeSet};

use api::kueue::status::{Admission, PodSetAssignment};
use api::kueue::{Domain, TopologyAssignment};
use api::scheduling_gate::HOSTNAME;
use model::{FreeResources, NodeIx, NodeName, PodSet};

use super::WorkloadRow;
use super::places::{places, value_of};
use crate::Index;
use crate::pods::PodRow;

/// The nodes of one pod set: a number of pods for each, in the order of the domains.
type Seats = Vec<(NodeName, u32)>;

/// The nodes of each domain, for each list of levels.
type NodesByDomain = BTreeMap<Vec<String>, BTreeMap<Vec<String>, Vec<NodeName>>>;

impl Index {
    /// Brings the nodes of pods up to date whose Workload, pods or nodes have changed since the last call.
    pub(crate) fn update_seats(&mut self) {
        let mut domains = NodesByDomain::new();
        for uid in std::mem::take(&mut self.kueue.unseated) {
            // The pods of the Workloads before it take room.
            self.world.settle();
            let Some(row) = self.kueue.workloads.get(&uid) else { continue };
            let seats = self.seats_of(row, &mut domains);
            if seats == row.seats {
                continue;
            }
            if let Some(row) = self.kueue.workloads.get_mut(&uid) {
                row.seats = seats;
            }
            self.publish_workload(&uid);
        }
    }

    /// Marks a Workload whose pods have changed.
    pub(crate) fn note_seats(&mut self, uid: &str) {
        if self
            .kueue
            .workloads
            .get(uid)
            .is_some_and(|row| has_broad_domains(row.object.status.admission.as_ref()))
        {
            self.kueue.unseated.insert(uid.to_owned());
        }
    }

    /// Marks the Workloads whose pods may have to be counted on other nodes, after changes of nodes.
    pub(super) fn note_seats_on(&mut self, changed: &BTreeSet<NodeName>) {
        let may_move = |row: &&WorkloadRow| {
            let is_on_changed = || row.seats.iter().flatten().any(|(node, _)| changed.contains(node));
            has_broad_domains(row.object.status.admission.as_ref()) && (lacks_seats(row) || is_on_changed())
        };
        let rows = self.kueue.workloads.values().filter(|row| row.holds_quota()).filter(may_move);
        let uids: Vec<String> = rows.map(|row| row.uid().to_owned()).collect();
        self.kueue.unseated.extend(uids);
    }

    /// The nodes of the pods of each pod set; empty for a pod set whose domains are nodes.
    fn seats_of(&self, row: &WorkloadRow, domains: &mut NodesByDomain) -> Vec<Seats> {
        let mut taken = BTreeMap::new();
        let sets = row.object.spec.pod_sets.iter().zip(row.pod_sets()).enumerate();
        sets.map(|(at, (set, planned))| {
            let assigned =
                assignment_of(row, &set.name).and_then(|assigned| Some((assigned, broad(assigned)?)));
            let Some((assigned, places)) = assigned else { return Seats::new() };
            let kept = row.seats.get(at).map_or(&[][..], Vec::as_slice);
            let mut search =
                Search { index: self, row, assigned, set: planned, places: &places, kept, taken: &mut taken };
            search.run(domains)
        })
        .collect()
    }

    /// The domain of a node at these levels.
    pub(super) fn values_of(&self, node: &str, levels: &[String]) -> Option<Vec<String>> {
        let node = self.world.node(node)?;
        levels.iter().map(|level| value_of(node, level)).collect()
    }

    fn nodes_by_domain(&self, levels: &[String]) -> BTreeMap<Vec<String>, Vec<NodeName>> {
        let mut domains: BTreeMap<Vec<String>, Vec<NodeName>> = BTreeMap::new();
        for node in self.world.nodes() {
            if let Some(values) = self.values_of(&node.name, levels) {
                domains.entry(values).or_default().push(node.name.clone());
            }
        }
        domains
    }
}

/// The search for the nodes of one pod set.
struct Search<'a> {
    index: &'a Index,
    row: &'a WorkloadRow,
    assigned: &'a PodSetAssignment,
    set: &'a PodSet,
    places: &'a TopologyAssignment,
    /// Where the pods were counted before.
    kept: &'a [(NodeName, u32)],
    /// The free resources of nodes that other pod sets of the Workload have taken.
    taken: &'a mut BTreeMap<NodeIx, FreeResources>,
}

impl Search<'_> {
    fn run(&mut self, domains: &mut NodesByDomain) -> Seats {
        let bound = self.by_domain(self.bound().into_iter());
        let kept = self.by_domain(self.kept.iter().cloned());
        let mut seats = Seats::new();
        let levels = &self.places.levels;
        for Domain { values, count } in &self.places.domains {
            let mut left = u32::try_from(*count).unwrap_or(0);
            let mut here = BTreeMap::new();
            let bound = bound.get(values);
            for (node, count) in bound.into_iter().flatten() {
                take(&mut here, &mut left, node, *count);
            }
            for (node, count) in kept.get(values).into_iter().flatten() {
                let bound = bound.and_then(|bound| bound.get(node)).copied().unwrap_or(0);
                take(&mut here, &mut left, node, count.saturating_sub(bound));
            }
            if left > 0 {
                let known =
                    domains.entry(levels.clone()).or_insert_with(|| self.index.nodes_by_domain(levels));
                self.take_room(known.get(values).map_or(&[][..], Vec::as_slice), &mut here, left);
            }
            seats.extend(here);
        }
        seats
    }

    /// The nodes where pods of the pod set are bound, and how many.
    fn bound(&self) -> BTreeMap<NodeName, u32> {
        let mut bound = BTreeMap::new();
        let is_of_set = |pod: &&PodRow| self.row.has_in_set(&self.assigned.name, pod);
        let pods = self.index.pods.of_workload(self.row.namespace(), self.row.slice_name()).filter(is_of_set);
        for node in pods.filter(|pod| pod.is_live()).filter_map(|pod| pod.node.clone()) {
            *bound.entry(node).or_default() += 1;
        }
        bound
    }

    fn by_domain(
        &self,
        nodes: impl Iterator<Item = (NodeName, u32)>,
    ) -> BTreeMap<Vec<String>, BTreeMap<NodeName, u32>> {
        let mut domains: BTreeMap<Vec<String>, BTreeMap<NodeName, u32>> = BTreeMap::new();
        for (node, count) in nodes {
            if let Some(values) = self.index.values_of(&node, &self.places.levels) {
                *domains.entry(values).or_default().entry(node).or_default() += count;
            }
        }
        domains
    }

    /// Puts pods on nodes with room, in the order of their names. What has no room counts on the first node that the pods may use, as
    /// the domain is charged for it.
    fn take_room(&mut self, nodes: &[NodeName], here: &mut BTreeMap<NodeName, u32>, mut left: u32) {
        let world = &self.index.world;
        let is_open = |node: NodeIx| {
            let class = world.class_of(node).map(|class| &world.class(class).class);
            class.is_some_and(|class| self.set.constraints.obstacle(class).is_none())
        };
        let known = nodes.iter().filter_map(|name| Some((name, world.node_ix(name)?)));
        let open: Vec<(&NodeName, NodeIx)> =
            known.filter(|(_, node)| self.is_of_flavor(*node) && is_open(*node)).collect();
        for (name, node) in &open {
            let free = self.taken.entry(*node).or_insert_with(|| world.free(*node).clone());
            let count = self.set.copies_in(free, left);
            free.take(self.set, count);
            take(here, &mut left, name, count);
        }
        if let Some((name, _)) = open.first() {
            let rest = left;
            take(here, &mut left, name, rest);
        }
    }

    /// Whether a node has the labels of the flavors of the pod set.
    fn is_of_flavor(&self, node: NodeIx) -> bool {
        let world = &self.index.world;
        let Some(node) = world.node(world.node_name(node)) else { return false };
        let flavors = world.flavors().values();
        let mut used =
            flavors.filter(|flavor| self.assigned.flavors.values().any(|name| *name == flavor.name));
        used.all(|flavor| flavor.node_labels.iter().all(|(key, value)| node.labels.get(key) == Some(value)))
    }
}

fn take(here: &mut BTreeMap<NodeName, u32>, left: &mut u32, node: &NodeName, most: u32) {
    let count = most.min(*left);
    if count > 0 {
        *here.entry(node.clone()).or_default() += count;
        *left -= count;
    }
}

fn assignment_of<'a>(row: &'a WorkloadRow, set: &str) -> Option<&'a PodSetAssignment> {
    let admission = row.object.status.admission.as_ref()?;
    admission.pod_set_assignments.iter().find(|assigned| assigned.name == set)
}

/// The domains of a pod set, if they are broader than a node.
fn broad(assigned: &PodSetAssignment) -> Option<TopologyAssignment> {
    is_broad(assigned).then(|| places(assigned)).flatten()
}

fn is_broad(assigned: &PodSetAssignment) -> bool {
    let levels = assigned.topology_assignment.as_ref().and_then(|recorded| recorded["levels"].as_array());
    levels.and_then(|levels| levels.last()).is_some_and(|lowest| lowest != HOSTNAME)
}

/// Whether a pod set has domains that are broader than a node.
pub(super) fn has_broad_domains(admission: Option<&Admission>) -> bool {
    admission.is_some_and(|admission| admission.pod_set_assignments.iter().any(is_broad))
}

/// Whether pods are not counted on any node.
fn lacks_seats(row: &WorkloadRow) -> bool {
    let sets = row.object.spec.pod_sets.iter().enumerate();
    let mut broad = sets
        .filter_map(|(at, set)| Some((at, set, assignment_of(row, &set.name).filter(|set| is_broad(set))?)));
    broad.any(|(at, set, assigned)| {
        let seats = row.seats.get(at).into_iter().flatten();
        seats.map(|(_, count)| *count).sum::<u32>() < assigned.count.unwrap_or(set.count)
    })
}

impl WorkloadRow {
    /// Where the pods of a pod set are counted whose domains are broader than a node.
    pub(super) fn seats_in(&self, pod_set: usize) -> Seats {
        self.seats.get(pod_set).cloned().unwrap_or_default()
    }
}
