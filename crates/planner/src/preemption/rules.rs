//! The rules by which a gang with certain flavors may preempt other gangs.
//!
//! Between gangs that are charged to one quota tree, the rules of their quota nodes apply, after Kueue
//! (`pkg/scheduler/preemption/classical`, v0.19); MCAD's eviction of borrowers by owners maps to them.
//! Between other gangs, the rule of the cluster applies. A right to preempt a borrower ends when the
//! borrower's node, or one between it and the common ancestor, uses no more than it owns. So the order of
//! victims matters (`sequence`). The rules for fair sharing are in `fair_sharing`.

use std::collections::{BTreeMap, BTreeSet};

use model::{
    Charges, FairSharing, FlavorResource, Gang, PreemptionPolicy, PreemptionReason, QuotaIx, QuotaPreemption,
    QuotaUsage, ReclaimWithinCohort, WithinClusterQueue, World,
};

use crate::ledger::Ledger;
use crate::preemption::Holder;
use crate::preemption::cost::Candidate;
use crate::quota::{Quotas, is_counted};
use crate::request::{Flavors, GangRequest};

/// See the module.
pub(super) struct Rules<'s> {
    pub(super) world: &'s World,
    gang: &'s Gang,
    /// The charges of the preemptor.
    pub(super) charges: Charges,
    /// One for each quota node that the preemptor is charged to.
    pub(super) quota_requests: Vec<QuotaRequest>,
    pub(super) fairness: Option<FairSharing>,
}

/// The request of the preemptor at one quota node.
pub(super) struct QuotaRequest {
    /// The node and its ancestors.
    pub(super) path: Vec<QuotaIx>,
    rule: QuotaPreemption,
    /// The requested amounts that count.
    needs: BTreeMap<FlavorResource, i128>,
    /// The resources of which a victim must use some: those with too little unused quota; or all requested
    /// ones if the pods do not fit on nodes either.
    contended: BTreeSet<FlavorResource>,
    /// The index of the first node of the path that can hold the request within what it owns.
    within_owned_from: Option<usize>,
    /// The node uses less than it owns of all contended resources.
    is_below_owned: bool,
}

/// The right of the preemptor to preempt one gang.
#[derive(Clone, Debug)]
pub(super) struct PreemptionRight {
    pub(super) variant: Variant,
    /// The index of the quota request; unused for [`Variant::Priority`].
    pub(super) quota_request: usize,
    /// The victim's node and its ancestors below the lowest common ancestor.
    pub(super) victim_path: Vec<QuotaIx>,
    /// The ancestor of the preemptor's node just below the lowest common ancestor.
    pub(super) preemptor_almost_lca: QuotaIx,
}

/// The rule that a right is based on. After Kueue's preemption variants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Variant {
    /// The victim has a lower priority; the rule of the cluster.
    Priority,
    /// Both are charged to the same quota node.
    WithinClusterQueue,
    /// The victim borrows from a subtree whose owned quota is enough for the preemptor.
    HierarchicalReclaim,
    /// The victim borrows, and the preemptor will not.
    ReclaimWithoutBorrowing,
    /// The victim borrows and has a lower priority; the preemptor may borrow too.
    ReclaimWhileBorrowing,
    /// The victim borrows; dominant shares decide.
    FairSharing,
}

impl Variant {
    /// The order in which victims are preferred: borrowers of the preemptor's subtree, then others, then
    /// gangs of its own node.
    pub(super) fn tier(self) -> u8 {
        match self {
            Self::HierarchicalReclaim => 0,
            Self::Priority
            | Self::ReclaimWithoutBorrowing
            | Self::ReclaimWhileBorrowing
            | Self::FairSharing => 1,
            Self::WithinClusterQueue => 2,
        }
    }

    pub(super) fn reason(self) -> PreemptionReason {
        match self {
            Self::Priority => PreemptionReason::Priority,
            Self::WithinClusterQueue => PreemptionReason::InClusterQueue,
            Self::HierarchicalReclaim | Self::ReclaimWithoutBorrowing => {
                PreemptionReason::InCohortReclamation
            }
            Self::ReclaimWhileBorrowing => PreemptionReason::InCohortReclaimWhileBorrowing,
            Self::FairSharing => PreemptionReason::InCohortFairSharing,
        }
    }
}

/// Whether any rule could let gangs with these charges preempt others.
pub(crate) fn may_preempt(world: &World, request: &GangRequest<'_>) -> bool {
    let rule = |node: QuotaIx| world.quota_nodes().get(&node).map(|node| node.preemption);
    let mut rules =
        world.quota_of(request.queue).into_iter().chain(request.charges.iter().copied()).filter_map(rule);
    world.policy().preemption != PreemptionPolicy::Never
        || rules.any(|rule| rule != QuotaPreemption::default())
}

impl<'s> Rules<'s> {
    /// The rules for a gang with these flavors, while the terminating gangs are released.
    pub(super) fn of(
        ledger: &Ledger<'s>,
        gang: &'s Gang,
        request: &GangRequest<'_>,
        flavors: &Flavors,
        has_room: bool,
    ) -> Self {
        let world = ledger.world;
        let mut charges = ledger.charges_with(request, request.shape, flavors);
        charges.retain(|(node, of), _| is_counted(world, *node, *of));
        let short: BTreeSet<_> = ledger.quotas.insufficient(&charges).collect();
        let quota_request = |node: QuotaIx| {
            let needs = charges.iter().filter(|((at, _), _)| *at == node);
            let needs: BTreeMap<_, _> = needs.map(|((_, of), amount)| (*of, *amount)).collect();
            let is_contended = |of: &&FlavorResource| !has_room || short.contains(&(node, **of));
            let contended = needs.keys().filter(is_contended).copied().collect();
            QuotaRequest::of(&ledger.quotas, world, node, needs, contended)
        };
        let nodes: BTreeSet<QuotaIx> =
            world.quota_of(request.queue).into_iter().chain(request.charges.iter().copied()).collect();
        let quota_requests = nodes.into_iter().map(quota_request).collect();
        Self { world, gang, quota_requests, fairness: world.policy().fair_sharing, charges }
    }

    /// The rights to preempt a gang, as far as they do not depend on other victims; empty if there is none.
    pub(super) fn rights(&self, usage: &Quotas<'_>, other: &Holder<'_>) -> Vec<PreemptionRight> {
        let forest = self.world.forest();
        let Holder { gang: other, charges } = *other;
        let charged = || charges.into_iter().flat_map(BTreeMap::keys);
        let shares_tree = |(node, _): &(QuotaIx, FlavorResource)| {
            let root = forest.root(*node);
            self.quota_requests.iter().any(|quota_request| quota_request.root() == root)
        };
        if !charged().any(shares_tree) {
            let lower = other.priority < self.gang.priority;
            let is_victim = lower && self.world.policy().preemption == PreemptionPolicy::LowerPriority;
            let right = PreemptionRight {
                variant: Variant::Priority,
                quota_request: 0,
                victim_path: Vec::new(),
                preemptor_almost_lca: QuotaIx::default(),
            };
            return is_victim.then_some(right).into_iter().collect();
        }
        let mut rights = Vec::new();
        for (at, quota_request) in self.quota_requests.iter().enumerate() {
            let is_contended = |(node, of): &&(QuotaIx, FlavorResource)| {
                quota_request.contended.contains(of) && forest.root(*node) == quota_request.root()
            };
            // The charges are in the order of their nodes.
            let mut last = None;
            for (node, _) in charged().filter(is_contended) {
                if last.replace(*node) != Some(*node) {
                    rights.extend(self.right(usage, at, other, *node));
                }
            }
        }
        rights
    }

    /// The right to preempt a gang that is charged to a node of the same tree.
    fn right(&self, usage: &Quotas<'_>, at: usize, other: &Gang, node: QuotaIx) -> Option<PreemptionRight> {
        let quota_request = &self.quota_requests[at];
        let forest = self.world.forest();
        let lower = other.priority < self.gang.priority;
        if node == quota_request.node() {
            let newer = other.priority == self.gang.priority && self.gang.queued_at < other.queued_at;
            let is_victim = match quota_request.rule.within_cluster_queue {
                WithinClusterQueue::Never => false,
                WithinClusterQueue::LowerPriority => lower,
                WithinClusterQueue::LowerOrNewerEqualPriority => lower || newer,
            };
            return is_victim.then(|| PreemptionRight {
                variant: Variant::WithinClusterQueue,
                quota_request: at,
                victim_path: Vec::new(),
                preemptor_almost_lca: node,
            });
        }
        let is_victim = match quota_request.rule.reclaim_within_cohort {
            ReclaimWithinCohort::Never => false,
            ReclaimWithinCohort::LowerPriority => lower,
            ReclaimWithinCohort::Any => true,
        };
        if !is_victim || !quota_request.exceeds_owned(usage, self.world, node) {
            return None; // It does not borrow.
        }
        let common = forest.path(node).find(|above| quota_request.path.contains(above))?;
        let mut victim_path: Vec<QuotaIx> = forest.path(node).take_while(|above| *above != common).collect();
        if victim_path.is_empty() {
            victim_path.push(node); // It is charged at an ancestor of the preemptor's node.
        }
        let place = quota_request.path.iter().position(|above| *above == common)?;
        let preemptor_almost_lca = quota_request.path[place.saturating_sub(1)];
        let threshold = quota_request
            .rule
            .borrow_within_cohort
            .map(|rule| rule.max_priority_threshold.unwrap_or(i64::MAX));
        let variant = if self.fairness.is_some() {
            Variant::FairSharing
        } else if quota_request.within_owned_from.is_some_and(|within_owned_from| within_owned_from < place) {
            Variant::HierarchicalReclaim
        } else if lower && threshold.is_some_and(|most| other.priority <= most) {
            Variant::ReclaimWhileBorrowing
        } else if threshold.is_some() || quota_request.is_below_owned {
            Variant::ReclaimWithoutBorrowing
        } else {
            return None;
        };
        let right = PreemptionRight { variant, quota_request: at, victim_path, preemptor_almost_lca };
        self.is_valid(usage, &right).then_some(right)
    }

    /// Whether a right is valid with this usage.
    pub(super) fn is_valid(&self, usage: &Quotas<'_>, right: &PreemptionRight) -> bool {
        let quota_request = || &self.quota_requests[right.quota_request];
        match right.variant {
            Variant::Priority | Variant::WithinClusterQueue => true,
            Variant::HierarchicalReclaim
            | Variant::ReclaimWithoutBorrowing
            | Variant::ReclaimWhileBorrowing => {
                right.victim_path.iter().all(|node| quota_request().exceeds_owned(usage, self.world, *node))
            }
            Variant::FairSharing => {
                right.victim_path.iter().all(|node| !self.world.forest().share(usage, *node).is_zero())
            }
        }
    }

    /// Whether the preemptor's node would not borrow, for each quota request with a `ReclaimWithoutBorrowing`
    /// right to a candidate.
    pub(super) fn stays_within_owned(&self, usage: &Quotas<'_>, candidates: &[Candidate<'_>]) -> bool {
        let rights = candidates.iter().flat_map(|candidate| &candidate.rights);
        let quota_requests: BTreeSet<usize> = rights
            .filter(|right| right.variant == Variant::ReclaimWithoutBorrowing)
            .map(|right| right.quota_request)
            .collect();
        let mut needs = quota_requests.iter().flat_map(|at| {
            let quota_request = &self.quota_requests[*at];
            quota_request.needs.iter().map(|(of, needs)| (quota_request.node(), *of, *needs))
        });
        let forest = self.world.forest();
        needs.all(|(node, of, needs)| usage.used(node, of) + needs <= forest.subtree_quota(node, of))
    }

    /// The level at which the gang would borrow at the node of its queue; see
    /// [`model::Forest::borrowing_level`].
    pub(super) fn borrowing_level(&self, usage: &Quotas<'_>, node: Option<QuotaIx>) -> u32 {
        usage.borrowing_level(&self.charges, node)
    }
}

impl QuotaRequest {
    fn of(
        usage: &Quotas<'_>,
        world: &World,
        node: QuotaIx,
        needs: BTreeMap<FlavorResource, i128>,
        contended: BTreeSet<FlavorResource>,
    ) -> Self {
        let forest = world.forest();
        let path: Vec<QuotaIx> = forest.path(node).collect();
        let rule = world.quota_nodes().get(&node).map(|node| node.preemption).unwrap_or_default();
        let is_below_owned =
            contended.iter().all(|of| usage.used(node, *of) < forest.subtree_quota(node, *of));
        let mut more = needs.clone(); // The part that is charged to a node of the path.
        let within_owned_from = path.iter().position(|node| {
            let fits = more
                .iter()
                .all(|(of, more)| usage.used(*node, *of) + more <= forest.subtree_quota(*node, *of));
            for (of, more) in &mut more {
                *more -= (forest.local_quota(*node, *of) - usage.used(*node, *of)).clamp(0, *more);
            }
            fits
        });
        Self { path, rule, needs, contended, within_owned_from, is_below_owned }
    }

    /// The quota node.
    pub(super) fn node(&self) -> QuotaIx {
        self.path[0]
    }

    /// The root of its tree.
    pub(super) fn root(&self) -> QuotaIx {
        self.path[self.path.len() - 1]
    }

    /// Whether a node uses more than it owns of any contended resource.
    fn exceeds_owned(&self, usage: &Quotas<'_>, world: &World, node: QuotaIx) -> bool {
        self.contended.iter().any(|of| usage.used(node, *of) > world.forest().subtree_quota(node, *of))
    }

    /// Whether its node uses no more than it owns of the contended resources.
    pub(super) fn is_within_owned(&self, usage: &Quotas<'_>, world: &World) -> bool {
        !self.exceeds_owned(usage, world, self.node())
    }
}
