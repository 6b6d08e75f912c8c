//! The gangs that hold capacity, as far as preemption asks for them. The cluster state stays the same for a whole cycle,
//! so each answer is found once.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use model::{Charges, Gang, GangState, Preemption, PreemptionPolicy, QuotaIx, World};

/// See the module.
#[derive(Debug)]
pub(crate) struct Holders<'w> {
    world: &'w World,
    /// The gangs with an assignment that are charged in quota trees, by the roots of these.
    in_trees: RefCell<BTreeMap<BTreeSet<QuotaIx>, Rc<[Holder<'w>]>>>,
    terminating_victims: OnceCell<BTreeSet<&'w str>>,
    terminating: OnceCell<Vec<&'w str>>,
}

/// A gang with an assignment, and what it is charged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holder<'w> {
    pub(super) gang: &'w Gang,
    pub(super) charges: Option<&'w Charges>,
}

/// Victims of earlier cycles that still hold their assignment.
pub(crate) fn terminating_victims(world: &World) -> impl Iterator<Item = &Gang> {
    let preemptions = world.nominated().filter_map(|gang| match &gang.state {
        GangState::Nominated(preemption) => Some(preemption),
        GangState::Waiting | GangState::Reserved(_) | GangState::Unplaced => None,
    });
    let victims = preemptions.flat_map(Preemption::victim_uids);
    victims.filter_map(|uid| world.gang(uid)).filter(|gang| gang.state.assignment().is_some())
}

impl<'w> Holders<'w> {
    pub(crate) fn of(world: &'w World) -> Self {
        Self {
            world,
            in_trees: RefCell::default(),
            terminating_victims: OnceCell::new(),
            terminating: OnceCell::new(),
        }
    }

    /// The uids of [`terminating_victims`].
    pub(crate) fn terminating_victims(&self) -> &BTreeSet<&'w str> {
        let find = || terminating_victims(self.world).map(|gang| gang.uid.as_str()).collect();
        self.terminating_victims.get_or_init(find)
    }

    /// The uids of all gangs that release what they hold: [`terminating_victims`], and gangs that ended or were requeued but
    /// still have bound pods. Sorted.
    pub(crate) fn terminating(&self) -> &[&'w str] {
        self.terminating.get_or_init(|| {
            let mut uids = self.terminating_victims().clone();
            uids.extend(self.world.terminating_gangs());
            uids.into_iter().collect()
        })
    }

    /// The running gangs of which another one may preempt some, by uid.
    pub(crate) fn candidates(
        &self,
        gang: &Gang,
        preemptors: &BTreeSet<&str>,
        is_spared: &dyn Fn(&str) -> bool,
    ) -> Vec<Holder<'w>> {
        let is_replaced = |uid: &str| gang.replaces.as_ref().is_some_and(|replaced| replaced.uid == uid);
        let may = |other: &Holder<'_>| {
            let uid = other.gang.uid.as_str();
            !other.gang.protected
                && !is_replaced(uid)
                && !self.terminating_victims().contains(uid)
                && !preemptors.contains(uid)
                && !is_spared(uid)
        };
        match concerned_trees(self.world, gang) {
            Some(roots) => self.in_trees(roots).iter().copied().filter(may).collect(),
            None => self.world.placed_gangs().map(|gang| self.holder(gang)).filter(may).collect(),
        }
    }

    fn holder(&self, gang: &'w Gang) -> Holder<'w> {
        Holder { gang, charges: self.world.charged(&gang.uid) }
    }

    fn in_trees(&self, roots: BTreeSet<QuotaIx>) -> Rc<[Holder<'w>]> {
        let mut known = self.in_trees.borrow_mut();
        if let Some(found) = known.get(&roots) {
            return found.clone();
        }
        let found = self.world.charged_in(&roots).filter(|gang| gang.state.assignment().is_some());
        let found: Rc<[Holder<'w>]> = found.map(|gang| self.holder(gang)).collect();
        known.insert(roots, found.clone());
        found
    }
}

/// The quota trees in which alone a gang may preempt others; none if it may preempt gangs that share no tree with it.
fn concerned_trees(world: &World, gang: &Gang) -> Option<BTreeSet<QuotaIx>> {
    if world.policy().preemption != PreemptionPolicy::Never {
        return None;
    }
    let nodes = world.quota_of(gang.queue).into_iter().chain(gang.charges.iter().copied());
    Some(nodes.map(|node| world.forest().root(node)).collect())
}
