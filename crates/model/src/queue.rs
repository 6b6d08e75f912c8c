//! Queues: doors to quota, with the order in which gangs pass and the flavors that they may have.

use crate::quota::FlavorIx;
use crate::resources::ResourceIx;
use crate::usage::AdmissionFairSharing;

/// A queue that orders gangs and may charge them to quota.
///
/// The implicit queue, `QueueIx(0)`, is this type's default: no quota, any node, best effort.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    /// Its name, unique in the world; the implicit queue has none.
    pub name: String,
    /// The name of the quota node that its gangs are charged to, beside those that a gang names itself.
    pub quota: Option<String>,
    /// What happens behind a gang that does not fit.
    pub queueing_strategy: QueueingStrategy,
    /// Whether its local queues take turns by what they have consumed; none: they do not.
    pub admission_fair_sharing: Option<AdmissionFairSharing>,
    /// Which resources come in which flavors. A resource in no group is undeclared.
    pub groups: Vec<ResourceGroup>,
    /// How the flavors of a group are tried.
    pub fungibility: FlavorFungibility,
    /// What becomes of a gang that asks for an undeclared resource, when the queue has any group.
    pub undeclared: UndeclaredResources,
    /// Nothing is admitted here. What its quota node owns others may still borrow.
    pub stopped: bool,
}

/// What happens behind a gang that does not fit. After Kueue's `queueingStrategy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueingStrategy {
    /// Whoever fits starts, as far as `Policy::backfill` lets them.
    #[default]
    BestEffortFifo,
    /// Nobody passes the first one.
    StrictFifo,
}

/// Resources that come in the same flavors: all of a pod set's are given the same one of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceGroup {
    /// The resources.
    pub resources: Vec<ResourceIx>,
    /// The flavors, in the order in which they are tried.
    pub flavors: Vec<FlavorIx>,
}

/// How the flavors of a group are tried. After Kueue's `flavorFungibility`, with its defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlavorFungibility {
    /// What to do about a flavor in which a pod set fits only by borrowing.
    pub when_can_borrow: FlavorFungibilityPolicy,
    /// What to do about a flavor in which a pod set fits only when others are stopped.
    pub when_can_preempt: FlavorFungibilityPolicy,
    /// Which of the flavors that were tried is taken when none ended the search.
    pub preference: FlavorFungibilityPreference,
}

impl Default for FlavorFungibility {
    fn default() -> Self {
        Self {
            when_can_borrow: FlavorFungibilityPolicy::MayStopSearch,
            when_can_preempt: FlavorFungibilityPolicy::TryNextFlavor,
            preference: FlavorFungibilityPreference::BorrowingOverPreemption,
        }
    }
}

/// Whether later flavors are tried although one would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlavorFungibilityPolicy {
    /// The search ends.
    MayStopSearch,
    /// A later one may be better.
    TryNextFlavor,
}

/// What is worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlavorFungibilityPreference {
    /// Stopping others is worse than borrowing.
    BorrowingOverPreemption,
    /// Borrowing is worse than stopping others.
    PreemptionOverBorrowing,
}

/// What becomes of a gang that asks for a resource that its queue does not declare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UndeclaredResources {
    /// It never starts here.
    #[default]
    Reject,
    /// The resource is not counted.
    Ignore,
}
