//! Accepted differences: the rows of the tables in `docs/compat`.

use std::collections::BTreeSet;

use crate::answer::Difference;

/// The rows of a page, and which of them have matched a difference.
#[derive(Debug, Clone, Default)]
pub struct Page {
    rows: Vec<Allowed>,
    used: BTreeSet<usize>,
}

impl Page {
    /// Parses a page.
    pub fn read(text: &str) -> Self {
        Self { rows: Allowed::read(text), used: BTreeSet::new() }
    }

    /// The differences of a case that no row covers, as text.
    pub fn unexplained(&mut self, case: &str, differences: &[Difference]) -> Vec<String> {
        let mut report = Vec::new();
        for difference in differences {
            let rows: Vec<usize> =
                (0..self.rows.len()).filter(|at| self.rows[*at].covers(case, difference)).collect();
            if rows.is_empty() {
                report.push(format!("{case} {difference}"));
            }
            self.used.extend(rows);
        }
        report
    }

    /// The rows that cover no difference so far.
    pub fn unused(&self) -> Vec<&Allowed> {
        self.rows.iter().enumerate().filter(|(at, _)| !self.used.contains(at)).map(|(_, row)| row).collect()
    }
}

/// One row: a place where responses may differ, and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowed {
    /// The name of a case, or `*`.
    pub case: String,
    /// The number of a request of the case, or `*`.
    pub request: String,
    /// A JSON pointer into the answer, which includes everything below. A segment `*` matches any segment.
    pub pointer: String,
    /// The reason.
    pub reason: String,
}

impl Allowed {
    /// Parses the rows ``| `case` | `request` | `pointer` | reason |`` of a page.
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

    /// Whether the row covers a difference.
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
    fn a_row_covers_differences_at_and_below_its_pointer() {
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
