//! Checks the inventory in `docs/security.md` against the code: every label, annotation and gate that the code names is in the table of
//! what authors write, and every row of the table is still read.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use regex::Regex;

use crate::root;

/// The crates that run in a cluster.
const CRATES: [&str; 8] = ["api", "index", "controllers", "clusters", "server", "app", "dashboard", "model"];
/// The heading of the inventory.
const HEADING: &str = "## What authors write";
/// The beginning of the line with names of the same form that are no fields.
const OTHERS: &str = "No fields of authors' objects:";

#[test]
fn every_label_and_annotation_that_the_code_reads_is_in_the_table_of_what_authors_write() {
    let known = names_of_docs();
    let unknown: Vec<String> = names_of_code().difference(&known).cloned().collect();
    assert!(
        unknown.is_empty(),
        "docs/security.md has no row for {unknown:?}. Whoever can write an object can write these: say in the table under '{HEADING}' \
         who trusts it and what checks it. What is no label, annotation or gate goes into the line '{OTHERS}'."
    );
}

#[test]
fn every_row_of_what_authors_write_is_read_by_the_code() {
    let code = names_of_code();
    let unused: Vec<String> = names_of_docs().difference(&code).cloned().collect();
    assert!(unused.is_empty(), "docs/security.md has rows for {unused:?}, which the code does not name");
}

#[test]
fn names_are_found_in_strings_and_versions_are_none() {
    let found = names_in(
        r#"const A: &str = "kueue.x-k8s.io/queue-name"; "kueue.x-k8s.io/v1beta2" "a/b" "ray.io/v1""#,
    );
    assert_eq!(found.into_iter().collect::<Vec<_>>(), ["kueue.x-k8s.io/queue-name"]);
}

/// The names in the section of the inventory.
fn names_of_docs() -> BTreeSet<String> {
    let page = std::fs::read_to_string(root().join("docs/security.md")).expect("docs/security.md is there");
    let section = page.split(HEADING).nth(1).expect("docs/security.md has the inventory");
    let section = section.split("\n## ").next().unwrap_or_default();
    names_in(&section.replace('`', "\""))
}

fn names_of_code() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for name in CRATES {
        for file in files(&root().join("crates").join(name).join("src")) {
            let text = std::fs::read_to_string(&file).expect("a source file is text");
            // Tests come last.
            names.extend(names_in(text.split("#[cfg(test)]").next().unwrap_or_default()));
        }
    }
    names
}

/// The qualified names in string literals whose domain is one that jobs and queues use.
fn names_in(text: &str) -> BTreeSet<String> {
    const DOMAINS: &str = r"kueue\.x-k8s\.io|muster\.dev|codeflare\.dev[a-z.]*|mcad\.ibm\.com|jobset\.sigs\.k8s\.io|leaderworkerset\.sigs\.k8s\.io|ray\.io|training\.kubeflow\.org|batch\.kubernetes\.io|apps\.kubernetes\.io|statefulset\.kubernetes\.io|autoscaling\.x-k8s\.io";
    let name =
        Regex::new(&format!(r#""((?:[a-z0-9-]+\.)*(?:{DOMAINS})/[A-Za-z0-9._-]*)""#)).expect("a pattern");
    let version = Regex::new(r"/v[0-9]+((alpha|beta)[0-9]+)?$").expect("a pattern");
    let names = name.captures_iter(text).map(|found| found[1].to_owned());
    names.filter(|name| !version.is_match(name)).collect()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder of sources").flatten() {
        let path = entry.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            files.extend(files_of(&path));
        } else if path.extension().is_some_and(|kind| kind == "rs") && name != "tests.rs" {
            files.push(path);
        }
    }
    files
}

fn files_of(folder: &Path) -> Vec<PathBuf> {
    if folder.file_name().is_some_and(|name| name == "tests") { Vec::new() } else { files(folder) }
}
