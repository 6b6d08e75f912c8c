//! Kueue's API (`kueue.x-k8s.io`) and configuration as on the wire, compatible with Kueue v0.19.1.
//!
//! All functions are pure. Objects are untyped JSON, so unknown fields survive.
//!
//! - [`kinds`]: the table of the kinds: names, scope, versions, printer columns;
//! - [`crds`]: the definitions of the kinds;
//! - [`convert`]: conversion between `v1beta1` and `v1beta2`;
//! - [`webhooks`]: defaults and validation of Kueue's own kinds, as its admission webhooks apply them;
//! - [`TopologyAssignment`]: the places of a pod set, in the compressed form of `v1beta2`;
//! - [`config`]: the configuration file of the controller;
//! - [`feature_gates`]: Kueue's feature gates;
//! - [`jobs`]: jobs that wait for a Workload;
//! - [`provisioning`]: the requests for nodes of a Workload;
//! - [`objects`]: flavors, cohorts and queues as decisions read them;
//! - [`workload`], [`status`]: a Workload, its status and its transitions;
//! - [`quantity`]: quantities as Kueue writes them.

pub mod config;
mod conversion;
mod crd;
pub mod feature_gates;
pub mod jobs;
pub mod kinds;
pub mod objects;
pub mod provisioning;
pub mod quantity;
pub mod status;
mod topology_assignment;
pub mod webhooks;
pub mod workload;

pub use conversion::{ConversionError, convert};
pub use crd::crds;
pub use topology_assignment::{Domain, TopologyAssignment};

/// The API group of all kinds.
pub const GROUP: &str = "kueue.x-k8s.io";
/// The older served version; deprecated.
pub const V1BETA1: &str = "v1beta1";
/// The newer served version, in which objects are stored.
pub const V1BETA2: &str = "v1beta2";
/// The finalizer of objects that others refer to; also Kueue's.
pub const FINALIZER: &str = "kueue.x-k8s.io/resource-in-use";
