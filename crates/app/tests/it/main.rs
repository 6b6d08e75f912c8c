//! The tests of the crate `app` from outside, one module for each subject.

mod cluster;
mod commands;
mod common;
mod completions;
mod get;
mod installed;
mod migrate;
mod mistakes;
mod page;
mod pending_workloads;
mod plan_pods;
mod queued_kinds;
mod release;
mod shared_controller;
mod tenants;
mod traces;
mod uninstall;
mod up;
mod why_and_plan;
