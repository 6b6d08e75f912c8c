//! Flavor fungibility: whether a gang preempts others in one flavor although it fits in another one. After Kueue's
//! flavor assigner (`shouldTryNextFlavor` and `isPreferred` in `pkg/scheduler/flavorassigner`, v0.19).

use model::{FlavorFungibility, FlavorFungibilityPolicy, FlavorFungibilityPreference, Queue, World};

use crate::fit::try_fit_with;
use crate::flavors::Alternatives;
use crate::ledger::Ledger;
use crate::preemption::may_preempt;
use crate::request::{Flavors, GangRequest};

/// How a gang gets the quota and the nodes of a flavor assignment; the earlier the better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mode {
    /// They are free.
    Fit,
    /// They are being released, or gangs of other quota nodes are preempted.
    Reclaim,
    /// A gang of its own quota node is preempted.
    Preempt,
    /// Preemption would help, but no gang may be preempted.
    NoVictims,
    /// Not at all.
    Never,
}

/// A flavor assignment with which a gang fits outright, and its borrowing level.
pub(crate) type FittingFlavors = (Flavors, u32);

/// Whether the queue of a gang may prefer preemption in one flavor to a fit in another one.
pub(crate) fn may_prefer_preemption(world: &World, request: &GangRequest<'_>) -> bool {
    let Some(queue) = world.queues().get(&request.queue) else { return false };
    let FlavorFungibility { when_can_preempt, preference, .. } = queue.fungibility;
    let is_configured = when_can_preempt == FlavorFungibilityPolicy::MayStopSearch
        || preference == FlavorFungibilityPreference::PreemptionOverBorrowing;
    is_configured
        && queue.groups.iter().any(|group| group.flavors.len() > 1)
        && request.shape.scale_up.is_none()
        && may_preempt(world, request)
}

/// The flavor assignments with which a gang fits outright; empty when its queue never prefers preemption to them, or
/// when there are too many assignments to compare.
pub(crate) fn fitting(ledger: &Ledger<'_>, request: &GangRequest<'_>) -> Vec<FittingFlavors> {
    let world = ledger.world;
    if !may_prefer_preemption(world, request) {
        return Vec::new();
    }
    let alternatives = Alternatives::of(world, request);
    let alternatives = Some(alternatives.all).filter(|_| alternatives.is_complete).unwrap_or_default();
    let level = |flavors: Flavors| {
        try_fit_with(ledger, request, &flavors).ok()?;
        let level = borrowing_level(ledger, request, &flavors);
        Some((flavors, level))
    };
    alternatives.into_iter().filter_map(level).collect()
}

/// The level at which a gang would borrow with these flavors.
pub(crate) fn borrowing_level(ledger: &Ledger<'_>, request: &GangRequest<'_>, flavors: &Flavors) -> u32 {
    let charges = ledger.charges_with(request, request.shape, flavors);
    ledger.quotas.borrowing_level(&charges, ledger.world.quota_of(request.queue))
}

/// The preference of a queue between flavor assignments; the smaller is better.
pub(crate) fn rank(queue: &Queue, mode: Mode, level: u32) -> (Option<Mode>, u32, u32) {
    let hopeless = Some(mode).filter(|mode| *mode >= Mode::NoVictims);
    let mode = mode as u32;
    match queue.fungibility.preference {
        FlavorFungibilityPreference::BorrowingOverPreemption => (hopeless, mode, level),
        FlavorFungibilityPreference::PreemptionOverBorrowing => (hopeless, level, mode),
    }
}

/// Whether further flavor assignments are not tried.
pub(crate) fn stops_search(queue: &Queue, mode: Mode, level: u32) -> bool {
    let FlavorFungibility { when_can_borrow, when_can_preempt, .. } = queue.fungibility;
    mode < Mode::NoVictims
        && (mode == Mode::Fit || when_can_preempt == FlavorFungibilityPolicy::MayStopSearch)
        && (level == 0 || when_can_borrow == FlavorFungibilityPolicy::MayStopSearch)
}
