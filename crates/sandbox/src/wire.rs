//! Kubernetes types with only those fields that components read. Components write JSON; these types are never written
//! back as whole objects, so unknown fields are not lost.

mod meta;
mod node;
mod pod;
mod quantity;
mod storage;
mod workload;

pub(crate) use meta::{Condition, Key, Meta, Owner, Stamp, condition, micro_time};
pub(crate) use node::{Node, Taint};
pub(crate) use pod::{
    Container, LabelSelector, NodeSelectorTerm, Pod, PodAffinity, PodAffinityTerm, Requirement, Resources,
    Toleration, TopologySpreadConstraint,
};
pub use quantity::{Quantity, QuantityError};
pub(crate) use storage::{
    Claim, ClaimRef, Namespace, PodVolume, SELECTED_NODE, StorageClass, TopologyTerm, Volume,
};
pub(crate) use workload::{
    CustomResourceDefinition, DaemonSet, Deployment, FailureRule, Job, JobStatus, ReplicaSet,
    ReplicaSetStatus, StatefulSet, StatefulSetStatus,
};
