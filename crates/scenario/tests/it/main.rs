//! The tests of the crate `scenario` from outside, one module for each subject.

mod round_trip;
