//! The data model of queueing: amounts, nodes, gangs, queues, quota, the world that holds them, plans and their
//! reasons.
//!
//! Integers and ordered containers only. This crate knows no Kubernetes type, clock, random source, logger or float.
//! The `planner` crate decides with these types; the `audit` crate checks its decisions.
//!
//! The [`World`] folds [`Event`]s, keeps the indexes that planning needs, and is read as a [`Snapshot`].
//!
//! - `amount`, `resources`, `quantity`: amounts and times, vectors of amounts by resource, amounts as text;
//! - `device`: shared devices, and the free resources of a node;
//! - `node`, `constraints`, `topology`: nodes, eligibility of nodes, topology requests;
//! - `pod_rules`: rules between pods;
//! - `gang`, `gang_key`, `pod_set`, `assignment`: gangs, their names, pod sets and assignments;
//! - `shape`, `scale_up`: what decides whether a gang fits; missing pods of running gangs;
//! - `queue`, `quota`, `usage`: queues, quota trees, decayed usage of local queues;
//! - `policy`: preemption, backfill, fair sharing and packing;
//! - `event`, `world`, `snapshot`: the events, the world that folds them, and a read-only view of it;
//! - `plan`, `shortage`, `slip`: decisions, why a gang is not admitted, and why a reserved start moved;
//! - `forecast`, `expected_start`, `gang_status`: computed starts, what is known of a start, and the status of a gang as value and text.

#![deny(clippy::float_arithmetic, clippy::float_cmp)]

mod amount;
mod assignment;
mod constraints;
mod device;
mod event;
mod expected_start;
mod forecast;
mod gang;
mod gang_key;
mod gang_status;
mod node;
mod plan;
mod pod_rules;
mod pod_set;
mod policy;
mod quantity;
mod queue;
mod quota;
mod resources;
mod scale_up;
mod shape;
mod shortage;
mod slip;
mod snapshot;
mod topology;
mod usage;
mod world;

pub use amount::{Amount, Time};
pub use assignment::{Assignment, NodeName};
pub use constraints::{Constraints, Obstacle, Operator, Requirement, Term};
pub use device::{AllocatedResources, DeviceShare, DeviceShareError, DeviceShares, FreeResources};
pub use event::Event;
pub use expected_start::{ExpectedStart, UnknownEnd};
pub use forecast::{Forecast, ForecastStart};
pub use gang::{Gang, GangState, Places, Pod, Replaced};
pub use gang_key::GangKey;
pub use gang_status::{GangStatus, PendingStatus, PodsPerNode};
pub use node::{Effect, Node, NodeClass, Taint, Toleration, TolerationOperator};
pub use plan::{Hold, Plan, Preemption, PreemptionReason, Reservation, Verdict, Victim};
pub use pod_rules::{HostPort, PodAffinity, PodMark, PodRules, PodTerm, SelectorIx, SpreadConstraint};
pub use pod_set::PodSet;
pub use policy::{Backfill, FairSharing, Packing, Policy, PreemptionPolicy, TopologyPolicy};
pub use quantity::{Quantity, milli_text};
pub use queue::{
    FlavorFungibility, FlavorFungibilityPolicy, FlavorFungibilityPreference, Queue, QueueIx,
    QueueingStrategy, ResourceGroup, UndeclaredResources,
};
pub use quota::{
    BorrowWithinCohort, DominantShare, Flavor, FlavorIx, FlavorResource, Forest, Limits, QuotaIx, QuotaNode,
    QuotaPreemption, QuotaUsage, ReclaimWithinCohort, WithinClusterQueue,
};
pub use resources::{ResourceIx, ResourceMask, ResourceNames, ResourceVec, Sum};
pub use scale_up::ScaleUpRequest;
pub use shape::{Colocation, ScaleUp, Shape};
pub use shortage::{
    Basis, Cause, NodesWithAmount, PodRuleLimit, PodRuleShortage, QueueingHint, QuotaCause, SearchOutcome,
    Shortage, TopologyShortage,
};
pub use slip::{Slip, SlipCause};
pub use snapshot::Snapshot;
pub use topology::{SLICE_LAYERS_MAX, TopologyError, TopologyMode, TopologyRequest, TopologySlice};
pub use usage::{AdmissionFairSharing, ConsumedResources, DecayedUsage, LocalQueueIx};
pub use world::{
    AggregateReservation, Charges, ClassIx, ClassRow, DirtyNode, DomainPath, ForecastCopy, GangIx, NodeIx,
    NodeUsage, OrderKey, PodKind, Position, ShapeIx, ShapeRow, SortKey, World, charges,
};
