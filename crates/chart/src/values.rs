//! The values of the chart: its defaults, what files change, and `--set`.

use serde_json::{Map, Value};

/// Changes values as Helm does: maps are merged, null removes, everything else replaces.
pub fn merge(base: &mut Value, change: Value) {
    match (base, change) {
        (Value::Object(base), Value::Object(changes)) => {
            for (key, change) in changes {
                if change.is_null() {
                    base.remove(&key);
                } else {
                    let known = base.entry(key).or_insert(Value::Null);
                    if change.is_object() && !known.is_object() {
                        *known = Value::Object(Map::new());
                    }
                    merge(known, change);
                }
            }
        }
        (base, change) => *base = change,
    }
}

/// The change that `--set a.b=value` means: `\.` is a dot in a name, `{a,b}` a list of texts, and numbers, `true`, `false` and
/// `null` are such.
///
/// # Errors
/// The text has no name or no `=`.
pub fn assignment(text: &str) -> Result<Value, String> {
    let wrong = || format!("{text:?} is no assignment: write name.of.a.value=VALUE");
    let (path, value) = text.split_once('=').ok_or_else(wrong)?;
    let mut names = vec![String::new()];
    let mut escaped = false;
    for c in path.chars() {
        match c {
            '\\' if !escaped => escaped = true,
            '.' if !escaped => names.push(String::new()),
            c => {
                escaped = false;
                names.last_mut().expect("it has had one from the start").push(c);
            }
        }
    }
    if names[0].is_empty() || names.iter().any(|name| name.contains('[')) {
        return Err(wrong());
    }
    let list = value.strip_prefix('{').and_then(|list| list.strip_suffix('}'));
    let value = match list {
        Some("") => Value::Array(Vec::new()),
        Some(list) => list.split(',').map(scalar).collect(),
        None => scalar(value),
    };
    let nest = |value, name| Value::Object(Map::from_iter([(name, value)]));
    Ok(names.into_iter().rev().fold(value, nest))
}

fn scalar(text: &str) -> Value {
    match text {
        "true" => true.into(),
        "false" => false.into(),
        "null" => Value::Null,
        _ => text.parse::<i64>().map_or_else(|_| text.into(), Into::into),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_assignment_is_read_as_helm_reads_it() {
        for (text, expected) in [
            ("replicas=3", Ok(json!({"replicas": 3}))),
            ("kueue.enabled=true", Ok(json!({"kueue": {"enabled": true}}))),
            (r"wraps.example\.com={a,b}", Ok(json!({"wraps": {"example.com": ["a", "b"]}}))),
            ("a.b=", Ok(json!({"a": {"b": ""}}))),
            ("a=x=y", Ok(json!({"a": "x=y"}))),
            ("a=null", Ok(json!({"a": null}))),
            ("replicas", Err("\"replicas\" is no assignment: write name.of.a.value=VALUE".to_owned())),
            ("a[0]=1", Err("\"a[0]=1\" is no assignment: write name.of.a.value=VALUE".to_owned())),
        ] {
            assert_eq!(assignment(text), expected, "{text}");
        }
    }

    #[test]
    fn null_removes_and_lists_replace() {
        let mut values = json!({"a": {"b": 1, "c": [1, 2]}, "d": 1});
        merge(&mut values, json!({"a": {"b": null, "c": [3]}, "e": {"f": null}}));
        assert_eq!(values, json!({"a": {"c": [3]}, "d": 1, "e": {}}));
    }
}
