//! The controllers of Jobs, Deployments, `ReplicaSet`s, `StatefulSet`s and `DaemonSet`s, as in kube-controller-manager.
//!
//! Each controller reads the caches, decides with a pure function, and carries out the steps. Not implemented:
//! adoption of orphans by selector, deletion of the claims of a `StatefulSet`, proportional scaling during a rollout.

mod daemonset;
mod deployment;
mod job;
mod job_policies;
mod job_rules;
mod replicaset;
mod statefulset;
pub(crate) mod template;

pub(crate) use daemonset::DaemonSets;
pub(crate) use deployment::Deployments;
pub(crate) use job::Jobs;
pub(crate) use replicaset::ReplicaSets;
pub(crate) use statefulset::StatefulSets;
