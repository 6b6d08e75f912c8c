//! The nouns of queueing: amounts, nodes, gangs, the world they live in, plans and the reasons in them.
//!
//! Integers and ordered containers only. This crate knows no Kubernetes type, clock, random source, logger or float;
//! what is decided with these nouns is left to `planner`, and what was decided is judged by `audit`.
//!
//! The [`World`] is the one place where facts are kept. It folds [`Event`]s, keeps beside them the indexes that
//! planning needs, and lends itself as a [`Snapshot`].

#![deny(clippy::float_arithmetic, clippy::float_cmp)]

mod amount;
mod constraints;
mod device;
mod event;
mod gang;
mod join;
mod late;
mod node;
mod outlook;
mod plan;
mod policy;
mod quantity;
mod queue;
mod quota;
mod resources;
mod service;
mod shortage;
mod snapshot;
mod standing;
mod topology;
mod world;

pub use amount::{Amount, Time};
pub use constraints::{Constraints, Obstacle, Operator, Requirement, Term};
pub use device::{DeviceShare, DeviceShareError, DeviceShares, Portion, Room};
pub use event::Event;
pub use gang::{Assignment, Gang, GangKey, GangState, NodeName, Pod, PodSet, Shape};
pub use join::{Beside, Joining, Joins};
pub use late::{Late, LateCause};
pub use node::{Effect, Node, NodeClass, Taint, Toleration, TolerationOperator};
pub use outlook::{Forecast, Outlook};
pub use plan::{Ground, Plan, Preemption, Reserved, Verdict, Victim};
pub use policy::{Backfill, FairSharing, Packing, Policy, Preempting};
pub use quantity::Quantity;
pub use queue::{Fungibility, NextFlavor, Preference, Queue, QueueOrder, ResourceGroup, Undeclared};
pub use quota::{
    Flavor, FlavorIx, FlavorResource, Forest, Limits, QuotaIx, QuotaNode, QuotaPreemption, Reclaim, Share,
    Usage, WhileBorrowing, Within,
};
pub use resources::{ResourceIx, ResourceMask, ResourceNames, ResourceVec, Sum};
pub use service::{Consumed, LocalQueueIx, Service, UsageSharing};
pub use shortage::{Basis, Cause, Doubt, Level, QuotaCause, Shortage, Wake};
pub use snapshot::Snapshot;
pub use standing::{Places, Standing, Start, Wait};
pub use topology::{SLICE_LAYERS_MAX, TooFar, TopologyFault, TopologyMode, TopologyRequest, TopologySlice};
pub use world::{
    Aggregate, Charges, ClassIx, ClassRow, Dirt, DomainPath, Excerpt, GangIx, NodeIx, NodeUsage, OrderKey,
    PodKind, Position, QueueIx, ShapeIx, ShapeRow, Turn, World, charges,
};
