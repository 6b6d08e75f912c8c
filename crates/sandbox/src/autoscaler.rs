//! A node autoscaler with node pools: it answers `ProvisioningRequest`s, adds nodes for pods that fit nowhere, and removes nodes
//! without pods. After cluster-autoscaler 1.36, and after what GKE documents about queued provisioning.
//!
//! - `pool`: the description of a pool
//! - `size`: the nodes of the pools: booting, present, idle
//! - `request`: `ProvisioningRequest`s and the pods that they stand for
//! - `round`: the answers and scale-ups of one round
//! - `run`: the loop, and the writes

mod pool;
mod request;
mod round;
mod run;
mod size;

pub(crate) use pool::distinct;
pub use pool::{NodePool, PoolError};
pub(crate) use request::RequestObject;
pub(crate) use run::{Autoscaler, Stores};
