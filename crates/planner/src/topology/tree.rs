//! The topology domains from the view of one pod set: the number of pods that each one holds.

use std::collections::BTreeMap;
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
    /// The nodes with room for at least one pod, for a domain of the lowest level.
    pub(crate) nodes: Vec<NodeIx>,
}

type Leaves<'a, 'w> = &'a [(&'w DomainPath, Vec<(NodeIx, PodCapacity)>)];

impl<'w> Domain<'w> {
    /// The tree of domains with room for at least one pod.
    pub(crate) fn root(
        world: &'w World,
        unit: &Unit<'_>,
        capacities: impl Iterator<Item = (NodeIx, PodCapacity)>,
    ) -> Self {
        let mut leaves: BTreeMap<&DomainPath, Vec<(NodeIx, PodCapacity)>> = BTreeMap::new();
        for (node, capacity) in
            capacities.filter(|(_, capacity)| capacity.without_leader > 0 || capacity.with_leader.is_some())
        {
            if let Some(path) = world.domain_of(&unit.levels, node)
                && path.starts_with(&unit.within)
            {
                leaves.entry(path).or_default().push((node, capacity));
            }
        }
        let leaves: Vec<_> = leaves.into_iter().collect();
        Self::build(world, unit, &leaves, 0)
    }

    fn build(world: &'w World, unit: &Unit<'_>, leaves: Leaves<'_, 'w>, depth: usize) -> Self {
        let path = leaves.first().map_or(&[][..], |(path, _)| &path[..depth]);
        let (children, nodes, mut capacity): (Vec<Self>, Vec<NodeIx>, _) = if depth == unit.levels.len() {
            let capacities = leaves.iter().flat_map(|(_, capacities)| capacities);
            let nodes: Vec<NodeIx> = capacities.clone().map(|(node, _)| *node).collect();
            (Vec::new(), nodes, together(capacities.map(|(_, capacity)| *capacity)))
        } else {
            let chunks = leaves.chunk_by(|(one, _), (other, _)| one[depth] == other[depth]);
            let children: Vec<Self> =
                chunks.map(|leaves| Self::build(world, unit, leaves, depth + 1)).collect();
            let capacity = together(children.iter().map(|child| child.capacity));
            (children, Vec::new(), capacity)
        };
        if let Some(level) = depth.checked_sub(1).and_then(|at| unit.levels.get(at))
            && let Some(slice) = unit.request.slices.iter().find(|slice| slice.level == *level)
        {
            let size = u64::from(slice.size.max(1));
            capacity.without_leader -= capacity.without_leader % size;
            capacity.with_leader = capacity.with_leader.map(|with_leader| with_leader - with_leader % size);
        }
        let affinity = nodes.iter().map(|node| unit.affinity(world, *node));
        let affinity = affinity.chain(children.iter().map(|child| child.affinity)).sum();
        Self { path, capacity, affinity, children, nodes }
    }

    /// The domains at a depth below the root, in order of name.
    pub(crate) fn at_depth(&self, depth: usize) -> Vec<&Self> {
        match depth {
            0 => vec![self],
            _ => self.children.iter().flat_map(|child| child.at_depth(depth - 1)).collect(),
        }
    }
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
