//! Queues: the order of their gangs, the flavors of their resources and their quota node.

use crate::quota::FlavorIx;
use crate::resources::ResourceIx;
use crate::usage::AdmissionFairSharing;

/// A queue, as a dense index; see `World::queue_ix`. Zero is the implicit queue of a cluster without queue objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueIx(pub u32);

/// A queue orders its gangs and may charge them to a quota node. It corresponds to Kueue's `ClusterQueue`.
///
/// The default value is the implicit queue, `QueueIx(0)`: no quota, any node, best-effort FIFO with reserved starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// The name, unique in the world; empty for the implicit queue.
    pub name: String,
    /// The name of the quota node that its gangs are charged to, in addition to the quota nodes that a gang names
    /// itself.
    pub quota: Option<String>,
    /// Whether gangs of the queue may pass a gang of the queue that does not fit.
    pub queueing_strategy: QueueingStrategy,
    /// Gangs of the queue that do not fit get reserved starts, as many as `Policy::backfill` allows in the cluster.
    /// Without it, both strategies mean what they mean in Kueue. No gang of any queue may delay a reserved start.
    pub reserves_starts: bool,
    /// The rule that orders local queues by their decayed usage. `None`: local queues do not influence the order.
    pub admission_fair_sharing: Option<AdmissionFairSharing>,
    /// The flavors of each resource. A resource in no group is undeclared.
    pub groups: Vec<ResourceGroup>,
    /// How the flavors of a group are tried.
    pub fungibility: FlavorFungibility,
    /// Pods get nodes in all flavors of the queue, also in those that are [`Flavor::quota_only`].
    ///
    /// [`Flavor::quota_only`]: crate::Flavor::quota_only
    pub places_pods: bool,
    /// What happens to a gang that requests an undeclared resource, when the queue has at least one group.
    pub undeclared: UndeclaredResources,
    /// The queue admits no gang. Other queues may still borrow the quota of its quota node. Kueue's `stopPolicy:
    /// Hold`.
    pub stopped: bool,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            name: String::new(),
            quota: None,
            queueing_strategy: QueueingStrategy::default(),
            reserves_starts: true,
            admission_fair_sharing: None,
            groups: Vec::new(),
            fungibility: FlavorFungibility::default(),
            undeclared: UndeclaredResources::default(),
            places_pods: false,
            stopped: false,
        }
    }
}

/// Whether gangs may pass a gang that does not fit. After Kueue's `queueingStrategy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueingStrategy {
    /// Gangs behind a gang that does not fit may start, within the limits of `Policy::backfill`.
    #[default]
    BestEffortFifo,
    /// No gang of the queue passes the first one.
    StrictFifo,
}

/// Resources that share a list of flavors: all resources of the group that a pod set requests get the same flavor.
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
    /// What to do when a pod set fits in a flavor only by borrowing.
    pub when_can_borrow: FlavorFungibilityPolicy,
    /// What to do when a pod set fits in a flavor only by preemption.
    pub when_can_preempt: FlavorFungibilityPolicy,
    /// Which flavor is selected when no flavor stopped the search.
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

/// Whether later flavors are tried although the current flavor would do. After Kueue's `FlavorFungibilityPolicy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlavorFungibilityPolicy {
    /// The search stops at this flavor.
    MayStopSearch,
    /// The next flavor is tried as well.
    TryNextFlavor,
}

/// Which of borrowing and preemption is preferred. After Kueue's `FlavorFungibilityPreference`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlavorFungibilityPreference {
    /// Borrowing is preferred to preemption.
    BorrowingOverPreemption,
    /// Preemption is preferred to borrowing.
    PreemptionOverBorrowing,
}

/// What happens to a gang that requests a resource that its queue does not declare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UndeclaredResources {
    /// The gang is never admitted in this queue.
    #[default]
    Reject,
    /// The resource is not charged.
    Ignore,
}
