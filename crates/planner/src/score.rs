//! Which nodes are filled first: one key to compare them by for each packing policy, and how much is put there at a time.

use std::cmp::Reverse;

use model::{Packing, PodSet, ResourceIx, ResourceVec, Room};

use crate::candidates::CandidateNodes;

/// Which nodes are filled first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeScore {
    /// Those that the gang uses already, then those that take the most pods.
    FewestNodes,
    /// Those without resources that the pod does not want, then those that it fills best.
    LeastUnrequested,
    /// Those that it fills best.
    MostAllocated,
    /// Those on which most is left.
    LeastAllocated,
    /// Those on which most is left, pod by pod.
    Spread,
    /// Those on which least is lost to other pods, then without resources that the pod does not want, then those that it
    /// fills best; pod by pod.
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
    /// On how many nodes how many pods are put before the nodes are compared again, of `left` pods, where each of so many
    /// alike has room for `copies`; `step` where that is pod by pod.
    pub(crate) fn portion(self, left: u32, nodes: u32, copies: u32, step: u32) -> (u32, u32) {
        let each = match self {
            Self::Spread | Self::LeastFragmentation => step.min(copies),
            Self::FewestNodes | Self::LeastUnrequested | Self::MostAllocated | Self::LeastAllocated => copies,
        };
        if self == Self::LeastFragmentation { (1, each) } else { ((left / each).min(nodes), each) }
    }
}

/// What makes one node better than another; the smaller the better.
pub(crate) type Rank = [i128; 3];

/// What a unit of each resource is worth: the largest amount that a node has free counts as a million.
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

    fn worth(&self, ix: ResourceIx, amount: i64) -> i128 {
        let scale = self.0.get(usize::from(ix.0)).copied().unwrap_or(1);
        i128::from(amount.max(0)) * 1_000_000 / i128::from(scale)
    }

    /// The part of the largest node that a pod takes, by the resource of which it takes most.
    pub(crate) fn size(&self, pod_set: &PodSet) -> i128 {
        let whole = pod_set.request.iter().map(|(ix, amount)| self.worth(ix, amount.0));
        let part =
            pod_set.share.map(|share| self.worth(share.device(), 1) * i128::from(share.milli()) / 1000);
        whole.chain(part).max().unwrap_or(0)
    }

    /// How good it is to put `copies` pods of a set onto a node of a group that has this much free by now.
    pub(crate) fn rank(
        &self,
        score: NodeScore,
        candidates: &CandidateNodes<'_>,
        pod_set: &PodSet,
        node: &Candidate<'_>,
        copies: u32,
    ) -> Rank {
        let (foreign, left) = self.leftovers(pod_set, node.free, copies);
        match score {
            NodeScore::FewestNodes => [i128::from(!node.is_used), -i128::from(copies), left],
            NodeScore::LeastUnrequested => [foreign, left, 0],
            NodeScore::MostAllocated => [left, foreign, 0],
            NodeScore::LeastAllocated | NodeScore::Spread => [-left, foreign, 0],
            NodeScore::LeastFragmentation => {
                [candidates.loses(node.group, node.free, pod_set, copies), foreign, left]
            }
        }
    }

    /// What is left of resources that a pod does not want, and of those that it wants.
    fn leftovers(&self, pod_set: &PodSet, free: &Room, copies: u32) -> (i128, i128) {
        let (mut foreign, mut left) = (0, 0);
        for (ix, amount) in free.amounts.iter() {
            let wanted = pod_set.request.get(ix);
            if wanted.0 > 0 {
                left += self.worth(ix, amount.minus(wanted.times(copies)).0);
            } else if pod_set.share.is_some_and(|share| share.device() == ix) {
                left += self.worth(ix, amount.0);
            } else if ix > ResourceIx::PODS {
                foreign += self.worth(ix, amount.0);
            }
        }
        (foreign, left)
    }
}

/// A node in the course of an attempt.
pub(crate) struct Candidate<'a> {
    /// Its group in the candidates.
    pub(crate) group: usize,
    /// What it has free by now.
    pub(crate) free: &'a Room,
    /// Some pods of the gang are there already.
    pub(crate) is_used: bool,
}

/// In which order pod sets are placed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Turn {
    /// The one with the least room to spare first.
    Scarcest,
    /// The one whose pods are the largest part of a node first.
    Largest,
}

/// The pod sets that have pods, in turn. What shares devices comes first, the larger shares before the smaller ones: see
/// `place::turns_of_shares`.
pub(crate) fn turns(candidates: &CandidateNodes<'_>, scale: &Scale, turn: Turn) -> Vec<usize> {
    let mut turns: Vec<usize> =
        (0..candidates.pod_sets.len()).filter(|at| candidates.pod_sets[*at].count > 0).collect();
    let share = |at: usize| Reverse(candidates.pod_sets[at].share);
    match turn {
        Turn::Scarcest => turns.sort_by_cached_key(|&at| {
            (share(at), spare(candidates, at), Reverse(scale.size(&candidates.pod_sets[at])))
        }),
        Turn::Largest => {
            turns.sort_by_cached_key(|&at| (share(at), Reverse(scale.size(&candidates.pod_sets[at]))));
        }
    }
    turns
}

/// Room for how many pods per thousand of those wanted.
fn spare(candidates: &CandidateNodes<'_>, at: usize) -> u64 {
    candidates.room(at, u64::MAX).saturating_mul(1000) / u64::from(candidates.pod_sets[at].count.max(1))
}
