//! What templates can call: functions of Go's `text/template`, of sprig and of Helm, on JSON.

use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

/// All functions. `include`, `fail`, `and` and `or` are evaluated elsewhere.
const KNOWN: [&str; 33] = [
    "and",
    "append",
    "concat",
    "contains",
    "default",
    "dict",
    "empty",
    "eq",
    "fail",
    "first",
    "fromYaml",
    "has",
    "hasKey",
    "include",
    "indent",
    "int",
    "join",
    "keys",
    "last",
    "len",
    "list",
    "lower",
    "merge",
    "ne",
    "nindent",
    "not",
    "or",
    "printf",
    "quote",
    "sha256sum",
    "splitList",
    "toPrettyJson",
    "toYaml",
];

pub(super) fn is_known(name: &str) -> bool {
    KNOWN.contains(&name)
}

/// Whether a value counts as true: it is not the zero value of its type.
pub(super) fn is_true(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(is_true) => *is_true,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
    }
}

/// How a value is printed. What Go prints as `<no value>` or as `map[…]` is an error.
pub(super) fn print(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Bool(_) | Value::Number(_) => Ok(value.to_string()),
        Value::Null => Err("a value that does not exist is printed".into()),
        Value::Array(_) | Value::Object(_) => Err(format!("{value} is printed")),
    }
}

pub(super) fn call(name: &str, arguments: &[Value]) -> Result<Value, String> {
    use Value::{Array, Object, String as Text};
    Ok(match (name, arguments) {
        ("not" | "empty", [value]) => (!is_true(value)).into(),
        ("eq", [value, others @ ..]) => others.iter().any(|other| is_equal(value, other)).into(),
        ("ne", [a, b]) => (!is_equal(a, b)).into(),
        ("default", [default, value]) => if is_true(value) { value } else { default }.clone(),
        ("list", items) => items.into(),
        ("append", [Array(items), item]) => [items.as_slice(), std::slice::from_ref(item)].concat().into(),
        ("concat", lists) => {
            lists.iter().flat_map(|list| list.as_array().into_iter().flatten().cloned()).collect()
        }
        ("dict", pairs) => {
            let pairs =
                pairs.chunks(2).map(|pair| Some((pair[0].as_str()?.to_owned(), pair.get(1)?.clone())));
            Object(pairs.collect::<Option<Map<_, _>>>().ok_or("dict needs names and values")?)
        }
        ("merge", [first, second]) => {
            let mut merged = second.clone();
            crate::merge(&mut merged, first.clone());
            merged
        }
        ("has", [item, Array(items)]) => items.contains(item).into(),
        ("has", [_, Value::Null]) => false.into(),
        ("hasKey", [Object(fields), Text(key)]) => fields.contains_key(key).into(),
        ("keys", [Object(fields)]) => fields.keys().cloned().collect(),
        ("contains", [Text(part), Text(text)]) => text.contains(part.as_str()).into(),
        ("first", [Array(items)]) => items.first().cloned().unwrap_or_default(),
        ("last", [Array(items)]) => items.last().cloned().unwrap_or_default(),
        ("len", [Array(items)]) => items.len().into(),
        ("len", [Object(fields)]) => fields.len().into(),
        ("len", [Text(text)]) => text.len().into(),
        ("int", [Value::Number(number)]) => number.clone().into(),
        ("join", [Text(with), Array(items)]) => {
            items.iter().map(print).collect::<Result<Vec<_>, _>>()?.join(with).into()
        }
        ("splitList", [Text(at), Text(text)]) => text.split(at.as_str()).collect(),
        ("lower", [Text(text)]) => text.to_lowercase().into(),
        ("quote", [Value::Null]) => "".into(),
        ("quote", [value]) => serde_json::to_string(&print(value)?).unwrap_or_default().into(),
        ("printf", [Text(format), values @ ..]) => printf(format, values)?.into(),
        ("indent", [Value::Number(by), Text(text)]) => indent(by, text).into(),
        ("nindent", [Value::Number(by), Text(text)]) => format!("\n{}", indent(by, text)).into(),
        ("sha256sum", [Text(text)]) => hex(&Sha256::digest(text.as_bytes())).into(),
        ("toPrettyJson", [value]) => pretty_json(value).into(),
        ("toYaml", [value]) => to_yaml(value)?.into(),
        ("fromYaml", [Text(text)]) if text.trim().is_empty() => Object(Map::new()),
        ("fromYaml", [Text(text)]) => serde_saphyr::from_str(text).map_err(|error| error.to_string())?,
        _ => {
            let arguments: Vec<_> = arguments.iter().map(ToString::to_string).collect();
            return Err(format!("{name} does not take {}", arguments.join(" ")));
        }
    })
}

fn is_equal(a: &Value, b: &Value) -> bool {
    match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => (a - b).abs() < f64::EPSILON,
        _ => a == b,
    }
}

fn printf(format: &str, values: &[Value]) -> Result<String, String> {
    let (mut text, mut values, mut rest) = (String::new(), values.iter(), format);
    while let Some((before, after)) = rest.split_once('%') {
        text.push_str(before);
        let mut value = || values.next().ok_or(format!("printf {format:?} has too few values"));
        match after.chars().next() {
            Some('s' | 'd' | 'v') => text.push_str(&print(value()?)?),
            Some('q') => text.push_str(&serde_json::to_string(&print(value()?)?).unwrap_or_default()),
            Some('%') => text.push('%'),
            verb => return Err(format!("printf does not know %{}", verb.unwrap_or(' '))),
        }
        rest = &after[1..];
    }
    Ok(text + rest)
}

fn indent(by: &serde_json::Number, text: &str) -> String {
    let by = " ".repeat(by.as_u64().and_then(|by| by.try_into().ok()).unwrap_or_default());
    text.split('\n').map(|line| format!("{by}{line}")).collect::<Vec<_>>().join("\n")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// As Go writes it: without `<`, `>` and `&`, which JSON has in strings only.
fn pretty_json(value: &Value) -> String {
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

fn to_yaml(value: &Value) -> Result<String, String> {
    let text = serde_saphyr::to_string(value).map_err(|error| error.to_string())?;
    Ok(text.trim_end_matches('\n').to_owned())
}
