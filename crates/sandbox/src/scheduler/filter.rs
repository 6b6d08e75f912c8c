//! Filter plugins, in kube-scheduler's order.

use std::collections::BTreeSet;

use super::cache::{NodeInfo, PodInfo};
use super::select_node::CycleState;
use crate::storage::Referenced;
use crate::wire::{Node, Pod, Taint};

/// Why a node was filtered out.
pub(super) struct Rejection {
    pub(super) reasons: Vec<String>,
    /// Whether the removal of pods from the node could help.
    pub(super) resolvable: bool,
}

impl Rejection {
    pub(super) fn new(reason: impl Into<String>, resolvable: bool) -> Self {
        Self { reasons: vec![reason.into()], resolvable }
    }
}

/// Runs the filters. The first one that rejects the node decides.
pub(super) fn check(
    info: &NodeInfo,
    pod: &PodInfo,
    cycle_state: &CycleState,
    objects: &Referenced,
) -> Result<(), Rejection> {
    let (node, wanted) = (&*info.node, &*pod.pod);
    let unschedulable = Taint {
        key: "node.kubernetes.io/unschedulable".to_owned(),
        effect: "NoSchedule".to_owned(),
        ..Taint::default()
    };
    if node.spec.unschedulable && !wanted.spec.tolerations.iter().any(|t| t.tolerates(&unschedulable)) {
        return Err(Rejection::new("node(s) were unschedulable", false));
    }
    let mut taints = node.spec.taints.iter().filter(|taint| taint.effect != "PreferNoSchedule");
    if taints.any(|taint| !tolerated(taint, wanted)) {
        return Err(Rejection::new("node(s) had untolerated taint(s)", false));
    }
    if !node_affinity(node, wanted) {
        return Err(Rejection::new("node(s) didn't match Pod's node affinity/selector", false));
    }
    ports(info, pod)?;
    resources(info, pod)?;
    cycle_state.volumes.restrictions(info, pod)?;
    cycle_state.volumes.check(info, objects)?;
    cycle_state.spread.check(info)?;
    cycle_state.affinity.check(info)
}

pub(super) fn tolerated(taint: &Taint, pod: &Pod) -> bool {
    pod.spec.tolerations.iter().any(|toleration| toleration.tolerates(taint))
}

/// Whether the node matches the node selector and the required node affinity.
pub(super) fn node_affinity(node: &Node, pod: &Pod) -> bool {
    let labels = &node.metadata.labels;
    let required = pod
        .spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref())
        .and_then(|affinity| affinity.required.as_ref());
    pod.spec.node_selector.iter().all(|(key, value)| labels.get(key) == Some(value))
        && required.is_none_or(|required| required.node_selector_terms.iter().any(|term| term.matches(node)))
}

/// The nodes that each term of the required node affinity names; `None`: a term names none. The error is why there can be no node.
pub(super) fn named_nodes(pod: &Pod) -> Result<Option<BTreeSet<&str>>, String> {
    let affinity = pod.spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let terms = affinity.and_then(|affinity| affinity.required.as_ref());
    let Some(terms) = terms.map(|required| &required.node_selector_terms).filter(|terms| !terms.is_empty())
    else {
        return Ok(None);
    };
    let mut named = BTreeSet::new();
    for term in terms {
        let fields = term.match_fields.iter();
        let lists = fields.filter(|field| field.key == "metadata.name" && field.operator == "In");
        let names = lists.map(|field| field.values.iter().map(String::as_str).collect::<BTreeSet<_>>());
        match names.reduce(|one, other| &one & &other) {
            Some(names) => named.extend(names),
            None => return Ok(None),
        }
    }
    if named.is_empty() { Err("pod affinity terms conflict".to_owned()) } else { Ok(Some(named)) }
}

fn ports(info: &NodeInfo, pod: &PodInfo) -> Result<(), Rejection> {
    let any = |address: &str| address == "0.0.0.0";
    for (protocol, address, number) in pod.host_ports() {
        let mut taken = info.pods.values().flat_map(|other| other.host_ports());
        if taken.any(|(p, a, n)| (p, n) == (protocol, number) && (a == address || any(a) || any(address))) {
            return Err(Rejection::new("node(s) didn't have free ports for the requested pod ports", true));
        }
    }
    Ok(())
}

fn resources(info: &NodeInfo, pod: &PodInfo) -> Result<(), Rejection> {
    let mut rejection = Rejection { reasons: Vec::new(), resolvable: true };
    let slots = info.allocatable.get("pods");
    if i64::try_from(info.pods.len() + 1).unwrap_or(i64::MAX).saturating_mul(1000) > slots {
        rejection.reasons.push("Too many pods".to_owned());
    }
    for (name, amount) in pod.request.iter().filter(|(_, amount)| *amount > 0) {
        let allocatable = info.allocatable.get(name);
        if amount > allocatable - info.requested.get(name) {
            rejection.reasons.push(format!("Insufficient {name}"));
            rejection.resolvable &= amount <= allocatable;
        }
    }
    if rejection.reasons.is_empty() { Ok(()) } else { Err(rejection) }
}
