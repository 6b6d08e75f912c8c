//! Free resources in the course of one cycle: the cluster state, less what the cycle assigns, plus what it
//! releases on trial.
//!
//! An overlay on the node groups of the cluster state, not a copy. It holds only the nodes that the cycle
//! moved from one group to another. Releasing a holder and restoring it are inverse moves.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use model::{
    AllocatedResources, Assignment, Charges, ClassIx, Constraints, DeviceShares, FreeResources, NodeIx,
    NodeName, Packing, ResourceVec, Shape, Sum, World, charges,
};

use crate::flavors::with_flavor_constraints;
use crate::fragmentation::Demand;
use crate::place::largest_shares_first;
use crate::pod_rules::PodMarkChanges;
use crate::quota::Quotas;
use crate::request::{Fit, Flavors, GangRequest};
use crate::topology;

type Name = (Arc<str>, NodeIx);

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Ledger<'a> {
    pub(crate) world: &'a World,
    classes: BTreeMap<ClassIx, Overlay>,
    /// The free resources of the moved nodes.
    free: BTreeMap<NodeIx, FreeResources>,
    /// The usage of shared devices, where it changed.
    shares: BTreeMap<NodeIx, DeviceShares>,
    /// Changes of the aggregate reservations.
    aggregates: BTreeMap<Arc<[Constraints]>, Sum>,
    /// Changes of the pods that rules between pods concern.
    pub(crate) pod_marks: PodMarkChanges,
    /// The used quota.
    pub(crate) quotas: Quotas<'a>,
    /// The requested pods, for the packing policy that considers them.
    demand: Option<Arc<Demand<'a>>>,
}

#[derive(Clone, Debug, Default)]
struct Overlay {
    /// Nodes that left their group of the cluster state, by their free resources there.
    removed: BTreeMap<FreeResources, Removed>,
    /// Nodes that were moved, by their free resources now.
    moved: BTreeMap<FreeResources, BTreeSet<Name>>,
    /// What was reserved, less what was released.
    reserved: Sum,
}

/// The nodes that left a group. They mostly leave in order of name, so a prefix is represented by its last
/// name.
#[derive(Clone, Debug, Default)]
struct Removed {
    count: u32,
    /// This node and all before it have left.
    upto: Option<Name>,
    /// Further nodes that have left.
    beyond: BTreeSet<Name>,
}

impl<'a> Ledger<'a> {
    /// The free resources of the cluster state.
    pub(crate) fn of(world: &'a World) -> Self {
        Self {
            world,
            classes: BTreeMap::new(),
            free: BTreeMap::new(),
            shares: BTreeMap::new(),
            aggregates: BTreeMap::new(),
            pod_marks: PodMarkChanges::default(),
            quotas: Quotas::of(world),
            demand: (world.policy().packing == Packing::LeastFragmentation)
                .then(|| Arc::new(Demand::of(world))),
        }
    }

    /// The requested pods, for the packing policy that considers them.
    pub(crate) fn demand(&self) -> Option<&Demand<'a>> {
        self.demand.as_deref()
    }

    /// The groups of one class: the free resources of a node, and the number of nodes. Equal free resources
    /// may occur twice.
    pub(crate) fn groups(&self, class: ClassIx) -> impl Iterator<Item = (&FreeResources, u32)> {
        let overlay = self.classes.get(&class);
        let unmoved = self.world.class(class).groups.iter().map(move |(free, nodes)| {
            let removed =
                overlay.and_then(|overlay| overlay.removed.get(free)).map_or(0, |removed| removed.count);
            (free, counted(nodes.len()).saturating_sub(removed))
        });
        let moved = overlay.into_iter().flat_map(|overlay| &overlay.moved);
        let moved = moved.map(|(free, nodes)| (free, counted(nodes.len())));
        unmoved.chain(moved).filter(|(_, nodes)| *nodes > 0)
    }

    /// The nodes of one class with these free resources, in no particular order.
    pub(crate) fn nodes(&self, class: ClassIx, free: &FreeResources) -> impl Iterator<Item = NodeIx> {
        let overlay = self.classes.get(&class);
        let unmoved = self.world.class(class).groups.get(free).into_iter().flatten();
        let unmoved = unmoved.filter(|(_, node)| !self.free.contains_key(node));
        let moved = overlay.and_then(|overlay| overlay.moved.get(free)).into_iter().flatten();
        unmoved.chain(moved).map(|(_, node)| *node)
    }

    /// The sum of the free resources of a class. A negative amount on a node counts as zero.
    pub(crate) fn free(&self, class: ClassIx) -> Sum {
        let mut free = self.world.class(class).free.clone();
        if let Some(overlay) = self.classes.get(&class) {
            free.sub_sum(&overlay.reserved);
        }
        free
    }

    /// The free resources of one node.
    pub(crate) fn free_on(&self, node: NodeIx) -> &FreeResources {
        self.free.get(&node).unwrap_or_else(|| self.world.free(node))
    }

    /// The resources of one node, for a trial.
    pub(crate) fn node_resources(&self, node: NodeIx) -> NodeResources {
        let shares = self.shares.get(&node).unwrap_or_else(|| self.world.shares(node));
        NodeResources { amounts: self.free_on(node).with_whole_devices(), shares: shares.clone() }
    }

    /// All aggregate reservations, by the nodes that are eligible for them.
    pub(crate) fn aggregates(&self) -> BTreeMap<&[Constraints], Sum> {
        let mut all: BTreeMap<&[Constraints], Sum> = BTreeMap::new();
        for aggregate in self.world.aggregate_reservations() {
            all.entry(&aggregate.eligible).or_default().add_sum(&aggregate.reserved);
        }
        for (eligible, reserved) in &self.aggregates {
            all.entry(eligible).or_default().add_sum(reserved);
        }
        all.retain(|_, reserved| !reserved.is_zero());
        all
    }

    /// Reserves a fit for a gang and names its nodes: the first ones by name of each group.
    pub(crate) fn reserve(&mut self, request: &GangRequest<'_>, fit: &Fit) -> Assignment {
        let shape = request.shape;
        let mut assignment = Assignment {
            pod_sets: vec![Vec::new(); shape.pod_sets.len()],
            flavors: fit.flavors.clone(),
            devices: Vec::new(),
            unplaced: fit.unplaced.clone(),
        };
        if shape.shares_devices() {
            assignment.devices = vec![Vec::new(); shape.pod_sets.len()];
        }
        for node_load in &fit.placement.node_loads {
            let left = node_load.left(&shape.pod_sets);
            for at in 0..node_load.nodes as usize {
                let named = node_load.specific.get(at).and_then(|node| {
                    let name = (self.world.node_name(*node).clone(), *node);
                    self.world.class_of(*node).map(|class| (class, name))
                });
                let (class, name) = named.unwrap_or_else(|| {
                    let (class, name) = self.first_of(&node_load.classes, &node_load.free, &shape.excluded);
                    if shape.excluded.is_empty() {
                        self.mark_removed(class, &name);
                    }
                    (class, name)
                });
                for (places, count) in assignment.pod_sets.iter_mut().zip(&node_load.load) {
                    if *count > 0 {
                        places.push((name.0.to_string(), *count));
                    }
                }
                if assignment.devices.is_empty() {
                    self.move_node(class, &name, left.clone());
                } else {
                    self.assign_devices(&name, shape, &node_load.load, &mut assignment.devices);
                }
            }
        }
        let narrow = if topology::is_requested(shape) {
            with_flavor_constraints(self.world, shape, &fit.flavors)
        } else {
            Cow::Borrowed(shape)
        };
        for (places, pod_set) in assignment.pod_sets.iter_mut().zip(&*narrow.pod_sets) {
            topology::sort_by_rank(self.world, pod_set, places);
        }
        assignment.devices.iter_mut().for_each(|places| places.sort());
        let excess = shape.excess_beside(&assignment);
        if !excess.is_zero() {
            self.aggregates.entry(shape.eligible_constraints().into()).or_default().add(&excess);
        }
        self.pod_marks.apply_assignment(self.world, shape, &assignment, 1);
        self.quotas.charge(&self.charges(request, &assignment));
        assignment
    }

    /// Assigns pods to a node, and shares of devices to devices of the node.
    fn assign_devices(
        &mut self,
        (name, node): &Name,
        shape: &Shape,
        load: &[u32],
        devices: &mut [Vec<(String, u32, u32)>],
    ) {
        let mut resources = self.node_resources(*node);
        for (pod_set, count) in shape.pod_sets.iter().zip(load) {
            resources.amounts.sub(&pod_set.request.times(*count));
        }
        for at in largest_shares_first(&shape.pod_sets) {
            let placed = shape.pod_sets[at].share.map(|share| resources.shares.place(share, load[at]));
            devices[at]
                .extend(placed.into_iter().flatten().map(|(number, here)| (name.to_string(), number, here)));
        }
        self.set_node_resources(*node, resources);
    }

    /// Undoes [`Self::reserve`].
    pub(crate) fn unreserve(&mut self, request: &GangRequest<'_>, assignment: &Assignment) {
        self.apply_assignment(request.shape, assignment, NodeResources::release, Sum::sub);
        self.pod_marks.apply_assignment(self.world, request.shape, assignment, -1);
        self.quotas.release(&self.charges(request, assignment));
    }

    /// Reserves an assignment again; undoes [`Self::unreserve`].
    pub(crate) fn reserve_assignment(&mut self, request: &GangRequest<'_>, assignment: &Assignment) {
        self.apply_assignment(request.shape, assignment, NodeResources::take, Sum::add);
        self.pod_marks.apply_assignment(self.world, request.shape, assignment, 1);
        self.quotas.charge(&self.charges(request, assignment));
    }

    /// The quota charges of a gang with this assignment.
    pub(crate) fn charges(&self, request: &GangRequest<'_>, assignment: &Assignment) -> Charges {
        self.charges_with(request, &request.shape.placed(assignment), &assignment.flavors)
    }

    /// The quota charges of a gang with this shape and these flavors.
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

    fn apply_assignment(
        &mut self,
        shape: &Shape,
        assignment: &Assignment,
        apply: fn(&mut NodeResources, &AllocatedResources),
        reserved: fn(&mut Sum, &ResourceVec),
    ) {
        for (node, taken) in self.usage_by_node(shape, assignment) {
            let mut resources = self.node_resources(node);
            apply(&mut resources, &taken);
            self.set_node_resources(node, resources);
        }
        let excess = shape.excess_beside(assignment);
        if !excess.is_zero() {
            reserved(self.aggregates.entry(shape.eligible_constraints().into()).or_default(), &excess);
        }
    }

    /// The resources of each node that an assignment uses, as far as the nodes exist.
    pub(crate) fn usage_by_node(
        &self,
        shape: &Shape,
        assignment: &Assignment,
    ) -> BTreeMap<NodeIx, AllocatedResources> {
        let mut taken: BTreeMap<NodeIx, AllocatedResources> = BTreeMap::new();
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

    /// Sets the resources of a node, for a trial.
    pub(crate) fn set_node_resources(&mut self, node: NodeIx, resources: NodeResources) {
        let Some(class) = self.world.class_of(node) else { return };
        let NodeResources { amounts, shares } = resources;
        let left = FreeResources::new(amounts, &shares);
        if shares == *self.world.shares(node) {
            self.shares.remove(&node);
        } else {
            self.shares.insert(node, shares);
        }
        self.move_node(class, &(self.world.node_name(node).clone(), node), left);
    }

    /// Releases the resources and charges of a gang and its pods.
    pub(crate) fn release(&mut self, gang: &str) {
        self.apply_holder(gang, NodeResources::release, Sum::sub);
        self.pod_marks.apply_gang(self.world, gang, -1);
        if let Some(charges) = self.world.charged(gang) {
            self.quotas.release(charges);
        }
    }

    /// Undoes [`Self::release`].
    pub(crate) fn restore(&mut self, gang: &str) {
        self.apply_holder(gang, NodeResources::take, Sum::add);
        self.pod_marks.apply_gang(self.world, gang, 1);
        if let Some(charges) = self.world.charged(gang) {
            self.quotas.charge(charges);
        }
    }

    fn apply_holder(
        &mut self,
        gang: &str,
        apply: fn(&mut NodeResources, &AllocatedResources),
        reserved: fn(&mut Sum, &ResourceVec),
    ) {
        let world = self.world;
        for (node, taken) in world.allocated_to(gang) {
            let mut resources = self.node_resources(node);
            apply(&mut resources, &taken);
            self.set_node_resources(node, resources);
        }
        if let Some((eligible, amounts)) = world.aggregate_reservation_of(gang) {
            reserved(self.aggregates.entry(eligible.into()).or_default(), amounts);
        }
    }

    /// Moves a node to the group of nodes that have `left` free.
    fn move_node(&mut self, class: ClassIx, name: &Name, left: FreeResources) {
        let before = self.free.get(&name.1);
        let overlay = self.classes.entry(class).or_default();
        overlay.reserved.add(&before.unwrap_or_else(|| self.world.free(name.1)).amounts.positive());
        overlay.reserved.sub(&left.amounts.positive());
        match before {
            None => overlay.removed.entry(self.world.free(name.1).clone()).or_default().add(name),
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

    /// Marks the nodes up to `name` as removed from their group, before that node is moved.
    fn mark_removed(&mut self, class: ClassIx, name: &Name) {
        if !self.free.contains_key(&name.1) {
            let removed = self
                .classes
                .entry(class)
                .or_default()
                .removed
                .entry(self.world.free(name.1).clone())
                .or_default();
            removed.beyond = removed.beyond.split_off(name);
            removed.upto = Some(name.clone());
        }
    }

    /// The first node by name of the given classes with these free resources that is not excluded.
    fn first_of(
        &self,
        classes: &[ClassIx],
        free: &FreeResources,
        excluded: &BTreeSet<NodeName>,
    ) -> (ClassIx, Name) {
        let first = |&class: &ClassIx| self.first(class, free, excluded).map(|name| (name, class));
        let (name, class) = classes
            .iter()
            .filter_map(first)
            .min()
            .expect("a placement takes no more nodes than its groups have");
        (class, name.clone())
    }

    fn first(&self, class: ClassIx, free: &FreeResources, excluded: &BTreeSet<NodeName>) -> Option<&Name> {
        let overlay = self.classes.get(&class);
        let removed = overlay.and_then(|overlay| overlay.removed.get(free));
        let upto = removed.and_then(|removed| removed.upto.as_ref());
        let after = upto.map_or(Bound::Unbounded, Bound::Excluded);
        let may = |name: &&Name| excluded.is_empty() || !excluded.contains(&*name.0);
        let unmoved = self.world.class(class).groups.get(free);
        let unmoved = unmoved.and_then(|nodes| {
            let mut nodes = nodes.range((after, Bound::Unbounded)).filter(may);
            nodes.find(|name| !removed.is_some_and(|removed| removed.beyond.contains(name)))
        });
        let moved = overlay.and_then(|overlay| overlay.moved.get(free));
        unmoved.into_iter().chain(moved.and_then(|moved| moved.iter().find(may))).min()
    }
}

/// The resources of a node: the free amounts as if no device were shared, and the usage of its shared
/// devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeResources {
    pub(crate) amounts: ResourceVec,
    pub(crate) shares: DeviceShares,
}

impl NodeResources {
    /// Allocates resources.
    pub(crate) fn take(&mut self, portion: &AllocatedResources) {
        self.amounts.sub(&portion.amounts);
        self.shares.add(&portion.shares);
    }

    /// Undoes [`Self::take`].
    pub(crate) fn release(&mut self, portion: &AllocatedResources) {
        self.amounts.add(&portion.amounts);
        self.shares.sub(&portion.shares);
    }

    /// The minimum of both for each resource.
    pub(crate) fn least(mut self, other: &Self) -> Self {
        let both: Vec<_> = self.amounts.iter().chain(other.amounts.iter()).map(|(ix, _)| ix).collect();
        for ix in both {
            self.amounts.set(ix, self.amounts.get(ix).min(other.amounts.get(ix)));
        }
        Self { amounts: self.amounts, shares: self.shares.max(&other.shares) }
    }
}

impl Removed {
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
