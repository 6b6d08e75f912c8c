//! Checks `docs/operations.md` and the page with its proofs: the tests exist, and the alerts and proofs refer to its sections.

use std::collections::BTreeSet;
use std::path::Path;

use regex::Regex;

use crate::root;

fn page(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).expect("the page is readable")
}

/// The titles of the sections of the page of operation.
fn titles() -> BTreeSet<String> {
    let page = page("docs/operations.md");
    let titles = page.lines().filter(|line| line.starts_with('#'));
    titles.map(|line| line.trim_start_matches('#').trim().to_owned()).collect()
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
fn every_test_behind_the_page_of_operation_exists() {
    let mut known = BTreeSet::new();
    for folder in ["crates", "testbed"] {
        functions(&root().join(folder), &mut known);
    }
    let page = page("docs/compat/operation.md");
    let named = Regex::new(r"`([a-z0-9]+(?:_[a-z0-9]+){4,})`").expect("the pattern is valid");
    let named: BTreeSet<&str> =
        named.captures_iter(&page).filter_map(|found| Some(found.get(1)?.as_str())).collect();
    let missing: Vec<_> = named.iter().filter(|name| !known.contains(**name)).collect();
    assert!(named.len() > 30, "the page names tests: {named:?}");
    assert!(missing.is_empty(), "docs/compat/operation.md names tests that do not exist: {missing:?}");
}

#[test]
fn every_proof_is_of_a_section_of_the_page_of_operation() {
    let page = page("docs/compat/operation.md");
    let (_, table) = page.split_once("\n## Operation\n").expect("the page has the tests of operation");
    let table = table.split("\n## ").next().unwrap_or_default();
    let sections = table.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next()).skip(2);
    let titles = titles();
    let wrong: Vec<_> = sections.filter(|section| !titles.contains(*section)).collect();
    assert!(wrong.is_empty(), "docs/operations.md does not have the sections {wrong:?}");
}

#[test]
fn every_alert_refers_to_a_section_of_the_page_of_operation() {
    let anchor = |title: String| title.to_lowercase().replace([',', '.'], "").replace(' ', "-");
    let sections: BTreeSet<String> = titles().into_iter().map(anchor).collect();
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
