//! The ledger: what every holder takes from each node, and what is free.
//!
//! A holder is a gang with all of its pods, or a pod without a gang. A claim is a function of the current state of
//! its holder alone. So the order of events does not matter, and replacing a claim undoes the old one completely.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::pod_rules::{PodMarks, RuledPods};
use crate::assignment::Assignment;
use crate::constraints::Constraints;
use crate::device::{AllocatedResources, DeviceShares, FreeResources};
use crate::gang::{Gang, GangState, Pod};
use crate::node::Node;
use crate::pod_rules::PodRules;
use crate::pod_set::PodSet;
use crate::resources::{ResourceIx, ResourceVec, Sum};

/// A node, as a dense index. Indices of deleted nodes are reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeIx(pub u32);

impl NodeIx {
    fn at(self) -> usize {
        self.0 as usize
    }
}

/// How the allocatable resources of a node are used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeUsage {
    /// Requested by pods that are bound to the node.
    pub bound: ResourceVec,
    /// Reserved beyond that for gangs that start or run.
    pub reserved: ResourceVec,
    /// Shares of devices that bound pods and reservations use.
    pub shares: DeviceShares,
    /// What is free, without shared devices; negative when the node is overcommitted.
    pub free: ResourceVec,
}

/// The resources that are reserved for gangs without an assignment to nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AggregateReservation {
    /// A node that satisfies one of these constraints is eligible; every open node when there are none. Sorted.
    pub eligible: Arc<[Constraints]>,
    /// The sum of the reservations.
    pub reserved: Sum,
}

/// The holder of a claim.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Holder {
    /// A gang and all of its pods, by the gang's uid.
    Gang(String),
    /// A pod without a gang, by uid.
    Pod(String),
}

/// What one holder takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Claim {
    nodes: BTreeMap<String, NodeClaim>,
    aggregate: Option<(Arc<[Constraints]>, ResourceVec)>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct NodeClaim {
    bound: ResourceVec,
    reserved: ResourceVec,
    shares: DeviceShares,
    /// The pods that have rules or that rules concern.
    ruled: RuledPods,
}

/// The effect of replacing a claim.
pub(super) struct LedgerChange {
    /// The affected nodes, with their free resources before the change.
    pub(super) nodes: Vec<(NodeIx, FreeResources)>,
    /// An aggregate reservation shrank.
    pub(super) aggregate_shrank: bool,
}

#[derive(Clone, Debug)]
struct Row {
    name: Arc<str>,
    node: Option<Node>,
    bound: Sum,
    reserved: Sum,
    shares: DeviceShares,
    free: FreeResources,
    holders: u32,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    by_name: BTreeMap<Arc<str>, NodeIx>,
    rows: Vec<Row>,
    free_indices: Vec<NodeIx>,
    claims: BTreeMap<Holder, Claim>,
    aggregates: BTreeMap<Arc<[Constraints]>, AggregateReservation>,
    pub(super) pod_marks: PodMarks,
}

impl Claim {
    /// The claim of a pod without a gang: its request on the node that it is bound to.
    pub(super) fn of_pod(pod: Option<&Pod>) -> Self {
        let mut claim = Self::default();
        if let Some(pod) = pod {
            claim.bind(pod);
            claim.share(pod, pod.device);
        }
        claim
    }

    fn bind(&mut self, pod: &Pod) {
        if let Some(node) = &pod.node {
            let claim = self.nodes.entry(node.clone()).or_default();
            claim.bound.add(&pod.request);
            claim.add_ruled(pod.rules.as_ref(), true, 1);
        }
    }

    /// Adds the device share of a bound pod, on the device of this number.
    fn share(&mut self, pod: &Pod, device: Option<u32>) {
        if let (Some(node), Some(share)) = (&pod.node, pod.share) {
            self.nodes.entry(node.clone()).or_default().shares.put(share, device, 1);
        }
    }

    /// The claim of a gang: the requests of its bound pods, and what is reserved beyond them.
    pub(super) fn of_gang(gang: Option<&Gang>, pods: &[&Pod]) -> Self {
        let mut claim = Self::default();
        for pod in pods {
            claim.bind(pod);
        }
        let held = gang.and_then(Gang::held);
        let device_by_pod = match (gang, &held) {
            (Some(gang), Some((shape, assignment))) => {
                claim.reserve_slots(&shape.pod_sets, assignment, pods, &gang.unhealthy)
            }
            _ => BTreeMap::new(),
        };
        for pod in pods.iter().filter(|pod| pod.share.is_some()) {
            claim.share(pod, pod.device.or_else(|| device_by_pod.get(pod.uid.as_str()).copied()));
        }
        let Some(gang) = gang else { return claim };
        let (shape, aggregate) = match (&gang.state, held) {
            (GangState::Unplaced, _) => {
                let shape = gang.remaining();
                let mut rest = shape.effective_request();
                let mut shared: BTreeMap<ResourceIx, i64> = BTreeMap::new();
                for pod in pods {
                    rest.sub(&pod.request);
                    if let Some(share) = pod.share {
                        *shared.entry(share.device()).or_default() += i64::from(share.milli());
                    }
                }
                for (device, milli) in shared {
                    rest.sub(&ResourceVec::new().with(device, milli / 1000)); // At least these devices.
                }
                (shape, rest.positive())
            }
            (_, None) => return claim,
            (_, Some((shape, assignment))) => {
                let excess = shape.excess_beside(&assignment);
                (shape, excess)
            }
        };
        if !aggregate.is_zero() {
            claim.aggregate = Some((shape.eligible_constraints().into(), aggregate));
        }
        claim
    }

    /// Matches bound pods with the planned slots of their pod set. A pod consumes a slot on its node, or else the
    /// last slot on another node. Slots without a pod stay reserved where they were planned. When a slot is larger
    /// than its pod, the difference stays reserved. Pods beyond the slots take just their request, and so do those
    /// without a slot on their node that have replacements: pods on failed nodes, and pods that are being deleted.
    ///
    /// Slots of pods that share devices belong to a device. Pods whose device is known are matched first. The result
    /// maps the other pods, by uid, to the device of their slot.
    fn reserve_slots<'p>(
        &mut self,
        pod_sets: &[PodSet],
        assignment: &'p Assignment,
        pods: &[&'p Pod],
        failed: &BTreeSet<String>,
    ) -> BTreeMap<&'p str, u32> {
        let mut device_by_pod = BTreeMap::new();
        for (at, (pod_set, planned)) in pod_sets.iter().zip(&assignment.pod_sets).enumerate() {
            let mut slots = Slots::of(planned, assignment.devices.get(at).map_or(&[], Vec::as_slice));
            let own_pods = pods.iter().filter(|pod| pod.gang.as_ref().is_some_and(|(_, set)| *set == at));
            let (known, unknown): (Vec<&Pod>, Vec<&Pod>) =
                own_pods.copied().partition(|pod| pod.device.is_some());
            let mut displaced = Vec::new();
            for pod in known.into_iter().chain(unknown) {
                let node = pod.node.as_deref().unwrap_or_default();
                match slots.take(node, pod.device) {
                    Some((_, device)) => {
                        device_by_pod.extend(device.map(|device| (pod.uid.as_str(), device)));
                        self.reserve_rest(node, pod_set, pod, device);
                    }
                    None if pod.is_leaving || failed.contains(node) => {}
                    None => displaced.push((node, pod)),
                }
            }
            for (node, pod) in displaced {
                if !slots.take_last() {
                    break;
                }
                self.reserve_rest(node, pod_set, pod, None);
            }
            for ((node, device), left) in slots.0 {
                let charge = self.nodes.entry(node.to_owned()).or_default();
                charge.reserved.add(&pod_set.request.times(left));
                charge.add_ruled(pod_set.rules.as_ref(), false, left);
                if let Some(share) = pod_set.share {
                    charge.shares.put(share, device, left);
                }
            }
        }
        device_by_pod
    }

    fn reserve_rest(&mut self, node: &str, slot: &PodSet, pod: &Pod, device: Option<u32>) {
        let mut rest = slot.request.clone();
        rest.sub(&pod.request);
        let rest = rest.positive();
        if !rest.is_zero() {
            self.nodes.entry(node.to_owned()).or_default().reserved.add(&rest);
        }
        if let Some(share) = slot.share.and_then(|share| share.excess_over(pod.share)) {
            self.nodes.entry(node.to_owned()).or_default().shares.put(share, pod.device.or(device), 1);
        }
    }
}

impl NodeClaim {
    fn add_ruled(&mut self, rules: Option<&Arc<PodRules>>, is_bound: bool, count: u32) {
        if let Some(rules) = rules {
            *self.ruled.entry((rules.clone(), is_bound)).or_default() += count;
        }
    }
}

/// The planned slots of a pod set: number of pods per node and device, without zeros.
struct Slots<'a>(BTreeMap<(&'a str, Option<u32>), u32>);

impl<'a> Slots<'a> {
    fn of(planned: &'a [(String, u32)], devices: &'a [(String, u32, u32)]) -> Self {
        let mut left: BTreeMap<&str, u32> = BTreeMap::new();
        for (node, count) in planned {
            let left = left.entry(node).or_default();
            *left = left.saturating_add(*count);
        }
        let mut slots = BTreeMap::new();
        for (node, number, count) in devices {
            let Some(left) = left.get_mut(node.as_str()) else { continue };
            let here = (*count).min(*left);
            *left -= here;
            *slots.entry((node.as_str(), Some(*number))).or_default() += here;
        }
        slots.extend(left.into_iter().map(|(node, left)| ((node, None), left)));
        slots.retain(|_, left| *left > 0);
        Self(slots)
    }

    /// Takes a slot on a node: on this device if possible, else on any device. `None` when no slot is left there.
    fn take(&mut self, node: &'a str, device: Option<u32>) -> Option<(&'a str, Option<u32>)> {
        let exact = device.is_some() && self.0.contains_key(&(node, device));
        let mut here = self.0.range((node, None)..=(node, Some(u32::MAX)));
        let at = *here.find(|((_, number), _)| !exact || *number == device)?.0;
        self.take_at(at);
        Some(at)
    }

    /// Takes the last remaining slot.
    fn take_last(&mut self) -> bool {
        let last = self.0.last_key_value().map(|(at, _)| *at);
        last.inspect(|at| self.take_at(*at)).is_some()
    }

    fn take_at(&mut self, at: (&'a str, Option<u32>)) {
        let Some(left) = self.0.get_mut(&at) else { return };
        *left -= 1;
        if *left == 0 {
            self.0.remove(&at);
        }
    }
}

impl Ledger {
    /// The index of a node name, whether the node exists or not.
    pub(super) fn ix(&mut self, name: &str) -> NodeIx {
        if let Some(&ix) = self.by_name.get(name) {
            return ix;
        }
        let name: Arc<str> = name.into();
        let row = Row {
            name: name.clone(),
            node: None,
            bound: Sum::default(),
            reserved: Sum::default(),
            shares: DeviceShares::default(),
            free: FreeResources::default(),
            holders: 0,
        };
        let ix = if let Some(ix) = self.free_indices.pop() {
            self.rows[ix.at()] = row;
            ix
        } else {
            self.rows.push(row);
            NodeIx(u32::try_from(self.rows.len() - 1).expect("fewer than 2^32 nodes"))
        };
        self.by_name.insert(name, ix);
        ix
    }

    pub(super) fn get(&self, name: &str) -> Option<NodeIx> {
        self.by_name.get(name).copied()
    }

    /// All nodes that exist, by name.
    pub(super) fn nodes(&self) -> impl Iterator<Item = (NodeIx, &Node)> {
        self.by_name.values().filter_map(|&ix| self.node(ix).map(|node| (ix, node)))
    }

    pub(super) fn node(&self, ix: NodeIx) -> Option<&Node> {
        self.rows.get(ix.at()).and_then(|row| row.node.as_ref())
    }

    pub(super) fn name(&self, ix: NodeIx) -> &Arc<str> {
        &self.rows[ix.at()].name
    }

    pub(super) fn free(&self, ix: NodeIx) -> &FreeResources {
        &self.rows[ix.at()].free
    }

    pub(super) fn shares(&self, ix: NodeIx) -> &DeviceShares {
        &self.rows[ix.at()].shares
    }

    pub(super) fn usage(&self, ix: NodeIx) -> NodeUsage {
        let row = &self.rows[ix.at()];
        NodeUsage {
            bound: row.bound.to_vec(),
            reserved: row.reserved.to_vec(),
            shares: row.shares.clone(),
            free: row.free.amounts.clone(),
        }
    }

    pub(super) fn aggregate_reservations(&self) -> impl Iterator<Item = &AggregateReservation> {
        self.aggregates.values()
    }

    /// What a gang and its pods take from each node.
    pub(super) fn allocated_to(&self, gang: &str) -> Vec<(NodeIx, AllocatedResources)> {
        let claim = self.claims.get(&Holder::Gang(gang.to_owned()));
        let charges = claim.into_iter().flat_map(|claim| &claim.nodes);
        let sum = |charge: &NodeClaim| {
            let mut amounts = charge.bound.clone();
            amounts.add(&charge.reserved);
            AllocatedResources { amounts, shares: charge.shares.clone() }
        };
        charges.filter_map(|(name, charge)| Some((self.get(name)?, sum(charge)))).collect()
    }

    /// The pods of a gang with rules; see [`World::ruled_pods_of`](super::World::ruled_pods_of).
    pub(super) fn ruled_pods_of(&self, gang: &str) -> Vec<(NodeIx, &PodRules, bool, u32)> {
        if self.pod_marks.is_empty() {
            return Vec::new();
        }
        let claim = self.claims.get(&Holder::Gang(gang.to_owned()));
        let mut ruled = Vec::new();
        for (name, claim) in claim.into_iter().flat_map(|claim| &claim.nodes) {
            let Some(node) = self.get(name).filter(|_| !claim.ruled.is_empty()) else { continue };
            let pods = claim.ruled.iter();
            ruled.extend(pods.map(|((rules, is_bound), count)| (node, &**rules, *is_bound, *count)));
        }
        ruled
    }

    /// The aggregate reservation of a gang, with the constraints of its eligible nodes.
    pub(super) fn aggregate_reservation_of(&self, gang: &str) -> Option<(&[Constraints], &ResourceVec)> {
        let claim = self.claims.get(&Holder::Gang(gang.to_owned()))?;
        claim.aggregate.as_ref().map(|(eligible, reserved)| (&**eligible, reserved))
    }

    pub(super) fn set_node(&mut self, ix: NodeIx, node: Option<Node>) {
        let row = &mut self.rows[ix.at()];
        row.node = node;
        row.recompute_free();
    }

    /// Replaces the claim of `holder`. `generation` is that of the event.
    pub(super) fn replace(&mut self, holder: Holder, claim: Claim, generation: u64) -> LedgerChange {
        let old = self.claims.remove(&holder).unwrap_or_default();
        if old == claim {
            if claim != Claim::default() {
                self.claims.insert(holder, claim);
            }
            return LedgerChange { nodes: Vec::new(), aggregate_shrank: false };
        }
        let names: BTreeSet<&String> = old.nodes.keys().chain(claim.nodes.keys()).collect();
        let mut nodes = Vec::with_capacity(names.len());
        for name in names {
            let ix = self.ix(name);
            let row = &mut self.rows[ix.at()];
            if let Some(charge) = old.nodes.get(name) {
                row.bound.sub(&charge.bound);
                row.reserved.sub(&charge.reserved);
                row.shares.sub(&charge.shares);
                row.holders -= 1;
            }
            if let Some(charge) = claim.nodes.get(name) {
                row.bound.add(&charge.bound);
                row.reserved.add(&charge.reserved);
                row.shares.add(&charge.shares);
                row.holders += 1;
            }
            nodes.push((ix, row.free.clone()));
            row.recompute_free();
            let none = NodeClaim::default();
            let (before, after) = (old.nodes.get(name), claim.nodes.get(name));
            let (before, after) = (before.unwrap_or(&none), after.unwrap_or(&none));
            self.pod_marks.replace(ix, &before.ruled, &after.ruled, generation);
        }
        let aggregate_shrank = self.replace_aggregate(old.aggregate.as_ref(), claim.aggregate.as_ref());
        if claim != Claim::default() {
            self.claims.insert(holder, claim);
        }
        LedgerChange { nodes, aggregate_shrank }
    }

    fn replace_aggregate(
        &mut self,
        old: Option<&(Arc<[Constraints]>, ResourceVec)>,
        new: Option<&(Arc<[Constraints]>, ResourceVec)>,
    ) -> bool {
        if let Some((eligible, reserved)) = new {
            let fresh = || AggregateReservation { eligible: eligible.clone(), reserved: Sum::default() };
            self.aggregates.entry(eligible.clone()).or_insert_with(fresh).reserved.add(reserved);
        }
        let Some((eligible, reserved)) = old else { return false };
        if let Some(aggregate) = self.aggregates.get_mut(eligible) {
            aggregate.reserved.sub(reserved);
            if aggregate.reserved.is_zero() {
                self.aggregates.remove(eligible);
            }
        }
        new.is_none_or(|(kept, now)| {
            kept != eligible || !reserved.iter().all(|(ix, amount)| amount <= now.get(ix))
        })
    }

    /// Releases the index of a node that does not exist and has no holder.
    pub(super) fn release_unused_index(&mut self, ix: NodeIx) {
        let row = &self.rows[ix.at()];
        if row.node.is_none() && row.holders == 0 && self.by_name.remove(&row.name).is_some() {
            self.free_indices.push(ix);
        }
    }
}

impl Row {
    /// Recomputes the free resources.
    fn recompute_free(&mut self) {
        let Some(node) = &self.node else {
            self.free = FreeResources::default();
            return;
        };
        let mut left = Sum::default();
        left.add(&node.allocatable);
        left.sub_sum(&self.bound);
        left.sub_sum(&self.reserved);
        self.free = FreeResources::new(left.to_vec(), &self.shares);
    }
}
