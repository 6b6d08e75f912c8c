//! Compares the output of a command with a page.
//!
//! Values that differ between runs are replaced by placeholders on both sides: time stamps, ages, generated suffixes, uids,
//! addresses, seconds with a fraction, and widths of columns. A line `...` of the page matches any number of lines.

use std::sync::LazyLock;

use regex::Regex;

/// Patterns of values that differ between runs, and their placeholders. They apply in this order.
static PLACEHOLDERS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    [
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", "<microtime>"),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "<time>"),
        (r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d [+-]\d{4}", "<date>"),
        (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<uid>"),
        (r"\b127\.0\.0\.\d+:\d+", "<address>"),
        (r"\b\d+\.\d+\.\d+\.\d+\b", "<ip>"),
        (r"\b\d+\.\d+ s\b", "<seconds>"),
        (r"\b((?:ray)?job-[a-z0-9-]+?)-[0-9a-f]{5}\b", "$1-<hash>"), // A Workload, with the hash of the uid of its job.
        (r"-[bcdfghjklmnpqrstvwxz2456789]{5}\b", "-<id>"),
        (r"(^|\s)(?:\d+[smhd])+(?:\s\((?:\d+[smhd])+ ago\))?(\s|$)", "$1<age>$2"),
        (r#"" deleted from \S+ namespace$"#, "\" deleted"), // A newer kubectl names the namespace.
        (r"(\S)\s{2,}", "$1  "),
    ]
    .map(|(pattern, placeholder)| (Regex::new(pattern).expect("the pattern is well formed"), placeholder))
    .into()
});

/// Compares all lines. The error shows both sides with placeholders.
pub(super) fn lines(expected: &str, printed: &str) -> Result<(), String> {
    let expected: Vec<String> = expected.lines().map(normalise).collect();
    let printed: Vec<String> = printed.lines().map(normalise).collect();
    if matches(&expected, &printed) { Ok(()) } else { Err(difference(&expected, &printed)) }
}

/// Compares the first printed lines with the lines of the page.
pub(super) fn first_lines(expected: &str, printed: &str) -> Result<(), String> {
    lines(&format!("{expected}...\n"), printed)
}

fn normalise(line: &str) -> String {
    let normalised = PLACEHOLDERS.iter().fold(line.trim_end().to_owned(), |line, (pattern, placeholder)| {
        pattern.replace_all(&line, *placeholder).into_owned()
    });
    normalised.trim_end().to_owned()
}

fn matches(expected: &[String], printed: &[String]) -> bool {
    match expected {
        [] => printed.is_empty(),
        [gap, rest @ ..] if gap == "..." => (0..=printed.len()).any(|skip| matches(rest, &printed[skip..])),
        [line, rest @ ..] => printed.first() == Some(line) && matches(rest, &printed[1..]),
    }
}

fn difference(expected: &[String], printed: &[String]) -> String {
    let marked = |lines: &[String], mark: &str| -> Vec<String> {
        lines.iter().map(|line| format!("    {mark} {line}")).collect()
    };
    [marked(expected, "-"), marked(printed, "+")].concat().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_differ_between_runs_compare_as_equal() {
        assert_eq!(lines("rayjob-text-e95ec-gpu-1 met\n", "rayjob-text-0d1c1-gpu-1 met\n"), Ok(()));
        let page = "NAME                READY   AGE\nglue-head-8nnh9   1/1   31m\n  Stamp: 2022-10-03T18:14:16.693259Z\n";
        let run = "NAME               READY   AGE\nglue-head-x2lk4     1/1   5s\n  Stamp: 2026-11-21T01:53:22.081524Z\n";
        assert_eq!(lines(page, run), Ok(()));
    }

    #[test]
    fn other_differences_are_errors() {
        assert!(lines("a  1/1\n", "a  0/1\n").is_err());
        assert!(lines("Stamp: 2022-10-03T18:14:16.693259Z\n", "Stamp: 2022-10-03T18:14:16Z\n").is_err());
        assert!(lines("a\n", "a\nb\n").is_err());
        assert!(lines("", "error\n").is_err());
    }

    #[test]
    fn three_dots_match_any_number_of_lines() {
        assert_eq!(lines("a\n...\nd\n", "a\nb\nc\nd\n"), Ok(()));
        assert_eq!(lines("a\n...\n", "a\n"), Ok(()));
        assert!(lines("a\n...\nd\n", "a\nb\n").is_err());
    }
}
