//! Greedy placement: places the pod sets in order, each on the nodes with the best score.
//!
//! Several combinations of a `score` and an order of pod sets are tried, the score of the policy first.
//! `search` finds what all of them miss.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use model::{ClassIx, FreeResources, NodeIx, PodSet, ResourceVec};

use crate::candidates::{CandidateNodes, Group};
use crate::score::{NodeScore, PodSetOrder, Scale, ScoredNode, pod_set_order};

/// The placement of a gang, by groups of equivalent nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Placement {
    pub(crate) node_loads: Vec<NodeLoad>,
}

/// Several nodes of one group with the same pods on each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeLoad {
    /// The index of the group in the candidates.
    pub(crate) group: usize,
    pub(crate) classes: Vec<ClassIx>,
    pub(crate) free: FreeResources,
    pub(crate) nodes: u32,
    /// Pods per node, by pod set.
    pub(crate) load: Vec<u32>,
    /// The nodes, when only specific ones are possible; empty when any nodes of the group are.
    pub(crate) specific: Vec<NodeIx>,
}

impl NodeLoad {
    /// Nodes of a group of the candidates with this load.
    pub(crate) fn on(candidates: &CandidateNodes<'_>, group: usize, nodes: u32, load: Vec<u32>) -> Self {
        let Group { free, classes, .. } = &candidates.groups[group];
        Self { group, classes: classes.clone(), free: (*free).clone(), nodes, load, specific: Vec::new() }
    }

    /// The free resources that each node has left.
    pub(crate) fn left(&self, pod_sets: &[PodSet]) -> FreeResources {
        let mut left = self.free.clone();
        for at in largest_shares_first(pod_sets) {
            left.take(&pod_sets[at], self.load[at]);
        }
        left
    }

    /// The resources that each node gives up; of devices those that become shared or are taken whole.
    pub(crate) fn taken(&self, pod_sets: &[PodSet]) -> ResourceVec {
        let mut taken = self.free.amounts.clone();
        taken.sub(&self.left(pod_sets).amounts);
        taken
    }
}

/// The pod sets in the order in which their pods are put onto one node. Larger device shares go first, which
/// packs best. The order does not matter otherwise.
pub(crate) fn largest_shares_first(pod_sets: &[PodSet]) -> impl Iterator<Item = usize> + use<> {
    let mut orders: Vec<usize> = (0..pod_sets.len()).collect();
    orders.sort_by_key(|&at| Reverse(pod_sets[at].share));
    orders.into_iter()
}

/// The scores that are tried after the one of the policy.
const OTHERS: [NodeScore; 3] =
    [NodeScore::LeastUnrequested, NodeScore::MostAllocated, NodeScore::LeastAllocated];

/// The number of portions in which a pod set is placed, when nodes are compared again after each portion.
const PORTIONS: u32 = 1024;

/// The first greedy placement that keeps the aggregate reservations.
pub(crate) fn place(candidates: &CandidateNodes<'_>) -> Option<Placement> {
    let scale = Scale::of(candidates);
    let preferred = NodeScore::from(candidates.packing);
    let scores = std::iter::once(preferred).chain(OTHERS.into_iter().filter(|score| *score != preferred));
    let is_single = candidates.pod_sets.iter().filter(|pod_set| pod_set.count > 0).count() <= 1;
    let orders: &[PodSetOrder] = if is_single {
        &[PodSetOrder::LeastSlackFirst]
    } else {
        &[PodSetOrder::LeastSlackFirst, PodSetOrder::LargestFirst]
    };
    scores
        .flat_map(|score| orders.iter().map(move |order| (*order, score)))
        .filter_map(|(order, score)| attempt(candidates, &scale, order, score))
        .find(|placement| candidates.keeps_reservations(placement))
}

/// Nodes of one group during an attempt.
struct Bin<'l> {
    group: usize,
    nodes: u32,
    free: Cow<'l, FreeResources>,
    load: Vec<u32>, // Empty if no pods.
}

fn attempt(
    candidates: &CandidateNodes<'_>,
    scale: &Scale,
    order: PodSetOrder,
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
    for at in pod_set_order(candidates, scale, order) {
        fill(candidates, scale, score, at, &mut bins)?;
    }
    let loaded = bins.into_iter().filter(|bin| !bin.load.is_empty());
    let node_loads = loaded.map(|bin| NodeLoad::on(candidates, bin.group, bin.nodes, bin.load));
    Some(Placement { node_loads: node_loads.collect() })
}

/// Places all pods of one set; none if they do not fit.
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
        let node = ScoredNode { group: bin.group, free: &bin.free, is_used: !bin.load.is_empty() };
        let (_, each) = score.portion(left, bin.nodes, copies, step);
        Some((candidates.node_sets(bin.group), scale.key(score, candidates, pod_set, &node, each), copies))
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
            // The remaining nodes of the bin keep their score.
            choices.push(Reverse((node_sets, rank_before, ix, copies)));
        }
        if let Some((node_sets, rank, copies)) = rank(&bins[filled], left) {
            choices.push(Reverse((node_sets, rank, filled, copies)));
        }
    }
    Some(())
}

/// Puts `copies` pods on each of `nodes` nodes of a bin, and splits off the other nodes as a bin of their
/// own. Returns the bin of the filled nodes.
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
