//! The tests of the crate `xtask` from outside, one module for each subject.

mod ci;
mod claims;
mod dependencies;
mod glossary;
mod kueue_fields;
mod operations;
mod pages;
mod paths;
mod targets;
