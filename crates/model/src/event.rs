//! What can happen to the world.

use crate::gang::{Gang, Pod};
use crate::node::Node;
use crate::plan::Plan;
use crate::policy::Policy;
use crate::queue::Queue;
use crate::quota::{Flavor, QuotaNode};

/// One change of the facts. Each states the whole new truth about its object, so repeating one changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    Stopped {
        /// The uid of the one that was stopped.
        gang: String,
        /// The uid of the one that took its place.
        by: String,
    },
    /// A plan was accepted: what it admits is reserved from now on, and the rest is parked until something relevant
    /// changes. Parts whose gang changed since the plan's snapshot are ignored.
    Planned(Plan),
}
