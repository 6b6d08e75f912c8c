//! Quota as MCAD's users set it: `QuotaSubtree`, a part of a tree of groups. All parts whose label `tree` has the same value
//! make one tree; an AppWrapper names its group in each by a label, `TREE: GROUP`.
//!
//! Names and meanings are those of MCAD 1.40 (`pkg/controller/quota/quotaforestmanager`).

use serde::Deserialize;
use serde_json::{Value, json};

use crate::meta::{Meta, null_is_default};

/// Kind of the resource.
pub const KIND: &str = "QuotaSubtree";
/// Plural in URLs.
pub const PLURAL: &str = "quotasubtrees";
/// Label with the name of the tree that a part belongs to.
pub const TREE_LABEL: &str = "tree";
/// The group of AppWrappers that name none.
pub const DEFAULT_GROUP: &str = "default";

/// The two API groups under which the resource has been published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    /// `ibm.com/v1`, until 2023.
    Ibm,
    /// `quota.codeflare.dev/v1alpha1`, since 2023.
    Codeflare,
}

impl Group {
    /// Both, oldest first.
    pub const ALL: [Self; 2] = [Self::Ibm, Self::Codeflare];

    /// Group and version.
    pub fn api_version(self) -> &'static str {
        match self {
            Self::Ibm => "ibm.com/v1",
            Self::Codeflare => "quota.codeflare.dev/v1alpha1",
        }
    }

    /// Name of the custom resource definition.
    pub fn resource(self) -> String {
        let (group, _) = self.api_version().split_once('/').unwrap_or_default();
        format!("{PLURAL}.{group}")
    }
}

/// A part of a quota tree, as observed.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct QuotaSubtree {
    /// Metadata.
    pub metadata: Meta,
    /// Its groups.
    #[serde(deserialize_with = "null_is_default")]
    pub spec: Spec,
}

/// Groups of a part.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Spec {
    /// The group above them, in the same tree; empty for a root.
    #[serde(deserialize_with = "null_is_default")]
    pub parent: String,
    /// The groups.
    #[serde(deserialize_with = "null_is_default")]
    pub children: Vec<Child>,
}

/// A group.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Child {
    /// Its name, unique in the tree.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
    /// What it may use.
    #[serde(deserialize_with = "null_is_default")]
    pub quotas: Quotas,
}

/// What a group may use.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Quotas {
    /// It may not borrow.
    #[serde(deserialize_with = "null_is_default")]
    pub hard_limit: bool,
    /// What it and the groups below it own, by resource.
    pub requests: Value,
}

impl QuotaSubtree {
    /// The tree that it belongs to, if any.
    pub fn tree(&self) -> Option<&str> {
        self.metadata.labels.get(TREE_LABEL).map(String::as_str).filter(|tree| !tree.is_empty())
    }
}

/// The definition as a manifest.
pub fn definition(group: Group) -> Value {
    let (api_group, version) = group.api_version().split_once('/').unwrap_or_default();
    let text = |description: &str| json!({"type": "string", "description": description});
    let quotas = json!({
        "type": "object",
        "description": "What the group may use.",
        "properties": {
            "disabled": {"type": "boolean", "description": "Accepted and not used."},
            "hardLimit": {"type": "boolean", "description": "The group may not use what others leave."},
            "requests": {
                "type": "object",
                "description": "What the group and those below it own, by resource. What a tree lists nowhere it does not limit.",
                "additionalProperties": {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": true},
            },
        },
    });
    let child = json!({
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": text("Name of the group; AppWrappers carry it as the value of the label that is named as the tree."),
            "namespace": text("Accepted and not used."),
            "path": text("Accepted and not used."),
            "quotas": quotas,
        },
    });
    let spec = json!({
        "type": "object",
        "properties": {
            "parent": text("The group above, in the same tree; none for a root."),
            "parentNamespace": text("Accepted and not used."),
            "children": {"type": "array", "description": "The groups.", "items": child},
        },
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": group.resource(), "labels": {"app.kubernetes.io/managed-by": "muster"}},
        "spec": {
            "group": api_group,
            "names": {"kind": KIND, "listKind": format!("{KIND}List"), "plural": PLURAL, "singular": "quotasubtree"},
            "scope": "Namespaced",
            "versions": [{
                "name": version, "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "description": "A part of the quota tree that its label `tree` names.",
                    "properties": {
                        "apiVersion": text("Group and version of this object."),
                        "kind": text("Kind of this object."),
                        "metadata": {"type": "object"},
                        "spec": spec,
                        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                    },
                }},
                "subresources": {"status": {}},
            }],
        },
    })
}
