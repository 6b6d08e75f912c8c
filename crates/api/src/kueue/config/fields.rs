//! The fields of the configuration, as in `config.kueue.x-k8s.io/v1beta2`. A field that the file leaves out is `None`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::GoDuration;
use super::manager::{
    ClientConnection, Controller, Health, InternalCertManagement, LabelSelector, LeaderElection, Metrics,
    Tls, VisibilityServer, Webhook,
};

/// Kueue's configuration.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Fields {
    /// `config.kueue.x-k8s.io/v1beta2`, after the conversion.
    pub api_version: String,
    /// `Configuration`.
    pub kind: String,
    /// Namespace of the controller.
    pub namespace: Option<String>,
    /// Where the webhooks are served.
    pub webhook: Option<Webhook>,
    /// The lease of the leader.
    pub leader_election: Option<LeaderElection>,
    /// Where and which metrics are served.
    pub metrics: Option<Metrics>,
    /// Where the probes are served.
    pub health: Option<Health>,
    /// Address of Go's profiles. Muster has none.
    pub pprof_bind_address: Option<String>,
    /// Limits of Kueue's controllers.
    pub controller: Option<Controller>,
    /// TLS of the webhooks, the metrics and the visibility API.
    pub tls: Option<Tls>,
    /// Manage jobs without a queue name, too.
    pub manage_jobs_without_queue_name: Option<bool>,
    /// Namespaces whose jobs are managed.
    pub managed_jobs_namespace_selector: Option<LabelSelector>,
    /// The controller's own certificates.
    pub internal_cert_management: Option<InternalCertManagement>,
    /// Evict workloads whose pods do not get ready.
    pub wait_for_pods_ready: Option<WaitForPodsReady>,
    /// Rate limits of the client.
    pub client_connection: Option<ClientConnection>,
    /// The kinds of jobs.
    pub integrations: Option<Integrations>,
    /// Dispatch to other clusters.
    pub multi_kueue: Option<MultiKueue>,
    /// Order and preemption by dominant share. Its presence turns it on.
    pub fair_sharing: Option<FairSharing>,
    /// Order of local queues by usage. Its presence turns it on.
    pub admission_fair_sharing: Option<AdmissionFairSharing>,
    /// How requests become quota.
    pub resources: Option<Resources>,
    /// Feature gates by name.
    pub feature_gates: Option<BTreeMap<String, bool>>,
    /// When objects are deleted.
    pub object_retention_policies: Option<ObjectRetentionPolicies>,
    /// Where the visibility API is served.
    pub visibility_server: Option<VisibilityServer>,
}

/// Evict workloads whose pods do not get ready.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WaitForPodsReady {
    /// Time from admission until all pods are ready.
    pub timeout: Option<GoDuration>,
    /// Admit nothing while pods of an admitted workload are not ready.
    pub block_admission: Option<bool>,
    /// When an evicted workload is tried again.
    pub requeuing_strategy: Option<RequeuingStrategy>,
    /// Time until pods that were ready are ready again. Default: `timeout`.
    pub recovery_timeout: Option<GoDuration>,
}

/// When an evicted workload is tried again.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RequeuingStrategy {
    /// What orders it. Default: `Eviction`.
    pub timestamp: Option<RequeuingTimestamp>,
    /// Number of evictions after which it is deactivated. Default: no limit.
    pub backoff_limit_count: Option<i32>,
    /// Default: 60.
    pub backoff_base_seconds: Option<i32>,
    /// Default: 3600.
    pub backoff_max_seconds: Option<i32>,
}

/// What orders an evicted workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum RequeuingTimestamp {
    /// Its creation.
    Creation,
    /// Its last eviction.
    Eviction,
}

/// The kinds of jobs.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Integrations {
    /// Names of kinds that Kueue knows. Default: `batch/job`.
    pub frameworks: Option<Vec<String>>,
    /// Kinds with controllers of their own, as `Kind.version.group`.
    pub external_frameworks: Option<Vec<String>>,
    /// Labels of a job that its workload gets.
    pub label_keys_to_copy: Option<Vec<String>>,
}

/// Dispatch to other clusters.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MultiKueue {
    /// Interval at which remote objects without a local owner are deleted.
    pub gc_interval: Option<GoDuration>,
    /// Label value of remote objects.
    pub origin: Option<String>,
    /// How long a lost cluster keeps its workloads.
    pub worker_lost_timeout: Option<GoDuration>,
    /// What nominates clusters.
    pub dispatcher_name: Option<String>,
    /// Further kinds, as `Kind.version.group`.
    pub external_frameworks: Option<Vec<Named>>,
    /// Access by `ClusterProfile` objects.
    pub cluster_profile: Option<ClusterProfile>,
    /// Of the dispatcher that nominates step by step.
    pub incremental_dispatcher_config: Option<IncrementalDispatcher>,
}

/// A name.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Named {
    /// The name.
    pub name: String,
}

/// Access by `ClusterProfile` objects.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClusterProfile {
    /// Programs that get credentials.
    pub access_providers: Option<Vec<Provider>>,
    /// The former name of `accessProviders`.
    pub credentials_providers: Option<Vec<Provider>>,
}

/// A program that gets credentials.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Provider {
    /// Name in the profile.
    pub name: String,
    /// How it is called.
    pub exec_config: ExecConfig,
}

/// How a program that gets credentials is called, as in a kubeconfig.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExecConfig {
    /// The program.
    pub command: String,
    /// Its arguments.
    pub args: Option<Vec<String>>,
    /// Its environment.
    pub env: Option<Vec<EnvVar>>,
    /// Version of its output.
    pub api_version: Option<String>,
    /// Told when the program is missing.
    pub install_hint: Option<String>,
    /// Whether it gets the cluster.
    pub provide_cluster_info: Option<bool>,
    /// Whether it may ask. Kueue reads this field with a capital letter; both are accepted.
    #[serde(alias = "InteractiveMode")]
    pub interactive_mode: Option<String>,
}

/// A variable of an environment.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EnvVar {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// Of the dispatcher that nominates step by step.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct IncrementalDispatcher {
    /// Clusters per step. Default: 3.
    pub step_size: Option<i32>,
}

/// Order and preemption by dominant share.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FairSharing {
    /// The rules that a preemption may satisfy, in the order of attempts.
    pub preemption_strategies: Option<Vec<PreemptionStrategy>>,
}

/// A rule that a preemption between cluster queues may satisfy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum PreemptionStrategy {
    /// The share of the preemptor is at most the share that the victim's queue has afterwards.
    LessThanOrEqualToFinalShare,
    /// The share of the preemptor is below the share that the victim's queue had.
    LessThanInitialShare,
}

/// Order of local queues by usage.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AdmissionFairSharing {
    /// Time in which usage decays to a half. Zero: at once.
    pub usage_half_life_time: Option<GoDuration>,
    /// Interval at which usage is sampled. Default: 5m.
    pub usage_sampling_interval: Option<GoDuration>,
    /// Weight of each resource. Default: 1.
    pub resource_weights: Option<BTreeMap<String, f64>>,
}

/// How requests become quota.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Resources {
    /// Whether a resource that a cluster queue does not cover blocks.
    pub quota_check_strategy: Option<QuotaCheckStrategy>,
    /// Resources that are not counted.
    pub exclude_resource_prefixes: Option<Vec<String>>,
    /// Resources that count as others.
    pub transformations: Option<Vec<Transformation>>,
    /// Device classes that count as resources.
    pub device_class_mappings: Option<Vec<DeviceClassMapping>>,
}

/// Whether a resource that a cluster queue does not cover blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum QuotaCheckStrategy {
    /// It blocks.
    BlockUndeclared,
    /// It is ignored.
    IgnoreUndeclared,
}

/// A resource that counts as others.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Transformation {
    /// The resource of requests.
    pub input: String,
    /// Whether the input counts, too. Default: `Retain`.
    pub strategy: Option<TransformationStrategy>,
    /// A resource whose amount multiplies the outputs.
    pub multiply_by: Option<String>,
    /// Amounts for each unit of the input.
    pub outputs: Option<BTreeMap<String, Quantity>>,
}

/// Whether the input of a transformation counts, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
pub enum TransformationStrategy {
    /// It counts.
    Retain,
    /// It does not.
    Replace,
}

/// A quantity, as text or number.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(untagged)]
pub enum Quantity {
    /// Such as `500m`.
    Text(String),
    /// Such as `2`.
    Number(serde_json::Number),
}

/// Device classes that count as a resource.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeviceClassMapping {
    /// The resource.
    pub name: String,
    /// The classes.
    pub device_class_names: Vec<String>,
    /// What is counted. Default: devices.
    pub sources: Option<Vec<DeviceSource>>,
}

/// What of a device is counted: exactly one of both.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeviceSource {
    /// A counter of the driver.
    pub counter: Option<DeviceQuantity>,
    /// A capacity of the device.
    pub capacity: Option<DeviceQuantity>,
}

/// A quantity of devices.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeviceQuantity {
    /// Its name.
    pub name: String,
    /// The driver.
    pub driver: String,
    /// The devices.
    pub device_selector: Option<DeviceSelector>,
}

/// Selects devices.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeviceSelector {
    /// By an expression.
    pub cel: Option<CelSelector>,
}

/// Selects devices by an expression.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CelSelector {
    /// In CEL.
    pub expression: String,
}

/// When objects are deleted.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ObjectRetentionPolicies {
    /// Workloads.
    pub workloads: Option<WorkloadRetention>,
}

/// When workloads are deleted.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WorkloadRetention {
    /// So long after the end. Default: never.
    pub after_finished: Option<GoDuration>,
    /// So long after a deactivation by the controller. Default: never.
    pub after_deactivated_by_kueue: Option<GoDuration>,
}
