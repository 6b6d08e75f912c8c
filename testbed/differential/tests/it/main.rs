//! The tests of the crate `differential` from outside, one module for each subject.

mod recordings;
