//! Jobs, Deployments and the other workload kinds. Pod templates stay JSON, so that no field is lost.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Condition, LabelSelector, Meta, Stamp};

/// A batch Job.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Job {
    pub(crate) metadata: Meta,
    pub(crate) spec: JobSpec,
    pub(crate) status: JobStatus,
}

/// Spec of a Job.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct JobSpec {
    pub(crate) parallelism: Option<i64>,
    pub(crate) completions: Option<i64>,
    pub(crate) completion_mode: Option<String>,
    pub(crate) backoff_limit: Option<i64>,
    pub(crate) backoff_limit_per_index: Option<i64>,
    pub(crate) max_failed_indexes: Option<i64>,
    pub(crate) pod_failure_policy: Option<FailurePolicy>,
    pub(crate) pod_replacement_policy: Option<String>,
    pub(crate) success_policy: Option<SuccessPolicy>,
    pub(crate) active_deadline_seconds: Option<i64>,
    pub(crate) ttl_seconds_after_finished: Option<i64>,
    pub(crate) suspend: bool,
    pub(crate) managed_by: Option<String>,
    pub(crate) selector: Option<LabelSelector>,
    pub(crate) template: Value,
}

/// The meaning of failures of pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct FailurePolicy {
    pub(crate) rules: Vec<FailureRule>,
}

/// The action for failed pods with these exit codes or with one of these conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct FailureRule {
    pub(crate) action: String,
    pub(crate) on_exit_codes: Option<ExitCodes>,
    pub(crate) on_pod_conditions: Vec<ConditionPattern>,
}

/// Exit codes of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ExitCodes {
    pub(crate) container_name: Option<String>,
    pub(crate) operator: String,
    pub(crate) values: Vec<i32>,
}

/// A condition of a pod. The default status is `True`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct ConditionPattern {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) status: String,
}

impl Default for ConditionPattern {
    fn default() -> Self {
        Self { kind: String::new(), status: "True".to_owned() }
    }
}

/// When an indexed Job has succeeded: one of the rules is satisfied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct SuccessPolicy {
    pub(crate) rules: Vec<SuccessRule>,
}

/// The indexes that have to succeed, or how many of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SuccessRule {
    pub(crate) succeeded_indexes: Option<String>,
    pub(crate) succeeded_count: Option<i64>,
}

/// Status of a Job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct JobStatus {
    #[serde(deserialize_with = "api::meta::null_is_default")]
    pub(crate) conditions: Vec<Condition>,
    pub(crate) start_time: Option<Stamp>,
    pub(crate) completion_time: Option<Stamp>,
    pub(crate) active: i64,
    pub(crate) ready: Option<i64>,
    pub(crate) terminating: Option<i64>,
    pub(crate) succeeded: i64,
    pub(crate) failed: i64,
    pub(crate) completed_indexes: Option<String>,
    pub(crate) failed_indexes: Option<String>,
    pub(crate) uncounted_terminated_pods: Option<Uncounted>,
}

/// Finished pods that the counters do not include yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Uncounted {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) succeeded: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) failed: Vec<String>,
}

/// A Deployment.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Deployment {
    pub(crate) metadata: Meta,
    pub(crate) spec: DeploymentSpec,
    pub(crate) status: Value,
}

/// Spec of a Deployment.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DeploymentSpec {
    pub(crate) replicas: Option<i64>,
    pub(crate) selector: LabelSelector,
    pub(crate) template: Value,
    pub(crate) strategy: Strategy,
    pub(crate) min_ready_seconds: i64,
    pub(crate) progress_deadline_seconds: Option<i64>,
    pub(crate) revision_history_limit: Option<i64>,
    pub(crate) paused: bool,
}

/// Update strategy.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Strategy {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) rolling_update: RollingUpdate,
}

/// Parameters of a rolling update; numbers or percentages.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct RollingUpdate {
    pub(crate) max_surge: Value,
    pub(crate) max_unavailable: Value,
    pub(crate) partition: Option<i64>,
}

/// A `ReplicaSet`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct ReplicaSet {
    pub(crate) metadata: Meta,
    pub(crate) spec: ReplicaSetSpec,
    pub(crate) status: ReplicaSetStatus,
}

/// Spec of a `ReplicaSet`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ReplicaSetSpec {
    pub(crate) replicas: Option<i64>,
    pub(crate) selector: LabelSelector,
    pub(crate) template: Value,
    pub(crate) min_ready_seconds: i64,
}

/// Status of a `ReplicaSet`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ReplicaSetStatus {
    pub(crate) replicas: i64,
    pub(crate) fully_labeled_replicas: i64,
    pub(crate) ready_replicas: i64,
    pub(crate) available_replicas: i64,
    pub(crate) observed_generation: i64,
}

/// A `StatefulSet`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct StatefulSet {
    pub(crate) metadata: Meta,
    pub(crate) spec: StatefulSetSpec,
    pub(crate) status: StatefulSetStatus,
}

/// Spec of a `StatefulSet`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct StatefulSetSpec {
    pub(crate) replicas: Option<i64>,
    pub(crate) selector: LabelSelector,
    pub(crate) template: Value,
    pub(crate) volume_claim_templates: Vec<Value>,
    pub(crate) service_name: String,
    pub(crate) pod_management_policy: String,
    pub(crate) min_ready_seconds: i64,
    pub(crate) ordinals: Ordinals,
    pub(crate) update_strategy: Strategy,
}

/// The first ordinal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Ordinals {
    pub(crate) start: i64,
}

/// Status of a `StatefulSet`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct StatefulSetStatus {
    pub(crate) observed_generation: i64,
    pub(crate) replicas: i64,
    pub(crate) ready_replicas: i64,
    pub(crate) available_replicas: i64,
    pub(crate) current_replicas: i64,
    pub(crate) updated_replicas: i64,
    pub(crate) current_revision: String,
    pub(crate) update_revision: String,
    pub(crate) collision_count: i64,
}

/// A `DaemonSet`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct DaemonSet {
    pub(crate) metadata: Meta,
    pub(crate) spec: DaemonSetSpec,
    pub(crate) status: Value,
}

/// Spec of a `DaemonSet`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DaemonSetSpec {
    pub(crate) selector: LabelSelector,
    pub(crate) template: Value,
}

/// A `CustomResourceDefinition`: only its conditions.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct CustomResourceDefinition {
    pub(crate) metadata: Meta,
    pub(crate) status: CrdStatus,
}

/// Status of a `CustomResourceDefinition`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct CrdStatus {
    #[serde(deserialize_with = "api::meta::null_is_default")]
    pub(crate) conditions: Vec<Condition>,
}
