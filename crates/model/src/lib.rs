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
mod forecast;
mod gang;
mod gang_status;
mod node;
mod plan;
mod policy;
mod quantity;
mod queue;
mod quota;
mod resources;
mod scale_up;
mod shortage;
mod slip;
mod snapshot;
mod topology;
mod usage;
mod world;

pub use amount::{Amount, Time};
pub use constraints::{Constraints, Obstacle, Operator, Requirement, Term};
pub use device::{DeviceShare, DeviceShareError, DeviceShares, AllocatedResources, FreeResources};
pub use event::Event;
pub use forecast::{Forecast, ForecastStart};
pub use gang::{Assignment, Gang, GangKey, GangState, NodeName, Pod, PodSet, Shape};
pub use gang_status::{ExpectedStart, GangStatus, PendingStatus, PodsPerNode};
pub use node::{Effect, Node, NodeClass, Taint, Toleration, TolerationOperator};
pub use plan::{Plan, Preemption, PreemptionReason, Reservation, Verdict, Victim};
pub use policy::{Backfill, FairSharing, Packing, Policy, PreemptionPolicy};
pub use quantity::Quantity;
pub use queue::{FlavorFungibility, FlavorFungibilityPolicy, FlavorFungibilityPreference, Queue, QueueingStrategy, ResourceGroup, UndeclaredResources};
pub use quota::{
    Flavor, FlavorIx, FlavorResource, Forest, Limits, QuotaIx, QuotaNode, QuotaPreemption, ReclaimWithinCohort, DominantShare,
    QuotaUsage, BorrowWithinCohort, WithinClusterQueue,
};
pub use resources::{ResourceIx, ResourceMask, ResourceNames, ResourceVec, Sum};
pub use scale_up::{Colocation, ScaleUp, ScaleUpRequest};
pub use shortage::{Basis, Cause, NodesWithAmount, QueueingHint, QuotaCause, SearchOutcome, Shortage};
pub use slip::{Slip, SlipCause};
pub use snapshot::Snapshot;
pub use topology::{
    SLICE_LAYERS_MAX, TopologyError, TopologyMode, TopologyRequest, TopologyShortage, TopologySlice,
};
pub use usage::{AdmissionFairSharing, ConsumedResources, DecayedUsage, LocalQueueIx};
pub use world::{
    AggregateReservation, Charges, ClassIx, ClassRow, DirtyNode, DomainPath, ForecastCopy, GangIx, NodeIx, NodeUsage,
    OrderKey, PodKind, Position, QueueIx, ShapeIx, ShapeRow, SortKey, World, charges,
};
