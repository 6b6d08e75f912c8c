//! The rules of Spark applications in queues. After the webhook of `pkg/controller/jobs/sparkapplication` of Kueue v0.19.

use serde_json::Value;

use super::Gates;
use super::field_error::FieldError;
use super::topology::{PathedSet, check_sets};
use crate::kueue::jobs::{ELASTIC, JobKind, annotation};

/// Why an application must not change the number of its executors.
const NO_ALLOCATION: &str = "a kueue managed job can use dynamicAllocation only when the ElasticJobsViaWorkloadSlices feature gate \
     is on and the job is an elastic job";

/// The rules of an application with a queue.
pub(super) fn check(app: &Value, errors: &mut Vec<FieldError>) {
    let mode = &app["spec"]["mode"];
    if mode != "cluster" {
        let why = "only Cluster mode is supported for a kueue managed job";
        errors.push(FieldError::invalid("spec.mode", mode.as_str().unwrap_or_default(), why));
    }
    if app["spec"]["dynamicAllocation"]["enabled"] == true && annotation(app, ELASTIC) != Some("true") {
        errors.push(FieldError::invalid("spec.dynamicAllocation.enabled", true, NO_ALLOCATION));
    }
}

/// Checks what the annotations of the driver and of the executors ask for.
pub(super) fn check_topology(kind: &JobKind, app: &Value, gates: &Gates, errors: &mut Vec<FieldError>) {
    let sets = kind.integration.pod_sets(app).into_iter();
    let sets =
        sets.map(|set| PathedSet { path: format!("spec.{}", set["name"].as_str().unwrap_or_default()), set });
    check_sets(&sets.collect::<Vec<_>>(), gates, errors);
}
