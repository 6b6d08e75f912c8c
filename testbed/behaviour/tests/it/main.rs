//! The tests of the crate `behaviour` from outside, one module for each subject.

mod attempts;
mod common;
mod operators;
mod oracle;
mod sandbox;
