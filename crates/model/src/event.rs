//! What can happen to the world.

use crate::gang::{Gang, Pod};
use crate::node::Node;
use crate::plan::Plan;
use crate::policy::Policy;

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
    /// The rules of the cluster changed.
    PolicySet(Policy),
    /// A plan was accepted: what it admits is reserved from now on, and the rest is parked until something relevant
    /// changes. Parts whose gang changed since the plan's snapshot are ignored.
    Planned(Plan),
}
