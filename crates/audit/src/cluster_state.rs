//! The resources of the nodes while a plan is replayed, counted from nodes, pods and gangs alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::{
    Amount, Assignment, DeviceShare, Gang, GangState, Node, Pod, PodRules, PodSet, Preemption, ResourceVec,
    World,
};

use crate::elastic;
use crate::fit::{is_eligible, matches_constraints};
use crate::node_resources::{Amounts, FreeResources, NodeUsage, count_slots, product};
use crate::pod_rules::{self, RuledPods};
use crate::quota::Quotas;
use crate::topology::CandidateNodes;
use crate::violation::Violation;

/// The usage of nodes and quota while the plan is replayed gang by gang.
pub(crate) struct ClusterState<'w> {
    world: &'w World,
    nodes: BTreeMap<&'w str, &'w Node>,
    free: BTreeMap<&'w str, FreeResources>,
    /// The usage of each gang and its pods on each node, by uid of the gang.
    usage_by_gang: BTreeMap<String, Vec<(String, NodeUsage)>>,
    aggregate_reservations: Vec<AggregateReservation<'w>>,
    /// The pods that rules between pods concern.
    ruled: Vec<RuledPods>,
    /// The gangs that are treated as removed.
    suspended: BTreeSet<String>,
    pub(crate) quotas: Quotas<'w>,
}

/// Resources reserved for a gang on a set of nodes, without a placement.
struct AggregateReservation<'w> {
    gang: String,
    /// The nodes that are eligible for the gang.
    nodes: BTreeSet<&'w str>,
    amounts: Amounts,
    /// Whether the gang is treated as removed.
    suspended: bool,
}

impl<'w> ClusterState<'w> {
    /// The state at the start of a scheduling cycle.
    pub(crate) fn of(world: &'w World) -> Self {
        let nodes: BTreeMap<&str, &Node> = world.nodes().map(|node| (node.name.as_str(), node)).collect();
        let free = nodes.iter().map(|(name, node)| (*name, FreeResources::of(&node.allocatable))).collect();
        let quotas = Quotas::of(world);
        let mut cluster = Self {
            world,
            nodes,
            free,
            usage_by_gang: BTreeMap::new(),
            aggregate_reservations: Vec::new(),
            ruled: Vec::new(),
            suspended: BTreeSet::new(),
            quotas,
        };
        for pod in world.pods() {
            if let Some(node) = &pod.node {
                let amounts = product(&pod.request, 1).collect();
                let owner = pod.gang.as_ref().map(|(uid, _)| uid.as_str());
                cluster.add_usage(owner, node, NodeUsage { amounts, device_shares: Vec::new() });
                cluster.add_ruled(owner, node, (pod.rules.as_ref(), true), 1);
                let has_slot = |gang: &Gang, set: usize| {
                    gang.state.assignment().is_some_and(|planned| set < planned.pod_sets.len())
                };
                let set = pod.gang.as_ref().and_then(|(uid, set)| Some((world.gang(uid)?, *set)));
                if !set.is_some_and(|(gang, set)| has_slot(gang, set)) {
                    cluster.add_device_share(owner, pod, pod.device); // Pods with a slot are added by `reserve_slots`.
                }
            }
        }
        for gang in world.gangs() {
            let pods: Vec<&Pod> = world
                .pods()
                .filter(|pod| {
                    pod.node.is_some() && pod.gang.as_ref().is_some_and(|(uid, _)| *uid == gang.uid)
                })
                .collect();
            match &gang.state {
                GangState::Waiting => {}
                GangState::Reserved(assignment) | GangState::Nominated(Preemption { assignment, .. }) => {
                    let (gang, assignment) = elastic::held(gang, assignment);
                    cluster.reserve_slots(&gang, &assignment, &pods);
                    cluster.add_aggregate_reservation(&gang, excess_beside(&gang, &assignment));
                }
                GangState::Unplaced => {
                    let gang = &elastic::remaining(gang);
                    let mut rest = total_request(gang);
                    let mut devices: Amounts = Amounts::new();
                    for pod in pods {
                        for (ix, amount) in product(&pod.request, 1) {
                            *rest.entry(ix).or_insert(0) -= amount;
                        }
                        if let Some(share) = pod.share {
                            *devices.entry(share.device()).or_insert(0) += i128::from(share.milli());
                        }
                    }
                    for (device, milli) in devices {
                        *rest.entry(device).or_insert(0) -= milli / 1000;
                    }
                    cluster.add_aggregate_reservation(gang, rest);
                }
            }
        }
        cluster
    }

    /// Treats a gang and its pods as removed.
    pub(crate) fn suspend(&mut self, gang: &str) {
        self.toggle(gang, 1);
    }

    /// Undoes [`Self::suspend`].
    pub(crate) fn resume(&mut self, gang: &str) {
        self.toggle(gang, -1);
    }

    fn toggle(&mut self, gang: &str, sign: i128) {
        for (node, usage) in self.usage_by_gang.get(gang).into_iter().flatten() {
            if let Some(free) = self.free.get_mut(node.as_str()) {
                free.apply(usage, -sign);
            }
        }
        for reservation in
            self.aggregate_reservations.iter_mut().filter(|reservation| reservation.gang == gang)
        {
            reservation.suspended = sign > 0;
        }
        if sign > 0 {
            self.suspended.insert(gang.to_owned());
        } else {
            self.suspended.remove(gang);
        }
        self.quotas.suspend(gang, sign > 0);
    }

    pub(crate) fn world(&self) -> &'w World {
        self.world
    }

    /// All nodes with their free resources, for topology-aware placement.
    pub(crate) fn candidate_nodes(&self) -> CandidateNodes<'w> {
        CandidateNodes {
            nodes: self.nodes().collect(),
            is_eligible: |node, set| is_eligible(node, &set.constraints),
            free: self.free.clone(),
        }
    }

    /// All nodes as if they were ready and empty.
    pub(crate) fn empty_candidate_nodes(&self) -> CandidateNodes<'w> {
        let free = self.nodes().map(|node| (node.name.as_str(), FreeResources::of(&node.allocatable)));
        CandidateNodes {
            nodes: self.nodes().collect(),
            is_eligible: |node, set| matches_constraints(node, &set.constraints),
            free: free.collect(),
        }
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = &'w Node> + '_ {
        self.nodes.values().copied()
    }

    pub(crate) fn node(&self, name: &str) -> Option<&'w Node> {
        self.nodes.get(name).copied()
    }

    pub(crate) fn free(&self, name: &str) -> FreeResources {
        self.free.get(name).cloned().unwrap_or_default()
    }

    /// Reports an admission that exceeds quota or node resources.
    pub(crate) fn check(&self, gang: &Gang, assignment: &Assignment, found: &mut Vec<Violation>) {
        self.quotas.check(&elastic::as_placed(gang, assignment), &assignment.flavors, found);
        self.check_node_resources(gang, assignment, found);
    }

    /// The pods that rules between pods concern, bound or planned.
    pub(crate) fn ruled_pods(&self) -> impl Iterator<Item = &RuledPods> {
        let is_suspended = |gang: &String| self.suspended.contains(gang);
        self.ruled.iter().filter(move |pods| !pods.gang.as_ref().is_some_and(is_suspended))
    }

    /// Reports an admission that exceeds node resources or aggregate reservations, or breaks rules between pods.
    pub(crate) fn check_node_resources(
        &self,
        gang: &Gang,
        assignment: &Assignment,
        found: &mut Vec<Violation>,
    ) {
        pod_rules::check(self, gang, assignment, found);
        found.extend(self.aggregate_violations(gang, assignment));
        for (node, usage) in charges(gang, assignment) {
            let before = self.free(&node);
            let mut after = before.clone();
            after.apply(&usage, 1);
            let devices: BTreeSet<_> = usage.device_shares.iter().map(|(share, ..)| share.device()).collect();
            let touched: BTreeSet<_> = usage.amounts.keys().chain(&devices).copied().collect();
            let limit = |ix| if devices.contains(&ix) { 0 } else { before.available(ix).min(0) };
            for ix in touched.into_iter().filter(|ix| after.available(*ix) < limit(*ix)) {
                let (gang, node, over) = (gang.key.clone(), node.clone(), -after.available(ix));
                found.push(Violation::OverCommitted { gang, node, resource: ix.0, over });
            }
            for (resource, device, over) in after.overcommitted_devices() {
                let is_ours = |(share, number, _): &(DeviceShare, Option<u32>, i128)| {
                    share.device() == resource && *number == Some(device)
                };
                if usage.device_shares.iter().any(is_ours) {
                    let (gang, node, resource) = (gang.key.clone(), node.clone(), resource.0);
                    found.push(Violation::DeviceOverCommitted { gang, node, resource, device, over });
                }
            }
        }
    }

    /// Charges an admitted gang to nodes and quota.
    pub(crate) fn charge(&mut self, gang: &Gang, assignment: &Assignment) {
        self.charge_as("", gang, assignment);
    }

    /// The same for a gang that waits for its victims, whose quota can be suspended.
    pub(crate) fn charge_preemptor(&mut self, gang: &Gang, assignment: &Assignment) {
        self.charge_as(&gang.uid, gang, assignment);
    }

    fn charge_as(&mut self, holder: &str, gang: &Gang, assignment: &Assignment) {
        self.charge_nodes(gang, assignment);
        self.charge_excess(gang, assignment);
        self.quotas.charge(holder, &elastic::as_placed(gang, assignment), &assignment.flavors);
    }

    /// Reserves the resources that an admitted gang declares beyond its pods.
    pub(crate) fn charge_excess(&mut self, gang: &Gang, assignment: &Assignment) {
        self.add_aggregate_reservation(gang, excess_beside(gang, assignment));
        if let Some(reservation) =
            self.aggregate_reservations.last_mut().filter(|reservation| reservation.gang == gang.uid)
        {
            reservation.gang.clear(); // When old pods of the gang are suspended, the new reservation stays.
        }
    }

    /// Charges the pods of an assignment to their nodes.
    pub(crate) fn charge_nodes(&mut self, gang: &Gang, assignment: &Assignment) {
        for (node, usage) in charges(gang, assignment) {
            self.add_usage(None, &node, usage);
        }
        for (set, places) in gang.pod_sets.iter().zip(&assignment.pod_sets) {
            for (node, count) in places {
                self.add_ruled(None, node, (set.rules.as_ref(), false), (*count).into());
            }
        }
    }

    /// Whether an admission leaves enough free resources for all aggregate reservations, including its own.
    pub(crate) fn respects_aggregate_reservations(&self, gang: &Gang, assignment: &Assignment) -> bool {
        self.aggregate_violations(gang, assignment).is_empty()
    }

    /// Whether any aggregate reservation exists.
    pub(crate) fn has_aggregate_reservations(&self) -> bool {
        self.aggregate_reservations.iter().any(|reservation| !reservation.suspended)
    }

    fn aggregate_violations(&self, gang: &Gang, assignment: &Assignment) -> Vec<Violation> {
        let mut broken = Vec::new();
        let own = (self.eligible(gang), excess_beside(gang, assignment));
        let others = || self.aggregate_reservations.iter().filter(|reservation| !reservation.suspended);
        let sets: BTreeSet<&BTreeSet<&str>> =
            others().map(|reservation| &reservation.nodes).chain([&own.0]).collect();
        for set in sets {
            // What this gang uses in the set: its pods on these nodes, and its own reservation if it is confined to
            // the set.
            let mut requested = Amounts::new();
            for (node, usage) in charges(gang, assignment) {
                if set.contains(node.as_str()) {
                    add(&mut requested, usage.amounts.iter().map(|(ix, amount)| (*ix, *amount)));
                    let before = self.free(&node);
                    let mut after = before.clone();
                    after.apply(&NodeUsage { amounts: Amounts::new(), ..usage }, 1);
                    let devices: BTreeSet<_> = gang.pod_sets.iter().filter_map(|set| set.share).collect();
                    let devices: BTreeSet<_> = devices.iter().map(|share| share.device()).collect();
                    let newly_shared =
                        devices.iter().map(|ix| (*ix, before.available(*ix) - after.available(*ix)));
                    add(&mut requested, newly_shared);
                }
            }
            if own.0.is_subset(set) {
                add(&mut requested, own.1.iter().map(|(ix, amount)| (*ix, *amount)));
            }
            for (ix, requested) in requested.into_iter().filter(|(_, requested)| *requested > 0) {
                let supply: i128 = set.iter().map(|node| self.free(node).available(ix).max(0)).sum();
                let inner = others().filter(|reservation| reservation.nodes.is_subset(set));
                let reserved: i128 = inner.filter_map(|reservation| reservation.amounts.get(&ix)).sum();
                if requested + reserved > supply {
                    let over = requested + reserved - supply;
                    broken.push(Violation::AggregateReservationExceeded {
                        gang: gang.key.clone(),
                        resource: ix.0,
                        over,
                    });
                }
            }
        }
        broken
    }

    /// Reserves the planned slots of a gang. A slot stays reserved on its planned node unless a pod of that pod set
    /// runs on another node. Such a displaced pod replaces the slot that is last by node name, unless its node has
    /// failed or it is being deleted. A slot is never smaller than its pod.
    fn reserve_slots(&mut self, gang: &Gang, assignment: &Assignment, pods: &[&Pod]) {
        for (at, (pod_set, places)) in gang.pod_sets.iter().zip(&assignment.pod_sets).enumerate() {
            let mut slots = count_slots(places, assignment.devices.get(at));
            let mut own_pods: Vec<&&Pod> =
                pods.iter().filter(|pod| pod.gang.as_ref().is_some_and(|(_, set)| *set == at)).collect();
            own_pods.sort_by_key(|pod| pod.device.is_none()); // Pods on a known device choose their slots first.
            let mut in_slot: Vec<(&Pod, Option<u32>)> = Vec::new();
            let mut displaced: Vec<(&Pod, Option<u32>)> = Vec::new();
            let mut replaced: Vec<(&Pod, Option<u32>)> = Vec::new();
            for pod in own_pods {
                let node = pod.node.as_deref().unwrap_or_default();
                let mut here: Vec<_> =
                    slots.iter_mut().filter(|((on, _), left)| *on == node && **left > 0).collect();
                here.sort_by_key(|((_, number), _)| pod.device.is_none() || *number != pod.device);
                match here.into_iter().next() {
                    Some(((_, number), left)) => {
                        *left -= 1;
                        in_slot.push((pod, pod.device.or(*number)));
                    }
                    None if pod.is_leaving
                        || pod.node.as_ref().is_some_and(|node| gang.unhealthy.contains(node)) =>
                    {
                        replaced.push((pod, pod.device));
                    }
                    None => displaced.push((pod, pod.device)),
                }
            }
            for (pod, number) in in_slot.iter().chain(&displaced).chain(&replaced) {
                self.add_device_share(Some(&gang.uid), pod, *number);
            }
            let left: u64 = slots.values().sum();
            let used = left.min(displaced.len() as u64);
            in_slot.extend(displaced.into_iter().take(usize::try_from(used).unwrap_or(usize::MAX)));
            let mut keep = left - used;
            for ((node, number), count) in &slots {
                let here = keep.min(*count);
                keep -= here;
                let here = u32::try_from(here).unwrap_or(u32::MAX);
                if here > 0 {
                    let devices: Vec<_> = number.iter().map(|number| (*number, here)).collect();
                    self.add_usage(Some(&gang.uid), node, NodeUsage::of(pod_set, here, &devices));
                    self.add_ruled(Some(&gang.uid), node, (pod_set.rules.as_ref(), false), here.into());
                }
            }
            for (pod, number) in in_slot {
                let node = pod.node.as_deref().unwrap_or_default();
                let amounts = product(&pod_set.request, 1)
                    .map(|(ix, slot)| (ix, (slot - i128::from(pod.request.get(ix).0)).max(0)))
                    .collect();
                let parts = unused_share(pod_set, pod).map(|share| (share, number, 1));
                self.add_usage(
                    Some(&gang.uid),
                    node,
                    NodeUsage { amounts, device_shares: parts.into_iter().collect() },
                );
            }
        }
    }

    /// Adds the device share of a bound pod, on the device of this number.
    fn add_device_share(&mut self, gang: Option<&str>, pod: &Pod, number: Option<u32>) {
        if let (Some(node), Some(share)) = (&pod.node, pod.share) {
            self.add_usage(
                gang,
                node,
                NodeUsage { device_shares: vec![(share, number, 1)], ..NodeUsage::default() },
            );
        }
    }

    fn add_usage(&mut self, gang: Option<&str>, node: &str, usage: NodeUsage) {
        let Some(free) = self.free.get_mut(node) else { return };
        free.apply(&usage, 1);
        if let Some(gang) = gang {
            self.usage_by_gang.entry(gang.to_owned()).or_default().push((node.to_owned(), usage));
        }
    }

    /// Adds pods with these rules, bound or only planned.
    fn add_ruled(
        &mut self,
        gang: Option<&str>,
        node: &str,
        (rules, is_bound): (Option<&Arc<PodRules>>, bool),
        count: u64,
    ) {
        let gang = gang.map(str::to_owned);
        let node = node.to_owned();
        self.ruled.extend(rules.map(|rules| RuledPods { gang, node, rules: rules.clone(), is_bound, count }));
    }

    fn add_aggregate_reservation(&mut self, gang: &Gang, amounts: Amounts) {
        let amounts: Amounts = amounts.into_iter().filter(|(_, amount)| *amount > 0).collect();
        if !amounts.is_empty() {
            let nodes = self.eligible(gang);
            self.aggregate_reservations.push(AggregateReservation {
                gang: gang.uid.clone(),
                nodes,
                amounts,
                suspended: false,
            });
        }
    }

    /// The nodes that are eligible for any pod set of the gang; all schedulable nodes when it has no pods.
    fn eligible(&self, gang: &Gang) -> BTreeSet<&'w str> {
        let sets: Vec<_> = gang.pod_sets.iter().filter(|pod_set| pod_set.count > 0).collect();
        let open = |node: &Node| {
            if sets.is_empty() {
                node.ready && !node.unschedulable
            } else {
                sets.iter().any(|pod_set| is_eligible(node, &pod_set.constraints))
            }
        };
        self.nodes.iter().filter(|(_, node)| open(node)).map(|(name, _)| *name).collect()
    }
}

/// All nodes, whatever their state.
pub(crate) fn all_nodes<'a>(cluster: &'a ClusterState<'_>) -> impl Iterator<Item = &'a Node> {
    cluster.nodes.values().copied()
}

/// The usage of an admission on each node.
pub(crate) fn charges(gang: &Gang, assignment: &Assignment) -> BTreeMap<String, NodeUsage> {
    let mut charges: BTreeMap<String, NodeUsage> = BTreeMap::new();
    for (at, (pod_set, places)) in gang.pod_sets.iter().zip(&assignment.pod_sets).enumerate() {
        for (node, count) in places {
            let devices = assignment.devices.get(at).into_iter().flatten().filter(|(on, ..)| on == node);
            let devices: Vec<_> = devices.map(|(_, number, here)| (*number, *here)).collect();
            charges.entry(node.clone()).or_default().add(NodeUsage::of(pod_set, *count, &devices));
        }
    }
    charges
}

/// The device share by which a slot exceeds the pod in it.
fn unused_share(pod_set: &PodSet, pod: &Pod) -> Option<DeviceShare> {
    let slot = pod_set.share?;
    let same = pod.share.filter(|share| share.device() == slot.device());
    let rest = i64::from(slot.milli()) - same.map_or(0, |share| i64::from(share.milli()));
    DeviceShare::new(slot.device(), rest).ok()
}

fn total_of_pods(gang: &Gang) -> Amounts {
    let mut total = Amounts::new();
    for pod_set in &*gang.pod_sets {
        add(&mut total, product(&pod_set.request, pod_set.count));
        if let Some(share) = pod_set.share {
            let milli = i128::from(share.milli()) * i128::from(pod_set.count);
            add(&mut total, std::iter::once((share.device(), (milli + 999) / 1000)));
        }
    }
    total
}

fn declared_excess(gang: &Gang) -> Amounts {
    let total = total_of_pods(gang);
    let declared = gang.declared.iter().flat_map(ResourceVec::iter);
    declared
        .map(|(ix, amount)| match amount {
            Amount::MAX => (ix, i128::MAX / 4), // `Amount::MAX` exceeds the capacity of any number of nodes.
            amount => (ix, i128::from(amount.0) - total.get(&ix).copied().unwrap_or(0)),
        })
        .filter(|(_, excess)| *excess > 0)
        .collect()
}

/// What a gang reserves on nodes beside an assignment; nothing when some of its pods have no node.
fn excess_beside(gang: &Gang, assignment: &Assignment) -> Amounts {
    let is_placed = assignment.unplaced.is_empty();
    if is_placed { declared_excess(&elastic::as_placed(gang, assignment)) } else { Amounts::new() }
}

/// The total request of a gang: the sum of its pods or the declared amount, whichever is larger.
pub(crate) fn total_request(gang: &Gang) -> Amounts {
    let mut request = total_of_pods(gang);
    add(&mut request, declared_excess(gang).into_iter());
    request
}

fn add(to: &mut Amounts, amounts: impl Iterator<Item = (model::ResourceIx, i128)>) {
    for (ix, amount) in amounts {
        *to.entry(ix).or_insert(0) += amount;
    }
}
