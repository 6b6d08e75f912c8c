//! Computes every scheduling decision in one pure function: [`plan`]. [`forecast`] predicts later decisions.
//!
//! The scheduling cycle:
//!
//! - `cycle`: one scheduling cycle over the pending gangs;
//! - `order`: the rank of pending gangs, and strict FIFO queues;
//! - `held_quota`: what the first gang of a strict queue keeps from other queues;
//! - `usage_order`: the order within one cluster queue, with admission fair sharing between its local queues;
//! - `tournament`: the order between cluster queues that share quota;
//! - `requeue`: selects the parked gangs to try again after a change of the cluster;
//! - `ledger`: the free resources of the nodes and the used quota in the course of the cycle.
//!
//! Whether a gang fits:
//!
//! - `request`: the request of a gang, and what it is assigned;
//! - `fit`: combines quota, flavors and placement;
//! - `quota`: the unused quota of the quota trees;
//! - `flavors`: assigns resource flavors to pod sets;
//! - `fungibility`: whether preemption in one flavor goes before a fit in another one;
//! - `candidates`: the candidate nodes of a gang, grouped into equivalent nodes;
//! - `aggregate_reservations`: resources that are reserved on a set of nodes, without a specific node;
//! - `place`, `search` and `repair`: bin packing of pods onto nodes: greedy, then exhaustive within a budget,
//!   then by ejection;
//! - `score` and `fragmentation`: the node scores of the packing policies;
//! - `pod_rules`: placement of gangs with rules between pods;
//! - `topology`: topology-aware placement, domain by domain;
//! - `explain`: why a gang does not fit, in figures; `lacks`: the same where quota alone decides, pod set by pod set.
//!
//! Preemption, backfill and forecast:
//!
//! - `preemption`: selects the victims that a gang preempts;
//! - `nomination`: decides when a nominated gang is admitted on the nodes of its victims;
//! - `backfill`: reserves starts for gangs that do not fit, and backfills other gangs around them;
//! - `slip`: reports which reserved starts moved later, and why;
//! - `forecast`: predicts when pending gangs start, by simulation on a copy of the cluster state.
//!
//! The types are defined in `model`. `audit` checks plans independently and shares no code with this crate.

#![deny(clippy::float_arithmetic, clippy::float_cmp)]

mod aggregate_reservations;
mod backfill;
mod candidates;
mod cycle;
mod explain;
mod fit;
mod flavors;
mod forecast;
mod fragmentation;
mod fungibility;
mod held_quota;
mod lacks;
mod ledger;
mod nomination;
mod order;
mod place;
mod pod_rules;
mod preemption;
mod quota;
mod repair;
mod request;
mod requeue;
mod score;
mod search;
mod slip;
mod topology;
mod tournament;
mod usage_order;

pub use flavors::{Lack, LackReason};
pub use forecast::forecast;
pub use lacks::lacks;
use model::{Plan, Snapshot};

/// Decides about every pending gang that has no verdict yet, or whose verdict may have changed.
///
/// Gangs are tried by priority (raised by the priority slope over time), then queueing time, then name.
/// Between queues of one quota tree, the gang that would borrow less goes first. A gang that fits is admitted
/// with a node for every pod, and its resources are no longer free for the gangs after it. A gang that does
/// not fit does not block others, except in a strict queue or where the policy reserves a start for it. Where
/// the policy allows it, gangs of lower priority are preempted.
///
/// Pure and total: equal snapshots give equal plans. A gang that cannot start gets a verdict, not an error.
pub fn plan(snapshot: &Snapshot<'_>) -> Plan {
    cycle::Cycle::of(snapshot).run()
}
