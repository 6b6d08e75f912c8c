//! The events that change the world.

use crate::amount::Time;
use crate::gang::{Gang, Pod};
use crate::node::Node;
use crate::plan::Plan;
use crate::policy::Policy;
use crate::queue::Queue;
use crate::quota::{Flavor, QuotaNode};
use crate::usage::ConsumedResources;

/// One change of the world. An event carries the complete new state of its object, so applying it twice changes
/// nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "gangs are what most events are about")]
pub enum Event {
    /// A node appeared or changed.
    NodeUpserted(Node),
    /// The node of this name was deleted. Pods and reservations on it stay charged, in case the node returns.
    NodeRemoved(String),
    /// A pod appeared or changed. A pod that succeeded or failed is removed instead.
    PodUpserted(Pod),
    /// The pod of this uid was deleted or has terminated.
    PodRemoved(String),
    /// A gang appeared or changed.
    GangUpserted(Gang),
    /// The gang of this uid was deleted or has finished. Its pods stay charged until they are removed.
    GangRemoved(String),
    /// A flavor appeared or changed.
    FlavorUpserted(Flavor),
    /// The flavor of this name was deleted.
    FlavorRemoved(String),
    /// A node of a quota tree appeared or changed.
    QuotaUpserted(QuotaNode),
    /// The quota node of this name was deleted. Its charges stay, in case the node returns.
    QuotaRemoved(String),
    /// A queue appeared or changed.
    QueueUpserted(Queue),
    /// The queue of this name was deleted. Its gangs stay pending until the queue returns.
    QueueRemoved(String),
    /// The policy of the cluster changed.
    PolicySet(Policy),
    /// A preemption that an earlier process decided. Preemptions in accepted plans are recorded without this event.
    PreemptionRestored {
        /// The uid of the preempted gang.
        victim: String,
        /// The uid of the gang that preempted it.
        preemptor: String,
    },
    /// The usage of a local queue that an earlier process recorded. From `at` on, the usage of its gangs is added, no
    /// matter when this event arrives.
    UsageRestored {
        /// The name of the queue.
        queue: String,
        /// The name of the local queue within the queue.
        local_queue: String,
        /// The decayed usage.
        consumed: ConsumedResources,
        /// The time of that usage.
        at: Time,
    },
    /// Advances the clock: later events happen at this time. Only decayed usage depends on the clock, see
    /// [`AdmissionFairSharing`](crate::AdmissionFairSharing). A time before the current clock is ignored.
    Clock(Time),
    /// A plan was accepted. Capacity of admitted gangs is reserved from now on. Gangs that do not fit are parked
    /// until a change that may help them. Parts of the plan are ignored when their gang changed after the snapshot of
    /// the plan.
    Planned(Plan),
}
