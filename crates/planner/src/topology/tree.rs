//! The domains of a topology as one pod set sees them: for how many pods each has room.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{DomainPath, NodeIx, World};

use super::Unit;

/// For how many pods there is room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Holds {
    /// Without the leader.
    pub(crate) alone: u64,
    /// Colocation the leader; none when there is no leader, or no room for it.
    pub(crate) beside: Option<u64>,
}

/// A domain of any level; the root stands for all nodes.
pub(crate) struct Domain<'w> {
    /// The values of the labels, from the broadest level to its own.
    pub(crate) path: &'w [Arc<str>],
    pub(crate) holds: Holds,
    /// By name; none for a domain of the lowest level.
    pub(crate) children: Vec<Domain<'w>>,
    /// The nodes of a domain of the lowest level that hold at least one pod.
    pub(crate) nodes: Vec<NodeIx>,
}

type Leaves<'a, 'w> = &'a [(&'w DomainPath, Vec<(NodeIx, Holds)>)];

impl<'w> Domain<'w> {
    /// All domains with room for at least one pod.
    pub(crate) fn root(
        world: &'w World,
        unit: &Unit<'_>,
        seats: impl Iterator<Item = (NodeIx, Holds)>,
    ) -> Self {
        let mut leaves: BTreeMap<&DomainPath, Vec<(NodeIx, Holds)>> = BTreeMap::new();
        for (node, holds) in seats.filter(|(_, holds)| holds.alone > 0 || holds.beside.is_some()) {
            if let Some(path) = world.domain_of(&unit.levels, node)
                && path.starts_with(&unit.within)
            {
                leaves.entry(path).or_default().push((node, holds));
            }
        }
        let leaves: Vec<_> = leaves.into_iter().collect();
        Self::grow(unit, &leaves, 0)
    }

    fn grow(unit: &Unit<'_>, leaves: Leaves<'_, 'w>, depth: usize) -> Self {
        let path = leaves.first().map_or(&[][..], |(path, _)| &path[..depth]);
        let (children, nodes, mut holds) = if depth == unit.levels.len() {
            let seats = leaves.iter().flat_map(|(_, seats)| seats);
            let nodes = seats.clone().map(|(node, _)| *node).collect();
            (Vec::new(), nodes, together(seats.map(|(_, holds)| *holds)))
        } else {
            let chunks = leaves.chunk_by(|(one, _), (other, _)| one[depth] == other[depth]);
            let children: Vec<Self> = chunks.map(|leaves| Self::grow(unit, leaves, depth + 1)).collect();
            let holds = together(children.iter().map(|child| child.holds));
            (children, Vec::new(), holds)
        };
        if let Some(level) = depth.checked_sub(1).and_then(|at| unit.levels.get(at))
            && let Some(slice) = unit.request.slices.iter().find(|slice| slice.level == *level)
        {
            let size = u64::from(slice.size.max(1));
            holds.alone -= holds.alone % size;
            holds.beside = holds.beside.map(|beside| beside - beside % size);
        }
        Self { path, holds, children, nodes }
    }

    /// The domains so many levels below the root, by name.
    pub(crate) fn at_depth(&self, depth: usize) -> Vec<&Self> {
        match depth {
            0 => vec![self],
            _ => self.children.iter().flat_map(|child| child.at_depth(depth - 1)).collect(),
        }
    }
}

/// What several parts hold together: the leader goes where it takes the least room from the others.
pub(crate) fn together(parts: impl Iterator<Item = Holds>) -> Holds {
    let (mut alone, mut least) = (0_u64, None);
    for Holds { alone: here, beside } in parts {
        alone = alone.saturating_add(here);
        if let Some(beside) = beside {
            let taken = here.saturating_sub(beside);
            least = Some(least.map_or(taken, |least: u64| least.min(taken)));
        }
    }
    Holds { alone, beside: least.map(|taken| alone.saturating_sub(taken)) }
}
