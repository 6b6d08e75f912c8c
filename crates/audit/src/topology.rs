//! Whether pods are as near to each other as their sets ask, judged by the labels of the nodes alone; and a plain witness
//! that fills domain after domain.

use std::collections::BTreeMap;

use model::{Assignment, Gang, Node, PodSet, TopologyMode, TopologyRequest, TopologySlice, World};

use crate::books::Books;
use crate::node_resources::Room;
use crate::rules;
use crate::violation::Violation;

/// Which nodes may take pods of a set, and what is free on them.
pub(crate) struct Ground<'a> {
    pub(crate) nodes: Vec<&'a Node>,
    pub(crate) may_take: fn(&Node, &PodSet) -> bool,
    pub(crate) free: BTreeMap<&'a str, Room>,
}

/// Whether any pod of a gang asks for nearness.
pub(crate) fn is_asked(gang: &Gang) -> bool {
    gang.pod_sets.iter().any(|set| set.count > 0 && set.topology.is_some())
}

/// The label keys of the levels, broadest first: those of the flavor that knows all that are named, the first by name.
pub(crate) fn levels(world: &World, request: &TopologyRequest) -> Vec<String> {
    let mut named: Vec<String> = match &request.mode {
        TopologyMode::Required(level) | TopologyMode::Preferred(level) => vec![level.clone()],
        TopologyMode::Unconstrained => Vec::new(),
    };
    named.extend(request.slices.iter().map(|slice| slice.level.clone()));
    let mut known: Vec<_> = world
        .flavors()
        .values()
        .filter(|flavor| {
            !flavor.topology.is_empty() && named.iter().all(|level| flavor.topology.contains(level))
        })
        .collect();
    known.sort_by_key(|flavor| flavor.name.clone());
    if let Some(flavor) = known.first() {
        return flavor.topology.clone();
    }
    let mut each_once = Vec::new();
    for level in named {
        if !each_once.contains(&level) {
            each_once.push(level);
        }
    }
    each_once
}

/// The domain of a level that a node is in, as the labels on the way down to it; none when it lacks any of the topology.
pub(crate) fn domain<'n>(node: &'n Node, levels: &[String], level: &str) -> Option<Vec<&'n str>> {
    let path: Option<Vec<&str>> = levels.iter().map(|key| node.labels.get(key).map(String::as_str)).collect();
    let depth = levels.iter().position(|key| key == level).map_or(0, |at| at + 1);
    path.map(|path| path[..depth].to_vec())
}

/// The sets that are placed together with this one, itself included.
pub(crate) fn company(gang: &Gang, own: usize) -> Vec<(usize, &PodSet)> {
    let group = &gang.pod_sets[own].group;
    let sets = gang.pod_sets.iter().enumerate().filter(|(_, set)| set.count > 0 && set.topology.is_some());
    sets.filter(|(at, set)| *at == own || (group.is_some() && set.group == *group)).collect()
}

/// Whether a set is the leader of its group, for which the request of the other one holds.
pub(crate) fn leads(gang: &Gang, own: usize) -> bool {
    let company = company(gang, own);
    let first_single = company.iter().find(|(_, set)| set.count == 1).map(|(at, _)| *at);
    company.len() == 2 && first_single == Some(own)
}

/// Notes pods that are not as near to each other as they have to be, or could plainly have been nearer.
pub(crate) fn check(books: &Books<'_>, gang: &Gang, assignment: &Assignment, found: &mut Vec<Violation>) {
    for (at, set) in gang.pod_sets.iter().enumerate().filter(|(_, set)| set.count > 0) {
        let Some(request) = &set.topology else { continue };
        if leads(gang, at) {
            continue;
        }
        let levels = levels(books.world(), request);
        let on = |at: usize| {
            assignment.pod_sets[at].iter().filter_map(|(name, count)| Some((books.node(name)?, *count)))
        };
        let spots = |at: usize, level: &str| -> Vec<Option<Vec<&str>>> {
            on(at).map(|(node, _)| domain(node, &levels, level)).collect()
        };
        let one_domain = |level: &str| {
            let all: Vec<_> =
                company(gang, at).into_iter().flat_map(|(member, _)| spots(member, level)).collect();
            all.iter().all(|spot| spot.is_some() && *spot == all[0])
        };
        let apart = |level: &str| Violation::Apart {
            gang: gang.key.clone(),
            pod_set: set.name.clone(),
            level: level.to_owned(),
        };
        match &request.mode {
            TopologyMode::Required(level) if !one_domain(level) => found.push(apart(level)),
            TopologyMode::Preferred(level) if could_be_nearer(books, gang, &levels, level, &one_domain) => {
                found.push(apart(level));
            }
            TopologyMode::Required(_) | TopologyMode::Preferred(_) | TopologyMode::Unconstrained => {}
        }
        // Pods in the order of their ranks: each run that makes a slice has to be in one domain.
        for TopologySlice { size, level } in &request.slices {
            let ranks: Vec<_> = on(at)
                .flat_map(|(node, count)| (0..count).map(move |_| node))
                .map(|node| domain(node, &levels, level))
                .collect();
            let size = usize::try_from(*size).unwrap_or(usize::MAX).max(1);
            let whole = |run: &[Option<Vec<&str>>]| run.iter().all(|spot| spot.is_some() && *spot == run[0]);
            if ranks.len() % size != 0 || !ranks.chunks(size).all(whole) {
                found.push(apart(level));
            }
        }
    }
}

/// Whether a gang that prefers a level is spread over several domains of it, or of a broader one, although the plain
/// witness finds one that holds all.
fn could_be_nearer(
    books: &Books<'_>,
    gang: &Gang,
    levels: &[String],
    preferred: &str,
    one_domain: &dyn Fn(&str) -> bool,
) -> bool {
    let depth = levels.iter().position(|level| level == preferred).map_or(0, |at| at + 1);
    for level in levels[..depth].iter().rev() {
        if one_domain(level) {
            return false;
        }
        let mut stricter = gang.clone();
        let mut sets = gang.pod_sets.to_vec();
        for request in sets.iter_mut().filter_map(|set| set.topology.as_mut()) {
            request.mode = TopologyMode::Required(level.clone());
        }
        stricter.pod_sets = sets.into();
        if rules::first_fit(books, &stricter).is_some() {
            return true;
        }
    }
    false
}

/// A placement of a gang whose pods all belong to one set and its leader, if there is any: domain after domain is filled
/// slice by slice. Devices are not named. Exact for such gangs; nothing is claimed of others.
pub(crate) fn witness(world: &World, ground: &Ground<'_>, gang: &Gang) -> Option<Assignment> {
    let sets: Vec<(usize, &PodSet)> =
        gang.pod_sets.iter().enumerate().filter(|(_, set)| set.count > 0).collect();
    if sets.iter().any(|(_, set)| set.topology.is_none()) {
        return None;
    }
    let grouped = sets.iter().all(|(_, set)| set.group.is_some() && set.group == sets[0].1.group);
    let (leader, (at, workers)) = match *sets.as_slice() {
        [only] => (None, only),
        [one, other] if grouped && one.1.count == 1 => (Some(one), other),
        [one, other] if grouped && other.1.count == 1 => (Some(other), one),
        _ => return None,
    };
    let request = workers.topology.as_ref()?;
    let levels = levels(world, request);
    let mut whole = workers.count;
    for slice in &request.slices {
        if slice.size == 0 || !whole.is_multiple_of(slice.size) {
            return None;
        }
        whole = slice.size;
    }
    let order: Vec<_> =
        request.slices.iter().map(|slice| levels.iter().position(|level| *level == slice.level)).collect();
    let required = match &request.mode {
        TopologyMode::Required(level) => level.as_str(),
        TopologyMode::Preferred(_) | TopologyMode::Unconstrained => "",
    };
    let top = levels.iter().position(|level| level == required);
    if request.slices.len() > 3
        || !order.is_sorted_by(|one, other| one < other)
        || order.first().is_some_and(|first| *first < top)
    {
        return None;
    }
    let filling = Filling { ground, workers, levels: &levels };
    let mut assignment =
        Assignment { pod_sets: vec![Vec::new(); gang.pod_sets.len()], ..Assignment::default() };
    for nodes in by_domain(&ground.nodes, &levels, required) {
        let seats: Vec<Option<&Node>> = match leader {
            None => vec![None],
            Some((_, set)) => {
                let fits = |node: &&&Node| {
                    (ground.may_take)(node, set) && ground.free[node.name.as_str()].clone().put(set, 1).0 > 0
                };
                nodes.iter().filter(fits).map(|node| Some(*node)).collect()
            }
        };
        for seat in seats {
            let mut free = ground.free.clone();
            if let (Some(node), Some((_, set))) = (seat, leader) {
                free.entry(&node.name).or_default().put(set, 1);
            }
            let mut places = BTreeMap::new();
            if filling.fill(&nodes, &request.slices, workers.count, &mut free, &mut places) {
                assignment.pod_sets[at] = places.into_iter().collect();
                if let (Some(node), Some((at, _))) = (seat, leader) {
                    assignment.pod_sets[at] = vec![(node.name.clone(), 1)];
                }
                return Some(assignment);
            }
        }
    }
    None
}

/// The nodes that are in the topology at all, by their domain of a level; all together for no level.
fn by_domain<'n>(nodes: &[&'n Node], levels: &[String], level: &str) -> Vec<Vec<&'n Node>> {
    let mut domains: BTreeMap<Vec<&str>, Vec<&Node>> = BTreeMap::new();
    for node in nodes {
        if let Some(domain) = domain(node, levels, level) {
            domains.entry(domain).or_default().push(node);
        }
    }
    domains.into_values().collect()
}

struct Filling<'a> {
    ground: &'a Ground<'a>,
    workers: &'a PodSet,
    levels: &'a [String],
}

impl<'a> Filling<'a> {
    /// Places so many pods, slice by slice; what is taken is noted only when all have a place.
    fn fill(
        &self,
        nodes: &[&'a Node],
        slices: &[TopologySlice],
        count: u32,
        free: &mut BTreeMap<&'a str, Room>,
        places: &mut BTreeMap<String, u32>,
    ) -> bool {
        let mut left = count;
        let (mut free_then, mut places_then) = (free.clone(), places.clone());
        let Some((TopologySlice { size, level }, inner)) = slices.split_first() else {
            for node in nodes.iter().filter(|node| (self.ground.may_take)(node, self.workers)) {
                let room = free_then.entry(&node.name).or_default();
                let (here, _) = room.put(self.workers, left);
                if here > 0 {
                    *places_then.entry(node.name.clone()).or_default() += here;
                    left -= here;
                }
            }
            if left == 0 {
                (*free, *places) = (free_then, places_then);
            }
            return left == 0;
        };
        for domain in by_domain(nodes, self.levels, level) {
            while left > 0 && self.fill(&domain, inner, *size, &mut free_then, &mut places_then) {
                left -= size;
            }
        }
        if left == 0 {
            (*free, *places) = (free_then, places_then);
        }
        left == 0
    }
}
