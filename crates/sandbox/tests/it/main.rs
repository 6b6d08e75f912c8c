//! The tests of the crate `sandbox` from outside, one module for each subject.

mod any_jobs;
mod autoscaler;
mod leader_worker_sets;
mod mpi_jobs;
mod nodes_and_pods;
mod operators;
mod ray_clusters;
mod ray_jobs;
mod ray_options;
mod support;
mod throughput;
mod volumes;
mod workloads;
