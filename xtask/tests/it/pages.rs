//! Checks the pages: links lead somewhere, every page is reachable from the README, and what users read is without test names, long cells
//! and commands that do not exist.

mod commands;
mod markdown;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use regex::Regex;

use markdown::Page;

use crate::root;

/// The most characters of a cell that users read.
const CELL_MAX: usize = 300;

#[test]
fn every_link_leads_to_a_file_or_a_section_that_exists() {
    let pages = pages();
    let broken: Vec<String> =
        pages.iter().flat_map(|(path, page)| broken_links(&pages, path, page)).collect();
    assert!(pages.len() > 40, "only {} pages were read", pages.len());
    assert!(broken.is_empty(), "these links lead nowhere:\n{}", broken.join("\n"));
}

#[test]
fn every_page_is_reachable_from_the_readme() {
    let pages = pages();
    let mut reached = BTreeSet::new();
    let mut open = vec![PathBuf::from("README.md")];
    while let Some(path) = open.pop() {
        if reached.insert(path.clone()) {
            let links =
                pages[&path].links.iter().filter_map(|link| target(&path, link)).map(|(path, _)| path);
            open.extend(links.filter(|path| pages.contains_key(path)));
        }
    }
    let lost: Vec<_> = pages.keys().filter(|path| !reached.contains(*path)).collect();
    assert!(
        lost.is_empty(),
        "no link from README.md leads to {lost:?}: add them to a shelf of docs/README.md"
    );
}

#[test]
fn no_cell_that_users_read_is_long() {
    let mut long = Vec::new();
    for (path, page) in pages_for_users() {
        let cells = page.cells.iter().filter(|cell| cell.text.chars().count() > CELL_MAX);
        long.extend(cells.map(|cell| format!("{}:{}: {}", path.display(), cell.line, cell.text)));
    }
    assert!(long.is_empty(), "these cells have more than {CELL_MAX} characters:\n{}", long.join("\n"));
}

#[test]
fn no_page_for_users_names_a_test() {
    let tests = tests();
    assert!(tests.len() > 1000, "only {} tests were found", tests.len());
    let mut named = Vec::new();
    for (path, page) in pages_for_users() {
        let codes =
            page.codes.iter().filter(|code| tests.contains(&code.text) || code.text.contains("tests/it"));
        named.extend(codes.map(|code| format!("{}:{}: {}", path.display(), code.line, code.text)));
    }
    assert!(named.is_empty(), "the proof belongs into docs/compat:\n{}", named.join("\n"));
}

#[test]
fn every_command_of_a_page_exists_with_its_flags() {
    let pages = pages();
    let known = commands::known(&read(Path::new("docs/reference/command-line.md")));
    let (mut count, mut wrong) = (0, Vec::new());
    for (path, page) in &pages {
        for code in page.blocks.iter().chain(&page.codes) {
            for call in commands::calls(&code.text) {
                count += 1;
                let fault = commands::fault(&known, &call);
                wrong.extend(fault.map(|fault| format!("{}:{}: {fault}", path.display(), code.line)));
            }
        }
    }
    assert!(count > 100, "only {count} commands were found");
    assert!(wrong.is_empty(), "docs/reference/command-line.md does not have:\n{}", wrong.join("\n"));
}

/// All pages of the repository, by their paths from its root.
fn pages() -> BTreeMap<PathBuf, Page> {
    let mut paths: Vec<PathBuf> =
        ["README.md", "CONTRIBUTING.md", "testbed/README.md"].map(PathBuf::from).into();
    paths.extend(files(Path::new("docs"), "md"));
    paths.into_iter().map(|path| (path.clone(), Page::of(&read(&path)))).collect()
}

/// The README, the shelves *use* and *run* of `docs/README.md`, and the guides.
fn pages_for_users() -> BTreeMap<PathBuf, Page> {
    let index = Path::new("docs/README.md");
    let text = read(index);
    let (_, shelves) = text.split_once("\n## Use\n").expect("docs/README.md has the shelf `Use`");
    let (shelves, _) = shelves.split_once("\n## Build\n").expect("docs/README.md has the shelf `Build`");
    let links = Page::of(shelves).links;
    let mut paths: BTreeSet<PathBuf> = links.iter().filter_map(|link| Some(target(index, link)?.0)).collect();
    paths.extend(["README.md", "docs/README.md"].map(PathBuf::from));
    paths.extend(files(Path::new("docs/stories"), "md"));
    assert!(paths.len() > 30, "{paths:?}");
    paths.into_iter().map(|path| (path.clone(), Page::of(&read(&path)))).collect()
}

/// The file and the section that a link of a page means; `None`: another site.
fn target(page: &Path, link: &str) -> Option<(PathBuf, Option<String>)> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (file, section) = link.split_once('#').map_or((link, None), |(file, section)| (file, Some(section)));
    let folder = page.parent().unwrap_or(Path::new(""));
    let path = if file.is_empty() { page.to_owned() } else { normal(&folder.join(file)) };
    Some((path, section.map(str::to_owned)))
}

/// The path without `..`.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        if part != Component::ParentDir || !normal.pop() {
            normal.push(part);
        }
    }
    normal
}

fn broken_links(pages: &BTreeMap<PathBuf, Page>, path: &Path, page: &Page) -> Vec<String> {
    let mut broken = Vec::new();
    for link in &page.links {
        let Some((file, section)) = target(path, link) else { continue };
        let exists = !file.starts_with("..") && root().join(&file).exists();
        let has_section = section
            .is_none_or(|section| pages.get(&file).is_some_and(|page| page.sections.contains(&section)));
        if !exists || !has_section {
            broken.push(format!("{}: {link}", path.display()));
        }
    }
    broken
}

/// The names of all tests, and of all functions whose name is a sentence: cases of the testbed.
fn tests() -> BTreeSet<String> {
    let test = Regex::new(r"#\[(?:tokio::)?test\b[^\]]*\]\s*(?:#\[[^\]]*\]\s*)*(?:pub )?(?:async )?fn (\w+)")
        .expect("a pattern");
    let sentence = Regex::new(r"\bfn ([a-z0-9]+(?:_[a-z0-9]+){4,})").expect("a pattern");
    let mut names = BTreeSet::new();
    for file in ["crates", "testbed", "xtask"].iter().flat_map(|folder| files(Path::new(folder), "rs")) {
        let text = read(&file);
        let found = test.captures_iter(&text).chain(sentence.captures_iter(&text));
        names.extend(found.map(|found| found[1].to_owned()));
    }
    names
}

fn read(path: &Path) -> String {
    let text = std::fs::read_to_string(root().join(path));
    text.unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All files with this extension below a folder of the repository.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in root().join(folder).read_dir().expect("the folder is readable") {
        let entry = entry.expect("the folder is readable");
        let path = folder.join(entry.file_name());
        if entry.file_type().expect("the entry is readable").is_dir() {
            if entry.file_name() != "target" {
                found.extend(files(&path, extension));
            }
        } else if path.extension().is_some_and(|has| has == extension) {
            found.push(path);
        }
    }
    found
}
