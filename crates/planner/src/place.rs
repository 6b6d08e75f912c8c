//! Pods to nodes by rules of thumb: the largest first, each onto the nodes that it fills best.
//!
//! Several rules are tried, that of the policy first: a rule is a `score` for nodes and an order of pod sets. What they all
//! miss is left to `search`.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use model::{ClassIx, NodeIx, PodSet, ResourceVec, Room};

use crate::candidates::{CandidateNodes, Group};
use crate::score::{Candidate, NodeScore, Scale, Turn, turns};

/// Where a gang goes, by groups of nodes that are alike.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Placement {
    pub(crate) stacks: Vec<Stack>,
}

/// A number of nodes of one group that all take the same pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stack {
    /// The group, by its index in the candidates.
    pub(crate) group: usize,
    pub(crate) classes: Vec<ClassIx>,
    pub(crate) free: Room,
    pub(crate) nodes: u32,
    /// Pods per node, by pod set.
    pub(crate) load: Vec<u32>,
    /// Which nodes, if just these will do; none when any of the group will.
    pub(crate) named: Vec<NodeIx>,
}

impl Stack {
    /// Nodes of a group of the candidates with this load.
    pub(crate) fn on(candidates: &CandidateNodes<'_>, group: usize, nodes: u32, load: Vec<u32>) -> Self {
        let Group { free, classes, .. } = &candidates.groups[group];
        Self { group, classes: classes.clone(), free: (*free).clone(), nodes, load, named: Vec::new() }
    }

    /// What each of the nodes has left.
    pub(crate) fn left(&self, pod_sets: &[PodSet]) -> Room {
        let mut left = self.free.clone();
        for at in turns_of_shares(pod_sets) {
            left.take(&pod_sets[at], self.load[at]);
        }
        left
    }

    /// What is taken of each of the nodes; of devices those that are opened or taken whole.
    pub(crate) fn taken(&self, pod_sets: &[PodSet]) -> ResourceVec {
        let mut taken = self.free.amounts.clone();
        taken.sub(&self.left(pod_sets).amounts);
        taken
    }
}

/// The pod sets in the order in which their pods are put onto one node: larger shares of devices before smaller ones, as
/// it packs best; beside that the order makes no difference.
pub(crate) fn turns_of_shares(pod_sets: &[PodSet]) -> impl Iterator<Item = usize> + use<> {
    let mut turns: Vec<usize> = (0..pod_sets.len()).collect();
    turns.sort_by_key(|&at| Reverse(pod_sets[at].share));
    turns.into_iter()
}

/// The rules beside the policy's own score, for what that misses.
const OTHERS: [NodeScore; 3] =
    [NodeScore::LeastUnrequested, NodeScore::MostAllocated, NodeScore::LeastAllocated];

/// Into how many portions at most the pods of a set are divided, where nodes are compared again after each.
const PORTIONS: u32 = 1024;

/// The first placement that a rule finds and that breaks no promise.
pub(crate) fn place(candidates: &CandidateNodes<'_>) -> Option<Placement> {
    let scale = Scale::of(candidates);
    let preferred = NodeScore::from(candidates.packing);
    let tastes = std::iter::once(preferred).chain(OTHERS.into_iter().filter(|score| *score != preferred));
    let alone = candidates.pod_sets.iter().filter(|pod_set| pod_set.count > 0).count() <= 1;
    let turns: &[Turn] = if alone { &[Turn::Scarcest] } else { &[Turn::Scarcest, Turn::Largest] };
    tastes
        .flat_map(|score| turns.iter().map(move |turn| (*turn, score)))
        .filter_map(|(turn, score)| attempt(candidates, &scale, turn, score))
        .find(|placement| candidates.keeps_promises(placement))
}

/// Nodes of one group in the course of an attempt.
struct Bin<'l> {
    group: usize,
    nodes: u32,
    free: Cow<'l, Room>,
    load: Vec<u32>, // Empty: nothing.
}

fn attempt(
    candidates: &CandidateNodes<'_>,
    scale: &Scale,
    turn: Turn,
    score: NodeScore,
) -> Option<Placement> {
    let groups = candidates.groups.iter().enumerate();
    let mut bins: Vec<Bin<'_>> = groups
        .map(|(ix, group)| Bin {
            group: ix,
            nodes: group.nodes,
            free: Cow::Borrowed(group.free),
            load: Vec::new(),
        })
        .collect();
    for at in turns(candidates, scale, turn) {
        fill(candidates, scale, score, at, &mut bins)?;
    }
    let loaded = bins.into_iter().filter(|bin| !bin.load.is_empty());
    let stacks = loaded.map(|bin| Stack::on(candidates, bin.group, bin.nodes, bin.load));
    Some(Placement { stacks: stacks.collect() })
}

/// Places all pods of one set, or says that it cannot.
fn fill(
    candidates: &CandidateNodes<'_>,
    scale: &Scale,
    score: NodeScore,
    at: usize,
    bins: &mut Vec<Bin<'_>>,
) -> Option<()> {
    let pod_set = &candidates.pod_sets[at];
    let mut left = pod_set.count;
    let step = (left / PORTIONS).max(1);
    let rank = |bin: &Bin<'_>, left: u32| {
        let copies = pod_set.copies_in(&bin.free, left);
        if copies == 0 {
            return None;
        }
        let node = Candidate { group: bin.group, free: &bin.free, is_used: !bin.load.is_empty() };
        let (_, each) = score.portion(left, bin.nodes, copies, step);
        Some((candidates.node_sets(bin.group), scale.rank(score, candidates, pod_set, &node, each), copies))
    };
    let open = bins.iter().enumerate().filter(|(_, bin)| candidates.is_open(bin.group, at));
    let mut choices: BinaryHeap<_> = open
        .filter_map(|(ix, bin)| {
            rank(bin, left).map(|(node_sets, rank, copies)| Reverse((node_sets, rank, ix, copies)))
        })
        .collect();
    while left > 0 {
        let Reverse((node_sets, rank_before, ix, copies)) = choices.pop()?;
        let (nodes, each) = score.portion(left, bins[ix].nodes, copies.min(left), step);
        left -= nodes * each;
        let filled = split(bins, ix, nodes, each, at, candidates.pod_sets);
        if filled != ix {
            choices.push(Reverse((node_sets, rank_before, ix, copies))); // The others are as good as before.
        }
        if let Some((node_sets, rank, copies)) = rank(&bins[filled], left) {
            choices.push(Reverse((node_sets, rank, filled, copies)));
        }
    }
    Some(())
}

/// Puts `copies` pods on each of `nodes` nodes of a bin; the others stay behind as a bin of their own. Says which bin the
/// nodes are in then.
fn split(
    bins: &mut Vec<Bin<'_>>,
    ix: usize,
    nodes: u32,
    copies: u32,
    at: usize,
    pod_sets: &[PodSet],
) -> usize {
    let bin = &bins[ix];
    let mut free = bin.free.clone().into_owned();
    free.take(&pod_sets[at], copies);
    let mut load = bin.load.clone();
    load.resize(pod_sets.len(), 0);
    load[at] += copies;
    let filled = Bin { group: bin.group, nodes, free: Cow::Owned(free), load };
    if nodes == bin.nodes {
        bins[ix] = filled;
        return ix;
    }
    bins[ix].nodes -= nodes;
    bins.push(filled);
    bins.len() - 1
}
