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
    pub order: QueueOrder,
    /// Whether its local queues take turns by what they have consumed; none: they do not.
    pub sharing: Option<AdmissionFairSharing>,
    /// Which resources come in which flavors. A resource in no group is undeclared.
    pub groups: Vec<ResourceGroup>,
    /// How the flavors of a group are tried.
    pub fungibility: Fungibility,
    /// What becomes of a gang that asks for an undeclared resource, when the queue has any group.
    pub undeclared: Undeclared,
    /// Nothing is admitted here. What its quota node owns others may still borrow.
    pub stopped: bool,
}

/// What happens behind a gang that does not fit. After Kueue's `queueingStrategy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueOrder {
    /// Whoever fits starts, as far as `Policy::backfill` lets them.
    #[default]
    BestEffort,
    /// Nobody passes the first one.
    Strict,
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
pub struct Fungibility {
    /// What to do about a flavor in which a pod set fits only by borrowing.
    pub when_can_borrow: NextFlavor,
    /// What to do about a flavor in which a pod set fits only when others are stopped.
    pub when_can_preempt: NextFlavor,
    /// Which of the flavors that were tried is taken when none ended the search.
    pub preference: Preference,
}

impl Default for Fungibility {
    fn default() -> Self {
        Self {
            when_can_borrow: NextFlavor::Ignore,
            when_can_preempt: NextFlavor::Try,
            preference: Preference::BorrowingOverPreemption,
        }
    }
}

/// Whether later flavors are tried although one would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextFlavor {
    /// The search ends.
    Ignore,
    /// A later one may be better.
    Try,
}

/// What is worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preference {
    /// Stopping others is worse than borrowing.
    BorrowingOverPreemption,
    /// Borrowing is worse than stopping others.
    PreemptionOverBorrowing,
}

/// What becomes of a gang that asks for a resource that its queue does not declare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Undeclared {
    /// It never starts here.
    #[default]
    Refuse,
    /// The resource is not counted.
    Ignore,
}
