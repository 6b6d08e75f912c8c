//! A Kueue `Workload` in `kueue.x-k8s.io/v1beta2`, with the fields that decisions read or write.

use serde::Deserialize;
use serde_json::{Value, json};

use super::jobs::pods::IS_GROUP;
use super::status::Status;
use crate::Meta;
use crate::meta::null_is_default;
use crate::pod::PodShape;

/// Group and version.
pub const API_VERSION: &str = "kueue.x-k8s.io/v1beta2";
/// The most pod sets of a Workload, as its definition says.
pub const POD_SETS_MAX: u8 = 18;
/// The label of a Workload with the uid of its job.
pub const JOB_UID: &str = "kueue.x-k8s.io/job-uid";
/// The annotation of a Workload that continues another one, with more pods.
pub const REPLACES: &str = "kueue.x-k8s.io/workload-slice-replacement-for";

/// A Workload.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Workload {
    /// Metadata.
    pub metadata: Meta,
    /// Spec.
    pub spec: Spec,
    /// Status.
    #[serde(deserialize_with = "null_is_default")]
    pub status: Status,
}

/// The spec of a Workload.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spec {
    /// Its pod sets.
    #[serde(deserialize_with = "null_is_default")]
    pub pod_sets: Vec<PodSet>,
    /// The name of its `LocalQueue`.
    #[serde(deserialize_with = "null_is_default")]
    pub queue_name: String,
    /// Its priority.
    #[serde(deserialize_with = "null_is_default")]
    pub priority: i32,
    /// The class of its priority.
    pub priority_class_ref: Option<PriorityClassRef>,
    /// Whether it may be admitted; absent: yes.
    pub active: Option<bool>,
    /// How long it may run over all its admissions, in seconds.
    pub maximum_execution_time_seconds: Option<i32>,
    /// Its preemption gates.
    #[serde(deserialize_with = "null_is_default")]
    pub preemption_gates: Vec<PreemptionGate>,
}

/// A preemption gate of a Workload.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PreemptionGate {
    /// Name.
    pub name: String,
}

/// The class of the priority of a Workload.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PriorityClassRef {
    /// `kueue.x-k8s.io` or `scheduling.k8s.io`.
    #[serde(deserialize_with = "null_is_default")]
    pub group: String,
    /// `WorkloadPriorityClass` or `PriorityClass`.
    #[serde(deserialize_with = "null_is_default")]
    pub kind: String,
    /// Name.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
}

/// A pod set.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSet {
    /// Its name.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
    /// The number of its pods.
    #[serde(deserialize_with = "null_is_default")]
    pub count: u32,
    /// The fewest pods with which the Workload may start.
    pub min_count: Option<u32>,
    /// What the planner reads of its pod template.
    #[serde(deserialize_with = "template")]
    pub template: PodTemplate,
    /// Its topology request.
    pub topology_request: Option<Value>,
}

/// What the planner reads of a pod template.
#[derive(Debug, Clone, PartialEq)]
pub struct PodTemplate {
    /// Its pods. An invalid quantity is an error of its Workload alone.
    pub shape: Result<PodShape, String>,
    /// The fields of the pod spec that decide what it requests: resources, overhead and the runtime class.
    pub requests: Value,
}

impl Default for PodTemplate {
    fn default() -> Self {
        Self { shape: Ok(PodShape::default()), requests: Value::Null }
    }
}

fn template<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<PodTemplate, D::Error> {
    let template = Value::deserialize(deserializer)?;
    let shape = PodShape::read(&template).map_err(|error| error.to_string());
    let spec = &template["spec"];
    let containers = |field: &str| -> Value {
        let of = |container: &Value| json!({"resources": container["resources"], "restartPolicy": container["restartPolicy"]});
        spec[field].as_array().into_iter().flatten().map(of).collect()
    };
    let requests = json!({
        "containers": containers("containers"),
        "initContainers": containers("initContainers"),
        "resources": spec["resources"],
        "overhead": spec["overhead"],
        "runtimeClassName": spec["runtimeClassName"],
    });
    Ok(PodTemplate { shape, requests })
}

impl Default for PodSet {
    fn default() -> Self {
        Self {
            name: "main".into(),
            count: 1,
            min_count: None,
            template: PodTemplate::default(),
            topology_request: None,
        }
    }
}

impl Workload {
    /// The name of its priority class; empty for none.
    pub fn priority_class(&self) -> &str {
        self.spec.priority_class_ref.as_ref().map_or("", |class| &class.name)
    }

    /// The name of its `WorkloadPriorityClass`; `None` for none, and for a class of pods.
    pub fn own_priority_class(&self) -> Option<&str> {
        let class = self.spec.priority_class_ref.as_ref()?;
        (class.kind == "WorkloadPriorityClass").then_some(class.name.as_str())
    }

    /// Whether it says that it is that of a group of pods.
    pub fn is_of_pod_group(&self) -> bool {
        self.metadata.annotations.get(IS_GROUP).is_some_and(|value| value == "true")
    }

    /// Whether one of its preemption gates is not open.
    pub fn has_closed_gate(&self) -> bool {
        let is_open = |gate: &PreemptionGate| {
            let mut states = self.status.preemption_gates.iter();
            states.any(|state| state["name"] == gate.name.as_str() && state["position"] == "Open")
        };
        !self.spec.preemption_gates.iter().all(is_open)
    }

    /// Whether its author lets it run.
    pub fn is_active(&self) -> bool {
        self.spec.active != Some(false)
    }
}
