//! Objects as they are watched: only the fields that decisions read, so that the rest is dropped while decoding.

use api::Meta;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A node.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Node {
    /// Metadata.
    pub metadata: Meta,
    /// What its owner set.
    pub spec: NodeSpec,
    /// What its kubelet reports.
    pub status: NodeStatus,
}

/// What the owner of a node set.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct NodeSpec {
    /// Taints.
    #[serde(deserialize_with = "api::meta::null_is_default")]
    pub taints: Vec<Taint>,
    /// Cordoned.
    pub unschedulable: bool,
}

/// A taint.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Taint {
    /// Its key.
    pub key: String,
    /// Its value.
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

/// What a kubelet reports.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    /// What pods may ask for together.
    pub allocatable: Value,
    /// Conditions, `Ready` among them.
    #[serde(deserialize_with = "api::meta::null_is_default")]
    pub conditions: Vec<Condition>,
}

/// A condition of any object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Condition {
    /// What it is about.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Cause in a word.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "api::meta::null_is_default")]
    pub reason: String,
    /// Details.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "api::meta::null_is_default")]
    pub message: String,
}

/// A pod.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Pod {
    /// Metadata.
    pub metadata: Meta,
    /// What it asks for.
    pub spec: PodSpec,
    /// How far it has come.
    pub status: PodStatus,
}

/// What a pod asks for.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// The node that it is bound to.
    #[serde(skip_serializing)]
    pub node_name: Option<String>,
    /// Containers.
    #[serde(deserialize_with = "api::meta::null_is_default")]
    pub containers: Vec<Container>,
    /// Containers that run before, or beside when they always restart.
    #[serde(deserialize_with = "api::meta::null_is_default")]
    pub init_containers: Vec<Container>,
    /// What the runtime itself needs.
    pub overhead: Value,
    /// Requests for the whole pod.
    pub resources: Value,
    /// What keeps it from the scheduler.
    #[serde(skip_serializing, deserialize_with = "api::meta::null_is_default")]
    pub scheduling_gates: Vec<SchedulingGate>,
    /// Labels that its node must have.
    #[serde(skip_serializing, deserialize_with = "api::meta::null_is_default")]
    pub node_selector: NodeSelector,
}

/// Something that keeps a pod from the scheduler.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct SchedulingGate {
    /// Its name.
    pub name: String,
}

/// Labels that a pod's node must have, as far as decisions read them.
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
    /// `Always` for a sidecar among the init containers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart_policy: Option<String>,
}

/// How far a pod has come.
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

/// A wrapped object, or one that its operator makes on the way to pods.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Object {
    /// Metadata.
    pub metadata: Meta,
    /// Conditions, where it has any.
    #[serde(deserialize_with = "lenient")]
    pub status: ObjectStatus,
}

/// Conditions of an object.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct ObjectStatus {
    /// Conditions; empty when they have another shape.
    pub conditions: Vec<Condition>,
}

/// A custom resource definition: which kinds it serves.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Definition {
    /// Metadata.
    pub metadata: Meta,
    /// What it defines.
    pub spec: DefinitionSpec,
    /// Whether it is served yet.
    #[serde(deserialize_with = "lenient")]
    pub status: ObjectStatus,
}

/// What a custom resource definition defines.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct DefinitionSpec {
    /// API group.
    pub group: String,
    /// Its names.
    pub names: DefinitionNames,
    /// `Namespaced` or `Cluster`.
    pub scope: String,
    /// Its versions.
    pub versions: Vec<DefinitionVersion>,
}

/// Names of a custom resource.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct DefinitionNames {
    /// Kind.
    pub kind: String,
    /// Name in URLs.
    pub plural: String,
}

/// A version of a custom resource.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct DefinitionVersion {
    /// Its name.
    pub name: String,
    /// Whether requests may use it.
    pub served: bool,
    /// Its subresources.
    #[serde(deserialize_with = "api::meta::null_is_default")]
    pub subresources: DefinitionSubresources,
    /// Its schema, as far as decisions read it.
    #[serde(deserialize_with = "api::meta::null_is_default")]
    pub schema: DefinitionSchema,
}

/// Schema of a version, down to the one field that matters.
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
    /// Its properties.
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
    /// Its properties.
    pub properties: StatusProperties,
}

/// Properties of a status.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct StatusProperties {
    /// A total that outgrows 32 bits.
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
    /// Set when the status is written apart from the rest.
    pub status: Option<Value>,
}

impl PodSpec {
    /// What the pod takes from its node.
    pub fn request(&self) -> Result<api::Amounts, api::amounts::AmountError> {
        let spec = serde_json::to_value(self).unwrap_or_default();
        api::pod::effective_request(&spec)
    }
}

impl DefinitionVersion {
    /// Whether totals in the status may have 32 bits only.
    pub fn has_narrow_totals(&self) -> bool {
        self.schema.root.properties.status.properties.totalmemory.format == "int32"
    }
}

impl Definition {
    /// Whether requests for this resource are answered.
    pub fn is_established(&self) -> bool {
        self.status.conditions.iter().any(|c| c.kind == "Established" && c.status == "True")
    }
}

fn lenient<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + serde::de::DeserializeOwned,
{
    Ok(serde_json::from_value(Value::deserialize(deserializer)?).unwrap_or_default())
}
