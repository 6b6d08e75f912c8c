//! Topology spread constraints: counts of matching pods in every domain.

use std::collections::BTreeMap;

use super::cache::{Cache, NodeInfo, PodInfo};
use super::filter::{self, Rejection};
use crate::wire::{LabelSelector, Pod, TopologySpreadConstraint};

/// The counts for the constraints of one pod.
pub(super) struct SpreadState {
    constraints: Vec<ConstraintCounts>,
}

struct ConstraintCounts {
    key: String,
    max_skew: i64,
    hard: bool,
    self_match: i64,
    min: i64,
    domains: BTreeMap<String, i64>,
}

impl SpreadState {
    pub(super) fn of(cache: &Cache, pod: &PodInfo) -> Self {
        let constraints = pod.pod.spec.topology_spread_constraints.iter();
        Self { constraints: constraints.map(|constraint| count(cache, &pod.pod, constraint)).collect() }
    }

    pub(super) fn check(&self, info: &NodeInfo) -> Result<(), Rejection> {
        for constraint in self.constraints.iter().filter(|constraint| constraint.hard) {
            let Some(domain) = info.label(&constraint.key) else {
                let reason = "node(s) didn't match pod topology spread constraints (missing required label)";
                return Err(Rejection::new(reason, false));
            };
            let matching = constraint.domains.get(domain).copied().unwrap_or(0);
            if matching + constraint.self_match - constraint.min > constraint.max_skew {
                return Err(Rejection::new("node(s) didn't match pod topology spread constraints", true));
            }
        }
        Ok(())
    }

    /// Sum of matching pods in the node's domains of soft constraints; `None` if the node lacks a topology label.
    pub(super) fn matching_pods(&self, info: &NodeInfo) -> Option<i64> {
        let soft = self.constraints.iter().filter(|constraint| !constraint.hard);
        soft.map(|constraint| {
            let domain = info.label(&constraint.key)?;
            Some(constraint.domains.get(domain).copied().unwrap_or(0) + constraint.max_skew - 1)
        })
        .sum()
    }

    pub(super) fn is_soft(&self) -> bool {
        self.constraints.iter().any(|constraint| !constraint.hard)
    }
}

fn count(cache: &Cache, pod: &Pod, constraint: &TopologySpreadConstraint) -> ConstraintCounts {
    let hard = is_hard(constraint);
    let mut selector = constraint.label_selector.clone();
    for key in &constraint.match_label_keys {
        if let (Some(selector), Some(value)) = (&mut selector, pod.metadata.labels.get(key)) {
            selector.match_labels.insert(key.clone(), value.clone());
        }
    }
    let matches =
        |other: &Pod| selector.as_ref().is_some_and(|s: &LabelSelector| s.matches(&other.metadata.labels));
    // After kube-scheduler: a selector without requirements counts no pod.
    let counts = |other: &Pod| matches(other) && selector.as_ref().is_some_and(|s| !s.is_empty());
    let mut domains: BTreeMap<String, i64> = BTreeMap::new();
    // After kube-scheduler: a node counts only if it has the topology labels of all hard constraints of the pod.
    let hard_keys = pod.spec.topology_spread_constraints.iter().filter(|other| hard && is_hard(other));
    let hard_keys: Vec<&str> = hard_keys.map(|other| &*other.topology_key).collect();
    for info in cache.nodes.values() {
        if hard_keys.iter().any(|key| info.label(key).is_none()) {
            continue;
        }
        let Some(domain) = info.label(&constraint.topology_key) else { continue };
        if !eligible(info, pod, constraint) {
            continue;
        }
        let here = info.pods.values().filter(|other| {
            let other = &other.pod;
            other.metadata.namespace == pod.metadata.namespace
                && !other.metadata.is_deleting()
                && counts(other)
        });
        let here = i64::try_from(here.count()).unwrap_or(i64::MAX);
        *domains.entry(domain.to_owned()).or_insert(0) += here;
    }
    let below_min_domains =
        constraint.min_domains.is_some_and(|min| i64::try_from(domains.len()).unwrap_or(i64::MAX) < min);
    ConstraintCounts {
        key: constraint.topology_key.clone(),
        max_skew: constraint.max_skew.max(1),
        hard,
        self_match: i64::from(matches(pod)),
        min: if below_min_domains { 0 } else { domains.values().copied().min().unwrap_or(0) },
        domains,
    }
}

fn is_hard(constraint: &TopologySpreadConstraint) -> bool {
    constraint.when_unsatisfiable != "ScheduleAnyway"
}

/// Whether the pods of this node count. By default a node must match the pod's node affinity, and its taints are
/// ignored.
fn eligible(info: &NodeInfo, pod: &Pod, constraint: &TopologySpreadConstraint) -> bool {
    let affinity = constraint.node_affinity_policy.as_deref() == Some("Ignore")
        || filter::node_affinity(&info.node, pod);
    let untolerated = |taint| !filter::tolerated(taint, pod);
    let taints = constraint.node_taints_policy.as_deref() != Some("Honor")
        || !info.node.spec.taints.iter().filter(|taint| taint.effect != "PreferNoSchedule").any(untolerated);
    affinity && taints
}
