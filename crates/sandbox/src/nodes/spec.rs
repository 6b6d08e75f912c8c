//! Node descriptions: groups of identical nodes on the command line, and Node manifests.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use serde_json::{Value, json};

use crate::wire::{Quantity, QuantityError};

/// A group of identical nodes, as in `count=4,name=gpu,cpu=16,memory=64Gi,nvidia.com/gpu=2`.
///
/// Keys:
/// - `count`: the number of nodes; default 1
/// - `name`: the name of a single node, or the prefix of several (`gpu-0`, `gpu-1`, …); default `node`
/// - `label.KEY=VALUE`: a label, for instance `label.topology.kubernetes.io/zone=a`
/// - `taint.KEY=VALUE:EFFECT` or `taint.KEY=:EFFECT`: a taint with effect `NoSchedule`, `PreferNoSchedule` or
///   `NoExecute`
/// - any other key: a resource with its quantity, which sets capacity and allocatable. `cpu` and `memory` are
///   required; `pods` is 110 by default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeGroup {
    count: u32,
    name: String,
    resources: BTreeMap<String, Quantity>,
    labels: BTreeMap<String, String>,
    taints: Vec<(String, String, String)>,
}

/// Why a node description is invalid.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// A part of the description is not a key with a value.
    #[error("node {description:?}: {part:?} is not of the form KEY=VALUE")]
    NotAPair {
        /// The whole description.
        description: String,
        /// The invalid part.
        part: String,
    },
    /// The count is not a number in range.
    #[error("node {description:?}: count {value:?} is not a number from 1 to 100000")]
    Count {
        /// The whole description.
        description: String,
        /// The given count.
        value: String,
    },
    /// The amount of a resource is not a quantity.
    #[error("node {description:?}: amount of {resource}: {cause}")]
    Resource {
        /// The whole description.
        description: String,
        /// The resource.
        resource: String,
        /// Why the amount is invalid.
        cause: QuantityError,
    },
    /// A required resource is missing, or a key is not a valid resource name.
    #[error("node {description:?}: {problem}")]
    Incomplete {
        /// The whole description.
        description: String,
        /// The missing resource or the invalid key.
        problem: String,
    },
    /// A taint cannot be parsed.
    #[error(
        "node {description:?}: taint {taint:?} is not VALUE:NoSchedule, VALUE:PreferNoSchedule or VALUE:NoExecute"
    )]
    Taint {
        /// The whole description.
        description: String,
        /// The taint.
        taint: String,
    },
    /// The manifests are neither YAML nor JSON.
    #[error("node manifests cannot be read")]
    Manifest(#[source] serde_saphyr::Error),
    /// A document is neither a Node nor a list of Nodes.
    #[error(
        "document {number} of the node manifests is {found}, expected a Node with a name, or a List of Nodes"
    )]
    NotANode {
        /// The number of the document, from 1.
        number: usize,
        /// The kind of the document.
        found: String,
    },
    /// Two nodes have the same name.
    #[error("two nodes are named {0:?}")]
    Duplicate(String),
}

impl NodeGroup {
    /// The default nodes: two nodes with 16 CPUs and 64 GiB, one of them with two GPUs.
    pub fn defaults() -> Vec<Self> {
        ["count=1,name=gpu,cpu=16,memory=64Gi,nvidia.com/gpu=2", "count=1,name=cpu,cpu=16,memory=64Gi"]
            .map(|text| text.parse().expect("the default nodes are well-formed"))
            .to_vec()
    }

    /// The names of the nodes.
    pub fn names(&self) -> Vec<String> {
        match self.count {
            1 => vec![self.name.clone()],
            count => (0..count).map(|i| format!("{}-{i}", self.name)).collect(),
        }
    }

    /// The Node objects, with the fields that an administrator would set.
    pub fn manifests(&self) -> Vec<Value> {
        let resources: BTreeMap<&str, String> =
            self.resources.iter().map(|(name, amount)| (name.as_str(), amount.to_string())).collect();
        let taints: Vec<Value> = self
            .taints
            .iter()
            .map(|(key, value, effect)| match value.as_str() {
                "" => json!({ "key": key, "effect": effect }),
                value => json!({ "key": key, "value": value, "effect": effect }),
            })
            .collect();
        let node = |name: String| {
            let mut node = json!({
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": { "name": name, "labels": self.labels },
                "spec": {},
                "status": { "capacity": resources, "allocatable": resources },
            });
            if !taints.is_empty() {
                node["spec"]["taints"] = json!(taints);
            }
            node
        };
        self.names().into_iter().map(node).collect()
    }
}

impl FromStr for NodeGroup {
    type Err = NodeError;

    fn from_str(description: &str) -> Result<Self, NodeError> {
        let whole = || description.to_owned();
        let incomplete = |problem: String| NodeError::Incomplete { description: whole(), problem };
        let mut group = Self {
            count: 1,
            name: "node".to_owned(),
            resources: BTreeMap::from([("pods".to_owned(), Quantity::units(110))]),
            labels: BTreeMap::new(),
            taints: Vec::new(),
        };
        for part in description.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (key, value) = part
                .split_once('=')
                .filter(|(key, _)| !key.is_empty())
                .ok_or_else(|| NodeError::NotAPair { description: whole(), part: part.to_owned() })?;
            if key == "count" {
                let count = value.parse().ok().filter(|count| (1..=100_000).contains(count));
                group.count = count
                    .ok_or_else(|| NodeError::Count { description: whole(), value: value.to_owned() })?;
            } else if key == "name" {
                if !is_name(value) {
                    return Err(incomplete(format!("{value:?} cannot be the name of a node")));
                }
                value.clone_into(&mut group.name);
            } else if let Some(label) = key.strip_prefix("label.") {
                group.labels.insert(label.to_owned(), value.to_owned());
            } else if let Some(taint) = key.strip_prefix("taint.") {
                let (value, effect) = value
                    .split_once(':')
                    .filter(|(_, effect)| matches!(*effect, "NoSchedule" | "PreferNoSchedule" | "NoExecute"))
                    .ok_or_else(|| NodeError::Taint { description: whole(), taint: value.to_owned() })?;
                group.taints.push((taint.to_owned(), value.to_owned(), effect.to_owned()));
            } else {
                if !is_resource(key) {
                    let known = "count, name, label.KEY, taint.KEY, cpu, memory, pods, ephemeral-storage, hugepages-SIZE or a resource with a domain such as nvidia.com/gpu";
                    return Err(incomplete(format!("{key:?} is unknown, expected {known}")));
                }
                let amount = value.parse().map_err(|cause| NodeError::Resource {
                    description: whole(),
                    resource: key.to_owned(),
                    cause,
                })?;
                group.resources.insert(key.to_owned(), amount);
            }
        }
        for required in ["cpu", "memory"] {
            if !group.resources.contains_key(required) {
                return Err(incomplete(format!("{required} is missing")));
            }
        }
        Ok(group)
    }
}

/// Parses Node manifests: JSON, or YAML with several documents. Each document is a Node or a list of Nodes.
pub fn nodes_from_manifests(text: &str) -> Result<Vec<Value>, NodeError> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).map_err(NodeError::Manifest)?;
    let mut nodes = Vec::new();
    for (number, document) in documents.into_iter().enumerate().filter(|(_, document)| !document.is_null()) {
        let items = match document["kind"].as_str() {
            Some("List" | "NodeList") => document["items"].as_array().cloned().unwrap_or_default(),
            _ => vec![document],
        };
        for mut node in items {
            if node["kind"] != "Node" || !node["metadata"]["name"].is_string() {
                let found = node["kind"]
                    .as_str()
                    .map_or("no Kubernetes object".to_owned(), |kind| format!("a {kind}"));
                return Err(NodeError::NotANode { number: number + 1, found });
            }
            // Remove the fields that an API server has set on an exported node.
            if let Some(meta) = node["metadata"].as_object_mut() {
                for server in ["uid", "resourceVersion", "creationTimestamp", "managedFields", "generation"] {
                    meta.remove(server);
                }
            }
            nodes.push(node);
        }
    }
    Ok(nodes)
}

/// Fails if two nodes have the same name.
pub(crate) fn distinct(nodes: &[Value]) -> Result<(), NodeError> {
    let mut seen = BTreeSet::new();
    for name in nodes.iter().filter_map(|node| node["metadata"]["name"].as_str()) {
        if !seen.insert(name) {
            return Err(NodeError::Duplicate(name.to_owned()));
        }
    }
    Ok(())
}

fn is_name(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    (1..=253).contains(&text.len())
        && text.chars().all(inner)
        && !text.starts_with(['-', '.'])
        && !text.ends_with(['-', '.'])
}

fn is_resource(key: &str) -> bool {
    matches!(key, "cpu" | "memory" | "pods" | "ephemeral-storage")
        || key.starts_with("hugepages-")
        || key.split_once('/').is_some_and(|(domain, name)| domain.contains('.') && !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_group_parses_names_resources_labels_and_taints() {
        let group: NodeGroup = "count=2,name=gpu,cpu=16,memory=64Gi,nvidia.com/gpu=2,\
                                label.zone=a,taint.nvidia.com/gpu=present:NoSchedule,taint.x=:NoExecute"
            .parse()
            .unwrap();
        assert_eq!(group.names(), ["gpu-0", "gpu-1"]);
        let node = &group.manifests()[1];
        assert_eq!(node["metadata"], json!({ "name": "gpu-1", "labels": { "zone": "a" } }));
        assert_eq!(
            node["status"]["allocatable"],
            json!({ "cpu": "16", "memory": "64Gi", "nvidia.com/gpu": "2", "pods": "110" })
        );
        assert_eq!(
            node["spec"]["taints"],
            json!([
                { "key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule" },
                { "key": "x", "effect": "NoExecute" },
            ])
        );
    }

    #[test]
    fn an_invalid_node_group_is_rejected_with_a_specific_message() {
        for (text, expected) in [
            ("cpu=1", r#"node "cpu=1": memory is missing"#),
            ("cpu", r#"node "cpu": "cpu" is not of the form KEY=VALUE"#),
            (
                "count=0,cpu=1,memory=1",
                r#"node "count=0,cpu=1,memory=1": count "0" is not a number from 1 to 100000"#,
            ),
            ("cpu=1,memory=1,name=A", r#"node "cpu=1,memory=1,name=A": "A" cannot be the name of a node"#),
            (
                "cpu=1,memory=1,taint.a=b",
                r#"node "cpu=1,memory=1,taint.a=b": taint "b" is not VALUE:NoSchedule, VALUE:PreferNoSchedule or VALUE:NoExecute"#,
            ),
        ] {
            assert_eq!(text.parse::<NodeGroup>().unwrap_err().to_string(), expected);
        }
        assert!(
            "cpu=1,memory=1,gpus=2"
                .parse::<NodeGroup>()
                .unwrap_err()
                .to_string()
                .contains("\"gpus\" is unknown")
        );
    }

    #[test]
    fn manifests_parse_from_several_documents_and_lists() {
        let text = "apiVersion: v1\nkind: Node\nmetadata: {name: a, uid: x}\n---\n\
                    kind: List\nitems:\n- {kind: Node, metadata: {name: b}}\n";
        let nodes = nodes_from_manifests(text).unwrap();
        assert_eq!(
            nodes.iter().map(|n| n["metadata"].to_string()).collect::<Vec<_>>(),
            [r#"{"name":"a"}"#, r#"{"name":"b"}"#]
        );
        let error = nodes_from_manifests("kind: Pod\nmetadata: {name: p}").unwrap_err();
        assert!(error.to_string().starts_with("document 1 of the node manifests is a Pod"), "{error}");
        assert!(matches!(distinct(&[nodes[0].clone(), nodes[0].clone()]), Err(NodeError::Duplicate(_))));
    }
}
