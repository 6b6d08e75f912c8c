//! Kueue's dialect: the next write of each Workload and queue, and Kueue's texts.
//!
//! - `step`: the next write of a Workload, a pure function of the observed state;
//! - `metrics`: Kueue's metrics;
//! - `statuses`: the statuses of queues;
//! - `texts`: Kueue's messages, rendered from the planner's shortages;
//! - `write`: the requests.

pub(crate) mod metrics;
pub(crate) mod statuses;
pub(crate) mod step;
pub(crate) mod texts;
pub(crate) mod write;
