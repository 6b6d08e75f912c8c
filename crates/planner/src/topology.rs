//! Topology-aware placement: selects topology domains, then nodes.
//!
//! Bottom up, each domain counts the pods that it can hold, rounded down to whole slices. Top down, domains
//! are selected (`choice`) and their pods distributed to the children, until the ordinary placement finds
//! nodes within a domain of the lowest level. For one pod set, with or without a leader, the counts are
//! exact. Several pod sets are placed one after the other; when a later one does not fit, the next choice of
//! an earlier one is tried.
//!
//! After Kueue's topology aware scheduling (KEP 2724, `pkg/cache/scheduler/tas_flavor_snapshot.go`, v0.19).

mod balanced;
mod choice;
mod tree;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::{
    Assignment, Basis, Cause, ClassIx, DomainPath, FreeResources, NodeIx, NodeName, Obstacle, PodSet,
    QueueingHint, SearchOutcome, Shape, Term, TopologyError, TopologyMode, TopologyPolicy, TopologyRequest,
    TopologyShortage, TopologySlice, World,
};

use crate::aggregate_reservations::AggregateReservations;
use crate::candidates::CandidateNodes;
use crate::ledger::Ledger;
use crate::place::{NodeLoad, Placement, place as pack};
use crate::search::{SearchResult, search};
use choice::{DomainShare, domain_choices};
use tree::{Domain, PodCapacity};

/// The number of domain choices that are tried for a gang with several pod sets.
const BUDGET: u32 = 64;

/// Whether a shape has a topology request.
pub(crate) fn is_requested(shape: &Shape) -> bool {
    shape.pod_sets.iter().any(requests_topology)
}

fn requests_topology(pod_set: &PodSet) -> bool {
    pod_set.topology.is_some() && pod_set.count > 0
}

/// A pod set, by index, and the error in its topology request.
type Fault = (usize, TopologyError);

fn invalid_request(shape: &Shape, (at, fault): Fault) -> Vec<Cause> {
    vec![Cause::TopologyError { pod_set: shape.pod_sets[at].name.clone(), fault }]
}

/// Pods that are placed together: the pods of one set, and its leader.
#[derive(Clone)]
pub(crate) struct Unit<'s> {
    /// The pod set, by index.
    pub(crate) workers: usize,
    /// The pod set of the leader, a single pod in the same domain as the workers.
    pub(crate) leader: Option<usize>,
    pub(crate) count: u32,
    pub(crate) request: Cow<'s, TopologyRequest>,
    /// The label keys of the levels, broadest first.
    pub(crate) levels: Arc<[String]>,
    /// The domain of the running pods that a scale-up has to be placed in: the values of its labels, broadest
    /// first.
    pub(crate) within: Vec<Arc<str>>,
    pub(crate) policy: TopologyPolicy,
    /// Terms of nodes that the workers prefer, with their weights.
    preferred: Arc<[(u32, Term)]>,
}

impl<'s> Unit<'s> {
    /// The units of a gang, the most demanding first; or the error in one.
    fn all(world: &World, shape: &'s Shape) -> Result<Vec<Self>, Fault> {
        let mut groups: BTreeMap<Result<&str, usize>, Vec<usize>> = BTreeMap::new();
        for (at, pod_set) in
            shape.pod_sets.iter().enumerate().filter(|(_, pod_set)| requests_topology(pod_set))
        {
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
        let set = &shape.pod_sets[workers];
        let request = set.topology.as_ref().expect("the members of a unit have a topology request");
        let levels = world.levels(set, request);
        let (mut request, mut within) = (Cow::Borrowed(request), Vec::new());
        if let Some(colocation) =
            shape.scale_up.as_ref().and_then(|scale_up| scale_up.colocation.get(workers))
        {
            let left = request.slices.iter().skip(colocation.slices_from).cloned().collect();
            request.to_mut().slices = left;
            if let Some(level) = &colocation.level {
                request.to_mut().mode = TopologyMode::Required(level.clone());
                let mut paths =
                    colocation.nodes.iter().filter_map(|name| world.domain_of(&levels, world.node_ix(name)?));
                let depth = levels.iter().position(|key| key == level).map_or(0, |at| at + 1);
                within = paths.next().map_or_else(Vec::new, |path| path[..depth.min(path.len())].to_vec());
            }
        }
        if let Some(fault) = request.fault(count(workers), &levels) {
            return Err((workers, fault));
        }
        let (policy, count, preferred) = (world.policy().topology, count(workers), set.preferred.clone());
        Ok(Self { workers, leader, count, request, levels, within, policy, preferred })
    }

    /// The number of pods, with and without the leader, that a node with these free resources holds. `open`
    /// says which pod sets may use the node.
    fn capacity(&self, shape: &Shape, free: &FreeResources, open: impl Fn(usize) -> bool) -> PodCapacity {
        let copies = |free: &FreeResources| {
            let workers = &shape.pod_sets[self.workers];
            if open(self.workers) { u64::from(workers.copies_in(free, u32::MAX)) } else { 0 }
        };
        let leader = self.leader.map(|at| (at, &shape.pod_sets[at]));
        let leader = leader.filter(|(at, leader)| open(*at) && leader.fits_in(free));
        let with_leader = leader.map(|(_, leader)| {
            let mut left = free.clone();
            left.take(leader, 1);
            copies(&left)
        });
        PodCapacity { without_leader: copies(free), with_leader }
    }

    /// How much the workers prefer a node: the sum of the weights of the terms that it matches.
    fn affinity(&self, world: &World, node: NodeIx) -> u64 {
        if self.preferred.is_empty() {
            return 0;
        }
        let Some(node) = world.node_at(node) else { return 0 };
        let matched = self.preferred.iter().filter(|(_, term)| term.matches_node(node));
        matched.map(|(weight, _)| u64::from(*weight)).sum()
    }

    /// The cause that there is too little room, in figures.
    fn shortage(&self, shape: &Shape, root: &Domain<'_>, basis: Basis) -> Cause {
        let name = |at: usize| shape.pod_sets[at].name.clone();
        let within = match &self.request.mode {
            TopologyMode::Required(level) => Some(level.clone()),
            TopologyMode::Preferred(_) | TopologyMode::Unconstrained => None,
        };
        let depth = within.as_ref().map_or(0, |level| self.depth(level));
        let best = root.at_depth(depth).into_iter().rev().max_by_key(|domain| self.room(domain));
        let domain =
            best.filter(|domain| domain.capacity.without_leader > 0 || domain.capacity.with_leader.is_some());
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

    /// The domains of the lowest level that its pods may use, with their nodes.
    pub(crate) fn domains<'w>(
        &self,
        world: &'w World,
    ) -> impl Iterator<Item = (&'w DomainPath, &'w BTreeSet<NodeIx>)> {
        world.domains(&self.levels).filter(|(path, _)| path.starts_with(&self.within))
    }

    /// Whether there is room for all pods, found without the tree of domains, at the first nodes that have enough. `false` also if
    /// only the tree can tell: with a leader or slices.
    fn has_room(&self, world: &World, mut capacity: impl FnMut(NodeIx) -> Option<PodCapacity>) -> bool {
        if self.leader.is_some() || !self.request.slices.is_empty() {
            return false;
        }
        let depth = match &self.request.mode {
            TopologyMode::Required(level) => self.depth(level),
            TopologyMode::Preferred(_) | TopologyMode::Unconstrained => 0,
        };
        let (mut domain, mut room): (&[Arc<str>], u64) = (&[], 0);
        for (path, nodes) in self.domains(world) {
            if domain != &path[..depth] {
                (domain, room) = (&path[..depth], 0);
            }
            let of_nodes = nodes.iter().filter_map(|node| Some(capacity(*node)?.without_leader));
            room = of_nodes.fold(room, u64::saturating_add);
            if room >= u64::from(self.count) {
                return true;
            }
        }
        false
    }

    /// The number of pods that a domain holds, beside the leader if there is one.
    pub(crate) fn room(&self, domain: &Domain<'_>) -> u64 {
        if self.leader.is_some() {
            domain.capacity.with_leader.unwrap_or(0)
        } else {
            domain.capacity.without_leader
        }
    }

    /// The same unit, whose pods are not spread evenly.
    pub(crate) fn unbalanced(&self) -> Self {
        Self { policy: TopologyPolicy { balances: false, ..self.policy }, ..self.clone() }
    }

    /// The number of levels down to this one.
    pub(crate) fn depth(&self, level: &str) -> usize {
        self.levels.iter().position(|key| key == level).map_or(self.levels.len(), |at| at + 1)
    }
}

/// A placement, or the causes and the queueing hint.
pub(crate) fn place(
    ledger: &Ledger<'_>,
    shape: &Shape,
    node_sets: &AggregateReservations,
    candidates: &CandidateNodes<'_>,
) -> Result<Placement, (Vec<Cause>, QueueingHint)> {
    let units = Unit::all(ledger.world, shape)
        .map_err(|fault| (invalid_request(shape, fault), QueueingHint::ClusterChange))?;
    let mut search_state = TopologySearch::of(ledger, shape, node_sets, candidates);
    let mut node_loads = Vec::new();
    if search_state.place_units(&units, &mut node_loads, &mut BUDGET.clone()) {
        return Ok(Placement { node_loads });
    }
    let reversed: Vec<Unit<'_>> = units.iter().rev().cloned().collect();
    if units.len() > 1 && search_state.place_units(&reversed, &mut node_loads, &mut BUDGET.clone()) {
        return Ok(Placement { node_loads });
    }
    let short = units.iter().map(|unit| (unit, search_state.tree(unit)));
    let short = short.filter(|(unit, root)| domain_choices(unit, root).is_empty());
    let short: Vec<Cause> = short.map(|(unit, root)| unit.shortage(shape, &root, Basis::Free)).collect();
    if !short.is_empty() {
        return Err((short, QueueingHint::EligibleNodeFreed));
    }
    let pod_sets = shape.pod_sets.iter().filter(|pod_set| pod_set.count > 0);
    let pod_sets = pod_sets.map(|pod_set| pod_set.name.clone()).collect();
    Err((vec![Cause::Together { pod_sets, search: SearchOutcome::BudgetExceeded }], QueueingHint::AnyChange))
}

/// Why the topology request of a gang could not be satisfied even on empty nodes.
pub(crate) fn permanent_causes(world: &World, shape: &Shape) -> Vec<Cause> {
    if !is_requested(shape) {
        return Vec::new();
    }
    let units = match Unit::all(world, shape) {
        Ok(units) => units,
        Err(fault) => return invalid_request(shape, fault),
    };
    let cause = |unit: &Unit<'_>| {
        // Neighbours in a topology are mostly alike.
        let mut last = None;
        let mut capacity = |node| {
            let (ix, allocatable) = (world.class_of(node)?, &world.node_at(node)?.allocatable);
            if let Some((alike, capacity)) = last
                && alike == (ix, allocatable)
            {
                return Some(capacity);
            }
            let class = &world.class(ix).class;
            let closed = |at: usize| shape.pod_sets[at].constraints.obstacle(class);
            let open = |at: usize| closed(at).is_none_or(|obstacle: Obstacle| obstacle.is_transient());
            let capacity = unit.capacity(shape, &FreeResources::from(allocatable.clone()), open);
            last = Some(((ix, allocatable), capacity));
            Some(capacity)
        };
        if unit.has_room(world, &mut capacity) {
            return None;
        }
        let root = Domain::root(world, unit, capacity);
        domain_choices(unit, &root).is_empty().then(|| unit.shortage(shape, &root, Basis::Empty))
    };
    units.iter().filter_map(cause).collect()
}

/// Sorts the nodes of a pod set by topology. Pods get their ranks in this order, so that adjacent ranks are
/// close in the topology and each slice has consecutive ranks.
pub(crate) fn sort_by_rank(world: &World, pod_set: &PodSet, places: &mut [(NodeName, u32)]) {
    let Some(request) = &pod_set.topology else {
        places.sort();
        return;
    };
    let levels = world.levels(pod_set, request);
    places.sort_by_cached_key(|(name, _)| {
        (world.node_ix(name).and_then(|node| world.domain_of(&levels, node)).cloned(), name.clone())
    });
}

/// Pod sets that have to be in one domain, or should be.
#[derive(Clone)]
pub(crate) struct OneDomain {
    /// The pod set whose request it is, by index.
    pub(crate) workers: usize,
    /// All its pod sets, by index.
    pub(crate) members: Vec<usize>,
    /// The label keys of the domain, broadest first.
    pub(crate) levels: Vec<String>,
}

impl OneDomain {
    fn of(unit: &Unit<'_>, level: &str) -> Self {
        let members = std::iter::once(unit.workers).chain(unit.leader).collect();
        Self { workers: unit.workers, members, levels: unit.levels[..unit.depth(level)].to_vec() }
    }

    /// The same at each level up to the broadest one, beginning with this one.
    pub(crate) fn widening(&self) -> impl Iterator<Item = Self> {
        let depths = (1..=self.levels.len()).rev();
        depths.map(|depth| Self { levels: self.levels[..depth].to_vec(), ..self.clone() })
    }
}

/// The required and the preferred domains of a gang; none of an invalid request.
pub(crate) fn domains_of(world: &World, shape: &Shape) -> (Vec<OneDomain>, Vec<OneDomain>) {
    let (mut required, mut preferred) = (Vec::new(), Vec::new());
    for unit in Unit::all(world, shape).unwrap_or_default() {
        match &unit.request.mode {
            TopologyMode::Required(level) => required.push(OneDomain::of(&unit, level)),
            TopologyMode::Preferred(level) => preferred.push(OneDomain::of(&unit, level)),
            TopologyMode::Unconstrained => {}
        }
    }
    (required, preferred)
}

/// Whether an assignment satisfies the required levels and the slices, with the current node labels. `narrowed` are the
/// domains of preferred levels that count as required.
pub(crate) fn is_satisfied(
    world: &World,
    shape: &Shape,
    assignment: &Assignment,
    narrowed: &[OneDomain],
) -> bool {
    let Ok(units) = Unit::all(world, shape) else { return false };
    units.iter().all(|unit| {
        let of = |at: usize| assignment.pod_sets.get(at).into_iter().flatten();
        let prefix = |name: &str, depth: usize| {
            let path = world.node_ix(name).and_then(|node| world.domain_of(&unit.levels, node))?;
            Some(&path[..depth.min(path.len())])
        };
        let members = || of(unit.workers).chain(unit.leader.into_iter().flat_map(of));
        let narrowed = narrowed.iter().find(|domain| domain.workers == unit.workers);
        let depth = match &unit.request.mode {
            TopologyMode::Required(level) => unit.depth(level),
            TopologyMode::Preferred(_) | TopologyMode::Unconstrained => {
                narrowed.map_or(0, |domain| domain.levels.len())
            }
        };
        let first = members().next().and_then(|(name, _)| prefix(name, depth));
        let together =
            members().all(|(name, _)| prefix(name, depth).is_some_and(|domain| Some(domain) == first));
        let is_within = unit.within.is_empty() || first.is_none_or(|domain| *domain == *unit.within);
        let whole = unit.request.slices.iter().all(|TopologySlice { size, level }| {
            let mut pods: BTreeMap<_, u64> = BTreeMap::new();
            for (name, count) in of(unit.workers) {
                *pods.entry(prefix(name, unit.depth(level))).or_default() += u64::from(*count);
            }
            pods.values().all(|pods| pods.is_multiple_of(u64::from(*size)))
        });
        together && is_within && whole
    })
}

/// The state of placing one gang.
struct TopologySearch<'a, 'l> {
    ledger: &'a Ledger<'l>,
    shape: &'a Shape,
    node_sets: &'a AggregateReservations,
    candidates: &'a CandidateNodes<'a>,
    /// The nodes with room for at least one pod, by index: the class and the group of candidates of each.
    nodes: Vec<Option<(ClassIx, usize)>>,
    /// The free resources of the nodes that were assigned pods.
    left: BTreeMap<NodeIx, FreeResources>,
}

impl<'a, 'l> TopologySearch<'a, 'l> {
    fn of(
        ledger: &'a Ledger<'l>,
        shape: &'a Shape,
        node_sets: &'a AggregateReservations,
        candidates: &'a CandidateNodes<'a>,
    ) -> Self {
        let mut nodes = Vec::new();
        let is_excluded = |node: NodeIx| {
            !shape.excluded.is_empty() && shape.excluded.contains(&**ledger.world.node_name(node))
        };
        for (at, group) in candidates.groups.iter().enumerate() {
            for class in &group.classes {
                for node in ledger.nodes(*class, group.free).filter(|node| !is_excluded(*node)) {
                    let index = node.0 as usize;
                    nodes.resize(nodes.len().max(index + 1), None);
                    nodes[index] = Some((*class, at));
                }
            }
        }
        Self { ledger, shape, node_sets, candidates, nodes, left: BTreeMap::new() }
    }

    /// The class and the group of a node with room for at least one pod.
    fn candidate(&self, node: NodeIx) -> Option<(ClassIx, usize)> {
        self.nodes.get(node.0 as usize).copied().flatten()
    }

    fn free(&self, node: NodeIx) -> &FreeResources {
        self.left.get(&node).unwrap_or_else(|| self.ledger.free_on(node))
    }

    /// The domains from the view of one unit.
    fn tree(&self, unit: &Unit<'_>) -> Domain<'a> {
        let capacity = |group: usize, free: &FreeResources| {
            unit.capacity(self.shape, free, |at| self.candidates.is_open(group, at))
        };
        let groups = self.candidates.groups.iter().enumerate();
        let of_groups: Vec<PodCapacity> = groups.map(|(at, group)| capacity(at, group.free)).collect();
        Domain::root(self.ledger.world, unit, |node| {
            let (_, group) = self.candidate(node)?;
            Some(self.left.get(&node).map_or(of_groups[group], |free| capacity(group, free)))
        })
    }

    /// Places all units, then the pod sets without a topology request. Restores the state on failure.
    fn place_units(&mut self, units: &[Unit<'_>], node_loads: &mut Vec<NodeLoad>, budget: &mut u32) -> bool {
        let Some((unit, rest)) = units.split_first() else { return self.place_rest(node_loads) };
        let root = self.tree(unit);
        for choice in domain_choices(unit, &root) {
            if *budget == 0 {
                return false;
            }
            *budget -= 1;
            let mark = node_loads.len();
            let is_placed = choice.iter().all(|share| self.distribute(unit, share, node_loads));
            if is_placed && self.place_units(rest, node_loads, budget) {
                return true;
            }
            for node_load in node_loads.drain(mark..).rev() {
                for node in node_load.specific {
                    self.left.insert(node, node_load.free.clone());
                }
            }
        }
        false
    }

    /// Distributes pods from a domain to its children, down to the nodes.
    fn distribute(
        &mut self,
        unit: &Unit<'_>,
        share: &DomainShare<'_, '_>,
        node_loads: &mut Vec<NodeLoad>,
    ) -> bool {
        if share.domain.children.is_empty() {
            return self.place_on_nodes(unit, share, node_loads);
        }
        let children: Vec<&Domain<'_>> = share.domain.children.iter().collect();
        let shares = choice::distribute(unit, &children, share.pods, share.has_leader);
        shares.is_some_and(|shares| shares.iter().all(|share| self.distribute(unit, share, node_loads)))
    }

    /// Places pods on the nodes of a domain of the lowest level.
    fn place_on_nodes(
        &mut self,
        unit: &Unit<'_>,
        share: &DomainShare<'_, '_>,
        node_loads: &mut Vec<NodeLoad>,
    ) -> bool {
        let count = |at: usize| match at {
            _ if at == unit.workers => u32::try_from(share.pods).unwrap_or(u32::MAX),
            _ => u32::from(share.has_leader && unit.leader == Some(at)),
        };
        let sets = self.shape.pod_sets.iter().enumerate();
        let sets: Vec<PodSet> = sets.map(|(at, set)| PodSet { count: count(at), ..set.clone() }).collect();
        let world = self.ledger.world;
        let mut nodes = share.domain.nodes().to_vec();
        nodes.sort_by_key(|node| world.node_name(*node));
        let capacities =
            nodes.iter().filter_map(|node| Some((*node, self.candidate(*node)?.0, self.free(*node))));
        let candidates = self.candidates.restricted_to(&sets, capacities);
        let placement = pack(&candidates).or_else(|| match search(&candidates) {
            SearchResult::Placed(placement) => Some(placement),
            SearchResult::Exhausted | SearchResult::Reserved | SearchResult::BudgetExceeded => None,
        });
        let Some(placement) = placement else { return false };
        let mut left: Vec<&[NodeIx]> =
            candidates.groups.iter().map(|group| group.specific.as_slice()).collect();
        let mut placed = Vec::new();
        for node_load in placement.node_loads {
            let (specific, others) = left[node_load.group].split_at(node_load.nodes as usize);
            left[node_load.group] = others;
            let classes = specific.iter().filter_map(|node| Some(self.candidate(*node)?.0)).collect();
            placed.push(NodeLoad { specific: specific.to_vec(), classes, ..node_load });
        }
        for node_load in placed {
            let left = node_load.left(&sets);
            self.left.extend(node_load.specific.iter().map(|node| (*node, left.clone())));
            node_loads.push(node_load);
        }
        true
    }

    /// Places the pod sets without a topology request, and checks the aggregate reservations.
    fn place_rest(&self, node_loads: &mut Vec<NodeLoad>) -> bool {
        let sets = self.shape.pod_sets.iter();
        let sets = sets
            .map(|set| PodSet { count: if requests_topology(set) { 0 } else { set.count }, ..set.clone() });
        let shape = Shape { pod_sets: sets.collect(), declared: None, ..self.shape.clone() };
        let mark = node_loads.len();
        if shape.pod_sets.iter().any(|set| set.count > 0) {
            let candidates = CandidateNodes::of(self.ledger, &shape, self.node_sets)
                .with_remaining(self.ledger, &self.left);
            let placement = pack(&candidates).or_else(|| match search(&candidates) {
                SearchResult::Placed(placement) => Some(placement),
                SearchResult::Exhausted | SearchResult::Reserved | SearchResult::BudgetExceeded => None,
            });
            let Some(placement) = placement else { return false };
            node_loads.extend(placement.node_loads);
        }
        let whole = Placement { node_loads: std::mem::take(node_loads) };
        let kept = self.node_sets.allow(&self.shape.pod_sets, &whole);
        *node_loads = whole.node_loads;
        if !kept {
            node_loads.truncate(mark);
        }
        kept
    }
}
