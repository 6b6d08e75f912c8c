//! Admission order between queues that share a quota tree: borrowing and fair shares.
//!
//! Derived from quota nodes and the charges of all gangs. Only certain violations are reported. A queue is not
//! compared when its head may have been another gang that did not fit, or when its head had a choice of flavors.

use std::collections::{BTreeMap, BTreeSet};

use model::{FlavorResource, Gang, Plan, QueueIx, Verdict, World};

use crate::cluster_state::ClusterState;
use crate::quota::{Quotas, Share};
use crate::usage_order;
use crate::violation::Violation;

/// The gangs that the plan admits later.
pub(crate) struct Contenders<'w> {
    /// The admitted gangs by queue, in order. The flag says that a pending gang of the same queue may precede.
    by_queue: BTreeMap<QueueIx, Vec<(&'w Gang, bool)>>,
    /// One gang of each queue that the plan leaves pending.
    pending_by_queue: BTreeMap<QueueIx, &'w Gang>,
    ranks: BTreeMap<&'w str, usize>,
    /// The gangs that the plan admits after preemption.
    preemptors: BTreeSet<&'w str>,
    /// The gangs that wait for the victims of others.
    followers: BTreeSet<&'w str>,
    /// When each queue got its last admission of the plan, as the number of admissions until then.
    last_admissions: BTreeMap<QueueIx, usize>,
    admissions: usize,
}

/// The quota node of a gang's queue, if other queues may use the same tree.
pub(crate) fn node_of<'w>(world: &'w World, quotas: &Quotas<'w>, gang: &Gang) -> Option<&'w str> {
    let name = world.queues().get(&gang.queue)?.quota.as_deref()?;
    let path = quotas.path(name)?;
    (path.len() > 1 || quotas.children(name).next().is_some()).then_some(name)
}

/// The pending gangs in the order of decision, each with its rank. Admitted gangs are in plan order. The other gangs
/// follow as late as their decision can be. `pending` is sorted by rank.
pub(crate) fn sequence<'w>(
    world: &'w World,
    quotas: &Quotas<'w>,
    plan: &Plan,
    pending: &[&'w Gang],
) -> Vec<(usize, &'w Gang)> {
    let ranks: BTreeMap<&str, usize> =
        pending.iter().enumerate().map(|(at, gang)| (&*gang.uid, at)).collect();
    let decided = plan.verdicts.iter().filter(|(_, verdict)| verdict.shortage().is_none());
    let admitted: Vec<usize> = decided.filter_map(|(uid, _)| ranks.get(uid.as_str()).copied()).collect();
    let is_ordered_by_rank = |at: &usize| {
        node_of(world, quotas, pending[*at]).is_none()
            && usage_order::admission_fair_sharing(world, pending[*at]).is_none()
    };
    let mut rest: Vec<usize> = (0..pending.len()).filter(|at| !admitted.contains(at)).collect();
    let other_orders: Vec<usize> = rest.extract_if(.., |at| !is_ordered_by_rank(at)).collect();
    let mut rest = rest.into_iter().peekable();
    let mut sequence = Vec::new();
    for at in admitted {
        while is_ordered_by_rank(&at)
            && let Some(before) = rest.next_if(|before| *before < at)
        {
            sequence.push(before);
        }
        sequence.push(at);
    }
    sequence.into_iter().chain(rest).chain(other_orders).map(|at| (at, pending[at])).collect()
}

impl<'w> Contenders<'w> {
    pub(crate) fn of(world: &World, plan: &Plan, pending: &[&'w Gang]) -> Self {
        let mut contenders = Self {
            by_queue: BTreeMap::new(),
            pending_by_queue: BTreeMap::new(),
            ranks: BTreeMap::new(),
            preemptors: BTreeSet::new(),
            followers: BTreeSet::new(),
            last_admissions: BTreeMap::new(),
            admissions: 0,
        };
        for (at, gang) in pending.iter().enumerate() {
            contenders.ranks.insert(&gang.uid, at);
            let mut verdicts = plan.verdicts.iter().filter(|(uid, _)| *uid == gang.uid);
            if verdicts.clone().any(|(_, verdict)| matches!(verdict, Verdict::Preempt(_))) {
                contenders.preemptors.insert(&gang.uid);
            }
            let follows = |verdict: &Verdict| matches!(verdict, Verdict::Preempt(preemption) if preemption.victims.is_empty());
            if verdicts.clone().any(|(_, verdict)| follows(verdict)) {
                contenders.followers.insert(&gang.uid);
            }
            let ambiguous = contenders.pending_by_queue.contains_key(&gang.queue);
            if verdicts.any(|(_, verdict)| matches!(verdict, Verdict::Admit(_) | Verdict::Preempt(_))) {
                contenders.by_queue.entry(gang.queue).or_default().push((gang, ambiguous));
            } else {
                contenders.pending_by_queue.insert(gang.queue, gang);
            }
        }
        let place = |gang: &Gang| plan.verdicts.iter().position(|(uid, _)| *uid == gang.uid);
        for gangs in contenders
            .by_queue
            .values_mut()
            .filter(|gangs| usage_order::admission_fair_sharing(world, gangs[0].0).is_some())
        {
            // Whether a pending gang precedes depends on the usage of the local queues.
            let ambiguous = contenders.pending_by_queue.contains_key(&gangs[0].0.queue);
            gangs.sort_by_key(|(gang, _)| place(gang));
            for (_, is_ambiguous) in gangs {
                *is_ambiguous = ambiguous;
            }
        }
        contenders
    }

    /// Reports an admission when another queue of the tree precedes it, and removes the gang from its queue.
    pub(crate) fn check(&mut self, cluster: &ClusterState<'w>, gang: &'w Gang, found: &mut Vec<Violation>) {
        let (world, quotas) = (cluster.world(), &cluster.quotas);
        if let Some(node) = node_of(world, quotas, gang) {
            let candidate = Contender { gang, node };
            let mut others: Vec<Contender<'w>> = Vec::new();
            let has_no_admissions = |queue: &QueueIx| self.by_queue.get(queue).is_none_or(Vec::is_empty);
            let pending = self.pending_by_queue.iter().filter(|(queue, _)| has_no_admissions(queue));
            let mut ambiguous: Vec<&'w str> =
                pending.filter_map(|(_, gang)| node_of(world, quotas, gang)).collect();
            for (queue, gangs) in &self.by_queue {
                let Some((first, is_ambiguous)) = gangs.first().filter(|_| *queue != gang.queue) else {
                    continue;
                };
                let Some(node) =
                    node_of(world, quotas, first).filter(|other| root(quotas, other) == root(quotas, node))
                else {
                    continue;
                };
                if self.had_its_turn(world, quotas, first, gang) {
                    continue;
                }
                if self.followers.contains(&*first.uid) && self.preemptors.contains(&*gang.uid) {
                    continue; // It may fit only where the victims of this gang have been.
                }
                if *is_ambiguous || !has_single_flavors(world, first) {
                    ambiguous.push(node);
                } else {
                    others.push(Contender { gang: first, node });
                }
            }
            let is_uncertain =
                |name: &str| ambiguous.iter().any(|node| *node == name || is_below(quotas, node, name));
            if has_single_flavors(world, gang)
                && self.by_queue.get(&gang.queue).is_some_and(|gangs| !gangs[0].1)
            {
                let fair = world.policy().fair_sharing.is_some();
                let better = others.iter().find(|other| {
                    if fair {
                        self.beats(quotas, other, &candidate, &others, &is_uncertain)
                    } else {
                        self.precedes(quotas, other, &candidate)
                    }
                });
                if let Some(better) = better {
                    found.push(Violation::QuotaOrderViolated {
                        gang: gang.key.clone(),
                        before: better.gang.key.clone(),
                    });
                }
            }
        }
        if let Some(gangs) = self.by_queue.get_mut(&gang.queue) {
            gangs.retain(|(other, _)| other.uid != gang.uid);
        }
        self.admissions += 1;
        self.last_admissions.insert(gang.queue, self.admissions);
    }

    /// Whether the queue of a contender may have had its turn in the round in which `gang` is admitted. A queue in which quota
    /// alone decides gets at most one admission in each round, unless shares are compared. After Kueue
    /// (`pkg/scheduler/scheduler.go`, v0.19: one head of each queue in a scheduling cycle).
    fn had_its_turn(&self, world: &World, quotas: &Quotas<'w>, contender: &Gang, gang: &Gang) -> bool {
        let takes_turns = |gang: &Gang| world.policy().fair_sharing.is_none() && quotas.is_stepwise(gang);
        let last = |queue| self.last_admissions.get(&queue).copied().unwrap_or(0);
        let begins = if takes_turns(gang) { last(gang.queue) } else { 0 };
        takes_turns(contender) && last(contender.queue) > begins
    }

    /// Without fair sharing: whether one contender precedes another.
    fn precedes(&self, quotas: &Quotas<'w>, one: &Contender<'w>, other: &Contender<'w>) -> bool {
        let level = |contender: &Contender<'w>| {
            let charges = quotas.single_flavor_charges(contender.gang);
            charges
                .iter()
                .map(|(of, amount)| borrowing_height(quotas, contender.node, *of, *amount))
                .max()
                .unwrap_or(0)
        };
        // Where quota alone decides, the level of a preemptor is that without its victims, which is not computed here. After
        // Kueue (`SimulatePreemption` in `pkg/scheduler/preemption`, v0.19).
        let is_lower = self.preemptors.contains(&*other.gang.uid) && quotas.is_stepwise(other.gang);
        let level_of_other = if is_lower { 0 } else { level(other) };
        (level(one), self.ranks[&*one.gang.uid]) < (level_of_other, self.ranks[&*other.gang.uid])
    }

    /// With fair sharing: whether one contender precedes another below their lowest common ancestor. Returns false
    /// when it is uncertain which gang one of the two subtrees selects.
    fn beats(
        &self,
        quotas: &Quotas<'w>,
        one: &Contender<'w>,
        other: &Contender<'w>,
        all: &[Contender<'w>],
        is_uncertain: &dyn Fn(&str) -> bool,
    ) -> bool {
        let (path, other_path) = (quotas.path(one.node), quotas.path(other.node));
        let (Some(path), Some(other_path)) = (path, other_path) else { return false };
        let Some(at) = path.iter().position(|name| other_path.contains(name)) else { return false };
        let meet = other_path.iter().position(|name| *name == path[at]).unwrap_or(0);
        if at == 0 || meet == 0 {
            // A queue directly at the common ancestor precedes the queues below it.
            return (at, self.ranks[&*one.gang.uid]) < (meet, self.ranks[&*other.gang.uid]);
        }
        if is_uncertain(path[at - 1]) || is_uncertain(other_path[meet - 1]) {
            return false;
        }
        // Each contender must be the one that its own subtree selects.
        let wins_subtree = |contender: &Contender<'w>, top: &str| {
            all.iter()
                .filter(|rival| rival.gang.uid != contender.gang.uid)
                .filter(|rival| rival.node == top || is_below(quotas, rival.node, top))
                .all(|rival| !self.beats(quotas, rival, contender, all, is_uncertain))
        };
        if !wins_subtree(one, path[at - 1]) || !wins_subtree(other, other_path[meet - 1]) {
            return false;
        }
        let (borrows, share) = borrowing_and_share(quotas, one, path[at - 1]);
        let (other_borrows, other_share) = borrowing_and_share(quotas, other, other_path[meet - 1]);
        let ranks = self.ranks[&*one.gang.uid].cmp(&self.ranks[&*other.gang.uid]);
        borrows.cmp(&other_borrows).then(share.compare(&other_share)).then(ranks).is_lt()
    }
}

struct Contender<'w> {
    gang: &'w Gang,
    node: &'w str,
}

/// Whether a node borrows any resource of the gang once the gang is charged, and the share of the node then.
fn borrowing_and_share<'w>(quotas: &Quotas<'w>, contender: &Contender<'w>, name: &str) -> (bool, Share) {
    let charges = quotas.single_flavor_charges(contender.gang);
    let more: Vec<_> = charges.iter().map(|(of, amount)| ((contender.node, *of), *amount)).collect();
    let more: Vec<_> = more.iter().map(|(at, amount)| (at, amount)).collect();
    let borrows = charges.keys().any(|of| quotas.usage(name, *of, &more) > quotas.subtree_quota(name, *of));
    (borrows, quotas.share(name, &more))
}

/// The height of the tree at which a charge stays within quota.
pub(crate) fn borrowing_height(quotas: &Quotas<'_>, node: &str, of: FlavorResource, more: i128) -> usize {
    let path = quotas.path(node).unwrap_or_default();
    let mut more = more;
    for (at, name) in path.iter().enumerate() {
        let (usage, local_quota) = (quotas.usage(name, of, &[]), quotas.local_quota(name, of));
        if usage + more <= quotas.subtree_quota(name, of) || at + 1 == path.len() {
            return if at == 0 { 0 } else { quotas.height(name) };
        }
        more = (usage + more).max(local_quota) - usage.max(local_quota);
    }
    0
}

fn root<'w>(quotas: &Quotas<'w>, name: &'w str) -> Option<&'w str> {
    quotas.path(name)?.last().copied()
}

fn is_below(quotas: &Quotas<'_>, name: &str, above: &str) -> bool {
    quotas.children(above).any(|child| child == name || is_below(quotas, name, child))
}

/// Whether the charges of a gang are unambiguous: one flavor per resource group, and fixed pod counts.
pub(crate) fn has_single_flavors(world: &World, gang: &Gang) -> bool {
    let groups = world.queues().get(&gang.queue).map_or(&[][..], |queue| &queue.groups);
    groups.iter().all(|group| group.flavors.len() == 1)
        && gang.pod_sets.iter().all(|set| set.min_count.is_none())
}
