//! Who may be stopped where shares decide: Kueue's fair sharing (KEP 1714; `pkg/scheduler/preemption/fairsharing`, v0.19).
//!
//! Shares are compared just below the lowest node that is above both gangs: `near` is the gang's side, `far` the victim's.
//! Kueue compares them as victims are added, and not again when some of them are spared after all, so that two gangs can
//! stop each other for ever (kueue#14543). Here a set of victims has to be fair as a whole, as it will be in the end:
//! [`Rules::is_fair`].

use std::collections::BTreeSet;

use model::{FairSharing, PreemptionReason, QuotaIx, Share};

use crate::preemption::cost::Candidate;
use crate::preemption::rules::{Kind, Rules, Title};
use crate::quota::Quotas;

/// One walk over a tree: from where most is taken, one after the other.
struct Walk<'r, 's> {
    rules: &'r Rules<'s>,
    candidates: &'r [Candidate<'s>],
    claim: usize,
    /// With the gang charged and those gone who were taken.
    usage: Quotas<'s>,
    /// Those who were taken, by index, in turn.
    taken: Vec<usize>,
}

impl<'s> Rules<'s> {
    /// The candidates in the order in which they are taken: again and again one from the node with the largest share, the
    /// cheapest that the rule allows.
    pub(super) fn by_share(&self, usage: &Quotas<'s>, candidates: &[Candidate<'s>]) -> Vec<usize> {
        let mut usage = usage.clone();
        usage.charge(&self.charges);
        let mut walk = Walk { rules: self, candidates, claim: 0, usage, taken: Vec::new() };
        for claim in 0..self.claims.len() {
            walk.claim = claim;
            let left = walk.first(&(0..candidates.len()).collect());
            let left = if walk.has_taken_own() { walk.first(&left) } else { left };
            if self.fairness == Some(FairSharing::FinalOrInitialShare) {
                walk.second(&left);
            }
        }
        let by_priority =
            |at: &usize| candidates[*at].titles.iter().any(|title| title.kind == Kind::Priority);
        walk.taken.extend((0..candidates.len()).filter(by_priority));
        walk.taken
    }

    /// Whether victims may be stopped together, with the usage when they are gone: for each there is a title by which the
    /// gang's share will be no larger than that of the victim's side will be (`LessThanOrEqualToFinalShare`), or smaller than
    /// that was before the last one was taken from there (`LessThanInitialShare`).
    pub(super) fn is_fair(&self, usage: &Quotas<'s>, victims: &[&Candidate<'s>]) -> bool {
        self.fairness.is_none() || {
            let mut usage = usage.clone();
            usage.charge(&self.charges);
            let fair = |usage: &mut Quotas<'s>, victim: &Candidate<'s>| {
                victim.titles.iter().any(|title| self.is_title_fair(usage, title, victims))
            };
            victims.iter().all(|victim| fair(&mut usage, victim))
        }
    }

    fn is_title_fair(&self, usage: &mut Quotas<'s>, title: &Title, victims: &[&Candidate<'s>]) -> bool {
        if title.kind != Kind::Share || self.claims[title.claim].is_within(usage, self.world) {
            return true;
        }
        let (near, far) = (self.share(usage, title.near), title.far());
        if self.fairness != Some(FairSharing::InitialShare) && near <= self.share(usage, far) {
            return true;
        }
        self.fairness != Some(FairSharing::FinalShare)
            && victims.iter().any(|last| {
                let from_there = |other: &Title| other.claim == title.claim && other.far() == far;
                let Some(charges) = self.world.charged(&last.gang.uid) else { return false };
                last.titles.iter().filter(|other| other.kind == Kind::Share).any(from_there) && {
                    usage.charge(charges);
                    let before = self.share(usage, far);
                    usage.give_back(charges);
                    near < before
                }
            })
    }

    /// The reason on which a victim is stopped where shares decide, with the usage when all are gone.
    pub(super) fn fair_ground(&self, usage: &Quotas<'s>, victim: &Candidate<'s>) -> PreemptionReason {
        let mut usage = usage.clone();
        usage.charge(&self.charges);
        match victim.titles.first() {
            Some(Title { kind: Kind::Own, .. }) => PreemptionReason::InClusterQueue,
            Some(Title { kind: Kind::Share, claim, .. }) => {
                let is_within = self.claims[*claim].is_within(&usage, self.world);
                if is_within {
                    PreemptionReason::InCohortReclamation
                } else {
                    PreemptionReason::InCohortFairSharing
                }
            }
            Some(_) | None => PreemptionReason::Priority,
        }
    }

    fn share(&self, usage: &Quotas<'_>, node: QuotaIx) -> Share {
        self.world.forest().share(usage, node)
    }
}

impl Title {
    /// The victim's side: its uppermost node that is not above the gang's too.
    fn far(&self) -> QuotaIx {
        self.below.last().copied().unwrap_or(self.near)
    }

    /// The victim's node.
    fn node(&self) -> QuotaIx {
        self.below.first().copied().unwrap_or(self.near)
    }
}

impl Walk<'_, '_> {
    /// Takes all whom the first rule allows; those it does not allow are left.
    fn first(&mut self, among: &BTreeSet<usize>) -> BTreeSet<usize> {
        let mut queue = self.of_claim(among);
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

    /// Takes one of each node at most, whose share before is larger than the gang's will be.
    fn second(&mut self, among: &BTreeSet<usize>) {
        let mut queue = self.of_claim(among);
        while let Some(node) = self.next_node(&queue) {
            let cheapest = queue.iter().copied().find(|at| self.is_at(*at, node));
            queue.retain(|at| !self.is_at(*at, node));
            if let Some((at, title)) = cheapest.and_then(|at| Some((at, self.title(at)?)))
                && self.share(title.near) < self.share(title.far())
            {
                self.take(at);
            }
        }
    }

    fn allows(&self, at: usize) -> bool {
        let Some(title) = self.title(at) else { return false };
        let claim = &self.rules.claims[self.claim];
        if title.kind == Kind::Own || claim.is_within(&self.usage, self.rules.world) {
            return true;
        }
        let (near, before) = (self.share(title.near), self.share(title.far()));
        if self.rules.fairness == Some(FairSharing::InitialShare) {
            return near < before;
        }
        let mut usage = self.usage.clone();
        self.rules.let_go(&mut usage, self.candidates[at].gang);
        near <= self.rules.share(&usage, title.far())
    }

    /// The node to take from next: down from the root, always the child with the largest share.
    fn next_node(&self, queue: &BTreeSet<usize>) -> Option<QuotaIx> {
        let claim = &self.rules.claims[self.claim];
        let forest = self.rules.world.forest();
        let nodes: BTreeSet<QuotaIx> = queue
            .iter()
            .filter_map(|at| self.title(*at))
            .filter(|title| self.rules.is_open(&self.usage, title))
            .map(Title::node)
            .collect();
        let around: BTreeSet<QuotaIx> = nodes.iter().flat_map(|node| forest.path(*node)).collect();
        let mut node = around.contains(&claim.root()).then(|| claim.root())?;
        loop {
            let children = forest.children(node).filter(|child| around.contains(child));
            let largest = children.max_by(|one, other| {
                let key = |node: QuotaIx| (self.share(node), forest.height(node).min(1));
                let name = |node: QuotaIx| self.rules.world.quota_name(node);
                key(*one).cmp(&key(*other)).then_with(|| name(*other).cmp(name(*one)))
            });
            match largest {
                Some(child) => node = child,
                None => return Some(node),
            }
        }
    }

    fn of_claim(&self, among: &BTreeSet<usize>) -> BTreeSet<usize> {
        let fresh = |at: &usize| self.title(*at).is_some() && !self.taken.contains(at);
        among.iter().copied().filter(fresh).collect()
    }

    fn is_at(&self, at: usize, node: QuotaIx) -> bool {
        self.title(at).is_some_and(|title| title.node() == node)
    }

    fn title(&self, at: usize) -> Option<&Title> {
        let mut titles = self.candidates[at].titles.iter();
        titles.find(|title| title.claim == self.claim && title.kind != Kind::Priority)
    }

    fn share(&self, node: QuotaIx) -> Share {
        self.rules.share(&self.usage, node)
    }

    fn has_taken_own(&self) -> bool {
        self.taken.iter().any(|at| self.title(*at).is_some_and(|title| title.kind == Kind::Own))
    }

    fn take(&mut self, at: usize) {
        self.rules.let_go(&mut self.usage, self.candidates[at].gang);
        self.taken.push(at);
    }
}
