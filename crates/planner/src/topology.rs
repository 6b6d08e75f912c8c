//! Places for gangs whose pods are to be near each other: which domains of the topology, and then which nodes.
//!
//! Bottom up, every domain is told how many pods it holds, rounded down to whole slices where a slice has to be in one; top
//! down, the domains are chosen (`choice`) and the pods handed on to their children, until the ordinary placement finds
//! nodes within a domain of the lowest level. For one pod set, with or without a leader, the counts are exact. Several are
//! placed one after the other, and when the later ones find no room, the next choice of the earlier ones is tried.
//!
//! After Kueue's topology aware scheduling (KEP 2724, `pkg/cache/scheduler/tas_flavor_snapshot.go`, v0.19).

mod choice;
mod tree;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use model::{
    Assignment, Basis, Cause, ClassIx, NodeIx, NodeName, Obstacle, PodSet, QueueingHint, Room, SearchOutcome,
    Shape, TopologyError, TopologyMode, TopologyRequest, TopologyShortage, TopologySlice, World,
};

use crate::aggregate_reservations::AggregateReservations;
use crate::candidates::CandidateNodes;
use crate::ledger::Ledger;
use crate::place::{Placement, Stack, place as pack};
use crate::search::{Found, search};
use choice::{Share, choices};
use tree::{Domain, Holds};

/// How many choices of domains are tried before a gang of several such pod sets is given up.
const BUDGET: u32 = 64;

/// Whether a gang of this shape asks anything of the topology.
pub(crate) fn is_asked(shape: &Shape) -> bool {
    shape.pod_sets.iter().any(request)
}

fn request(pod_set: &PodSet) -> bool {
    pod_set.topology.is_some() && pod_set.count > 0
}

/// What makes no sense about which pod set.
type Fault = (usize, TopologyError);

fn nonsense(shape: &Shape, (at, fault): Fault) -> Vec<Cause> {
    vec![Cause::TopologyError { pod_set: shape.pod_sets[at].name.clone(), fault }]
}

/// Pods that are placed together: those of one set, and its leader.
#[derive(Clone)]
pub(crate) struct Unit<'s> {
    /// The pod set, by its index.
    pub(crate) workers: usize,
    /// The pod set of one pod that goes where the workers go.
    pub(crate) leader: Option<usize>,
    pub(crate) count: u32,
    pub(crate) request: Cow<'s, TopologyRequest>,
    /// The label keys of the levels, broadest first.
    pub(crate) levels: Arc<[String]>,
    /// The domain that it has to be in, since others are there that it scale_up: the values of the labels down to it.
    pub(crate) within: Vec<Arc<str>>,
}

impl<'s> Unit<'s> {
    /// All of a gang, the most demanding first; or what makes no sense about one.
    fn all(world: &World, shape: &'s Shape) -> Result<Vec<Self>, Fault> {
        let mut groups: BTreeMap<Result<&str, usize>, Vec<usize>> = BTreeMap::new();
        for (at, pod_set) in shape.pod_sets.iter().enumerate().filter(|(_, pod_set)| request(pod_set)) {
            groups.entry(pod_set.group.as_deref().ok_or(at)).or_default().push(at);
        }
        let mut units = Vec::new();
        for members in groups.into_values() {
            units.push(Self::of(world, shape, &members)?);
        }
        let strictness = |unit: &Self| match unit.request.mode {
            TopologyMode::Required(_) => 0,
            TopologyMode::Preferred(_) => 1,
            TopologyMode::Unconstrained => 2,
        };
        units.sort_by_key(|unit| (strictness(unit), std::cmp::Reverse(unit.count), unit.workers));
        Ok(units)
    }

    fn of(world: &World, shape: &'s Shape, members: &[usize]) -> Result<Self, Fault> {
        let count = |at: usize| shape.pod_sets[at].count;
        let (leader, workers) = match *members {
            [workers] => (None, workers),
            [leader, workers] if count(leader) == 1 => (Some(leader), workers),
            [workers, leader] if count(leader) == 1 => (Some(leader), workers),
            _ => {
                let at = members.first().copied().unwrap_or_default();
                return Err((at, TopologyError::Group(shape.pod_sets[at].group.clone().unwrap_or_default())));
            }
        };
        let request = shape.pod_sets[workers].topology.as_ref().expect("its members are those that ask");
        let levels = world.levels(request);
        let (mut request, mut within) = (Cow::Borrowed(request), Vec::new());
        if let Some(beside) = shape.scale_up.as_ref().and_then(|scale_up| scale_up.colocation.get(workers)) {
            let left = request.slices.iter().skip(beside.slices_from).cloned().collect();
            request.to_mut().slices = left;
            if let Some(level) = &beside.level {
                request.to_mut().mode = TopologyMode::Required(level.clone());
                let mut paths =
                    beside.nodes.iter().filter_map(|name| world.domain_of(&levels, world.node_ix(name)?));
                let depth = levels.iter().position(|key| key == level).map_or(0, |at| at + 1);
                within = paths.next().map_or_else(Vec::new, |path| path[..depth.min(path.len())].to_vec());
            }
        }
        match request.fault(count(workers), &levels) {
            Some(fault) => Err((workers, fault)),
            None => Ok(Self { workers, leader, count: count(workers), request, levels, within }),
        }
    }

    /// How many pods and leaders a node with this much free holds; `open` says which pod sets may use it.
    fn holds(&self, shape: &Shape, free: &Room, open: impl Fn(usize) -> bool) -> Holds {
        let copies = |free: &Room| {
            let workers = &shape.pod_sets[self.workers];
            if open(self.workers) { u64::from(workers.copies_in(free, u32::MAX)) } else { 0 }
        };
        let leader = self.leader.map(|at| (at, &shape.pod_sets[at]));
        let leader = leader.filter(|(at, leader)| open(*at) && leader.fits_in(free));
        let beside = leader.map(|(_, leader)| {
            let mut left = free.clone();
            left.take(leader, 1);
            copies(&left)
        });
        Holds { alone: copies(free), beside }
    }

    /// That it has too little room, in figures.
    fn too_far(&self, shape: &Shape, root: &Domain<'_>, basis: Basis) -> Cause {
        let name = |at: usize| shape.pod_sets[at].name.clone();
        let within = match &self.request.mode {
            TopologyMode::Required(level) => Some(level.clone()),
            TopologyMode::Preferred(_) | TopologyMode::Unconstrained => None,
        };
        let depth = within.as_ref().map_or(0, |level| self.depth(level));
        let best = root.at_depth(depth).into_iter().rev().max_by_key(|domain| self.room(domain));
        let domain = best.filter(|domain| domain.holds.alone > 0 || domain.holds.beside.is_some());
        let room = best.map_or(0, |domain| self.room(domain));
        let slices = self.request.slices.iter().map(|TopologySlice { size, level }| (*size, level.clone()));
        Cause::Topology(TopologyShortage {
            pod_set: name(self.workers),
            leader: self.leader.map(name),
            count: self.count,
            room: u32::try_from(room).unwrap_or(u32::MAX).min(self.count),
            within: within.map(|level| (level, domain.map(|domain| domain.path.join("/")))),
            slices: slices.collect(),
            basis,
        })
    }

    /// For how many pods a domain has room, the leader among them if there is one.
    pub(crate) fn room(&self, domain: &Domain<'_>) -> u64 {
        if self.leader.is_some() { domain.holds.beside.unwrap_or(0) } else { domain.holds.alone }
    }

    /// How many levels there are down to this one.
    pub(crate) fn depth(&self, level: &str) -> usize {
        self.levels.iter().position(|key| key == level).map_or(self.levels.len(), |at| at + 1)
    }
}

/// A placement, or why there is none and what could help.
pub(crate) fn place(
    ledger: &Ledger<'_>,
    shape: &Shape,
    node_sets: &AggregateReservations,
    candidates: &CandidateNodes<'_>,
) -> Result<Placement, (Vec<Cause>, QueueingHint)> {
    let units =
        Unit::all(ledger.world, shape).map_err(|fault| (nonsense(shape, fault), QueueingHint::Nodes))?;
    let mut site = Site::of(ledger, shape, node_sets, candidates);
    let mut stacks = Vec::new();
    if site.settle(&units, &mut stacks, &mut BUDGET.clone()) {
        return Ok(Placement { stacks });
    }
    let reversed: Vec<Unit<'_>> = units.iter().rev().cloned().collect();
    if units.len() > 1 && site.settle(&reversed, &mut stacks, &mut BUDGET.clone()) {
        return Ok(Placement { stacks });
    }
    let short = units.iter().map(|unit| (unit, site.tree(unit)));
    let short = short.filter(|(unit, root)| choices(unit, root).is_empty());
    let short: Vec<Cause> = short.map(|(unit, root)| unit.too_far(shape, &root, Basis::Free)).collect();
    if !short.is_empty() {
        return Err((short, QueueingHint::Room));
    }
    let pod_sets = shape.pod_sets.iter().filter(|pod_set| pod_set.count > 0);
    let pod_sets = pod_sets.map(|pod_set| pod_set.name.clone()).collect();
    Err((vec![Cause::Together { pod_sets, search: SearchOutcome::BudgetExceeded }], QueueingHint::Change))
}

/// Why a gang would not fit even on empty nodes, for what it asks of the topology.
pub(crate) fn never(world: &World, shape: &Shape) -> Vec<Cause> {
    if !is_asked(shape) {
        return Vec::new();
    }
    let units = match Unit::all(world, shape) {
        Ok(units) => units,
        Err(fault) => return nonsense(shape, fault),
    };
    let cause = |unit: &Unit<'_>| {
        let nodes = world.domains(&unit.levels).flat_map(|(_, nodes)| nodes);
        let seats = nodes.filter_map(|&node| {
            let class = &world.class(world.class_of(node)?).class;
            let closed = |at: usize| shape.pod_sets[at].constraints.obstacle(class);
            let open = |at: usize| closed(at).is_none_or(|obstacle: Obstacle| obstacle.may_pass());
            let empty = Room::from(world.node(world.node_name(node))?.allocatable.clone());
            Some((node, unit.holds(shape, &empty, open)))
        });
        let root = Domain::root(world, unit, seats);
        choices(unit, &root).is_empty().then(|| unit.too_far(shape, &root, Basis::Empty))
    };
    units.iter().filter_map(cause).collect()
}

/// Brings the places of a pod set into the order of its pods' ranks, so that neighbours in rank are neighbours in the
/// topology and each slice is a run of ranks.
pub(crate) fn rank(world: &World, pod_set: &PodSet, places: &mut [(NodeName, u32)]) {
    let Some(request) = &pod_set.topology else {
        places.sort();
        return;
    };
    let levels = world.levels(request);
    places.sort_by_cached_key(|(name, _)| {
        (world.node_ix(name).and_then(|node| world.domain_of(&levels, node)).cloned(), name.clone())
    });
}

/// Whether places are as near to each other as the gang asks: required levels and slices, on the nodes as they are now.
pub(crate) fn holds(world: &World, shape: &Shape, assignment: &Assignment) -> bool {
    let Ok(units) = Unit::all(world, shape) else { return false };
    units.iter().all(|unit| {
        let of = |at: usize| assignment.pod_sets.get(at).into_iter().flatten();
        let prefix = |name: &str, depth: usize| {
            let path = world.node_ix(name).and_then(|node| world.domain_of(&unit.levels, node))?;
            Some(&path[..depth.min(path.len())])
        };
        let members = || of(unit.workers).chain(unit.leader.into_iter().flat_map(of));
        let depth = match &unit.request.mode {
            TopologyMode::Required(level) => unit.depth(level),
            TopologyMode::Preferred(_) | TopologyMode::Unconstrained => 0,
        };
        let first = members().next().and_then(|(name, _)| prefix(name, depth));
        let together =
            members().all(|(name, _)| prefix(name, depth).is_some_and(|domain| Some(domain) == first));
        let whole = unit.request.slices.iter().all(|TopologySlice { size, level }| {
            let mut pods: BTreeMap<_, u64> = BTreeMap::new();
            for (name, count) in of(unit.workers) {
                *pods.entry(prefix(name, unit.depth(level))).or_default() += u64::from(*count);
            }
            pods.values().all(|pods| pods.is_multiple_of(u64::from(*size)))
        });
        together && whole
    })
}

/// The nodes in the course of the placement of one gang.
struct Site<'a, 'l> {
    ledger: &'a Ledger<'l>,
    shape: &'a Shape,
    node_sets: &'a AggregateReservations,
    candidates: &'a CandidateNodes<'a>,
    /// The nodes that have room for at least one pod.
    nodes: BTreeMap<NodeIx, ClassIx>,
    /// What those have left that were given pods.
    left: BTreeMap<NodeIx, Room>,
}

impl<'a, 'l> Site<'a, 'l> {
    fn of(
        ledger: &'a Ledger<'l>,
        shape: &'a Shape,
        node_sets: &'a AggregateReservations,
        candidates: &'a CandidateNodes<'a>,
    ) -> Self {
        let mut nodes = BTreeMap::new();
        for group in &candidates.groups {
            for class in &group.classes {
                let open = ledger.nodes(*class, group.free);
                let open = open.filter(|node| !shape.excluded.contains(&**ledger.world.node_name(*node)));
                nodes.extend(open.map(|node| (node, *class)));
            }
        }
        Self { ledger, shape, node_sets, candidates, nodes, left: BTreeMap::new() }
    }

    fn free(&self, node: NodeIx) -> &Room {
        self.left.get(&node).unwrap_or_else(|| self.ledger.free_on(node))
    }

    /// The domains as one unit sees them.
    fn tree(&self, unit: &Unit<'_>) -> Domain<'a> {
        let seats = self.nodes.iter().map(|(&node, &class)| {
            let open = |at: usize| self.candidates.opens(class, at);
            (node, unit.holds(self.shape, self.free(node), open))
        });
        Domain::root(self.ledger.world, unit, seats)
    }

    /// Places all units, and then what asks nothing of the topology. Leaves no trace when there is no way.
    fn settle(&mut self, units: &[Unit<'_>], stacks: &mut Vec<Stack>, budget: &mut u32) -> bool {
        let Some((unit, rest)) = units.split_first() else { return self.settle_rest(stacks) };
        let root = self.tree(unit);
        for choice in choices(unit, &root) {
            if *budget == 0 {
                return false;
            }
            *budget -= 1;
            let mark = stacks.len();
            let seated = choice.iter().all(|share| self.seat(unit, share, stacks));
            if seated && self.settle(rest, stacks, budget) {
                return true;
            }
            for stack in stacks.drain(mark..).rev() {
                for node in stack.named {
                    self.left.insert(node, stack.free.clone());
                }
            }
        }
        false
    }

    /// Hands pods on to the children of their domain, down to the nodes.
    fn seat(&mut self, unit: &Unit<'_>, share: &Share<'_, '_>, stacks: &mut Vec<Stack>) -> bool {
        if share.domain.children.is_empty() {
            return self.fill(unit, share, stacks);
        }
        let children: Vec<&Domain<'_>> = share.domain.children.iter().collect();
        let shares = choice::spread(unit, &children, share.pods, share.leads);
        shares.is_some_and(|shares| shares.iter().all(|share| self.seat(unit, share, stacks)))
    }

    /// Places pods on the nodes of a domain of the lowest level.
    fn fill(&mut self, unit: &Unit<'_>, share: &Share<'_, '_>, stacks: &mut Vec<Stack>) -> bool {
        let count = |at: usize| match at {
            _ if at == unit.workers => u32::try_from(share.pods).unwrap_or(u32::MAX),
            _ => u32::from(share.leads && unit.leader == Some(at)),
        };
        let sets = self.shape.pod_sets.iter().enumerate();
        let sets: Vec<PodSet> = sets.map(|(at, set)| PodSet { count: count(at), ..set.clone() }).collect();
        let world = self.ledger.world;
        let mut nodes = share.domain.nodes.clone();
        nodes.sort_by_key(|node| world.node_name(*node));
        let seats = nodes.iter().filter_map(|node| Some((*node, *self.nodes.get(node)?, self.free(*node))));
        let candidates = self.candidates.narrowed(&sets, seats);
        let placement = pack(&candidates).or_else(|| match search(&candidates) {
            Found::Placed(placement) => Some(placement),
            Found::Nowhere | Found::OnlyPromised | Found::Undecided => None,
        });
        let Some(placement) = placement else { return false };
        let mut left: Vec<&[NodeIx]> = candidates.groups.iter().map(|group| group.named.as_slice()).collect();
        let mut given = Vec::new();
        for stack in placement.stacks {
            let (named, others) = left[stack.group].split_at(stack.nodes as usize);
            left[stack.group] = others;
            let classes = named.iter().filter_map(|node| self.nodes.get(node)).copied().collect();
            given.push(Stack { named: named.to_vec(), classes, ..stack });
        }
        for stack in given {
            let left = stack.left(&sets);
            self.left.extend(stack.named.iter().map(|node| (*node, left.clone())));
            stacks.push(stack);
        }
        true
    }

    /// Places the pod sets that ask nothing of the topology; then no promise may be broken.
    fn settle_rest(&self, stacks: &mut Vec<Stack>) -> bool {
        let sets = self.shape.pod_sets.iter();
        let sets = sets.map(|set| PodSet { count: if request(set) { 0 } else { set.count }, ..set.clone() });
        let shape = Shape { pod_sets: sets.collect(), declared: None, ..self.shape.clone() };
        let mark = stacks.len();
        if shape.pod_sets.iter().any(|set| set.count > 0) {
            let candidates =
                CandidateNodes::of(self.ledger, &shape, self.node_sets).with_left(self.ledger, &self.left);
            let placement = pack(&candidates).or_else(|| match search(&candidates) {
                Found::Placed(placement) => Some(placement),
                Found::Nowhere | Found::OnlyPromised | Found::Undecided => None,
            });
            let Some(placement) = placement else { return false };
            stacks.extend(placement.stacks);
        }
        let whole = Placement { stacks: std::mem::take(stacks) };
        let kept = self.node_sets.survive(&self.shape.pod_sets, &whole);
        *stacks = whole.stacks;
        if !kept {
            stacks.truncate(mark);
        }
        kept
    }
}
