//! Entries for custom resource definitions, one for each served version.

use std::collections::BTreeSet;

use serde_json::Value;

use super::builtin::{SCALE, STATUS};
use super::{Field, Generation, Resource, Rules};
use crate::converter::{Conversion, Converter};
use crate::names::NameRule;
use crate::object;
use crate::schema::Structural;

const VERBS: &[&str] = &["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];

/// An additional printer column of a custom resource definition.
#[derive(Debug, Clone)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) format: String,
    pub(crate) description: String,
    pub(crate) priority: i64,
    pub(crate) path: String,
}

/// Properties that only custom resources have.
#[derive(Debug)]
pub(crate) struct Custom {
    /// Name of the custom resource definition.
    pub(crate) definition: String,
    /// State of the definition from which the entry was built: its uid and generation.
    pub(crate) state: (String, i64),
    /// `openAPIV3Schema` of this version.
    pub(crate) schema: Value,
    /// The compiled schema. `None` if there is none or it does not compile; objects are then untyped.
    pub(crate) structural: Option<Structural>,
    /// Additional printer columns. If empty, tables show only the age.
    pub(crate) columns: Vec<Column>,
    /// Conversion between the versions.
    pub(crate) conversion: Conversion,
    /// `subresources.scale`: JSON paths of spec replicas, status replicas and label selector.
    pub(crate) scale: Option<Value>,
    /// Deprecation warning that every request to this version returns.
    pub(crate) deprecation: Option<String>,
}

/// The entries of a definition, one for each served version, with the converter of its group.
pub(crate) fn resources(definition: &Value, converter: Option<&Converter>) -> Vec<Resource> {
    let conversion = Conversion::of(definition, converter);
    let versions = object::items(definition, &["spec", "versions"]);
    versions
        .iter()
        .filter(|version| object::flag(version, &["served"]))
        .map(|version| resource(definition, version, versions, conversion.clone()))
        .collect()
}

/// State of a definition. The entries have to be rebuilt when it changes.
pub(crate) fn state_of(definition: &Value) -> (String, i64) {
    (object::uid(definition).into(), object::int(definition, &["metadata", "generation"]).unwrap_or(0))
}

/// The `apiVersion` of the storage version of a definition.
fn stored_as(group: &str, versions: &[Value]) -> String {
    let stored = versions.iter().find(|v| object::flag(v, &["storage"]));
    object::api_version(group, stored.map(|v| object::text(v, &["name"])).unwrap_or_default())
}

fn resource(definition: &Value, version: &Value, versions: &[Value], conversion: Conversion) -> Resource {
    let text = |path: &[&str]| object::text(definition, path).to_owned();
    let names = |key| -> Vec<String> {
        object::texts(definition, &["status", "acceptedNames", key]).map(String::from).collect()
    };
    let group = text(&["spec", "group"]);
    let plural = text(&["spec", "names", "plural"]);
    let has_status = object::get(version, &["subresources", "status"]).is_some();
    let mut subresources = Vec::new();
    if has_status {
        subresources.push(STATUS);
    }
    if object::get(version, &["subresources", "scale"]).is_some() {
        subresources.push(SCALE);
    }
    let kind = text(&["spec", "names", "kind"]);
    let schema = object::get(version, &["schema", "openAPIV3Schema"]).cloned().unwrap_or_default();
    let or = |value: String, default: String| if value.is_empty() { default } else { value };
    Resource {
        version: object::text(version, &["name"]).into(),
        singular: or(text(&["spec", "names", "singular"]), kind.to_lowercase()),
        list_kind: or(text(&["spec", "names", "listKind"]), format!("{kind}List")),
        kind,
        namespaced: object::text(definition, &["spec", "scope"]) == "Namespaced",
        short_names: names("shortNames"),
        categories: names("categories"),
        verbs: VERBS,
        subresources,
        storage: crate::status::qualified(&group, &plural).into(),
        stored_as: stored_as(&group, versions),
        rules: Rules {
            names: NameRule::Subdomain,
            generation: Generation::Content,
            unconditional: false,
            create_on_update: false,
            returns_deleted: false,
            orphans: false,
        },
        fields: fields(version, versions),
        custom: Some(Custom {
            definition: object::name(definition).into(),
            state: state_of(definition),
            structural: (!schema.is_null()).then(|| Structural::parse(&schema).ok()).flatten(),
            schema,
            columns: object::items(version, &["additionalPrinterColumns"]).iter().map(column).collect(),
            conversion,
            scale: object::get(version, &["subresources", "scale"]).cloned(),
            deprecation: object::flag(version, &["deprecated"]).then(|| {
                let own = object::text(version, &["deprecationWarning"]);
                let name = object::text(version, &["name"]);
                let kind = object::text(definition, &["spec", "names", "kind"]);
                if own.is_empty() { format!("{group}/{name} {kind} is deprecated") } else { own.into() }
            }),
        }),
        group,
        plural,
    }
}

fn column(value: &Value) -> Column {
    let text = |key| object::text(value, &[key]).to_owned();
    Column {
        name: text("name"),
        kind: text("type"),
        format: text("format"),
        description: text("description"),
        priority: object::int(value, &["priority"]).unwrap_or(0),
        path: text("jsonPath"),
    }
}

/// The selectable fields of all versions, in one order, so that the stored values serve every version.
fn fields(version: &Value, versions: &[Value]) -> Vec<Field> {
    let paths = |version: &Value| -> BTreeSet<String> {
        object::items(version, &["selectableFields"])
            .iter()
            .map(|field| object::text(field, &["jsonPath"]).trim_start_matches('.').to_owned())
            .collect()
    };
    let own = paths(version);
    let all: BTreeSet<String> = versions.iter().flat_map(paths).collect();
    all.into_iter()
        .map(|label| Field {
            path: label.split('.').map(String::from).collect(),
            served: own.contains(&label),
            unset: "",
            label,
        })
        .collect()
}
