//! Responses in a form that can be recorded and compared.

use std::collections::{BTreeMap, BTreeSet};

use regex::{Captures, Regex};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The response of a server to one request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// The request line of the case.
    pub request: String,
    /// The HTTP status.
    pub status: u16,
    /// The media type.
    pub content_type: String,
    /// The `Warning` headers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The body, or the array of a stream's events.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub body: Value,
}

/// One place where two answers differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The number of the request in its case, from one.
    pub request: usize,
    /// The request line of the case.
    pub title: String,
    /// A JSON pointer into the answer: `/status`, `/warnings/0`, `/body/metadata/name`.
    pub pointer: String,
    /// The value of the oracle; `None` if the oracle has no such field.
    pub expected: Option<Value>,
    /// The value of the server under test.
    pub found: Option<Value>,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let show = |value: &Option<Value>| value.as_ref().map_or("(nothing)".to_owned(), Value::to_string);
        writeln!(f, "#{} {}", self.request, self.title)?;
        writeln!(f, "  {}", self.pointer)?;
        writeln!(f, "    real: {}", show(&self.expected))?;
        write!(f, "    ours: {}", show(&self.found))
    }
}

/// All differences between two runs of one case.
///
/// Placeholders of [`crate::normalise`] are equal up to renaming: each placeholder of one run must occur exactly where one
/// placeholder of the other occurs. An object that only one server creates therefore does not shift the numbers of later objects.
pub fn compare(expected: &[Answer], found: &[Answer]) -> Vec<Difference> {
    let mut differences = Vec::new();
    let mut pairs = Pairs::new();
    for (at, answer) in expected.iter().enumerate() {
        let tree = |answer: &Answer| serde_json::to_value(answer).expect("an answer is JSON");
        let other = found.get(at).map(tree);
        let mut walk = Walk {
            request: at + 1,
            title: &answer.request,
            pairs: &mut pairs,
            differences: &mut differences,
        };
        walk.pair(String::new(), Some(&tree(answer)), other.as_ref());
    }
    differences
}

struct Walk<'a> {
    request: usize,
    title: &'a str,
    pairs: &'a mut Pairs,
    differences: &'a mut Vec<Difference>,
}

impl Walk<'_> {
    fn pair(&mut self, pointer: String, expected: Option<&Value>, found: Option<&Value>) {
        match (expected, found) {
            (Some(Value::Object(a)), Some(Value::Object(b))) => {
                let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
                for key in keys {
                    let escaped = key.replace('~', "~0").replace('/', "~1");
                    self.pair(format!("{pointer}/{escaped}"), a.get(key), b.get(key));
                }
            }
            (Some(Value::Array(a)), Some(Value::Array(b))) => {
                for at in 0..a.len().max(b.len()) {
                    self.pair(format!("{pointer}/{at}"), a.get(at), b.get(at));
                }
            }
            (Some(Value::String(a)), Some(Value::String(b))) if self.pairs.agree(a, b) => {}
            _ if expected == found && !expected.is_some_and(Value::is_string) => {}
            _ => self.differences.push(Difference {
                request: self.request,
                title: self.title.to_owned(),
                pointer,
                expected: expected.cloned(),
                found: found.cloned(),
            }),
        }
    }
}

/// The one-to-one mapping between the placeholders of two runs.
struct Pairs {
    name: Regex,
    known: BTreeMap<String, String>,
    reverse: BTreeMap<String, String>,
}

impl Pairs {
    fn new() -> Self {
        let name = Regex::new("<(uid|version|suffix) [0-9]+>").expect("a constant expression");
        Self { name, known: BTreeMap::new(), reverse: BTreeMap::new() }
    }

    /// Whether two texts are equal up to the mapping of placeholders. Placeholders that are new in both texts are added to the mapping.
    fn agree(&mut self, expected: &str, found: &str) -> bool {
        let blank = |text: &str| {
            self.name.replace_all(text, |name: &Captures<'_>| format!("<{}>", &name[1])).into_owned()
        };
        if blank(expected) != blank(found) {
            return false;
        }
        let names =
            |text: &str| self.name.find_iter(text).map(|name| name.as_str().to_owned()).collect::<Vec<_>>();
        names(expected).into_iter().zip(names(found)).all(|(a, b)| {
            let forward = self.known.entry(a.clone()).or_insert_with(|| b.clone()) == &b;
            forward && self.reverse.entry(b).or_insert_with(|| a.clone()) == &a
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answers(bodies: &[Value]) -> Vec<Answer> {
        let answer = |body: &Value| Answer {
            request: "GET /".into(),
            status: 200,
            content_type: String::new(),
            warnings: Vec::new(),
            body: body.clone(),
        };
        bodies.iter().map(answer).collect()
    }

    #[test]
    fn placeholders_are_equal_up_to_a_one_to_one_renaming() {
        let real = answers(&[json!("<uid 1>"), json!({"a": "<uid 2>", "b": "x <uid 1>"})]);
        let ours = answers(&[json!("<uid 3>"), json!({"a": "<uid 1>", "b": "x <uid 3>"})]);
        assert_eq!(compare(&real, &ours), []);
        let swapped = answers(&[json!("<uid 3>"), json!({"a": "<uid 3>", "b": "x <uid 1>"})]);
        let pointers: Vec<_> =
            compare(&real, &swapped).into_iter().map(|difference| difference.pointer).collect();
        assert_eq!(pointers, ["/body/a", "/body/b"]);
    }

    #[test]
    fn a_difference_shows_the_pointer_and_both_values() {
        let found = compare(&answers(&[json!({"a/b": [1, 2]})]), &answers(&[json!({"a/b": [1]})]));
        assert_eq!(found[0].to_string(), "#1 GET /\n  /body/a~1b/1\n    real: 2\n    ours: (nothing)");
    }
}
