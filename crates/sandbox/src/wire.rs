//! Kubernetes objects as the simulated components read them: slim types that declare only the fields some component
//! looks at. What is written is JSON built where it is written; unknown fields never pass through these types.

mod meta;
mod node;
mod pod;
mod quantity;
mod workload;

pub(crate) use meta::{Condition, Key, Meta, Owner, Stamp, condition, micro_time};
pub(crate) use node::{Node, Taint};
pub(crate) use pod::{
    Container, LabelSelector, NodeSelectorTerm, Pod, PodAffinity, PodAffinityTerm, Requirement, Toleration,
    TopologySpreadConstraint,
};
pub use quantity::{Quantity, QuantityError};
pub(crate) use workload::{
    CustomResourceDefinition, DaemonSet, Deployment, Job, JobStatus, ReplicaSet, ReplicaSetStatus,
    StatefulSet, StatefulSetStatus,
};
