//! Checks `docs/compat/kueue.md`: it has a row for every field of Kueue's kinds.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Value, json};

/// Fields that are one row each.
const WHOLE: [&str; 5] = ["conditions", "template", "tolerations", "nodeTaints", "namespaceSelector"];

#[test]
fn every_field_of_kueues_kinds_has_a_state() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/compat/kueue.md");
    let page = std::fs::read_to_string(page).expect("the page is readable");
    let rows = rows(&page);
    for definition in api::kueue::crds(&json!({})) {
        let kind = definition["spec"]["names"]["kind"].as_str().expect("a definition has a kind");
        let mut fields = BTreeSet::new();
        for version in definition["spec"]["versions"].as_array().into_iter().flatten() {
            let schema = &version["schema"]["openAPIV3Schema"];
            for (name, field) in schema["properties"].as_object().into_iter().flatten() {
                if !matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
                    leaves(name, field, &mut fields);
                }
            }
        }
        assert_eq!(rows.get(kind), Some(&fields), "docs/compat/kueue.md, table of {kind}");
    }
}

/// The fields of each table below `## Fields`. Panics on a row with another state than the page defines.
fn rows(page: &str) -> BTreeMap<&str, BTreeSet<String>> {
    let mut rows: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let mut kind = "";
    let (_, fields) = page.split_once("## Fields").expect("the page has a part about fields");
    for line in fields.lines() {
        if let Some(name) = line.strip_prefix("### ") {
            kind = name;
        }
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, field, state, note, _] = cells[..] else { continue };
        let Some(field) = field.strip_prefix('`').and_then(|field| field.split_once('`')) else { continue };
        assert!(matches!(state, "works" | "differs" | "not yet"), "{line}");
        assert!(state != "differs" || !note.is_empty(), "no reason: {line}");
        rows.entry(kind).or_default().insert(field.0.to_owned());
    }
    rows
}

/// The paths of the fields without fields of their own.
fn leaves(path: &str, schema: &Value, found: &mut BTreeSet<String>) {
    let name = path.rsplit('.').next().unwrap_or_default();
    let items = &schema["items"];
    if !WHOLE.contains(&name) && items["properties"].is_object() {
        return leaves(&format!("{path}[]"), items, found);
    }
    let fields = schema["properties"].as_object().filter(|_| !WHOLE.contains(&name));
    if fields.is_none() {
        found.insert(path.to_owned());
    }
    for (name, field) in fields.into_iter().flatten() {
        leaves(&format!("{path}.{name}"), field, found);
    }
}
