//! Whether values fit `values.schema.json`: the part of JSON Schema that this file uses.

use regex::Regex;
use serde_json::Value;

/// Keywords without an effect on validity.
const NOTES: [&str; 5] = ["$schema", "title", "description", "default", "examples"];

/// What is wrong with a value, one line for each fault. A keyword that this module does not know is a fault, too.
pub(crate) fn faults(schema: &Value, value: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    check(schema, value, "", &mut faults);
    faults
}

fn check(schema: &Value, value: &Value, path: &str, faults: &mut Vec<String>) {
    let keywords = schema.as_object().into_iter().flatten();
    for (keyword, rule) in keywords {
        if let Some(fault) = fault(schema, keyword, rule, value, path, faults) {
            let path = if path.is_empty() { "values" } else { path };
            faults.push(format!("{path}: {fault}"));
        }
    }
}

fn fault(
    schema: &Value,
    keyword: &str,
    rule: &Value,
    value: &Value,
    path: &str,
    faults: &mut Vec<String>,
) -> Option<String> {
    let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    match keyword {
        "type" => {
            let types: Vec<&str> = rule.as_array().map_or_else(
                || rule.as_str().into_iter().collect(),
                |types| types.iter().filter_map(Value::as_str).collect(),
            );
            let fits = types.iter().any(|of| is_of(value, of));
            (!fits).then(|| format!("got {}, want {}", type_of(value), types.join(" or ")))
        }
        "properties" => {
            for (name, rule) in rule.as_object().into_iter().flatten() {
                if let Some(value) = value.get(name) {
                    check(rule, value, &below(name), faults);
                }
            }
            None
        }
        "additionalProperties" => {
            let known = &schema["properties"];
            for (name, value) in value.as_object().into_iter().flatten() {
                if !known[name].is_null() {
                    continue;
                }
                if rule == false {
                    faults.push(format!("{}: there is no such value", below(name)));
                } else {
                    check(rule, value, &below(name), faults);
                }
            }
            None
        }
        "propertyNames" => {
            for name in value.as_object().into_iter().flatten().map(|(name, _)| name) {
                check(rule, &name.clone().into(), &below(name), faults);
            }
            None
        }
        "items" => {
            for (at, item) in value.as_array().into_iter().flatten().enumerate() {
                check(rule, item, &format!("{path}[{at}]"), faults);
            }
            None
        }
        "required" => {
            let missing = rule.as_array().into_iter().flatten().filter_map(Value::as_str);
            let missing: Vec<_> =
                missing.filter(|name| value.is_object() && value.get(name).is_none()).collect();
            (!missing.is_empty()).then(|| format!("{} is missing", missing.join(", ")))
        }
        "enum" => {
            let allowed = rule.as_array()?;
            let names: Vec<_> = allowed.iter().map(ToString::to_string).collect();
            (!allowed.contains(value)).then(|| format!("{value} is none of {}", names.join(", ")))
        }
        "pattern" => {
            let (pattern, text) = (rule.as_str()?, value.as_str()?);
            let fits = Regex::new(pattern).is_ok_and(|pattern| pattern.is_match(text));
            (!fits).then(|| format!("{text:?} does not match {pattern}"))
        }
        "minimum" => (value.as_f64()? < rule.as_f64()?).then(|| format!("{value} is less than {rule}")),
        "maximum" => (value.as_f64()? > rule.as_f64()?).then(|| format!("{value} is more than {rule}")),
        "minItems" => {
            let count = u64::try_from(value.as_array()?.len()).ok()?;
            (count < rule.as_u64()?).then(|| format!("{count} items are less than {rule}"))
        }
        note if NOTES.contains(&note) => None,
        unknown => Some(format!("the schema has the keyword {unknown}, which is not known here")),
    }
}

fn is_of(value: &Value, of: &str) -> bool {
    let is_whole = value.as_f64().is_some_and(|number| number.fract() == 0.0);
    type_of(value) == of || of == "integer" && is_whole
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
