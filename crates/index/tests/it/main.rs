//! The tests of the crate `index` from outside, one module for each subject.

mod daemon_sets;
mod fold;
mod kueue_queues;
mod pod_rules;
mod volumes;
