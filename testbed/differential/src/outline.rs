//! Summarises an `OpenAPI` v3 document to the parts that kubectl uses. A document has up to 1.6 MB, which is too large for a
//! recording.
//!
//! A schema of a built-in kind becomes a digest of its content; the schema of a custom resource is kept. An operation becomes its
//! action and kind (`list /v1/Pod`). A patch operation also keeps its query parameters and media types, by which `kubectl apply`
//! decides how to validate and patch. Operations without a kind and the deprecated paths `/watch/` are omitted. The index keeps only
//! the documents of group versions, without the hashes of their content.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

/// Shared schemas that list all group versions of the server.
const NAMES_ALL_KINDS: [&str; 2] = ["DeleteOptions", "WatchEvent"];
const KINDS: &str = "x-kubernetes-group-version-kind";

/// The outline of a document or of the index. Any other body is returned unchanged.
pub fn outline(document: &Value) -> Value {
    if let Some(index) = index(document) {
        return index;
    }
    let (Some(paths), Some(schemas)) =
        (document["paths"].as_object(), document["components"]["schemas"].as_object())
    else {
        return document.clone();
    };
    let schemas: Map<_, _> =
        schemas.iter().map(|(name, schema)| (name.clone(), brief(name, schema))).collect();
    let paths: Map<_, _> = paths
        .iter()
        .filter(|(path, _)| !path.contains("/watch/"))
        .map(|(path, item)| (path.clone(), operations(item)))
        .filter(|(_, item)| item.as_object().is_some_and(|item| !item.is_empty()))
        .collect();
    json!({ "paths": paths, "schemas": schemas })
}

/// The documents of group versions and their URLs; `None` for a body that is not an index.
fn index(document: &Value) -> Option<Value> {
    let mut documents = Map::new();
    for (name, entry) in document["paths"].as_object()? {
        let url = entry["serverRelativeURL"].as_str()?;
        let is_version =
            matches!(name.split('/').collect::<Vec<_>>().as_slice(), ["api", _] | ["apis", _, _]);
        if is_version {
            documents.insert(name.clone(), json!(url.split_once("?hash=").map(|(url, _)| url)));
        }
    }
    Some(documents.into())
}

fn brief(name: &str, schema: &Value) -> Value {
    if !name.starts_with("io.k8s.") {
        return schema.clone();
    }
    let mut schema = schema.clone();
    if let Some(fields) = schema.as_object_mut()
        && NAMES_ALL_KINDS.iter().any(|common| name.ends_with(&format!(".meta.v1.{common}")))
    {
        fields.remove(KINDS);
    }
    // The keys of objects are sorted, so equal values have equal texts.
    json!(format!("{:016x}", digest(schema.to_string().as_bytes())))
}

/// The FNV-1a hash, which is stable across platforms and versions.
fn digest(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

fn operations(item: &Value) -> Value {
    let mut found = Map::new();
    for (method, operation) in item.as_object().into_iter().flatten() {
        let Some(kind) = operation.get(KINDS) else { continue };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let does = format!(
            "{} {}/{}/{}",
            text(&operation["x-kubernetes-action"]),
            text(&kind["group"]),
            text(&kind["version"]),
            text(&kind["kind"])
        );
        let described = if method == "patch" {
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            let parameters: BTreeSet<_> = parameters.map(|parameter| text(&parameter["name"])).collect();
            let content = operation["requestBody"]["content"].as_object();
            let content: BTreeSet<_> = content.into_iter().flat_map(Map::keys).collect();
            json!({ "does": does, "parameters": parameters, "content": content })
        } else {
            json!(does)
        };
        found.insert(method.clone(), described);
    }
    Value::Object(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_reduced_to_digests_of_schemas_and_actions_of_operations() {
        let patch = json!({ "x-kubernetes-action": "patch", KINDS: {"group": "", "version": "v1", "kind": "Pod"},
            "parameters": [{"name": "force"}, {"name": "dryRun"}], "requestBody": {"content": {"b/c": {}}} });
        let document = |text: &str| {
            json!({
                "paths": {"/api/v1/": {"get": {}}, "/api/v1/watch/pods": {"patch": patch}, "/api/v1/pods": {"patch": patch, "parameters": []}},
                "components": {"schemas": {"com.example.A": {"type": "object"}, "io.k8s.B": {"description": text}}},
            })
        };
        let found = outline(&document("b"));
        assert_eq!(
            found["paths"],
            json!({ "/api/v1/pods": { "patch": { "does": "patch /v1/Pod", "parameters": ["dryRun", "force"], "content": ["b/c"] } } })
        );
        assert_eq!(found["schemas"]["com.example.A"], json!({"type": "object"}));
        assert_eq!(found, outline(&document("b")));
        assert_ne!(found["schemas"]["io.k8s.B"], outline(&document("c"))["schemas"]["io.k8s.B"]);
        assert_eq!(outline(&json!({"kind": "Status"})), json!({"kind": "Status"}));
    }

    #[test]
    fn the_index_is_reduced_to_group_versions_without_hashes() {
        let entry = |url: &str| json!({ "serverRelativeURL": url });
        let index = json!({ "paths": { "apis": entry("/a?hash=1"), "apis/a/v1": entry("/b?hash=2"), "api/v1": entry("/c") } });
        assert_eq!(outline(&index), json!({ "api/v1": null, "apis/a/v1": "/b" }));
    }
}
