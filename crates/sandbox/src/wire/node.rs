//! Nodes: the fields that scheduler, kubelet and node controllers read.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Condition, Meta, Quantity, Stamp};

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Node {
    pub(crate) metadata: Meta,
    pub(crate) spec: NodeSpec,
    pub(crate) status: NodeStatus,
}

/// Spec of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct NodeSpec {
    pub(crate) unschedulable: bool,
    pub(crate) taints: Vec<Taint>,
    #[serde(rename = "podCIDR")]
    pub(crate) pod_cidr: String,
}

/// A taint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Taint {
    pub(crate) key: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) value: String,
    pub(crate) effect: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) time_added: Option<Stamp>,
}

/// Status of a node.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct NodeStatus {
    pub(crate) capacity: BTreeMap<String, Quantity>,
    pub(crate) allocatable: BTreeMap<String, Quantity>,
    #[serde(deserialize_with = "api::meta::null_is_default")]
    pub(crate) conditions: Vec<Condition>,
    pub(crate) addresses: Vec<Address>,
    pub(crate) node_info: NodeInfo,
}

/// An address of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Address {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) address: String,
}

/// Versions of the node's software.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct NodeInfo {
    pub(crate) kubelet_version: String,
    pub(crate) container_runtime_version: String,
}

impl Node {
    pub(crate) fn internal_ip(&self) -> &str {
        self.status.addresses.iter().find(|a| a.kind == "InternalIP").map_or("", |a| &a.address)
    }
}
