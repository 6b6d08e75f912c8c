//! The topology domains from the view of one pod set: the number of pods that each one holds.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use model::{DomainPath, NodeIx, World};

use super::Unit;

/// The number of pods that fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodCapacity {
    /// Without the leader.
    pub(crate) without_leader: u64,
    /// Beside the leader; none when there is no leader, or no room for it.
    pub(crate) with_leader: Option<u64>,
}

/// A domain of any level; the root contains all nodes.
pub(crate) struct Domain<'w> {
    /// The label values, from the broadest level down to its own.
    pub(crate) path: &'w [Arc<str>],
    pub(crate) capacity: PodCapacity,
    /// How much the workers prefer its nodes, in all: the sum of the weights.
    pub(crate) affinity: u64,
    /// In order of name; empty for a domain of the lowest level.
    pub(crate) children: Vec<Domain<'w>>,
    /// The nodes of the tree with room for at least one pod.
    all: Rc<[NodeIx]>,
    /// Those of this domain.
    own: Range<usize>,
}

/// What the nodes of a domain of the lowest level hold, and the position of the first.
struct Leaf<'a, 'w> {
    path: &'w DomainPath,
    first: usize,
    capacities: &'a [(NodeIx, PodCapacity)],
}

impl<'w> Domain<'w> {
    /// The tree of domains with room for at least one pod. `capacity` tells what a node holds; none if it is no candidate.
    pub(crate) fn root(
        world: &'w World,
        unit: &Unit<'_>,
        mut capacity: impl FnMut(NodeIx) -> Option<PodCapacity>,
    ) -> Self {
        let has_room = |(_, capacity): &(NodeIx, PodCapacity)| {
            capacity.without_leader > 0 || capacity.with_leader.is_some()
        };
        let (mut all, mut ranges) = (Vec::new(), Vec::new());
        for (path, nodes) in unit.domains(world) {
            let first = all.len();
            let of_nodes = nodes.iter().filter_map(|node| Some((*node, capacity(*node)?)));
            all.extend(of_nodes.filter(has_room));
            if all.len() > first {
                ranges.push((path, first..all.len()));
            }
        }
        let leaf =
            |(path, range): (_, Range<usize>)| Leaf { path, first: range.start, capacities: &all[range] };
        let leaves: Vec<Leaf<'_, '_>> = ranges.into_iter().map(leaf).collect();
        Self::build(world, unit, &all.iter().map(|(node, _)| *node).collect(), &leaves, 0)
    }

    fn build(
        world: &'w World,
        unit: &Unit<'_>,
        all: &Rc<[NodeIx]>,
        leaves: &[Leaf<'_, 'w>],
        depth: usize,
    ) -> Self {
        let path = leaves.first().map_or(&[][..], |leaf| &leaf.path[..depth]);
        let own = match (leaves.first(), leaves.last()) {
            (Some(first), Some(last)) => first.first..last.first + last.capacities.len(),
            _ => 0..0,
        };
        let mut children = Vec::new();
        let mut capacity = if depth == unit.levels.len() {
            together(leaves.iter().flat_map(|leaf| leaf.capacities).map(|(_, capacity)| *capacity))
        } else {
            let is_lowest = depth + 1 == unit.levels.len();
            children.reserve(if is_lowest { leaves.len() } else { 0 });
            let chunks = leaves.chunk_by(|one, other| is_same(&one.path[depth], &other.path[depth]));
            children.extend(chunks.map(|leaves| Self::build(world, unit, all, leaves, depth + 1)));
            together(children.iter().map(|child: &Self| child.capacity))
        };
        if let Some(level) = depth.checked_sub(1).and_then(|at| unit.levels.get(at))
            && let Some(slice) = unit.request.slices.iter().find(|slice| slice.level == *level)
        {
            let size = u64::from(slice.size.max(1));
            capacity.without_leader -= capacity.without_leader % size;
            capacity.with_leader = capacity.with_leader.map(|with_leader| with_leader - with_leader % size);
        }
        let affinity = all[own.clone()].iter().map(|node| unit.affinity(world, *node)).sum();
        Self { path, capacity, affinity, children, all: all.clone(), own }
    }

    /// Its nodes with room for at least one pod.
    pub(crate) fn nodes(&self) -> &[NodeIx] {
        &self.all[self.own.clone()]
    }

    /// The domains at a depth below the root, in order of name.
    pub(crate) fn at_depth(&self, depth: usize) -> Vec<&Self> {
        match depth {
            0 => vec![self],
            _ => self.children.iter().flat_map(|child| child.at_depth(depth - 1)).collect(),
        }
    }
}

/// Whether two values are equal. Those of one parent are mostly one allocation.
fn is_same(one: &Arc<str>, other: &Arc<str>) -> bool {
    Arc::ptr_eq(one, other) || one == other
}

/// The combined capacity of several parts. The leader goes where it costs the least room for other pods.
pub(crate) fn together(parts: impl Iterator<Item = PodCapacity>) -> PodCapacity {
    let (mut without_leader, mut least) = (0_u64, None);
    for PodCapacity { without_leader: here, with_leader } in parts {
        without_leader = without_leader.saturating_add(here);
        if let Some(with_leader) = with_leader {
            let taken = here.saturating_sub(with_leader);
            least = Some(least.map_or(taken, |least: u64| least.min(taken)));
        }
    }
    PodCapacity { without_leader, with_leader: least.map(|taken| without_leader.saturating_sub(taken)) }
}
