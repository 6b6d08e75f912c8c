//! Replays job traces in virtual time, as a discrete-event simulation of Muster.
//!
//! Every scheduling decision is a call of [`planner::plan`] on a [`model::World`]. This crate has no scheduler of its own, so a
//! replay measures the code that users run. Time is a value that jumps from one event to the next.
//!
//! - `source`: reads plain or gzip files and keeps the line and column of every field;
//! - `swf`, `philly`: readers of job traces; `trace`: the jobs and the cluster that they produce;
//! - `simulation`: one scheduling cycle: plan, optionally audit, apply the plan to the World;
//! - `event_loop`: the loop over arrivals, completions and reserved starts;
//! - `reserved_starts`: records which reserved starts slip, and why;
//! - `report`: the metrics of a replay, as JSON and as a table;
//! - `openb`: fills a cluster with tasks that never end; `fill`: the metrics of such a fill.
//!
//! `app` parses flags and shows progress.

mod event_loop;
mod fill;
pub mod openb;
pub mod philly;
mod report;
mod reserved_starts;
mod simulation;
mod source;
pub mod swf;
mod trace;

pub use event_loop::{Outcome, replay};
pub use fill::{FillReport, Seed};
pub use model::Packing;
pub use report::{Class, Report};
pub use reserved_starts::{ReservedStarts, Slip};
pub use simulation::{InvalidPlan, Order};
pub use source::{Error, Problem, Source};
pub use trace::{Job, LeftOut, Trace, Unit};
