//! One stored object: its bytes, and the facts that are read often enough to be kept beside them.

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
    /// `namespace/name`, or `name` where there is no namespace.
    pub(crate) key: Arc<str>,
    pub(crate) revision: u64,
    /// As JSON, in the version that was written; `kind` and `apiVersion` come first.
    pub(crate) bytes: Bytes,
    /// Where in the bytes the fields after those two begin.
    pub(crate) head: usize,
    pub(crate) api_version: Box<str>,
    pub(crate) uid: Arc<str>,
    pub(crate) labels: Box<[(Box<str>, Box<str>)]>,
    pub(crate) owners: Box<[Owner]>,
    pub(crate) finalizers: Box<[Box<str>]>,
    pub(crate) deleting: bool,
    /// Values of the resource's selectable fields, in their order.
    pub(crate) fields: Box<[Box<str>]>,
}

/// The key of an object of that namespace (empty: none) and name.
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

    /// The object itself.
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

/// Writes an object with its type in front, and tells where the rest begins.
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
