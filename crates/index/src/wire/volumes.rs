//! Claims, volumes and storage classes.

use api::Meta;
use api::meta::null_is_default;
use serde::Deserialize;
use serde_json::Value;

/// A `PersistentVolumeClaim`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Claim {
    /// Metadata.
    pub metadata: Meta,
    /// Spec.
    pub spec: ClaimSpec,
    /// Status.
    pub status: ClaimStatus,
}

impl Claim {
    /// Whether only one pod may use it.
    pub fn is_exclusive(&self) -> bool {
        self.spec.access_modes.iter().any(|mode| mode == "ReadWriteOncePod")
    }
}

/// The spec of a claim.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimSpec {
    /// `ReadWriteOnce`, `ReadWriteOncePod` and others.
    #[serde(deserialize_with = "null_is_default")]
    pub access_modes: Vec<String>,
    /// Storage class; `None`: none was set when it was created.
    pub storage_class_name: Option<String>,
    /// The volume that it is bound to.
    #[serde(deserialize_with = "null_is_default")]
    pub volume_name: String,
}

/// The status of a claim.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ClaimStatus {
    /// `Pending`, `Bound` or `Lost`.
    #[serde(deserialize_with = "null_is_default")]
    pub phase: String,
}

/// A `PersistentVolume`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Volume {
    /// Metadata.
    pub metadata: Meta,
    /// Spec.
    pub spec: VolumeSpec,
}

/// The spec of a volume.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeSpec {
    /// The nodes that can use it.
    #[serde(deserialize_with = "null_is_default")]
    pub node_affinity: VolumeNodeAffinity,
}

/// The nodes that can use a volume.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct VolumeNodeAffinity {
    /// A node selector.
    #[serde(deserialize_with = "null_is_default")]
    pub required: NodeSelectorTerms,
}

/// A node selector.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelectorTerms {
    /// Terms, of which one must match.
    #[serde(deserialize_with = "null_is_default")]
    pub node_selector_terms: Vec<Value>,
}

/// A `StorageClass`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StorageClass {
    /// Metadata.
    pub metadata: Meta,
    /// The provisioner.
    #[serde(deserialize_with = "null_is_default")]
    pub provisioner: String,
    /// `Immediate` or `WaitForFirstConsumer`.
    #[serde(deserialize_with = "null_is_default")]
    pub volume_binding_mode: String,
    /// Where volumes may be provisioned: anywhere if empty.
    #[serde(deserialize_with = "null_is_default")]
    pub allowed_topologies: Vec<TopologyTerm>,
}

/// Labels that a node must have for a volume.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologyTerm {
    /// All of them must match.
    #[serde(deserialize_with = "null_is_default")]
    pub match_label_expressions: Vec<TopologyExpression>,
}

/// A label with its possible values.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct TopologyExpression {
    /// Key.
    pub key: String,
    /// Values.
    #[serde(deserialize_with = "null_is_default")]
    pub values: Vec<String>,
}

impl StorageClass {
    /// Whether it is the default class.
    pub fn is_default(&self) -> bool {
        let key = "storageclass.kubernetes.io/is-default-class";
        self.metadata.annotations.get(key).is_some_and(|value| value == "true")
    }

    /// Whether volumes are bound when a pod is scheduled.
    pub fn waits_for_pod(&self) -> bool {
        self.volume_binding_mode == "WaitForFirstConsumer"
    }

    /// Whether it has only volumes that exist already, such as local ones.
    pub fn is_static(&self) -> bool {
        self.provisioner == "kubernetes.io/no-provisioner"
    }
}
