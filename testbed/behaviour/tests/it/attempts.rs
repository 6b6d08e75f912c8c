//! The table of attempts in `docs/security.md` is that of the cases.

#![allow(clippy::unwrap_used, reason = "a panic shows where the test failed")]

use std::path::Path;

use behaviour::cases::tenants::attempts;

#[test]
fn the_docs_have_the_table_of_attempts_of_the_cases() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/security.md");
    let page = std::fs::read_to_string(page).unwrap();
    let table = attempts::table();
    assert!(page.contains(&table), "docs/security.md needs this table:\n{table}");
}
