//! Topology requests, checked by node labels alone, and a first fit that fills domain after domain.

use std::collections::BTreeMap;

use model::{Assignment, Gang, Node, PodSet, TopologyMode, TopologyRequest, TopologySlice, World};

use crate::cluster_state::ClusterState;
use crate::fit;
use crate::node_resources::FreeResources;
use crate::quota::in_flavors;
use crate::violation::Violation;

/// The nodes, which of them are eligible for a pod set, and their free resources.
pub(crate) struct CandidateNodes<'a> {
    pub(crate) nodes: Vec<&'a Node>,
    pub(crate) is_eligible: fn(&Node, &PodSet) -> bool,
    pub(crate) free: BTreeMap<&'a str, FreeResources>,
}

/// Whether any pod set of the gang has a topology request.
pub(crate) fn has_topology_request(gang: &Gang) -> bool {
    gang.pod_sets.iter().any(|set| set.count > 0 && set.topology.is_some())
}

/// The label keys of the topology levels, broadest first: those of the flavor of the pods, else of the first flavor by name that
/// contains all requested levels.
pub(crate) fn levels(world: &World, set: &PodSet, request: &TopologyRequest) -> Vec<String> {
    if !set.levels.is_empty() {
        return set.levels.to_vec();
    }
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
    let mut distinct = Vec::new();
    for level in named {
        if !distinct.contains(&level) {
            distinct.push(level);
        }
    }
    distinct
}

/// The domain of a node at a level, as the label values from the broadest level down; `None` when the node lacks a
/// label of the topology.
pub(crate) fn domain<'n>(node: &'n Node, levels: &[String], level: &str) -> Option<Vec<&'n str>> {
    let path: Option<Vec<&str>> = levels.iter().map(|key| node.labels.get(key).map(String::as_str)).collect();
    let depth = levels.iter().position(|key| key == level).map_or(0, |at| at + 1);
    path.map(|path| path[..depth].to_vec())
}

/// The pod sets that are placed together with this one, including itself.
pub(crate) fn pod_set_group(gang: &Gang, own: usize) -> Vec<(usize, &PodSet)> {
    let group = &gang.pod_sets[own].group;
    let sets = gang.pod_sets.iter().enumerate().filter(|(_, set)| set.count > 0 && set.topology.is_some());
    sets.filter(|(at, set)| *at == own || (group.is_some() && set.group == *group)).collect()
}

/// Whether a set is the leader of its group. The topology request of the other set applies to it.
pub(crate) fn is_leader(gang: &Gang, own: usize) -> bool {
    let pod_set_group = pod_set_group(gang, own);
    let first_single = pod_set_group.iter().find(|(_, set)| set.count == 1).map(|(at, _)| *at);
    pod_set_group.len() == 2 && first_single == Some(own)
}

/// Reports pods that violate a topology request, or for which first fit finds a preferred domain.
pub(crate) fn check(
    cluster: &ClusterState<'_>,
    gang: &Gang,
    assignment: &Assignment,
    found: &mut Vec<Violation>,
) {
    let gang = &in_flavors(cluster.world(), gang, &assignment.flavors);
    let balances = cluster.world().policy().topology.balances;
    for (at, set) in gang.pod_sets.iter().enumerate().filter(|(_, set)| set.count > 0) {
        let Some(request) = &set.topology else { continue };
        if is_leader(gang, at) {
            continue;
        }
        let levels = levels(cluster.world(), set, request);
        let on = |at: usize| {
            assignment.pod_sets[at].iter().filter_map(|(name, count)| Some((cluster.node(name)?, *count)))
        };
        let domains_of = |at: usize, level: &str| -> Vec<Option<Vec<&str>>> {
            on(at).map(|(node, _)| domain(node, &levels, level)).collect()
        };
        let one_domain = |level: &str| {
            let all: Vec<_> = pod_set_group(gang, at)
                .into_iter()
                .flat_map(|(member, _)| domains_of(member, level))
                .collect();
            all.iter().all(|domain| domain.is_some() && *domain == all[0])
        };
        let not_satisfied = |level: &str| Violation::TopologyNotSatisfied {
            gang: gang.key.clone(),
            pod_set: set.name.clone(),
            level: level.to_owned(),
        };
        match &request.mode {
            TopologyMode::Required(level) if !one_domain(level) => found.push(not_satisfied(level)),
            TopologyMode::Preferred(level)
                if !balances && could_be_in_narrower_domain(cluster, gang, &levels, level, &one_domain) =>
            {
                found.push(not_satisfied(level));
            }
            TopologyMode::Required(_) | TopologyMode::Preferred(_) | TopologyMode::Unconstrained => {}
        }
        // Pods in rank order: every slice has to be in one domain.
        for TopologySlice { size, level } in &request.slices {
            let ranks: Vec<_> = on(at)
                .flat_map(|(node, count)| (0..count).map(move |_| node))
                .map(|node| domain(node, &levels, level))
                .collect();
            let size = usize::try_from(*size).unwrap_or(usize::MAX).max(1);
            let in_one_domain =
                |run: &[Option<Vec<&str>>]| run.iter().all(|domain| domain.is_some() && *domain == run[0]);
            if ranks.len() % size != 0 || !ranks.chunks(size).all(in_one_domain) {
                found.push(not_satisfied(level));
            }
        }
    }
}

/// Whether a gang spans several domains of its preferred level, or of a broader one, although first fit finds one
/// domain for all pods.
fn could_be_in_narrower_domain(
    cluster: &ClusterState<'_>,
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
        if fit::first_fit(cluster, &stricter).is_some() {
            return true;
        }
    }
    false
}

/// A placement of a gang of one pod set and an optional leader: fills domain after domain, slice by slice. Devices
/// are not assigned. Exact for such gangs; `None` for all other ones.
pub(crate) fn first_fit(world: &World, candidates: &CandidateNodes<'_>, gang: &Gang) -> Option<Assignment> {
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
    let levels = levels(world, workers, request);
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
    let domain_fill = DomainFill { candidates, workers, levels: &levels };
    let mut assignment =
        Assignment { pod_sets: vec![Vec::new(); gang.pod_sets.len()], ..Assignment::default() };
    for nodes in by_domain(&candidates.nodes, &levels, required) {
        let leader_nodes: Vec<Option<&Node>> = match leader {
            None => vec![None],
            Some((_, set)) => {
                let fits = |node: &&&Node| {
                    (candidates.is_eligible)(node, set)
                        && candidates.free[node.name.as_str()].clone().place(set, 1).0 > 0
                };
                nodes.iter().filter(fits).map(|node| Some(*node)).collect()
            }
        };
        for leader_node in leader_nodes {
            let mut free = candidates.free.clone();
            if let (Some(node), Some((_, set))) = (leader_node, leader) {
                free.entry(&node.name).or_default().place(set, 1);
            }
            let mut places = BTreeMap::new();
            if domain_fill.fill(&nodes, &request.slices, workers.count, &mut free, &mut places) {
                assignment.pod_sets[at] = places.into_iter().collect();
                if let (Some(node), Some((at, _))) = (leader_node, leader) {
                    assignment.pod_sets[at] = vec![(node.name.clone(), 1)];
                }
                return Some(assignment);
            }
        }
    }
    None
}

/// The nodes of the topology, by their domain at a level; in one group without a level.
fn by_domain<'n>(nodes: &[&'n Node], levels: &[String], level: &str) -> Vec<Vec<&'n Node>> {
    let mut domains: BTreeMap<Vec<&str>, Vec<&Node>> = BTreeMap::new();
    for node in nodes {
        if let Some(domain) = domain(node, levels, level) {
            domains.entry(domain).or_default().push(node);
        }
    }
    domains.into_values().collect()
}

struct DomainFill<'a> {
    candidates: &'a CandidateNodes<'a>,
    workers: &'a PodSet,
    levels: &'a [String],
}

impl<'a> DomainFill<'a> {
    /// Places `count` pods, slice by slice. Changes `free` and `places` only when all pods fit.
    fn fill(
        &self,
        nodes: &[&'a Node],
        slices: &[TopologySlice],
        count: u32,
        free: &mut BTreeMap<&'a str, FreeResources>,
        places: &mut BTreeMap<String, u32>,
    ) -> bool {
        let mut left = count;
        let (mut next_free, mut next_places) = (free.clone(), places.clone());
        let Some((TopologySlice { size, level }, inner)) = slices.split_first() else {
            for node in nodes.iter().filter(|node| (self.candidates.is_eligible)(node, self.workers)) {
                let free = next_free.entry(&node.name).or_default();
                let (here, _) = free.place(self.workers, left);
                if here > 0 {
                    *next_places.entry(node.name.clone()).or_default() += here;
                    left -= here;
                }
            }
            if left == 0 {
                (*free, *places) = (next_free, next_places);
            }
            return left == 0;
        };
        for domain in by_domain(nodes, self.levels, level) {
            while left > 0 && self.fill(&domain, inner, *size, &mut next_free, &mut next_places) {
                left -= size;
            }
        }
        if left == 0 {
            (*free, *places) = (next_free, next_places);
        }
        left == 0
    }
}
