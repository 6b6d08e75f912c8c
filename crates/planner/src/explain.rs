//! Explains why a gang does not fit, in figures.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use model::{
    Amount, Basis, Cause, ClassRow, DeviceShare, FreeResources, NodesWithAmount, Obstacle, PodSet, Quantity,
    ResourceIx, ResourceNames, ResourceVec, Shape, Sum, World,
};

use crate::candidates::is_eligible;
use crate::ledger::Ledger;
use crate::{pod_rules, topology};

/// The number of levels of free amounts that a cause names.
const LEVELS: usize = 3;

/// Why these pod sets do not fit on the current nodes.
pub(crate) fn insufficient_nodes(ledger: &Ledger<'_>, shape: &Shape, pod_sets: &[usize]) -> Vec<Cause> {
    let world = ledger.world;
    let cause = |at: &usize| {
        let pod_set = &shape.pod_sets[*at];
        let mut survey = Survey::default();
        for (ix, row) in world.classes() {
            match pod_set.constraints.obstacle(&row.class) {
                None => survey.nodes.extend(ledger.groups(ix)),
                Some(obstacle) => survey.exclude_class(row, pod_set, obstacle),
            }
        }
        survey.exclude_failed_nodes(ledger, shape, pod_set);
        survey.cause(world.resources(), pod_set, Basis::Free)
    };
    pod_sets.iter().filter_map(cause).collect()
}

/// Why a gang could not start even on an empty cluster with all nodes ready; empty if it could, as far as
/// that is proven here.
pub(crate) fn permanent_causes(world: &World, shape: &Shape) -> Vec<Cause> {
    let mut causes = Vec::new();
    for pod_set in shape.pod_sets.iter().filter(|pod_set| pod_set.count > 0) {
        let mut survey = Survey::default();
        for (_, row) in world.classes() {
            match pod_set.constraints.obstacle(&row.class).filter(|obstacle| !obstacle.is_transient()) {
                None => survey.nodes.extend(row.allocatable.iter().map(|(free, nodes)| (free, *nodes))),
                Some(obstacle) => survey.exclude_class(row, pod_set, obstacle),
            }
        }
        if survey.room(pod_set) < pod_set.count {
            causes.extend(survey.cause(world.resources(), pod_set, Basis::Empty));
        }
    }
    if causes.is_empty() {
        causes = topology::permanent_causes(world, shape);
    }
    if causes.is_empty() && pod_rules::may_concern(shape) {
        causes = pod_rules::permanent_causes(world, shape);
    }
    if !causes.is_empty() {
        return causes;
    }
    let (mut needs, mut capacity) = (Sum::default(), Sum::default());
    for pod_set in &*shape.pod_sets {
        needs.add_times(&pod_set.request, pod_set.count);
    }
    needs.add(&shape.declared_excess());
    for row in could_be_eligible(world, shape) {
        capacity.add_sum(&row.capacity);
    }
    let excess = shape.declared_excess();
    let is_exceeded = |ix, needs| needs > capacity.get(ix) || excess.get(ix) == Amount::MAX;
    let broken = needs.iter().filter(|(ix, needs)| is_exceeded(*ix, *needs)).max_by_key(|(ix, _)| *ix);
    broken.map(|(ix, needs)| insufficient_total(world, shape, ix, needs, None)).into_iter().collect()
}

/// The cause that all pods, with the declared resources, request more of a resource than there is. Without
/// `free`, the capacity of the empty nodes is compared.
pub(crate) fn insufficient_total(
    world: &World,
    shape: &Shape,
    ix: ResourceIx,
    needs: i128,
    free: Option<i128>,
) -> Cause {
    let quantity = |sum: i128| Quantity::new(world.resources().name(ix), Amount::clamped(sum));
    let mut capacity = 0;
    let mut nodes = 0;
    let alternatives = shape.eligible_constraints();
    for row in could_be_eligible(world, shape) {
        if free.is_none() || is_eligible(&alternatives, &row.class) {
            capacity += row.capacity.get(ix);
            nodes += row.nodes;
        }
    }
    Cause::Total {
        needs: quantity(needs),
        free: free.map(|free| quantity(free.max(0))),
        capacity: quantity(capacity),
        nodes,
        declared: shape.declared_excess().get(ix).0 > 0,
    }
}

/// The cause that too little would be left for the aggregate reservations of other gangs.
pub(crate) fn reserved_for_others(world: &World, ix: ResourceIx, left: i128, reserved: i128) -> Cause {
    let quantity = |sum: i128| Quantity::new(world.resources().name(ix), Amount::clamped(sum));
    Cause::AggregateReserved { left: quantity(left.max(0)), reserved: quantity(reserved) }
}

/// The classes that are eligible for a pod set, or would be if their nodes were ready.
fn could_be_eligible<'w>(world: &'w World, shape: &Shape) -> impl Iterator<Item = &'w ClassRow> {
    let alternatives = shape.eligible_constraints();
    let rows = world.classes().map(|(_, row)| row);
    rows.filter(move |row| {
        let is_transient =
            |obstacle: Option<Obstacle>| obstacle.is_none_or(|obstacle| obstacle.is_transient());
        alternatives.is_empty()
            || alternatives.iter().any(|constraints| is_transient(constraints.obstacle(&row.class)))
    })
}

/// The nodes from the view of one pod set.
#[derive(Default)]
struct Survey<'a> {
    /// The free resources of the eligible nodes.
    nodes: Vec<(&'a FreeResources, u32)>,
    /// The nodes that are not eligible, by obstacle: their number, and how many of them could hold a pod if
    /// empty.
    excluded: BTreeMap<Obstacle, (u32, u32)>,
}

impl Survey<'_> {
    /// Excludes the nodes on which the gang failed before.
    fn exclude_failed_nodes(&mut self, ledger: &Ledger<'_>, shape: &Shape, pod_set: &PodSet) {
        let world = ledger.world;
        for node in shape.excluded.iter().filter_map(|name| world.node_ix(name)) {
            let Some(class) = world.class_of(node).map(|class| &world.class(class).class) else { continue };
            let free = ledger.free_on(node);
            if pod_set.constraints.obstacle(class).is_none()
                && let Some((_, nodes)) =
                    self.nodes.iter_mut().find(|(other, nodes)| *other == free && *nodes > 0)
            {
                *nodes -= 1;
                let large =
                    world.node(world.node_name(node)).map(|node| pod_set.request.fits_in(&node.allocatable));
                let (all, holding) = self.excluded.entry(Obstacle::Excluded).or_default();
                *all += 1;
                *holding += u32::from(large == Some(true));
            }
        }
        self.nodes.retain(|(_, nodes)| *nodes > 0);
    }

    fn exclude_class(&mut self, row: &ClassRow, pod_set: &PodSet, obstacle: Obstacle) {
        let (all, large) = self.excluded.entry(obstacle).or_default();
        *all += row.nodes;
        let holding = row.allocatable.iter().filter(|(free, _)| pod_set.fits_in(free));
        *large += holding.map(|(_, nodes)| nodes).sum::<u32>();
    }

    fn room(&self, pod_set: &PodSet) -> u32 {
        let copies = |(free, nodes): &(&FreeResources, u32)| {
            u64::from(pod_set.copies_in(free, pod_set.count)) * u64::from(*nodes)
        };
        let room = self.nodes.iter().map(copies).fold(0, u64::saturating_add);
        u32::try_from(room).unwrap_or(u32::MAX).min(pod_set.count)
    }

    /// The obstacles, by descending number of nodes.
    fn obstacles(&self, figure: fn(&(u32, u32)) -> u32) -> Vec<(Obstacle, u32)> {
        let mut list: Vec<_> =
            self.excluded.iter().map(|(obstacle, nodes)| (obstacle.clone(), figure(nodes))).collect();
        list.retain(|(_, nodes)| *nodes > 0);
        list.sort_by_key(|(_, nodes)| Reverse(*nodes));
        list
    }

    fn cause(&self, names: &ResourceNames, pod_set: &PodSet, basis: Basis) -> Option<Cause> {
        let PodSet { name, count, .. } = pod_set;
        let needs: Vec<Need> = Need::all(pod_set);
        if self.nodes.is_empty() {
            return Some(Cause::NoNode { pod_set: name.clone(), excluded: self.obstacles(|nodes| nodes.0) });
        }
        let excluded = self.obstacles(|nodes| nodes.1);
        let room = self.room(pod_set);
        let (by_one, Reverse(scarcest)) =
            needs.iter().map(|need| (self.room_by(*need), Reverse(*need))).min()?;
        if by_one < u64::from(*count) {
            let levels = self.levels(names, pod_set, scarcest);
            return Some(Cause::InsufficientResource {
                pod_set: name.clone(),
                count: *count,
                room,
                needs: scarcest.quantity(names),
                levels,
                basis,
                excluded,
            });
        }
        let have = |need: &Need| {
            self.nodes
                .iter()
                .filter(|(free, _)| need.copies_in(free) > 0)
                .map(|(_, nodes)| nodes)
                .sum::<u32>()
        };
        let all: u32 = self.nodes.iter().map(|(_, nodes)| nodes).sum();
        let mut scarce: Vec<_> = needs.iter().map(|need| (need.quantity(names), have(need))).collect();
        if scarce.iter().any(|(_, nodes)| *nodes < all) {
            scarce.retain(|(_, nodes)| *nodes < all);
        }
        Some(Cause::Combination {
            pod_set: name.clone(),
            count: *count,
            room,
            needs: scarce,
            basis,
            excluded,
        })
    }

    /// The number of pods that fit by one resource alone.
    fn room_by(&self, need: Need) -> u64 {
        let copies =
            |(free, nodes): &(&FreeResources, u32)| u64::from(need.copies_in(free)) * u64::from(*nodes);
        self.nodes.iter().map(copies).fold(0, u64::saturating_add)
    }

    /// The amounts of a resource that the nodes have left after as many pods as fit, highest first.
    fn levels(&self, names: &ResourceNames, pod_set: &PodSet, need: Need) -> Vec<NodesWithAmount> {
        let mut levels: BTreeMap<Reverse<Need>, u32> = BTreeMap::new();
        for (free, nodes) in &self.nodes {
            let mut left = (*free).clone();
            left.take(pod_set, pod_set.copies_in(free, u32::MAX));
            *levels.entry(Reverse(need.left_in(&left))).or_default() += nodes;
        }
        let level =
            |(Reverse(has), nodes): (Reverse<Need>, u32)| NodesWithAmount { nodes, has: has.quantity(names) };
        levels.into_iter().take(LEVELS).map(level).collect()
    }
}

/// A resource of a pod's request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Need {
    Amount(ResourceIx, Amount),
    /// Thousandths of one device.
    Part(ResourceIx, u16),
}

impl Need {
    fn all(pod_set: &PodSet) -> Vec<Self> {
        let amounts = pod_set.request.iter().map(|(ix, amount)| Self::Amount(ix, amount));
        amounts.chain(pod_set.share.map(|share| Self::Part(share.device(), share.milli()))).collect()
    }

    fn quantity(self, names: &ResourceNames) -> Quantity {
        match self {
            Self::Amount(ix, amount) => Quantity::new(names.name(ix), amount),
            Self::Part(ix, milli) => Quantity::share(names.name(ix), milli),
        }
    }

    /// How many times the free resources of a node contain it.
    fn copies_in(self, room: &FreeResources) -> u32 {
        match self {
            Self::Amount(ix, amount) => {
                ResourceVec::new().with(ix, amount.0).copies_in(&room.amounts, u32::MAX)
            }
            Self::Part(ix, milli) => {
                DeviceShare::new(ix, milli.into()).map_or(0, |share| room.shares_in(share, u32::MAX))
            }
        }
    }

    /// The free amount of this resource on a node.
    fn left_in(self, room: &FreeResources) -> Self {
        match self {
            Self::Amount(ix, _) => Self::Amount(ix, room.amounts.get(ix).max(Amount::ZERO)),
            Self::Part(ix, _) => Self::Part(ix, room.largest_share(ix)),
        }
    }
}
