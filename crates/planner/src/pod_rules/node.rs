//! The candidate nodes of a gang with rules, one by one.
//!
//! Nodes of one kind are equal for the gang: in their free resources, in the domains that they share with other nodes,
//! and in the pods that concern the gang. Of each kind, only as many nodes count as the gang has pods.

use std::collections::{BTreeMap, BTreeSet};

use model::{ClassIx, FreeResources, HostPort, NodeIx, PodMark};

use super::constraint::{Others, Rules, is_counted_by_planned, kept_away, pods, selected_pods};
use crate::candidates::CandidateNodes;
use crate::ledger::Ledger;

/// A candidate node.
#[derive(Debug)]
pub(super) struct CandidateNode<'l> {
    pub(super) node: NodeIx,
    pub(super) class: ClassIx,
    /// The index of its group in the candidates.
    pub(super) group: usize,
    pub(super) free: &'l FreeResources,
    /// The pod sets whose pods may go there, as far as present pods decide that.
    pub(super) is_open: Vec<bool>,
    /// Its domain of each label key.
    pub(super) domains: Vec<Option<usize>>,
    /// The index of its kind.
    pub(super) kind: usize,
}

/// Why a node that has room for a pod may not be used.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Exclusion {
    /// It lacks a label that affinity or spread needs.
    NoLabel(String),
    /// Anti-affinity with other pods, by this label key.
    OtherPods(String),
    /// A host port is taken.
    HostPort(HostPort),
    /// Spread constraints of planned pods count the pods.
    PlannedSpread,
    /// No selected pod is in its domains of these label keys.
    Affinity(Vec<String>),
}

/// See the module.
pub(super) struct CandidateNodesOneByOne<'l> {
    pub(super) nodes: Vec<CandidateNode<'l>>,
    /// For each pod set, the number of excluded nodes.
    pub(super) excluded: Vec<BTreeMap<Exclusion, u32>>,
}

/// What the present pods exclude for one pod set.
#[derive(Default)]
struct Present {
    /// The label keys that a node needs, as indices of domains.
    labels: Vec<usize>,
    /// Domains with pods that must be kept apart, by label key.
    apart: Vec<(usize, BTreeSet<usize>)>,
    /// The nodes on which a port is taken.
    ports: BTreeMap<NodeIx, HostPort>,
    /// The only domains that affinity allows, by label key; none if pods of the gang may provide it.
    near: Vec<(usize, BTreeSet<usize>)>,
    /// Planned pods must be bound first.
    must_wait: bool,
}

impl<'l> CandidateNodesOneByOne<'l> {
    pub(super) fn of(ledger: &'l Ledger<'l>, rules: &mut Rules<'_>, candidates: &CandidateNodes<'l>) -> Self {
        let present: Vec<Present> =
            (0..rules.sets.len()).map(|at| Present::of(Some(ledger), rules, at)).collect();
        let most = rules.shape.pod_sets.iter().fold(0_u32, |sum, set| sum.saturating_add(set.count));
        let mut all = Self { nodes: Vec::new(), excluded: vec![BTreeMap::new(); rules.sets.len()] };
        let mut kinds: BTreeMap<_, (usize, u32)> = BTreeMap::new();
        for (ix, group) in candidates.groups.iter().enumerate() {
            for (class, node) in nodes_of(ledger, rules, group.free, &group.classes) {
                let is_open: Vec<bool> = (0..rules.sets.len())
                    .map(|set| {
                        let has_room = candidates.is_open(ix, set)
                            && rules.shape.pod_sets[set].count > 0
                            && rules.shape.pod_sets[set].fits_in(group.free);
                        has_room && all.check(rules, &present[set], set, node)
                    })
                    .collect();
                if !is_open.contains(&true) {
                    continue;
                }
                let number = kinds.len();
                let (kind, count) = kinds.entry(signature(rules, ix, &is_open, node)).or_insert((number, 0));
                *count += 1;
                if *count <= most {
                    let domains = rules.domains.iter().map(|domains| domains.of(node)).collect();
                    all.nodes.push(CandidateNode {
                        node,
                        class,
                        group: ix,
                        free: group.free,
                        is_open,
                        domains,
                        kind: *kind,
                    });
                }
            }
        }
        all
    }

    /// These nodes, each of a kind of its own, whether they have room or not.
    pub(super) fn these(
        others: Others<'_>,
        rules: &mut Rules<'_>,
        nodes: impl Iterator<Item = (NodeIx, ClassIx, &'l FreeResources)>,
    ) -> Self {
        let present: Vec<Present> = (0..rules.sets.len()).map(|at| Present::of(others, rules, at)).collect();
        let mut all = Self { nodes: Vec::new(), excluded: vec![BTreeMap::new(); rules.sets.len()] };
        for (kind, (node, class, free)) in nodes.enumerate() {
            let is_open =
                (0..rules.sets.len()).map(|set| all.check(rules, &present[set], set, node)).collect();
            let domains = rules.domains.iter().map(|domains| domains.of(node)).collect();
            all.nodes.push(CandidateNode { node, class, group: 0, free, is_open, domains, kind });
        }
        all
    }

    /// Whether the present pods allow a pod of a set on a node; counts the node if not.
    fn check(&mut self, rules: &Rules<'_>, present: &Present, set: usize, node: NodeIx) -> bool {
        let exclusion = present.exclusion(rules, node);
        let is_open = exclusion.is_none();
        if let Some(exclusion) = exclusion {
            *self.excluded[set].entry(exclusion).or_default() += 1;
        }
        is_open
    }
}

/// The nodes of a group that are not excluded, by name.
fn nodes_of(
    ledger: &Ledger<'_>,
    rules: &Rules<'_>,
    free: &FreeResources,
    classes: &[ClassIx],
) -> Vec<(ClassIx, NodeIx)> {
    let nodes = classes.iter().flat_map(|class| ledger.nodes(*class, free).map(move |node| (*class, node)));
    let excluded = &rules.shape.excluded;
    let mut nodes: Vec<_> =
        nodes.filter(|(_, node)| !excluded.contains(&**ledger.world.node_name(*node))).collect();
    nodes.sort_by_key(|(_, node)| ledger.world.node_name(*node));
    nodes
}

/// What distinguishes nodes for the gang, beside the number of the group.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Signature {
    group: usize,
    is_open: Vec<bool>,
    /// For each label key: whether the node has it, and its domain if it has other nodes too.
    domains: Vec<(bool, Option<usize>)>,
    /// For each spread constraint: whether the node counts, the pods of its domain and its own.
    spread: Vec<(bool, Option<u32>, i64)>,
    /// For each affinity: whether a selected pod is on it.
    affinity: Vec<bool>,
}

fn signature(rules: &Rules<'_>, group: usize, is_open: &[bool], node: NodeIx) -> Signature {
    let domains = rules.domains.iter();
    let spread = rules.spreads.iter().map(|spread| {
        let domain = rules.domains[spread.domains].of(node);
        let present = domain.and_then(|domain| spread.present[domain]);
        (spread.counting.contains(&node), present, spread.on_node.get(&node).copied().unwrap_or(0))
    });
    Signature {
        group,
        is_open: is_open.to_vec(),
        domains: domains.map(|domains| (domains.of(node).is_some(), domains.shared(node))).collect(),
        spread: spread.collect(),
        affinity: rules.affinities.iter().map(|affinity| affinity.present.contains_key(&node)).collect(),
    }
}

impl Present {
    fn of(others: Others<'_>, rules: &mut Rules<'_>, at: usize) -> Self {
        let Some(set) = rules.sets[at] else { return Self::default() };
        let mut present = Self { must_wait: is_counted_by_planned(others, set), ..Self::default() };
        for constraint in &set.spread {
            present.labels.push(rules.domains_of(&constraint.topology_key));
        }
        for key in set.affinity.iter().flat_map(|affinity| &affinity.topology_keys) {
            present.labels.push(rules.domains_of(key));
        }
        let mut apart = kept_away(others, &set.selected_by);
        for term in &set.anti_affinity {
            let nodes = selected_pods(others, term.selector).into_keys();
            apart.entry(term.topology_key.clone()).or_default().extend(nodes);
        }
        for (key, nodes) in apart {
            let domains = rules.domains_of(&key);
            let within = nodes.into_iter().filter_map(|node| rules.domains[domains].of(node)).collect();
            present.apart.push((domains, within));
        }
        for port in &set.host_ports {
            let first = PodMark::Occupies(HostPort { port: port.port, ..HostPort::default() });
            let same = |mark: &PodMark| matches!(mark, PodMark::Occupies(other) if other.port == port.port);
            for (mark, nodes) in pods(others, &first, same) {
                if matches!(&mark, PodMark::Occupies(other) if other.conflicts(port)) {
                    present.ports.extend(nodes.into_keys().map(|node| (node, port.clone())));
                }
            }
        }
        let affinity = rules.affinities.iter().find(|affinity| affinity.carriers[at]);
        // Without other pods, nothing is known about those that may come.
        let affinity = affinity.filter(|_| others.is_some());
        if let Some(affinity) = affinity.filter(|affinity| !affinity.selected.contains(&true)) {
            for &key in &affinity.domains {
                let nodes = affinity.present.keys();
                let domains = nodes.filter_map(|node| rules.domains[key].of(*node)).collect();
                present.near.push((key, domains));
            }
        }
        present
    }

    fn exclusion(&self, rules: &Rules<'_>, node: NodeIx) -> Option<Exclusion> {
        let domain = |key: usize| rules.domains[key].of(node);
        let within = |key: usize, some: &BTreeSet<usize>| domain(key).is_some_and(|at| some.contains(&at));
        let key = |key: usize| rules.domains[key].key.clone();
        if self.must_wait {
            return Some(Exclusion::PlannedSpread);
        }
        if let Some(missing) = self.labels.iter().find(|key| domain(**key).is_none()) {
            return Some(Exclusion::NoLabel(key(*missing)));
        }
        if let Some((apart, _)) = self.apart.iter().find(|(key, some)| within(*key, some)) {
            return Some(Exclusion::OtherPods(key(*apart)));
        }
        if let Some(port) = self.ports.get(&node) {
            return Some(Exclusion::HostPort(port.clone()));
        }
        let is_near = self.near.iter().all(|(key, some)| within(*key, some));
        (!is_near).then(|| Exclusion::Affinity(self.near.iter().map(|(near, _)| key(*near)).collect()))
    }
}
