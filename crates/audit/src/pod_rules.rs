//! Rules between pods: anti-affinity, affinity, topology spread and host ports, pod by pod.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::{
    Assignment, Constraints, Gang, Node, PodAffinity, PodRules, PodSet, PodTerm, SelectorIx,
    SpreadConstraint, Toleration, TolerationOperator,
};

use crate::cluster_state::ClusterState;
use crate::fit::matches_constraints;
use crate::violation::Violation;

/// Pods with equal rules on a node, bound or planned.
#[derive(Clone, Debug)]
pub(crate) struct RuledPods {
    /// The uid of their gang; `None` for other pods and for gangs that the plan admits.
    pub(crate) gang: Option<String>,
    pub(crate) node: String,
    pub(crate) rules: Arc<PodRules>,
    pub(crate) is_bound: bool,
    pub(crate) count: u64,
}

/// The pods that rules concern, with an assignment of a gang.
struct Review<'a> {
    cluster: &'a ClusterState<'a>,
    gang: &'a Gang,
    /// The pods of the cluster, then those of the assignment.
    pods: Vec<(&'a str, &'a PodRules, u64)>,
    /// The number of pods of the cluster among them.
    present: usize,
    /// The pod set of each pod of the assignment.
    sets: Vec<usize>,
}

/// Reports the rules that an admission breaks, its own and those of other pods.
pub(crate) fn check(
    cluster: &ClusterState<'_>,
    gang: &Gang,
    assignment: &Assignment,
    found: &mut Vec<Violation>,
) {
    if gang.pod_sets.iter().any(|set| set.rules.is_some()) {
        let review = Review::of(cluster, gang, assignment);
        review.check_pairs(found);
        review.check_spread(found);
        review.check_affinity(found);
        review.check_planned(found);
    }
}

/// Whether an assignment breaks no rule.
pub(crate) fn are_satisfied(cluster: &ClusterState<'_>, gang: &Gang, assignment: &Assignment) -> bool {
    let mut found = Vec::new();
    check(cluster, gang, assignment, &mut found);
    found.is_empty()
}

/// Whether a pod of the gang has a rule, so that first fit on empty nodes proves nothing.
pub(crate) fn has_rules(gang: &Gang) -> bool {
    let mut sets = gang.pod_sets.iter().filter_map(|set| set.rules.as_ref());
    sets.any(|rules| rules.has_rules())
}

impl<'a> Review<'a> {
    fn of(cluster: &'a ClusterState<'a>, gang: &'a Gang, assignment: &'a Assignment) -> Self {
        let present = cluster.ruled_pods();
        let mut pods: Vec<_> = present.map(|pods| (pods.node.as_str(), &*pods.rules, pods.count)).collect();
        let (present, mut sets) = (pods.len(), Vec::new());
        for (at, (set, places)) in gang.pod_sets.iter().zip(&assignment.pod_sets).enumerate() {
            let Some(rules) = &set.rules else { continue };
            for (node, count) in places.iter().filter(|(_, count)| *count > 0) {
                pods.push((node.as_str(), &**rules, u64::from(*count)));
                sets.push(at);
            }
        }
        Self { cluster, gang, pods, present, sets }
    }

    fn domain(&self, node: &str, key: &str) -> Option<&'a str> {
        let node = self.cluster.node(node)?;
        if key == PodTerm::CLUSTER { Some("") } else { node.labels.get(key).map(String::as_str) }
    }

    fn set(&self, pod: usize) -> &'a PodSet {
        &self.gang.pod_sets[self.sets[pod - self.present]]
    }

    /// Reports each pair of pods, at least one of them admitted, that anti-affinity or host ports forbid.
    fn check_pairs(&self, found: &mut Vec<Violation>) {
        for one in self.present..self.pods.len() {
            for other in 0..=one {
                let ((node, rules, count), (other_node, other_rules, _)) = (self.pods[one], self.pods[other]);
                if one == other && count < 2 {
                    continue;
                }
                let mut terms = rules
                    .anti_affinity
                    .iter()
                    .filter(|term| other_rules.selected_by.contains(&term.selector))
                    .chain(
                        other_rules
                            .anti_affinity
                            .iter()
                            .filter(|term| rules.selected_by.contains(&term.selector)),
                    );
                let is_together = |key: &str| {
                    let domain = self.domain(node, key);
                    domain.is_some() && domain == self.domain(other_node, key)
                };
                let (gang, pod_set) = (self.gang.key.clone(), self.set(one).name.clone());
                if let Some(term) = terms.find(|term| is_together(&term.topology_key)) {
                    let (topology_key, node) = (term.topology_key.clone(), node.to_owned());
                    found.push(Violation::AntiAffinityBroken { gang, pod_set, node, topology_key });
                } else if node == other_node && has_port_conflict(rules, other_rules) {
                    found.push(Violation::HostPortTaken { gang, pod_set, node: node.to_owned() });
                }
            }
        }
    }

    /// Reports each spread constraint of the admitted pods that the final counts break.
    fn check_spread(&self, found: &mut Vec<Violation>) {
        for at in self.sets.iter().collect::<BTreeSet<_>>() {
            let set = &self.gang.pod_sets[*at];
            let Some(rules) = &set.rules else { continue };
            for constraint in &rules.spread {
                let counted = |node: &&Node| counts(node, rules, constraint, &set.constraints);
                let mut pods: BTreeMap<&str, u64> = BTreeMap::new();
                for node in self.cluster.nodes().filter(counted) {
                    let selected = self.selected_on(&node.name, constraint.selector);
                    *pods.entry(&node.labels[&constraint.topology_key]).or_default() += selected;
                }
                let few = pods.len() < constraint.min_domains as usize;
                let fewest = if few { 0 } else { pods.values().min().copied().unwrap_or(0) };
                let most = fewest + u64::from(constraint.max_skew.max(1));
                let places =
                    (self.present..self.pods.len()).filter(|pod| self.sets[pod - self.present] == *at);
                let mut nodes = places.map(|pod| self.pods[pod].0);
                // A pinned pod has one domain where its node selector is honored.
                let is_pinned = constraint.honors_affinity && constraint.min_domains > 1;
                let holds = |node: &str| {
                    let domain = self.domain(node, &constraint.topology_key);
                    let on_node = self.selected_on(node, constraint.selector);
                    domain.and_then(|domain| pods.get(domain)).is_some_and(|pods| *pods <= most)
                        && (!is_pinned || on_node <= constraint.max_skew.max(1).into())
                };
                if !nodes.all(holds) {
                    let (gang, pod_set) = (self.gang.key.clone(), set.name.clone());
                    let topology_key = constraint.topology_key.clone();
                    found.push(Violation::SpreadBroken { gang, pod_set, topology_key });
                }
            }
        }
    }

    fn selected_on(&self, node: &str, selector: SelectorIx) -> u64 {
        let selected =
            self.pods.iter().filter(|(on, rules, _)| *on == node && rules.selected_by.contains(&selector));
        selected.map(|(.., count)| count).sum()
    }

    /// Reports admitted pods with affinity that cannot be bound when all others are, in any order.
    fn check_affinity(&self, found: &mut Vec<Violation>) {
        let affinity_of = |pod: usize| self.pods[pod].1.affinity.as_ref();
        let mut bound: BTreeSet<usize> = (0..self.present).collect();
        loop {
            let is_near =
                |pod: usize| affinity_of(pod).is_none_or(|affinity| self.has_near(&bound, pod, affinity));
            let next: Vec<usize> =
                (self.present..self.pods.len()).filter(|pod| !bound.contains(pod) && is_near(*pod)).collect();
            if !next.is_empty() {
                bound.extend(next);
                continue;
            }
            let may_be_first = |pod: &usize| {
                affinity_of(*pod).is_some_and(|affinity| self.may_be_first(&bound, *pod, affinity))
            };
            let waiting = (self.present..self.pods.len()).filter(|pod| !bound.contains(pod));
            match waiting.into_iter().find(may_be_first) {
                Some(first) => drop(bound.insert(first)),
                None => break,
            }
        }
        for pod in (self.present..self.pods.len()).filter(|pod| !bound.contains(pod)) {
            let (gang, pod_set) = (self.gang.key.clone(), self.set(pod).name.clone());
            found.push(Violation::AffinityNotSatisfied { gang, pod_set, node: self.pods[pod].0.to_owned() });
        }
    }

    /// Reports planned pods of other gangs that may be the first of their affinity, and may not be if an admitted pod in
    /// another domain comes first; and planned pods whose spread constraints count admitted pods.
    fn check_planned(&self, found: &mut Vec<Violation>) {
        let none = BTreeSet::new();
        let admitted = self.present..self.pods.len();
        for (pod, ruled) in self.cluster.ruled_pods().enumerate().filter(|(_, ruled)| !ruled.is_bound) {
            let is_counted = |pod: usize| {
                let mut spread =
                    ruled.rules.spread.iter().filter(|one| !one.honors_affinity || one.min_domains > 1);
                spread.any(|constraint| self.pods[pod].1.selected_by.contains(&constraint.selector))
            };
            if admitted.clone().any(is_counted) {
                let (gang, node) = (self.gang.key.clone(), ruled.node.clone());
                found.push(Violation::PlannedPodsBlocked { gang, node });
            }
            let Some(affinity) = &ruled.rules.affinity else { continue };
            let is_selected = |pod: usize| self.pods[pod].1.selected_by.contains(&affinity.selector);
            let has_domain =
                |node: &str| affinity.topology_keys.iter().any(|key| self.domain(node, key).is_some());
            let is_any_bound = self.cluster.ruled_pods().any(|other| {
                other.is_bound
                    && other.rules.selected_by.contains(&affinity.selector)
                    && has_domain(&other.node)
            });
            if is_selected(pod)
                && !is_any_bound
                && admitted.clone().any(is_selected)
                && !self.may_be_first(&none, pod, affinity)
            {
                let (gang, node) = (self.gang.key.clone(), ruled.node.clone());
                found.push(Violation::PlannedPodsBlocked { gang, node });
            }
        }
    }

    /// Whether bound pods that the affinity selects are in the domains of a pod.
    fn has_near(&self, bound: &BTreeSet<usize>, pod: usize, affinity: &PodAffinity) -> bool {
        affinity.topology_keys.iter().all(|key| {
            let domain = self.domain(self.pods[pod].0, key);
            let selected =
                bound.iter().filter(|other| self.pods[**other].1.selected_by.contains(&affinity.selector));
            domain.is_some()
                && selected.into_iter().any(|other| self.domain(self.pods[*other].0, key) == domain)
        })
    }

    /// Whether a pod that its own affinity selects may be bound although no selected pod is in any domain. Whichever of
    /// the selected pods comes first, the others must be in its domains.
    fn may_be_first(&self, bound: &BTreeSet<usize>, pod: usize, affinity: &PodAffinity) -> bool {
        let is_selected = |other: &usize| self.pods[*other].1.selected_by.contains(&affinity.selector);
        let domain = |key: &str, pod: usize| self.domain(self.pods[pod].0, key);
        let has_domain =
            |other: &usize| affinity.topology_keys.iter().any(|key| domain(key, *other).is_some());
        let has_labels = affinity.topology_keys.iter().all(|key| domain(key, pod).is_some());
        let selected: Vec<usize> = (0..self.pods.len()).filter(is_selected).collect();
        let is_alone = |key: &String| {
            selected.iter().filter_map(|other| domain(key, *other)).collect::<BTreeSet<_>>().len() <= 1
        };
        is_selected(&pod)
            && has_labels
            && !bound.iter().filter(|other| is_selected(other)).any(has_domain)
            && affinity.topology_keys.iter().all(is_alone)
    }
}

fn has_port_conflict(one: &PodRules, other: &PodRules) -> bool {
    one.host_ports.iter().any(|port| {
        other.host_ports.iter().any(|with| {
            let is_same_address =
                port.address.is_none() || with.address.is_none() || port.address == with.address;
            port.port == with.port && port.protocol == with.protocol && is_same_address
        })
    })
}

/// Whether a spread constraint counts the pods of a node: it has the labels of all constraints of the pod, and the
/// inclusion policies admit it.
fn counts(node: &Node, rules: &PodRules, constraint: &SpreadConstraint, constraints: &Constraints) -> bool {
    let everything = Toleration { operator: TolerationOperator::Exists, ..Toleration::default() };
    let tolerations =
        if constraint.honors_taints { constraints.tolerations.clone() } else { vec![everything] };
    let selects = if constraint.honors_affinity { constraints.clone() } else { Constraints::default() };
    rules.spread.iter().all(|other| node.labels.contains_key(&other.topology_key))
        && matches_constraints(node, &Constraints { tolerations, ..selects })
}
