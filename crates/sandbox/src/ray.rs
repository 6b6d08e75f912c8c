//! A simulation of the KubeRay operator, version 1.6, for RayCluster and RayJob.
//!
//! Names, labels, containers, Services, status, conditions and events equal those of KubeRay. Not implemented:
//! RayService, `RayCronJob`, batch schedulers, and scaling decisions of the autoscaler.

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
pub(crate) use crds::definitions;
pub(crate) use job::{Caches as JobCaches, JobOperator};
pub(crate) use types::{RayCluster, RayJob};
