//! `xtask reference`: the page `docs/reference/api.md`, with every field of the kinds that Muster serves, from their definitions.

use std::fmt::Write as _;

use api::appwrapper::Columns;
use serde_json::{Value, json};

/// Where the page is.
pub(crate) const PAGE: &str = "docs/reference/api.md";

/// Objects of Kubernetes, whose fields are not repeated.
const OF_KUBERNETES: [&str; 5] = ["conditions", "template", "tolerations", "nodeTaints", "namespaceSelector"];

/// The page.
pub(crate) fn text() -> String {
    let mut page = "# Fields of the API\n\nMade from the definitions (`cargo run -p xtask -- reference`); `kubectl explain` prints the same. A field below a list has `[]`. \
                    [Kueue's API](../compat/kueue.md#fields) says which fields work as in Kueue.\n"
        .to_owned();
    let mut definitions = vec![
        api::appwrapper::definition(api::appwrapper::Group::Codeflare, Columns::Queue),
        api::quota::definition(api::quota::Group::Codeflare),
    ];
    definitions.extend(api::kueue::crds(&json!({})));
    for definition in &definitions {
        put_kind(&mut page, &definition["spec"]);
    }
    page
}

fn put_kind(page: &mut String, spec: &Value) {
    let kind = spec["names"]["kind"].as_str().unwrap_or_default();
    let group = spec["group"].as_str().unwrap_or_default();
    let mut versions = spec["versions"].as_array().into_iter().flatten();
    let Some(version) = versions.find(|version| version["storage"] == true) else { return };
    let name = version["name"].as_str().unwrap_or_default();
    let schema = &version["schema"]["openAPIV3Schema"];
    write!(page, "\n## {kind}\n\n`{group}/{name}`. {}\n\n", described(schema))
        .expect("a string takes all text");
    page.push_str("| field | type | meaning |\n| --- | --- | --- |\n");
    for (field, schema) in schema["properties"].as_object().into_iter().flatten() {
        if !matches!(field.as_str(), "apiVersion" | "kind" | "metadata") {
            put_field(page, field, schema);
        }
    }
}

/// A row for the field, if it says anything of its own, and rows for the fields below it.
fn put_field(page: &mut String, path: &str, schema: &Value) {
    let element = if schema["items"].is_object() { &schema["items"] } else { schema };
    let path = if schema["items"].is_object() { format!("{path}[]") } else { path.to_owned() };
    let below = element["properties"].as_object().filter(|_| {
        let name = path.rsplit('.').next().unwrap_or_default();
        !OF_KUBERNETES.contains(&name.trim_end_matches("[]"))
    });
    let meaning = described(schema);
    if below.is_none() || !meaning.is_empty() {
        writeln!(page, "| `{path}` | {} | {meaning} |", kind(element)).expect("a string takes all text");
    }
    for (name, schema) in below.into_iter().flatten() {
        put_field(page, &format!("{path}.{name}"), schema);
    }
}

/// The type of a value, with what it may be.
fn kind(schema: &Value) -> String {
    if schema["x-kubernetes-int-or-string"] == true {
        return "quantity".into();
    }
    let base = match (schema["type"].as_str(), schema["format"].as_str()) {
        (Some("object"), _) if schema["additionalProperties"].is_object() => {
            format!("map of {}", kind(&schema["additionalProperties"]))
        }
        (Some(_), Some("date-time")) => "time".into(),
        (Some(base), _) => base.to_owned(),
        (None, _) => "any".into(),
    };
    let choices: Vec<_> = schema["enum"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let choices = if choices.is_empty() { String::new() } else { format!(": `{}`", choices.join("`, `")) };
    let default = &schema["default"];
    let default = if default.is_null() || default.is_object() {
        String::new()
    } else {
        format!("; default `{default}`")
    };
    format!("{base}{choices}{default}").replace('|', "\\|").replace('"', "")
}

fn described(schema: &Value) -> String {
    let text = schema["description"].as_str().unwrap_or_default();
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_the_api_is_that_of_the_definitions() {
        let page = crate::root().join(PAGE);
        let found = std::fs::read_to_string(page).expect("the page is readable");
        assert!(found == text(), "{PAGE} is not what the definitions say: cargo run -p xtask -- reference");
    }

    #[test]
    fn a_type_says_what_a_value_may_be() {
        for (schema, expected) in [
            (json!({"type": "string", "enum": ["A", "B"], "default": "A"}), "string: `A`, `B`; default `A`"),
            (
                json!({"type": "object", "additionalProperties": {"x-kubernetes-int-or-string": true}}),
                "map of quantity",
            ),
            (json!({"type": "string", "format": "date-time"}), "time"),
        ] {
            assert_eq!(kind(&schema), expected);
        }
    }
}
