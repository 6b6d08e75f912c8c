//! Placement of gangs whose pods have rules between pods, or are concerned by rules of other pods: inter-pod affinity
//! and anti-affinity, topology spread constraints and host ports. `docs/planner/rules.md` describes it.
//!
//! Gangs without rules are not placed here. For the others, nodes are told apart by all that their rules depend on
//! (`node`), pods are placed one by one (`place`), and if that fails, exhaustively within a budget (`search`).
//! `constraint` resolves the rules and counts the pods of the cluster, `fit` judges a complete placement, `explain`
//! tells why too few pods fit, and `ledger` holds the pods that the cycle adds.

mod constraint;
mod explain;
mod fit;
mod ledger;
mod node;
mod place;
mod search;

use std::collections::BTreeMap;

use model::{
    Assignment, Basis, Cause, FreeResources, NodeIx, PodSet, QueueingHint, SearchOutcome, Shape,
    TopologyMode, TopologyShortage, World,
};

use crate::aggregate_reservations::AggregateReservations;
use crate::candidates::CandidateNodes;
use crate::ledger::Ledger;
use crate::place::Placement;
use crate::request::Refusal;
use crate::score::{PodSetOrder, Scale};
use crate::search::SearchResult;
use crate::topology;
use constraint::Rules;
pub(crate) use explain::permanent_causes;
pub(crate) use ledger::PodMarkChanges;
use node::CandidateNodesOneByOne;
use place::{Focus, PartialPlacement};

/// Whether a pod set has rules, or a rule may concern it.
pub(crate) fn may_concern(shape: &Shape) -> bool {
    shape.pod_sets.iter().any(|pod_set| pod_set.rules.is_some())
}

/// A placement that satisfies the rules, or the causes and the queueing hint; none if no rule concerns the gang.
pub(crate) fn place(
    ledger: &Ledger<'_>,
    shape: &Shape,
    requested: &Shape,
    node_sets: &AggregateReservations,
    candidates: &CandidateNodes<'_>,
) -> Option<Result<Placement, Refusal>> {
    let mut rules = Rules::of(ledger.world, Some(ledger), shape, requested)?;
    for level in shape.pod_sets.iter().filter_map(required_level) {
        rules.domains_of(level);
    }
    let nodes = CandidateNodesOneByOne::of(ledger, &mut rules, candidates);
    Some(place_on(&rules, &nodes, candidates, node_sets))
}

/// The label key of the topology level of which one domain must hold all pods of a set.
fn required_level(pod_set: &PodSet) -> Option<&str> {
    match &pod_set.topology.as_ref()?.mode {
        TopologyMode::Required(level) => Some(level),
        TopologyMode::Preferred(_) | TopologyMode::Unconstrained => None,
    }
}

fn place_on(
    rules: &Rules<'_>,
    nodes: &CandidateNodesOneByOne<'_>,
    candidates: &CandidateNodes<'_>,
    node_sets: &AggregateReservations,
) -> Result<Placement, Refusal> {
    let short = explain::short_sets(rules, nodes, Basis::Free);
    if !short.is_empty() {
        return Err((short, QueueingHint::PodRulesChange));
    }
    let is_allowed = |placement: &PartialPlacement<'_>| {
        node_sets.allow(&rules.shape.pod_sets, &placement.placement())
            && (!topology::is_requested(rules.shape)
                || topology::is_satisfied(rules.world, rules.shape, &placement.assignment()))
    };
    let scale = Scale::of(candidates);
    let by_slack = place::order(rules, candidates, &scale, PodSetOrder::LeastSlackFirst);
    let by_size = place::order(rules, candidates, &scale, PodSetOrder::LargestFirst);
    let focuses = place::focuses(rules, &nodes.nodes);
    let mut best: Option<Attempt<'_>> = None;
    for order in [&by_slack, &by_size] {
        for focus in std::iter::once(None).chain(focuses.iter().map(Some)) {
            match place::attempt(rules, &nodes.nodes, candidates, &scale, order, focus) {
                Ok(placement) if fit::holds(&placement) && is_allowed(&placement) => {
                    return Ok(placement.placement());
                }
                Err((set, room)) if best.as_ref().is_none_or(|best| room > best.room) => {
                    best = Some(Attempt { set, room, focus });
                }
                Ok(_) | Err(_) => {}
            }
        }
    }
    let empty = PartialPlacement::empty(rules, &nodes.nodes);
    let (outcome, hint) = match search::search(empty, &by_slack, is_allowed) {
        SearchResult::Placed(placement) => return Ok(placement),
        SearchResult::Exhausted => (SearchOutcome::Exhausted, QueueingHint::PodRulesChange),
        SearchResult::Reserved if topology::is_requested(rules.shape) => {
            (SearchOutcome::Exhausted, QueueingHint::AnyChange)
        }
        SearchResult::Reserved => (SearchOutcome::Reserved, QueueingHint::AnyChange),
        SearchResult::BudgetExceeded => (SearchOutcome::BudgetExceeded, QueueingHint::AnyChange),
    };
    Err((vec![cause(rules, nodes, outcome, best)], hint))
}

/// A placement that failed: the pod set that did not fit, and how many of its pods did.
struct Attempt<'f> {
    set: usize,
    room: u32,
    focus: Option<&'f Focus>,
}

/// Why the pods do not fit together, or the pods of the only set do not.
fn cause(
    rules: &Rules<'_>,
    nodes: &CandidateNodesOneByOne<'_>,
    search: SearchOutcome,
    best: Option<Attempt<'_>>,
) -> Cause {
    let sets = rules.shape.pod_sets.iter().filter(|pod_set| pod_set.count > 0);
    let pod_sets: Vec<String> = sets.map(|pod_set| pod_set.name.clone()).collect();
    let only = rules.shape.pod_sets.iter().position(|pod_set| pod_set.count > 0);
    let Some(set) = only.filter(|_| pod_sets.len() == 1 && search != SearchOutcome::Reserved) else {
        return Cause::Together { pod_sets, search };
    };
    let best = best.filter(|best| best.set == set);
    let topology = best.as_ref().and_then(|best| in_one_domain(rules, best));
    topology.unwrap_or_else(|| explain::unplaced(rules, nodes, set, best.map_or(0, |best| best.room)))
}

/// The cause that no domain of the required topology level has room, if the best attempt was in such a domain.
fn in_one_domain(rules: &Rules<'_>, best: &Attempt<'_>) -> Option<Cause> {
    let pod_set = &rules.shape.pod_sets[best.set];
    let focus = best.focus?;
    let domains = &rules.domains[focus.key];
    let level = required_level(pod_set).filter(|level| *level == domains.key)?;
    Some(Cause::Topology(TopologyShortage {
        pod_set: pod_set.name.clone(),
        leader: None,
        count: pod_set.count,
        room: best.room,
        within: Some((level.to_owned(), Some(domains.values[focus.domain].clone()))),
        slices: Vec::new(),
        basis: Basis::Free,
    }))
}

/// Whether an assignment satisfies the rules, beside all other pods in the ledger.
pub(crate) fn is_satisfied(
    ledger: &Ledger<'_>,
    shape: &Shape,
    requested: &Shape,
    assignment: &Assignment,
) -> bool {
    let Some(mut rules) = Rules::of(ledger.world, Some(ledger), shape, requested) else { return true };
    let world: &World = ledger.world;
    let used: BTreeMap<NodeIx, &FreeResources> = assignment
        .nodes()
        .filter_map(|name| world.node_ix(name))
        .map(|node| (node, ledger.free_on(node)))
        .collect();
    let used = used.into_iter().filter_map(|(node, free)| Some((node, world.class_of(node)?, free)));
    let nodes = CandidateNodesOneByOne::these(Some(ledger), &mut rules, used);
    let by_node: BTreeMap<NodeIx, usize> =
        nodes.nodes.iter().enumerate().map(|(at, node)| (node.node, at)).collect();
    let mut placement = PartialPlacement::empty(&rules, &nodes.nodes);
    for (set, places) in assignment.pod_sets.iter().enumerate() {
        for (name, count) in places {
            let Some(at) = world.node_ix(name).and_then(|node| by_node.get(&node)) else { return false };
            for _ in 0..*count {
                if !placement.may_place(*at, set) {
                    return false;
                }
                placement.change(*at, set, true);
            }
        }
    }
    fit::holds(&placement)
}
