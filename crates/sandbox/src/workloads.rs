//! The controllers of Jobs, Deployments, `ReplicaSet`s, `StatefulSet`s and `DaemonSet`s, as in kube-controller-manager.
//!
//! Each looks at cached objects, decides with a plain function, and carries the steps out. Left out: adoption of orphans by
//! selector, pod failure and success policies, claims of a `StatefulSet`, proportional scaling during a rollout.

mod daemonset;
mod deployment;
mod job;
mod job_rules;
mod replicaset;
mod statefulset;
mod template;

pub(crate) use daemonset::DaemonSets;
pub(crate) use deployment::Deployments;
pub(crate) use job::Jobs;
pub(crate) use replicaset::ReplicaSets;
pub(crate) use statefulset::StatefulSets;
