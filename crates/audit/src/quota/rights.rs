//! On what reasons each of several gangs may be stopped for another one: by the rules of quota trees, judged by what is used
//! when all of them are gone.
//!
//! Rights are exercised in turn, and each ends when the victim's side uses no more than it owns. There is such a turn only
//! when on every node on the victims' sides someone could be the last: with only that one back, more is used than owned. Where
//! none of these nodes is below another, that is all it takes.

use std::collections::{BTreeMap, BTreeSet};

use model::{
    FlavorIx, FlavorResource, Gang, PreemptionPolicy, PreemptionReason, QuotaPreemption, Reclaim, Within,
};

use super::{Charges, Quotas};

/// What is known about the need to stop anybody.
#[derive(Clone, Copy)]
pub(crate) struct Contest {
    /// The pods plainly have room, so that quota alone is short.
    pub(crate) has_room: bool,
    /// Where it is not plain what is short, or in which turn rights are exercised: whether that speaks for them.
    pub(crate) is_generous: bool,
}

/// A gang, and those who are to be stopped for it. All of these are suspended meanwhile.
pub(super) struct Case<'c, 'w> {
    gang: &'c Gang,
    /// What the gang is charged.
    pub(super) more: Vec<(&'c (&'w str, FlavorResource), &'c i128)>,
    pleas: Vec<Plea<'w>>,
    /// The nodes that use more than they own of what is contended, by the plea, before anybody is stopped.
    borrowers: BTreeSet<(usize, &'w str)>,
    /// See [`Contest`].
    is_generous: bool,
    /// Who is stopped, and what it was charged.
    victims: Vec<(&'c Gang, Charges<'w>)>,
}

/// What a gang asks of one node.
struct Plea<'w> {
    rule: QuotaPreemption,
    path: Vec<&'w str>,
    needs: BTreeSet<FlavorResource>,
    contended: BTreeSet<FlavorResource>,
    /// It uses less than it owns.
    is_under: bool,
    /// The nodes of the path that own enough for all that would be used in them.
    enough: BTreeSet<&'w str>,
}

/// Where a victim stands to a plea: what lies between their nodes and the lowest one above both.
struct Sides<'w> {
    mine: Vec<&'w str>,
    theirs: Vec<&'w str>,
}

impl<'w> Plea<'w> {
    fn node(&self) -> &'w str {
        self.path[0]
    }

    fn is_in_tree_of(&self, path: &[&str]) -> bool {
        self.path.last() == path.last()
    }

    fn sides(&self, path: &[&'w str]) -> Sides<'w> {
        let up_to = |path: &[&'w str], other: &[&'w str]| {
            path.iter().copied().take_while(|node| !other.contains(node)).collect::<Vec<_>>()
        };
        let mut sides = Sides { mine: up_to(&self.path, path), theirs: up_to(path, &self.path) };
        if sides.mine.is_empty() {
            sides.mine.push(self.path[0]);
        }
        if sides.theirs.is_empty() {
            sides.theirs.push(path[0]);
        }
        sides
    }
}

impl<'w> Quotas<'w> {
    /// For each of the victims, the reasons on which it may be stopped together with the others; those who leave anyway are
    /// suspended, the victims are not.
    pub(crate) fn reasons(
        &mut self,
        gang: &Gang,
        flavors: &[BTreeMap<model::ResourceIx, FlavorIx>],
        victims: &[&Gang],
        contest: Contest,
    ) -> Vec<Vec<PreemptionReason>> {
        let mut charges = self.charges(gang, flavors);
        charges.retain(|(node, of), _| of.flavor != FlavorIx::ANY || self.is_mentioned_around(node, *of));
        let pleas = self.pleas(gang, &charges, contest);
        if pleas.is_empty() {
            return victims.iter().map(|victim| self.by_priority(gang, victim)).collect();
        }
        let mut borrowers = BTreeSet::new();
        for (at, plea) in pleas.iter().enumerate() {
            let tree = plea.path.last().into_iter().flat_map(|root| self.all_below(root));
            borrowers.extend(tree.filter(|node| self.exceeds(node, &plea.contended)).map(|node| (at, node)));
        }
        let victims: Vec<_> = victims.iter().map(|victim| (*victim, self.charged(&victim.uid))).collect();
        let is_generous = contest.is_generous;
        let case = Case { gang, more: charges.iter().collect(), pleas, borrowers, is_generous, victims };
        for (victim, _) in &case.victims {
            self.suspend(&victim.uid, true);
        }
        let reasons =
            case.victims.iter().map(|(victim, charged)| self.grounds_of(&case, victim, charged)).collect();
        for (victim, _) in &case.victims {
            self.suspend(&victim.uid, false);
        }
        reasons
    }

    /// Whether any rule could give a gang the right to the place of others.
    pub(crate) fn may_stop_others(&self, gang: &Gang) -> bool {
        let queue = self.world.queues().get(&gang.queue).and_then(|queue| queue.quota.as_deref());
        let mut named = gang.charges.iter().map(|ix| self.world.quota_name(*ix)).chain(queue);
        let rule = |name| self.nodes.get(name).map(|node| node.preemption).unwrap_or_default();
        self.world.policy().preemption != PreemptionPolicy::Never
            || named.any(|name| rule(name) != QuotaPreemption::default())
    }

    /// Whether rights depend on the order in which a gang is charged, or trees are looked at, so that nothing is sure: it is
    /// charged to a tree twice, or where shares decide to several nodes or to one with others below it.
    pub(crate) fn is_many_sided(&self, gang: &Gang) -> bool {
        let queue = self.world.queues().get(&gang.queue).and_then(|queue| queue.quota.as_deref());
        let nodes: Vec<_> = gang.charges.iter().map(|ix| self.world.quota_name(*ix)).chain(queue).collect();
        let roots: BTreeSet<&str> =
            nodes.iter().filter_map(|node| self.path(node)?.last().copied()).collect();
        let is_inner = |node: &&str| self.children(node).next().is_some();
        let by_share = self.world.policy().fair_sharing.is_some();
        roots.len() < nodes.len() || (by_share && (nodes.len() > 1 || nodes.iter().any(is_inner)))
    }

    fn grounds_of(
        &mut self,
        case: &Case<'_, 'w>,
        victim: &Gang,
        charged: &Charges<'w>,
    ) -> Vec<PreemptionReason> {
        let nodes: BTreeSet<&'w str> = charged.keys().map(|(node, _)| *node).collect();
        let paths: Vec<Vec<&str>> = nodes.iter().filter_map(|node| self.path(node)).collect();
        if !case.pleas.iter().any(|plea| paths.iter().any(|path| plea.is_in_tree_of(path))) {
            return self.by_priority(case.gang, victim);
        }
        let mut reasons = Vec::new();
        for (at, plea) in case.pleas.iter().enumerate() {
            let uses =
                |path: &&Vec<&str>| plea.contended.iter().any(|of| charged.contains_key(&(path[0], *of)));
            for path in paths.iter().filter(|path| plea.is_in_tree_of(path)).filter(uses) {
                if path[0] == plea.node() {
                    reasons.extend(within(plea.rule.within, case.gang, victim));
                } else if case.borrowers.contains(&(at, path[0]))
                    && may_reclaim(plea.rule.reclaim, case.gang, victim)
                {
                    let sides = plea.sides(path);
                    reasons.extend(if self.world.policy().fair_sharing.is_some() {
                        self.by_share(case, plea, &sides)
                    } else {
                        self.by_ownership(case, plea, &sides, victim)
                    });
                }
            }
        }
        reasons
    }

    /// By what is owned and what is borrowed.
    fn by_ownership(
        &mut self,
        case: &Case<'_, 'w>,
        plea: &Plea<'w>,
        sides: &Sides<'w>,
        victim: &Gang,
    ) -> Option<PreemptionReason> {
        let borrows = |quotas: &Self, node: &str| quotas.exceeds(node, &plea.contended);
        if !sides.theirs.iter().all(|node| self.until_the_last(case, node, &|quotas| borrows(quotas, node))) {
            return None;
        }
        let may_borrow = |most: Option<i64>| most.is_none_or(|most| victim.priority <= most);
        let threshold = plea.rule.borrowing.map(|rule| rule.priority_max);
        let stays = || plea.needs.iter().all(|of| self.fits_within(plea.node(), *of, &case.more));
        if sides.mine.iter().any(|node| plea.enough.contains(node)) {
            Some(PreemptionReason::InCohortReclamation)
        } else if victim.priority < case.gang.priority && threshold.is_some_and(may_borrow) {
            Some(PreemptionReason::InCohortReclaimWhileBorrowing)
        } else {
            ((threshold.is_some() || plea.is_under) && stays())
                .then_some(PreemptionReason::InCohortReclamation)
        }
    }

    /// By shares.
    fn by_share(
        &mut self,
        case: &Case<'_, 'w>,
        plea: &Plea<'w>,
        sides: &Sides<'w>,
    ) -> Option<PreemptionReason> {
        let (near, far) = (sides.mine.last()?, sides.theirs.last()?);
        let borrows = |quotas: &Self, node: &str| quotas.share(node, &case.more).is_borrowing();
        if !sides.theirs.iter().all(|node| self.until_the_last(case, node, &|quotas| borrows(quotas, node))) {
            None
        } else if plea.contended.iter().all(|of| self.fits_within(plea.node(), *of, &case.more)) {
            Some(PreemptionReason::InCohortReclamation)
        } else {
            self.is_fair(case, near, far).then_some(PreemptionReason::InCohortFairSharing)
        }
    }

    /// By the rule of the cluster, between gangs that are charged to no common tree.
    fn by_priority(&self, gang: &Gang, victim: &Gang) -> Vec<PreemptionReason> {
        let allowed = self.world.policy().preemption == PreemptionPolicy::LowerPriority;
        (allowed && victim.priority < gang.priority)
            .then_some(PreemptionReason::Priority)
            .into_iter()
            .collect()
    }

    fn pleas(&self, gang: &Gang, charges: &Charges<'w>, contest: Contest) -> Vec<Plea<'w>> {
        let short: BTreeSet<_> = self.exceeded(gang, charges).into_iter().map(|(at, _)| at).collect();
        let queue = self.world.queues().get(&gang.queue).and_then(|queue| queue.quota.as_deref());
        let named = gang.charges.iter().map(|ix| self.world.quota_name(*ix));
        let nodes: BTreeSet<&'w str> = queue.into_iter().chain(named).collect();
        let more: Vec<_> = charges.iter().collect();
        let plea = |node: &'w str| {
            let path = self.path(node)?;
            let rule = self.nodes.get(node).map(|node| node.preemption).unwrap_or_default();
            let needs: BTreeSet<_> =
                charges.keys().filter(|(at, _)| *at == node).map(|(_, of)| *of).collect();
            let scarce: BTreeSet<_> =
                needs.iter().copied().filter(|of| short.contains(&(node, *of))).collect();
            let is_plain = contest.has_room || !(contest.is_generous || scarce.is_empty());
            let narrow = if contest.has_room || contest.is_generous { &scarce } else { &needs };
            let is_under = narrow.iter().all(|of| self.used(node, *of, &[]) < self.owned(node, *of));
            let contended = if is_plain { scarce } else { needs.clone() };
            let owns = |above: &&&str| needs.iter().all(|of| self.fits_within(above, *of, &more));
            let enough = path.iter().filter(owns).copied().collect();
            Some(Plea { rule, path, needs, contended, is_under, enough })
        };
        nodes.into_iter().filter_map(plea).collect()
    }

    /// Whether something still holds with only one of the victims at or below a node back: with one of them, who can then be
    /// the last of them to be stopped; or, where nothing is to be presumed, with any.
    pub(super) fn until_the_last(
        &mut self,
        case: &Case<'_, 'w>,
        node: &str,
        holds: &dyn Fn(&Self) -> bool,
    ) -> bool {
        let is_there = |charged: &Charges<'w>| {
            charged.keys().any(|(at, _)| self.path(at).is_some_and(|path| path.contains(&node)))
        };
        let there: Vec<_> =
            case.victims.iter().filter(|(_, charged)| is_there(charged)).map(|(victim, _)| victim).collect();
        let mut held = there.iter().map(|victim| {
            self.suspend(&victim.uid, false);
            let held = holds(self);
            self.suspend(&victim.uid, true);
            held
        });
        if case.is_generous { held.any(|held| held) } else { !there.is_empty() && held.all(|held| held) }
    }

    fn charged(&self, uid: &str) -> Charges<'w> {
        let mine = self.holders.iter().filter(|holder| holder.gang == uid);
        mine.flat_map(|holder| holder.charges.clone()).collect()
    }

    fn exceeds(&self, node: &str, of: &BTreeSet<FlavorResource>) -> bool {
        of.iter().any(|of| self.used(node, *of, &[]) > self.owned(node, *of))
    }

    fn fits_within(
        &self,
        node: &str,
        of: FlavorResource,
        more: &[(&(&'w str, FlavorResource), &i128)],
    ) -> bool {
        self.used(node, of, more) <= self.owned(node, of)
    }

    fn all_below(&self, node: &'w str) -> Vec<&'w str> {
        let below = self.children(node).flat_map(|child| self.all_below(child));
        std::iter::once(node).chain(below).collect()
    }

    fn is_mentioned_around(&self, node: &'w str, of: FlavorResource) -> bool {
        self.path(node).and_then(|path| path.last().copied()).is_some_and(|root| self.mentions(root, of))
    }
}

/// Among gangs that are charged to the same node.
fn within(rule: Within, gang: &Gang, victim: &Gang) -> Option<PreemptionReason> {
    let lower = victim.priority < gang.priority;
    let newer = victim.priority == gang.priority && victim.queued_at > gang.queued_at;
    let may = match rule {
        Within::Never => false,
        Within::LowerPriority => lower,
        Within::LowerOrNewerEqualPriority => lower || newer,
    };
    may.then_some(PreemptionReason::InClusterQueue)
}

/// Among gangs of other nodes that borrow.
fn may_reclaim(rule: Reclaim, gang: &Gang, victim: &Gang) -> bool {
    match rule {
        Reclaim::Never => false,
        Reclaim::LowerPriority => victim.priority < gang.priority,
        Reclaim::Any => true,
    }
}
