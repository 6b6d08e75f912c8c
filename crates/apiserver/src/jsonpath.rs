//! JSON paths of printer columns: fields and unions of them, indices, wildcards and comparison filters.
//!
//! The dialect of Kubernetes, not RFC 9535: paths have a leading dot and no `$`, and a missing field gives no result.

use serde_json::Value;

/// A parsed path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JsonPath(Vec<Step>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Field(String),
    /// `['a','b']`: those of the fields that there are.
    Fields(Vec<String>),
    Index(i64),
    All,
    /// `[?(@.path == "value")]`: the path below each item, the comparison, the value.
    Filter(Vec<Step>, Comparison, Value),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
}

impl JsonPath {
    /// Parses a path; `None` if it is invalid.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let text = text.strip_prefix('{').and_then(|t| t.strip_suffix('}')).unwrap_or(text);
        steps(text.strip_prefix('$').unwrap_or(text)).map(Self)
    }

    /// The values that the path selects.
    pub(crate) fn find<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        follow(&self.0, value)
    }
}

fn follow<'a>(path: &[Step], value: &'a Value) -> Vec<&'a Value> {
    let mut found = vec![value];
    for step in path {
        found = found.into_iter().flat_map(|at| advance(step, at)).collect();
    }
    found
}

fn advance<'a>(step: &Step, at: &'a Value) -> Vec<&'a Value> {
    match step {
        Step::Field(name) => at.get(name).into_iter().collect(),
        Step::Fields(names) => names.iter().filter_map(|name| at.get(name)).collect(),
        Step::Index(index) => {
            let items = at.as_array().map(Vec::as_slice).unwrap_or_default();
            let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
            let index = if *index < 0 { index + length } else { *index };
            usize::try_from(index).ok().and_then(|i| items.get(i)).into_iter().collect()
        }
        Step::All => match at {
            Value::Array(items) => items.iter().collect(),
            Value::Object(fields) => fields.values().collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
        },
        Step::Filter(path, comparison, wanted) => {
            let items = at.as_array().map(Vec::as_slice).unwrap_or_default();
            let passes = |item: &&Value| {
                let equal = follow(path, item).first().is_some_and(|found| *found == wanted);
                equal == (*comparison == Comparison::Equal)
            };
            items.iter().filter(passes).collect()
        }
    }
}

fn steps(text: &str) -> Option<Vec<Step>> {
    let mut path = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('[') {
            let end = closing(after)?;
            path.push(bracket(after[..end].trim())?);
            rest = &after[end + 1..];
            continue;
        }
        let named = rest.strip_prefix('.').unwrap_or(rest);
        let (name, length) = field(named)?;
        path.push(if name == "*" { Step::All } else { Step::Field(name) });
        rest = &named[length..];
    }
    Some(path)
}

/// A field name, with dots escaped by backslashes, and its length in the text.
fn field(text: &str) -> Option<(String, usize)> {
    let mut name = String::new();
    let mut chars = text.char_indices();
    let mut length = text.len();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => name.push(chars.next()?.1),
            '.' | '[' => {
                length = at;
                break;
            }
            _ => name.push(c),
        }
    }
    (!name.is_empty()).then_some((name, length))
}

/// The position of the bracket that closes the one before `text`.
fn closing(text: &str) -> Option<usize> {
    let mut quote = None;
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, '[') => depth += 1,
            (None, ']') if depth == 0 => return Some(at),
            (None, ']') => depth -= 1,
            _ => {}
        }
    }
    None
}

fn bracket(text: &str) -> Option<Step> {
    if text == "*" {
        return Some(Step::All);
    }
    if let Some(names) = text.split(',').map(|name| unquoted(name.trim())).collect::<Option<Vec<_>>>() {
        let name = (names.len() == 1).then(|| names[0].clone());
        return Some(name.map_or(Step::Fields(names), Step::Field));
    }
    if let Some(filter) = text.strip_prefix("?(").and_then(|t| t.strip_suffix(')')) {
        let (comparison, at) = filter
            .find("==")
            .map(|at| (Comparison::Equal, at))
            .or_else(|| filter.find("!=").map(|at| (Comparison::NotEqual, at)))?;
        let path = filter[..at].trim().strip_prefix('@')?;
        let value = filter[at + 2..].trim();
        let value = unquoted(value).map(Value::String).or_else(|| serde_json::from_str(value).ok())?;
        return Some(Step::Filter(steps(path)?, comparison, value));
    }
    text.parse().ok().map(Step::Index)
}

fn unquoted(text: &str) -> Option<String> {
    let quote = text.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let inner = text.strip_prefix(quote)?.strip_suffix(quote)?;
    Some(inner.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn printer_column_paths_select_their_values() {
        let value = json!({
            "spec": { "size": 3, "list": [1, 2, 3], "a.b": "dotted", "map": { "x/y": "slash" } },
            "status": { "conditions": [
                { "type": "Ready", "status": "True", "code": 7 }, { "type": "Failed", "status": "False" } ] },
        });
        for (path, expected) in [
            (".spec.size", json!([3])),
            ("{.spec.size}", json!([3])),
            ("spec.size", json!([3])),
            (".spec.list[1]", json!([2])),
            (".spec.list[-1]", json!([3])),
            (".spec.list[*]", json!([1, 2, 3])),
            (".spec.a\\.b", json!(["dotted"])),
            (".spec.map['x/y']", json!(["slash"])),
            (".spec['none','size']", json!([3])),
            (".spec['a.b', 'size']", json!(["dotted", 3])),
            (r#".status.conditions[?(@.type=="Ready")].status"#, json!(["True"])),
            (".status.conditions[?(@.type!='Ready')].status", json!(["False"])),
            (".status.conditions[?(@.code==7)].type", json!(["Ready"])),
            (".status.missing.deeper", json!([])),
            (".spec.size.deeper", json!([])),
        ] {
            let found = JsonPath::parse(path).unwrap();
            assert_eq!(json!(found.find(&value)), expected, "{path}");
        }
    }

    #[test]
    fn an_invalid_path_does_not_parse() {
        for path in [".spec[", ".spec[?(@.a)]", "..", ".spec[x]", ".spec[?(type=='a')]"] {
            assert_eq!(JsonPath::parse(path), None, "{path}");
        }
    }
}
