//! A stand-in for the KubeRay operator, version 1.6: RayCluster and RayJob.
//!
//! Names, labels, containers, services, status, conditions and events are those of the original. Not built: RayService,
//! `RayCronJob`, batch schedulers, the autoscaler's own decisions.

mod auth;
mod cluster;
mod containers;
mod crds;
mod job;
mod job_rules;
mod pods;
mod redis;
mod services;
mod start;
mod status;
mod submitter;
mod types;
mod validate;

pub(crate) use cluster::ClusterOperator;
pub(crate) use crds::install as install_crds;
pub(crate) use job::{Caches as JobCaches, JobOperator};
pub(crate) use types::{RayCluster, RayJob};
