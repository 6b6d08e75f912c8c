//! Why a gang does not fit, in figures.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use model::{
    Amount, Basis, Cause, ClassRow, Level, Obstacle, PodSet, Quantity, ResourceIx, ResourceNames,
    ResourceVec, Shape, Sum, World,
};

use crate::ledger::Ledger;
use crate::terrain::is_eligible;
use crate::topology;

/// How many levels of free amounts a cause names.
const LEVELS: usize = 3;

/// Why there is too little room for the pod sets named, on the nodes as they are.
pub(crate) fn short(ledger: &Ledger<'_>, shape: &Shape, pod_sets: &[usize]) -> Vec<Cause> {
    let world = ledger.world;
    let cause = |at: &usize| {
        let pod_set = &shape.pod_sets[*at];
        let mut survey = Survey::default();
        for (ix, row) in world.classes() {
            match pod_set.constraints.obstacle(&row.class) {
                None => survey.nodes.extend(ledger.groups(ix)),
                Some(obstacle) => survey.exclude(row, pod_set, obstacle),
            }
        }
        survey.leave_out(ledger, shape, pod_set);
        survey.cause(world.resources(), pod_set, Basis::Free)
    };
    pod_sets.iter().filter_map(cause).collect()
}

/// Why a gang could not even start if nothing else ran and every node were ready; empty if it could, as far as is
/// proven here.
pub(crate) fn never(world: &World, shape: &Shape) -> Vec<Cause> {
    let mut causes = Vec::new();
    for pod_set in shape.pod_sets.iter().filter(|pod_set| pod_set.count > 0) {
        let mut survey = Survey::default();
        for (_, row) in world.classes() {
            match pod_set.constraints.obstacle(&row.class).filter(|obstacle| !obstacle.may_pass()) {
                None => survey.nodes.extend(row.allocatable.iter().map(|(free, nodes)| (free, *nodes))),
                Some(obstacle) => survey.exclude(row, pod_set, obstacle),
            }
        }
        if survey.room(pod_set) < pod_set.count {
            causes.extend(survey.cause(world.resources(), pod_set, Basis::Empty));
        }
    }
    if causes.is_empty() {
        causes = topology::never(world, shape);
    }
    if !causes.is_empty() {
        return causes;
    }
    let (mut needs, mut capacity) = (Sum::default(), Sum::default());
    for pod_set in &*shape.pod_sets {
        needs.add_times(&pod_set.request, pod_set.count);
    }
    needs.add(&shape.excess());
    for row in could_be_eligible(world, shape) {
        capacity.add_sum(&row.capacity);
    }
    let excess = shape.excess();
    let beyond = |ix, needs| needs > capacity.get(ix) || excess.get(ix) == Amount::MAX;
    let broken = needs.iter().filter(|(ix, needs)| beyond(*ix, *needs)).max_by_key(|(ix, _)| *ix);
    broken.map(|(ix, needs)| total(world, shape, ix, needs, None)).into_iter().collect()
}

/// That the pods together, with what is declared, need more of a resource than there is. Without `free`, even empty
/// nodes hold too little.
pub(crate) fn total(world: &World, shape: &Shape, ix: ResourceIx, needs: i128, free: Option<i128>) -> Cause {
    let quantity = |sum: i128| Quantity::new(world.resources().name(ix), Amount::clamped(sum));
    let mut capacity = 0;
    let mut nodes = 0;
    let alternatives = shape.alternatives();
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
        declared: shape.excess().get(ix).0 > 0,
    }
}

/// That too little would be left for what others are promised.
pub(crate) fn promised(world: &World, ix: ResourceIx, left: i128, promised: i128) -> Cause {
    let quantity = |sum: i128| Quantity::new(world.resources().name(ix), Amount::clamped(sum));
    Cause::Promised { left: quantity(left.max(0)), promised: quantity(promised) }
}

/// The classes that are eligible for one of the pod sets, or would be if their nodes were ready.
fn could_be_eligible<'w>(world: &'w World, shape: &Shape) -> impl Iterator<Item = &'w ClassRow> {
    let alternatives = shape.alternatives();
    let rows = world.classes().map(|(_, row)| row);
    rows.filter(move |row| {
        let may_pass = |obstacle: Option<Obstacle>| obstacle.is_none_or(|obstacle| obstacle.may_pass());
        alternatives.is_empty()
            || alternatives.iter().any(|constraints| may_pass(constraints.obstacle(&row.class)))
    })
}

/// The nodes as one pod set sees them.
#[derive(Default)]
struct Survey<'a> {
    /// What eligible nodes have.
    nodes: Vec<(&'a ResourceVec, u32)>,
    /// Nodes that are not eligible, by what is in the way: all of them, and those that could hold a pod if empty.
    excluded: BTreeMap<Obstacle, (u32, u32)>,
}

impl Survey<'_> {
    /// Takes out the nodes that the gang must not go to again.
    fn leave_out(&mut self, ledger: &Ledger<'_>, shape: &Shape, pod_set: &PodSet) {
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

    fn exclude(&mut self, row: &ClassRow, pod_set: &PodSet, obstacle: Obstacle) {
        let (all, large) = self.excluded.entry(obstacle).or_default();
        *all += row.nodes;
        let holding = row.allocatable.iter().filter(|(free, _)| pod_set.request.fits_in(free));
        *large += holding.map(|(_, nodes)| nodes).sum::<u32>();
    }

    fn room(&self, pod_set: &PodSet) -> u32 {
        let copies = |(free, nodes): &(&ResourceVec, u32)| {
            u64::from(pod_set.request.copies_in(free, pod_set.count)) * u64::from(*nodes)
        };
        let room = self.nodes.iter().map(copies).fold(0, u64::saturating_add);
        u32::try_from(room).unwrap_or(u32::MAX).min(pod_set.count)
    }

    /// What keeps nodes out, most nodes first.
    fn obstacles(&self, figure: fn(&(u32, u32)) -> u32) -> Vec<(Obstacle, u32)> {
        let mut list: Vec<_> =
            self.excluded.iter().map(|(obstacle, nodes)| (obstacle.clone(), figure(nodes))).collect();
        list.retain(|(_, nodes)| *nodes > 0);
        list.sort_by_key(|(_, nodes)| Reverse(*nodes));
        list
    }

    fn cause(&self, names: &ResourceNames, pod_set: &PodSet, basis: Basis) -> Option<Cause> {
        let PodSet { name, count, request, .. } = pod_set;
        if self.nodes.is_empty() {
            return Some(Cause::NoNode { pod_set: name.clone(), excluded: self.obstacles(|nodes| nodes.0) });
        }
        let excluded = self.obstacles(|nodes| nodes.1);
        let room = self.room(pod_set);
        let scarcest = request.iter().map(|(ix, amount)| (self.room_by(ix, amount), Reverse(ix))).min()?;
        let (by_one, Reverse(ix)) = scarcest;
        let needs = |ix| Quantity::new(names.name(ix), request.get(ix));
        if by_one < u64::from(*count) {
            let levels = self.levels(names, request, ix);
            return Some(Cause::Room {
                pod_set: name.clone(),
                count: *count,
                room,
                needs: needs(ix),
                levels,
                basis,
                excluded,
            });
        }
        let have = |ix, amount: Amount| {
            self.nodes
                .iter()
                .filter(|(free, _)| amount.fits_in(free.get(ix)))
                .map(|(_, nodes)| nodes)
                .sum::<u32>()
        };
        let all: u32 = self.nodes.iter().map(|(_, nodes)| nodes).sum();
        let mut scarce: Vec<_> = request.iter().map(|(ix, amount)| (needs(ix), have(ix, amount))).collect();
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

    /// For how many pods there is enough of one resource.
    fn room_by(&self, ix: ResourceIx, amount: Amount) -> u64 {
        let one = ResourceVec::new().with(ix, amount.0);
        let copies = |(free, nodes): &(&ResourceVec, u32)| {
            u64::from(one.copies_in(free, u32::MAX)) * u64::from(*nodes)
        };
        self.nodes.iter().map(copies).fold(0, u64::saturating_add)
    }

    /// What nodes have left of a resource beside as many pods as they hold, highest first.
    fn levels(&self, names: &ResourceNames, request: &ResourceVec, ix: ResourceIx) -> Vec<Level> {
        let mut levels: BTreeMap<Reverse<Amount>, u32> = BTreeMap::new();
        for (free, nodes) in &self.nodes {
            let copies = request.copies_in(free, u32::MAX);
            let left = free.get(ix).minus(request.get(ix).times(copies)).max(Amount::ZERO);
            *levels.entry(Reverse(left)).or_default() += nodes;
        }
        let level = |(Reverse(has), nodes)| Level { nodes, has: Quantity::new(names.name(ix), has) };
        levels.into_iter().take(LEVELS).map(level).collect()
    }
}
