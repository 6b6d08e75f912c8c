//! The controllers: they watch a cluster, ask for a plan, and carry it out.
//!
//! One loop folds what watches report into the [`index`], asks the planner for a [`model::Plan`], and hands single steps to
//! a bounded number of concurrent writers, whose answers are folded back like any other observation. What to do next about one
//! wrapper is a plain function ([`step`]); doing it is [`execute`]. Nothing polls, and nothing is remembered that the API
//! server does not know.

mod api_calls;
mod backoff;
mod config;
mod controller;
mod crds;
mod discovery;
mod error;
mod events;
mod execute;
mod forbidden;
mod lease;
mod observations;
mod published_config;
mod step;
mod watched;
mod watches;

pub use config::{Clock, Config, Inspect};
pub use controller::{Controller, Observer, WrapperPhase, WrapperReport};
pub use crds::{install_crds, install_quota_crd};
pub use error::Error;
pub use forbidden::ForbiddenRequest;
pub use lease::LeaderElectionConfig;
pub use model::Packing;
pub use published_config::{publish_config, published_config};
