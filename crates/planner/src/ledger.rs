//! What is free in the course of one pass: the world, less what this pass has given away, and as if some had left.
//!
//! An overlay on the world's groups of nodes, never a copy: it holds the nodes that this pass has moved from one group
//! to another, and nothing else. Letting a holder go and having it back are the same moves in both directions.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use model::{
    Assignment, Charges, ClassIx, Constraints, DeviceShares, NodeIx, NodeName, Packing, Portion, ResourceVec,
    Room, Shape, Sum, World, charges,
};

use crate::fragmentation::Demand;
use crate::place::turns_of_shares;
use crate::quota::Quotas;
use crate::request::{Fit, Flavors, GangRequest};
use crate::topology;

type Name = (Arc<str>, NodeIx);

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Ledger<'a> {
    pub(crate) world: &'a World,
    classes: BTreeMap<ClassIx, Overlay>,
    /// What the nodes that were moved have free now.
    free: BTreeMap<NodeIx, Room>,
    /// What is taken now of shared devices, where that changed.
    shares: BTreeMap<NodeIx, DeviceShares>,
    /// Changes of what is promised without a place.
    aggregates: BTreeMap<Arc<[Constraints]>, Sum>,
    /// What is used of quota.
    pub(crate) quotas: Quotas<'a>,
    /// What is asked for, where the policy looks at it.
    demand: Option<Arc<Demand<'a>>>,
}

#[derive(Clone, Debug, Default)]
struct Overlay {
    /// Nodes that are no longer in their group of the world, by what they have free there.
    gone: BTreeMap<Room, Gone>,
    /// Nodes that were moved, by what they have free now.
    moved: BTreeMap<Room, BTreeSet<Name>>,
    /// What was given away, less what was let go.
    given: Sum,
}

/// Nodes that left a group. They mostly leave in the order of their names, so the first ones are told by the last.
#[derive(Clone, Debug, Default)]
struct Gone {
    count: u32,
    /// This one and all before it are gone.
    upto: Option<Name>,
    /// These are gone too.
    beyond: BTreeSet<Name>,
}

impl<'a> Ledger<'a> {
    /// The world as it is.
    pub(crate) fn of(world: &'a World) -> Self {
        Self {
            world,
            classes: BTreeMap::new(),
            free: BTreeMap::new(),
            shares: BTreeMap::new(),
            aggregates: BTreeMap::new(),
            quotas: Quotas::of(world),
            demand: (world.policy().packing == Packing::LeastFragmentation)
                .then(|| Arc::new(Demand::of(world))),
        }
    }

    /// What is asked for, where the policy looks at it.
    pub(crate) fn demand(&self) -> Option<&Demand<'a>> {
        self.demand.as_deref()
    }

    /// The groups of one class: what their nodes have free, and how many they are. A room may come twice.
    pub(crate) fn groups(&self, class: ClassIx) -> impl Iterator<Item = (&Room, u32)> {
        let overlay = self.classes.get(&class);
        let settled = self.world.class(class).groups.iter().map(move |(free, nodes)| {
            let gone = overlay.and_then(|overlay| overlay.gone.get(free)).map_or(0, |gone| gone.count);
            (free, counted(nodes.len()).saturating_sub(gone))
        });
        let moved = overlay.into_iter().flat_map(|overlay| &overlay.moved);
        let moved = moved.map(|(free, nodes)| (free, counted(nodes.len())));
        settled.chain(moved).filter(|(_, nodes)| *nodes > 0)
    }

    /// The nodes of one class that have this much free, in no order.
    pub(crate) fn nodes(&self, class: ClassIx, free: &Room) -> impl Iterator<Item = NodeIx> {
        let overlay = self.classes.get(&class);
        let settled = self.world.class(class).groups.get(free).into_iter().flatten();
        let settled = settled.filter(|(_, node)| !self.free.contains_key(node));
        let moved = overlay.and_then(|overlay| overlay.moved.get(free)).into_iter().flatten();
        settled.chain(moved).map(|(_, node)| *node)
    }

    /// What the nodes of a class have free together. Nodes with less than nothing count as having nothing.
    pub(crate) fn free(&self, class: ClassIx) -> Sum {
        let mut free = self.world.class(class).free.clone();
        if let Some(overlay) = self.classes.get(&class) {
            free.sub_sum(&overlay.given);
        }
        free
    }

    /// What one node has free.
    pub(crate) fn free_on(&self, node: NodeIx) -> &Room {
        self.free.get(&node).unwrap_or_else(|| self.world.free(node))
    }

    /// What one node has left, for a trial.
    pub(crate) fn stock(&self, node: NodeIx) -> Stock {
        let shares = self.shares.get(&node).unwrap_or_else(|| self.world.shares(node));
        Stock { amounts: self.free_on(node).unshared(), shares: shares.clone() }
    }

    /// All promises that name no node, by the nodes that are eligible for them.
    pub(crate) fn aggregates(&self) -> BTreeMap<&[Constraints], Sum> {
        let mut all: BTreeMap<&[Constraints], Sum> = BTreeMap::new();
        for aggregate in self.world.aggregates() {
            all.entry(&aggregate.eligible).or_default().add_sum(&aggregate.promised);
        }
        for (eligible, promised) in &self.aggregates {
            all.entry(eligible).or_default().add_sum(promised);
        }
        all.retain(|_, promised| !promised.is_zero());
        all
    }

    /// Gives a gang what was found for it, and names the nodes: the first ones by name of each group.
    pub(crate) fn reserve(&mut self, request: &GangRequest<'_>, fit: &Fit) -> Assignment {
        let shape = request.shape;
        let mut assignment = Assignment {
            pod_sets: vec![Vec::new(); shape.pod_sets.len()],
            flavors: fit.flavors.clone(),
            devices: Vec::new(),
        };
        if shape.shares_devices() {
            assignment.devices = vec![Vec::new(); shape.pod_sets.len()];
        }
        for stack in &fit.placement.stacks {
            let left = stack.left(&shape.pod_sets);
            for at in 0..stack.nodes as usize {
                let named = stack.named.get(at).and_then(|node| {
                    let name = (self.world.node_name(*node).clone(), *node);
                    self.world.class_of(*node).map(|class| (class, name))
                });
                let (class, name) = named.unwrap_or_else(|| {
                    let (class, name) = self.first_of(&stack.classes, &stack.free, &shape.excluded);
                    if shape.excluded.is_empty() {
                        self.note_first(class, &name);
                    }
                    (class, name)
                });
                for (places, count) in assignment.pod_sets.iter_mut().zip(&stack.load) {
                    if *count > 0 {
                        places.push((name.0.to_string(), *count));
                    }
                }
                if assignment.devices.is_empty() {
                    self.relocate(class, &name, left.clone());
                } else {
                    self.seat(&name, shape, &stack.load, &mut assignment.devices);
                }
            }
        }
        for (places, pod_set) in assignment.pod_sets.iter_mut().zip(&*shape.pod_sets) {
            topology::rank(self.world, pod_set, places);
        }
        assignment.devices.iter_mut().for_each(|places| places.sort());
        let excess = shape.placed(&assignment).excess();
        if !excess.is_zero() {
            self.aggregates.entry(shape.alternatives().into()).or_default().add(&excess);
        }
        self.quotas.charge(&self.charges(request, &assignment));
        assignment
    }

    /// Puts pods of which some share devices onto a node, and notes on which devices.
    fn seat(
        &mut self,
        (name, node): &Name,
        shape: &Shape,
        load: &[u32],
        devices: &mut [Vec<(String, u32, u32)>],
    ) {
        let mut stock = self.stock(*node);
        for (pod_set, count) in shape.pod_sets.iter().zip(load) {
            stock.amounts.sub(&pod_set.request.times(*count));
        }
        for at in turns_of_shares(&shape.pod_sets) {
            let placed = shape.pod_sets[at].share.map(|share| stock.shares.place(share, load[at]));
            devices[at]
                .extend(placed.into_iter().flatten().map(|(number, here)| (name.to_string(), number, here)));
        }
        self.set_stock(*node, stock);
    }

    /// Gives back what [`Self::reserve`] took.
    pub(crate) fn give_back(&mut self, request: &GangRequest<'_>, assignment: &Assignment) {
        self.charge(request.shape, assignment, Stock::put_back, Sum::sub);
        self.quotas.give_back(&self.charges(request, assignment));
    }

    /// Undoes [`Self::give_back`].
    pub(crate) fn take_again(&mut self, request: &GangRequest<'_>, assignment: &Assignment) {
        self.charge(request.shape, assignment, Stock::take, Sum::add);
        self.quotas.charge(&self.charges(request, assignment));
    }

    /// What a gang is charged with the flavors of an assignment.
    pub(crate) fn charges(&self, request: &GangRequest<'_>, assignment: &Assignment) -> Charges {
        self.charges_with(request, &request.shape.placed(assignment), &assignment.flavors)
    }

    /// What a gang is charged when it has this shape and these flavors.
    pub(crate) fn charges_with(
        &self,
        request: &GangRequest<'_>,
        shape: &Shape,
        flavors: &Flavors,
    ) -> Charges {
        let quota = request.quota(self.world);
        if quota.is_none() && request.charges.is_empty() {
            return Charges::new();
        }
        charges(shape, flavors, quota, request.charges)
    }

    fn charge(
        &mut self,
        shape: &Shape,
        assignment: &Assignment,
        turn: fn(&mut Stock, &Portion),
        promised: fn(&mut Sum, &ResourceVec),
    ) {
        for (node, taken) in self.takes(shape, assignment) {
            let mut stock = self.stock(node);
            turn(&mut stock, &taken);
            self.set_stock(node, stock);
        }
        let excess = shape.placed(assignment).excess();
        if !excess.is_zero() {
            promised(self.aggregates.entry(shape.alternatives().into()).or_default(), &excess);
        }
    }

    /// What a gang takes of which nodes at its places, as far as they exist.
    pub(crate) fn takes(&self, shape: &Shape, assignment: &Assignment) -> BTreeMap<NodeIx, Portion> {
        let mut taken: BTreeMap<NodeIx, Portion> = BTreeMap::new();
        for (at, (pod_set, places)) in shape.pod_sets.iter().zip(&assignment.pod_sets).enumerate() {
            for (name, count) in places {
                let Some(node) = self.world.node_ix(name) else { continue };
                let taken = taken.entry(node).or_default();
                taken.amounts.add(&pod_set.request.times(*count));
                let Some(share) = pod_set.share else { continue };
                let mut unknown = *count;
                let devices = assignment.devices.get(at).into_iter().flatten();
                for (_, number, here) in devices.filter(|(on, ..)| on == name) {
                    let here = unknown.min(*here);
                    taken.shares.put(share, Some(*number), here);
                    unknown -= here;
                }
                taken.shares.put(share, None, unknown);
            }
        }
        taken
    }

    /// Sets what a node has left, for a trial.
    pub(crate) fn set_stock(&mut self, node: NodeIx, stock: Stock) {
        let Some(class) = self.world.class_of(node) else { return };
        let Stock { amounts, shares } = stock;
        let left = Room::beside(amounts, &shares);
        if shares == *self.world.shares(node) {
            self.shares.remove(&node);
        } else {
            self.shares.insert(node, shares);
        }
        self.relocate(class, &(self.world.node_name(node).clone(), node), left);
    }

    /// As if a gang and its pods were gone.
    pub(crate) fn release(&mut self, gang: &str) {
        self.shift(gang, Stock::put_back, Sum::sub);
        if let Some(charges) = self.world.charged(gang) {
            self.quotas.give_back(charges);
        }
    }

    /// Undoes [`Self::release`].
    pub(crate) fn hold(&mut self, gang: &str) {
        self.shift(gang, Stock::take, Sum::add);
        if let Some(charges) = self.world.charged(gang) {
            self.quotas.charge(charges);
        }
    }

    fn shift(&mut self, gang: &str, turn: fn(&mut Stock, &Portion), promised: fn(&mut Sum, &ResourceVec)) {
        let world = self.world;
        for (node, taken) in world.taken_by(gang) {
            let mut stock = self.stock(node);
            turn(&mut stock, &taken);
            self.set_stock(node, stock);
        }
        if let Some((eligible, amounts)) = world.aggregate_of(gang) {
            promised(self.aggregates.entry(eligible.into()).or_default(), amounts);
        }
    }

    /// Moves a node from its group to the one of nodes that have `left` free.
    fn relocate(&mut self, class: ClassIx, name: &Name, left: Room) {
        let before = self.free.get(&name.1);
        let overlay = self.classes.entry(class).or_default();
        overlay.given.add(&before.unwrap_or_else(|| self.world.free(name.1)).amounts.positive());
        overlay.given.sub(&left.amounts.positive());
        match before {
            None => overlay.gone.entry(self.world.free(name.1).clone()).or_default().add(name),
            Some(before) => {
                if let Some(nodes) = overlay.moved.get_mut(before) {
                    nodes.remove(name);
                    if nodes.is_empty() {
                        overlay.moved.remove(before);
                    }
                }
            }
        }
        overlay.moved.entry(left.clone()).or_default().insert(name.clone());
        self.free.insert(name.1, left);
    }

    /// Notes that nothing is left before a node that is about to leave its group of the world.
    fn note_first(&mut self, class: ClassIx, name: &Name) {
        if !self.free.contains_key(&name.1) {
            let gone = self
                .classes
                .entry(class)
                .or_default()
                .gone
                .entry(self.world.free(name.1).clone())
                .or_default();
            gone.beyond = gone.beyond.split_off(name);
            gone.upto = Some(name.clone());
        }
    }

    /// The first node by name in the groups of some classes that have the same room, but for those excluded.
    fn first_of(&self, classes: &[ClassIx], free: &Room, excluded: &BTreeSet<NodeName>) -> (ClassIx, Name) {
        let first = |&class: &ClassIx| self.first(class, free, excluded).map(|name| (name, class));
        let (name, class) = classes
            .iter()
            .filter_map(first)
            .min()
            .expect("a placement takes no more nodes than its groups have");
        (class, name.clone())
    }

    fn first(&self, class: ClassIx, free: &Room, excluded: &BTreeSet<NodeName>) -> Option<&Name> {
        let overlay = self.classes.get(&class);
        let gone = overlay.and_then(|overlay| overlay.gone.get(free));
        let upto = gone.and_then(|gone| gone.upto.as_ref());
        let after = upto.map_or(Bound::Unbounded, Bound::Excluded);
        let may = |name: &&Name| excluded.is_empty() || !excluded.contains(&*name.0);
        let settled = self.world.class(class).groups.get(free);
        let settled = settled.and_then(|nodes| {
            let mut nodes = nodes.range((after, Bound::Unbounded)).filter(may);
            nodes.find(|name| !gone.is_some_and(|gone| gone.beyond.contains(name)))
        });
        let moved = overlay.and_then(|overlay| overlay.moved.get(free));
        settled.into_iter().chain(moved.and_then(|moved| moved.iter().find(may))).min()
    }
}

/// What a node has left: the amounts that would be free if no device were shared, and what is taken of shared ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stock {
    pub(crate) amounts: ResourceVec,
    pub(crate) shares: DeviceShares,
}

impl Stock {
    /// Takes a holder's portion out.
    pub(crate) fn take(&mut self, portion: &Portion) {
        self.amounts.sub(&portion.amounts);
        self.shares.add(&portion.shares);
    }

    /// Undoes [`Self::take`].
    pub(crate) fn put_back(&mut self, portion: &Portion) {
        self.amounts.add(&portion.amounts);
        self.shares.sub(&portion.shares);
    }

    /// No more than either of the two has.
    pub(crate) fn least(mut self, other: &Self) -> Self {
        let both: Vec<_> = self.amounts.iter().chain(other.amounts.iter()).map(|(ix, _)| ix).collect();
        for ix in both {
            self.amounts.set(ix, self.amounts.get(ix).min(other.amounts.get(ix)));
        }
        Self { amounts: self.amounts, shares: self.shares.max(&other.shares) }
    }
}

impl Gone {
    fn add(&mut self, name: &Name) {
        self.count += 1;
        if self.upto.as_ref().is_none_or(|upto| upto < name) {
            self.beyond.insert(name.clone());
        }
    }
}

fn counted(nodes: usize) -> u32 {
    u32::try_from(nodes).unwrap_or(u32::MAX)
}
