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

use std::path::{Path, PathBuf};

/// The folder of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is in the workspace").to_owned()
}
