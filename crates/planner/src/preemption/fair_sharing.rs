//! Preemption with fair sharing, after Kueue (KEP 1714; `pkg/scheduler/preemption/fairsharing`, v0.19).
//!
//! Shares are compared at the almost-LCAs: the two nodes just below the lowest common ancestor of the
//! preemptor's and the victim's quota node. Kueue compares them as it adds victims, but not again after it
//! spares some, so two gangs can preempt each other forever (kueue#14543). Here the final set of victims must
//! be fair as a whole: [`Rules::is_fair`].

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use model::{DominantShare, FairSharing, PreemptionReason, QuotaIx};

use crate::preemption::cost::Candidate;
use crate::preemption::rules::{PreemptionRight, Rules, Variant};
use crate::preemption::sequence::release;
use crate::quota::Quotas;

/// Orders candidates within one quota tree, from the node with the largest share.
struct FairSharingOrder<'r, 's> {
    rules: &'r Rules<'s>,
    candidates: &'r [Candidate<'s>],
    quota_request: usize,
    /// The usage with the gang charged and the taken candidates released.
    usage: Quotas<'s>,
    /// The taken candidates, by index, in order.
    taken: Vec<usize>,
}

impl<'s> Rules<'s> {
    /// The candidates in the order in which they are taken: repeatedly the cheapest one that the rule allows,
    /// from the node with the largest share.
    pub(super) fn by_share(&self, usage: &Quotas<'s>, candidates: &[Candidate<'s>]) -> Vec<usize> {
        let mut usage = usage.clone();
        usage.charge(&self.charges);
        let mut order =
            FairSharingOrder { rules: self, candidates, quota_request: 0, usage, taken: Vec::new() };
        for quota_request in 0..self.quota_requests.len() {
            order.quota_request = quota_request;
            let left = order.run_first_strategy(&(0..candidates.len()).collect());
            let left =
                if order.has_taken_within_cluster_queue() { order.run_first_strategy(&left) } else { left };
            if self.fairness == Some(FairSharing::FinalOrInitialShare) {
                order.run_second_strategy(&left);
            }
        }
        let by_priority =
            |at: &usize| candidates[*at].rights.iter().any(|right| right.variant == Variant::Priority);
        order.taken.extend((0..candidates.len()).filter(by_priority));
        order.taken
    }

    /// Whether a set of victims is fair, given the usage without them. Each victim needs a right by which the
    /// final share of the preemptor is at most the final share of the victim's side
    /// (`LessThanOrEqualToFinalShare`), or less than that share before the last victim was taken from there
    /// (`LessThanInitialShare`).
    pub(super) fn is_fair(&self, usage: &Quotas<'s>, victims: &[&Candidate<'s>]) -> bool {
        self.fairness.is_none() || {
            let mut usage = usage.clone();
            usage.charge(&self.charges);
            let fair = |usage: &mut Quotas<'s>, victim: &Candidate<'s>| {
                victim.rights.iter().any(|right| self.is_right_fair(usage, right, victims))
            };
            victims.iter().all(|victim| fair(&mut usage, victim))
        }
    }

    fn is_right_fair(
        &self,
        usage: &mut Quotas<'s>,
        right: &PreemptionRight,
        victims: &[&Candidate<'s>],
    ) -> bool {
        if right.variant != Variant::FairSharing
            || self.quota_requests[right.quota_request].is_within_owned(usage, self.world)
        {
            return true;
        }
        let (preemptor_share, victim_almost_lca) =
            (self.share(usage, right.preemptor_almost_lca), right.victim_almost_lca());
        if self.fairness != Some(FairSharing::InitialShare)
            && preemptor_share <= self.share(usage, victim_almost_lca)
        {
            return true;
        }
        self.fairness != Some(FairSharing::FinalShare)
            && victims.iter().any(|last| {
                let is_same_side = |other: &PreemptionRight| {
                    other.quota_request == right.quota_request
                        && other.victim_almost_lca() == victim_almost_lca
                };
                let Some(charges) = last.charges else { return false };
                last.rights.iter().filter(|other| other.variant == Variant::FairSharing).any(is_same_side)
                    && {
                        usage.charge(charges);
                        let before = self.share(usage, victim_almost_lca);
                        usage.release(charges);
                        preemptor_share < before
                    }
            })
    }

    /// The reason for preempting a victim, given the usage without all victims.
    pub(super) fn fair_sharing_reason(&self, usage: &Quotas<'s>, victim: &Candidate<'s>) -> PreemptionReason {
        let mut usage = usage.clone();
        usage.charge(&self.charges);
        match victim.rights.first() {
            Some(PreemptionRight { variant: Variant::WithinClusterQueue, .. }) => {
                PreemptionReason::InClusterQueue
            }
            Some(PreemptionRight { variant: Variant::FairSharing, quota_request, .. }) => {
                let is_within_owned = self.quota_requests[*quota_request].is_within_owned(&usage, self.world);
                if is_within_owned {
                    PreemptionReason::InCohortReclamation
                } else {
                    PreemptionReason::InCohortFairSharing
                }
            }
            Some(_) | None => PreemptionReason::Priority,
        }
    }

    fn share(&self, usage: &Quotas<'_>, node: QuotaIx) -> DominantShare {
        self.world.forest().share(usage, node)
    }
}

impl PreemptionRight {
    /// The uppermost node on the victim's path that is not an ancestor of the preemptor's node.
    fn victim_almost_lca(&self) -> QuotaIx {
        self.victim_path.last().copied().unwrap_or(self.preemptor_almost_lca)
    }

    /// The victim's quota node.
    fn node(&self) -> QuotaIx {
        self.victim_path.first().copied().unwrap_or(self.preemptor_almost_lca)
    }
}

impl FairSharingOrder<'_, '_> {
    /// Takes all candidates that the first strategy allows; returns the others.
    fn run_first_strategy(&mut self, among: &BTreeSet<usize>) -> BTreeSet<usize> {
        let mut queue = self.with_right(among);
        let mut left = BTreeSet::new();
        while let Some(node) = self.next_node(&queue) {
            let here: Vec<usize> = queue.iter().copied().filter(|at| self.is_at(*at, node)).collect();
            for at in here {
                queue.remove(&at);
                if self.allows(at) {
                    self.take(at);
                    break; // Another node may have the largest share now.
                }
                left.insert(at);
            }
        }
        left
    }

    /// Takes at most one candidate of each node, if its share before is larger than the preemptor's final
    /// share.
    fn run_second_strategy(&mut self, among: &BTreeSet<usize>) {
        let mut queue = self.with_right(among);
        while let Some(node) = self.next_node(&queue) {
            let cheapest = queue.iter().copied().find(|at| self.is_at(*at, node));
            queue.retain(|at| !self.is_at(*at, node));
            if let Some((at, right)) = cheapest.and_then(|at| Some((at, self.right(at)?)))
                && self.share(right.preemptor_almost_lca) < self.share(right.victim_almost_lca())
            {
                self.take(at);
            }
        }
    }

    fn allows(&self, at: usize) -> bool {
        let Some(right) = self.right(at) else { return false };
        let quota_request = &self.rules.quota_requests[self.quota_request];
        if right.variant == Variant::WithinClusterQueue
            || quota_request.is_within_owned(&self.usage, self.rules.world)
        {
            return true;
        }
        let (preemptor_share, before) =
            (self.share(right.preemptor_almost_lca), self.share(right.victim_almost_lca()));
        if self.rules.fairness == Some(FairSharing::InitialShare) {
            return preemptor_share < before;
        }
        let mut usage = self.usage.clone();
        release(&mut usage, &self.candidates[at]);
        preemptor_share <= self.rules.share(&usage, right.victim_almost_lca())
    }

    /// The quota node to take from next: from the root down, always the child with the largest share. Of children with equal
    /// shares, the one with the candidate that is preempted first.
    fn next_node(&self, queue: &BTreeSet<usize>) -> Option<QuotaIx> {
        let quota_request = &self.rules.quota_requests[self.quota_request];
        let forest = self.rules.world.forest();
        let valid = queue.iter().filter_map(|at| Some((*at, self.right(*at)?)));
        let valid = valid.filter(|(_, right)| self.rules.is_valid(&self.usage, right));
        // The nodes with candidates below them, and the first of these.
        let mut around: BTreeMap<QuotaIx, usize> = BTreeMap::new();
        for (at, right) in valid {
            for node in forest.path(right.node()) {
                around.entry(node).or_insert(at);
            }
        }
        let mut node = around.contains_key(&quota_request.root()).then(|| quota_request.root())?;
        loop {
            let children = forest.children(node).filter_map(|child| Some((child, *around.get(&child)?)));
            let largest = children.max_by_key(|(child, first)| {
                (self.share(*child), forest.height(*child).min(1), Reverse(*first))
            });
            match largest {
                Some((child, _)) => node = child,
                None => return Some(node),
            }
        }
    }

    fn with_right(&self, among: &BTreeSet<usize>) -> BTreeSet<usize> {
        let fresh = |at: &usize| self.right(*at).is_some() && !self.taken.contains(at);
        among.iter().copied().filter(fresh).collect()
    }

    fn is_at(&self, at: usize, node: QuotaIx) -> bool {
        self.right(at).is_some_and(|right| right.node() == node)
    }

    fn right(&self, at: usize) -> Option<&PreemptionRight> {
        let mut rights = self.candidates[at].rights.iter();
        rights.find(|right| right.quota_request == self.quota_request && right.variant != Variant::Priority)
    }

    fn share(&self, node: QuotaIx) -> DominantShare {
        self.rules.share(&self.usage, node)
    }

    fn has_taken_within_cluster_queue(&self) -> bool {
        self.taken
            .iter()
            .any(|at| self.right(*at).is_some_and(|right| right.variant == Variant::WithinClusterQueue))
    }

    fn take(&mut self, at: usize) {
        release(&mut self.usage, &self.candidates[at]);
        self.taken.push(at);
    }
}
