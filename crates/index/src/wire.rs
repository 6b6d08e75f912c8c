//! API objects with only the fields that decisions read; the rest is dropped while decoding.

pub mod mutators;
pub mod volumes;

use std::collections::BTreeSet;

use api::Meta;
use api::demand::ray::WorkerGroup;
use api::pod_rules::{self, ContainerPort, PodRules};
use api::scheduling_gate::GATE;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A node.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Node {
    /// Metadata.
    pub metadata: Meta,
    /// Spec.
    pub spec: NodeSpec,
    /// Status.
    pub status: NodeStatus,
}

/// The spec of a node.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct NodeSpec {
    /// Taints.
    #[serde(deserialize_with = "api::meta::null_is_default")]
    pub taints: Vec<Taint>,
    /// Whether the node is cordoned.
    pub unschedulable: bool,
}

/// A taint.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Taint {
    /// Key.
    pub key: String,
    /// Value.
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

/// The status of a node.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    /// Resources available to pods.
    pub allocatable: Value,
    /// Conditions, `Ready` among them.
    #[serde(deserialize_with = "api::meta::null_is_default")]
    pub conditions: Vec<NodeCondition>,
}

/// A condition of a node.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeCondition {
    /// Type.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Since when it has this status, in RFC 3339.
    #[serde(deserialize_with = "api::meta::null_is_default")]
    pub last_transition_time: String,
}

/// A condition of any object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Condition {
    /// Type.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Reason.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "api::meta::null_is_default")]
    pub reason: String,
    /// Message.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "api::meta::null_is_default")]
    pub message: String,
}

/// A namespace.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Namespace {
    /// Metadata.
    pub metadata: Meta,
}

/// A `DaemonSet`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct DaemonSet {
    /// Metadata.
    pub metadata: Meta,
    /// Spec.
    pub spec: DaemonSetSpec,
}

/// The spec of a `DaemonSet`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct DaemonSetSpec {
    /// The template of its pods.
    pub template: Value,
}

/// A pod.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Pod {
    /// Metadata.
    pub metadata: Meta,
    /// Spec.
    pub spec: PodSpec,
    /// Status.
    pub status: PodStatus,
}

/// The spec of a pod.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// The node that it is bound to.
    #[serde(skip_serializing)]
    pub node_name: Option<String>,
    /// Containers.
    #[serde(deserialize_with = "api::meta::null_is_default")]
    pub containers: Vec<Container>,
    /// Init containers; sidecars if their restart policy is `Always`.
    #[serde(deserialize_with = "api::meta::null_is_default")]
    pub init_containers: Vec<Container>,
    /// Overhead of the runtime class.
    pub overhead: Value,
    /// Pod-level resources.
    pub resources: Value,
    /// Scheduling gates.
    #[serde(skip_serializing, deserialize_with = "api::meta::null_is_default")]
    pub scheduling_gates: Vec<SchedulingGate>,
    /// Node selector.
    #[serde(skip_serializing, deserialize_with = "api::meta::null_is_default")]
    pub node_selector: NodeSelector,
    /// Affinity.
    #[serde(skip_serializing, deserialize_with = "api::meta::null_is_default")]
    pub affinity: Affinity,
    /// Whether it uses the network of its node.
    #[serde(skip_serializing)]
    pub host_network: bool,
    /// Volumes.
    #[serde(skip_serializing, deserialize_with = "api::meta::null_is_default")]
    pub volumes: Vec<PodVolume>,
}

/// A volume of a pod.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodVolume {
    /// The claim of the volume.
    pub persistent_volume_claim: Option<ClaimName>,
}

/// The claim of a volume.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimName {
    /// Its name.
    pub claim_name: String,
}

/// The affinity of a pod: what limits other pods after it has started.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Affinity {
    /// Inter-pod anti-affinity.
    #[serde(deserialize_with = "api::meta::null_is_default")]
    pub pod_anti_affinity: PodAntiAffinity,
}

/// Inter-pod anti-affinity.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct PodAntiAffinity {
    /// Required terms.
    #[serde(
        rename = "requiredDuringSchedulingIgnoredDuringExecution",
        deserialize_with = "api::meta::null_is_default"
    )]
    pub required: Vec<Value>,
}

/// A scheduling gate.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct SchedulingGate {
    /// Name.
    pub name: String,
}

/// The node selector of a pod.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct NodeSelector {
    /// The host name.
    #[serde(rename = "kubernetes.io/hostname")]
    pub host: Option<String>,
}

/// A container.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    /// Requests and limits.
    pub resources: Value,
    /// `Always` marks an init container as a sidecar.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart_policy: Option<String>,
    /// Ports.
    #[serde(skip_serializing, deserialize_with = "api::meta::null_is_default")]
    pub ports: Vec<ContainerPort>,
}

/// The status of a pod.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct PodStatus {
    /// `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
    #[serde(deserialize_with = "api::meta::null_is_default")]
    pub phase: String,
    /// Conditions, `PodScheduled` among them.
    #[serde(deserialize_with = "api::meta::null_is_default")]
    pub conditions: Vec<Condition>,
}

/// A wrapped object, or an object that its operator creates between it and its pods.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Object {
    /// Metadata.
    pub metadata: Meta,
    /// Spec.
    #[serde(deserialize_with = "lenient")]
    pub spec: ObjectSpec,
    /// Status.
    #[serde(deserialize_with = "lenient")]
    pub status: ObjectStatus,
}

/// The spec of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ObjectSpec {
    /// The number of pods that an object with one pod template keeps.
    #[serde(deserialize_with = "lenient")]
    pub replicas: Option<u32>,
    /// The number of pods that a Job runs at the same time.
    #[serde(deserialize_with = "lenient")]
    pub parallelism: Option<u32>,
    /// The number of pods of a Job that have to succeed.
    #[serde(deserialize_with = "lenient")]
    pub completions: Option<u32>,
    /// Whether a Job creates no pods.
    #[serde(deserialize_with = "lenient")]
    pub suspend: bool,
    /// How many pods of a Job may fail.
    #[serde(rename = "backoffLimit", deserialize_with = "lenient")]
    pub backoff_limit: Option<u32>,
    /// How many pods of each index of a Job may fail.
    #[serde(rename = "backoffLimitPerIndex", deserialize_with = "lenient")]
    pub backoff_limit_per_index: Option<u32>,
    /// The worker groups of a `RayCluster`.
    #[serde(rename = "workerGroupSpecs", deserialize_with = "worker_groups")]
    pub worker_groups: Vec<WorkerGroup>,
}

/// An Event about an object.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct ObjectEvent {
    /// Metadata.
    pub metadata: Meta,
    /// `Normal` or `Warning`.
    #[serde(rename = "type", deserialize_with = "api::meta::null_is_default")]
    pub kind: String,
    /// Reason.
    #[serde(deserialize_with = "api::meta::null_is_default")]
    pub reason: String,
    /// Message.
    #[serde(deserialize_with = "api::meta::null_is_default")]
    pub message: String,
}

/// The status of an object.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct ObjectStatus {
    /// Conditions; empty if the status has another form.
    pub conditions: Vec<Condition>,
    /// The number of pods of a Job that have succeeded.
    #[serde(deserialize_with = "lenient")]
    pub succeeded: u32,
    /// The number of pods of a Job that have failed.
    #[serde(deserialize_with = "lenient")]
    pub failed: u32,
}

/// A `CustomResourceDefinition`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Definition {
    /// Metadata.
    pub metadata: Meta,
    /// Spec.
    pub spec: DefinitionSpec,
    /// Status.
    #[serde(deserialize_with = "lenient")]
    pub status: ObjectStatus,
}

/// The spec of a `CustomResourceDefinition`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct DefinitionSpec {
    /// API group.
    pub group: String,
    /// Names.
    pub names: DefinitionNames,
    /// `Namespaced` or `Cluster`.
    pub scope: String,
    /// Versions.
    pub versions: Vec<DefinitionVersion>,
}

/// Names of a custom resource.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct DefinitionNames {
    /// Kind.
    pub kind: String,
    /// Name in URLs: the plural.
    pub plural: String,
}

/// A version of a custom resource.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct DefinitionVersion {
    /// Name.
    pub name: String,
    /// Whether the API server serves it.
    pub served: bool,
    /// Subresources.
    #[serde(deserialize_with = "api::meta::null_is_default")]
    pub subresources: DefinitionSubresources,
    /// Schema.
    #[serde(deserialize_with = "api::meta::null_is_default")]
    pub schema: DefinitionSchema,
}

/// The schema of a version: only the path to `status.totalmemory`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct DefinitionSchema {
    /// The schema of the whole object.
    #[serde(rename = "openAPIV3Schema")]
    pub root: RootSchema,
}

/// Schema of the whole object.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct RootSchema {
    /// Properties.
    pub properties: RootProperties,
}

/// Properties of the whole object.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct RootProperties {
    /// The status.
    pub status: StatusSchema,
}

/// Schema of a status.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct StatusSchema {
    /// Properties.
    pub properties: StatusProperties,
}

/// Properties of a status.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct StatusProperties {
    /// The total memory: its format tells whether totals are limited to 32 bits.
    pub totalmemory: FieldSchema,
}

/// Schema of a field.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct FieldSchema {
    /// Format of its value.
    pub format: String,
}

/// Subresources of a version.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct DefinitionSubresources {
    /// Set if the version has the status subresource.
    pub status: Option<Value>,
}

impl PodSpec {
    /// The effective request of the pod.
    pub fn request(&self) -> Result<api::Amounts, api::amounts::AmountError> {
        let spec = serde_json::to_value(self).unwrap_or_default();
        api::pod::effective_request(&spec)
    }
}

impl Pod {
    /// Its rules that limit other pods.
    pub fn rules(&self) -> PodRules {
        let is_sidecar = |container: &&Container| container.restart_policy.as_deref() == Some("Always");
        let sidecars = self.spec.init_containers.iter().filter(is_sidecar);
        let ports = self.spec.containers.iter().chain(sidecars).flat_map(|container| &container.ports);
        PodRules {
            anti_affinity: pod_rules::terms(&self.spec.affinity.pod_anti_affinity.required),
            host_ports: ports.filter_map(|port| port.host_port(self.spec.host_network)).collect(),
            ..PodRules::default()
        }
    }

    /// The names of the persistent volume claims that its author names.
    pub fn claims(&self) -> BTreeSet<String> {
        let claims = self.spec.volumes.iter().filter_map(|volume| volume.persistent_volume_claim.as_ref());
        claims.map(|claim| claim.claim_name.clone()).collect()
    }

    /// Whether it has Muster's scheduling gate.
    pub fn is_gated(&self) -> bool {
        self.has_gate(GATE)
    }

    /// Whether it has a scheduling gate.
    pub fn has_gate(&self, name: &str) -> bool {
        self.spec.scheduling_gates.iter().any(|gate| gate.name == name)
    }
}

impl DefinitionVersion {
    /// Whether the schema limits the totals in the status to 32 bits.
    pub fn has_int32_totals(&self) -> bool {
        self.schema.root.properties.status.properties.totalmemory.format == "int32"
    }
}

impl Definition {
    /// Whether the definition has the condition `Established`.
    pub fn is_established(&self) -> bool {
        self.status.conditions.iter().any(|c| c.kind == "Established" && c.status == "True")
    }
}

/// Reads worker groups; none for a value of another form.
fn worker_groups<'de, D>(deserializer: D) -> Result<Vec<WorkerGroup>, D::Error>
where
    D: serde::Deserializer<'de>,
{
    let groups = Value::deserialize(deserializer)?;
    Ok(groups.as_array().into_iter().flatten().map(WorkerGroup::read).collect())
}

/// Deserializes a value, or the default for a value of another form.
fn lenient<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + serde::de::DeserializeOwned,
{
    Ok(serde_json::from_value(Value::deserialize(deserializer)?).unwrap_or_default())
}
