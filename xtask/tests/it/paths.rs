//! Checks that the paths in the documentation for contributors exist.

use std::path::Path;

/// Pages in which every path in backticks is a path of the repository.
const PAGES: [&str; 2] = ["docs/ARCHITECTURE.md", "docs/extending.md"];

#[test]
fn every_path_in_backticks_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut missing = Vec::new();
    for page in PAGES {
        let text = std::fs::read_to_string(root.join(page)).expect("the page is readable");
        let paths = paths_in(&text);
        assert!(!paths.is_empty(), "{page} has no path in backticks");
        missing.extend(
            paths.into_iter().filter(|path| !root.join(path).exists()).map(|path| format!("{page}: {path}")),
        );
    }
    assert!(missing.is_empty(), "these paths do not exist:\n{}", missing.join("\n"));
}

#[test]
fn only_inline_code_with_a_slash_and_without_a_space_is_a_path() {
    let page = "`docs/a.md`, `plan`, `cargo run -p a/b` in a/b\n```sh\n`c/d`\n```\nand `e/`\n";
    assert_eq!(paths_in(page), ["docs/a.md", "e/"]);
}

/// The inline code that contains a slash and no space, outside of fenced blocks.
fn paths_in(page: &str) -> Vec<&str> {
    let mut is_fenced = false;
    let mut paths = Vec::new();
    for line in page.lines() {
        if line.starts_with("```") {
            is_fenced = !is_fenced;
        } else if !is_fenced {
            let code = line.split('`').skip(1).step_by(2);
            paths.extend(code.filter(|code| code.contains('/') && !code.contains(' ')));
        }
    }
    paths
}
