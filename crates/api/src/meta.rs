//! The part of an object's metadata that decisions read. Everything else, managed fields above all, is dropped while decoding.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Metadata of an observed object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    /// Name within the namespace.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
    /// Namespace; empty for cluster-wide objects.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Identity over time: an object made again under the same name has another.
    #[serde(deserialize_with = "null_is_default")]
    pub uid: String,
    /// Version of the whole object, opaque but growing.
    #[serde(deserialize_with = "null_is_default")]
    pub resource_version: String,
    /// Counts changes of what was asked for, as opposed to what became of it.
    #[serde(deserialize_with = "null_is_default")]
    pub generation: i64,
    /// Labels.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Who keeps this object alive.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub owner_references: Vec<OwnerReference>,
    /// Creation, RFC 3339 to the second.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub creation_timestamp: String,
    /// Set once deletion was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<String>,
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
    /// Identity of the owner.
    pub uid: String,
    /// Whether this owner manages the object; at most one does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<bool>,
    /// Whether foreground deletion of the owner waits for this object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_owner_deletion: Option<bool>,
}

impl Meta {
    /// The managing owner, if there is one.
    pub fn controller(&self) -> Option<&OwnerReference> {
        self.owner_references.iter().find(|owner| owner.controller == Some(true))
    }

    /// Whether deletion was asked for.
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
