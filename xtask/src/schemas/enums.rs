//! Adds the values of enumerated fields, which kube-apiserver publishes and Kubernetes' checked-in `OpenAPI` documents omit.
//!
//! Parses `zz_generated.openapi.go`, the generated Go file from which kube-apiserver builds its documents. `kubectl explain`
//! shows the values as `ENUM`, and the description of a field lists them.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, ensure};
use regex::Regex;
use serde_json::{Value, json};

/// The path of the file in the module `k8s.io/kubernetes`.
const FILE: &str = "pkg/generated/openapi/zz_generated.openapi.go";

/// Adds `enum` to the fields of `components`, and the descriptions that list the values. `kubernetes` is the directory of the
/// module.
pub(super) fn add(kubernetes: &Path, components: &mut BTreeMap<String, Value>) -> anyhow::Result<()> {
    let path = kubernetes.join(FILE);
    let program = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let found = read(&program)?;
    let mut fields = 0;
    for (name, schema) in components {
        // The Go function for `io.k8s.api.core.v1.Pod` is `schema_k8sio_api_core_v1_Pod`. A longer path is cut to its end.
        let path = name.strip_prefix("io.k8s.apiextensions-apiserver.").map(str::to_owned);
        let function = path.unwrap_or_else(|| name.replacen("io.k8s.", "k8sio.", 1)).replace('.', "_");
        for Enumerated { field, description, values } in found.get(&function).into_iter().flatten() {
            let property =
                schema["properties"].get_mut(field).with_context(|| format!("no {field} in {name}"))?;
            // For a list or map, the values belong to the items.
            let item =
                ["items", "additionalProperties"].into_iter().find(|item| property.get(item).is_some());
            match item {
                Some(item) => property[item]["enum"] = json!(values),
                None => property["enum"] = json!(values),
            }
            property["description"] = json!(description);
            fields += 1;
        }
    }
    ensure!(fields > 0, "{} has no enumerated field: has its format changed?", path.display());
    Ok(())
}

/// One enumerated field.
#[derive(Debug, PartialEq, Eq)]
struct Enumerated {
    field: String,
    description: String,
    values: Vec<String>,
}

/// The enumerated fields, by the function name without `schema_`: `k8sio_api_core_v1_Pod`.
fn read(program: &str) -> anyhow::Result<BTreeMap<String, Vec<Enumerated>>> {
    let function = Regex::new(r"^func schema_(\w+)\(")?;
    let property = Regex::new(r#"^\t{5}"([^"]+)": \{$"#)?;
    let description = Regex::new(r#"^\t{7}Description: (".*"),$"#)?;
    let values = Regex::new(r"^\t+Enum: +\[\]interface\{\}\{(.*)\},$")?;
    let mut found = BTreeMap::<String, Vec<Enumerated>>::new();
    let (mut name, mut field, mut text) = (String::new(), String::new(), String::new());
    for line in program.lines() {
        if let Some(captures) = function.captures(line) {
            captures[1].clone_into(&mut name);
        } else if let Some(captures) = property.captures(line) {
            (field, text) = (captures[1].to_owned(), String::new());
        } else if let Some(captures) = description.captures(line) {
            // The Go quoting of these texts is valid JSON.
            text = serde_json::from_str(&captures[1]).with_context(|| format!("description in {name}"))?;
        } else if let Some(captures) = values.captures(line) {
            let values = serde_json::from_str(&format!("[{}]", &captures[1]))
                .with_context(|| format!("values of {field} in {name}"))?;
            found.entry(name.clone()).or_default().push(Enumerated {
                field: field.clone(),
                description: text.clone(),
                values,
            });
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_of_an_enumerated_field_are_parsed_with_its_description() {
        let program = "func schema_k8sio_api_core_v1_X(ref) {\n\t\t\t\t\t\"a\": {\n\t\t\t\t\t\tSchemaProps: {\n\t\t\t\t\t\t\tDescription: \"Say \\\"a\\\".\",\n\
                       \t\t\t\t\t\t\tEnum:        []interface{}{\"On\", \"Off\"},\n\t\t\t\t\t\t},\n\t\t\t\t\t},\n\t\t\t\t\t\"b\": {\n";
        let found = read(program).unwrap();
        let field = Enumerated {
            field: "a".into(),
            description: "Say \"a\".".into(),
            values: vec!["On".into(), "Off".into()],
        };
        assert_eq!(found["k8sio_api_core_v1_X"], [field]);
    }
}
