//! Differences that are meant: rows of the tables in `docs/compat`.

use std::collections::BTreeSet;

use crate::answer::Difference;

/// The rows of a page, and which of them were needed so far.
#[derive(Debug, Clone, Default)]
pub struct Page {
    rows: Vec<Allowed>,
    needed: BTreeSet<usize>,
}

impl Page {
    /// Reads a page.
    pub fn read(text: &str) -> Self {
        Self { rows: Allowed::read(text), needed: BTreeSet::new() }
    }

    /// The differences in the answers to a case that no row speaks of, as text.
    pub fn unexplained(&mut self, case: &str, differences: &[Difference]) -> Vec<String> {
        let mut report = Vec::new();
        for difference in differences {
            let rows: Vec<usize> =
                (0..self.rows.len()).filter(|at| self.rows[*at].covers(case, difference)).collect();
            if rows.is_empty() {
                report.push(format!("{case} {difference}"));
            }
            self.needed.extend(rows);
        }
        report
    }

    /// The rows that nothing has needed.
    pub fn idle(&self) -> Vec<&Allowed> {
        self.rows.iter().enumerate().filter(|(at, _)| !self.needed.contains(at)).map(|(_, row)| row).collect()
    }
}

/// One row: where an answer may differ, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowed {
    /// Name of a case, or `*`.
    pub case: String,
    /// Number of a request within it, or `*`.
    pub request: String,
    /// JSON pointer into the answer; everything below is meant too. A step `*` stands for any.
    pub pointer: String,
    /// Why.
    pub reason: String,
}

impl Allowed {
    /// Reads the rows ``| `case` | `request` | `pointer` | reason |`` of the page.
    fn read(page: &str) -> Vec<Self> {
        page.lines().filter(|line| line.starts_with("| `")).filter_map(Self::row).collect()
    }

    fn row(line: &str) -> Option<Self> {
        let cells: Vec<&str> = line.trim().trim_matches('|').split(" | ").map(str::trim).collect();
        let [case, request, pointer, reason] = cells.as_slice() else { return None };
        let code = |cell: &str| cell.trim_matches('`').to_owned();
        Some(Self {
            case: code(case),
            request: code(request),
            pointer: code(pointer),
            reason: (*reason).to_owned(),
        })
    }

    /// Whether the row speaks of this difference.
    fn covers(&self, case: &str, difference: &Difference) -> bool {
        let same = |pattern: &str, text: &str| pattern == "*" || pattern == text;
        let mut steps = difference.pointer.split('/');
        same(&self.case, case)
            && same(&self.request, &difference.request.to_string())
            && self
                .pointer
                .trim_start_matches('*')
                .split('/')
                .all(|pattern| steps.next().is_some_and(|step| same(pattern, step)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_covers_what_lies_below_its_pointer() {
        let rows = Allowed::read(
            "text\n\n| case | x |\n| --- | --- |\n| `a` | `*` | `/body/items/*/x` | because |\n",
        );
        let difference = |pointer: &str| Difference {
            request: 3,
            title: String::new(),
            pointer: pointer.to_owned(),
            expected: None,
            found: None,
        };
        assert_eq!(rows.len(), 1);
        assert!(rows[0].covers("a", &difference("/body/items/7/x/y")));
        assert!(!rows[0].covers("b", &difference("/body/items/7/x/y")));
        assert!(!rows[0].covers("a", &difference("/body/items/7")));
        assert!(!rows[0].covers("a", &difference("/body/items/7/z")));
    }
}
