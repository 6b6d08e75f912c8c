//! Tables as kubectl prints them: columns are padded with spaces, without lines or colours. Only on a terminal, the last column is cut
//! to its width.

use std::io::{self, Write};

use console::Term;

/// Between two columns.
const GAP: usize = 3;
/// The last column gets at least so many characters.
const LAST_MIN: usize = 20;
/// An empty cell.
pub(crate) const NONE: &str = "<none>";

/// The layout of a table.
pub(crate) struct Table {
    columns: Vec<&'static str>,
    widths: Vec<usize>,
    /// The longest cell of the last column; `None`: any.
    last_max: Option<usize>,
}

impl Table {
    /// A table whose columns are as wide as these rows need. The last column is never cut if it `is_whole`.
    pub(crate) fn new(columns: Vec<&'static str>, rows: &[Vec<String>], is_whole: bool) -> Self {
        let terminal = Term::stdout();
        let terminal = terminal.is_term().then(|| terminal.size_checked()).flatten();
        let width = terminal.map(|(_, width)| usize::from(width)).filter(|_| !is_whole);
        Self::within(columns, rows, width)
    }

    fn within(columns: Vec<&'static str>, rows: &[Vec<String>], width: Option<usize>) -> Self {
        let mut widths: Vec<usize> = columns.iter().map(|column| column.len()).collect();
        for row in rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(printable(cell).chars().count());
            }
        }
        let others: usize = widths.iter().rev().skip(1).map(|width| width + GAP).sum();
        let last_max = width.map(|width| width.saturating_sub(others).max(LAST_MIN));
        Self { columns, widths, last_max }
    }

    /// The line with the names of the columns.
    pub(crate) fn header(&self) -> String {
        self.line(&self.columns.iter().map(|column| (*column).to_owned()).collect::<Vec<_>>())
    }

    /// A row.
    pub(crate) fn line(&self, cells: &[String]) -> String {
        let mut line = String::new();
        for (at, (cell, width)) in cells.iter().zip(&self.widths).enumerate() {
            let mut cell = printable(cell);
            if at + 1 == self.columns.len() {
                if let Some(max) = self.last_max.filter(|max| cell.chars().count() > *max) {
                    cell = cell.chars().take(max - 1).chain(['…']).collect();
                }
                line.push_str(&cell);
            } else {
                let padding = (width + GAP).saturating_sub(cell.chars().count());
                line.extend([cell, " ".repeat(padding)]);
            }
        }
        line.truncate(line.trim_end().len());
        line.push('\n');
        line
    }

    /// The header and all rows.
    pub(crate) fn text(&self, rows: &[Vec<String>], has_header: bool) -> String {
        let header = has_header.then(|| self.header());
        header.into_iter().chain(rows.iter().map(|row| self.line(row))).collect()
    }
}

/// A cell in one line, without the control characters that an author may have written into a message. Empty cells are `<none>`.
fn printable(cell: &str) -> String {
    if cell.is_empty() {
        return NONE.into();
    }
    cell.chars().map(|char| if char.is_control() { ' ' } else { char }).collect()
}

/// Writes to standard output. Whether somebody still reads it.
pub(crate) fn put(text: &str) -> io::Result<bool> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(cells: &[&str]) -> Vec<String> {
        cells.iter().map(|cell| (*cell).to_owned()).collect()
    }

    #[test]
    fn columns_are_aligned_and_only_a_terminal_cuts_the_last_one() {
        let long = "needs 500 cpu in flavor default";
        let rows = [cells(&["a", "", long]), cells(&["longer", "Waits", "a\n\u{1b}[31mb"])];
        let whole = Table::within(vec!["NAME", "STATE", "REASON"], &rows, None).text(&rows, true);
        assert_eq!(
            whole,
            "NAME     STATE    REASON\na        <none>   needs 500 cpu in flavor default\nlonger   Waits    a  [31mb\n"
        );
        let cut = Table::within(vec!["NAME", "STATE", "REASON"], &rows, Some(40)).text(&rows, false);
        assert!(cut.starts_with("a        <none>   needs 500 cpu in flav…\n"), "{cut}");
        let narrow = Table::within(vec!["NAME", "STATE", "REASON"], &rows, Some(3)).line(&rows[0]);
        assert_eq!(narrow, "a        <none>   needs 500 cpu in fl…\n");
    }
}
