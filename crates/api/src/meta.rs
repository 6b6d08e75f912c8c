//! The object metadata that decisions read. The rest, such as managed fields, is dropped while decoding.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Metadata of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    /// Name within the namespace.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
    /// Namespace; empty for cluster-scoped objects.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Uid: differs for an object that is created again with the same name.
    #[serde(deserialize_with = "null_is_default")]
    pub uid: String,
    /// Resource version.
    #[serde(deserialize_with = "null_is_default")]
    pub resource_version: String,
    /// Generation: increases with each change of the spec.
    #[serde(deserialize_with = "null_is_default")]
    pub generation: i64,
    /// Labels.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Owner references.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub owner_references: Vec<OwnerReference>,
    /// Finalizers: the object is not deleted before they are removed.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
    /// Creation time, RFC 3339 in seconds.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub creation_timestamp: String,
    /// Set when the object is being deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<String>,
}

impl Meta {
    /// Whether it has a finalizer.
    pub fn has_finalizer(&self, name: &str) -> bool {
        self.finalizers.iter().any(|finalizer| finalizer == name)
    }

    /// Its finalizers without this one.
    pub fn finalizers_without(&self, name: &str) -> Vec<String> {
        self.finalizers.iter().filter(|finalizer| *finalizer != name).cloned().collect()
    }

    /// Whether nothing but the resource version differs.
    pub fn is_same(&self, other: &Self) -> bool {
        *other == Self { resource_version: other.resource_version.clone(), ..self.clone() }
    }
}

/// Reference to an owner.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerReference {
    /// Group and version of the owner.
    pub api_version: String,
    /// Kind of the owner.
    pub kind: String,
    /// Name of the owner.
    pub name: String,
    /// Uid of the owner.
    pub uid: String,
    /// Whether this owner is the controller of the object; at most one is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<bool>,
    /// Whether foreground deletion of the owner waits for this object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_owner_deletion: Option<bool>,
}

impl Meta {
    /// The owner reference with `controller: true`.
    pub fn controller(&self) -> Option<&OwnerReference> {
        self.owner_references.iter().find(|owner| owner.controller == Some(true))
    }

    /// Whether the object is being deleted.
    pub fn is_deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }
}

/// Decodes a field that is absent or `null` as its default.
pub fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}
