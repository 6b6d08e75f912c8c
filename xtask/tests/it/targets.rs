//! Checks the targets of the crates of the workspace: one that is built without its tests (`test = false`) has none.

use std::path::{Path, PathBuf};

use cargo_metadata::{MetadataCommand, Target};

#[test]
fn a_target_that_is_not_tested_has_no_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let metadata = MetadataCommand::new().manifest_path(root.join("Cargo.toml")).no_deps().exec();
    let packages = metadata.expect("cargo describes the workspace").packages;
    let targets = || packages.iter().flat_map(|package| &package.targets);
    let untested: Vec<&Target> =
        targets().filter(|target| !target.test && (target.is_lib() || target.is_bin())).collect();
    assert!(!untested.is_empty(), "no target is built without its tests");
    for target in untested {
        let others: Vec<PathBuf> = targets().map(|other| other.src_path.clone().into()).collect();
        for file in files_of(target.src_path.as_std_path(), &others) {
            let text = std::fs::read_to_string(&file).expect("a source file is text");
            let has_tests = ["#[test]", "#[tokio::test", "proptest!"].iter().any(|mark| text.contains(mark));
            assert!(
                !has_tests,
                "{} has tests that never run: remove `test = false` of {}",
                file.display(),
                target.name
            );
        }
    }
}

/// The file of a target; of a library, with its modules. Other targets have their files elsewhere.
fn files_of(file: &Path, others: &[PathBuf]) -> Vec<PathBuf> {
    let is_lib = file.file_name().is_some_and(|name| name == "lib.rs");
    if !is_lib {
        return vec![file.to_owned()];
    }
    let mut found = vec![file.to_owned()];
    let mut folders = vec![file.parent().expect("a file is in a folder").to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder of sources is readable").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|kind| kind == "rs") && !others.contains(&path) {
                found.push(path);
            }
        }
    }
    found
}
