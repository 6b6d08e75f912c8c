//! Pods: the fields that scheduler, kubelet and controllers read.
#![allow(clippy::struct_field_names, reason = "fields have the names of the API")]

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Condition, Meta, PodVolume, Quantity, Stamp};

/// A pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Pod {
    pub(crate) metadata: Meta,
    pub(crate) spec: PodSpec,
    pub(crate) status: PodStatus,
}

impl Pod {
    /// Whether the pod has succeeded or failed.
    pub(crate) fn is_finished(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.condition("Ready").is_some_and(|ready| ready.status == "True")
    }

    pub(crate) fn is_running(&self) -> bool {
        self.status.phase == "Running"
    }

    pub(crate) fn condition(&self, kind: &str) -> Option<&Condition> {
        super::condition(&self.status.conditions, kind)
    }

    /// Whether the pod is neither finished nor being deleted. Controllers count these pods.
    pub(crate) fn is_active(&self) -> bool {
        !self.is_finished() && !self.metadata.is_deleting()
    }
}

/// Spec of a pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodSpec {
    pub(crate) node_name: String,
    pub(crate) scheduler_name: String,
    pub(crate) priority: i32,
    pub(crate) restart_policy: String,
    pub(crate) host_network: bool,
    pub(crate) termination_grace_period_seconds: Option<i64>,
    pub(crate) active_deadline_seconds: Option<i64>,
    pub(crate) node_selector: BTreeMap<String, String>,
    pub(crate) affinity: Option<Box<Affinity>>,
    pub(crate) tolerations: Vec<Toleration>,
    pub(crate) topology_spread_constraints: Vec<TopologySpreadConstraint>,
    pub(crate) scheduling_gates: Vec<SchedulingGate>,
    pub(crate) init_containers: Vec<Container>,
    pub(crate) containers: Vec<Container>,
    pub(crate) overhead: BTreeMap<String, Quantity>,
    /// Of the whole pod; they replace the sums of the containers.
    pub(crate) resources: Option<Resources>,
    pub(crate) volumes: Vec<PodVolume>,
    pub(crate) resource_claims: Vec<ResourceClaim>,
}

/// A claim of dynamic resource allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct ResourceClaim {
    pub(crate) name: String,
}

/// A scheduling gate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct SchedulingGate {
    pub(crate) name: String,
}

/// A container. An init container with restart policy `Always` is a sidecar.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Container {
    pub(crate) name: String,
    pub(crate) image: String,
    pub(crate) restart_policy: Option<String>,
    pub(crate) resources: Resources,
    pub(crate) ports: Vec<Port>,
    pub(crate) readiness_probe: Option<Probe>,
}

impl Container {
    pub(crate) fn is_sidecar(&self) -> bool {
        self.restart_policy.as_deref() == Some("Always")
    }
}

/// Timing of a probe.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Probe {
    pub(crate) initial_delay_seconds: u64,
}

/// Requests and limits.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Resources {
    pub(crate) requests: BTreeMap<String, Quantity>,
    pub(crate) limits: BTreeMap<String, Quantity>,
}

/// A container port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Port {
    pub(crate) container_port: u16,
    pub(crate) host_port: u16,
    #[serde(rename = "hostIP")]
    pub(crate) host_ip: String,
    pub(crate) protocol: String,
}

/// A toleration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Toleration {
    pub(crate) key: String,
    pub(crate) operator: String,
    pub(crate) value: String,
    pub(crate) effect: String,
    pub(crate) toleration_seconds: Option<i64>,
}

/// Node affinity, pod affinity and pod anti-affinity.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Affinity {
    pub(crate) node_affinity: Option<NodeAffinity>,
    pub(crate) pod_affinity: Option<PodAffinity>,
    pub(crate) pod_anti_affinity: Option<PodAffinity>,
}

/// Node affinity.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct NodeAffinity {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub(crate) required: Option<NodeSelector>,
    #[serde(rename = "preferredDuringSchedulingIgnoredDuringExecution")]
    pub(crate) preferred: Vec<PreferredTerm>,
}

/// A node selector: one of the terms must match.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct NodeSelector {
    pub(crate) node_selector_terms: Vec<NodeSelectorTerm>,
}

/// A preferred node affinity term with its weight.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct PreferredTerm {
    pub(crate) weight: i64,
    pub(crate) preference: NodeSelectorTerm,
}

/// A node selector term: all requirements must match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct NodeSelectorTerm {
    pub(crate) match_expressions: Vec<Requirement>,
    pub(crate) match_fields: Vec<Requirement>,
}

/// A requirement on a label or field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Requirement {
    pub(crate) key: String,
    pub(crate) operator: String,
    pub(crate) values: Vec<String>,
}

/// Pod affinity or anti-affinity.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodAffinity {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub(crate) required: Vec<PodAffinityTerm>,
    #[serde(rename = "preferredDuringSchedulingIgnoredDuringExecution")]
    pub(crate) preferred: Vec<WeightedPodAffinityTerm>,
}

/// A preferred pod affinity term with its weight.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct WeightedPodAffinityTerm {
    pub(crate) weight: i64,
    pub(crate) pod_affinity_term: PodAffinityTerm,
}

/// A pod affinity term: pods with these labels, within a topology domain.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodAffinityTerm {
    pub(crate) topology_key: String,
    pub(crate) label_selector: Option<LabelSelector>,
    pub(crate) namespaces: Vec<String>,
    pub(crate) namespace_selector: Option<LabelSelector>,
    pub(crate) match_label_keys: Vec<String>,
    pub(crate) mismatch_label_keys: Vec<String>,
}

/// A topology spread constraint.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct TopologySpreadConstraint {
    pub(crate) max_skew: i64,
    pub(crate) min_domains: Option<i64>,
    pub(crate) topology_key: String,
    pub(crate) when_unsatisfiable: String,
    pub(crate) label_selector: Option<LabelSelector>,
    pub(crate) match_label_keys: Vec<String>,
    pub(crate) node_affinity_policy: Option<String>,
    pub(crate) node_taints_policy: Option<String>,
}

/// A label selector. An empty one matches all objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct LabelSelector {
    pub(crate) match_labels: BTreeMap<String, String>,
    pub(crate) match_expressions: Vec<Requirement>,
}

/// Status of a pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodStatus {
    pub(crate) phase: String,
    pub(crate) reason: String,
    #[serde(rename = "podIP")]
    pub(crate) pod_ip: String,
    pub(crate) start_time: Option<Stamp>,
    #[serde(deserialize_with = "api::meta::null_is_default")]
    pub(crate) conditions: Vec<Condition>,
    pub(crate) container_statuses: Vec<ContainerStatus>,
    pub(crate) init_container_statuses: Vec<ContainerStatus>,
}

/// Status of a container.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ContainerStatus {
    pub(crate) name: String,
    pub(crate) ready: bool,
    pub(crate) restart_count: u32,
    pub(crate) state: ContainerState,
}

/// The state of a container: exactly one field is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ContainerState {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) waiting: Option<Waiting>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) running: Option<Running>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) terminated: Option<Terminated>,
}

/// A waiting container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Waiting {
    pub(crate) reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) message: String,
}

/// A running container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Running {
    pub(crate) started_at: Option<Stamp>,
}

/// A terminated container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Terminated {
    pub(crate) exit_code: i32,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) reason: String,
    pub(crate) started_at: Option<Stamp>,
    pub(crate) finished_at: Option<Stamp>,
    #[serde(rename = "containerID", skip_serializing_if = "String::is_empty")]
    pub(crate) container_id: String,
}
