//! JSON paths of printer columns: fields, indices, slices, unions, filters, wildcards and recursive descent.
//!
//! The dialect of Kubernetes (`k8s.io/client-go/util/jsonpath`), not RFC 9535: paths have a leading dot and no `$`, and what is
//! missing gives no result. A path there that ends with an error, such as an index outside of a list, prints nothing, so here it has
//! no result, either. Not supported: `range`, texts around paths, and a path on the right of a comparison.

use std::cmp::Ordering;

use serde_json::Value;

/// A parsed path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JsonPath(Vec<Step>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Field(String),
    Index(i64),
    Slice(Slice),
    /// `['a','b']` or `[0,2]`: what each of the steps finds.
    Union(Vec<Step>),
    /// `.*`: the items of a list, or the values of the fields of an object.
    All,
    /// `..`: the value and all lists and objects below that are not empty.
    Descent,
    /// `[?(@.path)]`: the items that have something at the path.
    Having(Vec<Step>),
    /// `[?(@.path == "value")]`: the path below each item, the comparison, the value.
    Filter(Vec<Step>, Comparison, Value),
}

/// `[start:end:step]`: a negative position counts from the end of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Slice {
    start: Option<i64>,
    end: Option<i64>,
    step: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    AtMost,
    Greater,
    AtLeast,
}

/// How comparisons are written; one that begins with another is before it.
const COMPARISONS: [(&str, Comparison); 6] = [
    ("==", Comparison::Equal),
    ("!=", Comparison::NotEqual),
    ("<=", Comparison::AtMost),
    (">=", Comparison::AtLeast),
    ("<", Comparison::Less),
    (">", Comparison::Greater),
];

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
    let items = at.as_array().map(Vec::as_slice).unwrap_or_default();
    match step {
        Step::Field(name) => at.get(name).into_iter().collect(),
        Step::Index(index) => position(*index, items).and_then(|at| items.get(at)).into_iter().collect(),
        Step::Slice(slice) => slice.of(items),
        Step::Union(steps) => steps.iter().flat_map(|step| advance(step, at)).collect(),
        Step::All => children(at),
        Step::Descent => descent(at),
        Step::Having(path) => items.iter().filter(|item| !follow(path, item).is_empty()).collect(),
        Step::Filter(path, comparison, wanted) => {
            let passes = |item: &&Value| match follow(path, item)[..] {
                [found] => comparison.holds(found, wanted),
                _ => false,
            };
            items.iter().filter(passes).collect()
        }
    }
}

/// The position that an index, or an end of a slice, means; none before the list.
fn position(index: i64, items: &[Value]) -> Option<usize> {
    let length = i64::try_from(items.len()).ok()?;
    usize::try_from(if index < 0 { index + length } else { index }).ok()
}

impl Slice {
    /// The items of the slice; none if it reaches outside of the list.
    fn of<'a>(&self, items: &'a [Value]) -> Vec<&'a Value> {
        let range = || {
            let start = position(self.start.unwrap_or(0), items)?;
            let end = self.end.map_or(Some(items.len()), |end| position(end, items))?;
            let step = usize::try_from(self.step.unwrap_or(1)).ok().filter(|step| *step > 0)?;
            Some(items.get(start..end)?.iter().step_by(step))
        };
        range().into_iter().flatten().collect()
    }
}

impl Comparison {
    /// Values of different types are not equal and have no order.
    fn holds(self, found: &Value, wanted: &Value) -> bool {
        let order = match (found, wanted) {
            (Value::String(found), Value::String(wanted)) => Some(found.cmp(wanted)),
            (Value::Number(found), Value::Number(wanted)) => match (found.as_i64(), wanted.as_i64()) {
                (Some(found), Some(wanted)) => Some(found.cmp(&wanted)),
                _ => found.as_f64().partial_cmp(&wanted.as_f64()),
            },
            (found, wanted) => (found == wanted).then_some(Ordering::Equal),
        };
        match self {
            Self::Equal => order == Some(Ordering::Equal),
            Self::NotEqual => order != Some(Ordering::Equal),
            Self::Less => order.is_some_and(Ordering::is_lt),
            Self::AtMost => order.is_some_and(Ordering::is_le),
            Self::Greater => order.is_some_and(Ordering::is_gt),
            Self::AtLeast => order.is_some_and(Ordering::is_ge),
        }
    }
}

fn children(at: &Value) -> Vec<&Value> {
    match at {
        Value::Array(items) => items.iter().collect(),
        Value::Object(fields) => fields.values().collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    }
}

fn descent(at: &Value) -> Vec<&Value> {
    let below = children(at);
    if below.is_empty() {
        return below;
    }
    [at].into_iter().chain(below.into_iter().flat_map(descent)).collect()
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
        if let Some(after) = rest.strip_prefix("..") {
            path.push(Step::Descent);
            rest = after;
            if rest.is_empty() {
                return None;
            }
            if rest.starts_with('[') {
                continue;
            }
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
    if let Some(filter) = text.strip_prefix("?(").and_then(|text| text.strip_suffix(')')) {
        return self::filter(filter);
    }
    let parts = parts(text, ',');
    match parts[..] {
        [one] => selector(one.trim()),
        _ => parts.into_iter().map(|part| selector(part.trim())).collect::<Option<_>>().map(Step::Union),
    }
}

/// One alternative of a union.
fn selector(text: &str) -> Option<Step> {
    if let Some(name) = unquoted(text) {
        return Some(Step::Field(name));
    }
    if text == "*" {
        return Some(Step::Slice(Slice { start: None, end: None, step: None }));
    }
    let bounds = text.split(':').map(|text| match text {
        "" => Some(None),
        _ => text.parse().ok().map(Some),
    });
    match bounds.collect::<Option<Vec<Option<i64>>>>()?[..] {
        [index] => index.map(Step::Index),
        [start, end] => Some(Step::Slice(Slice { start, end, step: None })),
        [start, end, step] => Some(Step::Slice(Slice { start, end, step })),
        _ => None,
    }
}

fn filter(text: &str) -> Option<Step> {
    let of_item = |path: &str| path.trim().strip_prefix('@').and_then(steps);
    let Some(at) = text.find(['=', '!', '<', '>']) else { return of_item(text).map(Step::Having) };
    let (path, rest) = text.split_at(at);
    let (value, comparison) =
        COMPARISONS.iter().find_map(|(sign, comparison)| Some((rest.strip_prefix(sign)?, *comparison)))?;
    let value = value.trim();
    let value = unquoted(value).map(Value::String).or_else(|| serde_json::from_str(value).ok())?;
    Some(Step::Filter(of_item(path)?, comparison, value))
}

/// The parts of a text between separators that are not in quotes.
fn parts(text: &str, separator: char) -> Vec<&str> {
    let mut quote = None;
    text.split(|c| {
        match quote {
            Some(open) if c == open => quote = None,
            None if matches!(c, '"' | '\'') => quote = Some(c),
            _ => {}
        }
        quote.is_none() && c == separator
    })
    .collect()
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
            (".spec.list[-4]", json!([])),
            (".spec.list[3]", json!([])),
            (".spec.list[*]", json!([1, 2, 3])),
            (".spec.list.*", json!([1, 2, 3])),
            (".spec.map.*", json!(["slash"])),
            (".spec.map[*]", json!([])),
            (".spec.a\\.b", json!(["dotted"])),
            (".spec.map['x/y']", json!(["slash"])),
            (".spec.map['x/y','a,b']", json!(["slash"])),
            (".spec['none','size']", json!([3])),
            (".spec.list[2,0]", json!([3, 1])),
            (".spec.list[0,1:]", json!([1, 2, 3])),
            (".spec['a.b', 'size']", json!(["dotted", 3])),
            (r#".status.conditions[?(@.type=="Ready")].status"#, json!(["True"])),
            (".status.conditions[?(@.type!='Ready')].status", json!(["False"])),
            (".status.conditions[?(@.code!=8)].type", json!(["Ready"])),
            (".status.conditions[?(@.code)].type", json!(["Ready"])),
            (".status.conditions[?(@.code>6)].type", json!(["Ready"])),
            (".status.conditions[?(@.code>=7.0)].type", json!(["Ready"])),
            (".status.conditions[?(@.code < 7)].type", json!([])),
            (".status.conditions[?(@.code<=7)].type", json!(["Ready"])),
            (r#".status.conditions[?(@.code<"8")].type"#, json!([])),
            (r#".status.conditions[?(@.type<"G")].type"#, json!(["Failed"])),
            ("..type", json!(["Ready", "Failed"])),
            (".status..[0].code", json!([7])),
            (".status.conditions[?(@.code==7)].type", json!(["Ready"])),
            (".status.missing.deeper", json!([])),
            (".spec.size.deeper", json!([])),
        ] {
            let found = JsonPath::parse(path).unwrap();
            assert_eq!(json!(found.find(&value)), expected, "{path}");
        }
    }

    #[test]
    fn a_slice_is_what_client_go_says() {
        let value = json!({"list": [0, 1, 2, 3], "none": [], "text": "abcd"});
        for (path, expected) in [
            (".list[-1:]", json!([3])),
            (".list[:]", json!([0, 1, 2, 3])),
            (".list[1:3]", json!([1, 2])),
            (".list[:-1]", json!([0, 1, 2])),
            (".list[-3:-1]", json!([1, 2])),
            (".list[::2]", json!([0, 2])),
            (".list[1::2]", json!([1, 3])),
            (".list[0:4:3]", json!([0, 3])),
            (".list[4:]", json!([])),
            (".list[2:2]", json!([])),
            // Errors of client-go, so that nothing is printed.
            (".list[:5]", json!([])),
            (".list[-5:]", json!([])),
            (".list[3:1]", json!([])),
            (".list[::0]", json!([])),
            (".list[::-1]", json!([])),
            (".none[-1:]", json!([])),
            (".text[-1:]", json!([])),
            (".missing[-1:]", json!([])),
        ] {
            let found = JsonPath::parse(path).unwrap();
            assert_eq!(json!(found.find(&value)), expected, "{path}");
        }
    }

    #[test]
    fn an_invalid_path_does_not_parse() {
        for path in [
            ".spec[",
            "..",
            ".spec..",
            ".spec[x]",
            ".spec[]",
            ".spec[1:2:3:4]",
            ".spec[a:]",
            ".spec[0,x]",
            ".spec['a]",
            ".spec[?(type=='a')]",
            ".spec[?(@.a=b)]",
            ".spec[?(@.a==b)]",
        ] {
            assert_eq!(JsonPath::parse(path), None, "{path}");
        }
    }
}
