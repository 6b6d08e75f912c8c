//! Quota that the first gang of a strict queue holds while it waits: other gangs may be held back for it, and none that
//! goes after it takes it.

use std::collections::{BTreeMap, BTreeSet};

use model::{FlavorResource, Gang, QueueingStrategy, ReclaimWithinCohort, World};

use crate::cluster_state::ClusterState;
use crate::strict_fifo::StrictQueueHeads;
use crate::violation::Violation;
use crate::{fairness, usage_order};

/// The first gangs of strict queues that the plan leaves pending and that may hold quota, with the root of their tree.
pub(crate) struct HoldingHeads<'w>(Vec<(&'w str, &'w Gang)>);

impl<'w> HoldingHeads<'w> {
    pub(crate) fn of(cluster: &ClusterState<'w>, heads: &StrictQueueHeads<'w>) -> Self {
        let (world, quotas) = (cluster.world(), &cluster.quotas);
        let root = |gang: &'w Gang| {
            let node = holding_node(world, gang)?;
            quotas.path(node).filter(|path| path.len() > 1)?.last().copied()
        };
        let is_ready = |gang: &&Gang| !world.pods_of(&gang.uid).any(|pod| pod.node.is_some());
        Self(heads.all().filter(is_ready).filter_map(|gang| Some((root(gang)?, gang))).collect())
    }

    /// The roots of their trees.
    pub(crate) fn roots(&self) -> BTreeSet<&'w str> {
        self.0.iter().map(|(root, _)| *root).collect()
    }

    /// Reports an admission that takes what a head holds that certainly goes before it. `may_wait` says whether
    /// the verdict of a head is to wait, `goes_before` whether it ranks before the gang.
    pub(crate) fn check(
        &self,
        cluster: &ClusterState<'w>,
        gang: &Gang,
        may_wait: impl Fn(&Gang) -> bool,
        goes_before: impl Fn(&Gang) -> bool,
        found: &mut Vec<Violation>,
    ) {
        let (world, quotas) = (cluster.world(), &cluster.quotas);
        let Some(node) = fairness::node_of(world, quotas, gang).filter(|_| gang.charges.is_empty()) else {
            return;
        };
        let root = quotas.path(node).and_then(|path| path.last().copied());
        let in_tree: Vec<_> = self.0.iter().filter(|(other, _)| Some(*other) == root).collect();
        let [(_, head)] = in_tree.as_slice() else { return };
        let is_simple = |gang: &Gang| fairness::has_single_flavors(world, gang);
        let fair = world.policy().fair_sharing.is_some();
        let by_usage = usage_order::admission_fair_sharing(world, head).is_some();
        if head.queue == gang.queue
            || fair
            || by_usage
            || !is_simple(head)
            || !is_simple(gang)
            || !head.charges.is_empty()
        {
            return;
        }
        let Some(head_node) = holding_node(world, head) else { return };
        let wanted = quotas.single_flavor_charges(head);
        let (level, own) = (level(cluster, head_node, &wanted), quotas.single_flavor_charges(gang));
        let precedes = match level.cmp(&self::level(cluster, node, &own)) {
            std::cmp::Ordering::Less => may_wait(head),
            std::cmp::Ordering::Equal => may_wait(head) && goes_before(head),
            std::cmp::Ordering::Greater => false,
        };
        if !precedes || level > 0 || quotas.all_combinations(head).is_empty() {
            return;
        }
        for (of, amount) in &own {
            let unused = quotas.subtree_quota(head_node, *of) - quotas.usage(head_node, *of, &[]);
            let held = wanted.get(of).map_or(0, |wanted| (*wanted).min(unused).max(0));
            let (at, hold) = ((node, *of), (head_node, *of));
            let path = quotas.path(node).unwrap_or_default();
            if held > 0 && at != hold && *amount > quotas.available(&path, *of, &[(&hold, &held)]) {
                found.push(Violation::HeldQuotaTaken { gang: gang.key.clone(), first: head.key.clone() });
                return;
            }
        }
    }
}

/// The quota node of a gang, if the first gang of its queue holds quota there.
fn holding_node<'w>(world: &'w World, gang: &Gang) -> Option<&'w str> {
    let queue = world.queues().get(&gang.queue)?;
    let name = queue.quota.as_deref()?;
    let rule = world.quota_nodes().values().find(|node| node.name == name)?.preemption;
    let may_hold = queue.queueing_strategy == QueueingStrategy::StrictFifo
        && !queue.reserves_starts
        && rule.reclaim_within_cohort != ReclaimWithinCohort::Any;
    may_hold.then_some(name)
}

fn level(cluster: &ClusterState<'_>, node: &str, charges: &BTreeMap<FlavorResource, i128>) -> usize {
    let height = |(of, amount): (&FlavorResource, &i128)| {
        fairness::borrowing_height(&cluster.quotas, node, *of, *amount)
    };
    charges.iter().map(height).max().unwrap_or(0)
}
