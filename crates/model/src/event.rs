//! What can happen to the world.

use crate::amount::Time;
use crate::gang::{Gang, Pod};
use crate::node::Node;
use crate::plan::Plan;
use crate::policy::Policy;
use crate::queue::Queue;
use crate::quota::{Flavor, QuotaNode};
use crate::usage::ConsumedResources;

/// One change of the facts. Each states the whole new truth about its object, so repeating one changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "gangs are what most events are about")]
pub enum Event {
    /// A node appeared or changed.
    NodeUpserted(Node),
    /// The node of this name is gone. What is bound or promised there stays charged, in case it returns.
    NodeRemoved(String),
    /// A pod appeared or changed. Pods that succeeded or failed are removed instead.
    PodUpserted(Pod),
    /// The pod of this uid is gone or has ended.
    PodRemoved(String),
    /// A gang appeared or changed.
    GangUpserted(Gang),
    /// The gang of this uid has ended or is gone. Its pods stay charged until they are gone too.
    GangRemoved(String),
    /// A kind of node capacity appeared or changed.
    FlavorUpserted(Flavor),
    /// The flavor of this name is gone.
    FlavorRemoved(String),
    /// A node of a quota tree appeared or changed.
    QuotaUpserted(QuotaNode),
    /// The node of this name is gone from its quota tree. What is charged to it stays charged, in case it returns.
    QuotaRemoved(String),
    /// A queue appeared or changed.
    QueueUpserted(Queue),
    /// The queue of this name is gone. Its gangs wait until it returns.
    QueueRemoved(String),
    /// The rules of the cluster changed.
    PolicySet(Policy),
    /// A gang was stopped for another one in an earlier life of this process. What plans decide is noted by itself.
    PreemptionRestored {
        /// The uid of the one that was stopped.
        victim: String,
        /// The uid of the one that took its place.
        preemptor: String,
    },
    /// What a local queue had consumed in an earlier life of this process. What its gangs hold counts from then on, whenever
    /// that was told.
    UsageRestored {
        /// The name of its queue.
        queue: String,
        /// Its name there.
        local_queue: String,
        /// What it had consumed.
        consumed: ConsumedResources,
        /// At this time.
        at: Time,
    },
    /// It is so late: what follows happens at this time, as far as that matters (see [`AdmissionFairSharing`](crate::AdmissionFairSharing)).
    /// Earlier than before, it is ignored.
    Clock(Time),
    /// A plan was accepted: what it admits is reserved from now on, and the rest is parked until something relevant
    /// changes. Parts whose gang changed since the plan's snapshot are ignored.
    Planned(Plan),
}
