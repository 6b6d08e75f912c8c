//! Node scores: one comparison key for each packing policy, and how many pods are placed before nodes are
//! compared again.

use std::cmp::Reverse;

use model::{FreeResources, Packing, PodSet, ResourceIx, ResourceVec};

use crate::candidates::CandidateNodes;

/// A rule for comparing nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeScore {
    /// Nodes that the gang uses already, then nodes that hold the most of its pods.
    FewestNodes,
    /// Nodes without resources that the pod does not request, then the fullest nodes after placement.
    LeastUnrequested,
    /// The fullest nodes after placement.
    MostAllocated,
    /// The emptiest nodes after placement.
    LeastAllocated,
    /// The emptiest nodes after placement, compared again after each pod.
    Spread,
    /// The least increase of fragmentation, then as `LeastUnrequested`; compared again after each pod.
    LeastFragmentation,
}

impl From<Packing> for NodeScore {
    fn from(packing: Packing) -> Self {
        match packing {
            Packing::TightestFit => Self::LeastUnrequested,
            Packing::FewestNodes => Self::FewestNodes,
            Packing::LeastFragmentation => Self::LeastFragmentation,
            Packing::Spread => Self::Spread,
        }
    }
}

impl NodeScore {
    /// The number of nodes, and of pods on each, that are placed before nodes are compared again. `left` pods
    /// are to be placed, and each of the equivalent `nodes` has room for `copies`. `step` is the number of
    /// pods at a time for scores that compare again after each pod.
    pub(crate) fn portion(self, left: u32, nodes: u32, copies: u32, step: u32) -> (u32, u32) {
        let each = match self {
            Self::Spread | Self::LeastFragmentation => step.min(copies),
            Self::FewestNodes | Self::LeastUnrequested | Self::MostAllocated | Self::LeastAllocated => copies,
        };
        if self == Self::LeastFragmentation { (1, each) } else { ((left / each).min(nodes), each) }
    }
}

/// A comparison key of nodes; the smaller is better.
pub(crate) type ScoreKey = [i128; 3];

/// Scales amounts: the largest free amount of a resource on any node counts as a million.
pub(crate) struct Scale(Vec<i64>);

impl Scale {
    pub(crate) fn of(candidates: &CandidateNodes<'_>) -> Self {
        let mut largest = ResourceVec::new();
        for group in &candidates.groups {
            largest.raise_to(&group.free.amounts);
        }
        let resources = largest.iter().last().map_or(0, |(ix, _)| usize::from(ix.0) + 1);
        let mut scale = vec![1; resources];
        for (ix, amount) in largest.iter() {
            scale[usize::from(ix.0)] = amount.0.max(1);
        }
        Self(scale)
    }

    fn scaled(&self, ix: ResourceIx, amount: i64) -> i128 {
        let scale = self.0.get(usize::from(ix.0)).copied().unwrap_or(1);
        i128::from(amount.max(0)) * 1_000_000 / i128::from(scale)
    }

    /// The dominant share of a pod relative to the largest node.
    pub(crate) fn size(&self, pod_set: &PodSet) -> i128 {
        let whole = pod_set.request.iter().map(|(ix, amount)| self.scaled(ix, amount.0));
        let part =
            pod_set.share.map(|share| self.scaled(share.device(), 1) * i128::from(share.milli()) / 1000);
        whole.chain(part).max().unwrap_or(0)
    }

    /// The key for placing `copies` pods of a set on a node of a group with these free resources.
    pub(crate) fn key(
        &self,
        score: NodeScore,
        candidates: &CandidateNodes<'_>,
        pod_set: &PodSet,
        node: &ScoredNode<'_>,
        copies: u32,
    ) -> ScoreKey {
        let (unrequested, left) = self.leftovers(pod_set, node.free, copies);
        match score {
            NodeScore::FewestNodes => [i128::from(!node.is_used), -i128::from(copies), left],
            NodeScore::LeastUnrequested => [unrequested, left, 0],
            NodeScore::MostAllocated => [left, unrequested, 0],
            NodeScore::LeastAllocated | NodeScore::Spread => [-left, unrequested, 0],
            NodeScore::LeastFragmentation => {
                [candidates.fragmentation_increase(node.group, node.free, pod_set, copies), unrequested, left]
            }
        }
    }

    /// The scaled free amounts after placement: of resources that the pod does not request, and of those that
    /// it requests.
    fn leftovers(&self, pod_set: &PodSet, free: &FreeResources, copies: u32) -> (i128, i128) {
        let (mut unrequested, mut left) = (0, 0);
        for (ix, amount) in free.amounts.iter() {
            let wanted = pod_set.request.get(ix);
            if wanted.0 > 0 {
                left += self.scaled(ix, amount.minus(wanted.times(copies)).0);
            } else if pod_set.share.is_some_and(|share| share.device() == ix) {
                left += self.scaled(ix, amount.0);
            } else if ix > ResourceIx::PODS {
                unrequested += self.scaled(ix, amount.0);
            }
        }
        (unrequested, left)
    }
}

/// A node during an attempt.
pub(crate) struct ScoredNode<'a> {
    /// The index of its group in the candidates.
    pub(crate) group: usize,
    /// Its free resources now.
    pub(crate) free: &'a FreeResources,
    /// Pods of the gang are on it already.
    pub(crate) is_used: bool,
}

/// The order in which pod sets are placed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PodSetOrder {
    /// The pod set with the least room to spare first.
    LeastSlackFirst,
    /// The pod set with the largest pods first.
    LargestFirst,
}

/// The pod sets that have pods, in order. Pod sets that share devices go first, larger shares before smaller
/// ones; see `place::largest_shares_first`.
pub(crate) fn pod_set_order(
    candidates: &CandidateNodes<'_>,
    scale: &Scale,
    order: PodSetOrder,
) -> Vec<usize> {
    let mut pod_set_order: Vec<usize> =
        (0..candidates.pod_sets.len()).filter(|at| candidates.pod_sets[*at].count > 0).collect();
    let share = |at: usize| Reverse(candidates.pod_sets[at].share);
    match order {
        PodSetOrder::LeastSlackFirst => pod_set_order.sort_by_cached_key(|&at| {
            (share(at), slack(candidates, at), Reverse(scale.size(&candidates.pod_sets[at])))
        }),
        PodSetOrder::LargestFirst => {
            pod_set_order
                .sort_by_cached_key(|&at| (share(at), Reverse(scale.size(&candidates.pod_sets[at]))));
        }
    }
    pod_set_order
}

/// The number of pods that fit, per thousand pods to place.
fn slack(candidates: &CandidateNodes<'_>, at: usize) -> u64 {
    candidates.room(at, u64::MAX).saturating_mul(1000) / u64::from(candidates.pod_sets[at].count.max(1))
}
