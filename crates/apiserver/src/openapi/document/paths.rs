//! The paths of a document: for each resource its collection, its objects and its subresources.
//!
//! Says as much as kubectl and generators of clients read: methods, parameters, bodies, and what an operation does.

use serde_json::{Map, Value, json};

use super::{META, ResourceInfo, prefix};
use crate::openapi::component_name;

/// One operation: the HTTP method, the verb of discovery, what it is called, and how its body is made.
const COLLECTION: [(&str, &str, &str); 3] =
    [("get", "list", "list"), ("post", "create", "post"), ("delete", "deletecollection", "deletecollection")];
const OBJECT: [(&str, &str, &str); 4] = [
    ("get", "get", "get"),
    ("put", "update", "put"),
    ("patch", "patch", "patch"),
    ("delete", "delete", "delete"),
];
const PART: [(&str, &str, &str); 4] = [
    ("get", "get", "get"),
    ("put", "update", "put"),
    ("patch", "patch", "patch"),
    ("post", "create", "post"),
];
/// Parts that are connections, which both methods open.
const CONNECTION: [(&str, &str, &str); 2] = [("get", "get", "connect"), ("post", "create", "connect")];

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
            let everywhere = item(&[COLLECTION[0]], &["list"], own, &schema, &[]);
            paths.insert(format!("{base}/{}", resource.plural), everywhere);
        }
        let in_path = if resource.namespaced { &["namespace"][..] } else { &[] };
        let on_object = if resource.namespaced { &["namespace", "name"][..] } else { &["name"] };
        insert(&mut paths, collection, item(&COLLECTION, resource.verbs, own, &schema, in_path));
        insert(&mut paths, object.clone(), item(&OBJECT, resource.verbs, own, &schema, on_object));
        for part in &resource.subresources {
            let kind = if part.kind.2.is_empty() { own } else { part.kind };
            let operations = if kind.2.ends_with("Options") { &CONNECTION[..] } else { &PART };
            // Of custom resources even the scale is said to be of their own kind.
            let told = if is_custom { own } else { kind };
            let described = item(operations, part.verbs, told, &schema_of(kind), on_object);
            insert(&mut paths, format!("{object}/{}", part.name), described);
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
    parameters.push(query("pretty", "string", "If 'true', the answer is indented."));
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
            // `kubectl apply` chooses its patch by this; custom resources take no strategic ones.
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
    let dry_run = || query("dryRun", "string", "With 'All', everything is done but the storing.");
    let manager = || query("fieldManager", "string", "Name of who owns the fields that are set.");
    let validation = || {
        query(
            "fieldValidation",
            "string",
            "What becomes of unknown and duplicate fields: Ignore, Warn or Strict.",
        )
    };
    let force = || query("force", "boolean", "Take over fields that others own. Only for apply.");
    match action {
        "post" | "put" => json!([dry_run(), manager(), validation()]),
        "patch" => json!([dry_run(), manager(), validation(), force()]),
        "delete" => json!([
            dry_run(),
            query("gracePeriodSeconds", "integer", "Seconds before the object goes; zero: at once."),
            query(
                "propagationPolicy",
                "string",
                "What becomes of dependents: Orphan, Background or Foreground."
            ),
        ]),
        "list" | "deletecollection" => json!([
            query("labelSelector", "string", "Only objects with such labels."),
            query("fieldSelector", "string", "Only objects with such fields."),
            query("limit", "integer", "Most objects in one answer."),
            query("continue", "string", "Where the answer before ended."),
            query("resourceVersion", "string", "The state to list, or to watch from."),
            query("resourceVersionMatch", "string", "How resourceVersion is meant."),
            query("timeoutSeconds", "integer", "When a watch ends."),
            query("watch", "boolean", "Changes instead of a list."),
            query("allowWatchBookmarks", "boolean", "Bookmarks in a watch."),
            query("sendInitialEvents", "boolean", "A watch begins with what there is."),
        ]),
        _ => json!([]),
    }
}
