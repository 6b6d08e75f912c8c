//! A scheduler of its own, and an exhaustive search with it.
//!
//! After kube-scheduler (`plugins/interpodaffinity`, `plugins/podtopologyspread`, `plugins/nodeports`).

use std::collections::BTreeMap;

use super::case::{Case, Key, Kind, Namespaces, Pods, Selector, Spread, Term, Volume};

/// The number of placements of a pod after which the search gives up.
const BUDGET: u32 = 3_000_000;
/// The random orders in which a placement must be bound.
const ORDERS: u64 = 8;

/// A pod on a node.
#[derive(Clone, Copy)]
pub struct Placed<'a> {
    /// The pod.
    pub pods: &'a Pods,
    /// What is equal for the pods of one object: its position among all objects of the case.
    pub object: usize,
    /// The index of its node.
    pub node: usize,
}

/// What the search found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// The nodes of each pod set.
    Placement(Vec<Vec<usize>>),
    /// There is no placement.
    Nothing,
    /// The budget is spent.
    Unknown,
}

/// The cluster of a case with its bound pods.
#[derive(Clone)]
pub struct Cluster<'a> {
    case: &'a Case,
    bound: Vec<Placed<'a>>,
}

impl<'a> Cluster<'a> {
    /// The nodes without pods.
    pub fn empty(case: &'a Case) -> Self {
        Self { case, bound: Vec::new() }
    }

    /// The nodes with the pods without a gang.
    pub fn with_others(case: &'a Case) -> Self {
        let others = case.others.iter().enumerate();
        let bound = others.map(|(object, (node, pods))| Placed { pods, object, node: *node });
        Self { case, bound: bound.collect() }
    }

    /// Adds a pod of a gang.
    pub fn bind(&mut self, gang: usize, set: usize, node: usize) {
        if let Some(pods) = self.case.gangs.get(gang).and_then(|sets| sets.get(set)) {
            self.bound.push(Placed { pods, object: object(gang, set), node });
        }
    }

    /// The nodes with more CPUs requested than they have.
    pub fn overcommitted(&self) -> Vec<usize> {
        (0..self.case.nodes.len()).filter(|node| self.free(*node) < 0).collect()
    }

    /// Searches a placement of a gang that is bound completely in any order.
    pub fn search(&self, gang: usize) -> Found {
        let free = (0..self.case.nodes.len()).map(|node| self.free(node)).collect();
        let mut search = Search { cluster: self, gang, free, pods: Vec::new(), budget: BUDGET };
        let first = self.case.gangs[gang].first().map_or(0, |pods| pods.count);
        if search.descend(0, 0, first) {
            let sets = 0..self.case.gangs[gang].len();
            let of = |set| {
                let pods =
                    search.pods.iter().filter(move |pod: &&Placed<'_>| pod.object == object(gang, set));
                pods.map(|pod| pod.node).collect()
            };
            return Found::Placement(sets.map(of).collect());
        }
        if search.budget == 0 { Found::Unknown } else { Found::Nothing }
    }

    fn free(&self, node: usize) -> i64 {
        let used = self.bound.iter().filter(|pod| pod.node == node).map(|pod| i64::from(pod.pods.cpus));
        i64::from(self.case.nodes[node].cpus) - used.sum::<i64>()
    }

    /// Whether the taints, the node selector, the node name and the volumes of a pod admit a node.
    fn admits_node(&self, pods: &Pods, at: usize) -> bool {
        let node = &self.case.nodes[at];
        let can_mount = match pods.volume {
            None => true,
            Some(Volume::InZone(zone)) => node.zone == Some(zone),
            Some(Volume::OnNode(on)) => on == at,
            Some(Volume::Waiting | Volume::Created) => {
                let zones = &self.case.class_zones;
                zones.is_empty() || node.zone.is_some_and(|zone| zones.contains(&zone))
            }
        };
        let is_named = pods.node_name.is_none_or(|named| named == at);
        let is_tolerated = !node.is_tainted || pods.tolerates || pods.node_name.is_some();
        can_mount && is_named && is_tolerated && self.matches_selector(pods, at)
    }

    fn matches_selector(&self, pods: &Pods, at: usize) -> bool {
        pods.zone.is_none() || pods.zone == self.case.nodes[at].zone
    }

    fn domain(&self, node: usize, key: Key) -> Option<usize> {
        match key {
            Key::HostName | Key::Host => Some(node),
            Key::Zone => self.case.nodes[node].zone.map(usize::from),
        }
    }

    fn are_together(&self, one: usize, other: usize, key: Key) -> bool {
        self.domain(one, key).is_some() && self.domain(one, key) == self.domain(other, key)
    }

    /// Whether host ports and anti-affinity, in both directions, admit a pod.
    fn admits_pair(&self, pod: Placed<'_>) -> bool {
        self.bound.iter().all(|other| {
            let is_apart = |one: Placed<'_>, other: Placed<'_>| {
                let mut terms = one.pods.rules.anti_affinity.iter();
                !terms.any(|term| {
                    selects(term, one, other) && self.are_together(one.node, other.node, term.key)
                })
            };
            let mut ports = pod.pods.rules.ports.iter();
            let conflicts =
                ports.any(|port| other.pods.rules.ports.iter().any(|taken| taken.conflicts(port)));
            // A pod with a node name passes no scheduler: its own terms count only for others.
            let obeys = pod.pods.node_name.is_some() || is_apart(pod, *other) && is_apart(*other, pod);
            obeys && !(conflicts && pod.node == other.node)
        })
    }

    fn admits_affinity(&self, pod: Placed<'_>) -> bool {
        let terms = &pod.pods.rules.affinity;
        let selects_all = |other: Placed<'_>| terms.iter().all(|term| selects(term, pod, other));
        let all = || self.bound.iter().copied().filter(|other| selects_all(*other));
        let has_labels = terms.iter().all(|term| self.domain(pod.node, term.key).is_some());
        let is_near =
            terms.iter().all(|term| all().any(|other| self.are_together(pod.node, other.node, term.key)));
        let counts = |other: Placed<'_>| terms.iter().any(|term| self.domain(other.node, term.key).is_some());
        let is_first = !all().any(counts) && selects_all(pod);
        terms.is_empty() || has_labels && (is_near || is_first)
    }

    /// Whether a spread constraint admits a pod. A pinned pod has only its node where its node selector counts.
    fn admits_spread(&self, pod: Placed<'_>, spread: &Spread, is_pinned: bool, is_bound: bool) -> bool {
        let counts = |at: &usize| {
            let node = &self.case.nodes[*at];
            let has_labels = pod.pods.rules.spread.iter().all(|one| self.domain(*at, one.key).is_some());
            let is_selected = self.matches_selector(pod.pods, *at) && (!is_pinned || *at == pod.node);
            let is_tolerated = pod.pods.tolerates || !node.is_tainted;
            has_labels && (!spread.honors_affinity || is_selected) && (!spread.honors_taints || is_tolerated)
        };
        let mut domains: BTreeMap<usize, u32> = BTreeMap::new();
        for at in (0..self.case.nodes.len()).filter(counts) {
            let Some(domain) = self.domain(at, spread.key) else { continue };
            let here = self.bound.iter().filter(|other| other.node == at && is_counted(spread, pod, **other));
            *domains.entry(domain).or_default() += u32::try_from(here.count()).unwrap_or(u32::MAX);
        }
        let are_few = u32::try_from(domains.len()).unwrap_or(u32::MAX) < spread.min_domains.unwrap_or(1);
        let fewest = if are_few { 0 } else { domains.values().min().copied().unwrap_or(0) };
        let own = u32::from(!is_bound && matches_spread(spread, pod, pod));
        self.domain(pod.node, spread.key).is_some_and(|domain| {
            domains.get(&domain).copied().unwrap_or(0) + own <= fewest + spread.max_skew
        })
    }

    fn admits(&self, pod: Placed<'_>) -> bool {
        let is_even =
            || pod.pods.rules.spread.iter().all(|spread| self.admits_spread(pod, spread, true, false));
        self.admits_pair(pod) && (pod.pods.node_name.is_some() || self.admits_affinity(pod) && is_even())
    }

    /// Whether the rules hold on the final state, and all pods are bound in any order.
    fn holds(&self, pods: &[Placed<'a>]) -> bool {
        let mut end = self.clone();
        end.bound.extend(pods);
        let is_even = |pod: &Placed<'_>| {
            let mut spread = pod.pods.rules.spread.iter();
            pod.pods.node_name.is_some() || spread.all(|spread| end.admits_spread(*pod, spread, false, true))
        };
        pods.iter().all(is_even) && (0..ORDERS).all(|order| self.binds(pods, order))
    }

    fn binds(&self, pods: &[Placed<'a>], order: u64) -> bool {
        let mut cluster = self.clone();
        let mut waiting = pods.to_vec();
        fastrand::Rng::with_seed(order).shuffle(&mut waiting);
        while !waiting.is_empty() {
            let Some(next) = waiting.iter().position(|pod| cluster.admits(*pod)) else { return false };
            cluster.bound.push(waiting.remove(next));
        }
        true
    }
}

/// The number of an object of a gang, after those of the pods without a gang.
fn object(gang: usize, set: usize) -> usize {
    1000 * (gang + 1) + set
}

/// The value of a label that pods with equal keys share.
fn label(pod: Placed<'_>, key: &str) -> Option<usize> {
    match (key, pod.pods.kind) {
        ("version", _) => pod.pods.version.map(usize::from),
        ("pod-template-hash", Kind::Deployment) | ("job-name", Kind::Job) => Some(pod.object),
        _ => None,
    }
}

/// Whether the label selector of `owner`, with the labels that keys name, selects a pod.
fn matches(
    selector: Selector,
    match_keys: &[&str],
    mismatch_keys: &[&str],
    owner: Placed<'_>,
    pod: Placed<'_>,
) -> bool {
    let is_selected = match selector {
        Selector::App(app) => pod.pods.app == app,
        Selector::NotApp(app) => pod.pods.app != app,
        Selector::Versioned => pod.pods.version.is_some(),
        Selector::Empty => true,
        Selector::Absent => false,
    };
    let own = |key: &&&str| label(owner, key).is_some();
    is_selected
        && match_keys.iter().filter(own).all(|key| label(owner, key) == label(pod, key))
        && mismatch_keys.iter().filter(own).all(|key| label(owner, key) != label(pod, key))
}

/// Whether an affinity term of `owner` selects a pod.
fn selects(term: &Term, owner: Placed<'_>, pod: Placed<'_>) -> bool {
    let is_there = match term.namespaces {
        Namespaces::Own => owner.pods.is_away == pod.pods.is_away,
        Namespaces::Away | Namespaces::LabelledAway => pod.pods.is_away,
        Namespaces::All => true,
    };
    is_there && matches(term.selector, &term.match_keys, &term.mismatch_keys, owner, pod)
}

fn matches_spread(spread: &Spread, owner: Placed<'_>, pod: Placed<'_>) -> bool {
    matches(spread.selector, &spread.match_keys, &[], owner, pod)
}

/// Whether a spread constraint of `owner` counts a bound pod: a selector without requirements counts none.
fn is_counted(spread: &Spread, owner: Placed<'_>, pod: Placed<'_>) -> bool {
    let has_requirements =
        spread.selector != Selector::Empty || spread.match_keys.iter().any(|key| label(owner, key).is_some());
    has_requirements && owner.pods.is_away == pod.pods.is_away && matches_spread(spread, owner, pod)
}

struct Search<'c, 'a> {
    cluster: &'c Cluster<'a>,
    gang: usize,
    free: Vec<i64>,
    pods: Vec<Placed<'a>>,
    budget: u32,
}

impl Search<'_, '_> {
    /// Places `left` pods of a set on this node or later ones, then the sets after it.
    fn descend(&mut self, set: usize, first: usize, left: u32) -> bool {
        let sets = &self.cluster.case.gangs[self.gang];
        let Some(pods) = sets.get(set) else { return self.cluster.holds(&self.pods) };
        if left == 0 {
            return self.descend(set + 1, 0, sets.get(set + 1).map_or(0, |pods| pods.count));
        }
        let cpus = i64::from(pods.cpus);
        for node in first..self.free.len() {
            if self.free[node] < cpus || !self.cluster.admits_node(pods, node) {
                continue;
            }
            if self.budget == 0 {
                return false;
            }
            self.budget -= 1;
            let pod = Placed { pods, object: object(self.gang, set), node };
            let mut before = self.cluster.clone();
            before.bound.extend(&self.pods);
            if !before.admits_pair(pod) {
                continue;
            }
            self.free[node] -= cpus;
            self.pods.push(pod);
            if self.descend(set, node, left - 1) {
                return true;
            }
            self.pods.pop();
            self.free[node] += cpus;
        }
        false
    }
}
