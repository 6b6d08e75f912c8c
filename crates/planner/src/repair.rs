//! Placement by repair, for gangs that the greedy placement misses and the search cannot decide.
//!
//! An unplaced pod goes to the best-fit node. If no node has room, pods of one other set are ejected from a
//! node and become unplaced: those with the least ejection cost, on the node that was changed the longest
//! ago. The ejection cost of a pod set rises each time one of its pods finds no room, so that the ejected
//! sets vary. After the ejection pool of Nagata and Bräysy, "A powerful route minimization heuristic for the
//! vehicle routing problem with time windows", Operations Research Letters 37 (2009).

use model::FreeResources;

use crate::candidates::CandidateNodes;
use crate::place::{NodeLoad, Placement, largest_shares_first};
use crate::score::{NodeScore, PodSetOrder, Scale, ScoreKey, ScoredNode, pod_set_order};

/// The number of times that the free resources of a node are computed.
const BUDGET: u32 = 20_000;

/// With more pods the repair is not tried: the budget allows too few attempts for each node.
const PODS_MAX: u32 = 1_024;

/// With more nodes the repair is not tried. Of equivalent nodes, at most as many count as there are pods.
const NODES_MAX: u32 = 256;

/// A placement that keeps the aggregate reservations, if one is found.
pub(crate) fn repair(candidates: &CandidateNodes<'_>) -> Option<Placement> {
    let mut repair = Repair::of(candidates)?;
    while let Some(set) = repair.unplaced.pop() {
        repair.place_pod(set)?;
    }
    let loaded = repair.bins.into_iter().filter(|bin| bin.load.iter().any(|pods| *pods > 0));
    let node_loads = loaded.map(|bin| NodeLoad::on(candidates, bin.group, 1, bin.load)).collect();
    Some(Placement { node_loads }).filter(|placement| candidates.keeps_reservations(placement))
}

struct Repair<'a, 'l> {
    candidates: &'a CandidateNodes<'l>,
    scale: Scale,
    /// The pod sets in the order in which a node is loaded.
    order: Vec<usize>,
    bins: Vec<Bin>,
    /// The pod sets of the unplaced pods; the last one is placed next.
    unplaced: Vec<usize>,
    /// The cost of ejecting a pod, by pod set.
    ejection_cost: Vec<u64>,
    /// The number of ejections so far.
    step: u64,
    budget: u32,
}

/// One node.
struct Bin {
    group: usize,
    /// Pods by set.
    load: Vec<u32>,
    /// The step of the last ejection from it.
    changed: u64,
}

impl<'a, 'l> Repair<'a, 'l> {
    /// Starts with all pods unplaced, the largest ones next; none when there are too many pods or nodes.
    fn of(candidates: &'a CandidateNodes<'l>) -> Option<Self> {
        let sets = candidates.pod_sets;
        let pods = sets.iter().fold(0_u32, |sum, pod_set| sum.saturating_add(pod_set.count));
        let nodes =
            candidates.groups.iter().fold(0_u32, |sum, group| sum.saturating_add(group.nodes.min(pods)));
        if pods > PODS_MAX || nodes > NODES_MAX {
            return None;
        }
        let bin = |group| Bin { group, load: vec![0; sets.len()], changed: 0 };
        let groups = candidates.groups.iter().enumerate();
        let bins = groups.flat_map(|(ix, group)| (0..group.nodes.min(pods)).map(move |_| bin(ix))).collect();
        let scale = Scale::of(candidates);
        let smallest_first = pod_set_order(candidates, &scale, PodSetOrder::LargestFirst).into_iter().rev();
        let unplaced = smallest_first.flat_map(|at| (0..sets[at].count).map(move |_| at)).collect();
        let (order, ejection_cost) = (largest_shares_first(sets).collect(), vec![1; sets.len()]);
        Some(Self { candidates, scale, order, bins, unplaced, ejection_cost, step: 0, budget: BUDGET })
    }

    /// Places a pod of a set, after ejecting others if necessary; none if that is impossible.
    fn place_pod(&mut self, set: usize) -> Option<()> {
        let place = match self.best_fit(set) {
            Some(place) => place,
            None => self.eject(set)?,
        };
        self.bins[place].load[set] += 1;
        Some(())
    }

    /// The node with room that is fullest after placing a pod of the set.
    fn best_fit(&mut self, set: usize) -> Option<usize> {
        let mut best = None;
        for at in self.open(set) {
            let Some(left) = self.left(at, |other| i64::from(other == set)) else { continue };
            let node = ScoredNode { group: self.bins[at].group, free: &left, is_used: true };
            let pod_set = &self.candidates.pod_sets[set];
            let place = (self.scale.key(NodeScore::MostAllocated, self.candidates, pod_set, &node, 0), at);
            best = Some(best.map_or(place, |best: (ScoreKey, usize)| best.min(place)));
        }
        best.map(|(_, at)| at)
    }

    /// Ejects pods of another set from a node, so that a pod of this set fits there. Returns the node.
    fn eject(&mut self, set: usize) -> Option<usize> {
        self.step += 1;
        self.ejection_cost[set] += 1;
        let mut best: Option<(u64, u64, usize, usize, u32)> = None;
        for at in self.open(set) {
            for other in (0..self.ejection_cost.len()).filter(|other| *other != set) {
                let mut all = 1..=self.bins[at].load[other];
                let enough = |pods: &u32| {
                    let gone = |ix| if ix == other { i64::from(*pods) } else { 0 };
                    self.left(at, |ix| i64::from(ix == set) - gone(ix)).is_some()
                };
                let Some(fewest) = all.find(enough) else { continue };
                let cost = self.ejection_cost[other].saturating_mul(fewest.into());
                let ejection = (cost, self.bins[at].changed, at, other, fewest);
                best = Some(best.map_or(ejection, |best| best.min(ejection)));
            }
        }
        let (_, _, at, other, pods) = best.filter(|_| self.budget > 0)?;
        self.bins[at].load[other] -= pods;
        self.bins[at].changed = self.step;
        self.unplaced.extend((0..pods).map(|_| other));
        Some(at)
    }

    /// The eligible nodes of a pod set that can hold a pod when empty of this gang's pods.
    fn open(&self, set: usize) -> Vec<usize> {
        let CandidateNodes { groups, pod_sets, .. } = self.candidates;
        let is_open =
            |group: usize| self.candidates.is_open(group, set) && pod_sets[set].fits_in(groups[group].free);
        (0..self.bins.len()).filter(|at| is_open(self.bins[*at].group)).collect()
    }

    /// The free resources of a node after its pods of each set change by these numbers; none if they do not
    /// fit.
    fn left(&mut self, at: usize, change: impl Fn(usize) -> i64) -> Option<FreeResources> {
        self.budget = self.budget.checked_sub(1)?;
        let bin = &self.bins[at];
        let mut left = self.candidates.groups[bin.group].free.clone();
        for &set in &self.order {
            let pod_set = &self.candidates.pod_sets[set];
            let pods = u32::try_from(i64::from(bin.load[set]) + change(set)).ok()?;
            if pod_set.copies_in(&left, pods) < pods {
                return None;
            }
            left.take(pod_set, pods);
        }
        Some(left)
    }
}
