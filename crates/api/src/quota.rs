//! MCAD's `QuotaSubtree`: a part of a quota tree. All subtrees with the same value of the label `tree` form one tree.
//! An AppWrapper names its group in a tree with a label `TREE: GROUP`.
//!
//! Fields and semantics are those of MCAD 1.40 (`pkg/controller/quota/quotaforestmanager`).

use serde::Deserialize;
use serde_json::{Value, json};

use crate::meta::{Meta, null_is_default};

/// Kind of the resource.
pub const KIND: &str = "QuotaSubtree";
/// Plural in URLs.
pub const PLURAL: &str = "quotasubtrees";
/// Label with the name of the tree of a subtree.
pub const TREE_LABEL: &str = "tree";
/// The group of AppWrappers without a label for the tree.
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
    /// All groups, oldest first.
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

/// A watched `QuotaSubtree`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct QuotaSubtree {
    /// Metadata.
    pub metadata: Meta,
    /// Spec.
    #[serde(deserialize_with = "null_is_default")]
    pub spec: Spec,
}

/// The spec of a `QuotaSubtree`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Spec {
    /// The parent of the groups, in the same tree; empty for roots.
    #[serde(deserialize_with = "null_is_default")]
    pub parent: String,
    /// The groups.
    #[serde(deserialize_with = "null_is_default")]
    pub children: Vec<Child>,
}

/// A group of a quota tree.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Child {
    /// Name, unique in the tree.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
    /// Quota.
    #[serde(deserialize_with = "null_is_default")]
    pub quotas: Quotas,
}

/// The quota of a group.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Quotas {
    /// Whether the group must not borrow.
    #[serde(deserialize_with = "null_is_default")]
    pub hard_limit: bool,
    /// The quota of the group and its descendants, by resource.
    pub requests: Value,
}

impl QuotaSubtree {
    /// The name of its tree.
    pub fn tree(&self) -> Option<&str> {
        self.metadata.labels.get(TREE_LABEL).map(String::as_str).filter(|tree| !tree.is_empty())
    }
}

/// The CRD as a manifest.
pub fn definition(group: Group) -> Value {
    let (api_group, version) = group.api_version().split_once('/').unwrap_or_default();
    let text = |description: &str| json!({"type": "string", "description": description});
    let quotas = json!({
        "type": "object",
        "description": "The quota of the group.",
        "properties": {
            "disabled": {"type": "boolean", "description": "Accepted and not used."},
            "hardLimit": {"type": "boolean", "description": "Whether the group must not borrow unused quota of other groups."},
            "requests": {
                "type": "object",
                "description": "The quota of the group and its descendants, by resource. A resource that no group of the tree lists is not limited.",
                "additionalProperties": {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": true},
            },
        },
    });
    let child = json!({
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": text("Name of the group: the value of the label of an AppWrapper whose key is the name of the tree."),
            "namespace": text("Accepted and not used."),
            "path": text("Accepted and not used."),
            "quotas": quotas,
        },
    });
    let spec = json!({
        "type": "object",
        "properties": {
            "parent": text("The parent of the groups, in the same tree; empty for roots."),
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
                    "description": "A part of a quota tree. The label `tree` has the name of the tree.",
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
