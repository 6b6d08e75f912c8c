//! Go formatting of JSON values, which the error messages of kube-apiserver contain.

use std::fmt::Write;

use serde_json::Value;

/// Formats a value like Go's `%v`: `map[a:1 b:[x y]]`, `<nil>`.
pub(crate) fn go_value(value: &Value) -> String {
    let mut out = String::new();
    write_plain(&mut out, value);
    out
}

/// Formats a value like Go's `%#v`: `map[string]interface {}{"a":1}`, `interface {}(nil)`.
pub(crate) fn go_syntax(value: &Value) -> String {
    let mut out = String::new();
    write_syntax(&mut out, value);
    out
}

fn write_plain(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("<nil>"),
        Value::Bool(_) | Value::Number(_) => write!(out, "{value}").expect("writing to a string never fails"),
        Value::String(text) => out.push_str(text),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(' ');
                }
                write_plain(out, item);
            }
            out.push(']');
        }
        Value::Object(fields) => {
            out.push_str("map[");
            for (index, (name, field)) in fields.iter().enumerate() {
                if index > 0 {
                    out.push(' ');
                }
                out.push_str(name);
                out.push(':');
                write_plain(out, field);
            }
            out.push(']');
        }
    }
}

fn write_syntax(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("interface {}(nil)"),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            write!(out, "{value}").expect("writing to a string never fails");
        }
        Value::Array(items) => {
            out.push_str("[]interface {}{");
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push_str(", ");
                }
                write_syntax(out, item);
            }
            out.push('}');
        }
        Value::Object(fields) => {
            out.push_str("map[string]interface {}{");
            for (index, (name, field)) in fields.iter().enumerate() {
                if index > 0 {
                    out.push_str(", ");
                }
                write!(out, "{name:?}:").expect("writing to a string never fails");
                write_syntax(out, field);
            }
            out.push('}');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_formatted_as_in_go() {
        let value = json!({"b": ["x", 1, null], "a": {"c": true}});
        assert_eq!(go_value(&value), "map[a:map[c:true] b:[x 1 <nil>]]");
        assert_eq!(
            go_syntax(&value),
            r#"map[string]interface {}{"a":map[string]interface {}{"c":true}, "b":[]interface {}{"x", 1, interface {}(nil)}}"#
        );
    }
}
