//! The tests of the crate `dashboard` from outside, one module for each subject.

mod page;
