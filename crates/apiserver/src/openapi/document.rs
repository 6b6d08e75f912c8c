//! `OpenAPI` v3 documents, one for each group and version, and their index.
//!
//! This module builds the components of a document: the published schemas with their descriptions, the schemas of
//! custom resources, and everything that they refer to. Paths are in `document/paths`; the caller supplies the
//! resources.

mod paths;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::OnceLock;

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::types::component_name;
use super::unpack;

static SCHEMAS: &[u8] = include_bytes!("../../assets/schemas.json.gz");

/// A resource to be described in a document.
#[derive(Clone, Debug)]
pub struct ResourceInfo<'a> {
    /// Empty for the core group.
    pub group: &'a str,
    /// Such as `v1`.
    pub version: &'a str,
    /// Such as `Pod`.
    pub kind: &'a str,
    /// Such as `pods`.
    pub plural: &'a str,
    /// Whether objects are namespaced.
    pub namespaced: bool,
    /// As in discovery: `get`, `list`, `create`, …
    pub verbs: &'a [&'a str],
    /// Subresources of the resource.
    pub subresources: Vec<SubresourceInfo<'a>>,
}

/// A subresource to be described in a document.
#[derive(Clone, Debug)]
pub struct SubresourceInfo<'a> {
    /// Such as `status`.
    pub name: &'a str,
    /// Group, version and kind of its bodies. An empty kind means the kind of the resource.
    pub kind: (&'a str, &'a str, &'a str),
    /// As in discovery.
    pub verbs: &'a [&'a str],
}

/// The schema of one version of a custom resource.
#[derive(Clone, Copy, Debug)]
pub struct CustomResource<'a> {
    /// Group of the kind.
    pub group: &'a str,
    /// Version of the schema.
    pub version: &'a str,
    /// The kind.
    pub kind: &'a str,
    /// Plural name in URLs.
    pub plural: &'a str,
    /// Kind of lists, usually `<kind>List`.
    pub list_kind: &'a str,
    /// `openAPIV3Schema`; null if there is none.
    pub schema: &'a Value,
}

impl CustomResource<'_> {
    /// Name of the component: the reversed labels of the group, then version and kind.
    fn component(&self, kind: &str) -> String {
        let reversed: Vec<&str> = self.group.rsplit('.').collect();
        format!("{}.{}.{kind}", reversed.join("."), self.version)
    }
}

fn schemas() -> &'static BTreeMap<String, Value> {
    static PARSED: OnceLock<BTreeMap<String, Value>> = OnceLock::new();
    PARSED.get_or_init(|| {
        serde_json::from_slice(&unpack(SCHEMAS)).expect("the asset is written by xtask as JSON")
    })
}

/// URL of the API conventions, to which Kubernetes' descriptions link.
const CONVENTIONS: &str =
    "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md";
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// The document of one group and version: components and paths of its resources.
pub fn document(
    group: &str,
    version: &str,
    resources: &[ResourceInfo<'_>],
    custom: &[CustomResource<'_>],
) -> Value {
    let mut components = Map::new();
    let mut names = BTreeMap::new();
    let mut wanted = BTreeSet::new();
    for custom in custom.iter().filter(|custom| custom.group == group && custom.version == version) {
        let name = custom.component(custom.kind);
        components.insert(name.clone(), published_schema(custom));
        components.insert(custom.component(custom.list_kind), list_of(custom, &name));
        names.insert((group, version, custom.kind), name);
    }
    let mut shared = vec!["DeleteOptions", "Status", "Patch", "ObjectMeta", "ListMeta"];
    if names.is_empty() {
        shared.extend(["WatchEvent", "APIResourceList"]);
    }
    wanted.extend(shared.iter().map(|name| format!("{META}.{name}")));
    for resource in resources.iter().filter(|resource| resource.group == group && resource.version == version)
    {
        let kinds = resource.subresources.iter().map(|part| part.kind).filter(|kind| !kind.2.is_empty());
        let kinds = kinds.chain([(group, version, resource.kind)]);
        for (group, version, kind) in kinds {
            for suffix in ["", "List"] {
                let Some(name) = component_name(group, version, &format!("{kind}{suffix}")) else { continue };
                wanted.insert(name.to_owned());
                if suffix.is_empty() {
                    names.entry((group, version, kind)).or_insert_with(|| name.to_owned());
                }
            }
        }
    }
    for component in components.values() {
        collect_references(component, &mut wanted);
    }
    copy_components(wanted, &mut components);
    let name_of = |kind: (&str, &str, &str)| {
        let known = names.iter().find(|(key, _)| **key == kind).map(|(_, name)| name.clone());
        known.or_else(|| component_name(kind.0, kind.1, kind.2).map(str::to_owned))
    };
    json!({
        "openapi": "3.0.0",
        "info": { "title": "Kubernetes", "version": "unversioned" },
        "paths": paths::paths(group, version, resources, &name_of),
        "components": { "schemas": components },
    })
}

/// The index of all documents: their paths (`api/v1`, `apis/apps/v1`), each with the hash from [`hash`].
pub fn index<'a>(documents: impl IntoIterator<Item = (&'a str, &'a str, String)>) -> Value {
    let mut paths = Map::new();
    for (group, version, hash) in documents {
        let path = prefix(group, version);
        let url = format!("/openapi/v3/{path}?hash={hash}");
        paths.insert(path, json!({ "serverRelativeURL": url }));
    }
    json!({ "paths": paths })
}

/// Hash that changes whenever the document of the group and version changes.
pub fn hash(
    group: &str,
    version: &str,
    resources: &[ResourceInfo<'_>],
    custom: &[CustomResource<'_>],
) -> String {
    let mut hasher = Sha256::new();
    hasher.update(env!("CARGO_PKG_VERSION"));
    hasher.update(format!("{group}/{version}"));
    for resource in resources.iter().filter(|one| one.group == group && one.version == version) {
        hasher.update(format!("{resource:?}"));
    }
    for custom in custom.iter().filter(|one| one.group == group && one.version == version) {
        hasher.update(format!("{}/{}:{}", custom.kind, custom.list_kind, custom.schema));
    }
    hasher.finalize().iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02X}").expect("writing to a string does not fail");
        hex
    })
}

/// `api/v1` or `apis/apps/v1`.
fn prefix(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// Copies the components in `wanted` and all components that they refer to.
fn copy_components(mut wanted: BTreeSet<String>, components: &mut Map<String, Value>) {
    while let Some(name) = wanted.pop_first() {
        if components.contains_key(&name) {
            continue;
        }
        if let Some(schema) = schemas().get(&name) {
            collect_references(schema, &mut wanted);
            components.insert(name, schema.clone());
        }
    }
}

fn collect_references(schema: &Value, found: &mut BTreeSet<String>) {
    match schema {
        Value::Object(fields) => {
            for (name, field) in fields {
                if let ("$ref", Some(target)) = (name.as_str(), field.as_str()) {
                    found.insert(target.trim_start_matches("#/components/schemas/").to_owned());
                } else {
                    collect_references(field, found);
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_references(item, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn reference(name: &str, description: &Value) -> Value {
    json!({ "allOf": [{ "$ref": format!("#/components/schemas/{name}") }], "description": description })
}

/// The published description of a field that all kinds (or all list kinds) have.
fn common_description(kind: &str, field: &str) -> Value {
    schemas()[&format!("io.k8s.api.core.v1.{kind}")]["properties"][field]["description"].clone()
}

/// The published schema of a custom resource: adds `apiVersion`, `kind` and `metadata`, and the two types of
/// int-or-string values, after `pkg/controller/openapi/builder` of apiextensions-apiserver.
fn published_schema(custom: &CustomResource<'_>) -> Value {
    let mut schema = if custom.schema.is_object() {
        custom.schema.clone()
    } else {
        json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
    };
    expand_extensions(&mut schema);
    add_meta(&mut schema);
    schema["x-kubernetes-group-version-kind"] =
        json!([{ "group": custom.group, "version": custom.version, "kind": custom.kind }]);
    schema
}

fn expand_extensions(schema: &mut Value) {
    if schema["x-kubernetes-embedded-resource"] == true {
        add_meta(schema);
        schema["required"] = json!(["kind", "apiVersion"]);
    }
    if schema["x-kubernetes-int-or-string"] == true && schema.get("anyOf").is_none() {
        schema["anyOf"] = json!([{ "type": "integer" }, { "type": "string" }]);
    }
    match schema {
        Value::Object(fields) => fields.values_mut().for_each(expand_extensions),
        Value::Array(items) => items.iter_mut().for_each(expand_extensions),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn add_meta(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else { return };
    let properties = fields.entry("properties").or_insert_with(|| json!({}));
    if !properties.is_object() {
        *properties = json!({});
    }
    for name in ["apiVersion", "kind"] {
        properties[name] = json!({ "type": "string", "description": common_description("Pod", name) });
    }
    properties["metadata"] = reference(&format!("{META}.ObjectMeta"), &common_description("Pod", "metadata"));
}

fn list_of(custom: &CustomResource<'_>, item: &str) -> Value {
    json!({
        "type": "object",
        "description": format!("{} is a list of {}", custom.list_kind, custom.kind),
        "required": ["items"],
        "properties": {
            "apiVersion": { "type": "string", "description": common_description("PodList", "apiVersion") },
            "kind": { "type": "string", "description": common_description("PodList", "kind") },
            "metadata": reference(&format!("{META}.ListMeta"), &common_description("PodList", "metadata")),
            "items": {
                "type": "array",
                "description": format!("List of {}. More info: {CONVENTIONS}", custom.plural),
                "items": { "$ref": format!("#/components/schemas/{item}") },
            },
        },
        "x-kubernetes-group-version-kind":
            [{ "group": custom.group, "version": custom.version, "kind": custom.list_kind }],
    })
}
