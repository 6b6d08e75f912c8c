//! Checks `docs/glossary.md` against the code: every module name is a word of the page, and the page has no unused words.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::root;

/// The crates whose modules carry the vocabulary of the project.
const CRATES: [&str; 7] = ["model", "planner", "audit", "index", "controllers", "api", "scenario"];

#[test]
fn every_module_name_is_a_word_of_the_glossary() {
    let glossary = Glossary::read();
    let mut unknown = BTreeSet::new();
    for name in CRATES {
        for module in modules(&root().join("crates").join(name).join("src")) {
            if !glossary.defines(&module) {
                unknown.insert(format!("`{module}` (crates/{name})"));
            }
        }
    }
    assert!(
        unknown.is_empty(),
        "docs/glossary.md has no row for the modules {}. A new word is a decision: rename the module to a term of Kubernetes, Kueue, \
         Slurm or the literature, or add a row with meaning and source. A word of plain English goes into the line `Plain words:`.",
        unknown.into_iter().collect::<Vec<_>>().join(", ")
    );
}

#[test]
fn every_word_of_the_glossary_is_used() {
    let glossary = Glossary::read();
    let names = names_in_code();
    let unused: Vec<_> = glossary
        .rows
        .keys()
        .chain(&glossary.plain)
        .filter(|word| !names.contains(&singular(word)) && !is_in_docs(word))
        .collect();
    assert!(
        unused.is_empty(),
        "docs/glossary.md defines words that no module, no public type and no other page uses: {unused:?}"
    );
}

#[test]
fn every_row_of_the_glossary_has_a_meaning_and_a_source() {
    for (word, row) in Glossary::read().rows {
        assert!(!row.meaning.is_empty(), "`{word}` has no meaning in docs/glossary.md");
        assert!(!row.source.is_empty(), "`{word}` has no source in docs/glossary.md");
    }
}

#[test]
fn a_plural_has_the_singular_of_its_word() {
    for (plural, word) in
        [("watches", "watch"), ("api calls", "api call"), ("status", "status"), ("queue", "queue")]
    {
        assert_eq!(singular(plural), word);
    }
}

#[test]
fn a_type_name_is_split_into_lower_case_words() {
    assert_eq!(words_of("ClusterQueue"), "cluster queue");
    assert_eq!(words_of("Gang"), "gang");
}

struct Row {
    meaning: String,
    source: String,
}

/// The page `docs/glossary.md`.
struct Glossary {
    rows: BTreeMap<String, Row>,
    /// Module names that need no definition.
    plain: BTreeSet<String>,
}

impl Glossary {
    fn read() -> Self {
        let page =
            std::fs::read_to_string(root().join("docs/glossary.md")).expect("docs/glossary.md is readable");
        let mut rows = BTreeMap::new();
        for line in page.lines().filter(|line| line.starts_with('|')) {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            let [word, meaning, source] = cells[..] else {
                panic!("the row `{line}` does not have three cells")
            };
            if word == "word" || word.starts_with("---") {
                continue;
            }
            let row = Row { meaning: meaning.to_owned(), source: source.to_owned() };
            assert!(
                rows.insert(word.to_owned(), row).is_none(),
                "docs/glossary.md has two rows for `{word}`"
            );
        }
        let plain = page.lines().find_map(|line| line.strip_prefix("Plain words: "));
        let plain = plain.expect("docs/glossary.md has a line `Plain words: ...`").trim_end_matches('.');
        let plain = plain.split(", ").map(str::to_owned).collect();
        Self { rows, plain }
    }

    /// Whether the page has a word, in singular or plural.
    fn defines(&self, word: &str) -> bool {
        self.rows.keys().chain(&self.plain).any(|known| singular(known) == singular(word))
    }
}

/// The names of the modules directly in a source folder, and of all modules that are declared with `pub mod` below it.
fn modules(source: &Path) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for entry in source.read_dir().expect("the crate has a folder src") {
        let path = entry.expect("the folder is readable").path();
        let stem = path.file_stem().and_then(|stem| stem.to_str()).expect("file names are UTF-8");
        if !matches!(stem, "lib" | "main") {
            names.insert(stem.replace('_', " "));
        }
    }
    for text in sources(source) {
        let declared = text.lines().filter_map(|line| line.trim_start().strip_prefix("pub mod "));
        names.extend(declared.map(|name| name.trim_end_matches([';', '{', ' ']).replace('_', " ")));
    }
    names
}

/// The names of all modules and public types of the workspace, as lower-case words.
fn names_in_code() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for folder in ["crates", "testbed"] {
        for entry in root().join(folder).read_dir().expect("the workspace has this folder") {
            let source = entry.expect("the folder is readable").path().join("src");
            if !source.is_dir() {
                continue;
            }
            names.extend(modules(&source).iter().map(|name| singular(name)));
            for text in sources(&source) {
                for line in text.lines() {
                    let kinds = ["pub struct ", "pub enum ", "pub type ", "pub trait "];
                    let Some(rest) = kinds.iter().find_map(|kind| line.strip_prefix(kind)) else { continue };
                    let name = rest.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
                    names.insert(singular(&words_of(name)));
                }
            }
        }
    }
    names
}

/// The word without the ending of a regular plural.
fn singular(word: &str) -> String {
    let stem = ["ches", "shes"].iter().find_map(|end| word.ends_with(end).then(|| &word[..word.len() - 2]));
    let stem = stem.or_else(|| word.strip_suffix('s').filter(|stem| !stem.ends_with(['s', 'u', 'i'])));
    stem.unwrap_or(word).to_owned()
}

/// `ClusterQueue` as `cluster queue`.
fn words_of(name: &str) -> String {
    let mut words = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.extend(letter.to_lowercase());
    }
    words
}

/// Whether a page other than the glossary has this word.
fn is_in_docs(word: &str) -> bool {
    let pages = files(&root().join("docs"), "md").into_iter().chain([root().join("README.md")]);
    let mut pages = pages.filter(|path| !path.ends_with("glossary.md"));
    pages.any(|path| {
        let page = std::fs::read_to_string(path).expect("pages are readable").to_lowercase();
        let mut rest = page.as_str();
        while let Some(at) = rest.find(word) {
            let before = rest[..at].chars().next_back().is_some_and(char::is_alphanumeric);
            let after = &rest[at + word.len()..];
            // A plural is the same word.
            let ends = !after.trim_start_matches('s').starts_with(char::is_alphanumeric);
            if !before && ends {
                return true;
            }
            rest = after;
        }
        false
    })
}

fn sources(folder: &Path) -> Vec<String> {
    let read = |path: PathBuf| std::fs::read_to_string(path).expect("sources are readable");
    files(folder, "rs").into_iter().map(read).collect()
}

/// All files with this extension below a folder.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in folder.read_dir().expect("the folder is readable") {
        let path = entry.expect("the folder is readable").path();
        if path.is_dir() {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|has| has == extension) {
            found.push(path);
        }
    }
    found
}
