//! The preemption rules of quota trees: the reasons for which each of several victims may be preempted, evaluated
//! with the usage that remains without all of them.
//!
//! Victims are preempted one after the other. Reclaim ends when the branch of the victim no longer borrows. So a
//! valid order exists only when every node of the victims' branches has a possible last victim: with only this victim
//! present, the node still borrows. This is sufficient when none of these nodes is below another.

use std::collections::{BTreeMap, BTreeSet};

use model::{
    FlavorIx, FlavorResource, Gang, PreemptionPolicy, PreemptionReason, QuotaPreemption, ReclaimWithinCohort,
    WithinClusterQueue,
};

use super::{Charges, Quotas};

/// The assumptions under which preemption is allowed.
#[derive(Clone, Copy)]
pub(crate) struct Assumptions {
    /// First fit places the pods, so only quota is short.
    pub(crate) fits_on_nodes: bool,
    /// Allows preemption where it is uncertain which resource is short, or in which order victims are preempted.
    pub(crate) is_permissive: bool,
}

/// A gang and its victims. The victims are suspended meanwhile.
pub(super) struct PreemptionCase<'c, 'w> {
    gang: &'c Gang,
    /// The charges of the gang.
    pub(super) more: Vec<(&'c (&'w str, FlavorResource), &'c i128)>,
    requests: Vec<QuotaRequest<'w>>,
    /// The nodes that borrow a resource that needs preemption, with the index of the request, before any preemption.
    borrowers: BTreeSet<(usize, &'w str)>,
    /// See [`Assumptions`].
    is_permissive: bool,
    /// The victims and their charges.
    victims: Vec<(&'c Gang, Charges<'w>)>,
}

/// The request of a gang at one quota node.
struct QuotaRequest<'w> {
    rule: QuotaPreemption,
    path: Vec<&'w str>,
    requested: BTreeSet<FlavorResource>,
    needs_preemption: BTreeSet<FlavorResource>,
    /// The node uses less than its quota.
    is_below_nominal: bool,
    /// The nodes of the path whose quota covers their usage with this gang.
    with_enough_quota: BTreeSet<&'w str>,
}

/// The nodes of both paths below their lowest common ancestor; at least the first node of each path.
struct BranchesBelowLca<'w> {
    requester: Vec<&'w str>,
    victim: Vec<&'w str>,
}

impl<'w> QuotaRequest<'w> {
    fn node(&self) -> &'w str {
        self.path[0]
    }

    fn is_in_tree_of(&self, path: &[&str]) -> bool {
        self.path.last() == path.last()
    }

    fn branches(&self, path: &[&'w str]) -> BranchesBelowLca<'w> {
        let up_to = |path: &[&'w str], other: &[&'w str]| {
            path.iter().copied().take_while(|node| !other.contains(node)).collect::<Vec<_>>()
        };
        let mut branches =
            BranchesBelowLca { requester: up_to(&self.path, path), victim: up_to(path, &self.path) };
        if branches.requester.is_empty() {
            branches.requester.push(self.path[0]);
        }
        if branches.victim.is_empty() {
            branches.victim.push(path[0]);
        }
        branches
    }
}

impl<'w> Quotas<'w> {
    /// For each victim, the reasons for which it may be preempted together with the others. Terminating gangs are
    /// suspended by the caller; victims are not.
    pub(crate) fn reasons(
        &mut self,
        gang: &Gang,
        flavors: &[BTreeMap<model::ResourceIx, FlavorIx>],
        victims: &[&Gang],
        assumptions: Assumptions,
    ) -> Vec<Vec<PreemptionReason>> {
        let mut charges = self.charges(gang, flavors);
        charges.retain(|(node, of), _| of.flavor != FlavorIx::ANY || self.tree_declares(node, *of));
        let requests = self.requests(gang, &charges, assumptions);
        if requests.is_empty() {
            return victims.iter().map(|victim| self.by_priority(gang, victim)).collect();
        }
        let mut borrowers = BTreeSet::new();
        for (at, request) in requests.iter().enumerate() {
            let tree = request.path.last().into_iter().flat_map(|root| self.subtree(root));
            borrowers.extend(
                tree.filter(|node| self.exceeds(node, &request.needs_preemption)).map(|node| (at, node)),
            );
        }
        let victims: Vec<_> = victims.iter().map(|victim| (*victim, self.charged(&victim.uid))).collect();
        let is_permissive = assumptions.is_permissive;
        let case = PreemptionCase {
            gang,
            more: charges.iter().collect(),
            requests,
            borrowers,
            is_permissive,
            victims,
        };
        for (victim, _) in &case.victims {
            self.suspend(&victim.uid, true);
        }
        let reasons =
            case.victims.iter().map(|(victim, charged)| self.reasons_for(&case, victim, charged)).collect();
        for (victim, _) in &case.victims {
            self.suspend(&victim.uid, false);
        }
        reasons
    }

    /// Whether any rule allows the gang to preempt others.
    pub(crate) fn may_preempt(&self, gang: &Gang) -> bool {
        let queue = self.world.queues().get(&gang.queue).and_then(|queue| queue.quota.as_deref());
        let mut named = gang.charges.iter().map(|ix| self.world.quota_name(*ix)).chain(queue);
        let rule = |name| self.nodes.get(name).map(|node| node.preemption).unwrap_or_default();
        self.world.policy().preemption != PreemptionPolicy::Never
            || named.any(|name| rule(name) != QuotaPreemption::default())
    }

    /// Whether the result depends on the order in which charges or trees are evaluated: the gang is charged to one
    /// tree twice; or fair sharing applies, and the gang is charged to several nodes or to an inner node.
    pub(crate) fn is_order_dependent(&self, gang: &Gang) -> bool {
        let queue = self.world.queues().get(&gang.queue).and_then(|queue| queue.quota.as_deref());
        let nodes: Vec<_> = gang.charges.iter().map(|ix| self.world.quota_name(*ix)).chain(queue).collect();
        let roots: BTreeSet<&str> =
            nodes.iter().filter_map(|node| self.path(node)?.last().copied()).collect();
        let is_inner = |node: &&str| self.children(node).next().is_some();
        let by_share = self.world.policy().fair_sharing.is_some();
        roots.len() < nodes.len() || (by_share && (nodes.len() > 1 || nodes.iter().any(is_inner)))
    }

    fn reasons_for(
        &mut self,
        case: &PreemptionCase<'_, 'w>,
        victim: &Gang,
        charged: &Charges<'w>,
    ) -> Vec<PreemptionReason> {
        let nodes: BTreeSet<&'w str> = charged.keys().map(|(node, _)| *node).collect();
        let paths: Vec<Vec<&str>> = nodes.iter().filter_map(|node| self.path(node)).collect();
        if !case.requests.iter().any(|request| paths.iter().any(|path| request.is_in_tree_of(path))) {
            return self.by_priority(case.gang, victim);
        }
        let mut reasons = Vec::new();
        for (at, request) in case.requests.iter().enumerate() {
            let uses = |path: &&Vec<&str>| {
                request.needs_preemption.iter().any(|of| charged.contains_key(&(path[0], *of)))
            };
            for path in paths.iter().filter(|path| request.is_in_tree_of(path)).filter(uses) {
                if path[0] == request.node() {
                    reasons.extend(within_cluster_queue(
                        request.rule.within_cluster_queue,
                        case.gang,
                        victim,
                    ));
                } else if case.borrowers.contains(&(at, path[0]))
                    && may_reclaim(request.rule.reclaim_within_cohort, case.gang, victim)
                {
                    let branches = request.branches(path);
                    reasons.extend(if self.world.policy().fair_sharing.is_some() {
                        self.by_share(case, request, &branches)
                    } else {
                        self.by_quota(case, request, &branches, victim)
                    });
                }
            }
        }
        reasons
    }

    /// Without fair sharing: by nominal quota and borrowing.
    fn by_quota(
        &mut self,
        case: &PreemptionCase<'_, 'w>,
        request: &QuotaRequest<'w>,
        branches: &BranchesBelowLca<'w>,
        victim: &Gang,
    ) -> Option<PreemptionReason> {
        let borrows = |quotas: &Self, node: &str| quotas.exceeds(node, &request.needs_preemption);
        if !branches
            .victim
            .iter()
            .all(|node| self.holds_until_last_victim(case, node, &|quotas| borrows(quotas, node)))
        {
            return None;
        }
        let is_below_threshold = |most: Option<i64>| most.is_none_or(|most| victim.priority <= most);
        let threshold = request.rule.borrow_within_cohort.map(|rule| rule.max_priority_threshold);
        let stays_within_quota =
            || request.requested.iter().all(|of| self.fits_within(request.node(), *of, &case.more));
        if branches.requester.iter().any(|node| request.with_enough_quota.contains(node)) {
            Some(PreemptionReason::InCohortReclamation)
        } else if victim.priority < case.gang.priority && threshold.is_some_and(is_below_threshold) {
            Some(PreemptionReason::InCohortReclaimWhileBorrowing)
        } else {
            ((threshold.is_some() || request.is_below_nominal) && stays_within_quota())
                .then_some(PreemptionReason::InCohortReclamation)
        }
    }

    /// With fair sharing: by shares.
    fn by_share(
        &mut self,
        case: &PreemptionCase<'_, 'w>,
        request: &QuotaRequest<'w>,
        branches: &BranchesBelowLca<'w>,
    ) -> Option<PreemptionReason> {
        let (requester, victim) = (branches.requester.last()?, branches.victim.last()?);
        let borrows = |quotas: &Self, node: &str| quotas.share(node, &case.more).is_borrowing();
        if !branches
            .victim
            .iter()
            .all(|node| self.holds_until_last_victim(case, node, &|quotas| borrows(quotas, node)))
        {
            None
        } else if request.needs_preemption.iter().all(|of| self.fits_within(request.node(), *of, &case.more))
        {
            Some(PreemptionReason::InCohortReclamation)
        } else {
            self.is_fair(case, requester, victim).then_some(PreemptionReason::InCohortFairSharing)
        }
    }

    /// By the cluster policy, between gangs that are charged to no common tree.
    fn by_priority(&self, gang: &Gang, victim: &Gang) -> Vec<PreemptionReason> {
        let allowed = self.world.policy().preemption == PreemptionPolicy::LowerPriority;
        (allowed && victim.priority < gang.priority)
            .then_some(PreemptionReason::Priority)
            .into_iter()
            .collect()
    }

    fn requests(
        &self,
        gang: &Gang,
        charges: &Charges<'w>,
        assumptions: Assumptions,
    ) -> Vec<QuotaRequest<'w>> {
        let short: BTreeSet<_> = self.exceeded(gang, charges).into_iter().map(|(at, _)| at).collect();
        let queue = self.world.queues().get(&gang.queue).and_then(|queue| queue.quota.as_deref());
        let named = gang.charges.iter().map(|ix| self.world.quota_name(*ix));
        let nodes: BTreeSet<&'w str> = queue.into_iter().chain(named).collect();
        let more: Vec<_> = charges.iter().collect();
        let request = |node: &'w str| {
            let path = self.path(node)?;
            let rule = self.nodes.get(node).map(|node| node.preemption).unwrap_or_default();
            let requested: BTreeSet<_> =
                charges.keys().filter(|(at, _)| *at == node).map(|(_, of)| *of).collect();
            let short_of: BTreeSet<_> =
                requested.iter().copied().filter(|of| short.contains(&(node, *of))).collect();
            let only_short_of =
                assumptions.fits_on_nodes || !(assumptions.is_permissive || short_of.is_empty());
            let compared =
                if assumptions.fits_on_nodes || assumptions.is_permissive { &short_of } else { &requested };
            let is_below_nominal =
                compared.iter().all(|of| self.usage(node, *of, &[]) < self.subtree_quota(node, *of));
            let needs_preemption = if only_short_of { short_of } else { requested.clone() };
            let owns = |above: &&&str| requested.iter().all(|of| self.fits_within(above, *of, &more));
            let with_enough_quota = path.iter().filter(owns).copied().collect();
            Some(QuotaRequest {
                rule,
                path,
                requested,
                needs_preemption,
                is_below_nominal,
                with_enough_quota,
            })
        };
        nodes.into_iter().filter_map(request).collect()
    }

    /// Whether a condition still holds with only one victim of a subtree present. This victim can then be the last
    /// one to be preempted. In permissive mode one such victim suffices; otherwise the condition must hold for each
    /// of them.
    pub(super) fn holds_until_last_victim(
        &mut self,
        case: &PreemptionCase<'_, 'w>,
        node: &str,
        holds: &dyn Fn(&Self) -> bool,
    ) -> bool {
        let is_below = |charged: &Charges<'w>| {
            charged.keys().any(|(at, _)| self.path(at).is_some_and(|path| path.contains(&node)))
        };
        let victims_below: Vec<_> =
            case.victims.iter().filter(|(_, charged)| is_below(charged)).map(|(victim, _)| victim).collect();
        let mut held = victims_below.iter().map(|victim| {
            self.suspend(&victim.uid, false);
            let held = holds(self);
            self.suspend(&victim.uid, true);
            held
        });
        if case.is_permissive {
            held.any(|held| held)
        } else {
            !victims_below.is_empty() && held.all(|held| held)
        }
    }

    fn charged(&self, uid: &str) -> Charges<'w> {
        let held = self.holders.iter().filter(|holder| holder.gang == uid);
        held.flat_map(|holder| holder.charges.clone()).collect()
    }

    fn exceeds(&self, node: &str, of: &BTreeSet<FlavorResource>) -> bool {
        of.iter().any(|of| self.usage(node, *of, &[]) > self.subtree_quota(node, *of))
    }

    fn fits_within(
        &self,
        node: &str,
        of: FlavorResource,
        more: &[(&(&'w str, FlavorResource), &i128)],
    ) -> bool {
        self.usage(node, of, more) <= self.subtree_quota(node, of)
    }

    fn subtree(&self, node: &'w str) -> Vec<&'w str> {
        let below = self.children(node).flat_map(|child| self.subtree(child));
        std::iter::once(node).chain(below).collect()
    }

    fn tree_declares(&self, node: &'w str, of: FlavorResource) -> bool {
        self.path(node).and_then(|path| path.last().copied()).is_some_and(|root| self.declares(root, of))
    }
}

/// Between gangs that are charged to the same node.
fn within_cluster_queue(rule: WithinClusterQueue, gang: &Gang, victim: &Gang) -> Option<PreemptionReason> {
    let lower = victim.priority < gang.priority;
    let newer = victim.priority == gang.priority && victim.queued_at > gang.queued_at;
    let may = match rule {
        WithinClusterQueue::Never => false,
        WithinClusterQueue::LowerPriority => lower,
        WithinClusterQueue::LowerOrNewerEqualPriority => lower || newer,
    };
    may.then_some(PreemptionReason::InClusterQueue)
}

/// Between gangs of different nodes.
fn may_reclaim(rule: ReclaimWithinCohort, gang: &Gang, victim: &Gang) -> bool {
    match rule {
        ReclaimWithinCohort::Never => false,
        ReclaimWithinCohort::LowerPriority => victim.priority < gang.priority,
        ReclaimWithinCohort::Any => true,
    }
}
