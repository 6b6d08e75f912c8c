//! Scale-up of running gangs: additional pods, replacements of pods on failed nodes, and nodes for pods that were
//! admitted without any.
//!
//! The missing pods are queued and planned like a gang of their own, all or none, while the running pods stay. A
//! [`ScaleUpRequest`] holds the shape of the missing pods and merges their assignment into that of the gang.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::assignment::{Assignment, NodeName};
use crate::gang::{Gang, GangState, Places};
use crate::pod_set::PodSet;
use crate::shape::{Colocation, ScaleUp, Shape};
use crate::topology::TopologyMode;

/// The missing pods of a running gang.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScaleUpRequest {
    /// The missing pods, as a gang of their own.
    pub shape: Shape,
    /// For each pod set of the shape: the pod set of the gang, and the ranks of the missing pods there.
    ranks: Vec<(usize, Vec<usize>)>,
    /// For each pod set of the gang: the nodes of the running pods, by rank.
    staying: Vec<Vec<Option<NodeName>>>,
    /// The devices of the running pods; see [`Assignment::devices`].
    devices: Vec<Vec<(NodeName, u32, u32)>>,
    /// The pods that stay without a node; see [`Assignment::unplaced`].
    unplaced: Vec<u32>,
}

impl Gang {
    /// The missing pods of a running gang: those on failed nodes, and those that ask for their open places; if there
    /// are none, those of a scale-up.
    pub fn scale_up_request(&self) -> Option<ScaleUpRequest> {
        let GangState::Reserved(given) = &self.state else { return None };
        let asks_for_places =
            self.places == Places::Requested && given.unplaced.iter().any(|count| *count > 0);
        if !self.elastic && self.unhealthy.is_empty() && !asks_for_places {
            return None;
        }
        let (_, held) = self.held()?;
        let nodes = |at: usize| held.pod_sets.get(at).into_iter().flatten();
        let mut staying: Vec<Vec<Option<NodeName>>> = Vec::new();
        for at in 0..self.pod_sets.len() {
            let stays = |node: &NodeName| (!self.unhealthy.contains(node)).then(|| node.clone());
            let each = nodes(at).flat_map(|(node, count)| (0..*count).map(move |_| stays(node)));
            staying.push(each.collect());
        }
        let are_all_open = staying.iter().all(Vec::is_empty);
        let mut unplaced = held.unplaced.clone();
        if asks_for_places {
            for (staying, open) in staying.iter_mut().zip(std::mem::take(&mut unplaced)) {
                staying.resize(staying.len() + usize::try_from(open).unwrap_or(0), None);
            }
        }
        let charged = staying.iter().flatten().any(Option::is_none);
        if self.elastic && !charged {
            for (at, pod_set) in self.pod_sets.iter().enumerate() {
                let size = self.pods_left(at, pod_set).saturating_sub(held.unplaced_in(at));
                staying[at].resize(size.try_into().unwrap_or(usize::MAX), None);
            }
        }
        let mut ranks = Vec::new();
        let mut scale_up = ScaleUp { charged, ..ScaleUp::default() };
        let mut pod_sets = Vec::new();
        for (at, pod_set) in self.pod_sets.iter().enumerate() {
            let mut parts: BTreeMap<Colocation, Vec<usize>> = BTreeMap::new();
            for rank in (0..staying[at].len()).filter(|rank| staying[at][*rank].is_none()) {
                parts.entry(self.colocation(&staying, at, rank)).or_default().push(rank);
            }
            for (beside, missing) in parts {
                let count = missing.len().try_into().unwrap_or(u32::MAX);
                let group = pod_set.group.clone().filter(|_| beside.level.is_none());
                let workers = self.workers_of(at).and_then(|workers| self.pod_sets.get(workers));
                let topology = workers.and_then(|workers| workers.topology.clone());
                pod_sets.push(PodSet { count, min_count: None, group, topology, ..pod_set.clone() });
                scale_up.flavors.push(given.flavors.get(at).cloned().unwrap_or_default());
                scale_up.colocation.push(beside);
                ranks.push((at, missing));
            }
        }
        let excluded: BTreeSet<NodeName> = self.excluded.union(&self.unhealthy).cloned().collect();
        let shape = Shape {
            pod_sets: pod_sets.into(),
            declared: self.declared.clone().filter(|_| asks_for_places && are_all_open),
            excluded: excluded.into(),
            places_open: false,
            gated: false,
            replaces: None,
            scale_up: Some(Arc::new(scale_up)),
        };
        let mut devices = held.devices.clone();
        for places in &mut devices {
            places.retain(|(node, ..)| !self.unhealthy.contains(node));
        }
        (!ranks.is_empty()).then_some(ScaleUpRequest { shape, ranks, staying, devices, unplaced })
    }

    /// The constraint of running pods on the pod of this rank. The pod completes the smallest slice that has running
    /// pods; else it goes to the required domain of all pods.
    fn colocation(&self, staying: &[Vec<Option<NodeName>>], at: usize, rank: usize) -> Colocation {
        let workers = self.workers_of(at);
        let Some(request) = workers.and_then(|workers| self.pod_sets[workers].topology.as_ref()) else {
            return Colocation::default();
        };
        let stay = |nodes: &mut dyn Iterator<Item = &Option<NodeName>>| -> Vec<NodeName> {
            let nodes: BTreeSet<&NodeName> = nodes.flatten().collect();
            nodes.into_iter().cloned().collect()
        };
        let is_leader = workers != Some(at);
        for (layer, slice) in request.slices.iter().enumerate().rev().filter(|_| !is_leader) {
            let size = usize::try_from(slice.size).unwrap_or(usize::MAX).max(1);
            let first = rank - rank % size;
            let nodes = stay(&mut staying[at].iter().skip(first).take(size));
            if !nodes.is_empty() {
                return Colocation { level: Some(slice.level.clone()), nodes, slices_from: layer + 1 };
            }
        }
        let slices_from = if is_leader { request.slices.len() } else { 0 };
        let TopologyMode::Required(level) = &request.mode else {
            return Colocation { slices_from, ..Colocation::default() };
        };
        let together = (0..self.pod_sets.len()).filter(|other| self.workers_of(*other) == workers);
        let nodes = stay(&mut together.flat_map(|set| &staying[set]));
        let level = (!nodes.is_empty()).then(|| level.clone());
        Colocation { level, nodes, slices_from }
    }

    /// The pod set whose topology request applies to this one: for a leader its workers, else the pod set itself.
    fn workers_of(&self, at: usize) -> Option<usize> {
        let pod_set = &self.pod_sets[at];
        pod_set.topology.as_ref()?;
        let mates = |other: &usize| {
            let other = &self.pod_sets[*other];
            other.topology.is_some()
                && other.count > 0
                && other.group.is_some()
                && other.group == pod_set.group
        };
        let mates: Vec<usize> = (0..self.pod_sets.len()).filter(mates).collect();
        let single = |at: usize| self.pod_sets[at].count == 1;
        Some(match *mates.as_slice() {
            [leader, workers] if single(leader) && leader == at => workers,
            [workers, leader] if single(leader) && !single(workers) && leader == at => workers,
            _ => at,
        })
    }
}

impl ScaleUpRequest {
    /// The assignment of the whole gang, with this assignment of the missing pods.
    pub fn merged(&self, gang: &Gang, found: &Assignment) -> Assignment {
        let (mut nodes, mut devices) = (self.staying.clone(), self.devices.clone());
        let mut unplaced = self.unplaced.clone();
        let mut flavors = gang.state.assignment().map_or_else(Vec::new, |given| given.flavors.clone());
        for (part, (at, ranks)) in self.ranks.iter().enumerate() {
            let places = found.pod_sets.get(part).into_iter().flatten();
            let each = places.flat_map(|(node, count)| (0..*count).map(move |_| node));
            for (rank, node) in ranks.iter().zip(each) {
                nodes[*at][*rank] = Some(node.clone());
            }
            let without_node = found.unplaced_in(part);
            if without_node > 0 {
                unplaced.resize(unplaced.len().max(at + 1), 0);
                unplaced[*at] += without_node;
            }
            if let Some(more) = found.devices.get(part).filter(|more| !more.is_empty()) {
                devices.resize_with(devices.len().max(at + 1), Vec::new);
                add_devices(&mut devices[*at], more);
            }
            if let Some(given) = found.flavors.get(part).filter(|given| !given.is_empty()) {
                flavors.resize(flavors.len().max(at + 1), BTreeMap::new());
                flavors[*at].extend(given);
            }
        }
        if !devices.is_empty() {
            devices.resize_with(nodes.len(), Vec::new);
        }
        Assignment { pod_sets: nodes.into_iter().map(places).collect(), flavors, devices, unplaced }
    }
}

fn add_devices(devices: &mut Vec<(NodeName, u32, u32)>, more: &[(NodeName, u32, u32)]) {
    let mut counts: BTreeMap<(NodeName, u32), u32> = BTreeMap::new();
    for (node, device, count) in devices.drain(..).chain(more.iter().cloned()) {
        *counts.entry((node, device)).or_default() += count;
    }
    devices.extend(counts.into_iter().map(|((node, device), count)| (node, device, count)));
}

/// Groups consecutive ranks on the same node.
fn places(nodes: Vec<Option<NodeName>>) -> Vec<(NodeName, u32)> {
    let mut places: Vec<(NodeName, u32)> = Vec::new();
    for node in nodes.into_iter().flatten() {
        match places.last_mut() {
            Some((last, count)) if *last == node => *count += 1,
            _ => places.push((node, 1)),
        }
    }
    places
}
