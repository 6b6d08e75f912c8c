//! The paths of a document: for each resource its collection, its objects and its subresources.
//!
//! Contains the parts that kubectl and client generators use: methods, parameters, bodies and the action of an
//! operation.

use serde_json::{Map, Value, json};

use super::{META, ResourceInfo, prefix};
use crate::openapi::component_name;

/// Operations as (HTTP method, verb in discovery, `x-kubernetes-action`).
const COLLECTION: [(&str, &str, &str); 3] =
    [("get", "list", "list"), ("post", "create", "post"), ("delete", "deletecollection", "deletecollection")];
const OBJECT: [(&str, &str, &str); 4] = [
    ("get", "get", "get"),
    ("put", "update", "put"),
    ("patch", "patch", "patch"),
    ("delete", "delete", "delete"),
];
const SUBRESOURCE: [(&str, &str, &str); 4] = [
    ("get", "get", "get"),
    ("put", "update", "put"),
    ("patch", "patch", "patch"),
    ("post", "create", "post"),
];
/// Operations of streaming subresources, which both methods open.
const STREAM: [(&str, &str, &str); 2] = [("get", "get", "connect"), ("post", "create", "connect")];

type NameOf<'a> = &'a dyn Fn((&str, &str, &str)) -> Option<String>;

/// All paths of the resources of one group and version.
pub(super) fn paths(
    group: &str,
    version: &str,
    resources: &[ResourceInfo<'_>],
    name_of: NameOf<'_>,
) -> Value {
    let mut paths = Map::new();
    let schema_of = |kind| match name_of(kind) {
        Some(name) => json!({ "$ref": format!("#/components/schemas/{name}") }),
        None => json!({ "type": "object" }),
    };
    let base = format!("/{}", prefix(group, version));
    for resource in resources.iter().filter(|one| one.group == group && one.version == version) {
        let own = (group, version, resource.kind);
        let schema = schema_of(own);
        let is_custom = component_name(group, version, resource.kind).is_none();
        let collection = if resource.namespaced {
            format!("{base}/namespaces/{{namespace}}/{}", resource.plural)
        } else {
            format!("{base}/{}", resource.plural)
        };
        let object = format!("{collection}/{{name}}");
        if resource.namespaced && resource.verbs.contains(&"list") {
            let all_namespaces = item(&[COLLECTION[0]], &["list"], own, &schema, &[]);
            paths.insert(format!("{base}/{}", resource.plural), all_namespaces);
        }
        let in_path = if resource.namespaced { &["namespace"][..] } else { &[] };
        let on_object = if resource.namespaced { &["namespace", "name"][..] } else { &["name"] };
        insert(&mut paths, collection, item(&COLLECTION, resource.verbs, own, &schema, in_path));
        insert(&mut paths, object.clone(), item(&OBJECT, resource.verbs, own, &schema, on_object));
        for subresource in &resource.subresources {
            let kind = if subresource.kind.2.is_empty() { own } else { subresource.kind };
            let operations = if kind.2.ends_with("Options") { &STREAM[..] } else { &SUBRESOURCE };
            // kube-apiserver assigns even the `scale` of a custom resource to the kind of the custom resource.
            let reported_kind = if is_custom { own } else { kind };
            let described = item(operations, subresource.verbs, reported_kind, &schema_of(kind), on_object);
            insert(&mut paths, format!("{object}/{}", subresource.name), described);
        }
    }
    Value::Object(paths)
}

fn insert(paths: &mut Map<String, Value>, path: String, item: Value) {
    if item.as_object().is_some_and(|item| item.keys().any(|key| key != "parameters")) {
        paths.insert(path, item);
    }
}

fn item(
    operations: &[(&str, &str, &str)],
    verbs: &[&str],
    kind: (&str, &str, &str),
    schema: &Value,
    in_path: &[&str],
) -> Value {
    let mut item = Map::new();
    for (method, verb, action) in operations {
        if verbs.contains(verb) {
            item.insert((*method).to_owned(), operation(action, kind, schema));
        }
    }
    let mut parameters: Vec<Value> = in_path
        .iter()
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string", "uniqueItems": true } }))
        .collect();
    parameters.push(query("pretty", "string", "If 'true', the response is indented."));
    item.insert("parameters".to_owned(), parameters.into());
    Value::Object(item)
}

fn operation(action: &str, (group, version, kind): (&str, &str, &str), schema: &Value) -> Value {
    let content = json!({ "application/json": { "schema": schema } });
    let mut operation = json!({
        "description": format!("{action} {kind}"),
        "parameters": parameters(action),
        "responses": { "200": { "description": "OK", "content": content } },
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": { "group": group, "version": version, "kind": kind },
    });
    match action {
        "post" | "put" => {
            operation["requestBody"] =
                json!({ "required": true, "content": { "*/*": { "schema": schema } } });
        }
        "patch" => {
            let patch = json!({ "schema": { "$ref": format!("#/components/schemas/{META}.Patch") } });
            let mut content = json!({
                "application/apply-patch+yaml": patch,
                "application/json-patch+json": patch,
                "application/merge-patch+json": patch,
            });
            // `kubectl apply` selects its patch type by this list. Custom resources support no strategic merge patch.
            if component_name(group, version, kind).is_some() {
                content["application/strategic-merge-patch+json"] = patch;
            }
            operation["requestBody"] = json!({ "required": true, "content": content });
        }
        "delete" | "deletecollection" => {
            let options = json!({ "$ref": format!("#/components/schemas/{META}.DeleteOptions") });
            operation["requestBody"] = json!({ "content": { "*/*": { "schema": options } } });
        }
        _ => {}
    }
    operation
}

fn query(name: &str, kind: &str, description: &str) -> Value {
    json!({ "name": name, "in": "query", "description": description, "schema": { "type": kind, "uniqueItems": true } })
}

fn parameters(action: &str) -> Value {
    let dry_run = || query("dryRun", "string", "With 'All', the request is processed but not persisted.");
    let manager = || query("fieldManager", "string", "Name of the field manager of this request.");
    let validation = || {
        query(
            "fieldValidation",
            "string",
            "Handling of unknown and duplicate fields: Ignore, Warn or Strict.",
        )
    };
    let force = || {
        query("force", "boolean", "Take over conflicting fields of other managers. Only for apply requests.")
    };
    match action {
        "post" | "put" => json!([dry_run(), manager(), validation()]),
        "patch" => json!([dry_run(), manager(), validation(), force()]),
        "delete" => json!([
            dry_run(),
            query(
                "gracePeriodSeconds",
                "integer",
                "Seconds before the object is deleted. Zero deletes it immediately."
            ),
            query(
                "propagationPolicy",
                "string",
                "Garbage collection of dependents: Orphan, Background or Foreground."
            ),
        ]),
        "list" | "deletecollection" => json!([
            query("labelSelector", "string", "Selects objects by labels."),
            query("fieldSelector", "string", "Selects objects by fields."),
            query("limit", "integer", "Maximum number of objects in one response."),
            query("continue", "string", "Continue token of the previous page."),
            query("resourceVersion", "string", "Resource version to list, or to start the watch from."),
            query("resourceVersionMatch", "string", "How resourceVersion is applied to a list."),
            query("timeoutSeconds", "integer", "Timeout of a watch in seconds."),
            query("watch", "boolean", "Watch for changes instead of listing."),
            query("allowWatchBookmarks", "boolean", "Send bookmark events in a watch."),
            query("sendInitialEvents", "boolean", "Send the existing objects at the start of a watch."),
        ]),
        _ => json!([]),
    }
}
