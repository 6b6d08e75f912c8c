//! The object metadata that decisions read. The rest, such as managed fields, is dropped while decoding.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::wrapped_kinds::group;

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

/// What a reference to an owner names, and what an object is: the reference counts only if both are equal. A reference is a claim of
/// the author of the object that has it. It reaches no other namespace, and a uid alone is no name: garbage collection reads a
/// reference in the same way (`pkg/controller/garbagecollector` of Kubernetes).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct OwnerKey {
    /// Namespace of both objects.
    pub namespace: String,
    /// Uid of the owner.
    pub uid: String,
    /// Group of its kind; empty for the core group. Versions of a group are equal.
    pub group: String,
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
}

impl OwnerKey {
    fn of(namespace: &str, api_version: &str, kind: &str, name: &str, uid: &str) -> Self {
        let [namespace, kind, name, uid] = [namespace, kind, name, uid].map(str::to_owned);
        Self { namespace, uid, group: group(api_version).to_owned(), kind, name }
    }
}

impl Meta {
    /// What others name as their owner to name this object, which is of this kind.
    pub fn key(&self, api_version: &str, kind: &str) -> OwnerKey {
        OwnerKey::of(&self.namespace, api_version, kind, &self.name, &self.uid)
    }

    /// What an owner reference of this object names.
    pub fn owner_key(&self, owner: &OwnerReference) -> OwnerKey {
        OwnerKey::of(&self.namespace, &owner.api_version, &owner.kind, &owner.name, &owner.uid)
    }

    /// What the owner reference with `controller: true` names.
    pub fn controller_key(&self) -> Option<OwnerKey> {
        self.controller().map(|owner| self.owner_key(owner))
    }

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
