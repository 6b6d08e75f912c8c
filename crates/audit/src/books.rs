//! What is free, counted from nodes, pods and gangs alone.

use std::collections::{BTreeMap, BTreeSet};

use model::{
    Amount, Assignment, DeviceShare, Gang, GangState, Node, Pod, PodSet, Preemption, ResourceVec, World,
};

use crate::elastic;
use crate::node_resources::{Ledger, Room, Take, product};
use crate::quota::Quotas;
use crate::rules::{may_take, suits};
use crate::topology::Ground;
use crate::violation::Violation;

/// The state of the nodes while turns are taken.
pub(crate) struct Books<'w> {
    world: &'w World,
    nodes: BTreeMap<&'w str, &'w Node>,
    free: BTreeMap<&'w str, Room>,
    /// What gangs and their pods take, by uid of the gang.
    taken: BTreeMap<String, Vec<(String, Take)>>,
    promises: Vec<Promise<'w>>,
    pub(crate) quotas: Quotas<'w>,
}

/// What is promised without a place.
struct Promise<'w> {
    gang: String,
    /// The nodes that are eligible for it.
    nodes: BTreeSet<&'w str>,
    amounts: Ledger,
    /// As if the gang were gone.
    suspended: bool,
}

impl<'w> Books<'w> {
    /// The books at the start of a pass.
    pub(crate) fn of(world: &'w World) -> Self {
        let nodes: BTreeMap<&str, &Node> = world.nodes().map(|node| (node.name.as_str(), node)).collect();
        let free = nodes.iter().map(|(name, node)| (*name, Room::of(&node.allocatable))).collect();
        let quotas = Quotas::of(world);
        let mut books = Self { world, nodes, free, taken: BTreeMap::new(), promises: Vec::new(), quotas };
        for pod in world.pods() {
            if let Some(node) = &pod.node {
                let amounts = product(&pod.request, 1).collect();
                let owner = pod.gang.as_ref().map(|(uid, _)| uid.as_str());
                books.take(owner, node, Take { amounts, parts: Vec::new() });
                let seated = |gang: &Gang, set: usize| {
                    gang.state.assignment().is_some_and(|planned| set < planned.pod_sets.len())
                };
                let set = pod.gang.as_ref().and_then(|(uid, set)| Some((world.gang(uid)?, *set)));
                if !set.is_some_and(|(gang, set)| seated(gang, set)) {
                    books.share(owner, pod, pod.device); // The others follow with their slots.
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
                    books.hold_slots(&gang, &assignment, &pods);
                    books.promise(&gang, excess(&gang));
                }
                GangState::Unplaced => {
                    let gang = &elastic::remaining(gang);
                    let mut rest = promise(gang);
                    let mut parts: Ledger = Ledger::new();
                    for pod in pods {
                        for (ix, amount) in product(&pod.request, 1) {
                            *rest.entry(ix).or_insert(0) -= amount;
                        }
                        if let Some(share) = pod.share {
                            *parts.entry(share.device()).or_insert(0) += i128::from(share.milli());
                        }
                    }
                    for (device, milli) in parts {
                        *rest.entry(device).or_insert(0) -= milli / 1000;
                    }
                    books.promise(gang, rest);
                }
            }
        }
        books
    }

    /// As if a gang and its pods were gone.
    pub(crate) fn suspend(&mut self, gang: &str) {
        self.toggle(gang, 1);
    }

    /// Undoes [`Self::suspend`].
    pub(crate) fn resume(&mut self, gang: &str) {
        self.toggle(gang, -1);
    }

    fn toggle(&mut self, gang: &str, sign: i128) {
        for (node, take) in self.taken.get(gang).into_iter().flatten() {
            if let Some(free) = self.free.get_mut(node.as_str()) {
                free.turn(take, -sign);
            }
        }
        for promise in self.promises.iter_mut().filter(|promise| promise.gang == gang) {
            promise.suspended = sign > 0;
        }
        self.quotas.suspend(gang, sign > 0);
    }

    pub(crate) fn world(&self) -> &'w World {
        self.world
    }

    /// The nodes as they are, for who asks for nearness.
    pub(crate) fn ground(&self) -> Ground<'w> {
        Ground {
            nodes: self.nodes().collect(),
            may_take: |node, set| may_take(node, &set.constraints),
            free: self.free.clone(),
        }
    }

    /// The nodes as if all of them were ready and nothing ran there.
    pub(crate) fn empty_ground(&self) -> Ground<'w> {
        let free = self.nodes().map(|node| (node.name.as_str(), Room::of(&node.allocatable)));
        Ground {
            nodes: self.nodes().collect(),
            may_take: |node, set| suits(node, &set.constraints),
            free: free.collect(),
        }
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = &'w Node> + '_ {
        self.nodes.values().copied()
    }

    pub(crate) fn node(&self, name: &str) -> Option<&'w Node> {
        self.nodes.get(name).copied()
    }

    pub(crate) fn free(&self, name: &str) -> Room {
        self.free.get(name).cloned().unwrap_or_default()
    }

    /// Notes where there is not enough for an admission.
    pub(crate) fn check(&self, gang: &Gang, assignment: &Assignment, found: &mut Vec<Violation>) {
        self.quotas.check(&elastic::as_placed(gang, assignment), &assignment.flavors, found);
        self.check_room(gang, assignment, found);
    }

    /// The same without quota.
    pub(crate) fn check_room(&self, gang: &Gang, assignment: &Assignment, found: &mut Vec<Violation>) {
        found.extend(self.broken_promises(gang, assignment));
        for (node, take) in charges(gang, assignment) {
            let before = self.free(&node);
            let mut after = before.clone();
            after.turn(&take, 1);
            let devices: BTreeSet<_> = take.parts.iter().map(|(share, ..)| share.device()).collect();
            let touched: BTreeSet<_> = take.amounts.keys().chain(&devices).copied().collect();
            let limit = |ix| if devices.contains(&ix) { 0 } else { before.whole(ix).min(0) };
            for ix in touched.into_iter().filter(|ix| after.whole(*ix) < limit(*ix)) {
                let (gang, node, over) = (gang.key.clone(), node.clone(), -after.whole(ix));
                found.push(Violation::OverCommitted { gang, node, resource: ix.0, over });
            }
            for (resource, device, over) in after.overfull() {
                let is_ours = |(share, number, _): &(DeviceShare, Option<u32>, i128)| {
                    share.device() == resource && *number == Some(device)
                };
                if take.parts.iter().any(is_ours) {
                    let (gang, node, resource) = (gang.key.clone(), node.clone(), resource.0);
                    found.push(Violation::DeviceOverCommitted { gang, node, resource, device, over });
                }
            }
        }
    }

    /// Takes an admitted gang's share.
    pub(crate) fn charge(&mut self, gang: &Gang, assignment: &Assignment) {
        self.charge_room(gang, assignment);
        self.promise(gang, excess(&elastic::as_placed(gang, assignment)));
        if let Some(promise) = self.promises.last_mut().filter(|promise| promise.gang == gang.uid) {
            promise.gang.clear(); // Its old pods may leave, what it was given now stays.
        }
        self.quotas.charge("", &elastic::as_placed(gang, assignment), &assignment.flavors);
    }

    /// Takes what pods need of their nodes.
    pub(crate) fn charge_room(&mut self, gang: &Gang, assignment: &Assignment) {
        for (node, take) in charges(gang, assignment) {
            self.take(None, &node, take);
        }
    }

    /// Whether an admission leaves enough for all that is promised without a place, itself included.
    pub(crate) fn keeps_promises(&self, gang: &Gang, assignment: &Assignment) -> bool {
        self.broken_promises(gang, assignment).is_empty()
    }

    /// Whether others are promised anything without a place.
    pub(crate) fn holds_promises(&self) -> bool {
        self.promises.iter().any(|promise| !promise.suspended)
    }

    fn broken_promises(&self, gang: &Gang, assignment: &Assignment) -> Vec<Violation> {
        let mut broken = Vec::new();
        let mine = (self.eligible(gang), excess(&elastic::as_placed(gang, assignment)));
        let others = || self.promises.iter().filter(|promise| !promise.suspended);
        let sets: BTreeSet<&BTreeSet<&str>> =
            others().map(|promise| &promise.nodes).chain([&mine.0]).collect();
        for set in sets {
            // What this gang takes of the set: pods that land there, and its own promise if that is bound to it.
            let mut wanted = Ledger::new();
            for (node, take) in charges(gang, assignment) {
                if set.contains(node.as_str()) {
                    add(&mut wanted, take.amounts.iter().map(|(ix, amount)| (*ix, *amount)));
                    let before = self.free(&node);
                    let mut after = before.clone();
                    after.turn(&Take { amounts: Ledger::new(), ..take }, 1);
                    let devices: BTreeSet<_> = gang.pod_sets.iter().filter_map(|set| set.share).collect();
                    let devices: BTreeSet<_> = devices.iter().map(|share| share.device()).collect();
                    let opened = devices.iter().map(|ix| (*ix, before.whole(*ix) - after.whole(*ix)));
                    add(&mut wanted, opened);
                }
            }
            if mine.0.is_subset(set) {
                add(&mut wanted, mine.1.iter().map(|(ix, amount)| (*ix, *amount)));
            }
            for (ix, wanted) in wanted.into_iter().filter(|(_, wanted)| *wanted > 0) {
                let supply: i128 = set.iter().map(|node| self.free(node).whole(ix).max(0)).sum();
                let inner = others().filter(|promise| promise.nodes.is_subset(set));
                let promised: i128 = inner.filter_map(|promise| promise.amounts.get(&ix)).sum();
                if wanted + promised > supply {
                    let over = wanted + promised - supply;
                    broken.push(Violation::PromiseBroken { gang: gang.key.clone(), resource: ix.0, over });
                }
            }
        }
        broken
    }

    /// A slot is taken on its planned node unless one of the gang's pods of that set runs elsewhere in its stead;
    /// displaced pods use up the slots that are last by name. A slot is never smaller than the pod in it.
    fn hold_slots(&mut self, gang: &Gang, assignment: &Assignment, pods: &[&Pod]) {
        for (at, (pod_set, places)) in gang.pod_sets.iter().zip(&assignment.pod_sets).enumerate() {
            let mut unit_places = slots(places, assignment.devices.get(at));
            let mut mine: Vec<&&Pod> =
                pods.iter().filter(|pod| pod.gang.as_ref().is_some_and(|(_, set)| *set == at)).collect();
            mine.sort_by_key(|pod| pod.device.is_none()); // Who is known to be on a device has the first choice.
            let mut seated: Vec<(&Pod, Option<u32>)> = Vec::new();
            let mut standing: Vec<(&Pod, Option<u32>)> = Vec::new();
            let mut replaced: Vec<(&Pod, Option<u32>)> = Vec::new();
            for pod in mine {
                let node = pod.node.as_deref().unwrap_or_default();
                let mut here: Vec<_> =
                    unit_places.iter_mut().filter(|((on, _), left)| *on == node && **left > 0).collect();
                here.sort_by_key(|((_, number), _)| pod.device.is_none() || *number != pod.device);
                match here.into_iter().next() {
                    Some(((_, number), left)) => {
                        *left -= 1;
                        seated.push((pod, pod.device.or(*number)));
                    }
                    None if pod.node.as_ref().is_some_and(|node| gang.unhealthy.contains(node)) => {
                        replaced.push((pod, pod.device));
                    }
                    None => standing.push((pod, pod.device)),
                }
            }
            for (pod, number) in seated.iter().chain(&standing).chain(&replaced) {
                self.share(Some(&gang.uid), pod, *number);
            }
            let left: u64 = unit_places.values().sum();
            let used = left.min(standing.len() as u64);
            seated.extend(standing.into_iter().take(usize::try_from(used).unwrap_or(usize::MAX)));
            let mut keep = left - used;
            for ((node, number), count) in &unit_places {
                let here = keep.min(*count);
                keep -= here;
                let here = u32::try_from(here).unwrap_or(u32::MAX);
                if here > 0 {
                    let devices: Vec<_> = number.iter().map(|number| (*number, here)).collect();
                    self.take(Some(&gang.uid), node, Take::of(pod_set, here, &devices));
                }
            }
            for (pod, number) in seated {
                let node = pod.node.as_deref().unwrap_or_default();
                let amounts = product(&pod_set.request, 1)
                    .map(|(ix, slot)| (ix, (slot - i128::from(pod.request.get(ix).0)).max(0)))
                    .collect();
                let parts = difference(pod_set, pod).map(|share| (share, number, 1));
                self.take(Some(&gang.uid), node, Take { amounts, parts: parts.into_iter().collect() });
            }
        }
    }

    /// Takes a bound pod's share on the device of this number.
    fn share(&mut self, gang: Option<&str>, pod: &Pod, number: Option<u32>) {
        if let (Some(node), Some(share)) = (&pod.node, pod.share) {
            self.take(gang, node, Take { parts: vec![(share, number, 1)], ..Take::default() });
        }
    }

    fn take(&mut self, gang: Option<&str>, node: &str, take: Take) {
        let Some(free) = self.free.get_mut(node) else { return };
        free.turn(&take, 1);
        if let Some(gang) = gang {
            self.taken.entry(gang.to_owned()).or_default().push((node.to_owned(), take));
        }
    }

    fn promise(&mut self, gang: &Gang, amounts: Ledger) {
        let amounts: Ledger = amounts.into_iter().filter(|(_, amount)| *amount > 0).collect();
        if !amounts.is_empty() {
            let nodes = self.eligible(gang);
            self.promises.push(Promise { gang: gang.uid.clone(), nodes, amounts, suspended: false });
        }
    }

    /// The nodes that may take pods of the gang; all open ones when it has none.
    fn eligible(&self, gang: &Gang) -> BTreeSet<&'w str> {
        let sets: Vec<_> = gang.pod_sets.iter().filter(|pod_set| pod_set.count > 0).collect();
        let open = |node: &Node| {
            if sets.is_empty() {
                node.ready && !node.unschedulable
            } else {
                sets.iter().any(|pod_set| may_take(node, &pod_set.constraints))
            }
        };
        self.nodes.iter().filter(|(_, node)| open(node)).map(|(name, _)| *name).collect()
    }
}

/// All nodes, whatever their state.
pub(crate) fn all_nodes<'a>(books: &'a Books<'_>) -> impl Iterator<Item = &'a Node> {
    books.nodes.values().copied()
}

/// What an admission takes of each node.
pub(crate) fn charges(gang: &Gang, assignment: &Assignment) -> BTreeMap<String, Take> {
    let mut charges: BTreeMap<String, Take> = BTreeMap::new();
    for (at, (pod_set, places)) in gang.pod_sets.iter().zip(&assignment.pod_sets).enumerate() {
        for (node, count) in places {
            let devices = assignment.devices.get(at).into_iter().flatten().filter(|(on, ..)| on == node);
            let devices: Vec<_> = devices.map(|(_, number, here)| (*number, *here)).collect();
            charges.entry(node.clone()).or_default().add(Take::of(pod_set, *count, &devices));
        }
    }
    charges
}

/// How many pods are planned on which node, and on which device of it if that is known.
fn slots<'a>(
    places: &'a [(String, u32)],
    devices: Option<&'a Vec<(String, u32, u32)>>,
) -> BTreeMap<(&'a str, Option<u32>), u64> {
    let mut slots: BTreeMap<(&str, Option<u32>), u64> = BTreeMap::new();
    for (node, count) in places {
        *slots.entry((node, None)).or_default() += u64::from(*count);
    }
    for (node, number, count) in devices.into_iter().flatten() {
        let Some(unknown) = slots.get_mut(&(node.as_str(), None)) else { continue };
        let here = u64::from(*count).min(*unknown);
        *unknown -= here;
        *slots.entry((node, Some(*number))).or_default() += here;
    }
    slots
}

/// The part by which a slot is larger than the pod in it.
fn difference(pod_set: &PodSet, pod: &Pod) -> Option<DeviceShare> {
    let slot = pod_set.share?;
    let same = pod.share.filter(|share| share.device() == slot.device());
    let rest = i64::from(slot.milli()) - same.map_or(0, |share| i64::from(share.milli()));
    DeviceShare::new(slot.device(), rest).ok()
}

fn total(gang: &Gang) -> Ledger {
    let mut total = Ledger::new();
    for pod_set in &*gang.pod_sets {
        add(&mut total, product(&pod_set.request, pod_set.count));
        if let Some(share) = pod_set.share {
            let milli = i128::from(share.milli()) * i128::from(pod_set.count);
            add(&mut total, std::iter::once((share.device(), (milli + 999) / 1000)));
        }
    }
    total
}

fn excess(gang: &Gang) -> Ledger {
    let total = total(gang);
    let declared = gang.declared.iter().flat_map(ResourceVec::iter);
    declared
        .map(|(ix, amount)| match amount {
            Amount::MAX => (ix, i128::MAX / 4), // Beyond counting: more than any number of nodes holds.
            amount => (ix, i128::from(amount.0) - total.get(&ix).copied().unwrap_or(0)),
        })
        .filter(|(_, excess)| *excess > 0)
        .collect()
}

/// What a gang is promised: for its pods or as declared, whichever is more.
pub(crate) fn promise(gang: &Gang) -> Ledger {
    let mut promise = total(gang);
    add(&mut promise, excess(gang).into_iter());
    promise
}

fn add(to: &mut Ledger, amounts: impl Iterator<Item = (model::ResourceIx, i128)>) {
    for (ix, amount) in amounts {
        *to.entry(ix).or_insert(0) += amount;
    }
}
