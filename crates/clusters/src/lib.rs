//! Several clusters: Workloads of one cluster, the hub, run in others, its workers. Compatible with the manager of `MultiKueue` (KEP 693;
//! `pkg/controller/admissionchecks/multikueue` and `pkg/controller/workloaddispatcher` of Kueue v0.19).
//!
//! One loop reads the hub and all workers, and brings each pair of a Workload and a cluster closer to what it has to be:
//!
//! - `config`, `objects`: how other clusters are used; all that decisions read
//! - `hub`, `worker`: the observed objects of the hub; those of a worker, and whether it is reached
//! - `watch`, `session`: the watches of a kind; all watches of a worker, until one of them ends
//! - `kubeconfig`: which kubeconfigs are accepted, and the client of a worker
//! - `active`: the conditions of clusters and checks
//! - `dispatch`: the next write about a Workload at the hub: nomination, choice, states of the check, the end
//! - `remote`: the next write about a Workload in one worker
//! - `write`: the writes
//! - `items`: what is looked at and written, and what the watches show before
//! - `figures`: how many gangs each worker has
//! - `clusters`: the loop
//!
//! A gang runs in one cluster: the choice is written at the hub (`status.clusterName`) before the job is created there, and a job is
//! created nowhere else until the first copy is gone, or its cluster was away for longer than the timeout.

mod active;
mod clusters;
mod config;
mod dispatch;
mod figures;
mod hub;
mod items;
mod kubeconfig;
mod objects;
mod remote;
mod session;
mod watch;
mod worker;
mod write;

pub use clusters::Clusters;
pub use config::{ClustersConfig, Connect, Dispatcher};
pub use kubeconfig::{Refusal, connect, judge};
