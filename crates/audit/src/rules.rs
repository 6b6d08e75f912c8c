//! Which node may take which pod, and a plain first fit as a witness.

use std::collections::{BTreeMap, BTreeSet};

use model::{
    Amount, Assignment, Constraints, Effect, Gang, Node, Operator, PodSet, QueueIx, QuotaIx, Requirement,
    ResourceVec, TolerationOperator,
};

use crate::books::{Books, all_nodes, charges};
use crate::node_resources::Room;
use crate::quota::{Flavors, narrowed};
use crate::topology;

/// What decides whether a gang fits; equal needs fit alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Need<'a> {
    pod_sets: &'a [PodSet],
    declared: Option<&'a ResourceVec>,
    queue: QueueIx,
    charges: &'a [QuotaIx],
    excluded: &'a BTreeSet<String>,
}

impl<'a> Need<'a> {
    pub(crate) fn of(gang: &'a Gang) -> Self {
        Self {
            pod_sets: &gang.pod_sets,
            declared: gang.declared.as_ref(),
            queue: gang.queue,
            charges: &gang.charges,
            excluded: &gang.excluded,
        }
    }
}

/// Whether a node may take a pod with these constraints now.
pub(crate) fn may_take(node: &Node, constraints: &Constraints) -> bool {
    node.ready && !node.unschedulable && suits(node, constraints)
}

/// Whether a node may take a pod with these constraints once it is ready and not cordoned.
pub(crate) fn suits(node: &Node, constraints: &Constraints) -> bool {
    let label = |key: &str| node.labels.get(key).map(String::as_str);
    let selected = constraints.node_selector.iter().all(|(key, value)| label(key) == Some(value));
    let terms = &constraints.node_affinity;
    let attracted = terms.is_empty()
        || terms.iter().any(|term| {
            term.expressions.len() + term.fields.len() > 0
                && term.expressions.iter().all(|wanted| holds(wanted, label(&wanted.key)))
                && term
                    .fields
                    .iter()
                    .all(|wanted| wanted.key == "metadata.name" && holds(wanted, Some(&node.name)))
        });
    let tolerated =
        node.taints.iter().filter(|taint| taint.effect != Effect::PreferNoSchedule).all(|taint| {
            constraints.tolerations.iter().any(|toleration| {
                let same_effect = toleration.effect.is_none() || toleration.effect == Some(taint.effect);
                let same = match (toleration.operator, &toleration.key) {
                    (TolerationOperator::Exists, None) => true,
                    (TolerationOperator::Exists, Some(key)) => *key == taint.key,
                    (TolerationOperator::Equal, None) => false,
                    (TolerationOperator::Equal, Some(key)) => {
                        *key == taint.key && toleration.value == taint.value
                    }
                };
                same_effect && same
            })
        });
    selected && attracted && tolerated
}

fn holds(wanted: &Requirement, value: Option<&str>) -> bool {
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

/// Where a gang fits now, with the flavors that quota allows it: see [`first_places`].
pub(crate) fn first_fit(books: &Books<'_>, gang: &Gang) -> Option<Assignment> {
    books.quotas.combinations(gang).into_iter().find_map(|flavors| room_for(books, gang, flavors))
}

/// Where a gang's pods have room with these flavors, whatever quota says.
pub(crate) fn room_for(books: &Books<'_>, gang: &Gang, flavors: Flavors) -> Option<Assignment> {
    let narrowed = narrowed(books.world(), gang, &flavors);
    let mut found = first_places(books, &narrowed)?;
    found.flavors = flavors;
    books.keeps_promises(gang, &found).then_some(found)
}

/// Where a gang's pods have room now, found by filling the nodes one after the other: by name forwards and backwards, with
/// the pod sets in two orders.
///
/// Shares of several sizes are not tried: whether they fit is a question of packing, which has no plain answer.
fn first_places(books: &Books<'_>, gang: &Gang) -> Option<Assignment> {
    let sizes: BTreeSet<_> = gang.pod_sets.iter().filter_map(|pod_set| pod_set.share).collect();
    if sizes.len() > 1 {
        return None;
    }
    if topology::is_asked(gang) {
        if books.holds_promises() {
            return None; // Which domain leaves promises alone is not looked for, so nothing is claimed.
        }
        let mut ground = books.ground();
        ground.nodes.retain(|node| !gang.excluded.contains(&node.name));
        return topology::witness(books.world(), &ground, gang);
    }
    let as_given: Vec<usize> = (0..gang.pod_sets.len()).collect();
    let mut by_size = as_given.clone();
    by_size.sort_by_key(|&at| std::cmp::Reverse(gang.pod_sets[at].request.iter().last()));
    let forwards: Vec<&Node> = books.nodes().collect();
    let backwards: Vec<&Node> = forwards.iter().rev().copied().collect();
    let ways =
        [(&as_given, &forwards), (&by_size, &forwards), (&as_given, &backwards), (&by_size, &backwards)];
    let mut found = ways.iter().filter_map(|(order, nodes)| place(books, gang, order, nodes));
    found.find(|assignment| books.keeps_promises(gang, assignment))
}

fn place(books: &Books<'_>, gang: &Gang, order: &[usize], nodes: &[&Node]) -> Option<Assignment> {
    let mut free: BTreeMap<&str, Room> = BTreeMap::new();
    let mut assignment =
        Assignment { pod_sets: vec![Vec::new(); gang.pod_sets.len()], ..Assignment::default() };
    assignment.devices.resize_with(gang.pod_sets.len(), Vec::new);
    for &at in order {
        let pod_set = &gang.pod_sets[at];
        let mut left = pod_set.count;
        let open =
            |node: &&&Node| may_take(node, &pod_set.constraints) && !gang.excluded.contains(&node.name);
        for node in nodes.iter().filter(open) {
            if left == 0 {
                break;
            }
            let room = free.entry(&node.name).or_insert_with(|| books.free(&node.name));
            let (here, devices) = room.put(pod_set, left);
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

/// Whether a gang could fit beside others with the flavors that quota allows it now, as far as a bound tells: each pod set
/// has room if it had the nodes to itself.
pub(crate) fn could_fit(books: &Books<'_>, gang: &Gang, beside: &[(&Gang, &Assignment)]) -> bool {
    let combinations = books.quotas.combinations(gang);
    combinations.iter().any(|flavors| could_place(books, &narrowed(books.world(), gang, flavors), beside))
}

fn could_place(books: &Books<'_>, gang: &Gang, beside: &[(&Gang, &Assignment)]) -> bool {
    let mut free: BTreeMap<&str, Room> =
        books.nodes().map(|node| (node.name.as_str(), books.free(&node.name))).collect();
    for (other, assignment) in beside {
        for (node, take) in charges(other, assignment) {
            if let Some(room) = free.get_mut(node.as_str()) {
                room.turn(&take, 1);
            }
        }
    }
    gang.pod_sets.iter().all(|pod_set| {
        let open = |node: &&Node| may_take(node, &pod_set.constraints) && !gang.excluded.contains(&node.name);
        let nodes = books.nodes().filter(open);
        let room = nodes.filter_map(|node| free.get(node.name.as_str()));
        room.map(|room| u64::from(room.clone().put(pod_set, pod_set.count).0)).sum::<u64>()
            >= u64::from(pod_set.count)
    })
}

/// Whether a gang fits as if nothing ran, no quota were used and all nodes were ready: again by first fit, so this is sure
/// when it says yes.
pub(crate) fn would_fit_when_empty(books: &Books<'_>, gang: &Gang) -> bool {
    let combinations = books.quotas.combinations_when_empty(gang);
    combinations.iter().any(|flavors| would_place_when_empty(books, &narrowed(books.world(), gang, flavors)))
}

fn would_place_when_empty(books: &Books<'_>, gang: &Gang) -> bool {
    if topology::is_asked(gang) && topology::witness(books.world(), &books.empty_ground(), gang).is_none() {
        return false;
    }
    let mut free: BTreeMap<&str, Room> = BTreeMap::new();
    for pod_set in &*gang.pod_sets {
        let mut left = pod_set.count;
        for node in books.nodes().filter(|node| suits(node, &pod_set.constraints)) {
            if left == 0 {
                break;
            }
            let room = free.entry(&node.name).or_insert_with(|| Room::of(&node.allocatable));
            left -= room.put(pod_set, left).0;
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
        let eligible =
            all_nodes(books).filter(|node| any || sets.iter().any(|set| suits(node, &set.constraints)));
        let supply: i128 = eligible.map(|node| i128::from(node.allocatable.get(ix).0.max(0))).sum();
        amount != Amount::MAX && i128::from(amount.0) <= supply
    })
}
