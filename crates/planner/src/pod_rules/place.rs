//! Greedy placement of a gang with rules, pod by pod.

use std::collections::{BTreeMap, BTreeSet};

use model::{Assignment, FreeResources};

use super::constraint::Rules;
use super::domains::Focus;
use super::node::CandidateNode;
use crate::candidates::CandidateNodes;
use crate::place::{NodeLoad, Placement, largest_shares_first};
use crate::score::{NodeScore, PodSetOrder, Scale, ScoredNode, pod_set_order};

/// Some pods of a gang on nodes.
pub(super) struct PartialPlacement<'a> {
    pub(super) rules: &'a Rules<'a>,
    pub(super) nodes: &'a [CandidateNode<'a>],
    /// The pods by pod set on each node; empty if there are none.
    pub(super) loads: Vec<Vec<u32>>,
    /// The free resources of the nodes with pods.
    left: BTreeMap<usize, FreeResources>,
    /// For each anti-affinity term and domain: the pods with the term, and the selected pods.
    terms: Vec<BTreeMap<usize, (u32, u32)>>,
    pub(super) spreads: Vec<DomainCounts>,
    /// For each affinity and label key: the number of selected pods in each domain, present or placed.
    near: Vec<Vec<BTreeMap<usize, u32>>>,
}

/// The counted pods of a spread constraint.
#[derive(Clone, Debug)]
pub(super) struct DomainCounts {
    /// The pods in each domain; `None` for a domain that does not count.
    pub(super) pods: Vec<Option<u32>>,
    /// The number of domains by their number of pods.
    domains: BTreeMap<u32, u32>,
    /// With fewer domains, the fewest pods count as 0.
    min_domains: u32,
}

impl DomainCounts {
    fn of(pods: &[Option<u32>], min_domains: u32) -> Self {
        let mut domains: BTreeMap<u32, u32> = BTreeMap::new();
        for count in pods.iter().flatten() {
            *domains.entry(*count).or_default() += 1;
        }
        Self { pods: pods.to_vec(), domains, min_domains }
    }

    /// The pods of the domain with the fewest.
    pub(super) fn fewest(&self) -> u32 {
        let all: u32 = self.domains.values().sum();
        if all < self.min_domains { 0 } else { self.domains.keys().next().copied().unwrap_or(0) }
    }

    fn change(&mut self, domain: usize, add: bool) {
        let Some(count) = &mut self.pods[domain] else { return };
        if let Some(number) = self.domains.get_mut(count) {
            *number -= 1;
            if *number == 0 {
                self.domains.remove(count);
            }
        }
        *count = if add { *count + 1 } else { count.saturating_sub(1) };
        *self.domains.entry(*count).or_default() += 1;
    }
}

impl<'a> PartialPlacement<'a> {
    /// No pods.
    pub(super) fn empty(rules: &'a Rules<'a>, nodes: &'a [CandidateNode<'a>]) -> Self {
        let spreads = rules.spreads.iter();
        let near = rules.affinities.iter().map(|affinity| {
            let by_domain = |key: &usize| {
                let mut pods: BTreeMap<usize, u32> = BTreeMap::new();
                for domain in affinity.present.keys().filter_map(|node| rules.domains[*key].of(*node)) {
                    *pods.entry(domain).or_default() += 1;
                }
                pods
            };
            affinity.domains.iter().map(by_domain).collect()
        });
        Self {
            rules,
            nodes,
            loads: vec![Vec::new(); nodes.len()],
            left: BTreeMap::new(),
            terms: vec![BTreeMap::new(); rules.terms.len()],
            spreads: spreads
                .map(|spread| DomainCounts::of(&spread.present, spread.constraint.min_domains))
                .collect(),
            near: near.collect(),
        }
    }

    /// The pods of a set on a node.
    pub(super) fn load(&self, at: usize, set: usize) -> u32 {
        self.loads[at].get(set).copied().unwrap_or(0)
    }

    /// Whether a further pod of a set may go to a node, as far as no later pod changes that.
    pub(super) fn may_place(&self, at: usize, set: usize) -> bool {
        let node = &self.nodes[at];
        if !node.is_open[set] {
            return false;
        }
        let keeps_apart = self.rules.terms.iter().zip(&self.terms).any(|(term, pods)| {
            let here = node.domains[term.domains].and_then(|domain| pods.get(&domain));
            let (carriers, selected) = here.copied().unwrap_or_default();
            (term.carriers[set] && selected > 0) || (term.selected[set] && carriers > 0)
        });
        if keeps_apart {
            return false;
        }
        let conflicts = &self.rules.port_conflicts[set];
        let has_conflict =
            self.loads[at].iter().zip(conflicts).any(|(pods, conflict)| *conflict && *pods > 0);
        !has_conflict && self.fits_when_pinned(at, set) && self.has_resources(at, set)
    }

    /// A pinned pod has one domain for constraints that honor its node selector. When they require more domains,
    /// kube-scheduler admits at most `max_skew` selected pods on the node.
    fn fits_when_pinned(&self, at: usize, set: usize) -> bool {
        self.rules.spreads.iter().all(|spread| {
            let carriers = self.load(at, spread.carrier) + u32::from(spread.carrier == set);
            if !spread.constraint.honors_affinity || spread.constraint.min_domains <= 1 || carriers == 0 {
                return true;
            }
            let present = spread.on_node.get(&self.nodes[at].node).copied().unwrap_or(0);
            let placed: u32 = (0..spread.selected.len())
                .filter(|other| spread.selected[*other])
                .map(|other| self.load(at, other))
                .sum();
            let all = present + i64::from(placed) + i64::from(spread.selected[set]);
            all <= i64::from(spread.constraint.max_skew.max(1))
        })
    }

    fn has_resources(&self, at: usize, set: usize) -> bool {
        let sets = &self.rules.shape.pod_sets;
        if !self.rules.shape.shares_devices() || self.loads[at].is_empty() {
            return sets[set].fits_in(self.free(at));
        }
        let mut left = self.nodes[at].free.clone();
        for other in largest_shares_first(sets) {
            let pods = self.load(at, other) + u32::from(other == set);
            if sets[other].copies_in(&left, pods) < pods {
                return false;
            }
            left.take(&sets[other], pods);
        }
        true
    }

    fn free(&self, at: usize) -> &FreeResources {
        self.left.get(&at).unwrap_or(self.nodes[at].free)
    }

    /// Whether a pod with affinity may go to a node beside the pods so far, or is the first one.
    pub(super) fn is_near(&self, at: usize, set: usize) -> bool {
        self.rules.affinities.iter().zip(&self.near).all(|(affinity, near)| {
            if !affinity.carriers[set] {
                return true;
            }
            let mut keys = affinity.domains.iter().zip(near);
            let is_first = affinity.selected[set] && near.iter().all(BTreeMap::is_empty);
            is_first
                || keys.all(|(key, pods)| {
                    self.nodes[at].domains[*key].is_some_and(|domain| pods.contains_key(&domain))
                })
        })
    }

    /// Whether a spread constraint of a pod set admits a further pod on a node now.
    pub(super) fn is_even(&self, at: usize, set: usize) -> bool {
        self.rules.spreads.iter().zip(&self.spreads).all(|(spread, counts)| {
            spread.carrier != set || {
                let pods = self.counted(at, spread.domains, counts) + u32::from(spread.selected[set]);
                pods <= counts.fewest().saturating_add(spread.constraint.max_skew.max(1))
            }
        })
    }

    fn counted(&self, at: usize, key: usize, counts: &DomainCounts) -> u32 {
        self.nodes[at].domains[key].and_then(|domain| counts.pods[domain]).unwrap_or(0)
    }

    /// Adds a pod of a set to a node, or removes one.
    pub(super) fn change(&mut self, at: usize, set: usize, add: bool) {
        let rules = self.rules;
        let step = |count: &mut u32| *count = if add { *count + 1 } else { count.saturating_sub(1) };
        self.loads[at].resize(rules.sets.len(), 0);
        step(&mut self.loads[at][set]);
        let node = &self.nodes[at];
        for (term, pods) in rules.terms.iter().zip(&mut self.terms) {
            if let Some(domain) =
                node.domains[term.domains].filter(|_| term.carriers[set] || term.selected[set])
            {
                let (carriers, selected) = pods.entry(domain).or_default();
                if term.carriers[set] {
                    step(carriers);
                }
                if term.selected[set] {
                    step(selected);
                }
            }
        }
        for (spread, counts) in rules.spreads.iter().zip(&mut self.spreads) {
            let domain = node.domains[spread.domains].filter(|_| spread.selected[set]);
            if let Some(domain) = domain.filter(|_| spread.counting.contains(&node.node)) {
                counts.change(domain, add);
            }
        }
        for (affinity, near) in rules.affinities.iter().zip(&mut self.near) {
            for (key, pods) in affinity.domains.iter().zip(near).filter(|_| affinity.selected[set]) {
                let Some(domain) = node.domains[*key] else { continue };
                let count = pods.entry(domain).or_default();
                step(count);
                if *count == 0 {
                    pods.remove(&domain);
                }
            }
        }
        self.update_left(at, set, add);
    }

    fn update_left(&mut self, at: usize, set: usize, add: bool) {
        let sets = &self.rules.shape.pod_sets;
        if add {
            let node = &self.nodes[at];
            self.left.entry(at).or_insert_with(|| node.free.clone()).take(&sets[set], 1);
            return;
        }
        let mut left = self.nodes[at].free.clone();
        for other in largest_shares_first(sets) {
            left.take(&sets[other], self.loads[at][other]);
        }
        self.left.insert(at, left);
        if self.loads[at].iter().all(|pods| *pods == 0) {
            self.loads[at].clear();
            self.left.remove(&at);
        }
    }

    /// The nodes with pods.
    pub(super) fn used(&self) -> impl Iterator<Item = usize> {
        (0..self.nodes.len()).filter(|at| !self.loads[*at].is_empty())
    }

    pub(super) fn placement(&self) -> Placement {
        let node_load = |at: usize| {
            let CandidateNode { node, class, group, free, .. } = &self.nodes[at];
            NodeLoad {
                group: *group,
                classes: vec![*class],
                free: (*free).clone(),
                nodes: 1,
                load: self.loads[at].clone(),
                specific: vec![*node],
            }
        };
        Placement { node_loads: self.used().map(node_load).collect() }
    }

    /// The nodes by pod set, without devices.
    pub(super) fn assignment(&self) -> Assignment {
        let name = |at: usize| self.rules.world.node_name(self.nodes[at].node).to_string();
        let places = |set: usize| {
            let used = self.used().filter(move |at| self.load(*at, set) > 0);
            used.map(|at| (name(at), self.load(at, set))).collect()
        };
        Assignment { pod_sets: (0..self.rules.sets.len()).map(places).collect(), ..Assignment::default() }
    }
}

/// The order in which pod sets are placed: those that others depend on first.
pub(super) fn order(
    rules: &Rules<'_>,
    candidates: &CandidateNodes<'_>,
    scale: &Scale,
    by: PodSetOrder,
) -> Vec<usize> {
    let mut order = pod_set_order(candidates, scale, by);
    let depends = |set: usize| {
        let on_others = |affinity: &&super::constraint::Affinity| {
            affinity.carriers[set]
                && (0..rules.sets.len()).any(|other| other != set && affinity.selected[other])
        };
        rules.affinities.iter().any(|affinity| on_others(&affinity))
    };
    let is_own = |set: usize| rules.affinities.iter().any(|affinity| affinity.carriers[set]);
    order.sort_by_key(|set| (depends(*set), is_own(*set)));
    order
}

/// Places pod set after pod set, each on the nodes with the best score. On failure the error is the index of the pod set
/// that does not fit, and how many of its pods do. The pods are `within` these domains.
pub(super) fn attempt<'a>(
    rules: &'a Rules<'a>,
    nodes: &'a [CandidateNode<'a>],
    candidates: &CandidateNodes<'_>,
    scale: &Scale,
    order: &[usize],
    within: &[&Focus],
) -> Result<PartialPlacement<'a>, (usize, u32)> {
    let mut placement = PartialPlacement::empty(rules, nodes);
    for &set in order {
        let is_wanted = |at: &usize| {
            let mut limits = within.iter().filter(|focus| focus.sets[set]).flat_map(|focus| &focus.path);
            nodes[*at].is_open[set] && limits.all(|(key, domain)| nodes[*at].domains[*key] == Some(*domain))
        };
        let mut best: Vec<usize> = (0..nodes.len()).filter(is_wanted).collect();
        best.sort_by_cached_key(|at| rank(&placement, candidates, scale, *at, set));
        let left = fill(&mut placement, &best, set);
        if left > 0 {
            return Err((set, rules.shape.pod_sets[set].count - left));
        }
    }
    Ok(placement)
}

fn rank(
    placement: &PartialPlacement<'_>,
    candidates: &CandidateNodes<'_>,
    scale: &Scale,
    at: usize,
    set: usize,
) -> impl Ord + use<> {
    let pod_set = &candidates.pod_sets[set];
    let (group, free) = (placement.nodes[at].group, placement.free(at));
    let copies = pod_set.copies_in(free, pod_set.count);
    let node = ScoredNode { group, free, is_used: !placement.loads[at].is_empty() };
    let score = NodeScore::from(candidates.packing);
    (candidates.node_sets(group), scale.key(score, candidates, pod_set, &node, copies), at)
}

/// Places the pods of a set, the first nodes first; of nodes in different domains of its spread constraints, those with
/// the fewest counted pods. Returns how many pods are left.
fn fill(placement: &mut PartialPlacement<'_>, best: &[usize], set: usize) -> u32 {
    let mut buckets = buckets(placement, best, set);
    let mut left = placement.rules.shape.pod_sets[set].count;
    let mut open: BTreeSet<usize> = (0..buckets.len()).collect();
    while left > 0 {
        let Some(bucket) = evenest(placement, &buckets, &open, set) else { break };
        let full = |at: &usize| !placement.may_place(*at, set);
        while buckets[bucket].last().is_some_and(full) {
            buckets[bucket].pop();
        }
        if let Some(&at) = buckets[bucket].last() {
            placement.change(at, set, true);
            left -= 1;
        } else {
            open.remove(&bucket);
        }
    }
    left
}

/// The nodes by their domains of the spread constraints and of the affinity of a pod set, the best node of each last.
fn buckets(placement: &PartialPlacement<'_>, best: &[usize], set: usize) -> Vec<Vec<usize>> {
    let Rules { spreads, affinities, .. } = placement.rules;
    let spread = spreads.iter().filter(|spread| spread.carrier == set).map(|spread| spread.domains);
    let near = affinities.iter().filter(|affinity| affinity.carriers[set]);
    let keys: Vec<usize> = spread.chain(near.flat_map(|affinity| affinity.domains.iter().copied())).collect();
    let mut buckets: Vec<Vec<usize>> = Vec::new();
    let mut bucket_of: BTreeMap<Vec<Option<usize>>, usize> = BTreeMap::new();
    for &at in best {
        let domains = keys.iter().map(|key| placement.nodes[at].domains[*key]).collect();
        let bucket = *bucket_of.entry(domains).or_insert(buckets.len());
        if bucket == buckets.len() {
            buckets.push(Vec::new());
        }
        buckets[bucket].push(at);
    }
    for bucket in &mut buckets {
        bucket.reverse();
    }
    buckets
}

/// The first of the buckets with the fewest counted pods that the spread constraints and the affinity of a pod set admit.
fn evenest(
    placement: &PartialPlacement<'_>,
    buckets: &[Vec<usize>],
    open: &BTreeSet<usize>,
    set: usize,
) -> Option<usize> {
    let spreads = || {
        let all = placement.rules.spreads.iter().zip(&placement.spreads);
        all.filter(|(spread, _)| spread.carrier == set)
    };
    let fewest: u32 = spreads().map(|(_, counts)| counts.fewest()).sum();
    let mut best: Option<(u32, usize)> = None;
    for &bucket in open {
        let Some(&at) = buckets[bucket].last() else { continue };
        if !placement.is_even(at, set) || !placement.is_near(at, set) {
            continue;
        }
        let pods = spreads().map(|(spread, counts)| placement.counted(at, spread.domains, counts)).sum();
        if pods <= fewest {
            return Some(bucket);
        }
        best = Some(best.map_or((pods, bucket), |best| best.min((pods, bucket))));
    }
    best.map(|(_, bucket)| bucket)
}
