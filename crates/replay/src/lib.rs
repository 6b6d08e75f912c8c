//! Traces replayed in virtual time: what would Muster have done with these jobs?
//!
//! Every decision is one of [`planner::plan`] on a [`model::World`], so what is measured is what users run; there is no
//! second scheduler here. Time is a value that jumps from one event to the next.
//!
//! - `source`: files, plain or gzip, with the line and column of every field;
//! - `swf`, `philly`: formats of jobs that come, run and end; `trace`: what they are read into;
//! - `stage`: one decision: plan, have it audited, fold it back;
//! - `clock`: the loop over arrivals, ends and promised starts;
//! - `promise`: which promised starts moved later, and why;
//! - `report`: what came of it, in figures and as a table;
//! - `openb`: tasks that come and stay, until a cluster is full; `fill`: what came of that.
//!
//! Showing progress and reading flags is left to `app`.

mod clock;
mod fill;
pub mod openb;
pub mod philly;
mod promise;
mod report;
mod source;
mod stage;
pub mod swf;
mod trace;

pub use clock::{Outcome, replay};
pub use fill::{FillReport, Seed};
pub use model::Packing;
pub use promise::{Promises, Slip};
pub use report::{Class, Report};
pub use source::{Error, Problem, Source};
pub use stage::{Broken, Order};
pub use trace::{Job, LeftOut, Trace, Unit};
