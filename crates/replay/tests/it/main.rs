//! The tests of the crate `replay` from outside, one module for each subject.

mod easy;
mod formats;
mod openb;
mod replays;
