//! Pods to nodes by repair, for what rules of thumb miss and a search cannot decide.
//!
//! A pod without a place goes to the node that it fills best. Where none has room, pods of one other set have to leave a
//! node for it, and look for a place in turn: those that are turned out at the least cost, on the node that was
//! changed the longest ago. Each time pods of a set find no room it becomes dearer to turn them out, so that not always the
//! same ones have to go. After the ejection node_set of Nagata and Bräysy, "A powerful route minimization heuristic for the
//! vehicle routing problem with time windows", Operations Research Letters 37 (2009).

use model::Room;

use crate::candidates::CandidateNodes;
use crate::place::{Placement, Stack, turns_of_shares};
use crate::score::{Candidate, NodeScore, Rank, Scale, Turn, turns};

/// How many times it is worked out what a node has left, before the repair is given up.
const BUDGET: u32 = 20_000;

/// With more pods than these it is not begun: each node would be tried too few times.
const PODS: u32 = 1_024;

/// With more nodes than these it is not begun either. Of nodes that are alike no more count than there are pods.
const NODES: u32 = 256;

/// A placement that breaks no promise, if one is found.
pub(crate) fn repair(candidates: &CandidateNodes<'_>) -> Option<Placement> {
    let mut repair = Repair::of(candidates)?;
    while let Some(set) = repair.homeless.pop() {
        repair.settle(set)?;
    }
    let loaded = repair.bins.into_iter().filter(|bin| bin.load.iter().any(|pods| *pods > 0));
    let stacks = loaded.map(|bin| Stack::on(candidates, bin.group, 1, bin.load)).collect();
    Some(Placement { stacks }).filter(|placement| candidates.keeps_promises(placement))
}

struct Repair<'a, 'l> {
    candidates: &'a CandidateNodes<'l>,
    scale: Scale,
    /// The pod sets in the order in which a node is loaded.
    turns: Vec<usize>,
    bins: Vec<Bin>,
    /// The sets of the pods without a place; the last one goes first.
    homeless: Vec<usize>,
    /// What it costs to turn out a pod, by set.
    dear: Vec<u64>,
    /// How many times pods were turned out.
    step: u64,
    budget: u32,
}

/// One node.
struct Bin {
    group: usize,
    /// Pods by set.
    load: Vec<u32>,
    /// When pods were turned out of it last.
    changed: u64,
}

impl<'a, 'l> Repair<'a, 'l> {
    /// Nobody has a place yet, and the largest go first; none when it is too large.
    fn of(candidates: &'a CandidateNodes<'l>) -> Option<Self> {
        let sets = candidates.pod_sets;
        let pods = sets.iter().fold(0_u32, |sum, pod_set| sum.saturating_add(pod_set.count));
        let nodes =
            candidates.groups.iter().fold(0_u32, |sum, group| sum.saturating_add(group.nodes.min(pods)));
        if pods > PODS || nodes > NODES {
            return None;
        }
        let bin = |group| Bin { group, load: vec![0; sets.len()], changed: 0 };
        let groups = candidates.groups.iter().enumerate();
        let bins = groups.flat_map(|(ix, group)| (0..group.nodes.min(pods)).map(move |_| bin(ix))).collect();
        let scale = Scale::of(candidates);
        let smallest_first = turns(candidates, &scale, Turn::Largest).into_iter().rev();
        let homeless = smallest_first.flat_map(|at| (0..sets[at].count).map(move |_| at)).collect();
        let (turns, dear) = (turns_of_shares(sets).collect(), vec![1; sets.len()]);
        Some(Self { candidates, scale, turns, bins, homeless, dear, step: 0, budget: BUDGET })
    }

    /// Finds a place for a pod of a set, if need be at the cost of others; none when there is no way.
    fn settle(&mut self, set: usize) -> Option<()> {
        let place = match self.tightest(set) {
            Some(place) => place,
            None => self.turn_out(set)?,
        };
        self.bins[place].load[set] += 1;
        Some(())
    }

    /// The node with room that a pod of a set fills best.
    fn tightest(&mut self, set: usize) -> Option<usize> {
        let mut best = None;
        for at in self.open(set) {
            let Some(left) = self.left(at, |other| i64::from(other == set)) else { continue };
            let node = Candidate { group: self.bins[at].group, free: &left, is_used: true };
            let pod_set = &self.candidates.pod_sets[set];
            let place = (self.scale.rank(NodeScore::MostAllocated, self.candidates, pod_set, &node, 0), at);
            best = Some(best.map_or(place, |best: (Rank, usize)| best.min(place)));
        }
        best.map(|(_, at)| at)
    }

    /// Turns pods of another set out of a node, so that a pod of this set has room there; says where.
    fn turn_out(&mut self, set: usize) -> Option<usize> {
        self.step += 1;
        self.dear[set] += 1;
        let mut best: Option<(u64, u64, usize, usize, u32)> = None;
        for at in self.open(set) {
            for other in (0..self.dear.len()).filter(|other| *other != set) {
                let mut all = 1..=self.bins[at].load[other];
                let enough = |pods: &u32| {
                    let gone = |ix| if ix == other { i64::from(*pods) } else { 0 };
                    self.left(at, |ix| i64::from(ix == set) - gone(ix)).is_some()
                };
                let Some(fewest) = all.find(enough) else { continue };
                let cost = self.dear[other].saturating_mul(fewest.into());
                let way = (cost, self.bins[at].changed, at, other, fewest);
                best = Some(best.map_or(way, |best| best.min(way)));
            }
        }
        let (_, _, at, other, pods) = best.filter(|_| self.budget > 0)?;
        self.bins[at].load[other] -= pods;
        self.bins[at].changed = self.step;
        self.homeless.extend((0..pods).map(|_| other));
        Some(at)
    }

    /// The nodes that the pods of a set may use, and that are large enough.
    fn open(&self, set: usize) -> Vec<usize> {
        let CandidateNodes { groups, pod_sets, .. } = self.candidates;
        let is_open =
            |group: usize| self.candidates.is_open(group, set) && pod_sets[set].fits_in(groups[group].free);
        (0..self.bins.len()).filter(|at| is_open(self.bins[*at].group)).collect()
    }

    /// What a node has left when so many more pods of each set are on it; none if there is no room for them.
    fn left(&mut self, at: usize, change: impl Fn(usize) -> i64) -> Option<Room> {
        self.budget = self.budget.checked_sub(1)?;
        let bin = &self.bins[at];
        let mut left = self.candidates.groups[bin.group].free.clone();
        for &set in &self.turns {
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
