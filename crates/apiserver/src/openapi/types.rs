//! The types of built-in kinds, as a graph of nodes that refer to each other by index.
//!
//! This module contains [`BuiltinType`], the parser of the asset, and the [`TypeInfo`] for patches. Decoding is in
//! `decode`.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde_json::{Map, Value};

use super::unpack;
use crate::typeinfo::{ListKind, MapKind, PatchRule, ScalarKind, Shape, TypeInfo, UNTYPED};

static TYPES: &[u8] = include_bytes!("../../assets/types.json.gz");

/// A built-in kind, or the type of one of its fields.
#[derive(Debug)]
pub struct BuiltinType {
    pub(super) kind: Kind,
    /// Such as `PodSpec` for a component; empty for a field.
    pub(super) name: String,
    pub(super) go: GoField,
    strategies: String,
    merge_key: Option<String>,
    list_type: String,
    list_keys: Vec<String>,
    atomic_map: bool,
    default: Option<Value>,
}

/// JSON type of a value, with the types of its children.
#[derive(Debug)]
pub(super) enum Kind {
    /// A struct.
    Object(BTreeMap<String, BuiltinType>),
    /// A reference to a component, by its index.
    Ref(usize),
    Map(Box<BuiltinType>),
    List(Box<BuiltinType>),
    Text,
    /// Base64.
    Bytes,
    Integer {
        wide: bool,
    },
    Number,
    Boolean,
    Quantity,
    IntOrString,
    Time {
        micros: bool,
    },
    /// An object with unspecified content.
    Opaque,
    /// Any JSON value. If an index is given, an object has the type of that component.
    Any(Option<usize>),
}

/// Properties of the field of the Go struct.
#[derive(Debug, Default)]
pub(super) struct GoField {
    /// Type without the pointer, as in Go's error messages.
    pub(super) kind: String,
    pub(super) pointer: bool,
    pub(super) omit_empty: bool,
    pub(super) omit_zero: bool,
}

pub(super) struct Store {
    components: Vec<BuiltinType>,
    by_name: BTreeMap<String, usize>,
    /// Full names, by index.
    names: Vec<String>,
    /// Component indices by (group, version, kind).
    kinds: BTreeMap<(String, String, String), usize>,
}

pub(super) fn store() -> &'static Store {
    static STORE: OnceLock<Store> = OnceLock::new();
    STORE.get_or_init(Store::read)
}

/// The type of a built-in kind. The core group is the empty string.
///
/// `DeleteOptions` and other kinds of `meta.k8s.io` are found in every group.
pub fn builtin(group: &str, version: &str, kind: &str) -> Option<&'static BuiltinType> {
    let store = store();
    store.components.get(store.index_of(group, version, kind)?)
}

/// The type of `metadata`, which is the same for all kinds.
pub fn object_meta() -> &'static BuiltinType {
    component("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")
        .expect("the asset contains the type of metadata")
}

/// The status of a new object of a built-in kind: an empty Go struct as Go's encoder writes it.
pub(crate) fn empty_status(group: &str, version: &str, kind: &str) -> Option<Value> {
    let kind = builtin(group, version, kind)?.fields()?.get("status")?;
    let mut status = kind.encoded_when_missing()?;
    for (name, field) in kind.fields()? {
        let always_written = !field.go.omit_empty && !field.go.omit_zero;
        if always_written && matches!(field.kind, Kind::List(_) | Kind::Map(_)) {
            status[name] = Value::Null;
        }
    }
    Some(status)
}

/// The full name of the component of a built-in kind.
pub(crate) fn component_name(group: &str, version: &str, kind: &str) -> Option<&'static str> {
    let store = store();
    let index = store.index_of(group, version, kind)?;
    store.names.get(index).map(String::as_str)
}

/// The component with this full name.
pub(crate) fn component(name: &str) -> Option<&'static BuiltinType> {
    let store = store();
    store.by_name.get(name).and_then(|index| store.components.get(*index))
}

impl Store {
    fn read() -> Self {
        let schemas: BTreeMap<String, Value> =
            serde_json::from_slice(&unpack(TYPES)).expect("the asset is written by xtask as JSON");
        let by_name: BTreeMap<String, usize> =
            schemas.keys().enumerate().map(|(index, name)| (name.clone(), index)).collect();
        let mut kinds = BTreeMap::new();
        let mut components = Vec::with_capacity(schemas.len());
        for (index, (name, schema)) in schemas.iter().enumerate() {
            for kind in schema["x-kubernetes-group-version-kind"].as_array().into_iter().flatten() {
                let text = |name: &str| kind[name].as_str().unwrap_or_default().to_owned();
                kinds.insert((text("group"), text("version"), text("kind")), index);
            }
            let mut component = BuiltinType::read(schema, &by_name);
            if let Some(scalar) = well_known(name, &by_name) {
                component.kind = scalar;
            }
            name.rsplit('.').next().unwrap_or_default().clone_into(&mut component.name);
            components.push(component);
        }
        Self { components, by_name, names: schemas.into_keys().collect(), kinds }
    }

    fn index_of(&self, group: &str, version: &str, kind: &str) -> Option<usize> {
        let key = (group.to_owned(), version.to_owned(), kind.to_owned());
        self.kinds.get(&key).copied().or_else(|| {
            let meta = matches!(
                kind,
                "DeleteOptions"
                    | "Status"
                    | "WatchEvent"
                    | "ListOptions"
                    | "CreateOptions"
                    | "UpdateOptions"
                    | "PatchOptions"
            );
            meta.then(|| self.by_name.get(&format!("io.k8s.apimachinery.pkg.apis.meta.v1.{kind}")).copied())
                .flatten()
        })
    }

    pub(super) fn at(&self, index: usize) -> &BuiltinType {
        &self.components[index]
    }
}

/// Types of components with their own JSON encoding, which their schema does not describe.
fn well_known(name: &str, by_name: &BTreeMap<String, usize>) -> Option<Kind> {
    let (package, short) = name.rsplit_once('.')?;
    Some(match short {
        "Time" => Kind::Time { micros: false },
        "MicroTime" => Kind::Time { micros: true },
        "Quantity" => Kind::Quantity,
        "IntOrString" => Kind::IntOrString,
        "RawExtension" | "FieldsV1" => Kind::Opaque,
        "JSON" => Kind::Any(None),
        "JSONSchemaPropsOrArray" | "JSONSchemaPropsOrBool" | "JSONSchemaPropsOrStringArray" => {
            Kind::Any(by_name.get(&format!("{package}.JSONSchemaProps")).copied())
        }
        _ => return None,
    })
}

impl BuiltinType {
    fn read(schema: &Value, by_name: &BTreeMap<String, usize>) -> Self {
        let text = |name: &str| schema[name].as_str().unwrap_or_default();
        let go_type = text("x-go-type");
        Self {
            kind: Kind::read(schema, by_name),
            name: String::new(),
            go: GoField {
                kind: go_type.trim_start_matches('*').to_owned(),
                pointer: go_type.starts_with('*'),
                omit_empty: schema["x-go-omitempty"] == true,
                omit_zero: schema["x-go-omitzero"] == true,
            },
            strategies: text("x-kubernetes-patch-strategy").to_owned(),
            merge_key: schema["x-kubernetes-patch-merge-key"].as_str().map(str::to_owned),
            list_type: text("x-kubernetes-list-type").to_owned(),
            list_keys: schema["x-kubernetes-list-map-keys"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|key| key.as_str().map(str::to_owned))
                .collect(),
            atomic_map: text("x-kubernetes-map-type") == "atomic",
            default: schema.get("default").cloned(),
        }
    }

    /// The component that this field refers to, or else the type itself.
    pub(super) fn resolved(&self) -> &BuiltinType {
        if let Kind::Ref(index) = self.kind { store().at(index) } else { self }
    }

    /// The value that Go's encoder writes for this field of an empty struct, if any.
    fn zero_field(&self) -> Option<Value> {
        if self.go.kind.is_empty() || self.go.omit_zero {
            return None;
        }
        if matches!(self.kind, Kind::Ref(_)) && !self.go.pointer {
            return Some(self.zero());
        }
        self.encoded_when_missing().or((!self.go.omit_empty).then_some(Value::Null))
    }

    /// The fields of a struct; `None` for other types.
    pub(crate) fn fields(&self) -> Option<&BTreeMap<String, BuiltinType>> {
        if let Kind::Object(fields) = &self.resolved().kind { Some(fields) } else { None }
    }
}

impl Kind {
    fn read(schema: &Value, by_name: &BTreeMap<String, usize>) -> Self {
        if let Some(name) = schema["$ref"].as_str() {
            let target = by_name.get(name).copied();
            return well_known(name, by_name).or(target.map(Kind::Ref)).unwrap_or(Kind::Any(None));
        }
        let items = |name: &str| Box::new(BuiltinType::read(&schema[name], by_name));
        match (schema["type"].as_str(), schema["format"].as_str()) {
            (Some("object"), _) if schema["additionalProperties"].is_object() => {
                Kind::Map(items("additionalProperties"))
            }
            (Some("object"), _) => Kind::Object(
                schema["properties"]
                    .as_object()
                    .unwrap_or(&Map::new())
                    .iter()
                    .map(|(name, property)| (name.clone(), BuiltinType::read(property, by_name)))
                    .collect(),
            ),
            (Some("array"), _) => Kind::List(items("items")),
            (Some("string"), Some("byte")) => Kind::Bytes,
            (Some("string"), _) => Kind::Text,
            (Some("integer"), format) => Kind::Integer { wide: format != Some("int32") },
            (Some("number"), _) => Kind::Number,
            (Some("boolean"), _) => Kind::Boolean,
            _ => Kind::Any(None),
        }
    }
}

impl TypeInfo for BuiltinType {
    fn shape(&self) -> Shape<'_> {
        let target = self.resolved();
        let atomic = self.atomic_map || target.atomic_map;
        match &target.kind {
            Kind::Object(_) | Kind::Map(_) if atomic => Shape::Map(MapKind::Atomic),
            Kind::Object(_) | Kind::Map(_) => Shape::Map(MapKind::Granular),
            Kind::List(_) => Shape::List(match self.list_type.as_str() {
                "set" => ListKind::Set,
                "map" if !self.list_keys.is_empty() => ListKind::Map(&self.list_keys),
                _ => ListKind::Atomic,
            }),
            Kind::Text | Kind::Bytes => Shape::Scalar(ScalarKind::String),
            Kind::Integer { .. } | Kind::Number => Shape::Scalar(ScalarKind::Numeric),
            Kind::Boolean => Shape::Scalar(ScalarKind::Boolean),
            Kind::Quantity | Kind::IntOrString | Kind::Time { .. } => Shape::Scalar(ScalarKind::Any),
            Kind::Opaque => Shape::Opaque,
            Kind::Any(_) | Kind::Ref(_) => Shape::Deduced,
        }
    }

    fn field(&self, name: &str) -> Option<&dyn TypeInfo> {
        match &self.resolved().kind {
            Kind::Object(fields) => fields.get(name).map(|field| field as &dyn TypeInfo),
            Kind::Map(item) => Some(item.as_ref()),
            Kind::Any(_) | Kind::Opaque | Kind::Ref(_) => Some(&UNTYPED),
            Kind::List(_)
            | Kind::Text
            | Kind::Bytes
            | Kind::Integer { .. }
            | Kind::Number
            | Kind::Boolean
            | Kind::Quantity
            | Kind::IntOrString
            | Kind::Time { .. } => None,
        }
    }

    fn declares(&self, name: &str) -> bool {
        self.fields().is_some_and(|fields| fields.contains_key(name))
    }

    fn items(&self) -> &dyn TypeInfo {
        if let Kind::List(item) = &self.resolved().kind { item.as_ref() } else { &UNTYPED }
    }

    fn patch(&self) -> PatchRule<'_> {
        PatchRule::parse(&self.strategies, self.merge_key.as_deref())
    }

    fn default_value(&self) -> Option<&Value> {
        self.default.as_ref()
    }

    fn zero(&self) -> Value {
        let fields = self.fields().into_iter().flatten();
        let written = fields.filter_map(|(name, field)| Some((name.clone(), field.zero_field()?)));
        Value::Object(written.collect())
    }

    fn name(&self) -> Option<&str> {
        Some(self.resolved().name.as_str()).filter(|name| !name.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pod_types_have_the_list_types_and_merge_keys_of_kubernetes() {
        let pod = builtin("", "v1", "Pod").unwrap();
        let spec = pod.field("spec").unwrap();
        let containers = spec.field("containers").unwrap();
        assert_eq!(containers.shape(), Shape::List(ListKind::Map(&["name".to_owned()])));
        assert_eq!(containers.patch().merge_key, Some("name"));
        let ports = containers.items().field("ports").unwrap();
        assert_eq!(
            ports.shape(),
            Shape::List(ListKind::Map(&["containerPort".to_owned(), "protocol".to_owned()]))
        );
        assert_eq!(ports.items().field("protocol").unwrap().default_value(), Some(&Value::from("TCP")));
        assert_eq!(spec.field("nodeSelector").unwrap().shape(), Shape::Map(MapKind::Atomic));
        assert_eq!(spec.name(), Some("PodSpec"));
        assert!(spec.field("nothing").is_none());
    }

    #[test]
    fn meta_kinds_are_found_in_every_group() {
        assert!(builtin("example.com", "v1", "DeleteOptions").is_some());
        assert!(builtin("example.com", "v1", "Pod").is_none());
        let selector =
            builtin("apps", "v1", "Deployment").unwrap().field("spec").unwrap().field("selector").unwrap();
        assert_eq!(selector.shape(), Shape::Map(MapKind::Atomic));
    }
}
