//! Kueue's objects in `kueue.x-k8s.io/v1beta2`, with only the fields that decisions read.
//!
//! After `apis/kueue/v1beta2` of Kueue v0.19. Quantities stay JSON values, because they can be texts or numbers.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::status::Condition;
use crate::Meta;
use crate::meta::null_is_default;

macro_rules! object {
    ($(#[$doc:meta])* $kind:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        pub struct $kind {
            $($(#[$field_doc])* #[serde(deserialize_with = "null_is_default")] pub $field: $type,)*
        }
    };
}

object! {
    /// A `ResourceFlavor`.
    ResourceFlavor {
        /// Metadata.
        metadata: Meta,
        /// Spec.
        spec: FlavorSpec,
    }
}

object! {
    /// The spec of a `ResourceFlavor`.
    FlavorSpec {
        /// Labels of its nodes.
        node_labels: BTreeMap<String, String>,
        /// Taints of its nodes.
        node_taints: Vec<Taint>,
        /// Tolerations that its pods get, as in a pod.
        tolerations: Vec<Value>,
        /// The name of its topology; empty for none.
        topology_name: String,
    }
}

object! {
    /// A taint.
    Taint {
        /// Key.
        key: String,
        /// Value.
        value: String,
        /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
        effect: String,
    }
}

object! {
    /// A `Topology`.
    Topology {
        /// Metadata.
        metadata: Meta,
        /// Spec.
        spec: TopologySpec,
    }
}

object! {
    /// The spec of a `Topology`.
    TopologySpec {
        /// Its levels, the broadest first.
        levels: Vec<TopologyLevel>,
    }
}

object! {
    /// A level of a `Topology`.
    TopologyLevel {
        /// The key of the node label.
        node_label: String,
    }
}

object! {
    /// A `Cohort`.
    Cohort {
        /// Metadata.
        metadata: Meta,
        /// Spec.
        spec: CohortSpec,
    }
}

object! {
    /// The spec of a `Cohort`.
    CohortSpec {
        /// The name of its parent; empty for a root.
        parent_name: String,
        /// Quota of its own.
        resource_groups: Vec<ResourceGroup>,
        /// Its weight among its siblings.
        fair_sharing: FairSharing,
    }
}

object! {
    /// A `ClusterQueue`.
    ClusterQueue {
        /// Metadata.
        metadata: Meta,
        /// Spec.
        spec: ClusterQueueSpec,
        /// Status.
        status: QueueStatus,
    }
}

object! {
    /// The spec of a `ClusterQueue`.
    ClusterQueueSpec {
        /// Its quota, by groups of resources.
        resource_groups: Vec<ResourceGroup>,
        /// The name of its cohort; empty for none.
        cohort_name: String,
        /// `BestEffortFIFO` or `StrictFIFO`.
        queueing_strategy: String,
        /// The namespaces whose workloads it admits; absent: none.
        namespace_selector: Option<Value>,
        /// How the flavors of a group are tried.
        flavor_fungibility: FlavorFungibility,
        /// Which workloads its workloads may preempt.
        preemption: Preemption,
        /// The checks that its workloads have to pass.
        admission_checks_strategy: ChecksStrategy,
        /// `None`, `Hold` or `HoldAndDrain`.
        stop_policy: String,
        /// Its weight in its cohort.
        fair_sharing: FairSharing,
        /// How its local queues are ordered.
        admission_scope: AdmissionScope,
    }
}

object! {
    /// How the local queues of a `ClusterQueue` are ordered.
    AdmissionScope {
        /// `UsageBasedAdmissionFairSharing` or `NoAdmissionFairSharing`; empty: the latter.
        admission_mode: String,
    }
}

object! {
    /// Resources that share a list of flavors.
    ResourceGroup {
        /// The names of the resources.
        covered_resources: Vec<String>,
        /// The flavors, in the order in which they are tried.
        flavors: Vec<FlavorQuotas>,
    }
}

object! {
    /// The quota of one flavor.
    FlavorQuotas {
        /// The name of the flavor.
        name: String,
        /// The quota of each resource.
        resources: Vec<ResourceQuota>,
    }
}

object! {
    /// The quota of one resource in one flavor.
    ResourceQuota {
        /// The name of the resource.
        name: String,
        /// The nominal quota, a quantity.
        nominal_quota: Value,
        /// How much more may be borrowed, a quantity; absent: no limit.
        borrowing_limit: Option<Value>,
        /// How much may be lent, a quantity; absent: all.
        lending_limit: Option<Value>,
    }
}

object! {
    /// How the flavors of a group are tried.
    FlavorFungibility {
        /// `MayStopSearch` (default) or `TryNextFlavor`.
        when_can_borrow: String,
        /// `TryNextFlavor` (default) or `MayStopSearch`.
        when_can_preempt: String,
        /// `BorrowingOverPreemption` (default) or `PreemptionOverBorrowing`.
        preference: String,
    }
}

object! {
    /// Which workloads may be preempted.
    Preemption {
        /// `Never` (default), `LowerPriority` or `LowerOrNewerEqualPriority`.
        within_cluster_queue: String,
        /// `Never` (default), `LowerPriority` or `Any`.
        reclaim_within_cohort: String,
        /// While borrowing.
        borrow_within_cohort: BorrowWithinCohort,
    }
}

object! {
    /// Preemption in the cohort while borrowing.
    BorrowWithinCohort {
        /// `Never` (default) or `LowerPriority`.
        policy: String,
        /// The highest priority of a victim.
        max_priority_threshold: Option<i32>,
    }
}

object! {
    /// The admission checks of a `ClusterQueue`.
    ChecksStrategy {
        /// The checks.
        admission_checks: Vec<CheckRule>,
    }
}

object! {
    /// An admission check of a `ClusterQueue`.
    CheckRule {
        /// The name of the `AdmissionCheck`.
        name: String,
        /// The flavors that need it; empty: all.
        on_flavors: Vec<String>,
    }
}

object! {
    /// A weight for fair sharing.
    FairSharing {
        /// A quantity; absent: 1.
        weight: Option<Value>,
    }
}

object! {
    /// The status of a queue: its conditions. The rest is computed.
    QueueStatus {
        /// Conditions.
        conditions: Vec<Condition>,
    }
}

object! {
    /// A `LocalQueue`.
    LocalQueue {
        /// Metadata.
        metadata: Meta,
        /// Spec.
        spec: LocalQueueSpec,
        /// Status.
        status: LocalQueueStatus,
    }
}

object! {
    /// The spec of a `LocalQueue`.
    LocalQueueSpec {
        /// The name of its `ClusterQueue`.
        cluster_queue: String,
        /// `None`, `Hold` or `HoldAndDrain`.
        stop_policy: String,
        /// Its weight among the local queues of its `ClusterQueue`.
        fair_sharing: FairSharing,
    }
}

object! {
    /// The status of a `LocalQueue`: what is not computed from other objects.
    LocalQueueStatus {
        /// Conditions.
        conditions: Vec<Condition>,
        /// Its usage, as recorded.
        fair_sharing: LocalQueueFairSharing,
    }
}

object! {
    /// The usage of a `LocalQueue`.
    LocalQueueFairSharing {
        /// For the order of the local queues.
        admission_fair_sharing_status: Option<RecordedUsage>,
    }
}

object! {
    /// The decayed usage of a `LocalQueue` at a time.
    RecordedUsage {
        /// By resource, quantities.
        consumed_resources: BTreeMap<String, Value>,
        /// The time, RFC 3339.
        last_update: String,
    }
}

object! {
    /// A `WorkloadPriorityClass`.
    WorkloadPriorityClass {
        /// Metadata.
        metadata: Meta,
        /// The priority of its Workloads.
        value: i32,
    }
}

object! {
    /// The spec of an `AdmissionCheck`.
    CheckSpec {
        /// The name of the controller that answers it.
        controller_name: String,
        /// The object with its parameters.
        parameters: Option<CheckParameters>,
    }
}

object! {
    /// A reference to the parameters of an `AdmissionCheck`.
    CheckParameters {
        /// The group of the object.
        api_group: String,
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
    }
}

object! {
    /// A `ProvisioningRequestConfig`.
    ProvisioningRequestConfig {
        /// Metadata.
        metadata: Meta,
        /// Spec.
        spec: ProvisioningConfigSpec,
    }
}

object! {
    /// The spec of a `ProvisioningRequestConfig`.
    ProvisioningConfigSpec {
        /// The class of the requests.
        provisioning_class_name: String,
        /// Their parameters.
        parameters: BTreeMap<String, String>,
        /// The resources whose pods need a request; empty: all.
        managed_resources: Vec<String>,
        /// What follows a failure.
        retry_strategy: RetryStrategy,
        /// What pods get after the provisioning.
        pod_set_updates: ProvisioningUpdates,
        /// `IdenticalPodTemplates` or `IdenticalWorkloadSchedulingRequirements`; empty: every pod set has its own entry.
        pod_set_merge_policy: String,
    }
}

object! {
    /// When a failed request is followed by another one.
    RetryStrategy {
        /// How often; absent: 3.
        backoff_limit_count: Option<i64>,
        /// The pause before the first retry, in seconds; it doubles with each one. Absent: 60.
        backoff_base_seconds: Option<i64>,
        /// The longest pause, in seconds. Absent: 1800.
        backoff_max_seconds: Option<i64>,
    }
}

object! {
    /// What pods get after the provisioning.
    ProvisioningUpdates {
        /// Node labels.
        node_selector: Vec<DetailSelector>,
    }
}

object! {
    /// A node label whose value is a detail of the request.
    DetailSelector {
        /// The key of the label.
        key: String,
        /// The key of the detail.
        value_from_provisioning_class_detail: String,
    }
}

object! {
    /// An `AdmissionCheck`.
    AdmissionCheck {
        /// Metadata.
        metadata: Meta,
        /// Spec.
        spec: CheckSpec,
        /// Status.
        status: QueueStatus,
    }
}

impl ClusterQueue {
    /// Whether its stop policy keeps Workloads out.
    pub fn is_stopped(&self) -> bool {
        stops(&self.spec.stop_policy)
    }
}

impl ClusterQueue {
    /// Whether its local queues are ordered by usage.
    pub fn orders_by_usage(&self) -> bool {
        self.spec.admission_scope.admission_mode == "UsageBasedAdmissionFairSharing"
    }
}

impl LocalQueue {
    /// Whether its stop policy keeps Workloads out.
    pub fn is_stopped(&self) -> bool {
        stops(&self.spec.stop_policy)
    }
}

fn stops(policy: &str) -> bool {
    !matches!(policy, "" | "None")
}

impl AdmissionCheck {
    /// Whether its controller has reported that it works.
    pub fn is_active(&self) -> bool {
        self.status.conditions.iter().any(|condition| condition.kind == "Active" && condition.is_true())
    }
}
