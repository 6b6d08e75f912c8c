//! Claims, volumes, storage classes, and the volumes of pods.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::pod::{NodeSelector, Requirement};
use super::{LabelSelector, Meta, Pod, Quantity};

/// Annotation of a claim: the node of the first pod that uses it.
pub(crate) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// A volume of a pod. The fields of volumes that need no object are not read, except disks that exclude each other.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodVolume {
    pub(crate) name: String,
    pub(crate) persistent_volume_claim: Option<ClaimSource>,
    pub(crate) ephemeral: Option<EphemeralSource>,
    pub(crate) gce_persistent_disk: Option<Value>,
    pub(crate) aws_elastic_block_store: Option<Value>,
    pub(crate) iscsi: Option<Value>,
    pub(crate) rbd: Option<Value>,
}

/// The claim that a volume uses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ClaimSource {
    pub(crate) claim_name: String,
}

/// A claim that is created for the pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct EphemeralSource {
    pub(crate) volume_claim_template: Value,
}

impl Pod {
    /// The names of the claims that the pod uses, and whether the claim is created for the pod.
    pub(crate) fn claims(&self) -> impl Iterator<Item = (String, bool)> {
        self.spec.volumes.iter().filter_map(|volume| {
            let named =
                volume.persistent_volume_claim.as_ref().map(|source| (source.claim_name.clone(), false));
            let created = || (format!("{}-{}", self.metadata.name, volume.name), true);
            named.or_else(|| volume.ephemeral.as_ref().map(|_| created()))
        })
    }

    /// Whether the pod uses this claim of its namespace.
    pub(crate) fn uses_claim(&self, name: &str) -> bool {
        self.claims().any(|(claim, _)| claim == name)
    }
}

/// A `PersistentVolumeClaim`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Claim {
    pub(crate) metadata: Meta,
    pub(crate) spec: ClaimSpec,
    pub(crate) status: ClaimStatus,
}

impl Claim {
    pub(crate) fn is_bound(&self) -> bool {
        !self.spec.volume_name.is_empty() && self.status.phase == "Bound"
    }

    /// The storage class; empty without one.
    pub(crate) fn class(&self) -> &str {
        self.spec.storage_class_name.as_deref().unwrap_or_default()
    }

    /// Whether only one pod may use it.
    pub(crate) fn is_exclusive(&self) -> bool {
        self.spec.access_modes.iter().any(|mode| mode == "ReadWriteOncePod")
    }

    /// The node that the scheduler has selected for its first pod.
    pub(crate) fn selected_node(&self) -> Option<&str> {
        self.metadata.annotation(SELECTED_NODE)
    }

    /// Whether the claim is controlled by this pod.
    pub(crate) fn is_created_for(&self, pod: &Pod) -> bool {
        self.metadata.controller().is_some_and(|owner| owner.uid == pod.metadata.uid)
    }
}

/// Spec of a claim.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ClaimSpec {
    pub(crate) access_modes: Vec<String>,
    pub(crate) storage_class_name: Option<String>,
    pub(crate) volume_name: String,
    pub(crate) volume_mode: Option<String>,
    pub(crate) selector: Option<LabelSelector>,
    pub(crate) resources: StorageRequest,
}

/// Requested storage.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct StorageRequest {
    pub(crate) requests: BTreeMap<String, Quantity>,
}

/// Status of a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct ClaimStatus {
    pub(crate) phase: String,
}

/// A `PersistentVolume`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Volume {
    pub(crate) metadata: Meta,
    pub(crate) spec: VolumeSpec,
    pub(crate) status: ClaimStatus,
}

/// Spec of a volume.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct VolumeSpec {
    pub(crate) capacity: BTreeMap<String, Quantity>,
    pub(crate) access_modes: Vec<String>,
    pub(crate) storage_class_name: String,
    pub(crate) volume_mode: Option<String>,
    pub(crate) persistent_volume_reclaim_policy: String,
    pub(crate) claim_ref: Option<ClaimRef>,
    pub(crate) node_affinity: Option<VolumeNodeAffinity>,
}

/// The claim to which a volume is bound. Without a uid: the claim of this name, when it exists.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ClaimRef {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

impl ClaimRef {
    pub(crate) fn is_of(&self, claim: &Claim) -> bool {
        (&self.namespace, &self.name) == (&claim.metadata.namespace, &claim.metadata.name)
            && (self.uid.is_empty() || self.uid == claim.metadata.uid)
    }
}

/// The nodes that can use a volume.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct VolumeNodeAffinity {
    pub(crate) required: Option<NodeSelector>,
}

/// A `StorageClass`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct StorageClass {
    pub(crate) metadata: Meta,
    pub(crate) provisioner: String,
    pub(crate) reclaim_policy: Option<String>,
    pub(crate) volume_binding_mode: Option<String>,
    pub(crate) allowed_topologies: Vec<TopologyTerm>,
}

impl StorageClass {
    /// Whether claims are bound when their first pod is scheduled.
    pub(crate) fn waits_for_pod(&self) -> bool {
        self.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")
    }

    /// Whether volumes are created for its claims. The class of local volumes creates none.
    pub(crate) fn provisions(&self) -> bool {
        self.provisioner != "kubernetes.io/no-provisioner"
    }
}

/// Labels that a node must have.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct TopologyTerm {
    pub(crate) match_label_expressions: Vec<Requirement>,
}

/// A namespace: only its labels.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Namespace {
    pub(crate) metadata: Meta,
}
