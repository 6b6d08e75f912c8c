//! How many pods of one set fit beside the pods of the cluster at most, and which rules limit the number.

use std::collections::BTreeMap;

use model::{
    Basis, Cause, FreeResources, HostPort, NodeIx, Obstacle, PodMark, PodRuleLimit, PodRuleShortage, Shape,
    World,
};

use super::constraint::{Affinity, Rules, Spread};
use super::node::{CandidateNodesOneByOne, Exclusion};

/// The cause for each pod set whose pods do not fit even if no other pod set is placed.
pub(super) fn short_sets(rules: &Rules<'_>, nodes: &CandidateNodesOneByOne<'_>, basis: Basis) -> Vec<Cause> {
    let sets = (0..rules.sets.len()).filter(|set| rules.sets[*set].is_some());
    sets.filter_map(|set| Room::of(rules, nodes, set).cause(rules, nodes, basis)).collect()
}

/// The cause for a pod set of which only `room` pods could be placed, with all its rules.
pub(super) fn unplaced(
    rules: &Rules<'_>,
    nodes: &CandidateNodesOneByOne<'_>,
    set: usize,
    room: u32,
) -> Cause {
    let mut figures = Room::of(rules, nodes, set);
    for (bound, _) in &mut figures.limits {
        *bound = (*bound).min(room.into());
    }
    figures.pods = room;
    let mut limits = figures.limits(nodes);
    let own = rules.affinities.iter().find(|affinity| affinity.carriers[set]);
    let keys = |affinity: &Affinity| {
        affinity.domains.iter().map(|key| rules.domains[*key].key.clone()).collect::<Vec<_>>()
    };
    let own = own.filter(|affinity| affinity.selected.contains(&true));
    limits.extend(own.map(|affinity| PodRuleLimit::OwnAffinity { topology_keys: keys(affinity) }));
    let planned = |affinity: &&Affinity| affinity.is_joined && !affinity.is_any_bound;
    let planned = rules.affinities.iter().filter(planned);
    limits.extend(planned.map(|affinity| PodRuleLimit::PlannedPods { topology_keys: keys(affinity) }));
    let set = &rules.shape.pod_sets[set];
    Cause::PodRules(PodRuleShortage {
        pod_set: set.name.clone(),
        count: set.count,
        room,
        limits,
        basis: Basis::Free,
    })
}

/// The causes for pod sets that do not fit even on empty nodes without other pods. Pods of others that a spread constraint
/// counts can allow more pods of the gang, so the constraint is no such cause while there are some.
pub(crate) fn permanent_causes(world: &World, shape: &Shape) -> Vec<Cause> {
    let Some(mut rules) = Rules::of(world, None, shape, shape) else { return Vec::new() };
    rules.spreads.retain(|spread| {
        let counted = PodMark::Selected(spread.constraint.selector);
        world.pod_marks(&counted).next().is_none_or(|(mark, _)| *mark != counted)
    });
    let empty: Vec<(NodeIx, _, FreeResources)> = world
        .nodes()
        .filter_map(|node| {
            let ix = world.node_ix(&node.name)?;
            Some((ix, world.class_of(ix)?, FreeResources::from(node.allocatable.clone())))
        })
        .collect();
    let all = empty.iter().map(|(node, class, free)| (*node, *class, free));
    let mut nodes = CandidateNodesOneByOne::these(None, &mut rules, all);
    for node in &mut nodes.nodes {
        for (set, is_open) in shape.pod_sets.iter().zip(&mut node.is_open) {
            let obstacle = set.constraints.obstacle(&world.class(node.class).class);
            *is_open &= obstacle.is_none_or(|obstacle: Obstacle| obstacle.is_transient());
        }
    }
    short_sets(&rules, &nodes, Basis::Empty)
}

/// Whether pods of others can end one of these causes.
pub(crate) fn depend_on_others(causes: &[Cause]) -> bool {
    let is_spread = |limit: &PodRuleLimit| matches!(limit, PodRuleLimit::Spread { .. });
    causes.iter().any(|cause| matches!(cause, Cause::PodRules(short) if short.limits.iter().any(is_spread)))
}

/// The room for one pod set.
struct Room {
    set: usize,
    /// The number of its pods that fit.
    pods: u32,
    /// The rules with the number of pods that each allows.
    limits: Vec<(u64, PodRuleLimit)>,
}

impl Room {
    fn of(rules: &Rules<'_>, nodes: &CandidateNodesOneByOne<'_>, set: usize) -> Self {
        let copies = copies(rules, nodes, set);
        let mut limits = Vec::new();
        let total = |copies: &[u32]| copies.iter().map(|pods| u64::from(*pods)).sum::<u64>();
        for key in own_terms(rules, set) {
            let by_domain = by_domain(nodes, &copies, key);
            let bound: u64 =
                by_domain.iter().map(|(domain, pods)| if domain.is_some() { 1 } else { *pods }).sum();
            let domains = by_domain.keys().flatten().count().try_into().unwrap_or(u32::MAX);
            let topology_key = rules.domains[key].key.clone();
            limits.push((bound, PodRuleLimit::AntiAffinity { topology_key, domains }));
        }
        if let Some(port) = rules.sets[set].and_then(|set| set.host_ports.first()) {
            let open = copies.iter().filter(|pods| **pods > 0).count();
            let limit = host_port(nodes, set, port, open.try_into().unwrap_or(u32::MAX));
            limits.push((total(&copies), limit));
        }
        for spread in rules.spreads.iter().filter(|spread| spread.carrier == set && is_alone(rules, spread)) {
            let topology_key = spread.constraint.topology_key.clone();
            let limit = PodRuleLimit::Spread {
                topology_key,
                max_skew: spread.constraint.max_skew.max(1),
                domains: spread.present.iter().flatten().count().try_into().unwrap_or(u32::MAX),
                min_domains: spread.constraint.min_domains,
            };
            limits.push((most_even(rules, nodes, &copies, spread), limit));
        }
        limits.sort_by_key(|(bound, _)| *bound);
        let bound = limits.first().map_or(u64::MAX, |(bound, _)| *bound).min(total(&copies));
        let count = rules.shape.pod_sets[set].count;
        Self { set, pods: u32::try_from(bound).unwrap_or(u32::MAX).min(count), limits }
    }

    fn cause(&self, rules: &Rules<'_>, nodes: &CandidateNodesOneByOne<'_>, basis: Basis) -> Option<Cause> {
        let set = &rules.shape.pod_sets[self.set];
        (self.pods < set.count).then(|| {
            let limits = self.limits(nodes);
            Cause::PodRules(PodRuleShortage {
                pod_set: set.name.clone(),
                count: set.count,
                room: self.pods,
                limits,
                basis,
            })
        })
    }

    /// The rules that allow no more pods than fit, and the excluded nodes.
    fn limits(&self, nodes: &CandidateNodesOneByOne<'_>) -> Vec<PodRuleLimit> {
        let least = self.limits.first().map(|(bound, _)| *bound);
        let strict =
            self.limits.iter().filter(|(bound, _)| Some(*bound) == least && *bound <= self.pods.into());
        let mut limits: Vec<PodRuleLimit> = strict.map(|(_, limit)| limit.clone()).collect();
        limits.retain(|limit| {
            let is_open = !matches!(limit, PodRuleLimit::AntiAffinity { domains: 0, .. });
            is_open && !matches!(limit, PodRuleLimit::HostPort { nodes: 0, taken: 0, .. })
        });
        let tells_port = limits.iter().any(|limit| matches!(limit, PodRuleLimit::HostPort { .. }));
        for (exclusion, count) in &nodes.excluded[self.set] {
            limits.extend(match exclusion.clone() {
                Exclusion::NoLabel(key) => Some(PodRuleLimit::NoLabel { key, nodes: *count }),
                Exclusion::OtherPods(topology_key) => {
                    Some(PodRuleLimit::OtherPods { topology_key, nodes: *count })
                }
                Exclusion::PlannedSpread => Some(PodRuleLimit::PlannedSpread),
                Exclusion::HostPort(_) if tells_port => None,
                Exclusion::HostPort(port) => Some(PodRuleLimit::HostPort { port, taken: *count, nodes: 0 }),
                Exclusion::Affinity(topology_keys) => {
                    Some(PodRuleLimit::Affinity { topology_keys, nodes: *count })
                }
            });
        }
        limits
    }
}

fn host_port(nodes: &CandidateNodesOneByOne<'_>, set: usize, port: &HostPort, open: u32) -> PodRuleLimit {
    let is_port = |(exclusion, _): &(&Exclusion, &u32)| matches!(exclusion, Exclusion::HostPort(_));
    let taken = nodes.excluded[set].iter().filter(is_port).map(|(_, count)| *count).sum();
    PodRuleLimit::HostPort { port: port.clone(), taken, nodes: open }
}

/// The label keys by which pods of a set must be apart from each other, as indices of domains.
fn own_terms(rules: &Rules<'_>, set: usize) -> impl Iterator<Item = usize> {
    let own = rules.terms.iter().filter(move |term| term.carriers[set] && term.selected[set]);
    own.map(|term| term.domains)
}

/// The number of pods of a set that each node can hold alone.
fn copies(rules: &Rules<'_>, nodes: &CandidateNodesOneByOne<'_>, set: usize) -> Vec<u32> {
    let pod_set = &rules.shape.pod_sets[set];
    let on_node = |at: usize| {
        let node = &nodes.nodes[at];
        if !node.is_open[set] {
            return 0;
        }
        let mut copies = pod_set.copies_in(node.free, pod_set.count);
        if rules.port_conflicts[set][set] || own_terms(rules, set).any(|key| node.domains[key].is_some()) {
            copies = copies.min(1);
        }
        for spread in rules.spreads.iter().filter(|spread| spread.carrier == set && spread.selected[set]) {
            if spread.constraint.honors_affinity && spread.constraint.min_domains > 1 {
                let present = spread.on_node.get(&node.node).copied().unwrap_or(0);
                let most = i64::from(spread.constraint.max_skew.max(1)).saturating_sub(present).max(0);
                copies = copies.min(u32::try_from(most).unwrap_or(u32::MAX));
            }
        }
        copies
    };
    (0..nodes.nodes.len()).map(on_node).collect()
}

/// The sum by domain; `None` for the nodes without the label.
fn by_domain(nodes: &CandidateNodesOneByOne<'_>, copies: &[u32], key: usize) -> BTreeMap<Option<usize>, u64> {
    let mut sums: BTreeMap<Option<usize>, u64> = BTreeMap::new();
    for (node, pods) in nodes.nodes.iter().zip(copies).filter(|(_, pods)| **pods > 0) {
        *sums.entry(node.domains[key]).or_default() += u64::from(*pods);
    }
    sums
}

/// Whether no other pod set is counted by a constraint, so that it alone decides how many pods fit.
fn is_alone(rules: &Rules<'_>, spread: &Spread<'_>) -> bool {
    let is_counted = |set: &usize| spread.selected[*set] && rules.shape.pod_sets[*set].count > 0;
    !(0..spread.selected.len()).any(|set| set != spread.carrier && is_counted(&set))
}

/// The number of pods that a spread constraint allows: domains are filled evenly, those with the fewest pods first.
fn most_even(
    rules: &Rules<'_>,
    nodes: &CandidateNodesOneByOne<'_>,
    copies: &[u32],
    spread: &Spread<'_>,
) -> u64 {
    let max_skew = u64::from(spread.constraint.max_skew.max(1));
    let mut room = by_domain(nodes, copies, spread.domains);
    room.remove(&None);
    if own_terms(rules, spread.carrier).any(|key| key == spread.domains) {
        for pods in room.values_mut() {
            *pods = (*pods).min(1);
        }
    }
    let room_of = |domain: usize| room.get(&Some(domain)).copied().unwrap_or(0);
    let present = spread.present.iter().enumerate();
    let present: Vec<(u64, u64)> =
        present.filter_map(|(domain, pods)| Some((u64::from((*pods)?), room_of(domain)))).collect();
    let few = present.len() < spread.constraint.min_domains as usize;
    let fewest = |filled: &dyn Fn(&(u64, u64)) -> u64| {
        if few { 0 } else { present.iter().map(filled).min().unwrap_or(0) }
    };
    if !spread.selected[spread.carrier] {
        let most = fewest(&|(pods, _)| *pods).saturating_add(max_skew);
        return present.iter().filter(|(pods, _)| *pods <= most).map(|(_, room)| *room).sum();
    }
    // The fewest pods that any domain can get decides how many the others may have.
    let most = fewest(&|(pods, room)| pods.saturating_add(*room)).saturating_add(max_skew);
    present.iter().map(|(pods, room)| (*room).min(most.saturating_sub(*pods))).sum()
}
