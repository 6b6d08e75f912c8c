//! A simulated kube-scheduler: judges the rules between pods, pod by pod.

use std::collections::BTreeMap;

use model::{Node, PodRules, SelectorIx};

/// A pod on a node.
#[derive(Clone, Copy)]
pub(super) struct Placed<'a> {
    pub(super) node: usize,
    pub(super) rules: &'a PodRules,
    pub(super) tolerates: bool,
}

/// The cluster as kube-scheduler sees it.
pub(super) struct Cluster<'a> {
    pub(super) nodes: Vec<Node>,
    pub(super) bound: Vec<Placed<'a>>,
}

impl Cluster<'_> {
    fn domain(&self, node: usize, key: &str) -> Option<&str> {
        self.nodes[node].labels.get(key).map(String::as_str)
    }

    fn selected(&self, selector: SelectorIx) -> impl Iterator<Item = &Placed<'_>> {
        self.bound.iter().filter(move |pod| pod.rules.selected_by.contains(&selector))
    }

    /// Whether anti-affinity and host ports admit a pod.
    pub(super) fn admits_pair(&self, pod: Placed<'_>) -> bool {
        let is_together = |one: usize, other: usize, key: &str| {
            self.domain(one, key).is_some() && self.domain(one, key) == self.domain(other, key)
        };
        self.bound.iter().all(|other| {
            let apart = |one: &PodRules, other: &PodRules, node, with| {
                let mut terms = one.anti_affinity.iter();
                terms.any(|term| {
                    other.selected_by.contains(&term.selector) && is_together(node, with, &term.topology_key)
                })
            };
            let mut ports = pod.rules.host_ports.iter();
            let taken = ports.any(|port| {
                other.rules.host_ports.iter().any(|with| {
                    let any = port.address.is_none() || with.address.is_none();
                    port.port == with.port && (any || port.address == with.address)
                })
            });
            let is_apart = apart(pod.rules, other.rules, pod.node, other.node)
                || apart(other.rules, pod.rules, other.node, pod.node);
            let takes_port = taken && pod.node == other.node;
            !is_apart && !takes_port
        })
    }

    pub(super) fn admits_affinity(&self, pod: Placed<'_>) -> bool {
        let Some(affinity) = &pod.rules.affinity else { return true };
        let has_all = affinity.topology_keys.iter().all(|key| self.domain(pod.node, key).is_some());
        let near = |key: &String| {
            self.selected(affinity.selector)
                .any(|other| self.domain(other.node, key) == self.domain(pod.node, key))
        };
        let counted = self
            .selected(affinity.selector)
            .any(|other| affinity.topology_keys.iter().any(|key| self.domain(other.node, key).is_some()));
        let is_first = !counted && pod.rules.selected_by.contains(&affinity.selector);
        has_all && (affinity.topology_keys.iter().all(near) || is_first)
    }

    /// Whether the spread constraints admit a pod, which is counted already or not. A pinned pod sees its node only where its
    /// node selector is honored.
    pub(super) fn admits_spread(&self, pod: Placed<'_>, is_pinned: bool, is_counted_already: bool) -> bool {
        pod.rules.spread.iter().all(|constraint| {
            let counts = |at: &usize| {
                let node = &self.nodes[*at];
                let labels =
                    pod.rules.spread.iter().all(|other| node.labels.contains_key(&other.topology_key));
                let honors_pin = is_pinned && constraint.honors_affinity;
                labels
                    && (!honors_pin || *at == pod.node)
                    && (!constraint.honors_taints || pod.tolerates || node.taints.is_empty())
            };
            let mut pods: BTreeMap<&str, u32> = BTreeMap::new();
            for at in (0..self.nodes.len()).filter(counts) {
                let here = self.selected(constraint.selector).filter(|other| other.node == at).count();
                let domain = self.domain(at, &constraint.topology_key).unwrap_or_default();
                *pods.entry(domain).or_default() += u32::try_from(here).expect("few");
            }
            let few = u32::try_from(pods.len()).expect("few") < constraint.min_domains;
            let fewest = if few { 0 } else { pods.values().min().copied().unwrap_or(0) };
            let own = u32::from(!is_counted_already && pod.rules.selected_by.contains(&constraint.selector));
            let domain = self.domain(pod.node, &constraint.topology_key);
            domain.is_some_and(|domain| {
                pods.contains_key(domain) && pods[domain] + own <= fewest + constraint.max_skew
            })
        })
    }
}

/// Binds pods in this order, blocked ones later. Returns whether all were bound.
pub(super) fn binds<'a>(cluster: &mut Cluster<'a>, mut waiting: Vec<Placed<'a>>) -> bool {
    while !waiting.is_empty() {
        let admits = |pod: &Placed<'a>| {
            cluster.admits_pair(*pod)
                && cluster.admits_affinity(*pod)
                && cluster.admits_spread(*pod, true, false)
        };
        let Some(next) = waiting.iter().position(admits) else { return false };
        let pod = waiting.remove(next);
        cluster.bound.push(pod);
    }
    true
}
