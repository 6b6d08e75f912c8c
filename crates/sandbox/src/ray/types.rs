//! RayCluster and RayJob: the fields that the operator reads. Pod templates stay JSON, so that no field is lost.
#![allow(clippy::struct_field_names, reason = "fields have the names of the API")]

use std::collections::BTreeMap;

use serde::ser::Error as _;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use crate::cluster::Counted;
use crate::wire::{Condition, Meta, Pod, Quantity, Stamp};

/// A RayCluster.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct RayCluster {
    pub(crate) metadata: Meta,
    pub(crate) spec: ClusterSpec,
    pub(crate) status: ClusterStatus,
}

/// Spec of a RayCluster.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ClusterSpec {
    pub(crate) suspend: Option<bool>,
    pub(crate) managed_by: Option<String>,
    pub(crate) ray_version: String,
    pub(crate) enable_in_tree_autoscaling: bool,
    pub(crate) autoscaler_options: Value,
    pub(crate) head_group_spec: Group,
    pub(crate) worker_group_specs: Vec<Group>,
    pub(crate) head_service_annotations: BTreeMap<String, String>,
    pub(crate) gcs_fault_tolerance_options: Value,
    pub(crate) auth_options: Value,
}

/// The head group or a worker group.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Group {
    pub(crate) group_name: String,
    pub(crate) replicas: Option<i64>,
    pub(crate) min_replicas: Option<i64>,
    pub(crate) max_replicas: Option<i64>,
    pub(crate) num_of_hosts: Option<i64>,
    pub(crate) suspend: Option<bool>,
    pub(crate) scale_strategy: ScaleStrategy,
    pub(crate) ray_start_params: BTreeMap<String, String>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) resources: BTreeMap<String, String>,
    pub(crate) service_type: String,
    pub(crate) head_service: Value,
    pub(crate) enable_ingress: bool,
    pub(crate) template: Value,
}

impl Counted for RayCluster {
    fn largest(&self) -> i64 {
        let pods = |group: &Group| group.desired_replicas().saturating_mul(group.hosts());
        self.spec.worker_group_specs.iter().map(pods).max().unwrap_or(0)
    }

    fn lower(&mut self, most: i64) {
        for group in &mut self.spec.worker_group_specs {
            group.num_of_hosts = group.num_of_hosts.map(|hosts| hosts.min(most));
            let replicas = (most / group.hosts()).max(1);
            for count in [&mut group.replicas, &mut group.min_replicas] {
                *count = count.map(|count| count.min(replicas));
            }
        }
    }
}

/// The workers that the autoscaler wants to delete.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ScaleStrategy {
    pub(crate) workers_to_delete: Vec<String>,
}

impl Group {
    pub(super) fn hosts(&self) -> i64 {
        self.num_of_hosts.unwrap_or(1).max(1)
    }

    /// Desired replicas, limited to minimum and maximum; 0 if the group is suspended.
    pub(super) fn desired_replicas(&self) -> i64 {
        if self.suspend == Some(true) {
            return 0;
        }
        let min = self.min_replicas.unwrap_or(0);
        let max = self.max_replicas.unwrap_or(i64::from(i32::MAX));
        self.replicas.unwrap_or(min).clamp(min.min(max), max)
    }

    /// The pod template as a typed pod.
    pub(super) fn pod(&self) -> Pod {
        serde_json::from_value(self.template.clone()).unwrap_or_default()
    }
}

impl ClusterSpec {
    /// Desired worker pods of all groups.
    pub(super) fn desired_workers(&self) -> i64 {
        self.worker_group_specs.iter().map(|group| group.desired_replicas() * group.hosts()).sum()
    }
}

/// Conditions of custom resources always have a message, even if it is empty.
fn with_messages<S: Serializer>(conditions: &[Condition], serializer: S) -> Result<S::Ok, S::Error> {
    let full = conditions.iter().map(|condition| {
        let mut value = serde_json::to_value(condition).map_err(S::Error::custom)?;
        value["message"] = condition.message.clone().into();
        Ok(value)
    });
    full.collect::<Result<Vec<_>, S::Error>>()?.serialize(serializer)
}

/// Status of a RayCluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ClusterStatus {
    pub(crate) state: Option<String>,
    pub(crate) reason: Option<String>,
    #[serde(serialize_with = "with_messages")]
    pub(crate) conditions: Vec<Condition>,
    pub(crate) desired_worker_replicas: Option<i64>,
    pub(crate) min_worker_replicas: Option<i64>,
    pub(crate) max_worker_replicas: Option<i64>,
    pub(crate) ready_worker_replicas: Option<i64>,
    pub(crate) available_worker_replicas: Option<i64>,
    #[serde(rename = "desiredCPU")]
    pub(crate) desired_cpu: Option<Quantity>,
    pub(crate) desired_memory: Option<Quantity>,
    #[serde(rename = "desiredGPU")]
    pub(crate) desired_gpu: Option<Quantity>,
    #[serde(rename = "desiredTPU")]
    pub(crate) desired_tpu: Option<Quantity>,
    pub(crate) endpoints: BTreeMap<String, String>,
    pub(crate) head: HeadInfo,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) state_transition_times: BTreeMap<String, Stamp>,
    pub(crate) last_update_time: Option<Stamp>,
    pub(crate) observed_generation: Option<i64>,
}

/// Addresses of the head.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct HeadInfo {
    #[serde(rename = "podIP", skip_serializing_if = "String::is_empty")]
    pub(crate) pod_ip: String,
    #[serde(rename = "podName", skip_serializing_if = "String::is_empty")]
    pub(crate) pod_name: String,
    #[serde(rename = "serviceIP", skip_serializing_if = "String::is_empty")]
    pub(crate) service_ip: String,
    #[serde(rename = "serviceName", skip_serializing_if = "String::is_empty")]
    pub(crate) service_name: String,
}

/// A RayJob.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct RayJob {
    pub(crate) metadata: Meta,
    pub(crate) spec: RayJobSpec,
    pub(crate) status: RayJobStatus,
}

/// Spec of a RayJob.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct RayJobSpec {
    pub(crate) entrypoint: String,
    #[serde(rename = "runtimeEnvYAML")]
    pub(crate) runtime_env_yaml: String,
    pub(crate) job_id: String,
    pub(crate) ray_cluster_spec: Value,
    pub(crate) cluster_selector: BTreeMap<String, String>,
    pub(crate) submission_mode: String,
    pub(crate) submitter_pod_template: Value,
    pub(crate) submitter_config: Value,
    pub(crate) suspend: bool,
    pub(crate) shutdown_after_job_finishes: bool,
    pub(crate) ttl_seconds_after_finished: i64,
    pub(crate) backoff_limit: Option<i64>,
    pub(crate) active_deadline_seconds: Option<i64>,
    pub(crate) pre_running_deadline_seconds: Option<i64>,
    pub(crate) deletion_strategy: DeletionStrategy,
    pub(crate) managed_by: Option<String>,
    #[serde(rename = "entrypointNumCpus")]
    pub(crate) entrypoint_cpus: Value,
    #[serde(rename = "entrypointNumGpus")]
    pub(crate) entrypoint_gpus: Value,
    pub(crate) entrypoint_resources: String,
    pub(crate) metadata: BTreeMap<String, String>,
}

/// What is deleted after a RayJob has finished.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DeletionStrategy {
    pub(crate) deletion_rules: Vec<DeletionRule>,
}

/// One deletion and its condition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct DeletionRule {
    pub(crate) policy: String,
    pub(crate) condition: DeletionCondition,
}

/// The job status and time to live of a deletion rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DeletionCondition {
    pub(crate) job_status: String,
    pub(crate) job_deployment_status: String,
    pub(crate) ttl_seconds: i64,
}

/// Status of a RayJob. Absent fields are written as null, which removes them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct RayJobStatus {
    pub(crate) job_id: Option<String>,
    pub(crate) ray_cluster_name: Option<String>,
    #[serde(rename = "dashboardURL")]
    pub(crate) dashboard_url: Option<String>,
    pub(crate) job_status: Option<String>,
    pub(crate) job_deployment_status: Option<String>,
    pub(crate) reason: Option<String>,
    pub(crate) message: Option<String>,
    pub(crate) start_time: Option<Stamp>,
    pub(crate) end_time: Option<Stamp>,
    pub(crate) succeeded: Option<i64>,
    pub(crate) failed: Option<i64>,
    pub(crate) ray_job_info: Option<RayJobInfo>,
    pub(crate) ray_cluster_status: Option<Value>,
}

/// Start and end of the job inside Ray.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct RayJobInfo {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) start_time: Option<Stamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) end_time: Option<Stamp>,
}

impl RayJobSpec {
    /// The cluster of the clusterSelector, if the job has no cluster of its own.
    pub(super) fn selected_cluster(&self) -> Option<&str> {
        self.cluster_selector.get("ray.io/cluster").map(String::as_str)
    }
}
