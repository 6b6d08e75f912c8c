//! A pod scheduler that filters and scores as kube-scheduler's default profile does, and binds through the API.
//!
//! Left out: preemption by `PriorityClass`, volumes, dynamic resource allocation, image locality, and the soft spreading that
//! kube-scheduler adds by default to pods of a Service. What does not fit is tried again when something that can help
//! has changed, not on a timer.

mod affinity;
mod cache;
mod filter;
mod request;
mod run;
mod score;
mod spread;
mod verdict;

pub(crate) use run::Scheduler;
