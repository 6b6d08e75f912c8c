//! Placement of gangs whose pods have rules between pods, or are concerned by rules of other pods: inter-pod affinity
//! and anti-affinity, topology spread constraints and host ports. `docs/planner/rules.md` describes it.
//!
//! Gangs without rules are not placed here. For the others, nodes are told apart by all that their rules depend on
//! (`node`), pods are placed one by one (`place`), and if that fails, exhaustively within a budget (`search`).
//! `constraint` resolves the rules and counts the pods of the cluster, `fit` judges a complete placement, `explain`
//! tells why too few pods fit, and `ledger` holds the pods that the cycle adds.

mod constraint;
mod domains;
mod explain;
mod fit;
mod ledger;
mod node;
mod place;
mod search;

use std::collections::BTreeMap;

use model::{
    Assignment, Basis, Cause, FreeResources, NodeIx, QueueingHint, SearchOutcome, Shape, TopologyShortage,
    World,
};

use crate::aggregate_reservations::AggregateReservations;
use crate::candidates::CandidateNodes;
use crate::ledger::Ledger;
use crate::place::Placement;
use crate::request::Refusal;
use crate::score::{PodSetOrder, Scale};
use crate::search::SearchResult;
use crate::topology::{self, OneDomain};
use constraint::Rules;
use domains::Focus;
pub(crate) use explain::{depend_on_others, permanent_causes};
pub(crate) use ledger::PodMarkChanges;
use node::CandidateNodesOneByOne;
use place::PartialPlacement;

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
    let (required, preferred) = topology::domains_of(ledger.world, shape);
    for level in required.iter().chain(&preferred).flat_map(|domain| &domain.levels) {
        rules.domains_of(level);
    }
    let nodes = CandidateNodesOneByOne::of(ledger, &mut rules, candidates);
    Some(Greedy::of(&rules, &nodes, candidates, node_sets).place(&required, &preferred))
}

/// Greedy placement; see the module.
struct Greedy<'a, 'c> {
    rules: &'a Rules<'a>,
    nodes: &'a CandidateNodesOneByOne<'a>,
    candidates: &'a CandidateNodes<'c>,
    node_sets: &'a AggregateReservations,
    scale: Scale,
    /// The orders of pod sets to try.
    orders: [Vec<usize>; 2],
}

impl<'a, 'c> Greedy<'a, 'c> {
    fn of(
        rules: &'a Rules<'a>,
        nodes: &'a CandidateNodesOneByOne<'a>,
        candidates: &'a CandidateNodes<'c>,
        node_sets: &'a AggregateReservations,
    ) -> Self {
        let scale = Scale::of(candidates);
        let order = |by| place::order(rules, candidates, &scale, by);
        let orders = [order(PodSetOrder::LeastSlackFirst), order(PodSetOrder::LargestFirst)];
        Self { rules, nodes, candidates, node_sets, scale, orders }
    }

    /// Whether a placement keeps the aggregate reservations and the topology request.
    fn is_allowed(&self, placement: &PartialPlacement<'_>, narrowed: &[OneDomain]) -> bool {
        let Rules { world, shape, .. } = *self.rules;
        self.node_sets.allow(&shape.pod_sets, &placement.placement())
            && (!topology::is_requested(shape)
                || topology::is_satisfied(world, shape, &placement.assignment(), narrowed))
    }

    /// A placement of the gang with these required and preferred domains.
    fn place(&self, required: &[OneDomain], preferred: &[OneDomain]) -> Result<Placement, Refusal> {
        let (rules, nodes) = (self.rules, self.nodes);
        let short = explain::short_sets(rules, nodes, Basis::Free);
        if !short.is_empty() {
            return Err((short, QueueingHint::PodRulesChange));
        }
        let focuses = domains::focuses(rules, &nodes.nodes, required);
        if let Some(placement) = self.narrowed(&focuses, preferred) {
            return Ok(placement);
        }
        let best = match self.attempts(&focuses, &[], &[]) {
            Ok(placement) => return Ok(placement),
            Err(best) => best,
        };
        let empty = PartialPlacement::empty(rules, &nodes.nodes);
        let is_allowed = |placement: &PartialPlacement<'_>| self.is_allowed(placement, &[]);
        let (outcome, hint) = match search::search(empty, &self.orders[0], is_allowed) {
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

    /// A placement with the pod sets of preferred levels in one domain each, one after the other in the narrowest domain
    /// that attempts find; none if they find no such domain for any.
    fn narrowed(&self, focuses: &[Focus], preferred: &[OneDomain]) -> Option<Placement> {
        let (mut placement, mut narrowed, mut chosen) = (None, Vec::new(), Vec::new());
        for unit in preferred {
            let found = unit.widening().find_map(|domain| {
                narrowed.push(domain.clone());
                let within = domains::focuses_within(self.rules, &self.nodes.nodes, &domain).into_iter();
                let found = within.into_iter().find_map(|focus| {
                    chosen.push(focus);
                    let found = self.attempts(focuses, &chosen, &narrowed).ok();
                    if found.is_none() {
                        chosen.pop();
                    }
                    found
                });
                if found.is_none() {
                    narrowed.pop();
                }
                found
            });
            placement = found.or(placement);
        }
        placement
    }

    /// The first placement of all attempts that holds, in the `chosen` domains; else the attempt that placed the most pods.
    fn attempts<'f>(
        &self,
        focuses: &'f [Focus],
        chosen: &[Focus],
        narrowed: &[OneDomain],
    ) -> Result<Placement, Option<Attempt<'f>>> {
        let mut best: Option<Attempt<'f>> = None;
        for order in &self.orders {
            for focus in std::iter::once(None).chain(focuses.iter().map(Some)) {
                let within: Vec<&Focus> = chosen.iter().chain(focus).collect();
                match place::attempt(
                    self.rules,
                    &self.nodes.nodes,
                    self.candidates,
                    &self.scale,
                    order,
                    &within,
                ) {
                    Ok(placement) if fit::holds(&placement) && self.is_allowed(&placement, narrowed) => {
                        return Ok(placement.placement());
                    }
                    Err((set, room)) if best.as_ref().is_none_or(|best| room > best.room) => {
                        best = Some(Attempt { set, room, focus });
                    }
                    Ok(_) | Err(_) => {}
                }
            }
        }
        Err(best)
    }
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
    let focus = best.focus.filter(|focus| focus.is_level)?;
    let of = |(key, domain): &(usize, usize)| rules.domains[*key].values[*domain].clone();
    let path: Vec<String> = focus.path.iter().map(of).collect();
    let level = focus.path.last().map(|(key, _)| rules.domains[*key].key.clone())?;
    Some(Cause::Topology(TopologyShortage {
        pod_set: pod_set.name.clone(),
        leader: None,
        count: pod_set.count,
        room: best.room,
        within: Some((level, Some(path.join("/")))),
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
