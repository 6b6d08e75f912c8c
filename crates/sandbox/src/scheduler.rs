//! A pod scheduler with the filters and scores of kube-scheduler's default profile. It binds pods through the API.
//!
//! Not implemented: preemption by `PriorityClass`, dynamic resource allocation, limits of attached volumes, image locality,
//! and the default topology spreading of kube-scheduler for pods of a Service. An unschedulable pod is retried after a change
//! that can help it, not on a timer.

mod affinity;
mod cache;
mod filter;
mod request;
mod run;
mod score;
mod select_node;
mod simulation;
mod spread;
mod volumes;

pub(crate) use request::effective;
pub(crate) use run::Scheduler;
pub(crate) use simulation::Simulation;
