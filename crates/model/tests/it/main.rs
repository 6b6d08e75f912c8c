//! The tests of the crate `model` from outside, one module for each subject.

mod gang_status;
mod quota;
mod shares;
mod usage;
mod world;
