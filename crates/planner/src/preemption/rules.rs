//! What gives a gang the right to the places of others, with certain flavors.
//!
//! Between gangs that are charged to the same tree of quota the rules of the tree hold, between others that of the cluster.
//! Those of a tree are Kueue's (`pkg/scheduler/preemption/classical`, v0.19); with them, MCAD's owners evict who borrows from
//! them. A right to what is borrowed ends when the borrower's node, or one between it and the gang's, uses no more than it
//! owns: so rights are exercised in turn (`turn`). What shares say instead, where they decide, is in `fair`.

use std::collections::{BTreeMap, BTreeSet};

use model::{
    Charges, FairSharing, FlavorResource, Gang, PreemptionPolicy, PreemptionReason, QuotaIx, QuotaPreemption,
    Reclaim, Usage, Within, World,
};

use crate::ledger::Ledger;
use crate::preemption::cost::Candidate;
use crate::quota::{Quotas, is_counted};
use crate::request::{Flavors, GangRequest};

/// See the module.
pub(super) struct Rules<'s> {
    pub(super) world: &'s World,
    gang: &'s Gang,
    /// What it would be charged.
    pub(super) charges: Charges,
    /// One for each quota node that it is charged to.
    pub(super) claims: Vec<Claim>,
    pub(super) fairness: Option<FairSharing>,
}

/// What a gang asks of one quota node.
pub(super) struct Claim {
    /// The node, and all above it.
    pub(super) path: Vec<QuotaIx>,
    rule: QuotaPreemption,
    /// What it needs, as far as that is counted.
    needs: BTreeMap<FlavorResource, i128>,
    /// What a victim has to use some of: that of which too little quota is left; or all that is needed when the pods have no
    /// room either.
    contended: BTreeSet<FlavorResource>,
    /// From which node of the path on it stays within what that owns.
    owner: Option<usize>,
    /// Its node uses less than it owns of all that is contended.
    is_under: bool,
}

/// What makes one gang a possible victim.
#[derive(Clone, Debug)]
pub(super) struct Title {
    pub(super) kind: Kind,
    /// The claim, by index; of no meaning for [`Kind::Priority`].
    pub(super) claim: usize,
    /// The victim's node and those above it, up to the last one that is not above the gang's node too.
    pub(super) below: Vec<QuotaIx>,
    /// The last node above the gang's that is not above the victim's.
    pub(super) near: QuotaIx,
}

/// What a title rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Its lower priority, by the rule of the cluster.
    Priority,
    /// Both are charged to the same node.
    Own,
    /// It borrows from a subtree that the gang stays within.
    Reclaim,
    /// It borrows, and the gang will not.
    ReclaimWithin,
    /// It borrows and has the lower priority; the gang may borrow too.
    WhileBorrowing,
    /// It borrows; shares decide.
    Share,
}

impl Kind {
    /// Whom to stop rather: those who borrow from the gang's own, then others, at last those of its own node.
    pub(super) fn class(self) -> u8 {
        match self {
            Self::Reclaim => 0,
            Self::Priority | Self::ReclaimWithin | Self::WhileBorrowing | Self::Share => 1,
            Self::Own => 2,
        }
    }

    pub(super) fn reason(self) -> PreemptionReason {
        match self {
            Self::Priority => PreemptionReason::Priority,
            Self::Own => PreemptionReason::InClusterQueue,
            Self::Reclaim | Self::ReclaimWithin => PreemptionReason::InCohortReclamation,
            Self::WhileBorrowing => PreemptionReason::InCohortReclaimWhileBorrowing,
            Self::Share => PreemptionReason::InCohortFairSharing,
        }
    }
}

/// Whether any rule could give gangs with these charges a right to the place of others.
pub(crate) fn may_stop_others(world: &World, request: &GangRequest<'_>) -> bool {
    let rule = |node: QuotaIx| world.quota_nodes().get(&node).map(|node| node.preemption);
    let mut rules =
        world.quota_of(request.queue).into_iter().chain(request.charges.iter().copied()).filter_map(rule);
    world.policy().preemption != PreemptionPolicy::Never
        || rules.any(|rule| rule != QuotaPreemption::default())
}

impl<'s> Rules<'s> {
    /// The rules for a gang that is given these flavors, while all who are leaving are let go.
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
        let short: BTreeSet<_> = ledger.quotas.short(&charges).collect();
        let claim = |node: QuotaIx| {
            let needs = charges.iter().filter(|((at, _), _)| *at == node);
            let needs: BTreeMap<_, _> = needs.map(|((_, of), amount)| (*of, *amount)).collect();
            let is_contended = |of: &&FlavorResource| !has_room || short.contains(&(node, **of));
            let contended = needs.keys().filter(is_contended).copied().collect();
            Claim::of(&ledger.quotas, world, node, needs, contended)
        };
        let nodes: BTreeSet<QuotaIx> =
            world.quota_of(request.queue).into_iter().chain(request.charges.iter().copied()).collect();
        let claims = nodes.into_iter().map(claim).collect();
        Self { world, gang, claims, fairness: world.policy().fair_sharing, charges }
    }

    /// What makes a gang a possible victim, as far as it does not depend on the other victims; nothing if it is none.
    pub(super) fn titles(&self, usage: &Quotas<'_>, other: &Gang) -> Vec<Title> {
        let forest = self.world.forest();
        let nodes: BTreeSet<QuotaIx> = self
            .world
            .charged(&other.uid)
            .into_iter()
            .flat_map(Charges::keys)
            .map(|(node, _)| *node)
            .collect();
        let roots: BTreeSet<QuotaIx> = nodes.iter().map(|node| forest.root(*node)).collect();
        if !self.claims.iter().any(|claim| claim.path.last().is_some_and(|root| roots.contains(root))) {
            let lower = other.priority < self.gang.priority;
            let is_victim = lower && self.world.policy().preemption == PreemptionPolicy::LowerPriority;
            let title = Title { kind: Kind::Priority, claim: 0, below: Vec::new(), near: QuotaIx::default() };
            return is_victim.then_some(title).into_iter().collect();
        }
        let mut titles = Vec::new();
        for (at, claim) in self.claims.iter().enumerate() {
            for node in nodes.iter().filter(|node| self.uses_contended(claim, other, **node)) {
                titles.extend(self.title(usage, at, other, *node));
            }
        }
        titles
    }

    fn uses_contended(&self, claim: &Claim, other: &Gang, node: QuotaIx) -> bool {
        let charged = self.world.charged(&other.uid);
        self.world.forest().root(node) == claim.root()
            && claim
                .contended
                .iter()
                .any(|of| charged.is_some_and(|charged| charged.contains_key(&(node, *of))))
    }

    /// The title to a gang that is charged to a node of the same tree.
    fn title(&self, usage: &Quotas<'_>, at: usize, other: &Gang, node: QuotaIx) -> Option<Title> {
        let claim = &self.claims[at];
        let forest = self.world.forest();
        let lower = other.priority < self.gang.priority;
        if node == claim.node() {
            let newer = other.priority == self.gang.priority && self.gang.queued_at < other.queued_at;
            let is_victim = match claim.rule.within {
                Within::Never => false,
                Within::LowerPriority => lower,
                Within::LowerOrNewerEqualPriority => lower || newer,
            };
            return is_victim.then(|| Title { kind: Kind::Own, claim: at, below: Vec::new(), near: node });
        }
        let is_victim = match claim.rule.reclaim {
            Reclaim::Never => false,
            Reclaim::LowerPriority => lower,
            Reclaim::Any => true,
        };
        let common = forest.path(node).find(|above| claim.path.contains(above))?;
        let mut below: Vec<QuotaIx> = forest.path(node).take_while(|above| *above != common).collect();
        if below.is_empty() {
            below.push(node); // It is charged above the gang's node.
        }
        let place = claim.path.iter().position(|above| *above == common)?;
        let near = claim.path[place.saturating_sub(1)];
        let threshold = claim.rule.borrowing.map(|rule| rule.priority_max.unwrap_or(i64::MAX));
        let kind = if self.fairness.is_some() {
            Kind::Share
        } else if claim.owner.is_some_and(|owner| owner < place) {
            Kind::Reclaim
        } else if lower && threshold.is_some_and(|most| other.priority <= most) {
            Kind::WhileBorrowing
        } else if threshold.is_some() || claim.is_under {
            Kind::ReclaimWithin
        } else {
            return None;
        };
        let title = Title { kind, claim: at, below, near };
        let borrows = title.below.first().is_some_and(|node| claim.exceeds(usage, self.world, *node));
        (is_victim && borrows && self.is_open(usage, &title)).then_some(title)
    }

    /// Whether a title still holds with this usage.
    pub(super) fn is_open(&self, usage: &Quotas<'_>, title: &Title) -> bool {
        let claim = || &self.claims[title.claim];
        match title.kind {
            Kind::Priority | Kind::Own => true,
            Kind::Reclaim | Kind::ReclaimWithin | Kind::WhileBorrowing => {
                title.below.iter().all(|node| claim().exceeds(usage, self.world, *node))
            }
            Kind::Share => {
                title.below.iter().all(|node| !self.world.forest().share(usage, *node).is_nothing())
            }
        }
    }

    /// Whether the gang would end within what its node owns, wherever a title to any of the candidates demands that.
    pub(super) fn ends_within(&self, usage: &Quotas<'_>, candidates: &[Candidate<'_>]) -> bool {
        let titles = candidates.iter().flat_map(|candidate| &candidate.titles);
        let claims: BTreeSet<usize> =
            titles.filter(|title| title.kind == Kind::ReclaimWithin).map(|title| title.claim).collect();
        let mut needs = claims.iter().flat_map(|at| {
            let claim = &self.claims[*at];
            claim.needs.iter().map(|(of, needs)| (claim.node(), *of, *needs))
        });
        let forest = self.world.forest();
        needs.all(|(node, of, needs)| usage.used(node, of) + needs <= forest.owned(node, of))
    }

    /// How high up the gang would borrow, as far as its queue gives it flavors; see [`model::Forest::borrowing_level`].
    pub(super) fn borrowing_level(&self, usage: &Quotas<'_>, node: Option<QuotaIx>) -> u32 {
        let forest = self.world.forest();
        let charges = self.charges.iter().filter(|((at, _), _)| Some(*at) == node);
        charges.map(|((at, of), amount)| forest.borrowing_level(usage, *at, *of, *amount)).max().unwrap_or(0)
    }
}

impl Claim {
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
        let is_under = contended.iter().all(|of| usage.used(node, *of) < forest.owned(node, *of));
        let mut more = needs.clone(); // What of it reaches a node of the path.
        let owner = path.iter().position(|node| {
            let fits =
                more.iter().all(|(of, more)| usage.used(*node, *of) + more <= forest.owned(*node, *of));
            for (of, more) in &mut more {
                *more -= (forest.kept(*node, *of) - usage.used(*node, *of)).clamp(0, *more);
            }
            fits
        });
        Self { path, rule, needs, contended, owner, is_under }
    }

    /// The node.
    pub(super) fn node(&self) -> QuotaIx {
        self.path[0]
    }

    /// The root of its tree.
    pub(super) fn root(&self) -> QuotaIx {
        self.path[self.path.len() - 1]
    }

    /// Whether a node uses more than it owns of anything that is contended.
    fn exceeds(&self, usage: &Quotas<'_>, world: &World, node: QuotaIx) -> bool {
        self.contended.iter().any(|of| usage.used(node, *of) > world.forest().owned(node, *of))
    }

    /// Whether its node uses no more than it owns of what is contended.
    pub(super) fn is_within(&self, usage: &Quotas<'_>, world: &World) -> bool {
        !self.exceeds(usage, world, self.node())
    }
}
