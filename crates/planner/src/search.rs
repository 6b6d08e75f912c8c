//! Exhaustive placement within a budget.
//!
//! The search enumerates, node by node, every maximal load of unplaced pods. A load that leaves room for
//! another pod need not be tried, since that pod could be moved there from any later node. The exception:
//! where keeping aggregate reservations depends on the placement, smaller loads are tried too. Nodes of one
//! group are equivalent, so they take loads in descending order only. Bounds on the capacity of the remaining
//! nodes prune branches.

use model::{FreeResources, Sum};

use crate::candidates::CandidateNodes;
use crate::place::{NodeLoad, Placement, largest_shares_first};

/// The number of loads that are tried.
const BUDGET: u32 = 8_000;

/// The result of a search.
pub(crate) enum SearchResult {
    /// A placement was found.
    Placed(Placement),
    /// No placement exists.
    Exhausted,
    /// All placements that were found violate aggregate reservations.
    Reserved,
    /// The budget ran out.
    BudgetExceeded,
}

/// Searches a placement that keeps the aggregate reservations.
pub(crate) fn search(candidates: &CandidateNodes<'_>) -> SearchResult {
    let mut search = Search {
        candidates,
        order: largest_shares_first(candidates.pod_sets).collect(),
        after: suffixes(candidates),
        budget: BUDGET,
        breaks_reservations: false,
        node_loads: Vec::new(),
    };
    let wanted: Vec<u32> = candidates.pod_sets.iter().map(|pod_set| pod_set.count).collect();
    if search.descend(0, 0, None, &wanted) {
        return SearchResult::Placed(Placement { node_loads: search.node_loads });
    }
    match (search.breaks_reservations, search.budget) {
        (true, _) => SearchResult::Reserved,
        (false, 0) => SearchResult::BudgetExceeded,
        (false, _) => SearchResult::Exhausted,
    }
}

struct Search<'a, 'l> {
    candidates: &'a CandidateNodes<'l>,
    /// The pod sets in the order in which a node is loaded.
    order: Vec<usize>,
    /// An upper bound of what all groups from an index on can hold.
    after: Vec<Suffix>,
    budget: u32,
    breaks_reservations: bool,
    node_loads: Vec<NodeLoad>,
}

#[derive(Clone, Default)]
struct Suffix {
    free: Sum,
    room: Vec<u64>,
}

fn suffixes(candidates: &CandidateNodes<'_>) -> Vec<Suffix> {
    let mut suffix = Suffix { free: Sum::default(), room: vec![0; candidates.pod_sets.len()] };
    let mut suffixes = vec![suffix.clone()];
    for (ix, group) in candidates.groups.iter().enumerate().rev() {
        suffix.free.add_times(&group.free.amounts.positive(), group.nodes);
        for (at, pod_set) in candidates.pod_sets.iter().enumerate() {
            if candidates.is_open(ix, at) {
                let copies = u64::from(pod_set.copies_in(group.free, pod_set.count));
                suffix.room[at] = suffix.room[at].saturating_add(copies * u64::from(group.nodes));
            }
        }
        suffixes.push(suffix.clone());
    }
    suffixes.reverse();
    suffixes
}

impl Search<'_, '_> {
    /// Loads the nodes of group `at`, from number `used` on, with loads below `limit`; then the groups after
    /// it.
    fn descend(&mut self, mut at: usize, mut used: u32, mut limit: Option<&[u32]>, wanted: &[u32]) -> bool {
        if wanted.iter().all(|count| *count == 0) {
            let done = self.candidates.keeps_reservations(&Placement { node_loads: self.node_loads.clone() });
            self.breaks_reservations |= !done;
            return done;
        }
        let (nodes, loads) = loop {
            let Some(group) = self.candidates.groups.get(at) else { return false };
            if used < group.nodes {
                if !self.could_hold(at, used, wanted) {
                    return false;
                }
                let mut load = vec![0; wanted.len()];
                let mut loads = Vec::new();
                self.maximal_loads(at, wanted, 0, group.free, &mut load, &mut loads);
                if loads.iter().any(|load| load.iter().any(|count| *count > 0)) {
                    break (group.nodes - used, loads);
                }
            }
            (at, used, limit) = (at + 1, 0, None);
        };
        for load in loads.iter().filter(|load| limit.is_none_or(|limit| load.as_slice() < limit)) {
            let most =
                load.iter().zip(wanted).filter(|(here, _)| **here > 0).map(|(here, wanted)| wanted / here);
            let most = most.min().unwrap_or(0).min(nodes);
            for alike in (1..=most).rev() {
                if self.budget == 0 {
                    return false;
                }
                self.budget -= 1;
                let rest: Vec<u32> =
                    wanted.iter().zip(load).map(|(wanted, here)| wanted - here * alike).collect();
                self.push(at, load, alike);
                if self.descend(at, used + alike, Some(load), &rest) {
                    return true;
                }
                self.node_loads.pop();
            }
        }
        self.candidates.may_break_reservations() && self.budget > 0 && self.descend(at + 1, 0, None, wanted)
    }

    /// All maximal loads of one node, in descending order. Other loads too where aggregate reservations
    /// require it; see the module.
    fn maximal_loads(
        &mut self,
        group: usize,
        wanted: &[u32],
        depth: usize,
        free: &FreeResources,
        load: &mut Vec<u32>,
        loads: &mut Vec<Vec<u32>>,
    ) {
        let candidates = self.candidates;
        let Some(&set) = self.order.get(depth) else {
            self.budget = self.budget.saturating_sub(1);
            let mut sets = candidates.pod_sets.iter().enumerate();
            let more = sets.any(|(at, pod_set)| {
                load[at] < wanted[at] && candidates.is_open(group, at) && pod_set.fits_in(free)
            });
            if !more || candidates.may_break_reservations() {
                loads.push(load.clone());
            }
            return;
        };
        let pod_set = &candidates.pod_sets[set];
        let open = candidates.is_open(group, set);
        let copies = if open { pod_set.copies_in(free, wanted[set]) } else { 0 };
        for count in (0..=copies).rev() {
            if self.budget == 0 {
                return;
            }
            let mut left = free.clone();
            left.take(pod_set, count);
            load[set] = count;
            self.maximal_loads(group, wanted, depth + 1, &left, load, loads);
        }
        load[set] = 0;
    }

    fn could_hold(&self, at: usize, used: u32, wanted: &[u32]) -> bool {
        let group = &self.candidates.groups[at];
        let (here, later) = (group.nodes - used, &self.after[at + 1]);
        let mut total = Sum::default();
        for (set, pod_set) in self.candidates.pod_sets.iter().enumerate() {
            let mut room = later.room[set];
            if self.candidates.is_open(at, set) {
                let copies = u64::from(pod_set.copies_in(group.free, wanted[set]));
                room = room.saturating_add(copies * u64::from(here));
            }
            if room < u64::from(wanted[set]) {
                return false;
            }
            total.add_times(&pod_set.request, wanted[set]);
        }
        let mut free = later.free.clone();
        free.add_times(&group.free.amounts.positive(), here);
        total.iter().all(|(ix, needed)| needed <= free.get(ix))
    }

    fn push(&mut self, at: usize, load: &[u32], nodes: u32) {
        self.node_loads.push(NodeLoad::on(self.candidates, at, nodes, load.to_vec()));
    }
}
