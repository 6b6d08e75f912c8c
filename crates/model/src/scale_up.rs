//! Pods that join a gang that runs: those by which it grows, and those that go elsewhere because their nodes failed.
//!
//! They wait for their turn and are judged as a gang of their own would be, all or none, while the pods that run stay where they
//! are; [`ScaleUpRequest`] says what that gang asks for, and puts what it was given together with what was there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::gang::{Assignment, Gang, GangState, NodeName, PodSet, Shape};
use crate::quota::FlavorIx;
use crate::resources::ResourceIx;
use crate::topology::TopologyMode;

/// What ties the pods of a shape to a gang that runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScaleUp {
    /// They take the place of pods that quota is charged for already.
    pub charged: bool,
    /// For each pod set of the shape: the flavors that its pods are in already, which stay.
    pub flavors: Vec<BTreeMap<ResourceIx, FlavorIx>>,
    /// For each pod set of the shape: what those that run mean for where it may go.
    pub colocation: Vec<Colocation>,
}

/// Where pods may go that join others, for what these ask of the topology.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Colocation {
    /// The level, by the key of its label, of which they have to be in the same domain as others; none: any.
    pub level: Option<String>,
    /// The nodes of those others.
    pub nodes: Vec<NodeName>,
    /// From which layer on slices are still to be kept whole: the broader ones are by being near the others.
    pub slices_from: usize,
}

/// The places that a running gang lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScaleUpRequest {
    /// The pods without a place, as a gang of their own.
    pub shape: Shape,
    /// For each pod set of the shape: the pod set of the gang, and the ranks there.
    ranks: Vec<(usize, Vec<usize>)>,
    /// For each pod set of the gang: the nodes of the pods that stay, by rank.
    staying: Vec<Vec<Option<NodeName>>>,
    /// The devices of the pods that stay, as in [`Assignment::devices`].
    devices: Vec<Vec<(NodeName, u32, u32)>>,
}

impl Gang {
    /// The places that it lacks although it runs, if any: on nodes that failed; or, where none did, those by which it grows.
    pub fn scale_up_request(&self) -> Option<ScaleUpRequest> {
        let GangState::Reserved(given) = &self.state else { return None };
        if !self.elastic && self.unhealthy.is_empty() {
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
        let charged = staying.iter().flatten().any(Option::is_none);
        if self.elastic && !charged {
            for (at, pod_set) in self.pod_sets.iter().enumerate() {
                let size = self.left_of(at, pod_set).try_into().unwrap_or(usize::MAX);
                staying[at].resize(size, None);
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
            declared: None,
            excluded: excluded.into(),
            scale_up: Some(Arc::new(scale_up)),
        };
        let mut devices = held.devices.clone();
        for places in &mut devices {
            places.retain(|(node, ..)| !self.unhealthy.contains(node));
        }
        (!ranks.is_empty()).then_some(ScaleUpRequest { shape, ranks, staying, devices })
    }

    /// What pods that stay mean for where the pod of a set with this rank may go: it completes the smallest slice that some
    /// of them are in; else it goes where all have to be.
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

    /// The pod set whose request of the topology holds for this one: that of its workers for a leader, else its own.
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
    /// Where all pods of the gang are once those that lacked a place have these.
    pub fn merged(&self, gang: &Gang, found: &Assignment) -> Assignment {
        let (mut nodes, mut devices) = (self.staying.clone(), self.devices.clone());
        let mut flavors = gang.state.assignment().map_or_else(Vec::new, |given| given.flavors.clone());
        for (part, (at, ranks)) in self.ranks.iter().enumerate() {
            let places = found.pod_sets.get(part).into_iter().flatten();
            let each = places.flat_map(|(node, count)| (0..*count).map(move |_| node));
            for (rank, node) in ranks.iter().zip(each) {
                nodes[*at][*rank] = Some(node.clone());
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
        Assignment { pod_sets: nodes.into_iter().map(places).collect(), flavors, devices }
    }
}

fn add_devices(devices: &mut Vec<(NodeName, u32, u32)>, more: &[(NodeName, u32, u32)]) {
    let mut counts: BTreeMap<(NodeName, u32), u32> = BTreeMap::new();
    for (node, device, count) in devices.drain(..).chain(more.iter().cloned()) {
        *counts.entry((node, device)).or_default() += count;
    }
    devices.extend(counts.into_iter().map(|((node, device), count)| (node, device, count)));
}

/// Pods by rank as runs on the same node.
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
