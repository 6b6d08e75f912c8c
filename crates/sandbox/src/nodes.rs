//! Simulated nodes: their descriptions, Node objects, heartbeats and loss, and the eviction of their pods.

mod eviction;
mod lifecycle;
mod manifest;
mod spec;

pub(crate) use eviction::EvictionController;
pub(crate) use lifecycle::{NodeController, is_lost, is_simulated};
pub(crate) use spec::distinct;
pub use spec::{NodeError, NodeGroup, nodes_from_manifests};
