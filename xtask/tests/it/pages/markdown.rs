//! What a page consists of, as far as its tests need it.

use std::collections::BTreeSet;

use regex::Regex;

/// A part of a page.
#[derive(Debug, PartialEq)]
pub(super) struct Part {
    /// The line on which it begins, from 1.
    pub(super) line: usize,
    pub(super) text: String,
}

/// A page in parts.
#[derive(Debug, Default)]
pub(super) struct Page {
    /// The targets of its links and pictures.
    pub(super) links: Vec<String>,
    /// The anchors of its headings.
    pub(super) sections: BTreeSet<String>,
    /// The cells of its tables.
    pub(super) cells: Vec<Part>,
    /// Code in backticks.
    pub(super) codes: Vec<Part>,
    /// The lines of fenced blocks for a shell; a backslash at the end continues a line.
    pub(super) blocks: Vec<Part>,
}

impl Page {
    pub(super) fn of(text: &str) -> Self {
        let code = Regex::new("`([^`]+)`").expect("a pattern");
        let link = Regex::new(r"\]\(([^)\s]+)\)").expect("a pattern");
        let (mut page, mut fence, mut is_continued) = (Self::default(), None, false);
        for (index, line) in text.lines().enumerate() {
            let number = index + 1;
            if let Some(kind) = line.trim_start().strip_prefix("```") {
                fence = if fence.is_some() { None } else { Some(kind.trim()) };
                is_continued = false;
            } else if let Some(kind) = fence {
                if matches!(kind, "sh" | "console" | "console up") {
                    is_continued = page.add_line(number, line, kind != "sh", is_continued);
                }
            } else {
                page.codes.extend(code.captures_iter(line).map(|found| part(number, &found[1])));
                // A link may begin on one line and end on the next: its target is on one line.
                page.links
                    .extend(link.captures_iter(&code.replace_all(line, "")).map(|found| found[1].to_owned()));
                if line.starts_with('|') {
                    page.cells.extend(cells(line).map(|cell| part(number, &cell)));
                } else if line.starts_with('#') {
                    page.add_section(line.trim_start_matches('#').trim());
                }
            }
        }
        page
    }

    /// Adds a line of a block, of a transcript only if it is a command. Returns whether the next line continues it.
    fn add_line(&mut self, number: usize, line: &str, is_transcript: bool, is_continued: bool) -> bool {
        let line = if is_continued || !is_transcript { Some(line) } else { line.strip_prefix("$ ") };
        let Some(line) = line else { return false };
        let whole = line.strip_suffix('\\');
        let text = whole.unwrap_or(line).trim();
        match self.blocks.last_mut().filter(|_| is_continued) {
            Some(before) => before.text = format!("{} {text}", before.text),
            None => self.blocks.push(part(number, text)),
        }
        whole.is_some()
    }

    /// Adds the anchor of a heading, as GitHub makes it.
    fn add_section(&mut self, title: &str) {
        let title =
            Regex::new(r"\[([^\]]*)\]\([^)]*\)").expect("a pattern").replace_all(title, "$1").to_lowercase();
        let kept = title.chars().filter(|&c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let anchor: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let mut names =
            std::iter::once(anchor.clone()).chain((1..).map(|number| format!("{anchor}-{number}")));
        let free = names.find(|name| !self.sections.contains(name)).expect("numbers do not end");
        self.sections.insert(free);
    }
}

fn part(line: usize, text: &str) -> Part {
    Part { line, text: text.to_owned() }
}

/// The cells of a row. `\|` is no border.
fn cells(row: &str) -> impl Iterator<Item = String> {
    let row = row.trim().trim_matches('|').replace("\\|", "\0");
    let cells: Vec<String> = row.split('|').map(|cell| cell.trim().replace('\0', "|")).collect();
    cells.into_iter()
}

#[test]
fn a_page_is_split_into_its_parts() {
    let page = Page::of(
        "# A `b`, c\n[x](y.md#z) `[no](link)`\n| a \\| b | `c` |\n```console\n$ muster why \\\n  a\nout\n```\n```yaml\nmuster no\n```\n## A b c\n",
    );
    assert_eq!(page.links, ["y.md#z"]);
    assert_eq!(page.sections.iter().collect::<Vec<_>>(), ["a-b-c", "a-b-c-1"]);
    assert_eq!(page.cells, [part(3, "a | b"), part(3, "`c`")]);
    assert_eq!(page.codes, [part(1, "b"), part(2, "[no](link)"), part(3, "c")]);
    assert_eq!(page.blocks, [part(5, "muster why a")]);
}
