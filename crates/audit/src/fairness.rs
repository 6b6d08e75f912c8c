//! The order among gangs whose queues share a tree of quota: nobody is admitted before one with a better claim.
//!
//! Judged from the names of nodes and what each holder is charged. Only what is certain is claimed: a queue whose claim could
//! have been that of a gang which then found no place is not compared, nor is one that could have had other flavors.

use std::collections::BTreeMap;

use model::{FlavorResource, Gang, Plan, QueueIx, Verdict, World};

use crate::books::Books;
use crate::quota::{Quotas, Share};
use crate::usage_order;
use crate::violation::Violation;

/// Who is still to be admitted.
pub(crate) struct Claims<'w> {
    /// The gangs that the plan admits, by queue, the first in order first, with whether others of the queue that wait come
    /// before.
    by_queue: BTreeMap<QueueIx, Vec<(&'w Gang, bool)>>,
    /// A gang of each queue that the plan leaves waiting.
    waiting: BTreeMap<QueueIx, &'w Gang>,
    ranks: BTreeMap<&'w str, usize>,
}

/// The quota node of a gang's queue, if others may use the same tree.
pub(crate) fn node_of<'w>(world: &'w World, quotas: &Quotas<'w>, gang: &Gang) -> Option<&'w str> {
    let name = world.queues().get(&gang.queue)?.quota.as_deref()?;
    let path = quotas.path(name)?;
    (path.len() > 1 || quotas.children(name).next().is_some()).then_some(name)
}

/// The gangs in the order in which they were decided, each with its rank: those that the plan moves as it says, and the others
/// not before their turn can have come. `usage_order` are the waiting gangs by rank.
pub(crate) fn sequence<'w>(
    world: &'w World,
    quotas: &Quotas<'w>,
    plan: &Plan,
    turns: &[&'w Gang],
) -> Vec<(usize, &'w Gang)> {
    let ranks: BTreeMap<&str, usize> = turns.iter().enumerate().map(|(at, gang)| (&*gang.uid, at)).collect();
    let moves = plan.verdicts.iter().filter(|(_, verdict)| verdict.shortage().is_none());
    let moved: Vec<usize> = moves.filter_map(|(uid, _)| ranks.get(uid.as_str()).copied()).collect();
    let is_loose = |at: &usize| {
        node_of(world, quotas, turns[*at]).is_none() && usage_order::sharing(world, turns[*at]).is_none()
    };
    let mut rest: Vec<usize> = (0..turns.len()).filter(|at| !moved.contains(at)).collect();
    let tied: Vec<usize> = rest.extract_if(.., |at| !is_loose(at)).collect();
    let mut rest = rest.into_iter().peekable();
    let mut sequence = Vec::new();
    for at in moved {
        while is_loose(&at)
            && let Some(before) = rest.next_if(|before| *before < at)
        {
            sequence.push(before);
        }
        sequence.push(at);
    }
    sequence.into_iter().chain(rest).chain(tied).map(|at| (at, turns[at])).collect()
}

impl<'w> Claims<'w> {
    pub(crate) fn of(world: &World, plan: &Plan, turns: &[&'w Gang]) -> Self {
        let mut claims = Self { by_queue: BTreeMap::new(), waiting: BTreeMap::new(), ranks: BTreeMap::new() };
        for (at, gang) in turns.iter().enumerate() {
            claims.ranks.insert(&gang.uid, at);
            let mut verdicts = plan.verdicts.iter().filter(|(uid, _)| *uid == gang.uid);
            let murky = claims.waiting.contains_key(&gang.queue);
            if verdicts.any(|(_, verdict)| matches!(verdict, Verdict::Admit(_) | Verdict::Preempt(_))) {
                claims.by_queue.entry(gang.queue).or_default().push((gang, murky));
            } else {
                claims.waiting.insert(gang.queue, gang);
            }
        }
        let place = |gang: &Gang| plan.verdicts.iter().position(|(uid, _)| *uid == gang.uid);
        for line in
            claims.by_queue.values_mut().filter(|line| usage_order::sharing(world, line[0].0).is_some())
        {
            // Who of the others comes before depends on what was consumed.
            let murky = claims.waiting.contains_key(&line[0].0.queue);
            line.sort_by_key(|(gang, _)| place(gang));
            for (_, is_murky) in line {
                *is_murky = murky;
            }
        }
        claims
    }

    /// Checks that no other queue of the tree has a better claim than a gang that is admitted now, and strikes it off.
    pub(crate) fn check(&mut self, books: &Books<'w>, gang: &'w Gang, found: &mut Vec<Violation>) {
        let (world, quotas) = (books.world(), &books.quotas);
        if let Some(node) = node_of(world, quotas, gang) {
            let mine = Claim { gang, node };
            let mut others: Vec<Claim<'w>> = Vec::new();
            let done = |queue: &QueueIx| self.by_queue.get(queue).is_none_or(Vec::is_empty);
            let waiting = self.waiting.iter().filter(|(queue, _)| done(queue));
            let mut murky: Vec<&'w str> =
                waiting.filter_map(|(_, gang)| node_of(world, quotas, gang)).collect();
            for (queue, line) in &self.by_queue {
                let Some((first, is_murky)) = line.first().filter(|_| *queue != gang.queue) else { continue };
                let Some(node) =
                    node_of(world, quotas, first).filter(|other| root(quotas, other) == root(quotas, node))
                else {
                    continue;
                };
                if *is_murky || !is_plain(world, first) {
                    murky.push(node);
                } else {
                    others.push(Claim { gang: first, node });
                }
            }
            let unclear = |name: &str| murky.iter().any(|node| *node == name || is_below(quotas, node, name));
            if is_plain(world, gang) && self.by_queue.get(&gang.queue).is_some_and(|line| !line[0].1) {
                let fair = world.policy().fair_sharing.is_some();
                let better = others.iter().find(|other| {
                    if fair {
                        self.beats(quotas, other, &mine, &others, &unclear)
                    } else {
                        self.precedes(quotas, other, &mine)
                    }
                });
                if let Some(better) = better {
                    found.push(Violation::Unfair { gang: gang.key.clone(), before: better.gang.key.clone() });
                }
            }
        }
        if let Some(line) = self.by_queue.get_mut(&gang.queue) {
            line.retain(|(other, _)| other.uid != gang.uid);
        }
    }

    /// Without fair sharing: whether one claim goes before another.
    fn precedes(&self, quotas: &Quotas<'w>, one: &Claim<'w>, other: &Claim<'w>) -> bool {
        let level = |claim: &Claim<'w>| {
            let charges = quotas.plain_charges(claim.gang);
            charges
                .iter()
                .map(|(of, amount)| height_needed(quotas, claim.node, *of, *amount))
                .max()
                .unwrap_or(0)
        };
        (level(one), self.ranks[&*one.gang.uid]) < (level(other), self.ranks[&*other.gang.uid])
    }

    /// With fair sharing: whether one claim beats another where their ways to the root meet, as far as it is clear whose claim
    /// each of both subtrees makes.
    fn beats(
        &self,
        quotas: &Quotas<'w>,
        one: &Claim<'w>,
        other: &Claim<'w>,
        all: &[Claim<'w>],
        unclear: &dyn Fn(&str) -> bool,
    ) -> bool {
        let (mine, theirs) = (quotas.path(one.node), quotas.path(other.node));
        let (Some(mine), Some(theirs)) = (mine, theirs) else { return false };
        let Some(at) = mine.iter().position(|name| theirs.contains(name)) else { return false };
        let meet = theirs.iter().position(|name| *name == mine[at]).unwrap_or(0);
        if at == 0 || meet == 0 {
            // A queue of a node itself goes before those of nodes below.
            return (at, self.ranks[&*one.gang.uid]) < (meet, self.ranks[&*other.gang.uid]);
        }
        if unclear(mine[at - 1]) || unclear(theirs[meet - 1]) {
            return false;
        }
        // Each has to be the one that its own subtree would send.
        let sent = |claim: &Claim<'w>, top: &str| {
            all.iter()
                .filter(|rival| rival.gang.uid != claim.gang.uid)
                .filter(|rival| rival.node == top || is_below(quotas, rival.node, top))
                .all(|rival| !self.beats(quotas, rival, claim, all, unclear))
        };
        if !sent(one, mine[at - 1]) || !sent(other, theirs[meet - 1]) {
            return false;
        }
        let (borrows, share) = weigh(quotas, one, mine[at - 1]);
        let (other_borrows, other_share) = weigh(quotas, other, theirs[meet - 1]);
        let ranks = self.ranks[&*one.gang.uid].cmp(&self.ranks[&*other.gang.uid]);
        borrows.cmp(&other_borrows).then(share.compare(&other_share)).then(ranks).is_lt()
    }
}

struct Claim<'w> {
    gang: &'w Gang,
    node: &'w str,
}

/// What speaks for a gang at a node that it would be charged to, or below which: whether that would then borrow any of what the
/// gang asks for, and its share.
fn weigh<'w>(quotas: &Quotas<'w>, claim: &Claim<'w>, name: &str) -> (bool, Share) {
    let charges = quotas.plain_charges(claim.gang);
    let more: Vec<_> = charges.iter().map(|(of, amount)| ((claim.node, *of), *amount)).collect();
    let more: Vec<_> = more.iter().map(|(at, amount)| (at, amount)).collect();
    let borrows = charges.keys().any(|of| quotas.used(name, *of, &more) > quotas.owned(name, *of));
    (borrows, quotas.share(name, &more))
}

/// How high up a node has to borrow for more.
fn height_needed(quotas: &Quotas<'_>, node: &str, of: FlavorResource, more: i128) -> usize {
    let path = quotas.path(node).unwrap_or_default();
    let mut more = more;
    for (at, name) in path.iter().enumerate() {
        let (used, kept) = (quotas.used(name, of, &[]), quotas.kept(name, of));
        if used + more <= quotas.owned(name, of) || at + 1 == path.len() {
            return if at == 0 { 0 } else { quotas.height(name) };
        }
        more = (used + more).max(kept) - used.max(kept);
    }
    0
}

fn root<'w>(quotas: &Quotas<'w>, name: &'w str) -> Option<&'w str> {
    quotas.path(name)?.last().copied()
}

fn is_below(quotas: &Quotas<'_>, name: &str, above: &str) -> bool {
    quotas.children(above).any(|child| child == name || is_below(quotas, name, child))
}

/// Whether there is no choice of what a gang would be charged at the node of its queue.
fn is_plain(world: &World, gang: &Gang) -> bool {
    let groups = world.queues().get(&gang.queue).map_or(&[][..], |queue| &queue.groups);
    groups.iter().all(|group| group.flavors.len() == 1)
        && gang.pod_sets.iter().all(|set| set.count_min.is_none())
}
