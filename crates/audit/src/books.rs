//! What is free, counted from nodes, pods and gangs alone.

use std::collections::{BTreeMap, BTreeSet};

use model::{Amount, Assignment, Gang, GangState, Node, Pod, Preemption, ResourceIx, ResourceVec, World};

use crate::elastic;
use crate::quota::Quotas;
use crate::rules::{ledger_of, may_take, product, suits};
use crate::topology::Ground;
use crate::violation::Violation;

/// Amounts by resource, exact.
pub(crate) type Ledger = BTreeMap<ResourceIx, i128>;

/// The state of the nodes while turns are taken.
pub(crate) struct Books<'w> {
    world: &'w World,
    nodes: BTreeMap<&'w str, &'w Node>,
    free: BTreeMap<&'w str, Ledger>,
    /// What gangs and their pods take, by uid of the gang.
    taken: BTreeMap<String, Vec<(String, Ledger)>>,
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
        let free = nodes.iter().map(|(name, node)| (*name, ledger_of(&node.allocatable))).collect();
        let quotas = Quotas::of(world);
        let mut books = Self { world, nodes, free, taken: BTreeMap::new(), promises: Vec::new(), quotas };
        for pod in world.pods() {
            if let Some(node) = &pod.node {
                books.take(pod.gang.as_ref().map(|(uid, _)| uid.as_str()), node, product(&pod.request, 1));
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
                    let mut rest = promise(&elastic::remaining(gang));
                    for pod in pods {
                        for (ix, amount) in product(&pod.request, 1) {
                            *rest.entry(ix).or_insert(0) -= amount;
                        }
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
        for (node, amounts) in self.taken.get(gang).into_iter().flatten() {
            if let Some(free) = self.free.get_mut(node.as_str()) {
                for (ix, amount) in amounts {
                    *free.entry(*ix).or_insert(0) += sign * amount;
                }
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
        let free = self.nodes().map(|node| (node.name.as_str(), ledger_of(&node.allocatable)));
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

    pub(crate) fn free(&self, name: &str) -> Ledger {
        self.free.get(name).cloned().unwrap_or_default()
    }

    /// Notes where there is not enough for an admission.
    pub(crate) fn check(&self, gang: &Gang, assignment: &Assignment, found: &mut Vec<Violation>) {
        self.quotas.check(&elastic::as_placed(gang, assignment), &assignment.flavors, found);
        found.extend(self.broken_promises(gang, assignment));
        for (node, amounts) in charges(gang, assignment) {
            let free = self.free(&node);
            for (&ix, &amount) in &amounts {
                let over = amount - free.get(&ix).copied().unwrap_or(0);
                if amount > 0 && over > 0 {
                    let (gang, node) = (gang.key.clone(), node.clone());
                    found.push(Violation::OverCommitted { gang, node, resource: ix.0, over });
                }
            }
        }
    }

    /// Takes an admitted gang's share.
    pub(crate) fn charge(&mut self, gang: &Gang, assignment: &Assignment) {
        for (node, amounts) in charges(gang, assignment) {
            self.take(None, &node, amounts.into_iter());
        }
        self.promise(gang, excess(&elastic::as_placed(gang, assignment)));
        if let Some(promise) = self.promises.last_mut().filter(|promise| promise.gang == gang.uid) {
            promise.gang.clear(); // Its old pods may leave, what it was given now stays.
        }
        self.quotas.charge("", &elastic::as_placed(gang, assignment), &assignment.flavors);
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
            for (pod_set, places) in gang.pod_sets.iter().zip(&assignment.pod_sets) {
                for (_, count) in places.iter().filter(|(node, _)| set.contains(node.as_str())) {
                    add(&mut wanted, product(&pod_set.request, *count));
                }
            }
            if mine.0.is_subset(set) {
                add(&mut wanted, mine.1.iter().map(|(ix, amount)| (*ix, *amount)));
            }
            for (ix, wanted) in wanted.into_iter().filter(|(_, wanted)| *wanted > 0) {
                let supply: i128 =
                    set.iter().map(|node| self.free(node).get(&ix).copied().unwrap_or(0).max(0)).sum();
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
            let mut unit_places: BTreeMap<&str, u64> = BTreeMap::new();
            for (node, count) in places {
                *unit_places.entry(node).or_default() += u64::from(*count);
            }
            let mine: Vec<&&Pod> =
                pods.iter().filter(|pod| pod.gang.as_ref().is_some_and(|(_, set)| *set == at)).collect();
            let mut seated: Vec<&Pod> = Vec::new();
            let mut standing: Vec<&Pod> = Vec::new();
            for pod in mine {
                match unit_places.get_mut(pod.node.as_deref().unwrap_or_default()) {
                    Some(left) if *left > 0 => {
                        *left -= 1;
                        seated.push(pod);
                    }
                    _ => standing.push(pod),
                }
            }
            let left: u64 = unit_places.values().sum();
            let used = left.min(standing.len() as u64);
            seated.extend(standing.into_iter().take(usize::try_from(used).unwrap_or(usize::MAX)));
            let mut keep = left - used;
            for (node, count) in &unit_places {
                let here = keep.min(*count);
                keep -= here;
                let here = u32::try_from(here).unwrap_or(u32::MAX);
                if here > 0 {
                    let amounts: Vec<_> = product(&pod_set.request, here).collect();
                    self.take(Some(&gang.uid), node, amounts.into_iter());
                }
            }
            for pod in seated {
                let node = pod.node.as_deref().unwrap_or_default();
                let rest: Vec<_> = product(&pod_set.request, 1)
                    .map(|(ix, slot)| (ix, (slot - i128::from(pod.request.get(ix).0)).max(0)))
                    .collect();
                self.take(Some(&gang.uid), node, rest.into_iter());
            }
        }
    }

    fn take(&mut self, gang: Option<&str>, node: &str, amounts: impl Iterator<Item = (ResourceIx, i128)>) {
        let Some(free) = self.free.get_mut(node) else { return };
        let amounts: Ledger = amounts.collect();
        for (ix, amount) in &amounts {
            *free.entry(*ix).or_insert(0) -= amount;
        }
        if let Some(gang) = gang {
            self.taken.entry(gang.to_owned()).or_default().push((node.to_owned(), amounts));
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
fn charges(gang: &Gang, assignment: &Assignment) -> BTreeMap<String, Ledger> {
    let mut charges: BTreeMap<String, Ledger> = BTreeMap::new();
    for (pod_set, places) in gang.pod_sets.iter().zip(&assignment.pod_sets) {
        for (node, count) in places {
            add(charges.entry(node.clone()).or_default(), product(&pod_set.request, *count));
        }
    }
    charges
}

fn total(gang: &Gang) -> Ledger {
    let mut total = Ledger::new();
    for pod_set in &*gang.pod_sets {
        add(&mut total, product(&pod_set.request, pod_set.count));
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

fn promise(gang: &Gang) -> Ledger {
    let mut promise = total(gang);
    add(&mut promise, excess(gang).into_iter());
    promise
}

fn add(to: &mut Ledger, amounts: impl Iterator<Item = (ResourceIx, i128)>) {
    for (ix, amount) in amounts {
        *to.entry(ix).or_insert(0) += amount;
    }
}
