//! Node eligibility, and a simple first fit that proves that a gang fits.

use std::collections::{BTreeMap, BTreeSet};

use model::{
    Amount, Assignment, Constraints, Effect, Gang, Node, Operator, Places, PodSet, QueueIx, QuotaIx,
    Requirement, ResourceVec, TolerationOperator,
};

use crate::cluster_state::{ClusterState, all_nodes, charges};
use crate::node_resources::FreeResources;
use crate::quota::{Flavors, with_flavors};
use crate::{pod_rules, topology};

/// Everything that decides whether a gang fits. Gangs with equal values fit alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EquivalenceClass<'a> {
    pod_sets: &'a [PodSet],
    declared: Option<&'a ResourceVec>,
    queue: QueueIx,
    charges: &'a [QuotaIx],
    excluded: &'a BTreeSet<String>,
    places: Places,
}

impl<'a> EquivalenceClass<'a> {
    pub(crate) fn of(gang: &'a Gang) -> Self {
        Self {
            pod_sets: &gang.pod_sets,
            declared: gang.declared.as_ref(),
            queue: gang.queue,
            charges: &gang.charges,
            excluded: &gang.excluded,
            places: gang.places,
        }
    }
}

/// Whether a pod with these constraints may be placed on the node now.
pub(crate) fn is_eligible(node: &Node, constraints: &Constraints) -> bool {
    node.ready && !node.unschedulable && matches_constraints(node, constraints)
}

/// Whether a pod with these constraints may be placed on the node once it is ready and not cordoned.
pub(crate) fn matches_constraints(node: &Node, constraints: &Constraints) -> bool {
    let label = |key: &str| node.labels.get(key).map(String::as_str);
    let matches_selector = constraints.node_selector.iter().all(|(key, value)| label(key) == Some(value));
    let terms = &constraints.node_affinity;
    let matches_affinity = terms.is_empty()
        || terms.iter().any(|term| {
            term.expressions.len() + term.fields.len() > 0
                && term.expressions.iter().all(|wanted| matches_requirement(wanted, label(&wanted.key)))
                && term.fields.iter().all(|wanted| {
                    wanted.key == "metadata.name" && matches_requirement(wanted, Some(&node.name))
                })
        });
    let tolerated =
        node.taints.iter().filter(|taint| taint.effect != Effect::PreferNoSchedule).all(|taint| {
            constraints.tolerations.iter().any(|toleration| {
                let matches_effect = toleration.effect.is_none() || toleration.effect == Some(taint.effect);
                let matches_key = match (toleration.operator, &toleration.key) {
                    (TolerationOperator::Exists, None) => true,
                    (TolerationOperator::Exists, Some(key)) => *key == taint.key,
                    (TolerationOperator::Equal, None) => false,
                    (TolerationOperator::Equal, Some(key)) => {
                        *key == taint.key && toleration.value == taint.value
                    }
                };
                matches_effect && matches_key
            })
        });
    matches_selector && matches_affinity && tolerated
}

fn matches_requirement(wanted: &Requirement, value: Option<&str>) -> bool {
    let listed = value.is_some_and(|value| wanted.values.iter().any(|one| one == value));
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<i64>().ok());
    let bound =
        if wanted.values.len() == 1 { number(wanted.values.first().map(String::as_str)) } else { None };
    match wanted.operator {
        Operator::In => listed,
        Operator::NotIn => !listed,
        Operator::Exists => value.is_some(),
        Operator::DoesNotExist => value.is_none(),
        Operator::Gt => matches!((number(value), bound), (Some(value), Some(bound)) if value > bound),
        Operator::Lt => matches!((number(value), bound), (Some(value), Some(bound)) if value < bound),
    }
}

/// A placement of the gang with the flavors that quota allows now: see [`first_fit_on_nodes`].
pub(crate) fn first_fit(cluster: &ClusterState<'_>, gang: &Gang) -> Option<Assignment> {
    cluster
        .quotas
        .combinations(gang)
        .into_iter()
        .find_map(|flavors| first_fit_with_flavors(cluster, gang, flavors))
}

/// A placement of the gang with these flavors. Quota is not checked.
pub(crate) fn first_fit_with_flavors(
    cluster: &ClusterState<'_>,
    gang: &Gang,
    flavors: Flavors,
) -> Option<Assignment> {
    let with_flavors = with_flavors(cluster.world(), gang, &flavors);
    let mut found = first_fit_on_nodes(cluster, &with_flavors)?;
    found.flavors = flavors;
    let unplaced = |at: usize| gang.pod_sets[at].count - with_flavors.pod_sets[at].count;
    found.unplaced = (0..gang.pod_sets.len()).map(unplaced).collect();
    if found.unplaced.iter().all(|count| *count == 0) {
        found.unplaced.clear();
    }
    let is_valid = cluster.respects_aggregate_reservations(gang, &found)
        && pod_rules::are_satisfied(cluster, gang, &found);
    is_valid.then_some(found)
}

/// Whether first fit places the gang on nodes, whatever its flavors and quota.
pub(crate) fn fits_on_nodes(cluster: &ClusterState<'_>, gang: &Gang) -> bool {
    first_fit_on_nodes(cluster, gang).is_some_and(|found| {
        cluster.respects_aggregate_reservations(gang, &found)
            && pod_rules::are_satisfied(cluster, gang, &found)
    })
}

/// A placement of the gang, found by first fit: nodes by name in both directions, and pod sets in two orders.
///
/// Returns `None` for device shares of several sizes: whether these fit is a bin packing problem.
fn first_fit_on_nodes(cluster: &ClusterState<'_>, gang: &Gang) -> Option<Assignment> {
    let sizes: BTreeSet<_> = gang.pod_sets.iter().filter_map(|pod_set| pod_set.share).collect();
    if sizes.len() > 1 {
        return None;
    }
    if topology::has_topology_request(gang) {
        if cluster.has_aggregate_reservations() {
            return None; // Topology placement does not consider aggregate reservations.
        }
        let mut candidates = cluster.candidate_nodes();
        candidates.nodes.retain(|node| !gang.excluded.contains(&node.name));
        return topology::first_fit(cluster.world(), &candidates, gang);
    }
    let as_given: Vec<usize> = (0..gang.pod_sets.len()).collect();
    let mut by_size = as_given.clone();
    by_size.sort_by_key(|&at| std::cmp::Reverse(gang.pod_sets[at].request.iter().last()));
    let forwards: Vec<&Node> = cluster.nodes().collect();
    let backwards: Vec<&Node> = forwards.iter().rev().copied().collect();
    let attempts =
        [(&as_given, &forwards), (&by_size, &forwards), (&as_given, &backwards), (&by_size, &backwards)];
    let mut found = attempts.iter().filter_map(|(order, nodes)| place(cluster, gang, order, nodes));
    found.find(|assignment| cluster.respects_aggregate_reservations(gang, assignment))
}

fn place(cluster: &ClusterState<'_>, gang: &Gang, order: &[usize], nodes: &[&Node]) -> Option<Assignment> {
    let mut free: BTreeMap<&str, FreeResources> = BTreeMap::new();
    let mut assignment =
        Assignment { pod_sets: vec![Vec::new(); gang.pod_sets.len()], ..Assignment::default() };
    assignment.devices.resize_with(gang.pod_sets.len(), Vec::new);
    for &at in order {
        let pod_set = &gang.pod_sets[at];
        let mut left = pod_set.count;
        let open =
            |node: &&&Node| is_eligible(node, &pod_set.constraints) && !gang.excluded.contains(&node.name);
        for node in nodes.iter().filter(open) {
            if left == 0 {
                break;
            }
            let free = free.entry(&node.name).or_insert_with(|| cluster.free(&node.name));
            let (here, devices) = free.place(pod_set, left);
            if here > 0 {
                assignment.pod_sets[at].push((node.name.clone(), here));
                let named = devices.into_iter().map(|(number, here)| (node.name.clone(), number, here));
                assignment.devices[at].extend(named);
                left -= here;
            }
        }
        if left > 0 {
            return None;
        }
    }
    for places in &mut assignment.pod_sets {
        places.sort();
    }
    Some(assignment)
}

/// Whether a gang may fit beside other assignments, with the flavors that quota allows now. This is a necessary
/// condition: each pod set fits when it has all nodes to itself.
pub(crate) fn could_fit(cluster: &ClusterState<'_>, gang: &Gang, beside: &[(&Gang, &Assignment)]) -> bool {
    let combinations = cluster.quotas.combinations(gang);
    combinations
        .iter()
        .any(|flavors| could_place(cluster, &with_flavors(cluster.world(), gang, flavors), beside))
}

pub(crate) fn could_place(cluster: &ClusterState<'_>, gang: &Gang, beside: &[(&Gang, &Assignment)]) -> bool {
    let mut free: BTreeMap<&str, FreeResources> =
        cluster.nodes().map(|node| (node.name.as_str(), cluster.free(&node.name))).collect();
    for (other, assignment) in beside {
        for (node, usage) in charges(other, assignment) {
            if let Some(free) = free.get_mut(node.as_str()) {
                free.apply(&usage, 1);
            }
        }
    }
    gang.pod_sets.iter().all(|pod_set| {
        let open =
            |node: &&Node| is_eligible(node, &pod_set.constraints) && !gang.excluded.contains(&node.name);
        let nodes = cluster.nodes().filter(open);
        let free = nodes.filter_map(|node| free.get(node.name.as_str()));
        free.map(|free| u64::from(free.clone().place(pod_set, pod_set.count).0)).sum::<u64>()
            >= u64::from(pod_set.count)
    })
}

/// Whether first fit places the gang when nothing runs, no quota is used and all nodes are ready. This is a
/// sufficient condition.
pub(crate) fn would_fit_when_empty(cluster: &ClusterState<'_>, gang: &Gang) -> bool {
    let combinations = cluster.quotas.combinations_when_empty(gang);
    !pod_rules::has_rules(gang)
        && combinations
            .iter()
            .any(|flavors| would_place_when_empty(cluster, &with_flavors(cluster.world(), gang, flavors)))
}

fn would_place_when_empty(cluster: &ClusterState<'_>, gang: &Gang) -> bool {
    if topology::has_topology_request(gang)
        && topology::first_fit(cluster.world(), &cluster.empty_candidate_nodes(), gang).is_none()
    {
        return false;
    }
    let mut free: BTreeMap<&str, FreeResources> = BTreeMap::new();
    for pod_set in &*gang.pod_sets {
        let mut left = pod_set.count;
        for node in cluster.nodes().filter(|node| matches_constraints(node, &pod_set.constraints)) {
            if left == 0 {
                break;
            }
            let free = free.entry(&node.name).or_insert_with(|| FreeResources::of(&node.allocatable));
            left -= free.place(pod_set, left).0;
        }
        if left > 0 {
            return false;
        }
    }
    let Some(declared) = &gang.declared else { return true };
    declared.iter().all(|(ix, amount)| {
        let mut sets = gang.pod_sets.iter().filter(|pod_set| pod_set.count > 0).peekable();
        let any = sets.peek().is_none();
        let sets: Vec<_> = sets.collect();
        let eligible = all_nodes(cluster)
            .filter(|node| any || sets.iter().any(|set| matches_constraints(node, &set.constraints)));
        let supply: i128 = eligible.map(|node| i128::from(node.allocatable.get(ix).0.max(0))).sum();
        amount != Amount::MAX && i128::from(amount.0) <= supply
    })
}
