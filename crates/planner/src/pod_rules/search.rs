//! Exhaustive placement of a gang with rules, within a budget.
//!
//! Pods are placed one by one. Pods of a set are equal: once a node was tried for one of them, it is not tried for the
//! next ones. Nodes of one kind without pods of the gang are equal: one of them is tried.

use super::fit::holds;
use super::place::PartialPlacement;
use crate::search::SearchResult;

/// The number of checks of a pod on a node.
const BUDGET: u32 = 400_000;

/// Gangs with more pods are not searched.
const PODS_MAX: u32 = 256;

struct Search<'a, 'p, F> {
    placement: PartialPlacement<'a>,
    order: &'p [usize],
    is_allowed: F,
    breaks_reservations: bool,
    budget: u32,
}

/// Searches a placement with pod sets in this order. `is_allowed` says whether a placement keeps the aggregate
/// reservations and the topology request.
pub(super) fn search(
    empty: PartialPlacement<'_>,
    order: &[usize],
    is_allowed: impl Fn(&PartialPlacement<'_>) -> bool,
) -> SearchResult {
    let sets = &empty.rules.shape.pod_sets;
    let pods = sets.iter().fold(0_u32, |sum, set| sum.saturating_add(set.count));
    if pods > PODS_MAX {
        return SearchResult::BudgetExceeded;
    }
    let nodes = empty.nodes.len();
    let first = order.first().map_or(0, |set| sets[*set].count);
    let mut search =
        Search { placement: empty, order, is_allowed, breaks_reservations: false, budget: BUDGET };
    if search.descend(0, first, &mut vec![false; nodes]) {
        return SearchResult::Placed(search.placement.placement());
    }
    match (search.breaks_reservations, search.budget) {
        (_, 0) => SearchResult::BudgetExceeded,
        (true, _) => SearchResult::Reserved,
        (false, _) => SearchResult::Exhausted,
    }
}

impl<F: Fn(&PartialPlacement<'_>) -> bool> Search<'_, '_, F> {
    /// Places `left` further pods of the set at `depth`, then the sets after it. `closed` are the nodes that were tried
    /// for this set.
    fn descend(&mut self, depth: usize, left: u32, closed: &mut [bool]) -> bool {
        let Some(&set) = self.order.get(depth) else {
            let holds = holds(&self.placement);
            let done = holds && (self.is_allowed)(&self.placement);
            self.breaks_reservations |= holds && !done;
            return done;
        };
        if left == 0 {
            let next = self.order.get(depth + 1);
            let count = next.map_or(0, |set| self.placement.rules.shape.pod_sets[*set].count);
            return self.descend(depth + 1, count, &mut vec![false; closed.len()]);
        }
        let mut tried: Vec<usize> = Vec::new();
        let mut is_found = false;
        for at in 0..closed.len() {
            if closed[at] {
                continue;
            }
            if self.budget == 0 {
                break;
            }
            self.budget -= 1;
            if !self.placement.may_place(at, set) {
                continue;
            }
            self.placement.change(at, set, true);
            is_found = self.descend(depth, left - 1, closed);
            if is_found {
                break;
            }
            self.placement.change(at, set, false);
            self.close(at, closed, &mut tried);
        }
        for at in tried {
            closed[at] = false;
        }
        is_found
    }

    /// Closes a node, and the nodes that equal it.
    fn close(&self, at: usize, closed: &mut [bool], tried: &mut Vec<usize>) {
        let PartialPlacement { nodes, loads, .. } = &self.placement;
        let equals = |other: usize| {
            other == at
                || (loads[at].is_empty() && loads[other].is_empty() && nodes[other].kind == nodes[at].kind)
        };
        for other in (0..closed.len()).filter(|other| !closed[*other] && equals(*other)).collect::<Vec<_>>() {
            closed[other] = true;
            tried.push(other);
        }
    }
}
