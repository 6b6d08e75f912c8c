//! Checks `docs/operations.md`: the tests that it names exist, and the alerts refer to its sections.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use regex::Regex;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn page() -> String {
    std::fs::read_to_string(root().join("docs/operations.md")).expect("the page is readable")
}

/// The names of all functions in files below a folder.
fn functions(folder: &Path, all: &mut BTreeSet<String>) {
    let function = Regex::new(r"\bfn ([a-z0-9_]+)").expect("the pattern is valid");
    for entry in std::fs::read_dir(folder).expect("the folder is readable") {
        let path = entry.expect("the folder is readable").path();
        if path.is_dir() && !path.ends_with("target") {
            functions(&path, all);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            let text = std::fs::read_to_string(&path).expect("the file is readable");
            all.extend(function.captures_iter(&text).map(|found| found[1].to_owned()));
        }
    }
}

#[test]
fn every_test_that_the_page_of_operation_names_exists() {
    let mut known = BTreeSet::new();
    for folder in ["crates", "testbed"] {
        functions(&root().join(folder), &mut known);
    }
    let page = page();
    let named = Regex::new(r"`([a-z0-9]+(?:_[a-z0-9]+){4,})`").expect("the pattern is valid");
    let is_metric = |name: &str| name.starts_with("muster_") || name.starts_with("kueue_");
    let named: BTreeSet<&str> =
        named.captures_iter(&page).filter_map(|found| Some(found.get(1)?.as_str())).collect();
    let missing: Vec<_> = named.iter().filter(|name| !is_metric(name) && !known.contains(**name)).collect();
    assert!(named.len() > 30, "the page names tests: {named:?}");
    assert!(missing.is_empty(), "docs/operations.md names tests that do not exist: {missing:?}");
}

#[test]
fn every_alert_refers_to_a_section_of_the_page_of_operation() {
    let page = page();
    let anchor = |title: &str| title.to_lowercase().replace([',', '.'], "").replace(' ', "-");
    let sections: BTreeSet<String> = page
        .lines()
        .filter(|line| line.starts_with('#'))
        .map(|line| anchor(line.trim_start_matches('#').trim()))
        .collect();
    let alerts = std::fs::read_to_string(root().join("charts/muster/files/alerts.yaml"))
        .expect("the alerts are readable");
    let links: Vec<&str> = alerts
        .lines()
        .filter_map(|line| line.trim().strip_prefix("runbook_url: docs/operations.md#"))
        .collect();
    assert_eq!(links.len(), alerts.matches("- alert:").count());
    let broken: Vec<_> = links.iter().filter(|link| !sections.contains(**link)).collect();
    assert!(broken.is_empty(), "{broken:?} is none of {sections:?}");
}
