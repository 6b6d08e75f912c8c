//! What Kueue's admission webhooks do with Kueue's own kinds: defaults and validation.
//!
//! Rules, paths and texts are those of Kueue v0.19.1 (`pkg/webhooks`). Its webhooks get objects in `v1beta2`; the API server
//! converts the others before. Defaults and rules of the definitions (CEL among them) are not repeated here.
//!
//! The kinds with rules are `ClusterQueue`, Cohort, `ResourceFlavor`, Workload, and the kinds of jobs that are managed: those
//! with a controller, pods, and sets of pods.

mod cluster_queue;
mod deployment;
mod elastic;
mod field_error;
mod flavor;
mod gates;
mod job;
mod leader_worker_set;
mod names;
mod pod;
mod ray;
mod resource_groups;
mod reviewed;
mod same;
mod set_of_pods;
mod spark;
mod statefulset;
mod topology;
mod workload;
mod workload_update;

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::FINALIZER;
use super::feature_gates::FeatureGates;
use crate::selector::{LabelSelector, Labels};
use crate::value::{at, list};

pub use deployment::pod_of_deployment;
pub use field_error::{FieldError, Reason, aggregate};
pub use reviewed::ReviewedKind;

/// The operation of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// The object is created.
    Create,
    /// The object or its status is changed.
    Update,
}

/// What defaults and validation read beside the object.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Context {
    /// Feature gates.
    pub gates: Gates,
    /// Which jobs are managed.
    pub jobs: JobRules,
}

/// Which jobs are managed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JobRules {
    /// The names of the managed frameworks. Jobs of others are allowed as they are.
    pub frameworks: Vec<String>,
    /// The names of frameworks that others suspend and check. They queue for the jobs that their jobs own.
    pub others: Vec<String>,
    /// Whether jobs without the label of a queue are managed, too.
    pub manages_unnamed: bool,
    /// The namespaces whose jobs are managed.
    pub namespaces: LabelSelector,
    /// Pods wait for a Workload only if a set of pods holds them back: the kind of pods is managed for these sets alone.
    pub pods_of_sets_only: bool,
}

/// The feature gates of Kueue that defaults and validation depend on, by Kueue's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gates {
    /// `PartialAdmission`: `minCount` of pod sets is kept.
    pub partial_admission: bool,
    /// `TopologyAwareScheduling`: topology assignments may be set after the admission.
    pub topology_aware_scheduling: bool,
    /// `ElasticJobsViaWorkloadSlices`: the pod sets of an elastic workload may shrink.
    pub elastic_jobs_via_workload_slices: bool,
    /// `ConcurrentAdmission`: the concurrent admission policy of a cluster queue is checked.
    pub concurrent_admission: bool,
    /// `RejectUpdatesToCQWithInvalidOnFlavors`: flavors of admission checks are checked although they are unchanged.
    pub reject_updates_to_cq_with_invalid_on_flavors: bool,
    /// `AdmissionGatedBy`: the annotation of this name is checked.
    pub admission_gated_by: bool,
    /// `WorkloadPriorityClassDefaulting`: jobs get the priority class `default`.
    pub workload_priority_class_defaulting: bool,
    /// `PriorityBoost`: the annotation of this name is checked.
    pub priority_boost: bool,
    /// `WorkloadValidationForPodSetMetadata`: labels and annotations of pod templates are checked.
    pub workload_validation_for_pod_set_metadata: bool,
    /// `WorkloadValidateResourcesAreNonNegative`: requests and limits of pod templates are checked.
    pub workload_validate_resources_are_non_negative: bool,
    /// `TASValidateWorkloadSliceSize`: the sizes of slices in topology requests are checked.
    pub tas_validate_workload_slice_size: bool,
    /// `TASMultiLayerTopology`: the annotation with several layers of slices is allowed.
    pub tas_multi_layer_topology: bool,
    /// `LWSImmutableGroupSize`: the size of the groups of a queued `LeaderWorkerSet` does not change.
    pub lws_immutable_group_size: bool,
}

impl Default for Gates {
    fn default() -> Self {
        Self::from(&FeatureGates::default())
    }
}

impl From<&FeatureGates> for Gates {
    fn from(gates: &FeatureGates) -> Self {
        Self {
            partial_admission: gates.enabled("PartialAdmission"),
            topology_aware_scheduling: gates.enabled("TopologyAwareScheduling"),
            elastic_jobs_via_workload_slices: gates.enabled("ElasticJobsViaWorkloadSlices"),
            concurrent_admission: gates.enabled("ConcurrentAdmission"),
            reject_updates_to_cq_with_invalid_on_flavors: gates
                .enabled("RejectUpdatesToCQWithInvalidOnFlavors"),
            admission_gated_by: gates.enabled("AdmissionGatedBy"),
            workload_priority_class_defaulting: gates.enabled("WorkloadPriorityClassDefaulting"),
            priority_boost: gates.enabled("PriorityBoost"),
            workload_validation_for_pod_set_metadata: gates.enabled("WorkloadValidationForPodSetMetadata"),
            workload_validate_resources_are_non_negative: gates
                .enabled("WorkloadValidateResourcesAreNonNegative"),
            tas_validate_workload_slice_size: gates.enabled("TASValidateWorkloadSliceSize"),
            tas_multi_layer_topology: gates.enabled("TASMultiLayerTopology"),
            lws_immutable_group_size: gates.enabled("LWSImmutableGroupSize"),
        }
    }
}

/// The name of the `LocalQueue` and of the `WorkloadPriorityClass` that jobs get by default.
pub const DEFAULT: &str = "default";

/// What the defaults and the rules of a job read beside the job.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JobDefaults {
    /// The labels of its namespace; `None` if they are not known.
    pub namespace_labels: Option<Labels>,
    /// Whether its namespace has a `LocalQueue` with the name `default`.
    pub has_queue: bool,
    /// Whether there is a `WorkloadPriorityClass` with the name `default`.
    pub has_class: bool,
    /// Whether the object that it names as its controller is known not to be there: the reference is a claim of its author.
    pub is_ownerless: bool,
    /// The `LocalQueue` objects of its namespace whose Workloads run in other clusters.
    pub remote_queues: BTreeSet<String>,
}

/// Fills in defaults. `resource` is the plural name; the object is in `v1beta2`. `of_jobs` is read for jobs alone.
pub fn default(
    resource: &str,
    operation: Operation,
    object: &mut Value,
    of_jobs: &JobDefaults,
    context: &Context,
) {
    match (resource, operation) {
        ("clusterqueues" | "resourceflavors", Operation::Create) => add_finalizer(object, FINALIZER),
        ("workloads", Operation::Create) if !context.gates.partial_admission => drop_min_counts(object),
        _ => job::default(resource, operation, object, of_jobs, context),
    }
}

/// Checks an object as the API server does by Kueue's webhook. Arguments as of [`validate`]; returns warnings.
///
/// # Errors
/// The text of the response, if the webhook denies the request.
pub fn review(
    resource: &str,
    operation: Operation,
    object: &Value,
    old: Option<&Value>,
    of_jobs: &JobDefaults,
    context: &Context,
) -> Result<Vec<String>, String> {
    let errors = validate(resource, operation, object, old, of_jobs, context);
    if errors.is_empty() {
        return Ok(warnings(resource, operation, object, context));
    }
    let name = validating_webhook(resource).unwrap_or_default();
    Err(format!("admission webhook \"{name}\" denied the request: {}", aggregate(&errors)))
}

/// The rules that an object breaks, in the order of Kueue. `resource` is the plural name; objects are in `v1beta2`, and
/// `old` is the stored object of an update.
pub fn validate(
    resource: &str,
    operation: Operation,
    object: &Value,
    old: Option<&Value>,
    of_jobs: &JobDefaults,
    context: &Context,
) -> Vec<FieldError> {
    let gates = &context.gates;
    let old = old.filter(|_| operation == Operation::Update);
    match resource {
        "clusterqueues" => cluster_queue::validate(object, old, gates),
        "cohorts" => resource_groups::validate_cohort(object),
        "resourceflavors" => flavor::validate(object),
        "workloads" => match old {
            None => workload::validate(object, None, gates),
            Some(old) => workload_update::validate(object, old, gates),
        },
        _ => job::validate(resource, object, old, of_jobs, context),
    }
}

/// Warnings for the author of an object that is accepted.
pub fn warnings(resource: &str, operation: Operation, object: &Value, context: &Context) -> Vec<String> {
    match resource {
        "workloads" => workload::warnings(object),
        "pods" => pod::warning(object, operation, &context.jobs).into_iter().collect(),
        _ => Vec::new(),
    }
}

/// The name of the webhook that validates a resource, given by its plural name; a refusal begins with it.
pub fn validating_webhook(resource: &str) -> Option<String> {
    let own = ["clusterqueues", "cohorts", "resourceflavors", "workloads"];
    let of_jobs = ReviewedKind::all().map(|kind| kind.plural);
    let known = own.into_iter().chain(of_jobs).find(|known| *known == resource)?;
    Some(format!("v{}.kb.io", known.strip_suffix('s').unwrap_or(known)))
}

fn add_finalizer(object: &mut Value, name: &str) {
    if list(object, &["metadata", "finalizers"]).iter().any(|finalizer| finalizer == name) {
        return;
    }
    let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    match meta.get_mut("finalizers").and_then(Value::as_array_mut) {
        Some(finalizers) => finalizers.push(name.into()),
        None => {
            meta.insert("finalizers".into(), json!([name]));
        }
    }
}

fn drop_min_counts(object: &mut Value) {
    let pod_sets = object.get_mut("spec").and_then(|spec| spec.get_mut("podSets"));
    for pod_set in pod_sets.and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(fields) = pod_set.as_object_mut() {
            fields.remove("minCount");
        }
    }
}

/// Whether a condition has the status `True`.
fn is_true(object: &Value, condition: &str) -> bool {
    list(object, &["status", "conditions"])
        .iter()
        .any(|found| at(found, &["type"]) == condition && at(found, &["status"]) == "True")
}
