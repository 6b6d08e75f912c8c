//! The custom resources AppWrapper and `QuotaSubtree`, and the Kubernetes objects inside AppWrappers, as on the wire.
//!
//! All functions are pure. `controllers` watches and writes these objects; `index` converts them to types of `model`.
//!
//! - [`appwrapper`]: spec, status and conditions of an AppWrapper, its transitions, its CRD, and rendering of its
//!   objects;
//! - [`annotations`], [`quota`]: annotations of an AppWrapper, and MCAD's `QuotaSubtree`;
//! - [`kueue`]: Kueue's kinds, their conversion, defaults and validation, and its configuration file;
//! - [`provisioning`]: `ProvisioningRequest` of node autoscalers;
//! - [`demand`], [`pod`], [`validate`]: the pods that a wrapped object will create, and validation after KubeRay;
//! - [`dry_run`]: the pod of a dry run, and what its answer tells;
//! - [`pod_rules`], [`selector`]: rules between pods, and the pods that they select;
//! - [`volumes`]: the persistent volume claims of pods;
//! - [`wrapped_kinds`]: the kinds whose pods are followed;
//! - [`scheduling_gate`]: the scheduling gate in pod templates, and the patch that removes it;
//! - [`amounts`], [`quantity`], [`time`], [`meta`]: resource lists, quantities, time stamps and object metadata.

pub mod amounts;
pub mod annotations;
pub mod appwrapper;
pub mod demand;
pub mod dry_run;
pub mod kueue;
pub mod limit_range;
pub mod meta;
pub mod pod;
pub mod pod_rules;
pub mod provisioning;
pub mod quantity;
pub mod quota;
pub mod scheduling_gate;
pub mod selector;
pub mod time;
pub mod validate;
pub mod volumes;
pub mod wrapped_kinds;

mod value;

pub use amounts::Amounts;
pub use annotations::{GangAnnotations, NamespaceLimits};
pub use meta::{Meta, OwnerKey, OwnerReference};
pub use time::MicroTime;
