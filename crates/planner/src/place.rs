//! Pods to nodes by rules of thumb: the largest first, each onto the nodes that it fills best.
//!
//! Several rules are tried, the preferred one first. What they all miss is left to `search`.

use std::borrow::Cow;
use std::cmp::Reverse;

use model::{ClassIx, NodeIx, PodSet, ResourceIx, ResourceVec, Room};

use crate::terrain::{Group, Terrain};

/// Where a gang goes, by groups of nodes that are alike.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Placement {
    pub(crate) stacks: Vec<Stack>,
}

/// A number of nodes of one group that all take the same pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stack {
    /// The group, by its index in the terrain.
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
    /// Nodes of a group of the terrain with this load.
    pub(crate) fn on(terrain: &Terrain<'_>, group: usize, nodes: u32, load: Vec<u32>) -> Self {
        let Group { free, classes, .. } = &terrain.groups[group];
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

/// In which order pod sets are placed.
#[derive(Clone, Copy, Debug)]
enum Turn {
    /// The one with the least room to spare first.
    Scarcest,
    /// The one whose pods are the largest part of a node first.
    Largest,
}

/// Which nodes are filled first.
#[derive(Clone, Copy, Debug)]
enum Taste {
    /// Those without resources that the pod does not want, then those that it fills best.
    Thrifty,
    /// Those that it fills best.
    Tightest,
    /// Those on which most is left.
    Roomiest,
}

const RULES: [(Turn, Taste); 6] = [
    (Turn::Scarcest, Taste::Thrifty),
    (Turn::Largest, Taste::Thrifty),
    (Turn::Scarcest, Taste::Tightest),
    (Turn::Largest, Taste::Tightest),
    (Turn::Scarcest, Taste::Roomiest),
    (Turn::Largest, Taste::Roomiest),
];

/// The first placement that a rule finds and that breaks no promise.
pub(crate) fn place(terrain: &Terrain<'_>) -> Option<Placement> {
    let scale = Scale::of(terrain);
    let alone = terrain.pod_sets.iter().filter(|pod_set| pod_set.count > 0).count() <= 1;
    let rules = RULES.iter().filter(|(turn, _)| !alone || matches!(turn, Turn::Scarcest));
    rules
        .filter_map(|(turn, taste)| attempt(terrain, &scale, *turn, *taste))
        .find(|placement| terrain.keeps_promises(placement))
}

/// Nodes of one group in the course of an attempt.
struct Bin<'l> {
    group: usize,
    nodes: u32,
    free: Cow<'l, Room>,
    load: Vec<u32>, // Empty: nothing.
}

fn attempt(terrain: &Terrain<'_>, scale: &Scale, turn: Turn, taste: Taste) -> Option<Placement> {
    let groups = terrain.groups.iter().enumerate();
    let mut bins: Vec<Bin<'_>> = groups
        .map(|(ix, group)| Bin {
            group: ix,
            nodes: group.nodes,
            free: Cow::Borrowed(group.free),
            load: Vec::new(),
        })
        .collect();
    for at in turns(terrain, scale, turn) {
        fill(terrain, scale, taste, at, &mut bins)?;
    }
    let loaded = bins.into_iter().filter(|bin| !bin.load.is_empty());
    let stacks = loaded.map(|bin| Stack::on(terrain, bin.group, bin.nodes, bin.load));
    Some(Placement { stacks: stacks.collect() })
}

/// Places all pods of one set, or says that it cannot.
fn fill(
    terrain: &Terrain<'_>,
    scale: &Scale,
    taste: Taste,
    at: usize,
    bins: &mut Vec<Bin<'_>>,
) -> Option<()> {
    let pod_set = &terrain.pod_sets[at];
    let mut left = terrain.pod_sets[at].count;
    let mut choices: Vec<_> = bins
        .iter()
        .enumerate()
        .filter(|(_, bin)| terrain.is_open(bin.group, at))
        .filter_map(|(ix, bin)| {
            let copies = pod_set.copies_in(&bin.free, left);
            (copies > 0).then(|| {
                ((terrain.pools(bin.group), scale.rank(taste, pod_set, &bin.free, copies)), ix, copies)
            })
        })
        .collect();
    choices.sort_unstable();
    for (_, ix, copies) in choices {
        if left == 0 {
            break;
        }
        let copies = copies.min(left);
        let full = (left / copies).min(bins[ix].nodes);
        let rest = if full < bins[ix].nodes { left - full * copies } else { 0 }.min(copies);
        left -= full * copies + rest;
        split(bins, ix, full, copies, at, terrain.pod_sets);
        if rest > 0 {
            split(bins, ix, 1, rest, at, terrain.pod_sets);
        }
    }
    (left == 0).then_some(())
}

/// Puts `copies` pods on each of `nodes` nodes of a bin; the others stay behind as a bin of their own.
fn split(bins: &mut Vec<Bin<'_>>, ix: usize, nodes: u32, copies: u32, at: usize, pod_sets: &[PodSet]) {
    let bin = &bins[ix];
    let mut free = bin.free.clone().into_owned();
    free.take(&pod_sets[at], copies);
    let mut load = bin.load.clone();
    load.resize(pod_sets.len(), 0);
    load[at] += copies;
    let filled = Bin { group: bin.group, nodes, free: Cow::Owned(free), load };
    if nodes == bin.nodes {
        bins[ix] = filled;
    } else {
        bins[ix].nodes -= nodes;
        bins.push(filled);
    }
}

fn turns(terrain: &Terrain<'_>, scale: &Scale, turn: Turn) -> Vec<usize> {
    let mut turns: Vec<usize> =
        (0..terrain.pod_sets.len()).filter(|at| terrain.pod_sets[*at].count > 0).collect();
    // What shares devices comes first, the larger shares before the smaller ones: see `turns_of_shares`.
    let share = |at: usize| Reverse(terrain.pod_sets[at].share);
    match turn {
        Turn::Scarcest => turns.sort_by_cached_key(|&at| {
            (share(at), spare(terrain, at), Reverse(scale.size(&terrain.pod_sets[at])))
        }),
        Turn::Largest => {
            turns.sort_by_cached_key(|&at| (share(at), Reverse(scale.size(&terrain.pod_sets[at]))));
        }
    }
    turns
}

/// Room for how many pods per thousand of those wanted.
fn spare(terrain: &Terrain<'_>, at: usize) -> u64 {
    terrain.room(at, u64::MAX).saturating_mul(1000) / u64::from(terrain.pod_sets[at].count.max(1))
}

/// What a unit of each resource is worth: the largest amount that a node has free counts as a million.
struct Scale(Vec<i64>);

impl Scale {
    fn of(terrain: &Terrain<'_>) -> Self {
        let mut largest = ResourceVec::new();
        for group in &terrain.groups {
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
    fn size(&self, pod_set: &PodSet) -> i128 {
        let whole = pod_set.request.iter().map(|(ix, amount)| self.worth(ix, amount.0));
        let part =
            pod_set.share.map(|share| self.worth(share.device(), 1) * i128::from(share.milli()) / 1000);
        whole.chain(part).max().unwrap_or(0)
    }

    /// Smaller is filled first.
    fn rank(&self, taste: Taste, pod_set: &PodSet, free: &Room, copies: u32) -> (i128, i128) {
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
        match taste {
            Taste::Thrifty => (foreign, left),
            Taste::Tightest => (left, foreign),
            Taste::Roomiest => (-left, foreign),
        }
    }
}
