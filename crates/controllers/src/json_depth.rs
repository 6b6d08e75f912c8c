//! Finds the field of a JSON text that is nested too deeply to decode.

use std::fmt::Write as _;

/// Deepest nesting that is decoded: the recursion limit of `serde_json`.
pub(crate) const DEPTH_MAX: usize = 127;
/// Number of steps of a path that are shown.
const STEPS_MAX: usize = 12;

/// A list or an object that is not closed yet, and the position in it.
enum Level {
    Object { key: String, is_value: bool },
    Array(usize),
}

/// The path of the first value deeper than `depth_max`, cut after its first steps. None if no value is.
pub(crate) fn deep_field(json: &str, depth_max: usize) -> Option<String> {
    let mut levels: Vec<Level> = Vec::new();
    let mut rest = json.char_indices();
    while let Some((at, c)) = rest.next() {
        match (c, levels.last_mut()) {
            ('"', last) => {
                let mut is_escaped = false;
                let mut inside = rest.by_ref().take_while(|(_, c)| {
                    let ends = *c == '"' && !is_escaped;
                    is_escaped = *c == '\\' && !is_escaped;
                    !ends
                });
                let length: usize = inside.by_ref().map(|(_, c)| c.len_utf8()).sum();
                if let Some(Level::Object { key, is_value: false }) = last {
                    key.clear();
                    key.push_str(&json[at + 1..at + 1 + length]);
                }
            }
            ('{', _) => levels.push(Level::Object { key: String::new(), is_value: false }),
            ('[', _) => levels.push(Level::Array(0)),
            ('}' | ']', _) => drop(levels.pop()),
            (':', Some(Level::Object { is_value, .. })) => *is_value = true,
            (',', Some(Level::Object { is_value, .. })) => *is_value = false,
            (',', Some(Level::Array(index))) => *index += 1,
            _ => {}
        }
        if levels.len() > depth_max {
            return Some(path(&levels));
        }
    }
    None
}

fn path(levels: &[Level]) -> String {
    let mut path = String::new();
    for (step, level) in levels.iter().take(STEPS_MAX).enumerate() {
        // Writing to a string does not fail.
        let _ = match level {
            Level::Object { key, .. } if step == 0 => write!(path, "{key}"),
            Level::Object { key, .. } => write!(path, ".{key}"),
            Level::Array(index) => write!(path, "[{index}]"),
        };
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_leads_to_the_first_value_that_is_too_deep() {
        let json = r#"{"a": "x\"}{[\\", "b": [1, {"c,": [[2]]}, [3]], "é": {"d": {"e": {}}}}"#;
        assert_eq!(deep_field(json, 4).as_deref(), Some("b[1].c,[0][0]"));
        assert_eq!(deep_field(json, 5), None);
        assert_eq!(deep_field("{\"a\": 1}", 1), None);
        assert_eq!(deep_field("}]\"", 1), None);
        let deep = format!("{{\"a\": {}", "[".repeat(100_000));
        assert_eq!(deep_field(&deep, DEPTH_MAX), Some(format!("a{}", "[0]".repeat(STEPS_MAX - 1))));
    }
}
