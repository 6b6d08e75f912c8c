//! Every queueing decision, in one pure function: [`plan`]. What it will decide is [`forecast`]n by itself.
//!
//! - `cycle`: who is tried, in which sequence, and what each is told;
//! - `order`, `usage_order` and `tournament`: whose turn comes next, by rank, within a queue and among those who share quota;
//! - `requeue`: which parked gangs are worth trying again after what changed;
//! - `request`: what a gang asks for, and what it could be given;
//! - `ledger`: what this pass has taken out of the world so far;
//! - `candidates` and `aggregate_reservations`: the nodes as one gang sees them, and what is promised on sets of them without a place;
//! - `fit`: whether a gang fits, by bounds that prove it does not, then by placement;
//! - `quota` and `flavors`: what is left of quota, and which flavors a gang is given;
//! - `place`, `search` and `repair`: pods to nodes, first by rules of thumb, then exhaustively within a budget, at last by
//!   turning some out for others;
//! - `score` and `fragmentation`: which nodes a packing policy prefers, and what is lost there to others;
//! - `topology`: the same for gangs whose pods are to be near each other, domain by domain;
//! - `preemption` and `nomination`: whom to stop for a gang, and whether its places are free at last;
//! - `backfill`: when a gang that does not fit could start, and who may pass it meanwhile;
//! - `forecast`: when those who wait will start, played on a copy;
//! - `slip`: which promised starts moved later, and why;
//! - `explain`: why it does not fit, in figures.
//!
//! What the words mean is left to `model`; whether a plan is right is judged by `audit`, which shares no code with this.

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
mod ledger;
mod nomination;
mod order;
mod place;
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

pub use forecast::forecast;
use model::{Plan, Snapshot};

/// Decides what becomes of every waiting gang that was not decided yet or that could fare better than last time.
///
/// Gangs are tried in order: priority (risen by its slope), then time of queueing, then name; those of queues that share a
/// tree of quota by how much they would borrow first. A gang that fits is admitted with a node for every
/// pod, and what it takes is gone for those after it. One that does not fit holds up nobody, except where the policy
/// reserves a start for it; and where the policy allows it, weaker gangs are stopped for it.
///
/// Pure and total: equal snapshots give equal plans, and a gang that cannot start is not an error but a verdict.
pub fn plan(snapshot: &Snapshot<'_>) -> Plan {
    cycle::Cycle::of(snapshot).run()
}
