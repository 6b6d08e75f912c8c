//! The rules of a gang, resolved: label keys and domains as indices, and the pods of the cluster counted.

use std::collections::{BTreeMap, BTreeSet};

use model::{
    ClassIx, Constraints, NodeIx, PodAffinity, PodMark, PodRules, PodTerm, SelectorIx, Shape,
    SpreadConstraint, Toleration, TolerationOperator, World,
};

use crate::ledger::Ledger;

/// The pods on each node.
type Pods = BTreeMap<NodeIx, i64>;

/// The pods of the cluster and of other gangs; none for a gang that has the cluster to itself.
pub(super) type Others<'l> = Option<&'l Ledger<'l>>;

/// The number of these pods on each node with each mark; see `PodMarkChanges::pods`.
pub(super) fn pods(
    others: Others<'_>,
    first: &PodMark,
    belongs: impl Fn(&PodMark) -> bool,
) -> BTreeMap<PodMark, Pods> {
    others.map_or_else(BTreeMap::new, |ledger| ledger.pod_marks.pods(ledger.world, first, belongs))
}

/// The domains of one label key.
#[derive(Debug)]
pub(super) struct Domains {
    pub(super) key: String,
    /// The domain of each node with the label.
    of: BTreeMap<NodeIx, usize>,
    /// The number of nodes in each domain.
    pub(super) sizes: Vec<u32>,
    /// The label value of each domain.
    pub(super) values: Vec<String>,
}

/// An anti-affinity term of some pod sets.
#[derive(Debug)]
pub(super) struct Term {
    /// The domains, by index in [`Rules::domains`].
    pub(super) domains: usize,
    /// The pod sets with the term.
    pub(super) carriers: Vec<bool>,
    /// The pod sets that it selects.
    pub(super) selected: Vec<bool>,
}

/// A topology spread constraint of one pod set.
#[derive(Debug)]
pub(super) struct Spread<'a> {
    pub(super) carrier: usize,
    pub(super) constraint: &'a SpreadConstraint,
    pub(super) domains: usize,
    /// The pod sets that are counted.
    pub(super) selected: Vec<bool>,
    /// The nodes on which pods are counted.
    pub(super) counting: BTreeSet<NodeIx>,
    /// The pods of the cluster in each domain; `None` for a domain that does not count.
    pub(super) present: Vec<Option<u32>>,
    /// The counted pods of the cluster on each node.
    pub(super) on_node: Pods,
}

/// A required affinity, of a pod set or of planned pods of another gang.
#[derive(Debug)]
pub(super) struct Affinity {
    /// The domains of each label key.
    pub(super) domains: Vec<usize>,
    /// The pod sets with this affinity; none for that of another gang.
    pub(super) carriers: Vec<bool>,
    /// The pod sets that it selects.
    pub(super) selected: Vec<bool>,
    /// The selected pods of the cluster, bound or planned.
    pub(super) present: Pods,
    /// Planned pods of another gang have this affinity, are selected by it and are not bound yet.
    pub(super) is_joined: bool,
    /// Whether a selected pod is bound to a node with one of the labels.
    pub(super) is_any_bound: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Rules<'a> {
    pub(super) world: &'a World,
    pub(super) shape: &'a Shape,
    /// The rules of each pod set.
    pub(super) sets: Vec<Option<&'a PodRules>>,
    pub(super) domains: Vec<Domains>,
    pub(super) terms: Vec<Term>,
    pub(super) spreads: Vec<Spread<'a>>,
    pub(super) affinities: Vec<Affinity>,
    /// Which pod sets cannot share a node because of their host ports.
    pub(super) port_conflicts: Vec<Vec<bool>>,
}

impl Domains {
    /// The domain of a node.
    pub(super) fn of(&self, node: NodeIx) -> Option<usize> {
        self.of.get(&node).copied()
    }

    /// The domain of a node, if it has other nodes too.
    pub(super) fn shared(&self, node: NodeIx) -> Option<usize> {
        self.of(node).filter(|domain| self.sizes[*domain] > 1)
    }
}

impl<'a> Rules<'a> {
    /// The rules of a gang and what they concern; none if no rule limits its placement. Spread constraints count the
    /// nodes that `requested` may use, the shape without the constraints of its flavors.
    pub(super) fn of(
        world: &'a World,
        others: Others<'_>,
        shape: &'a Shape,
        requested: &'a Shape,
    ) -> Option<Self> {
        let sets: Vec<Option<&PodRules>> = shape
            .pod_sets
            .iter()
            .map(|set| set.rules.as_deref().filter(|rules| set.count > 0 && !rules.is_empty()))
            .collect();
        let concerned = |rules: &&PodRules| rules.has_rules() || is_concerned_by_others(others, rules);
        if !sets.iter().flatten().any(concerned) {
            return None;
        }
        let mut rules = Self {
            world,
            shape,
            port_conflicts: port_conflicts(&sets),
            sets,
            domains: Vec::new(),
            terms: Vec::new(),
            spreads: Vec::new(),
            affinities: Vec::new(),
        };
        rules.resolve_terms();
        rules.resolve_spreads(others, requested);
        rules.resolve_affinities(others);
        Some(rules)
    }

    fn resolve_terms(&mut self) {
        let terms: BTreeSet<&'a PodTerm> =
            self.sets.iter().flatten().flat_map(|rules| &rules.anti_affinity).collect();
        for term in terms {
            let domains = self.domains_of(&term.topology_key);
            let carries = |rules: &PodRules| rules.anti_affinity.contains(term);
            let carriers = self.each_set(carries);
            let selected = self.selected_by(term.selector);
            self.terms.push(Term { domains, carriers, selected });
        }
    }

    fn resolve_spreads(&mut self, others: Others<'_>, requested: &'a Shape) {
        for carrier in 0..self.sets.len() {
            let Some(rules) = self.sets[carrier] else { continue };
            for constraint in &rules.spread {
                let domains = self.domains_of(&constraint.topology_key);
                let selected = self.selected_by(constraint.selector);
                let keys: Vec<usize> =
                    rules.spread.iter().map(|other| self.domains_of(&other.topology_key)).collect();
                let counting =
                    self.counting_nodes(constraint, &requested.pod_sets[carrier].constraints, &keys);
                let mut present = vec![None; self.domains[domains].sizes.len()];
                for domain in counting.iter().filter_map(|node| self.domains[domains].of(*node)) {
                    present[domain] = Some(0);
                }
                let mut on_node = selected_pods(others, constraint.selector);
                on_node.retain(|node, _| counting.contains(node));
                for (node, count) in &on_node {
                    if let Some(domain) = self.domains[domains].of(*node) {
                        let count = u32::try_from(*count).unwrap_or(u32::MAX);
                        present[domain] = present[domain].map(|before: u32| before.saturating_add(count));
                    }
                }
                self.spreads.push(Spread {
                    carrier,
                    constraint,
                    domains,
                    selected,
                    counting,
                    present,
                    on_node,
                });
            }
        }
    }

    /// The nodes that a spread constraint counts. After kube-scheduler: nodes with the labels of all constraints of the
    /// pod that its inclusion policies admit, whether they are ready or not.
    fn counting_nodes(
        &self,
        constraint: &SpreadConstraint,
        constraints: &Constraints,
        keys: &[usize],
    ) -> BTreeSet<NodeIx> {
        let tolerates_all = Toleration { operator: TolerationOperator::Exists, ..Toleration::default() };
        let mut honored = Constraints { tolerations: vec![tolerates_all], ..Constraints::default() };
        if constraint.honors_affinity {
            honored.node_selector.clone_from(&constraints.node_selector);
            honored.node_affinity.clone_from(&constraints.node_affinity);
        }
        if constraint.honors_taints {
            honored.tolerations.clone_from(&constraints.tolerations);
        }
        let counts = |class: ClassIx| {
            let obstacle = honored.obstacle(&self.world.class(class).class);
            obstacle.is_none_or(|obstacle| obstacle.is_transient())
        };
        let classes: BTreeSet<ClassIx> =
            self.world.classes().map(|(class, _)| class).filter(|class| counts(*class)).collect();
        let Some((first, others)) = keys.split_first() else { return BTreeSet::new() };
        let has_labels = |node: &&NodeIx| others.iter().all(|key| self.domains[*key].of(**node).is_some());
        let is_counted = |node: &&NodeIx| {
            self.world.class_of(**node).is_some_and(|class| classes.contains(&class)) && has_labels(node)
        };
        self.domains[*first].of.keys().filter(is_counted).copied().collect()
    }

    fn resolve_affinities(&mut self, others: Others<'_>) {
        let own: BTreeSet<&PodAffinity> =
            self.sets.iter().flatten().filter_map(|rules| rules.affinity.as_ref()).collect();
        let selectors: BTreeSet<SelectorIx> =
            self.sets.iter().flatten().flat_map(|rules| rules.selected_by.iter().copied()).collect();
        let mut all: BTreeMap<PodAffinity, bool> = own.into_iter().map(|one| (one.clone(), false)).collect();
        for selector in selectors {
            for mark in joining_pods(others, selector).into_keys() {
                if let PodMark::Joins(affinity) = mark {
                    all.insert(affinity, true);
                }
            }
        }
        for (affinity, is_joined) in all {
            let domains: Vec<usize> = affinity.topology_keys.iter().map(|key| self.domains_of(key)).collect();
            let carriers = self.each_set(|rules| rules.affinity.as_ref() == Some(&affinity));
            let selected = self.selected_by(affinity.selector);
            let present = selected_pods(others, affinity.selector);
            let bound = PodMark::BoundAndSelected(affinity.selector);
            let bound = pods(others, &bound, |mark| *mark == bound);
            let has_label = |node: &NodeIx| domains.iter().any(|key| self.domains[*key].of(*node).is_some());
            let is_any_bound = bound.values().flat_map(BTreeMap::keys).any(has_label);
            self.affinities.push(Affinity { domains, carriers, selected, present, is_joined, is_any_bound });
        }
    }

    /// The index of the domains of a label key.
    pub(super) fn domains_of(&mut self, key: &str) -> usize {
        if let Some(at) = self.domains.iter().position(|domains| domains.key == key) {
            return at;
        }
        let cluster = String::new();
        let mut values: BTreeMap<&str, usize> = BTreeMap::new();
        let (mut of, mut sizes, mut names) = (BTreeMap::new(), Vec::new(), Vec::new());
        for node in self.world.nodes() {
            let ix = self.world.node_ix(&node.name);
            let value = if key == PodTerm::CLUSTER { Some(&cluster) } else { node.labels.get(key) };
            let Some((ix, value)) = ix.zip(value) else { continue };
            let domain = *values.entry(value).or_insert(sizes.len());
            if domain == sizes.len() {
                sizes.push(0);
                names.push(value.clone());
            }
            sizes[domain] += 1;
            of.insert(ix, domain);
        }
        self.domains.push(Domains { key: key.to_owned(), of, sizes, values: names });
        self.domains.len() - 1
    }

    fn each_set(&self, holds: impl Fn(&PodRules) -> bool) -> Vec<bool> {
        self.sets.iter().map(|rules| rules.is_some_and(&holds)).collect()
    }

    /// The pod sets that a selector selects.
    fn selected_by(&self, selector: SelectorIx) -> Vec<bool> {
        self.each_set(|rules| rules.selected_by.contains(&selector))
    }
}

/// The selected pods of the cluster on each node, bound or planned.
pub(super) fn selected_pods(others: Others<'_>, selector: SelectorIx) -> Pods {
    let mark = PodMark::Selected(selector);
    pods(others, &mark, |other| *other == mark).remove(&mark).unwrap_or_default()
}

/// The planned pods of other gangs that have an affinity to pods of this selector, and that it selects, by affinity.
fn joining_pods(others: Others<'_>, selector: SelectorIx) -> BTreeMap<PodMark, Pods> {
    let first = PodMark::Joins(PodAffinity { selector, topology_keys: BTreeSet::new() });
    pods(others, &first, |mark| matches!(mark, PodMark::Joins(other) if other.selector == selector))
}

/// The nodes with pods that keep away the pods that these selectors select, by label key.
pub(super) fn kept_away(
    others: Others<'_>,
    selectors: &BTreeSet<SelectorIx>,
) -> BTreeMap<String, BTreeSet<NodeIx>> {
    let mut kept: BTreeMap<String, BTreeSet<NodeIx>> = BTreeMap::new();
    for &selector in selectors {
        let first = PodMark::KeepsAway(PodTerm { selector, topology_key: String::new() });
        let belongs = |mark: &PodMark| matches!(mark, PodMark::KeepsAway(term) if term.selector == selector);
        for (mark, nodes) in pods(others, &first, belongs) {
            if let PodMark::KeepsAway(term) = mark {
                kept.entry(term.topology_key).or_default().extend(nodes.into_keys());
            }
        }
    }
    kept
}

/// Whether pods of the cluster limit the placement of pods without a rule of their own.
fn is_concerned_by_others(others: Others<'_>, rules: &PodRules) -> bool {
    !kept_away(others, &rules.selected_by).is_empty()
        || rules.selected_by.iter().any(|selector| !joining_pods(others, *selector).is_empty())
        || is_counted_by_planned(others, rules)
}

/// Whether a spread constraint of planned pods counts the pods. Where these pods may go is not known then, before the
/// planned pods are bound: the final counts would have to satisfy their constraints, too.
pub(super) fn is_counted_by_planned(others: Others<'_>, rules: &PodRules) -> bool {
    let spreads = |selector: SelectorIx| {
        let mark = PodMark::Spreads(selector);
        !pods(others, &mark, |other| *other == mark).is_empty()
    };
    rules.selected_by.iter().any(|selector| spreads(*selector))
}

fn port_conflicts(sets: &[Option<&PodRules>]) -> Vec<Vec<bool>> {
    let conflict = |one: Option<&PodRules>, other: Option<&PodRules>| {
        let (Some(one), Some(other)) = (one, other) else { return false };
        one.host_ports.iter().any(|port| other.host_ports.iter().any(|with| port.conflicts(with)))
    };
    sets.iter().map(|one| sets.iter().map(|other| conflict(*one, *other)).collect()).collect()
}
