//! A stored object: its encoded bytes, and decoded fields that selectors and garbage collection read often.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use crate::object;

/// One entry of `metadata.ownerReferences`.
#[derive(Debug, Clone)]
pub(crate) struct Owner {
    pub(crate) uid: Arc<str>,
    pub(crate) kind: Box<str>,
    pub(crate) name: Box<str>,
    pub(crate) api_version: Box<str>,
    pub(crate) block: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Object {
    /// `namespace/name`; `name` for a cluster-scoped object.
    pub(crate) key: Arc<str>,
    pub(crate) revision: u64,
    /// The object as JSON in its storage version, with `kind` and `apiVersion` first.
    pub(crate) bytes: Bytes,
    /// Offset in `bytes` of the fields after `kind` and `apiVersion`.
    pub(crate) head: usize,
    pub(crate) api_version: Box<str>,
    pub(crate) uid: Arc<str>,
    pub(crate) labels: Box<[(Box<str>, Box<str>)]>,
    pub(crate) owners: Box<[Owner]>,
    pub(crate) finalizers: Box<[Box<str>]>,
    pub(crate) deleting: bool,
    /// Values of the selectable fields of the resource, in the order of the resource.
    pub(crate) fields: Box<[Box<str>]>,
}

/// The key of an object with this namespace (empty if cluster-scoped) and name.
pub(crate) fn key_of(namespace: &str, name: &str) -> String {
    if namespace.is_empty() { name.into() } else { format!("{namespace}/{name}") }
}

impl Object {
    pub(crate) fn new(revision: u64, value: &mut Value, fields: Box<[Box<str>]>) -> Self {
        object::set(value, &["metadata", "resourceVersion"], revision.to_string());
        let labels = object::map(value, &["metadata", "labels"])
            .into_iter()
            .flatten()
            .map(|(key, value)| (key.as_str().into(), value.as_str().unwrap_or_default().into()))
            .collect();
        let owners = object::items(value, &["metadata", "ownerReferences"]).iter().map(owner).collect();
        let (bytes, head) = write(value);
        Self {
            head,
            key: key_of(object::namespace(value), object::name(value)).into(),
            revision,
            bytes,
            api_version: object::text(value, &["apiVersion"]).into(),
            uid: object::uid(value).into(),
            labels,
            owners,
            finalizers: object::texts(value, &["metadata", "finalizers"]).map(Into::into).collect(),
            deleting: object::get(value, &["metadata", "deletionTimestamp"]).is_some_and(Value::is_string),
            fields,
        }
    }

    /// Decodes the object.
    pub(crate) fn value(&self) -> Value {
        serde_json::from_slice(&self.bytes).expect("stored bytes were made from a value")
    }

    pub(crate) fn namespace(&self) -> &str {
        self.key.split_once('/').map_or("", |(namespace, _)| namespace)
    }

    pub(crate) fn name(&self) -> &str {
        self.key.split_once('/').map_or(&*self.key, |(_, name)| name)
    }

    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        self.labels.iter().find(|(k, _)| &**k == key).map(|(_, value)| &**value)
    }
}

/// Encodes an object with `kind` and `apiVersion` first; returns the bytes and the offset of the other fields.
fn write(value: &Value) -> (Bytes, usize) {
    let text = |key| Value::from(object::text(value, &[key]));
    let mut bytes =
        format!("{{\"kind\":{},\"apiVersion\":{},", text("kind"), text("apiVersion")).into_bytes();
    let head = bytes.len();
    let rest = value
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(key, _)| !matches!(key.as_str(), "kind" | "apiVersion"));
    for (at, (key, field)) in rest.enumerate() {
        if at > 0 {
            bytes.push(b',');
        }
        serde_json::to_writer(&mut bytes, key).expect("values serialize to memory");
        bytes.push(b':');
        serde_json::to_writer(&mut bytes, field).expect("values serialize to memory");
    }
    bytes.push(b'}');
    (bytes.into(), head)
}

fn owner(value: &Value) -> Owner {
    let text = |key| object::text(value, &[key]);
    Owner {
        uid: text("uid").into(),
        kind: text("kind").into(),
        name: text("name").into(),
        api_version: text("apiVersion").into(),
        block: object::flag(value, &["blockOwnerDeletion"]),
    }
}
