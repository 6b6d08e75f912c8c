//! The tests of the crate `server` from outside, one module for each subject.

mod admission;
mod kueue;
